// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes a thread a real-time one.

use std::io;

/// Gives the calling thread a real-time priority.
pub fn become_fifo(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: the pointer is to a live structure; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
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
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live structure; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, SCHED_EXT, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
