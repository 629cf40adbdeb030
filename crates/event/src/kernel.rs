// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the built-in kernel events (`table`) are made of.

use crate::{CpuId, EventKind, MonotonicNs};
use serde::{Deserialize, Serialize};

/// One event on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub time: MonotonicNs,
    /// The CPU that recorded it.
    pub cpu: CpuId,
    /// What happened.
    pub kind: EventKind,
}

/// `task->__state` at a switch, as the tracepoint got it (low bits of the kernel's `TASK_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskState(pub u32);

impl TaskState {
    /// Bits of the kernel's `TASK_INTERRUPTIBLE`.
    const INTERRUPTIBLE: u32 = 1;

    /// A signal would wake the task: it waits for input or time, not for a disk.
    #[must_use]
    pub fn is_interruptible(self) -> bool {
        self.0 & TaskState::INTERRUPTIBLE != 0
    }

    /// `TASK_RUNNING`
    pub const RUNNABLE: TaskState = TaskState(0);
    /// `EXIT_DEAD | EXIT_ZOMBIE | TASK_DEAD`: the task is switched out for the last time.
    const DEAD: u32 = 0x10 | 0x20 | 0x80;

    /// `TASK_RTLOCK_WAIT`: only PREEMPT_RT has it, since Linux 5.15.
    const RTLOCK_WAIT: u32 = 0x1000;

    /// True when the task is switched out for a spinlock, whatever else it waits for.
    #[must_use]
    pub fn waits_for_lock(self) -> bool {
        self.0 & Self::RTLOCK_WAIT != 0
    }

    /// The `prev_state` that Trace Compass interprets correctly: 0 runnable, 1 and 2 waiting, 64 gone. lttng-modules
    /// writes 256 for a preempted task, which it shows as unknown; the kernel's 64 (parked) it would show as gone.
    #[must_use]
    pub fn shown(self, preempt: bool) -> i64 {
        match self {
            _ if preempt => 0,
            TaskState::RUNNABLE => 0,
            state if state.is_dead() => 64,
            TaskState(bits) if bits & TaskState::INTERRUPTIBLE != 0 => 1,
            _ => 2,
        }
    }

    /// True when the task goes away with this switch.
    #[must_use]
    pub fn is_dead(self) -> bool {
        self.0 & Self::DEAD != 0
    }
}

/// Vectors, each with the stem of its tracepoints and what is lost where the kernel does not have them.
macro_rules! vectors {
    ($($(#[$doc:meta])* $vector:ident $stem:literal $lost:ident,)*) => {
        /// The x86 system vectors that have tracepoints of their own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum VectorKind {
            $($(#[$doc])* $vector,)*
        }

        impl VectorKind {
            /// Every kind, in the order of `enum rts_vector_kind` (which starts at 1).
            pub const ALL: [VectorKind; [$($stem),*].len()] = [$(VectorKind::$vector),*];

            /// The stem of its tracepoints: `local_timer` for `local_timer_entry` and `local_timer_exit`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(VectorKind::$vector => $stem,)* }
            }

            /// The two tracepoints, and what is lost without them.
            pub(crate) const fn tracepoints(self) -> ([&'static str; 2], &'static str) {
                match self {
                    $(VectorKind::$vector => ([concat!($stem, "_entry"), concat!($stem, "_exit")], $lost),)*
                }
            }

            /// Their names in traces.
            pub(crate) const fn in_traces(self) -> [&'static str; 2] {
                match self {
                    $(VectorKind::$vector => {
                        [concat!("x86_irq_vectors_", $stem, "_entry"), concat!("x86_irq_vectors_", $stem, "_exit")]
                    })*
                }
            }
        }
    };
}

const LOST: &str = "this vector's time is seen as the time of what it interrupted";
const LOST_TIMER: &str =
    "the timer interrupt itself is not seen; timers are still followed from their handlers";

vectors! {
    /// The local APIC timer.
    LocalTimer "local_timer" LOST_TIMER,
    /// Reschedule IPI.
    Reschedule "reschedule" LOST,
    /// Function call IPI to several CPUs.
    CallFunction "call_function" LOST,
    /// Function call IPI to one CPU.
    CallFunctionSingle "call_function_single" LOST,
    /// Self-IPI that runs `irq_work`.
    IrqWork "irq_work" LOST,
    /// Thermal event.
    Thermal "thermal_apic" LOST,
    /// Machine-check threshold.
    Threshold "threshold_apic" LOST,
    /// Deferred machine-check error.
    DeferredError "deferred_error_apic" LOST,
    /// APIC error.
    Error "error_apic" LOST,
    /// Spurious interrupt.
    Spurious "spurious_apic" LOST,
    /// Platform IPI.
    PlatformIpi "x86_platform_ipi" LOST,
}

impl VectorKind {
    /// The number in `enum rts_vector_kind`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The kind with this number in `enum rts_vector_kind`.
    #[must_use]
    pub fn from_number(number: u32) -> Option<VectorKind> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// The name of vector kind number `id` as steps and origins carry it.
#[must_use]
pub fn step_vector_name(id: u32) -> &'static str {
    VectorKind::from_number(id).map_or("unknown vector", VectorKind::name)
}

/// Softirq vectors by number, in the words of `/proc/softirqs`.
#[must_use]
pub fn softirq_name(vec: u32) -> &'static str {
    const NAMES: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    NAMES.get(vec as usize).copied().unwrap_or("UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_task_is_shown_as_runnable() {
        assert_eq!(TaskState(1).shown(true), 0);
        assert_eq!(TaskState(0).shown(false), 0);
        assert_eq!(TaskState(1).shown(false), 1);
        assert_eq!(TaskState(0x402).shown(false), 2);
        assert_eq!(TaskState(0x40).shown(false), 2);
        assert_eq!(TaskState(0x80).shown(false), 64);
    }
}
