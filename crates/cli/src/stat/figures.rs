// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --tasks`, `--irqs`, `--syscalls`, `--latency`: what they do is in `rtscope_session::stat`.

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{file, note, object, result};
use crate::progress::Progress;
use crate::terminal;
use crate::trace_args::StatOptions;
use rtscope_event::counted;
use rtscope_session::stat::StatReports;
use rtscope_session::traces;
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{Wanted, figures_json, figures_text, latency_svg};

/// Shown without --top.
const ROWS: usize = 20;

/// Reads, shows.
pub fn run(options: &StatOptions) -> Result<(), Failure> {
    let trace = &options.trace.trace;
    let progress = Progress::new(100);
    let found = options.settings().figures(trace, &Terminal::new(), &mut |percent| progress.at(percent));
    progress.finish();
    let mut found = found?;
    if found.untimed > 0 {
        note(&format!(
            "rtscope: {}",
            counted(
                found.untimed,
                "stream has no clock; it is left out",
                "streams have no clock; they are left out"
            )
        ));
    }
    note_if_nothing(options, &found.reports);
    result(&shown(options, found.reports)?);
    traces::report_end(trace, &mut found.damaged, &Terminal::new())
}

/// Says that a filter left nothing of what was asked for.
fn note_if_nothing(options: &StatOptions, reports: &StatReports) {
    let wanted = wanted(options);
    let tasks = reports.tasks.as_ref().map(|report| report.tasks.as_slice()).unwrap_or_default();
    let no_task = !tasks.is_empty() && !tasks.iter().any(|task| wanted.has(task));
    let latencies = &reports.latencies;
    let no_latency = !latencies.is_empty() && latencies.iter().all(|report| report.all.all.count == 0);
    if no_task || no_latency {
        options.trace.filter().note_if_nothing(0, &Terminal::new());
    }
}

fn wanted(options: &StatOptions) -> Wanted {
    Wanted { task: options.trace.events.task.clone(), rows: options.top.unwrap_or(ROWS) }
}

/// The reports that were asked for. A picture goes into its file.
pub(super) fn shown(options: &StatOptions, reports: StatReports) -> Result<String, Failure> {
    if let Some(path) = &options.svg {
        file(path, &latency_svg(&reports.latencies))?;
    }
    let wanted = wanted(options);
    match options.json {
        true => object(figures_json(reports, &wanted)),
        false => Ok(figures_text(reports, &wanted, time_of_day, terminal::style(false))),
    }
}
