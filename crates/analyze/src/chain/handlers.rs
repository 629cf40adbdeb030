// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trackers `irq` and `softirq` as a pure state machine: the twin of `trackers/irq.bpf.h` and `trackers/softirq.bpf.h`.
//!
//! What a CPU is in, and who runs on it, is asked of the response tracker's twin, which follows the same events.

use super::config::{Config, Target};
use super::growing::GrowingChain;
use super::tracker::{Response, Tracker as Responses};
use rtscope_event::{
    CpuId, End, Event, EventKind, MonotonicNs, Origin, OriginKind, StepKind, TaskState, Tid, Tracker,
};
use std::collections::{HashMap, HashSet};

/// Follows handlers of interrupts, or softirqs.
#[derive(Debug)]
pub struct Handlers {
    /// Contexts and tasks.
    pub(super) around: Responses,
    tracker: Tracker,
    /// Only what interrupts such a task; `None`: all.
    is_targeted: bool,
    threshold_ns: u64,
    /// Raised and not yet entered, since when.
    raised: HashMap<(CpuId, u32), MonotonicNs>,
    /// Of these, those of the batch that runs.
    batch: HashSet<(CpuId, u32)>,
    /// Raised again before their turn in it.
    again: HashMap<(CpuId, u32), MonotonicNs>,
    /// By the thread that is current.
    softirqs: HashMap<(CpuId, Tid), Softirq>,
}

/// A softirq whose handler runs.
#[derive(Clone, Copy, Debug)]
struct Softirq {
    vec: u32,
    /// `None`: that was not seen.
    raised: Option<MonotonicNs>,
    entry: MonotonicNs,
}

impl Handlers {
    /// Those that interrupt a target, or all. Of a tracker that is none of a CPU's work nothing is found.
    #[must_use]
    pub fn new(tracker: Tracker, target: Option<Target>, threshold_ns: u64) -> Handlers {
        let mut config = Config::new(threshold_ns);
        let is_targeted = target.is_some();
        config.target = target.unwrap_or(Target::AnyUser);
        let around = Responses::new(config);
        Handlers {
            around,
            tracker,
            is_targeted,
            threshold_ns,
            raised: HashMap::new(),
            batch: HashSet::new(),
            again: HashMap::new(),
            softirqs: HashMap::new(),
        }
    }

    /// Takes in one event; `out` gets what ends with it. Events must come in time order.
    pub fn feed(&mut self, event: &Event, out: &mut dyn FnMut(Response)) {
        let (cpu, t) = (event.cpu, event.time);
        let current = self.around.cpus.entry(cpu).or_default().current.unwrap_or_default();
        let ended = match (self.tracker, &event.kind) {
            (Tracker::Irq, EventKind::IrqHandlerExit { irq, .. }) => {
                let entered = self.around.cpus.entry(cpu).or_default().irq;
                let entered = entered.filter(|slot| slot.irq == *irq && !slot.linger);
                entered.map(|slot| handled(OriginKind::Irq, irq.0, cpu, (slot.entry, t)))
            }
            (Tracker::Irq, EventKind::VectorExit { kind, .. }) => {
                let entered = self.around.cpus.entry(cpu).or_default().vector.as_ref();
                let entered = entered.filter(|slot| slot.kind == *kind).map(|slot| slot.entry);
                entered.map(|entry| handled(OriginKind::Vector, kind.number(), cpu, (entry, t)))
            }
            (Tracker::Softirq, kind) => self.softirq(cpu, t, current, kind),
            _ => None,
        };
        if let Some(chain) = ended.filter(|_| !self.is_targeted || self.around.is_target(current)) {
            let (end_ns, chain) = (chain.last(), chain.finish());
            let late = chain.duration_ns() > self.threshold_ns;
            out(Response { tid: current, end: End::Handled, end_ns, cpu, late, chain });
        }
        self.around.feed(event, &mut |_| {});
    }

