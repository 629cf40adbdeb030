// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs have written by PTWRITE, as events: operands → messages → records of threads.
//!
//! A stream is a CPU's, in which the words of all threads and their handlers are mixed; a thread's words are in the streams of all CPUs on which it ran.
//! Each word says whose it is (`include/rtscope/abi.h`, "PTWRITE"), so a message is put together from those of one key, whatever stands between them. Which
//! key is whose, and what a thread said last of itself, is known when all streams have been read. What is not whole is counted, by cause.

use super::channels::{ChannelEvents, ChannelLosses, Said, Thread, is_who};
use rtscope_abi::program as abi;
use rtscope_hardware::decode::OperandSink;
use std::collections::{BTreeMap, BTreeSet};

/// Messages of a stream that have begun: one of each thread that was kept from its CPU within one, and of each handler. Words of others look like them, too.
const OPEN_MAX: usize = 256;
/// Of a thread's key, in each word.
const KEY_BITS: u32 = 0x7ff;
/// The check of a message.
const CHECK_BYTES: usize = 2;

/// A message that has begun.
#[derive(Debug)]
struct Open {
    key: u32,
    number: u32,
    /// Of the next word, from 0 again after 15.
    place: u64,
    bytes: Vec<u8>,
}

/// One that is whole.
#[derive(Debug)]
struct Message {
    number: u32,
    stream: u32,
    words: Vec<u64>,
}

/// What has come with a key.
#[derive(Debug, Default)]
struct Messages {
    /// Of all that have begun.
    numbers: BTreeSet<u32>,
    whole: Vec<Message>,
    /// Causes that are known before it is known whose they are.
    losses: ChannelLosses,
}

/// Operands become events of threads.
#[derive(Debug, Default)]
pub(super) struct PtwriteEvents {
    /// How many have begun.
    streams: u32,
    open: Vec<Open>,
    keys: BTreeMap<u32, Messages>,
    /// Words that continue nothing.
    stray_words: u64,
}

/// As programs calculate it (`rtscope__ptwrite_key`).
fn key_of(thread: &Thread) -> u32 {
    let mixed = thread.birth_ns ^ (u64::from(thread.pid) << 32 | u64::from(thread.number));
    ((mixed ^ mixed >> 32).wrapping_mul(abi::RTU_PTWRITE_MIX) >> 33) as u32
}

/// As programs calculate it (`rtscope__ptwrite_words`).
fn check_of(words: &[u64]) -> u16 {
    let check = words.iter().fold(0_u64, |check, word| check.rotate_left(1) ^ word);
    let check = check ^ check >> 32;
    (check ^ check >> 16) as u16
}

impl Open {
    /// Bytes of its words; `None`: the first one has not come yet.
    fn wanted(&self) -> Option<usize> {
        let first = self.bytes.first_chunk::<8>()?;
        Some((u64::from_le_bytes(*first) >> 24 & 0x3ff) as usize * 8)
    }

    /// Its words, if they are what was written.
    fn words(&self, wanted: usize) -> Option<Vec<u64>> {
        let (bytes, check) = self.bytes.split_at_checked(wanted)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
        let is_right = check.get(..CHECK_BYTES) == Some(&check_of(&words).to_le_bytes()[..]);
        (is_right && !words.is_empty()).then_some(words)
    }
}

impl PtwriteEvents {
    /// What follows is of another stream.
    pub(super) fn begin(&mut self) {
        self.streams += 1;
        for open in self.open.drain(..) {
            self.keys.entry(open.key).or_default().losses.unfinished += 1;
        }
    }

    /// Messages of threads that have said who they are.
    pub(super) fn finish(mut self) -> ChannelEvents {
        self.begin();
        let mut events = ChannelEvents::default();
        events.losses.stray_words = self.stray_words;
        for (key, messages) in self.keys {
            messages.resolve(key, &mut events);
        }
        events
    }
}

impl OperandSink for PtwriteEvents {
    fn operand(&mut self, value: u64) {
        if value >> 63 == 1 {
            let (key, number) = ((value >> 32) as u32 & 0x7fff_ffff, value as u32);
            self.keys.entry(key).or_default().numbers.insert(number);
            if self.open.len() == OPEN_MAX {
                let oldest = self.open.remove(0);
                self.keys.entry(oldest.key).or_default().losses.unfinished += 1;
            }
            self.open.push(Open { key, number, place: 0, bytes: Vec::new() });
            return;
        }
        let (place, key) = (value >> 59 & 15, (value >> 48) as u32 & KEY_BITS);
        // The newest: what a handler has interrupted goes on after it.
        let goes_on = |open: &Open| open.key & KEY_BITS == key && open.place == place;
        let Some(at) = self.open.iter().rposition(goes_on) else {
            self.stray_words += 1;
            return;
        };
        let open = &mut self.open[at];
        open.place = (place + 1) & 15;
        open.bytes.extend(&(value & abi::RTU_PTWRITE_DATA).to_le_bytes()[..6]);
        let Some(wanted) = open.wanted().filter(|wanted| open.bytes.len() >= wanted + CHECK_BYTES) else {
            return;
        };
        let open = self.open.remove(at);
        let messages = self.keys.entry(open.key).or_default();
        match open.words(wanted) {
            Some(words) => messages.whole.push(Message { number: open.number, stream: self.streams, words }),
            None => messages.losses.damaged += 1,
        }
    }

