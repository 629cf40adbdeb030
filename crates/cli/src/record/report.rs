// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording says: notes and progress on standard error, the summary at the end on standard output.

use crate::exit::Failure;
use crate::output::{note, result};
use rtscope_event::{count_text, counted};
use rtscope_session::Observer;
use rtscope_session::command::CommandEnd;
use rtscope_session::record::{KeptProgress, KernelStart, RecordProgress, RecordStart, RecordedTrace};
use rtscope_view::{
    BEHIND_NS, LostEvents, clean, much_lost, reach_text, recorded_json, recorded_notes, recorded_text,
    size_text,
};
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What is kept: how much, and since when.
fn kept_text(kept: &KeptProgress) -> String {
    format!("keeps the newest {}: now {}", size_text(kept.max_bytes), reach_text(kept.reach_ns))
}

/// A recording that has lost a larger part is a failure, unless `--fail-if-lost` says otherwise.
const MOST: f64 = 0.5;
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
    /// Of all traces so far.
    lost: Mutex<LostEvents>,
    /// How COMMAND ended, once it has.
    command: OnceLock<CommandEnd>,
}

impl Report {
    /// As JSON or as text.
    pub fn new(json: bool) -> Report {
        Report {
            json,
            terminal: stderr().is_terminal(),
            last: Mutex::default(),
            open_line: AtomicBool::default(),
            lost: Mutex::default(),
            command: OnceLock::new(),
        }
    }

    /// Whether more was lost than is allowed: this part of all. Where nobody has said which, more than half is no success.
    pub fn judge(&self, allowed: Option<f64>) -> Result<(), Failure> {
        let lost = *self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let LostEvents { recorded, lost: events, is_uncounted } = lost;
        let is_uncounted = is_uncounted && allowed.is_some_and(|allowed| allowed < 1.0);
        if !is_uncounted && (events == 0 || lost.share() <= allowed.unwrap_or(MOST)) {
            return Ok(());
        }
        let others = if is_uncounted { ", and others that nobody could count" } else { "" };
        let rule = match allowed {
            Some(_) => "--fail-if-lost",
            None => "more than half; --fail-if-lost=100% accepts that",
        };
        let percent = lost.share() * 100.0;
        let all = recorded.saturating_add(events);
        Err(Failure::Lost(format!(
            "{} of {} lost ({percent:.2} %){others} ({rule})",
            count_text(events),
            counted(all, "event was", "events were")
        )))
    }

    fn started_kernel(&self, kernel: &KernelStart<'_>, target: &Path) {
        let who = [("eBPF", kernel.by_ebpf), ("ftrace", kernel.by_ftrace)];
        let who = who.into_iter().filter(|(_, count)| *count > 0);
        let who: Vec<String> = who.map(|(name, count)| format!("{count} by {name}")).collect();
        self.note(&format!(
            "recording tracepoints ({}) on {} into {}; Ctrl-C ends it",
            who.join(", "),
            counted(kernel.cpus, "CPU", "CPUs"),
            target.display()
        ));
        if let Some(reason) = kernel.without_ebpf {
            self.note(&format!("ftrace records everything, eBPF nothing: {reason}"));
        }
        if kernel.leaves_itself_out {
            self.note(
                "its own activity is left out, except switches to and from it (--with-self records it)",
            );
        }
    }

    fn line(&self, text: &str) {
        // There is nowhere to report a failure of this.
        let _ = write!(stderr().lock(), "\r\x1b[Krtscope: {text}");
        // ORDER: relaxed; only this output line hangs on it.
        self.open_line.store(true, Ordering::Relaxed);
    }
}

impl Observer for Report {
    fn note(&self, text: &str) {
        note(&format!("rtscope: {}", clean(text)));
    }

    fn command_ended(&self, end: CommandEnd) {
        // Only the first one counts.
        let _ = self.command.set(end);
    }

    fn recording(&self, start: &RecordStart<'_>) {
        if let Some(patterns) = start.programs {
            let whose = if nix::unistd::geteuid().is_root() { "of all users" } else { "of this user" };
            self.note(&format!(
                "recording '{}' of programs {whose} into {}; Ctrl-C ends it",
                patterns.join(","),
                start.target.display()
            ));
        }
        if let Some(kernel) = &start.kernel {
            self.started_kernel(kernel, start.target);
        }
    }

    fn flight_recording(&self, tracepoints: Option<usize>, programs: Option<u32>, target: &Path) {
        let tracepoints = tracepoints.map(|count| counted(count, "tracepoint", "tracepoints"));
        let programs = programs.map(|count| counted(count, "program", "programs"));
        let what = tracepoints.into_iter().chain(programs).collect::<Vec<_>>().join(" and ");
        self.note(&format!(
            "{what} record into memory; rtscope snapshot saves a trace in {}, Ctrl-C saves one and ends",
            target.display()
        ));
    }

    fn shows_progress(&self) -> bool {
        self.terminal
    }

    /// A line that is written over and over, on a terminal.
    fn recording_progress(&self, progress: &RecordProgress) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (last_ns, last_bytes, last_events) = *last;
        let passed_ns = progress.passed_ns.saturating_sub(last_ns);
        if !self.terminal || passed_ns < PROGRESS_NS {
            return;
        }
        let rate = progress.bytes.saturating_sub(last_bytes) as f64 / passed_ns as f64 * 1e3;
        let mut text = format!(
            "{:.1} s  {:.1} MB  {rate:.1} MB/s  lost {}",
            progress.passed_ns as f64 / 1e9,
            progress.bytes as f64 / 1e6,
            progress.lost
        );
        if let Some(behind_ns) = progress.behind_ns.filter(|behind_ns| *behind_ns > BEHIND_NS) {
            text.push_str(&format!("  trace {:.1} s behind", behind_ns as f64 / 1e9));
        }
        if let Some(kept) = &progress.kept {
            text.push_str(&format!("  {}", kept_text(kept)));
        }
        let programs = progress.programs.unwrap_or_default();
        if progress.programs.is_some() {
            let rate = programs.events.saturating_sub(last_events) as f64 / passed_ns as f64 * 1e9;
            text.push_str(&format!(
                "  {rate:.0} events/s  programs {}  rings {}",
                programs.programs, programs.rings
            ));
        }
        self.line(&text);
        *last = (progress.passed_ns, progress.bytes, programs.events);
    }

    fn converting(&self, done: u64, total: u64) {
        if self.terminal {
            self.line(&format!("making the trace: {} %", done * 100 / total.max(1)));
        }
    }

    /// Takes the progress line away.
    fn end_of_progress(&self) {
        // ORDER: relaxed; as in line().
        if self.open_line.swap(false, Ordering::Relaxed) {
            // As there.
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }

    fn recorded(&self, trace: &RecordedTrace<'_>) {
        self.end_of_progress();
        recorded_notes(trace).iter().for_each(|text| self.note(text));
        let command = self.command.get().copied();
        result(&if self.json { recorded_json(trace, command).to_string() } else { recorded_text(trace) });
        much_lost(trace).iter().for_each(|text| self.note(text));
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        *lost = lost.and(LostEvents::of(trace));
    }
}
