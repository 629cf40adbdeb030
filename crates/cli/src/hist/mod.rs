// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hist`: histograms of all that a tracker follows.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{file, object, result};
use crate::{stop, terminal};
use options::HistOptions;
use rtscope_session::hist::{self, HistReport, HistSettings};
use rtscope_session::watch::keep_one_pool;
use rtscope_view::{heat_svg, hist_json, hist_text};

/// Rows without --top.
const ROWS: usize = 20;

/// Counts, and prints what was counted.
pub fn run(options: HistOptions) -> Result<(), Failure> {
    keep_one_pool();
    let json = options.of.json.begin()?;
    let rows = options.top.unwrap_or(ROWS);
    let svg = options.svg.clone();
    let (tracker, between) = options.followed.question()?;
    let settings = HistSettings {
        tracker,
        between,
        by: options.by,
        order: options.sort.unwrap_or_default(),
        calls: options.calls,
        sample_ns: options.period.map(|period| period.0),
        counted: options.of.counted(),
        interval_ns: options.interval.map(|interval| interval.0),
        cells: options.cells,
    };
    let style = terminal::style(false);
    let terminal = Terminal::new();
    let mut failure = None;
    let mut show = |report: &HistReport| {
        let text = match json {
            true => object(hist_json(report, terminal.command())),
            false => Ok(hist_text(report, rows, style)),
        };
        match text {
            Ok(text) => result(&text),
            Err(error) => failure = Some(error),
        }
    };
    let stop = stop::on_signals_later(None)?;
    let (report, command) = hist::run(&settings, &stop, &terminal, &mut show)?;
    show(&report);
    if let (Some(path), Some(map)) = (svg, &report.over_time) {
        file(&path, &heat_svg(&format!("{} of {}", report.what(), report.target), map))?;
    }
    failure.map_or(command, Err)
}
