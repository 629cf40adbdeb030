// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is collected for the end of a watch, and the report of it.

use super::listener::Counts;
use rtscope_analyze::chain::Counters;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::histogram::Histogram;
use rtscope_analyze::own::{OwnCost, OwnPart};
use rtscope_analyze::summary::{self, HiddenThread, NotObservable, Report};
use rtscope_event::{Comm, End, LateResponse, Loss, LossCause, Tid};
use rtscope_flight::TrackerStats;
use std::collections::BTreeMap;

/// Threads that are listed as not observable.
const UNOBSERVED_MAX: usize = 1000;

/// What is collected for the end.
#[derive(Debug, Default)]
pub struct Summary {
    groups: summary::Summary,
    /// What rtscope itself cost the target.
    pub own: OwnCost,
    /// Responses that could not be observed, by thread and name.
    unobserved: BTreeMap<(Tid, Comm), u64>,
    /// Of further threads.
    unobserved_more: u64,
    /// How long they seemed to be: the tracker has counted these, too.
    unobserved_times: Histogram,
    /// The longest of the others that were late and have ended.
    observed_max_ns: u64,
    /// Of all of these, those without a snapshot of their own.
    unobserved_suppressed: u64,
    /// What had not ended at the end, beyond the limit.
    pub pending: u64,
    /// The longest of these, by then.
    pub pending_max_ns: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Of them, those that could not be saved.
    pub failed_snapshots: u64,
    /// Gaps in the sequence of switches of explained responses.
    gaps: u64,
}

impl Summary {
    /// A late response that no snapshot explains.
    pub fn unexplained(&mut self, late: &LateResponse) {
        self.groups.add_late(late);
        self.observed(late.end, late.response_ns());
        self.own.add_unexplained();
    }

    /// One that was explained, and rtscope's own part in it.
    pub fn explained(&mut self, explanation: &Explanation, own: OwnPart) {
        self.groups.add_explanation(explanation);
        self.observed(explanation.end, explanation.response_ns);
        self.own.add(own);
    }

    /// What has not ended is not in the distribution.
    fn observed(&mut self, end: End, response_ns: u64) {
        if end != End::Pending {
            self.observed_max_ns = self.observed_max_ns.max(response_ns);
        }
    }

    /// One whose end the host hid.
    pub fn unobserved(&mut self, late: &LateResponse) {
        if late.end != End::Pending {
            self.unobserved_times.record(late.response_ns());
        }
        self.unobserved_suppressed += u64::from(late.snapshot.is_none());
        let key = (late.tid, late.comm);
        if self.unobserved.len() < UNOBSERVED_MAX || self.unobserved.contains_key(&key) {
            *self.unobserved.entry(key).or_default() += 1;
        } else {
            self.unobserved_more += 1;
        }
    }

    /// How many could not be observed.
    pub fn unobserved_responses(&self) -> u64 {
        self.unobserved.values().sum::<u64>() + self.unobserved_more
    }

