// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread's ring: what is complete is written on as it is, and its place given back.
//!
//! Nothing is decoded here: the walk only finds how far records are complete. What is written on may have been
//! changed by a lying program between the two, so whoever reads it later checks it again.

use crate::folder::{FileKind, FileName, Folder};
use crate::memory::Mapping;
use crate::provider::{text_at, u32_at, u64_at};
use crate::records::{Header, Layout, Sync};
use rtscope_abi::program as abi;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After this time a record that was begun is not waited for any more: its thread may have jumped out of a signal handler.
const PATIENCE: Duration = Duration::from_secs(1);

/// Words that are looked at to find the record behind one that is not there.
const SEARCH_MAX: u32 = 1 << 18;
/// So many records that follow each other are no accident: a tag has 7 bits.
const IN_A_ROW: usize = 6;
/// The most that is written on at a time, but for one record: who reads it holds as much of each thread in memory.
const CHUNK_BYTES: u64 = 64 << 10;
/// A thread that leaves more records unfinished is not believed any more.
const UNFINISHED_MAX: u64 = 100_000;

/// What a ring says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingInfo {
    /// As the program sees it.
    pub pid: u32,
    /// Which life of that number.
    pub birth_ns: u64,
    /// The user.
    pub uid: u32,
    /// The thread, as the program sees it.
    pub tid: u32,
    /// Of the process, in order.
    pub number: u32,
    /// The thread's name when the ring was made.
    pub comm: String,
    /// `enum rtu_clock`.
    pub clock: u32,
    /// How it is divided.
    pub layout: Layout,
    /// What was told before the first record.
    pub sync: Option<Sync>,
    /// How many of its losses are in other recordings.
    pub lost_before: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Mapping,
    pub(crate) info: RingInfo,
    pub(crate) name: FileName,
    tail: u64,
    sync: Option<Sync>,
    /// Since when a record at the tail is unfinished.
    waiting: Option<(u64, Instant)>,
    /// Records that were begun and never finished.
    pub(crate) unfinished: u64,
    /// When its end was first seen.
    ended: std::cell::Cell<Option<Instant>>,
}

/// Complete records, where they lie.
pub struct Chunk<'a> {
    mapping: &'a Mapping,
    layout: Layout,
    /// Of the first byte.
    pub position: u64,
    /// How many.
    pub bytes: u64,
    /// Records of events among them.
    pub events: u64,
}

impl Chunk<'_> {
    /// Writes `header` and the records, in one go where the system can.
    ///
    /// # Errors
    /// When the system refuses (a full disk); the file then ends within the chunk. A ring that was cut is no error: zeros are
    /// written in place of what is missing.
    pub fn write_to(&self, file: &File, header: &[u8]) -> io::Result<()> {
        let start = self.position & (self.layout.ring_bytes - 1);
        let first = self.bytes.min(self.layout.ring_bytes - start);
        let place = |at: u64, bytes: u64| {
            self.mapping.io_slice((u64::from(abi::RTU_RING_OFFSET) + at) as usize, bytes as usize)
        };
        let head = libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() };
        let mut parts = [head, place(start, first), place(0, self.bytes - first)];
        write_all(file, &mut parts)
    }

    /// Copies the records.
    #[must_use]
    pub fn copy(&self) -> Vec<u8> {
        let start = self.position & (self.layout.ring_bytes - 1);
        let first = self.bytes.min(self.layout.ring_bytes - start) as usize;
        let mut copy = vec![0; self.bytes as usize];
        let (front, back) = copy.split_at_mut(first);
        self.mapping.copy((u64::from(abi::RTU_RING_OFFSET) + start) as usize, front);
        self.mapping.copy(abi::RTU_RING_OFFSET as usize, back);
        copy
    }
}

