// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shield for the time of a row, which is undone whatever happens to rtscope: by this process where it can, else by a second
//! one, which waits for nothing but the first one's end.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid, pipe2, setsid};
use rtscope_session::command::end_of;
use rtscope_session::{Failure, Observer};
use rtscope_shield::apply::{self, UndoOutcome};
use rtscope_shield::journal::{Journal, State};
use rtscope_shield::step::Step;
use rtscope_shield::{Error, System};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// The shield. Dropping it undoes it.
pub struct Guard<'a> {
    system: &'a System,
    observer: &'a dyn Observer,
    undo_process: UndoProcess,
    is_made: bool,
}

impl<'a> Guard<'a> {
    /// Makes the shield by `make`. Call this in a process of one thread.
    pub fn create(
        system: &'a System,
        observer: &'a dyn Observer,
        make: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Guard<'a>, Failure> {
        let undo_process = UndoProcess::start(system, observer)?;
        // From here on whatever is half made is ours; a shield of somebody else's is refused, and left.
        let mut guard = Guard { system, observer, undo_process, is_made: false };
        let known = Journal::load(system)?;
        if let Some(journal) = known.filter(|journal| journal.state != State::Left) {
            return Err(Error::Exists(journal.rt).into());
        }
        guard.undo_process.tell(b'!')?;
        make()?;
        guard.is_made = true;
        Ok(guard)
    }

    /// Undoes it, and says what could not be undone.
    pub fn undo(mut self) -> Result<Vec<(Step, UndoOutcome)>, Failure> {
        self.is_made = false;
        let undone = apply::undo(self.system, false)?.settings;
        self.undo_process.tell(b'.')?;
        Ok(undone)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.is_made {
            if let Err(error) = apply::undo(self.system, false) {
                self.observer.note(&format!("undoing the shield: {error}; rtscope shield undo tries again"));
            }
        }
        // It has nothing to do any more; should it be gone, all the better.
        let _ = self.undo_process.tell(b'.');
    }
}

/// The second process. It is in a session of its own, so that nobody's Ctrl-C ends it.
#[derive(Debug)]
struct UndoProcess {
    pid: Pid,
    words: Option<File>,
}

impl UndoProcess {
    fn start(system: &System, observer: &dyn Observer) -> Result<UndoProcess, Failure> {
        let failed =
            |error: Errno| Failure::doing("starting the process that undoes the shield", error.desc());
        let (ear, mouth) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(failed)?;
        // The loads inherit our end of the pipe, and one that hangs in the kernel keeps it open: so our own end counts.
        let ours = end_of(getpid());
        // SAFETY: this process has one thread (see Guard::create), so the child may do all that we may.
        match unsafe { fork() }.map_err(failed)? {
            ForkResult::Parent { child } => Ok(UndoProcess { pid: child, words: Some(File::from(mouth)) }),
            ForkResult::Child => {
                drop(mouth);
                wait_and_undo(system, observer, File::from(ear), ours.as_ref());
                // SAFETY: ends the child without running what belongs to the parent (destructors, buffers).
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// `!`: from now on there may be something to undo. `.`: there is nothing any more.
    fn tell(&mut self, word: u8) -> Result<(), Failure> {
        let Some(words) = &mut self.words else { return Ok(()) };
        words
            .write_all(&[word])
            .map_err(|error| Failure::doing("telling the process that undoes the shield", error))
    }
}

impl Drop for UndoProcess {
    fn drop(&mut self) {
        self.words = None;
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

/// Waits for a word; false: whatever could say one has ended, and all is read.
fn has_more(ear: &File, rtscope: Option<&OwnedFd>) -> bool {
    let fds = [Some(ear.as_fd()), rtscope.map(AsFd::as_fd)].into_iter().flatten();
    let mut watched: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    loop {
        match poll(&mut watched, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            result => return result.is_ok() && watched[0].any() == Some(true),
        }
    }
}

/// The child. `rtscope` can be read when that has ended; without it, the end of the pipe shows it.
fn wait_and_undo(system: &System, observer: &dyn Observer, mut ear: File, rtscope: Option<&OwnedFd>) {
    // Neither can fail in a new child.
    let _ = (setsid(), set_name(c"rtscope-undo"));
    for one in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: ignoring is no handler, so no code of ours can run in a wrong moment.
        let _ = unsafe { signal(one, SigHandler::SigIgn) };
    }
    let (mut last, mut byte) = (b'.', [0]);
    while has_more(&ear, rtscope) && ear.read(&mut byte).is_ok_and(|bytes| bytes == 1) {
        last = byte[0];
    }
    if last == b'!' {
        match apply::undo(system, false) {
            Ok(_) | Err(Error::None) => {}
            Err(error) => observer.note(&format!("undoing the shield of a table that was killed: {error}")),
        }
    }
}
