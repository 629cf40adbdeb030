// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel says of a loaded program. Only one number matters here: how often it was skipped.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How often the kernel skipped this program because it was already running on that CPU (Linux 5.12, 9ed9e9ba2337).
/// This is the only trace that a skipped event leaves; the kernel does not say on which CPU.
///
/// # Errors
/// What `BPF_OBJ_GET_INFO_BY_FD` says.
pub(crate) fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    let info_pointer = (&raw mut info).cast();
    // SAFETY: `info` is a plain structure of `length` bytes, all zero, so the kernel is asked to fill no other buffer;
    // the file descriptor is borrowed for the call.
    let result =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), info_pointer, &raw mut length) };
    if result == 0 { Ok(info.recursion_misses) } else { Err(io::Error::last_os_error()) }
}
