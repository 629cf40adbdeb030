// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The texts of paths, and the events that they belong to.
//!
//! ftrace records a system call's entry with an address; an eBPF program on the same tracepoint records the text behind it.
//! They are matched by thread, call, argument and address; the time of the entry tells two such calls of a thread apart. Most
//! texts come right before or after their event and on the same CPU. Those that could only be read at the call's exit may come
//! much later and on another CPU; they are few, and are collected first.

use crate::address;
use rtscope_abi as abi;
use rtscope_event::exact;
use rtscope_ring::Frame;
use std::collections::{HashMap, VecDeque};
use std::mem::{offset_of, size_of};

/// Two eBPF programs on the same tracepoint record the event and the text: further apart only if preempted between the two.
pub(crate) const APART_NS: u64 = 20_000_000;
/// Neighbours in time that are tried first: nearly always the next one matches.
const NEAR: usize = 8;
/// Entries that are tried otherwise: a program that makes calls with wrong pointers as fast as it can must not make a conversion
/// take forever.
const SEARCH_MAX: usize = 1024;
/// Late texts that are stored, and words of them.
const LATE_MAX: usize = 1 << 20;
const LATE_WORDS_MAX: usize = 1 << 23;
/// Texts of one CPU that are stored for the events that follow, and words of them: many times as many as system calls can
/// produce within the horizon. Only wrong times reach this.
const RECENT_MAX: usize = 1 << 18;
const RECENT_WORDS_MAX: usize = 1 << 23;
/// Ends a text of which only the beginning was read.
const CUT_MARK: &str = "…";

/// The argument of a system call that a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) tid: u32,
    pub(crate) syscall: u16,
    pub(crate) argument: u8,
    pub(crate) pointer: u64,
}

/// A text that was read; its words are those of the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathText<'a> {
    pub(crate) key: Key,
    pub(crate) entry_ns: u64,
    /// It was read at the exit of its call.
    pub(crate) is_late: bool,
    whole: TextExtent,
    words: &'a [u64],
}

/// Whether a text is complete, and is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextExtent {
    /// All that the program gave to the kernel.
    Whole,
    /// It was longer than the recorded part (`RTS_PATH_MAX`).
    Cut,
    /// It is no text, but a socket's address (`struct sockaddr`), all of it.
    Address,
}

impl<'a> PathText<'a> {
    /// The text of a record of kind `RTS_SYSCALL_PATH`; `None` when it is too short.
    #[inline]
    pub(crate) fn of(frame: &Frame<'a>) -> Option<PathText<'a>> {
        const HEAD: usize = size_of::<abi::rts_syscall_path>() / 8;
        // Offsets of the fields.
        const TID: usize = offset_of!(abi::rts_syscall_path, tid);
        const SYSCALL: usize = offset_of!(abi::rts_syscall_path, syscall);
        const ARGUMENT: usize = offset_of!(abi::rts_syscall_path, arg);
        const FLAGS: usize = offset_of!(abi::rts_syscall_path, flags);
        let (head, words) = frame.words().split_at_checked(HEAD)?;
        let byte = |offset: usize| head[offset / 8].to_ne_bytes()[offset % 8];
        let flags = u32::from(byte(FLAGS));
        Some(PathText {
            key: Key {
                tid: u32::from_ne_bytes([byte(TID), byte(TID + 1), byte(TID + 2), byte(TID + 3)]),
                syscall: u16::from_ne_bytes([byte(SYSCALL), byte(SYSCALL + 1)]),
                argument: byte(ARGUMENT),
                pointer: head[offset_of!(abi::rts_syscall_path, pointer) / 8],
            },
            entry_ns: head[offset_of!(abi::rts_syscall_path, entry_ns) / 8],
            is_late: flags & abi::RTS_PATH_AT_EXIT != 0,
            whole: match flags {
                flags if flags & abi::RTS_PATH_ADDRESS != 0 => TextExtent::Address,
                flags if flags & abi::RTS_PATH_TRUNCATED != 0 => TextExtent::Cut,
                _ => TextExtent::Whole,
            },
            words,
        })
    }
}

/// Appends the bytes of the words up to the first NUL; and the mark if the text was cut.
fn append<'w>(words: impl Iterator<Item = &'w u64>, whole: TextExtent, out: &mut Vec<u8>) {
    let begin = out.len();
    words.for_each(|word| out.extend_from_slice(&word.to_ne_bytes()));
    if whole == TextExtent::Address {
        let text = address::text(&out[begin..]);
        out.truncate(begin);
        out.extend_from_slice(&text);
        return;
    }
    let length = out[begin..].iter().position(|byte| *byte == 0).unwrap_or(out.len() - begin);
    out.truncate(begin + length);
    if whole == TextExtent::Cut {
        // Half a character would break the mark.
        if let Err(error) = std::str::from_utf8(&out[begin..]) {
            if error.error_len().is_none() {
                out.truncate(begin + error.valid_up_to());
            }
        }
        out.extend_from_slice(CUT_MARK.as_bytes());
    }
}

