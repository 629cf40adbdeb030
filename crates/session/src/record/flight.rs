// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs and the kernel as flight recorders: nothing goes to the disk until somebody asks (`rtscope snapshot`), and at the end. A snapshot of
//! both is two traces on one clock, as a recording of both is.

use super::programs::settings as collector_settings;
use super::settings::{Context, ProgramsSettings, RecordSettings, SnapshotCause};
use super::snapshots::{SnapshotBudget, own_users};
use super::{RecordedTrace, finish, held, placement};
use crate::command::{Child, complain};
use crate::kernel_flight::{KernelFlight, KernelPart};
use crate::program_flight::ProgramFlight;
use crate::{Failure, Observer, Stop};
use rtscope_ctf::StagedDir;
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_kernel::tracefs::Tracefs;
use rtscope_programs::collector::SnapshotSpace;
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::requests::SnapshotRequests;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between polls of signals, COMMAND and the clock.
const TICK: Duration = Duration::from_millis(10);
/// Threads that ended longer ago are forgotten; rings of those that run hold what they hold.
const REACH_NS: u64 = 60_000_000_000;

/// Records into the programs' memory until it is asked to stop, the duration is over, or COMMAND has ended. Saves a trace then, and each
/// time that `asked` is set or somebody asks by `rtscope snapshot`: `1`, `2`, ... in the directory.
///
/// # Errors
/// What kept it from recording, or the last trace from being saved.
pub fn run(
    settings: &RecordSettings,
    stop: &Stop,
    asked: &AtomicBool,
    observer: &dyn Observer,
) -> Result<(), Failure> {
    let target = settings.output.as_path();
    let failed =
        |error: std::io::Error| Failure::system(format!("making the directory {}", target.display()), &error);
    let mut placement = placement(settings)?;
    finish::check_target(target)?;
    let mut child = held(settings, &mut placement, observer)?;
    let command = child.as_ref().map(|child| child.pid().0);
    stop.begin()?;
    std::fs::create_dir(target).map_err(failed)?;
    let place = target.canonicalize().map_err(failed)?;
    // Nothing is in it yet.
    let unmake = || drop(std::fs::remove_dir(target));
    let mut flight = Flight::start(settings, command, observer).inspect_err(|_| unmake())?;
    let requests = SnapshotRequests::new(Path::new(SHARED_MEMORY)).inspect_err(|_| unmake())?;
    if requests.is_none() {
        observer.note("rtscope snapshot asks another flight recorder of this user; this one saves a trace on SIGUSR1 and at its end");
    }
    let kernel = flight.kernel.as_ref().map(KernelFlight::number);
    observer.flight_recording(kernel, flight.programs.as_ref().map(ProgramFlight::number), target);
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    let until = settings.duration_ns.map(|duration| monotonic_now().0.saturating_add(duration));
    let mut number = 1;
    let mut budget = SnapshotBudget::new(settings.snapshots, snapshots_bytes(settings, &place), own_users());
    let saved = loop {
        let over = until.is_some_and(|until| monotonic_now().0 >= until);
        let last = stop.asked() || over || child.as_mut().is_some_and(Child::has_ended);
        if let Some(end) = child.as_mut().and_then(Child::ending) {
            observer.command_ended(end);
        }
        let asking = requests.as_ref().map(SnapshotRequests::received).unwrap_or_default();
        // ORDER: relaxed; a flag that stands for itself.
        let is_asked = asked.swap(false, Ordering::Relaxed) || last || !asking.is_empty();
        let due = budget.due(&flight.asking(), monotonic_now());
        if is_asked || !due.is_empty() {
            // Who runs a command for it has the whole of it, and that is nobody's share.
            let space = if is_asked { SnapshotSpace::default() } else { budget.space(&due) };
            let saved = flight.save(&target.join(number.to_string()), space, observer);
            let answer = match &saved {
                Ok(_) => Ok(place.join(number.to_string())),
                Err(failure) => Err(failure.to_string()),
            };
            asking.into_iter().for_each(|request| request.answer(&answer));
            number += 1;
            if !is_asked {
                budget.saved(&due, *saved.as_ref().unwrap_or(&0));
                budget.news().iter().for_each(|news| observer.note(news));
            }
            if last {
                break saved;
            }
            // The events are still in memory, and there may be space the next time.
            if let Err(failure) = saved {
                observer.note(&format!("{failure}; recording goes on"));
            }
        }
        placement.follow(monotonic_now(), || None);
        std::thread::sleep(TICK);
    };
    budget.refused().iter().for_each(|refused| observer.note(refused));
    for user in flight.programs.iter().flat_map(ProgramFlight::missed) {
        observer.note(&format!(
            "an event of --snapshot-on of a program of user {user} may have been overwritten before it was seen; a larger --user-buffer prevents that"
        ));
    }
    if let Some(child) = &mut child {
        child.terminate();
    }
    saved?;
    complain(child.as_mut(), observer)
}

