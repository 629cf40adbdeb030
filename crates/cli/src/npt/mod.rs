// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope npt`: the non-preempt test. What it does is in the crate `rtscope-measure`.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::{output, stop};
use options::NptOptions;
use rtscope_measure::npt::{self, Event, Report};
use rtscope_session::fail_if;
use rtscope_view::npt as view;

/// Measures and reports.
pub fn run(options: &NptOptions) -> Result<(), Failure> {
    check(options)?;
    fail_if::check(&options.fail_if, &Report::figures(None))?;
    let cpu = npt::cpu(options.cpu)?;
    // Before there is another thread, and before memory is locked.
    let event =
        Event::named(options.event.as_deref()).map_err(|why| Failure::Usage(format!("--event-of: {why}")))?;
    let stop = stop::on_signals()?;
    let report = npt::run(&options.settings(event, cpu), &stop, &Terminal::new())?;
    print(options, &report)?;
    fail_if::judge(&options.fail_if, &Report::figures(Some(&report)))
}

fn print(options: &NptOptions, report: &Report) -> Result<(), Failure> {
    if let Some(file) = &options.plot {
        output::file(file, &view::svg(report))?;
    }
    match options.json {
        true => output::result(&output::object(view::json(report))?),
        false => output::prose(&view::text(report)),
    }
    Ok(())
}

fn check(options: &NptOptions) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_string()));
    if options.loops.is_some_and(|loops| loops.0 == 0) {
        return usage("--loops: at least one iteration is needed");
    }
    if options.duration.is_some_and(|duration| duration.0 == 0) {
        return usage("--duration: it has to be longer than 0");
    }
    let windows = options.windows.map(|window| (window.0, window.0));
    let burst = options.burst.map(|burst| (burst.on, burst.off));
    if windows.or(burst).is_some_and(|(on, off)| on.min(off) < 1000) {
        return usage("--windows and --burst: a window lasts at least 1us");
    }
    Ok(())
}
