// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording that is being made: what there is so far, at intervals and at its end. Figures are those from the beginning on.

use super::{StatReports, StatSettings};
use crate::traces::WaitingNote;
use crate::{Failure, Observer, devices};
use rtscope_analyze::analysis::Analysis;
use rtscope_ctf::{
    Counts, Error, FollowSource, Follower, Host, NamesFollower, Round, Selection, SharedTaskNames, Stage,
    TraceSet,
};
use rtscope_event::{EventClass, Item, TraceSource};
use std::path::Path;
use std::time::Duration;

/// Items after which the time is looked at, when there is more than can be analysed at once.
const NOW_AND_THEN: u64 = 1 << 16;

/// Shows what there is so far.
pub trait Display {
    /// Whether it is time to show it again.
    fn is_due(&self) -> bool;

    /// How many events there are.
    ///
    /// # Errors
    /// Those of whoever shows it.
    fn counts(
        &mut self,
        of: (&TraceSet, Stage),
        counts: &Counts,
        selection: &Selection,
    ) -> Result<(), Failure>;

    /// What they say.
    ///
    /// # Errors
    /// Those of whoever shows it.
    fn figures(&mut self, reports: StatReports) -> Result<(), Failure>;
}

/// What is followed.
#[derive(Clone, Copy, Debug)]
pub struct Following<'f> {
    /// Where the trace is being made.
    pub trace: &'f Path,
    /// What is asked for.
    pub settings: &'f StatSettings,
    /// How long events may take to come.
    pub delay: Duration,
    /// Hears that there is nothing yet.
    pub observer: &'f dyn Observer,
}

/// What came of it.
pub struct FollowedFigures {
    /// What was found out, to the end.
    pub reports: StatReports,
    /// Events that came too late, and were counted as lost.
    pub late: u64,
    /// With what could not be read.
    pub follower: Follower,
    /// How far the recording was then.
    pub stage: Stage,
    /// Why it ended early.
    pub failure: Option<Error>,
}

fn failed(error: Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Counts until the recording ends, or the host does not want to wait any more. Shows the last counts, too.
///
/// # Errors
/// When the trace cannot be read.
pub fn follow_counts(
    following: Following<'_>,
    host: &mut dyn Host,
    display: &mut dyn Display,
) -> Result<(Follower, Stage), Failure> {
    let Following { trace, settings, delay, observer } = following;
    let mut names = NamesFollower::new(trace);
    let selection = settings.filter.selection_from_now(&names.names())?;
    let mut follower = Follower::new(trace, selection.clone());
    let mut waiting = WaitingNote::new(trace, observer);
    let mut counts = Counts::default();
    loop {
        let stage = follower.look(&rtscope_store::is_abandoned).map_err(failed)?;
        waiting.stage(stage);
        let is_over = stage.is_over();
        let horizon_ns = if is_over { i64::MAX } else { follower.horizon(delay) };
        if settings.filter.task.is_some() {
            names.catch_up(&rtscope_store::is_abandoned, horizon_ns).map_err(failed)?;
        }
        let round = follower.count(horizon_ns, &mut counts).map_err(failed)?;
        if round != Round::More && (is_over || follower.is_past() || !host.wait()) {
            display.counts((follower.set(), stage), &counts, &selection)?;
            return Ok((follower, stage));
        }
        if stage != Stage::Waiting && display.is_due() {
            display.counts((follower.set(), stage), &counts, &selection)?;
        }
    }
}

/// Analyses until the recording ends, or the host does not want to wait any more. What was found out at the end is left to be shown.
///
/// # Errors
/// When what is asked for does not go together.
pub fn follow_figures(
    following: Following<'_>,
    host: &mut dyn Host,
    display: &mut dyn Display,
) -> Result<FollowedFigures, Failure> {
    let Following { trace, settings, delay, observer } = following;
    settings.check()?;
    let mut selection = settings.filter.only_times().selection_from_now(&SharedTaskNames::default())?;
    let since_ns = selection.from_ns.take();
    let follower = Follower::new(trace, selection);
    let mut analyses = settings.analyses(since_ns, &devices::names())?;
    let wants = analyses.clone();
    let wanted = |class: &EventClass| wants.wants(class);
    let mut source = FollowSource::new(follower, &wanted, delay, host);
    let mut waiting = WaitingNote::new(trace, observer);
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
            if has_events && display.is_due() {
                display.figures(settings.reports(analyses.clone().finish()))?;
            }
        }
    }
    let (late, stage) = (source.late(), source.stage());
    let (follower, failure) = source.into_parts();
    Ok(FollowedFigures { reports: settings.reports(analyses.finish()), late, follower, stage, failure })
}
