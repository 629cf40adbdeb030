// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --follow TRACE`: what there is so far of a recording that is being made, at intervals and at its end.
//!
//! On a terminal each report takes the place of the one before.

use super::figures;
use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{note, object, result};
use crate::stop;
use crate::terminal;
use crate::trace_args::StatOptions;
use rtscope_ctf::{Counts, Follower, Selection, Stage, TraceSet};
use rtscope_event::counted;
use rtscope_session::following::OutputReader;
use rtscope_session::stat::{self, Display, FollowedFigures, Following, StatReports};
use rtscope_session::traces::{how_it_ended, report_damage};
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::TraceStat;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Erases the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Counts or analyses until the recording ends, or somebody ends this.
pub fn run(options: &StatOptions) -> Result<(), Failure> {
    rtscope_session::limits::raise_file_limit();
    let settings = options.settings();
    let mut screen = Screen::new(options);
    let mut reader = OutputReader { stop: Rc::new(stop::on_signals()?), lost: |_, _, _| {} };
    let observer = Terminal::new();
    let following = Following {
        trace: &options.trace.trace,
        settings: &settings,
        delay: Duration::from_nanos(options.follow.delay.0),
        observer: &observer,
    };
    let (mut follower, stage) = match settings.wants_figures() {
        true => {
            let followed = stat::follow_figures(following, &mut reader, &mut screen)?;
            screen.last(followed)?
        }
        false => stat::follow_counts(following, &mut reader, &mut screen)?,
    };
    report_damage(&mut follower.take_damaged(), &observer)?;
    how_it_ended(stage, following.trace)
}

/// Standard output, and when it was written.
struct Screen<'o> {
    options: &'o StatOptions,
    shown: Instant,
    clears: bool,
}

impl Screen<'_> {
    fn new(options: &StatOptions) -> Screen<'_> {
        let clears = !options.json && io::stdout().is_terminal();
        Screen { options, shown: Instant::now(), clears }
    }

    fn show(&mut self, text: &str) {
        let before = if self.clears { CLEAR } else { "" };
        result(&format!("{before}{text}"));
        self.shown = Instant::now();
    }

    /// What there is at the end; where some of it came too late, and all was asked for, the trace is read again.
    fn last(&mut self, followed: FollowedFigures) -> Result<(Follower, Stage), Failure> {
        let FollowedFigures { reports, late, follower, stage, failure } = followed;
        let all = self.options.trace.from.is_none() && self.options.trace.to.is_none();
        if late > 0 && all && stage == Stage::Complete {
            note(&format!(
                "rtscope: {} too late, and counted as lost until now; the last report has all",
                counted(late, "event came", "events came")
            ));
            if self.clears {
                result(CLEAR);
            }
            figures::run(self.options)?;
        } else {
            self.figures(reports)?;
            if late > 0 {
                let events = counted(late, "event", "events");
                note(&format!("rtscope: too late, and counted as lost: {events}"));
            }
        }
        failure.map_or(Ok((follower, stage)), |error| Err(Failure::Failed(error.to_string())))
    }
}

impl Display for Screen<'_> {
    fn is_due(&self) -> bool {
        self.shown.elapsed() >= Duration::from_nanos(self.options.interval.0)
    }

    fn counts(
        &mut self,
        of: (&TraceSet, Stage),
        counts: &Counts,
        selection: &Selection,
    ) -> Result<(), Failure> {
        let stat = TraceStat::new(of, counts, selection);
        let text = match self.options.json {
            true => object(stat.json())?,
            false => stat.text(time_of_day, terminal::style(false)),
        };
        self.show(&text);
        Ok(())
    }

    fn figures(&mut self, reports: StatReports) -> Result<(), Failure> {
        let text = figures::shown(self.options, reports)?;
        self.show(&text);
        Ok(())
    }
}
