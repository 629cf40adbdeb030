// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the result of a watch is to be a failure: `--fail-if-late`, `--fail-if`, `--fail-if-lost`; and a snapshot that was not saved.

use crate::Failure;
use crate::fail_if::{self, FailIf, Figure, Figures};
use rtscope_analyze::summary::Report;
use rtscope_event::{Loss, counted};

/// What was asked to be one.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Anything that is late.
    pub fail_if_late: bool,
    /// Anything that was lost, or not followed.
    pub fail_if_lost: bool,
    /// Conditions for the summary.
    pub conditions: Vec<FailIf>,
}

/// As a summary has them.
const PERCENTILES: [(&str, u32); 6] = [
    ("p50", 50_000),
    ("p90", 90_000),
    ("p99", 99_000),
    ("p99.9", 99_900),
    ("p99.99", 99_990),
    ("p99.999", 99_999),
];

impl Verdict {
    /// Before anything is watched: whether the conditions can be judged.
    ///
    /// # Errors
    /// What is wrong with the first that cannot.
    pub fn check(&self) -> Result<(), Failure> {
        fail_if::check(&self.conditions, &figures(&Report::default()))
    }

    /// Of all reports of a watch. `loss_text`: a loss in words.
    ///
    /// # Errors
    /// The first that is a failure.
    pub fn judge(&self, reports: &[Report], loss_text: fn(&Loss) -> String) -> Result<(), Failure> {
        reports.iter().try_for_each(|report| self.of(report, loss_text))?;
        match reports.iter().map(|report| report.snapshots_failed).sum() {
            0 => Ok(()),
            failed => Err(Failure::Failed(format!(
                "{} not saved (see above)",
                counted(failed, "snapshot was", "snapshots were")
            ))),
        }
    }

    fn of(&self, report: &Report, loss_text: fn(&Loss) -> String) -> Result<(), Failure> {
        let late = report.counters.late;
        if self.fail_if_late && late > 0 {
            return Err(Failure::Late(late));
        }
        fail_if::judge(&self.conditions, &figures(report))?;
        if self.fail_if_late && report.counters.seen == 0 {
            let what = match &report.between {
                Some(between) => format!("no time from {} to {}", between.from, between.to),
                None => "no response of the target".to_string(),
            };
            return Err(Failure::Unmeasured(format!("{what} was seen: --fail-if-late has nothing to judge")));
        }
        let between = report.between.as_ref().map(|between| &between.unmatched);
        let unpaired = between.map_or(0, |unmatched| unmatched.lost + unmatched.forgotten);
        let not_followed = report.untracked + unpaired;
        if self.fail_if_lost && not_followed > 0 {
            return Err(Failure::Lost(format!(
                "{not_followed} were not followed to the end, since a table was full or busy, or events were lost"
            )));
        }
        match report.losses.iter().find(|loss| loss.count != Some(0)) {
            Some(first) if self.fail_if_lost => Err(Failure::Lost(loss_text(first))),
            _ => Ok(()),
        }
    }
}

/// What --fail-if can be about.
fn figures(report: &Report) -> Figures {
    let time = |value: Option<u64>| Figure::Time(value.map(|ns| ns as f64));
    let statistics = report.statistics.as_ref();
    let mut figures: Figures = vec![
        ("min".to_string(), time(statistics.map(|statistics| statistics.min_ns))),
        ("mean".to_string(), time(statistics.map(|statistics| statistics.mean_ns))),
        // What has not ended takes at least as long as it has.
        ("max".to_string(), time(statistics.map(|statistics| statistics.max_ns).max(report.pending_max_ns))),
        // Where nothing was seen, that nothing was late is no figure.
        ("late".to_string(), Figure::Count((report.counters.seen > 0).then_some(report.counters.late))),
        ("seen".to_string(), Figure::Count(Some(report.counters.seen))),
    ];
    for (name, milli) in PERCENTILES {
        let found = statistics.and_then(|statistics| {
            statistics.percentiles.iter().find(|percentile| percentile.percent_milli == milli)
        });
        figures.push((name.to_string(), time(found.and_then(|percentile| percentile.value_ns))));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::LossCause;

    fn judged(verdict: &Verdict, report: Report) -> Option<Failure> {
        verdict.judge(&[Report::default(), report], |_| "events lost".to_string()).err()
    }

    #[test]
    fn only_what_was_asked_for_is_a_failure() {
        let loss = Loss { cpu: None, cause: LossCause::BufferFull, count: Some(1) };
        let mut report = Report { losses: vec![loss], untracked: 0, ..Report::default() };
        report.counters.late = 2;
        assert!(judged(&Verdict::default(), report.clone()).is_none());
        let lost = Verdict { fail_if_lost: true, ..Verdict::default() };
        assert!(matches!(judged(&lost, report.clone()), Some(Failure::Lost(_))));
        report.snapshots_failed = 1;
        assert!(matches!(judged(&Verdict::default(), report.clone()), Some(Failure::Failed(_))));
    }

    #[test]
    fn where_nothing_was_seen_nothing_is_judged() {
        let late = Verdict { fail_if_late: true, ..Verdict::default() };
        assert!(matches!(judged(&late, Report::default()), Some(Failure::Unmeasured(_))));
        let condition = Verdict { conditions: vec!["late>0".parse().unwrap()], ..Verdict::default() };
        assert!(condition.check().is_ok());
        assert!(matches!(judged(&condition, Report::default()), Some(Failure::Unmeasured(_))));
        let unknown = Verdict { conditions: vec!["latest>0".parse().unwrap()], ..Verdict::default() };
        assert!(matches!(unknown.check(), Err(Failure::Usage(_))));
    }
}
