// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --follow TRACE`: what there is so far of a recording that is being made, at intervals and at its end.
//!
//! Figures are those from the beginning on. On a terminal each report takes the place of the one before.

use super::figures;
use crate::exit::Failure;
use crate::following::{PAUSE, is_closed};
use crate::observer;
use crate::output::{note, result};
use crate::stop::{self, Stop};
use crate::trace_args::StatOptions;
use rtscope_analyze::analysis::Analysis;
use rtscope_ctf::{
    Counts, Error, FollowSource, Follower, Host, NamesFollower, Round, SharedTaskNames, Stage,
};
use rtscope_event::{Item, TraceSource, counted};
use rtscope_session::devices;
use rtscope_session::traces::{WaitingNote, how_it_ended, report_damage};
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::TraceStat;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

/// Erases the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Counts or analyses until the recording ends, or somebody ends this.
pub fn run(options: &StatOptions, wants_figures: bool) -> Result<(), Failure> {
    rtscope_session::limits::raise_file_limit();
    let reports = Reports::new(options);
    let stop = stop::on_signals()?;
    let (follower, stage) =
        if wants_figures { analyse(options, reports, stop)? } else { count(options, reports, &stop)? };
    let mut follower = follower;
    report_damage(&mut follower.take_damaged(), &observer::Terminal::new())?;
    how_it_ended(stage, &options.trace.trace)
}

/// When to show what.
struct Reports {
    interval: Duration,
    shown: Instant,
    clears: bool,
}

impl Reports {
    fn new(options: &StatOptions) -> Reports {
        let clears = !options.json && io::stdout().is_terminal();
        Reports { interval: Duration::from_nanos(options.interval.0), shown: Instant::now(), clears }
    }

    fn is_due(&self) -> bool {
        self.shown.elapsed() >= self.interval
    }

    /// Whoever shows a report in place of the last one.
    fn clear(&self) {
        if self.clears {
            result(CLEAR);
        }
    }

    fn show(&mut self, text: &str) {
        let before = if self.clears { CLEAR } else { "" };
        result(&format!("{before}{text}"));
        self.shown = Instant::now();
    }
}

fn count(options: &StatOptions, mut reports: Reports, stop: &Stop) -> Result<(Follower, Stage), Failure> {
    let failed = |error: Error| Failure::Failed(error.to_string());
    let mut names = NamesFollower::new(&options.trace.trace);
    let selection = options.trace.filter().selection_from_now(&names.names())?;
    let delay = Duration::from_nanos(options.follow.delay.0);
    let mut follower = Follower::new(&options.trace.trace, selection.clone());
    let observer = observer::Terminal::new();
    let mut waiting = WaitingNote::new(&options.trace.trace, &observer);
    let mut counts = Counts::default();
    let text = |(follower, stage): (&Follower, Stage), counts: &Counts| {
        let stat = TraceStat::new((follower.set(), stage), counts, &selection);
        if options.json {
            crate::output::object(stat.json())
        } else {
            Ok(stat.text(time_of_day, crate::terminal::style(false)))
        }
    };
    loop {
        let stage = follower.look(&rtscope_store::is_abandoned).map_err(failed)?;
        waiting.stage(stage);
        let is_over = stage.is_over();
        let horizon_ns = if is_over { i64::MAX } else { follower.horizon(delay) };
        if options.trace.events.task.is_some() {
            names.catch_up(&rtscope_store::is_abandoned, horizon_ns).map_err(failed)?;
        }
        let round = follower.count(horizon_ns, &mut counts).map_err(failed)?;
        if round != Round::More {
            let is_last = is_over || follower.is_past(horizon_ns);
            if !is_last {
                stop.wait(PAUSE, None);
            }
            if is_last || stop.asked() || is_closed(&io::stdout()) {
                reports.show(&text((&follower, stage), &counts)?);
                return Ok((follower, stage));
            }
        }
        if stage != Stage::Waiting && reports.is_due() {
            reports.show(&text((&follower, stage), &counts)?);
        }
    }
}

/// The command as the host of a source.
struct Terminal {
    stop: Stop,
}

impl Host for Terminal {
    fn wait(&mut self) -> bool {
        self.stop.wait(PAUSE, None);
        !self.stop.asked() && !is_closed(&io::stdout())
    }

    fn is_abandoned(&self, directory: &Path) -> bool {
        rtscope_store::is_abandoned(directory)
    }
}

fn analyse(options: &StatOptions, mut reports: Reports, stop: Stop) -> Result<(Follower, Stage), Failure> {
    /// Items after which the time is looked at, when there is more than can be analysed at once.
    const NOW_AND_THEN: u64 = 1 << 16;
    figures::check(options)?;
    let mut selection = options.trace.filter().only_times().selection_from_now(&SharedTaskNames::default())?;
    let since_ns = selection.from_ns.take();
    let follower = Follower::new(&options.trace.trace, selection);
    let delay = Duration::from_nanos(options.follow.delay.0);
    let mut analyses = figures::analyses(options, since_ns, &devices::names())?;
    let wants = analyses.clone();
    let wanted = |class: &rtscope_event::EventClass| wants.wants(class);
    let mut host = Terminal { stop };
    let mut source = FollowSource::new(follower, &wanted, delay, &mut host);
    let observer = observer::Terminal::new();
    let mut waiting = WaitingNote::new(&options.trace.trace, &observer);
    let mut items = 0_u64;
    let mut has_events = false;
    loop {
        items += 1;
        let mut may_be_due = items % NOW_AND_THEN == 0;
        match source.next() {
            Item::Event(event) => {
                has_events = true;
                analyses.event(&event);
            }
            Item::Lost(lost) => analyses.lost(&lost),
            Item::NothingBefore(_) => may_be_due = true,
            Item::End => break,
        }
        if may_be_due {
            waiting.stage(source.stage());
            if has_events && reports.is_due() {
                reports.show(&figures::shown(options, analyses.clone().finish())?);
            }
        }
    }
    let (late, stage) = (source.late(), source.stage());
    let (follower, failure) = source.into_parts();
    let all = options.trace.from.is_none() && options.trace.to.is_none();
    if late > 0 && all && stage == Stage::Complete {
        note(&format!(
            "rtscope: {} too late, and counted as lost until now; the last report has all",
            counted(late, "event came", "events came")
        ));
        reports.clear();
        figures::run(options)?;
    } else {
        reports.show(&figures::shown(options, analyses.finish())?);
        if late > 0 {
            note(&format!("rtscope: too late, and counted as lost: {}", counted(late, "event", "events")));
        }
    }
    failure.map_or(Ok((follower, stage)), |error| Err(Failure::Failed(error.to_string())))
}
