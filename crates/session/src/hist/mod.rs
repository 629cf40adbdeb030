// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of all that a tracker follows, late or not: by task, device, interrupt or call, and over time.

pub(crate) mod cells;
mod live;
pub(crate) mod names;
mod programs;
mod report;

pub use live::CountedKeys;
pub(crate) use live::LiveReader;
pub use report::{HistReport, KeyReport, ReportKind};

use crate::counting::{Counted, Counter, Counting};
use crate::watch::calls;
use crate::watch::pair::Tracepoints;
use crate::{Failure, Observer, Stop};
use names::KeyNames;
use programs::ProgramCounting;
use report::Reporter;
use rtscope_analyze::keyed::Key;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{BlockOperation, Glob, LateResponse, Tracker};
use rtscope_kernel::{CellId, CountedBy, EbpfConfig, Follows, ResponseConfig, Target, TrackerConfig};
use serde::Serialize;
use std::cmp::Reverse;

/// Slices of the heat map where nobody asks for intervals.
const SLICE_NS: u64 = 1_000_000_000;
/// Cells of each CPU: 2 MiB. Some hundred tasks have sixty each.
pub const CELLS: u32 = 1 << 16;
/// Between two samples of the tracker `irqoff`, where nobody says.
const SAMPLE_NS: u64 = 1_000_000;

/// By what operations are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HistKey {
    /// Thread.
    Task,
    /// Process.
    Process,
    /// Control group.
    Cgroup,
    /// CPU where it ended.
    Cpu,
    /// Block device; of system calls the device of their file.
    Device,
    /// Interrupt.
    Interrupt,
    /// Softirq.
    Softirq,
    /// System call; of locks the one in which they were wanted.
    Syscall,
    /// What a request asks for.
    Operation,
    /// The first field of a pair's key.
    Field,
}

impl std::str::FromStr for HistKey {
    type Err = String;

    fn from_str(text: &str) -> Result<HistKey, String> {
        let found = HistKey::ALL.into_iter().find(|key| key.name() == text);
        let names = || HistKey::ALL.map(HistKey::name).join(", ");
        found.ok_or_else(|| format!("there is no key '{text}': {}", names()))
    }
}

impl HistKey {
    /// Every key.
    pub const ALL: [HistKey; 10] = [
        HistKey::Task,
        HistKey::Process,
        HistKey::Cgroup,
        HistKey::Cpu,
        HistKey::Device,
        HistKey::Interrupt,
        HistKey::Softirq,
        HistKey::Syscall,
        HistKey::Operation,
        HistKey::Field,
    ];

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HistKey::Task => "task",
            HistKey::Process => "process",
            HistKey::Cgroup => "cgroup",
            HistKey::Cpu => "cpu",
            HistKey::Device => "device",
            HistKey::Interrupt => "interrupt",
            HistKey::Softirq => "softirq",
            HistKey::Syscall => "syscall",
            HistKey::Operation => "operation",
            HistKey::Field => "field",
        }
    }

    /// Whether what this tracker follows has it.
    #[must_use]
    pub fn is_of(self, tracker: Tracker) -> bool {
        match self {
            HistKey::Task | HistKey::Process | HistKey::Cgroup | HistKey::Cpu => true,
            HistKey::Device => matches!(tracker, Tracker::Block | Tracker::Syscall),
            HistKey::Interrupt => matches!(tracker, Tracker::Irq | Tracker::Response | Tracker::Wakeup),
            HistKey::Softirq => tracker == Tracker::Softirq,
            HistKey::Syscall => matches!(tracker, Tracker::Syscall | Tracker::Lock),
            HistKey::Operation => tracker == Tracker::Block,
            HistKey::Field => tracker == Tracker::Pair,
        }
    }

    /// What most people want to see of a tracker.
    #[must_use]
    pub fn usual(tracker: Tracker) -> HistKey {
        match tracker {
            Tracker::Block => HistKey::Device,
            Tracker::Irq => HistKey::Interrupt,
            Tracker::Softirq => HistKey::Softirq,
            Tracker::Irqoff => HistKey::Cpu,
            _ => HistKey::Task,
        }
    }

    /// The key under which a late response was counted, as [`HistKey::same`] has it; `None`: its report does not say.
    #[must_use]
    pub fn of_late(self, late: &LateResponse) -> Option<Key> {
        let origin = late.chain.origin;
        let (id, kind) = match self {
            HistKey::Task => (late.tid.0, 0),
            HistKey::Process => (late.pid.0, 0),
            HistKey::Cpu => (late.cpu.0, 0),
            HistKey::Interrupt => (origin.id, origin.kind.number().into()),
            HistKey::Softirq | HistKey::Syscall => (origin.id, 0),
            HistKey::Device if late.tracker == Tracker::Block => (origin.id, 0),
            HistKey::Operation => (0, late.block.as_ref()?.operation as u16),
            // That of a call's file, the cgroup, and the field of a pair are only counted.
            HistKey::Device | HistKey::Cgroup | HistKey::Field => return None,
        };
        Some(Key { id, kind })
    }

    /// The same for keys that a report cannot tell apart: it says what was asked for, and not by which of several numbers.
    #[must_use]
    pub fn same(self, key: Key) -> Key {
        match self {
            HistKey::Operation => {
                Key { kind: BlockOperation::of(u64::from(key.kind), u64::MAX) as u16, ..key }
            }
            _ => key,
        }
    }

    /// As the kernel side counts it.
    pub(crate) fn counted_by(self, cells: u32) -> CountedBy {
        let (id, kind) = match self {
            HistKey::Task => (CellId::Thread, false),
            HistKey::Process => (CellId::Process, false),
            HistKey::Cgroup => (CellId::Cgroup, false),
            HistKey::Cpu => (CellId::Cpu, false),
            HistKey::Device => (CellId::Device, false),
            HistKey::Interrupt => (CellId::Origin, true),
            HistKey::Softirq | HistKey::Syscall => (CellId::Origin, false),
            HistKey::Operation => (CellId::All, true),
            HistKey::Field => (CellId::Field, false),
        };
        CountedBy { id, kind, cells }
    }
}

