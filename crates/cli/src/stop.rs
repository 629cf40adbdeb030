// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that end a watch or a recording. The first one ends it in order (a snapshot under way is finished); a Ctrl-C after that ends
//! it at once. The others may come more than once for one reason: SIGHUP from the terminal and from the shell, and SIGTERM as the
//! signal that tells of a parent's death, which comes once for each of its threads.

use crate::exit::Failure;
use nix::poll::{PollFd, PollFlags, ppoll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether somebody asked us to stop.
#[derive(Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Has something to read once a signal has come.
    told: UnixStream,
}

impl Stop {
    /// From now on.
    pub fn on_signals() -> Result<Stop, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let failed = |error| Failure::doing("installing signal handlers", error);
        // Before the next: a second Ctrl-C finds the flag set and ends the process.
        flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&asked)).map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&asked)).map_err(failed)?;
        }
        // After the flag: a thread that is woken finds it set.
        let (told, tell) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, tell.try_clone().map_err(failed)?).map_err(failed)?;
        }
        // A file that may grow no more (ulimit -f) would end the process there and then, with all that it has switched on: the write shall
        // fail, as on a full disk. A handler and not SIG_IGN, which programs that are started would inherit. Nobody asks for the flag.
        flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
        Ok(Stop { asked, told })
    }

    /// The flag itself, for a loop that is not ours.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// Sleeps, until a signal asks, `other` can be read, or the time is over.
    pub fn wait(&self, time: Duration, other: Option<&OwnedFd>) {
        let watched = [Some(self.told.as_fd()), other.map(AsFd::as_fd)].into_iter().flatten();
        let mut watched: Vec<PollFd> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Whether something came or a signal interrupted it: the caller polls all of it again.
        let _ = ppoll(&mut watched, Some(time.into()), None);
    }

    /// Whether somebody has asked.
    pub fn asked(&self) -> bool {
        // ORDER: relaxed; the flag stands for itself, nothing is read because of it.
        self.asked.load(Ordering::Relaxed)
    }
}
