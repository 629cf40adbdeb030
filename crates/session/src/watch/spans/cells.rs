// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intervals counted by key, as the kernel's side counts what its trackers follow: for `hist` and `top`.
//!
//! A cell is a key and a range of times. Programs choose keys (threads, values of fields), so there are only so many cells, and of those a user's
//! programs get at most half of what others leave. What finds none is counted.

use super::Arrived;
use super::thread::SpanThread;
use super::users::share;
use crate::hist::HistKey;
use rtscope_analyze::histogram::bucket_of;
use rtscope_analyze::keyed::{BucketCount, Key, KeyedHistograms};
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{Comm, EventClass};
use std::collections::BTreeMap;

/// What has been counted by a moment.
#[derive(Clone, Debug, Default)]
pub struct CountedIntervals {
    /// By key.
    pub histograms: KeyedHistograms,
    /// Names of threads and processes that are keys.
    pub names: BTreeMap<u32, Comm>,
    /// Cells that are used.
    pub used: usize,
    /// Intervals that found no cell.
    pub without_key: u64,
    /// Intervals whose key is no number, such as a text, or is not known.
    pub without_number: u64,
}

/// Counts them.
#[derive(Debug)]
pub(super) struct SpanCells {
    /// `None`: all together.
    by: Option<HistKey>,
    most: usize,
    /// Cells of each account.
    used: BTreeMap<u32, usize>,
    counted: CountedIntervals,
}

impl SpanCells {
    pub(super) fn new(by: Option<HistKey>, most: usize) -> SpanCells {
        SpanCells { by, most, used: BTreeMap::new(), counted: CountedIntervals::default() }
    }

    pub(super) fn counted(&self) -> &CountedIntervals {
        &self.counted
    }

    /// An interval that has ended with this event, in this thread.
    pub(super) fn add(
        &mut self,
        (ended, class): (&Arrived, &EventClass),
        thread: &SpanThread,
        question: &PairQuestion,
        length_ns: u64,
    ) {
        let Some(id) = self.id(ended, class, thread, question) else {
            self.counted.without_number += 1;
            return;
        };
        let key = Key { id, kind: 0 };
        let bucket = u16::try_from(bucket_of(length_ns)).unwrap_or(u16::MAX);
        let account = ended.owner.account;
        let known = self.counted.histograms.keys.get(&key);
        if !known.is_some_and(|histogram| histogram.has(bucket)) {
            let mine = self.used.entry(account).or_default();
            if *mine >= share(self.most, self.counted.used, *mine) {
                self.counted.without_key += 1;
                return;
            }
            *mine += 1;
            self.counted.used += 1;
        }
        self.counted.histograms.add(
            key,
            bucket,
            BucketCount { count: 1, sum_ns: length_ns, max_ns: length_ns },
        );
        if matches!(self.by, Some(HistKey::Task | HistKey::Process)) {
            self.counted.names.entry(id).or_insert_with(|| match self.by {
                Some(HistKey::Process) => thread.process_name(),
                _ => thread.comm,
            });
        }
    }

    /// `None`: it is not known.
    fn id(
        &self,
        ended: &Arrived,
        class: &EventClass,
        thread: &SpanThread,
        question: &PairQuestion,
    ) -> Option<u32> {
        let cpu = || ended.cpu.map(|cpu| cpu.0);
        match self.by {
            None => Some(0),
            Some(HistKey::Task) => Some(thread.tid.0),
            Some(HistKey::Process) => Some(thread.pid.0),
            Some(HistKey::Cpu) => cpu(),
            Some(HistKey::Field) => match question.key.first().map(|(_, field)| field.as_str()) {
                None => Some(thread.tid.0),
                Some(field) => match class.field(field) {
                    // Its low 32 bits, as of the kernel's events.
                    Some(place) => ended.values.current().integer(place).map(|value| value as u32),
                    None if field == "cpu" => cpu(),
                    None => (field == "tid").then_some(thread.tid.0),
                },
            },
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SpanTarget;
    use super::super::tests::{Fake, MS, WORK, ring};
    use super::*;
    use rtscope_programs::RingInfo;

    const BEGIN: usize = 0;
    const END: usize = 2;

    fn counting(by: Option<HistKey>, cells: u32) -> Fake {
        let fake = Fake::of(WORK, &PairQuestion::of_work(), SpanTarget::default());
        Fake { tracker: fake.tracker.counting(by, cells), ..fake }
    }

    fn of(user: u32, tid: u32) -> RingInfo {
        RingInfo { uid: user, pid: u32::MAX - user, ..ring(tid, "worker") }
    }

    /// A piece of work of a thread of this user.
    fn piece(fake: &mut Fake, user: u32, tid: u32, cookie: u64, length_ns: u64) {
        fake.event_in(of(user, tid), BEGIN, 200 * MS, cookie);
        fake.event_in(of(user, tid), END, 200 * MS + length_ns, cookie);
    }

    #[test]
    fn intervals_are_counted_by_key_in_so_many_cells() {
        let by = |by| {
            let mut fake = counting(by, 8);
            piece(&mut fake, 0, 1, 7, MS);
            piece(&mut fake, 0, 2, 9, 2 * MS);
            piece(&mut fake, 0, 2, 1 << 32 | 7, 2 * MS);
            fake.look(300 * MS, true);
            let counted = fake.tracker.counted();
            let keys = counted.histograms.keys.iter();
            let keys: Vec<_> = keys.map(|(key, sum)| (key.id, sum.count(), sum.sum_ns() / MS)).collect();
            assert_eq!((counted.without_key, fake.tracker.counts().seen), (0, 3));
            (keys, counted.names.into_iter().next().map(|(id, comm)| (id, comm.to_string())))
        };
        let worker = |id| Some((id, "worker".to_owned()));
        assert_eq!(by(Some(HistKey::Task)), (vec![(1, 1, 1), (2, 2, 4)], worker(1)));
        assert_eq!(by(Some(HistKey::Process)), (vec![(u32::MAX, 3, 5)], worker(u32::MAX)));
        assert_eq!(by(Some(HistKey::Cpu)), (vec![(1, 3, 5)], None));
        assert_eq!(by(Some(HistKey::Field)), (vec![(7, 2, 3), (9, 1, 2)], None));
        assert_eq!(by(None), (vec![(0, 3, 5)], None));
        // Nothing of programs has this.
        let mut fake = counting(Some(HistKey::Device), 8);
        piece(&mut fake, 0, 1, 7, MS);
        fake.look(300 * MS, true);
        let counted = fake.tracker.counted();
        assert_eq!((counted.used, counted.without_key, counted.without_number), (0, 0, 1));
        // One range too many is counted as such; a range that has a cell goes on.
        let mut fake = counting(Some(HistKey::Task), 4);
        for (cookie, tid) in (0..).zip([1, 2, 3, 2]) {
            piece(&mut fake, 0, tid, cookie, MS);
        }
        fake.look(300 * MS, true);
        let counted = fake.tracker.counted();
        assert_eq!((counted.histograms.total().count(), counted.used, counted.without_key), (3, 2, 1));
    }

    #[test]
    fn a_user_with_many_keys_leaves_cells_to_others() {
        let mut fake = counting(Some(HistKey::Task), 64);
        for tid in 1..=1000 {
            piece(&mut fake, 1000, tid, tid.into(), MS);
        }
        piece(&mut fake, 1001, 5000, 1, MS);
        fake.look(300 * MS, true);
        let counted = fake.tracker.counted();
        assert_eq!((counted.used, counted.without_key), (33, 968));
        assert_eq!(counted.histograms.keys[&Key { id: 5000, kind: 0 }].count(), 1);
    }
}
