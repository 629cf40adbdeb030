// SPDX-License-Identifier: Apache-2.0 OR MIT
//! COMMAND: started, but held before its first instruction until the watch is on.

use crate::{Failure, Observer};
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, execvp, fork, pipe2};
use rtscope_cpus::{Affinity, Thread};
use std::ffi::{CString, OsString};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

const NOT_STARTED: i32 = 127;

/// Where COMMAND's standard output goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandOutput {
    /// Where rtscope's goes.
    #[default]
    StandardOutput,
    /// To standard error: rtscope's standard output is for programs.
    StandardError,
    /// Nowhere, and its input comes from nowhere, as far as they are a terminal: on that is a screen of rtscope's.
    OffTheTerminal,
}

/// How COMMAND ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// As shells have it: its exit status, or 128 and the signal's number.
    pub status: i32,
    /// The signal that ended it.
    pub signal: Option<&'static str>,
}

/// A child process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    name: String,
    gate: Option<OwnedFd>,
    /// Has the error's number, if it could not be started.
    failure: OwnedFd,
    ended: Option<WaitStatus>,
    /// It was asked to end.
    is_terminated: bool,
    start_error: Option<Errno>,
}

impl Child {
    /// Forks; the child waits at the gate. Call this before any other thread is started. `cpus`: the caller's, which COMMAND gets
    /// although rtscope itself has left some of them.
    /// `output`: where its standard output goes.
    pub fn held(command: &[OsString], cpus: &Affinity, output: CommandOutput) -> Result<Child, Failure> {
        let failed = |error: Errno| Failure::doing("starting COMMAND", error.desc());
        let words: Vec<CString> = command
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<_, _>>()
            .map_err(|_| Failure::Usage("an argument of COMMAND contains a NUL byte".to_string()))?;
        let name = words.first().map(|word| word.to_string_lossy().into_owned());
        let name = name.ok_or_else(|| Failure::Usage("COMMAND is missing".to_string()))?;
        let (wait_end, gate) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(failed)?;
        let (failure, tell) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(failed)?;
        // SAFETY: this process has one thread at this point (see above), so the child may do all that we may.
        match unsafe { fork() }.map_err(failed)? {
            ForkResult::Parent { child } => {
                // It waits at the gate, and has inherited what was before.
                keep_ends_of_children().map_err(failed)?;
                Ok(Child {
                    pid: child,
                    name,
                    gate: Some(gate),
                    failure,
                    ended: None,
                    is_terminated: false,
                    start_error: None,
                })
            }
            ForkResult::Child => {
                drop(gate);
                // Refused, it runs where rtscope does: the caller's CPUs have just gone.
                let _ = cpus.apply(Thread::Calling);
                match output {
                    CommandOutput::StandardOutput => {}
                    // Refused, it stays where it was.
                    CommandOutput::StandardError => drop(nix::unistd::dup2_stdout(std::io::stderr())),
                    CommandOutput::OffTheTerminal => leave_terminal(),
                }
                run(&wait_end, &tell, &words)
            }
        }
    }

    /// Lets it go.
    pub fn release(&mut self) {
        if let Some(gate) = self.gate.take() {
            // It can only fail when the child has been killed, which is seen later.
            let _ = nix::unistd::write(&gate, b"!");
        }
    }

    /// Its process number.
    pub fn pid(&self) -> rtscope_event::Pid {
        rtscope_event::Pid(self.pid.as_raw().unsigned_abs())
    }

