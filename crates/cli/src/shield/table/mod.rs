// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table`: what it does is in the crate `rtscope-measure`.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::{output, stop};
use options::TableOptions;
use rtscope_measure::table::{self, Report, RowKind};
use rtscope_session::fail_if::{self, Figure, Figures};
use rtscope_session::shield::artis;
use rtscope_shield::System;
use rtscope_view::table as view;

/// A shorter period is shorter than what is measured.
const LEAST_PERIOD_NS: u64 = 50_000;
const MOST_PERIOD_NS: u64 = 1_000_000_000;

/// Measures and reports.
pub fn table(system: &System, options: &TableOptions) -> Result<(), Failure> {
    check(options)?;
    fail_if::check(&options.fail_if, &figures(None))?;
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
        false => fail_if::judge(&options.fail_if, &figures(Some(&report))),
    }
}

/// What --fail-if can be about: ROW.FIGURE, of user latencies.
fn figures(report: Option<&Report>) -> Figures {
    let rows = [
        ("unloaded", RowKind::Unloaded),
        ("stock", RowKind::Stock),
        ("shield", RowKind::Shield),
        ("artis", RowKind::Artis),
    ];
    let of = |kind: RowKind| {
        let row = report?.rows.iter().find(|row| row.kind == kind)?;
        row.result()?.user.as_ref()
    };
    let mut figures = Figures::new();
    for (name, kind) in rows {
        let latency = of(kind);
        let values = [
            ("mean", latency.map(|latency| latency.statistics.mean_ns)),
            ("max", latency.map(|latency| latency.statistics.max_ns)),
        ];
        figures.extend(values.map(|(figure, value)| (format!("{name}.{figure}"), Figure::Time(value))));
    }
    figures
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
