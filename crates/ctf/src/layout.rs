// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel layout: which events there are, by LTTng's names, and which fields they have.
//!
//! One table for both directions. The writer prints it as metadata and writes values in its order; the reader finds the
//! fields of *any* trace's event of that name by name and returns them in the table's order, including missing ones.
//! So rtscope's own traces and LTTng's go through the same code.
//!
//! The names are those of lttng-modules since 2.9, which Trace Compass picks by `env` (see `write::metadata`). Fields
//! that LTTng does not have are added at the end of an event: readers go by name and ignore extra fields.

use rtscope_event::{EventKind, VectorKind};
use std::borrow::Cow;

/// Stands for an unknown name. Not an empty text: babeltrace2 2.0 shows an empty character array as the content that the
/// previous event had in its place, and would name the wrong task.
pub(crate) const UNKNOWN_COMM: &str = "<unknown>";

/// How a field is stored. All are aligned to bytes and little-endian, as LTTng's are on x86.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    U8,
    U32,
    S32,
    U64,
    S64,
    /// An address: shown in base 16.
    Address,
    /// A task's name: `char[16]`.
    Comm,
    /// NUL-terminated.
    Text,
    /// What a response chain began with.
    Origin,
    /// How a response ended.
    End,
}

/// Name and type.
pub(crate) type Field = (&'static str, Type);

/// An event class of the layout. Its id is its place in [`event_layouts`].
#[derive(Clone, Debug)]
pub(crate) struct EventLayout {
    pub(crate) name: Cow<'static, str>,
    pub(crate) fields: &'static [Field],
}

/// Ids. Those below 31 fit the compact event header, so the frequent events have them.
pub(crate) mod id {
    pub(crate) const SCHED_SWITCH: u32 = 0;
    pub(crate) const SCHED_WAKING: u32 = 1;
    pub(crate) const SCHED_WAKEUP_NEW: u32 = 2;
    pub(crate) const SCHED_MIGRATE_TASK: u32 = 3;
    pub(crate) const SCHED_PI_SETPRIO: u32 = 4;
    pub(crate) const PROCESS_FORK: u32 = 5;
    pub(crate) const PROCESS_EXEC: u32 = 6;
    pub(crate) const PROCESS_EXIT: u32 = 7;
    pub(crate) const TASK_RENAME: u32 = 8;
    pub(crate) const IRQ_ENTRY: u32 = 9;
    pub(crate) const IRQ_EXIT: u32 = 10;
    pub(crate) const SOFTIRQ_RAISE: u32 = 11;
    pub(crate) const SOFTIRQ_ENTRY: u32 = 12;
    pub(crate) const SOFTIRQ_EXIT: u32 = 13;
    pub(crate) const HRTIMER_ENTRY: u32 = 14;
    pub(crate) const HRTIMER_EXIT: u32 = 15;
    pub(crate) const CPU_IDLE: u32 = 16;
    pub(crate) const NMI_HANDLER: u32 = 17;
    pub(crate) const IPI_SEND: u32 = 18;
    pub(crate) const LATE_RESPONSE: u32 = 19;
    /// Entry and exit of each vector kind, in the order of `VectorKind::ALL`.
    pub(crate) const VECTORS: u32 = 20;
    pub(crate) const VECTORS_END: u32 =
        VECTORS + 2 * rtscope_event::exact::count(rtscope_event::VectorKind::ALL.len());
    pub(crate) const IPI_SEND_MASK: u32 = VECTORS_END;
    pub(crate) const WORK_QUEUE: u32 = VECTORS_END + 1;
    pub(crate) const WORK_START: u32 = VECTORS_END + 2;
    pub(crate) const WORK_END: u32 = VECTORS_END + 3;
    pub(crate) const DUMP_START: u32 = VECTORS_END + 4;
    pub(crate) const DUMP_PROCESS: u32 = DUMP_START + 1;
    pub(crate) const DUMP_INTERRUPT: u32 = DUMP_START + 2;
    pub(crate) const DUMP_END: u32 = DUMP_START + 3;
}

const WAKE: &[Field] = &[
    ("comm", Type::Comm),
    ("tid", Type::S32),
    ("prio", Type::S32),
    ("target_cpu", Type::S32),
    ("kthread", Type::U8),
];
const SOFTIRQ: &[Field] = &[("vec", Type::U32)];
const VECTOR: &[Field] = &[("vector", Type::U32)];

/// The classes with ids 0 to 19, in the order of [`id`].
const FIXED: [(&str, &[Field]); 20] = [
    (
        "sched_switch",
        &[
            ("prev_comm", Type::Comm),
            ("prev_tid", Type::S32),
            ("prev_prio", Type::S32),
            // The value that Trace Compass understands; prev_state_raw and preempt are the kernel's.
            ("prev_state", Type::S64),
            ("next_comm", Type::Comm),
            ("next_tid", Type::S32),
            ("next_prio", Type::S32),
            ("prev_state_raw", Type::U32),
            ("preempt", Type::U8),
            ("prev_kthread", Type::U8),
            ("next_kthread", Type::U8),
        ],
    ),
    ("sched_waking", WAKE),
    ("sched_wakeup_new", WAKE),
    (
        "sched_migrate_task",
        &[
            ("comm", Type::Comm),
            ("tid", Type::S32),
            ("prio", Type::S32),
            ("orig_cpu", Type::S32),
            ("dest_cpu", Type::S32),
        ],
    ),
    (
        "sched_pi_setprio",
        &[("comm", Type::Comm), ("tid", Type::S32), ("oldprio", Type::S32), ("newprio", Type::S32)],
    ),
    (
        "sched_process_fork",
        &[
            ("parent_comm", Type::Comm),
            ("parent_tid", Type::S32),
            ("parent_pid", Type::S32),
            ("child_comm", Type::Comm),
            ("child_tid", Type::S32),
            ("child_pid", Type::S32),
        ],
    ),
    ("sched_process_exec", &[("filename", Type::Text), ("tid", Type::S32), ("old_tid", Type::S32)]),
    (
        "sched_process_exit",
        &[("comm", Type::Comm), ("tid", Type::S32), ("prio", Type::S32), ("pid", Type::S32)],
    ),
    (
        "task_rename",
        &[("tid", Type::S32), ("pid", Type::S32), ("oldcomm", Type::Comm), ("newcomm", Type::Comm)],
    ),
    ("irq_handler_entry", &[("irq", Type::S32), ("name", Type::Text)]),
    ("irq_handler_exit", &[("irq", Type::S32), ("ret", Type::S32)]),
    ("irq_softirq_raise", SOFTIRQ),
    ("irq_softirq_entry", SOFTIRQ),
    ("irq_softirq_exit", SOFTIRQ),
    (
        "timer_hrtimer_expire_entry",
        &[
            ("hrtimer", Type::Address),
            ("now", Type::S64),
            ("function", Type::Address),
            ("softexpires", Type::S64),
            ("expires", Type::S64),
        ],
    ),
    ("timer_hrtimer_expire_exit", &[("hrtimer", Type::Address)]),
    ("power_cpu_idle", &[("state", Type::U32), ("cpu_id", Type::U32)]),
    ("nmi_handler", &[("handler", Type::Address), ("delta_ns", Type::S64), ("handled", Type::S32)]),
    (
        "ipi_send_cpu",
        &[
            ("cpu", Type::U32),
            ("callsite", Type::Address),
            ("callback", Type::Address),
            // rtscope's reading of the two addresses: a function call interrupt, or else a reschedule.
            ("call", Type::U8),
        ],
    ),
    (
        "rtscope_late_response",
        &[
            ("comm", Type::Comm),
            ("tid", Type::S32),
            ("pid", Type::S32),
            ("origin_kind", Type::Origin),
            ("origin_id", Type::U32),
            ("origin_ns", Type::U64),
            ("response_ns", Type::U64),
            ("threshold_ns", Type::U64),
            ("sequence", Type::U64),
            ("end", Type::End),
        ],
    ),
];

const WORK: &[Field] = &[("work", Type::Address), ("function", Type::Address)];

/// The classes after those of the vectors: events that hand work on.
const DEFERRALS: [(&str, &[Field]); 4] = [
    (
        "ipi_send_cpumask",
        &[
            // A list as the kernel prints one, `0-3,7`: of any length, and readable in every viewer.
            ("cpumask", Type::Text),
            ("callsite", Type::Address),
            ("callback", Type::Address),
            ("call", Type::U8),
        ],
    ),
    ("workqueue_queue_work", &[("work", Type::Address), ("function", Type::Address), ("req_cpu", Type::U32)]),
    ("workqueue_execute_start", WORK),
    ("workqueue_execute_end", WORK),
];

/// The classes of the state dump, in the order of [`id`].
const DUMP: [(&str, &[Field]); 4] = [
    ("lttng_statedump_start", &[]),
    (
        "lttng_statedump_process_state",
        &[
            ("tid", Type::S32),
            ("vtid", Type::S32),
            ("pid", Type::S32),
            ("vpid", Type::S32),
            ("ppid", Type::S32),
            ("vppid", Type::S32),
            ("name", Type::Comm),
            // 1 for a kernel thread
            ("type", Type::S32),
            ("mode", Type::S32),
            ("submode", Type::S32),
            ("status", Type::S32),
            ("cpu", Type::U32),
            ("prio", Type::S32),
            ("policy", Type::U32),
        ],
    ),
    ("lttng_statedump_interrupt", &[("irq", Type::S32), ("name", Type::Text), ("action", Type::Text)]),
    ("lttng_statedump_end", &[]),
];

/// All event classes; an event's id is its index.
pub(crate) fn event_layouts() -> Vec<EventLayout> {
    let fixed =
        |(name, fields): (&'static str, &'static [Field])| EventLayout { name: Cow::from(name), fields };
    let vectors = VectorKind::ALL.into_iter().flat_map(|kind| {
        ["entry", "exit"].map(|way| EventLayout {
            name: Cow::from(format!("x86_irq_vectors_{}_{way}", kind.name())),
            fields: VECTOR,
        })
    });
    let behind = DEFERRALS.into_iter().chain(DUMP).map(fixed);
    FIXED.into_iter().map(fixed).chain(vectors).chain(behind).collect()
}

/// The class of an event.
pub(crate) fn event_id(kind: &EventKind) -> u32 {
    match kind {
        EventKind::SchedSwitch { .. } => id::SCHED_SWITCH,
        EventKind::SchedWaking { .. } => id::SCHED_WAKING,
        EventKind::SchedWakeupNew { .. } => id::SCHED_WAKEUP_NEW,
        EventKind::SchedMigrateTask { .. } => id::SCHED_MIGRATE_TASK,
        EventKind::SchedPiSetprio { .. } => id::SCHED_PI_SETPRIO,
        EventKind::ProcessFork { .. } => id::PROCESS_FORK,
        EventKind::ProcessExec { .. } => id::PROCESS_EXEC,
        EventKind::ProcessExit { .. } => id::PROCESS_EXIT,
        EventKind::TaskRename { .. } => id::TASK_RENAME,
        EventKind::IrqHandlerEntry { .. } => id::IRQ_ENTRY,
        EventKind::IrqHandlerExit { .. } => id::IRQ_EXIT,
        EventKind::VectorEntry { kind, .. } => id::VECTORS + 2 * (kind.number() - 1),
        EventKind::VectorExit { kind, .. } => id::VECTORS + 2 * (kind.number() - 1) + 1,
        EventKind::SoftirqRaise { .. } => id::SOFTIRQ_RAISE,
        EventKind::SoftirqEntry { .. } => id::SOFTIRQ_ENTRY,
        EventKind::SoftirqExit { .. } => id::SOFTIRQ_EXIT,
        EventKind::HrtimerExpireEntry { .. } => id::HRTIMER_ENTRY,
        EventKind::HrtimerExpireExit { .. } => id::HRTIMER_EXIT,
        EventKind::CpuIdle { .. } => id::CPU_IDLE,
        EventKind::NmiHandler { .. } => id::NMI_HANDLER,
        EventKind::IpiSend { .. } => id::IPI_SEND,
        EventKind::LateResponse { .. } => id::LATE_RESPONSE,
        EventKind::IpiSendMask { .. } => id::IPI_SEND_MASK,
        EventKind::WorkQueue { .. } => id::WORK_QUEUE,
        EventKind::WorkStart { .. } => id::WORK_START,
        EventKind::WorkEnd { .. } => id::WORK_END,
    }
}

/// The vector kind of a class, and whether it is the entry.
pub(crate) fn vector_of(id: u32) -> Option<(VectorKind, bool)> {
    let place = id.checked_sub(id::VECTORS)?;
    Some((VectorKind::from_number(place / 2 + 1)?, place % 2 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_places_in_the_table() {
        let layouts = event_layouts();
        let name = |id: u32| layouts[id as usize].name.as_ref();
        assert_eq!(name(id::LATE_RESPONSE), "rtscope_late_response");
        assert_eq!(name(id::IRQ_EXIT), "irq_handler_exit");
        assert_eq!(name(id::WORK_END), "workqueue_execute_end");
        assert_eq!(name(id::DUMP_START), "lttng_statedump_start");
        assert_eq!(name(id::DUMP_END), "lttng_statedump_end");
        assert_eq!(layouts.len(), id::DUMP_END as usize + 1);
        for kind in VectorKind::ALL {
            let entry = event_id(&EventKind::VectorEntry { kind, vector: 0 });
            assert_eq!(name(entry), format!("x86_irq_vectors_{}_entry", kind.name()));
            assert_eq!(vector_of(entry), Some((kind, true)));
            assert_eq!(vector_of(entry + 1), Some((kind, false)));
        }
        assert_eq!(vector_of(id::DUMP_START), None);
    }
}
