// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an explanation says. Written to files and read back, so every type is plain data.

use rtscope_event::{
    BlockRequest, Comm, CpuId, End, EventSpan, Irq, LateStacks, LockWait, Loss, MonotonicNs, OriginKind, Pid,
    Policy, Priority, Section, StepKind, SystemCall, Tid, Tracker, VectorKind, WaitKind, softirq_name,
};
use serde::{Deserialize, Serialize};

/// A thread with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// Its name then.
    pub comm: Option<Comm>,
    /// Its effective priority then.
    #[serde(flatten, with = "rtscope_event::called")]
    pub prio: Option<Priority>,
    /// Its policy, from the last state dump.
    pub policy: Option<Policy>,
}

/// A task, interrupt or other part of the machine that did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Actor {
    /// A thread.
    Thread(Thread),
    /// A device interrupt's handler.
    Irq {
        /// Its number.
        irq: Irq,
        /// The device's name for it.
        name: Option<String>,
    },
    /// A system vector.
    Vector {
        /// Which.
        vector: VectorKind,
    },
    /// A softirq.
    Softirq {
        /// Its vector number.
        vec: u32,
    },
    /// A timer.
    Timer,
    /// The idle thread.
    Idle,
}

impl Actor {
    /// Whether both are the same thread, interrupt or softirq, whatever else is known of them.
    #[must_use]
    pub fn is_same(&self, other: &Actor) -> bool {
        match (self, other) {
            (Actor::Thread(one), Actor::Thread(two)) => one.tid == two.tid,
            (Actor::Irq { irq: one, .. }, Actor::Irq { irq: two, .. }) => one == two,
            (one, two) => one == two,
        }
    }
}

impl Actor {
    /// The name under which many of a kind are grouped: a thread's name without its id.
    #[must_use]
    pub fn group_name(&self) -> String {
        match self {
            Actor::Thread(Thread { comm: Some(comm), .. }) => comm.to_string(),
            Actor::Thread(thread) => format!("thread {}", thread.tid),
            Actor::Irq { irq, name: Some(name) } => format!("{name} (irq {irq})"),
            Actor::Irq { irq, name: None } => format!("irq {irq}"),
            Actor::Vector { vector } => vector.name().to_owned(),
            Actor::Softirq { vec } => softirq_name(*vec).to_owned(),
            Actor::Timer => "timer".to_owned(),
            Actor::Idle => "idle".to_owned(),
        }
    }
}

/// Why time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// The target itself ran.
    OwnWork,
    /// Another thread of the chain ran: a handler thread, a server.
    ChainWork,
    /// The handler of the interrupt or timer that the chain came by.
    Handler,
    /// The softirq that the chain came by.
    Softirq,
    /// The timer was programmed later than asked for, as its slack allows.
    TimerSlack,
    /// The interrupt served other timers first.
    EarlierTimers,
    /// The CPU was idle and had to come back.
    ExitFromIdle,
    /// In the middle of a cycle: the thread that ended the wait ran until then.
    Holder,
    /// In the middle of a cycle: waiting, for what no thread of the recording did.
    Waiting,
    /// A block request waited for its turn.
    Queue,
    /// A device worked on a block request.
    Device,
    /// A thread that was current when the wait began, until it was switched out.
    BlockingThread,
    /// A thread that was switched in during the wait.
    ThreadInterference,
    /// An interrupt handler.
    IrqInterference,
    /// A softirq.
    SoftirqInterference,
    /// A non-maskable interrupt.
    NmiInterference,
    /// An interrupt from CPU to CPU on its way.
    IpiFlight,
    /// Not recorded, or not distinguishable from what was.
    Unknown,
}

impl CauseKind {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CauseKind::OwnWork => "own work",
            CauseKind::ChainWork => "work of the chain",
            CauseKind::Handler => "handler",
            CauseKind::Softirq => "softirq of the chain",
            CauseKind::TimerSlack => "timer slack",
            CauseKind::EarlierTimers => "earlier timers",
            CauseKind::ExitFromIdle => "exit from idle",
            CauseKind::Holder => "held by a thread",
            CauseKind::Waiting => "waiting",
            CauseKind::Queue => "queue",
            CauseKind::Device => "device",
            CauseKind::BlockingThread => "running thread",
            CauseKind::ThreadInterference => "thread interference",
            CauseKind::IrqInterference => "IRQ interference",
            CauseKind::SoftirqInterference => "softirq interference",
            CauseKind::NmiInterference => "NMI interference",
            CauseKind::IpiFlight => "IPI flight",
            CauseKind::Unknown => "unknown",
        }
    }

    /// Something from outside the chain kept it from going on.
    #[must_use]
    pub fn is_disturbance(self) -> bool {
        matches!(
            self,
            CauseKind::EarlierTimers
                | CauseKind::ExitFromIdle
                | CauseKind::Holder
                | CauseKind::BlockingThread
                | CauseKind::ThreadInterference
                | CauseKind::IrqInterference
                | CauseKind::SoftirqInterference
                | CauseKind::NmiInterference
                | CauseKind::IpiFlight
        )
    }
}

