// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads whose events are paired, as many as may be remembered: of too many those that wrote nothing for longest are forgotten, of the
//! users who have most.
//!
//! A watch may go on for weeks beside programs that make threads and processes all the time.

use super::SpanTarget;
use super::numbers::ThreadNumbers;
use super::thread::SpanThread;
use rtscope_analyze::summary::SpanThreadSummary;
use rtscope_event::{Comm, Pid, Tid};
use rtscope_programs::RingInfo;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Index, IndexMut};

/// This many are remembered; for a while twice as many.
const MOST: usize = 8192;

/// A thread, whatever numbers others had before it.
type ThreadKey = (u32, u32, u64, u32);

/// A thread's number here. None is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ThreadNumber(pub(super) u64);

#[derive(Debug)]
struct Known {
    thread: SpanThread,
    key: ThreadKey,
    /// The user on whose account it is.
    account: u32,
    /// At which look it last wrote.
    used: u64,
}

/// Threads by their numbers.
#[derive(Debug)]
pub(super) struct SpanThreads {
    known: HashMap<ThreadNumber, Known>,
    numbers: HashMap<ThreadKey, ThreadNumber>,
    here: ThreadNumbers,
    next: u64,
    looks: u64,
    most: usize,
    /// Some are forgotten when there are more than this.
    full: usize,
    /// What was counted of those that are forgotten, together.
    forgotten: Option<SpanThreadSummary>,
}

impl Default for SpanThreads {
    fn default() -> SpanThreads {
        SpanThreads::of_most(MOST)
    }
}

impl SpanThreads {
    fn of_most(most: usize) -> SpanThreads {
        let (known, numbers, here) = (HashMap::new(), HashMap::new(), ThreadNumbers::default());
        SpanThreads { known, numbers, here, next: 0, looks: 0, most, full: 2 * most, forgotten: None }
    }

    /// The number of the thread that has this ring.
    pub(super) fn number(&mut self, ring: &RingInfo, account: u32, target: &SpanTarget) -> ThreadNumber {
        let key = (ring.uid, ring.pid, ring.birth_ns, ring.tid);
        let used = self.looks;
        if let Some(number) = self.numbers.get(&key) {
            if let Some(known) = self.known.get_mut(number) {
                let is_first = std::mem::replace(&mut known.used, used) != used;
                if is_first && !known.thread.is_known_here {
                    if let Some(tid) = self.here.here(ring, account) {
                        known.thread.place(Some(tid), target);
                    }
                }
            }
            return *number;
        }
        let number = ThreadNumber(self.next);
        self.next += 1;
        self.numbers.insert(key, number);
        let thread = SpanThread::new(ring, self.here.here(ring, account), target);
        self.known.insert(number, Known { thread, key, account, used });
        number
    }

    /// A look is over. Where too many threads are known, those are forgotten that wrote nothing for longest and are not in use: of the users
    /// who have most, so that nobody loses his by those of others.
    pub(super) fn look_is_over(&mut self, in_use: impl Iterator<Item = ThreadNumber>) {
        self.looks += 1;
        if self.known.len() <= self.full {
            return;
        }
        let in_use: HashSet<ThreadNumber> = in_use.collect();
        let mut of_users: BTreeMap<u32, Vec<(u64, ThreadNumber)>> = BTreeMap::new();
        for (number, known) in &self.known {
            of_users.entry(known.account).or_default().push((known.used, *number));
        }
        let most = even_share(of_users.values().map(Vec::len).collect(), self.most);
        for mut of_user in of_users.into_values() {
            of_user.sort_unstable_by(|one, other| other.cmp(one));
            for (_, number) in of_user.into_iter().skip(most).filter(|(_, number)| !in_use.contains(number)) {
                let Some(known) = self.known.remove(&number) else { continue };
                self.numbers.remove(&known.key);
                if let Some(summary) = known.thread.summary() {
                    self.forget(&summary);
                }
            }
        }
        // Many can be in use: then not every look tries again.
        self.full = (2 * self.most).max(self.known.len() + self.known.len() / 4);
    }

    fn forget(&mut self, one: &SpanThreadSummary) {
        let nobody = SpanThreadSummary {
            tid: Tid(0),
            pid: Pid(0),
            comm: Comm::from("others"),
            intervals: 0,
            late: 0,
            worst_ns: 0,
            sum_ns: 0,
        };
        let all = self.forgotten.get_or_insert(nobody);
        all.intervals += one.intervals;
        all.late += one.late;
        all.worst_ns = all.worst_ns.max(one.worst_ns);
        all.sum_ns = all.sum_ns.saturating_add(one.sum_ns);
    }

