// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model checker for the rings of programs: the shipped writer (include/rtscope/ring.h, steps.h) and the shipped reader (`ring`, `walk`)
//! run in it as they are, not twins of them.
//!
//! The writer is compiled with accesses that call the model ([`writer`]), and the words of a mapping ask it (`memory`). Memory is as
//! weak as C11 allows without speculation, which covers arm64: each word has a history; each side has a view, the oldest value of
//! each word that it may still read; acquire, release and fences pass views on. Payloads are not atomic: reading or overwriting one
//! without an order is a fault.
//!
//! Before each access of the writer a signal handler may come, emit an event, and be interrupted itself; or jump away from the event that
//! it has interrupted; or fork, and the child goes on with a thread's page of zeros. The reader takes whenever the writer looks at what was given back, and at the end. It may
//! read old values then, so running it elsewhere, too, would show nothing new. A run is a list of decisions: all lists within limits, or
//! many random ones.

mod choices;
#[cfg(test)]
mod tests;
mod writer;

use choices::Choices;
use rtscope_abi::program as abi;
use std::cell::{Cell, RefCell};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

const RING: usize = abi::RTU_RING_OFFSET as usize;
const TAIL: usize = offset_of!(abi::rtu_ring, tail) / 8;
const HEAD: usize = offset_of!(abi::rtu_ring, head) / 8;
const LOST: usize = offset_of!(abi::rtu_ring, lost) / 8;
/// Words of the header, and of the ring at most.
const HEADER_WORDS: usize = size_of::<abi::rtu_ring>() / 8;
const WORDS: usize = HEADER_WORDS + 64;

/// The oldest value of each word that may still be read.
type View = [u16; WORDS];

/// A value that was stored. `view`: what its reader sees if it acquires.
#[derive(Clone, Copy)]
struct Stored {
    value: u64,
    view: View,
    /// When, among all stores of the writer.
    at: u32,
    is_release: bool,
}

/// An order that is left out, to show that the model finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weakened {
    #[default]
    Nothing,
    WordAcquire,
    TailRelease,
    SnapshotFence,
}

/// What may happen in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Signals, and how deep they nest.
    pub signals: u32,
    pub depth: u32,
    /// How many handlers jump away.
    pub jumps: u32,
    /// Forks: 0 or 1.
    pub forks: u32,
    /// How often the reader takes before the end.
    pub takes: u32,
    /// How often a value is read that is not the newest.
    pub old_values: u32,
    /// How often the writer goes on while a flight recorder's reader copies.
    pub advances: u32,
}

struct Memory {
    choices: Choices,
    limits: Limits,
    weakened: Weakened,
    /// Decisions are made: not while the ring is prepared.
    explores: bool,
    base: usize,
    ring_bytes: usize,
    flight: bool,
    history: Vec<Vec<Stored>>,
    stores: u32,
    /// The writer's view, and what it has put before its later stores.
    seen: View,
    fenced: View,
    /// How many of the reader's releases the writer has acquired.
    acquired: u16,
    /// The reader's view, and what a fence would add.
    read: View,
    pending: View,
    /// Of each word: the reader's releases when it copied it last, and 1.
    copied: [u16; WORDS],
    /// Words that it copied while they were written.
    torn: Vec<usize>,
    /// The newest store that the reader sees without an old value.
    horizon: u32,
    is_last: bool,
    /// The ring's words in a fork's child.
    child: Option<Box<[u64; WORDS]>>,
    depth: u32,
    time: u64,
    fault: Option<String>,
}

thread_local! {
    static MEMORY: RefCell<Option<Memory>> = const { RefCell::new(None) };
    /// What handlers do, and the reader.
    static HANDLER: Cell<Option<fn()>> = const { Cell::new(None) };
    static READER: Cell<Option<fn()>> = const { Cell::new(None) };
}

fn with<T>(action: impl FnOnce(&mut Memory) -> T) -> T {
    MEMORY.with_borrow_mut(|memory| action(memory.as_mut().expect("a model runs in this thread")))
}

fn is_active() -> bool {
    MEMORY.with_borrow(Option::is_some)
}

fn join(into: &mut View, other: &View) {
    into.iter_mut().zip(other).for_each(|(one, other)| *one = (*one).max(*other));
}

/// The number of the word at an offset in the ring's file.
fn word_at(offset: usize) -> usize {
    if offset < RING { offset / 8 } else { HEADER_WORDS + (offset - RING) / 8 }
}

impl Memory {
    fn new(choices: Choices, limits: Limits, base: usize, ring_bytes: usize, flight: bool) -> Memory {
        let zero = Stored { value: 0, view: [0; WORDS], at: 0, is_release: true };
        Memory {
            choices,
            limits,
            weakened: Weakened::Nothing,
            explores: false,
            base,
            ring_bytes,
            flight,
            history: vec![vec![zero]; HEADER_WORDS + ring_bytes / 8],
            stores: 0,
            seen: [0; WORDS],
            fenced: [0; WORDS],
            acquired: 0,
            read: [0; WORDS],
            pending: [0; WORDS],
            copied: [0; WORDS],
            torn: Vec::new(),
            horizon: u32::MAX,
            is_last: false,
            child: None,
            depth: 0,
            time: 1 << 20,
            fault: None,
        }
    }

    fn fault(&mut self, text: impl FnOnce() -> String) {
        if self.fault.is_none() {
            self.fault = Some(text());
        }
    }

    fn newest(&self, word: usize) -> u16 {
        u16::try_from(self.history[word].len() - 1).expect("runs are short")
    }

