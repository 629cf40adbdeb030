// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording: any tracepoints of the running kernel, from both of its recorders, as one CTF trace; and events of instrumented
//! programs, as another (`programs`).
//!
//! `plan` decides which recorder takes what; `recorder` sets both recorders up and takes them down; `drain` empties their buffers into
//! the spool while they run; `live` makes the trace of it at the same time, where a CPU is idle, since the load is what must not be
//! disturbed; `finish` makes the rest. Events of programs become a trace without a spool (ADR 0014): writing them twice disturbs more.
//! `flight` records programs into their own memory until somebody asks. `choice` says which processes and events are wanted, `backend` where they
//! go; of those that go to an STM, `channels` notes what it takes to read them. `places` in programs become uprobes, unless a trace unit finds them
//! (`by_unit`).

mod backend;
mod by_unit;
pub(crate) mod channels;
mod choice;
mod drain;
mod finish;
mod flight;
mod live;
mod lost;
mod pace;
pub(crate) mod places;
pub mod plan;
mod priorities;
mod programs;
pub(crate) mod recorder;
mod request;
mod ring;
mod saving;
mod settings;
mod snapshots;
mod words;

pub use backend::Backend;
pub use finish::{is_abandoned, is_unfinished, recover};
pub use flight::run as run_flight_recorder;
pub use lost::{LostEvents, counts_by_user, losses_by_user};
pub use places::PlaceWords;
use places::RecordedPlace;
pub use request::{SavedTrace, request_snapshot};
pub use settings::{
    Context, Conversion, KERNEL_BUFFER_BYTES, KernelSettings, ProcessChoice, ProgramsSettings, RING_FILES,
    RecordSettings, RingSettings, SNAPSHOTS, SnapshotCause, SnapshotsAsked,
};
pub use words::{LevelRange, OnlyWhile, patterns_of};

use crate::command::{Child, complain};
use crate::hardware::DecodeReport;
use crate::placement::{ObservedTasks, Placement};
use crate::{Failure, Observer, Stop};
use by_unit::{ByUnit, UnitRecording};
use plan::Plan;
use programs::ProgramsRecording;
use recorder::Recording;
use ring::DiskLimit;
use rtscope_cpus::Cpus;
use rtscope_event::{Glob, MonotonicNs};
use rtscope_flight::monotonic_now;
use rtscope_hardware::capture::CaptureInfo;
use rtscope_kernel::tracefs::Tracefs;
use rtscope_store::user::{UserRecording, UserSummary};
use rtscope_store::{ConversionSummary, Spool};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The traces' names when there are two: LTTng's, which its tools look for.
const KERNEL: &str = "kernel";
const PROGRAMS: &str = "ust";

/// That of places in programs, where a trace unit finds them.
const PLACES: &str = "places";

/// Between polls of what records. A stop and COMMAND's end end the sleep.
const TICK: Duration = Duration::from_secs(1);
/// A trace that is so far behind what is recorded is told of: five times what followers wait for.
const FAR_BEHIND_NS: u64 = 5_000_000_000;
/// The same while somebody looks at the progress.
const PROGRESS_TICK: Duration = Duration::from_millis(200);
/// The same where COMMAND's end does not end the sleep.
const CHILD_TICK: Duration = Duration::from_millis(20);

/// A recording that has begun.
#[derive(Clone, Copy, Debug)]
pub struct RecordStart<'a> {
    /// Where the traces will be.
    pub target: &'a Path,
    /// Tracepoints.
    pub kernel: Option<KernelStart<'a>>,
    /// The patterns of programs' events.
    pub programs: Option<&'a [String]>,
}

/// Who records which tracepoints.
#[derive(Clone, Copy, Debug)]
pub struct KernelStart<'a> {
    /// Number of tracepoints that eBPF records.
    pub by_ebpf: usize,
    /// Number of those that ftrace records.
    pub by_ftrace: usize,
    /// Number of CPUs that have buffers.
    pub cpus: usize,
    /// Why eBPF records none.
    pub without_ebpf: Option<&'a str>,
    /// What this process does is left out.
    pub leaves_itself_out: bool,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug)]
