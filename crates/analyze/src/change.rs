// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Has a distribution of latencies changed, in which quantiles, and for better or worse?
//!
//! Windows of counts are compared with those before: a chi-squared test of two samples over ranges of a quarter of a power of two. Latencies of
//! real disks come in bursts, so windows that nothing has changed differ by more than chance among independent values would let them, and a plain
//! chi-squared test would raise alarms all day. How much more is measured: by how much the windows of the baseline differ among each other. The
//! quotient of the two, each per degree of freedom, has an F distribution when nothing has changed, however bursty the values are (the estimate of
//! the dispersion by Pearson's statistic: McCullagh and Nelder, Generalized Linear Models, 4.5).

use crate::histogram::bucket_range;
use crate::keyed::SparseHistogram;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor};
use std::collections::{BTreeMap, VecDeque};

/// Ranges of each power of two.
const PARTS: u64 = 4;
/// A range is joined with its neighbour until a window has at least this many in it, were nothing changed.
const LEAST_EXPECTED: f64 = 5.0;
/// Windows with fewer values say nothing.
const LEAST_VALUES: u64 = 20;
/// Quantiles whose movement is told, in thousandths.
const QUANTILES: [u32; 5] = [100, 500, 900, 990, 999];
/// Values beyond a quantile, in the window and in the baseline, for it to be told.
const LEAST_BEYOND: f64 = 5.0;
/// A quantile has moved when it is this many standard deviations off.
const MOVED: f64 = 3.0;

/// A quantile before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QuantileMove {
    /// In thousandths: 990 is the 99th percentile.
    pub permille: u32,
    /// In the baseline: upper end of its range, at most 3.2 % too large.
    pub before_ns: u64,
    /// In the window.
    pub after_ns: u64,
    /// By how many standard deviations the part of values above the old one is off; more are above: positive.
    pub deviations: f64,
}

impl QuantileMove {
    /// Whether that is more than chance.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.deviations.abs() > MOVED
    }
}

/// Which way it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Quantiles that moved are smaller now.
    Better,
    /// Quantiles that moved are larger now.
    Worse,
    /// Some are smaller and some larger.
    Mixed,
    /// None of them moved by itself: the shape is another.
    Shape,
}

/// The distribution is another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// How probable a difference like this is when nothing has changed.
    pub p_value: f64,
    /// Pearson's statistic of window against baseline.
    pub chi_squared: f64,
    /// Its degrees of freedom: ranges less one.
    pub freedom: u64,
    /// By how much the baseline's windows differ among each other; 1 where values are independent.
    pub dispersion: f64,
    /// Values of the baseline.
    pub before: u64,
    /// Values of the window.
    pub after: u64,
    /// Which way.
    pub direction: Direction,
    /// Quantiles before and after.
    pub quantiles: Vec<QuantileMove>,
}

/// What a window says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// There are not enough windows yet to compare with.
    Learning,
    /// Too few values, or all in one range.
    TooFew,
    /// No more than chance.
    Same {
        /// How probable a difference like this is when nothing has changed.
        p_value: f64,
    },
    /// It is another distribution. What comes now is compared with windows from this one on.
    Changed(Box<Change>),
}

/// Compares each window with those before.
#[derive(Clone, Debug)]
pub struct ChangeDetector {
    baseline: VecDeque<SparseHistogram>,
    windows: usize,
    level: f64,
}

impl ChangeDetector {
    /// `windows`: of the baseline, at least 3. `level`: the part of windows without a change that may raise an alarm.
    #[must_use]
    pub fn new(windows: usize, level: f64) -> ChangeDetector {
        ChangeDetector { baseline: VecDeque::new(), windows: windows.max(3), level }
    }

    /// Judges the next window.
    pub fn judge(&mut self, window: &SparseHistogram) -> Verdict {
        if window.count() < LEAST_VALUES {
            return Verdict::TooFew;
        }
        if self.baseline.len() < self.windows {
            self.baseline.push_back(window.clone());
            return Verdict::Learning;
        }
        let Some(comparison) = Comparison::of(&self.baseline, window) else {
            self.slide(window);
            return Verdict::TooFew;
        };
        if comparison.p_value >= self.level {
            self.slide(window);
            return Verdict::Same { p_value: comparison.p_value };
        }
        let change = comparison.change(&self.baseline, window);
        self.baseline.clear();
        self.baseline.push_back(window.clone());
        Verdict::Changed(Box::new(change))
    }

    /// Slow drifts are followed, and are no change.
    fn slide(&mut self, window: &SparseHistogram) {
        self.baseline.pop_front();
        self.baseline.push_back(window.clone());
    }
}

/// Counts by range.
type Binned = BTreeMap<u64, f64>;

fn binned(histogram: &SparseHistogram) -> Binned {
    let mut binned = Binned::new();
    for (bucket, counted) in histogram.buckets() {
        let value = bucket_range(usize::from(bucket)).0.max(1);
        let octave = u64::from(value.ilog2());
        let part = ((value << 6 >> octave) - 64) * PARTS / 64;
        *binned.entry(octave * PARTS + part).or_default() += counted.count as f64;
    }
    binned
}

/// Where ranges end when those with little in them are joined: `expected` of all, by range.
fn joined(expected: &Binned) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut sum = 0.0;
    for (range, part) in expected {
        sum += part;
        if sum >= LEAST_EXPECTED {
            ends.push(*range);
            sum = 0.0;
        }
    }
    // What is left over at the end belongs to the last one.
    ends.pop();
    ends
}

