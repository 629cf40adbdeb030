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
use rtscope_event::{EventKind, MonotonicNs, Step, StepKind, Tid};

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
        let tid = at.late.tid;
        let mut steps: Vec<PlacedStep<'b>> = Vec::new();
        let mut begin = at.from;
        let mut kind = None;
        let mut push = |kind: StepKind, from: MonotonicNs, to: MonotonicNs| {
            if from < to {
                let step = Step { kind, id: tid.0, cpu: at.step.cpu, duration_ns: to.since(from) };
                steps.push(PlacedStep { step, from, to, ..*at });
            }
        };
        for event in self.events_between(at.from, at.to) {
            match event.kind {
                EventKind::SchedSwitch { next_tid, .. } if next_tid == tid => {
                    push(kind.unwrap_or(StepKind::Preempted), begin, event.time);
                    (kind, begin) = (Some(StepKind::Run), event.time);
                }
                EventKind::SchedSwitch { prev_tid, .. } if prev_tid == tid => {
                    push(StepKind::Run, begin, event.time);
                    (kind, begin) = (Some(StepKind::Preempted), event.time);
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
        if let Some(kind) = kind.or_else(running) {
            push(kind, begin, at.to);
        }
        steps
    }

    fn runs_anywhere(&self, tid: Tid, time: MonotonicNs) -> bool {
        let here = |cpu| self.timeline.at(cpu, time).is_some_and(|segment| segment.thread == Some(tid));
        self.timeline.cpus().any(here)
    }
}
