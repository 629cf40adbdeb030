// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What many late responses have in common: groups by the step in which most was lost and by actor.
//!
//! A late response whose history was not kept (snapshots are rate limited) is grouped by its longest step alone: the
//! chain says where the time went, but only the recording says what took it.

use crate::chain::Counters;
use crate::explain::{CauseKind, Explanation};
use crate::histogram::Statistics;
use crate::own::OwnCost;
use rtscope_event::{Comm, CpuId, LateResponse, Loss, OriginKind, Pid, Priority, StepKind, Tid, Tracker};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Late responses that were late in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The step in which most was lost.
    pub step: Option<StepKind>,
    /// The culprit's kind; `None` when no recording explains these.
    pub cause: Option<CauseKind>,
    /// The culprit's name, without ids that change from one to the next.
    pub actor: Option<String>,
    /// How many.
    pub count: u64,
    /// Their response times, added up.
    pub sum_ns: u64,
    /// The longest of them.
    pub worst_ns: u64,
    /// On which CPU the longest was reported.
    pub worst_cpu: CpuId,
    /// Under which number.
    pub worst_sequence: u64,
}

/// The late responses of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSummary {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its name when it was late first.
    pub comm: Comm,
    /// Its priority when it was late first.
    #[serde(flatten, with = "rtscope_event::called")]
    pub prio: Priority,
    /// How many.
    pub count: u64,
    /// Its responses in all, late or not; `None`: not known, as the tracker needed the count's place for another thread, or it is of many threads.
    #[serde(default)]
    pub responses: Option<u64>,
    /// Of them, those in which the thread itself ran for longer than the limit: its own work, not a wait.
    pub own_work: u64,
    /// The longest.
    pub worst_ns: u64,
    /// Their response times, added up.
    pub sum_ns: u64,
}

/// Threads that responded and were never late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherThreads {
    /// How many threads.
    pub count: u64,
    /// Their responses, added up.
    pub responses: u64,
}

/// Everything that is reported at the end of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which tracker this is about.
    #[serde(default)]
    pub tracker: Tracker,
    /// Which of those that ran at once, from 0.
    #[serde(default)]
    pub instance: u8,
    /// The name of its own targets; `None`: it has those of the watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// How long the watch took.
    pub elapsed_ns: u64,
    /// A response that took longer was late.
    pub threshold_ns: u64,
    /// What the tracker counted.
    pub counters: Counters,
    /// With what responses began.
    #[serde(default)]
    pub begin: Vec<OriginKind>,
    /// Of the late ones, those that had not ended when the watch did. The distribution does not have them.
    #[serde(default)]
    pub pending: u64,
    /// How long the longest of these had been under way by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_max_ns: Option<u64>,
    /// Wakeups and switches of tasks for which the tracker had no state.
    pub untracked: u64,
    /// Block requests of which the kernel reported no end.
    #[serde(default)]
    pub unended: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Of them, those that could not be saved.
    pub snapshots_failed: u64,
    /// Snapshots that were not taken: rate limit or no free bank.
    pub suppressed: u64,
    /// The distribution of all response times; `None` when there was none.
    pub statistics: Option<Statistics>,
    /// The late ones by what they have in common.
    pub groups: Vec<Group>,
    /// The late ones by thread, those with most first.
    #[serde(default)]
    pub threads: Vec<ThreadSummary>,
    /// The others.
    #[serde(default)]
    pub other_threads: OtherThreads,
    /// What the watch itself cost the target.
    pub own: OwnCost,
    /// What could not be observed, and is not counted as late. The distribution is without it.
    #[serde(default)]
    pub not_observable: NotObservable,
    /// Events that were lost over the whole watch.
    pub losses: Vec<Loss>,
    /// Of a watch of the time between two events of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<SpanSummary>,
}

/// Intervals between two events of programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanSummary {
    /// The event that begins one.
    pub from: String,
    /// The event that ends it.
    pub to: String,
    /// The fields that have to be the same; `None`: the thread.
    pub by: Option<String>,
    /// Those of each thread, as many as there are late ones first.
    pub threads: Vec<SpanThreadSummary>,
    /// Events that have no counterpart.
    pub unmatched: UnmatchedEvents,
    /// How often a look missed events of a thread: they were overwritten before, or there was no time for them. or damaged.
    pub missed_looks: u64,
    /// What was left out, of each user of whose programs anything was.
    #[serde(default)]
    pub users: Vec<SpanUserLosses>,
    /// From the second event to the look that saw it; `None` where nothing was seen.
    pub noticed: Option<NoticedAfter>,
}

