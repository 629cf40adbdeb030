// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places of a recording that the address comparators of a trace unit find (`--at … --hardware pt`): the thread that executes one pays what the unit
//! writes, and neither an interrupt nor a system call.
//!
//! ```text
//! unit → AUX area → thread → DIR/hardware (a capture: perf.data, capture.json; `unfinished`) → at the end: DIR/places (a trace)
//! ```
//!
//! Where the unit cannot do that, [`ByUnit::open`] says why, and places are uprobes (`super::places`).

use super::PLACES;
use super::places::{self, RecordedPlace};
use super::settings::{KernelSettings, RecordSettings};
use crate::hardware::capture::{CaptureMode, EventSpec, traced_cpus};
use crate::hardware::comparators::{Comparators, comparators_of};
use crate::hardware::processes;
use crate::hardware::rings::{RingsConfig, TracedTasks, UnitRings};
use crate::hardware::unit::UnitPlan;
use crate::hardware::{DecodeReport, Decoding};
use crate::placement::tasks;
use crate::realtime::become_fifo;
use crate::record::RecordedTrace;
use crate::{Failure, Observer};
use nix::fcntl::{Flock, FlockArg};
use rtscope_cpus::Cpus;
use rtscope_event::counted;
use rtscope_hardware::capture::CaptureInfo;
use rtscope_hardware::decode::Settings;
use rtscope_hardware::inventory::{Inventory, Machine, State};
use rtscope_hardware::perfdata::PerfWriter;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the unit wrote, below the recording's directory.
pub(super) const CAPTURE: &str = "hardware";
/// In it, until its trace has been made.
const UNFINISHED: &str = "unfinished";
/// Of each CPU: the first that the kernel gives, as a user may lock only so much. A place that is executed has some 20 bytes, so these are 200 000, 50 000 and
/// 12 000 of them between two looks.
const AUX_BYTES: [usize; 3] = [4 << 20, 1 << 20, 256 << 10];
/// Between two looks; an area that fills up ends the sleep.
const LOOK: Duration = Duration::from_millis(50);

/// A unit that will find places: its events are open, and switched off.
#[derive(Debug)]
pub(super) struct ByUnit {
    rings: UnitRings,
    unit: String,
    places: usize,
    /// Of `--pid`; empty: COMMAND.
    tids: Vec<u32>,
    /// Threads that began while the events were opened (`--follow`): a traced one's has inherited those of some CPUs. /proc does not say whose it is.
    began_meanwhile: usize,
}

impl ByUnit {
    /// For these places, if the unit can do it. `command`: COMMAND, which waits to be let go.
    ///
    /// # Errors
    /// Why it cannot, in words.
    pub fn open(
        settings: &RecordSettings,
        kernel: &KernelSettings,
        places: &[RecordedPlace],
        command: Option<u32>,
    ) -> Result<ByUnit, String> {
        let Some(asked) = kernel.comparators.as_deref() else {
            return Err("no trace unit was asked for (--hardware pt)".to_owned());
        };
        let why_not = |why: String| format!("--hardware {asked}: {why}");
        let plans = usable_unit(asked).map_err(why_not)?;
        can_take(settings, kernel, places.len(), &plans[0]).map_err(why_not)?;
        let said = |failure: Failure| why_not(failure.to_string());
        let cpus =
            kernel.cpus.as_deref().map(Cpus::from_list).transpose().map_err(|error| error.to_string())?;
        let tids: Vec<u32> = BTreeSet::from_iter(kernel.tids.iter().copied()).into_iter().collect();
        let config = RingsConfig {
            tasks: TracedTasks::Only(command.map_or_else(|| tids.clone(), |command| vec![command])),
            with_children: kernel.follow || command.is_some(),
            from_exec: command.is_some(),
            cpus: traced_cpus(cpus.as_ref()).map_err(said)?,
            aux_bytes: 0,
            mode: CaptureMode::Full,
            comparators: Comparators::of(places.to_vec()).map_err(said)?,
        };
        crate::limits::raise_file_limit();
        let unit = plans[0].pmu.name.clone();
        let follows = kernel.follow && command.is_none();
        let before = if follows { family(&tids) } else { BTreeSet::new() };
        let rings = open_rings(plans, &config).map_err(said)?;
        let began_meanwhile = if follows { family(&tids).difference(&before).count() } else { 0 };
        Ok(ByUnit { rings, unit, places: places.len(), tids, began_meanwhile })
    }

