// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tracker's histogram of response times says.
//!
//! The buckets are log-linear (`RTS_HIST_*` in the kernel's contract): values below 32 ns have their own; above, each
//! power of two has 32, so a bucket is at most 3.2 % wide. A percentile is only given when enough samples lie beyond it
//! for it to mean anything: the 99.999th of a thousand samples is the maximum under another name.

use serde::{Deserialize, Serialize};

const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Number of buckets; the last takes all that is larger.
pub const BUCKETS: usize = (40 - SUB_BITS as usize + 1) * SUB;

/// Samples that must lie beyond a percentile.
const BEYOND: u64 = 10;

/// Percentiles in thousandths of a percent.
const PERCENTILES: [u32; 6] = [50_000, 90_000, 99_000, 99_900, 99_990, 99_999];
const WHOLE: u32 = 100_000;

/// The bucket that counts `value`.
#[must_use]
pub fn bucket_of(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let sub = (value >> (exponent - SUB_BITS)) as usize - SUB;
    (((exponent - SUB_BITS + 1) as usize) * SUB + sub).min(BUCKETS - 1)
}

/// The smallest and largest value that bucket `index` counts.
#[must_use]
pub fn bucket_range(index: usize) -> (u64, u64) {
    if index < SUB {
        return (index as u64, index as u64);
    }
    let shift = (index / SUB - 1) as u32;
    let low = ((SUB + index % SUB) as u64) << shift;
    if index >= BUCKETS - 1 { (low, u64::MAX) } else { (low, low + (1 << shift) - 1) }
}

