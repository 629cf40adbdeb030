// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An event of the kernel's perf subsystem with its memory: a ring of records, and where a trace unit writes, an AUX area.
//!
//! The attribute is given as bytes, because whoever opens an event stores these bytes with what it recorded. The layout of the first
//! page is `struct perf_event_mmap_page`. All of it is [`SharedMemory`]: the kernel and the unit write there at any time.
//!
//! ```text
//! first page │ ring of records       │ AUX area
//!              data_tail … data_head   aux_tail … aux_head   full: the reader moves the tails; what finds no room is lost, and reported
//!              data_head …             … aux_head            overwriting: the oldest is behind the newest, and nobody moves anything
//! ```

use libbpf_sys::perf_event_mmap_page as Page;
use rtscope_ring::SharedMemory;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What linux/perf_event.h makes with `_IO('$', n)` and its relatives.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const ID: libc::c_ulong = 0x8008_2407;
const PAUSE_OUTPUT: libc::c_ulong = 0x4004_2409;
const SET_FILTER: libc::c_ulong = 0x4008_2406;
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// Of `capabilities`: the time of tick 0 is known.
const CAP_USER_TIME_ZERO: u64 = 1 << 4;
/// The header of a record: kind, misc, size.
const RECORD_HEADER: usize = 8;

/// A ring or an AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Bytes: a power of two, and whole pages.
    pub bytes: usize,
    /// What is old is overwritten. For a ring of records the attribute has to say `write_backward`.
    pub overwrites: bool,
}

/// How the processor's counter becomes time on perf's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeConversion {
    /// Bits to shift by.
    pub shift: u16,
    /// The factor.
    pub mult: u32,
    /// The time of tick 0.
    pub zero: u64,
}

/// What is common to events with memory of their own and those that write into another's.
#[derive(Debug)]
pub struct PerfHandle(OwnedFd);

/// An open event with its memory.
#[derive(Debug)]
pub struct PerfEvent {
    handle: PerfHandle,
    /// The first page and the ring of records.
    memory: SharedMemory,
    page_bytes: usize,
    ring: RingSize,
    aux: Option<(SharedMemory, RingSize)>,
    /// What has been read of the ring of records.
    tail: u64,
}

