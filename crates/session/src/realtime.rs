// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes a thread a real-time one.

use crate::Failure;
use std::io;

/// Fails with what is missing, unless this process may have threads of that priority: tried with one that ends at once.
///
/// # Errors
/// The privilege is missing.
pub fn require_fifo(priority: u8) -> Result<(), Failure> {
    let tried = std::thread::scope(|scope| scope.spawn(|| become_fifo(priority)).join());
    let tried = tried.unwrap_or_else(|_| Err(io::Error::other("the thread that tried it ended")));
    tried.map_err(|error| Failure::Missing(format!("--fifo {priority}: {error}")))
}

/// Gives the calling thread a real-time priority.
pub fn become_fifo(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: the pointer is to a live structure; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let what =
        format!("a real-time priority takes root, CAP_SYS_NICE or a limit (ulimit -r {priority}): {error}");
    Err(io::Error::new(error.kind(), what))
}

/// Lets the calling thread run only where a CPU has nothing else to do.
pub fn become_idle() -> io::Result<()> {
    set_policy(0, libc::SCHED_IDLE)
}

/// Lets this thread of the process run as any other.
pub fn become_normal(tid: u32) -> io::Result<()> {
    let tid = libc::pid_t::try_from(tid).map_err(io::Error::other)?;
    set_policy(tid, libc::SCHED_OTHER)
}

fn set_policy(tid: libc::pid_t, policy: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live structure.
    let result = unsafe { libc::sched_setscheduler(tid, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// SCHED_EXT in the kernel's include/uapi/linux/sched.h: the tasks of a scheduler in eBPF.
const SCHED_EXT: libc::c_int = 7;

/// Gives the calling thread to the kernel's scheduler in eBPF, with this nice value.
pub fn become_ext(nice: i32) -> io::Result<()> {
    // SAFETY: plain numbers; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0 {
        return Err(io::Error::last_os_error());
    }
    set_policy(0, SCHED_EXT)
}
