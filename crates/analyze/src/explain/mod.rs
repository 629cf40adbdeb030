// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a response was late: each step of its chain, and inside each step what ran instead.
//!
//! The chain says how long each step took; the [`Timeline`] says what the CPU did in that time. A step is laid over the
//! CPU it waited for or ran on, and each nanosecond goes to exactly one cause. Rules for blaming:
//!
//! - A task is never blamed for time in which it did not run on that CPU.
//! - The task that was *current* while an interrupt was late is not to blame: interrupts may have been disabled there, or a
//!   hypervisor may have had the CPU. That time is unknown, and a note names the current task. Interrupt handlers run
//!   with interrupts disabled, so they can be blamed.
//! - What the recording does not cover is unknown, and never blamed on a task.

mod causes;
mod culprit;
mod deferral;
mod delayed;
mod earlier;
mod folded;
mod interval;
mod place;
mod types;
mod wait;

pub use types::{
    Actor, Cause, CauseKind, Culprit, Delayed, DelayedHow, Earlier, Explanation, InnerWait, Kept,
    MergedOrigin, Note, OriginExplanation, Preemption, StepExplanation, Thread, Waker,
};

use crate::chain::Response;
use crate::share;
use crate::timeline::Timeline;
use causes::Tally;
use rtscope_event::{
    Irq, LateResponse, MonotonicNs, Origin, OriginKind, Pid, Priority, Recording, Step, StepKind, Tid,
    Tracker, VectorKind,
};

/// Explains one late response. To explain several of one recording, use an [`Explainer`]: it flattens only once.
#[must_use]
pub fn explain(recording: &Recording, late: &LateResponse) -> Explanation {
    Explainer::new(recording).explain(late)
}

/// A recording with its timeline, ready to explain late responses.
pub struct Explainer<'a> {
    recording: &'a Recording,
    timeline: Timeline,
}

/// A step with its place in time and in the chain.
#[derive(Clone, Copy)]
struct PlacedStep<'a> {
    late: &'a LateResponse,
    index: usize,
    step: Step,
    from: MonotonicNs,
    to: MonotonicNs,
}

