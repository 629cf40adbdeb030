// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope impact`: what tracing costs, by the method of Beamonte and Dagenais: the non-preempt test untraced, with an event that
//! nobody records, and traced by each tracer that is installed; same machine, same run, same loop.
//!
//! A tracer is judged by two markers that only mean something together: the latency that it adds, and the events that it
//! loses. The loop is a child process each time, of one shape for all; only the event in it differs.

mod cases;
mod machine;
mod max_rate;
pub mod options;
mod plot;
mod report;
mod rounds;
mod setup;

use crate::exit::Failure;
use crate::output::note;
use crate::stop;
use cases::Tracers;
use machine::Machine;
use options::ImpactOptions;
use rtscope_tracers::Error;
use setup::Setup;
use std::io::{IsTerminal, Write, stderr};

/// Measures and reports.
pub fn run(options: &ImpactOptions) -> Result<(), Failure> {
    if options.loops.is_some_and(|loops| loops.0 == 0) || options.duration.is_some_and(|time| time.0 == 0) {
        return Err(Failure::Usage("--loops and --duration: they have to be greater than 0".to_string()));
    }
    let setup = Setup::new(options, stop::on_signals()?)?;
    let machine = Machine::look(&setup);
    let tracers = Tracers::find(&setup, &options.tracers, options.max_rate).map_err(failed)?;
    for absent in &tracers.absent {
        let remedy = absent.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        note(&format!("rtscope: {} is not measured: {}{remedy}", cases::title(absent.tracer), absent.reason));
    }
    if options.max_rate {
        max_rate::run(options, &setup, &machine, tracers)
    } else {
        rounds::run(options, &setup, &machine, tracers)
    }
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Stopped => Failure::Failed("stopped before there was a result".to_string()),
        error => Failure::Failed(error.to_string()),
    }
}

/// A line on standard error that says what is being done: on a terminal it is written over, else there is one for each step.
#[derive(Debug)]
struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { terminal: stderr().is_terminal() }
    }

    fn say(&self, text: &str) {
        if self.terminal {
            // There is nowhere to report a failure of this.
            let _ = write!(stderr().lock(), "\r\x1b[Krtscope: {text}");
        } else {
            note(&format!("rtscope: {text}"));
        }
    }

    /// Makes the line free for other output.
    fn clear(&self) {
        if self.terminal {
            // As above.
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