pub struct RecordProgress {
    /// Since it began.
    pub passed_ns: u64,
    /// Written so far.
    pub bytes: u64,
    /// Events lost so far, as far as that is known before the end.
    pub lost: u64,
    /// How long ago the newest tracepoint was that is in the trace; `None`: none is before the end.
    pub behind_ns: Option<u64>,
    /// Of programs, when they are recorded.
    pub programs: Option<ProgramsProgress>,
    /// What is kept, when only the newest events are.
    pub kept: Option<KeptProgress>,
}

/// What is kept of a recording whose oldest events are removed.
#[derive(Clone, Copy, Debug)]
pub struct KeptProgress {
    /// It may take as much space.
    pub max_bytes: u64,
    /// How far it reaches back.
    pub reach_ns: u64,
    /// Events that were removed.
    pub overwritten: u64,
}

/// How far the recording of programs is.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramsProgress {
    /// Written so far.
    pub bytes: u64,
    /// Recorded so far.
    pub events: u64,
    /// Lost so far.
    pub lost: u64,
    /// Buffers of threads found so far.
    pub rings: u32,
    /// Processes found so far.
    pub programs: u32,
}

/// A complete trace.
#[derive(Clone, Copy, Debug)]
pub enum RecordedTrace<'a> {
    /// Of tracepoints.
    Kernel {
        /// Where it is.
        target: &'a Path,
        /// What is in it, and what is missing.
        summary: &'a ConversionSummary,
        /// How much of the recording was not in the trace yet when it ended; `None`: all of it.
        behind_ns: Option<u64>,
    },
    /// Of programs.
    Programs {
        /// Where it is.
        target: &'a Path,
        /// What is in it, and what is missing.
        summary: &'a UserSummary,
        /// CPU time that this process had used when all was taken; `None`: it is not known, or another process recorded.
        recording_cpu_us: Option<u64>,
        /// Of the last trace of a flight recorder, what events have asked for, by user.
        asked: Option<&'a [SnapshotsAsked]>,
    },
    /// Of places that a trace unit found.
    Places {
        /// Where it is, if there is one.
        target: &'a Path,
        /// What the unit wrote, and what is missing of it.
        capture: &'a CaptureInfo,
        /// What was made of that.
        report: &'a DecodeReport,
        /// The recorder was killed.
        interrupted: bool,
    },
}

/// Records until it is asked to stop, the duration is over, or COMMAND has ended; then makes the traces.
///
/// # Errors
/// What kept it from recording; or what ended it early or kept a trace from being made, after everything that could be done was.
pub fn run(settings: &RecordSettings, stop: &Stop, observer: &dyn Observer) -> Result<(), Failure> {
    let mut placement = placement(settings)?;
    finish::check_target(&settings.output)?;
    settings.absent().for_each(|tid| {
        observer.note(&format!(
            "--pid {tid}: there is no such process or thread now; nothing of it can be recorded"
        ));
    });
    let tracefs = Tracefs::find();
    let tracefs = tracefs.as_ref().ok();
    let places = settings
        .kernel
        .as_ref()
        .map(|kernel| places::find(&kernel.places, settings.command.first(), observer));
    let places = places.transpose()?.unwrap_or_default();
    let plan = settings.kernel.as_ref().map(|kernel| Plan::new(kernel, tracefs)).transpose()?;
    let mut child = held(settings, &mut placement, observer)?;
    let (by_unit, places) = divide(places, settings, child.as_ref(), observer);
    let settings = &without_places_of_unit(settings, by_unit.is_some());
    let plan = plan
        .filter(|_| settings.kernel.is_some())
        .map(|plan| plan.with_places(places, tracefs))
        .transpose()?;
    let targets = Targets::new(settings);
    let by_unit_note = by_unit.as_ref().map(|by_unit| by_unit.note(&settings.output));
    stop.begin()?;
    targets.make()?;
    let plans = Plans { kernel: plan.as_ref(), tracefs, by_unit };
    let begun = RunningRecorders::begin(settings, plans, child.as_ref(), (&targets, observer));
    let mut running = begun.inspect_err(|_| targets.unmake())?;
    observer.recording(&running.start(settings, plan.as_ref()));
    by_unit_note.iter().for_each(|text| observer.note(text));
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    wait(settings, stop, (&mut running, &mut child, &mut placement), observer);
    if let Some(child) = &mut child {
        child.terminate();
    }
    if let Some(end) = child.as_mut().and_then(Child::ending) {
        observer.command_ended(end);
    }
    running.finish(&targets, observer)?.map_or(Ok(()), Err)?;
    complain(child.as_mut(), observer)
}