    /// Whether it has ended. Asks the kernel once, and remembers.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                Ok(status) => {
                    self.ended = Some(status);
                    if self.could_not_start() {
                        self.start_error = self.read_start_error();
                    }
                }
                Err(_) => self.ended = Some(WaitStatus::Exited(self.pid, 0)),
            }
        }
        self.ended.is_some()
    }

    /// As [`end_of`]; `None` also when it has been waited for.
    pub fn end(&self) -> Option<OwnedFd> {
        end_of(self.pid)
    }

    /// The status that shells and we have for a program that cannot be started.
    pub fn could_not_start(&self) -> bool {
        matches!(self.ended, Some(WaitStatus::Exited(_, NOT_STARTED)))
    }

    /// How it ended by itself; `None`: it has not, or rtscope ended it.
    pub fn ending(&mut self) -> Option<CommandEnd> {
        if !self.has_ended() || self.is_terminated {
            return None;
        }
        match self.ended? {
            WaitStatus::Exited(_, status) => Some(CommandEnd { status, signal: None }),
            WaitStatus::Signaled(_, signal, _) => {
                Some(CommandEnd { status: 128 + signal as i32, signal: Some(signal.as_str()) })
            }
            _ => None,
        }
    }

    /// A sentence when it did not end well.
    pub fn complaint(&self) -> Option<String> {
        match self.ended? {
            WaitStatus::Exited(_, 0) => None,
            WaitStatus::Exited(_, NOT_STARTED) => Some(self.start_error.map_or_else(
                || "COMMAND ended with status 127, as shells do that cannot start a program".to_string(),
                |why| format!("cannot start {}: {}", self.name, why.desc()),
            )),
            WaitStatus::Exited(_, status) => Some(format!("COMMAND ended with status {status}")),
            WaitStatus::Signaled(_, signal, _) => Some(format!("COMMAND was ended by {signal}")),
            _ => None,
        }
    }

    /// Why it could not be started, once it has ended: its end of the pipe is closed then.
    fn read_start_error(&self) -> Option<Errno> {
        let mut number = [0; 4];
        let read = nix::unistd::read(&self.failure, &mut number);
        (read == Ok(number.len())).then(|| Errno::from_raw(i32::from_ne_bytes(number)))
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        if !self.has_ended() {
            self.is_terminated = true;
            // It may have ended in between: nothing to do then.
            let _ = kill(self.pid, Signal::SIGTERM);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Behind a gate that never opens it would wait for ever; closing it lets it run, so end it first.
        if self.gate.is_some() {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}

/// Says how COMMAND ended, if not well: its exit status is rtscope's, unless rtscope has ended it.
pub(crate) fn complain(child: Option<&mut Child>, observer: &dyn Observer) -> Result<(), Failure> {
    let Some((child, text)) = child.and_then(|child| child.complaint().map(|text| (child, text))) else {
        return Ok(());
    };
    if child.could_not_start() {
        return Err(Failure::NoCommand(text));
    }
    match child.ending().map(|end| u8::try_from(end.status)) {
        Some(Ok(status)) => Err(Failure::Command { status, text }),
        _ => {
            observer.note(&text);
            Ok(())
        }
    }
}

/// Where SIGCHLD is ignored, as some callers leave it, the kernel keeps no child's status, so that each would seem to have ended well. It
/// is set to its default then; a handler of the program that this library is part of stays.
pub(crate) fn keep_ends_of_children() -> Result<(), Errno> {
    // SAFETY: all zeros are a valid `sigaction`, which the call overwrites.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the disposition into a structure that lives as long as the call.
    Errno::result(unsafe { libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut now) })?;
    if now.sa_sigaction == libc::SIG_IGN {
        // SAFETY: the default action is no handler, so no code of ours can run in a wrong moment.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// Whether a child has ended that nobody has waited for yet. Until somebody does, its number, and that of its process group, are its own.
pub(crate) fn has_ended_unseen(pid: Pid) -> bool {
    let asked = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), asked), Ok(WaitStatus::StillAlive) | Err(Errno::EINTR))
}

/// Can be read (poll(2)) once this process has ended. `None`: there is none, or this kernel has no such descriptors (before Linux
/// 5.3).
pub fn end_of(pid: Pid) -> Option<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// In the child: what it would write between the lines of a screen, and the keys that it would take from it, are lost. What is not on a terminal
/// stays.
fn leave_terminal() {
    use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
    use std::io::{IsTerminal, stderr, stdin, stdout};
    let Ok(nowhere) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
    // Refused, it stays where it was.
    if stdin().is_terminal() {
        let _ = dup2_stdin(&nowhere);
    }
    if stdout().is_terminal() {
        let _ = dup2_stdout(&nowhere);
    }
    if stderr().is_terminal() {
        let _ = dup2_stderr(&nowhere);
    }
}

/// The child: waits for the word, becomes COMMAND. A gate that closes without the word means that rtscope has ended.
fn run(wait_end: &OwnedFd, tell: &OwnedFd, words: &[CString]) -> ! {
    let mut byte = [0];
    let told = loop {
        match nix::unistd::read(wait_end, &mut byte) {
            Err(Errno::EINTR) => {}
            read => break read == Ok(1),
        }
    };
    if !told {
        // SAFETY: as below.
        unsafe { libc::_exit(NOT_STARTED) }
    }
    // Rust's runtime ignores SIGPIPE, and exec would pass that on: COMMAND shall find what a shell would give it.
    // SAFETY: the default action is no handler, so no code of ours can run in a wrong moment.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let error = execvp(&words[0], words).map_or_else(|errno| errno, |never| match never {});
    // Read by `complaint`; a parent that has gone needs no reason.
    let _ = nix::unistd::write(tell, &(error as i32).to_ne_bytes());
    // SAFETY: ends the child without running what belongs to the parent (destructors, buffers).
    unsafe { libc::_exit(NOT_STARTED) }
}
