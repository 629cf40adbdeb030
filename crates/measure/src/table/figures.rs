// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From samples to the table's figures.

use crate::npt::gap_loop::Gaps;
use crate::npt::{PERCENTILES, Statistics, with_percents};
use serde::{Serialize, Serializer};

/// How many were longer: a tenth of a millisecond, the bound of the ARTiS paper, what is late for most, and what is lost.
pub const LIMITS_NS: [u64; 4] = [100_000, 300_000, 1_000_000, 10_000_000];

/// Latencies of one kind in one row.
#[derive(Clone, Debug)]
pub struct Latency {
    /// As of the gaps of a loop.
    pub statistics: Statistics,
    /// How many were longer than each of LIMITS_NS.
    pub above: [u64; LIMITS_NS.len()],
}

impl Latency {
    /// `None` without a sample.
    pub(super) fn of(mut samples: Vec<u64>) -> Option<Latency> {
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
}

/// How many samples are longer than a limit.
#[derive(Serialize)]
struct Above {
    above_ns: u64,
    count: u64,
}

/// A latency as it is serialised. A percentile that needs more samples is null.
#[derive(Serialize)]
struct SerialLatency {
    count: u64,
    min_ns: f64,
    mean_ns: f64,
    max_ns: f64,
    #[serde(serialize_with = "with_percents")]
    percentiles: [Option<f64>; PERCENTILES.len()],
    above: Vec<Above>,
    histogram: Vec<(f64, u64)>,
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let statistics = &self.statistics;
        let above = LIMITS_NS.into_iter().zip(self.above);
        let latency = SerialLatency {
            count: statistics.count,
            min_ns: statistics.min_ns,
            mean_ns: statistics.mean_ns,
            max_ns: statistics.max_ns,
            percentiles: statistics.percentiles_ns,
            above: above.map(|(above_ns, count)| Above { above_ns, count }).collect(),
            histogram: statistics.rows(),
        };
        latency.serialize(serializer)
    }
}

/// What the loads did in a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Compute loops.
    #[serde(rename = "compute_loops_per_s")]
    pub compute_per_s: f64,
    /// Compute loops, as a part of those of the stock row; `None`: nothing is there to compare with.
    pub compute_of_stock: Option<f64>,
    /// Written and read.
    pub disk_mb_per_s: f64,
    /// Replies of the network.
    pub echoes_per_s: f64,
    /// Calls that contend for a lock.
    pub ioctls_per_s: f64,
}

impl Work {
    /// Compute loops, as a part of those of the stock row.
    pub(super) fn of_stock(&self, stock: Option<&Work>) -> Option<f64> {
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
