// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control words: where each CPU writes, and the trigger of the flight recorder.

use crate::SharedMemory;
use rtscope_abi as abi;
use std::mem::{offset_of, size_of};

/// `struct rts_cpu_control` of every CPU.
#[derive(Debug)]
pub struct Controls {
    memory: SharedMemory,
    cpus: usize,
}

/// A 32-bit field, which is the first or the second half of a word in memory.
fn half(word: u64, byte_offset: usize) -> u32 {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    u32::from_ne_bytes(if byte_offset % 8 == 0 { [a, b, c, d] } else { [e, f, g, h] })
}

impl Controls {
    /// Over a mapping of the map `controls` (writable, because readers report how far they have read).
    #[must_use]
    pub fn new(memory: SharedMemory, cpus: usize) -> Controls {
        Controls { memory, cpus }
    }

    /// Another handle to the same words, for another thread.
    #[must_use]
    pub fn share(&self) -> Controls {
        Controls { memory: self.memory.share(), cpus: self.cpus }
    }

    /// Bytes to map for this many CPUs.
    #[must_use]
    pub fn bytes(cpus: usize) -> usize {
        cpus * size_of::<abi::rts_cpu_control>()
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    fn at(&self, cpu: usize, field: usize) -> usize {
        cpu * size_of::<abi::rts_cpu_control>() + field
    }

    fn banked(&self, cpu: usize, field: usize, bank: usize) -> u64 {
        self.memory.load_acquire(self.at(cpu, field) + (bank & 1) * 8)
    }

    /// Next position to reserve in a bank.
    #[must_use]
    pub fn head(&self, cpu: usize, bank: usize) -> u64 {
        self.banked(cpu, offset_of!(abi::rts_cpu_control, head), bank)
    }

    /// Position and time at which a bank was last switched to: its epoch's start.
    #[must_use]
    pub fn start(&self, cpu: usize, bank: usize) -> (u64, u64) {
        (
            self.banked(cpu, offset_of!(abi::rts_cpu_control, start), bank),
            self.banked(cpu, offset_of!(abi::rts_cpu_control, start_ns), bank),
        )
    }

    /// Position and time at which the bank's previous epoch began.
    #[must_use]
    pub fn previous_start(&self, cpu: usize, bank: usize) -> (u64, u64) {
        (
            self.banked(cpu, offset_of!(abi::rts_cpu_control, previous_start), bank),
            self.banked(cpu, offset_of!(abi::rts_cpu_control, previous_start_ns), bank),
        )
    }

    /// The bank being written, and the trigger generation at which the CPU switched to it.
    #[must_use]
    pub fn active(&self, cpu: usize) -> (usize, u32) {
        // `active` and `flipped` share a word, so both come from one consistent reading.
        let word = self.memory.load_acquire(self.at(cpu, offset_of!(abi::rts_cpu_control, active)));
        let active = half(word, offset_of!(abi::rts_cpu_control, active));
        let flipped = half(word, offset_of!(abi::rts_cpu_control, flipped));
        (active as usize & 1, flipped)
    }

    /// A stream's reader has read up to `position`: the kernel side may write there again.
    pub fn set_tail(&self, cpu: usize, position: u64) {
        self.memory.store_release(self.at(cpu, offset_of!(abi::rts_cpu_control, tail)), position);
    }

    /// How far a stream was read, for the model of the writer.
    #[cfg(test)]
    pub(crate) fn tail_for_model(&self) -> u64 {
        self.memory.load(self.at(0, offset_of!(abi::rts_cpu_control, tail)))
    }

    /// A stream's records that did not fit because the ring was full, by type.
    #[must_use]
    pub fn lost(&self, cpu: usize) -> [u64; abi::RTS_LOST_TYPES as usize] {
        let first = self.at(cpu, offset_of!(abi::rts_cpu_control, lost));
        std::array::from_fn(|kind| self.memory.load(first + kind * 8))
    }

    /// Late responses written so far.
    #[must_use]
    pub fn late_head(&self, cpu: usize) -> u64 {
        self.memory.load_acquire(self.at(cpu, offset_of!(abi::rts_cpu_control, late_head)))
    }

    /// Reports how many late responses have been read, so that their slots can be reused.
    pub fn set_late_tail(&self, cpu: usize, tail: u64) {
        self.memory.store_release(self.at(cpu, offset_of!(abi::rts_cpu_control, late_tail)), tail);
    }

    /// Late responses that did not fit because the ring was full.
    #[must_use]
    pub fn late_lost(&self, cpu: usize) -> u64 {
        self.memory.load(self.at(cpu, offset_of!(abi::rts_cpu_control, late_lost)))
    }
}

/// `struct rts_trigger`.
#[derive(Debug)]
pub struct Trigger {
    memory: SharedMemory,
}

/// One reading of the trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerState {
    /// A late response has pulled it, and the banks have not been given back yet.
    pub armed: bool,
    /// The snapshot's number.
    pub generation: u64,
    /// When the late response was detected.
    pub detected_ns: u64,
    /// When each CPU leaves its bank.
    pub stop_at_ns: u64,
}

