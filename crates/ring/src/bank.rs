// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One bank of the flight recorder: copy, then find the records.
//!
//! A bank is copied whole, while its CPU may still be writing (a CPU that has had no event since the trigger has not
//! flipped: it is asleep, and is not woken for this). The head is read before and after: everything between
//! `head_after - size` and `head_before` was neither overwritten nor unwritten in that time. Then the copy is walked from
//! the first record of the oldest sub-buffer. A record that is still open is stepped over by its length; where the
//! bytes are not a record of this lap, the walk continues at the next sub-buffer. Both are counted.

use crate::{Controls, SharedMemory};
use rtscope_abi as abi;
use rtscope_event::exact::index;
use std::ops::Range;

const SUBS: u64 = abi::RTS_SUB_BUFFERS as u64;
/// Words before the data of a bank: where the first record of each sub-buffer begins.
const STARTS: usize = abi::RTS_SUB_BUFFERS as usize;
pub(crate) const HEADER_WORDS: usize = 2;
pub(crate) const MAX_RECORD_WORDS: usize = abi::RTS_BANK_SLACK as usize / 8;

/// A private copy of one bank.
#[derive(Debug, Default)]
pub struct BankImage {
    size: u64,
    sub_shift: u32,
    head_before: u64,
    head_after: u64,
    first: Vec<u64>,
    words: Vec<u64>,
}

/// One committed record.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// `enum rts_record_type`.
    pub kind: u8,
    /// The flags byte of the record's word.
    pub flags: u8,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    pub(crate) words: &'a [u64],
}

impl<'a> Frame<'a> {
    /// Length of the record in bytes, header included.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.words.len() * 8
    }

    /// The record's words, header included.
    #[must_use]
    pub fn words(&self) -> &'a [u64] {
        self.words
    }
}

/// What could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Records whose writer had not finished.
    pub unfinished: u64,
    /// Places where the bytes were not a record; each may stand for several records.
    pub unreadable: u64,
}

impl BankImage {
    /// Bytes of one bank in the map, for a ring of `size` bytes.
    #[must_use]
    pub fn bytes(size: usize) -> usize {
        STARTS * 8 + size + abi::RTS_BANK_SLACK as usize
    }

    /// Makes and touches the memory for a ring of `size` bytes, so that copying later faults in no page.
    pub fn reserve(&mut self, size: usize) {
        self.first.resize(STARTS, 1);
        self.words.resize((size + abi::RTS_BANK_SLACK as usize) / 8, 1);
    }

    /// Copies bank `bank` of `cpu`, which is the CPU in place `place` of the memory, into this image, whose memory is used again.
    pub fn copy_from(
        &mut self,
        memory: &SharedMemory,
        controls: &Controls,
        (cpu, place): (usize, usize),
        bank: usize,
        size: usize,
    ) {
        let base = (place * abi::RTS_BANKS as usize + bank) * Self::bytes(size);
        self.size = size as u64;
        self.sub_shift = (size as u64 / SUBS).trailing_zeros();
        self.first.resize(STARTS, 0);
        self.words.resize((size + abi::RTS_BANK_SLACK as usize) / 8, 0);
        self.head_before = controls.head(cpu, bank);
        memory.copy(base, &mut self.first);
        // Only the part that was ever written.
        let used = if self.head_before >= self.size { self.words.len() } else { index(self.head_before / 8) };
        memory.copy(base + STARTS * 8, &mut self.words[..used]);
        memory.end_of_copy();
        self.head_after = controls.head(cpu, bank);
    }

    /// Whether everything from `position` on is still there.
    #[must_use]
    pub fn holds(&self, position: u64) -> bool {
        self.oldest() <= position
    }

    /// Where the bank's content ends.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head_before
    }

    /// The lowest position that was not overwritten when the copy was done.
    fn oldest(&self) -> u64 {
        self.head_after.saturating_sub(self.size)
    }

    /// Where the first record at or after `position` begins, looking only at sub-buffer starts.
    fn next_start(&self, position: u64) -> Option<u64> {
        let first_sub = position >> self.sub_shift;
        let last_sub = self.head_before >> self.sub_shift;
        (first_sub..=last_sub.min(first_sub + SUBS)).find_map(|sub| {
            let start = self.first[index(sub % SUBS)];
            (start >> self.sub_shift == sub && start >= position && start < self.head_before).then_some(start)
        })
    }

    /// Calls `visit` for each record in `range` that is still there, in the order of their slots (nearly that of their
    /// times). `range.start` is where a record begins: 0, or a start that the control words give.
    pub fn walk<'a>(&'a self, range: Range<u64>, mut visit: impl FnMut(Frame<'a>)) -> Gaps {
        let mut gaps = Gaps::default();
        let end = range.end.min(self.head_before);
        let mut position =
            if self.holds(range.start) { Some(range.start) } else { self.next_start(self.oldest()) };
        while let Some(at) = position.filter(|at| *at < end) {
            match self.record_at(at) {
                Some((words, committed)) => {
                    let [_, kind, _, flags, ..] = words[0].to_le_bytes();
                    if !committed {
                        gaps.unfinished += 1;
                    } else if u32::from(kind) != abi::RTS_PADDING {
                        visit(Frame { kind, flags, time_ns: words[1], words });
                    }
                    position = Some(at + words.len() as u64 * 8);
                }
                None => {
                    gaps.unreadable += 1;
                    position = self.next_start(((at >> self.sub_shift) + 1) << self.sub_shift);
                }
            }
        }
        gaps
    }

    /// The record at a position, and whether it is committed; `None` when there is no record of that lap.
    fn record_at(&self, position: u64) -> Option<(&[u64], bool)> {
        let at = index((position & (self.size - 1)) / 8);
        let (length, committed) = record_word(*self.words.get(at)?, position, self.size)?;
        Some((self.words.get(at..at + length)?, committed))
    }
}

/// Length in words, and whether it is committed, of the record at `position` of a ring of `size` bytes that begins with
/// `word`; `None` when that is not a record of the position's lap.
pub(crate) fn record_word(word: u64, position: u64, size: u64) -> Option<(usize, bool)> {
    let length = (word & 0xff) as usize;
    let lap = (position >> size.trailing_zeros()).wrapping_add(1) & u64::from(u32::MAX);
    if word >> 32 != lap || !(HEADER_WORDS..=MAX_RECORD_WORDS).contains(&length) {
        return None;
    }
    match ((word >> 16) & 0xff) as u32 {
        abi::RTS_COMMITTED => Some((length, true)),
        abi::RTS_OPEN => Some((length, false)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "bank_tests.rs"]
mod tests;