fn write_all(file: &File, parts: &mut [libc::iovec]) -> io::Result<()> {
    let mut parts = parts;
    while parts.first().is_some_and(|part| part.iov_len == 0) {
        parts = &mut parts[1..];
    }
    while !parts.is_empty() {
        // SAFETY: the parts are a live header and places in a mapping that the caller borrows; the kernel only reads them, and
        // answers with an error where pages are gone.
        let written = unsafe { libc::writev(file.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
        let Ok(mut written) = usize::try_from(written) else {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EFAULT) => return write_zeros(file, parts.iter().map(|part| part.iov_len).sum()),
                _ => return Err(error),
            }
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(part) = parts.first_mut() {
            let step = written.min(part.iov_len);
            part.iov_base = part.iov_base.wrapping_byte_add(step);
            part.iov_len -= step;
            written -= step;
            if part.iov_len > 0 {
                break;
            }
            parts = &mut parts[1..];
        }
    }
    Ok(())
}

fn write_zeros(mut file: &File, bytes: usize) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes as u64), &mut file).map(|_| ())
}

impl Ring {
    /// Reads a ring's header. `Ok(None)`: it is not complete yet. `Err`: what is wrong with it.
    pub(crate) fn open(folder: &Folder, name: FileName) -> Result<Option<Ring>, String> {
        let FileKind::Ring(tid, number) = name.kind else { return Err("it is no ring".to_string()) };
        let (file, bytes) = folder.open_file(name).map_err(|error| error.to_string())?;
        let least = u64::from(abi::RTU_RING_OFFSET + abi::RTU_RING_BYTES_MIN);
        if bytes < least {
            return Ok(None);
        }
        if bytes > u64::from(abi::RTU_RING_OFFSET) + u64::from(abi::RTU_RING_BYTES_MAX) {
            return Err("it is too large".to_string());
        }
        let mapping = Mapping::new(&file, bytes as usize).map_err(|error| error.to_string())?;
        // ORDER: acquire; pairs with the program's release of `ready`.
        if mapping.half(offset_of!(abi::rtu_ring, ready)).load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let mut copy = vec![0; size_of::<abi::rtu_ring>()];
        mapping.copy(0, &mut copy);
        let half = |offset: usize| u32_at(&copy, offset);
        let word = |offset: usize| u64_at(&copy, offset);
        if word(offset_of!(abi::rtu_ring, magic)) != abi::RTU_RING_MAGIC
            || half(offset_of!(abi::rtu_ring, abi_version)) != abi::RTU_ABI_VERSION
        {
            return Err("it does not begin as a ring does, or is of another version".to_string());
        }
        let ring_bytes = u64::from(half(offset_of!(abi::rtu_ring, ring_bytes)));
        let sub_buffers = u64::from(half(offset_of!(abi::rtu_ring, sub_buffers)));
        let clock = half(offset_of!(abi::rtu_ring, clock));
        let layout = Layout {
            ring_bytes,
            sub_bytes: ring_bytes.checked_div(sub_buffers).unwrap_or(0),
            key: half(offset_of!(abi::rtu_ring, key)),
        };
        let process = (half(offset_of!(abi::rtu_ring, pid)), word(offset_of!(abi::rtu_ring, birth_ns)));
        if !layout.is_possible()
            || ring_bytes + u64::from(abi::RTU_RING_OFFSET) != bytes
            || process != (name.process.pid, name.process.birth_ns)
            || !crate::clock::is_known(clock)
            || word(offset_of!(abi::rtu_ring, tail)) % 8 != 0
        {
            return Err("what it says of itself cannot be".to_string());
        }
        let sub_bytes = layout.sub_bytes.max(1);
        // What an earlier collector left here; a program can change it, so it is only believed when it is possible.
        let mut tail = word(offset_of!(abi::rtu_ring, tail));
        let told = offset_of!(abi::rtu_ring, reserved2);
        let mut sync = (tail > 0).then(|| Sync { counter: word(told), cpu: word(told + 8) as u32 });
        // ORDER: acquire; as in take().
        let head = mapping.word(offset_of!(abi::rtu_ring, head)).load(Ordering::Acquire);
        if head > tail && head - tail > ring_bytes {
            // A flight recorder let it be overwritten: the newest sub-buffer begins with its time.
            tail = head - head % sub_bytes;
            sync = None;
        }
        let info = RingInfo {
            pid: process.0,
            birth_ns: process.1,
            uid: folder.uid,
            tid,
            number,
            comm: text_at(&copy, offset_of!(abi::rtu_ring, comm), 16),
            clock,
            layout,
            sync,
            lost_before: word(offset_of!(abi::rtu_ring, lost_told)),
        };
        Ok(Some(Ring {
            mapping,
            info,
            name,
            tail,
            sync,
            waiting: None,
            unfinished: 0,
            ended: Default::default(),
        }))
    }