    fn softirq(
        &mut self,
        cpu: CpuId,
        t: MonotonicNs,
        current: Tid,
        kind: &EventKind,
    ) -> Option<GrowingChain> {
        match *kind {
            EventKind::SoftirqRaise { vec } => {
                let raises =
                    if self.batch.contains(&(cpu, vec)) { &mut self.again } else { &mut self.raised };
                raises.entry((cpu, vec)).or_insert(t);
            }
            EventKind::SoftirqEntry { vec } => {
                let raised = self.served(cpu, vec);
                self.softirqs.insert((cpu, current), Softirq { vec, raised, entry: t });
            }
            EventKind::SoftirqExit { vec } => {
                let softirq = self.softirqs.remove(&(cpu, current))?;
                return (softirq.vec == vec).then(|| softirq_handled(softirq, cpu, t));
            }
            // No task waits inside a softirq.
            EventKind::SchedSwitch { prev_tid, prev_state, preempt, .. } => {
                let blocked = !preempt && prev_state != TaskState::RUNNABLE && !prev_state.waits_for_lock();
                if blocked || prev_tid == Tid(0) {
                    self.softirqs.remove(&(cpu, prev_tid));
                }
            }
            _ => {}
        }
        None
    }
}

impl Handlers {
    /// When the raise came that an entry answers. The kernel takes all that is raised as a batch, in which each comes once.
    fn served(&mut self, cpu: CpuId, vec: u32) -> Option<MonotonicNs> {
        if !self.batch.remove(&(cpu, vec)) {
            self.batch.retain(|(on, _)| *on != cpu);
            self.batch.extend(self.raised.keys().filter(|(on, other)| *on == cpu && *other != vec));
        }
        let raised = self.raised.remove(&(cpu, vec));
        if let Some(again) = self.again.remove(&(cpu, vec)) {
            self.raised.insert((cpu, vec), again);
        }
        raised
    }
}

fn handled(kind: OriginKind, id: u32, cpu: CpuId, (entry, t): (MonotonicNs, MonotonicNs)) -> GrowingChain {
    let mut chain = GrowingChain::begin(Origin { kind, id, cpu, time_ns: entry });
    chain.push(StepKind::Handler, id, cpu, t);
    chain
}

fn softirq_handled(softirq: Softirq, cpu: CpuId, t: MonotonicNs) -> GrowingChain {
    let Softirq { vec, raised, entry } = softirq;
    let time_ns = raised.unwrap_or(entry);
    let mut chain = GrowingChain::begin(Origin { kind: OriginKind::Softirq, id: vec, cpu, time_ns });
    if raised.is_some() {
        chain.push(StepKind::SoftirqWait, vec, cpu, entry);
    }
    chain.push(StepKind::Softirq, vec, cpu, t);
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::parse_event;

    #[test]
    fn a_softirq_that_is_raised_again_before_its_turn_comes_twice_and_waits_each_time() {
        let mut handlers = Handlers::new(Tracker::Softirq, None, 0);
        let mut found = Vec::new();
        for line in [
            "10 0 softirq_raise vec=1",
            "11 0 softirq_raise vec=3",
            "12 0 softirq_raise vec=3",
            "20 0 softirq_entry vec=1",
            "25 0 softirq_raise vec=3",
            "26 0 softirq_raise vec=1",
            "30 0 softirq_exit vec=1",
            "31 0 softirq_entry vec=3",
            "40 0 softirq_exit vec=3",
            "41 0 softirq_entry vec=1",
            "45 0 softirq_exit vec=1",
            "46 0 softirq_entry vec=3",
            "50 0 softirq_exit vec=3",
        ] {
            handlers.feed(&parse_event(line).unwrap(), &mut |response| {
                let steps: Vec<u64> = response.chain.steps.iter().map(|step| step.duration_ns).collect();
                found.push((response.chain.origin.id, response.chain.origin.time_ns.0, steps));
            });
        }
        assert_eq!(
            found,
            [(1, 10, vec![10, 10]), (3, 11, vec![20, 9]), (1, 26, vec![15, 4]), (3, 25, vec![21, 4])]
        );
    }
}
