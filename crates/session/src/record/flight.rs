// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs and the kernel as flight recorders: nothing goes to the disk until somebody asks (`rtscope snapshot`), and at the end. A snapshot of
//! both is two traces on one clock, as a recording of both is.

use super::programs::settings as collector_settings;
use super::saving::{Cause, Finished, Frozen, Saves, Written};
use super::settings::{Context, ProgramsSettings, RecordSettings, SnapshotCause};
use super::snapshots::SnapshotBudget;
use super::{finish, held, placement};
use crate::command::{Child, complain};
use crate::kernel_flight::{KernelFlight, KernelPart};
use crate::program_flight::ProgramFlight;
use crate::supply::{half_of_disk, own_users};
use crate::{Failure, Observer, Stop};
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_kernel::tracefs::Tracefs;
use rtscope_programs::collector::SnapshotSpace;
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::requests::{SnapshotRequest, SnapshotRequests};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between polls of signals, COMMAND and the clock.
const TICK: Duration = Duration::from_millis(10);
/// Threads that ended longer ago are forgotten; rings of those that run hold what they hold.
const REACH_NS: u64 = 60_000_000_000;
/// Traces that are written at a time. With the kernel's each has a copy of all that the kernel's buffers hold.
const WRITES_MAX: usize = 16;
const WRITES_WITH_KERNEL_MAX: usize = 4;

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
    let flight = Flight::start(settings, command, observer).inspect_err(|_| unmake())?;
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
    let budget = SnapshotBudget::new(settings.snapshots, snapshots_bytes(settings, &place), own_users());
    let mut run = Run { flight, budget, saves: Saves::default(), number: 0, place, target, observer };
    let (mut asking, mut is_asked) = (Vec::new(), false);
    let saved = loop {
        let over = until.is_some_and(|until| monotonic_now().0 >= until);
        let last = stop.asked() || over || child.as_mut().is_some_and(Child::has_ended);
        if let Some(end) = child.as_mut().and_then(Child::ending) {
            observer.command_ended(end);
        }
        run.conclude(false);
        asking.extend(requests.as_ref().map(SnapshotRequests::received).unwrap_or_default());
        // ORDER: relaxed; a flag that stands for itself.
        is_asked |= asked.swap(false, Ordering::Relaxed) || !asking.is_empty();
        if last {
            break run.last(asking);
        }
        // One after the other: who asks has the trace of a time after that.
        if is_asked && !run.saves.has_command() {
            is_asked = false;
            run.save(Cause::Command(std::mem::take(&mut asking)));
        }
        let due = run.due();
        if !due.is_empty() {
            run.save(Cause::Events(due));
        }
        placement.follow(monotonic_now(), || None);
        std::thread::sleep(TICK);
    };
    let Run { flight, budget, .. } = run;
    budget.refused().iter().chain(&budget.late()).for_each(|told| observer.note(told));
    flight.programs.iter().flat_map(ProgramFlight::without_event).for_each(|told| observer.note(&told));
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

/// A flight recorder at work.
struct Run<'a> {
    flight: Flight,
    budget: SnapshotBudget,
    saves: Saves,
    /// Of the newest trace.
    number: u32,
    /// Where they are saved.
    place: PathBuf,
    target: &'a Path,
    observer: &'a dyn Observer,
}

impl Run<'_> {
    /// For whom a trace is to be saved now, because events of their programs have asked.
    fn due(&mut self) -> BTreeSet<u32> {
        let most = if self.flight.kernel.is_some() { WRITES_WITH_KERNEL_MAX } else { WRITES_MAX };
        self.budget.due(&self.flight.asking(), monotonic_now(), self.saves.number() < most)
    }

    /// Copies what is held, and has it written.
    fn save(&mut self, cause: Cause) {
        let space = match &cause {
            // Who runs a command for it has the whole of it, and that is nobody's share.
            Cause::Command(_) => SnapshotSpace::default(),
            Cause::Events(users) => self.budget.space(users),
        };
        self.number += 1;
        let frozen = self.flight.freeze(space, false);
        let programs = frozen.as_ref().map(Frozen::program_bytes).unwrap_or_default();
        if let Cause::Events(users) = &cause {
            self.budget.frozen(users, &programs);
        }
        match frozen {
            Ok(frozen) => {
                self.saves.begin(frozen, self.target.join(self.number.to_string()), self.number, cause);
            }
            Err(failure) => {
                self.over(Finished { cause, programs, number: self.number, result: Err(failure) });
            }
        }
    }

    /// Says what has been written since the last call. `waits`: all that is being written.
    fn conclude(&mut self, waits: bool) {
        self.saves.finished(waits).into_iter().for_each(|finished| self.over(finished));
    }

    fn over(&mut self, Finished { cause, programs, number, result }: Finished) {
        if let Ok(written) = &result {
            written.tell(None, self.observer);
        }
        match cause {
            Cause::Command(asking) => {
                let answer = match &result {
                    Ok(_) => Ok(self.place.join(number.to_string())),
                    Err(failure) => Err(failure.to_string()),
                };
                asking.into_iter().for_each(|request| request.answer(&answer));
            }
            Cause::Events(users) => {
                self.budget.written(&users, &programs, result.as_ref().map_or(0, Written::bytes));
                self.budget.news().iter().for_each(|news| self.observer.note(news));
            }
        }
        // The events are still in memory, and there may be space the next time.
        if let Err(failure) = result {
            self.observer.note(&format!("{failure}; recording goes on"));
        }
    }

    /// Saves the last trace, of all that is held now, behind all others.
    fn last(&mut self, asking: Vec<SnapshotRequest>) -> Result<(), Failure> {
        let asks = self.flight.asking();
        self.budget.ended(&asks, monotonic_now());
        let frozen = self.flight.freeze(SnapshotSpace::default(), true);
        self.conclude(true);
        self.number += 1;
        let name = self.number.to_string();
        let written = frozen.and_then(|frozen| frozen.write(&self.target.join(&name)));
        let answer = match &written {
            Ok(_) => Ok(self.place.join(name)),
            Err(failure) => Err(failure.to_string()),
        };
        asking.into_iter().for_each(|request| request.answer(&answer));
        written?.tell(Some(&self.budget.asked()), self.observer);
        Ok(())
    }
}

/// What all traces that events ask for may take: half of what the disk has, where nothing else is said.
fn snapshots_bytes(settings: &RecordSettings, place: &Path) -> u64 {
    // Of a disk whose size cannot be known nothing can be kept free.
    settings.snapshots_bytes.or_else(|| half_of_disk(place)).unwrap_or(u64::MAX)
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

    /// What is held now.
    fn freeze(&mut self, space: SnapshotSpace, is_last: bool) -> Result<Frozen, Failure> {
        let kernel = self.kernel.as_mut().map(KernelFlight::freeze).transpose()?;
        let until = kernel.as_ref().map_or_else(monotonic_now, KernelPart::until);
        let programs =
            self.programs.as_ref().map(|programs| programs.freeze((self.started, until), space, is_last));
        Ok(Frozen { kernel, programs })
    }
}
