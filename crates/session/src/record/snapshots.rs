// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may have traces saved by events (`--snapshot-on`), how many, and how large.
//!
//! Anybody's program can record such an event, as often as it likes. So each user whose programs ask has a share (`supply`), and what one uses up is
//! missing to nobody else: it is the moment of somebody else that would not be saved.
//!
//! Memory is shared in the same way: what was copied of rings is held until it is written, and whose programs have asked for it have no other one
//! until then. How long they waited is told, since what asked may have been overwritten meanwhile.

use super::settings::SnapshotsAsked;
use crate::program_flight::ProgramBytes;
use crate::supply::Supply;
use rtscope_event::{MonotonicNs, counted};
use rtscope_programs::collector::SnapshotSpace;
use std::collections::{BTreeMap, BTreeSet};

/// Between two snapshots that the programs of one user ask for. What asks meanwhile has its snapshot then.
const BETWEEN_NS: u64 = 1_000_000_000;
/// Who waits for longer than that, and for what the recorder does in between, has waited for his last trace to be written.
const LATE_NS: u64 = BETWEEN_NS + 500_000_000;
/// What copies of rings may take that are not written yet, of all traces that events have asked for. Half of it, which is the first user's share,
/// is copied in a fraction of a second.
const MEMORY_BYTES: u64 = 1 << 30;
/// Where any number is allowed, others' rings take this part of the bytes in one snapshot.
const PARTS: u64 = 100;
/// Users of whom something is said one by one.
const TOLD_MAX: usize = 100;

/// What is known of a user whose programs have asked.
#[derive(Clone, Copy, Debug, Default)]
struct Asker {
    /// Since when it waits for a trace.
    pending: Option<MonotonicNs>,
    /// Its last one is being written.
    is_busy: bool,
    last: Option<MonotonicNs>,
    saved: u64,
    /// Of these, those that it had to wait for, and the longest time.
    late: u64,
    longest_ns: u64,
    /// Traces that were not saved.
    refused: u64,
    is_told: bool,
}

/// What there is for everybody.
#[derive(Debug)]
pub(super) struct SnapshotBudget {
    own: BTreeSet<u32>,
    number: Supply,
    bytes: Supply,
    memory: Supply,
    askers: BTreeMap<u32, Asker>,
    is_end_told: bool,
}

impl SnapshotBudget {
    /// `number`: traces, 0 for any number. `bytes`: on the disk. `own`: who get all that is left.
    pub(super) fn new(number: u32, bytes: u64, own: BTreeSet<u32>) -> SnapshotBudget {
        let number = Supply::of((number != 0).then_some(u64::from(number)));
        let bytes = Supply::of(Some(bytes));
        let memory = Supply::of(Some(MEMORY_BYTES));
        SnapshotBudget { own, number, bytes, memory, askers: BTreeMap::new(), is_end_told: false }
    }

    /// For whom a trace is to be saved now. `is_free`: there may be one more that is being written.
    pub(super) fn due(&mut self, asking: &BTreeSet<u32>, now: MonotonicNs, is_free: bool) -> BTreeSet<u32> {
        for user in asking {
            self.askers.entry(*user).or_default().pending.get_or_insert(now);
        }
        let mut due = BTreeSet::new();
        for (user, asker) in &mut self.askers {
            let is_early = asker.last.is_some_and(|last| now.since(last) < BETWEEN_NS);
            let Some(since) = asker.pending.filter(|_| !is_early && !asker.is_busy && is_free) else {
                continue;
            };
            (asker.pending, asker.last) = (None, Some(now));
            let is_own = self.own.contains(user);
            if self.number.left_for(*user, is_own).min(self.bytes.left_for(*user, is_own)) > 0 {
                asker.has(since, now);
                due.insert(*user);
            } else {
                asker.refused += 1;
            }
        }
        due
    }

    /// The last trace is saved, which is for all who have asked and have had none so far.
    pub(super) fn ended(&mut self, asking: &BTreeSet<u32>, now: MonotonicNs) {
        for user in asking {
            self.askers.entry(*user).or_default().pending.get_or_insert(now);
        }
        for asker in self.askers.values_mut() {
            if let Some(since) = asker.pending.take() {
                asker.has(since, now);
            }
        }
    }

