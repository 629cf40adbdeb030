// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holes in files of programs: a read through a mapping must not fill them.
//!
//! The kernel gives memory to a hole of a tmpfs file when it is read through a mapping, and charges it to whoever reads. A program could
//! take memory out of its ring again and again (`FALLOC_FL_PUNCH_HOLE`), and the collector, in a control group with a limit, would be
//! killed for it. With userfaultfd(2) and `UFFD_FEATURE_SIGBUS` the kernel raises SIGBUS at a hole instead, as it does behind the end of
//! a truncated file. Reads of what is there cost the same with it; a mapping costs one system call more.

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// linux/userfaultfd.h.
const API: u64 = 0xaa;
const FEATURE_SIGBUS: u64 = 1 << 7;
const USER_MODE_ONLY: libc::c_int = 1;
const IOCTL_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const IOCTL_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const MODE_MISSING: u64 = 1;

/// `struct uffdio_api`.
#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Registration {
    begin: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

/// The descriptor of this process; or the number of the error.
fn descriptor() -> Result<&'static OwnedFd, i32> {
    static ALL: OnceLock<Result<OwnedFd, i32>> = OnceLock::new();
    ALL.get_or_init(|| open().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
        .as_ref()
        .map_err(|errno| *errno)
}

fn open() -> io::Result<OwnedFd> {
    // SAFETY: takes flags only.
    let made =
        unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY) };
    let Ok(made @ 0..) = libc::c_int::try_from(made) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has just made it, for this function alone.
    let descriptor = unsafe { OwnedFd::from_raw_fd(made) };
    let mut handshake = Handshake { api: API, features: FEATURE_SIGBUS, ioctls: 0 };
    // SAFETY: the request takes this structure, which lives here.
    if unsafe { libc::ioctl(descriptor.as_raw_fd(), IOCTL_API, &raw mut handshake) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(descriptor)
}

/// Whether the kernel can leave holes as they are.
///
/// # Errors
/// Why it cannot.
pub(crate) fn can_leave() -> io::Result<()> {
    descriptor().map(|_| ()).map_err(io::Error::from_raw_os_error)
}

/// A thread that touches a hole in this mapping of `file`, a whole one, gets SIGBUS. Where the kernel has no userfaultfd nothing changes,
/// which [`can_leave`] tells.
///
/// # Errors
/// When the system refuses.
pub(super) fn leave(file: &File, begin: usize, bytes: usize) -> io::Result<()> {
    let Ok(descriptor) = descriptor() else { return Ok(()) };
    // Elsewhere what fills a hole is cache, which the kernel takes back when memory is short; and the request would be refused.
    if fstatfs(file)?.filesystem_type() != TMPFS_MAGIC {
        return Ok(());
    }
    let page =
        nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.and_then(|page| usize::try_from(page).ok());
    let bytes = bytes.next_multiple_of(page.unwrap_or(4096));
    let mut registration =
        Registration { begin: begin as u64, bytes: bytes as u64, mode: MODE_MISSING, ioctls: 0 };
    // SAFETY: the request takes this structure, which lives here; of the mapping it changes only what a fault does.
    if unsafe { libc::ioctl(descriptor.as_raw_fd(), IOCTL_REGISTER, &raw mut registration) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
