// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How an engine that runs is asked to end: from a signal's handler, another thread, or a socket. A flag that loops look at, and a
//! descriptor that ends their sleep.

use nix::poll::{PollFd, PollFlags, ppoll};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether somebody asked an engine to end.
#[derive(Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Has something to read once somebody has.
    told: UnixStream,
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
        Ok((Stop { asked: Arc::clone(&asked), told }, StopHandle { asked, tell }))
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

impl StopHandle {
    /// Asks.
    pub fn ask(&self) {
        // ORDER: relaxed; as in `asked`. The sleeper that the byte wakes looks at the flag after a system call of each side.
        self.asked.store(true, Ordering::Relaxed);
        // A full socket has woken the sleeper already; one without a reader has none.
        let _ = (&self.tell).write(&[0]);
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
        // Again and again, also when nobody reads any more.
        (0..100_000).take_while(|_| handle.flag().load(Ordering::Relaxed)).for_each(drop);
        drop(stop);
        handle.ask();
    }
}