    /// Of each thread in which intervals ended; those that are forgotten are one entry of thread 0.
    pub(super) fn summaries(&self) -> Vec<SpanThreadSummary> {
        let known = self.known.values().filter_map(|known| known.thread.summary());
        known.chain(self.forgotten.clone()).collect()
    }
}

/// How many each may have who has many, so that all together have `left` at most.
fn even_share(mut counts: Vec<usize>, mut left: usize) -> usize {
    counts.sort_unstable();
    for (place, count) in counts.iter().enumerate() {
        let even = left / (counts.len() - place);
        if *count > even {
            return even;
        }
        left -= count;
    }
    usize::MAX
}

/// Of a number that is in use, which [`SpanThreads::look_is_over`] was told.
impl Index<ThreadNumber> for SpanThreads {
    type Output = SpanThread;

    fn index(&self, number: ThreadNumber) -> &SpanThread {
        &self.known[&number].thread
    }
}

impl IndexMut<ThreadNumber> for SpanThreads {
    fn index_mut(&mut self, number: ThreadNumber) -> &mut SpanThread {
        let known = self.known.get_mut(&number);
        &mut known.expect("numbers in use are known").thread
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers::tests::{Fake, there};
    use super::super::tests::ring;
    use super::*;
    use std::time::Duration;

    #[test]
    fn of_too_many_threads_those_that_wrote_nothing_for_longest_are_one_entry() {
        let mut threads = SpanThreads::of_most(4);
        let target = SpanTarget::default();
        let first = threads.number(&ring(1, "first"), 0, &target);
        let waits = threads.number(&ring(2, "waits"), 0, &target);
        for tid in 3..100 {
            let number = threads.number(&ring(tid, "short"), 0, &target);
            threads[number].add(u64::from(tid), tid % 2 == 0);
            assert_eq!(threads.number(&ring(1, "first"), 0, &target), first);
            threads.look_is_over([waits].into_iter());
            assert!(threads.known.len() <= 8 && threads.numbers.len() == threads.known.len());
        }
        assert_eq!(threads[waits].tid, Tid(2));
        let summaries = threads.summaries();
        let sum = |of: fn(&SpanThreadSummary) -> u64| summaries.iter().map(of).sum::<u64>();
        assert_eq!((sum(|one| one.intervals), sum(|one| one.late)), (97, 48));
        assert_eq!(sum(|one| one.sum_ns), (3..100).sum::<u64>());
        let others = summaries.iter().find(|one| one.tid == Tid(0)).unwrap();
        assert!(others.intervals > 85 && others.comm == Comm::from("others"));
        // One that comes again is a thread like any other.
        assert!(threads.number(&ring(3, "short"), 0, &target) > waits);
    }

    #[test]
    fn a_thread_whose_number_here_is_not_known_is_a_target_from_when_it_is() {
        let fake = Fake::new(&[1]);
        let mut threads = SpanThreads { here: fake.numbers(), ..SpanThreads::default() };
        let target = SpanTarget { tid: Some(1002), ..SpanTarget::default() };
        let first = threads.number(&there(7, 1), 1000, &target);
        assert_eq!((threads[first].tid, threads[first].is_target), (Tid(1001), false));
        let mut look = |rest| {
            fake.with(|slow| slow.passed += rest);
            let new = threads.number(&there(7, 2), 1000, &target);
            threads.look_is_over([].into_iter());
            (threads[new].tid, threads[new].is_known_here, threads[new].is_target)
        };
        assert_eq!(look(Duration::ZERO), (Tid(2), false, false), "its process was read just now");
        fake.with(|slow| slow.threads.push(2));
        assert_eq!(look(Duration::from_secs(1)), (Tid(1002), true, true));
    }

    #[test]
    fn of_too_many_threads_those_of_the_user_who_has_most_are_forgotten() {
        let mut threads = SpanThreads::of_most(4);
        let target = SpanTarget::default();
        let number = threads.number(&ring(1, "honest"), 1001, &target);
        threads[number].add(5, false);
        threads.look_is_over([].into_iter());
        for tid in 2..100 {
            let number = threads.number(&ring(tid, "many"), 1000, &target);
            threads[number].add(5, false);
            threads.look_is_over([].into_iter());
        }
        let summaries = threads.summaries();
        assert!(summaries.iter().any(|one| one.tid == Tid(1)), "{summaries:?}");
        assert_eq!(summaries.iter().map(|one| one.intervals).sum::<u64>(), 99);
        assert!(threads.known.len() <= 8);
        assert_eq!(
            (even_share(vec![10, 1], 4), even_share(vec![9, 9, 2], 10), even_share(vec![1, 2], 4)),
            (3, 4, usize::MAX)
        );
    }
}
