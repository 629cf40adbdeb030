// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs: those of the built-in events, which the table in `rtscope-event` has, and all others.

pub use rtscope_event::ProgramSpec;
use rtscope_event::Tracker;
use std::sync::LazyLock;

/// The eBPF programs of all built-in events.
pub static PROGRAMS: LazyLock<Vec<ProgramSpec>> = LazyLock::new(|| rtscope_event::programs().collect());

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

/// Whether it is loaded only for trackers of system calls.
pub(crate) fn is_for_calls(name: &str) -> bool {
    name == "call_begins" || name == "call_returns"
}

/// Whether it is loaded only for trackers of locks.
pub(crate) fn is_for_locks(name: &str) -> bool {
    name == "lock_wait_begins" || name == "lock_wait_ends"
}

/// The eBPF programs that a tracker of intervals needs, beside those of a stream.
#[must_use]
pub fn tracker_programs(tracker: Tracker) -> Vec<&'static str> {
    let tasks = ["sched_switch", "sched_waking", "sched_wakeup_new", "sched_process_fork"];
    let names = ["sched_process_exec", "sched_process_exit", "task_rename"];
    let own: &[&str] = match tracker {
        Tracker::Syscall => &["call_begins", "call_returns"],
        Tracker::Lock => &["lock_wait_begins", "lock_wait_ends"],
        _ => &[],
    };
    [&tasks[..], &names, own].concat()
}

/// Whether it is loaded only for trackers of block requests.
pub(crate) fn is_for_blocks(name: &str) -> bool {
    name.starts_with("block_")
}

/// The one of these that the kernel may not have (before Linux 6.5); its name is that of the tracepoint.
pub(crate) const BLOCK_START: &str = "block_io_start";

/// The tracepoint that says that a CPU is asked to take another task (Linux 6.16).
pub(crate) const NEED_RESCHED: &str = "sched_set_need_resched_tp";
/// The eBPF program of the tracker `preemptoff` where that tracepoint can be used, and the one where it cannot.
pub(crate) const RESCHED_ASKED: &str = "resched_asked";
/// See [`RESCHED_ASKED`].
pub(crate) const RESCHED_WOKEN: &str = "resched_woken";
/// The eBPF program of that tracker at [`SCHED_EXIT`].
pub(crate) const RESCHED_OVER: &str = "resched_over";
/// The eBPF programs of the tracker `pair`: the second event's is first, so that an event that is both ends one pair before it begins the next.
pub(crate) const PAIRS: [&str; 2] = ["pair_ends", "pair_begins"];
/// The eBPF program of the tracker `irqoff`, for the event `cpu-clock` of each CPU.
pub(crate) const SAMPLE: &str = "irqoff_sample";

/// The tracepoint that says that the task that was switched to is current (Linux 6.16).
pub(crate) const SCHED_EXIT: &str = "sched_exit_tp";
/// The eBPF program that copies stacks there, and the one that does where the kernel has no such tracepoint.
pub(crate) const TASK_CAME: &str = "task_came";
/// See [`TASK_CAME`].
pub(crate) const TASK_CAME_PROBED: &str = "task_came_probed";

/// Whether it is loaded only for a stream or a probe.
pub(crate) fn is_for_streams(name: &str) -> bool {
    SYSCALLS.contains(&name) || name == PROBE_PREEMPTION
}

/// The eBPF program that tests load in addition, which the kernel has to skip: `test_miss` (bpf/tools/test.bpf.h).
pub(crate) const TEST_PROGRAM: &str = "test_miss";

/// Those that tests load by their names.
pub(crate) fn is_for_tests(name: &str) -> bool {
    name.starts_with("test_")
}

/// eBPF programs and maps that only benchmarks use.
pub(crate) fn is_for_benchmarks(name: &str) -> bool {
    name.starts_with("empty_") || name.starts_with("bench_")
}
