// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the settings to what will be done. Everything that can be refused is refused here, before anything is started.

use super::calls;
use super::numbered::Numbered;
use super::pair::Tracepoints;
use super::samples;
use super::settings::{CountBeside, ExplainText, WatchSettings};
use super::spans::{SpanTarget, SpanTracker};
use crate::Failure;
use crate::hardware::unit::UnitPlan;
use nix::unistd::{AccessFlags, access};
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{End, Glob, Irq, OriginKind, Pid, TaskInfo, Tid, Tracker};
use rtscope_flight::monotonic_now;
use rtscope_kernel::{
    EbpfConfig, Follows, OriginFilter, RecorderConfig, ResponseConfig, SnapshotConfig, StackConfig, Target,
    TrackerConfig, irq_number,
};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A watch that can be started, but for the process of COMMAND.
#[derive(Debug)]
pub struct Plan {
    /// What runs in the kernel.
    pub ebpf: EbpfConfig,
    /// The two events of programs between which the time is watched, and whose: the first instance, which is not in the kernel.
    pub between: Option<(PairQuestion, SpanTarget)>,
    /// The two tracepoints of the tracker `pair`, and how they were asked for.
    pub pair: Option<(PairQuestion, Tracepoints)>,
    /// Whose responses: a name pattern, as typed.
    pub task: Option<String>,
    /// The process or thread that was named by its number.
    pub numbered: Option<Numbered>,
    /// The interrupts that count, with the names they were asked for by.
    pub irqs: Vec<Irq>,
    /// With what responses begin.
    pub begin: Vec<OriginKind>,
    /// When a response ends.
    pub end: End,
    /// What is followed, and its limit, by instance.
    pub trackers: Vec<(Tracker, u64)>,
    /// For each, the name of its own targets; `None`: it has those of the watch.
    pub own_targets: Vec<Option<String>>,
    /// History requested before a detection.
    pub pre_ns: u64,
    /// Recording goes on for this time after a detection.
    pub post_ns: u64,
    /// At least this time between two snapshots.
    pub interval_ns: u64,
    /// Where snapshots go.
    pub snapshot_dir: Option<PathBuf>,
    /// What other users' programs may cause to be saved there.
    pub snapshots_bytes: Option<u64>,
    /// What `explain.txt` says there.
    pub explain_text: Option<ExplainText>,
    /// What the first tracker also counts.
    pub count: Option<CountBeside>,
    /// Patterns of tracepoints that snapshots have in addition to those of eBPF.
    pub kernel: Vec<String>,
    /// Patterns of programs' events that snapshots have.
    pub programs: Vec<String>,
    /// A trace unit, and the bytes of its buffer of each CPU.
    pub hardware: Option<(UnitPlan, usize)>,
    /// When to stop.
    pub duration_ns: Option<u64>,
    /// What is late is the limit from then on.
    pub record_breakers: bool,
    /// What has not ended after this time is told while it is under way.
    pub timeout_ns: Option<u64>,
    /// A program to start.
    pub command: Vec<OsString>,
}

impl Plan {
    /// Resolves names and checks values.
    pub fn new(settings: &WatchSettings) -> Result<Plan, Failure> {
        let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
        let name = settings.task.as_deref().map(Glob::new).transpose().map_err(|error| usage(&error))?;
        let numbered = Numbered::of(settings.pid, settings.tid)?;
        let irqs: Vec<Irq> = settings
            .irqs
            .iter()
            .map(|text| irq_number(text))
            .collect::<Result<_, _>>()
            .map_err(Failure::Usage)?;
        let pair = pair(settings)?;
        let settings = &WatchSettings { tracker: tracker(settings, pair.as_ref())?, ..settings.clone() };
        check_timeout(settings, pair.is_some())?;
        check_records(settings, pair.is_some())?;
        let hardware = hardware(settings)?;
        if let Some(dir) = &settings.snapshot_dir {
            prepare_dir(dir)?;
        }
        let between = between(settings, name.as_ref()).filter(|_| pair.is_none());
        let kinds = if between.is_some() { vec![OriginKind::Event] } else { origin_kinds(settings) };
        let end = if between.is_some() { End::Event } else { settings.end };
        let mut programs = settings.programs.clone();
        // What is paired has to be recorded.
        programs.extend(between.iter().flat_map(|(pair, _)| pair.events()).map(ToString::to_string));
        let (pid, tid) = (settings.pid.map(Pid), settings.tid.map(Tid));
        let target = Target { name, pid, tid, is_command: false };
        let responses = ResponseConfig {
            end,
            origins: OriginFilter { kinds: kinds.clone(), irqs: irqs.clone() },
            sources: settings.sources.clone(),
        };
        let mut followed = trackers(settings, &target, &responses, pair.as_ref())?;
        // Events of programs are paired by the collector.
        followed.drain(..usize::from(between.is_some()));
        let ebpf = EbpfConfig {
            recorder: Some(flight_recorder(settings)),
            trackers: followed,
            stacks: stacks(settings)?,
            only: Vec::new(),
        };
        let own = settings.also.iter().map(|also| also.task.clone());
        let own_targets = std::iter::once(None).chain(own).collect();
        Ok(Plan {
            ebpf,
            between,
            pair,
            interval_ns: settings.interval_ns,
            task: settings.task.clone(),
            numbered,
            begin: kinds,
            irqs,
            end,
            trackers: settings.limits().collect(),
            own_targets,
            pre_ns: settings.pre_ns,
            post_ns: settings.post_ns,
            snapshot_dir: settings.snapshot_dir.clone(),
            snapshots_bytes: settings.snapshots_bytes,
            explain_text: settings.explain_text,
            count: settings.count,
            kernel: settings.kernel.clone(),
            programs,
            hardware,
            duration_ns: settings.duration_ns,
            timeout_ns: settings.timeout_ns,
            record_breakers: settings.record_breakers,
            command: settings.command.clone(),
        })
    }

