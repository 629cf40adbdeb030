// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From readings of the kernel's counts to what is shown of them.

use super::names::KeyNames;
use super::{HistKey, HistOrder, HistSettings};
use crate::counting::{CountLosses, Reading};
use rtscope_analyze::heat::HeatMap;
use rtscope_analyze::histogram::{Row, Statistics};
use rtscope_analyze::keyed::{KeyedHistograms, SparseHistogram};
use rtscope_event::{Comm, Tracker};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a report is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// What came since the report before.
    Interval,
    /// All since the start.
    Total,
}

/// What was counted.
#[derive(Clone, Debug, Serialize)]
pub struct HistReport {
    /// Of an interval, or of all.
    pub kind: ReportKind,
    /// What was followed.
    pub tracker: Tracker,
    /// Of `pair`: the two tracepoints and their key, as `A -> B by KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<String>,
    /// By what it was counted apart.
    pub by: Option<HistKey>,
    /// Whose, in words.
    pub target: String,
    /// When it ends, since the start.
    pub at_ns: u64,
    /// The time that it is of.
    pub window_ns: u64,
    /// How many operations ended; those of a report of all include the ones without a key, which are in no figure.
    pub count: u64,
    /// All of them; `None`: there was none. The shortest is known to 3.2 %, and so is the longest of an interval.
    pub all: Option<Statistics>,
    /// All of them in the kernel's buckets, at most 3.2 % wide, without the empty ones.
    pub buckets: Vec<Row>,
    /// By key, in the order that was asked for; the largest sum first if none was.
    pub keys: Vec<KeyReport>,
    /// What was not counted, since the start.
    pub losses: CountLosses,
    /// Over time; of a report of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<HeatMap>,
}

impl HistReport {
    /// What was followed, in words.
    #[must_use]
    pub fn what(&self) -> String {
        what(self.tracker, self.between.as_deref())
    }
}

fn what(tracker: Tracker, between: Option<&str>) -> String {
    between.map_or(tracker.name().to_owned(), |between| format!("'{between}'"))
}

/// One key's.
#[derive(Clone, Debug, Serialize)]
pub struct KeyReport {
    /// Who or what, in words.
    pub name: String,
    /// Its number: a tid, an interrupt, a `dev_t`.
    pub id: u32,
    /// The sum of its times.
    pub sum_ns: u64,
    /// The figures.
    pub figures: Statistics,
}

/// Makes reports of readings.
#[derive(Debug)]
pub(super) struct Reporter {
    tracker: Tracker,
    by: Option<HistKey>,
    order: HistOrder,
    target: String,
    between: Option<String>,
    names: KeyNames,
    heat: HeatMap,
    before: KeyedHistograms,
    before_ns: u64,
}

impl Reporter {
    pub(super) fn new(settings: &HistSettings, names: KeyNames) -> Reporter {
        Reporter {
            tracker: settings.tracker,
            by: settings.by,
            order: settings.order,
            target: settings.target_words(),
            between: settings.between.as_ref().map(ToString::to_string),
            names,
            heat: HeatMap::new(settings.interval_ns.unwrap_or(super::SLICE_NS)),
            before: KeyedHistograms::default(),
            before_ns: 0,
        }
    }

    pub(super) fn words(&self) -> String {
        format!("{} of {}", what(self.tracker, self.between.as_deref()), self.target)
    }

    /// What came since the reading before.
    pub(super) fn interval(&mut self, mut reading: Reading) -> HistReport {
        let now = reading.cells.instances.pop().unwrap_or_default();
        let since = now.since(&self.before);
        self.heat.add(reading.at_ns, &since.total());
        let window_ns = reading.at_ns.saturating_sub(self.before_ns);
        (self.before, self.before_ns) = (now, reading.at_ns);
        self.report(ReportKind::Interval, &since, window_ns, &reading)
    }

    /// All since the start. Nothing is counted any more.
    pub(super) fn total(&mut self, mut reading: Reading) -> HistReport {
        let now = reading.cells.instances.pop().unwrap_or_default();
        self.heat.add(reading.at_ns, &now.since(&self.before).total());
        let mut report = self.report(ReportKind::Total, &now, reading.at_ns, &reading);
        report.over_time = Some(self.heat.clone());
        report.count += reading.losses.in_no_figure();
        report
    }

    fn report(
        &mut self,
        kind: ReportKind,
        counted: &KeyedHistograms,
        window_ns: u64,
        reading: &Reading,
    ) -> HistReport {
        let total = counted.total();
        let tasks: BTreeMap<u32, Comm> =
            reading.cells.names.iter().map(|((_, id), comm)| (*id, *comm)).collect();
        let mut keys = Vec::new();
        if let Some(by) = self.by {
            for (key, histogram) in &counted.keys {
                let name = self.names.name((self.tracker, by), *key, &tasks);
                keys.extend(key_report(name, key.id, histogram));
            }
            self.order.sort(&mut keys);
        }
        let histogram = total.histogram();
        HistReport {
            kind,
            tracker: self.tracker,
            between: self.between.clone(),
            by: self.by,
            target: self.target.clone(),
            at_ns: reading.at_ns,
            window_ns,
            count: total.count(),
            all: histogram.statistics(),
            buckets: histogram.buckets(),
            keys,
            losses: reading.losses,
            over_time: None,
        }
    }
}

fn key_report(name: String, id: u32, histogram: &SparseHistogram) -> Option<KeyReport> {
    let figures = histogram.histogram().statistics()?;
    Some(KeyReport { name, id, sum_ns: histogram.sum_ns(), figures })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_analyze::histogram::bucket_of;
    use rtscope_analyze::keyed::{BucketCount, Key};

    fn key(id: u32, count: u64, each_ns: u64) -> KeyReport {
        let mut histograms = KeyedHistograms::default();
        let bucket = u16::try_from(bucket_of(each_ns)).expect("a small number");
        let counted = BucketCount { count, sum_ns: count * each_ns, max_ns: each_ns };
        histograms.add(Key { id, kind: 0 }, bucket, counted);
        let histogram = histograms.keys.values().next().expect("the key");
        key_report(String::new(), id, histogram).expect("figures")
    }

    #[test]
    fn each_order_has_its_own_first_key() {
        // In all 6000, 4096 and 65 536 ns; 4 and 5 are equal.
        let keys = [key(1, 6000, 1), key(2, 1, 4096), key(3, 64, 1024), key(5, 1, 2), key(4, 1, 2)];
        let sorted = |order: HistOrder| {
            let mut keys = keys.clone();
            order.sort(&mut keys);
            keys.iter().map(|key| key.id).collect::<Vec<_>>()
        };
        assert_eq!(sorted(HistOrder::Total), [3, 1, 2, 4, 5]);
        assert_eq!(sorted(HistOrder::Longest), [2, 3, 4, 5, 1]);
        assert_eq!(sorted(HistOrder::Number), [1, 3, 2, 4, 5]);
    }
}