impl PerfHandle {
    /// Its number in records.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0_u64;
        // SAFETY: the kernel writes one u64 there, which lives during the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), ID, &raw mut id) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
    }

    /// Lets it record. Also after the kernel has disabled it, as it does when its AUX area is full.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn enable(&self) -> io::Result<()> {
        self.control(ENABLE, 0)
    }

    /// Lets it record no more. What its unit still held is in the AUX area when this returns.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn disable(&self) -> io::Result<()> {
        self.control(DISABLE, 0)
    }

    /// Whether records are dropped: for reading a ring that overwrites.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pause_records(&self, paused: bool) -> io::Result<()> {
        self.control(PAUSE_OUTPUT, paused.into())
    }

    /// Lets its unit trace only what is at these addresses, in the words of `PERF_EVENT_IOC_SET_FILTER` (perf_event_open(2)): `filter
    /// 0x1234/0x1@/path`. A file is looked up now; where it is in memory, the kernel follows.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a unit without address comparators, and for files in an event of whole CPUs; `EINVAL` for more than it has.
    pub fn filter(&self, text: &CStr) -> io::Result<()> {
        // SAFETY: the kernel reads the text up to its NUL, and it lives during the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), SET_FILTER, text.as_ptr()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn control(&self, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: these requests take a plain number.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl PerfEvent {
    /// Opens an event of a task (`None`: of all) on a CPU (`None`: on any), and maps its memory.
    ///
    /// # Errors
    /// What the kernel says: `EACCES` and `EPERM` without the privilege or for more memory than may be locked, `ENODEV` for a CPU that is
    /// off, `EBUSY` where somebody else has the unit.
    pub fn open(
        attribute: &[u8],
        (task, cpu): (Option<u32>, Option<u32>),
        ring: RingSize,
        aux: Option<RingSize>,
    ) -> io::Result<PerfEvent> {
        if ring.overwrites && aux.is_some() {
            // Where the AUX area begins is written into the first page, which is mapped with the ring.
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an AUX area needs a ring that can be written",
            ));
        }
        let number = |number: Option<u32>| number.map_or(Ok(-1), i32::try_from).map_err(io::Error::other);
        let fd = open(attribute, number(task)?, number(cpu)?)?;
        let page_bytes = page_bytes();
        let memory = SharedMemory::map(fd.as_fd(), page_bytes + ring.bytes, !ring.overwrites)?;
        let mut event = PerfEvent { handle: PerfHandle(fd), memory, page_bytes, ring, aux: None, tail: 0 };
        if let Some(aux) = aux {
            let offset = page_bytes + ring.bytes;
            event.memory.store_release(offset_of!(Page, aux_offset), offset as u64);
            event.memory.store_release(offset_of!(Page, aux_size), aux.bytes as u64);
            let area =
                SharedMemory::map_at(event.handle.0.as_fd(), offset as u64, aux.bytes, !aux.overwrites)?;
            event.aux = Some((area, aux));
        }
        Ok(event)
    }

    /// Opens an event of another task, on the same CPU and with the same attribute, whose records and AUX data go into this one's memory.
    ///
    /// # Errors
    /// As [`PerfEvent::open`]; `ESRCH` for a task that has ended.
    pub fn open_beside(&self, attribute: &[u8], task: u32, cpu: u32) -> io::Result<PerfHandle> {
        let number = |number: u32| i32::try_from(number).map_err(io::Error::other);
        let handle = PerfHandle(open(attribute, number(task)?, number(cpu)?)?);
        let output = libc::c_ulong::try_from(self.handle.0.as_raw_fd()).map_err(io::Error::other)?;
        handle.control(SET_OUTPUT, output)?;
        Ok(handle)
    }

    /// The event without its memory.
    #[must_use]
    pub fn handle(&self) -> &PerfHandle {
        &self.handle
    }

    /// The processor's counter on perf's clock; `None`: on this machine the kernel does not tell.
    #[must_use]
    pub fn time_conversion(&self) -> Option<TimeConversion> {
        // The halves of words, on a little-endian machine: this crate's eBPF is for x86-64.
        const { assert!(offset_of!(Page, pmc_width) % 8 == 0 && offset_of!(Page, lock) % 8 == 0) };
        loop {
            let lock = self.memory.load_acquire(offset_of!(Page, lock)) & 0xffff_ffff;
            let capabilities = self.memory.load(offset_of!(Page, __bindgen_anon_1));
            let word = self.memory.load(offset_of!(Page, pmc_width));
            let zero = self.memory.load(offset_of!(Page, time_zero));
            self.memory.end_of_copy();
            if lock & 1 != 0 || self.memory.load(offset_of!(Page, lock)) & 0xffff_ffff != lock {
                std::hint::spin_loop();
                continue;
            }
            let (shift, mult) = ((word >> 16) as u16, (word >> 32) as u32);
            return (capabilities & CAP_USER_TIME_ZERO != 0).then_some(TimeConversion { shift, mult, zero });
        }
    }

    /// The records since the last call, whole ones, in order. Of a ring that overwrites: all that it holds; pause it before.
    pub fn records(&mut self, into: &mut Vec<u8>) {
        let head = self.memory.load_acquire(offset_of!(Page, data_head));
        if self.ring.overwrites {
            // The newest is at the head, and older ones are behind it.
            self.copy_ring(head, head.wrapping_add(self.ring.bytes as u64), into);
            reverse_records(into);
        } else {
            self.copy_ring(self.tail, head, into);
            self.tail = head;
            self.memory.store_release(offset_of!(Page, data_tail), head);
        }
    }

    fn copy_ring(&self, from: u64, until: u64, into: &mut Vec<u8>) {
        let mut at = from;
        while at != until {
            let place = at as usize & (self.ring.bytes - 1);
            // Records are whole words.
            into.extend_from_slice(&self.memory.load(self.page_bytes + place).to_ne_bytes());
            at = at.wrapping_add(8);
        }
    }

    /// How far the AUX area has been written: of a full trace a sum, of an area that overwrites a place in it, as of the last time
    /// that the event was disabled.
    #[must_use]
    pub fn aux_head(&self) -> u64 {
        self.memory.load_acquire(offset_of!(Page, aux_head))
    }

    /// Writes a part of the AUX area to a file straight from the mapping, behind `head`. The part is of the sum that
    /// [`PerfEvent::aux_head`] is, and no longer than the area.
    ///
    /// # Errors
    /// What the system says of the file.
    ///
    /// # Panics
    /// When the event has no AUX area.
    pub fn write_aux(&self, part: Range<u64>, file: &File, head: &[u8]) -> io::Result<()> {
        let (area, size) = self.aux.as_ref().expect("only who asked for an AUX area has one to write");
        let from = part.start as usize & (size.bytes - 1);
        let bytes = (part.end - part.start) as usize;
        let first = bytes.min(size.bytes - from);
        area.write_to(file, head, &[from..from + first, 0..bytes - first])
    }

    /// Whether anything in this part of the AUX area is not zero, as it is before a unit writes there.
    ///
    /// # Panics
    /// When the event has no AUX area.
    #[must_use]
    pub fn is_aux_used(&self, part: Range<usize>) -> bool {
        let (area, _) = self.aux.as_ref().expect("only who asked for an AUX area has one");
        part.step_by(8).any(|offset| area.load(offset & !7) != 0)
    }

    /// What was written up to there has been taken: its room is free.
    pub fn release_aux(&self, until: u64) {
        self.memory.store_release(offset_of!(Page, aux_tail), until);
    }
}

