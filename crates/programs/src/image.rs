// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a flight recorder's ring held, in memory of our own, where its records are read as those of a ring that is recorded.

use crate::memory::Mapping;
use crate::records::Layout;
use crate::ring::{Pieces, RingInfo};
use crate::walk::Records;
use nix::sys::memfd::{MFdFlags, memfd_create};
use rtscope_abi::program as abi;
use rtscope_event::exact::index;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A copy of a ring.
#[derive(Debug)]
pub struct RingImage {
    mapping: Mapping,
    layout: Layout,
    pieces: Vec<(u64, u64)>,
}

impl RingImage {
    /// Of pieces in order, none of which is newer than a ring's size after the first.
    ///
    /// # Errors
    /// When there is no memory, or they are not of one ring.
    pub fn new(info: &RingInfo, pieces: &Pieces) -> io::Result<RingImage> {
        let layout = info.layout;
        let of_one_ring = |end: u64| pieces.first().is_none_or(|first| end - first.0 <= layout.ring_bytes);
        let ends = pieces.iter().map(|(begin, bytes)| (*begin, begin.saturating_add(bytes.len() as u64)));
        let pieces_of: Vec<(u64, u64)> = ends.collect();
        let is_in_order = pieces_of.windows(2).all(|two| two[0].1 <= two[1].0);
        let is_whole = pieces_of.iter().all(|(begin, end)| begin % 8 == 0 && end % 8 == 0 && begin <= end);
        if !layout.is_possible()
            || !is_in_order
            || !is_whole
            || !pieces_of.iter().all(|(_, end)| of_one_ring(*end))
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "these are not the pieces of one ring"));
        }
        let file = File::from(memfd_create(c"rtscope-ring", MFdFlags::MFD_CLOEXEC)?);
        let bytes = u64::from(abi::RTU_RING_OFFSET) + layout.ring_bytes;
        file.set_len(bytes)?;
        for (begin, piece) in pieces {
            let start = begin & (layout.ring_bytes - 1);
            let first = piece.len().min(index(layout.ring_bytes - start));
            let (front, back) = piece.split_at(first);
            file.write_all_at(front, u64::from(abi::RTU_RING_OFFSET) + start)?;
            file.write_all_at(back, u64::from(abi::RTU_RING_OFFSET))?;
        }
        Ok(RingImage { mapping: Mapping::new(&file, index(bytes))?, layout, pieces: pieces_of })
    }

    /// Its records.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::of_pieces(&self.mapping, self.layout, &self.pieces)
    }
}
