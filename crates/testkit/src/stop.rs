// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a workload has to end: a signal, a duration, or the end of its standard input.
//!
//! Signals are blocked in all threads and read from a signalfd by the main thread, so no signal handler runs and the
//! working threads are never interrupted by one.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{SFlag, fstat};

/// Shared by the main thread and its working threads, which stop after their present iteration when it is set.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Asks all threads to stop.
    pub fn set(&self) {
        // ORDER: relaxed is enough: the flag carries no data, and results are read after the threads were joined.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        // ORDER: relaxed, see `set`.
        self.0.load(Ordering::Relaxed)
    }
}

/// The exit code of a program whose work had this result; an error is printed with the program's name.
pub fn exit_code(result: Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    eprintln!("{}: {error:#}", path.file_name().unwrap_or_default().to_string_lossy());
    ExitCode::FAILURE
}

/// Why a workload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// SIGTERM or SIGINT came.
    Signal,
    /// The duration is over.
    Duration,
    /// Standard input is a pipe and its writer closed it.
    EndOfInput,
}

/// Waits in the main thread. Make it before any thread is started, so that all threads inherit the blocked signals.
#[derive(Debug)]
pub struct Waiter {
    signals: SignalFd,
    stdin_is_pipe: bool,
}

impl Waiter {
    /// Blocks SIGTERM and SIGINT in this thread and the threads that it will start.
    pub fn new() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        set.thread_block().context("block signals")?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).context("signalfd")?;
        // A terminal or /dev/null does not tell whether the parent still lives; the writer of a pipe does.
        let mode = fstat(io::stdin()).map(|s| SFlag::from_bits_truncate(s.st_mode & SFlag::S_IFMT.bits()));
        Ok(Waiter { signals, stdin_is_pipe: mode == Ok(SFlag::S_IFIFO) })
    }

    /// Sleeps until there is a reason to stop.
    pub fn wait(&self, duration: Option<Duration>) -> Result<Reason> {
        let end = duration.map(|d| Instant::now() + d);
        loop {
            if let Some(reason) = self.poll_once(end)? {
                return Ok(reason);
            }
        }
    }

    fn poll_once(&self, end: Option<Instant>) -> Result<Option<Reason>> {
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if self.stdin_is_pipe {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout(end)) {
            Ok(0) | Err(Errno::EINTR) => {
                return Ok(end.filter(|&e| Instant::now() >= e).map(|_| Reason::Duration));
            }
            Ok(_) => {}
            Err(error) => return Err(error).context("poll"),
        }
        if fds[0].any() == Some(true) {
            return Ok(Some(Reason::Signal));
        }
        let mut drain = [0u8; 64];
        let read = stdin.lock().read(&mut drain).unwrap_or(0);
        Ok((read == 0).then_some(Reason::EndOfInput))
    }
}

/// Rounded up to whole milliseconds, so that a wait never ends before its time.
fn timeout(end: Option<Instant>) -> PollTimeout {
    let Some(end) = end else { return PollTimeout::NONE };
    let left = end.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