/// A cause within a step, net of all other causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Why.
    pub kind: CauseKind,
    /// The actor, where there is one.
    pub actor: Option<Actor>,
    /// How long.
    pub time_ns: u64,
    /// Share of the response in thousandths. The shares of all causes add up to 1000.
    pub share_permille: u32,
}

/// What a cause cannot express.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Note {
    /// The recording's history on this CPU does not reach over this time, or events were lost in it.
    NotRecorded {
        /// The CPU.
        cpu: CpuId,
        /// How long.
        time_ns: u64,
    },
    /// Where a task waited is not recorded.
    PlaceUnknown,
    /// The CPU was idle although the thread was runnable there: real-time throttling, a CPU limit of its cgroup, or the budget
    /// of a deadline task held it back; the recording cannot tell which.
    HeldBack {
        /// The CPU.
        cpu: CpuId,
        /// How long.
        time_ns: u64,
    },
    /// An interrupt was due and not taken. The task that was current then is named, not blamed: interrupts may have been
    /// disabled there, or a hypervisor may have had the CPU.
    NotTaken {
        /// The CPU.
        cpu: CpuId,
        /// The task that was current.
        current: Actor,
        /// How long.
        time_ns: u64,
    },
    /// The step stands for several that did not fit.
    Folded {
        /// How many.
        steps: u32,
    },
    /// Timer slack is a large part: `prctl(PR_SET_TIMERSLACK)` or a real-time policy removes it.
    LargeSlack,
}

/// A step of the chain and where its time went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepExplanation {
    /// What it was.
    pub kind: StepKind,
    /// The actor that handled, ran or waited.
    pub actor: Option<Actor>,
    /// Of a wait in the middle of a cycle: for what.
    #[serde(default, skip_serializing_if = "is_no_wait")]
    pub wait: WaitKind,
    /// The CPU on which it ended.
    pub cpu: CpuId,
    /// When it began.
    pub from_ns: MonotonicNs,
    /// How long it took.
    pub duration_ns: u64,
    /// Share of the response in thousandths. The shares of all steps add up to 1000.
    pub share_permille: u32,
    /// Where the time went, largest first. Their times add up to the step's.
    pub causes: Vec<Cause>,
    /// Further remarks.
    pub notes: Vec<Note>,
}

/// What the chain began with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginExplanation {
    /// What it was.
    pub kind: OriginKind,
    /// Interrupt or vector; [`Actor::Timer`] for a timer.
    pub actor: Option<Actor>,
    /// Where it arrived.
    pub cpu: CpuId,
    /// When it arrived, or should have.
    pub time_ns: MonotonicNs,
    /// How many other origins were merged into the chain.
    pub merged: u32,
    /// The first of them.
    pub others: Vec<MergedOrigin>,
}

/// An origin that was merged into the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedOrigin {
    /// What it was.
    pub actor: Option<Actor>,
    /// How much later than the chain's own it arrived.
    pub later_ns: u64,
}

/// A thread that led to a response which began with a waking by a thread: it woke the next one, and had been woken itself before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Which.
    pub thread: Thread,
    /// When it woke the next one.
    pub woke_ns: MonotonicNs,
    /// When its own last wait before that ended; `None`: the recording does not have that.
    pub woken_ns: Option<MonotonicNs>,
    /// How long that wait had taken; `None`: it began before the recording.
    pub waited_ns: Option<u64>,
    /// For what it waited.
    #[serde(default, skip_serializing_if = "is_no_wait")]
    pub wait: WaitKind,
    /// Who ended the wait; a thread is the next entry. `None`: not known.
    pub woken_by: Option<Actor>,
}

