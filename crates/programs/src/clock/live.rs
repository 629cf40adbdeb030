// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conversion while pairs are still being taken: of a recording whose events become a trace at once, however long it lasts.

use super::{Conversion, FRACTION_BITS, Pair, RATE_NS, Stretch, between, gap_ticks};
use crate::clock_watch::{ClockProblem, ClockProblemKind, jump};
use rtscope_abi::program as abi;
use serde::{Deserialize, Serialize};

/// Pairs retained for events that come late: those of threads that were stopped in the middle of writing one.
const RECENT_MAX: usize = 8192;
/// Counters of this machine's CPUs differ by less: a value further ahead of the last pair was never read from a counter.
pub const AHEAD_NS: u64 = 1_000_000_000;

/// Converts while pairs are still being taken: only values before the last pair, which lie between two pairs as they would later.
#[derive(Clone, Debug, Default)]
pub struct LiveClock {
    first: Option<Pair>,
    /// Gives the rate before the first pair.
    second: Option<Pair>,
    recent: Conversion,
    /// As it was before the counter jumped for the last time.
    before: Option<Box<LiveClock>>,
    /// Ticks before the first pair that may have come after the jump.
    gap: u64,
    errors: ClockErrors,
}

/// How far the counter's values may be from CLOCK_MONOTONIC: what pairs were from the times that their neighbours predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockError {
    /// Pairs that were compared. Of some tens the largest is the 99th percentile, which says little of others.
    pub checks: u64,
    /// The median, in ns.
    pub median: u64,
    /// The 99th percentile, in ns.
    pub p99: u64,
    /// The largest, in ns.
    pub max: u64,
}

/// How far pairs were from what their neighbours predict: of an endless recording every one of 2, 4, 8 and so on.
#[derive(Clone, Debug, Default)]
struct ClockErrors {
    kept: Vec<u64>,
    seen: u64,
    /// One of 2 to the power of this is kept.
    thinned: u32,
    largest: u64,
}

impl ClockErrors {
    const KEPT_MAX: usize = 1 << 16;

    fn add(&mut self, error_ns: u64) {
        self.largest = self.largest.max(error_ns);
        if self.seen.trailing_zeros() >= self.thinned {
            self.kept.push(error_ns);
        }
        self.seen += 1;
        if self.kept.len() >= Self::KEPT_MAX {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.thinned += 1;
        }
    }

    fn percentiles(&self) -> Option<ClockError> {
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        let at = |percent: usize| kept.get(kept.len().saturating_sub(1) * percent / 100).copied();
        Some(ClockError { checks: self.seen, median: at(50)?, p99: at(99)?, max: self.largest })
    }
}

/// The time that a [`LiveClock`] gives for a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTime {
    /// CLOCK_MONOTONIC, in ns.
    At(u64),
    /// Known once the next pairs are taken.
    Later,
    /// Not possible: no program can have read this value.
    Never,
}

impl LiveClock {
    /// Adds a pair. Returns the counter's jump since the last one, if it has jumped.
    pub fn push(&mut self, pair: Pair) -> Option<ClockProblem> {
        let mut jumped = None;
        if let Some(by_ns) = jump(&self.recent.pairs, pair) {
            let from_ns = self.recent.pairs.last().map_or(0, |last| last.monotonic_ns);
            let kind = ClockProblemKind::Jump { by_ns };
            jumped = Some(ClockProblem { kind, from_ns, until_ns: pair.monotonic_ns });
            let before = LiveClock { before: None, ..std::mem::take(self) };
            self.errors = before.errors.clone();
            self.gap = gap_ticks(&before.recent.pairs, pair);
            self.before = Some(Box::new(before));
        }
        let pairs = &mut self.recent.pairs;
        let first = *self.first.get_or_insert(pair);
        match pairs.last() {
            Some(last) if pair.counter <= last.counter || pair.monotonic_ns <= last.monotonic_ns => {
                return jumped;
            }
            _ => {}
        }
        if let [.., a, b] = pairs.as_slice() {
            self.errors.add(between(*a, pair, b.counter).abs_diff(b.monotonic_ns));
        }
        if self.second.is_none() && pair.monotonic_ns - first.monotonic_ns >= RATE_NS {
            self.second = Some(pair);
        }
        if pairs.len() >= RECENT_MAX {
            pairs.drain(..RECENT_MAX / 2);
            self.recent.near = 0;
        }
        pairs.push(pair);
        jumped
    }

    /// How far pairs are from the times that their neighbours predict. `None`: too few.
    #[must_use]
    pub fn error_ns(&self) -> Option<ClockError> {
        self.errors.percentiles()
    }

    /// CLOCK_MONOTONIC at the last pair; 0: there is none.
    #[must_use]
    pub fn latest_ns(&self) -> u64 {
        self.recent.pairs.last().map_or(0, |last| last.monotonic_ns)
    }

