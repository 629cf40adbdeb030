// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of records: which of them are complete, where they end, and their times.
//!
//! The collector reads records in place (`walk`). [`Decoder`] reads copied bytes, and shares nothing with that but the decoding of one word:
//! tests compare with it what the collector took (the model of the ring, the bytes that C and Rust must write, honest programs beside liars,
//! the fuzzer of rings). The product does without it.

use rtscope_abi::program as abi;
use rtscope_event::exact::low_half;
use serde::{Deserialize, Serialize};

/// How a ring is divided, and the key of its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// A power of two.
    pub ring_bytes: u64,
    /// A power of two.
    pub sub_bytes: u64,
    /// Added to the lap.
    pub key: u32,
}

/// The word at a position, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A complete record.
    Complete {
        /// The event's id, or RTU_ID_*.
        id: u32,
        /// Where it ends.
        end: u64,
        /// Low bits of its time.
        low: u64,
    },
    /// A record whose payload is being written.
    Open {
        /// Where it ends.
        end: u64,
    },
    /// No word of this lap.
    Unwritten,
    /// A word that no writer leaves.
    Broken,
}

impl Layout {
    /// Whether a ring can be divided like this.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let sizes = u64::from(abi::RTU_RING_BYTES_MIN)..=u64::from(abi::RTU_RING_BYTES_MAX);
        self.ring_bytes.is_power_of_two()
            && self.sub_bytes.is_power_of_two()
            && sizes.contains(&self.ring_bytes)
            && self.sub_bytes >= 4096
            && self.sub_bytes < self.ring_bytes
    }

    /// The end of the sub-buffer that contains `position`.
    #[inline]
    #[must_use]
    pub fn sub_end(&self, position: u64) -> u64 {
        (position & !(self.sub_bytes - 1)).saturating_add(self.sub_bytes)
    }

    /// The bits of [`Layout::TAG`] in the words of complete records at `position` and in the rest of its lap.
    #[inline]
    #[must_use]
    pub fn tag(&self, position: u64) -> u64 {
        let lap = position >> self.ring_bytes.trailing_zeros();
        (lap.wrapping_add(u64::from(self.key)) & 0x7f) << 16
    }

    /// The byte of a record's word with its lap, and whether it is complete.
    pub const TAG: u64 = 0xff << 16;

    /// Decodes the word at `position`.
    #[inline]
    #[must_use]
    pub fn header(&self, position: u64, word: u64) -> Header {
        // A power of two: a division would cost as much as all the rest.
        let lap = position >> self.ring_bytes.trailing_zeros();
        let tag = lap.wrapping_add(u64::from(self.key)) & 0x7f;
        let (id, found) = ((word & 0xffff) as u32, word >> 16);
        if found & 0x7f != tag {
            return Header::Unwritten;
        }
        let sub_end = self.sub_end(position);
        let bytes = (word >> 24 & 0x3ff) * 8;
        let end = if id == abi::RTU_ID_PADDING { sub_end } else { position.saturating_add(bytes) };
        if bytes == 0 || end > sub_end {
            return Header::Broken;
        }
        if found & u64::from(abi::RTU_OPEN) != 0 {
            return Header::Open { end };
        }
        Header::Complete { id, end, low: word >> abi::RTU_TIME_SHIFT }
    }
}

impl Layout {
    /// The number of bytes, from `position` on, that are complete records in a row.
    #[must_use]
    pub fn complete_bytes(&self, position: u64, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(word) = bytes.get(at..at + 8).and_then(|word| word.try_into().ok()) {
            let place = position + at as u64;
            let Header::Complete { end, .. } = self.header(place, u64::from_le_bytes(word)) else { break };
            let next = usize::try_from(end - position).unwrap_or(usize::MAX);
            if next > bytes.len() {
                break;
            }
            at = next;
        }
        at
    }
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An event.
    Event {
        /// Its id.
        id: u32,
        /// The time, by the program's clock.
        counter: u64,
        /// The CPU, or [`abi::RTU_CPU_UNKNOWN`].
        cpu: u32,
        /// The fields, with padding.
        payload: &'a [u8],
    },
    /// The number of events lost so far in all.
    Lost(u64),
    /// Bytes that are not a record.
    Garbage(usize),
}

/// The time and CPU that records count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sync {
    /// The time, by the program's clock.
    pub counter: u64,
    /// The thread's CPU.
    pub cpu: u32,
}

impl Sync {
    /// The bits of the time that records contain.
    pub const LOW: u64 = (1 << abi::RTU_TIME_BITS) - 1;

    /// The whole time of an event whose record has the low bits.
    #[inline]
    #[must_use]
    pub fn complete(&self, low: u64) -> u64 {
        let passed = low.wrapping_sub(self.counter) & Sync::LOW;
        self.counter.saturating_add(passed)
    }
}

/// Decodes copied records in a row, for tests.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: Layout,
    sync: Option<Sync>,
}

impl Decoder {
    /// For a ring. `sync`: time and CPU before the first record, if known.
    #[must_use]
    pub fn new(layout: Layout, sync: Option<Sync>) -> Decoder {
        Decoder { layout, sync }
    }

