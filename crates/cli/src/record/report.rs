// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording says: notes and progress on standard error, the summary at the end on standard output.

use crate::exit::Failure;
use crate::output::{note, prose, result};
use rtscope_session::Observer;
use rtscope_session::command::CommandEnd;
use rtscope_session::record::{LostEvents, RecordProgress, RecordStart, RecordedTrace};
use rtscope_view::{
    clean, flight_recording_note, much_lost, progress_line, recorded_json, recorded_notes, recorded_text,
    recording_notes,
};
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Between two progress lines.
const PROGRESS_NS: u64 = 500_000_000;

/// Prints what happens.
#[derive(Debug)]
pub struct Report {
    json: bool,
    terminal: bool,
    /// What the last progress line said.
    last: Mutex<Option<RecordProgress>>,
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

    /// Whether more was lost than is allowed.
    pub fn judge(&self, allowed: Option<f64>) -> Result<(), Failure> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).judge(allowed)
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
        let is_root = nix::unistd::geteuid().is_root();
        recording_notes(start, is_root).iter().for_each(|text| self.note(text));
    }

    fn flight_recording(&self, tracepoints: Option<usize>, programs: Option<u32>, target: &Path) {
        self.note(&flight_recording_note(tracepoints, programs, target));
    }

    fn shows_progress(&self) -> bool {
        self.terminal
    }

    /// A line that is written over and over, on a terminal.
    fn recording_progress(&self, progress: &RecordProgress) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last_ns = last.map_or(0, |last| last.passed_ns);
        if self.terminal && progress.passed_ns.saturating_sub(last_ns) >= PROGRESS_NS {
            self.line(&progress_line(progress, last.as_ref()));
            *last = Some(*progress);
        }
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
        match self.json {
            true => result(&recorded_json(trace, command).to_string()),
            false => prose(&recorded_text(trace)),
        }
        much_lost(trace).iter().for_each(|text| self.note(text));
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        *lost = std::mem::take(&mut *lost).and(LostEvents::of(trace));
    }
}