    /// The stretch between the two pairs around the value sought last, for a counter of this kind, which shows `offset_ns` more than this
    /// process's.
    #[inline]
    #[must_use]
    pub fn stretch(&self, kind: u32, offset_ns: i64) -> Stretch {
        if kind != abi::RTU_CLOCK_MONOTONIC {
            return self.recent.stretch;
        }
        let ticks = self.recent.pairs.last().map_or(0, |pair| pair.monotonic_ns);
        Stretch {
            counter: u64::from_ne_bytes(offset_ns.to_ne_bytes()),
            ticks,
            monotonic_ns: 0,
            ns_per_tick: 1 << FRACTION_BITS,
        }
    }

    /// Goes to the stretch that contains this value. Returns whether it is another one than before, and known.
    #[must_use]
    pub fn seek(&mut self, kind: u32, counter: u64) -> bool {
        if kind == abi::RTU_CLOCK_MONOTONIC || self.recent.stretch.monotonic_ns(counter).is_some() {
            return false;
        }
        let _ = self.recent.monotonic_ns(counter);
        self.recent.stretch.monotonic_ns(counter).is_some()
    }

    /// The time of any value of a counter of this kind. `is_final`: no more pairs will come.
    pub fn when(&mut self, kind: u32, counter: u64, is_final: bool) -> EventTime {
        let (Some(first), Some(last)) = (self.first, self.recent.pairs.last().copied()) else {
            return EventTime::Later;
        };
        if let Some(time) = self.when_before_the_jump(kind, counter, (first, last)) {
            return EventTime::At(time);
        }
        let (time, is_known) = if kind == abi::RTU_CLOCK_MONOTONIC {
            (counter, counter < last.monotonic_ns)
        } else if counter >= first.counter {
            (self.recent.monotonic_ns(counter), counter < last.counter)
        } else {
            match self.second.or((is_final && last != first).then_some(last)) {
                Some(second) => (between(first, second, counter), true),
                None if is_final => (self.recent.monotonic_ns(counter), true),
                None => return EventTime::Later,
            }
        };
        match time {
            time if time > last.monotonic_ns.saturating_add(AHEAD_NS) => EventTime::Never,
            time if is_known || is_final => EventTime::At(time),
            _ => EventTime::Later,
        }
    }

