// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Skipped programs over time. The kernel counts per program since it was loaded, not per CPU and without a time; by
//! reading the counters regularly, a snapshot can say how many fell into its own window.

use rtscope_event::{Loss, LossCause, MonotonicNs};
use std::collections::VecDeque;

/// Keeps this many readings: at one a second, more than any window.
const READINGS: usize = 128;

/// Totals of `recursion_misses` over time.
#[derive(Debug, Default)]
pub struct MissCounter {
    readings: VecDeque<(MonotonicNs, Option<u64>)>,
    /// The very first one: what is asked for a time before all that are kept is answered by it, as an upper bound.
    first: Option<(MonotonicNs, Option<u64>)>,
}

impl MissCounter {
    /// Takes in the counters of all programs. One that could not be read makes the total unknown.
    pub fn add(&mut self, now: MonotonicNs, misses: &[(String, Option<u64>)]) {
        let total = misses.iter().map(|(_, count)| *count).sum::<Option<u64>>();
        self.first.get_or_insert((now, total));
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
        counter.add(MonotonicNs(100), &misses(Some(0)));
        counter.add(MonotonicNs(200), &misses(Some(5)));
        counter.add(MonotonicNs(300), &misses(Some(7)));
        assert_eq!(counter.total(), Some(8));
        assert_eq!(counter.since(MonotonicNs(250)).count, Some(2));
        assert_eq!(counter.since(MonotonicNs(150)).count, Some(7));
        assert_eq!(counter.since(MonotonicNs(50)).count, Some(7));
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