impl<'a> Explainer<'a> {
    /// Flattens the recording.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Explainer<'a> {
        Explainer { recording, timeline: Timeline::new(recording) }
    }

    /// Explains one late response of the recording.
    #[must_use]
    pub fn explain(&self, late: &LateResponse) -> Explanation {
        let placed = self.placed(late);
        let mut steps: Vec<StepExplanation> = placed.iter().map(|at| self.step(at)).collect();
        assign_shares(&mut steps);
        let unknown = |cause: &&Cause| cause.kind == CauseKind::Unknown;
        let causes = || steps.iter().flat_map(|step| &step.causes);
        let (unknown_ns, unknown_permille) = causes()
            .filter(unknown)
            .fold((0, 0), |(ns, share), cause| (ns + cause.time_ns, share + cause.share_permille));
        let mut thread = self.thread(late.tid, late.end_ns);
        if !late.comm.as_bytes().is_empty() {
            thread.comm = Some(late.comm);
        }
        // Of an interval between two events the recording knows the thread's priority best.
        if late.events.is_none() || thread.prio.is_none() {
            thread.prio = Some(late.prio);
        }
        Explanation {
            tracker: late.tracker,
            instance: late.instance,
            sequence: late.sequence,
            snapshot: late.snapshot,
            thread,
            pid: late.pid,
            cpu: late.cpu,
            end: late.end,
            end_ns: late.end_ns,
            response_ns: late.chain.duration_ns(),
            threshold_ns: late.threshold_ns,
            origin: self.origin(late),
            earlier: self.earlier(late),
            culprit: culprit::find(&steps),
            woken_by: late.events.is_none().then(|| self.woken_by(late)).flatten(),
            delayed: self.delayed(late, &placed),
            preemptions: self.preemptions(&placed),
            waits: self.inner_waits(&placed),
            unknown_ns,
            unknown_permille,
            losses: self.recording.losses.clone(),
            events: late.events.clone(),
            call: late.call.clone(),
            lock: late.lock.clone(),
            block: late.block.clone(),
            section: late.section.clone(),
            stacks: late.stacks.clone(),
            steps,
        }
    }

    /// A response that a replay found, in the form in which the tracker reports it. What the recording does not tell is
    /// taken as most threads have it: alone in its process, at nice 0.
    #[must_use]
    pub fn report(&self, response: &Response, threshold_ns: u64, sequence: u64) -> LateResponse {
        let Response { tid, end, end_ns, cpu, .. } = *response;
        let names = &self.recording.names;
        let task = names.task(tid);
        let prio = self.timeline.priority(tid, end_ns).or(task.map(|task| task.prio));
        LateResponse {
            tracker: rtscope_event::Tracker::Response,
            instance: 0,
            sequence,
            cpu,
            end_ns,
            end,
            threshold_ns,
            tid,
            pid: task.map_or(Pid(tid.0), |task| task.pid),
            prio: prio.unwrap_or(Priority(120)),
            comm: names.comm(tid, end_ns).unwrap_or_default(),
            snapshot: None,
            chain: response.chain.clone(),
            events: None,
            call: None,
            lock: None,
            block: None,
            section: None,
            stacks: None,
        }
    }

    fn step(&self, at: &PlacedStep<'_>) -> StepExplanation {
        let mut tally = Tally::default();
        self.causes(at, &mut tally);
        let (causes, notes) = tally.finish();
        StepExplanation {
            kind: at.step.kind,
            actor: self.step_actor(at),
            wait: at.step.wait,
            cpu: at.step.cpu,
            from_ns: at.from,
            duration_ns: at.step.duration_ns,
            share_permille: 0,
            causes,
            notes,
        }
    }

    fn thread(&self, tid: Tid, time: MonotonicNs) -> Thread {
        Thread {
            tid,
            comm: self.recording.names.comm(tid, time),
            prio: self.timeline.priority(tid, time),
            policy: self.recording.names.task(tid).map(|task| task.policy),
        }
    }

    fn thread_actor(&self, tid: Tid, time: MonotonicNs) -> Actor {
        if tid == Tid(0) { Actor::Idle } else { Actor::Thread(self.thread(tid, time)) }
    }

    fn irq_actor(&self, irq: Irq) -> Actor {
        Actor::Irq { irq, name: self.recording.names.irq(irq).map(str::to_owned) }
    }

    fn origin(&self, late: &LateResponse) -> OriginExplanation {
        let Origin { kind, id, cpu, time_ns } = late.chain.origin;
        let others = late.chain.others.iter().map(|other| MergedOrigin {
            actor: self.origin_actor(other.kind, other.id, other.time_ns),
            later_ns: other.time_ns.since(time_ns),
        });
        OriginExplanation {
            kind,
            actor: self.origin_actor(kind, id, time_ns),
            cpu,
            time_ns,
            merged: late.chain.merged,
            others: others.collect(),
        }
    }

    fn origin_actor(&self, kind: OriginKind, id: u32, time: MonotonicNs) -> Option<Actor> {
        match kind {
            OriginKind::Timer => Some(Actor::Timer),
            OriginKind::Irq => Some(self.irq_actor(Irq(id))),
            OriginKind::Vector => VectorKind::from_number(id).map(|vector| Actor::Vector { vector }),
            OriginKind::Softirq => Some(Actor::Softirq { vec: id }),
            OriginKind::Task | OriginKind::OffCpu | OriginKind::Event | OriginKind::Resched => {
                Some(self.thread_actor(Tid(id), time))
            }
            // The call or the lock stands in the explanation itself.
            OriginKind::Syscall | OriginKind::Lock | OriginKind::Block | OriginKind::IrqsOff => None,
        }
    }

    /// The actor that handled, ran or waited in this step.
    fn step_actor(&self, at: &PlacedStep<'_>) -> Option<Actor> {
        let id = at.step.id;
        match at.step.kind {
            StepKind::TimerSlack | StepKind::TimerLateness | StepKind::TimerInterrupt => Some(Actor::Timer),
            StepKind::Handler => {
                // The first handler of a chain is its origin's; a later one was reached by an IPI.
                let origin = at.late.chain.origin.kind;
                let earlier = &at.late.chain.steps[..at.index];
                // A timer's own handler has no number: one with a number is the interrupt that raised its softirq.
                if (origin == OriginKind::Timer && id != 0)
                    || earlier.iter().any(|step| step.kind == StepKind::Ipi)
                {
                    VectorKind::from_number(id).map(|vector| Actor::Vector { vector })
                } else {
                    let Origin { kind, id, time_ns, .. } = at.late.chain.origin;
                    self.origin_actor(kind, id, time_ns)
                }
            }
            StepKind::SoftirqWait | StepKind::Softirq => Some(Actor::Softirq { vec: id }),
            StepKind::Ipi => VectorKind::from_number(id).map(|vector| Actor::Vector { vector }),
            StepKind::Wakeup
            | StepKind::Run
            | StepKind::Preempted
            | StepKind::Busy
            | StepKind::WorkWait
            | StepKind::LockWait
            | StepKind::HiddenSwitch
            | StepKind::NotPreempted
            | StepKind::IrqsOff
            | StepKind::Interval => Some(self.thread_actor(Tid(id), at.from)),
            StepKind::Wait => {
                Some(Tid(id)).filter(|tid| *tid != Tid(0)).map(|tid| self.thread_actor(tid, at.to))
            }
            StepKind::More | StepKind::Queue | StepKind::Device => None,
        }
    }

    /// The step before the target's last wakeup says what woke it.
    fn woken_by(&self, late: &LateResponse) -> Option<Waker> {
        let placed = place_steps(late);
        // Who ended the wait is said of the wait; the tracker knows a task, and of all others that they were interrupts.
        if matches!(late.tracker, Tracker::Offcpu | Tracker::Syscall | Tracker::Lock) {
            let wait = placed.iter().rfind(|at| at.step.kind == StepKind::Wait)?;
            return self.step_actor(wait).map(|actor| Waker {
                actor: Some(actor),
                cpu: wait.step.cpu,
                busy: false,
            });
        }
        let wakes = |at: &PlacedStep<'_>| matches!(at.step.kind, StepKind::Wakeup | StepKind::Busy);
        let waking = placed.iter().rposition(|at| wakes(at) && at.step.id == late.tid.0)?;
        // A wakeup behind a busy wakeup is the same wakeup.
        let Some(first) = placed[..waking].iter().rposition(|at| !wakes(at)) else {
            let Origin { kind, id, cpu, time_ns } = late.chain.origin;
            let busy = placed[0].step.kind == StepKind::Busy;
            return Some(Waker { actor: self.origin_actor(kind, id, time_ns), cpu, busy });
        };
        let busy = placed[first + 1].step.kind == StepKind::Busy;
        Some(Waker { actor: self.step_actor(&placed[first]), cpu: placed[first].step.cpu, busy })
    }

    fn preemptions(&self, placed: &[PlacedStep<'_>]) -> Vec<Preemption> {
        let unfolded = placed.iter().flat_map(|at| match at.step.kind {
            StepKind::More => self.unfold(at),
            _ => vec![*at],
        });
        unfolded.filter_map(|at| self.preemption(&at)).collect()
    }

    fn preemption(&self, at: &PlacedStep<'_>) -> Option<Preemption> {
        if at.step.kind != StepKind::Preempted {
            return None;
        }
        let tid = Tid(at.step.id);
        let switch = self.switch_out(tid, at.from);
        Some(Preemption {
            time_ns: at.from,
            cpu: switch.map(|(cpu, _)| cpu),
            thread: self.thread(tid, at.from),
            by: switch.map(|(_, next)| self.thread(next, at.from)),
            duration_ns: at.step.duration_ns,
        })
    }
}

fn place_steps(late: &LateResponse) -> Vec<PlacedStep<'_>> {
    let mut from = late.chain.origin.time_ns;
    let mut placed = Vec::new();
    for (index, step) in late.chain.steps.iter().enumerate() {
        let to = from.plus(step.duration_ns);
        placed.push(PlacedStep { late, index, step: *step, from, to });
        from = to;
    }
    placed
}

/// Shares by largest remainder, steps first, then the causes of each: so both levels add up as shown.
fn assign_shares(steps: &mut [StepExplanation]) {
    let durations: Vec<u64> = steps.iter().map(|step| step.duration_ns).collect();
    for (step, permille) in steps.iter_mut().zip(share::divide(share::WHOLE, &durations)) {
        step.share_permille = permille;
        let times: Vec<u64> = step.causes.iter().map(|cause| cause.time_ns).collect();
        for (cause, permille) in step.causes.iter_mut().zip(share::divide(permille, &times)) {
            cause.share_permille = permille;
        }
    }
}

#[cfg(test)]
mod tests;
