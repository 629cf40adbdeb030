// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is collected for the end of a watch, and the report of it.

use super::listener::Counts;
use rtscope_analyze::chain::Counters;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::histogram::Histogram;
use rtscope_analyze::own::{OwnCost, OwnPart};
use rtscope_analyze::summary::{self, Report};
use rtscope_event::{LateResponse, Loss, LossCause};
use rtscope_flight::TrackerStats;

/// What is collected for the end.
#[derive(Debug, Default)]
pub struct Summary {
    groups: summary::Summary,
    /// What rtscope itself cost the target.
    pub own: OwnCost,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Of them, those that could not be saved.
    pub failed_snapshots: u64,
}

impl Summary {
    /// A late response that no snapshot explains.
    pub fn unexplained(&mut self, late: &LateResponse) {
        self.groups.add_late(late);
        self.own.add_unexplained();
    }

    /// One that was explained, and rtscope's own part in it.
    pub fn explained(&mut self, explanation: &Explanation, own: OwnPart) {
        self.groups.add_explanation(explanation);
        self.own.add(own);
    }

    /// The report.
    pub fn report(&self, stats: &TrackerStats, counts: &Counts) -> Report {
        let histogram = Histogram::new(
            &stats.histogram,
            stats.sum_ns,
            stats.min_ns.unwrap_or(0),
            stats.max_ns.unwrap_or(0),
        );
        let loss = |cause, count| Loss { cpu: None, cause, count };
        Report {
            elapsed_ns: counts.elapsed_ns,
            threshold_ns: counts.threshold_ns,
            counters: counters(stats),
            untracked: stats.untracked + stats.raced,
            snapshots: self.snapshots,
            snapshots_failed: self.failed_snapshots,
            suppressed: stats.suppressed_rate + stats.suppressed_busy,
            statistics: histogram.statistics(),
            groups: self.groups.groups(),
            own: self.own,
            losses: vec![
                loss(LossCause::RecursionMiss, counts.misses),
                loss(LossCause::ReportRingFull, Some(stats.late_lost + counts.unreadable_reports)),
            ],
        }
    }
}

fn counters(stats: &TrackerStats) -> Counters {
    Counters {
        seen: stats.seen,
        late: stats.late,
        filtered: stats.filtered,
        merged: stats.merged,
        unlinked: stats.unlinked,
        busy: stats.busy,
        healed: stats.healed,
        folded: stats.folded,
        too_long: stats.too_long,
        hidden: stats.hidden,
    }
}