    /// The time of a value that was read before the counter jumped: not one that lies between pairs taken since, and not later than
    /// the first of these.
    fn when_before_the_jump(&mut self, kind: u32, counter: u64, (first, last): (Pair, Pair)) -> Option<u64> {
        let begin = first.counter.saturating_sub(self.gap);
        let is_newer = kind == abi::RTU_CLOCK_MONOTONIC || (begin..=last.counter).contains(&counter);
        let before = self.before.as_mut().filter(|_| !is_newer)?;
        match before.when(kind, counter, true) {
            EventTime::At(time) if time <= first.monotonic_ns => Some(time),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{counter_kind, without_offset};
    use crate::records::Sync;

    /// 2 ticks a ns, and `ahead` more from `jump_ms` on.
    fn jumping(ms: u64, jump_ms: u64, ahead: i64) -> Pair {
        let ahead = if ms >= jump_ms { ahead } else { 0 };
        Pair { counter: (ms * 2_000_000).wrapping_add_signed(ahead), monotonic_ns: ms * 1_000_000 }
    }

    #[test]
    fn values_before_and_after_a_jump_are_converted_apart() {
        // Reset by suspend; by a little; moved far ahead.
        for ahead in [-20_000_000_000, -3_000_000_000, -200_000_000, 900_000_000_000] {
            let pair = |ms| jumping(ms, 20_025, ahead);
            let pairs: Vec<Pair> = (10_000..30_000).step_by(50).map(pair).collect();
            let mut whole = Conversion::new(pairs.clone());
            let mut live = LiveClock::default();
            let (mut taken, mut certain, mut jumps) = (0, 0, 0);
            for pair_now in &pairs {
                jumps += u32::from(live.push(*pair_now).is_some());
                // Each event is taken at the first poll after it that has a later pair, one of them 120 ms late.
                while taken * 10 + 10_050 + 120 < pair_now.monotonic_ns / 1_000_000 {
                    let (ms, ns) = (taken * 10 + 10_050, (taken * 10 + 10_050) * 1_000_000);
                    // What the counter has shown twice can be either, and only then.
                    let counter = pair(ms).counter;
                    let shown_again = pair(20_050).counter - 100_000_000..=pairs[pairs.len() - 1].counter;
                    let again = ahead < 0 && ms < 20_025 && shown_again.contains(&counter);
                    let found = live.when(abi::RTU_CLOCK_TSC, counter, false);
                    let is_right = |found: u64| found.abs_diff(ns) <= 1000;
                    let seen = matches!(found, EventTime::At(found) if is_right(found));
                    assert!(again || seen, "{ahead}: {found:?} for {ns}");
                    certain += u64::from(!again);
                    assert!(again || is_right(whole.monotonic_ns(counter)), "{ahead}: {ns}");
                    taken += 1;
                }
            }
            assert_eq!(jumps, 1, "{ahead}");
            assert!(live.error_ns().is_some_and(|error| error.max < 10), "{:?}", live.error_ns());
            assert!(taken > 1900 && certain > 900, "{certain} of {taken}");
        }
    }

    #[test]
    fn while_recording_only_values_between_pairs_have_a_time() {
        const TSC: u32 = abi::RTU_CLOCK_TSC;
        let pair = |ms: u64| Pair { counter: ms * 2_000_000 + 7, monotonic_ns: ms * 1_000_000 };
        let counter = |ms: u64| pair(ms).counter;
        let mut clock = LiveClock::default();
        assert_eq!(clock.when(TSC, counter(1), true), EventTime::Later);
        clock.push(pair(100));
        clock.push(pair(110));
        assert_eq!(clock.when(TSC, counter(104), false), EventTime::At(104_000_000));
        let stretch = clock.stretch(TSC, 0);
        assert_eq!(stretch.monotonic_ns(counter(105)), Some(105_000_000));
        assert_eq!((stretch.monotonic_ns(counter(99)), stretch.monotonic_ns(counter(110))), (None, None));
        let sync = Sync { counter: counter(101), cpu: 0 };
        let times = stretch.times(sync);
        assert_eq!(times.monotonic_ns(counter(105) & Sync::LOW), Some(105_000_000));
        assert_eq!(times.monotonic_ns(counter(110) & Sync::LOW), None);
        assert_eq!(clock.when(TSC, counter(105), false), EventTime::At(105_000_000));
        assert_eq!(clock.when(TSC, counter(120), false), EventTime::Later);
        assert_eq!(clock.when(TSC, counter(120), true), EventTime::At(120_000_000));
        assert_eq!(clock.when(TSC, counter(1111), false), EventTime::Never);
        for never in [counter(5000), u64::MAX, 1 << 63] {
            assert_eq!(clock.when(TSC, never, true), EventTime::Never, "{never}");
            let monotonic = never.max(1_200_000_000);
            assert_eq!(clock.when(abi::RTU_CLOCK_MONOTONIC, monotonic, true), EventTime::Never, "{never}");
        }
        // Older than the first pair: converted when the rate is known.
        assert_eq!(clock.when(TSC, counter(50), false), EventTime::Later);
        clock.push(pair(150));
        for ms in [160, 170, 10_000] {
            assert_eq!(clock.when(TSC, counter(50), false), EventTime::At(50_000_000));
            clock.push(pair(ms));
        }
        // After a long silence there is no multiplication for a value, but a time.
        assert_eq!(clock.when(TSC, counter(5_000), false), EventTime::At(5_000_000_000));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(5_000)), None);
        // Each stretch is found again.
        assert_eq!(clock.when(TSC, counter(155), false), EventTime::At(155_000_000));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(159)), Some(159_000_000));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(161)), None);
        assert!(!clock.seek(TSC, counter(158)) && clock.seek(TSC, counter(161)));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(161)), Some(161_000_000));
        assert!(!clock.seek(TSC, counter(20_000)) && !clock.seek(TSC, 0));
        assert_eq!(clock.when(TSC, 0, false), EventTime::At(0));
        assert_eq!(
            clock.stretch(abi::RTU_CLOCK_MONOTONIC, 0).monotonic_ns(9_999_999_999),
            Some(9_999_999_999)
        );
        assert_eq!(clock.stretch(abi::RTU_CLOCK_MONOTONIC, 0).monotonic_ns(10_000_000_000), None);
        // Of a program whose time namespace is ten minutes ahead, or behind.
        for offset_ns in [600_000_000_000, -600_000_000_000_i64] {
            let stretch = clock.stretch(abi::RTU_CLOCK_MONOTONIC, offset_ns);
            let there = 9_999_999_999_u64.wrapping_add_signed(offset_ns);
            assert_eq!(stretch.monotonic_ns(there), Some(9_999_999_999));
            assert_eq!(
                (stretch.monotonic_ns(there + 1), without_offset(there, offset_ns)),
                (None, 9_999_999_999)
            );
            let sync = Sync { counter: there - 1000, cpu: 0 };
            assert_eq!(stretch.times(sync).monotonic_ns(there & Sync::LOW), Some(9_999_999_999));
        }
    }

    #[test]
    fn this_machines_counter_agrees_with_its_clock() {
        let mut clock = LiveClock::default();
        for _ in 0..300 {
            std::thread::sleep(std::time::Duration::from_micros(300));
            clock.push(Pair::now(counter_kind()));
        }
        let error = clock.error_ns().unwrap();
        println!("{error:?}");
        assert!(error.median < 1000, "{error:?}");
        // Each pair has one before and one after it, but for the first and the last.
        assert_eq!(error.checks, 298);
    }
}
