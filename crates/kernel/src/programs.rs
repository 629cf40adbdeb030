// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs, and for each what is lost where its tracepoint does not exist.

/// One eBPF program of a built-in event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Its function in the eBPF object.
    pub name: &'static str,
    /// Its tracepoint; BTF has a type `btf_trace_` + this when the kernel has it.
    pub tracepoint: &'static str,
    /// The subsystem that tracefs shows the tracepoint in.
    pub system: &'static str,
    /// The tracepoint fires with interrupts off, so nothing but an NMI can come between and be missed. `rtscope record`
    /// takes only these by eBPF, all others by ftrace; the flight recorder takes all by eBPF and counts the misses.
    pub interrupts_off: bool,
    /// rtscope cannot work without it.
    pub required: bool,
    /// The tracker needs it (else only the recorder does).
    pub tracks: bool,
    /// What is lost without it.
    pub lost: &'static str,
}

const fn program(system: &'static str, name: &'static str, lost: &'static str) -> ProgramSpec {
    ProgramSpec { name, tracepoint: name, system, interrupts_off: true, required: false, tracks: true, lost }
}

impl ProgramSpec {
    const fn required(self) -> ProgramSpec {
        ProgramSpec { required: true, ..self }
    }

    const fn only_recorded(self) -> ProgramSpec {
        ProgramSpec { tracks: false, ..self }
    }

    const fn interrupts_on(self) -> ProgramSpec {
        ProgramSpec { interrupts_off: false, ..self }
    }
}

const VECTOR: &str = "this vector's time is seen as the time of what it interrupted";
const WORK: &str =
    "a chain goes on in a worker thread only if it woke that thread, and for longer than its own work";
const TIMER_VECTOR: &str =
    "the timer interrupt itself is not seen; timers are still followed from their handlers";

/// The eBPF programs of all built-in events.
pub const PROGRAMS: &[ProgramSpec] = &[
    program("sched", "sched_switch", "nothing can be followed").required(),
    program("sched", "sched_waking", "no wakeup can be linked to its cause").required(),
    program("sched", "sched_wakeup_new", "chains do not go on in new threads").required(),
    program("irq", "irq_handler_entry", "device interrupts start no chain").required(),
    program("irq", "irq_handler_exit", "the end of an interrupt is not seen").required(),
    program("irq", "softirq_raise", "chains do not go on in softirqs").required(),
    program("irq", "softirq_entry", "chains do not go on in softirqs").required().interrupts_on(),
    program("irq", "softirq_exit", "the end of a softirq is not seen").required().interrupts_on(),
    program("timer", "hrtimer_expire_entry", "timers start no chain").required(),
    program("timer", "hrtimer_expire_exit", "the end of a timer's handler is not seen").required(),
    program("sched", "sched_process_fork", "new tasks are not tracked").required().interrupts_on(),
    program("task", "task_rename", "a task that changes its name is not found by it")
        .required()
        .interrupts_on(),
    program("sched", "sched_migrate_task", "where a task waited is known only as its last CPU")
        .only_recorded(),
    program("sched", "sched_pi_setprio", "priority inheritance is not shown").only_recorded(),
    program("sched", "sched_process_exec", "exec is not shown, and a thread that execs is lost")
        .interrupts_on(),
    program("sched", "sched_process_exit", "names of tasks that ended are unknown")
        .only_recorded()
        .interrupts_on(),
    program("power", "cpu_idle", "'exit from idle' is not recognised"),
    program("ipi", "ipi_send_cpu", "chains do not go on over inter-processor interrupts (Linux 6.4)")
        .interrupts_on(),
    program(
        "ipi",
        "ipi_send_cpumask",
        "chains do not go on over interrupts to several processors (Linux 6.4)",
    )
    .interrupts_on(),
    // Queueing fires with interrupts off; but all three belong together, and ftrace knows more of them.
    program("workqueue", "workqueue_queue_work", WORK).interrupts_on(),
    program("workqueue", "workqueue_execute_start", WORK).interrupts_on(),
    program("workqueue", "workqueue_execute_end", WORK).interrupts_on(),
    program("nmi", "nmi_handler", "NMI time is seen as the time of what it interrupted")
        .only_recorded()
        .interrupts_on(),
    program("irq_vectors", "local_timer_entry", TIMER_VECTOR),
    program("irq_vectors", "local_timer_exit", TIMER_VECTOR),
    program("irq_vectors", "reschedule_entry", VECTOR),
    program("irq_vectors", "reschedule_exit", VECTOR),
    program("irq_vectors", "call_function_entry", VECTOR),
    program("irq_vectors", "call_function_exit", VECTOR),
    program("irq_vectors", "call_function_single_entry", VECTOR),
    program("irq_vectors", "call_function_single_exit", VECTOR),
    program("irq_vectors", "irq_work_entry", VECTOR),
    program("irq_vectors", "irq_work_exit", VECTOR),
    program("irq_vectors", "thermal_apic_entry", VECTOR),
    program("irq_vectors", "thermal_apic_exit", VECTOR),
    program("irq_vectors", "threshold_apic_entry", VECTOR),
    program("irq_vectors", "threshold_apic_exit", VECTOR),
    program("irq_vectors", "deferred_error_apic_entry", VECTOR),
    program("irq_vectors", "deferred_error_apic_exit", VECTOR),
    program("irq_vectors", "error_apic_entry", VECTOR),
    program("irq_vectors", "error_apic_exit", VECTOR),
    program("irq_vectors", "spurious_apic_entry", VECTOR),
    program("irq_vectors", "spurious_apic_exit", VECTOR),
    program("irq_vectors", "x86_platform_ipi_entry", VECTOR),
    program("irq_vectors", "x86_platform_ipi_exit", VECTOR),
];

