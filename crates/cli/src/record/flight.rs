// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record -u --flight-recorder`: nothing goes to the disk until somebody asks (`rtscope snapshot`), and at the end.

use super::options::{Context, RecordOptions};
use super::report::Report;
use super::user::settings;
use crate::exit::Failure;
use crate::output::note;
use crate::stop;
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::requests::SnapshotRequests;
use rtscope_session::command::Child;
use rtscope_session::placement::Placement;
use rtscope_session::program_flight::ProgramFlight;
use signal_hook::consts::SIGUSR1;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between polls of signals, COMMAND and the clock.
const TICK: Duration = Duration::from_millis(10);
/// Threads that ended longer ago are forgotten; rings of those that run hold what they hold.
const REACH_NS: u64 = 60_000_000_000;

/// Records until a signal, the duration, or COMMAND's end.
pub fn run(
    options: &RecordOptions,
    target: &Path,
    (report, mut placement): (&Report, Placement),
) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::system(format!("making the directory {}", target.display()), &error);
    let settings = settings(options)?;
    let context: Vec<&str> = options.context.iter().map(|context| Context::name(*context)).collect();
    let mut child = if options.command.is_empty() {
        None
    } else {
        Some(Child::held(&options.command, &placement.of_caller())?)
    };
    if let Some(child) = &child {
        placement.add_command(child.pid().0);
    }
    let stop = stop::on_signals()?;
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&asked))
        .map_err(|error| Failure::doing("installing a signal handler", error))?;
    std::fs::create_dir(target).map_err(failed)?;
    let place = target.canonicalize().map_err(failed)?;
    // Nothing is in it yet.
    let unmake = || drop(std::fs::remove_dir(target));
    let flight = ProgramFlight::start(settings, &context, REACH_NS).inspect_err(|_| unmake())?;
    let requests = SnapshotRequests::new(Path::new(SHARED_MEMORY)).inspect_err(|_| unmake())?;
    note(&format!(
        "rtscope: {} programs record into memory; rtscope snapshot saves a trace in {}, Ctrl-C saves one and ends",
        flight.number(),
        target.display()
    ));
    let started = monotonic_now();
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    let until = options.duration.map(|duration| started.0.saturating_add(duration.0));
    let mut number = 1;
    let saved = loop {
        let over = until.is_some_and(|until| monotonic_now().0 >= until);
        let last = stop.asked() || over || child.as_mut().is_some_and(Child::has_ended);
        let asking = requests.received();
        // ORDER: relaxed; a flag that stands for itself.
        if asked.swap(false, Ordering::Relaxed) || last || !asking.is_empty() {
            let saved = save(&flight, &target.join(number.to_string()), report);
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
                note(&format!("rtscope: {failure}; recording goes on"));
            }
        }
        placement.follow(monotonic_now(), || None);
        std::thread::sleep(TICK);
    };
    if let Some(child) = &mut child {
        child.terminate();
    }
    saved?;
    child.as_ref().and_then(Child::complaint).map_or(Ok(()), |complaint| {
        note(&format!("rtscope: {complaint}"));
        if child.as_ref().is_some_and(Child::could_not_start) {
            Err(Failure::NoCommand(complaint))
        } else {
            Ok(())
        }
    })
}

fn save(flight: &ProgramFlight, target: &Path, report: &Report) -> Result<(), Failure> {
    let part = flight.freeze(MonotonicNs(0), monotonic_now());
    let converted = part.write(target).map_err(|error| Failure::doing("saving a snapshot", error))?;
    report.finished_user(target, &converted, None);
    Ok(())
}
