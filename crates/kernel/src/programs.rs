// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, and for each what is lost where its tracepoint does not exist.

/// One program of the hot set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Its function in the eBPF object.
    pub name: &'static str,
    /// Its tracepoint; BTF has a type `btf_trace_` + this when the kernel has it.
    pub tracepoint: &'static str,
    /// rtscope cannot work without it.
    pub required: bool,
    /// The tracker needs it (else only the recorder does).
    pub tracks: bool,
    /// What is lost without it.
    pub lost: &'static str,
}

const fn required(name: &'static str, lost: &'static str) -> ProgramSpec {
    ProgramSpec { name, tracepoint: name, required: true, tracks: true, lost }
}

const fn optional(name: &'static str, lost: &'static str) -> ProgramSpec {
    ProgramSpec { name, tracepoint: name, required: false, tracks: true, lost }
}

const fn recorded(name: &'static str, lost: &'static str) -> ProgramSpec {
    ProgramSpec { name, tracepoint: name, required: false, tracks: false, lost }
}

const VECTOR: &str = "this vector's time is seen as the time of what it interrupted";
const TIMER_VECTOR: &str =
    "the timer interrupt itself is not seen; timers are still followed from their handlers";

/// Every program of the hot set.
pub const PROGRAMS: &[ProgramSpec] = &[
    required("sched_switch", "nothing can be followed"),
    required("sched_waking", "no waking can be linked to its cause"),
    required("sched_wakeup_new", "chains do not go on in new threads"),
    required("irq_handler_entry", "device interrupts start no chain"),
    required("irq_handler_exit", "the end of an interrupt is not seen"),
    required("softirq_raise", "chains do not go on in softirqs"),
    required("softirq_entry", "chains do not go on in softirqs"),
    required("softirq_exit", "the end of a softirq is not seen"),
    required("hrtimer_expire_entry", "timers start no chain"),
    required("hrtimer_expire_exit", "the end of a timer's handler is not seen"),
    required("sched_process_fork", "new tasks are not tracked"),
    required("task_rename", "a task that changes its name is not found by it"),
    recorded("sched_migrate_task", "where a task waited is known only as its last CPU"),
    recorded("sched_pi_setprio", "priority inheritance is not shown"),
    optional("sched_process_exec", "exec is not shown, and a thread that execs is lost"),
    recorded("sched_process_exit", "names of tasks that ended are unknown"),
    optional("cpu_idle", "'exit from idle' cannot be told"),
    optional("ipi_send_cpu", "chains do not go on over inter-processor interrupts (Linux 6.4)"),
    recorded("nmi_handler", "NMI time is seen as the time of what it interrupted"),
    optional("local_timer_entry", TIMER_VECTOR),
    optional("local_timer_exit", TIMER_VECTOR),
    optional("reschedule_entry", VECTOR),
    optional("reschedule_exit", VECTOR),
    optional("call_function_entry", VECTOR),
    optional("call_function_exit", VECTOR),
    optional("call_function_single_entry", VECTOR),
    optional("call_function_single_exit", VECTOR),
    optional("irq_work_entry", VECTOR),
    optional("irq_work_exit", VECTOR),
    optional("thermal_apic_entry", VECTOR),
    optional("thermal_apic_exit", VECTOR),
    optional("threshold_apic_entry", VECTOR),
    optional("threshold_apic_exit", VECTOR),
    optional("deferred_error_apic_entry", VECTOR),
    optional("deferred_error_apic_exit", VECTOR),
    optional("error_apic_entry", VECTOR),
    optional("error_apic_exit", VECTOR),
    optional("spurious_apic_entry", VECTOR),
    optional("spurious_apic_exit", VECTOR),
    optional("x86_platform_ipi_entry", VECTOR),
    optional("x86_platform_ipi_exit", VECTOR),
];

/// The task iterator.
pub(crate) const DUMP_TASKS: &str = "dump_tasks";
/// Programs and maps that only benchmarks use.
pub(crate) fn is_for_benchmarks(name: &str) -> bool {
    name.starts_with("empty_") || name.starts_with("bench_")
}
