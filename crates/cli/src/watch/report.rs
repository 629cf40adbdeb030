// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a watch prints, as text or as JSON: results on standard output, what is going on on standard error.

use super::plan::Plan;
use crate::exit::Failure;
use crate::output::{note, result};
use crate::schema;
use rtscope_analyze::chain::Counters;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::histogram::Histogram;
use rtscope_analyze::own::{OwnCost, OwnPart};
use rtscope_analyze::summary;
use rtscope_event::{CpuHistory, LateResponse, Loss, LossCause, MonotonicNs, Names, TaskInfo};
use rtscope_flight::{FlightRecorder, TrackerStats, monotonic_now};
use rtscope_kernel::{EbpfPrograms, interrupts};
use rtscope_session::wall_clock;
use rtscope_store::trigger::TriggerFile;
use rtscope_view::{Style, WallClock, duration_text};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints what happens. Shared by the listener and the writer.
#[derive(Debug)]
pub struct Report {
    json: bool,
    style: Style,
    clock: WallClock,
    /// Of interrupts, for the line at the moment of detection.
    names: Names,
    target: String,
    threshold_ns: u64,
    waits_for_target: AtomicBool,
    history_reported: AtomicBool,
}

/// What is collected for the end.
#[derive(Debug, Default)]
pub struct Summary {
    groups: summary::Summary,
    /// What rtscope itself cost the target.
    pub own: OwnCost,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Of them, those that could not be saved.
    pub failed_snapshots: u64,
}

impl Summary {
    /// A late response that no snapshot explains.
    pub fn unexplained(&mut self, late: &LateResponse) {
        self.groups.add_late(late);
        self.own.add_unexplained();
    }

    /// One that was explained, and rtscope's own part in it.
    pub fn explained(&mut self, explanation: &Explanation, own: OwnPart) {
        self.groups.add_explanation(explanation);
        self.own.add(own);
    }
}

impl Report {
    /// In the form that the plan asks for.
    pub fn new(plan: &Plan) -> Result<Report, Failure> {
        let mut names = Names::default();
        interrupts().into_iter().for_each(|(irq, name)| names.add_irq(irq, name));
        Ok(Report {
            json: plan.json,
            style: Style { color: !plan.json && crate::output::colour() },
            clock: wall_clock::now()?,
            names,
            target: plan.target_text(),
            threshold_ns: plan.threshold_ns,
            waits_for_target: AtomicBool::new(false),
            history_reported: AtomicBool::new(false),
        })
    }

    /// Says that programs record, too.
    pub fn programs_recorded(&self, programs: u32) {
        note(&format!("rtscope: snapshots also have events of instrumented programs ({programs} run now)"));
    }

    /// Says that ftrace records, too.
    pub fn tracepoints_recorded(&self, tracepoints: usize) {
        note(&format!("rtscope: snapshots also have {tracepoints} tracepoints that ftrace records"));
    }

    fn print(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> serde_json::Result<String>) {
        if self.json {
            match json() {
                Ok(line) => result(&line),
                Err(error) => note(&format!("rtscope: a result could not be written as JSON: {error}")),
            }
        } else {
            result(&text());
        }
    }

    /// The watch is on.
    pub fn started(&self, plan: &Plan, ebpf: &EbpfPrograms) {
        let absent: Vec<&str> = ebpf.absent().iter().map(|spec| spec.tracepoint).collect();
        if self.json {
            let end = plan.end.name();
            let line = json!({"schema": schema::WATCH, "type": "start", "target": self.target, "end": end,
                "threshold_ns": plan.threshold_ns, "irqs": plan.irqs, "timer": plan.timer,
                "cpus": ebpf.cpus(), "absent_tracepoints": absent});
            result(&line.to_string());
        }
        let limit = duration_text(plan.threshold_ns);
        let (target, end) = (&self.target, plan.end.name());
        note(&format!("rtscope: watching responses of {target} until {end}, limit {limit}; Ctrl-C ends it"));
        let missing: Vec<&str> = absent.iter().copied().filter(|name| !X86_RARE.contains(name)).collect();
        if !missing.is_empty() {
            note(&format!(
                "rtscope: this kernel lacks {} (rtscope caps lists the consequences)",
                missing.join(", ")
            ));
        }
        if plan.task.is_some() && plan.matching_tasks(&ebpf.dump_tasks().unwrap_or_default()) == 0 {
            // ORDER: relaxed; only the listener's thread uses this flag after the start.
            self.waits_for_target.store(true, Ordering::Relaxed);
            note(&format!("rtscope: there are no {target} yet; waiting for them"));
        }
    }

