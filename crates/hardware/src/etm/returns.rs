// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The return stack: where the unit foresaw an indirect branch, the trace has no address, as the decoder foresees it, too
//! (IHI 0064, 4.5.4; IHI 0035, 4.4).

use super::isa::Isa;

/// Addresses that are kept; a unit has at most as many.
const DEPTH: usize = 16;

/// Addresses after calls.
#[derive(Clone, Debug)]
pub struct Returns {
    active: bool,
    entries: [(u64, Isa); DEPTH],
    head: usize,
    count: usize,
    /// An indirect branch was taken, and no address came since.
    pending: bool,
    /// Nothing is pushed before the first address after a synchronisation.
    held: bool,
}

impl Returns {
    /// Without entries.
    #[must_use]
    pub fn new(active: bool) -> Self {
        Self { active, entries: [(0, Isa::A64); DEPTH], head: 0, count: 0, pending: false, held: false }
    }

    /// A call.
    pub fn push(&mut self, address: u64, isa: Isa) {
        if self.active && !self.held {
            self.head = (self.head + 1) % DEPTH;
            self.entries[self.head] = (address, isa);
            self.count = (self.count + 1).min(DEPTH);
            self.pending = false;
        }
    }

    /// An indirect branch was taken.
    pub fn indirect(&mut self) {
        self.pending = self.active;
    }

    /// An address came.
    pub fn address(&mut self) {
        self.pending = false;
        self.held = false;
    }

    /// Whether an address is to be taken from the stack.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Takes it; `None`: there is none, so that this is not the program, or the trace is wrong.
    pub fn pop(&mut self) -> Option<(u64, Isa)> {
        self.pending = false;
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        let entry = self.entries[self.head];
        self.head = (self.head + DEPTH - 1) % DEPTH;
        Some(entry)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.count, self.pending) = (0, false);
    }

    /// A synchronisation within the trace.
    pub fn synchronise(&mut self) {
        self.held = true;
        self.clear();
    }
}