/// Places in programs: those that a trace unit will find, or those that become uprobes.
fn divide(
    places: Vec<RecordedPlace>,
    settings: &RecordSettings,
    child: Option<&Child>,
    observer: &dyn Observer,
) -> (Option<ByUnit>, Vec<RecordedPlace>) {
    let Some(kernel) = settings.kernel.as_ref().filter(|_| !places.is_empty()) else { return (None, places) };
    match ByUnit::open(settings, kernel, &places, child.map(|child| child.pid().0)) {
        Ok(by_unit) => (Some(by_unit), Vec::new()),
        Err(why) => {
            observer.note(&places::note(places.len(), &why));
            (None, places)
        }
    }
}

/// What is left for the kernel's recorders: nothing, if only places were asked for, and a unit finds them.
fn without_places_of_unit(settings: &RecordSettings, by_unit: bool) -> RecordSettings {
    let mut settings = settings.clone();
    if let Some(kernel) = settings.kernel.as_mut().filter(|_| by_unit) {
        kernel.places.clear();
        if kernel.patterns.is_empty() {
            settings.kernel = None;
        }
    }
    settings
}

/// What records, as it was decided.
struct Plans<'a> {
    kernel: Option<&'a Plan>,
    tracefs: Option<&'a Tracefs>,
    by_unit: Option<ByUnit>,
}

/// COMMAND, if there is one, which waits to be let go.
fn held(
    settings: &RecordSettings,
    placement: &mut Placement,
    observer: &dyn Observer,
) -> Result<Option<Child>, Failure> {
    settings.fifo.map_or(Ok(()), crate::realtime::require_fifo)?;
    if settings.command.is_empty() {
        return Ok(None);
    }
    let switch = std::env::var("RTSCOPE").ok().filter(|text| switches_off(text));
    if let Some(switch) = switch.filter(|_| settings.programs.is_some()) {
        observer.note(&format!(
            "RTSCOPE={switch} is set: COMMAND inherits it, and programs with it cannot be recorded; unset it (env -u RTSCOPE)"
        ));
    }
    placement.hold(&settings.command, settings.command_output)
}

/// Whether a value of the variable RTSCOPE makes programs untraceable, as `rtscope__option()` in include/rtscope/life.h reads it.
fn switches_off(text: &str) -> bool {
    let digits = text.trim_start().trim_start_matches(['+', '-']);
    let digits = &digits[..digits.bytes().take_while(u8::is_ascii_digit).count()];
    !digits.is_empty() && digits.bytes().all(|digit| digit == b'0')
}

/// Leaves the CPUs of what is recorded.
fn placement(settings: &RecordSettings) -> Result<Placement, Failure> {
    let kernel = settings.kernel.as_ref();
    let text =
        |text: fn(&KernelSettings) -> &Option<String>| kernel.and_then(|kernel| text(kernel).as_deref());
    let targets = ObservedTasks {
        // Refused where the pattern is used.
        names: text(|kernel| &kernel.comm).and_then(|comm| Glob::new(comm).ok()).into_iter().collect(),
        threads: kernel.map(|kernel| kernel.tids.clone()).unwrap_or_default(),
        with_children: true,
        cpus: text(|kernel| &kernel.cpus).and_then(|cpus| Cpus::from_list(cpus).ok()),
        ..ObservedTasks::default()
    };
    Placement::take(targets, !settings.command.is_empty())
}

/// Where the traces go: into a directory, by the names that LTTng's tools look for (its analyses take no other).
#[derive(Debug)]
struct Targets {
    directory: PathBuf,
    kernel: Option<PathBuf>,
    programs: Option<PathBuf>,
}

impl Targets {
    fn new(settings: &RecordSettings) -> Targets {
        let target = &settings.output;
        Targets {
            directory: target.clone(),
            kernel: settings.kernel.is_some().then(|| target.join(KERNEL)),
            programs: settings.programs.is_some().then(|| target.join(PROGRAMS)),
        }
    }

