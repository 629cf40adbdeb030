// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware capture`: a trace unit of this machine, into a directory that `hardware decode` reads.

use super::comparators::Comparators;
use super::processes;
use super::rings::{RingsConfig, TracedTasks, UnitRings};
use super::unit::UnitPlan;
use crate::command::{Child, CommandOutput, complain};
use crate::placement::{ObservedTasks, Placement, tasks};
use crate::record::PlaceWords;
use crate::watch::numbered::Numbered;
use crate::{Failure, Observer, Stop};
use rtscope_cpus::{Cpus, Machine};
use rtscope_ctf::{Abandoned, StagedDir};
use rtscope_event::counted;
use rtscope_flight::monotonic_now;
use rtscope_hardware::capture::PERF_DATA;
pub use rtscope_hardware::capture::{CaptureInfo, CaptureMode, Frozen};
use rtscope_hardware::perfdata::PerfWriter;
pub use rtscope_hardware::pmu::EventSpec;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks at whether it is over; a ring that fills up ends the sleep.
const LOOK: Duration = Duration::from_millis(50);

/// A capture.
#[derive(Clone, Debug)]
pub struct CaptureSettings {
    /// The unit, and its settings.
    pub event: EventSpec,
    /// The directory that is made.
    pub output: PathBuf,
    /// Of what a capture to this directory had written that was killed; nothing is captured.
    pub recovers: bool,
    /// On these CPUs; `None`: all.
    pub cpus: Option<Cpus>,
    /// The threads of this process, and those that it starts; without it and COMMAND: all tasks.
    pub pid: Option<u32>,
    /// Only what executes these places in programs is traced; empty: everything.
    pub places: Vec<PlaceWords>,
    /// Bytes of the AUX area of each CPU: a power of two.
    pub aux_bytes: usize,
    /// All of it, or what there is at the end.
    pub mode: CaptureMode,
    /// Ends it after this time.
    pub duration_ns: Option<u64>,
    /// Started when the units are on; its end ends the capture. Empty: nothing is started.
    pub command: Vec<OsString>,
    /// Where its standard output goes.
    pub command_output: CommandOutput,
}

/// What a capture came to, and how COMMAND ended if not well.
pub type Captured = (CaptureInfo, Result<(), Failure>);

/// Captures until it is asked to stop, the time is over, or COMMAND or the process has ended; or finishes what was killed.
///
/// # Errors
/// What kept it from that.
pub fn run(settings: &CaptureSettings, stop: &Stop, observer: &dyn Observer) -> Result<Captured, Failure> {
    if settings.recovers {
        return Ok((recover(&settings.output, observer)?, Ok(())));
    }
    let plan = UnitPlan::new(&settings.event)?;
    let traces_a_process = settings.pid.is_some() || !settings.command.is_empty();
    let program = settings.command.first();
    let comparators = Comparators::find(&settings.places, program, traces_a_process, &plan, observer)?;
    let numbered = Numbered::of(settings.pid, None)?;
    let cpus = traced_cpus(settings.cpus.as_ref())?;
    let staged = stage(&settings.output)?;
    let targets = ObservedTasks { processes: settings.pid.into_iter().collect(), ..ObservedTasks::default() };
    let mut placement = Placement::take(targets, !settings.command.is_empty())?;
    let mut child = placement.hold(&settings.command, settings.command_output)?;
    stop.begin()?;
    let mut rings = open(settings, (plan, comparators, cpus), child.as_ref(), observer)?;
    let mut writer = rings.begin(staged.path())?;
    let failed =
        |error: std::io::Error| Failure::system(format!("writing {}", settings.output.display()), &error);
    // Of circles also at the end; but a process may have ended by then, and nobody can ask for its memory.
    if child.is_none() && (settings.mode == CaptureMode::Full || settings.pid.is_some()) {
        // What is mapped from now on has a record.
        rings.enable_tasks()?;
        processes::add(&mut writer, settings.pid).map_err(failed)?;
    }
    if child.is_none() {
        rings.enable()?;
    }
    observer.note(&format!(
        "capturing {} on {}, {} KiB each; {}",
        settings.event.pmu,
        counted(rings.cpus(), "CPU", "CPUs"),
        settings.aux_bytes >> 10,
        ending(settings)
    ));
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    let mut until = End { child, numbered, duration_ns: settings.duration_ns, started: monotonic_now() };
    let written = follow(&mut rings, &mut writer, &mut until, settings.mode, stop).map_err(failed);
    let info = written.and_then(|()| {
        rings.freeze()?;
        let frozen = take(&mut rings, &mut writer, settings).map_err(failed)?;
        rings.end(writer, staged.path(), frozen)
    });
    drop(rings);
    // What a full disk has kept from its end is there as well, with the description from its beginning.
    let published = staged.publish().map_err(|error| Failure::Failed(error.to_string()));
    let info = info.map_err(|failure| kept(&failure, published.is_ok(), &settings.output));
    if let Some(child) = &mut until.child {
        child.terminate();
    }
    if let Some(end) = until.child.as_mut().and_then(Child::ending) {
        observer.command_ended(end);
    }
    let info = info?;
    published?;
    Ok((info, complain(until.child.as_mut(), observer)))
}

