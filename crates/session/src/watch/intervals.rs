// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary of a watch of intervals: what was counted at the looks takes the place of the tracker's counts.

use super::spans::SpanCounts;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_analyze::summary::{NoticedAfter, Report, SpanSummary, UnmatchedEvents};
use rtscope_event::{Loss, LossCause, Tid};
use rtscope_flight::TrackerStats;
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
        *count += counts.sum(|user| user.late_lost);
    }
    let missed_looks = counts.sum(|user| user.missed_looks);
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
        missed_looks,
        users: counts.users,
        noticed,
    });
}

/// What the kernel's side did not pair, though it saw it, as losses. `given_up`: first events that were removed to make room for others.
pub(super) fn add_losses(report: &mut Report, stats: &TrackerStats, given_up: u64) {
    let loss = |cause, count| Loss { cpu: None, cause, count: Some(count) };
    report.losses.push(loss(LossCause::TableFull, stats.pairs_full + given_up));
    report.losses.push(loss(LossCause::EntryBusy, stats.pairs_failed));
}

/// Of two tracepoints, which the kernel's side has paired. `open`: first events without a second at the end; `given_up`: see [`add_losses`].
pub(super) fn of_tracepoints(
    pair: &PairQuestion,
    stats: &TrackerStats,
    (open, given_up): (u64, u64),
) -> SpanSummary {
    SpanSummary {
        from: pair.begin.to_string(),
        to: pair.end.to_string(),
        by: pair.key_text(),
        threads: Vec::new(),
        unmatched: UnmatchedEvents {
            without_end: open,
            without_begin: stats.without_begin,
            begun_again: stats.begun_again,
            without_key: 0,
            lost: stats.pairs_failed,
            forgotten: stats.pairs_full + given_up,
        },
        missed_looks: 0,
        users: Vec::new(),
        noticed: None,
    }
}

/// What is to be said while it goes on of tracepoints that were not paired; `told` is how many there were when that was said last.
pub(super) fn not_paired(stats: &TrackerStats, given_up: u64, told: &mut u64) -> Option<String> {
    let causes = [
        (stats.without_begin, "ends without a beginning"),
        (stats.begun_again, "beginnings after which another one came"),
        (stats.pairs_full, "beginnings for which the table had no place"),
        (given_up, "older beginnings given up to make room"),
        (stats.pairs_failed, "events whose entry another CPU changed"),
    ];
    let all: u64 = causes.iter().map(|(count, _)| count).sum();
    if all == 0 || all < told.saturating_mul(2) {
        return None;
    }
    *told = all;
    let causes = causes.iter().filter(|(count, _)| *count > 0);
    let causes: Vec<String> = causes.map(|(count, what)| format!("{what}: {count}")).collect();
    Some(format!("pair: not paired so far: {}", causes.join("; ")))
}
