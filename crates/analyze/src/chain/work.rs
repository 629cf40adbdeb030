// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work items: a chain waits with the item until a worker begins with it, because the worker need not have been woken for
//! it.

use super::state::Link;
use super::tracker::Tracker;
use rtscope_event::{CpuId, MonotonicNs, StepKind, Tid};

impl Tracker {
    pub(super) fn work_queue(&mut self, cpu: CpuId, t: MonotonicNs, work: u64) {
        // What an earlier queueing left is not this one's: it was cancelled, or has begun and its event is still to come.
        self.works.remove(&work);
        if let Some(chain) = self.context(cpu, t) {
            self.works.insert(work, chain);
        }
    }

    /// The thread in which work begins or ends, when it passes chains on. Softirqs can run work too.
    fn worker(&mut self, cpu: CpuId) -> Option<Tid> {
        let slots = self.cpus.entry(cpu).or_default();
        if slots.in_interrupt() || slots.current_softirq().is_some() {
            return None;
        }
        slots.current.filter(|tid| *tid != Tid(0)).filter(|tid| !self.is_target(*tid))
    }

    pub(super) fn work_start(&mut self, cpu: CpuId, t: MonotonicNs, work: u64) {
        let item = self.works.remove(&work);
        let Some(tid) = self.worker(cpu) else { return };
        let link = &mut self.tasks.entry(tid).or_default().link;
        match (item, &*link) {
            // It was woken for this item: its own chain has come the same way, and knows the wakeup.
            (Some(item), Link::Running(chain)) if item.same_origin(chain) => {}
            (Some(mut item), _) => {
                self.push(&mut item, StepKind::WorkWait, tid.0, cpu, t);
                self.tasks.entry(tid).or_default().link = Link::Running(item);
            }
            (None, Link::Running(_)) => *link = Link::None,
            (None, _) => {}
        }
    }

    /// The chain was the item's, not the worker's.
    pub(super) fn work_end(&mut self, cpu: CpuId) {
        let Some(tid) = self.worker(cpu) else { return };
        let task = self.tasks.entry(tid).or_default();
        if matches!(task.link, Link::Running(_)) {
            task.link = Link::None;
        }
    }
}
