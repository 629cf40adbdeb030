// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of our own that must not outlive us: the loads and the waiter.
//!
//! They are forks and no threads, because a shield moves processes, and because a load that is killed takes all with it that it
//! had opened, mounted or queued. Each asks the kernel for SIGKILL when rtscope dies, so that even a killed rtscope leaves none.

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::{set_name, set_pdeathsig};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, ftruncate, getpid, getppid, pipe2};
use rtscope_ring::SharedMemory;
use rtscope_session::Failure;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

/// The end of a pipe in which a child says that it is ready, or why it cannot.
#[derive(Debug)]
pub struct StartReport(File);

impl StartReport {
    /// It is; with what is to be known of it.
    pub fn ready(mut self, text: &str) {
        // Who asked is gone then, and so are we soon.
        let _ = writeln!(self.0, "+{text}");
    }

    fn failed(mut self, why: &str) {
        // As above.
        let _ = writeln!(self.0, "-{why}");
    }
}

/// A running child. Dropping it kills it, and waits for its end.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    status: Option<WaitStatus>,
    answer: Option<File>,
}

impl Child {
    /// Forks, and runs `work` in the child, which says when it is ready. Call this in a process of one thread.
    pub fn start(
        name: &str,
        work: impl FnOnce(&mut Option<StartReport>) -> Result<(), String>,
    ) -> Result<Child, Failure> {
        let failed = |error: Errno| Failure::doing(format!("starting {name}"), error.desc());
        let name = CString::new(name).map_err(|error| Failure::Failed(error.to_string()))?;
        let (answer, report) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(failed)?;
        let parent = getpid();
        // SAFETY: this process has one thread (see above), so the child may do all that we may.
        match unsafe { fork() }.map_err(failed)? {
            ForkResult::Parent { child } => {
                Ok(Child { pid: child, status: None, answer: Some(File::from(answer)) })
            }
            ForkResult::Child => {
                drop(answer);
                let mut report = Some(StartReport(File::from(report)));
                let status = match on_a_lead(parent, &name).and_then(|()| work(&mut report)) {
                    Ok(()) => 0,
                    Err(why) => {
                        report.into_iter().for_each(|report| report.failed(&why));
                        1
                    }
                };
                // SAFETY: ends the child without running what belongs to the parent (destructors, buffers).
                unsafe { libc::_exit(status) }
            }
        }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Waits until it is ready, and gives what it says.
    pub fn ready(&mut self) -> Result<String, Failure> {
        let mut text = String::new();
        let mut byte = [0; 1];
        let mut answer =
            self.answer.take().ok_or_else(|| Failure::Failed("it was asked before".to_string()))?;
        while !text.ends_with('\n') {
            match answer.read(&mut byte) {
                Ok(1) => text.push(char::from(byte[0])),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        match text.trim_end().split_at_checked(1) {
            Some(("+", said)) => Ok(said.to_owned()),
            Some((_, why)) => Err(Failure::Failed(why.to_owned())),
            None => Err(Failure::Failed("it ended without an answer".to_string())),
        }
    }

    /// Whether it has ended. Asks the kernel once, and remembers.
    pub fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                Ok(status) => self.status = Some(status),
                Err(_) => self.status = Some(WaitStatus::Exited(self.pid, 0)),
            }
        }
        self.status.is_some()
    }

    /// How it ended, in words.
    pub fn complaint(&self) -> String {
        match self.status {
            Some(WaitStatus::Signaled(_, signal, _)) => format!("it was ended by {signal}"),
            Some(WaitStatus::Exited(_, status)) => format!("it ended with status {status}"),
            _ => "it did not end".to_owned(),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // It may have ended in between.
        let _ = kill(self.pid, Signal::SIGKILL);
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

/// The first thing that a child does.
fn on_a_lead(parent: Pid, name: &CString) -> Result<(), String> {
    let failed = |error: Errno| error.desc().to_owned();
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    if getppid() != parent {
        return Err("rtscope has ended".to_owned());
    }
    for one in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the default action is no handler, so no code of ours can run in a wrong moment.
        unsafe { signal(one, SigHandler::SigDfl) }.map_err(failed)?;
    }
    set_name(name).map_err(failed)
}

/// Words that we and our children share.
pub fn shared_words(words: usize) -> Result<SharedMemory, Failure> {
    let failed = |error: Errno| Failure::doing("getting shared memory", error.desc());
    let file = memfd_create(c"rtscope-table", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
    let bytes = words * 8;
    ftruncate(&file, i64::try_from(bytes).unwrap_or(i64::MAX)).map_err(failed)?;
    SharedMemory::map(file.as_fd(), bytes, true)
        .map_err(|error| Failure::doing("getting shared memory", error))
}
