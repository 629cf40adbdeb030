// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope impact`: what tracing costs, by the method of Beamonte and Dagenais: the non-preempt test untraced, with an event that
//! nobody records, and traced by each tracer that is installed; same machine, same run, same loop.
//!
//! A tracer is judged by two markers that only mean something together: the latency that it adds, and the events that it
//! loses. The loop is a child process each time, of one shape for all; only the event in it differs.

mod cases;
mod machine;
mod max_rate;
mod report;
mod rounds;
mod setup;

pub use cases::{AbsentTracer, TracerKind};
pub use machine::Machine;
pub use max_rate::{ConfirmedRate, RateOutcome, RateReport, RateRow, RateSettings, SCHEMA as RATE_SCHEMA};
pub use report::{Case, CaseReport, Events, Figure, Figures, Report, Run, SCHEMA};
pub use rounds::RoundSettings;

use cases::Tracers;
use rtscope_session::{Failure, Observer, Stop};
use rtscope_tracers::Error;
use setup::Setup;
use std::path::PathBuf;

/// What is asked for of both measurements.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program `rtscope`, which has the loop and is one of the tracers. It has to be the program that runs, unless its path has
    /// plain characters only.
    pub rtscope: PathBuf,
    /// The CPU of the loop; `None`: the last one that this process may use. Tracers run on the others.
    pub cpu: Option<usize>,
    /// Run the loop as a real-time thread of this priority.
    pub fifo: Option<u8>,
    /// Of each tracer, for a CPU or a thread; `None`: as is usual for the measurement.
    pub buffer_bytes: Option<usize>,
    /// Only these tracers; none: all that are installed.
    pub tracers: Vec<TracerKind>,
}

/// Measures what each tracer adds, in rounds. After a stop with the rounds that were complete. The calling thread leaves the CPU of the
/// loop.
///
/// # Errors
/// When the loop cannot run, or it was stopped before there was a result.
pub fn run(
    settings: &Settings,
    rounds: &RoundSettings,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Report, Failure> {
    let setup = Setup::new(settings, setup::BUFFER_BYTES, stop)?;
    let machine = Machine::look(&setup);
    let tracers = find(settings, &setup, false, observer)?;
    rounds::run(rounds, &setup, machine, tracers, observer)
}

/// Searches the highest rate of events that each tracer records without a loss. After a stop with what there is so far. The calling
/// thread leaves the CPU of the loop.
///
/// # Errors
/// As [`run`].
pub fn max_rate(
    settings: &Settings,
    rate: &RateSettings,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<RateReport, Failure> {
    let setup = Setup::new(settings, setup::RATE_BUFFER_BYTES, stop)?;
    let machine = Machine::look(&setup);
    let tracers = find(settings, &setup, true, observer)?;
    max_rate::run(rate, &setup, machine, tracers, observer)
}

fn find(
    settings: &Settings,
    setup: &Setup<'_>,
    kernel: bool,
    observer: &dyn Observer,
) -> Result<Tracers, Failure> {
    let tracers = Tracers::find(setup, &settings.tracers, kernel).map_err(failed)?;
    for absent in &tracers.absent {
        let remedy = absent.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        observer.note(&format!("{} is not measured: {}{remedy}", absent.tracer.name(), absent.reason));
    }
    Ok(tracers)
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Stopped => Failure::Failed("stopped before there was a result".to_string()),
        error => Failure::Failed(error.to_string()),
    }
}