    fn word(&self, offset: usize) -> u64 {
        // ORDER: acquire; pairs with the program's releases of `ended` and of its records.
        self.mapping.word(offset).load(Ordering::Acquire)
    }

    /// Events that found no room, in all.
    pub(crate) fn lost(&self) -> u64 {
        self.word(offset_of!(abi::rtu_ring, lost))
    }

    /// How often its thread waited for room (blocking mode).
    pub(crate) fn waits(&self) -> u64 {
        self.word(offset_of!(abi::rtu_ring, waits))
    }

    /// Whether its thread writes no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.word(offset_of!(abi::rtu_ring, ended)) == 1
    }

    /// How long it is known that its thread writes no more, or its process is dead.
    pub(crate) fn ended_for(&self) -> Duration {
        let since = self.ended.get().unwrap_or_else(Instant::now);
        self.ended.set(Some(since));
        since.elapsed()
    }

    /// Bytes that wait to be taken, as the program says.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.word(offset_of!(abi::rtu_ring, head)).saturating_sub(self.tail)
    }

    /// Gives complete records to `write`, and their place back. `last`: nothing more will be finished. Returns the bytes. `Err` is
    /// either an error of `write`, or what is wrong with the ring.
    pub(crate) fn take(
        &mut self,
        last: bool,
        mut write: impl FnMut(Chunk<'_>) -> io::Result<()>,
    ) -> io::Result<Result<u64, String>> {
        let head = self.word(offset_of!(abi::rtu_ring, head));
        let ring_bytes = self.info.layout.ring_bytes;
        if head < self.tail || head - self.tail > ring_bytes || head % 8 != 0 {
            return Ok(Err("its positions jump".to_string()));
        }
        let begin = self.tail;
        while self.tail < head {
            let (end, events, stop) = self.complete(head);
            if end > self.tail {
                let chunk = Chunk {
                    mapping: &self.mapping,
                    layout: self.info.layout,
                    position: self.tail,
                    bytes: end - self.tail,
                    events,
                };
                write(chunk)?;
                self.give_back(end);
            }
            match stop {
                _ if self.mapping.is_cut() => return Ok(Err("its file was cut".to_string())),
                Header::Broken if self.unfinished > UNFINISHED_MAX => {
                    return Ok(Err("its records overlap".to_string()));
                }
                Header::Open { end } if last || self.is_abandoned(head) => {
                    self.unfinished += 1;
                    self.give_back(end);
                }
                // A record that was reserved and not begun: its thread jumped out of a handler between two instructions, or was
                // killed there. What stands in its place is older, and may look like anything.
                Header::Unwritten | Header::Broken
                    if self.tail < head && (last || self.is_abandoned(head)) =>
                {
                    let Some(next) = self.next_record(head).or(last.then_some(head)) else { break };
                    self.unfinished += 1;
                    self.give_back(next);
                }
                Header::Complete { .. } => {}
                _ => break,
            }
        }
        Ok(Ok(self.tail - begin))
    }

    /// Behind a record that is not there: where some follow each other, or reach the end of the sub-buffer, or the head. If they do
    /// nowhere, the next sub-buffer, which can be read by itself.
    fn next_record(&self, head: u64) -> Option<u64> {
        let layout = self.info.layout;
        let sub_end = layout.sub_end(self.tail);
        let stop = sub_end.min(head);
        let mut steps = 0;
        let follow = |mut at: u64, steps: &mut u32| {
            for _ in 0..IN_A_ROW {
                if at >= stop {
                    break;
                }
                *steps += 1;
                let place = u64::from(abi::RTU_RING_OFFSET) + (at & (layout.ring_bytes - 1));
                // ORDER: acquire; as in complete().
                let word = self.mapping.word(place as usize).load(Ordering::Acquire);
                match layout.header(at, word) {
                    Header::Complete { end, .. } | Header::Open { end } => at = end,
                    _ => return false,
                }
            }
            at <= stop
        };
        let mut candidate = self.tail + 16;
        while candidate < stop && steps < SEARCH_MAX {
            if follow(candidate, &mut steps) {
                return Some(candidate);
            }
            candidate += 8;
        }
        (sub_end <= head).then_some(sub_end)
    }

    /// How far from the tail records are complete, up to a chunk; how many events that are, and what stands there.
    fn complete(&mut self, head: u64) -> (u64, u64, Header) {
        let layout = self.info.layout;
        let full = self.tail.saturating_add(CHUNK_BYTES).min(head);
        let (mut at, mut events) = (self.tail, 0);
        let mut stop = Header::Unwritten;
        while at < full {
            let place = u64::from(abi::RTU_RING_OFFSET) + (at & (layout.ring_bytes - 1));
            // ORDER: acquire; pairs with the release in rtscope__commit(): the payload is there.
            let word = self.mapping.word(place as usize).load(Ordering::Acquire);
            stop = layout.header(at, word);
            let Header::Complete { id, end, .. } = stop else { break };
            if end > head {
                stop = Header::Broken;
                break;
            }
            if id == abi::RTU_ID_SYNC && end - at == size_of::<abi::rtu_sync>() as u64 {
                // ORDER: relaxed; the acquire above covers the record.
                let field =
                    |offset: u64| self.mapping.word((place + offset) as usize).load(Ordering::Relaxed);
                self.sync = Some(Sync { counter: field(8), cpu: field(24) as u32 });
            }
            events += u64::from(id < abi::RTU_EVENTS_MAX);
            at = end;
        }
        (at, events, if at >= head { Header::Unwritten } else { stop })
    }

    /// Whether the unfinished record at the tail is not to be waited for: it is old, or the ring fills up behind it.
    fn is_abandoned(&mut self, head: u64) -> bool {
        match self.waiting {
            Some((position, since)) if position == self.tail => {
                since.elapsed() > PATIENCE || head - self.tail > self.info.layout.ring_bytes / 2
            }
            _ => {
                self.waiting = Some((self.tail, Instant::now()));
                false
            }
        }
    }

    fn give_back(&mut self, position: u64) {
        self.tail = position;
        if let Some(sync) = self.sync {
            let told = offset_of!(abi::rtu_ring, reserved2);
            // ORDER: relaxed; for a later collector, if this one is killed. Before the tail: it may then repeat, not guess.
            self.mapping.word(told).store(sync.counter, Ordering::Relaxed);
            self.mapping.word(told + 8).store(u64::from(sync.cpu), Ordering::Relaxed);
        }
        // ORDER: release; pairs with the acquire in rtscope__step(): the records before it have been copied.
        self.mapping.word(offset_of!(abi::rtu_ring, tail)).store(position, Ordering::Release);
    }

    /// So many losses are in a recording: a later collector need not tell them again.
    pub(crate) fn tell_lost(&self, lost: u64) {
        // ORDER: relaxed; as above.
        self.mapping.word(offset_of!(abi::rtu_ring, lost_told)).store(lost, Ordering::Relaxed);
    }

    /// The newest complete records of a ring that is being overwritten, from the begin of a sub-buffer on; for flight recorders.
    /// What was overwritten while it was copied is not in it.
    pub(crate) fn snapshot(&self) -> (u64, Vec<u8>) {
        let layout = self.info.layout;
        let head = self.word(offset_of!(abi::rtu_ring, head));
        let up = |position: u64| {
            if position % layout.sub_bytes == 0 { position } else { layout.sub_end(position) }
        };
        let from = up(head.saturating_sub(layout.ring_bytes));
        let chunk = Chunk {
            mapping: &self.mapping,
            layout,
            position: from,
            bytes: head.saturating_sub(from),
            events: 0,
        };
        let copy = chunk.copy();
        // The writer may be anywhere in the sub-buffer that it is in now.
        let later = self.word(offset_of!(abi::rtu_ring, head));
        let safe = up(layout.sub_end(later).saturating_sub(layout.ring_bytes).max(from));
        let skip = usize::try_from(safe - from).unwrap_or(usize::MAX).min(copy.len());
        let rest = &copy[skip..];
        let complete = layout.complete_bytes(safe, rest);
        (safe, rest[..complete].to_vec())
    }
}
