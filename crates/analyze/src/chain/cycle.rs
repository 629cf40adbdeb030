// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cycles: from the waking by a source (a timer, an interrupt, a task) until the thread waits for that source again. What it waits
//! for in between are steps.
//!
//! Two waits are for the same source when they are of one kind (`WaitKind`: the system call), on the same descriptor or address where it
//! has one, and a signal would end both. So a mutex, a page fault and a disk never end a cycle, and its end is known at the moment at which it happens.

use super::config::EndCondition;
use super::growing::GrowingChain;
use super::state::{Link, Sched, Wait};
use super::tracker::{Response, Tracker};
use rtscope_event::{CpuId, End, MonotonicNs, OriginKind, StepKind, Tid, WaitKind};

/// Of waits that could have begun a cycle themselves, no more than this are in one (`CYCLE_INNER_MAX` in the eBPF).
const INNER_MAX: u32 = 64;

impl Tracker {
    /// A task whose responses are cycles.
    pub(super) fn is_cyclic(&self, tid: Tid) -> bool {
        self.config.end == EndCondition::Cycle && self.is_target(tid)
    }

    /// Whether a waking with this chain begins a cycle of a task that had waited so: by an origin that counts, and by its own timer,
    /// unless other tasks count as well.
    pub(super) fn begins_cycle(&self, chain: &GrowingChain, wait: Wait) -> bool {
        wait.interruptible
            && self.config.sources.contains(&wait.kind)
            && self.config.origins.accepts(chain.origin())
            && (chain.origin().kind != OriginKind::Timer
                || self.config.origins.has_tasks()
                || !chain.came_by_a_task())
    }

    /// Blocked in its cycle: the end, or a step.
    pub(super) fn block_in_cycle(
        &mut self,
        tid: Tid,
        mut chain: GrowingChain,
        at: MonotonicNs,
        cpu: CpuId,
        out: &mut dyn FnMut(Response),
    ) -> Link {
        self.push(&mut chain, StepKind::Run, tid.0, cpu, at);
        chain.set_busy(false);
        let task = self.tasks.entry(tid).or_default();
        if task.wait == task.source {
            self.complete(tid, End::Cycle, cpu, chain, out);
            return Link::None;
        }
        Link::Waiting(chain)
    }

    /// Whether a wait in the middle of a cycle ends that cycle unmeasured. A program sleeps once before it begins to work, and that sleep
    /// does not come back: all that it waits for then would be steps.
    pub(super) fn gives_up_cycle(&mut self, tid: Tid, context: Option<&GrowingChain>) -> bool {
        let wait = self.tasks.entry(tid).or_default().wait;
        if !context.is_some_and(|chain| self.begins_cycle(chain, wait)) {
            return false;
        }
        let task = self.tasks.entry(tid).or_default();
        task.inner += 1;
        let gives_up = task.inner >= INNER_MAX;
        self.counters.abandoned += u64::from(gives_up);
        gives_up
    }

    /// Woken (or seen to run) in the middle of its cycle.
    pub(super) fn end_wait(
        &mut self,
        tid: Tid,
        mut chain: GrowingChain,
        cpu: CpuId,
        t: MonotonicNs,
        woken: bool,
    ) -> Link {
        let slots = self.cpus.entry(cpu).or_default();
        let current = slots.current.unwrap_or_default();
        let waker = if !woken || slots.is_in_interrupt() { Tid(0) } else { current };
        let wait = self.tasks.entry(tid).or_default().wait.kind;
        self.counters.folded += u64::from(chain.push_wait(wait, waker.0, cpu, t));
        Link::Waking(chain)
    }

    /// A wakeup that meets a task in the middle of its cycle, which has declared this wait and has not left. For its source: one cycle
    /// is over, and perhaps the next begins. For anything else nothing happens, as it has not waited. False when it is
    /// in no cycle.
    pub(super) fn wake_in_cycle(
        &mut self,
        cpu: CpuId,
        t: MonotonicNs,
        tid: Tid,
        kind: WaitKind,
        out: &mut dyn FnMut(Response),
    ) -> bool {
        let Some(task) = self.tasks.get_mut(&tid) else { return false };
        let (running, source) = (task.sched == Sched::Running, task.source);
        let in_cycle =
            matches!(task.link, Link::Running(_) | Link::Preempted(_)) && task.sched != Sched::Locked;
        if !in_cycle || !self.is_cyclic(tid) {
            return false;
        }
        // The record of a waking has no other ones.
        let wait = Wait { kind, interruptible: true, on: 0 };
        if kind == source.kind && kind != WaitKind::None {
            let context = self.context(cpu, t).filter(|chain| self.begins_cycle(chain, wait));
            let is_self = self.cpus.entry(cpu).or_default().current == Some(tid);
            self.counters.busy += u64::from(!is_self);
            let task = self.tasks.entry(tid).or_default();
            let (step, mut chain) = match std::mem::take(&mut task.link) {
                Link::Running(chain) => (StepKind::Run, chain),
                Link::Preempted(chain) => (StepKind::Preempted, chain),
                _ => return true,
            };
            self.push(&mut chain, step, tid.0, cpu, t);
            self.complete(tid, End::Rewoken, cpu, chain, out);
            if let Some(mut next) = context {
                self.push(&mut next, StepKind::Busy, tid.0, cpu, t);
                next.set_busy(!is_self);
                let link = if running { Link::Running(next) } else { Link::Preempted(next) };
                let task = self.tasks.entry(tid).or_default();
                (task.link, task.inner) = (link, 0);
            }
        }
        self.cpus.entry(cpu).or_default().end_linger();
        true
    }
}
