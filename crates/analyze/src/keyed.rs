// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms by key: of each task, device or call the buckets in which something was counted.
//!
//! Counts only grow, so what came between two readings is their difference, and nobody who counts has to be stopped or reset for it.

use crate::histogram::{BUCKETS, Histogram, bucket_range};
use std::collections::BTreeMap;

/// By what operations are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Who or what.
    pub id: u32,
    /// Of which kind; 0 where kinds are not told apart.
    pub kind: u16,
}

/// What one bucket has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCount {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The longest; in a difference at most this.
    pub max_ns: u64,
}

/// A histogram of which few buckets are used: by their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseHistogram {
    buckets: BTreeMap<u16, BucketCount>,
}

impl SparseHistogram {
    /// Adds to a bucket.
    pub fn add(&mut self, bucket: u16, more: BucketCount) {
        if more.count == 0 || usize::from(bucket) >= BUCKETS {
            return;
        }
        let slot = self.buckets.entry(bucket).or_default();
        slot.count += more.count;
        slot.sum_ns = slot.sum_ns.saturating_add(more.sum_ns);
        slot.max_ns = slot.max_ns.max(more.max_ns);
    }

    /// Whether anything was counted in this bucket.
    #[must_use]
    pub fn has(&self, bucket: u16) -> bool {
        self.buckets.contains_key(&bucket)
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &SparseHistogram) {
        for (bucket, more) in &other.buckets {
            self.add(*bucket, *more);
        }
    }

    /// What came since an earlier reading. Its longest is known to the width of its bucket.
    #[must_use]
    pub fn since(&self, earlier: &SparseHistogram) -> SparseHistogram {
        let mut since = SparseHistogram::default();
        for (bucket, now) in &self.buckets {
            let before = earlier.buckets.get(bucket).copied().unwrap_or_default();
            let more = BucketCount {
                count: now.count.saturating_sub(before.count),
                sum_ns: now.sum_ns.saturating_sub(before.sum_ns),
                max_ns: now.max_ns,
            };
            since.add(*bucket, more);
        }
        since
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.count).sum()
    }

    /// The sum of all.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.buckets.values().fold(0, |sum, bucket| sum.saturating_add(bucket.sum_ns))
    }

    /// The longest; 0 where nothing was counted.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.max_ns).max().unwrap_or(0)
    }

    /// The buckets in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, BucketCount)> {
        self.buckets.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// With all buckets. The shortest is the lower end of its bucket, at most 3.2 % too short.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        let mut counts = vec![0; BUCKETS];
        for (bucket, count) in &self.buckets {
            counts[usize::from(*bucket)] = count.count;
        }
        let min_ns = self.buckets.keys().next().map_or(0, |bucket| bucket_range(usize::from(*bucket)).0);
        Histogram::new(&counts, self.sum_ns(), min_ns.min(self.max_ns()), self.max_ns())
    }
}

/// Histograms of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyedHistograms {
    /// By key.
    pub keys: BTreeMap<Key, SparseHistogram>,
}

impl KeyedHistograms {
    /// Adds to one.
    pub fn add(&mut self, key: Key, bucket: u16, more: BucketCount) {
        self.keys.entry(key).or_default().add(bucket, more);
    }

    /// What came since an earlier reading; keys of which nothing came are left out.
    #[must_use]
    pub fn since(&self, earlier: &KeyedHistograms) -> KeyedHistograms {
        let nothing = SparseHistogram::default();
        let since = |(key, now): (&Key, &SparseHistogram)| {
            let since = now.since(earlier.keys.get(key).unwrap_or(&nothing));
            (since.count() > 0).then_some((*key, since))
        };
        KeyedHistograms { keys: self.keys.iter().filter_map(since).collect() }
    }

    /// All keys together.
    #[must_use]
    pub fn total(&self) -> SparseHistogram {
        let mut total = SparseHistogram::default();
        self.keys.values().for_each(|histogram| total.merge(histogram));
        total
    }

    /// With other keys; those that become the same are added up.
    #[must_use]
    pub fn by<K: Ord>(&self, of: impl Fn(Key) -> Option<K>) -> BTreeMap<K, SparseHistogram> {
        let mut by = BTreeMap::<K, SparseHistogram>::new();
        for (key, histogram) in &self.keys {
            if let Some(key) = of(*key) {
                by.entry(key).or_default().merge(histogram);
            }
        }
        by
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::bucket_of;

    fn record(histogram: &mut SparseHistogram, value: u64) {
        histogram.add(bucket_of(value) as u16, BucketCount { count: 1, sum_ns: value, max_ns: value });
    }

    #[test]
    fn what_came_between_two_readings_is_their_difference() {
        let mut first = KeyedHistograms::default();
        let [one, two] = [Key { id: 1, kind: 0 }, Key { id: 2, kind: 7 }];
        for value in [10, 1000, 1001] {
            record(first.keys.entry(one).or_default(), value);
        }
        let mut second = first.clone();
        record(second.keys.entry(one).or_default(), 900_000);
        record(second.keys.entry(two).or_default(), 31);
        let since = second.since(&first);
        assert_eq!(since.keys.keys().copied().collect::<Vec<_>>(), [one, two]);
        assert_eq!((since.keys[&one].count(), since.keys[&one].sum_ns()), (1, 900_000));
        assert_eq!((since.total().count(), since.total().max_ns()), (2, 900_000));
        assert_eq!(second.since(&second), KeyedHistograms::default());
        let by_kind = second.by(|key| (key.kind > 0).then_some(key.kind));
        assert_eq!(by_kind.len(), 1);
        assert_eq!(by_kind[&7].count(), 1);
    }

    #[test]
    fn it_becomes_the_histogram_of_the_same_values() {
        let values = [0, 5, 33, 70_000, 70_001, 1 << 39];
        let (mut sparse, mut full) = (SparseHistogram::default(), Histogram::default());
        for value in values {
            record(&mut sparse, value);
            full.record(value);
        }
        assert_eq!(sparse.histogram(), full);
        assert_eq!(SparseHistogram::default().histogram().statistics(), None);
        // A bucket that there is not.
        let mut odd = SparseHistogram::default();
        odd.add(2047, BucketCount { count: 1, sum_ns: 1, max_ns: 1 });
        assert_eq!(odd.count(), 0);
    }
}
