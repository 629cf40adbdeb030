// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said of tasks.

use super::super::calls::CallReport;
use super::super::happening::Happenings;
use super::super::{Intervals, Missing, Span};
use super::Tasks;
use super::task::Task;
use rtscope_event::CpuId;
use serde::Serialize;
use std::cmp::Reverse;

/// A kind of wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// The system call that the task was in; `None`: in none (a page fault, a kernel thread), or system calls are not recorded.
    pub syscall: Option<String>,
    /// Its state: `interruptible`, `uninterruptible`, `spinlock`, `stopped`, `parked`, `idle` or `unknown`.
    pub state: &'static str,
    /// How often and how long.
    #[serde(flatten)]
    pub waits: Intervals,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskReport {
    /// The thread.
    pub tid: u32,
    /// Its process; `None` when unknown.
    pub pid: Option<u32>,
    /// Its last name.
    pub comm: String,
    /// Of the kernel.
    pub kernel: bool,
    /// It ended in the recording.
    pub ended: bool,
    /// On a CPU, interrupts included.
    pub running: Intervals,
    /// Waiting for a CPU after having been woken.
    pub woken_wait: Intervals,
    /// Waiting for a CPU after another had been given its own.
    pub preempted_wait: Intervals,
    /// Waiting for anything else, longest in sum first.
    pub blocked: Vec<Blocked>,
    /// Waits that others ended.
    pub wakeups: u64,
    /// From one CPU to another.
    pub migrations: u64,
    /// It left its CPU to wait.
    pub voluntary_switches: u64,
    /// It left its CPU, and could have gone on.
    pub involuntary_switches: u64,
    /// By call, longest in sum first.
    pub syscalls: Vec<CallReport>,
}

impl TaskReport {
    /// Not runnable.
    #[must_use]
    pub fn blocked_ns(&self) -> u64 {
        self.blocked.iter().map(|blocked| blocked.waits.total_ns).sum()
    }

    /// Runnable, and not running.
    #[must_use]
    pub fn runnable_ns(&self) -> u64 {
        self.woken_wait.total_ns + self.preempted_wait.total_ns
    }
}

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuReport {
    /// Its number.
    pub cpu: CpuId,
    /// With tasks.
    pub busy_ns: u64,
    /// Idle, interrupts included.
    pub idle_ns: u64,
}

/// What tasks did, longest on a CPU first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TasksReport {
    /// When.
    pub span: Span,
    /// What CPUs did.
    pub cpus: Vec<CpuReport>,
    /// By task.
    pub tasks: Vec<TaskReport>,
    /// Tasks that ended and are not listed, because there were too many.
    pub unlisted: u64,
    /// Their sum; its names and numbers are those of one of them.
    pub unlisted_sum: Option<Box<TaskReport>>,
    /// What is missing.
    pub missing: Missing,
}

pub(super) fn of(tasks: Tasks) -> TasksReport {
    let names = &tasks.happenings;
    let listed = tasks.live.values().map(Box::as_ref).chain(&tasks.ended);
    // Those of which a trace has nothing but the name are not worth a line.
    let mut list: Vec<TaskReport> =
        listed.map(|task| task_report(task, names)).filter(|task| !is_idle(task)).collect();
    list.sort_by_key(|task| (Reverse(task.running.total_ns), task.tid));
    TasksReport {
        span: tasks.span,
        cpus: tasks
            .cpus
            .iter()
            .map(|(cpu, figures)| CpuReport { cpu: *cpu, busy_ns: figures.busy_ns, idle_ns: figures.idle_ns })
            .collect(),
        tasks: list,
        unlisted: tasks.rest_count,
        unlisted_sum: tasks.rest.map(|rest| Box::new(task_report(&rest, names))),
        missing: tasks.missing,
    }
}

/// Whether nothing happened to it.
fn is_idle(task: &TaskReport) -> bool {
    task.running.count == 0
        && task.wakeups == 0
        && task.migrations == 0
        && task.voluntary_switches + task.involuntary_switches == 0
        && task.syscalls.is_empty()
}

fn task_report(task: &Task, names: &Happenings) -> TaskReport {
    let mut blocked: Vec<Blocked> = task
        .blocked
        .iter()
        .map(|(wait, waits)| Blocked {
            syscall: wait.call.map(|call| names.call_name(call).to_owned()),
            state: wait.sleep.name(),
            waits: *waits,
        })
        .collect();
    blocked.sort_by_key(|blocked| Reverse(blocked.waits.total_ns));
    let mut syscalls: Vec<CallReport> =
        task.calls.iter().map(|(call, calls)| calls.report(names.call_name(*call))).collect();
    syscalls.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then_with(|| one.name.cmp(&other.name)));
    TaskReport {
        tid: task.tid,
        pid: task.pid,
        comm: task.comm.to_string(),
        kernel: task.kernel,
        ended: task.ended,
        running: task.running,
        woken_wait: task.woken_wait,
        preempted_wait: task.preempted_wait,
        blocked,
        wakeups: task.wakeups,
        migrations: task.migrations,
        voluntary_switches: task.voluntary,
        involuntary_switches: task.involuntary,
        syscalls,
    }
}
