// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table`: what it does is in the crate `rtscope-measure`.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::{output, stop};
use options::TableOptions;
use rtscope_measure::table::{self, Report};
use rtscope_session::shield::artis;
use rtscope_shield::System;
use rtscope_view::table as view;

/// A shorter period is shorter than what is measured.
const LEAST_PERIOD_NS: u64 = 50_000;
const MOST_PERIOD_NS: u64 = 1_000_000_000;

/// Measures and reports.
pub fn table(system: &System, options: &TableOptions) -> Result<(), Failure> {
    check(options)?;
    if !system.is_real() {
        return Err(Failure::Usage("shield table measures the real machine only: leave --root out".into()));
    }
    let settings = options.settings();
    let stop = stop::on_signals()?;
    let observer = Terminal::new();
    let report = table::run(
        system,
        &settings,
        &|plan| artis::create(system, plan, &observer).map(drop),
        &stop,
        &observer,
    )?;
    drop(observer);
    print(options, &report)?;
    match stop.asked() {
        true => Err(Failure::Failed("stopped before the table was complete".into())),
        false => Ok(()),
    }
}

fn check(options: &TableOptions) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    if !(1..=table::MOST_SAMPLES).contains(&options.samples.0) {
        return usage("--samples: from 1 to 10M");
    }
    if !(LEAST_PERIOD_NS..=MOST_PERIOD_NS).contains(&options.rate.0) {
        return usage("--rate: from 1/s to 20000/s");
    }
    if options.duration.is_some_and(|duration| duration.0 == 0) {
        return usage("--duration: it has to be longer than 0");
    }
    if !options.dir.is_dir() {
        return usage(&format!("--dir {}: there is no such directory", options.dir.display()));
    }
    Ok(())
}

fn print(options: &TableOptions, report: &Report) -> Result<(), Failure> {
    if let Some(file) = &options.svg {
        output::file(file, &view::svg(report))?;
    }
    output::result(&if options.json { output::object(view::json(report))? } else { view::text(report) });
    Ok(())
}
