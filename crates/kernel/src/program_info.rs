// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel says of a loaded program. Above all: how often it was skipped.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What matters of `struct bpf_prog_info`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramInfo {
    /// How often the kernel skipped this program because it was already running on that CPU (Linux 5.12, 9ed9e9ba2337).
    /// This is the only trace that a skipped event leaves; the kernel does not say on which CPU.
    pub recursion_misses: u64,
    /// Time spent in it, while statistics are on.
    pub run_time_ns: u64,
    /// Runs, while statistics are on.
    pub run_count: u64,
}

/// Asks the kernel.
///
/// # Errors
/// What `BPF_OBJ_GET_INFO_BY_FD` says.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    let info_pointer = (&raw mut info).cast();
    // SAFETY: `info` is a plain structure of `length` bytes, all zero, so the kernel is asked to fill no other buffer;
    // the file descriptor is borrowed for the call.
    let result =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), info_pointer, &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ProgramInfo {
        recursion_misses: info.recursion_misses,
        run_time_ns: info.run_time_ns,
        run_count: info.run_cnt,
    })
}
