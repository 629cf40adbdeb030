// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Complete records of a ring, in place: the taker walks over them once.
//!
//! A lying program may change words that have been read. So a word that decides something is read only once, and all words
//! are atomic: any value is a valid number.

use crate::memory::Mapping;
use crate::records::{Header, Layout, Sync};
use rtscope_abi::program as abi;
use rtscope_event::exact::{index, low_half};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of a chunk at most, except for one record: the conversion holds one chunk of each thread in memory.
const CHUNK_BYTES: u64 = 64 << 10;

/// The records of a ring that have not been taken. The sink walks on as far as it takes; the rest stays.
#[derive(Debug)]
pub struct Records<'a> {
    mapping: &'a Mapping,
    layout: Layout,
    head: u64,
    position: u64,
    sync: Option<Sync>,
    is_final: bool,
}

impl<'a> Records<'a> {
    pub(crate) fn new(
        mapping: &'a Mapping,
        layout: Layout,
        (tail, head): (u64, u64),
        sync: Option<Sync>,
        is_final: bool,
    ) -> Records<'a> {
        Records { mapping, layout, head, position: tail, sync, is_final }
    }

    /// Position of the next record.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The time and CPU that the next records count from.
    #[inline]
    #[must_use]
    pub fn sync(&self) -> Option<Sync> {
        self.sync
    }

    /// Whether this is the last call: records not taken now are lost.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// The tag of complete records of this lap: see [`Layout::tag`].
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.layout.tag(self.position)
    }

    /// The words from here to the end of the sub-buffer, or of the reserved part. Load them with acquire: then the payload of a
    /// complete record is there.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &'a [AtomicU64] {
        let end = self.layout.sub_end(self.position).min(self.head);
        self.mapping.words(self.place(self.position), (end.saturating_sub(self.position) / 8) as usize)
    }

    /// Bytes from here to the end of the reserved part.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.head.saturating_sub(self.position)
    }

    /// Copies the payload of the complete record here, which ends at `end`.
    pub fn copy_payload(&self, end: u64, into: &mut Vec<u8>) {
        let words = self.words();
        into.clear();
        let payload = words.get(1..((end - self.position) / 8) as usize).unwrap_or_default();
        // ORDER: relaxed; the acquire of its word covers the record.
        payload.iter().for_each(|word| into.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()));
    }

    fn place(&self, position: u64) -> usize {
        index(u64::from(abi::RTU_RING_OFFSET) + (position & (self.layout.ring_bytes - 1)))
    }

    /// The decoded word of the next record.
    #[must_use]
    pub fn header(&self) -> Header {
        if self.position >= self.head {
            return Header::Unwritten;
        }
        // ORDER: acquire; pairs with the release in rtscope__commit(): the payload is there.
        let word = self.mapping.word(self.place(self.position)).load(Ordering::Acquire);
        match self.layout.header(self.position, word) {
            Header::Complete { end, .. } if end > self.head => Header::Broken,
            header => header,
        }
    }

    /// Goes on to `end`, which is the end of a complete record.
    #[inline]
    pub fn go_to(&mut self, end: u64) {
        debug_assert!(end % 8 == 0 && (self.position..=self.head).contains(&end), "a place in the ring");
        self.position = end;
    }

    /// If the record here, which ends at `end`, is a sync record: takes time and CPU from it, and returns its number of lost events.
    pub fn read_sync(&mut self, id: u32, end: u64) -> Option<u64> {
        if id != abi::RTU_ID_SYNC || end - self.position != size_of::<abi::rtu_sync>() as u64 {
            return None;
        }
        let place = self.place(self.position);
        // ORDER: relaxed; the acquire of its word covers the record.
        let field = |offset: usize| self.mapping.word(place + offset).load(Ordering::Relaxed);
        self.sync = Some(Sync { counter: field(8), cpu: low_half(field(24)) });
        Some(field(16))
    }

    /// Walks to the end of the complete records, or of a chunk, and returns them as they are.
    pub fn chunk(&mut self) -> Chunk<'a> {
        let (begin, mut events) = (self.position, 0);
        while self.position - begin < CHUNK_BYTES {
            let Header::Complete { id, end, .. } = self.header() else { break };
            self.read_sync(id, end);
            events += u64::from(id < abi::RTU_EVENTS_MAX);
            self.position = end;
        }
        Chunk {
            mapping: self.mapping,
            layout: self.layout,
            position: begin,
            bytes: self.position - begin,
            events,
        }
    }
}

