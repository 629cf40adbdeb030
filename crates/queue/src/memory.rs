// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that both sides share: its layout, which is that of include/rtscope/queue.h, and its mapping.

use crate::Error;
use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io::ErrorKind;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) const MAGIC: u64 = 0x3145_5545_5153_5452;
pub(crate) const VERSION: u32 = 1;
pub(crate) const DATA: usize = 384;
const CAPACITY_MAX: u64 = 1 << 32;
const ELEMENT_MAX: u32 = 1 << 30;

/// `struct rtscope_queue_memory`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) element_bytes: AtomicU32,
    pub(crate) capacity: AtomicU64,
    zero0: [u64; 13],
    pub(crate) tail: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) high_water: AtomicU64,
    zero1: [u64; 13],
    pub(crate) head: AtomicU64,
    pub(crate) waiting: AtomicU32,
    zero2: u32,
    zero3: [u64; 14],
}

const _: () = assert!(
    size_of::<Header>() == DATA
        && offset_of!(Header, tail) == 128
        && offset_of!(Header, head) == 256
        && offset_of!(Header, waiting) == 264
);

/// Bytes of a place.
pub(crate) fn stride(element_bytes: u32) -> u64 {
    u64::from(element_bytes).next_multiple_of(8)
}

/// Bytes of memory for this many elements; `None`: such a queue is impossible.
pub(crate) fn bytes(capacity: u64, element_bytes: u32) -> Option<u64> {
    let possible =
        capacity.is_power_of_two() && capacity <= CAPACITY_MAX && (1..=ELEMENT_MAX).contains(&element_bytes);
    possible.then(|| DATA as u64 + capacity * stride(element_bytes))
}

/// What a queue's header says of it, each read once: its maker may write there at any time.
struct Stated {
    magic: u64,
    version: u32,
    element_bytes: u32,
    capacity: u64,
}

impl Stated {
    /// Bytes of memory that the queue needs, if it is one of elements of this size.
    fn need(&self, element_bytes: u32) -> Result<u64, Error> {
        if self.magic != MAGIC {
            return Err(Error::NoQueue("it does not begin as one does"));
        }
        if self.version != VERSION {
            return Err(Error::NoQueue("it is of another version"));
        }
        if self.element_bytes != element_bytes {
            return Err(Error::Elements { found: self.element_bytes, wanted: element_bytes });
        }
        bytes(self.capacity, element_bytes).ok_or(Error::NoQueue("its numbers cannot be"))
    }
}

/// Whether a queue is closed to others when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealing {
    Open,
    Sealed,
}

fn seals_of(file: impl AsFd) -> SealFlag {
    fcntl(file, FcntlArg::F_GET_SEALS).map_or(SealFlag::empty(), SealFlag::from_bits_truncate)
}

/// Its maker could otherwise end this process with a SIGBUS: by truncating it, or, where its pages are huge ones, by taking one out, of
/// which there may be no other.
fn check_size_is_kept(file: impl AsFd) -> Result<(), Error> {
    if !seals_of(&file).contains(SealFlag::F_SEAL_SHRINK) {
        return Err(Error::NoQueue("it could shrink"));
    }
    if !fstatfs(&file).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC) {
        return Err(Error::NoQueue("its memory is of huge pages, which its maker could take away"));
    }
    Ok(())
}

fn check_is_whole(file: impl AsFd, bytes: u64) -> Result<(), Error> {
    let hole = lseek(file, 0, Whence::SeekHole)
        .map_err(|errno| Error::System("look for the queue's memory", errno.into()))?;
    // The end of the file counts as a hole, too.
    if u64::try_from(hole).is_ok_and(|hole| hole < bytes) {
        return Err(Error::NoQueue("its memory is not there"));
    }
    Ok(())
}

/// Forbids what would make the other side pay: holes punched into memory that it has mapped. `F_SEAL_FUTURE_WRITE` forbids them, and
/// new mappings that can be written.
fn seal(file: impl AsFd, bytes: u64) -> Result<(), Error> {
    if !seals_of(&file).contains(SealFlag::F_SEAL_FUTURE_WRITE) {
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_FUTURE_WRITE)).map_err(|errno| match errno {
            Errno::EPERM => Error::Unsealable,
            errno => Error::System("seal the queue's memory", errno.into()),
        })?;
    }
    check_size_is_kept(&file)?;
    check_is_whole(&file, bytes)
}

/// Why a queue could not be mapped.
fn sealed_or(file: impl AsFd, error: std::io::Error) -> Error {
    if seals_of(file).intersects(SealFlag::F_SEAL_FUTURE_WRITE | SealFlag::F_SEAL_WRITE) {
        return Error::Sealed;
    }
    Error::System("map the queue's memory", error)
}

