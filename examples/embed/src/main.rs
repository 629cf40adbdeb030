// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records the scheduler and instrumented programs for a second into DIR, then watches for two seconds which responses take longer than
//! 500 us: by rtscope's libraries alone, without the command. Needs root: `embed DIR`.

use rtscope_event::LateResponse;
use rtscope_session::record::{self, KernelSettings, ProgramsSettings, RecordSettings, RecordedTrace};
use rtscope_session::watch::{self, WatchSettings};
use rtscope_session::{Failure, Observer, Stop};
use std::process::ExitCode;
use std::sync::Arc;

/// Prints what this program wants to know; the other methods do nothing.
#[derive(Debug)]
struct Printer;

impl Observer for Printer {
    fn note(&self, text: &str) {
        eprintln!("embed: {text}");
    }

    fn recorded(&self, trace: &RecordedTrace<'_>) {
        let (target, events, losses) = match trace {
            RecordedTrace::Kernel { target, summary, .. } => (target, summary.events, &summary.losses),
            RecordedTrace::Programs { target, summary, .. } => (target, summary.events, &summary.losses),
            // None was asked for.
            RecordedTrace::Places { .. } => return,
        };
        println!("{}: {events} events, {} kinds of losses", target.display(), losses.len());
    }

    fn late(&self, late: &LateResponse) {
        println!("late: {} ns", late.end_ns.since(late.chain.origin.time_ns));
    }
}

fn run(directory: &str) -> Result<(), Failure> {
    // Whoever has the handle can end both at any time: handle.ask().
    let (stop, _handle) = Stop::new().map_err(|error| Failure::doing("making a stop", error))?;
    let settings = RecordSettings {
        kernel: Some(KernelSettings { patterns: vec!["sched".to_string()], ..KernelSettings::default() }),
        programs: Some(ProgramsSettings::default()),
        duration_ns: Some(1_000_000_000),
        ..RecordSettings::of(directory)
    };
    record::run(&settings, &stop, &Printer)?;
    let settings = WatchSettings { duration_ns: Some(2_000_000_000), ..WatchSettings::of(500_000) };
    let (reports, _) = watch::run(&settings, &stop, &(Arc::new(Printer) as Arc<dyn Observer>))?;
    println!("{} late responses", reports[0].counters.late);
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args().nth(1) else { return ExitCode::from(2) };
    let result = run(&directory).inspect_err(|failure| eprintln!("embed: {failure}"));
    ExitCode::from(u8::from(result.is_err()))
}
