// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A watch while it goes on: its beginning, how much history there is, and snapshots; as text, and as the objects of `rtscope.watch/1`.

use crate::json::SCHEMA;
use crate::stacks::stacks_text;
use crate::units::counted;
use crate::{Style, clean, duration_text, explanation_text, loss_line};
use rtscope_analyze::explain::Explanation;
use rtscope_event::{CpuHistory, MonotonicNs, OriginKind, Tracker};
use rtscope_session::watch::actions::ActionReport;
use rtscope_session::watch::{HeldHistory, WatchStart};
use rtscope_store::trigger::TriggerFile;
use serde_json::{Value, json};
use std::path::Path;

/// Tracepoints of vectors that many x86 kernels are built without, and that hardly ever fire.
const X86_RARE: [&str; 4] =
    ["threshold_apic_entry", "threshold_apic_exit", "deferred_error_apic_entry", "deferred_error_apic_exit"];

/// The object of a watch that begins.
#[must_use]
pub fn watch_start_json(start: &WatchStart<'_>) -> Value {
    let tracker = |((tracker, threshold_ns), own): (&(Tracker, u64), &Option<String>)| {
        let mut object = json!({"tracker": tracker, "threshold_ns": threshold_ns});
        if let Some(task) = own {
            object["task"] = json!(task);
        }
        object
    };
    let trackers: Vec<Value> = start.trackers.iter().zip(start.own_targets).map(tracker).collect();
    let mut object = json!({"schema": SCHEMA, "type": "start", "target": start.target, "end": start.end,
        "threshold_ns": start.trackers.first().map(|(_, threshold_ns)| threshold_ns),
        "trackers": trackers, "irqs": start.irqs,
        "timer": start.begin.contains(&OriginKind::Timer), "begin": start.begin,
        "cpus": start.cpus, "absent_tracepoints": start.absent});
    if let Some(pair) = start.between {
        object["between"] =
            json!({"from": pair.begin.to_string(), "to": pair.end.to_string(), "by": pair.key_text()});
    }
    object
}

/// What to tell people of a watch that begins.
#[must_use]
pub fn watch_start_notes(start: &WatchStart<'_>) -> Vec<String> {
    let what = |(tracker, threshold_ns): &(Tracker, u64)| {
        let limit = duration_text(*threshold_ns);
        match (tracker, start.between) {
            (Tracker::Response, Some(pair)) => format!("the time '{pair}', limit {limit}"),
            (Tracker::Response, None) => format!("responses until {}, limit {limit}", start.end),
            (Tracker::Wakeup, _) => format!("wakeups until a CPU is there, limit {limit}"),
            (Tracker::Offcpu, _) => format!("time off a CPU, limit {limit}"),
            (Tracker::Syscall, _) => format!("system calls, limit {limit}"),
            (Tracker::Lock, _) => format!("waits for locks of the kernel, limit {limit}"),
            (Tracker::Irq, _) => format!("handlers of interrupts, limit {limit}"),
            (Tracker::Block, _) => format!("block requests, limit {limit}"),
            (Tracker::Preemptoff, _) => format!("CPUs that are not given away, limit {limit}"),
            (Tracker::Irqoff, _) => format!("interrupts off, limit {limit}"),
            (Tracker::Pair, Some(pair)) => format!("the time '{pair}', limit {limit}"),
            (Tracker::Pair, None) => format!("pairs of tracepoints, limit {limit}"),
            (Tracker::Softirq, _) => format!("softirqs from raise to exit, limit {limit}"),
        }
    };
    let target = start.target;
    let of_whom = |(tracker, own): (&(Tracker, u64), &Option<String>)| match own {
        Some(task) => format!("{} (of tasks named '{task}')", what(tracker)),
        None => what(tracker),
    };
    let all: Vec<String> = start.trackers.iter().zip(start.own_targets).map(of_whom).collect();
    let mut notes = vec![format!("watching {target}: {}; Ctrl-C ends it", all.join("; "))];
    let missing: Vec<&str> = start.absent.iter().copied().filter(|name| !X86_RARE.contains(name)).collect();
    if !missing.is_empty() {
        notes.push(format!("this kernel lacks {} (rtscope caps lists the consequences)", missing.join(", ")));
    }
    if start.waits_for_target {
        notes.push(format!("there are no {target} yet; waiting for them"));
    }
    if let Some(tracepoints) = start.tracepoints {
        notes.push(format!(
            "snapshots also have what ftrace records of {}",
            counted(tracepoints, "tracepoint", "tracepoints")
        ));
    }
    if let Some(programs) = start.programs {
        notes.push(format!("snapshots also have events of instrumented programs ({programs} run now)"));
    }
    notes
}

/// The object of how long banks last.
#[must_use]
pub fn history_json(held: &HeldHistory) -> Value {
    json!({"schema": SCHEMA, "type": "history", "bank_bytes": held.bank_bytes, "held_ns": held.held_ns})
}

