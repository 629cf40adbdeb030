// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where frames begin in a stream without FSYNC, as on the SWO pin of a microcontroller.
//!
//! Each of 16 beginnings is tried, and what the sources' bytes then are is judged: protocols behind the formatter all have a
//! packet of zeros and an 80 (ITM, ETMv3 and PTM at least five zeros, ETMv4 eleven) that other bytes hardly ever form. Counting
//! identifiers would not do: a run of zeros fits anywhere.

use super::frames::{Deformatter, FRAME, FrameSink, Framing};
use crate::Lost;
use alloc::boxed::Box;

/// What a beginning was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alignment {
    /// Synchronisations of the sources' protocols that it gives.
    pub syncs: u64,
    /// Bytes before the first frame.
    pub start: usize,
}

struct Syncs {
    zeros: Box<[u32; 128]>,
    syncs: u64,
}

impl FrameSink for Syncs {
    fn data(&mut self, id: u8, _: u64, bytes: &[u8]) {
        // Identifiers of sources end at 6F (IHI 0029, D4.2.3).
        let Some(zeros) = self.zeros.get_mut(usize::from(id)).filter(|_| id < 0x70) else { return };
        for &byte in bytes {
            if byte == 0 {
                *zeros = zeros.saturating_add(1);
                continue;
            }
            if byte == 0x80 && (5..=32).contains(zeros) {
                self.syncs += 1;
            }
            *zeros = 0;
        }
    }
    fn lost(&mut self, _: Lost) {}
}

/// The beginning of frames that gives most synchronisations; of equals the first. `None` where no beginning gives any.
#[must_use]
pub fn find(bytes: &[u8]) -> Option<Alignment> {
    let mut best: Option<Alignment> = None;
    for start in 0..FRAME.min(bytes.len()) {
        let mut deformatter = Deformatter::new(Framing::Aligned);
        let mut syncs = Syncs { zeros: Box::new([0; 128]), syncs: 0 };
        deformatter.push(&bytes[start..], &mut syncs);
        let found = Alignment { syncs: syncs.syncs, start };
        if found.syncs > best.map_or(0, |best| best.syncs) {
            best = Some(found);
        }
    }
    best
}
