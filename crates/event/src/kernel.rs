// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The built-in kernel events, one variant for each tracepoint (entry and exit are two).

use crate::names::Comm;
use crate::{CpuId, CpuMask, End, Irq, MonotonicNs, OriginKind, Pid, Priority, Tid};
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

    /// True when the task goes away with this switch.
    #[must_use]
    pub fn is_dead(self) -> bool {
        self.0 & Self::DEAD != 0
    }
}

/// The x86 system vectors that have tracepoints of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VectorKind {
    /// The local APIC timer.
    LocalTimer,
    /// Reschedule IPI.
    Reschedule,
    /// Function call IPI to several CPUs.
    CallFunction,
    /// Function call IPI to one CPU.
    CallFunctionSingle,
    /// Self-IPI that runs `irq_work`.
    IrqWork,
    /// Thermal event.
    Thermal,
    /// Machine-check threshold.
    Threshold,
    /// Deferred machine-check error.
    DeferredError,
    /// APIC error.
    Error,
    /// Spurious interrupt.
    Spurious,
    /// Platform IPI.
    PlatformIpi,
}

impl VectorKind {
    /// Every kind, in the order of `enum rts_vector_kind` (which starts at 1).
    pub const ALL: [VectorKind; 11] = [
        VectorKind::LocalTimer,
        VectorKind::Reschedule,
        VectorKind::CallFunction,
        VectorKind::CallFunctionSingle,
        VectorKind::IrqWork,
        VectorKind::Thermal,
        VectorKind::Threshold,
        VectorKind::DeferredError,
        VectorKind::Error,
        VectorKind::Spurious,
        VectorKind::PlatformIpi,
    ];

    /// The number in `enum rts_vector_kind`.
    #[must_use]
    pub fn number(self) -> u32 {
        Self::ALL.iter().position(|k| *k == self).map_or(0, |i| i as u32 + 1)
    }

    /// The kind with this number in `enum rts_vector_kind`.
    #[must_use]
    pub fn from_number(number: u32) -> Option<VectorKind> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// The stem of its tracepoints: `local_timer` for `local_timer_entry` and `local_timer_exit`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VectorKind::LocalTimer => "local_timer",
            VectorKind::Reschedule => "reschedule",
            VectorKind::CallFunction => "call_function",
            VectorKind::CallFunctionSingle => "call_function_single",
            VectorKind::IrqWork => "irq_work",
            VectorKind::Thermal => "thermal_apic",
            VectorKind::Threshold => "threshold_apic",
            VectorKind::DeferredError => "deferred_error_apic",
            VectorKind::Error => "error_apic",
            VectorKind::Spurious => "spurious_apic",
            VectorKind::PlatformIpi => "x86_platform_ipi",
        }
    }

    /// The kind with this tracepoint stem.
    #[must_use]
    pub fn from_name(name: &str) -> Option<VectorKind> {
        Self::ALL.into_iter().find(|k| k.name() == name)
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

/// What happened. Field meanings are those of the kernel's tracepoints; times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the variants and fields are the kernel's tracepoints and arguments of the same names"
)]
pub enum EventKind {
    SchedSwitch {
        prev_tid: Tid,
        prev_prio: Priority,
        prev_state: TaskState,
        /// prev was preempted, so it stays runnable whatever `prev_state` says
        preempt: bool,
        prev_kthread: bool,
        next_tid: Tid,
        next_prio: Priority,
        next_kthread: bool,
    },
    SchedWaking {
        tid: Tid,
        prio: Priority,
        target_cpu: CpuId,
        kthread: bool,
    },
    SchedWakeupNew {
        tid: Tid,
        prio: Priority,
        target_cpu: CpuId,
        kthread: bool,
    },
    SchedMigrateTask {
        tid: Tid,
        prio: Priority,
        orig_cpu: CpuId,
        dest_cpu: CpuId,
    },
    SchedPiSetprio {
        tid: Tid,
        old_prio: Priority,
        new_prio: Priority,
    },
    ProcessFork {
        parent_tid: Tid,
        parent_pid: Pid,
        child_tid: Tid,
        child_pid: Pid,
        child_comm: Comm,
    },
    /// `filename` is cut at 63 bytes.
    ProcessExec {
        tid: Tid,
        old_tid: Tid,
        filename: String,
    },
    ProcessExit {
        tid: Tid,
        pid: Pid,
        prio: Priority,
        comm: Comm,
    },
    TaskRename {
        tid: Tid,
        pid: Pid,
        old_comm: Comm,
        new_comm: Comm,
    },
    IrqHandlerEntry {
        irq: Irq,
    },
    /// `ret` bit 1 (value 2) is `IRQ_WAKE_THREAD`.
    IrqHandlerExit {
        irq: Irq,
        ret: i32,
    },
    VectorEntry {
        kind: VectorKind,
        vector: u32,
    },
    VectorExit {
        kind: VectorKind,
        vector: u32,
    },
    SoftirqRaise {
        vec: u32,
    },
    SoftirqEntry {
        vec: u32,
    },
    SoftirqExit {
        vec: u32,
    },
    /// Both times are on `CLOCK_MONOTONIC`, whatever the timer's own clock.
    HrtimerExpireEntry {
        timer: u64,
        function: u64,
        softexpires_ns: i64,
        expires_ns: i64,
    },
    HrtimerExpireExit {
        timer: u64,
    },
    /// `state` is `None` when the CPU leaves idle.
    CpuIdle {
        state: Option<u32>,
        cpu: CpuId,
    },
    /// Fires at the handler's end.
    NmiHandler {
        handler: u64,
        duration_ns: i64,
        handled: i32,
    },
    /// `call`: a function call interrupt; else a reschedule.
    IpiSend {
        target_cpu: CpuId,
        call: bool,
        callsite: u64,
        callback: u64,
    },
    /// One IPI to several CPUs; `call` as in [`EventKind::IpiSend`].
    IpiSendMask {
        targets: CpuMask,
        call: bool,
        callsite: u64,
        callback: u64,
    },
    /// `work` and `function` are addresses: only their equality means something.
    WorkQueue {
        work: u64,
        function: u64,
        req_cpu: u32,
    },
    /// On the worker's CPU, as [`EventKind::WorkEnd`].
    WorkStart {
        work: u64,
        function: u64,
    },
    WorkEnd {
        work: u64,
        function: u64,
    },
    /// rtscope's own: the tracker found a late response.
    LateResponse {
        tid: Tid,
        pid: Pid,
        origin_kind: OriginKind,
        origin_id: u32,
        origin_ns: u64,
        response_ns: u64,
        threshold_ns: u64,
        /// number of the tracker's report on this CPU, from 1
        sequence: u64,
        end: End,
    },
}
