// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A watch in numbers, for those who collect metrics. The names are an interface: they stay.

use super::actions::ActionReport;
use crate::metrics::{Exposition, Kind};
use rtscope_analyze::histogram::{BUCKETS, bucket_range};
use rtscope_event::Tracker;
use rtscope_flight::TrackerStats;

/// The limits of the histogram's buckets: powers of two of nanoseconds from 1 us to 17 s, as the kernel's own fall between them.
const LIMITS_LOG2: std::ops::RangeInclusive<u32> = 10..=34;

/// One tracker with its limit.
#[derive(Debug)]
pub struct Instance {
    pub tracker: Tracker,
    pub threshold_ns: u64,
    /// The worst that was reported, where the limit rises to that; else 0.
    pub worst_reported_ns: u64,
    pub stats: TrackerStats,
    pub snapshots: u64,
    pub failed_snapshots: u64,
}

/// What is not of one instance.
#[derive(Debug)]
pub struct Watch {
    pub elapsed_ns: u64,
    /// Of runs of eBPF programs that the kernel skipped; `None`: not known.
    pub misses: Option<u64>,
    pub unreadable_reports: u64,
    /// Operations that were given up to make room for others.
    pub given_up: u64,
    pub actions: Option<ActionReport>,
}

/// What a collector reads.
pub fn exposition(instances: &[Instance], watch: &Watch) -> String {
    let mut all = Exposition::new();
    let version = env!("CARGO_PKG_VERSION");
    all.family("rtscope_watch", Kind::Info, "The rtscope that watches.").info(&[("version", version)]);
    all.family("rtscope_watch_elapsed_seconds", Kind::Gauge, "For how long it watches.")
        .gauge(&[], seconds(watch.elapsed_ns));
    add_instances(&mut all, instances);
    add_losses(&mut all, instances, watch);
    if let Some(actions) = &watch.actions {
        add_actions(&mut all, actions);
    }
    all.finish()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Instance {
    fn limit_ns(&self) -> u64 {
        self.threshold_ns.max(self.worst_reported_ns)
    }

    fn up_to(&self) -> Vec<(f64, u64)> {
        let mut below = vec![0; LIMITS_LOG2.count()];
        for (index, count) in self.stats.histogram.iter().take(BUCKETS).enumerate().filter(|(_, n)| **n > 0) {
            let (_, highest) = bucket_range(index);
            for (slot, log2) in below.iter_mut().zip(LIMITS_LOG2) {
                *slot += if highest < 1 << log2 { *count } else { 0 };
            }
        }
        LIMITS_LOG2.map(|log2| seconds(1 << log2)).zip(below).collect()
    }
}

fn add_instances(all: &mut Exposition, instances: &[Instance]) {
    let numbers: Vec<String> = (0..instances.len()).map(|number| number.to_string()).collect();
    let each = || {
        let labels = instances.iter().zip(&numbers);
        labels
            .map(|(of, number)| (of, [("tracker", of.tracker.name()), ("tracker_instance", number.as_str())]))
    };
    let mut limits = all.family("rtscope_threshold_seconds", Kind::Gauge, "What takes longer is late.");
    each().for_each(|(of, labels)| limits.gauge(&labels, seconds(of.limit_ns())));
    let mut late = all.family("rtscope_late", Kind::Counter, "What took longer than the threshold.");
    each().for_each(|(of, labels)| late.count(&labels, of.stats.late));
    let mut times = all.family("rtscope_latency_seconds", Kind::Histogram, "All that was followed.");
    for (of, labels) in each() {
        // Of the same reading, since the CPUs go on counting: the parts shall not be more than the whole.
        let count = of.stats.histogram.iter().sum();
        times.histogram(&labels, &of.up_to(), count, seconds(of.stats.sum_ns));
    }
    let mut taken = all.family("rtscope_snapshots", Kind::Counter, "Snapshots taken.");
    each().for_each(|(of, labels)| taken.count(&labels, of.snapshots));
    let mut failed =
        all.family("rtscope_snapshots_failed", Kind::Counter, "Snapshots that could not be saved.");
    each().for_each(|(of, labels)| failed.count(&labels, of.failed_snapshots));
    let mut suppressed = all.family(
        "rtscope_snapshots_suppressed",
        Kind::Counter,
        "Detections without a snapshot: the last was too short a time ago, or still being taken.",
    );
    for (of, [tracker, number]) in each() {
        suppressed.count(&[tracker, number, ("cause", "rate")], of.stats.suppressed_rate);
        suppressed.count(&[tracker, number, ("cause", "busy")], of.stats.suppressed_busy);
    }
}

fn add_losses(all: &mut Exposition, instances: &[Instance], watch: &Watch) {
    let mut lost = all.family("rtscope_lost", Kind::Counter, "Events and reports that were lost, by cause.");
    lost.count(&[("cause", "recursion_miss")], watch.misses);
    // A ring of reports is that of all instances.
    let reports = instances.iter().map(|of| of.stats.late_lost).max().unwrap_or(0);
    lost.count(&[("cause", "report_ring_full")], reports + watch.unreadable_reports);
    let sum = |count: fn(&TrackerStats) -> u64| instances.iter().map(|of| count(&of.stats)).sum::<u64>();
    lost.count(&[("cause", "table_full")], sum(|stats| stats.untracked + stats.pairs_full) + watch.given_up);
    lost.count(&[("cause", "entry_busy")], sum(|stats| stats.raced + stats.pairs_failed));
}

fn add_actions(all: &mut Exposition, actions: &ActionReport) {
    all.family("rtscope_reports_suppressed", Kind::Counter, "Detections that were not reported one by one.")
        .count(&[], actions.reports_suppressed);
    let Some(command) = &actions.command else { return };
    let mut runs =
        all.family("rtscope_commands", Kind::Counter, "Detections, by what became of the command.");
    for (outcome, count) in [
        ("begun", command.begun),
        ("not_started", command.not_started),
        ("suppressed_rate", command.suppressed_rate),
        ("suppressed_busy", command.suppressed_busy),
        ("suppressed_own", command.suppressed_own),
    ] {
        runs.count(&[("outcome", outcome)], count);
    }
    all.family("rtscope_commands_failed", Kind::Counter, "Commands that ended with an error.")
        .count(&[], command.failed);
}