/// Where it is written until it has its name. What a killed capture left is not passed over: its owner may have forgotten it.
fn stage(output: &Path) -> Result<StagedDir, Failure> {
    let refused =
        |error: rtscope_ctf::Error| Failure::Usage(format!("--output {}: {error}", output.display()));
    let staged = StagedDir::new(output).map_err(refused)?;
    match StagedDir::abandoned(output, has_content).map_err(refused)? {
        Abandoned::Left { .. } => Err(Failure::Usage(format!(
            "a capture to {0} was killed; rtscope hardware capture --recover {0} makes it, or name another directory with -o",
            output.display()
        ))),
        Abandoned::Nothing | Abandoned::InUse => Ok(staged),
    }
}

/// Whether a killed capture has written anything: it had not begun before it had its description, and circles are saved at the end.
fn has_content(directory: &Path) -> bool {
    match CaptureInfo::read(directory) {
        Ok(info) => info.is_some_and(|info| info.mode == CaptureMode::Full),
        // Perhaps another version's.
        Err(_) => true,
    }
}

/// Gives the directory of a capture that was killed its name.
fn recover(output: &Path, observer: &dyn Observer) -> Result<CaptureInfo, Failure> {
    let refused =
        |error: rtscope_ctf::Error| Failure::Usage(format!("--recover {}: {error}", output.display()));
    let place = output.display();
    let (newest, others) = match StagedDir::abandoned(output, has_content).map_err(refused)? {
        Abandoned::Left { newest, others } => (newest, others),
        Abandoned::InUse => return Err(Failure::Usage(format!("a capture to {place} is going on"))),
        Abandoned::Nothing => {
            return Err(Failure::Usage(format!("{place}: there is no capture that was killed")));
        }
    };
    // It is named by its descriptor, which nobody else has.
    let left = std::fs::read_link(newest.path()).unwrap_or_else(|_| newest.path().to_owned());
    let left = left.display();
    let unreadable = |why: String| {
        Failure::Damaged(format!(
            "{place}: its description cannot be read: {why}; rtscope hardware decode {left}/{PERF_DATA} reads what the unit wrote, and without {left} the name is free"
        ))
    };
    let info = CaptureInfo::read(newest.path())
        .map_err(|error| unreadable(error.to_string()))?
        .ok_or_else(|| unreadable("there is none".to_owned()))?;
    newest.publish().map_err(refused)?;
    if others > 0 {
        let others = counted(others, "older one", "older ones");
        observer.note(&format!(
            "{others} to {place} were killed, too; --recover makes the next once {place} has another name"
        ));
    }
    Ok(info)
}

