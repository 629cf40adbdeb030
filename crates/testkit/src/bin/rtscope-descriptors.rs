// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that open, copy, send and close descriptors in every way that they can (`c/descriptors.c`), in a process group of their own, until
//! standard input ends.
//!
//! They begin with the first byte on standard input, so that they can be followed from before their first descriptor.

use anyhow::{Context, Result};
use clap::Parser;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid, setpgid};
use rtscope_testkit::notes::print_line;
use rtscope_testkit::stop::exit_code;
use serde_json::json;
use std::ffi::CString;
use std::io::{Read, stdin};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

unsafe extern "C" {
    fn rtscope_churn_start(seed: u64, directory: *const libc::c_char, processes: i32, with_ring: i32) -> i32;
}

/// Opens and closes descriptors.
#[derive(Debug, Parser)]
struct Options {
    /// What they do follows from it, but for the scheduling
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes, of two threads each
    #[arg(long, default_value_t = 2)]
    processes: i32,
    /// Without io_uring
    #[arg(long)]
    without_ring: bool,
}

fn run(options: &Options) -> Result<()> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).context("a process group")?;
    let directory = tempfile::tempdir().context("a temporary directory")?;
    print_line(&json!({ "ready": true, "pid": getpid().as_raw() }));
    let mut byte = [0];
    stdin().read_exact(&mut byte).context("the word to begin")?;
    let path = CString::new(directory.path().as_os_str().as_bytes()).context("its name")?;
    // SAFETY: the path lives until the call returns, and the children have copies of all memory; this process has one thread.
    let started = unsafe {
        rtscope_churn_start(options.seed, path.as_ptr(), options.processes, i32::from(!options.without_ring))
    };
    print_line(&json!({ "processes": started }));
    let mut rest = Vec::new();
    stdin().read_to_end(&mut rest).context("the end of standard input")?;
    drop(directory);
    // This process, too: it has nothing else to do.
    killpg(getpid(), Signal::SIGKILL).context("ending them")
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