/// A queue's memory, mapped and checked.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapRaw,
    /// As they were when it was mapped: the other side may change what stands there.
    pub(crate) capacity: u64,
    stride: u64,
}

impl Memory {
    /// Makes an empty queue in new memory, which can neither grow nor shrink.
    pub(crate) fn create(capacity: u64, element_bytes: u32) -> Result<(Memory, OwnedFd), Error> {
        let size = bytes(capacity, element_bytes).ok_or(Error::Impossible { capacity, element_bytes })?;
        let failed = |errno: nix::Error| Error::System("make the queue's memory", errno.into());
        let descriptor = memfd_create(c"rtscope-queue", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(failed)?;
        let length = i64::try_from(size).map_err(|_| Error::Impossible { capacity, element_bytes })?;
        nix::unistd::ftruncate(&descriptor, length).map_err(failed)?;
        // Without F_SEAL_SEAL: for seal().
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(&descriptor, FcntlArg::F_ADD_SEALS(seals)).map_err(failed)?;
        let map = MmapOptions::new()
            .populate()
            .map_raw(&descriptor)
            .map_err(|error| Error::System("map the queue's memory", error))?;
        let memory = Memory { map, capacity, stride: stride(element_bytes) };
        let header = memory.header();
        // ORDER: relaxed; nobody else knows of it yet, but for the last, which pairs with the acquire in open().
        header.version.store(VERSION, Ordering::Relaxed);
        header.element_bytes.store(element_bytes, Ordering::Relaxed);
        header.capacity.store(capacity, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok((memory, descriptor))
    }

    /// Maps a queue that somebody else has made, of elements of this size: as much of the file as its header says that it needs,
    /// which is read before anything is mapped.
    pub(crate) fn open(file: &File, element_bytes: u32, sealing: Sealing) -> Result<Memory, Error> {
        let mapped = |error| Error::System("map the queue's memory", error);
        check_size_is_kept(file)?;
        let mut header = [0; DATA];
        file.read_exact_at(&mut header, 0).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Error::NoQueue("it is too small"),
            _ => Error::System("read the queue's header", error),
        })?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
        let stated = Stated {
            magic: word(offset_of!(Header, magic)),
            version: half(offset_of!(Header, version)),
            element_bytes: half(offset_of!(Header, element_bytes)),
            capacity: word(offset_of!(Header, capacity)),
        };
        let need = stated.need(element_bytes)?;
        // Who maps it touches it all: memory that its maker has not used himself would be ours.
        check_is_whole(file, need)?;
        let length = usize::try_from(need).map_err(|_| Error::NoQueue("it is larger than the memory"))?;
        let mut options = MmapOptions::new();
        options.len(length);
        let map = match sealing {
            Sealing::Open => options.populate().map_raw(file).map_err(|error| sealed_or(file, error))?,
            Sealing::Sealed => {
                let map = options.map_raw(file).map_err(|error| sealed_or(file, error))?;
                seal(file, need)?;
                // Only now is anything touched, and paid for.
                map.advise(Advice::PopulateWrite).map_err(mapped)?;
                map
            }
        };
        let mut memory = Memory { map, capacity: 1, stride: stride(element_bytes) };
        let header = memory.header();
        // Once more, where its maker may have written since. ORDER: acquire, pairs with the release in create(), or in
        // rtscope_queue_make() of queue.h; then relaxed: they do not change after the magic, or somebody lies.
        let stated = Stated {
            magic: header.magic.load(Ordering::Acquire),
            version: header.version.load(Ordering::Relaxed),
            element_bytes: header.element_bytes.load(Ordering::Relaxed),
            capacity: header.capacity.load(Ordering::Relaxed),
        };
        if stated.need(element_bytes)? > need {
            return Err(Error::NoQueue("its numbers cannot be"));
        }
        memory.capacity = stated.capacity;
        Ok(memory)
    }

    /// Closes this queue to others; `file` is the one that it was mapped from.
    pub(crate) fn seal(&self, file: impl AsFd) -> Result<(), Error> {
        seal(&file, self.map.len() as u64)
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping is at least as large as the header, aligned to a page, and lives as long as self. All that other
        // processes write in it is atomic; the rest is never read.
        unsafe { &*self.map.as_ptr().cast::<Header>() }
    }

    /// Where the element of a position lies.
    #[inline]
    pub(crate) fn place(&self, position: u64) -> *mut u8 {
        let offset = DATA as u64 + (position & (self.capacity - 1)) * self.stride;
        // SAFETY: create() and open() made sure that the mapping holds `capacity` places.
        unsafe { self.map.as_mut_ptr().add(offset as usize) }
    }
}
