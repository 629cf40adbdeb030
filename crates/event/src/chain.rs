// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response chains: from the interrupt or timer to the end of the response, in typed steps that add up.

use crate::{
    BlockRequest, Comm, CpuId, EventSpan, LateStacks, LockWait, MonotonicNs, Pid, Priority, Section, Tid,
    Tracker, WaitKind,
};
use serde::{Deserialize, Serialize};

/// What a chain begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// A timer that a program asked for; the chain begins at the time asked for (`softexpires`).
    Timer,
    /// A device interrupt; the chain begins at `irq_handler_entry`.
    Irq,
    /// A system vector; the chain begins at its entry.
    Vector,
    /// Another task; the chain begins when it wakes the target, or raises or queues what does.
    Task,
    /// The task itself left its CPU.
    OffCpu,
    /// A softirq that woke the task; of the tracker of softirqs, the one that was raised then.
    Softirq,
    /// The task itself entered a system call.
    Syscall,
    /// The task itself began to wait for a lock.
    Lock,
    /// The task made a request to a block device.
    Block,
    /// A CPU was asked to take another task.
    Resched,
    /// A sample of a CPU was due.
    IrqsOff,
    /// An event of a program, or a tracepoint; the chain begins at the event's time.
    Event,
}

impl OriginKind {
    /// Every kind that the kernel's trackers know, in the order of `enum rts_origin_kind` (where 0 is none).
    pub const ALL: [OriginKind; 12] = [
        OriginKind::Timer,
        OriginKind::Irq,
        OriginKind::Vector,
        OriginKind::Task,
        OriginKind::OffCpu,
        OriginKind::Softirq,
        OriginKind::Syscall,
        OriginKind::Lock,
        OriginKind::Block,
        OriginKind::Resched,
        OriginKind::IrqsOff,
        OriginKind::Event,
    ];

    /// Those with which a response may begin.
    pub const OF_RESPONSES: [OriginKind; 4] =
        [OriginKind::Timer, OriginKind::Irq, OriginKind::Vector, OriginKind::Task];

    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OriginKind::Timer => "timer",
            OriginKind::Irq => "irq",
            OriginKind::Vector => "vector",
            OriginKind::Task => "task",
            OriginKind::OffCpu => "off_cpu",
            OriginKind::Softirq => "softirq",
            OriginKind::Syscall => "syscall",
            OriginKind::Lock => "lock",
            OriginKind::Block => "block",
            OriginKind::Resched => "resched",
            OriginKind::IrqsOff => "irqs_off",
            OriginKind::Event => "event",
        }
    }

    /// The kind with this number in `enum rts_origin_kind`.
    #[must_use]
    pub fn from_number(number: u8) -> Option<OriginKind> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The number in `enum rts_origin_kind`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            OriginKind::Timer => 1,
            OriginKind::Irq => 2,
            OriginKind::Vector => 3,
            OriginKind::Task => 4,
            OriginKind::OffCpu => 5,
            OriginKind::Softirq => 6,
            OriginKind::Syscall => 7,
            OriginKind::Lock => 8,
            OriginKind::Block => 9,
            OriginKind::Resched => 10,
            OriginKind::IrqsOff => 11,
            OriginKind::Event => 12,
        }
    }
}

/// The beginning of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What it was.
    pub kind: OriginKind,
    /// Interrupt number, vector kind number ([`crate::VectorKind::number`]), a softirq's vec, the number of a system call (of
    /// [`OriginKind::Lock`] the one in which the task waits; `u32::MAX`: none), a disk's `dev_t`, a tid (of
    /// [`OriginKind::Task`], [`OriginKind::OffCpu`], the thread whose event it is, and of [`OriginKind::Resched`] the one that then got the CPU),
    /// or 0 for a timer.
    pub id: u32,
    /// Where it arrived.
    pub cpu: CpuId,
    /// When it arrived (for a timer: when it should have).
    pub time_ns: MonotonicNs,
}

/// An origin that was merged into an older chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherOrigin {
    /// What it was.
    pub kind: OriginKind,
    /// As in [`Origin::id`].
    pub id: u32,
    /// When it arrived.
    pub time_ns: MonotonicNs,
}