/// A text, and when its call was entered.
type TimedText = (u64, TextExtent, Box<[u64]>);

/// Texts that were read at the exits of their calls, of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct LatePaths {
    texts: HashMap<Key, Vec<TimedText>>,
    kept: usize,
    kept_words: usize,
    /// Whether some were added since they were sorted.
    is_unsorted: bool,
    /// How many were needed when others were forgotten.
    needed: usize,
}

impl LatePaths {
    pub(crate) fn add(&mut self, path: &PathText<'_>) {
        self.keep(path.key, path.entry_ns, path.whole, path.words);
    }

    fn keep(
        &mut self,
        key: Key,
        entry_ns: u64,
        whole: TextExtent,
        words: impl Into<Box<[u64]>> + AsRef<[u64]>,
    ) {
        let kept_words = self.kept_words + words.as_ref().len();
        if self.kept < LATE_MAX && kept_words <= LATE_WORDS_MAX {
            (self.kept, self.kept_words, self.is_unsorted) = (self.kept + 1, kept_words, true);
            self.texts.entry(key).or_default().push((entry_ns, whole, words.into()));
        }
    }

    pub(crate) fn join(&mut self, other: LatePaths) {
        for (key, texts) in other.texts {
            texts.into_iter().for_each(|(entry_ns, whole, words)| self.keep(key, entry_ns, whole, words));
        }
    }

    /// What was added can be found from now on.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.is_unsorted) {
            self.texts.values_mut().for_each(|texts| texts.sort_by_key(|(entry_ns, ..)| *entry_ns));
        }
    }

    /// No event before `time` will want a text any more.
    pub(crate) fn forget_before(&mut self, time: u64) {
        const FEW: usize = 1024;
        if self.kept < 2 * self.needed + FEW {
            return;
        }
        self.texts.retain(|_, texts| {
            texts.retain(|(entry_ns, ..)| entry_ns.saturating_add(APART_NS) >= time);
            !texts.is_empty()
        });
        let texts = || self.texts.values().flatten();
        (self.kept, self.kept_words) = (texts().count(), texts().map(|(_, _, words)| words.len()).sum());
        self.needed = self.kept;
    }

    /// Appends the text for an event. `None`: there is none.
    fn find(&self, key: &Key, time: u64, out: &mut Vec<u8>) -> Option<TextExtent> {
        let texts = self.texts.get(key).map_or(&[][..], Vec::as_slice);
        // Sorted by time, so the nearest is one of the two neighbours; a program can make any number of texts.
        let middle = texts.partition_point(|(entry_ns, ..)| *entry_ns < time);
        let neighbours = texts[middle.saturating_sub(1)..].iter().take(2);
        let nearest = neighbours.min_by_key(|(entry_ns, ..)| entry_ns.abs_diff(time));
        let (_, whole, words) = nearest.filter(|(entry_ns, ..)| entry_ns.abs_diff(time) <= APART_NS)?;
        append(words.iter(), *whole, out);
        Some(*whole)
    }
}