/// What was left out of the events of one user's programs. It costs other users nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanUserLosses {
    /// The user.
    pub user: u32,
    /// How often a look missed events of a thread: they were overwritten before, or there was no time for them.
    pub missed_looks: u64,
    /// Events whose bytes or times cannot be.
    pub damaged: u64,
    /// Events whose description was one too many: the programs describe more different ones than this user has a share for.
    pub too_many_descriptions: u64,
    /// Beginnings that were given up because of these.
    pub lost: u64,
    /// Beginnings that were given up because too many waited for their end.
    pub forgotten: u64,
    /// Late intervals that were counted, but not reported: too many came at once.
    pub late_lost: u64,
    /// Events that were not looked at: too many came between two looks.
    #[serde(default)]
    pub too_many_events: u64,
    /// Steps of work that its late intervals do not name: what is open of this user takes the memory that it may.
    #[serde(default)]
    pub steps_lost: u64,
}

impl SpanUserLosses {
    /// Whether nothing was left out.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == SpanUserLosses { user: self.user, ..SpanUserLosses::default() }
    }
}

/// Intervals that ended in a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanThreadSummary {
    /// Its id.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its name.
    pub comm: Comm,
    /// How many.
    pub intervals: u64,
    /// Of them, those that took too long.
    pub late: u64,
    /// The longest.
    pub worst_ns: u64,
    /// Their lengths, added up.
    pub sum_ns: u64,
}

/// Events that have no counterpart, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedEvents {
    /// Beginnings that had no end when the watch ended.
    pub without_end: u64,
    /// Ends whose beginning was not seen: it was before the watch, among what was lost, or there was none.
    pub without_begin: u64,
    /// Beginnings after which another one of the same key came before an end; the end is of the last.
    pub begun_again: u64,
    /// Events that do not have the fields of the key.
    pub without_key: u64,
    /// Beginnings that were given up because events were lost.
    pub lost: u64,
    /// Beginnings that were given up because too many waited for their end.
    pub forgotten: u64,
}

/// How late intervals were noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticedAfter {
    /// The mean.
    pub mean_ns: u64,
    /// The 99th percentile, where there are enough for that.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: u64,
}

/// Responses whose end was hidden from tracing: nobody knows whether they were late.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotObservable {
    /// How many.
    pub responses: u64,
    /// Whose, the most first; not all, where there are many.
    pub threads: Vec<HiddenThread>,
}

/// A thread whose switches the host hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenThread {
    /// Its id.
    pub tid: Tid,
    /// Its name.
    pub comm: Comm,
    /// Responses of it that could not be observed.
    pub responses: u64,
}

/// Groups of their own; what comes later is put together by step and cause.
const MAX_GROUPS: usize = 1000;
const OTHERS: &str = "others";

type Key = (Option<StepKind>, Option<CauseKind>, Option<String>);

/// Collects late responses into groups.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    groups: BTreeMap<Key, Group>,
    threads: BTreeMap<Tid, ThreadSummary>,
}

impl Summary {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Summary {
        Summary::default()
    }

    /// Takes in a late response that cannot be explained further.
    pub fn add_late(&mut self, late: &LateResponse) {
        let longest = late.chain.steps.iter().rev().max_by_key(|step| step.duration_ns);
        let key = (longest.map(|step| step.kind), None, None);
        self.add(key, late.chain.duration_ns(), late.cpu, late.sequence);
        let ran = late.chain.steps.iter().filter(|step| step.kind == StepKind::Run && step.id == late.tid.0);
        let own_ns: u64 = ran.map(|step| step.duration_ns).sum();
        let response_ns = late.chain.duration_ns();
        self.add_to_thread(ThreadSummary {
            tid: late.tid,
            pid: late.pid,
            comm: late.comm,
            prio: late.prio,
            count: 1,
            responses: None,
            own_work: u64::from(own_ns > late.threshold_ns),
            worst_ns: response_ns,
            sum_ns: response_ns,
        });
    }

