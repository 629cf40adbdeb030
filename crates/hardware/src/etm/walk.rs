// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an address to the next waypoint, through the image. What was found is remembered: a program runs the same code again.

use super::image::{Image, Spaces};
use super::isa::{self, Instruction, Isa, Kind};
use alloc::boxed::Box;
use alloc::vec;

/// No code has as many instructions without a branch; an image of data has, and each address would cost a search through it.
const MOST: u32 = 1 << 16;
/// Blocks remembered: 4096 of 72 bytes.
const BITS: u32 = 12;

/// Which instructions end a walk, besides branches and ISB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waypoints {
    /// DSB and DMB.
    pub data_barriers: bool,
    /// WFI and WFE.
    pub waits: bool,
    /// TSTART.
    pub transactions: bool,
}

/// Instructions up to a waypoint, or to where the image ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Address after the last instruction.
    pub end: u64,
    /// Instructions.
    pub instructions: u32,
    /// The last of them.
    pub last: Instruction,
    /// Whether that is a waypoint.
    pub complete: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    start: u64,
    isa: Isa,
    spaces: Option<Spaces>,
    block: Block,
}

/// The image with what was found in it.
#[derive(Clone, Debug)]
pub struct Walker {
    image: Image,
    waypoints: Waypoints,
    entries: Box<[Entry]>,
}

impl Walker {
    /// With nothing found yet.
    #[must_use]
    pub fn new(image: Image, waypoints: Waypoints) -> Self {
        Self { image, waypoints, entries: vec![Entry::default(); 1 << BITS].into() }
    }

    /// Other memory from now on, as after a program was loaded.
    pub fn set_image(&mut self, image: Image) {
        self.image = image;
        self.entries.fill(Entry::default());
    }

    /// To the next waypoint.
    pub fn block(&mut self, spaces: Spaces, isa: Isa, start: u64) -> Block {
        let place = ((start >> 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BITS)) as usize;
        let entry = &self.entries[place];
        if entry.start == start && entry.isa == isa && entry.spaces == Some(spaces) {
            return entry.block;
        }
        let block = self.walk(spaces, isa, start, None);
        self.entries[place] = Entry { start, isa, spaces: Some(spaces), block };
        block
    }

    /// To an address, past waypoints.
    #[must_use]
    pub fn to(&self, spaces: Spaces, isa: Isa, start: u64, end: u64) -> Block {
        self.walk(spaces, isa, start, Some(end))
    }

    /// One instruction.
    #[must_use]
    pub fn instruction(&self, spaces: Spaces, isa: Isa, address: u64) -> Option<Instruction> {
        isa::decode(isa, address, self.image.at(spaces, address))
    }

    /// Whether an instruction ends a walk.
    #[must_use]
    pub fn is_waypoint(&self, kind: Kind) -> bool {
        match kind {
            Kind::Other => false,
            Kind::Direct | Kind::Indirect | Kind::Barrier => true,
            Kind::DataBarrier => self.waypoints.data_barriers,
            Kind::Wait => self.waypoints.waits,
            Kind::TransactionStart => self.waypoints.transactions,
        }
    }

    fn walk(&self, spaces: Spaces, isa: Isa, start: u64, to: Option<u64>) -> Block {
        let mut block = Block { end: start, ..Block::default() };
        block.last.next = isa;
        let mut bytes: &[u8] = &[];
        while block.instructions < MOST {
            if bytes.len() < 4 {
                // The next region may begin where this one ends.
                bytes = self.image.at(spaces, block.end);
            }
            let Some(last) = isa::decode(isa, block.end, bytes) else { break };
            bytes = &bytes[usize::from(last.size)..];
            block.end = block.end.wrapping_add(u64::from(last.size));
            block.instructions += 1;
            block.last = last;
            block.complete = match to {
                Some(to) => block.end == to,
                None => self.is_waypoint(last.kind),
            };
            if block.complete {
                break;
            }
        }
        block
    }
}
