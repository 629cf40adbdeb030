// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records that were copied out of a bank and lie back to back, as a recording on disk has them.
//!
//! There is no lap to compare with: only whole records were copied. Still nothing in them is trusted, since a file may be
//! truncated or damaged.

use crate::Frame;
use rtscope_abi as abi;

const HEADER_WORDS: usize = 2;

/// The slot at the beginning of some words.
#[derive(Clone, Copy, Debug)]
pub enum Slot<'a> {
    /// A committed record; the next one follows its words.
    Record(Frame<'a>),
    /// The number of words to step over: a slot that its writer withdrew.
    Padding(usize),
    /// The number of words of a record whose writer had not finished.
    Unfinished(usize),
    /// Not a record, or one that is longer than the words left.
    Garbage,
}

/// Decodes the first slot in `words`.
#[must_use]
pub fn first_record(words: &[u64]) -> Slot<'_> {
    let Some(word) = words.first() else { return Slot::Garbage };
    let [length, kind, state, flags, ..] = word.to_le_bytes();
    let length = usize::from(length);
    let Some(record) = words.get(..length).filter(|record| record.len() >= HEADER_WORDS) else {
        return Slot::Garbage;
    };
    match u32::from(state) {
        abi::RTS_COMMITTED if u32::from(kind) == abi::RTS_PADDING => Slot::Padding(length),
        abi::RTS_COMMITTED => Slot::Record(Frame { kind, flags, time_ns: record[1], words: record }),
        abi::RTS_OPEN => Slot::Unfinished(length),
        _ => Slot::Garbage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(length: u64, kind: u64, state: u32) -> u64 {
        length | kind << 8 | u64::from(state) << 16 | 3 << 24 | 77 << 32
    }

    #[test]
    fn a_record_of_any_lap_is_found() {
        let words = [word(3, 14, abi::RTS_COMMITTED), 500, 9, 1];
        let Slot::Record(frame) = first_record(&words) else { panic!("no record") };
        assert_eq!((frame.kind, frame.flags, frame.time_ns, frame.bytes_len()), (14, 3, 500, 24));
    }

    #[test]
    fn words_that_are_not_a_record_are_told_apart() {
        let is = |words: &[u64]| format!("{:?}", first_record(words));
        assert_eq!(is(&[word(2, 0, abi::RTS_COMMITTED), 0]), "Padding(2)");
        assert_eq!(is(&[word(4, 14, abi::RTS_OPEN), 0, 0, 0]), "Unfinished(4)");
        for garbage in
            [&[][..], &[0, 0], &[word(1, 14, abi::RTS_COMMITTED), 0], &[word(3, 14, abi::RTS_COMMITTED), 0]]
        {
            assert_eq!(is(garbage), "Garbage");
        }
    }
}
