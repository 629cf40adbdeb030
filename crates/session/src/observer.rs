// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an engine says while it runs.

use crate::Failure;
use crate::command::CommandEnd;
use crate::hist::CountedKeys;
use crate::record::{RecordProgress, RecordStart, RecordedTrace};
use crate::watch::actions::ActionReport;
use crate::watch::{HeldHistory, WatchStart};
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::summary::Report;
use rtscope_event::{LateResponse, Stuck};
use rtscope_store::trigger::TriggerFile;
use std::fmt::Debug;
use std::path::Path;

/// Hears what an engine says, from any of its threads. The engine waits meanwhile: write, and return. Names of others in texts are as
/// they were found; whoever shows them on a terminal cleans them.
pub trait Observer: Debug + Send + Sync {
    /// A remark for people: a sentence, without the program's name before it.
    fn note(&self, text: &str);

    /// A recording records.
    fn recording(&self, _start: &RecordStart<'_>) {}

    /// A flight recorder records into memory: this many tracepoints, and programs that run; `None`: it records none of them.
    fn flight_recording(&self, _tracepoints: Option<usize>, _programs: Option<u32>, _target: &Path) {}

    /// Whether [`Observer::recording_progress`] is wanted a few times each second. Each call wakes a thread.
    fn shows_progress(&self) -> bool {
        true
    }

    /// It goes on: a few times each second, or at least every other second.
    fn recording_progress(&self, _progress: &RecordProgress) {}

    /// It does not any more; what was shown of its progress is out of date.
    fn end_of_progress(&self) {}

    /// A trace is being made of it: so much of so much.
    fn converting(&self, _done: u64, _total: u64) {}

    /// A trace is complete.
    fn recorded(&self, _trace: &RecordedTrace<'_>) {}

    /// COMMAND has ended by itself: before what is reported at the end.
    fn command_ended(&self, _end: CommandEnd) {}

    /// A watch watches.
    fn watching(&self, _start: &WatchStart<'_>) {}

    /// How much history there is: once, after a second.
    fn history(&self, _held: &HeldHistory) {}

    /// A late response, at the moment of detection.
    fn late(&self, _late: &LateResponse) {}

    /// What has been counted by now, where that was asked for: at once, then in each interval, and at the end.
    fn counted(&self, _counted: CountedKeys) {}

    /// What has not ended after the timeout: once for each, while it is under way.
    fn stuck(&self, _stuck: &Stuck) {}

    /// A snapshot has been explained, and saved if that was asked for. The first explanation is that of the late response for which it was
    /// taken, unless its report was lost.
    fn snapshot(&self, _trigger: &TriggerFile, _explanations: &[Explanation], _saved: Option<&Path>) {}

    /// A snapshot could not be saved.
    fn snapshot_lost(&self, _trigger: &TriggerFile, _why: &Failure) {}

    /// Late responses were explained without a snapshot of their own.
    fn explained(&self, _explanations: &[Explanation]) {}

    /// A watch has been asked to end, and records until this time after the last detection is over.
    fn waiting_for_last_snapshot(&self, _post_ns: u64) {}

    /// A watch has ended.
    fn watched(&self, _report: &Report) {}

    /// What the actions of a watch came to, where there were any.
    fn acted(&self, _report: &ActionReport) {}

    /// Something begins that takes a while: a few words.
    fn step(&self, _text: &str) {}

    /// How far it is: often, so of no use to whoever keeps what was said.
    fn progress(&self, _text: &str) {}
}
