// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Skipped runs of eBPF programs over time. The kernel counts per eBPF program since it was loaded, not per CPU and without a time; by
//! reading the counters regularly, a snapshot can say how many fell into its own window.

use rtscope_event::{Loss, LossCause, MonotonicNs};
use std::collections::VecDeque;

/// Retains this many readings: at one a second, more than any window.
const READINGS: usize = 128;

/// Least time between the readings that are retained, except for the newest.
const SPACING_NS: u64 = 500_000_000;

/// Totals of `recursion_misses` over time.
#[derive(Debug, Default)]
pub struct MissCounter {
    readings: VecDeque<(MonotonicNs, Option<u64>)>,
    /// The very first one: what is asked for a time before all that are kept is answered by it, as an upper bound.
    first: Option<(MonotonicNs, Option<u64>)>,
}

impl MissCounter {
    /// Takes in the counters of all eBPF programs. One that could not be read makes the total unknown.
    pub fn add(&mut self, now: MonotonicNs, misses: &[(String, Option<u64>)]) {
        let total = misses.iter().map(|(_, count)| *count).sum::<Option<u64>>();
        self.first.get_or_insert((now, total));
        // Snapshots read the counters too, as often as they come; the retained ones are spaced out, so that it reaches back.
        let crowded = |(last, _): &(MonotonicNs, Option<u64>)| now.since(*last) < SPACING_NS;
        if self.readings.len() > 1 && self.readings.iter().rev().nth(1).is_some_and(crowded) {
            self.readings.pop_back();
        }
        if self.readings.len() == READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((now, total));
    }

    /// All so far; `None` when unknown.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.readings.back().and_then(|(_, total)| *total)
    }

    /// Those since the last reading before `time`: an upper bound of what is missing after it.
    #[must_use]
    pub fn since(&self, time: MonotonicNs) -> Loss {
        let before = self.readings.iter().rev().find(|(at, _)| *at <= time).or(self.first.as_ref());
        let count = match (before, self.readings.back()) {
            (Some((_, Some(from))), Some((_, Some(to)))) => Some(to - from),
            _ => None,
        };
        Loss { cpu: None, cause: LossCause::RecursionMiss, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(count: Option<u64>) -> Vec<(String, Option<u64>)> {
        vec![("a".to_string(), Some(1)), ("b".to_string(), count)]
    }

    #[test]
    fn a_window_is_charged_with_what_was_missed_since_the_reading_before_it() {
        let mut counter = MissCounter::default();
        let second = |number: u64| MonotonicNs(number * 1_000_000_000);
        counter.add(second(10), &misses(Some(0)));
        counter.add(second(20), &misses(Some(5)));
        counter.add(second(30), &misses(Some(7)));
        assert_eq!(counter.total(), Some(8));
        assert_eq!(counter.since(second(25)).count, Some(2));
        assert_eq!(counter.since(second(15)).count, Some(7));
        assert_eq!(counter.since(second(5)).count, Some(7));
    }

    #[test]
    fn many_readings_still_reach_back() {
        let mut counter = MissCounter::default();
        (0..10_000_u64)
            .for_each(|reading| counter.add(MonotonicNs(reading * 10_000_000), &misses(Some(reading))));
        // 100 s in all; 128 readings half a second apart hold a minute of it.
        assert_eq!(counter.total(), Some(10_000));
        let since = counter.since(MonotonicNs(60_000_000_000)).count.unwrap();
        assert!((3999..=4060).contains(&since), "{since}");
        assert_eq!(counter.since(MonotonicNs(5)).count, Some(9999));
    }

    #[test]
    fn unknown_is_unknown() {
        let mut counter = MissCounter::default();
        assert_eq!(counter.since(MonotonicNs(0)).count, None);
        counter.add(MonotonicNs(100), &misses(None));
        assert_eq!(counter.total(), None);
        assert_eq!(counter.since(MonotonicNs(200)).count, None);
    }
}
