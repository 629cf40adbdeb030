// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compiled header (shim.c) from Rust.

use crate::Options;
use std::io;

/// `struct rtscope__reserved`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Header {
    /// Of the payload, behind the record's word; null: it did not fit, and that is counted.
    pub(super) place: *mut u8,
    /// What is set to 0 when the record is complete; null: the header is told.
    pub(super) open: *mut usize,
}

/// In the word of a record that is being written.
pub(super) const OPEN: u64 = 0x80 << 16;

/// `struct rtscope_options`.
#[repr(C)]
struct RawOptions {
    ring_bytes: u64,
    sub_buffers: u32,
    lock: i32,
    only_when_asked: i32,
    allow_blocking: i32,
}

unsafe extern "C" {
    // Any thread and any signal handler may call it, at any time.
    safe fn rtscope_probe_reserve(id: u32, bytes: u64) -> Header;
    safe fn rtscope_probe_reserve_elsewhere(id: u32, bytes: u64) -> Header;
    /// `payload`: of a record that it has given.
    fn rtscope_probe_commit(payload: *const u8);
    safe fn rtscope_probe_thread_init() -> i32;
    safe fn rtscope_probe_thread_exit();
    fn rtscope_probe_init(options: *const RawOptions) -> i32;
    /// The header's names carry its version (include/rtscope/names.h).
    #[link_name = "rtscope__off_2"]
    static rtscope__off: u32;
}

/// The word of an event that nobody can enable. Never written through: the header only replaces the pointer.
pub(super) const fn off() -> *mut u32 {
    (&raw const rtscope__off).cast_mut()
}

/// Reserves a record of this many bytes, its word included.
#[inline(always)]
pub(super) fn reserve(id: u32, bytes: u64) -> Header {
    rtscope_probe_reserve(id, bytes)
}

/// The same for an event that goes to a channel.
#[cold]
pub(super) fn reserve_elsewhere(id: u32, bytes: u64) -> Header {
    rtscope_probe_reserve_elsewhere(id, bytes)
}

/// A record without a place where it is noted is complete.
///
/// # Safety
///
/// [`reserve`] has given it, and all of it is written.
#[cold]
pub(super) unsafe fn commit(payload: *const u8) {
    // SAFETY: the caller's promise.
    unsafe { rtscope_probe_commit(payload) };
}

pub(crate) fn init(options: &Options) -> io::Result<()> {
    let options = RawOptions {
        ring_bytes: options.ring_bytes.unwrap_or(0),
        sub_buffers: options.sub_buffers.unwrap_or(0),
        lock: options.lock.into(),
        only_when_asked: options.only_when_asked.into(),
        allow_blocking: options.allow_blocking.into(),
    };
    // SAFETY: the structure has the layout of struct rtscope_options and lives for the call.
    result(unsafe { rtscope_probe_init(&raw const options) })
}

pub(crate) fn thread_init() -> io::Result<()> {
    result(rtscope_probe_thread_init())
}

pub(crate) fn thread_exit() {
    rtscope_probe_thread_exit();
}

fn result(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