    /// What rings may take in a trace that these users' programs have asked for. Rings of others, but for the recorder's, take little: they are not
    /// what it is about, and who has them could use up the share of those who ask.
    pub(super) fn space(&self, askers: &BTreeSet<u32>) -> SnapshotSpace {
        // One after the other, so that something is left for who asks while this one is written.
        let mut memory = self.memory.clone();
        let mut held = |users: BTreeSet<u32>| {
            let share = memory.left() / 2;
            memory.take(&users, share);
            share
        };
        let on_disk = |user: u32| self.bytes.left_for(user, self.own.contains(&user));
        let of_askers = askers.iter().map(|user| (*user, on_disk(*user).min(held(BTreeSet::from([*user])))));
        let mut named: BTreeMap<u32, u64> = of_askers.collect();
        let most = named.values().copied().max().unwrap_or(0);
        for user in self.own.difference(askers) {
            named.insert(*user, most.min(held(BTreeSet::from([*user]))));
        }
        let part = self.bytes.limit.unwrap_or(u64::MAX) / self.number.limit.unwrap_or(PARTS) / 2;
        let others = part.min(most).min(held(BTreeSet::new()));
        SnapshotSpace { named, others, descriptions_of_ring: 1 }
    }

    /// What goes into a trace for these users is held, and is being written.
    pub(super) fn frozen(&mut self, askers: &BTreeSet<u32>, programs: &ProgramBytes) {
        let held_bytes = sum(&programs.held);
        self.number.take(askers, 1);
        // Until its size on the disk is known.
        self.bytes.take_parts(askers, held_bytes, &programs.held);
        self.memory.take_parts(askers, held_bytes, &programs.held);
        self.busy(askers, true);
    }

    /// A trace with this of programs was saved for these users, of this size on the disk. Who asks together with somebody else pays for his own part.
    pub(super) fn written(&mut self, askers: &BTreeSet<u32>, programs: &ProgramBytes, bytes: u64) {
        let held_bytes = sum(&programs.held);
        self.memory.give_parts_back(askers, held_bytes, &programs.held);
        self.bytes.give_parts_back(askers, held_bytes, &programs.held);
        self.bytes.take_parts(askers, bytes, &programs.all());
        self.busy(askers, false);
    }

    fn busy(&mut self, askers: &BTreeSet<u32>, is_busy: bool) {
        askers.iter().for_each(|user| self.askers.entry(*user).or_default().is_busy = is_busy);
    }

    /// What there is to be said: once that nothing is left, and once of each user who has used up his share.
    pub(super) fn news(&mut self) -> Vec<String> {
        let used = self.number.used;
        if self.number.left() == 0 || self.bytes.left() == 0 {
            let option = if self.number.left() == 0 { "--snapshots" } else { "--snapshots-size" };
            let is_told = std::mem::replace(&mut self.is_end_told, true);
            let saved = counted(used, "trace was", "traces were");
            let text = format!(
                "{saved} saved because of --snapshot-on, and no more will be ({option}); rtscope snapshot saves one still"
            );
            return (!is_told).then_some(text).into_iter().collect();
        }
        let mut news = Vec::new();
        for (user, asker) in self.askers.iter_mut().take(TOLD_MAX) {
            let is_own = self.own.contains(user);
            let by_number = self.number.left_for(*user, is_own) == 0;
            if (by_number || self.bytes.left_for(*user, is_own) == 0)
                && !std::mem::replace(&mut asker.is_told, true)
            {
                let option = if by_number { "--snapshots" } else { "--snapshots-size" };
                let mine = self.number.used_by.get(user).copied().unwrap_or(0);
                news.push(format!(
                    "of the traces saved because of --snapshot-on ({used}), programs of user {user} have asked for {mine}, which is their share \
                     ({option}): no more are saved because of them"
                ));
            }
        }
        news
    }

    /// What was asked for and came late, at the end.
    pub(super) fn late(&self) -> Vec<String> {
        let all = self.askers.iter().filter(|(_, asker)| asker.late > 0).take(TOLD_MAX);
        let text = |(user, asker): (&u32, &Asker)| {
            let traces = counted(asker.late, "trace", "traces");
            format!(
                "programs of user {user} waited for {traces} until the one before was written ({} ms at most): what asked may have been overwritten \
                 by then, and be in no trace; a smaller --user-buffer is written sooner",
                asker.longest_ns / 1_000_000
            )
        };
        all.map(text).collect()
    }

