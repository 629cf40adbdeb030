// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which chain does the code that runs on a CPU belong to? Asked by every raise, IPI, wakeup and queueing of work.

use super::growing::GrowingChain;
use super::state::{HrtimerSlot, Link};
use super::tracker::Tracker;
use rtscope_event::{CpuId, MonotonicNs, Origin, OriginKind, StepKind, Tid};

/// Steps that a timer takes over from the softirq that serves it: from the interrupt to the entry of the softirq.
const DELIVERY_STEPS: usize = 4;

impl Tracker {
    /// The chain that what runs on `cpu` at `t` belongs to, innermost context first.
    pub(super) fn context(&mut self, cpu: CpuId, t: MonotonicNs) -> Option<GrowingChain> {
        let slots = self.cpus.entry(cpu).or_default();
        let hrtimer = slots.hrtimer.map(|slot| slot.entry);
        let irq = slots.irq.map(|slot| slot.entry);
        let vector = slots.vector.as_ref().map(|slot| slot.entry);
        if hrtimer.is_some() && hrtimer >= irq && hrtimer >= vector {
            return self.hrtimer_context(cpu, t);
        }
        if let Some(slot) = slots.irq.filter(|_| irq >= vector) {
            let origin = Origin { kind: OriginKind::Irq, id: slot.irq.0, cpu, time_ns: slot.entry };
            return Some(self.handler(GrowingChain::begin(origin), slot.irq.0, cpu, t));
        }
        if let Some(slot) = &slots.vector {
            let id = slot.kind.number();
            let origin = Origin { kind: OriginKind::Vector, id, cpu, time_ns: slot.entry };
            return match slot.chain.clone() {
                Some(chain) => self.pass_on(chain, StepKind::Handler, id, cpu, t),
                None => Some(self.handler(GrowingChain::begin(origin), id, cpu, t)),
            };
        }
        let current = slots.current;
        if let Some(slot) = slots.current_softirq() {
            let (vec, chain, hrtimer) = (slot.vec, slot.chain.clone(), slot.hrtimer);
            return match hrtimer {
                Some(timer) => Some(self.soft_hrtimer(timer, vec, chain, cpu, t)),
                None => self.pass_on(chain?, StepKind::Softirq, vec, cpu, t),
            };
        }
        let current = current?;
        let running = self.tasks.get(&current).is_some_and(|task| matches!(task.link, Link::Running(_)));
        if running && current != Tid(0) && !self.is_target(current) {
            return self.task_context(current, cpu, t);
        }
        self.begin_with_task(current, cpu, t)
    }

    fn handler(&mut self, mut chain: GrowingChain, id: u32, cpu: CpuId, t: MonotonicNs) -> GrowingChain {
        self.push(&mut chain, StepKind::Handler, id, cpu, t);
        chain
    }

    /// The beginning of a timer's chain: what the program asked for, and the slack; and when it expired.
    fn begin_timer(&mut self, slot: HrtimerSlot, cpu: CpuId) -> (GrowingChain, MonotonicNs) {
        let handler = slot.entry;
        let asked = u64::try_from(slot.softexpires).ok().filter(|ns| (1..=handler.0).contains(ns));
        let origin_ns = asked.map_or(handler, MonotonicNs);
        let expires = MonotonicNs(u64::try_from(slot.expires).unwrap_or(0)).max(origin_ns).min(handler);
        let mut chain =
            GrowingChain::begin(Origin { kind: OriginKind::Timer, id: 0, cpu, time_ns: origin_ns });
        if expires > origin_ns {
            self.push(&mut chain, StepKind::TimerSlack, 0, cpu, expires);
        }
        (chain, expires)
    }

    /// A handler that runs in the timer's interrupt.
    fn hrtimer_context(&mut self, cpu: CpuId, t: MonotonicNs) -> Option<GrowingChain> {
        let slots = self.cpus.get(&cpu)?;
        let slot = slots.hrtimer?;
        let in_irq = slots.irq.filter(|slot| !slot.linger).map(|slot| slot.entry);
        let interrupt = slots.vector.as_ref().map(|slot| slot.entry).or(in_irq).unwrap_or(slot.entry);
        let (mut chain, expires) = self.begin_timer(slot, cpu);
        if interrupt > expires {
            self.push(&mut chain, StepKind::TimerLateness, 0, cpu, interrupt);
            self.push(&mut chain, StepKind::TimerInterrupt, 0, cpu, slot.entry);
        } else {
            self.push(&mut chain, StepKind::TimerLateness, 0, cpu, slot.entry);
        }
        Some(self.handler(chain, 0, cpu, t))
    }

    /// A handler that runs in a softirq. When an interrupt that came after the timer had expired raised that softirq, the
    /// way from there to the softirq is the timer's too.
    fn soft_hrtimer(
        &mut self,
        slot: HrtimerSlot,
        vec: u32,
        softirq: Option<GrowingChain>,
        cpu: CpuId,
        t: MonotonicNs,
    ) -> GrowingChain {
        let (mut chain, expires) = self.begin_timer(slot, cpu);
        let delivers = |by: &GrowingChain| {
            let origin = by.origin();
            origin.kind != OriginKind::Timer
                && origin.time_ns >= expires
                && by.steps().len() <= DELIVERY_STEPS
        };
        match softirq.filter(delivers) {
            Some(by) => {
                self.push(&mut chain, StepKind::TimerLateness, 0, cpu, by.origin().time_ns);
                for step in by.steps() {
                    let end = chain.last().plus(step.duration_ns);
                    self.push(&mut chain, step.kind, step.id, step.cpu, end);
                }
                self.push(&mut chain, StepKind::Softirq, vec, cpu, slot.entry);
            }
            None => self.push(&mut chain, StepKind::TimerLateness, 0, cpu, slot.entry),
        }
        self.handler(chain, 0, cpu, t)
    }

    fn task_context(&mut self, tid: Tid, cpu: CpuId, t: MonotonicNs) -> Option<GrowingChain> {
        // What a target wakes are responses to it, not to the interrupt: it is not asked here.
        let Link::Running(chain) = &self.tasks.get(&tid)?.link else { return None };
        self.pass_on(chain.clone(), StepKind::Run, tid.0, cpu, t)
    }

    /// What a task wakes, raises or queues may begin with it.
    fn begin_with_task(&self, tid: Tid, cpu: CpuId, t: MonotonicNs) -> Option<GrowingChain> {
        let begins = self.config.origins.has_tasks() && tid != Tid(0);
        begins.then(|| GrowingChain::begin(Origin { kind: OriginKind::Task, id: tid.0, cpu, time_ns: t }))
    }

    /// A copy of a chain for a new branch, with the step it is in. One that is full goes no further: two tasks that wake
    /// each other for ever would carry it about for ever.
    fn pass_on(
        &mut self,
        mut copy: GrowingChain,
        kind: StepKind,
        id: u32,
        cpu: CpuId,
        t: MonotonicNs,
    ) -> Option<GrowingChain> {
        if copy.is_full() {
            self.counters.too_long += 1;
            return None;
        }
        self.push(&mut copy, kind, id, cpu, t);
        copy.set_busy(false);
        Some(copy)
    }
}