impl AsFd for PerfHandle {
    /// Can be read once records or AUX data have come to the watermark, and hangs up when its task has ended, and all that inherited the event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// From newest first to oldest first; what was overwritten in part goes.
fn reverse_records(records: &mut Vec<u8>) {
    let mut whole = Vec::new();
    let mut at = 0;
    while let Some(header) = records.get(at..at + RECORD_HEADER) {
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        if size < RECORD_HEADER || at + size > records.len() {
            break;
        }
        whole.push(at..at + size);
        at += size;
    }
    *records = whole.into_iter().rev().flat_map(|place| records[place].to_vec()).collect();
}

fn page_bytes() -> usize {
    // SAFETY: a question without arguments in memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

fn open(attribute: &[u8], task: i32, cpu: i32) -> io::Result<OwnedFd> {
    let (no_group, flags) = (-1, libc::c_ulong::from(libbpf_sys::PERF_FLAG_FD_CLOEXEC));
    let claimed = attribute.get(4..8).and_then(|size| size.try_into().ok()).map(u32::from_ne_bytes);
    if claimed.and_then(|size| usize::try_from(size).ok()) != Some(attribute.len()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an attribute says the size that it has in its second word",
        ));
    }
    // SAFETY: the kernel reads as many bytes as the attribute says it has, which are its length, as was just checked; the other arguments
    // are plain numbers.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attribute.as_ptr(), task, cpu, no_group, flags) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor to us, and no other code has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, size: u16) -> Vec<u8> {
        let mut record = vec![kind; usize::from(size)];
        record[6..8].copy_from_slice(&size.to_ne_bytes());
        record
    }

    #[test]
    fn an_overwriting_ring_is_read_from_its_oldest_whole_record_on() {
        let (new, middle, old) = (record(3, 16), record(2, 24), record(1, 32));
        // The oldest has lost its end to the newest.
        let mut ring = [new.as_slice(), &middle, &old[..16]].concat();
        reverse_records(&mut ring);
        assert_eq!(ring, [middle.as_slice(), &new].concat());
        // Where nothing was written yet.
        let mut ring = [new.as_slice(), &[0; 64]].concat();
        reverse_records(&mut ring);
        assert_eq!(ring, new);
    }

    #[test]
    fn an_attribute_that_says_another_size_is_refused() {
        let error = open(&[0; 112], 0, -1).expect_err("it says 0");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
