// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table: what has been counted since the start, or since somebody began anew, by key.

use rtscope_analyze::histogram::Statistics;
use rtscope_analyze::keyed::{Key, KeyedHistograms, SparseHistogram};
use rtscope_session::hist::{CountedKeys, HistOrder};
use std::cmp::Reverse;

/// A shorter time says nothing of a rate: that between the last two readings may be one.
const WINDOW_LEAST_NS: u64 = 40_000_000;

/// One key, or all of them.
#[derive(Clone, Debug)]
pub(super) struct TopRow {
    /// `None`: all keys together.
    pub key: Option<Key>,
    pub name: String,
    pub histogram: SparseHistogram,
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
    /// How many came each second, from a reading before to the newest one; `None`: it is too early to say.
    pub per_second: Option<f64>,
    /// How many were reported as late by the newest reading, so that they are not more than what it has counted.
    pub late: u64,
}

impl TopRow {
    /// Percentiles and powers of two: of the rows that are drawn only, since there may be thousands.
    pub fn figures(&self) -> Option<Statistics> {
        self.histogram.histogram().statistics()
    }
}

/// Two readings and a beginning.
#[derive(Debug, Default)]
pub(super) struct Readings {
    pub newest: CountedKeys,
    before: KeyedHistograms,
    before_ns: u64,
    before_own_ns: Option<u64>,
    begin: KeyedHistograms,
    begin_ns: u64,
}

impl Readings {
    pub fn add(&mut self, counted: CountedKeys) {
        let before = std::mem::replace(&mut self.newest, counted);
        if self.newest.at_ns.saturating_sub(before.at_ns) >= WINDOW_LEAST_NS {
            (self.before, self.before_ns) = (before.keys, before.at_ns);
            self.before_own_ns = before.own_ns;
        }
    }

    /// What has been counted by now is not shown any more.
    pub fn begin_anew(&mut self) {
        (self.begin, self.begin_ns) = (self.newest.keys.clone(), self.newest.at_ns);
    }

    /// The time that the rows are of.
    pub fn shown_ns(&self) -> u64 {
        self.newest.at_ns.saturating_sub(self.begin_ns)
    }

    /// CPU time of rtscope itself between the last two readings, as a part of that time.
    pub fn own_share(&self) -> Option<f64> {
        let window_ns = self.newest.at_ns.saturating_sub(self.before_ns);
        let own_ns = self.newest.own_ns?.checked_sub(self.before_own_ns?)?;
        (window_ns >= WINDOW_LEAST_NS).then(|| own_ns as f64 / window_ns as f64)
    }

    /// The row of all first, then those of the keys in this order. Nothing where nothing was counted.
    pub fn rows(&self, order: HistOrder) -> Vec<TopRow> {
        let since = self.newest.keys.since(&self.begin);
        let total = since.total();
        let window_ns = self.newest.at_ns.saturating_sub(self.before_ns);
        let row = |key: Option<Key>, name: &str, histogram: SparseHistogram, lately: u64| {
            let is_long = window_ns >= WINDOW_LEAST_NS;
            let per_second = is_long.then(|| lately as f64 / (window_ns as f64 / 1e9));
            let (count, sum_ns, max_ns) = (histogram.count(), histogram.sum_ns(), histogram.max_ns());
            TopRow { key, name: name.to_owned(), histogram, count, sum_ns, max_ns, per_second, late: 0 }
        };
        let count_in =
            |keys: &KeyedHistograms, key: &Key| keys.keys.get(key).map_or(0, SparseHistogram::count);
        let mut all_lately = 0;
        // There may be thousands, so nothing of them is copied that can be moved.
        let mut rows: Vec<TopRow> = since
            .keys
            .into_iter()
            .map(|(key, histogram)| {
                let name = self.newest.names.get(&key).map_or("", String::as_str);
                let before = count_in(&self.before, &key);
                let lately = count_in(&self.newest.keys, &key).saturating_sub(before);
                all_lately += lately;
                row(Some(key), name, histogram, lately)
            })
            .collect();
        sort(&mut rows, order);
        if !rows.is_empty() {
            rows.insert(0, row(None, "all", total, all_lately));
        }
        rows
    }
}

/// Rows with the same figure stay in the order of their keys, so that they do not swap places all the time.
pub(super) fn sort(rows: &mut [TopRow], order: HistOrder) {
    rows.sort_by_key(|row| {
        let figure = match order {
            HistOrder::Total => row.sum_ns,
            HistOrder::Longest => row.max_ns,
            HistOrder::Number => row.count,
        };
        (row.key.is_some(), Reverse(figure), row.key)
    });
}
