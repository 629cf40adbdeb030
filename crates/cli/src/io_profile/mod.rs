// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope io-profile`: how long input and output take, and whether that has changed.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{object, result};
use crate::{stop, terminal};
use options::ProfileOptions;
use rtscope_session::io_profile::{self, DetectSettings, ProfileLine, ProfileSettings};
use rtscope_session::watch::keep_one_pool;
use rtscope_view::{io_change_json, io_change_text, io_profile_json, io_profile_text};
use std::sync::Arc;

/// Tables without --top.
const TABLES: usize = 5;

/// Counts, and prints what was counted and what has changed.
pub fn run(options: ProfileOptions) -> Result<(), Failure> {
    keep_one_pool();
    let json = options.of.json.begin()?;
    let most = options.top.unwrap_or(TABLES);
    let asked = Arc::default();
    let detect =
        DetectSettings { window_ns: options.window.0, baseline: options.baseline, level: options.alarm };
    let settings = ProfileSettings {
        by: options.by,
        counted: options.of.counted(),
        interval_ns: options.interval.map(|interval| interval.0),
        asked: Some(Arc::clone(&asked)),
        detect: options.detect.then_some(detect),
        cells: options.cells,
    };
    let style = terminal::style(false);
    let terminal = Terminal::new();
    let mut failure = None;
    let mut show = |line: &ProfileLine| {
        let text = match (line, json) {
            (ProfileLine::Reading(report), true) => object(io_profile_json(report, terminal.command())),
            (ProfileLine::Change(change), true) => object(io_change_json(change)),
            (ProfileLine::Reading(report), false) => Ok(io_profile_text(report, most, style)),
            (ProfileLine::Change(change), false) => Ok(io_change_text(change, style)),
        };
        match text {
            Ok(text) => result(&text),
            Err(error) => failure = Some(error),
        }
    };
    let stop = stop::on_signals_later(Some(asked))?;
    let (report, command) = io_profile::run(&settings, &stop, &terminal, &mut show)?;
    show(&ProfileLine::Reading(Box::new(report)));
    failure.map_or(command, Err)
}
