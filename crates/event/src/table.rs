// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The built-in kernel events, each once.
//!
//! An entry says from which record and tracepoint an event comes, and which fields it has. Everything else follows: the
//! enumeration [`EventKind`], decoding of records ([`EventKind::from_record`]), names and fields in traces ([`classes`],
//! [`EventKind::put`], [`KernelView`]), lines of text ([`event_line`], [`parse_event`]), names of losses ([`record_name`]), the list of
//! eBPF programs ([`programs`]), and random events for tests ([`EventKind::random`]). To add an event, add its record to
//! `kernel_abi.h`, a program that writes it to `crates/kernel/bpf`, and an entry here, at the end: the numbers of classes are
//! places in this table, and the numbers of the frequent events fit a shorter header.
//!
//! ```text
//! /// Documentation.
//! Variant: RTS_RECORD_TYPE, rts_record, origin => {
//!     [companion: Companion(field) as "name in traces"]
//!     field: Form(RTS_FLAG) as "name in traces" else Some(value),
//! }
//! ```
//!
//! - `field` is called as in `rts_record`, unless a flag is given: then it is those bits of the record's word. The form says how its
//!   value stands in a record, in a trace and in text (`forms`).
//! - A companion stands in traces only, before the field that follows: a task's name, for instance (`beside`). One at the end comes after
//!   a `;`.
//! - Fields are in the order that they have in traces. LTTng's come first, with LTTng's names; its readers ignore the others.
//! - `else` is the value if a trace or a line lacks the field, as an `Option`. The fields and companions before it can be used;
//!   companions are `Option`s. Without it the event is malformed (in a line: has the form's usual value).

mod beside;
mod classes;
mod forms;
#[macro_use]
mod generate;
mod origin;
#[macro_use]
mod record;
mod sink;
mod text;
mod view;

pub use classes::{ClassLayout, classes, record_name};
pub use origin::{ProgramSpec, programs, trace_name};
pub use sink::{NameLookup, TraceField, TraceSink, TraceType, UNKNOWN_COMM};
pub use text::{ParseEventError, event_line, parse_event};
pub use view::{FoundNames, KernelView, is_kernels, name_in_traces};

use crate::{
    Comm, CpuId, CpuMask, End, Irq, MonotonicNs, OriginKind, Pid, Priority, TaskState, Tid, Tracker,
    VectorKind, WaitKind,
};
use beside::{Beside, EventTime, InterruptName, ShownState, TaskName};
use classes::Entry;
use forms::{Address, CpuNumber, FileName, Form, IdleState, Softirq, ThisCpu};
use origin::{Origin, tracepoint};
use rtscope_abi as abi;
use sink::Moment;
use view::TakenFields;

const WORK: &str =
    "a chain goes on in a worker thread only if it woke that thread, and for longer than its own work";