    /// A late response, at the moment of detection.
    pub fn late(&self, late: &LateResponse) {
        self.print(
            || rtscope_view::late_line(late, &self.names, Some(&self.clock), self.style),
            || rtscope_view::late_json(late, Some(&self.clock)),
        );
    }

    /// Once a second: has the target come; how long is the history.
    pub fn every_second(
        &self,
        plan: &Plan,
        recorder: &FlightRecorder,
        tasks: impl FnOnce() -> Vec<TaskInfo>,
    ) {
        // ORDER: relaxed; one thread uses these flags.
        if self.waits_for_target.load(Ordering::Relaxed) {
            let found = plan.matching_tasks(&tasks());
            if found > 0 {
                self.waits_for_target.store(false, Ordering::Relaxed);
                note(&format!("rtscope: found {found} of {}", self.target));
            }
        }
        // ORDER: relaxed, as above.
        if !self.history_reported.swap(true, Ordering::Relaxed) {
            self.held_history(recorder, plan.pre_ns, plan.bank_bytes());
        }
    }

    /// How long a bank lasts at the rate of the first second. A CPU that wakes up later shortens it; each snapshot says
    /// what it really holds.
    fn held_history(&self, recorder: &FlightRecorder, pre_ns: u64, bank_bytes: usize) {
        let elapsed = monotonic_now().since(recorder.started());
        let held: Vec<Option<u64>> = recorder
            .written()
            .iter()
            .map(|bytes| (*bytes > 0).then(|| (bank_bytes as f64 / *bytes as f64 * elapsed as f64) as u64))
            .collect();
        let texts: Vec<String> = held
            .iter()
            .enumerate()
            .map(|(cpu, ns)| format!("cpu {cpu} {}", ns.map_or("unlimited".to_string(), duration_text)))
            .collect();
        note(&format!("rtscope: at the present rate a bank holds: {}", texts.join(", ")));
        if held.iter().flatten().any(|ns| *ns < pre_ns) {
            note(&format!(
                "rtscope: warning: that is less than --pre {}; use a larger --buffer",
                duration_text(pre_ns)
            ));
        }
        if self.json {
            result(
                &json!({"schema": schema::WATCH, "type": "history", "bank_bytes": bank_bytes, "held_ns": held})
                    .to_string(),
            );
        }
    }

    /// A snapshot has been explained, and saved if that was asked for.
    pub fn snapshot(&self, trigger: &TriggerFile, explanations: &[Explanation], saved: Option<&Path>) {
        if self.json {
            for explanation in explanations {
                self.print(String::new, || rtscope_view::explanation_json(explanation, Some(&self.clock)));
            }
            // JSON has no place for a path that is not UTF-8: its other bytes come as replacement characters.
            let path = saved.map(Path::to_string_lossy);
            let line = json!({"schema": schema::WATCH, "type": "snapshot", "number": trigger.number,
                "detected_ns": trigger.detected_ns, "path": path, "pre_met": trigger.pre_met,
                "history": trigger.history, "losses": trigger.losses, "copied_ns": trigger.copied_ns});
            result(&line.to_string());
            return;
        }
        let mut text = String::new();
        if let Some(first) = explanations.first().filter(|first| first.snapshot == Some(trigger.number)) {
            text.push_str(&rtscope_view::explanation_text(first, self.style));
        } else {
            text.push_str("  (the report of this late response was lost: its ring was full)\n");
        }
        if trigger.late.len() > 1 {
            text.push_str(&format!("  also late in this snapshot: {}\n", trigger.late.len() - 1));
        }
        if let Some(path) = saved {
            text.push_str(&format!(
                "  saved: {} ({})\n",
                path.display(),
                history_text(&trigger.history, trigger.detected_ns)
            ));
        }
        if !trigger.pre_met {
            text.push_str(&format!("  warning: {}\n", short_history(trigger)));
        }
        result(&text);
    }

