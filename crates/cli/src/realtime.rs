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
