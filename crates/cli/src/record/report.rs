// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording says: notes and progress on standard error, the summary at the end on standard output.

use super::RunningRecorders;
use super::plan::Plan;
use super::recorder::Recording;
use crate::exit::Failure;
use crate::output::{note, result};
use crate::schema;
use rtscope_event::MonotonicNs;
use rtscope_store::ConversionSummary;
use rtscope_store::user::UserConversionSummary;
use rtscope_view::{clean, duration_text, loss_line};
use serde_json::json;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Between two progress lines.
const PROGRESS_NS: u64 = 500_000_000;

/// Prints what happens.
#[derive(Debug)]
pub struct Report {
    json: bool,
    terminal: bool,
    /// Time, bytes and events of the last progress line.
    last: Mutex<(u64, u64, u64)>,
    open_line: AtomicBool,
}

impl Report {
    /// As JSON or as text.
    pub fn new(json: bool) -> Report {
        Report {
            json,
            terminal: stderr().is_terminal(),
            last: Mutex::default(),
            open_line: AtomicBool::default(),
        }
    }

    /// Says what is recorded, by whom, where to.
    pub fn started(&self, plan: Option<&Plan>, running: &RunningRecorders, target: &Path) {
        if let Some(user) = &running.user {
            user.introduce(target);
        }
        if let (Some(plan), Some(recording)) = (plan, &running.kernel) {
            self.started_kernel(plan, recording, target);
        }
    }

    fn started_kernel(&self, plan: &Plan, recording: &Recording, target: &Path) {
        let mut who = Vec::new();
        let by_ebpf = plan.built_in.len() + plan.calls.len();
        if by_ebpf > 0 {
            who.push(format!("{by_ebpf} by eBPF"));
        }
        if !plan.ftrace.is_empty() {
            who.push(format!("{} by ftrace", plan.ftrace.len()));
        }
        note(&format!(
            "rtscope: recording tracepoints ({}) on {} CPUs into {}; Ctrl-C ends it",
            who.join(", "),
            recording.cpus(),
            target.display()
        ));
        if let Some(reason) = plan.without_ebpf.as_ref().filter(|_| plan.built_in.is_empty()) {
            note(&format!("rtscope: eBPF is not used: {}", clean(reason)));
        }
        if recording.leaves_itself_out() {
            note(
                "rtscope: its own activity is left out, except switches to and from it (--with-self records it)",
            );
        }
    }

