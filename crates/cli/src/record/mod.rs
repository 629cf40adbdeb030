// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record`: from its arguments to the settings of a recording (`rtscope_session::record`), and what that says (`report`).

pub mod options;
mod report;

use crate::exit::Failure;
use crate::stop;
use options::RecordOptions;
use report::Report;
use rtscope_session::record;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Records until a signal, the duration, or COMMAND's end; then makes the trace.
pub fn run(options: &RecordOptions) -> Result<(), Failure> {
    let report = Report::new(options.json.begin()?);
    let done = recorded(options, &report);
    // To have finished what is left of a killed one is a success, however little that is.
    let allowed = options.fail_if_lost.map(|share| share.0).or(options.recover.as_ref().map(|_| 1.0));
    match done {
        // What COMMAND came to is said if nothing else is.
        Ok(()) | Err(Failure::Command { .. }) => report.judge(allowed).and(done),
        done => done,
    }
}

fn recorded(options: &RecordOptions, report: &Report) -> Result<(), Failure> {
    if let Some(target) = &options.recover {
        return record::recover(target, report);
    }
    let settings = options.settings()?;
    if !options.flight_recorder {
        stop::records_to(&settings.output);
        return record::run(&settings, &stop::on_signals_later(None)?, report);
    }
    let asked = Arc::new(AtomicBool::new(false));
    let stop = stop::on_signals_later(Some(Arc::clone(&asked)))?;
    record::run_flight_recorder(&settings, &stop, &asked, report)
}