    fn gap(&mut self) {
        for open in self.open.drain(..) {
            self.keys.entry(open.key).or_default().losses.cut += 1;
        }
    }
}

impl Messages {
    /// Gives events to their thread.
    fn resolve(mut self, key: u32, to: &mut ChannelEvents) {
        let (first, missing) = self.first_and_missing();
        self.whole.iter_mut().for_each(|message| message.number = message.number.wrapping_sub(first));
        self.whole.sort_by_key(|message| message.number);
        let mut said: Vec<(usize, Said)> = Vec::new();
        for (at, message) in self.whole.iter().enumerate().filter(|(_, message)| is_who(&message.words)) {
            match Said::read(&message.words).filter(|said| key_of(&said.who.thread) == key) {
                Some(one) => said.push((at, one)),
                None => self.losses.damaged += 1,
            }
        }
        let thread = said.first().map(|(_, said)| said.who.thread.clone());
        let is_one =
            thread.is_some() && said.iter().all(|(_, said)| Some(&said.who.thread) == thread.as_ref());
        let events = self.whole.iter().filter(|message| !is_who(&message.words)).count() as u64;
        if !is_one {
            self.of_nobody(events, to);
            return;
        }
        said.iter().for_each(|(_, said)| to.say(said));
        to.losses.missing += missing;
        for (sum, count) in [
            (&mut to.losses.unfinished, self.losses.unfinished),
            (&mut to.losses.damaged, self.losses.damaged),
            (&mut to.losses.cut, self.losses.cut),
        ] {
            *sum += count;
        }
        for (at, message) in self.whole.iter().enumerate().filter(|(_, message)| !is_who(&message.words)) {
            let next = said.partition_point(|(place, _)| *place < at);
            let Some((place, last)) = next.checked_sub(1).and_then(|last| said.get(last)) else {
                to.losses.unknown += 1;
                continue;
            };
            if !self.is_placed((*place, last), at, said.get(next).map(|(_, said)| said)) {
                to.losses.unplaced += 1;
                continue;
            }
            match last.who.event(&message.words) {
                Some(event) => to.event(&last.who.thread, event),
                None => to.losses.unknown += 1,
            }
        }
    }

    /// Whether the thread has said nothing else between this and the message at `at`: nothing is missing there. Or it would make no difference: both are
    /// of one CPU, and the time cannot have gone around.
    fn is_placed(&self, (place, last): (usize, &Said), at: usize, next: Option<&Said>) -> bool {
        let (who, message) = (&self.whole[place], &self.whole[at]);
        let is_near = |next: &Said| {
            next.who.sync.counter.wrapping_sub(last.who.sync.counter) >> abi::RTU_TIME_BITS == 0
        };
        (message.number - who.number) as usize == at - place
            || message.stream == who.stream && next.is_some_and(is_near)
    }

    /// The thread's first number, and how many never began between those that did. Numbers go around after 2^32 messages, so the first one is behind the
    /// widest gap: surely so if the first and the last one are less than 2^31 apart.
    fn first_and_missing(&self) -> (u32, u64) {
        let before = self.numbers.last().into_iter().chain(&self.numbers);
        let gaps = before.zip(&self.numbers).map(|(last, first)| (first.wrapping_sub(*last), *last, *first));
        let Some((_, last, first)) = gaps.max() else { return (0, 0) };
        (first, u64::from(last.wrapping_sub(first)) + 1 - self.numbers.len() as u64)
    }

    /// What nobody has said is his: the stream begins behind that, or two have the same key. If nothing is whole, these are words of others.
    fn of_nobody(self, events: u64, to: &mut ChannelEvents) {
        let ChannelLosses { unfinished, damaged, cut, .. } = self.losses;
        match self.whole.is_empty() {
            true => to.losses.stray_words += self.numbers.len() as u64,
            false => to.losses.unknown += events + unfinished + damaged + cut,
        }
    }
}

#[cfg(test)]
mod tests;