/// Complete records, in place.
#[derive(Debug)]
pub struct Chunk<'a> {
    pub(crate) mapping: &'a Mapping,
    pub(crate) layout: Layout,
    /// Position of the first byte.
    pub position: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of event records among them.
    pub events: u64,
}

impl Chunk<'_> {
    /// Writes `header` and the records, in one go where the system can.
    ///
    /// # Errors
    /// When the system refuses (a full disk); the file then ends within the chunk. A truncated ring is not an error: zeros are
    /// written in place of what is missing.
    pub fn write_to(&self, file: &File, header: &[u8]) -> io::Result<()> {
        let start = self.position & (self.layout.ring_bytes - 1);
        let first = self.bytes.min(self.layout.ring_bytes - start);
        let place = |at: u64, bytes: u64| {
            self.mapping.io_slice(index(u64::from(abi::RTU_RING_OFFSET) + at), index(bytes))
        };
        let head = libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() };
        let mut parts = [head, place(start, first), place(0, self.bytes - first)];
        write_all(file, &mut parts)
    }

    /// Copies the records.
    #[must_use]
    pub fn copy(&self) -> Vec<u8> {
        let start = self.position & (self.layout.ring_bytes - 1);
        let first = index(self.bytes.min(self.layout.ring_bytes - start));
        let mut copy = vec![0; index(self.bytes)];
        let (front, back) = copy.split_at_mut(first);
        self.mapping.copy(index(u64::from(abi::RTU_RING_OFFSET) + start), front);
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
        // At most three.
        let count = libc::c_int::try_from(parts.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the parts are a live header and parts of a mapping that the caller borrows; the kernel only reads them, and
        // answers with an error where pages are gone.
        let written = unsafe { libc::writev(file.as_raw_fd(), parts.as_ptr(), count) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LAYOUT: Layout = Layout { ring_bytes: 65536, sub_bytes: 16384, key: 5 };
    const OFFSET: u64 = abi::RTU_RING_OFFSET as u64;

    /// A ring in whose words stands where they are.
    fn ring() -> (File, Mapping) {
        let file = tempfile::tempfile().expect("a file");
        let bytes = OFFSET + LAYOUT.ring_bytes;
        file.set_len(bytes).expect("ours");
        let mapping = Mapping::new(&file, index(bytes)).expect("it is a file");
        for at in (0..bytes).step_by(8) {
            // ORDER: relaxed; one thread.
            mapping.word(index(at)).store(at, Ordering::Relaxed);
        }
        (file, mapping)
    }

    fn chunk(mapping: &Mapping, position: u64, bytes: u64) -> Chunk<'_> {
        Chunk { mapping, layout: LAYOUT, position, bytes, events: 0 }
    }

    #[test]
    fn a_chunk_is_written_as_it_is_copied_also_over_the_end_of_the_ring() {
        let (_file, mapping) = ring();
        let place = tempfile::tempdir().expect("a directory");
        let all = LAYOUT.ring_bytes;
        for (position, bytes) in [(0, 64), (all - 16, 48), (3 * all - 8, 8), (5 * all + 24, all), (8, 0)] {
            let chunk = chunk(&mapping, position, bytes);
            let words = (position..position + bytes).step_by(8).map(|at| OFFSET + at % all);
            let expected: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            assert!(chunk.copy() == expected, "{position} {bytes}");
            for header in [&b"a header"[..], &[]] {
                let path = place.path().join("chunk");
                chunk.write_to(&File::create(&path).expect("ours"), header).expect("there is room");
                assert!(fs::read(&path).expect("ours") == [header, &expected].concat(), "{position} {bytes}");
            }
        }
    }

    #[test]
    fn zeros_are_written_in_place_of_what_was_cut_and_a_full_disk_is_an_error() {
        let (file, mapping) = ring();
        file.set_len(OFFSET + 32).expect("ours");
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("chunk");
        let chunk = chunk(&mapping, 8, 50_000);
        chunk.write_to(&File::create(&path).expect("ours"), b"a header").expect("there is room");
        let written = fs::read(&path).expect("ours");
        assert_eq!((written.len() as u64, &written[..8]), (8 + chunk.bytes, &b"a header"[..]));
        assert!(written[8 + 4096..].iter().all(|byte| *byte == 0));
        let full = File::options().write(true).open("/dev/full").expect("it is there");
        let error = chunk.write_to(&full, b"a header").expect_err("it is full");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
}
