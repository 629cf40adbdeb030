// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A profile of input and output: how long calls and requests take, in eight classes and powers of two, and whether that has changed.
//!
//! The classes are those of latency-tracker's table (Desfossez, 2016): system calls that read, write, do both, make durable, open and close;
//! and the reads and writes of block devices.

mod queue;
mod report;

pub use queue::{DiskQueue, QueueEstimate};
pub use report::{ClassChange, ClassCounts, Group, ProfileReport};

use crate::counting::{Counted, Counter, Counting};
use crate::hist::names::KeyNames;
use crate::hist::{HistKey, ReportKind};
use crate::{Failure, Observer, Stop};
use report::Reporter;
use rtscope_event::Glob;
use rtscope_kernel::io_calls::io_calls;
use rtscope_kernel::{CountedBy, EbpfConfig, Follows, Target, TrackerConfig};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often it is looked whether somebody wants a reading.
const LOOK_NS: u64 = 200_000_000;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileClass {
    /// System calls that read.
    Read,
    /// System calls that write.
    Write,
    /// System calls that read one file and write another.
    ReadWrite,
    /// System calls that make what was written durable.
    Sync,
    /// System calls that open.
    Open,
    /// System calls that close.
    Close,
    /// Reads of block devices.
    BlockRead,
    /// Writes of block devices.
    BlockWrite,
}

impl ProfileClass {
    /// In the order of the table.
    pub const ALL: [ProfileClass; 8] = [
        ProfileClass::Read,
        ProfileClass::Write,
        ProfileClass::ReadWrite,
        ProfileClass::Sync,
        ProfileClass::Open,
        ProfileClass::Close,
        ProfileClass::BlockRead,
        ProfileClass::BlockWrite,
    ];

    /// As JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProfileClass::Read => "read",
            ProfileClass::Write => "write",
            ProfileClass::ReadWrite => "read_write",
            ProfileClass::Sync => "sync",
            ProfileClass::Open => "open",
            ProfileClass::Close => "close",
            ProfileClass::BlockRead => "block_read",
            ProfileClass::BlockWrite => "block_write",
        }
    }
}

/// Whether windows are compared.
#[derive(Clone, Copy, Debug)]
pub struct DetectSettings {
    /// How long a window is.
    pub window_ns: u64,
    /// Windows of the baseline.
    pub baseline: usize,
    /// The part of windows without a change in which there may be an alarm, all classes together.
    pub level: f64,
}

/// What is counted, and when it is said.
#[derive(Clone, Debug)]
pub struct ProfileSettings {
    /// A table for each: of device, cgroup, task or process; `None`: one table.
    pub by: Option<HistKey>,
    /// Whose, and for how long.
    pub counted: Counted,
    /// Say what came in each interval of this length.
    pub interval_ns: Option<u64>,
    /// Set when somebody wants a reading now: what came since the one before.
    pub asked: Option<Arc<AtomicBool>>,
    /// Compare windows.
    pub detect: Option<DetectSettings>,
    /// Cells of each CPU.
    pub cells: u32,
}

/// What is said while it runs.
#[derive(Clone, Debug)]
pub enum ProfileLine {
    /// What came since the reading before.
    Reading(Box<ProfileReport>),
    /// A class has changed.
    Change(Box<ClassChange>),
}

/// Counts until it is asked to stop, the time is over, or COMMAND has ended. Gives all of it, and how COMMAND ended if not well.
///
/// # Errors
/// What kept it from counting.
pub fn run(
    settings: &ProfileSettings,
    stop: &Stop,
    observer: &dyn Observer,
    show: &mut dyn FnMut(&ProfileLine),
) -> Result<(ProfileReport, Result<(), Failure>), Failure> {
    let config = config(settings)?;
    let mut reporter = Reporter::new(settings, KeyNames::new());
    let mut counting = Counting::start(config, &settings.counted, stop)?;
    observer.note(&format!("counting input and output of {}; Ctrl-C ends it", reporter.target()));
    let step = |every: Option<u64>, now_ns: u64| every.map(|every| (now_ns / every + 1) * every);
    let window_ns = settings.detect.map(|detect| detect.window_ns);
    let (mut interval, mut window) = (step(settings.interval_ns, 0), step(window_ns, 0));
    loop {
        let look = settings.asked.as_ref().map(|_| counting.elapsed_ns() + LOOK_NS);
        let next_ns = [interval, window, look].into_iter().flatten().min().unwrap_or(u64::MAX);
        if !counting.wait_until(next_ns, stop) {
            break;
        }
        let now_ns = counting.elapsed_ns();
        // ORDER: relaxed; the flag stands for itself.
        let asked = settings.asked.as_ref().is_some_and(|asked| asked.swap(false, Ordering::Relaxed));
        let is_window = window.is_some_and(|window| now_ns >= window);
        let is_interval = interval.is_some_and(|interval| now_ns >= interval) || asked;
        if !is_window && !is_interval {
            continue;
        }
        let reading = counting.read();
        if is_window {
            reporter
                .changes(&reading)
                .into_iter()
                .for_each(|change| show(&ProfileLine::Change(Box::new(change))));
            window = step(window_ns, now_ns);
        }
        if is_interval {
            show(&ProfileLine::Reading(Box::new(reporter.report(ReportKind::Interval, &reading))));
            interval = step(settings.interval_ns, now_ns);
        }
    }
    let last = counting.finish();
    let command = counting.end_command(observer);
    Ok((reporter.report(ReportKind::Total, &last), command))
}

fn config(settings: &ProfileSettings) -> Result<EbpfConfig, Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    let fits = [HistKey::Device, HistKey::Cgroup, HistKey::Task, HistKey::Process];
    if settings.by.is_some_and(|by| !fits.contains(&by)) {
        return usage("--by: a profile is made by device, cgroup, task or process");
    }
    if settings.interval_ns == Some(0) || settings.detect.is_some_and(|detect| detect.window_ns == 0) {
        return usage("--interval, --window: they have to be longer than 0");
    }
    if settings.detect.is_some_and(|detect| !(detect.level > 0.0 && detect.level < 0.5)) {
        return usage("--alarm: a part of all windows, above 0 and below 0.5");
    }
    if let Some(task) = &settings.counted.task {
        Glob::new(task).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let by = settings.by.map(|by| by.counted_by(settings.cells));
    let id = by.map_or(rtscope_kernel::CellId::All, |by| by.id);
    let tracker = |follows| TrackerConfig {
        target: Target::default(),
        threshold_ns: u64::MAX,
        snapshot: false,
        records: false,
        follows,
        counted_by: Some(CountedBy { id, kind: true, cells: settings.cells }),
    };
    let trackers = vec![tracker(Follows::Syscalls(io_calls())), tracker(Follows::Blocks)];
    Ok(EbpfConfig { recorder: None, trackers, stacks: None, only: Vec::new() })
}
