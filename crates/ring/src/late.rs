// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The per-CPU rings of late responses: the tracker writes, user space polls and reports how far it has read.

use crate::{Controls, SharedMemory};
use rtscope_abi as abi;
use rtscope_event::exact::index;
use std::mem::size_of;

const SLOT_WORDS: usize = size_of::<abi::rts_late>() / 8;
const SLOTS: usize = abi::RTS_LATE_SLOTS as usize;

/// A private copy of one `struct rts_late`.
#[derive(Clone, Debug)]
pub struct RawLateResponse {
    words: [u64; SLOT_WORDS],
}

impl RawLateResponse {
    /// The bytes of the structure.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The map `late_rings`, and how far each ring has been read.
#[derive(Debug)]
pub struct LateResponseRings {
    memory: SharedMemory,
    tails: Vec<u64>,
}

impl LateResponseRings {
    /// Over a mapping of the map `late_rings`.
    #[must_use]
    pub fn new(memory: SharedMemory, cpus: usize) -> LateResponseRings {
        LateResponseRings { memory, tails: vec![0; cpus] }
    }

    /// Bytes to map for this many CPUs.
    #[must_use]
    pub fn bytes(cpus: usize) -> usize {
        cpus * SLOTS * size_of::<abi::rts_late>()
    }

    /// Takes all new late responses, CPU by CPU. If there are none: one load per CPU.
    pub fn drain(&mut self, controls: &Controls) -> Vec<RawLateResponse> {
        let mut taken = Vec::new();
        for (cpu, tail) in self.tails.iter_mut().enumerate() {
            let head = controls.late_head(cpu);
            // The kernel side never goes further than SLOTS beyond what we have read; if the words claim otherwise,
            // only the slots that can be valid are read.
            *tail = (*tail).max(head.saturating_sub(SLOTS as u64));
            if *tail == head {
                continue;
            }
            while *tail < head {
                let slot = cpu * SLOTS + index(*tail) % SLOTS;
                let mut words = [0; SLOT_WORDS];
                self.memory.copy(slot * size_of::<abi::rts_late>(), &mut words);
                taken.push(RawLateResponse { words });
                *tail += 1;
            }
            controls.set_late_tail(cpu, *tail);
        }
        taken
    }
}
