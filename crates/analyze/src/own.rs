// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the observer itself cost its target: how much of a late response its own threads had, or workers of the kernel for it.
//!
//! A worker works for the observer while it has work that a thread of the observer queued (not an interrupt that came while that
//! thread was current). Work that names no origin (RCU, writing dirty pages) is nobody's here.

use crate::explain::{Actor, Explanation, StepExplanation};
use rtscope_event::{CpuId, EventKind, MonotonicNs, Pid, Recording, Tid};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What an observer cost its target, over all late responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Late responses that the observer was the largest cause of.
    pub culprit: u64,
    /// Late responses in which it had the target's CPU for a part of the time.
    pub delayed: u64,
    /// The longest such part of one response.
    pub longest_ns: u64,
    /// Late responses of which nobody knows it: not explained, or for an unknown cause.
    pub unknown: u64,
    /// At the end the observer ran on no CPU that a target may use.
    pub is_apart: bool,
}

/// The observer's part in one late response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnPart {
    /// It was the largest cause.
    pub is_culprit: bool,
    /// How long it had the target's CPU.
    pub time_ns: u64,
    /// The largest cause is not known.
    pub is_unknown: bool,
}

impl OwnCost {
    /// Takes in a late response.
    pub fn add(&mut self, part: OwnPart) {
        self.culprit += u64::from(part.is_culprit);
        self.delayed += u64::from(part.time_ns > 0);
        self.longest_ns = self.longest_ns.max(part.time_ns);
        self.unknown += u64::from(part.is_unknown);
    }

    /// Takes in one that was not explained.
    pub fn add_unexplained(&mut self) {
        self.unknown += 1;
    }
}

/// Finds the parts of one process in explanations of a recording.
#[derive(Debug)]
pub struct OwnTime<'a> {
    recording: &'a Recording,
    process: Pid,
    /// When workers worked for it.
    served: Vec<(Tid, MonotonicNs, MonotonicNs)>,
}

