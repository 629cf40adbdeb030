// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope impact`: what tracing costs. What it does is in the crate `rtscope-measure`.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::{output, stop};
use options::ImpactOptions;
use rtscope_measure::impact::{self, RateReport, Report};
use rtscope_session::fail_if;
use rtscope_view::impact as view;

/// Measures and reports.
pub fn run(options: &ImpactOptions) -> Result<(), Failure> {
    if options.loops.is_some_and(|loops| loops.0 == 0) || options.duration.is_some_and(|time| time.0 == 0) {
        return Err(Failure::Usage("--loops and --duration: they have to be greater than 0".to_string()));
    }
    let stop = stop::on_signals()?;
    let rtscope =
        std::env::current_exe().map_err(|error| Failure::doing("looking for rtscope itself", error))?;
    let settings = options.settings(rtscope);
    let observer = Terminal::new();
    if options.max_rate {
        let report = impact::max_rate(&settings, &options.rate_settings(), &stop, &observer)?;
        drop(observer);
        print_rate(options, &report)
    } else {
        let report = impact::run(&settings, &options.round_settings(), &stop, &observer)?;
        drop(observer);
        print(options, &report)?;
        fail_if::judge(&options.fail_if, &report.figures())
    }
}

fn print(options: &ImpactOptions, report: &Report) -> Result<(), Failure> {
    if let Some(file) = &options.plot {
        output::file(file, &view::svg(report))?;
    }
    output::result(&if options.json { output::object(view::json(report))? } else { view::text(report) });
    Ok(())
}

fn print_rate(options: &ImpactOptions, report: &RateReport) -> Result<(), Failure> {
    output::result(&if options.json {
        output::object(view::rate_json(report))?
    } else {
        view::rate_text(report)
    });
    Ok(())
}