/// What woke the target the last time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// A timer, interrupt, softirq or thread; `None` when folded away.
    pub actor: Option<Actor>,
    /// Where.
    pub cpu: CpuId,
    /// It had declared its wait but had not left its CPU.
    pub busy: bool,
}

/// How a handler or a softirq kept a thread from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelayedHow {
    /// It ran, and was interrupted.
    Interrupted,
    /// It was woken for that CPU meanwhile.
    Woken,
}

/// A thread that a handler or a softirq kept from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delayed {
    /// Which.
    pub thread: Thread,
    /// How.
    pub how: DelayedHow,
    /// For how long; until the handler's exit.
    pub time_ns: u64,
}

/// A thread of the chain was switched out though it could run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// When.
    pub time_ns: MonotonicNs,
    /// Where, when the recording tells.
    pub cpu: Option<CpuId>,
    /// The thread that lost the CPU.
    pub thread: Thread,
    /// The task that got it.
    pub by: Option<Thread>,
    /// For how long.
    pub duration_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_no_wait(wait: &WaitKind) -> bool {
    *wait == WaitKind::None
}

/// A wait in the middle of a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerWait {
    /// When it began.
    pub from_ns: MonotonicNs,
    /// How long it took.
    pub duration_ns: u64,
    /// For what.
    pub wait: WaitKind,
    /// Who ended it, and so held what the thread waited for; `None`: an interrupt, or not known.
    pub woken_by: Option<Thread>,
    /// What kept that thread, or one that it waited for itself, from running the longest.
    pub kept: Option<Kept>,
    /// What kept it, and it itself, are less urgent than the thread that waited; for at least a tenth of the wait.
    pub is_inversion: bool,
}

/// A thread that others wait for and that has no CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The thread that had the CPU.
    pub thread: Thread,
    /// The thread that wanted it.
    pub holder: Thread,
    /// How long.
    pub time_ns: u64,
}

/// The one thing to look at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// How it cost most. [`CauseKind::OwnWork`], [`CauseKind::TimerSlack`] and [`CauseKind::Unknown`] blame no actor.
    pub kind: CauseKind,
    /// The actor, where there is one.
    pub actor: Option<Actor>,
    /// Over all steps.
    pub time_ns: u64,
    /// Share of the response in thousandths.
    pub share_permille: u32,
    /// Index of the step in which it cost most.
    pub step: usize,
}

/// Why a response was late. Every nanosecond of it is in exactly one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Which tracker found it.
    #[serde(default)]
    pub tracker: Tracker,
    /// Which of those that ran at once, from 0.
    #[serde(default)]
    pub instance: u8,
    /// Number of the report on its CPU.
    pub sequence: u64,
    /// Number of the snapshot that explains it.
    pub snapshot: Option<u64>,
    /// The thread that responded.
    pub thread: Thread,
    /// Its process.
    pub pid: Pid,
    /// The CPU on which the response ended.
    pub cpu: CpuId,
    /// How it ended.
    pub end: End,
    /// When it ended.
    pub end_ns: MonotonicNs,
    /// The response time.
    pub response_ns: u64,
    /// The limit it broke.
    pub threshold_ns: u64,
    /// What it responded to.
    pub origin: OriginExplanation,
    /// What led to the waking with which the response began, where a thread did that; the last first. None of its time is in the response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Earlier>,
    /// Step by step.
    pub steps: Vec<StepExplanation>,
    /// The largest cause, or the reason why there is none.
    pub culprit: Option<Culprit>,
    /// What woke the target.
    pub woken_by: Option<Waker>,
    /// Of an interrupt or a softirq: the threads that it kept from running, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delayed: Vec<Delayed>,
    /// When threads of the chain lost their CPU.
    pub preemptions: Vec<Preemption>,
    /// Waits in the middle of a cycle, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<InnerWait>,
    /// Time without a known cause.
    pub unknown_ns: u64,
    /// Its share in thousandths.
    pub unknown_permille: u32,
    /// Events that are missing from the recording. They may make any of this wrong.
    pub losses: Vec<Loss>,
    /// The two events of a program between which the time passed, where it was not the tracker that measured it.
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
    /// The section, of the trackers of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Box<Section>>,
    /// Where its task and its last waker were, of the trackers that have that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Box<LateStacks>>,
}

impl Explanation {
    /// The longest step.
    #[must_use]
    pub fn longest_step(&self) -> Option<&StepExplanation> {
        self.steps.iter().rev().max_by_key(|step| step.duration_ns)
    }
}