    /// Takes in an explained one (instead of, not besides, its late response).
    pub fn add_explanation(&mut self, explanation: &Explanation) {
        let culprit = explanation.culprit.as_ref();
        let step = culprit.and_then(|culprit| explanation.steps.get(culprit.step));
        let step = step.or_else(|| explanation.longest_step());
        let key = (
            step.map(|step| step.kind),
            Some(culprit.map_or(CauseKind::Unknown, |culprit| culprit.kind)),
            culprit.and_then(|culprit| culprit.actor.as_ref()).map(|actor| actor.group_name()),
        );
        self.add(key, explanation.response_ns, explanation.cpu, explanation.sequence);
        let causes = explanation.steps.iter().flat_map(|step| &step.causes);
        let own_ns: u64 =
            causes.filter(|cause| cause.kind == CauseKind::OwnWork).map(|cause| cause.time_ns).sum();
        let thread = &explanation.thread;
        self.add_to_thread(ThreadSummary {
            tid: thread.tid,
            pid: explanation.pid,
            comm: thread.comm.unwrap_or_default(),
            prio: thread.prio.unwrap_or(Priority(120)),
            count: 1,
            responses: None,
            own_work: u64::from(own_ns > explanation.threshold_ns),
            worst_ns: explanation.response_ns,
            sum_ns: explanation.response_ns,
        });
    }

