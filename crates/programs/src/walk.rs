// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Complete records of a ring, in place: the taker walks over them once.
//!
//! A lying program may change words that have been read. So a word that decides something is read only once, and all words
//! are atomic: any value is a valid number.

use crate::memory::Mapping;
use crate::records::{Header, Layout, Sync};
use rtscope_abi::program as abi;
use rtscope_event::exact::{index, low_half};
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
    /// It is a copy, in which nobody will finish open records.
    is_copy: bool,
    /// What comes after `head` in a copy: where each piece begins and ends.
    further: &'a [(u64, u64)],
}

impl<'a> Records<'a> {
    pub(crate) fn new(
        mapping: &'a Mapping,
        layout: Layout,
        (tail, head): (u64, u64),
        sync: Option<Sync>,
        is_final: bool,
    ) -> Records<'a> {
        Records { mapping, layout, head, position: tail, sync, is_final, is_copy: false, further: &[] }
    }

    /// All records of a ring that was copied in pieces.
    pub(crate) fn of_pieces(mapping: &'a Mapping, layout: Layout, pieces: &'a [(u64, u64)]) -> Records<'a> {
        let (first, further) = pieces.split_first().map_or(((0, 0), pieces), |(first, rest)| (*first, rest));
        Records { is_copy: true, further, ..Records::new(mapping, layout, first, None, true) }
    }

    /// Goes on after what is not complete in a ring that was copied. False: nothing more is there.
    pub fn next_piece(&mut self) -> bool {
        match self.header() {
            Header::Open { end } if self.is_copy && end <= self.head => {
                self.position = end;
                return true;
            }
            _ => {}
        }
        let Some(((begin, end), further)) = self.further.split_first() else { return false };
        (self.position, self.head, self.further) = (*begin, *end, further);
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

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
    fn a_chunk_is_copied_also_over_the_end_of_the_ring() {
        let (_file, mapping) = ring();
        let all = LAYOUT.ring_bytes;
        for (position, bytes) in [(0, 64), (all - 16, 48), (3 * all - 8, 8), (5 * all + 24, all), (8, 0)] {
            let chunk = chunk(&mapping, position, bytes);
            let words = (position..position + bytes).step_by(8).map(|at| OFFSET + at % all);
            let expected: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            assert!(chunk.copy() == expected, "{position} {bytes}");
        }
    }
}