/// The task iterator.
pub(crate) const DUMP_TASKS: &str = "dump_tasks";
/// The eBPF programs that record system calls, or only read their path arguments, for a stream.
pub const SYSCALLS: [&str; 2] = ["syscall_entry", "syscall_exit"];
/// The eBPF program that finds out whether those can be preempted.
pub(crate) const PROBE_PREEMPTION: &str = "probe_preemption";

/// The eBPF programs of a stream that takes the events `built_in`, and system calls or their paths if requested; for
/// [`crate::EbpfConfig::only`].
#[must_use]
pub fn stream_programs(built_in: &[&ProgramSpec], syscalls: bool) -> Vec<&'static str> {
    let syscalls = if syscalls { &SYSCALLS[..] } else { &[] };
    built_in.iter().map(|spec| spec.name).chain(syscalls.iter().copied()).chain([DUMP_TASKS]).collect()
}

/// The eBPF program that runs in non-maskable interrupts: the only thing that interrupts others whose tracepoint fires with
/// interrupts off.
pub(crate) const NMI_PROGRAM: &str = "nmi_handler";

/// The eBPF program that notes when a timer's interrupt came for a certain thread.
pub(crate) const EXPIRY: &str = "expiry_timer";
/// The one that notes when the handler was entered, where the kernel has this tracepoint.
pub(crate) const EXPIRY_ENTRY: &str = "expiry_entry";
/// Its tracepoint.
pub(crate) const TIMER_ENTRY: &str = "local_timer_entry";

/// Whether it is loaded only to measure a thread's timer.
pub(crate) fn is_for_expiry(name: &str) -> bool {
    name == EXPIRY || name == EXPIRY_ENTRY
}

/// Whether it is loaded only for a stream or a probe.
pub(crate) fn is_for_streams(name: &str) -> bool {
    SYSCALLS.contains(&name) || name == PROBE_PREEMPTION
}

/// The eBPF program that tests load in addition, which the kernel has to skip: `test_miss` (bpf/test.bpf.h).
pub(crate) const TEST_PROGRAM: &str = "test_miss";

/// eBPF programs and maps that only benchmarks use.
pub(crate) fn is_for_benchmarks(name: &str) -> bool {
    name.starts_with("empty_") || name.starts_with("bench_")
}
