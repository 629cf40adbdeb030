// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads a handler, a softirq, or a section in which a CPU could not be had, kept from running: the one that it interrupted, and those that were woken for its CPU meanwhile.
//!
//! Who waited there before is not among them: what such a thread waited for is the one that was interrupted.

use super::types::{Delayed, DelayedHow};
use super::{Explainer, PlacedStep};
use rtscope_event::{CpuId, EventKind, LateResponse, MonotonicNs, StepKind, Tid, Tracker};

/// More are not listed.
const MOST: usize = 8;
/// From a waking until the CPU is asked, at most: on another one, an interrupt may come in between.
const ASKING_NS: u64 = 100_000;

impl Explainer<'_> {
    /// The longest first.
    pub(super) fn delayed(&self, late: &LateResponse, placed: &[PlacedStep<'_>]) -> Vec<Delayed> {
        let handles = |at: &&PlacedStep<'_>| {
            late.tracker.is_of_sections() || matches!(at.step.kind, StepKind::Handler | StepKind::Softirq)
        };
        let Some(ran) = placed.iter().rfind(handles).filter(|_| late.tracker.is_of_cpus()) else {
            return Vec::new();
        };
        let mut delayed: Vec<Delayed> = self.interrupted(late, ran).into_iter().collect();
        // A CPU is asked for by a waking, just before; and the end is the switch to the one that waited.
        let (asked, switched) = if late.tracker == Tracker::Preemptoff { (ASKING_NS, 1) } else { (0, 0) };
        let [from, to] = [(ran.from, asked), (ran.to, switched)];
        let earlier = |(time, by_ns): (MonotonicNs, u64)| MonotonicNs(time.0.saturating_sub(by_ns));
        delayed.extend(self.woken_meanwhile(late.cpu, earlier(from), earlier(to)));
        // Who then had the CPU may have waited for longer.
        let next = Tid(late.chain.origin.id);
        if late.tracker == Tracker::Preemptoff && delayed.iter().all(|one| one.thread.tid != next) {
            let thread = self.thread(next, late.end_ns);
            delayed.push(Delayed { thread, how: DelayedHow::Woken, time_ns: ran.step.duration_ns });
        }
        delayed.sort_by_key(|one| std::cmp::Reverse(one.time_ns));
        delayed.truncate(MOST);
        delayed
    }

    fn interrupted(&self, late: &LateResponse, ran: &PlacedStep<'_>) -> Option<Delayed> {
        // A kernel thread that is current in a softirq may be the one that runs it.
        let is_kthread = self.recording.names.task(late.tid).is_some_and(|task| task.kthread);
        let is_its_own = late.tracker == Tracker::Softirq && is_kthread;
        (late.tid != Tid(0) && !is_its_own && !late.tracker.is_of_sections()).then(|| Delayed {
            thread: self.thread(late.tid, late.end_ns),
            how: DelayedHow::Interrupted,
            time_ns: ran.step.duration_ns,
        })
    }

    fn woken_meanwhile(&self, cpu: CpuId, from: MonotonicNs, to: MonotonicNs) -> Vec<Delayed> {
        let woken = self.events_between(from, to).filter_map(|event| match event.kind {
            EventKind::SchedWaking { tid, .. } | EventKind::SchedWakeupNew { tid, .. } => {
                Some((tid, event.time))
            }
            _ => None,
        });
        let waits_here = |&(tid, woken): &(Tid, MonotonicNs)| {
            let stays = self.stays_after_waking(tid, woken, to);
            let runs = |kind: &EventKind| matches!(kind, EventKind::SchedSwitch { next_tid, .. } if *next_tid == tid);
            stays.last().is_some_and(|stay| stay.cpu == Some(cpu))
                && !self.events_between(woken, to).any(|event| runs(&event.kind))
        };
        let delayed = woken.filter(waits_here).map(|(tid, woken)| Delayed {
            thread: self.thread(tid, woken),
            how: DelayedHow::Woken,
            time_ns: to.since(woken),
        });
        let mut delayed: Vec<Delayed> = delayed.filter(|one| one.time_ns > 0).collect();
        // One that is woken again has waited since the first time.
        let mut known = std::collections::HashSet::new();
        delayed.retain(|one| known.insert(one.thread.tid));
        delayed
    }
}
