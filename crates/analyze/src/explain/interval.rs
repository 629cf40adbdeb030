// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread did between two events of a program.
//!
//! The tracker knows nothing of these events, so such a late response comes as one step: from the first event to the second. What the thread
//! did between them is in the recorded switches and wakings; from there on its steps are explained as those of a cycle are. A thread that writes
//! an event runs: so where both are of one thread, what it did at the beginning is certain.

use super::wait::Doing;
use super::{Explainer, PlacedStep, place_steps};
use rtscope_event::{End, EventKind, LateResponse, MonotonicNs, Step, StepKind, Tid, WaitKind};

/// Steps that are shown one by one; the rest is one entry.
const STEPS_MAX: usize = 30;

impl Explainer<'_> {
    /// The steps of a late response; those of an interval are found in the recording.
    pub(super) fn placed<'b>(&self, late: &'b LateResponse) -> Vec<PlacedStep<'b>> {
        let steps = place_steps(late).into_iter();
        // Of one that has not ended nobody knows in which thread it would have: what the first one did since is no cause.
        let is_known = late.end != End::Pending;
        let is_found = |at: &PlacedStep<'_>| is_known && at.step.kind == StepKind::Interval;
        steps.flat_map(|at| if is_found(&at) { self.steps_of(&at) } else { vec![at] }).collect()
    }

    fn steps_of<'b>(&self, at: &PlacedStep<'b>) -> Vec<PlacedStep<'b>> {
        // The thread may have been on any CPU: what it did is known from the moment on from which all are recorded.
        let since = self.recording.history.iter().filter_map(|history| history.complete_since).max();
        let known_from = since.unwrap_or(at.from).max(at.from).min(at.to);
        let known = PlacedStep {
            from: known_from,
            step: Step { duration_ns: at.to.since(known_from), ..at.step },
            ..*at
        };
        let mut steps = self.unfold(&known);
        let begin = steps.first().map_or(at.to, |step| step.from);
        if at.from < begin {
            let step = Step { duration_ns: begin.since(at.from), ..at.step };
            steps.insert(0, PlacedStep { step, to: begin, ..*at });
        }
        if let Some(first) = steps.get(STEPS_MAX).filter(|_| steps.len() > STEPS_MAX + 1) {
            let (number, from) = (u32::try_from(steps.len() - STEPS_MAX).unwrap_or(u32::MAX), first.from);
            let duration_ns = at.to.since(from);
            let step = Step {
                kind: StepKind::More,
                id: number,
                cpu: at.step.cpu,
                duration_ns,
                wait: WaitKind::None,
            };
            steps.truncate(STEPS_MAX);
            steps.push(PlacedStep { step, from, ..*at });
        }
        steps
    }

    /// What the target does when a folded entry or an interval begins, and for what it waits then. Of a chain that is told by what comes
    /// after; between two events it is known.
    pub(super) fn begin_of(&self, at: &PlacedStep<'_>) -> (Option<StepKind>, WaitKind) {
        let Some(events) = &at.late.events else { return (None, WaitKind::None) };
        if events.is_of_one_thread() && at.from == events.from.time_ns {
            return (Some(StepKind::Run), WaitKind::None);
        }
        let tid = at.late.tid;
        let kind = match self.doing_at(tid, at.from, at.to).0 {
            Doing::Running(_) => StepKind::Run,
            Doing::Woken => StepKind::Wakeup,
            Doing::Preempted => StepKind::Preempted,
            Doing::Blocked(_) => StepKind::Wait,
            Doing::Unknown => return (None, WaitKind::None),
        };
        (Some(kind), if kind == StepKind::Wait { self.wait_at(tid, at.from) } else { WaitKind::None })
    }

    /// For what a thread waits that left its CPU before this time.
    fn wait_at(&self, tid: Tid, time: MonotonicNs) -> WaitKind {
        let end = self.recording.events.partition_point(|event| event.time < time);
        let left = self.recording.events[..end].iter().rev().find_map(|event| match event.kind {
            EventKind::SchedSwitch { prev_tid, prev_wait, .. } if prev_tid == tid => Some(prev_wait),
            _ => None,
        });
        left.unwrap_or_default()
    }
}