    fn not_observable(&self) -> NotObservable {
        let thread = |((tid, comm), responses): (&(Tid, Comm), &u64)| HiddenThread {
            tid: *tid,
            comm: *comm,
            responses: *responses,
        };
        let mut threads: Vec<HiddenThread> = self.unobserved.iter().map(thread).collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.responses));
        NotObservable { responses: self.unobserved_responses(), threads }
    }

    /// What the explanations of a snapshot say to be incomplete: the summary says it, too.
    pub fn gaps_of<'e>(&mut self, explanations: impl Iterator<Item = &'e Explanation>) {
        let gaps = |explanation: &Explanation| {
            let gaps = explanation.losses.iter().filter(|loss| loss.cause == LossCause::Gap);
            gaps.filter_map(|loss| loss.count).sum()
        };
        self.gaps = self.gaps.saturating_add(explanations.map(gaps).max().unwrap_or(0));
    }

    /// The report.
    pub fn report(&self, stats: &TrackerStats, counts: &Counts) -> Report {
        let histogram = Histogram::new(
            &stats.histogram,
            stats.sum_ns,
            stats.min_ns.unwrap_or(0),
            stats.max_ns.unwrap_or(0),
        );
        let histogram = match self.unobserved_times.count() {
            0 => histogram,
            // What was not late takes the limit at most.
            _ => histogram.without(&self.unobserved_times, self.observed_max_ns.max(counts.threshold_ns)),
        };
        let loss = |cause, count| Loss { cpu: None, cause, count };
        let (threads, other_threads) = self.groups.threads(&stats.by_thread);
        Report {
            tracker: counts.tracker,
            instance: counts.instance,
            task: counts.task.clone(),
            elapsed_ns: counts.elapsed_ns,
            threshold_ns: counts.threshold_ns,
            begin: counts.begin.clone(),
            counters: counters(stats),
            pending: self.pending,
            pending_max_ns: (self.pending > 0).then_some(self.pending_max_ns),
            untracked: stats.untracked + stats.raced,
            unended: stats.unended,
            snapshots: self.snapshots,
            snapshots_failed: self.failed_snapshots,
            suppressed: (stats.suppressed_rate + stats.suppressed_busy)
                .saturating_sub(self.unobserved_suppressed),
            statistics: histogram.statistics(),
            groups: self.groups.groups(),
            threads,
            other_threads,
            own: self.own,
            not_observable: self.not_observable(),
            losses: vec![
                loss(LossCause::RecursionMiss, counts.misses),
                loss(LossCause::Gap, Some(self.gaps)),
                loss(LossCause::ReportRingFull, Some(stats.late_lost + counts.unreadable_reports)),
            ],
            between: None,
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
        abandoned: stats.abandoned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_analyze::histogram::{BUCKETS, bucket_of};
    use rtscope_event::{Chain, CpuId, MonotonicNs, Origin, OriginKind, Pid, Priority, Tracker};

    const THRESHOLD_NS: u64 = 500_000;

    fn late(response_ns: u64) -> LateResponse {
        let origin = Origin { kind: OriginKind::Irq, id: 1, cpu: CpuId(0), time_ns: MonotonicNs(100) };
        let chain = Chain { origin, steps: Vec::new(), merged: 0, others: Vec::new(), busy: false };
        LateResponse {
            tracker: Tracker::Response,
            instance: 0,
            sequence: 1,
            cpu: CpuId(0),
            end_ns: MonotonicNs(100 + response_ns),
            end: End::Blocked,
            threshold_ns: THRESHOLD_NS,
            tid: Tid(7),
            pid: Pid(7),
            prio: Priority(20),
            comm: Comm::from_bytes(b"loop"),
            snapshot: None,
            chain,
            events: None,
            call: None,
            lock: None,
            block: None,
            section: None,
            stacks: None,
        }
    }

    /// Smallest, largest and number of what the tracker counted, without those that could not be observed.
    fn figures(counted: &[u64], observed: &[u64], unobserved: &[u64]) -> (u64, u64, u64) {
        let mut all = Histogram::default();
        counted.iter().for_each(|value| all.record(*value));
        let mut stats = TrackerStats { histogram: vec![0; BUCKETS], ..TrackerStats::default() };
        for row in all.buckets() {
            stats.histogram[bucket_of(row.from_ns)] = row.count;
        }
        stats.sum_ns = counted.iter().sum();
        (stats.min_ns, stats.max_ns) = (counted.iter().min().copied(), counted.iter().max().copied());
        let mut summary = Summary::default();
        observed.iter().for_each(|value| summary.unexplained(&late(*value)));
        unobserved.iter().for_each(|value| summary.unobserved(&late(*value)));
        let counts = Counts { threshold_ns: THRESHOLD_NS, ..Counts::default() };
        let statistics = summary.report(&stats, &counts).statistics.expect("something was counted");
        (statistics.min_ns, statistics.max_ns, statistics.count)
    }

    #[test]
    fn what_could_not_be_observed_is_in_no_figure() {
        const HIDDEN: u64 = 1_000_000_000;
        let counted = [9000, 499_999, 700_000, HIDDEN, HIDDEN + 1];
        assert_eq!(figures(&counted, &[700_000, HIDDEN, HIDDEN + 1], &[]), (9000, HIDDEN + 1, 5));
        assert_eq!(figures(&counted, &[700_000], &[HIDDEN, HIDDEN + 1]), (9000, 700_000, 3));
        // Nothing else was late: none took more than the limit.
        let in_time = [9000, 499_999, HIDDEN];
        assert_eq!(figures(&in_time, &[], &[HIDDEN]), (9000, THRESHOLD_NS, 2));
    }
}