    /// Finds all that [`Plan::new`] would refuse, and makes nothing.
    pub fn check(settings: &WatchSettings) -> Result<(), Failure> {
        if let Some(dir) = &settings.snapshot_dir {
            let there = dir.ancestors().find(|dir| dir.exists());
            there.map_or(Ok(()), |there| check_dir(dir, there))?;
        }
        Plan::new(&WatchSettings { snapshot_dir: None, ..settings.clone() }).map(|_| ())
    }

    /// The process of COMMAND is the target, unless the user named one.
    pub fn target_command(&mut self, pid: Pid) {
        for tracker in &mut self.ebpf.trackers {
            let target = &mut tracker.target;
            if target.name.is_none() && target.pid.is_none() && target.tid.is_none() {
                target.pid = Some(pid);
                target.is_command = true;
            }
        }
    }

    /// The process that was named by its number, or COMMAND's.
    pub fn target_pid(&self) -> Option<Pid> {
        self.ebpf.trackers.first().and_then(|tracker| tracker.target.pid)
    }

    /// The limit of the first tracker.
    pub fn threshold_ns(&self) -> u64 {
        self.trackers.first().map_or(0, |(_, threshold_ns)| *threshold_ns)
    }

    /// Bytes of one bank of the flight recorder.
    pub fn bank_bytes(&self) -> usize {
        self.ebpf.recorder.as_ref().map_or(0, |recorder| recorder.bank_bytes)
    }

    /// How many instances come before those in the kernel, whose first has the number 0 there.
    pub fn outside_kernel(&self) -> u8 {
        u8::from(self.between.is_some())
    }

    /// The number of an instance in the kernel; `None`: it is not there.
    pub fn in_kernel(&self, instance: usize) -> Option<usize> {
        instance.checked_sub(usize::from(self.outside_kernel()))
    }

    /// Pairs the events of programs, if that is what is watched.
    pub fn span_tracker(&self) -> Option<SpanTracker> {
        let (pair, target) = self.between.as_ref()?;
        let spans = SpanTracker::new(pair, target.clone(), self.threshold_ns(), monotonic_now());
        Some(match self.count {
            Some(count) => spans.counting(Some(count.by), count.cells),
            None => spans,
        })
    }

    /// The two events between which the time is watched, of programs or of the kernel.
    pub fn question(&self) -> Option<&PairQuestion> {
        let of_kernel = self.pair.as_ref().map(|(pair, _)| pair);
        self.between.as_ref().map(|(pair, _)| pair).or(of_kernel)
    }

    /// What is watched, in words.
    pub fn watched_text(&self) -> String {
        let target = self.target_text();
        self.question().map_or(target.clone(), |pair| format!("'{pair}' of {target}"))
    }

    /// Whose responses, in words.
    pub fn target_text(&self) -> String {
        if let Some((_, target)) = &self.between {
            return threads_text(self.task.as_deref(), target);
        }
        let target = self.ebpf.trackers.first().map(|tracker| tracker.target.clone()).unwrap_or_default();
        let whose = match (&self.task, target.pid) {
            (Some(task), None) => format!("tasks named '{task}'"),
            (Some(task), Some(pid)) => format!("tasks of process {pid} named '{task}'"),
            (None, Some(pid)) => format!("tasks of process {pid}"),
            (None, None) if self.trackers.iter().all(|(tracker, _)| tracker.is_of_cpus()) => {
                "all CPUs".to_string()
            }
            (None, None) if self.pair.is_some() && self.trackers.len() == 1 => "any thread".to_string(),
            (None, None) if self.trackers.iter().all(|(tracker, _)| *tracker == Tracker::Block) => {
                "all block devices".to_string()
            }
            (None, None) if self.trackers.iter().all(|(tracker, _)| tracker.is_of_all()) => {
                "all CPUs and block devices".to_string()
            }
            (None, None) => "any user-space task".to_string(),
        };
        match target.tid {
            Some(tid) if self.task.is_none() && target.pid.is_none() => format!("thread {tid}"),
            Some(tid) => format!("thread {tid}, as one of the {whose}"),
            None => whose,
        }
    }

