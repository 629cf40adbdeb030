// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of a step went.

use super::place::Stay;
use super::types::{Actor, Cause, CauseKind, Note};
use super::{Explainer, PlacedStep};
use crate::timeline::{Activity, Segment};
use rtscope_event::{CpuId, MonotonicNs, StepKind, Tid, VectorKind};

/// Slack above this part of the response is worth a word on how to remove it.
const LARGE_SLACK_PERCENT: u64 = 10;

/// Causes of one step, added up.
#[derive(Default)]
pub(super) struct Tally {
    causes: Vec<Cause>,
    notes: Vec<Note>,
}

impl Tally {
    pub(super) fn add(&mut self, kind: CauseKind, actor: Option<Actor>, time_ns: u64) {
        if time_ns == 0 {
            return;
        }
        let same = |cause: &&mut Cause| {
            cause.kind == kind
                && match (&cause.actor, &actor) {
                    (Some(one), Some(two)) => one.is_same(two),
                    (None, None) => true,
                    _ => false,
                }
        };
        match self.causes.iter_mut().find(same) {
            Some(cause) => cause.time_ns += time_ns,
            None => self.causes.push(Cause { kind, actor, time_ns, share_permille: 0 }),
        }
    }

    pub(super) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    pub(super) fn unknown_time(&mut self, time_ns: u64) {
        self.add(CauseKind::Unknown, None, time_ns);
    }

    pub(super) fn unknown(&mut self, note: Note, time_ns: u64) {
        self.add(CauseKind::Unknown, None, time_ns);
        match (self.notes.iter_mut().find(|known| is_alike(known, &note)), &note) {
            (Some(Note::NotRecorded { time_ns: sum, .. } | Note::NotTaken { time_ns: sum, .. }), _) => {
                *sum += time_ns;
            }
            (Some(_), _) => {}
            (None, _) => self.notes.push(note),
        }
    }

    /// Largest first; equal ones in the order in which they came.
    pub(super) fn finish(mut self) -> (Vec<Cause>, Vec<Note>) {
        self.causes.sort_by_key(|cause| std::cmp::Reverse(cause.time_ns));
        (self.causes, self.notes)
    }
}

fn is_alike(one: &Note, two: &Note) -> bool {
    match (one, two) {
        (Note::NotRecorded { cpu: one, .. }, Note::NotRecorded { cpu: two, .. }) => one == two,
        (Note::NotTaken { cpu, current, .. }, Note::NotTaken { cpu: other, current: also, .. }) => {
            cpu == other && current.is_same(also)
        }
        _ => one == two,
    }
}

