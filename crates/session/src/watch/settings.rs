// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be watched, as plain values.

use super::actions::{ActionSettings, RecordText};
use crate::command::CommandOutput;
use crate::hardware::capture::EventSpec;
use crate::hist::HistKey;
use crate::units::DurationNs;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{End, OriginKind, Tracker, WaitKind};
use rtscope_store::trigger::TriggerFile;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Makes the text of a snapshot's `explain.txt`.
pub type ExplainText = fn(&TriggerFile, &[Explanation]) -> String;

/// What the first tracker of a watch counts beside what is late.
#[derive(Clone, Copy, Debug)]
pub struct CountBeside {
    /// By what it is counted apart.
    pub by: HistKey,
    /// Cells of each CPU.
    pub cells: u32,
    /// All of it is told in each interval of this length.
    pub interval_ns: u64,
}

/// A watch. [`WatchSettings::of`] has the usual values.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// What is followed.
    pub tracker: Tracker,
    /// What takes longer is late.
    pub threshold_ns: u64,
    /// Which system calls [`Tracker::Syscall`] follows: names with `*` and `?`, and `!` before those that are not meant. Empty: all but
    /// those in which threads wait for others or for time.
    pub calls: Vec<String>,
    /// [`Tracker::Irqoff`]: the time between two samples. `None`: half of the shortest limit, from 50 us to 1 ms.
    pub sample_ns: Option<u64>,
    /// What is followed at the same time, of the same tasks, each with a limit of its own.
    pub also: Vec<TrackerLimit>,
    /// Tasks with this name (with `*` and `?`).
    pub task: Option<String>,
    /// The tasks of this process. Without both, and without COMMAND: the first user-space task of each chain.
    pub pid: Option<u32>,
    /// This thread.
    pub tid: Option<u32>,
    /// Two events of programs: not responses are watched, but the time between these.
    pub between: Option<PairQuestion>,
    /// When a response ends.
    pub end: End,
    /// Only responses to these device interrupts: numbers, or names from `/proc/interrupts`.
    pub irqs: Vec<String>,
    /// Responses to timers, too, where `irqs` names some.
    pub timer: bool,
    /// With what responses begin. Empty: as `irqs` and `timer` say, and without these with timers and interrupts, or for cycles
    /// with timers.
    pub begin: Vec<OriginKind>,
    /// With the end of which waits a cycle begins ([`End::Cycle`]).
    pub sources: Vec<WaitKind>,
    /// Where a snapshot is saved for each late response; `None`: nowhere.
    pub snapshot_dir: Option<PathBuf>,
    /// What other users' programs may cause to be saved there, in bytes; `None`: half of what the disk has left at the start.
    pub snapshots_bytes: Option<u64>,
    /// What a snapshot's `explain.txt` says; `None`: it has none.
    pub explain_text: Option<ExplainText>,
    /// What is late is the limit from then on, for each of the trackers: only what is worse than all before is late.
    pub record_breakers: bool,
    /// What is done about a detection besides the snapshot.
    pub actions: ActionSettings,
    /// What a command is given of a detection; without it no command is run.
    pub record_text: Option<RecordText>,
    /// The first tracker also counts all that it follows; `None`: it does not.
    pub count: Option<CountBeside>,
    /// Where metrics can be asked for.
    pub metrics: Option<SocketAddr>,
    /// Patterns of tracepoints that snapshots have in addition.
    pub kernel: Vec<String>,
    /// Patterns of programs' events that snapshots have in addition.
    pub programs: Vec<String>,
    /// A trace unit whose newest content snapshots have in addition, and the bytes of its buffer of each CPU.
    pub hardware: Option<(EventSpec, usize)>,
    /// Bytes of a bank of the flight recorder; each CPU has two. A power of two.
    pub bank_bytes: usize,
    /// History before a detection that a snapshot should have.
    pub pre_ns: u64,
    /// Recording goes on for this time after a detection.
    pub post_ns: u64,
    /// At least this time between two snapshots.
    pub interval_ns: u64,
    /// What is late has stacks, where its tracker has such, from at most so many bytes of a program's stack; `None`: it has none.
    pub stack_bytes: Option<u32>,
    /// Ends the watch after this time.
    pub duration_ns: Option<u64>,
    /// What has not ended after this time is told while it is under way: not responses.
    pub timeout_ns: Option<u64>,
    /// Started when all is watched; its end ends the watch. Empty: nothing is started.
    pub command: Vec<OsString>,
    /// Where its standard output goes.
    pub command_output: CommandOutput,
}

/// `TRACKER:TIME`, or `TRACKER:TIME@NAME`: what is followed, what is late there, and of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackerLimit {
    /// What is followed.
    pub tracker: Tracker,
    /// What takes longer is late.
    pub threshold_ns: u64,
    /// Tasks with this name (with `*` and `?`); `None`: those of the watch.
    pub task: Option<String>,
}

impl std::str::FromStr for TrackerLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<TrackerLimit, String> {
        let names = || Tracker::ALL.map(Tracker::name).join(", ");
        let (name, limit) = text
            .split_once(':')
            .ok_or_else(|| format!("TRACKER:TIME, where TRACKER is one of {}", names()))?;
        let (limit, task) = match limit.split_once('@') {
            Some((_, "")) => return Err("a name is wanted behind @".to_string()),
            Some((limit, task)) => (limit, Some(task.to_owned())),
            None => (limit, None),
        };
        if name == "work" {
            return Err("work goes first: rtscope watch work --threshold TIME --and wakeup:TIME".to_string());
        }
        Ok(TrackerLimit { tracker: name.parse()?, threshold_ns: limit.parse::<DurationNs>()?.0, task })
    }
}

impl WatchSettings {
    /// All that is followed: first what the watch is of.
    pub(super) fn limits(&self) -> impl Iterator<Item = (Tracker, u64)> {
        let also = self.also.iter().map(|also| (also.tracker, also.threshold_ns));
        std::iter::once((self.tracker, self.threshold_ns)).chain(also)
    }

    /// The names of targets: that of the watch, then for each that is followed beside it its own.
    pub(super) fn targets(&self) -> impl Iterator<Item = Option<&str>> {
        std::iter::once(self.task.as_deref()).chain(self.also.iter().map(|also| also.task.as_deref()))
    }

    /// All user-space tasks, from the timer or interrupt until they wait again; nothing is saved.
    #[must_use]
    pub fn of(threshold_ns: u64) -> WatchSettings {
        WatchSettings {
            tracker: Tracker::Response,
            threshold_ns,
            calls: Vec::new(),
            sample_ns: None,
            also: Vec::new(),
            task: None,
            pid: None,
            tid: None,
            between: None,
            end: End::Blocked,
            irqs: Vec::new(),
            timer: false,
            begin: Vec::new(),
            sources: WaitKind::SOURCES.to_vec(),
            snapshot_dir: None,
            snapshots_bytes: None,
            explain_text: None,
            record_breakers: false,
            actions: ActionSettings::default(),
            record_text: None,
            count: None,
            metrics: None,
            kernel: Vec::new(),
            programs: Vec::new(),
            hardware: None,
            bank_bytes: 8 << 20,
            pre_ns: 500_000_000,
            post_ns: 50_000_000,
            interval_ns: 1_000_000_000,
            stack_bytes: None,
            duration_ns: None,
            timeout_ns: None,
            command: Vec::new(),
            command_output: CommandOutput::default(),
        }
    }
}