impl<'a> OwnTime<'a> {
    /// For this process.
    #[must_use]
    pub fn new(recording: &'a Recording, process: Pid) -> OwnTime<'a> {
        let mut time = OwnTime { recording, process, served: Vec::new() };
        time.served = time.find_served();
        time
    }

    /// Its part in a late response of this recording.
    #[must_use]
    pub fn part(&self, explanation: &Explanation) -> OwnPart {
        let own = |step: &StepExplanation| -> u64 {
            let causes = step.causes.iter().filter(|cause| {
                cause.kind.is_disturbance()
                    && cause.actor.as_ref().is_some_and(|actor| self.is_own(actor, step))
            });
            causes.map(|cause| cause.time_ns).sum()
        };
        let time_ns = explanation.steps.iter().map(own).sum();
        let culprit = explanation.culprit.as_ref();
        let is_culprit = culprit.is_some_and(|culprit| {
            let actor = culprit.actor.as_ref().filter(|_| culprit.kind.is_disturbance());
            let step = explanation.steps.get(culprit.step);
            actor.zip(step).is_some_and(|(actor, step)| self.is_own(actor, step))
        });
        let is_unknown = culprit.is_none_or(|culprit| culprit.kind == crate::explain::CauseKind::Unknown);
        OwnPart { is_culprit, time_ns, is_unknown }
    }

    fn is_own(&self, actor: &Actor, step: &StepExplanation) -> bool {
        let Actor::Thread(thread) = actor else { return false };
        let until = step.from_ns.plus(step.duration_ns);
        self.has(thread.tid)
            || self
                .served
                .iter()
                .any(|(tid, from, to)| *tid == thread.tid && *from < until && step.from_ns < *to)
    }

    fn has(&self, tid: Tid) -> bool {
        self.recording.names.task(tid).is_some_and(|task| task.pid == self.process)
    }

    fn find_served(&self) -> Vec<(Tid, MonotonicNs, MonotonicNs)> {
        let end = self.recording.events.last().map_or(MonotonicNs(0), |event| event.time);
        let mut current = HashMap::<CpuId, Tid>::new();
        let mut nested = HashMap::<CpuId, u32>::new();
        let mut queued = HashMap::<u64, bool>::new();
        let mut working = HashMap::<CpuId, (Tid, MonotonicNs)>::new();
        let mut served = Vec::new();
        for event in &self.recording.events {
            let depth = nested.entry(event.cpu).or_default();
            match event.kind {
                EventKind::SchedSwitch { next_tid, .. } => {
                    *depth = 0;
                    current.insert(event.cpu, next_tid);
                }
                EventKind::IrqHandlerEntry { .. }
                | EventKind::SoftirqEntry { .. }
                | EventKind::VectorEntry { .. } => {
                    *depth += 1;
                }
                EventKind::IrqHandlerExit { .. }
                | EventKind::SoftirqExit { .. }
                | EventKind::VectorExit { .. } => {
                    *depth = depth.saturating_sub(1);
                }
                EventKind::WorkQueue { work, .. } => {
                    let by_own = *depth == 0 && current.get(&event.cpu).is_some_and(|tid| self.has(*tid));
                    queued.insert(work, by_own);
                }
                EventKind::WorkStart { work, .. } if queued.get(&work) == Some(&true) => {
                    if let Some(worker) = current.get(&event.cpu) {
                        working.insert(event.cpu, (*worker, event.time));
                    }
                }
                EventKind::WorkEnd { .. } => {
                    served.extend(working.remove(&event.cpu).map(|(tid, from)| (tid, from, event.time)));
                }
                _ => {}
            }
        }
        served.extend(working.into_values().map(|(tid, from)| (tid, from, end)));
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Cause, CauseKind, Culprit, Thread};
    use rtscope_event::{Comm, Event, Policy, Priority, StepKind, TaskInfo, TaskState, WaitKind};

    fn explanation(actor: Tid, kind: CauseKind) -> Explanation {
        let recording = Recording::default();
        let late = crate::summary::tests::late(1, &[(StepKind::Wakeup, 1000)]);
        let mut explanation = crate::explain::explain(&recording, &late);
        let thread = Thread { tid: actor, comm: None, prio: None, policy: None };
        let actor = Some(Actor::Thread(thread));
        let cause = Cause { kind, actor: actor.clone(), time_ns: 900, share_permille: 900 };
        explanation.steps[0].causes = vec![cause];
        explanation.culprit = Some(Culprit { kind, actor, time_ns: 900, share_permille: 900, step: 0 });
        explanation
    }

    fn at(time: u64, cpu: u32, kind: EventKind) -> Event {
        Event { time: MonotonicNs(time), cpu: CpuId(cpu), kind }
    }

    fn switch(time: u64, cpu: u32, to: u32) -> Event {
        let (prev_prio, next_prio) = (Priority(120), Priority(120));
        let kind = EventKind::SchedSwitch {
            prev_tid: Tid(0),
            prev_prio,
            prev_state: TaskState(0),
            preempt: false,
            prev_kthread: false,
            next_tid: Tid(to),
            next_prio,
            next_kthread: false,
            prev_wait: WaitKind::None,
            prev_wait_on: 0,
        };
        at(time, cpu, kind)
    }

    /// Process 20 is the observer; 21 is a thread of it, 50 a worker.
    fn recording(events: Vec<Event>) -> Recording {
        let mut recording = Recording { events, ..Recording::default() };
        for (tid, pid, kthread) in [(20, 20, false), (21, 20, false), (30, 30, false), (50, 50, true)] {
            recording.names.add_task(TaskInfo {
                tid: Tid(tid),
                pid: Pid(pid),
                ppid: Pid(1),
                comm: Comm::from("x"),
                prio: Priority(120),
                policy: Policy(0),
                kthread,
            });
        }
        recording
    }

    #[test]
    fn threads_of_the_observer_are_its_own_and_others_are_not() {
        let recording = recording(vec![]);
        let own = OwnTime::new(&recording, Pid(20));
        let part = own.part(&explanation(Tid(21), CauseKind::BlockingThread));
        assert_eq!(part, OwnPart { is_culprit: true, time_ns: 900, is_unknown: false });
        assert_eq!(own.part(&explanation(Tid(30), CauseKind::BlockingThread)), OwnPart::default());
        // Current while nothing is known: not blamed, and not denied.
        let part = own.part(&explanation(Tid(21), CauseKind::Unknown));
        assert_eq!(part, OwnPart { is_culprit: false, time_ns: 0, is_unknown: true });
        let mut cost = OwnCost::default();
        cost.add(own.part(&explanation(Tid(21), CauseKind::ThreadInterference)));
        cost.add(part);
        cost.add_unexplained();
        assert_eq!(cost, OwnCost { culprit: 1, delayed: 1, longest_ns: 900, unknown: 2, is_apart: false });
    }

    #[test]
    fn a_worker_is_its_own_while_it_does_what_the_observer_queued() {
        let (work, function) = (7, 8);
        let queue = EventKind::WorkQueue { work, function, req_cpu: 1 };
        let events = |by: u32| {
            vec![
                switch(10, 0, by),
                at(20, 0, queue.clone()),
                switch(60, 1, 50),
                at(90, 1, EventKind::WorkStart { work, function }),
                at(5000, 1, EventKind::WorkEnd { work, function }),
            ]
        };
        for (by, is_own) in [(21, true), (30, false)] {
            let recording = recording(events(by));
            let part =
                OwnTime::new(&recording, Pid(20)).part(&explanation(Tid(50), CauseKind::BlockingThread));
            assert_eq!(part.is_culprit, is_own, "{by}");
        }
        let mut interrupted = events(21);
        interrupted.insert(1, at(15, 0, EventKind::SoftirqEntry { vec: 1 }));
        let recording = recording(interrupted);
        let part = OwnTime::new(&recording, Pid(20)).part(&explanation(Tid(50), CauseKind::BlockingThread));
        assert!(!part.is_culprit, "an interrupt queued it");
    }
}