kernel_events! {
    SchedSwitch: RTS_SCHED_SWITCH, rts_sched_switch,
        tracepoint("sched", "sched_switch", "nothing can be followed").required()
    => {
        [prev_comm: TaskName(prev_tid)]
        prev_tid: Tid,
        prev_prio: Priority,
        // What tools understand; prev_state_raw and preempt are the kernel's.
        [shown_state: ShownState(prev_state, preempt) as "prev_state"]
        [next_comm: TaskName(next_tid)]
        next_tid: Tid,
        next_prio: Priority,
        prev_state: TaskState as "prev_state_raw" else shown_state.map(ShownState::state),
        /// prev was preempted, so it stays runnable whatever `prev_state` says
        preempt: bool(RTS_SWITCH_PREEMPT) else shown_state.map(ShownState::is_preempted),
        prev_kthread: bool(RTS_SWITCH_PREV_KTHREAD) else Some(false),
        next_kthread: bool(RTS_SWITCH_NEXT_KTHREAD) else Some(false),
        /// For what prev waits, when it blocks
        prev_wait: WaitKind(RTS_SWITCH_WAIT) else Some(WaitKind::None),
        /// On what it waits, where its system call's first argument says that: the lower half of it
        prev_wait_on: u32 else Some(0)
    }
    SchedWaking: RTS_SCHED_WAKING, rts_sched_waking,
        tracepoint("sched", "sched_waking", "no wakeup can be linked to its cause").required()
    => {
        [comm: TaskName(tid)]
        tid: Tid,
        prio: Priority,
        target_cpu: CpuId,
        kthread: bool(RTS_WAKING_KTHREAD) else Some(false),
        /// For what it was about to wait, when it had not left its run queue
        wait: WaitKind(RTS_WAKING_WAIT) else Some(WaitKind::None)
    }
    SchedWakeupNew: RTS_SCHED_WAKEUP_NEW, rts_sched_waking,
        tracepoint("sched", "sched_wakeup_new", "chains do not go on in new threads").required()
    => {
        [comm: TaskName(tid)]
        tid: Tid,
        prio: Priority,
        target_cpu: CpuId,
        kthread: bool(RTS_WAKING_KTHREAD) else Some(false),
        /// For what it was about to wait, when it had not left its run queue
        wait: WaitKind(RTS_WAKING_WAIT) else Some(WaitKind::None)
    }
    SchedMigrateTask: RTS_SCHED_MIGRATE_TASK, rts_sched_migrate_task,
        tracepoint("sched", "sched_migrate_task", "where a task waited is known only as its last CPU")
            .only_recorded()
    => {
        [comm: TaskName(tid)]
        tid: Tid,
        prio: Priority,
        orig_cpu: CpuId,
        dest_cpu: CpuId
    }
    SchedPiSetprio: RTS_SCHED_PI_SETPRIO, rts_sched_pi_setprio,
        tracepoint("sched", "sched_pi_setprio", "priority inheritance is not shown").only_recorded()
    => {
        [comm: TaskName(tid)]
        tid: Tid,
        old_prio: Priority as "oldprio",
        new_prio: Priority as "newprio"
    }
    ProcessFork: RTS_PROCESS_FORK, rts_process_fork,
        tracepoint("sched", "sched_process_fork", "new tasks are not tracked").required().interrupts_on()
    => {
        [parent_comm: TaskName(parent_tid)]
        parent_tid: Tid,
        // LTTng records the processes, too, but not always did.
        parent_pid: Pid else Some(Pid(parent_tid.0)),
        child_comm: Comm,
        child_tid: Tid,
        child_pid: Pid else Some(Pid(child_tid.0))
    }
    /// `filename` is cut at 63 bytes.
    ProcessExec: RTS_PROCESS_EXEC, rts_process_exec,
        tracepoint("sched", "sched_process_exec", "exec is not shown, and a thread that execs is lost")
            .interrupts_on()
    => {
        filename: FileName,
        tid: Tid,
        old_tid: Tid else Some(tid)
    }
    ProcessExit: RTS_PROCESS_EXIT, rts_process_exit,
        tracepoint("sched", "sched_process_exit", "names of tasks that ended are unknown")
            .only_recorded()
            .interrupts_on()
    => {
        comm: Comm,
        tid: Tid,
        prio: Priority,
        // LTTng does not record the process.
        pid: Pid else Some(Pid(tid.0))
    }
    TaskRename: RTS_TASK_RENAME, rts_task_rename,
        tracepoint("task", "task_rename", "a task that changes its name is not found by it")
            .required()
            .interrupts_on()
    => {
        tid: Tid,
        pid: Pid,
        old_comm: Comm as "oldcomm",
        new_comm: Comm as "newcomm"
    }
    IrqHandlerEntry: RTS_IRQ_ENTRY, rts_irq_entry,
        tracepoint("irq", "irq_handler_entry", "device interrupts start no chain").required()
    => {
        irq: Irq;
        [name: InterruptName(irq)]
    }
    /// `ret` bit 1 (value 2) is `IRQ_WAKE_THREAD`.
    IrqHandlerExit: RTS_IRQ_EXIT, rts_irq_exit,
        tracepoint("irq", "irq_handler_exit", "the end of an interrupt is not seen").required()
    => {
        irq: Irq,
        ret: i32
    }
    SoftirqRaise: RTS_SOFTIRQ_RAISE, rts_softirq,
        tracepoint("irq", "softirq_raise", "chains do not go on in softirqs")
            .required()
            .in_traces("irq_softirq_raise")
    => {
        vec: Softirq
    }
    SoftirqEntry: RTS_SOFTIRQ_ENTRY, rts_softirq,
        tracepoint("irq", "softirq_entry", "chains do not go on in softirqs")
            .required()
            .interrupts_on()
            .in_traces("irq_softirq_entry")
    => {
        vec: Softirq
    }
    SoftirqExit: RTS_SOFTIRQ_EXIT, rts_softirq,
        tracepoint("irq", "softirq_exit", "the end of a softirq is not seen")
            .required()
            .interrupts_on()
            .in_traces("irq_softirq_exit")
    => {
        vec: Softirq
    }
    /// Both times are on `CLOCK_MONOTONIC`, whatever the timer's own clock.
    HrtimerExpireEntry: RTS_HRTIMER_ENTRY, rts_hrtimer_entry,
        tracepoint("timer", "hrtimer_expire_entry", "timers start no chain")
            .required()
            .in_traces("timer_hrtimer_expire_entry")
    => {
        timer: Address as "hrtimer",
        [now: EventTime()]
        function: Address,
        // LTTng does not record the timer's deadline. With the time of its handling it is neither early nor late.
        softexpires_ns: i64 as "softexpires" else now,
        expires_ns: i64 as "expires" else now
    }
    HrtimerExpireExit: RTS_HRTIMER_EXIT, rts_hrtimer_exit,
        tracepoint("timer", "hrtimer_expire_exit", "the end of a timer's handler is not seen")
            .required()
            .in_traces("timer_hrtimer_expire_exit")
    => {
        timer: Address as "hrtimer"
    }
    /// `state` is `None` when the CPU leaves idle.
    CpuIdle: RTS_CPU_IDLE, rts_cpu_idle,
        tracepoint("power", "cpu_idle", "'exit from idle' is not recognised").in_traces("power_cpu_idle")
    => {
        state: IdleState,
        cpu: ThisCpu as "cpu_id"
    }
    /// Fires at the handler's end.
    NmiHandler: RTS_NMI_HANDLER, rts_nmi_handler,
        tracepoint("nmi", "nmi_handler", "NMI time is seen as the time of what it interrupted")
            .only_recorded()
            .interrupts_on()
    => {
        handler: Address,
        duration_ns: i64 as "delta_ns",
        handled: i32
    }
    /// `call`: a function call interrupt; else a reschedule.
    IpiSend: RTS_IPI_SEND, rts_ipi_send,
        tracepoint("ipi", "ipi_send_cpu", "chains do not go on over inter-processor interrupts (Linux 6.4)")
            .interrupts_on()
    => {
        target_cpu: CpuNumber as "cpu",
        callsite: Address,
        callback: Address,
        // rtscope's reading of the two addresses: a reschedule has no callback.
        call: bool else Some(callback != 0)
    }
    /// rtscope's own: the tracker found a late response.
    LateResponse: RTS_LATE_RESPONSE, rts_late_response, Origin::Own("rtscope_late_response") => {
        [comm: TaskName(tid)]
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
        tracker: Tracker,
        /// which of the watch's trackers it is, from 0
        instance: u32
    }
    VectorEntry: RTS_VECTOR_ENTRY, rts_vector, Origin::Vectors(0) => {
        kind: VectorKind,
        vector: u32
    }
    VectorExit: RTS_VECTOR_EXIT, rts_vector, Origin::Vectors(1) => {
        kind: VectorKind,
        vector: u32
    }
    /// One IPI to several CPUs; `call` as in [`EventKind::IpiSend`].
    IpiSendMask: RTS_IPI_SEND_MASK, rts_ipi_send_mask,
        tracepoint(
            "ipi",
            "ipi_send_cpumask",
            "chains do not go on over interrupts to several processors (Linux 6.4)",
        )
        .interrupts_on()
    => {
        targets: CpuMask as "cpumask" else Some(CpuMask::new([0; 4], true)),
        callsite: Address,
        callback: Address,
        call: bool else Some(callback != 0)
    }
    // Queueing fires with interrupts off; but all three belong together, and ftrace knows more of them.
    /// `work` and `function` are addresses: only their equality means something.
    WorkQueue: RTS_WORK_QUEUE, rts_work_queue,
        tracepoint("workqueue", "workqueue_queue_work", WORK).interrupts_on()
    => {
        work: Address,
        function: Address,
        req_cpu: u32
    }
    /// On the worker's CPU, as [`EventKind::WorkEnd`]. LTTng did not always record the function.
    WorkStart: RTS_WORK_START, rts_work,
        tracepoint("workqueue", "workqueue_execute_start", WORK).interrupts_on()
    => {
        work: Address,
        function: Address else Some(0)
    }
    WorkEnd: RTS_WORK_END, rts_work,
        tracepoint("workqueue", "workqueue_execute_end", WORK).interrupts_on()
    => {
        work: Address,
        function: Address else Some(0)
    }
    /// For a thread or, with `group`, for its process. `result` is 0 for a signal that is queued, 1 for one that is ignored, 2 for one that
    /// is pending already: a timer's overrun.
    SignalGenerate: RTS_SIGNAL_GENERATE, rts_signal_generate,
        tracepoint("signal", "signal_generate", "which signal woke a task is not shown")
            .only_recorded()
            .interrupts_on()
    => {
        signal: u32 as "sig",
        [comm: TaskName(tid)]
        tid: Tid as "pid",
        group: bool,
        result: u32
    }
}

impl EventKind {
    /// Number of variants.
    pub const VARIANTS: usize = ENTRIES.len();

    /// The event of a record's type, flags and words (header included); `None` for a type that is not an event's, a record that
    /// is too short for its type, or one that has something unknown in it.
    #[inline]
    #[must_use]
    pub fn from_record(kind: u8, flags: u8, words: &[u64]) -> Option<EventKind> {
        from_record(kind, flags, words)
    }

    /// Gives the fields of its class to a sink. Names are those of the event's time.
    #[inline]
    pub fn put<N: NameLookup>(&self, time: MonotonicNs, names: &N, out: &mut impl TraceSink) {
        put(self, &Moment { time, names }, out);
    }

    /// An event of the variant with this number (modulo [`EventKind::VARIANTS`]), with values as a kernel has them: for tests.
    /// `random` gives numbers below the given one, and any for 0.
    #[must_use]
    pub fn random(variant: usize, random: &mut dyn FnMut(u64) -> u64) -> EventKind {
        self::random(ENTRIES[variant % Self::VARIANTS].place, random)
    }
}