    /// The offset in the ring's file of what the writer names.
    fn ring_offset(&self, place: usize, bytes: usize) -> Option<usize> {
        let offset = place.wrapping_sub(self.base);
        (offset <= RING + self.ring_bytes - bytes).then_some(offset)
    }

    /// Which of the values from `oldest` on is read: the newest, or an old one while there is a budget for that.
    fn pick(&mut self, word: usize, oldest: u16) -> u16 {
        let visible = |stored: &Stored| stored.at <= self.horizon;
        let count = self.history[word].iter().take_while(|stored| visible(stored)).count();
        let newest = oldest.max(u16::try_from(count.saturating_sub(1)).expect("runs are short"));
        let all = self.newest(word) - oldest;
        if !self.explores || self.is_last || self.limits.old_values == 0 || all == 0 {
            return newest;
        }
        let chosen = u16::try_from(self.choices.choose(u32::from(all) + 1, 6)).expect("it was one");
        if chosen == 0 {
            return newest;
        }
        self.limits.old_values -= 1;
        // All but the newest, from new to old.
        let mut others = (oldest..=self.newest(word)).rev().filter(|number| *number != newest);
        others.nth(usize::from(chosen) - 1).expect("as many as were counted")
    }

    fn write(&mut self, word: usize, value: u64, is_release: bool) {
        self.stores += 1;
        self.seen[word] = self.newest(word) + 1;
        let mut view = if is_release { self.seen } else { self.fenced };
        view[word] = self.seen[word];
        self.history[word].push(Stored { value, view, at: self.stores, is_release });
        let was_copied = self.copied[word];
        if word >= HEADER_WORDS && !self.flight && was_copied > self.acquired {
            self.fault(|| format!("word {word} is overwritten, and its last copy may not be complete"));
        }
    }

    fn writer_loads(&mut self, word: usize, is_acquire: bool) -> u64 {
        let number = if word == TAIL { self.pick(word, self.seen[word]) } else { self.newest(word) };
        self.seen[word] = number;
        let stored = self.history[word][usize::from(number)];
        if is_acquire && stored.is_release {
            join(&mut self.seen, &stored.view);
            if word == TAIL {
                self.acquired = self.acquired.max(number);
            }
        }
        stored.value
    }

    /// The writer of a flight recorder goes on, or not: it never waits for the reader, so all that it writes is there already.
    fn advance(&mut self) {
        let left = self.stores.saturating_sub(self.horizon);
        if self.explores && !self.is_last && self.limits.advances > 0 && left > 0 {
            let chosen = self.choices.choose(5, 40);
            self.horizon += [0, 1, 3, left / 2, left][chosen as usize].min(left);
            self.limits.advances -= u32::from(chosen > 0);
        }
    }

    fn reader_loads(&mut self, word: usize, is_acquire: bool) -> u64 {
        if self.flight {
            self.advance();
        }
        let number = self.pick(word, self.read[word]);
        self.read[word] = number;
        let view = self.history[word][usize::from(number)].view;
        join(&mut self.pending, &view);
        if is_acquire {
            join(&mut self.read, &view);
        }
        self.history[word][usize::from(number)].value
    }

    /// What the reader has copied here is a record, or it is behind padding, and nobody asks what is there: an event of an earlier lap
    /// may be finished in it.
    fn reader_finds(&mut self, offset: usize, bytes: usize, is_record: bool) {
        for at in (offset..offset + bytes).step_by(8) {
            let word = word_at(RING + at % self.ring_bytes);
            let is_asked = is_record || at == offset;
            if !is_asked {
                self.copied[word] = 0;
            } else if self.torn.contains(&word) {
                self.fault(|| format!("word {word} is copied while it is written"));
            }
        }
    }

    fn reader_copies(&mut self, word: usize) -> u64 {
        if self.flight {
            return self.reader_loads(word, false);
        }
        if self.newest(word) != self.read[word] {
            self.torn.push(word);
        }
        self.copied[word] = self.newest(TAIL) + 1;
        self.history[word][usize::from(self.newest(word))].value
    }
}

// ---- the reader's accesses, called by `memory` ---------------------------------------------------------------------------

/// A load of the reader. `None`: there is no model in this thread.
pub(crate) fn load(offset: usize, order: Ordering) -> Option<u64> {
    is_active().then(|| {
        with(|memory| {
            let is_weak = memory.weakened == Weakened::WordAcquire && offset >= RING;
            // ORDER: what the reader asked for is compared.
            memory.reader_loads(word_at(offset), order == Ordering::Acquire && !is_weak)
        })
    })
}

/// A store of the reader; whether there is a model.
pub(crate) fn store(offset: usize, value: u64, order: Ordering) -> bool {
    is_active() && {
        with(|memory| {
            let word = word_at(offset);
            let is_weak = memory.weakened == Weakened::TailRelease;
            // ORDER: as above.
            let is_release = order == Ordering::Release && !is_weak;
            memory.read[word] = memory.newest(word) + 1;
            let view = if is_release { memory.read } else { [0; WORDS] };
            memory.history[word].push(Stored { value, view, at: 0, is_release });
        });
        true
    }
}

/// A copy of the reader; whether there is a model.
pub(crate) fn copy(offset: usize, into: &mut [u8]) -> bool {
    is_active() && {
        for (number, bytes) in into.chunks_mut(8).enumerate() {
            let value = with(|memory| memory.reader_copies(word_at(offset + number * 8)));
            bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
        }
        true
    }
}

/// A fence of the reader.
pub(crate) fn acquire_fence() {
    if is_active() {
        with(|memory| {
            if memory.weakened != Weakened::SnapshotFence {
                let pending = memory.pending;
                join(&mut memory.read, &pending);
            }
        });
    }
}