    /// A line that is written over and over, on a terminal.
    pub fn progress(&self, now: MonotonicNs, running: &RunningRecorders) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (last_ns, last_bytes, last_events) = *last;
        if !self.terminal || now.0 < last_ns.saturating_add(PROGRESS_NS) {
            return;
        }
        let kernel = running.kernel.as_ref().map(Recording::progress).unwrap_or_default();
        let user = running.user.as_ref().map(|user| user.progress()).unwrap_or_default();
        let (bytes, lost) = (kernel.0 + user.bytes, kernel.1.saturating_add(user.lost));
        let seconds = now.since(running.started) as f64 / 1e9;
        let rate = bytes.saturating_sub(last_bytes) as f64 / (now.0 - last_ns) as f64 * 1e3;
        let mut text = format!("{seconds:.1} s  {:.1} MB  {rate:.1} MB/s  lost {lost}", bytes as f64 / 1e6);
        if running.user.is_some() {
            let rate = user.events.saturating_sub(last_events) as f64 / (now.0 - last_ns) as f64 * 1e9;
            text.push_str(&format!("  {rate:.0} events/s  programs {}  rings {}", user.programs, user.rings));
        }
        self.line(&text);
        *last = (now.0, bytes, user.events);
    }

    /// The same while the trace is made.
    pub fn converting(&self, done: u64, total: u64) {
        if self.terminal {
            self.line(&format!("making the trace: {} %", done * 100 / total.max(1)));
        }
    }

    fn line(&self, text: &str) {
        // There is nowhere to report a failure of this.
        let _ = write!(stderr().lock(), "\r\x1b[Krtscope: {text}");
        // ORDER: relaxed; only this output line hangs on it.
        self.open_line.store(true, Ordering::Relaxed);
    }

    /// Takes the progress line away.
    pub fn end_of_progress(&self) {
        // ORDER: relaxed; as above.
        if self.open_line.swap(false, Ordering::Relaxed) {
            // As above.
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }

    /// Something ended the recording before its time.
    pub fn stopped_early(&self, failure: &Failure) {
        note(&format!(
            "rtscope: the recording ended early, and what was recorded is retained: {}",
            clean(&failure.to_string())
        ));
    }

    /// The summary.
    pub fn finished(&self, target: &Path, converted: &ConversionSummary) {
        self.end_of_progress();
        if self.json { self.finished_json(target, converted) } else { self.finished_text(target, converted) }
    }

    /// The summary of programs.
    pub fn finished_user(
        &self,
        target: &Path,
        converted: &UserConversionSummary,
        recording_cpu_us: Option<u64>,
    ) {
        self.end_of_progress();
        for problem in &converted.clock.problems {
            note(&format!("rtscope: {}", clean(&problem.sentence())));
        }
        for remark in &converted.remarks {
            note(&format!("rtscope: {}", clean(remark)));
        }
        for refusal in &converted.refused {
            note(&format!("rtscope: {}", clean(&refusal.to_string())));
        }
        if self.json {
            let losses: Vec<_> = converted
                .losses
                .iter()
                .map(|loss| json!({ "cause": loss.cause, "cpu": null, "count": loss.count }))
                .collect();
            let clock = converted.clock_error_ns;
            let object = json!({
                "schema": schema::RECORD_USER,
                "trace": target.display().to_string(),
                "events": converted.events,
                "by_event": converted.by_event,
                "from_ns": converted.from,
                "until_ns": converted.until,
                "interrupted": converted.until.is_none(),
                "bytes": converted.bytes,
                "rings": converted.rings,
                "waits": converted.waits,
                "losses": losses,
                "clock_error_ns": clock.map(|(median, p99, max)| json!({ "median": median, "p99": p99, "max": max })),
                "clock": {
                    "source": converted.clock.source,
                    "trusted": converted.clock.problems.is_empty(),
                    "problems": converted.clock.problems,
                },
                "remarks": converted.remarks,
                "refused": converted.refused,
                "recording_cpu_us": recording_cpu_us,
            });
            return result(&object.to_string());
        }
        let time = converted.until.map(|until| format!(" in {}", duration_text(until.since(converted.from))));
        let mut text = format!(
            "{}: {} events of {} threads{} ({:.1} MB)\n",
            target.display(),
            converted.events,
            converted.rings,
            time.unwrap_or_default(),
            converted.bytes as f64 / 1e6
        );
        if converted.until.is_none() {
            text.push_str("the recording was killed; what it lost at its end is unknown\n");
        }
        if converted.losses.is_empty() {
            text.push_str("lost: nothing\n");
        }
        converted.losses.iter().for_each(|loss| text.push_str(&format!("{}\n", loss_line(loss))));
        if converted.waits > 0 {
            text.push_str(&format!(
                "threads waited {} times because their buffer was full (--blocking)\n",
                converted.waits
            ));
        }
        result(&text);
    }

    fn finished_text(&self, target: &Path, converted: &ConversionSummary) {
        let mut text = format!(
            "{}: {} events{} ({:.1} MB)\n",
            target.display(),
            converted.events,
            converted
                .until
                .map_or(String::new(), |until| format!(" in {}", duration_text(until.since(converted.from)))),
            converted.bytes as f64 / 1e6
        );
        if converted.interrupted {
            text.push_str("the recording was killed; what it lost at its end is unknown\n");
        }
        if converted.losses.is_empty() {
            text.push_str("lost: nothing\n");
        }
        converted.losses.iter().for_each(|loss| text.push_str(&format!("{}\n", loss_line(loss))));
        if converted.without_text > 0 {
            text.push_str(&format!("paths that could not be read: {} (\"?\")\n", converted.without_text));
        }
        if converted.cut_texts > 0 {
            text.push_str(&format!(
                "paths that were cut after 511 bytes: {} (they end with \"…\")\n",
                converted.cut_texts
            ));
        }
        result(&text);
    }

    fn finished_json(&self, target: &Path, converted: &ConversionSummary) {
        let losses: Vec<_> = converted
            .losses
            .iter()
            .map(|loss| json!({ "cause": loss.cause, "cpu": loss.cpu.map(|cpu| cpu.0), "count": loss.count }))
            .collect();
        let events: Vec<_> = converted
            .event_losses
            .iter()
            .map(|loss| json!({ "event": loss.event, "cause": loss.loss.cause, "cpu": loss.loss.cpu, "count": loss.loss.count }))
            .collect();
        let object = json!({
            "schema": schema::RECORD,
            "trace": target.display().to_string(),
            "events": converted.events,
            "by_event": converted.by_event,
            "from_ns": converted.from,
            "until_ns": converted.until,
            "interrupted": converted.interrupted,
            "bytes": converted.bytes,
            "losses": losses,
            "event_losses": events,
            "paths_not_read": converted.without_text,
            "paths_cut": converted.cut_texts,
        });
        result(&object.to_string());
    }
}
