// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From ticks to figures: mean, deviation, percentiles, histogram.

use super::gap_loop::Gaps;
use serde::{Serialize, Serializer};

/// What people ask for. A percentile that needs more gaps than there are is not known.
pub const PERCENTILES: [f64; 7] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

/// From, to (ns), and how many.
pub type Bucket = (f64, f64, u64);

/// Gaps of one kind of window, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// How many there are.
    #[serde(rename = "turns")]
    pub count: u64,
    /// The shortest.
    pub min_ns: f64,
    /// The mean.
    pub mean_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// All of them.
    pub sum_ns: f64,
    /// Of the sample, in ns²; `None` with fewer than two gaps.
    #[serde(rename = "variance_ns2")]
    pub variance: Option<f64>,
    /// Its root.
    pub standard_deviation_ns: Option<f64>,
    /// As in PERCENTILES.
    #[serde(rename = "percentiles", serialize_with = "with_percents")]
    pub percentiles_ns: [Option<f64>; PERCENTILES.len()],
    /// Ascending, none empty.
    #[serde(rename = "histogram")]
    pub buckets: Vec<Bucket>,
}

/// A percentile as it is serialised; one that needs more samples is null.
#[derive(Serialize)]
struct Percentile {
    percent: f64,
    ns: Option<f64>,
}

