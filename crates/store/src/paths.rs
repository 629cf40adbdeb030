// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The texts of paths: which belongs to which event.
//!
//! ftrace records a system call's entry with an address; an eBPF program on the same tracepoint records the text behind it.
//! They are found by thread, call, argument and address; the time of the entry tells two such calls of a thread apart. Most
//! texts come right before or after their event and on the same CPU. Those that could be read at the call's exit only may come
//! much later and elsewhere; they are few, and are collected before.

use rtscope_abi as abi;
use rtscope_ring::Frame;
use std::collections::{HashMap, VecDeque};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

/// The event and the text read by two programs on the same tracepoint: further apart only if one was preempted between them.
pub(crate) const APART_NS: u64 = 20_000_000;
/// Late texts that are kept.
const LATE_MAX: usize = 1 << 20;

/// What a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) tid: u32,
    pub(crate) syscall: u16,
    pub(crate) argument: u8,
    pub(crate) pointer: u64,
}

/// A text that was read.
#[derive(Clone, Debug)]
pub(crate) struct PathText {
    pub(crate) key: Key,
    pub(crate) entry_ns: u64,
    /// It was read at the exit of its call.
    pub(crate) is_late: bool,
    pub(crate) text: Arc<[u8]>,
}

impl PathText {
    /// The text of a record of kind `RTS_SYSCALL_PATH`; `None` when it is too short.
    pub(crate) fn of(frame: &Frame<'_>) -> Option<PathText> {
        const HEAD: usize = size_of::<abi::rts_syscall_path>() / 8;
        let words = frame.words();
        let (head, text) = words.split_at_checked(HEAD)?;
        let byte = |offset: usize| head[offset / 8].to_ne_bytes()[offset % 8];
        let tid = std::array::from_fn(|index| byte(offset_of!(abi::rts_syscall_path, tid) + index));
        let syscall = std::array::from_fn(|index| byte(offset_of!(abi::rts_syscall_path, syscall) + index));
        let mut bytes: Vec<u8> = text.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        Some(PathText {
            key: Key {
                tid: u32::from_ne_bytes(tid),
                syscall: u16::from_ne_bytes(syscall),
                argument: byte(offset_of!(abi::rts_syscall_path, arg)),
                pointer: head[offset_of!(abi::rts_syscall_path, pointer) / 8],
            },
            entry_ns: head[offset_of!(abi::rts_syscall_path, entry_ns) / 8],
            is_late: u32::from(byte(offset_of!(abi::rts_syscall_path, flags))) & abi::RTS_PATH_AT_EXIT != 0,
            text: bytes.into(),
        })
    }
}

/// A text, and when its call was entered.
type Timed = (u64, Arc<[u8]>);

/// Texts that were read at the exits of their calls, of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct LatePaths {
    texts: HashMap<Key, Vec<Timed>>,
    kept: usize,
}

impl LatePaths {
    pub(crate) fn add(&mut self, path: PathText) {
        if self.kept < LATE_MAX {
            self.kept += 1;
            self.texts.entry(path.key).or_default().push((path.entry_ns, path.text));
        }
    }

    pub(crate) fn join(&mut self, other: LatePaths) {
        for (key, texts) in other.texts {
            for (entry_ns, text) in texts {
                self.add(PathText { key, entry_ns, is_late: true, text });
            }
        }
    }

    fn find(&self, key: &Key, time: u64) -> Option<Arc<[u8]>> {
        let texts = self.texts.get(key)?;
        let nearest = texts.iter().min_by_key(|(entry_ns, _)| entry_ns.abs_diff(time))?;
        (nearest.0.abs_diff(time) <= APART_NS).then(|| Arc::clone(&nearest.1))
    }
}

/// Texts that one CPU has read and no event has taken yet.
#[derive(Debug, Default)]
pub(crate) struct RecentPaths {
    texts: HashMap<Key, VecDeque<Timed>>,
    /// In the order in which they came.
    order: VecDeque<(u64, Key)>,
}

impl RecentPaths {
    pub(crate) fn add(&mut self, path: PathText) {
        self.order.push_back((path.entry_ns, path.key));
        self.texts.entry(path.key).or_default().push_back((path.entry_ns, path.text));
    }

    /// Forgets those that are too old for an event at `time` or later.
    pub(crate) fn forget_before(&mut self, time: u64) {
        while self.order.front().is_some_and(|(entry_ns, _)| entry_ns.saturating_add(2 * APART_NS) < time) {
            let Some((entry_ns, key)) = self.order.pop_front() else { break };
            if let Some(texts) = self.texts.get_mut(&key) {
                texts.retain(|(time, _)| *time != entry_ns);
                if texts.is_empty() {
                    self.texts.remove(&key);
                }
            }
        }
    }

    /// The text for an event, from here or from those that came late.
    pub(crate) fn take(&mut self, key: &Key, time: u64, late: &LatePaths) -> Option<Arc<[u8]>> {
        let here = self.texts.get_mut(key).and_then(|texts| {
            let ages = texts.iter().map(|(entry_ns, _)| entry_ns.abs_diff(time)).enumerate();
            let (place, age) = ages.min_by_key(|(_, age)| *age)?;
            if age > APART_NS { None } else { texts.remove(place) }
        });
        here.map(|(_, text)| text).or_else(|| late.find(key, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tid: u32) -> Key {
        Key { tid, syscall: 257, argument: 1, pointer: 0x7fff }
    }

    fn path(tid: u32, entry_ns: u64, text: &str) -> PathText {
        PathText { key: key(tid), entry_ns, is_late: false, text: text.as_bytes().into() }
    }

    #[test]
    fn a_text_goes_to_the_event_at_its_time() {
        let (mut recent, mut late) = (RecentPaths::default(), LatePaths::default());
        recent.add(path(1, 1_000, "a"));
        recent.add(path(1, 50_000, "b"));
        late.add(path(2, 1_000, "late"));
        let mut text = |tid, time| recent.take(&key(tid), time, &late).map(|text| text.to_vec());
        assert_eq!(text(1, 49_000).unwrap(), b"b");
        assert_eq!(text(1, 1_100).unwrap(), b"a");
        assert_eq!(text(1, 1_100), None);
        assert_eq!(text(2, 900).unwrap(), b"late");
        assert_eq!(text(2, 900 + 2 * APART_NS), None);
    }

    #[test]
    fn old_texts_are_forgotten() {
        let mut recent = RecentPaths::default();
        (0..1000).for_each(|turn| recent.add(path(turn % 10, u64::from(turn) * 1_000_000, "x")));
        recent.forget_before(1000 * 1_000_000);
        assert!(recent.order.len() <= 41 && recent.texts.len() <= 10, "{recent:?}");
        recent.forget_before(u64::MAX);
        assert!(recent.order.is_empty() && recent.texts.is_empty());
    }
}