/// The nature of a step: what the chain was doing or waiting for. The meaning of `id` is said with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// From the time asked for to the time the hardware was programmed for.
    TimerSlack,
    /// From there until the interrupt was being handled.
    TimerLateness,
    /// From the vector's entry to this timer's handler (other timers were served first).
    TimerInterrupt,
    /// Handler entry to the raise, IPI or wakeup it made, or to its exit. Id: interrupt number, vector kind number, or 0 for a timer.
    Handler,
    /// Softirq raised, not yet entered. Id: softirq vector.
    SoftirqWait,
    /// Softirq entry to the raise, IPI or wakeup it made, or to its exit. Id: softirq vector.
    Softirq,
    /// IPI sent, not yet entered on the other CPU. Id: vector kind number.
    Ipi,
    /// Task woken, not yet switched in. Id: its tid.
    Wakeup,
    /// Task running. Id: its tid.
    Run,
    /// Task switched out while runnable. Id: its tid.
    Preempted,
    /// The wakeup met a task that had not left its CPU; takes no time. Id: its tid.
    Busy,
    /// All further steps of a chain that had too many. Id: their number.
    More,
    /// Work queued, not yet begun. Id: the tid of the worker that began it.
    WorkWait,
    /// Task switched out because it wants a spinlock, which can sleep on PREEMPT_RT. Id: its tid.
    LockWait,
    /// Task woken or switched out, and next seen when it left a CPU: it waited, then ran, and the kernel did not report the
    /// switch between. Id: its tid.
    HiddenSwitch,
    /// In the middle of a cycle, task blocked, not yet woken. Id: the tid of the task that woke it, or 0 for an interrupt.
    Wait,
    /// A block request waits to be given to its device. Id: the disk's `dev_t`.
    Queue,
    /// The device works on a block request. Id: the disk's `dev_t`.
    Device,
    /// A CPU was asked to take another task and has not yet. Id: the tid of the one that went on.
    NotPreempted,
    /// An interrupt was due and did not come through. Id: the tid of the task that was current.
    IrqsOff,
    /// Between two events; what the thread did is in the recording. Id: its tid.
    Interval,
}

impl StepKind {
    /// Every kind that the tracker reports, in the order of `enum rts_step_kind` (which starts at 1).
    pub const ALL: [StepKind; 21] = [
        StepKind::TimerSlack,
        StepKind::TimerLateness,
        StepKind::TimerInterrupt,
        StepKind::Handler,
        StepKind::SoftirqWait,
        StepKind::Softirq,
        StepKind::Ipi,
        StepKind::Wakeup,
        StepKind::Run,
        StepKind::Preempted,
        StepKind::Busy,
        StepKind::More,
        StepKind::WorkWait,
        StepKind::LockWait,
        StepKind::HiddenSwitch,
        StepKind::Wait,
        StepKind::Queue,
        StepKind::Device,
        StepKind::NotPreempted,
        StepKind::IrqsOff,
        StepKind::Interval,
    ];

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StepKind::TimerSlack => "timer slack",
            StepKind::TimerLateness => "timer lateness",
            StepKind::TimerInterrupt => "timer interrupt",
            StepKind::Handler => "handler",
            StepKind::SoftirqWait => "softirq wait",
            StepKind::Softirq => "softirq",
            StepKind::Ipi => "ipi",
            StepKind::Wakeup => "wakeup",
            StepKind::Run => "run",
            StepKind::Preempted => "preempted",
            StepKind::Busy => "busy",
            StepKind::More => "more",
            StepKind::WorkWait => "work wait",
            StepKind::LockWait => "lock wait",
            StepKind::HiddenSwitch => "hidden switch",
            StepKind::Wait => "wait",
            StepKind::Queue => "queue",
            StepKind::Device => "device",
            StepKind::NotPreempted => "not preempted",
            StepKind::IrqsOff => "interrupts off",
            StepKind::Interval => "interval",
        }
    }

    /// The kind with this number in `enum rts_step_kind`.
    #[must_use]
    pub fn from_number(number: u8) -> Option<StepKind> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// One step. Its interval ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it was.
    pub kind: StepKind,
    /// See [`StepKind`].
    pub id: u32,
    /// The CPU on which it ended.
    pub cpu: CpuId,
    /// How long it took.
    pub duration_ns: u64,
    /// Of [`StepKind::Wait`]: for what.
    #[serde(default, skip_serializing_if = "is_no_wait")]
    pub wait: WaitKind,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_no_wait(wait: &WaitKind) -> bool {
    *wait == WaitKind::None
}

/// A chain. Invariant: `origin.time_ns` + the sum of the steps = [`Chain::end_ns`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Where it began.
    pub origin: Origin,
    /// What happened since, in order.
    pub steps: Vec<Step>,
    /// How many other origins were merged into this one.
    pub merged: u32,
    /// The first of them.
    pub others: Vec<OtherOrigin>,
    /// Its last wakeup met a task that had not left its CPU.
    pub busy: bool,
}

impl Chain {
    /// When the last step ended.
    #[must_use]
    pub fn end_ns(&self) -> MonotonicNs {
        self.origin.time_ns.plus(self.duration_ns())
    }

    /// The sum of the steps: the response so far.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.steps.iter().map(|step| step.duration_ns).sum()
    }
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The target was switched in.
    Running,
    /// The target went back to waiting.
    Blocked,
    /// The target had declared its wait and was woken again before it left the CPU.
    Rewoken,
    /// The target went back to waiting for that with which its cycle began.
    Cycle,
    /// The target's system call returned.
    Returned,
    /// The target has the lock, or has given up.
    Acquired,
    /// The handler of the interrupt or softirq returned.
    Handled,
    /// The device has done with the request.
    Completed,
    /// The CPU has taken another task.
    Switched,
    /// Interrupts came through again.
    IrqsOn,
    /// It had not ended when it was looked at: by the timeout, or when the watch ended.
    Pending,
    /// An event of a program said so, or a tracepoint.
    Event,
}

