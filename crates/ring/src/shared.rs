// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that the kernel writes while we read it.
//!
//! Every access is an aligned 64-bit atomic one, so a race gives an old or a new word, never a torn one, and never
//! undefined behaviour. Copying 8 MiB this way takes about as long as memcpy: memory bandwidth is the limit.

use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A mapped eBPF array map (or data section).
#[derive(Debug)]
pub struct SharedMemory {
    map: Arc<MmapRaw>,
    words: usize,
}

impl SharedMemory {
    /// Maps `bytes` of the map behind `fd`, with its pages present, so that reading never faults later. `bytes` is
    /// rounded down to whole words.
    ///
    /// # Errors
    /// The error of `mmap`: `EINVAL` when the map is not mappable or `bytes` is larger than the map.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> io::Result<SharedMemory> {
        SharedMemory::map_at(fd, 0, bytes, writable)
    }

    /// The same from a place on, a multiple of a page: what is behind a descriptor may have several parts.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn map_at(fd: BorrowedFd<'_>, offset: u64, bytes: usize, writable: bool) -> io::Result<SharedMemory> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(bytes).populate();
        let map = if writable {
            options.map_raw(fd.as_raw_fd())?
        } else {
            options.map_raw_read_only(fd.as_raw_fd())?
        };
        Ok(SharedMemory { map: Arc::new(map), words: bytes / 8 })
    }

    /// Anonymous memory of the same kind, for tests of the readers.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn anonymous(bytes: usize) -> io::Result<SharedMemory> {
        let map = MmapRaw::from(MmapOptions::new().len(bytes).map_anon()?);
        Ok(SharedMemory { map: Arc::new(map), words: bytes / 8 })
    }

    /// How much is mapped.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words * 8
    }

    /// Where the byte at this offset is, and how many follow to the end; `None` behind it. For the kernel: this process reads by the other
    /// functions.
    #[must_use]
    pub fn address_of(&self, offset: usize) -> Option<(*const u8, usize)> {
        let bytes = self.map.len().checked_sub(offset).filter(|bytes| *bytes > 0)?;
        Some((self.map.as_ptr().wrapping_add(offset), bytes))
    }

    /// Another handle to the same mapping, for another reader.
    #[must_use]
    pub fn share(&self) -> SharedMemory {
        SharedMemory { map: Arc::clone(&self.map), words: self.words }
    }

    /// The word at `byte_offset`.
    ///
    /// # Panics
    /// When the offset is not aligned or out of range: a bug in this crate, since no offset comes from the memory.
    fn word(&self, byte_offset: usize) -> &AtomicU64 {
        assert!(
            byte_offset % 8 == 0 && byte_offset / 8 < self.words,
            "offset {byte_offset} is outside the map"
        );
        #[cfg(test)]
        crate::model::before_access();
        // SAFETY: the offset is inside the mapping, which lives as long as `self`.
        let pointer = unsafe { self.map.as_mut_ptr().add(byte_offset) }.cast::<u64>();
        // SAFETY: the pointer is valid and aligned (the mapping is page-aligned); all accesses of this process to the
        // mapping are atomic ones through this function, and the kernel's are aligned 64-bit (or narrower) stores.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    /// A word that guards nothing else.
    #[must_use]
    pub fn load(&self, byte_offset: usize) -> u64 {
        // ORDER: relaxed; the value stands alone (a counter, a hint), nothing is read because of it.
        self.word(byte_offset).load(Ordering::Relaxed)
    }

    /// A word that tells that other words are ready.
    #[must_use]
    pub fn load_acquire(&self, byte_offset: usize) -> u64 {
        // ORDER: acquire; pairs with the kernel side's STORE_RELEASE of the same word (recorder.bpf.h).
        self.word(byte_offset).load(Ordering::Acquire)
    }

    /// Publishes a word after everything written before it.
    pub fn store_release(&self, byte_offset: usize, value: u64) {
        // ORDER: release; pairs with the loads of the eBPF programs, which act on the word and then on what it guards.
        self.word(byte_offset).store(value, Ordering::Release);
    }

    /// The same for half a word; the other half has another writer.
    pub fn store_release_u32(&self, byte_offset: usize, value: u32) {
        assert!(
            byte_offset % 4 == 0 && byte_offset / 8 < self.words,
            "offset {byte_offset} is outside the map"
        );
        // SAFETY: the offset is inside the mapping, which lives as long as `self`.
        let pointer = unsafe { self.map.as_mut_ptr().add(byte_offset) }.cast::<u32>();
        // SAFETY: as in `word()`; the kernel side changes such halves by 32-bit operations, so neither wipes out the other.
        let half = unsafe { AtomicU32::from_ptr(pointer) };
        // ORDER: release; pairs with the eBPF programs' loads and compare-and-swaps of the same half.
        half.store(value, Ordering::Release);
    }

    /// Orders all copies made so far before all loads that follow.
    pub fn end_of_copy(&self) {
        // ORDER: acquire fence; the relaxed loads of a copy must not sink below the reading of the head that judges the copy.
        // Pairs with the kernel side's fetch-and-add of the head, which precedes any store to the slot.
        fence(Ordering::Acquire);
    }

    /// Copies `into.len()` words from `byte_offset` on.
    pub fn copy(&self, byte_offset: usize, into: &mut [u64]) {
        for (index, word) in into.iter_mut().enumerate() {
            *word = self.load(byte_offset + index * 8);
        }
    }

    /// Writes `head` and these parts of the memory to a file, without a private copy. Nothing may be writing there.
    ///
    /// # Errors
    /// The system's error; a part may have been written by then.
    ///
    /// # Panics
    /// When a part is out of range, or there are more than two: a bug of the caller, since no offset comes from the memory.
    pub fn write_to(&self, file: &File, head: &[u8], parts: &[Range<usize>]) -> io::Result<()> {
        const PIECES: usize = 3;
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [nothing; PIECES];
        pieces[0] = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
        for (piece, part) in pieces[1..][..parts.len()].iter_mut().zip(parts) {
            assert!(part.start <= part.end && part.end <= self.words * 8, "{part:?} is outside the map");
            // SAFETY: the part is inside the mapping, which lives as long as `self`.
            let begin = unsafe { self.map.as_mut_ptr().add(part.start) };
            *piece = libc::iovec { iov_base: begin.cast(), iov_len: part.len() };
        }
        let mut left = &mut pieces[..];
        while let Some(first) = left.first_mut() {
            if first.iov_len == 0 {
                left = &mut left[1..];
                continue;
            }
            // At most PIECES.
            let count = libc::c_int::try_from(left.len()).unwrap_or(libc::c_int::MAX);
            // SAFETY: each piece is memory that stays mapped during the call, which only the kernel reads: no Rust
            // reference to memory that others may write exists. There are at most PIECES of them.
            let written = unsafe { libc::writev(file.as_raw_fd(), left.as_ptr(), count) };
            let Ok(mut written) = usize::try_from(written) else {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            for piece in left.iter_mut() {
                let done = piece.iov_len.min(written);
                // SAFETY: no further than the end of the same piece.
                piece.iov_base = unsafe { piece.iov_base.cast::<u8>().add(done) }.cast();
                piece.iov_len -= done;
                written -= done;
            }
        }
        Ok(())
    }

    /// Number of whole words that are mapped.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    #[test]
    fn a_mapped_file_has_as_many_words_as_were_asked_for_and_no_access_beyond() {
        let mut file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("ours");
        let memory = SharedMemory::map(file.as_fd(), 20, true).expect("it can be mapped");
        assert_eq!(memory.words(), 2);
        memory.store_release(8, 7);
        memory.store_release_u32(4, 3);
        assert_eq!((memory.load(0), memory.load_acquire(8)), (3 << 32, 7));
        let mut bytes = [0; 16];
        file.rewind().expect("ours");
        file.read_exact(&mut bytes).expect("ours");
        assert_eq!((bytes[4], bytes[8]), (3, 7));
        assert_eq!(SharedMemory::anonymous(47).expect("memory").words(), 5);
        for offset in [16, 1, 4] {
            let memory = memory.share();
            assert!(std::panic::catch_unwind(move || memory.load(offset)).is_err(), "{offset}");
        }
        for offset in [16, 2] {
            let memory = memory.share();
            assert!(
                std::panic::catch_unwind(move || memory.store_release_u32(offset, 1)).is_err(),
                "{offset}"
            );
        }
        let read_only = SharedMemory::map(file.as_fd(), 16, false).expect("it can be mapped");
        assert_eq!(read_only.load(8), 7);
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let memory = SharedMemory::anonymous(64).expect("memory");
        let read_only = File::open("/dev/null").expect("it is there");
        let error = memory.write_to(&read_only, b"head", &[]).expect_err("it is open for reading only");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let error = memory.write_to(&full, &[], std::slice::from_ref(&(0..8))).expect_err("it is full");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
}