/// Which key comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistOrder {
    /// The one with the largest sum of times.
    #[default]
    Total,
    /// The one with the longest time: a task that was late once is not below those that are often a little late.
    Longest,
    /// The one with the most operations.
    Number,
}

impl std::str::FromStr for HistOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<HistOrder, String> {
        let found = HistOrder::ALL.into_iter().find(|order| order.name() == text);
        let names = || HistOrder::ALL.map(HistOrder::name).join(", ");
        found.ok_or_else(|| format!("there is no order '{text}': {}", names()))
    }
}

impl HistOrder {
    /// Every order.
    pub const ALL: [HistOrder; 3] = [HistOrder::Total, HistOrder::Longest, HistOrder::Number];

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HistOrder::Total => "total",
            HistOrder::Longest => "longest",
            HistOrder::Number => "number",
        }
    }

    /// Keys with the same figure stay in the order of their numbers, so that rows do not swap places between two intervals.
    pub(crate) fn sort(self, keys: &mut [KeyReport]) {
        keys.sort_by_key(|key| {
            let figure = match self {
                HistOrder::Total => key.sum_ns,
                HistOrder::Longest => key.figures.max_ns,
                HistOrder::Number => key.figures.count,
            };
            (Reverse(figure), key.id)
        });
    }
}

/// What is counted.
#[derive(Clone, Debug)]
pub struct HistSettings {
    /// What is followed.
    pub tracker: Tracker,
    /// Of `pair`: the two events, of the kernel or of programs, and what they have in common.
    pub between: Option<PairQuestion>,
    /// By what it is counted apart; `None`: all together.
    pub by: Option<HistKey>,
    /// Which key comes first.
    pub order: HistOrder,
    /// Of `syscall`: which calls, as `rtscope watch syscall --calls`.
    pub calls: Vec<String>,
    /// Of `irqoff`: the time between two samples; `None`: a millisecond.
    pub sample_ns: Option<u64>,
    /// Whose, and for how long.
    pub counted: Counted,
    /// Say what came in each interval of this length.
    pub interval_ns: Option<u64>,
    /// Cells of each CPU.
    pub cells: u32,
}

impl HistSettings {
    /// Whose operations are counted, in words.
    #[must_use]
    pub fn target_words(&self) -> String {
        let all = match self.tracker {
            Tracker::Block => "all block devices",
            Tracker::Pair => "any thread",
            tracker if tracker.is_of_cpus() => "all CPUs",
            _ => "any user-space task",
        };
        self.counted.words(all)
    }
}

/// Counts until it is asked to stop, the time is over, or COMMAND has ended. `show` has what came in each interval. Gives all of it, and how
/// COMMAND ended if not well.
///
/// # Errors
/// What kept it from counting.
pub fn run(
    settings: &HistSettings,
    stop: &Stop,
    observer: &dyn Observer,
    show: &mut dyn FnMut(&HistReport),
) -> Result<(HistReport, Result<(), Failure>), Failure> {
    let mut reporter = Reporter::new(settings, KeyNames::new());
    let mut counting = start(settings, stop)?;
    observer.note(&format!("counting {}; Ctrl-C ends it", reporter.words()));
    let slice_ns = settings.interval_ns.unwrap_or(SLICE_NS);
    let mut next_ns = slice_ns;
    while counting.wait_until(next_ns, stop) {
        let report = reporter.interval(counting.read());
        if settings.interval_ns.is_some() {
            show(&report);
        }
        // After a sleep that was too long no interval of no length.
        next_ns = (counting.elapsed_ns() / slice_ns + 1) * slice_ns;
    }
    let last = counting.finish();
    counting.blind_spots().iter().for_each(|text| observer.note(text));
    let command = counting.end_command(observer);
    Ok((reporter.total(last), command))
}

