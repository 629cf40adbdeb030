// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that the rules name: slots of a CPU and of a task.

use super::growing::GrowingChain;
use rtscope_event::{Comm, CpuId, Irq, MonotonicNs, Pid, TaskState, Tid, VectorKind, WaitKind};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub(super) struct IrqSlot {
    pub(super) irq: Irq,
    pub(super) entry: MonotonicNs,
    /// The handler is over, but what it asked for (waking its thread) comes after its exit.
    pub(super) linger: bool,
}

#[derive(Clone, Debug)]
pub(super) struct VectorSlot {
    pub(super) kind: VectorKind,
    pub(super) entry: MonotonicNs,
    pub(super) chain: Option<GrowingChain>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HrtimerSlot {
    pub(super) softexpires: i64,
    pub(super) expires: i64,
    pub(super) entry: MonotonicNs,
}

#[derive(Clone, Debug)]
pub(super) struct SoftirqSlot {
    pub(super) vec: u32,
    /// The thread that runs it; `None` while no event has shown which task is current.
    pub(super) tid: Option<Tid>,
    pub(super) chain: Option<GrowingChain>,
    /// The timer whose handler it runs.
    pub(super) hrtimer: Option<HrtimerSlot>,
}

/// Softirqs that can be open on a CPU at once. Without PREEMPT_RT it is one.
pub(super) const SOFTIRQ_SLOTS: usize = 4;

/// A softirq that was raised and not yet entered; it may have a chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Raise {
    pub(super) chain: Option<GrowingChain>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    pub(super) irq: Option<IrqSlot>,
    pub(super) vector: Option<VectorSlot>,
    pub(super) hrtimer: Option<HrtimerSlot>,
    /// One for each thread that runs one, at most [`SOFTIRQ_SLOTS`].
    pub(super) softirqs: Vec<SoftirqSlot>,
    pub(super) raises: BTreeMap<u32, Raise>,
    pub(super) ipi_call: Option<GrowingChain>,
    pub(super) ipi_reschedule: Option<GrowingChain>,
    /// `None` until an event has shown it.
    pub(super) current: Option<Tid>,
}

impl Cpu {
    pub(super) fn end_linger(&mut self) {
        if self.irq.is_some_and(|slot| slot.linger) {
            self.irq = None;
        }
    }

    /// What runs now is an interrupt, a softirq, or the thread that an interrupt's end wakes: not the current task itself.
    pub(super) fn is_in_interrupt(&mut self) -> bool {
        self.irq.is_some()
            || self.vector.is_some()
            || self.hrtimer.is_some()
            || self.current_softirq().is_some()
    }

    /// Code that runs now runs in an interrupt.
    pub(super) fn in_interrupt(&self) -> bool {
        self.irq.is_some_and(|slot| !slot.linger) || self.vector.is_some()
    }

    /// The softirq that the current task is in.
    pub(super) fn current_softirq(&mut self) -> Option<&mut SoftirqSlot> {
        let current = self.current;
        self.softirqs.iter_mut().find(|slot| slot.tid == current)
    }

    /// The pending chain of the IPI class that `kind` delivers.
    pub(super) fn ipi_of(&mut self, kind: VectorKind) -> Option<GrowingChain> {
        match kind {
            VectorKind::CallFunction | VectorKind::CallFunctionSingle => self.ipi_call.take(),
            VectorKind::Reschedule => self.ipi_reschedule.take(),
            _ => None,
        }
    }
}

/// What the last `sched_switch` said about a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sched {
    #[default]
    Unknown,
    Running,
    Runnable,
    Blocked,
    /// Switched out for a spinlock, which sleeps on PREEMPT_RT.
    Locked,
}

impl Sched {
    /// A wakeup finds the task waiting, as far as we know.
    pub(super) fn waits(self) -> bool {
        matches!(self, Sched::Unknown | Sched::Blocked)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) enum Link {
    #[default]
    None,
    Waking(GrowingChain),
    Running(GrowingChain),
    Preempted(GrowingChain),
    /// Blocked at `at` on `cpu` while its last wakeup was busy. The run step is not pushed yet: the next wakeup
    /// confirms it, a switch-in without one takes it back.
    Ended {
        chain: GrowingChain,
        at: MonotonicNs,
        cpu: CpuId,
    },
    /// Blocked in the middle of its cycle.
    Waiting(GrowingChain),
}

/// For what a task waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) kind: WaitKind,
    /// A signal would end it: a wait for input or time. Those for a disk are not.
    pub(super) interruptible: bool,
    /// On what, where that is known: a descriptor, an address.
    pub(super) on: u32,
}

impl Wait {
    pub(super) fn of(kind: WaitKind, state: TaskState, on: u32) -> Wait {
        Wait { kind, interruptible: state.is_interruptible(), on }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) comm: Option<Comm>,
    pub(super) pid: Option<Pid>,
    pub(super) kthread: Option<bool>,
    pub(super) sched: Sched,
    pub(super) link: Link,
    /// The last wakeup had no chain and the task has not been switched in since.
    pub(super) unlinked: bool,
    /// For what it blocked the last time.
    pub(super) wait: Wait,
    /// The wait that its cycle began with.
    pub(super) source: Wait,
    /// Waits in its cycle that would each have begun one.
    pub(super) inner: u32,
}