#[derive(Clone, Copy, Debug)]
struct RecentPath {
    entry_ns: u64,
    key: Key,
    /// Number of words ever added before it, and its own number of words.
    begin: u64,
    words: u32,
    whole: TextExtent,
    is_taken: bool,
}

/// Recent texts of one CPU, in the order in which they came: nearly that of their times.
#[derive(Debug, Default)]
pub(crate) struct RecentPaths {
    entries: VecDeque<RecentPath>,
    words: VecDeque<u64>,
    /// Number of words dropped so far.
    forgotten: u64,
    /// No event will want a text any more.
    is_closed: bool,
}

impl RecentPaths {
    #[inline]
    pub(crate) fn add(&mut self, path: &PathText<'_>) {
        if self.is_closed {
            return;
        }
        while self.entries.len() >= RECENT_MAX || self.words.len() >= RECENT_WORDS_MAX {
            self.forget_first();
        }
        let begin = self.forgotten + self.words.len() as u64;
        self.words.extend(path.words);
        let words = exact::count(path.words.len());
        self.entries.push_back(RecentPath {
            entry_ns: path.entry_ns,
            key: path.key,
            begin,
            words,
            whole: path.whole,
            is_taken: false,
        });
    }

    /// Drops texts that are too old for an event at `time` or later.
    pub(crate) fn forget_before(&mut self, time: u64) {
        while let Some(entry) = self.entries.front() {
            if entry.entry_ns.saturating_add(2 * APART_NS) >= time {
                return;
            }
            self.forget_first();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn forget_first(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.words.drain(..entry.words as usize);
            self.forgotten += u64::from(entry.words);
        }
    }

    /// No event will want a text any more: drops all texts, and those still to come.
    pub(crate) fn close(&mut self) {
        if !self.is_closed {
            *self = RecentPaths { is_closed: true, ..RecentPaths::default() };
        }
    }

    /// Appends the text for an event, from here or from the late ones. `None`: it was not read.
    #[inline]
    pub(crate) fn take(
        &mut self,
        key: &Key,
        time: u64,
        late: &LatePaths,
        out: &mut Vec<u8>,
    ) -> Option<TextExtent> {
        let middle = self.entries.partition_point(|entry| entry.entry_ns < time);
        let near = middle.saturating_sub(NEAR)..(middle + NEAR).min(self.entries.len());
        if let Some(place) = self.nearest(near, key, time) {
            return Some(self.give(place, out));
        }
        if let Some(whole) = late.find(key, time, out) {
            return Some(whole);
        }
        // Nearly sorted by time, which is good enough for this search.
        let first = self.entries.partition_point(|entry| entry.entry_ns.saturating_add(APART_NS) < time);
        let last = self.entries.partition_point(|entry| entry.entry_ns <= time.saturating_add(APART_NS));
        let last = last.min(first.saturating_add(SEARCH_MAX)).max(first);
        let place = self.nearest(first..last, key, time)?;
        Some(self.give(place, out))
    }

    fn nearest(&self, range: std::ops::Range<usize>, key: &Key, time: u64) -> Option<usize> {
        let entries = self.entries.range(range.clone()).zip(range);
        let fitting = entries.filter(|(entry, _)| {
            entry.key == *key && !entry.is_taken && entry.entry_ns.abs_diff(time) <= APART_NS
        });
        fitting.min_by_key(|(entry, _)| entry.entry_ns.abs_diff(time)).map(|(_, place)| place)
    }

    fn give(&mut self, place: usize, out: &mut Vec<u8>) -> TextExtent {
        let entry = &mut self.entries[place];
        entry.is_taken = true;
        let begin = exact::index(entry.begin - self.forgotten);
        append(self.words.range(begin..begin + entry.words as usize), entry.whole, out);
        entry.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tid: u32) -> Key {
        Key { tid, syscall: 257, argument: 1, pointer: 0x7fff }
    }

    fn words(text: &str) -> Vec<u64> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len() / 8 * 8 + 8, 0);
        bytes.chunks(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap())).collect()
    }

    fn path(tid: u32, entry_ns: u64, words: &[u64]) -> PathText<'_> {
        PathText { key: key(tid), entry_ns, is_late: false, whole: TextExtent::Whole, words }
    }

    #[test]
    fn a_text_goes_to_the_event_at_its_time() {
        let (mut recent, mut late) = (RecentPaths::default(), LatePaths::default());
        recent.add(&path(1, 1_000, &words("a")));
        (0..100).for_each(|offset| recent.add(&path(3, 1_001 + offset, &words("of others"))));
        recent.add(&path(1, 50_000, &words("a longer one")));
        late.add(&path(2, 1_000, &words("late")));
        let mut text = |tid, time| {
            let mut out = Vec::new();
            recent.take(&key(tid), time, &late, &mut out).map(|_| String::from_utf8(out).unwrap())
        };
        assert_eq!(text(1, 49_000).unwrap(), "a longer one");
        assert_eq!(text(1, 1_100).unwrap(), "a");
        assert_eq!(text(1, 1_100), None);
        assert_eq!(text(2, 900).unwrap(), "late");
        assert_eq!(text(2, 900 + 2 * APART_NS), None);
    }

    #[test]
    fn the_nearest_of_many_late_texts_is_found() {
        let mut late = LatePaths::default();
        for turn in (0..1_000_u64).rev() {
            late.add(&path(1, turn * 100, &words(&turn.to_string())));
        }
        late.settle();
        for (time, text) in [(0, "0"), (51_249, "512"), (51_251, "513"), (99_900, "999"), (200_000, "999")] {
            let mut out = Vec::new();
            assert_eq!(late.find(&key(1), time, &mut out), Some(TextExtent::Whole));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn a_cut_text_ends_with_a_mark_and_no_half_character() {
        let (mut recent, mut late) = (RecentPaths::default(), LatePaths::default());
        let half = [&b"/a/\xc3\xa9"[..], b"bc\xe2\x80\0"].concat();
        let half: Vec<u64> = half
            .chunks(8)
            .map(|chunk| u64::from_ne_bytes(std::array::from_fn(|at| *chunk.get(at).unwrap_or(&0))))
            .collect();
        recent.add(&PathText { whole: TextExtent::Cut, ..path(1, 1_000, &half) });
        late.add(&PathText { whole: TextExtent::Cut, ..path(2, 1_000, &words("no \u{fffd} text")) });
        for (tid, text) in [(1, "/a/ébc…"), (2, "no \u{fffd} text…")] {
            let mut out = Vec::new();
            assert_eq!(recent.take(&key(tid), 1_000, &late, &mut out), Some(TextExtent::Cut));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    /// Times that stand still, so that no text ever becomes too old.
    #[test]
    fn memory_is_bounded_whatever_the_times_are() {
        let (mut recent, mut late) = (RecentPaths::default(), LatePaths::default());
        let long = [u64::MAX; 250];
        for turn in 0..400_000 {
            recent.add(&path(turn, u64::MAX, if turn < 100_000 { &long } else { &long[..1] }));
            recent.forget_before(1_000);
            assert!(recent.words.len() < RECENT_WORDS_MAX + 250 && recent.entries.len() <= RECENT_MAX);
        }
        for turn in 0..100_000 {
            late.add(&path(turn, u64::MAX, &long));
        }
        assert_eq!(late.kept, LATE_WORDS_MAX / 250);
        recent.close();
        recent.add(&path(1, 1, &long));
        assert_eq!((recent.words.capacity(), recent.entries.capacity()), (0, 0));
    }

    #[test]
    fn old_texts_are_dropped() {
        let mut recent = RecentPaths::default();
        for number in 0..1000_u32 {
            recent.add(&path(number % 10, u64::from(number) * 1_000_000, &words(&number.to_string())));
        }
        recent.forget_before(1000 * 1_000_000);
        assert!(recent.entries.len() <= 41 && recent.words.len() <= 41, "{recent:?}");
        let mut out = Vec::new();
        assert!(recent.take(&key(5), 985 * 1_000_000, &LatePaths::default(), &mut out).is_some());
        assert_eq!(out, b"985");
        recent.forget_before(u64::MAX);
        assert!(recent.entries.is_empty() && recent.words.is_empty());
    }
}
