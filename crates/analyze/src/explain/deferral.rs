// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits that end when another thread does something: a worker that must begin with queued work, a lock that must be given
//! up.

use super::causes::Tally;
use super::types::{CauseKind, Note};
use super::{Explainer, PlacedStep};
use crate::timeline::Activity;
use rtscope_event::{CpuId, EventKind, MonotonicNs, Tid};

impl Explainer<'_> {
    /// From queueing to the worker's beginning: the worker does earlier work, or has to be woken and get a CPU. While it
    /// sleeps in earlier work, no actor is to blame.
    pub(super) fn work_wait(&self, at: &PlacedStep<'_>, worker: Tid, tally: &mut Tally) {
        let Some(arrived) = self.switched_in(worker, at.from, at.to) else {
            return self.run(at, worker, tally);
        };
        let woken = self.woken(worker, at.from, arrived).map_or(arrived, |(time, _)| time);
        self.unknown_until(woken, at, tally);
        let stays = self.stays_after_waking(worker, woken, arrived);
        if woken < arrived {
            self.wait(at, worker, &stays, true, tally);
        }
        self.run(&PlacedStep { from: arrived, ..*at }, worker, tally);
    }

    /// A spinlock of PREEMPT_RT: until it is handed over, the thread that hands it over holds it; then the thread waits for a CPU.
    pub(super) fn lock_wait(&self, at: &PlacedStep<'_>, tid: Tid, tally: &mut Tally) {
        let Some((given, cpu)) = self.woken(tid, at.from, at.to) else {
            return self.unknown_until(at.to, at, tally);
        };
        let holder = self.timeline.at(cpu, given.minus(1)).and_then(|segment| segment.thread);
        for segment in self.timeline.slice(cpu, at.from, given) {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (_, Some((kind, actor))) => tally.add(kind, actor, ns),
                (Activity::Thread(running), _) => {
                    let holds = holder == Some(running);
                    let kind = if holds { CauseKind::BlockingThread } else { CauseKind::ThreadInterference };
                    tally.add(kind, Some(self.thread_actor(running, segment.from)), ns);
                }
                _ => tally.unknown(Self::not_recorded(cpu, &segment), ns),
            }
        }
        self.wait(at, tid, &self.stays_after_waking(tid, given, at.to), true, tally);
    }

    fn unknown_until(&self, time: MonotonicNs, at: &PlacedStep<'_>, tally: &mut Tally) {
        let ns = time.since(at.from);
        if ns > 0 {
            tally.unknown(Note::PlaceUnknown, ns);
        }
    }

    /// When `tid` was last switched in, in this time.
    fn switched_in(&self, tid: Tid, from: MonotonicNs, to: MonotonicNs) -> Option<MonotonicNs> {
        let arrives =
            |kind: &EventKind| matches!(kind, EventKind::SchedSwitch { next_tid, .. } if *next_tid == tid);
        self.events_between(from, to).filter(|event| arrives(&event.kind)).last().map(|event| event.time)
    }

    /// When and on which CPU `tid` was last woken, in this time.
    fn woken(&self, tid: Tid, from: MonotonicNs, to: MonotonicNs) -> Option<(MonotonicNs, CpuId)> {
        let wakes =
            |kind: &EventKind| matches!(kind, EventKind::SchedWaking { tid: woken, .. } if *woken == tid);
        let last = self.events_between(from, to).filter(|event| wakes(&event.kind)).last();
        last.map(|event| (event.time, event.cpu))
    }
}
