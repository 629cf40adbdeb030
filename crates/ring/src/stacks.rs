// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of stacks: the eBPF programs claim a place, fill it and say so; user space takes it out and frees it.

use crate::SharedMemory;
use rtscope_abi as abi;
use rtscope_event::exact::index;
use rtscope_event::{Comm, CopyEnd, MonotonicNs, Pid, StackCopy, Tid};
use std::mem::{offset_of, size_of};

const BYTES: usize = size_of::<abi::rts_stack>();
const PLACES: usize = abi::RTS_STACKS as usize;
/// What is before the memory.
const HEAD: usize = offset_of!(abi::rts_stack, memory);
/// Registers that are valid: general ones, and the program counter.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 17;
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: usize = abi::RTS_STACK_REGS as usize;

/// The map `stacks`, and the words that count.
#[derive(Debug)]
pub struct StackCopies {
    memory: SharedMemory,
    counts: SharedMemory,
    /// What was claimed when it was looked for last.
    claimed: u64,
    /// Claimed then, and not full: it was looked for too early.
    is_waiting: bool,
}

impl StackCopies {
    /// Over writable mappings of the map `stacks` and of the section `.data.stacks`.
    #[must_use]
    pub fn new(memory: SharedMemory, counts: SharedMemory) -> StackCopies {
        StackCopies { memory, counts, claimed: 0, is_waiting: false }
    }

    /// Bytes of the map.
    #[must_use]
    pub const fn bytes() -> usize {
        PLACES * BYTES
    }

    /// Bytes of the counts.
    #[must_use]
    pub const fn count_bytes() -> usize {
        2 * size_of::<u64>()
    }

    /// Takes all that are full. If none was begun since the last time: one load.
    pub fn drain(&mut self) -> Vec<StackCopy> {
        let claimed = self.counts.load(0);
        if claimed == self.claimed && !self.is_waiting {
            return Vec::new();
        }
        self.claimed = claimed;
        self.is_waiting = false;
        let mut taken: Vec<StackCopy> = (0..PLACES).filter_map(|place| self.take(place * BYTES)).collect();
        taken.sort_by_key(|copy| copy.time);
        taken
    }

    fn take(&mut self, at: usize) -> Option<StackCopy> {
        // The state is the lower half of the first word; the number the upper one.
        let [a, b, c, d, e, f, g, h] = self.memory.load_acquire(at).to_ne_bytes();
        let (state, id) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        if state != abi::RTS_STACK_FULL {
            self.is_waiting |= state == abi::RTS_STACK_CLAIMED;
            return None;
        }
        let mut head = [0; HEAD / 8];
        self.memory.copy(at, &mut head);
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = usize::try_from(u32_at(&head, offset_of!(abi::rts_stack, bytes))).unwrap_or(0);
        let bytes = bytes.min(abi::RTS_STACK_BYTES as usize);
        let mut memory = vec![0; bytes.div_ceil(8)];
        self.memory.copy(at + HEAD, &mut memory);
        let mut memory: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
        memory.truncate(bytes);
        // ORDER: release; all of it has been read. Pairs with the compare-and-swap in claim_stack() (bpf/core/stacks.bpf.h).
        self.memory.store_release_u32(at, abi::RTS_STACK_FREE);
        Some(decoded(id, &head, memory))
    }

    /// Copies that found no place.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.counts.load(size_of::<u64>())
    }
}