    fn add(&mut self, key: Key, response_ns: u64, cpu: CpuId, sequence: u64) {
        // A culprit that goes on changing its name must not make this grow for ever.
        let full = self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key);
        let key = if full { (key.0, key.1, Some(OTHERS.to_owned())) } else { key };
        let (step, cause, actor) = key.clone();
        let group = self.groups.entry(key).or_insert(Group {
            step,
            cause,
            actor,
            count: 0,
            sum_ns: 0,
            worst_ns: 0,
            worst_cpu: cpu,
            worst_sequence: sequence,
        });
        group.count += 1;
        group.sum_ns = group.sum_ns.saturating_add(response_ns);
        if response_ns > group.worst_ns {
            (group.worst_ns, group.worst_cpu, group.worst_sequence) = (response_ns, cpu, sequence);
        }
    }

    /// Threads beyond the first thousand are not told apart.
    fn add_to_thread(&mut self, thread: ThreadSummary) {
        let full = self.threads.len() >= MAX_GROUPS && !self.threads.contains_key(&thread.tid);
        let tid = if full { Tid(0) } else { thread.tid };
        match self.threads.entry(tid) {
            Entry::Vacant(entry) if full => {
                entry.insert(ThreadSummary { tid, pid: Pid(0), comm: Comm::from(OTHERS), ..thread });
            }
            Entry::Vacant(entry) => {
                entry.insert(thread);
            }
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                known.count += thread.count;
                known.own_work += thread.own_work;
                known.worst_ns = known.worst_ns.max(thread.worst_ns);
                known.sum_ns = known.sum_ns.saturating_add(thread.sum_ns);
            }
        }
    }

    /// The threads that were late, those with most first; among equals the one with the worst response; where there were too many, the last is
    /// all others together. And the threads that were not late. `responses`: those of each thread, late or not.
    #[must_use]
    pub fn threads(&self, responses: &BTreeMap<Tid, u64>) -> (Vec<ThreadSummary>, OtherThreads) {
        let with_all = |(tid, thread): (&Tid, &ThreadSummary)| ThreadSummary {
            responses: responses.get(tid).copied(),
            ..thread.clone()
        };
        let mut threads: Vec<ThreadSummary> = self.threads.iter().map(with_all).collect();
        let is_others = |thread: &ThreadSummary| thread.tid == Tid(0);
        threads.sort_by_key(|thread| (is_others(thread), Reverse((thread.count, thread.worst_ns))));
        // Where there were too many late threads to tell them apart, some of these may have been late.
        let is_whole = !self.threads.contains_key(&Tid(0));
        let others = responses.iter().filter(|(tid, _)| is_whole && !self.threads.contains_key(tid));
        let others = others.fold(OtherThreads::default(), |sum, (_, responses)| OtherThreads {
            count: sum.count + 1,
            responses: sum.responses + responses,
        });
        (threads, others)
    }

    /// How many were taken in.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.groups.values().map(|group| group.count).sum()
    }

    /// The groups, most frequent first; among equals the one with the worst response.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.values().cloned().collect();
        groups.sort_by_key(|group| Reverse((group.count, group.worst_ns)));
        groups
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rtscope_event::{Chain, End, MonotonicNs, Origin, Step, WaitKind};

    pub(crate) fn late(sequence: u64, steps: &[(StepKind, u64)]) -> LateResponse {
        let origin = Origin { kind: OriginKind::Irq, id: 1, cpu: CpuId(0), time_ns: MonotonicNs(100) };
        let step = |(kind, duration_ns): &(StepKind, u64)| Step {
            kind: *kind,
            id: 1,
            cpu: CpuId(0),
            duration_ns: *duration_ns,
            wait: WaitKind::None,
        };
        let steps: Vec<Step> = steps.iter().map(step).collect();
        let chain = Chain { origin, steps, merged: 0, others: vec![], busy: false };
        LateResponse {
            tracker: rtscope_event::Tracker::Response,
            instance: 0,
            sequence,
            cpu: CpuId(1),
            end_ns: chain.end_ns(),
            end: End::Blocked,
            threshold_ns: 1,
            tid: Tid(7),
            pid: Pid(7),
            prio: Priority(1),
            comm: Comm::from("x"),
            snapshot: None,
            chain,
            events: None,
            call: None,
            lock: None,
            block: None,
            section: None,
            stacks: None,
        }
    }

    #[test]
    fn groups_by_the_longest_step_most_frequent_first() {
        let mut summary = Summary::new();
        summary.add_late(&late(1, &[(StepKind::Wakeup, 50), (StepKind::Run, 60)]));
        summary.add_late(&late(2, &[(StepKind::Wakeup, 70), (StepKind::Run, 60)]));
        summary.add_late(&late(3, &[(StepKind::Wakeup, 90), (StepKind::Run, 60)]));
        let groups = summary.groups();
        assert_eq!(summary.count(), 3);
        let Group { step, count, sum_ns, worst_ns, worst_sequence, .. } = groups[0].clone();
        assert_eq!((step, count, sum_ns, worst_ns, worst_sequence), (Some(StepKind::Wakeup), 2, 280, 150, 3));
        assert_eq!((groups[1].step, groups[1].count), (Some(StepKind::Run), 1));
    }

    #[test]
    fn a_threads_own_work_beyond_the_limit_is_told_from_its_waits() {
        let mut summary = Summary::new();
        let mut driver = late(1, &[(StepKind::Wakeup, 90), (StepKind::Run, 10)]);
        (driver.threshold_ns, driver.tid, driver.comm) = (50, Tid(1), Comm::from("driver"));
        let mut helper = late(2, &[(StepKind::Wakeup, 10), (StepKind::Run, 90)]);
        helper.threshold_ns = 50;
        helper.chain.steps[1].id = helper.tid.0;
        for late in [&driver, &helper, &helper] {
            summary.add_late(late);
        }
        let responses = [(Tid(7), 20), (Tid(8), 3), (Tid(9), 4)].into_iter().collect();
        let (threads, others) = summary.threads(&responses);
        let threads: Vec<_> = threads
            .iter()
            .map(|thread| (thread.tid, thread.count, thread.responses, thread.own_work))
            .collect();
        assert_eq!(threads, [(Tid(7), 2, Some(20), 2), (Tid(1), 1, None, 0)]);
        assert_eq!(others, OtherThreads { count: 2, responses: 7 });
    }

    #[test]
    fn of_very_many_threads_the_last_is_all_others() {
        let mut summary = Summary::new();
        for tid in 1..=1_500 {
            let mut one = late(1, &[(StepKind::Run, 10)]);
            one.tid = Tid(tid);
            summary.add_late(&one);
        }
        let (threads, _) = summary.threads(&BTreeMap::new());
        let last = threads.last().map(|thread| (thread.tid, thread.comm.to_string(), thread.count));
        assert_eq!((threads.len(), last), (MAX_GROUPS + 1, Some((Tid(0), "others".to_string(), 500))));
        assert!(threads[..MAX_GROUPS].iter().all(|thread| thread.count == 1));
    }
}