    /// How many of these tasks match the name or the process.
    pub fn matching_tasks(&self, tasks: &[TaskInfo]) -> usize {
        if let Some((_, target)) = &self.between {
            let matches = |task: &&TaskInfo| {
                target.pid.is_none_or(|wanted| wanted == task.pid.0)
                    && target.name.as_ref().is_none_or(|name| name.matches(task.comm.as_bytes()))
            };
            return tasks.iter().filter(matches).count();
        }
        let Some(tracker) = self.ebpf.trackers.first() else { return 0 };
        let matches = |task: &&TaskInfo| {
            tracker.target.pid.is_none_or(|wanted| wanted == task.pid)
                && tracker.target.tid.is_none_or(|wanted| wanted == task.tid)
                && tracker.target.name.as_ref().is_none_or(|name| name.matches(task.comm.as_bytes()))
        };
        tasks.iter().filter(matches).count()
    }
}

fn flight_recorder(settings: &WatchSettings) -> RecorderConfig {
    let snapshot = SnapshotConfig { post_ns: settings.post_ns, interval_ns: settings.interval_ns };
    RecorderConfig { bank_bytes: settings.bank_bytes, snapshot: Some(snapshot), stream: None }
}

/// A timeout needs something that is followed until it ends.
fn check_timeout(settings: &WatchSettings, is_pair: bool) -> Result<(), Failure> {
    // The time between two events of programs is not the kernel's.
    let is_of_programs = settings.between.is_some() && !is_pair;
    let mut wanted = settings.limits().skip(usize::from(is_of_programs)).map(|(tracker, _)| tracker);
    if settings.timeout_ns.is_none() || wanted.any(Tracker::is_seen_pending) {
        return Ok(());
    }
    Err(Failure::Usage(
        "--timeout: this is known when it has ended; watch wakeup, offcpu, syscall, lock, block or a pair of tracepoints, or add one (--and offcpu:TIME)"
            .to_string(),
    ))
}

/// The limit of the time between two events of programs is not the kernel's.
fn check_records(settings: &WatchSettings, is_pair: bool) -> Result<(), Failure> {
    if settings.record_breakers && settings.between.is_some() && !is_pair {
        return Err(Failure::Usage(
            "--record-breakers: the kernel raises the limit of its trackers, but the time between two events of programs (--from, --to) is measured outside it"
                .to_string(),
        ));
    }
    Ok(())
}

/// Copies of stacks, where anything that is followed can have them.
fn stacks(settings: &WatchSettings) -> Result<Option<StackConfig>, Failure> {
    let most = StackConfig::MOST_BYTES;
    match settings.stack_bytes {
        Some(bytes) if bytes == 0 || bytes > most => Err(Failure::Usage(format!(
            "--stacks={bytes}: from 1 to {most} bytes ({}K) of each stack can be copied",
            most >> 10
        ))),
        Some(bytes) if settings.limits().any(|(tracker, _)| tracker.has_stacks()) => {
            Ok(Some(StackConfig { bytes }))
        }
        _ => Ok(None),
    }
}

