// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of our own that is read as a program's file is: copies of rings.

use super::Mapping;
use std::io;
use std::ops::Range;

/// Zeros, which take memory where something is written. They are given back at once when it is dropped.
#[derive(Debug)]
pub(crate) struct OwnMemory(Mapping);

impl OwnMemory {
    /// So many bytes, at least one.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn new(bytes: usize) -> io::Result<OwnMemory> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new anonymous mapping touches no existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A byte would take 2 MiB. A kernel without huge pages refuses, and that is as well.
        // SAFETY: it is the mapping that was just made.
        unsafe { libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(OwnMemory(Mapping { begin: address as usize, bytes, slot: None }))
    }

    /// To be read.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.0
    }

    /// To be written.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.0.bytes, "bytes of the memory");
        // SAFETY: within the mapping (just checked), which nobody else has, and which is borrowed mutably as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut((self.0.begin + range.start) as *mut u8, range.len()) }
    }
}
