// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a folded chain, found again.
//!
//! A chain keeps twelve steps, so a thread that is preempted time and again has the rest of its response in one entry: just
//! where the most is to be explained. A full chain is never passed on, so behind the last wakeup of the target the entry
//! holds only the target's own waiting and running, and the recording's switches tell those apart. What came before that
//! wakeup stays unknown.

use super::causes::Tally;
use super::types::Note;
use super::{Explainer, PlacedStep};
use rtscope_event::{EventKind, MonotonicNs, Step, StepKind, Tid, WaitKind};

impl Explainer<'_> {
    /// Causes of the entry that stands for all further steps.
    pub(super) fn folded(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        tally.note(Note::Folded { steps: at.step.id });
        let steps = self.unfold(at);
        let known: u64 = steps.iter().map(|step| step.step.duration_ns).sum();
        tally.unknown_time(at.step.duration_ns - known);
        for step in &steps {
            self.causes(step, tally);
        }
    }

    /// The target's steps in the time of a folded entry. They follow each other and end where it ends.
    pub(super) fn unfold<'b>(&self, at: &PlacedStep<'b>) -> Vec<PlacedStep<'b>> {
        self.unfold_from(at, self.begin_of(at))
    }

    /// The same; with what the target does at its beginning, where that is known.
    fn unfold_from<'b>(
        &self,
        at: &PlacedStep<'b>,
        (mut kind, mut wait): (Option<StepKind>, WaitKind),
    ) -> Vec<PlacedStep<'b>> {
        const NONE: WaitKind = WaitKind::None;
        let tid = at.late.tid;
        let mut steps: Vec<PlacedStep<'b>> = Vec::new();
        let mut begin = at.from;
        let mut push = |kind: StepKind, id: Tid, wait: WaitKind, from: MonotonicNs, to: MonotonicNs| {
            if from < to {
                let step = Step { kind, id: id.0, cpu: at.step.cpu, duration_ns: to.since(from), wait };
                steps.push(PlacedStep { step, from, to, ..*at });
            }
        };
        for event in self.events_between(at.from, at.to) {
            match event.kind {
                EventKind::SchedSwitch { next_tid, .. } if next_tid == tid => {
                    // Its waking was not seen, where it waited.
                    let (step, id) = match kind {
                        Some(StepKind::Wait) => (StepKind::Wait, Tid(0)),
                        kind => (kind.unwrap_or(StepKind::Preempted), tid),
                    };
                    push(step, id, if step == StepKind::Wait { wait } else { NONE }, begin, event.time);
                    (kind, begin) = (Some(StepKind::Run), event.time);
                }
                EventKind::SchedSwitch { prev_tid, preempt, prev_state, prev_wait, .. }
                    if prev_tid == tid =>
                {
                    push(StepKind::Run, tid, NONE, begin, event.time);
                    let waits = !preempt && prev_state.0 != 0 && !prev_state.waits_for_lock();
                    wait = prev_wait;
                    let next = if waits { StepKind::Wait } else { StepKind::Preempted };
                    (kind, begin) = (Some(next), event.time);
                }
                EventKind::SchedWaking { tid: woken, .. } if woken == tid && kind == Some(StepKind::Wait) => {
                    let waker = self.waker_at(event.cpu, event.time).unwrap_or(Tid(0));
                    push(StepKind::Wait, waker, wait, begin, event.time);
                    (kind, begin) = (Some(StepKind::Wakeup), event.time);
                }
                // Before it was switched in: the wakeup with which its own part begins.
                EventKind::SchedWaking { tid: woken, .. } | EventKind::SchedWakeupNew { tid: woken, .. }
                    if woken == tid && kind.is_none() && !self.runs_anywhere(tid, event.time) =>
                {
                    (kind, begin) = (Some(StepKind::Wakeup), event.time);
                }
                _ => {}
            }
        }
        let running = || self.runs_anywhere(tid, begin).then_some(StepKind::Run);
        match kind.or_else(running) {
            // Nobody has woken it yet.
            Some(StepKind::Wait) => push(StepKind::Wait, Tid(0), wait, begin, at.to),
            Some(kind) => push(kind, tid, NONE, begin, at.to),
            None => {}
        }
        steps
    }

    fn runs_anywhere(&self, tid: Tid, time: MonotonicNs) -> bool {
        let here = |cpu| self.timeline.at(cpu, time).is_some_and(|segment| segment.thread == Some(tid));
        self.timeline.cpus().any(here)
    }
}
