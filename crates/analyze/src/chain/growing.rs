// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A chain that still grows, held by value by a task, a pending softirq or a pending IPI.
//!
//! Its size is bounded as it is in the kernel: [`MAX_STEPS`] steps and [`MAX_OTHERS`] other origins.

use rtscope_event::{Chain, CpuId, MonotonicNs, Origin, OtherOrigin, Step, StepKind, WaitKind};

/// Steps before a chain is folded.
pub(super) const MAX_STEPS: usize = 12;
/// Origins listed beside a chain's own.
pub(super) const MAX_OTHERS: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct GrowingChain {
    chain: Chain,
    /// The origin's time plus the sum of the steps.
    last: MonotonicNs,
}

impl GrowingChain {
    pub(super) fn begin(origin: Origin) -> GrowingChain {
        let chain = Chain { origin, steps: Vec::new(), merged: 0, others: Vec::new(), busy: false };
        GrowingChain { chain, last: origin.time_ns }
    }

    pub(super) fn last(&self) -> MonotonicNs {
        self.last
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.chain.origin
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.chain.steps
    }

    /// Both began with the same interrupt or timer.
    pub(super) fn same_origin(&self, other: &GrowingChain) -> bool {
        let origin = |growing: &GrowingChain| {
            let Origin { kind, id, time_ns, .. } = growing.chain.origin;
            (kind, id, time_ns)
        };
        origin(self) == origin(other)
    }

    pub(super) fn is_full(&self) -> bool {
        self.chain.steps.len() >= MAX_STEPS
    }

    pub(super) fn is_busy(&self) -> bool {
        self.chain.busy
    }

    pub(super) fn set_busy(&mut self, busy: bool) {
        self.chain.busy = busy;
    }

    /// The wakeup that seemed to meet a busy task was an ordinary one: its step is removed.
    pub(super) fn not_busy(&mut self) {
        self.chain.busy = false;
        if self.chain.steps.last().is_some_and(|step| step.kind == StepKind::Busy) {
            self.chain.steps.pop();
        }
    }

    /// Pushes a step that ends at `t`. True when this is the step that folds the chain.
    pub(super) fn push(&mut self, kind: StepKind, id: u32, cpu: CpuId, t: MonotonicNs) -> bool {
        let duration_ns = t.since(self.last);
        self.last = self.last.plus(duration_ns);
        let full = self.chain.steps.len() >= MAX_STEPS;
        match self.chain.steps.last_mut() {
            Some(entry) if full => {
                let first_fold = entry.kind != StepKind::More;
                entry.id = if first_fold { 2 } else { entry.id.saturating_add(1) };
                entry.kind = StepKind::More;
                entry.wait = WaitKind::None;
                entry.cpu = cpu;
                entry.duration_ns += duration_ns;
                first_fold
            }
            _ => {
                self.chain.steps.push(Step { kind, id, cpu, duration_ns, wait: WaitKind::None });
                false
            }
        }
    }

    /// The same for a wait in the middle of a cycle.
    pub(super) fn push_wait(&mut self, wait: WaitKind, waker: u32, cpu: CpuId, t: MonotonicNs) -> bool {
        let full = self.is_full();
        let folds = self.push(StepKind::Wait, waker, cpu, t);
        if let Some(step) = self.chain.steps.last_mut().filter(|_| !full) {
            step.wait = wait;
        }
        folds
    }

    /// It came by way of another task.
    pub(super) fn came_by_a_task(&self) -> bool {
        self.chain.steps.iter().any(|step| step.kind == StepKind::Run)
    }

    /// Merges another chain that waits for the same thing. Nothing to do when it has the same origin.
    pub(super) fn merge(&mut self, mut other: GrowingChain) {
        let origin = |growing: &GrowingChain| {
            let Origin { kind, id, time_ns, .. } = growing.chain.origin;
            OtherOrigin { kind, id, time_ns }
        };
        if origin(self) == origin(&other) {
            return;
        }
        if other.chain.origin.time_ns < self.chain.origin.time_ns {
            std::mem::swap(self, &mut other);
        }
        self.chain.merged += 1;
        if self.chain.others.len() < MAX_OTHERS {
            self.chain.others.push(origin(&other));
        }
    }

    pub(super) fn finish(self) -> Chain {
        self.chain
    }
}