impl End {
    /// Every end that the tracker reports, in the order of `enum rts_end` (which starts at 1).
    pub const ALL: [End; 11] = [
        End::Running,
        End::Blocked,
        End::Rewoken,
        End::Cycle,
        End::Returned,
        End::Acquired,
        End::Handled,
        End::Completed,
        End::Switched,
        End::IrqsOn,
        End::Event,
    ];

    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            End::Running => "running",
            End::Blocked => "blocked",
            End::Rewoken => "rewoken",
            End::Cycle => "cycle",
            End::Returned => "returned",
            End::Acquired => "acquired",
            End::Handled => "handled",
            End::Completed => "completed",
            End::Switched => "switched",
            End::IrqsOn => "irqs_on",
            End::Pending => "pending",
            End::Event => "event",
        }
    }

    /// The end with this number in `enum rts_end`.
    #[must_use]
    pub fn from_number(number: u8) -> Option<End> {
        match number {
            1 => Some(End::Running),
            2 => Some(End::Blocked),
            3 => Some(End::Rewoken),
            4 => Some(End::Cycle),
            5 => Some(End::Returned),
            6 => Some(End::Acquired),
            7 => Some(End::Handled),
            8 => Some(End::Completed),
            9 => Some(End::Switched),
            10 => Some(End::IrqsOn),
            11 => Some(End::Event),
            _ => None,
        }
    }

    /// The number in `enum rts_end`; 0 for what the tracker does not report.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            End::Pending => 0,
            End::Running => 1,
            End::Blocked => 2,
            End::Rewoken => 3,
            End::Cycle => 4,
            End::Returned => 5,
            End::Acquired => 6,
            End::Handled => 7,
            End::Completed => 8,
            End::Switched => 9,
            End::IrqsOn => 10,
            End::Event => 11,
        }
    }
}

/// An argument of a system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallArgument {
    /// As the kernel's source has it; `None`: not known.
    pub name: Option<String>,
    /// The register: a pointer is an address of the program.
    pub value: u64,
}

/// A system call that has returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCall {
    /// Its number on the machine that ran it.
    pub number: u32,
    /// Its name as tracefs has it (`newstat` is stat); `None`: not known.
    pub name: Option<String>,
    /// What it was given. Where the call is not known: all registers that can hold arguments.
    pub args: Vec<CallArgument>,
    /// What it returned; -4095 to -1 are errors. `None`: it has not.
    pub result: Option<i64>,
}

/// What took longer than its limit, as a tracker reports it: a response, a wakeup, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateResponse {
    /// Which tracker found it.
    #[serde(default)]
    pub tracker: Tracker,
    /// Which of those that run at once, from 0.
    #[serde(default)]
    pub instance: u8,
    /// Number of the report on its CPU, from 1.
    pub sequence: u64,
    /// The CPU on which the response ended.
    pub cpu: CpuId,
    /// When it ended.
    pub end_ns: MonotonicNs,
    /// How it ended.
    pub end: End,
    /// The limit it broke.
    pub threshold_ns: u64,
    /// The thread that responded.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its effective priority at the end.
    #[serde(flatten, with = "crate::called")]
    pub prio: Priority,
    /// Its name at the end.
    pub comm: Comm,
    /// Number of the snapshot this response triggered, if it did.
    pub snapshot: Option<u64>,
    /// From where to where, step by step.
    pub chain: Chain,
    /// The two events between which the time passed, of a program or of the tracker `pair`. Of one that has not ended, the second is the one that is
    /// waited for, at the time of the look.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Box<EventSpan>>,
    /// The system call, of the tracker of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<SystemCall>>,
    /// The lock, of the tracker of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Box<LockWait>>,
    /// The request, of the tracker of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Box<BlockRequest>>,
    /// The section, of the trackers `preemptoff` and `irqoff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Box<Section>>,
    /// Where its task and its last waker were, of the trackers `offcpu`, `syscall` and `lock` where that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Box<LateStacks>>,
}

/// What has not ended after the timeout, while it is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// As far as it has come; its end is [`End::Pending`], and the time that of the look.
    #[serde(flatten)]
    pub late: LateResponse,
    /// Where its thread is in the kernel, the innermost first. Empty while it runs. `None`: not known.
    pub kernel_stack: Option<Vec<String>>,
}

impl LateResponse {
    /// The response time.
    #[must_use]
    pub fn response_ns(&self) -> u64 {
        self.end_ns.since(self.chain.origin.time_ns)
    }
}
