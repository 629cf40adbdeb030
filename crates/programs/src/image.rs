// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a flight recorder's ring held, in memory of our own: copied once, to where it was in the ring, and read there as a ring that is recorded.

use crate::memory::own::OwnMemory;
use crate::records::Layout;
use crate::walk::Records;
use rtscope_abi::program as abi;
use rtscope_event::exact::index;
use std::io;

/// Memory is given by the page. No sub-buffer is smaller, and each begins with one.
const PAGE_BYTES: u64 = 4096;

/// A copy of a ring. It takes memory for what it holds, and no more than that for what was left out in between.
#[derive(Debug)]
pub struct RingImage {
    memory: OwnMemory,
    layout: Layout,
    /// Where in the ring each begins and ends. Words of open records are in them: their length tells where it goes on.
    pieces: Vec<(u64, u64)>,
    held_bytes: u64,
    unfinished: u64,
}

/// What is kept of a piece beside its bytes.
pub(crate) const PIECE_BYTES: u64 = size_of::<(u64, u64)>() as u64;

impl RingImage {
    /// Of a ring of which nothing has been copied so far. `has_any`: something will be.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub(crate) fn new(layout: Layout, has_any: bool) -> io::Result<RingImage> {
        let bytes = u64::from(abi::RTU_RING_OFFSET) + if has_any { layout.ring_bytes } else { 0 };
        Ok(RingImage {
            memory: OwnMemory::new(index(bytes))?,
            layout,
            pieces: Vec::new(),
            held_bytes: 0,
            unfinished: 0,
        })
    }

    /// Of records that were made elsewhere, from the ring's first position on: a piece behind the other.
    ///
    /// # Errors
    /// When such a ring cannot have them, or the system refuses the memory.
    pub fn of_records(layout: Layout, pieces: &[&[u8]]) -> io::Result<RingImage> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let is_whole = pieces.iter().all(|piece| piece.len() % 8 == 0);
        if !layout.is_possible() || bytes > layout.ring_bytes || !is_whole {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no ring can have these records"));
        }
        let mut image = RingImage::new(layout, bytes > 0)?;
        let mut at = 0;
        for piece in pieces {
            let end = at + piece.len() as u64;
            image.bytes_mut(at, end - at).copy_from_slice(piece);
            image.add_piece(at, end);
            at = end;
        }
        Ok(image)
    }

    /// Where bytes of one sub-buffer are to be copied to.
    pub(crate) fn bytes_mut(&mut self, position: u64, bytes: u64) -> &mut [u8] {
        let begin = index(u64::from(abi::RTU_RING_OFFSET) + (position & (self.layout.ring_bytes - 1)));
        self.memory.bytes_mut(begin..begin + index(bytes))
    }

    /// From `begin` on, where a sub-buffer begins, there are complete records up to `end`, and words of open ones.
    pub(crate) fn add_piece(&mut self, begin: u64, end: u64) {
        if begin < end {
            self.pieces.push((begin, end));
            self.held_bytes += (end - begin).next_multiple_of(PAGE_BYTES) + PIECE_BYTES;
        }
    }

    /// What is older than the begin of this sub-buffer is no part of it.
    pub(crate) fn cut_before(&mut self, position: u64) {
        self.pieces.retain(|(begin, _)| *begin >= position);
    }

    /// So many records were not complete when it was made.
    pub(crate) fn add_unfinished(&mut self, count: u64) {
        self.unfinished += count;
    }

    /// Records between others that were not complete: each is one, and where none could be found up to the end of a sub-buffer that is one, too.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// The memory that it takes.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Its records.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::of_pieces(self.memory.mapping(), self.layout, &self.pieces)
    }

    /// Copies of its complete records, as far as they are in a row: the position of each row's first byte, and its bytes.
    #[must_use]
    pub fn rows(&self) -> Vec<(u64, Vec<u8>)> {
        let (mut records, mut rows) = (self.records(), Vec::new());
        loop {
            let chunk = records.chunk();
            if chunk.bytes > 0 {
                rows.push((chunk.position, chunk.copy()));
            } else if !records.next_piece() {
                return rows;
            }
        }
    }
}