impl Trigger {
    /// Over a writable mapping of the map `.data.trigger`.
    #[must_use]
    pub fn new(memory: SharedMemory) -> Trigger {
        Trigger { memory }
    }

    /// Bytes to map.
    #[must_use]
    pub fn bytes() -> usize {
        size_of::<abi::rts_trigger>()
    }

    /// The poll: three loads, no system call.
    #[must_use]
    pub fn state(&self) -> TriggerState {
        // stop_at_ns first: it is stored last, so when it is set, the others belong to it.
        let stop_at_ns = self.memory.load_acquire(offset_of!(abi::rts_trigger, stop_at_ns));
        let word = self.memory.load_acquire(offset_of!(abi::rts_trigger, state));
        TriggerState {
            armed: half(word, offset_of!(abi::rts_trigger, state)) == abi::RTS_TRIGGER_ARMED
                && stop_at_ns != abi::RTS_NEVER,
            generation: self.memory.load(offset_of!(abi::rts_trigger, generation)),
            detected_ns: self.memory.load(offset_of!(abi::rts_trigger, detected_ns)),
            stop_at_ns,
        }
    }

    /// Gives the frozen banks back: the next late response may pull the trigger again.
    pub fn re_arm(&self) {
        // stop_at_ns is taken back before the state is freed: pairs with pull_trigger() (core/trigger.bpf.h), which claims the
        // state and then sets a new stop_at_ns, which must not be wiped out by ours.
        self.memory.store_release(offset_of!(abi::rts_trigger, stop_at_ns), abi::RTS_NEVER);
        self.memory.store_release_u32(offset_of!(abi::rts_trigger, state), abi::RTS_TRIGGER_IDLE);
    }

    /// Pulls the trigger from user space: each CPU leaves its bank at `stop_at_ns`. Returns the snapshot's number; `None` while the banks of another
    /// one have not been given back. Only where no tracker in the kernel pulls it, too: this is no compare-and-swap.
    #[must_use]
    pub fn pull(&self, detected_ns: u64, stop_at_ns: u64) -> Option<u64> {
        let word = self.memory.load_acquire(offset_of!(abi::rts_trigger, state));
        if half(word, offset_of!(abi::rts_trigger, state)) != abi::RTS_TRIGGER_IDLE {
            return None;
        }
        self.memory.store_release_u32(offset_of!(abi::rts_trigger, state), abi::RTS_TRIGGER_ARMED);
        let generation = self.memory.load(offset_of!(abi::rts_trigger, generation)) + 1;
        self.memory.store_release(offset_of!(abi::rts_trigger, generation), generation);
        self.memory.store_release(offset_of!(abi::rts_trigger, detected_ns), detected_ns);
        // Last of all, as in pull_trigger() (response.bpf.h): flip() acts on it and then reads the generation.
        self.memory.store_release(offset_of!(abi::rts_trigger, stop_at_ns), stop_at_ns);
        Some(generation)
    }

    /// Enables or disables all eBPF programs. A disabled one returns at its first instruction.
    pub fn enable(&self, on: bool) {
        self.memory.store_release_u32(offset_of!(abi::rts_trigger, enabled), u32::from(on));
    }