    /// How to get a trace of what is left after this failure, if something is and the failure does not say so.
    fn advice(&self, failure: &Failure) -> String {
        let is_left =
            |target: &&PathBuf| Spool::find(target).or_else(|| UserRecording::find(target)).is_some();
        let left = self.kernel.iter().chain(&self.programs).find(is_left);
        let left = left.or_else(|| by_unit::unfinished(&self.directory).map(|_| &self.directory));
        match left.filter(|_| !failure.to_string().contains("--recover")) {
            Some(target) => format!("; rtscope record --recover {} makes its trace", target.display()),
            None => String::new(),
        }
    }

    /// Makes the directory.
    fn make(&self) -> Result<(), Failure> {
        let made = std::fs::create_dir(&self.directory);
        made.map_err(|error| {
            Failure::system(format!("making the directory {}", self.directory.display()), &error)
        })
    }

    /// Nothing was recorded: what has been made goes. Only if nothing else is in it.
    fn unmake(&self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// What is being recorded.
#[derive(Debug)]
struct RunningRecorders {
    kernel: Option<Recording>,
    programs: Option<ProgramsRecording>,
    by_unit: Option<UnitRecording>,
    started: MonotonicNs,
    limit: Option<(RingSettings, DiskLimit)>,
    behind: BehindNote,
}

/// Says once that the trace of the kernel's events is far behind them, while it is made.
#[derive(Debug, Default)]
struct BehindNote {
    is_told: bool,
}

impl BehindNote {
    fn look(&mut self, conversion: Conversion, behind_ns: Option<u64>, observer: &dyn Observer) {
        if self.is_told || behind_ns.is_none_or(|behind_ns| behind_ns < FAR_BEHIND_NS) {
            return;
        }
        self.is_told = true;
        let why = match conversion {
            Conversion::Now => "more is recorded than one thread can convert",
            _ => {
                "it is made in time that no task needs, and no CPU has enough of it (--convert-now makes it in any time)"
            }
        };
        observer.note(&format!(
            "the trace is {} s behind: {why}; whoever follows it sees events late; nothing is lost by that",
            FAR_BEHIND_NS / 1_000_000_000
        ));
    }
}

impl RunningRecorders {
    /// Switches all on, or none.
    fn begin(
        settings: &RecordSettings,
        plans: Plans<'_>,
        child: Option<&Child>,
        (targets, observer): (&Targets, &dyn Observer),
    ) -> Result<RunningRecorders, Failure> {
        let (has_kernel, has_programs) = (settings.kernel.is_some(), settings.programs.is_some());
        let limit = |ring: RingSettings| -> Result<_, Failure> {
            Ok((ring, DiskLimit::new(ring, has_kernel, has_programs)?))
        };
        let limit = settings.ring.map(limit).transpose()?;
        let programs = match (&settings.programs, &targets.programs) {
            (Some(programs), Some(target)) => Some(ProgramsRecording::start(
                (programs, child.map(|child| child.pid().0)),
                settings.fifo,
                (target, limit.as_ref().map(|(_, limit)| limit)),
                observer,
            )?),
            _ => None,
        };
        let by_unit =
            plans.by_unit.map(|by_unit| by_unit.start(settings.fifo, &targets.directory)).transpose()?;
        let kernel = match (&settings.kernel, plans.kernel, &targets.kernel) {
            (Some(kernel), Some(plan), Some(target)) => {
                let limit = limit.as_ref().map(|(_, limit)| limit);
                let tracefs = plans.tracefs;
                let setup = recorder::Setup { settings: kernel, plan, tracefs, child, observer, limit };
                Some(Recording::start(&setup, settings.fifo, target)?)
            }
            _ => None,
        };
        Ok(RunningRecorders {
            kernel,
            programs,
            by_unit,
            started: monotonic_now(),
            limit,
            behind: BehindNote::default(),
        })
    }

    fn start<'a>(&self, settings: &'a RecordSettings, plan: Option<&'a Plan>) -> RecordStart<'a> {
        let kernel = self.kernel.as_ref().zip(plan).map(|(recording, plan)| KernelStart {
            by_ebpf: plan.built_in.len() + plan.calls.len(),
            by_ftrace: plan.ftrace.len() + plan.places.len(),
            cpus: recording.cpus(),
            without_ebpf: plan.without_ebpf.as_deref().filter(|_| plan.built_in.is_empty()),
            leaves_itself_out: recording.leaves_itself_out(),
        });
        let programs = settings.programs.as_ref().map(|programs| programs.patterns.as_slice());
        RecordStart { target: &settings.output, kernel, programs }
    }

    fn progress(&self, now: MonotonicNs) -> RecordProgress {
        let (bytes, lost) = self.kernel.as_ref().map(Recording::progress).unwrap_or_default();
        let programs = self.programs.as_ref().map(ProgramsRecording::progress);
        let of_programs = programs.unwrap_or_default();
        let converted_until = self.kernel.as_ref().and_then(Recording::converted_until);
        let kept = self.limit.as_ref().map(|(settings, limit)| {
            let removed = limit.files.overwritten();
            let reach_ns = now.since(removed.until.max(self.started));
            KeptProgress { max_bytes: settings.max_bytes, reach_ns, overwritten: removed.events }
        });
        RecordProgress {
            kept,
            behind_ns: converted_until.map(|until| now.since(until)),
            passed_ns: now.since(self.started),
            bytes: bytes + of_programs.bytes + self.by_unit.as_ref().map_or(0, UnitRecording::bytes),
            lost: lost.saturating_add(of_programs.lost),
            programs,
        }
    }

    fn has_failed(&self) -> bool {
        self.kernel.as_ref().is_some_and(Recording::has_failed)
            || self.programs.as_ref().is_some_and(ProgramsRecording::has_failed)
            || self.by_unit.as_ref().is_some_and(UnitRecording::has_failed)
    }

    /// Stops both, then makes the traces. Gives what ended the recording early, if something did.
    fn finish(self, targets: &Targets, observer: &dyn Observer) -> Result<Option<Failure>, Failure> {
        // All are stopped before one is converted, and one's trouble must not cost another's trace.
        let by_unit = self.by_unit.map(UnitRecording::stop);
        let programs = self.programs.map(ProgramsRecording::stop);
        let kernel = self.kernel.map(|kernel| kernel.stop(observer));
        let used_us = own_cpu_us();
        let mut failures = Vec::new();
        if let (Some(kernel), Some(target)) = (kernel, &targets.kernel) {
            let converted = kernel.and_then(|recorded| {
                failures.extend(recorded.failure);
                finish::convert((recorded.spool, recorded.live), target, observer)
            });
            failures.extend(converted.err());
        }
        if let (Some(programs), Some(target)) = (programs, &targets.programs) {
            let converted = programs.and_then(|(recording, failure)| {
                failures.extend(failure);
                finish::complete_programs(recording, target, used_us, observer)
            });
            failures.extend(converted.err());
        }
        if let Some(by_unit) = by_unit {
            let place = targets.directory.join(PLACES);
            failures.extend(by_unit.and_then(|written| written.convert(&place, observer)).err());
        }
        for failure in &failures {
            let advice = targets.advice(failure);
            observer.note(&format!(
                "the recording ended early, and what was recorded is retained: {failure}{advice}"
            ));
        }
        Ok(failures.into_iter().next())
    }
}

/// CPU time of this process so far: what it took from the load. `None`: the kernel does not report it.
fn own_cpu_us() -> Option<u64> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_nsec().unsigned_abs() / 1000)
}