    /// All that was asked for, by user.
    pub(super) fn asked(&self) -> Vec<SnapshotsAsked> {
        let of_user = |(uid, asker): (&u32, &Asker)| {
            let Asker { saved, refused, late, longest_ns, .. } = *asker;
            SnapshotsAsked { uid: *uid, saved, refused, late, longest_ns }
        };
        self.askers.iter().map(of_user).collect()
    }

    /// What was refused, at the end.
    pub(super) fn refused(&self) -> Vec<String> {
        let all = self.askers.iter().filter(|(_, asker)| asker.refused > 0).take(TOLD_MAX);
        let text = |(user, asker): (&u32, &Asker)| {
            let traces = counted(asker.refused, "more trace", "more traces");
            format!(
                "programs of user {user} asked for {traces} (one a second at most), which --snapshots and --snapshots-size did not allow"
            )
        };
        all.map(text).collect()
    }
}

fn sum(bytes: &BTreeMap<u32, u64>) -> u64 {
    bytes.values().copied().fold(0, u64::saturating_add)
}

impl Asker {
    /// It has a trace now.
    fn has(&mut self, since: MonotonicNs, now: MonotonicNs) {
        let waited_ns = now.since(since);
        self.saved += 1;
        self.late += u64::from(waited_ns > LATE_NS);
        self.longest_ns = self.longest_ns.max(waited_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn set(users: &[u32]) -> BTreeSet<u32> {
        users.iter().copied().collect()
    }

    fn held(held: &[(u32, u64)]) -> ProgramBytes {
        ProgramBytes { held: held.iter().copied().collect(), ..ProgramBytes::default() }
    }

    /// Asks in each of these seconds; in how many a trace was saved.
    fn ask(budget: &mut SnapshotBudget, user: u32, seconds: std::ops::Range<u64>, bytes: u64) -> usize {
        let is_saved = |second: &u64| {
            let due = budget.due(&set(&[user]), MonotonicNs(second * SECOND), true);
            if !due.is_empty() {
                budget.frozen(&due, &held(&[(user, 2 * bytes)]));
                budget.written(&due, &held(&[(user, 2 * bytes)]), bytes);
            }
            due.contains(&user)
        };
        seconds.filter(is_saved).count()
    }

    #[test]
    fn who_asks_for_ever_leaves_half_to_the_others_and_all_of_the_rest_to_the_recorder() {
        for (number, liar, honest, own) in [(1, 1, 0, 0), (2, 1, 1, 0), (3, 2, 1, 0), (100, 50, 25, 25)] {
            let mut budget = SnapshotBudget::new(number, u64::MAX, set(&[0]));
            assert_eq!(ask(&mut budget, 1000, 0..1000, 1), liar, "{number}");
            assert_eq!(ask(&mut budget, 1001, 1000..2000, 1), honest, "{number}");
            assert_eq!(ask(&mut budget, 0, 2000..3000, 1), own, "{number}");
        }
        let mut any = SnapshotBudget::new(0, u64::MAX, set(&[0]));
        assert_eq!(ask(&mut any, 1000, 0..1000, 1), 1000);
    }

    #[test]
    fn bytes_are_shared_in_the_same_way() {
        let mut budget = SnapshotBudget::new(0, 1000, set(&[0]));
        assert_eq!(ask(&mut budget, 1000, 0..1000, 10), 50);
        assert!(budget.news()[0].contains("programs of user 1000 have asked for 50, which"));
        assert_eq!(budget.news(), [""; 0], "once");
        let space = budget.space(&set(&[1001]));
        assert_eq!((space.named[&0], space.named[&1001], space.others), (250, 250, 5), "{space:?}");
        assert_eq!(ask(&mut budget, 1001, 1000..1010, 20), 10);
        assert_eq!(ask(&mut budget, 0, 2000..3000, 100), 3);
        assert!(budget.news()[0].contains("and no more will be (--snapshots-size)"));
        let refused = budget.refused();
        assert!(refused[0].contains("user 0 asked for 997 more traces"), "{refused:?}");
        assert!(refused[1].contains("user 1000 asked for 950 more traces"), "{refused:?}");
    }

    #[test]
    fn nobody_waits_for_the_second_of_another_user_and_one_trace_is_for_all_who_ask() {
        let mut budget = SnapshotBudget::new(10, u64::MAX, set(&[]));
        let at = |ms: u64| MonotonicNs(ms * 1_000_000);
        assert_eq!(budget.due(&set(&[1]), at(0), true), set(&[1]));
        assert_eq!(budget.due(&set(&[1, 2]), at(500), true), set(&[2]));
        assert_eq!(budget.due(&set(&[]), at(999), true), set(&[]));
        // It has asked meanwhile.
        assert_eq!(budget.due(&set(&[3]), at(1000), true), set(&[1, 3]));
        budget.frozen(&set(&[1, 3]), &held(&[(1, 7)]));
        budget.written(&set(&[1, 3]), &held(&[(1, 7)]), 5);
        assert_eq!((budget.number.used, budget.bytes.used, budget.memory.used), (1, 5, 0));
    }

    #[test]
    fn whose_trace_is_being_written_waits_and_is_told_and_nobody_else_waits() {
        let mut budget = SnapshotBudget::new(0, u64::MAX, set(&[0]));
        let at = |ms: u64| MonotonicNs(ms * 1_000_000);
        assert_eq!(budget.due(&set(&[1]), at(0), true), set(&[1]));
        let share = budget.space(&set(&[1])).named[&1];
        assert_eq!(share, MEMORY_BYTES / 2);
        budget.frozen(&set(&[1]), &held(&[(1, share)]));
        assert_eq!(budget.due(&set(&[1]), at(2000), true), set(&[]));
        // Another user has a trace, and half of the rest of the memory.
        assert_eq!(budget.due(&set(&[2]), at(2500), true), set(&[2]));
        assert_eq!(budget.space(&set(&[2])).named[&2], MEMORY_BYTES / 4);
        budget.frozen(&set(&[2]), &held(&[(2, 100)]));
        // As many are written as may be.
        assert_eq!(budget.due(&set(&[3]), at(2600), false), set(&[]));
        budget.written(&set(&[1]), &held(&[(1, share)]), 5);
        assert_eq!(budget.due(&set(&[]), at(9000), true), set(&[1, 3]));
        let late: Vec<(u32, u64, u64)> = budget
            .asked()
            .iter()
            .map(|asked| (asked.uid, asked.late, asked.longest_ns / 1_000_000))
            .collect();
        assert_eq!(late, [(1, 1, 7000), (2, 0, 0), (3, 1, 6400)]);
        assert!(budget.late()[0].contains("user 1 waited for 1 trace until"), "{:?}", budget.late());
        // What is asked for at the end is in the last trace.
        budget.ended(&set(&[2]), at(9100));
        assert_eq!(budget.asked()[1].saved, 2);
    }

    #[test]
    fn however_many_ask_at_once_something_is_left_for_who_asks_meanwhile() {
        let budget = SnapshotBudget::new(0, u64::MAX, set(&[0, 7]));
        let space = budget.space(&set(&[1, 2, 3]));
        let all = space.named.values().sum::<u64>() + space.others;
        assert!(
            all < MEMORY_BYTES && all > MEMORY_BYTES / 2 && space.named[&1] > space.named[&3],
            "{space:?}"
        );
    }

    #[test]
    fn who_asks_together_with_somebody_who_holds_much_pays_for_what_is_his_own() {
        let mut budget = SnapshotBudget::new(0, 1000, set(&[0]));
        let (both, mut of_each) = (set(&[1, 2]), held(&[(1, 40), (2, 10), (3, 100)]));
        of_each.described = BTreeMap::from([(1, 50)]);
        budget.frozen(&both, &of_each);
        assert_eq!((budget.memory.used_by[&1], budget.memory.used_by[&2]), (140, 110));
        budget.written(&both, &of_each, 400);
        // Half of it is of somebody who did not ask.
        assert_eq!(budget.bytes.used_by, BTreeMap::from([(1, 180 + 200), (2, 20 + 200)]));
        assert_eq!((budget.bytes.used, budget.memory.used, budget.memory.used_by[&1]), (400, 0, 0));
    }
}