/// Percentiles with what they are percentiles of.
pub(crate) fn with_percents<S: Serializer>(
    percentiles_ns: &[Option<f64>; PERCENTILES.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let percentiles = PERCENTILES.iter().zip(percentiles_ns);
    let percentiles = percentiles.map(|(percent, ns)| Percentile { percent: *percent, ns: *ns });
    percentiles.collect::<Vec<Percentile>>().serialize(serializer)
}

impl Statistics {
    /// `None` without a gap.
    pub fn of(gaps: &Gaps, ns_per_tick: f64) -> Option<Statistics> {
        if gaps.count == 0 {
            return None;
        }
        let ns = |ticks: u64| ticks as f64 * ns_per_tick;
        let variance = variance(gaps).map(|ticks| ticks * ns_per_tick * ns_per_tick);
        Some(Statistics {
            count: gaps.count,
            min_ns: ns(gaps.min),
            mean_ns: gaps.sum as f64 / gaps.count as f64 * ns_per_tick,
            max_ns: ns(gaps.max),
            sum_ns: ns(gaps.sum),
            variance,
            standard_deviation_ns: variance.map(f64::sqrt),
            percentiles_ns: PERCENTILES.map(|percent| percentile(gaps, percent).map(ns)),
            buckets: gaps
                .buckets
                .iter()
                .map(|(first, last, count)| (ns(*first), ns(last.saturating_add(1)), *count))
                .collect(),
        })
    }

    /// How many gaps there are in each of 1, 2, 5, 10, 20, 50, ... ns and up, from the first to the last that is not empty.
    /// A bucket belongs where it begins.
    pub fn rows(&self) -> Vec<(f64, u64)> {
        let mut rows: Vec<(f64, u64)> = Vec::new();
        for (from, _, count) in &self.buckets {
            let step = step_below(*from);
            // Empty steps in between are shown: a hole in a histogram says something.
            while let Some((last, _)) = rows.last().copied().filter(|(last, _)| *last < step) {
                rows.push((step_above(last), 0));
            }
            match rows.last_mut() {
                Some(row) => row.1 += count,
                None => rows.push((step, *count)),
            }
        }
        rows
    }
}

/// The largest of 0, 1, 2, 5, 10, 20, ... that is not above.
fn step_below(ns: f64) -> f64 {
    let mut step = 0.0;
    while step_above(step) <= ns {
        step = step_above(step);
    }
    step
}

fn step_above(step: f64) -> f64 {
    if step < 1.0 {
        return 1.0;
    }
    let decade = 10_f64.powf((step * 1.001).log10().floor());
    // 1, 2, 5 and 10 times; the comparisons are in the middle between them.
    match step / decade {
        times if times < 1.5 => 2.0 * decade,
        times if times < 3.5 => 5.0 * decade,
        _ => 10.0 * decade,
    }
}

/// In ticks². Exact as far as 128 bits go, because the difference of two large numbers is all that matters here.
fn variance(gaps: &Gaps) -> Option<f64> {
    let count = u128::from(gaps.count);
    if count < 2 {
        return None;
    }
    let exact = count
        .checked_mul(gaps.squares)
        .and_then(|squares| squares.checked_sub(u128::from(gaps.sum).checked_mul(u128::from(gaps.sum))?));
    let pairs = gaps.count as f64 * (gaps.count - 1) as f64;
    Some(exact.map_or_else(
        || {
            let mean = gaps.sum as f64 / gaps.count as f64;
            (gaps.squares as f64 / gaps.count as f64 - mean * mean).max(0.0)
        },
        |exact| exact as f64 / pairs,
    ))
}

/// The least length that this many percent of the gaps do not exceed (nearest rank); the upper end of its bucket. `None`: so
/// few gaps lie above it that there may be none.
fn percentile(gaps: &Gaps, percent: f64) -> Option<u64> {
    let above = gaps.count as f64 * (100.0 - percent) / 100.0;
    // The subtraction is not exact: a million gaps are enough for 99.9999.
    if above < 1.0 - 1e-6 {
        return None;
    }
    let rank = gaps.count - above.round() as u64;
    let mut below = 0;
    let bucket = gaps.buckets.iter().find(|(_, _, count)| {
        below += count;
        below >= rank.max(1)
    });
    bucket.map(|(_, last, _)| (*last).min(gaps.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(lengths: &[u64]) -> Gaps {
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable();
        Gaps {
            count: lengths.len() as u64,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            sum: lengths.iter().sum(),
            squares: lengths.iter().map(|length| u128::from(*length) * u128::from(*length)).sum(),
            buckets: sorted
                .chunk_by(|a, b| a == b)
                .map(|same| (same[0], same[0], same.len() as u64))
                .collect(),
        }
    }

    #[test]
    fn figures_of_a_known_sample() {
        let statistics = Statistics::of(&gaps(&[2, 4, 4, 4, 5, 5, 7, 9]), 10.0).expect("a sample");
        assert_eq!((statistics.min_ns, statistics.mean_ns, statistics.max_ns), (20.0, 50.0, 90.0));
        assert_eq!(statistics.sum_ns, 400.0);
        // The sum of the squares of 3, 1, 1, 1, 0, 0, 2, 4 is 32; 32 / 7 in ticks².
        assert!((statistics.variance.expect("enough") - 3200.0 / 7.0).abs() < 1e-9);
        assert_eq!(statistics.percentiles_ns, [Some(40.0), None, None, None, None, None, None]);
        assert_eq!(statistics.rows(), [(20.0, 4), (50.0, 4)]);
        assert!(Statistics::of(&Gaps::default(), 1.0).is_none());
        assert_eq!(Statistics::of(&gaps(&[7]), 1.0).expect("a sample").variance, None);
    }

    #[test]
    fn percentiles_are_known_when_something_lies_above() {
        let thousand: Vec<u64> = (1..=1000).collect();
        let of = |percent| percentile(&gaps(&thousand), percent);
        assert_eq!([50.0, 90.0, 99.0, 99.9].map(of), [Some(500), Some(900), Some(990), Some(999)]);
        assert_eq!(of(99.99), None);
        let million =
            Gaps { buckets: vec![(5, 5, 999_999), (80, 89, 1)], count: 1_000_000, max: 85, ..gaps(&[5]) };
        assert_eq!(percentile(&million, 99.9999), Some(5));
    }

    #[test]
    fn a_small_deviation_of_large_numbers_is_not_lost() {
        let big = 1 << 50;
        let variance = variance(&gaps(&[big, big + 1, big, big + 1])).expect("enough");
        assert!((variance - 1.0 / 3.0).abs() < 1e-12, "{variance}");
    }

    #[test]
    fn rows_go_in_steps_with_the_empty_ones() {
        let statistics = Statistics::of(&gaps(&[0, 3, 3, 30]), 1.0).expect("a sample");
        assert_eq!(statistics.rows(), [(0.0, 1), (1.0, 0), (2.0, 2), (5.0, 0), (10.0, 0), (20.0, 1)]);
        let steps: Vec<f64> =
            std::iter::successors(Some(0.0), |step| Some(step_above(*step))).take(20).collect();
        assert_eq!(steps[1..8], [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!((steps[19] / 1e6 - 1.0).abs() < 1e-9, "{steps:?}");
    }
}
