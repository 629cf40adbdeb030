// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record contracts in Rust, generated from `kernel_abi.h` beside this crate's manifest and from the programs'
//! `include/rtscope/abi.h`, which are the only definitions. Sizes are asserted in those headers; bindgen asserts sizes, alignments and offsets on this side.
#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(missing_docs, reason = "generated; the documentation is in kernel_abi.h")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::missing_safety_doc,
    reason = "generated: bindgen's Default implementations"
)]

type rts_u8 = u8;
type rts_u16 = u16;
type rts_s16 = i16;
type rts_u32 = u32;
type rts_s32 = i32;
type rts_u64 = u64;
type rts_s64 = i64;

/// A point in time that never comes.
pub const RTS_NEVER: u64 = u64::MAX;

include!(concat!(env!("OUT_DIR"), "/kernel_abi.rs"));

/// The memory that instrumented programs share with the collector: `include/rtscope/abi.h`.
pub mod program {
    include!(concat!(env!("OUT_DIR"), "/program_abi.rs"));
}

// The same as at the end of kernel_abi.h, for the constants as Rust has them: a loss is counted by its record's type, masked.
const _: () = assert!(RTS_RECORD_TYPES <= RTS_LOST_TYPES && RTS_LOST_TYPES.is_power_of_two());

/// What a record is called whose type is not in the ABI.
const UNKNOWN_RECORD: &str = "record of an unknown type";

/// What a record of this type is called where losses are shown; the tracepoint's name where there is one.
#[must_use]
pub fn record_name(kind: u32) -> &'static str {
    match kind {
        RTS_PADDING => "padding",
        RTS_SCHED_SWITCH => "sched_switch",
        RTS_SCHED_WAKING => "sched_waking",
        RTS_SCHED_WAKEUP_NEW => "sched_wakeup_new",
        RTS_SCHED_MIGRATE_TASK => "sched_migrate_task",
        RTS_SCHED_PI_SETPRIO => "sched_pi_setprio",
        RTS_PROCESS_FORK => "sched_process_fork",
        RTS_PROCESS_EXEC => "sched_process_exec",
        RTS_PROCESS_EXIT => "sched_process_exit",
        RTS_TASK_RENAME => "task_rename",
        RTS_IRQ_ENTRY => "irq_handler_entry",
        RTS_IRQ_EXIT => "irq_handler_exit",
        RTS_VECTOR_ENTRY => "irq_vectors entry",
        RTS_VECTOR_EXIT => "irq_vectors exit",
        RTS_SOFTIRQ_RAISE => "softirq_raise",
        RTS_SOFTIRQ_ENTRY => "softirq_entry",
        RTS_SOFTIRQ_EXIT => "softirq_exit",
        RTS_HRTIMER_ENTRY => "hrtimer_expire_entry",
        RTS_HRTIMER_EXIT => "hrtimer_expire_exit",
        RTS_CPU_IDLE => "cpu_idle",
        RTS_NMI_HANDLER => "nmi_handler",
        RTS_IPI_SEND => "ipi_send_cpu",
        RTS_LATE_RESPONSE => "rtscope_late_response",
        RTS_SYSCALL_PATH => "path of a system call",
        RTS_IPI_SEND_MASK => "ipi_send_cpumask",
        RTS_WORK_QUEUE => "workqueue_queue_work",
        RTS_WORK_START => "workqueue_execute_start",
        RTS_WORK_END => "workqueue_execute_end",
        RTS_SYSCALL_ENTRY => "syscall_entry",
        RTS_SYSCALL_EXIT => "syscall_exit",
        _ => UNKNOWN_RECORD,
    }
}

/// Whether a stream's records of this type are there for the names of tasks only: their tracepoints fire with interrupts on, so
/// the events themselves are left to ftrace, if they are asked for.
#[must_use]
pub fn only_names_tasks(kind: u32) -> bool {
    matches!(kind, RTS_PROCESS_FORK | RTS_PROCESS_EXIT | RTS_TASK_RENAME)
}

/// Whether a stream's record of this type is an event of its own: a lost one is a lost event.
#[must_use]
pub fn is_streamed_event(kind: u32) -> bool {
    kind != RTS_SYSCALL_PATH && !only_names_tasks(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_type_has_a_name_of_its_own() {
        for kind in 0..RTS_RECORD_TYPES {
            let name = record_name(kind);
            assert_ne!(name, UNKNOWN_RECORD, "type {kind}: give it a name");
            assert!((0..kind).all(|other| record_name(other) != name), "type {kind}: {name} is taken");
        }
        assert_eq!(record_name(RTS_RECORD_TYPES), UNKNOWN_RECORD);
    }
}