/// Until something ends it.
fn wait(
    settings: &RecordSettings,
    stop: &Stop,
    (running, child, placement): (&mut RunningRecorders, &mut Option<Child>, &mut Placement),
    observer: &dyn Observer,
) {
    let until = settings.duration_ns.map(|duration| running.started.0.saturating_add(duration));
    let end = child.as_ref().and_then(Child::end);
    let tick = match (child.is_some() && end.is_none(), observer.shows_progress()) {
        (true, _) => CHILD_TICK,
        (false, true) => PROGRESS_TICK,
        (false, false) => TICK,
    };
    loop {
        let now = monotonic_now();
        let over = until.is_some_and(|until| now.0 >= until);
        if stop.asked() || over || child.as_mut().is_some_and(Child::has_ended) || running.has_failed() {
            observer.end_of_progress();
            return;
        }
        placement.follow(now, || None);
        running.kernel.iter().for_each(|kernel| kernel.look(now));
        let progress = running.progress(now);
        if let Some(kernel) = &settings.kernel {
            running.behind.look(kernel.conversion, progress.behind_ns, observer);
        }
        observer.recording_progress(&progress);
        let next = until.into_iter().chain([placement.next_look().0]).min().unwrap_or(u64::MAX);
        stop.wait(Duration::from_nanos(next.saturating_sub(now.0)).min(tick), end.as_ref());
    }
}
