// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From samples to the table's figures.

use rtscope_measure::npt::{Gaps, PERCENTILES, Statistics};
use serde_json::{Value, json};

/// How many were longer: a tenth of a millisecond, the bound of the ARTiS paper, what is late for most, and what is lost.
pub const LIMITS_NS: [u64; 4] = [100_000, 300_000, 1_000_000, 10_000_000];

/// Latencies of one kind in one row.
#[derive(Clone, Debug)]
pub struct Latency {
    pub statistics: Statistics,
    /// As in LIMITS_NS.
    pub above: [u64; LIMITS_NS.len()],
}

impl Latency {
    /// `None` without a sample.
    pub fn of(mut samples: Vec<u64>) -> Option<Latency> {
        samples.sort_unstable();
        let gaps = Gaps {
            count: samples.len() as u64,
            min: samples.first().copied()?,
            max: samples.last().copied()?,
            sum: samples.iter().sum(),
            squares: samples.iter().map(|ns| u128::from(*ns) * u128::from(*ns)).sum(),
            // Each length is its own bucket, so that percentiles are exact.
            buckets: samples
                .chunk_by(|one, other| one == other)
                .map(|same| (same[0], same[0], same.len() as u64))
                .collect(),
        };
        let above =
            LIMITS_NS.map(|limit| (samples.len() - samples.partition_point(|ns| *ns <= limit)) as u64);
        Some(Latency { statistics: Statistics::of(&gaps, 1.0)?, above })
    }

    /// For `--json`. A percentile that needs more samples is null.
    pub fn json(&self) -> Value {
        let statistics = &self.statistics;
        let percentiles = PERCENTILES.iter().zip(statistics.percentiles_ns);
        let percentiles: Vec<Value> =
            percentiles.map(|(percent, ns)| json!({ "percent": percent, "ns": ns })).collect();
        let above: Vec<Value> = LIMITS_NS
            .iter()
            .zip(self.above)
            .map(|(limit, count)| json!({ "above_ns": limit, "count": count }))
            .collect();
        let histogram: Vec<Value> =
            statistics.rows().iter().map(|(from, count)| json!([from, count])).collect();
        json!({
            "count": statistics.count,
            "min_ns": statistics.min_ns,
            "mean_ns": statistics.mean_ns,
            "max_ns": statistics.max_ns,
            "percentiles": percentiles,
            "above": above,
            "histogram": histogram,
        })
    }
}

/// What the loads did in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub compute_per_s: f64,
    pub disk_mb_per_s: f64,
    pub echoes_per_s: f64,
    pub ioctls_per_s: f64,
}

impl Work {
    /// For `--json`; `stock`: the same of the stock row.
    pub fn json(&self, stock: Option<&Work>) -> Value {
        json!({
            "compute_loops_per_s": self.compute_per_s,
            "compute_of_stock": self.of_stock(stock),
            "disk_mb_per_s": self.disk_mb_per_s,
            "echoes_per_s": self.echoes_per_s,
            "ioctls_per_s": self.ioctls_per_s,
        })
    }

    /// Compute loops, as a part of those of the stock row.
    pub fn of_stock(&self, stock: Option<&Work>) -> Option<f64> {
        stock.filter(|stock| stock.compute_per_s > 0.0).map(|stock| self.compute_per_s / stock.compute_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_limit_is_counted_and_the_limit_itself_is_not() {
        let mut samples = vec![1_000_001, 1_000_000, 5, 99_999_999];
        samples.extend([50_000; 996]);
        let latency = Latency::of(samples).expect("samples");
        assert_eq!(latency.above, [3, 3, 2, 1]);
        assert_eq!((latency.statistics.min_ns, latency.statistics.max_ns), (5.0, 99_999_999.0));
        // 50, 90, 99, 99.9: the last one that a thousand samples give.
        let known = latency.statistics.percentiles_ns;
        assert_eq!(known[..4], [Some(50_000.0), Some(50_000.0), Some(50_000.0), Some(1_000_001.0)]);
        assert_eq!(known[4..], [None; 3]);
        assert!(Latency::of(Vec::new()).is_none());
    }

    #[test]
    fn work_is_compared_with_that_of_the_stock_row() {
        let work = |compute_per_s| Work { compute_per_s, ..Work::default() };
        assert_eq!(work(50.0).of_stock(Some(&work(100.0))), Some(0.5));
        assert_eq!(work(50.0).of_stock(None), None);
        assert_eq!(work(50.0).of_stock(Some(&work(0.0))), None);
    }
}
