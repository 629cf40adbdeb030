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

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Memory of two CPUs, in whose slots stands which one it is.
    fn rings() -> (LateResponseRings, Controls, SharedMemory) {
        let memory = SharedMemory::anonymous(LateResponseRings::bytes(2)).expect("memory");
        for slot in 0..2 * SLOTS {
            memory.store_release(slot * size_of::<abi::rts_late>(), slot as u64);
            let last = size_of::<abi::rts_late>() - 8;
            memory.store_release(slot * size_of::<abi::rts_late>() + last, 1000 + slot as u64);
        }
        let controls = SharedMemory::anonymous(Controls::bytes(2)).expect("memory");
        (LateResponseRings::new(memory, 2), Controls::new(controls.share(), 2), controls)
    }

    fn set(controls: &SharedMemory, cpu: usize, offset: usize, value: u64) {
        controls.store_release(cpu * size_of::<abi::rts_cpu_control>() + offset, value);
    }

    #[test]
    fn what_is_new_is_taken_once_cpu_by_cpu_over_the_ends_of_the_rings() {
        let (mut rings, controls, memory) = rings();
        let head = offset_of!(abi::rts_cpu_control, late_head);
        let tail = size_of::<abi::rts_cpu_control>() + offset_of!(abi::rts_cpu_control, late_tail);
        let taken = |rings: &mut LateResponseRings| {
            let raw = rings.drain(&controls);
            let slots: Vec<u64> = raw.iter().map(|raw| raw.words()[0]).collect();
            let ends: Vec<u64> = raw.iter().map(|raw| raw.words()[SLOT_WORDS - 1] - 1000).collect();
            assert_eq!(slots, ends);
            slots
        };
        let slots = SLOTS as u64;
        set(&memory, 0, head, 2);
        set(&memory, 1, head, 3);
        assert_eq!(taken(&mut rings), [0, 1, slots, slots + 1, slots + 2]);
        assert_eq!(memory.load(tail), 3);
        // Nothing new: nothing is written either.
        memory.store_release(tail, 99);
        assert_eq!(taken(&mut rings), [0; 0]);
        assert_eq!(memory.load(tail), 99);
        set(&memory, 1, head, slots + 1);
        let rest: Vec<u64> = (3..slots).chain([0]).map(|slot| slots + slot).collect();
        assert_eq!(taken(&mut rings), rest);
        assert_eq!(memory.load(tail), slots + 1);
        // A head that cannot be: no more than there are slots.
        set(&memory, 0, head, 100 * slots + 1);
        let lap: Vec<u64> = (1..slots).chain([0]).collect();
        assert_eq!(taken(&mut rings), lap);
        // And one that went back.
        set(&memory, 0, head, 5);
        assert_eq!(taken(&mut rings), [0; 0]);
    }
}
