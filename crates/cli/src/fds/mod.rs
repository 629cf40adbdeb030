// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope fds`: which file descriptors are open, and how that came about.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{object, result};
use crate::{stop, terminal};
use options::FdsOptions;
use rtscope_session::fds::{self, FdsReport};
use rtscope_view::{fds_json, fds_text};

/// Follows descriptors, and prints what is known of them.
pub fn run(options: FdsOptions) -> Result<(), Failure> {
    let json = options.json.begin()?;
    let settings = options.settings()?;
    let style = terminal::style(false);
    let terminal = Terminal::new();
    let mut failure = None;
    let mut show = |report: &FdsReport| {
        let text =
            if json { object(fds_json(report, terminal.command())) } else { Ok(fds_text(report, style)) };
        match text {
            Ok(text) => result(&text),
            Err(error) => failure = Some(error),
        }
    };
    let stop = stop::on_signals_later(None)?;
    let (report, command) = fds::run(&settings, &stop, &terminal, &mut show)?;
    show(&report);
    failure.map_or(command, Err)
}