    /// The current time and CPU that events count from; `None`: not known yet.
    #[inline]
    #[must_use]
    pub fn sync(&self) -> Option<Sync> {
        self.sync
    }

    /// The record at the beginning of `bytes`, which are at `position`, and its length. `None`: there is no other.
    pub fn next<'a>(&mut self, position: u64, bytes: &'a [u8]) -> Option<(Option<Record<'a>>, usize)> {
        let word = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let garbage = Some((Some(Record::Garbage(bytes.len())), bytes.len()));
        let Header::Complete { id, end, low } = self.layout.header(position, word) else { return garbage };
        let length = usize::try_from(end - position).unwrap_or(usize::MAX);
        let Some(record) = bytes.get(..length) else { return garbage };
        let word_at = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap_or_default());
        match id {
            abi::RTU_ID_PADDING => Some((None, length)),
            abi::RTU_ID_SYNC if length == size_of::<abi::rtu_sync>() => {
                self.sync = Some(Sync { counter: word_at(8), cpu: low_half(word_at(24)) });
                Some((Some(Record::Lost(word_at(16))), length))
            }
            id if id < abi::RTU_EVENTS_MAX => {
                // An event without a time is not an event.
                let Some(sync) = self.sync else { return Some((Some(Record::Garbage(length)), length)) };
                let counter = sync.complete(low);
                Some((Some(Record::Event { id, counter, cpu: sync.cpu, payload: &record[8..] }), length))
            }
            _ => Some((Some(Record::Garbage(length)), length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { ring_bytes: 65536, sub_bytes: 16384, key: 5 };

    fn word(position: u64, id: u64, words: u64, time: u64) -> u64 {
        id | ((position / 65536 + 5) & 0x7f) << 16 | words << 24 | time << 34
    }

    #[test]
    fn headers_are_told_apart() {
        let at = 3 * 65536 + 16;
        assert_eq!(LAYOUT.header(at, word(at, 7, 3, 9)), Header::Complete { id: 7, end: at + 24, low: 9 });
        assert_eq!(LAYOUT.header(at, word(at, 7, 3, 9) | 0x80 << 16), Header::Open { end: at + 24 });
        assert_eq!(LAYOUT.header(at, word(at - 65536, 7, 3, 9)), Header::Unwritten);
        assert_eq!(LAYOUT.header(at, word(at, 7, 0, 9)), Header::Broken);
        assert_eq!(LAYOUT.header(at + 16360, word(at, 7, 3, 9)), Header::Broken);
        let end = 3 * 65536 + 16384;
        assert_eq!(LAYOUT.header(at, word(at, 0xffff, 1, 9)), Header::Complete { id: 0xffff, end, low: 9 });
    }

    #[test]
    fn records_in_a_row_are_counted_up_to_the_first_that_is_not_whole() {
        let at = 3 * 65536 + 16;
        let record = |position: u64| [word(position, 7, 2, 9).to_le_bytes(), [1; 8]].concat();
        let two = [record(at), record(at + 16)].concat();
        assert_eq!(LAYOUT.complete_bytes(at, &two), 32);
        assert_eq!(LAYOUT.complete_bytes(at, &[&two[..], &[0; 8]].concat()), 32);
        // The second is longer than what is there.
        assert_eq!(LAYOUT.complete_bytes(at, &two[..24]), 16);
        let open = (word(at + 16, 7, 2, 9) | 0x80 << 16).to_le_bytes();
        assert_eq!(LAYOUT.complete_bytes(at, &[&two[..16], &open, &two[..8]].concat()), 16);
        assert_eq!(LAYOUT.complete_bytes(at, &[]), 0);
    }

    #[test]
    fn times_are_completed_from_the_sync_record_and_wrap() {
        let mut bytes = Vec::new();
        let start: u64 = (5 << 30) - 10;
        for (position, words) in
            [(0, vec![word(0, 0xfffe, 4, start), start, 3, 1]), (32, vec![word(32, 2, 2, start + 20), 77])]
        {
            assert_eq!(bytes.len(), position);
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        let mut decoder = Decoder::new(LAYOUT, None);
        assert_eq!(decoder.next(0, &bytes), Some((Some(Record::Lost(3)), 32)));
        let Some((Some(Record::Event { id: 2, counter, cpu: 1, payload }), 16)) =
            decoder.next(32, &bytes[32..])
        else {
            panic!("no event")
        };
        assert_eq!((counter, payload), (start + 20, &77_u64.to_le_bytes()[..]));
        assert_eq!(decoder.next(48, &[]), None);
        assert!(matches!(decoder.next(48, &[1; 20]), Some((Some(Record::Garbage(20)), 20))));
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        let mut state = 1_u64;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..512)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 56) as u8
                })
                .collect();
            let mut decoder = Decoder::new(LAYOUT, None);
            let mut at = 0;
            while let Some((_, length)) = decoder.next(at as u64, &bytes[at..]) {
                assert!(length > 0);
                at += length;
            }
        }
    }
}