/// One for each thing that is followed.
fn trackers(
    settings: &WatchSettings,
    target: &Target,
    responses: &ResponseConfig,
    pair: Option<&(PairQuestion, Tracepoints)>,
) -> Result<Vec<TrackerConfig>, Failure> {
    let calls = calls::chosen(&settings.calls)?;
    let sample_ns = samples::period_ns(settings)?;
    let pair = pair.map(|(_, tracepoints)| tracepoints.pair()).transpose()?;
    let not_named = || Failure::Usage("pair: which events? watch pair --from EVENT --to EVENT".to_string());
    let own = settings.also.iter().map(|also| also.task.as_deref());
    let wanted = settings.limits().zip(std::iter::once(None).chain(own));
    let config = |((tracker, threshold_ns), own): (_, Option<&str>)| {
        let own =
            own.map(Glob::new).transpose().map_err(|error| Failure::Usage(format!("--and: {error}")))?;
        let own = own.map(|name| Target { name: Some(name), ..Target::default() });
        let follows = match tracker {
            Tracker::Response => Follows::Responses(responses.clone()),
            Tracker::Wakeup => Follows::Wakeups,
            Tracker::Offcpu => Follows::OffCpu,
            Tracker::Syscall => Follows::Syscalls(calls.clone()),
            Tracker::Lock => Follows::Locks,
            Tracker::Irq => Follows::Irqs,
            Tracker::Softirq => Follows::Softirqs,
            Tracker::Block => Follows::Blocks,
            Tracker::Preemptoff => Follows::PreemptOff,
            Tracker::Irqoff => Follows::IrqOff(sample_ns),
            Tracker::Pair => Follows::Pair(Box::new(pair.clone().ok_or_else(not_named)?)),
        };
        let records = settings.record_breakers;
        Ok(TrackerConfig {
            target: own.unwrap_or_else(|| target.clone()),
            threshold_ns,
            snapshot: true,
            records,
            follows,
            counted_by: None,
        })
    };
    let mut all = wanted.map(config).collect::<Result<Vec<TrackerConfig>, Failure>>()?;
    if let Some(first) = all.first_mut() {
        first.counted_by = settings.count.map(|count| count.by.counted_by(count.cells));
    }
    Ok(all)
}

/// The unit, if this machine has it.
fn hardware(settings: &WatchSettings) -> Result<Option<(UnitPlan, usize)>, Failure> {
    let Some((event, bytes)) = &settings.hardware else { return Ok(None) };
    Ok(Some((UnitPlan::new(event)?, *bytes)))
}

/// The two events, where they are tracepoints of the kernel.
fn pair(settings: &WatchSettings) -> Result<Option<(PairQuestion, Tracepoints)>, Failure> {
    let Some(question) = &settings.between else { return Ok(None) };
    Ok(Tracepoints::of(question)?.map(|tracepoints| (question.clone(), tracepoints)))
}

/// What follows them: those of programs are the responses of a program, paired at the collector's look.
fn tracker(settings: &WatchSettings, pair: Option<&(PairQuestion, Tracepoints)>) -> Result<Tracker, Failure> {
    let also_pair = settings.also.iter().any(|also| also.tracker == Tracker::Pair);
    match (&settings.between, pair) {
        _ if also_pair => Err(Failure::Usage(
            "--and pair: which events? watch pair --from EVENT --to EVENT, and add the others to it (--and offcpu:TIME)".to_string(),
        )),
        (Some(_), Some(_)) => Ok(Tracker::Pair),
        (Some(_), None) => Ok(Tracker::Response),
        (None, _) => Ok(settings.tracker),
    }
}

/// The two events, and whose time between them counts.
fn between(settings: &WatchSettings, name: Option<&Glob>) -> Option<(PairQuestion, SpanTarget)> {
    let target = SpanTarget { name: name.cloned(), pid: settings.pid, tid: settings.tid };
    settings.between.clone().map(|pair| (pair, target))
}

/// Whose intervals, in words.
fn threads_text(task: Option<&str>, target: &SpanTarget) -> String {
    let mut text = target.tid.map_or("threads".to_string(), |tid| format!("thread {tid}"));
    target.pid.iter().for_each(|pid| text.push_str(&format!(" of process {pid}")));
    task.iter().for_each(|task| text.push_str(&format!(" named '{task}'")));
    if text == "threads" { "any thread".to_string() } else { text }
}

/// With what responses begin: what was asked for, or all from outside the tasks; a cycle begins with the thread's own timer.
fn origin_kinds(settings: &WatchSettings) -> Vec<OriginKind> {
    let mut kinds = settings.begin.clone();
    let named = [(settings.timer, OriginKind::Timer), (!settings.irqs.is_empty(), OriginKind::Irq)];
    kinds.extend(named.into_iter().filter(|(named, _)| *named).map(|(_, kind)| kind));
    match (kinds.is_empty(), settings.end) {
        (true, End::Cycle) => vec![OriginKind::Timer],
        (true, _) => OriginFilter::default().kinds,
        (false, _) => {
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        }
    }
}

/// Makes the directory for snapshots, or says why that will not do. Finding that out at the first late response would be late.
fn prepare_dir(dir: &Path) -> Result<(), Failure> {
    if !dir.exists() {
        fs::create_dir_all(dir).map_err(|error| refused_dir(dir, &error))?;
    }
    check_dir(dir, dir)
}

fn refused_dir(dir: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Usage(format!("cannot save snapshots in {} (--snapshot-dir): {why}", dir.display()))
}

/// `there`: what of the path there is.
fn check_dir(dir: &Path, there: &Path) -> Result<(), Failure> {
    if !there.is_dir() {
        return Err(refused_dir(dir, &format!("{} is not a directory; name another one", there.display())));
    }
    access(there, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| refused_dir(dir, &error.desc()))
}