/// Until its end has come; of full traces what comes is written.
fn follow(
    rings: &mut UnitRings,
    writer: &mut PerfWriter,
    until: &mut End,
    mode: CaptureMode,
    stop: &Stop,
) -> std::io::Result<()> {
    while !until.has_come(stop) {
        if mode == CaptureMode::Full {
            rings.wait(LOOK);
            rings.drain(writer, false)?;
        } else {
            stop.wait(LOOK, until.child.as_ref().and_then(Child::end).as_ref());
        }
    }
    Ok(())
}

/// A capture that could not be written to its end.
fn kept(failure: &Failure, is_kept: bool, output: &Path) -> Failure {
    let place = output.display();
    Failure::Failed(match is_kept {
        true => format!("{failure}; what was written until then is there: rtscope hardware decode {place}"),
        false => format!("{failure}; nothing of it is kept"),
    })
}

/// Opens the events of all that is to be traced, switched off.
fn open(
    settings: &CaptureSettings,
    (plan, comparators, cpus): (UnitPlan, Comparators, Vec<u32>),
    child: Option<&Child>,
    observer: &dyn Observer,
) -> Result<UnitRings, Failure> {
    let tasks = match (child, settings.pid) {
        (Some(child), _) => TracedTasks::Only(vec![child.pid().0]),
        (None, Some(pid)) => TracedTasks::Only(threads_of(pid)),
        (None, None) => TracedTasks::All,
    };
    let config = RingsConfig {
        with_children: tasks != TracedTasks::All,
        tasks,
        from_exec: child.is_some(),
        cpus,
        aux_bytes: settings.aux_bytes,
        mode: settings.mode,
        comparators,
    };
    crate::limits::raise_file_limit();
    let mut rings = UnitRings::open(plan, config)?;
    if let Some(pid) = settings.pid.filter(|_| child.is_none()) {
        if !rings.add_new_threads(|| threads_of(pid))? {
            observer.note(
                "the process starts threads faster than the unit is set up for them; some are not traced, or not on all CPUs",
            );
        }
    }
    Ok(rings)
}

/// What there is when all is off.
fn take(
    rings: &mut UnitRings,
    writer: &mut PerfWriter,
    settings: &CaptureSettings,
) -> std::io::Result<Option<Frozen>> {
    match settings.mode {
        CaptureMode::Full => rings.drain(writer, true).map(|()| None),
        CaptureMode::Snapshot => {
            let frozen_ns = monotonic_now().0;
            // Now, as what was mapped may have been mapped long before what the circles hold.
            processes::add(writer, settings.pid)?;
            rings.save(writer)?;
            Ok(Some(Frozen { detected_ns: None, frozen_ns }))
        }
    }
}

/// All threads of a process.
fn threads_of(pid: u32) -> Vec<u32> {
    let mut threads = Vec::new();
    tasks::threads_of(pid, false, &mut threads);
    threads
}

/// What ends it.
struct End {
    child: Option<Child>,
    numbered: Option<Numbered>,
    duration_ns: Option<u64>,
    started: rtscope_event::MonotonicNs,
}

impl End {
    fn has_come(&mut self, stop: &Stop) -> bool {
        let over = self.duration_ns.is_some_and(|duration| monotonic_now().since(self.started) >= duration);
        let has_ended = self.child.as_mut().is_some_and(Child::has_ended)
            || self.numbered.is_some_and(Numbered::has_ended);
        stop.asked() || over || has_ended
    }
}

/// In words.
fn ending(settings: &CaptureSettings) -> &'static str {
    match (settings.command.is_empty(), settings.duration_ns) {
        (false, _) => "until COMMAND ends",
        (true, Some(_)) => "until the time is over",
        (true, None) => "Ctrl-C ends it",
    }
}

/// Those that are on, of those that are wanted.
pub(crate) fn traced_cpus(wanted: Option<&Cpus>) -> Result<Vec<u32>, Failure> {
    let online = Machine::read().online;
    let chosen = wanted.map_or_else(|| online.clone(), |wanted| wanted.of(&online));
    if chosen.is_empty() {
        return Err(Failure::Usage(format!("--cpu: none of these is on; these are: {online}")));
    }
    Ok(chosen.iter().collect())
}
