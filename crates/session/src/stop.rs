// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How an engine that runs is asked to end: from a signal's handler, another thread, or a socket. A flag that loops look at, and a
//! descriptor that ends their sleep.

use crate::Failure;
use nix::poll::{PollFd, PollFlags, ppoll};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Begin = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Whether somebody asked an engine to end.
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Has something to read once somebody has.
    told: UnixStream,
    /// Held, so that `told` does not end with the last handle.
    _tell: UnixStream,
    begin: Mutex<Option<Begin>>,
}

/// What asks.
#[derive(Debug)]
pub struct StopHandle {
    asked: Arc<AtomicBool>,
    tell: UnixStream,
}

impl Stop {
    /// A stop that nobody has asked for, and what asks for it.
    ///
    /// # Errors
    /// Of the system: no file can be opened.
    pub fn new() -> io::Result<(Stop, StopHandle)> {
        let asked = Arc::new(AtomicBool::new(false));
        let (told, tell) = UnixStream::pair()?;
        let held = tell.try_clone()?;
        let stop = Stop { asked: Arc::clone(&asked), told, _tell: held, begin: Mutex::default() };
        Ok((stop, StopHandle { asked, tell }))
    }

    /// The same, and what asks for it is set up by `begin`, once COMMAND has been forked: a handler for a signal that was ignored would be
    /// inherited as no longer ignored (nohup).
    ///
    /// # Errors
    /// Of the system: no file can be opened.
    pub fn beginning_later(
        begin: impl FnOnce(&StopHandle) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Stop> {
        let (stop, handle) = Stop::new()?;
        Ok(Stop { begin: Mutex::new(Some(Box::new(move || begin(&handle)))), ..stop })
    }

    /// COMMAND has been forked, if there is one. Does something the first time only.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        let failed = |error| Failure::doing("preparing to be stopped", error);
        begin.map_or(Ok(()), |begin| begin().map_err(failed))
    }

    /// The flag itself, for a loop that is not ours.
    #[must_use]
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// Sleeps, until somebody asks, `other` can be read, or the time is over. May end early.
    pub fn wait(&self, time: Duration, other: Option<&OwnedFd>) {
        let watched = [Some(self.told.as_fd()), other.map(AsFd::as_fd)].into_iter().flatten();
        let mut watched: Vec<PollFd> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Whether something came or a signal interrupted it: the caller polls all of it again.
        let _ = ppoll(&mut watched, Some(time.into()), None);
    }

    /// Whether somebody has asked.
    #[must_use]
    pub fn asked(&self) -> bool {
        // ORDER: relaxed; the flag stands for itself, nothing is read because of it.
        self.asked.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Stop").field("asked", &self.asked()).finish_non_exhaustive()
    }
}

impl StopHandle {
    /// Asks.
    pub fn ask(&self) {
        // ORDER: relaxed; as in `asked`. The sleeper that the byte wakes looks at the flag after a system call of each side.
        self.asked.store(true, Ordering::Relaxed);
        // A full socket has woken the sleeper already; one without a reader has none.
        let _ = (&self.tell).write(&[0]);
    }

    /// Another one, for another thread.
    ///
    /// # Errors
    /// Of the system: no file can be opened.
    pub fn try_clone(&self) -> io::Result<StopHandle> {
        Ok(StopHandle { asked: self.flag(), tell: self.descriptor()? })
    }

    /// The flag, for a signal's handler. Whoever sets it writes a byte to [`StopHandle::descriptor`] afterwards.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// What wakes whoever waits.
    ///
    /// # Errors
    /// Of the system: no file can be opened.
    pub fn descriptor(&self) -> io::Result<UnixStream> {
        self.tell.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn asking_ends_a_sleep() {
        let (stop, handle) = Stop::new().unwrap();
        assert!(!stop.asked());
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| handle.ask());
            while !stop.asked() {
                stop.wait(Duration::from_secs(600), None);
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(500));
        // Also when nobody reads any more.
        drop(stop);
        handle.ask();
    }

    #[test]
    fn without_anybody_who_could_ask_it_sleeps() {
        let (stop, handle) = Stop::new().unwrap();
        drop(handle);
        let begun = Instant::now();
        stop.wait(Duration::from_millis(50), None);
        assert!(begun.elapsed() >= Duration::from_millis(50) && !stop.asked());
    }

    #[test]
    fn what_begins_later_begins_once() {
        let stop = Stop::beginning_later(|handle| {
            handle.ask();
            Ok(())
        })
        .unwrap();
        assert!(!stop.asked());
        stop.begin().unwrap();
        assert!(stop.asked());
        stop.begin().unwrap();
        let fails = Stop::beginning_later(|_| Err(io::Error::other("no"))).unwrap();
        assert!(fails.begin().is_err());
    }
}
