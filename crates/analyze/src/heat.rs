// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heat map: how a histogram changes over time, in slices of equal length.
//!
//! A run may take days, so there is a most of slices: when they are used up, each two become one of twice the length.

use crate::histogram::bucket_range;
use crate::keyed::SparseHistogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Slices that are kept; even.
const MOST: usize = 512;

/// Counts by time and by power of two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeatMap {
    /// How long a slice is.
    pub slice_ns: u64,
    /// From the beginning on. By the power of two at which a range begins: how many were in it.
    pub slices: Vec<BTreeMap<u32, u64>>,
}

impl HeatMap {
    /// An empty one.
    #[must_use]
    pub fn new(slice_ns: u64) -> HeatMap {
        HeatMap { slice_ns: slice_ns.max(1), slices: Vec::new() }
    }

    /// Counts what came since the last call, at this time since the beginning.
    pub fn add(&mut self, at_ns: u64, since: &SparseHistogram) {
        // What has come by the end of a slice came in it.
        while at_ns.saturating_sub(1) / self.slice_ns >= MOST as u64 {
            self.halve();
        }
        let at = (at_ns.saturating_sub(1) / self.slice_ns) as usize;
        if self.slices.len() <= at {
            self.slices.resize(at + 1, BTreeMap::new());
        }
        for (bucket, counted) in since.buckets() {
            let power = bucket_range(usize::from(bucket)).0.max(1).ilog2();
            *self.slices[at].entry(power).or_default() += counted.count;
        }
    }

    fn halve(&mut self) {
        self.slice_ns = self.slice_ns.saturating_mul(2);
        let pairs = self.slices.chunks(2).map(|pair| {
            let mut sum = BTreeMap::new();
            for (power, count) in pair.iter().flatten() {
                *sum.entry(*power).or_default() += count;
            }
            sum
        });
        self.slices = pairs.collect();
    }

    /// How many in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.slices.iter().flat_map(BTreeMap::values).sum()
    }

    /// The same with at most this many slices.
    #[must_use]
    pub fn within(&self, most: usize) -> HeatMap {
        let mut map = self.clone();
        while map.slices.len() > most.max(1) {
            map.halve();
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::bucket_of;
    use crate::keyed::BucketCount;

    fn one(value: u64) -> SparseHistogram {
        let mut histogram = SparseHistogram::default();
        histogram.add(bucket_of(value) as u16, BucketCount { count: 1, sum_ns: value, max_ns: value });
        histogram
    }

    #[test]
    fn days_take_no_more_slices_than_there_are_and_lose_nothing() {
        let mut map = HeatMap::new(10);
        for step in 1..=100_000_u64 {
            map.add(step * 10, &one(step % 3000));
        }
        assert!(map.slices.len() <= MOST && map.slices.len() > MOST / 4, "{}", map.slices.len());
        assert_eq!((map.count(), map.slice_ns), (100_000, 2560));
        let small = map.within(60);
        assert!(small.slices.len() <= 60 && small.count() == 100_000);
    }

    #[test]
    fn what_came_by_the_end_of_a_slice_is_in_it() {
        let mut map = HeatMap::new(10);
        map.add(10, &one(1024));
        map.add(11, &one(1023));
        map.add(0, &one(0));
        assert_eq!(map.slices, [BTreeMap::from([(0, 1), (10, 1)]), BTreeMap::from([(9, 1)])]);
    }
}
