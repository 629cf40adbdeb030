// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes every system call once, each in a new process, with arguments that are invalid for every call. Prints the processes in
//! the order of the calls' numbers.
//!
//! Two recorders have to record the same for each process, which shows that they agree on the calls' numbers.

use anyhow::{Context, Result};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use rtscope_testkit::notes::print_line;
use serde_json::json;

/// Numbers to call: some more than exist.
const NUMBERS: std::ops::Range<libc::c_long> = 0..480;
/// These start a process, wait for ever, close terminals, write all caches to disk, stop the machine, or make something that
/// outlives the process (a message queue).
const LEFT_OUT: &[libc::c_long] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_vhangup,
    libc::SYS_sync,
    libc::SYS_reboot,
    libc::SYS_msgget,
];
#[cfg(target_arch = "x86_64")]
const LEFT_OUT_HERE: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_pause];
#[cfg(not(target_arch = "x86_64"))]
const LEFT_OUT_HERE: &[libc::c_long] = &[];

fn main() -> Result<()> {
    let mut processes = Vec::new();
    for number in NUMBERS.filter(|number| !LEFT_OUT.contains(number) && !LEFT_OUT_HERE.contains(number)) {
        // SAFETY: this process has one thread, so the child may do what it likes.
        match unsafe { fork() }.context("fork")? {
            ForkResult::Child => {
                // Some calls wait; the signal ends them.
                nix::unistd::alarm::set(2);
                // SAFETY: -1 is no address, file, process, or length that could be used; what the call does to this process
                // does not matter.
                unsafe { libc::syscall(number, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) };
                // SAFETY: ends the process at once, without running exit handlers that it shares with its parent.
                unsafe { libc::_exit(0) };
            }
            ForkResult::Parent { child } => {
                // How it ended does not matter: some calls end their process.
                waitpid(child, None).context("waiting for a child")?;
                processes.push(child.as_raw());
            }
        }
    }
    print_line(&json!({ "processes": processes }));
    Ok(())
}