fn in_joined(binned: &Binned, ends: &[u64]) -> Vec<f64> {
    let mut counts = vec![0.0; ends.len() + 1];
    for (range, count) in binned {
        counts[ends.partition_point(|end| end < range)] += count;
    }
    counts
}

/// Pearson's statistic of some samples that should be of one distribution.
fn heterogeneity(samples: &[Vec<f64>]) -> f64 {
    let ranges = samples.first().map_or(0, Vec::len);
    let all: f64 = samples.iter().flatten().sum();
    let of_range: Vec<f64> = (0..ranges).map(|at| samples.iter().map(|sample| sample[at]).sum()).collect();
    let of_sample = |sample: &Vec<f64>| sample.iter().sum::<f64>();
    let term =
        |count: f64, expected: f64| if expected > 0.0 { (count - expected).powi(2) / expected } else { 0.0 };
    let rows = samples.iter().flat_map(|sample| {
        let total = of_sample(sample);
        sample.iter().zip(&of_range).map(move |(count, of_range)| term(*count, total * of_range / all))
    });
    rows.sum()
}

struct Comparison {
    chi_squared: f64,
    freedom: usize,
    dispersion: f64,
    p_value: f64,
}

impl Comparison {
    /// `None`: there is only one range.
    fn of(baseline: &VecDeque<SparseHistogram>, window: &SparseHistogram) -> Option<Comparison> {
        let before: Vec<Binned> = baseline.iter().map(binned).collect();
        let after = binned(window);
        let mut pooled = after.clone();
        for (range, count) in before.iter().flatten() {
            *pooled.entry(*range).or_default() += count;
        }
        let all: f64 = pooled.values().sum();
        // Of the smallest of all windows, so that the baseline's differences are known as well as the window's.
        let sizes = before.iter().chain([&after]).map(|binned| binned.values().sum::<f64>());
        let part = sizes.fold(f64::INFINITY, f64::min) / all;
        pooled.values_mut().for_each(|count| *count *= part);
        let ends = joined(&pooled);
        if ends.is_empty() {
            return None;
        }
        let freedom = ends.len();
        let before: Vec<Vec<f64>> = before.iter().map(|binned| in_joined(binned, &ends)).collect();
        let sum: Vec<f64> = (0..=freedom).map(|at| before.iter().map(|sample| sample[at]).sum()).collect();
        let chi_squared = heterogeneity(&[sum, in_joined(&after, &ends)]);
        let freedom_before = freedom * (before.len() - 1);
        let dispersion = heterogeneity(&before) / freedom_before as f64;
        let quotient = chi_squared / freedom as f64 / dispersion.max(f64::MIN_POSITIVE);
        let p_value = match FisherSnedecor::new(freedom as f64, freedom_before as f64) {
            Ok(distribution) if quotient.is_finite() => distribution.sf(quotient),
            // Windows that are all the same, and one that is not.
            _ => f64::from(u8::from(chi_squared <= 0.0)),
        };
        Some(Comparison { chi_squared, freedom, dispersion, p_value })
    }

    fn change(&self, baseline: &VecDeque<SparseHistogram>, window: &SparseHistogram) -> Change {
        let mut before = SparseHistogram::default();
        baseline.iter().for_each(|one| before.merge(one));
        let quantiles: Vec<QuantileMove> =
            QUANTILES.iter().filter_map(|permille| self.moved(&before, window, *permille)).collect();
        let moved = || quantiles.iter().filter(|quantile| quantile.has_moved());
        let direction = match (moved().any(|q| q.deviations > 0.0), moved().any(|q| q.deviations < 0.0)) {
            (true, false) => Direction::Worse,
            (false, true) => Direction::Better,
            (true, true) => Direction::Mixed,
            (false, false) => Direction::Shape,
        };
        Change {
            p_value: self.p_value,
            chi_squared: self.chi_squared,
            freedom: self.freedom as u64,
            dispersion: self.dispersion,
            before: before.count(),
            after: window.count(),
            direction,
            quantiles,
        }
    }

    /// How many of the window are above the baseline's quantile, against how many should be.
    fn moved(
        &self,
        before: &SparseHistogram,
        after: &SparseHistogram,
        permille: u32,
    ) -> Option<QuantileMove> {
        let place = quantile(before, permille)?;
        let (all_before, all_after) = (before.count() as f64, after.count() as f64);
        let above = |histogram: &SparseHistogram| {
            histogram.buckets().filter(|(at, _)| *at > place).map(|(_, counted)| counted.count).sum::<u64>()
                as f64
        };
        let part = above(before) / all_before;
        let expected = all_after * part;
        if above(before) < LEAST_BEYOND || expected.max(above(after)) < LEAST_BEYOND {
            return None;
        }
        let chance = expected * (1.0 - part) * (1.0 + all_after / all_before) * self.dispersion.max(1.0);
        let end = |place: u16| bucket_range(usize::from(place)).1;
        Some(QuantileMove {
            permille,
            before_ns: end(place),
            after_ns: end(quantile(after, permille)?),
            deviations: (above(after) - expected) / chance.sqrt(),
        })
    }
}

/// The bucket in which this part of all is reached.
fn quantile(histogram: &SparseHistogram, permille: u32) -> Option<u16> {
    let wanted = histogram.count() as f64 * f64::from(permille) / 1000.0;
    let mut seen = 0.0;
    histogram.buckets().find_map(|(bucket, counted)| {
        seen += counted.count as f64;
        (seen >= wanted && seen > 0.0).then_some(bucket)
    })
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
