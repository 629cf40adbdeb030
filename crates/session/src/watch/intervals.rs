// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary of a watch of intervals: what was counted at the looks takes the place of the tracker's counts.

use super::spans::SpanCounts;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_analyze::summary::{NoticedAfter, Report, SpanSummary};
use rtscope_event::{Loss, LossCause, Tid};
use std::cmp::Reverse;

/// Puts it into a report. `suppressed`: late intervals without a snapshot of their own.
pub(super) fn add_to(
    report: &mut Report,
    pair: &PairQuestion,
    (counts, losses): (SpanCounts, Vec<Loss>),
    suppressed: u64,
) {
    report.counters.seen = counts.seen;
    report.counters.late = counts.late;
    report.suppressed = suppressed;
    report.statistics = counts.lengths.statistics();
    report.losses.extend(losses);
    let full = report.losses.iter_mut().find(|loss| loss.cause == LossCause::ReportRingFull);
    if let Some(count) = full.and_then(|loss| loss.count.as_mut()) {
        *count += counts.late_lost;
    }
    let mut threads = counts.threads;
    threads.sort_by_key(|thread| (thread.tid == Tid(0), Reverse((thread.late, thread.worst_ns))));
    let p99 = |milli| {
        let statistics = counts.noticed.statistics()?;
        let found = statistics.percentiles.iter().find(|percentile| percentile.percent_milli == milli)?;
        found.value_ns
    };
    let noticed = counts.noticed.statistics().map(|statistics| NoticedAfter {
        mean_ns: statistics.mean_ns,
        p99_ns: p99(99_000),
        max_ns: statistics.max_ns,
    });
    report.between = Some(SpanSummary {
        from: pair.begin.to_string(),
        to: pair.end.to_string(),
        by: pair.key_text(),
        threads,
        unmatched: counts.unmatched,
        missed_looks: counts.missed_looks,
        noticed,
    });
}