    /// Whether the task iterator makes the tracker adopt tasks.
    pub fn adopt_tasks(&self, on: bool) {
        self.memory.store_release_u32(offset_of!(abi::rts_trigger, adopt), u32::from(on));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn re_arming_disarms_and_leaves_the_programs_enabled() {
        let memory = SharedMemory::anonymous(Trigger::bytes()).unwrap();
        memory.store_release(offset_of!(abi::rts_trigger, stop_at_ns), 77);
        memory.store_release(offset_of!(abi::rts_trigger, generation), 3);
        let trigger = Trigger::new(memory);
        trigger.memory.store_release_u32(offset_of!(abi::rts_trigger, state), abi::RTS_TRIGGER_ARMED);
        trigger.enable(true);
        let state = trigger.state();
        assert_eq!((state.armed, state.generation, state.stop_at_ns), (true, 3, 77));
        trigger.re_arm();
        assert!(!trigger.state().armed);
        assert_eq!(trigger.state().stop_at_ns, abi::RTS_NEVER);
        let word = trigger.memory.load(offset_of!(abi::rts_trigger, state));
        assert_eq!(half(word, offset_of!(abi::rts_trigger, enabled)), 1);
    }

    #[test]
    fn the_trigger_is_pulled_from_here_once_until_the_banks_are_given_back() {
        let memory = SharedMemory::anonymous(Trigger::bytes()).unwrap();
        let trigger = Trigger::new(memory);
        trigger.re_arm();
        assert_eq!(trigger.pull(100, 150), Some(1));
        let state = trigger.state();
        assert_eq!((state.armed, state.generation), (true, 1));
        assert_eq!((state.detected_ns, state.stop_at_ns), (100, 150));
        assert_eq!(trigger.pull(200, 250), None);
        assert_eq!(trigger.state(), state);
        trigger.re_arm();
        assert_eq!(trigger.pull(300, 350), Some(2));
    }

    #[test]
    fn the_trigger_is_armed_when_it_says_when_to_stop() {
        let memory = SharedMemory::anonymous(Trigger::bytes()).unwrap();
        let trigger = Trigger::new(memory.share());
        let state = |state: u32, stop_at_ns: u64| {
            memory.store_release(offset_of!(abi::rts_trigger, stop_at_ns), stop_at_ns);
            memory.store_release_u32(offset_of!(abi::rts_trigger, state), state);
            trigger.state().armed
        };
        assert!(state(abi::RTS_TRIGGER_ARMED, 5));
        assert!(!state(abi::RTS_TRIGGER_ARMED, abi::RTS_NEVER), "the time is stored last");
        assert!(!state(abi::RTS_TRIGGER_IDLE, 5));
        memory.store_release(offset_of!(abi::rts_trigger, detected_ns), 8);
        assert_eq!(trigger.state().detected_ns, 8);
        for on in [true, false] {
            trigger.adopt_tasks(on);
            let adopt = offset_of!(abi::rts_trigger, adopt);
            assert_eq!(half(memory.load(adopt & !7), adopt), u32::from(on));
        }
    }

    #[test]
    fn each_cpu_has_its_words_and_each_bank_its_own() {
        let memory = SharedMemory::anonymous(Controls::bytes(3)).unwrap();
        let controls = Controls::new(memory.share(), 3);
        assert_eq!((controls.cpus(), memory.words()), (3, Controls::bytes(3) / 8));
        let size = size_of::<abi::rts_cpu_control>();
        // Each word of the last CPU is its number.
        for word in 0..size / 8 {
            memory.store_release(2 * size + word * 8, word as u64);
        }
        let word = |offset: usize, index: usize| (offset / 8 + index) as u64;
        let controls = controls.share();
        for bank in 0..2 {
            assert_eq!(controls.head(2, bank), word(offset_of!(abi::rts_cpu_control, head), bank));
            let start = offset_of!(abi::rts_cpu_control, start);
            let start_ns = offset_of!(abi::rts_cpu_control, start_ns);
            assert_eq!(controls.start(2, bank), (word(start, bank), word(start_ns, bank)));
            let start = offset_of!(abi::rts_cpu_control, previous_start);
            let start_ns = offset_of!(abi::rts_cpu_control, previous_start_ns);
            assert_eq!(controls.previous_start(2, bank), (word(start, bank), word(start_ns, bank)));
        }
        let lost = offset_of!(abi::rts_cpu_control, lost);
        assert_eq!(controls.lost(2), std::array::from_fn(|kind| word(lost, kind)));
        assert_eq!(controls.lost(1), [0; abi::RTS_LOST_TYPES as usize]);
        assert_eq!(controls.late_head(2), word(offset_of!(abi::rts_cpu_control, late_head), 0));
        assert_eq!(controls.late_lost(2), word(offset_of!(abi::rts_cpu_control, late_lost), 0));
        controls.set_tail(1, 1234);
        assert_eq!(memory.load(size + offset_of!(abi::rts_cpu_control, tail)), 1234);
        controls.set_late_tail(1, 4321);
        assert_eq!(memory.load(size + offset_of!(abi::rts_cpu_control, late_tail)), 4321);
    }

    #[test]
    fn the_active_bank_comes_with_the_generation_of_its_switch() {
        let memory = SharedMemory::anonymous(Controls::bytes(2)).unwrap();
        let controls = Controls::new(memory.share(), 2);
        let size = size_of::<abi::rts_cpu_control>();
        memory.store_release_u32(size + offset_of!(abi::rts_cpu_control, flipped), 77);
        for (active, bank) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
            memory.store_release_u32(size + offset_of!(abi::rts_cpu_control, active), active);
            assert_eq!(controls.active(1), (bank, 77));
        }
    }
}
