// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table`: what it does is in the crate `rtscope-measure`.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::{output, stop};
use options::TableOptions;
use rtscope_measure::table::{self, Report};
use rtscope_session::fail_if;
use rtscope_session::shield::artis;
use rtscope_shield::System;
use rtscope_view::table as view;

/// Measures and reports.
pub fn table(system: &System, options: &TableOptions) -> Result<(), Failure> {
    let settings = options.settings();
    settings.check()?;
    fail_if::check(&options.fail_if, &Report::figures(None))?;
    if !system.is_real() {
        return Err(Failure::Usage("shield table measures the real machine only: leave --root out".into()));
    }
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
        false => fail_if::judge(&options.fail_if, &Report::figures(Some(&report))),
    }
}

fn print(options: &TableOptions, report: &Report) -> Result<(), Failure> {
    if let Some(file) = &options.svg {
        output::file(file, &view::svg(report))?;
    }
    output::result(&if options.json { output::object(view::json(report))? } else { view::text(report) });
    Ok(())
}