impl Explainer<'_> {
    /// Adds up the causes of one step. Their times are the step's duration, exactly.
    pub(super) fn causes(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let tid = Tid(at.step.id);
        match at.step.kind {
            StepKind::TimerSlack => {
                tally.add(CauseKind::TimerSlack, None, at.step.duration_ns);
                let response = at.late.chain.duration_ns();
                if at.step.duration_ns.saturating_mul(100) > response.saturating_mul(LARGE_SLACK_PERCENT) {
                    tally.note(Note::LargeSlack);
                }
            }
            StepKind::TimerLateness => self.lateness(at, tally),
            StepKind::TimerInterrupt => self.timer_interrupt(at, tally),
            StepKind::Handler => self.handler(at, tally),
            StepKind::SoftirqWait => self.softirq_wait(at, tally),
            StepKind::Softirq => self.softirq(at, tally),
            StepKind::Ipi => self.ipi(at, tally),
            StepKind::Wakeup => {
                self.wait(at, tid, &self.stays_after_waking(tid, at.from, at.to), true, tally)
            }
            StepKind::Preempted => {
                self.wait(at, tid, &self.stays_after_preemption(tid, at.from, at.to), false, tally);
            }
            StepKind::Run => self.run(at, tid, tally),
            StepKind::Busy => self.unknown_if_any(at, tally),
            StepKind::More => self.folded(at, tally),
            StepKind::WorkWait => self.work_wait(at, tid, tally),
            StepKind::LockWait => self.lock_wait(at, tid, tally),
            StepKind::HiddenSwitch => self.hidden_switch(at, tid, tally),
            StepKind::Wait => self.cycle_wait(at, tally),
            StepKind::Queue => tally.add(CauseKind::Queue, None, at.step.duration_ns),
            StepKind::Device => tally.add(CauseKind::Device, None, at.step.duration_ns),
            StepKind::NotPreempted | StepKind::IrqsOff => self.section(at, tally),
            StepKind::Interval => tally.unknown(Note::PlaceUnknown, at.step.duration_ns),
        }
    }

    /// It waited and then ran, and where the one became the other was not reported. The recorded switches do not follow each
    /// other there, so that part is blamed on no task.
    fn hidden_switch(&self, at: &PlacedStep<'_>, tid: Tid, tally: &mut Tally) {
        let woken = self.stays_after_waking(tid, at.from, at.to);
        let is_placed = woken.iter().any(|stay| stay.cpu.is_some());
        let stays = if is_placed { woken } else { self.stays_after_preemption(tid, at.from, at.to) };
        self.wait(at, tid, &stays, is_placed, tally);
    }

    /// A busy wakeup takes no time; should a report say otherwise, its cause is unknown.
    fn unknown_if_any(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        if at.step.duration_ns > 0 {
            tally.unknown(Note::PlaceUnknown, at.step.duration_ns);
        }
    }

    fn work_of(&self, at: &PlacedStep<'_>, tid: Tid) -> (CauseKind, Option<Actor>) {
        // Of a handler, the thread is the one that it interrupts.
        let is_own = tid == at.late.tid && !at.late.tracker.is_of_cpus();
        let kind = if is_own { CauseKind::OwnWork } else { CauseKind::ChainWork };
        (kind, Some(self.thread_actor(tid, at.from)))
    }

    /// What an interrupt, softirq or NMI does to a task that waits or runs. `None` for threads and what is unknown.
    pub(super) fn interference(&self, what: Activity) -> Option<(CauseKind, Option<Actor>)> {
        Some(match what {
            Activity::Nmi => (CauseKind::NmiInterference, None),
            Activity::Irq(irq) => (CauseKind::IrqInterference, Some(self.irq_actor(irq))),
            Activity::Vector(vector) => (CauseKind::IrqInterference, Some(Actor::Vector { vector })),
            Activity::Softirq(vec) => (CauseKind::SoftirqInterference, Some(Actor::Softirq { vec })),
            Activity::Thread(_) | Activity::Idle | Activity::Unknown => return None,
        })
    }

    pub(super) fn not_recorded(cpu: CpuId, segment: &Segment) -> Note {
        Note::NotRecorded { cpu, time_ns: segment.duration_ns() }
    }

    /// Between the time the hardware was programmed for and the interrupt.
    fn lateness(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.late.chain.origin.cpu;
        let mut in_timer_interrupt = false;
        // A timer that the interrupt leaves to a softirq (most timers of PREEMPT_RT) is late because of what keeps
        // that softirq waiting: from then on, threads can be blamed.
        let mut delivered = false;
        for segment in self.timeline.slice(cpu, at.from, at.to) {
            delivered |= in_timer_interrupt && !is_hard(segment.what);
            in_timer_interrupt = segment.what == Activity::Vector(VectorKind::LocalTimer)
                || (in_timer_interrupt && segment.what == Activity::Nmi);
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (Activity::Unknown, _) => tally.unknown(Self::not_recorded(cpu, &segment), ns),
                (Activity::Idle, _) => tally.add(CauseKind::ExitFromIdle, None, ns),
                (Activity::Thread(tid), _) if delivered => {
                    tally.add(CauseKind::ThreadInterference, Some(self.thread_actor(tid, segment.from)), ns);
                }
                (Activity::Softirq(_), Some((kind, actor))) if delivered => tally.add(kind, actor, ns),
                (Activity::Irq(_) | Activity::Vector(_) | Activity::Nmi, Some((kind, actor))) => {
                    tally.add(kind, actor, ns);
                }
                (what, _) => {
                    let current = match what {
                        Activity::Softirq(vec) => Actor::Softirq { vec },
                        _ => self.thread_actor(segment.thread.unwrap_or_default(), segment.from),
                    };
                    tally.unknown(Note::NotTaken { cpu, current, time_ns: ns }, ns);
                }
            }
        }
    }

    /// From the interrupt's entry to this timer's handler: other timers, once one of them is served.
    fn timer_interrupt(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.step.cpu;
        let others_from = self.first_timer(cpu, at.from, at.to).unwrap_or(at.to);
        for (from, to, kind) in
            [(at.from, others_from, CauseKind::Handler), (others_from, at.to, CauseKind::EarlierTimers)]
        {
            let actor = (kind == CauseKind::Handler).then_some(Actor::Timer);
            for segment in self.timeline.slice(cpu, from, to) {
                let ns = segment.duration_ns();
                match segment.what {
                    Activity::Unknown => tally.unknown(Self::not_recorded(cpu, &segment), ns),
                    Activity::Nmi => tally.add(CauseKind::NmiInterference, None, ns),
                    _ => tally.add(kind, actor.clone(), ns),
                }
            }
        }
    }

    /// The chain's own handler, net of what interrupted it.
    fn handler(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.step.cpu;
        let segments = self.timeline.slice(cpu, at.from, at.to);
        // What runs when the step begins is the handler. Behind its exit the CPU is on its way out of the interrupt,
        // where handler threads are woken: that belongs to it, too.
        let covered = |what: &Activity| !matches!(what, Activity::Nmi | Activity::Unknown);
        let own = segments.iter().map(|segment| segment.what).find(covered);
        for segment in &segments {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (Activity::Unknown, _) => tally.unknown(Self::not_recorded(cpu, segment), ns),
                (what, Some((kind, actor))) if Some(what) != own => tally.add(kind, actor, ns),
                _ => tally.add(CauseKind::Handler, self.step_actor(at), ns),
            }
        }
    }

    /// Between raise and entry, on the CPU of both.
    fn softirq_wait(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.step.cpu;
        // A kernel thread that turns to the softirq (ksoftirqd) serves it; getting there is not interference.
        let server = self.timeline.at(cpu, at.to).and_then(|segment| segment.thread);
        let server = server.filter(|tid| self.runs_softirqs(*tid, at.to));
        self.wait_on(at, cpu, (at.from, at.to), Wait { server, first_blocks: true }, tally);
    }

    /// Whether it is a thread that softirqs run in, not one that they interrupt: ksoftirqd, ktimers, and with PREEMPT_RT those of interrupts.
    fn runs_softirqs(&self, tid: Tid, time: MonotonicNs) -> bool {
        let name = self.recording.names.comm(tid, time).map(|comm| comm.to_string()).unwrap_or_default();
        let is_kthread = self.recording.names.task(tid).is_some_and(|task| task.kthread);
        is_kthread && ["ksoftirqd/", "ktimers/", "irq/"].iter().any(|beginning| name.starts_with(beginning))
    }

    /// The chain's own softirq, net of what interrupted or preempted it.
    fn softirq(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.step.cpu;
        let segments = self.timeline.slice(cpu, at.from, at.to);
        let runner = segments.first().and_then(|segment| segment.thread);
        for segment in &segments {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (Activity::Softirq(vec), _) if vec == at.step.id => {
                    tally.add(CauseKind::Softirq, Some(Actor::Softirq { vec }), ns);
                }
                (_, Some((kind, actor))) => tally.add(kind, actor, ns),
                (Activity::Thread(tid), _) if Some(tid) != runner => {
                    tally.add(CauseKind::ThreadInterference, Some(self.thread_actor(tid, segment.from)), ns);
                }
                _ => tally.unknown(Self::not_recorded(cpu, segment), ns),
            }
        }
    }

    /// Between sending and entry. Handlers on the receiving CPU keep it waiting; a thread there only might have.
    fn ipi(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.step.cpu;
        for segment in self.timeline.slice(cpu, at.from, at.to) {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (Activity::Irq(_) | Activity::Vector(_) | Activity::Nmi, Some((kind, actor))) => {
                    tally.add(kind, actor, ns);
                }
                (Activity::Idle, _) => tally.add(CauseKind::ExitFromIdle, None, ns),
                (Activity::Unknown, _) => tally.unknown(Self::not_recorded(cpu, &segment), ns),
                _ => tally.add(CauseKind::IpiFlight, None, ns),
            }
        }
    }

    pub(super) fn run(&self, at: &PlacedStep<'_>, tid: Tid, tally: &mut Tally) {
        let cpu = self.running_on(tid, at.from, at.step.cpu);
        for segment in self.timeline.slice(cpu, at.from, at.to) {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (Activity::Thread(running), _) if running == tid => {
                    let (kind, actor) = self.work_of(at, tid);
                    tally.add(kind, actor, ns);
                }
                (_, Some((kind, actor))) => tally.add(kind, actor, ns),
                _ => tally.unknown(Self::not_recorded(cpu, &segment), ns),
            }
        }
    }

    /// A CPU that could not be had: the thread that was current had it, but for the handlers that came in between. Where interrupts were kept out
    /// and the thread was not in the kernel, nobody there did that.
    fn section(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        let cpu = at.step.cpu;
        let in_kernel = at.late.section.as_ref().is_some_and(|section| !section.stack.is_empty());
        let is_known = in_kernel || at.step.kind == StepKind::NotPreempted;
        for segment in self.timeline.slice(cpu, at.from, at.to) {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (_, Some((kind, actor))) => tally.add(kind, actor, ns),
                (Activity::Thread(tid), _) if is_known => {
                    tally.add(CauseKind::BlockingThread, Some(self.thread_actor(tid, segment.from)), ns);
                }
                (Activity::Thread(tid), _) => {
                    let current = self.thread_actor(tid, segment.from);
                    tally.unknown(Note::NotTaken { cpu, current, time_ns: ns }, ns);
                }
                _ => tally.unknown(Self::not_recorded(cpu, &segment), ns),
            }
        }
    }

    /// A thread waits for a CPU, on one run queue after another.
    pub(super) fn wait(
        &self,
        at: &PlacedStep<'_>,
        tid: Tid,
        stays: &[Stay],
        first_blocks: bool,
        tally: &mut Tally,
    ) {
        for stay in stays {
            match stay.cpu {
                Some(cpu) => {
                    let wait = Wait { server: Some(tid), first_blocks };
                    self.wait_on(at, cpu, (stay.from, stay.to), wait, tally);
                }
                None => {
                    let ns = stay.to.since(stay.from.max(at.from));
                    if ns > 0 {
                        tally.unknown(Note::PlaceUnknown, ns);
                    }
                }
            }
        }
    }

    fn wait_on(
        &self,
        at: &PlacedStep<'_>,
        cpu: CpuId,
        (from, to): (MonotonicNs, MonotonicNs),
        wait: Wait,
        tally: &mut Tally,
    ) {
        let segments = self.timeline.slice(cpu, from, to);
        let first = segments.first().and_then(|segment| segment.thread);
        let mut blocking = first.filter(|_| wait.first_blocks);
        // Idle when the wait began: it comes back. Idle later on, with a runnable task: the scheduler would not let it run.
        let mut may_come_back = true;
        for segment in &segments {
            may_come_back &= segment.thread == Some(Tid(0));
            if segment.thread != blocking {
                blocking = None; // It has been switched out; should it come back, it was scheduled to.
            }
            // The wait for the CPU may have begun before the step.
            let ns = segment.to.since(segment.from.max(at.from));
            if ns == 0 {
                continue;
            }
            match (segment.what, self.interference(segment.what)) {
                (_, Some((kind, actor))) => tally.add(kind, actor, ns),
                (Activity::Thread(tid), _) if wait.server == Some(tid) => {
                    let (kind, actor) = self.work_of(at, tid);
                    tally.add(kind, actor, ns);
                }
                (Activity::Thread(tid), _) => {
                    let blocks = blocking == Some(tid);
                    let kind = if blocks { CauseKind::BlockingThread } else { CauseKind::ThreadInterference };
                    tally.add(kind, Some(self.thread_actor(tid, segment.from)), ns);
                }
                // A wakeup by IPI can also find a CPU that has just gone idle; that does not take long.
                (Activity::Idle, _) if wait.first_blocks && (may_come_back || ns < HELD_BACK_NS) => {
                    tally.add(CauseKind::ExitFromIdle, None, ns);
                }
                (Activity::Idle, _) => tally.unknown(Note::HeldBack { cpu, time_ns: ns }, ns),
                _ => tally.unknown(Self::not_recorded(cpu, segment), ns),
            }
        }
    }
}

/// Idle for longer than this with a runnable task is not an exit from idle.
const HELD_BACK_NS: u64 = 1_000_000;

/// The thread that waits for a CPU, and how the thread that holds it is classified.
#[derive(Clone, Copy)]
struct Wait {
    /// The thread that waits (or serves what waits): its own time on the CPU is not interference.
    server: Option<Tid>,
    /// The thread that is current when the wait begins blocks until the scheduler has had a chance.
    first_blocks: bool,
}

fn is_hard(what: Activity) -> bool {
    matches!(what, Activity::Nmi | Activity::Irq(_) | Activity::Vector(_))
}
