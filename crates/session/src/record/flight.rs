// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs as a flight recorder: nothing goes to the disk until somebody asks (`rtscope snapshot`), and at the end.

use super::programs::settings as collector_settings;
use super::settings::{Context, RecordSettings};
use super::{RecordedTrace, finish, held, placement};
use crate::command::{Child, complain};
use crate::program_flight::ProgramFlight;
use crate::{Failure, Observer, Stop};
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::requests::SnapshotRequests;
use std::path::Path;
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
    let programs = settings.programs.clone().unwrap_or_default();
    let wanted = collector_settings(&programs)?;
    let context: Vec<&str> = programs.context.iter().map(|context| Context::name(*context)).collect();
    let mut child = held(settings, &mut placement)?;
    stop.begin()?;
    std::fs::create_dir(target).map_err(failed)?;
    let place = target.canonicalize().map_err(failed)?;
    // Nothing is in it yet.
    let unmake = || drop(std::fs::remove_dir(target));
    let flight = ProgramFlight::start(wanted, &context, REACH_NS).inspect_err(|_| unmake())?;
    let requests = SnapshotRequests::new(Path::new(SHARED_MEMORY)).inspect_err(|_| unmake())?;
    observer.flight_recording(flight.number(), target);
    let started = monotonic_now();
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    let until = settings.duration_ns.map(|duration| started.0.saturating_add(duration));
    let mut number = 1;
    let saved = loop {
        let over = until.is_some_and(|until| monotonic_now().0 >= until);
        let last = stop.asked() || over || child.as_mut().is_some_and(Child::has_ended);
        let asking = requests.received();
        // ORDER: relaxed; a flag that stands for itself.
        if asked.swap(false, Ordering::Relaxed) || last || !asking.is_empty() {
            let saved = save(&flight, &target.join(number.to_string()), observer);
            let answer = match &saved {
                Ok(()) => Ok(place.join(number.to_string())),
                Err(failure) => Err(failure.to_string()),
            };
            asking.into_iter().for_each(|request| request.answer(&answer));
            number += 1;
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
    if let Some(child) = &mut child {
        child.terminate();
    }
    saved?;
    complain(child.as_ref(), observer)
}

fn save(flight: &ProgramFlight, target: &Path, observer: &dyn Observer) -> Result<(), Failure> {
    let part = flight.freeze(MonotonicNs(0), monotonic_now());
    let converted = part.write(target).map_err(|error| Failure::doing("saving a snapshot", error))?;
    observer.recorded(&RecordedTrace::Programs { target, summary: &converted, recording_cpu_us: None });
    Ok(())
}