/// Counts in the same way, and tells the observer all of it again and again (`settings.interval_ns`, or each second): for who shows it while it
/// grows. Gives how COMMAND ended if not well.
pub(crate) fn follow(
    settings: &HistSettings,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Result<(), Failure>, Failure> {
    let mut live = LiveReader::new(settings);
    let mut counting = start(settings, stop)?;
    let interval_ns = settings.interval_ns.unwrap_or(SLICE_NS);
    observer.counted(live.read(counting.read(), 0));
    let mut next_ns = interval_ns;
    while counting.wait_until(next_ns, stop) {
        observer.counted(live.read(counting.read(), 0));
        next_ns = (counting.elapsed_ns() / interval_ns + 1) * interval_ns;
    }
    observer.counted(live.read(counting.finish(), 0));
    counting.blind_spots().iter().for_each(|text| observer.note(text));
    Ok(counting.end_command(observer))
}

fn start(settings: &HistSettings, stop: &Stop) -> Result<Box<dyn Counter>, Failure> {
    check(settings)?;
    Ok(match followed(settings)? {
        Followed::Kernel(follows) => {
            Box::new(Counting::start(config(settings, follows), &settings.counted, stop)?)
        }
        Followed::Programs(question) => Box::new(ProgramCounting::start(&question, settings, stop)?),
    })
}

/// Finds what would be refused.
pub(crate) fn check(settings: &HistSettings) -> Result<(), Failure> {
    if let Some(by) = settings.by.filter(|by| !by.is_of(settings.tracker)) {
        let fit = HistKey::ALL.iter().filter(|key| key.is_of(settings.tracker)).map(|key| key.name());
        return Err(Failure::Usage(format!(
            "--by {}: {} has none; it can be counted by {}",
            by.name(),
            settings.tracker.name(),
            fit.collect::<Vec<_>>().join(", ")
        )));
    }
    if settings.interval_ns == Some(0) {
        return Err(Failure::Usage("--interval: it has to be longer than 0".to_owned()));
    }
    if let Some(task) = &settings.counted.task {
        Glob::new(task).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    if settings.between.is_some() && settings.tracker != Tracker::Pair {
        return Err(Failure::Usage(format!("--from, --to: {} has none; pair has", settings.tracker.name())));
    }
    let Followed::Programs(_) = followed(settings)? else { return Ok(()) };
    match settings.by {
        Some(HistKey::Cgroup) => Err(Failure::Usage(
            "--by cgroup: events of programs do not say it; they can be counted by task, process, cpu, field"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// What is counted, and where.
enum Followed {
    Kernel(Follows),
    Programs(PairQuestion),
}

fn followed(settings: &HistSettings) -> Result<Followed, Failure> {
    Ok(Followed::Kernel(match settings.tracker {
        Tracker::Response => Follows::Responses(ResponseConfig::default()),
        Tracker::Wakeup => Follows::Wakeups,
        Tracker::Offcpu => Follows::OffCpu,
        Tracker::Syscall => Follows::Syscalls(calls::chosen(&settings.calls)?),
        Tracker::Lock => Follows::Locks,
        Tracker::Irq => Follows::Irqs,
        Tracker::Softirq => Follows::Softirqs,
        Tracker::Block => Follows::Blocks,
        Tracker::Preemptoff => Follows::PreemptOff,
        Tracker::Irqoff => Follows::IrqOff(settings.sample_ns.unwrap_or(SAMPLE_NS)),
        Tracker::Pair => return pair(settings.between.as_ref()),
    }))
}

fn config(settings: &HistSettings, follows: Follows) -> EbpfConfig {
    let all = CountedBy { id: CellId::All, kind: false, cells: settings.cells };
    let tracker = TrackerConfig {
        // The target is filled in where COMMAND is known.
        target: Target::default(),
        threshold_ns: u64::MAX,
        snapshot: false,
        records: false,
        follows,
        counted_by: Some(settings.by.map_or(all, |by| by.counted_by(settings.cells))),
    };
    EbpfConfig { recorder: None, trackers: vec![tracker], stacks: None, only: Vec::new() }
}

fn pair(question: Option<&PairQuestion>) -> Result<Followed, Failure> {
    let question = question.ok_or_else(|| {
        Failure::Usage("pair: between which two events? --from EVENT --to EVENT".to_owned())
    })?;
    Ok(match Tracepoints::of(question)? {
        Some(tracepoints) => Followed::Kernel(Follows::Pair(Box::new(tracepoints.pair()?))),
        None => Followed::Programs(question.clone()),
    })
}
