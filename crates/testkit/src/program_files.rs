// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of instrumented programs (include/rtscope/abi.h), written by a test that plays the programs, honest or lying.
//!
//! No program runs, so a test can put any bytes into any place, at any time. The files are of version 1, whose life is that of a
//! process: a file of version 2 would have to be locked as long as its program lives.

use std::fs::{self, File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::descriptions::DescriptionText;
use rtscope_abi::program as abi;

/// Version of the files.
pub const VERSION: u32 = 1;
/// Bytes of a ring.
pub const RING_BYTES: usize = 64 * 1024;
/// Sub-buffers of a ring.
pub const SUB_BUFFERS: u32 = 4;
/// Bytes of a sub-buffer.
pub const SUB_BUFFER_BYTES: usize = RING_BYTES / SUB_BUFFERS as usize;
/// The key in each record of a ring.
pub const KEY: u32 = 5;
/// Process 1 lives as long as the tests run, and began before any of them.
pub const PID: u32 = 1;

/// A directory of instrumented programs in a temporary directory; both are removed when this is dropped.
#[derive(Debug)]
pub struct UserDirectory {
    above: tempfile::TempDir,
    files: PathBuf,
}

impl UserDirectory {
    /// Makes one without files.
    ///
    /// # Panics
    /// When there is no place for it; so do all methods.
    #[allow(clippy::new_without_default, reason = "it makes directories")]
    pub fn new() -> UserDirectory {
        UserDirectory::below(tempfile::tempdir().expect("a temporary directory"))
    }

    /// One in memory, as programs have it: where the size of many rings does not matter.
    pub fn in_memory() -> UserDirectory {
        UserDirectory::below(tempfile::tempdir_in("/dev/shm").expect("a temporary directory"))
    }

    fn below(above: tempfile::TempDir) -> UserDirectory {
        let files = above.path().join(format!("rtscope-{}", nix::unistd::geteuid()));
        fs::DirBuilder::new().mode(0o700).create(&files).expect("a directory for this user");
        UserDirectory { above, files }
    }

    /// The directory above, where a collector looks for those of all users.
    pub fn above(&self) -> &Path {
        self.above.path()
    }

    /// The directory with this user's files.
    pub fn path(&self) -> &Path {
        &self.files
    }

    /// Writes a file as a program does, readable by its user only.
    pub fn write(&self, name: &str, bytes: &[u8]) -> File {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(self.files.join(name)).expect("a file of the test");
        file.write_all_at(bytes, 0).expect("a file of the test");
        file
    }
}

/// The name of a provider's file. Of the lives of one process number the one with the latest birth counts as alive.
pub fn provider_name(pid: u32, birth_ns: u64, number: u32) -> String {
    format!("p{pid}-{birth_ns:x}-{number}")
}

/// The name of a ring's file.
pub fn ring_name(pid: u32, birth_ns: u64, tid: u32, number: u32) -> String {
    format!("r{pid}-{birth_ns:x}-{tid}-{number}")
}

/// A provider's file: events with these descriptions (`name LEVEL`, then a line for each field), with ids from `first_id` on.
pub fn provider(pid: u32, birth_ns: u64, first_id: u32, descriptions: &[String]) -> Vec<u8> {
    let text: String = descriptions.iter().flat_map(|text| [text.as_str(), "\0"]).collect();
    let events = descriptions.len() as u32;
    let text = DescriptionText { text: text.into_bytes(), events, enumerations: 0 };
    provider_of_text(pid, birth_ns, first_id, &text)
}

/// The same with any text as descriptions. Its process is called `test`.
pub fn provider_of_text(pid: u32, birth_ns: u64, first_id: u32, descriptions: &DescriptionText) -> Vec<u8> {
    let DescriptionText { text, events, enumerations } = descriptions;
    let header = size_of::<abi::rtu_provider>();
    let text_at = header + 4 * *events as usize;
    let mut bytes = vec![0; text_at + text.len()];
    put64(&mut bytes, offset_of!(abi::rtu_provider, magic), abi::RTU_PROVIDER_MAGIC);
    put64(&mut bytes, offset_of!(abi::rtu_provider, birth_ns), birth_ns);
    for (offset, value) in [
        (offset_of!(abi::rtu_provider, abi_version), VERSION),
        (offset_of!(abi::rtu_provider, ready), 1),
        (offset_of!(abi::rtu_provider, pid), pid),
        (offset_of!(abi::rtu_provider, clock), abi::RTU_CLOCK_MONOTONIC),
        (offset_of!(abi::rtu_provider, first_id), first_id),
        (offset_of!(abi::rtu_provider, events), *events),
        (offset_of!(abi::rtu_provider, enumerations), *enumerations),
        (offset_of!(abi::rtu_provider, text_bytes), text.len() as u32),
        (offset_of!(abi::rtu_provider, enabled_offset), header as u32),
        (offset_of!(abi::rtu_provider, text_offset), text_at as u32),
    ] {
        put32(&mut bytes, offset, value);
    }
    bytes[offset_of!(abi::rtu_provider, comm)..][..4].copy_from_slice(b"test");
    bytes[text_at..].copy_from_slice(text);
    bytes
}

/// A ring's file without records.
pub fn ring(pid: u32, tid: u32, birth_ns: u64, clock: u32) -> Vec<u8> {
    let mut bytes = vec![0; abi::RTU_RING_OFFSET as usize + RING_BYTES];
    put64(&mut bytes, offset_of!(abi::rtu_ring, magic), abi::RTU_RING_MAGIC);
    put64(&mut bytes, offset_of!(abi::rtu_ring, birth_ns), birth_ns);
    for (offset, value) in [
        (offset_of!(abi::rtu_ring, abi_version), VERSION),
        (offset_of!(abi::rtu_ring, ready), 1),
        (offset_of!(abi::rtu_ring, pid), pid),
        (offset_of!(abi::rtu_ring, tid), tid),
        (offset_of!(abi::rtu_ring, clock), clock),
        (offset_of!(abi::rtu_ring, ring_bytes), RING_BYTES as u32),
        (offset_of!(abi::rtu_ring, sub_buffers), SUB_BUFFERS),
        (offset_of!(abi::rtu_ring, key), KEY),
    ] {
        put32(&mut bytes, offset, value);
    }
    bytes
}

/// The first word of a record: `eighths` are its length in units of 8 bytes, and `time` is cut to the bits that it has there.
pub fn record_word(id: u32, eighths: u64, time: u64) -> u64 {
    u64::from(id) | u64::from(KEY) << 16 | eighths << 24 | time << abi::RTU_TIME_SHIFT
}

/// Writes a number into a file's bytes.
pub fn put32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes a number into a file's bytes.
pub fn put64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}