    /// What is said once.
    pub fn note(&self, directory: &Path) -> String {
        let whose = if self.tids.is_empty() { "COMMAND and what it starts" } else { "the threads of --pid" };
        let mut note = format!(
            "{} recorded by address comparators of {} into {}, of {whose}: no interrupt, no system call",
            counted(self.places as u64, "place is", "places are"),
            self.unit,
            directory.join(PLACES).display()
        );
        if self.began_meanwhile > 0 {
            let threads = counted(self.began_meanwhile as u64, "thread", "threads");
            note +=
                &format!("; {threads} began while the unit was set up, and may not be traced on all CPUs");
        }
        note
    }

    /// Switches the unit on. `directory`: the recording's.
    pub fn start(self, fifo: Option<u8>, directory: &Path) -> Result<UnitRecording, Failure> {
        let capture = directory.join(CAPTURE);
        let failed = |error: io::Error| Failure::system(format!("writing {}", capture.display()), &error);
        let ByUnit { rings, tids, .. } = self;
        fs::create_dir(&capture).map_err(failed)?;
        let begin = || {
            let mark = mark(&capture).map_err(failed)?;
            let mut writer = rings.begin(&capture)?;
            // COMMAND's are switched on by its execve(2).
            if !tids.is_empty() {
                // What is mapped from now on has a record.
                rings.enable_tasks()?;
                processes::add_of_threads(&mut writer, &tids).map_err(failed)?;
                rings.enable()?;
            }
            Ok((mark, writer))
        };
        let begun = begin().and_then(|begun| UnitRecording::start(rings, begun, fifo, &capture));
        // Nothing was recorded: whoever makes the recording's directory removes that.
        begun.inspect_err(|_| drop(fs::remove_dir_all(&capture)))
    }
}

/// The threads of their processes, and of those that these have started.
fn family(tids: &[u32]) -> BTreeSet<u32> {
    let mut threads = Vec::new();
    tids.iter().for_each(|tid| tasks::threads_of(*tid, true, &mut threads));
    threads.into_iter().collect()
}

/// The unit, if this machine has it, and rtscope can set its comparators: with the settings that suit best, and with its usual ones.
fn usable_unit(asked: &str) -> Result<[UnitPlan; 2], String> {
    let name = match asked {
        "pt" => places::COMPARED_UNIT,
        other => other,
    };
    match Inventory::of(&Machine::here()).unit(name) {
        Some(unit) if unit.state == State::Usable && name == places::COMPARED_UNIT => {}
        Some(unit) if unit.state == State::Usable => {
            return Err(format!("rtscope sets no address comparators of {name}"));
        }
        Some(unit) => return Err(format!("no address comparator is available ({name}: {})", unit.why)),
        None => return Err(format!("no address comparator is available (no trace unit {name} is known)")),
    }
    let plan = |terms: &str| {
        let event: EventSpec = format!("{name}/{terms}/u").parse()?;
        UnitPlan::new(&event).map_err(|error| error.to_string())
    };
    // The unit tells the time at each tick of this clock also where it does not trace: each 64th of the crystal's is 2.7 µs at 24 MHz, and below 1 MB a second.
    let plans = [plan("mtc_period=6").or_else(|_| plan(""))?, plan("")?];
    match comparators_of(&plans[0].pmu) {
        0 => Err(format!("{name} has no address comparators here")),
        _ => Ok(plans),
    }
}

