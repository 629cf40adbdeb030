// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Grants: which tasks may be RT1.
//!
//! The kernel lets anybody take the policy SCHED_EXT. What makes it a class of real-time work is a grant, which the scheduler holds for
//! the task: only who may change the kernel's maps can give it, and children inherit it. It ends with the task, and with the
//! scheduler: after `shield undo` and `create` it has to be given again.

use crate::Error;
use crate::scheduler::bpf;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Gives a process's main thread the grant of the scheduler whose table has this number.
///
/// # Errors
/// When there is no such table (any more), it is not one of ours, the process has ended, or this process may not do that.
pub fn grant(id: u32, pid: u32) -> Result<(), Error> {
    let map = MapHandle::from_map_id(id).map_err(|error| bpf("finding the scheduler's grants", error))?;
    if map.map_type() != MapType::TaskStorage || map.value_size() as usize != size_of::<u32>() {
        return Err(Error::Missing(
            "the grants are not of this rtscope's scheduler; use the one that started it".into(),
        ));
    }
    let pid = nix::libc::pid_t::try_from(pid).unwrap_or(-1);
    // SAFETY: plain numbers; the call makes a descriptor or fails.
    let descriptor = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid, 0) };
    let Ok(descriptor @ 0..) = i32::try_from(descriptor) else {
        let error = std::io::Error::last_os_error();
        return Err(Error::Missing(format!("process {pid} cannot be given a grant: {error}")));
    };
    // SAFETY: it was just made, and nobody else has it.
    let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let key = process.as_raw_fd().to_ne_bytes();
    map.update(&key, &1_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| bpf("giving a grant for class rt1", error))
}