/// Counts of response times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS], sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Histogram {
    /// From one CPU's counts. Minimum and maximum are not looked at when nothing was counted.
    #[must_use]
    pub fn new(buckets: &[u64], sum_ns: u64, min_ns: u64, max_ns: u64) -> Histogram {
        let mut histogram = Histogram::default();
        for (slot, count) in histogram.buckets.iter_mut().zip(buckets) {
            *slot = *count;
        }
        if histogram.count() > 0 {
            (histogram.sum_ns, histogram.min_ns, histogram.max_ns) = (sum_ns, min_ns, max_ns);
        }
        histogram
    }

    /// Counts one value.
    pub fn record(&mut self, value_ns: u64) {
        self.buckets[bucket_of(value_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds another CPU's counts.
    pub fn merge(&mut self, other: &Histogram) {
        for (slot, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *slot += count;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Takes out values that were counted. The largest of what is left is known only as well as its bucket, unless it is `known_max_ns`.
    #[must_use]
    pub fn without(mut self, other: &Histogram, known_max_ns: u64) -> Histogram {
        for (slot, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *slot = slot.saturating_sub(*count);
        }
        self.sum_ns = self.sum_ns.saturating_sub(other.sum_ns);
        let lowest = self.buckets.iter().position(|count| *count > 0);
        let highest = self.buckets.iter().rposition(|count| *count > 0);
        let Some((lowest, highest)) = lowest.zip(highest) else { return Histogram::default() };
        self.min_ns = self.min_ns.max(bucket_range(lowest).0);
        self.max_ns = match bucket_of(known_max_ns) == highest {
            true => known_max_ns,
            false => self.max_ns.min(bucket_range(highest).1),
        };
        self
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Mean, percentiles and printable rows; `None` when nothing was counted.
    #[must_use]
    pub fn statistics(&self) -> Option<Statistics> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        Some(Statistics {
            count,
            min_ns: self.min_ns,
            mean_ns: self.sum_ns / count,
            max_ns: self.max_ns,
            percentiles: PERCENTILES.iter().map(|percent| self.percentile(*percent, count)).collect(),
            rows: self.rows(),
        })
    }

    /// The buckets in which something was counted, 32 for each power of two.
    #[must_use]
    pub fn buckets(&self) -> Vec<Row> {
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let row = |(index, count): (usize, &u64)| {
            let (from_ns, last_ns) = bucket_range(index);
            Row { from_ns, to_ns: last_ns.saturating_add(1), count: *count }
        };
        counted.map(row).collect()
    }

    fn percentile(&self, percent_milli: u32, count: u64) -> Percentile {
        let beyond = u128::from(count) * u128::from(WHOLE - percent_milli) / u128::from(WHOLE);
        let needed = BEYOND * u64::from(WHOLE) / u64::from(WHOLE - percent_milli);
        // `beyond` is at most `count`, so it fits.
        let rank = count - beyond as u64;
        let mut seen = 0;
        let value = self.buckets.iter().enumerate().find_map(|(index, bucket)| {
            seen += bucket;
            (seen >= rank).then(|| bucket_range(index).1.min(self.max_ns))
        });
        let value_ns = value.filter(|_| beyond >= u128::from(BEYOND));
        Percentile { percent_milli, value_ns, needed }
    }

    /// Powers of two, because buckets never cross them: every count is exact. From the row of the minimum to that of the
    /// maximum, empty ones in between included.
    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for (index, count) in self.buckets.iter().enumerate() {
            let (low, high) = bucket_range(index);
            let from_ns = if low == 0 { 0 } else { 1 << low.ilog2() };
            let end = if high == u64::MAX { high } else { (from_ns * 2).max(1) };
            match rows.last_mut() {
                Some(row) if row.from_ns == from_ns => {
                    row.count += count;
                    row.to_ns = row.to_ns.max(end);
                }
                _ => rows.push(Row { from_ns, to_ns: end, count: *count }),
            }
        }
        let used = |row: &Row| row.count > 0;
        let first = rows.iter().position(used).unwrap_or(0);
        let last = rows.iter().rposition(used).map_or(first, |last| last + 1);
        rows[first..last].to_vec()
    }
}

/// Buckets joined into ranges of equal length, `parts` for each power of two (a divisor of 32): from the first to the last, empty ones in
/// between included.
#[must_use]
pub fn joined(buckets: &[Row], parts: u64) -> Vec<Row> {
    let range = |value: u64| {
        let octave_ns = 1 << value.max(1).ilog2();
        let width_ns = octave_ns / parts.clamp(1, octave_ns);
        let from_ns = value - (value - octave_ns.min(value)) % width_ns;
        (from_ns, from_ns.saturating_add(width_ns))
    };
    let mut rows: Vec<Row> = Vec::new();
    for bucket in buckets {
        while let Some(last) = rows.last().filter(|last| last.to_ns <= bucket.from_ns) {
            let (from_ns, to_ns) = range(last.to_ns);
            rows.push(Row { from_ns, to_ns, count: 0 });
        }
        match rows.last_mut() {
            Some(last) => {
                last.count += bucket.count;
                last.to_ns = last.to_ns.max(bucket.to_ns);
            }
            None => {
                let (from_ns, to_ns) = range(bucket.from_ns);
                rows.push(Row { from_ns, to_ns: to_ns.max(bucket.to_ns), count: bucket.count });
            }
        }
    }
    rows
}

/// A percentile, if the sample is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentile {
    /// In thousandths of a percent: 99900 is the 99.9th.
    pub percent_milli: u32,
    /// No more than this percentage of values are larger (upper end of the bucket, at most 3.2 % too large). `None` when
    /// fewer than `needed` values were counted: then fewer than ten lie beyond it.
    pub value_ns: Option<u64>,
    /// Samples needed to give it.
    pub needed: u64,
}

/// A row of the printed histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Smallest value.
    pub from_ns: u64,
    /// First value that is too large; `u64::MAX` in the row without an end.
    pub to_ns: u64,
    /// How many.
    pub count: u64,
}

/// The figures that are reported of a distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// How many values.
    pub count: u64,
    /// The smallest.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// 50, 90, 99, 99.9, 99.99, 99.999.
    pub percentiles: Vec<Percentile>,
    /// Counts by powers of two.
    pub rows: Vec<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_all_values() {
        let mut next = 0;
        for index in 0..BUCKETS {
            let (low, high) = bucket_range(index);
            assert_eq!(low, next, "bucket {index}");
            assert_eq!((bucket_of(low), bucket_of(high)), (index, index));
            assert!(index == BUCKETS - 1 || high - low <= low / 32);
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket has no end");
        assert_eq!(BUCKETS, 1152);
    }

    #[test]
    fn what_is_taken_out_is_in_no_figure() {
        let (mut all, mut out) = (Histogram::default(), Histogram::default());
        for value in [1000, 2000, 1_000_000_000] {
            all.record(value);
        }
        out.record(1_000_000_000);
        let figures = |known| {
            let left = all.clone().without(&out, known).statistics().unwrap();
            (left.count, left.min_ns, left.mean_ns, left.max_ns)
        };
        assert_eq!(figures(2000), (2, 1000, 1500, 2000));
        // Known as well as the bucket is wide, and not by another bucket's.
        assert_eq!(figures(0).3, bucket_range(bucket_of(2000)).1);
        assert_eq!(figures(5000).3, bucket_range(bucket_of(2000)).1);
        assert_eq!(all.clone().without(&all, 0), Histogram::default());
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.statistics(), None);
        for value in 1..=1000 {
            histogram.record(value * 1000);
        }
        let statistics = histogram.statistics().unwrap();
        assert_eq!((statistics.min_ns, statistics.mean_ns, statistics.max_ns), (1000, 500_500, 1_000_000));
        let values: Vec<Option<u64>> = statistics.percentiles.iter().map(|p| p.value_ns).collect();
        assert_eq!(values[3..], [None, None, None]);
        for (percentile, exact) in statistics.percentiles.iter().zip([500_000, 900_000, 990_000]) {
            let value = percentile.value_ns.unwrap();
            assert!(value >= exact && value - exact <= exact / 31, "{value} for {exact}");
        }
        let needed: Vec<u64> = statistics.percentiles.iter().map(|p| p.needed).collect();
        assert_eq!(needed, [20, 100, 1000, 10_000, 100_000, 1_000_000]);
    }

    #[test]
    fn buckets_are_joined_without_dividing_any() {
        let mut histogram = Histogram::default();
        let values = [0, 1, 3, 31, 33, 63, 64, 100, 5000, 5100, 1 << 41];
        values.iter().for_each(|value| histogram.record(*value));
        let buckets = histogram.buckets();
        assert_eq!(buckets.iter().map(|row| row.count).sum::<u64>(), values.len() as u64);
        for parts in [1, 2, 4, 8, 32] {
            let rows = joined(&buckets, parts);
            assert!(rows.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "{rows:?}");
            assert!(rows[0].count > 0 && rows.last().unwrap().count > 0);
            for row in &rows {
                let inside = values.iter().filter(|value| (row.from_ns..row.to_ns).contains(*value)).count();
                assert_eq!(row.count, inside as u64, "{row:?} of {parts}");
                let octave_ns = 1 << row.from_ns.max(1).ilog2();
                assert!(
                    row.to_ns == u64::MAX || row.to_ns - row.from_ns <= (octave_ns / parts).max(1),
                    "{row:?}"
                );
            }
        }
        assert_eq!(joined(&[], 4), []);
    }

    #[test]
    fn rows_hold_every_sample() {
        let mut one = Histogram::default();
        let mut two = Histogram::default();
        for value in [0, 1, 3, 31, 32, 63, 64, 5000] {
            one.record(value);
        }
        two.record(1 << 41);
        one.merge(&two);
        let statistics = one.statistics().unwrap();
        assert_eq!(statistics.rows.iter().map(|row| row.count).sum::<u64>(), statistics.count);
        assert!(statistics.rows.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        assert_eq!(statistics.rows[0], Row { from_ns: 0, to_ns: 1, count: 1 });
        assert_eq!(statistics.rows.last().unwrap().to_ns, u64::MAX);
        assert_eq!(Histogram::new(&one.buckets, one.sum_ns, one.min_ns, one.max_ns), one);
    }
}