/// The same for people, and a warning if that is too short.
#[must_use]
pub fn history_notes(held: &HeldHistory) -> Vec<String> {
    let cpu = |(cpu, ns): (usize, &Option<u64>)| {
        format!("cpu {cpu} {}", ns.map_or("unlimited".to_string(), duration_text))
    };
    let texts: Vec<String> = held.held_ns.iter().enumerate().map(cpu).collect();
    let mut notes =
        vec![format!("snapshots reach back, at the present rate of events: {}", texts.join(", "))];
    if held.held_ns.iter().flatten().any(|ns| *ns < held.pre_ns) {
        notes.push(format!(
            "warning: that is less than --pre {}; use a larger --buffer",
            duration_text(held.pre_ns)
        ));
    }
    notes
}

/// The object of a snapshot. JSON has no place for a path that is not UTF-8: its other bytes come as replacement characters.
#[must_use]
pub fn snapshot_json(trigger: &TriggerFile, saved: Option<&Path>) -> Value {
    let path = saved.map(Path::to_string_lossy);
    json!({"schema": SCHEMA, "type": "snapshot", "number": trigger.number,
        "detected_ns": trigger.detected_ns, "path": path, "pre_met": trigger.pre_met,
        "history": trigger.history, "losses": trigger.losses, "copied_ns": trigger.copied_ns})
}

/// The same for people, with the explanation of the late response for which it was taken.
#[must_use]
pub fn snapshot_text(
    trigger: &TriggerFile,
    explanations: &[Explanation],
    saved: Option<&Path>,
    style: Style,
) -> String {
    let mut text = String::new();
    if let Some(first) = explanations.first().filter(|first| first.snapshot == Some(trigger.number)) {
        text.push_str(&explanation_text(first, style));
    } else {
        text.push_str("  (the report of this late response was lost: its ring was full)\n");
    }
    if trigger.late.len() > 1 {
        text.push_str(&format!("  also late in this snapshot: {}\n", trigger.late.len() - 1));
    }
    if let Some(path) = saved {
        let history = history_text(&trigger.history, trigger.detected_ns);
        // In a pipe it is looked for, so it stays whole.
        let line = format!("  saved: {} ({history})", path.display());
        text.push_str(&style.fitted_for_terminal(&line));
        text.push('\n');
    }
    if !trigger.pre_met {
        text.push_str(&style.wrap(&format!("warning: {}", short_history(trigger)), 2, 4));
    }
    text
}

/// The object of a snapshot that could not be saved.
#[must_use]
pub fn snapshot_lost_json(trigger: &TriggerFile, why: &str) -> Value {
    json!({"schema": SCHEMA, "type": "snapshot_lost", "number": trigger.number, "why": why})
}

fn history_text(history: &[CpuHistory], detected: MonotonicNs) -> String {
    let cpu = |history: &CpuHistory| {
        let held = history.complete_since.map(|since| duration_text(detected.since(since)));
        format!("cpu {} {}", history.cpu, held.unwrap_or("nothing happened".to_string()))
    };
    format!("history before the detection: {}", history.iter().map(cpu).collect::<Vec<_>>().join(", "))
}

fn short_history(trigger: &TriggerFile) -> String {
    let pre = duration_text(trigger.pre_ns);
    format!(
        "less than --pre {pre} of history ({}); use a larger --buffer, unless the watch had just started",
        history_text(&trigger.history, trigger.detected_ns)
    )
}

/// The text of `explain.txt`: every late response of a snapshot, and what is missing.
#[must_use]
pub fn explanation_file(trigger: &TriggerFile, explanations: &[Explanation], style: Style) -> String {
    let detected = format!(
        "Snapshot {} of {}, detected {}",
        trigger.number,
        clean(&trigger.watched),
        clean(&trigger.detected_at)
    );
    let history = history_text(&trigger.history, trigger.detected_ns);
    let mut text = style.wrap(&detected, 0, 4) + &style.wrap(&history, 0, 4);
    if !trigger.pre_met {
        text.push_str(&style.wrap(&format!("Warning: {}", short_history(trigger)), 0, 4));
    }
    for loss in &trigger.losses {
        text.push_str(&style.wrap(&loss_line(loss), 0, 4));
    }
    for explanation in explanations {
        text.push('\n');
        text.push_str(&explanation_text(explanation, style));
        if let Some(stacks) = &explanation.stacks {
            text.push_str(&stacks_text(stacks, style));
        }
    }
    text
}

/// What the actions of a watch came to, for people: a line for each that there is something to say of.
#[must_use]
pub fn actions_text(report: &ActionReport) -> String {
    let mut lines = Vec::new();
    if let Some(suppressed) = report.reports_suppressed {
        lines
            .push(format!("not printed (--report-rate): {}", counted(suppressed, "detection", "detections")));
    }
    if let Some(command) = &report.command {
        let mut line = format!("--exec: {}", counted(command.begun, "run", "runs"));
        for (count, what) in [
            (command.failed, "failed"),
            (command.killed, "killed when the watch ended"),
            (command.not_started, "not started"),
            (command.suppressed_rate, "suppressed by --exec-rate"),
            (command.suppressed_busy, "suppressed since four ran already"),
            (command.suppressed_own, "suppressed since a command of --exec was late itself"),
        ] {
            if count > 0 {
                line.push_str(&format!("; {count} {what}"));
            }
        }
        lines.push(line);
    }
    lines.join("\n")
}