/// Whether it is something that the unit can do.
fn can_take(
    settings: &RecordSettings,
    kernel: &KernelSettings,
    wanted: usize,
    plan: &UnitPlan,
) -> Result<(), String> {
    let there = comparators_of(&plan.pmu);
    let why = match (settings.command.is_empty(), kernel.tids.is_empty()) {
        _ if wanted > there => {
            return Err(format!(
                "{} of {wanted} that were asked for",
                counted(there as u64, "comparator", "comparators")
            ));
        }
        (true, true) => {
            "the kernel follows files in the memory of processes only; give --pid or a COMMAND at the end"
        }
        (false, false) => "of COMMAND or of --pid, and not of both",
        _ if kernel.comm.is_some() => "the unit knows processes, and not names (--comm)",
        _ if settings.ring.is_some() => "what it has written cannot be removed in parts (--max-size)",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// With as large an area as this user may have.
fn open_rings(plans: [UnitPlan; 2], config: &RingsConfig) -> Result<UnitRings, Failure> {
    let mut opened = Err(Failure::Failed("no size was tried".to_owned()));
    for (plan, aux_bytes) in plans.iter().flat_map(|plan| AUX_BYTES.map(|bytes| (plan, bytes))) {
        opened = UnitRings::open(plan.clone(), RingsConfig { aux_bytes, ..config.clone() });
        if opened.is_ok() {
            break;
        }
    }
    opened
}

/// Marks a capture as one of which no trace has been made. Locked as long as this process is there.
fn mark(capture: &Path) -> io::Result<Flock<File>> {
    let file = File::create_new(capture.join(UNFINISHED))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

/// What a recording to this directory has of a unit and has made no trace of; `None`: nothing.
pub(super) fn unfinished(directory: &Path) -> Option<PathBuf> {
    let capture = directory.join(CAPTURE);
    capture.join(UNFINISHED).exists().then_some(capture)
}

/// Makes the trace of what a killed recorder has left.
pub(super) fn recover(capture: &Path, target: &Path, observer: &dyn Observer) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::system(format!("reading {}", capture.display()), &error);
    let mark = File::open(capture.join(UNFINISHED)).map_err(failed)?;
    let Ok(_mark) = Flock::lock(mark, FlockArg::LockExclusiveNonblock) else {
        return Err(Failure::Usage(format!("{}: the recording is going on", capture.display())));
    };
    let Some(info) = CaptureInfo::read(capture).map_err(failed)? else {
        return Err(Failure::Damaged(format!(
            "{}: the recorder was killed before the unit was on",
            capture.display()
        )));
    };
    convert((info, capture.to_owned()), (target, true), observer)
}

/// A unit that writes, and the thread that takes that.
#[derive(Debug)]
pub(super) struct UnitRecording {
    /// `None`: it was stopped.
    thread: Option<JoinHandle<Result<CaptureInfo, Failure>>>,
    /// Until the trace has been made, or this process has ended.
    mark: Option<Flock<File>>,
    shared: Arc<Shared>,
    capture: PathBuf,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    bytes: AtomicU64,
}

impl UnitRecording {
    fn start(
        rings: UnitRings,
        (mark, writer): (Flock<File>, PerfWriter),
        fifo: Option<u8>,
        capture: &Path,
    ) -> Result<UnitRecording, Failure> {
        let shared = Arc::new(Shared::default());
        let (theirs, directory) = (Arc::clone(&shared), capture.to_owned());
        let take = move || {
            // Whether that is allowed was found out before.
            let _ = fifo.map(become_fifo);
            take_all(rings, writer, &theirs, &directory)
        };
        let thread = std::thread::Builder::new().name("rtscope-unit".to_owned()).spawn(take);
        let thread = thread.map_err(|error| Failure::system("starting a thread", &error))?;
        Ok(UnitRecording { thread: Some(thread), mark: Some(mark), shared, capture: capture.to_owned() })
    }

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        // ORDER: relaxed; a number for people.
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// It has ended although nobody asked it to.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Switches the unit off, and takes the rest.
    pub fn stop(mut self) -> Result<WrittenByUnit, Failure> {
        let info = self.join().unwrap_or_else(|| Err(Failure::Failed("it was stopped before".to_owned())))?;
        Ok(WrittenByUnit { info, capture: self.capture.clone(), _mark: self.mark.take() })
    }

    fn join(&mut self) -> Option<Result<CaptureInfo, Failure>> {
        // ORDER: relaxed; a flag that stands for itself. What the thread has done is seen by who joins it.
        self.shared.stop.store(true, Ordering::Relaxed);
        let panicked = |_| Err(Failure::Failed("the thread of the unit panicked".to_owned()));
        self.thread.take().map(|thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for UnitRecording {
    /// Where another recorder could not start, nothing was recorded, and what was made goes.
    fn drop(&mut self) {
        if self.join().is_some() {
            let _ = fs::remove_dir_all(&self.capture);
        }
    }
}

/// Until it is to stop.
fn take_all(
    mut rings: UnitRings,
    mut writer: PerfWriter,
    shared: &Shared,
    directory: &Path,
) -> Result<CaptureInfo, Failure> {
    let failed = |error: io::Error| Failure::system(format!("writing {}", directory.display()), &error);
    // ORDER: relaxed; as in stop().
    while !shared.stop.load(Ordering::Relaxed) {
        rings.wait(LOOK);
        rings.drain(&mut writer, false).map_err(failed)?;
        // ORDER: relaxed; as in bytes().
        shared.bytes.store(rings.aux_bytes(), Ordering::Relaxed);
    }
    rings.freeze()?;
    rings.drain(&mut writer, true).map_err(failed)?;
    rings.end(writer, directory, None)
}

/// What a unit wrote, of which a trace is to be made.
#[derive(Debug)]
pub(super) struct WrittenByUnit {
    info: CaptureInfo,
    capture: PathBuf,
    _mark: Option<Flock<File>>,
}

impl WrittenByUnit {
    /// Makes it.
    pub fn convert(self, target: &Path, observer: &dyn Observer) -> Result<(), Failure> {
        convert((self.info.clone(), self.capture.clone()), (target, false), observer)
    }
}

/// Makes the trace of what a unit wrote: `DIR/places`.
fn convert(
    (info, capture): (CaptureInfo, PathBuf),
    (target, interrupted): (&Path, bool),
    observer: &dyn Observer,
) -> Result<(), Failure> {
    let mut report = DecodeReport::default();
    if info.clock.is_none() {
        observer.note(&format!(
            "the kernel does not tell how the counter of {} becomes time; rtscope hardware decode {} --clock-hz FREQUENCY -o {} makes its trace",
            info.unit,
            capture.display(),
            target.display()
        ));
    } else if interrupted || info.aux_bytes() > 0 {
        let failed = |failure: Failure| {
            let what = format!("making the trace {}: {failure}", target.display());
            Failure::Failed(format!("{what}; what the unit wrote is in {}", capture.display()))
        };
        let mut decoding = Decoding::open(&capture, &Settings::default()).map_err(failed)?;
        // A unit that is on writes also where no place is executed.
        decoding.write_if_any(target, 0).map_err(failed)?;
        report = decoding.report;
        report.notes.iter().chain(&report.damage).for_each(|note| observer.note(note));
    }
    if report.trace.is_none() && info.clock.is_some() {
        observer.note("no place was executed, as far as the unit tells; there is no trace of it");
    }
    let _ = fs::remove_file(capture.join(UNFINISHED));
    observer.recorded(&RecordedTrace::Places { target, capture: &info, report: &report, interrupted });
    Ok(())
}