fn u32_at(head: &[u8], at: usize) -> u32 {
    head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(head: &[u8], at: usize) -> u64 {
    head.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn decoded(id: u32, head: &[u8], memory: Vec<u8>) -> StackCopy {
    let byte = |at: usize| head.get(at).copied().unwrap_or(0);
    let comm_at = offset_of!(abi::rts_stack, comm);
    let frames = index(u64::from(byte(offset_of!(abi::rts_stack, frames))));
    let words = |at: usize, count: usize| (0..count).map(move |place| u64_at(head, at + 8 * place));
    StackCopy {
        id,
        time: MonotonicNs(u64_at(head, offset_of!(abi::rts_stack, time_ns))),
        tid: Tid(u32_at(head, offset_of!(abi::rts_stack, tid))),
        pid: Pid(u32_at(head, offset_of!(abi::rts_stack, pid))),
        comm: Comm::from_bytes(head.get(comm_at..comm_at + 16).unwrap_or_default()),
        kernel: words(offset_of!(abi::rts_stack, kernel), frames.min(abi::RTS_STACK_FRAMES as usize))
            .collect(),
        registers: words(offset_of!(abi::rts_stack, regs), REGISTERS).collect(),
        memory,
        end: match u32::from(byte(offset_of!(abi::rts_stack, end))) {
            abi::RTS_STACK_LIMIT => CopyEnd::Limit,
            abi::RTS_STACK_ABSENT => CopyEnd::Absent,
            abi::RTS_STACK_COMPAT => CopyEnd::Compat,
            _ => CopyEnd::NotTaken,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies() -> (StackCopies, SharedMemory, SharedMemory) {
        let memory = SharedMemory::anonymous(StackCopies::bytes()).expect("memory");
        let counts = SharedMemory::anonymous(StackCopies::count_bytes()).expect("memory");
        (StackCopies::new(memory.share(), counts.share()), memory, counts)
    }

    fn fill(memory: &SharedMemory, place: usize, state: u32, id: u32, bytes: u32) {
        let at = place * BYTES;
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        memory.store_release(at, halves(state, id));
        memory.store_release(at + offset_of!(abi::rts_stack, time_ns), 1000 - u64::from(id));
        memory.store_release(at + offset_of!(abi::rts_stack, tid), halves(7, 6));
        // The lower byte is the end, the next one the number of frames in the kernel.
        let end = abi::RTS_STACK_ABSENT | 2 << 8;
        memory.store_release(at + offset_of!(abi::rts_stack, bytes), halves(bytes, end));
        memory.store_release(at + offset_of!(abi::rts_stack, regs) + 7 * 8, 0x7fff_0000);
        memory.store_release(at + offset_of!(abi::rts_stack, kernel) + 8, 0xffff_ffff_8100_0000);
        memory.store_release(at + HEAD, 0x0807_0605_0403_0201);
    }

    #[test]
    fn what_is_full_is_taken_once_and_its_place_is_free() {
        let (mut copies, memory, counts) = copies();
        fill(&memory, 0, abi::RTS_STACK_FULL, 65, 5);
        fill(&memory, 3, abi::RTS_STACK_FULL, 68, 8);
        fill(&memory, 4, abi::RTS_STACK_CLAIMED, 69, 8);
        assert_eq!(copies.drain(), [], "nothing was begun, so nothing is looked at");
        counts.store_release(0, 69);
        let taken = copies.drain();
        let ids: Vec<u32> = taken.iter().map(|copy| copy.id).collect();
        assert_eq!(ids, [68, 65], "by time");
        assert_eq!((taken[1].tid, taken[1].pid, taken[1].end), (Tid(7), Pid(6), CopyEnd::Absent));
        assert_eq!(taken[1].memory, [1, 2, 3, 4, 5]);
        assert_eq!(taken[1].registers[7], 0x7fff_0000);
        assert_eq!(taken[1].kernel, [0, 0xffff_ffff_8100_0000]);
        assert_eq!(memory.load(0) & u64::from(u32::MAX), u64::from(abi::RTS_STACK_FREE));
        assert_eq!(copies.drain(), []);
        // The one that was being written is looked for again, though none was begun since.
        fill(&memory, 4, abi::RTS_STACK_FULL, 69, 8);
        assert_eq!(copies.drain().len(), 1);
    }

    #[test]
    fn numbers_that_cannot_be_are_cut() {
        let (mut copies, memory, counts) = copies();
        fill(&memory, 1, abi::RTS_STACK_FULL, 2, u32::MAX);
        counts.store_release(0, 2);
        assert_eq!(copies.drain()[0].memory.len(), abi::RTS_STACK_BYTES as usize);
    }
}