    /// Late responses were explained without a snapshot of their own.
    pub fn explained(&self, explanations: &[Explanation]) {
        if self.json {
            for explanation in explanations {
                self.print(String::new, || rtscope_view::explanation_json(explanation, Some(&self.clock)));
            }
        }
    }

    /// A snapshot could not be saved.
    pub fn not_saved(&self, trigger: &TriggerFile, failure: &Failure) {
        note(&format!("rtscope: snapshot {} is lost: {failure}; watching goes on", trigger.number));
        if self.json {
            let line = json!({"schema": schema::WATCH, "type": "snapshot_lost", "number": trigger.number, "why": failure.to_string()});
            result(&line.to_string());
        }
    }

    /// UTC, RFC 3339.
    pub fn wall_clock(&self, time: MonotonicNs) -> String {
        wall_clock::rfc3339(&self.clock, time)
    }

    /// For file names: `20261120T234107Z`.
    pub fn file_stamp(&self, time: MonotonicNs) -> String {
        wall_clock::file_stamp(&self.clock, time)
    }

    /// The end.
    pub fn summary(
        &self,
        summary: &Summary,
        stats: &TrackerStats,
        recorder: &FlightRecorder,
        misses: Option<u64>,
        elapsed_ns: u64,
    ) {
        // ORDER: relaxed; the same thread as in every_second().
        if stats.seen == 0 && self.waits_for_target.load(Ordering::Relaxed) {
            note(&format!(
                "rtscope: {} never appeared; names are those of /proc/PID/comm (ps -eLo comm)",
                self.target
            ));
        }
        let histogram = Histogram::new(
            &stats.histogram,
            stats.sum_ns,
            stats.min_ns.unwrap_or(0),
            stats.max_ns.unwrap_or(0),
        );
        let mut losses = vec![Loss { cpu: None, cause: LossCause::RecursionMiss, count: misses }];
        losses.push(Loss {
            cpu: None,
            cause: LossCause::ReportRingFull,
            count: Some(stats.late_lost + recorder.unreadable_reports()),
        });
        let report = summary::Report {
            elapsed_ns,
            threshold_ns: self.threshold_ns,
            counters: counters(stats),
            untracked: stats.untracked + stats.raced,
            snapshots: summary.snapshots,
            snapshots_failed: summary.failed_snapshots,
            suppressed: stats.suppressed_rate + stats.suppressed_busy,
            statistics: histogram.statistics(),
            groups: summary.groups.groups(),
            own: summary.own,
            losses,
        };
        self.print(
            || format!("\n{}", rtscope_view::summary_text(&report, self.style)),
            || rtscope_view::summary_json(&report),
        );
    }
}

/// Tracepoints of vectors that many x86 kernels are built without, and that hardly ever fire.
const X86_RARE: [&str; 4] =
    ["threshold_apic_entry", "threshold_apic_exit", "deferred_error_apic_entry", "deferred_error_apic_exit"];

fn counters(stats: &TrackerStats) -> Counters {
    Counters {
        seen: stats.seen,
        late: stats.late,
        filtered: stats.filtered,
        merged: stats.merged,
        unlinked: stats.unlinked,
        busy: stats.busy,
        healed: stats.healed,
        folded: stats.folded,
        too_long: stats.too_long,
        hidden: stats.hidden,
    }
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
pub fn explanation_file(trigger: &TriggerFile, explanations: &[Explanation]) -> String {
    let mut text = format!(
        "Snapshot {} of {}, detected {}\n{}\n",
        trigger.number,
        rtscope_view::clean(&trigger.watched),
        rtscope_view::clean(&trigger.detected_at),
        history_text(&trigger.history, trigger.detected_ns)
    );
    if !trigger.pre_met {
        text.push_str(&format!("Warning: {}\n", short_history(trigger)));
    }
    for loss in &trigger.losses {
        text.push_str(&rtscope_view::loss_line(loss));
        text.push('\n');
    }
    for explanation in explanations {
        text.push('\n');
        text.push_str(&rtscope_view::explanation_text(explanation, Style::default()));
    }
    text
}