/// What all traces that events ask for may take: half of what the disk has, where nothing else is said.
fn snapshots_bytes(settings: &RecordSettings, place: &Path) -> u64 {
    let free = || {
        let disk = nix::sys::statvfs::statvfs(place).ok()?;
        Some(disk.blocks_available().saturating_mul(disk.fragment_size()) / 2)
    };
    // Of a disk whose size cannot be known nothing can be kept free.
    settings.snapshots_bytes.or_else(free).unwrap_or(u64::MAX)
}

/// What records.
struct Flight {
    kernel: Option<KernelFlight>,
    programs: Option<ProgramFlight>,
    tracing: Option<TracingSwitch>,
    /// What is older is in rings that an earlier recorder has left.
    started: MonotonicNs,
}

/// The kernel's own switch for tracing.
struct TracingSwitch {
    path: PathBuf,
    was_on: bool,
}

impl TracingSwitch {
    fn new() -> Result<TracingSwitch, Failure> {
        let path = Tracefs::find()?.root().join("tracing_on");
        if let Err(error) = std::fs::File::open(&path) {
            return Err(Failure::system(
                format!("--snapshot-on tracing-off: reading {}", path.display()),
                &error,
            ));
        }
        let mut switch = TracingSwitch { path, was_on: false };
        switch.was_on = switch.is_on();
        if switch.was_on {
            return Ok(switch);
        }
        let path = switch.path.display();
        Err(Failure::Usage(format!("--snapshot-on tracing-off: it is off already; echo 1 > {path}")))
    }

    fn is_on(&self) -> bool {
        std::fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == "1")
    }

    fn was_switched_off(&mut self) -> bool {
        let is_on = self.is_on();
        std::mem::replace(&mut self.was_on, is_on) && !is_on
    }
}

impl Flight {
    /// Whose programs ask for a snapshot. What asks in the kernel is this user's, who has to be root.
    fn asking(&mut self) -> BTreeSet<u32> {
        let programs = self.programs.as_ref().map(ProgramFlight::asking).unwrap_or_default();
        let is_off = self.tracing.as_mut().is_some_and(TracingSwitch::was_switched_off);
        programs.into_iter().chain(is_off.then(|| nix::unistd::geteuid().as_raw())).collect()
    }

    /// `command`: the number of COMMAND.
    fn start(
        settings: &RecordSettings,
        command: Option<u32>,
        observer: &dyn Observer,
    ) -> Result<Flight, Failure> {
        let started = monotonic_now();
        let events = settings.snapshot_on.iter().filter_map(|cause| match cause {
            SnapshotCause::Event(pattern) => Some(pattern.clone()),
            _ => None,
        });
        let events: Vec<String> = events.collect();
        let programs = |programs: &ProgramsSettings| {
            // What asks has to be recorded.
            let patterns = programs.patterns.iter().chain(&events).cloned().collect();
            let programs = &ProgramsSettings { patterns, ..programs.clone() };
            let context: Vec<&str> = programs.context.iter().map(|context| Context::name(*context)).collect();
            let (wanted, filter) = collector_settings(programs, command)?;
            if wanted.channels.is_some() {
                return Err(Failure::Usage(
                    "--backend stm: an STM keeps what it is given; leave --flight-recorder out".to_string(),
                ));
            }
            ProgramFlight::start((wanted, filter, events.clone()), &context, REACH_NS)
        };
        let programs = settings.programs.as_ref().map(programs).transpose()?;
        let kernel =
            settings.kernel.as_ref().map(|kernel| KernelFlight::start(kernel, observer)).transpose()?;
        let tracing = settings.snapshot_on.contains(&SnapshotCause::TracingOff).then(TracingSwitch::new);
        Ok(Flight { kernel, programs, tracing: tracing.transpose()?, started })
    }

    /// All of it is copied before any of it is written. Returns its bytes.
    fn save(&mut self, target: &Path, space: SnapshotSpace, observer: &dyn Observer) -> Result<u64, Failure> {
        let kernel = self.kernel.as_mut().map(KernelFlight::freeze).transpose()?;
        let until = kernel.as_ref().map_or_else(monotonic_now, KernelPart::until);
        let programs = self.programs.as_ref().map(|programs| programs.freeze((self.started, until), space));
        let failed = |error: &dyn std::fmt::Display| Failure::doing("saving a snapshot", error);
        // Both traces get their names together, when they are whole.
        let staged = StagedDir::new(target).map_err(|error| failed(&error))?;
        let kernel = kernel.map(|part| part.write(&staged.path().join(super::KERNEL))).transpose()?;
        let programs = programs.map(|part| part.write(&staged.path().join(super::PROGRAMS)));
        let programs = programs.transpose().map_err(|error| failed(&error))?;
        staged.publish().map_err(|error| failed(&error))?;
        if let Some(summary) = &kernel {
            let target = &target.join(super::KERNEL);
            observer.recorded(&RecordedTrace::Kernel { target, summary, behind_ns: None });
        }
        if let Some(summary) = &programs {
            let target = &target.join(super::PROGRAMS);
            observer.recorded(&RecordedTrace::Programs { target, summary, recording_cpu_us: None });
        }
        let bytes = [kernel.map(|summary| summary.bytes), programs.map(|summary| summary.bytes)];
        Ok(bytes.into_iter().flatten().fold(0, u64::saturating_add))
    }
}
