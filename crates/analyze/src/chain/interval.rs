// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trackers `wakeup` and `offcpu` as a pure state machine: the twin of `trackers/interval.bpf.h` and its neighbours.
//!
//! What a CPU is in, and whether a task runs, is asked of the response tracker's twin, which follows the same events.

use super::config::{Config, Target};
use super::growing::GrowingChain;
use super::state::Sched;
use super::tracker::{Response, Tracker as Responses};
use rtscope_event::{
    CpuId, End, Event, EventKind, MonotonicNs, Origin, OriginKind, StepKind, TaskState, Tid, Tracker,
    WaitKind,
};
use std::collections::HashMap;

/// Follows intervals of one tracker.
#[derive(Debug)]
pub struct Intervals {
    /// Contexts and tasks.
    pub(super) around: Responses,
    tracker: Tracker,
    threshold_ns: u64,
    tasks: HashMap<Tid, Interval>,
}

/// What is under way in a task.
#[derive(Debug, Default)]
struct Interval {
    link: Link,
    wait: WaitKind,
    /// A waking since it came, before it left its CPU: who.
    woken: Option<Origin>,
}

#[derive(Debug, Default)]
enum Link {
    #[default]
    None,
    Waiting(GrowingChain),
    Waking(GrowingChain),
    Preempted(GrowingChain),
    /// Woken before it left its CPU, it seems: by this one.
    Early(GrowingChain, Origin),
}

impl Intervals {
    /// For these tasks. Of a tracker that is none of intervals nothing is found.
    #[must_use]
    pub fn new(tracker: Tracker, target: Target, threshold_ns: u64) -> Intervals {
        let mut config = Config::new(threshold_ns);
        config.target = target;
        Intervals { around: Responses::new(config), tracker, threshold_ns, tasks: HashMap::new() }
    }

    /// Takes in one event; `out` gets what ends with it. Events must come in time order.
    pub fn feed(&mut self, event: &Event, out: &mut dyn FnMut(Response)) {
        let (cpu, t) = (event.cpu, event.time);
        match event.kind {
            EventKind::SchedWaking { tid, kthread, .. } | EventKind::SchedWakeupNew { tid, kthread, .. } => {
                self.around.prime_task(tid, None, None, Some(kthread));
                self.waking(cpu, t, tid);
            }
            EventKind::SchedSwitch { prev_tid, prev_state, preempt, next_tid, prev_wait, .. } => {
                let locked = !preempt && prev_state.waits_for_lock();
                let blocked = !preempt && prev_state != TaskState::RUNNABLE && !locked;
                if blocked && prev_state.is_dead() {
                    self.tasks.remove(&prev_tid);
                } else if prev_tid != Tid(0) && self.around.is_target(prev_tid) {
                    self.leave(cpu, t, prev_tid, blocked, prev_wait);
                }
                if next_tid != Tid(0) && self.around.is_target(next_tid) {
                    self.arrive(cpu, t, next_tid, out);
                }
            }
            EventKind::ProcessFork { child_tid, .. } => drop(self.tasks.remove(&child_tid)),
            _ => {}
        }
        self.around.feed(event, &mut |_| {});
    }

    /// Who wakes, here and now.
    fn waker(&mut self, cpu: CpuId, t: MonotonicNs) -> Origin {
        let slots = self.around.cpus.entry(cpu).or_default();
        let softirq = slots.current_softirq().map(|softirq| (softirq.vec, softirq.hrtimer.is_some()));
        let (kind, id) = match (slots.hrtimer.is_some(), softirq, slots.irq, &slots.vector) {
            (true, ..) | (_, Some((_, true)), ..) => (OriginKind::Timer, 0),
            (_, _, Some(irq), _) => (OriginKind::Irq, irq.irq.0),
            (.., Some(vector)) => (OriginKind::Vector, vector.kind.number()),
            (_, Some((vec, _)), ..) => (OriginKind::Softirq, vec),
            _ => (OriginKind::Task, slots.current.unwrap_or_default().0),
        };
        Origin { kind, id, cpu, time_ns: t }
    }

    fn waking(&mut self, cpu: CpuId, t: MonotonicNs, tid: Tid) {
        let current = self.around.cpus.entry(cpu).or_default().current;
        let sched = self.around.tasks.get(&tid).map_or(Sched::Unknown, |task| task.sched);
        if tid == Tid(0) || current == Some(tid) || sched == Sched::Locked || !self.around.is_target(tid) {
            return;
        }
        let by = self.waker(cpu, t);
        let task = self.tasks.entry(tid).or_default();
        if !sched.waits() {
            task.woken = Some(by);
            if self.tracker == Tracker::Wakeup {
                task.link = Link::None;
            }
            return;
        }
        task.link = match (self.tracker, std::mem::take(&mut task.link)) {
            (Tracker::Wakeup, _) => {
                task.woken = None;
                Link::Waking(GrowingChain::begin(by))
            }
            (_, Link::Waiting(mut chain) | Link::Early(mut chain, _)) => {
                chain.push_wait(task.wait, waker_tid(by), cpu, t);
                Link::Waking(chain)
            }
            (_, link) => link,
        };
    }

    fn leave(&mut self, cpu: CpuId, t: MonotonicNs, tid: Tid, blocked: bool, wait: WaitKind) {
        let task = self.tasks.entry(tid).or_default();
        let woken = task.woken.take().filter(|_| blocked);
        task.wait = wait;
        task.link = match (self.tracker, woken) {
            // It waits for a CPU from now on.
            (Tracker::Wakeup, Some(by)) => Link::Early(GrowingChain::begin(Origin { time_ns: t, ..by }), by),
            (Tracker::Wakeup, None) => Link::None,
            (_, woken) => {
                let left = Origin { kind: OriginKind::OffCpu, id: tid.0, cpu, time_ns: t };
                let chain = GrowingChain::begin(left);
                match woken {
                    _ if !blocked => Link::Preempted(chain),
                    Some(by) => Link::Early(chain, by),
                    None => Link::Waiting(chain),
                }
            }
        };
    }

    fn arrive(&mut self, cpu: CpuId, t: MonotonicNs, tid: Tid, out: &mut dyn FnMut(Response)) {
        let locked = self.around.tasks.get(&tid).is_some_and(|task| task.sched == Sched::Locked);
        let task = self.tasks.entry(tid).or_default();
        let (mut chain, step) = match std::mem::take(&mut task.link) {
            Link::None => return,
            Link::Waking(chain) => (chain, StepKind::Wakeup),
            Link::Preempted(chain) => (chain, if locked { StepKind::LockWait } else { StepKind::Preempted }),
            // Its waking was not seen.
            Link::Waiting(mut chain) => {
                chain.push_wait(task.wait, 0, cpu, t);
                (chain, StepKind::Wakeup)
            }
            Link::Early(mut chain, by) => {
                if self.tracker == Tracker::Offcpu {
                    let left = chain.last();
                    chain.push_wait(task.wait, waker_tid(by), cpu, left);
                }
                (chain, StepKind::Wakeup)
            }
        };
        chain.push(step, tid.0, cpu, t);
        let (end_ns, chain) = (chain.last(), chain.finish());
        let late = chain.duration_ns() > self.threshold_ns;
        out(Response { tid, end: End::Running, end_ns, cpu, late, chain });
    }
}

/// A task that ended a wait; 0: no task did.
fn waker_tid(by: Origin) -> u32 {
    if by.kind == OriginKind::Task { by.id } else { 0 }
}
