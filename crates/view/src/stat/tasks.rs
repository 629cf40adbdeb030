// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --tasks`: where each task's time went.

use super::columns::Columns;
use super::figures::{Wanted, longest_text, missing_text, percent_text, span_text};
use crate::event::Clock;
use crate::label::clean;
use crate::style::Style;
use crate::units::{count_text, counted, duration_text};
use rtscope_analyze::stat::{TaskReport, TasksReport};
use serde::Serialize;

/// Name and version of the object.
pub const STAT_TASKS_SCHEMA: &str = "rtscope.stat.tasks/1";

#[derive(Serialize)]
struct Object<'r> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'r TasksReport,
}

/// One line of JSON.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn tasks_json(report: &TasksReport) -> serde_json::Result<String> {
    serde_json::to_string(&Object { schema: STAT_TASKS_SCHEMA, report })
}

/// For people. Of tasks that were asked for by name there is more.
#[must_use]
pub fn tasks_text(report: &TasksReport, wanted: &Wanted, clock: Clock, style: Style) -> String {
    let mut text = format!("Time     {}\n", span_text(&report.span, clock));
    if report.span.first_ns.is_none() {
        text.push_str(
            "\nNo switches of tasks and no system calls are there, or none are in the time that was asked for. \
             `rtscope record -k 'sched:*,syscalls'` records them.\n",
        );
        text.push_str(&missing_text(&report.missing));
        return text;
    }
    let whole_ns = report.span.length_ns();
    let cpus: Vec<String> = report
        .cpus
        .iter()
        .map(|cpu| format!("CPU {} {} busy", cpu.cpu, percent_text(cpu.busy_ns, cpu.busy_ns + cpu.idle_ns)))
        .collect();
    text.push_str(&style.wrap(&format!("CPUs     {}", cpus.join(", ")), 0, 9));
    let chosen = &report.tasks;
    let mut columns = Columns::new(
        [
            "tid",
            "pid",
            "task",
            "running",
            "of a CPU",
            "waited for a CPU",
            "longest",
            "blocked",
            "wakeups",
            "moved",
            "preempted",
            "syscalls",
        ],
        &[2],
    )
    .expendable(&[1, 9, 10, 8, 11, 6, 7]);
    for task in chosen.iter().take(wanted.limit()) {
        columns.row(row(task, whole_ns));
    }
    text.push('\n');
    text.push_str(&columns.text(style));
    if chosen.len() > wanted.limit() {
        let more = count_text((chosen.len() - wanted.limit()) as u64);
        text.push_str(&format!("and {more} more (--top 0 shows all)\n"));
    }
    if report.unlisted > 0 {
        let unlisted = counted(report.unlisted, "task that ended is", "tasks that ended are");
        text.push_str(&format!("{unlisted} not listed; the sum is in the JSON\n"));
    }
    if wanted.task.is_some() {
        for task in chosen.iter().take(wanted.limit()) {
            text.push_str(&details(task, style));
        }
    }
    text.push('\n');
    text.push_str(&missing_text(&report.missing));
    text
}

fn row(task: &TaskReport, whole_ns: u64) -> [String; 12] {
    let longest_ns = task.woken_wait.longest_ns.max(task.preempted_wait.longest_ns);
    let mut name = clean(&task.comm);
    if task.kernel {
        name = format!("[{name}]");
    }
    [
        task.tid.to_string(),
        task.pid.map_or("-".to_owned(), |pid| pid.to_string()),
        name,
        duration_text(task.running.total_ns),
        percent_text(task.running.total_ns, whole_ns),
        duration_text(task.runnable_ns()),
        duration_text(longest_ns),
        duration_text(task.blocked_ns()),
        count_text(task.wakeups),
        count_text(task.migrations),
        count_text(task.involuntary_switches),
        count_text(task.syscalls.iter().map(|call| call.count).sum()),
    ]
}

/// What a task waited in, and its system calls.
fn details(task: &TaskReport, style: Style) -> String {
    let mut text = format!("\n{} ({})\n", clean(&task.comm), task.tid);
    let mut columns = Columns::new(["  blocked in", "state", "times", "in all", "longest"], &[0, 1]);
    for blocked in &task.blocked {
        columns.row([
            format!("  {}", blocked.syscall.as_deref().map_or("no system call".to_owned(), clean)),
            blocked.state.to_owned(),
            count_text(blocked.waits.count),
            duration_text(blocked.waits.total_ns),
            longest_text(&blocked.waits),
        ]);
    }
    if !task.blocked.is_empty() {
        text.push_str(&columns.text(style));
    }
    let mut columns = Columns::new(["  system call", "times", "errors", "in all", "longest"], &[0]);
    for call in &task.syscalls {
        columns.row([
            format!("  {}", clean(&call.name)),
            count_text(call.count),
            count_text(call.errors),
            duration_text(call.total_ns),
            duration_text(call.longest_ns),
        ]);
    }
    if !task.syscalls.is_empty() {
        text.push('\n');
        text.push_str(&columns.text(style));
    }
    text
}
