// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often the detector is wrong, and how often right, on seeded windows.

use super::*;
use crate::histogram::bucket_of;
use crate::keyed::BucketCount;

/// `SplitMix64` (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Latencies around 100 us, long on one side as those of disks are, times a factor; a part of them stuck behind something for ten times as long.
fn window(random: &mut Random, values: usize, factor: f64, stuck: f64, burst: usize) -> SparseHistogram {
    let mut histogram = SparseHistogram::default();
    let mut done = 0;
    while done < values {
        let is_stuck = random.uniform() < stuck;
        let value = 100_000.0 * factor * (0.5 * random.normal()).exp() * if is_stuck { 10.0 } else { 1.0 };
        // A burst shares its latency: values that are not independent.
        let count = burst.min(values - done) as u64;
        let counted = BucketCount { count, sum_ns: value as u64 * count, max_ns: value as u64 };
        histogram.add(bucket_of(value as u64) as u16, counted);
        done += burst;
    }
    histogram
}

/// How many of so many windows raise an alarm, each behind a baseline of its own.
fn alarms(rounds: usize, level: f64, burst: usize, then: impl Fn(&mut Random) -> SparseHistogram) -> usize {
    let mut random = Random(20_261_125);
    let judged = (0..rounds).filter(|_| {
        let mut detector = ChangeDetector::new(10, level);
        for _ in 0..10 {
            assert_eq!(detector.judge(&window(&mut random, 400, 1.0, 0.02, burst)), Verdict::Learning);
        }
        matches!(detector.judge(&then(&mut random)), Verdict::Changed(_))
    });
    judged.count()
}

/// Whether this many of so many are what chance makes of a rate: within 3.3 standard deviations, 99.9 %.
fn is_chance(alarms: usize, rounds: usize, level: f64) -> bool {
    let expected = rounds as f64 * level;
    (alarms as f64 - expected).abs() <= 3.3 * (expected * (1.0 - level)).sqrt()
}

#[test]
fn alarms_without_a_change_are_as_many_as_the_level_says() {
    for (level, burst) in [(0.01, 1), (0.05, 1)] {
        let found = alarms(10_000, level, burst, |random| window(random, 400, 1.0, 0.02, burst));
        println!("independent values, level {level}: {found} false alarms of 10000 windows");
        assert!(is_chance(found, 10_000, level), "{found} of 10000 at {level}");
    }
}

#[test]
fn bursts_raise_no_more_alarms_than_the_level_says() {
    for (level, burst) in [(0.01, 8), (0.001, 8)] {
        let found = alarms(10_000, level, burst, |random| window(random, 400, 1.0, 0.02, burst));
        println!("bursts of {burst}, level {level}: {found} false alarms of 10000 windows");
        // 50 independent values a window are few for a chi-squared distribution: up to twice the level.
        assert!(found as f64 <= 2.0 * level * 10_000.0, "{found} of 10000 at {level}");
    }
}

#[test]
fn real_changes_are_found_with_their_direction() {
    for (factor, stuck, least, expected) in [
        (1.25, 0.02, 0.99, Direction::Worse),
        (0.8, 0.02, 0.99, Direction::Better),
        (1.0, 0.10, 0.97, Direction::Worse),
    ] {
        let mut random = Random(7);
        let mut found = 0;
        for _ in 0..1000 {
            let mut detector = ChangeDetector::new(10, 0.001);
            for _ in 0..10 {
                detector.judge(&window(&mut random, 400, 1.0, 0.02, 1));
            }
            if let Verdict::Changed(change) = detector.judge(&window(&mut random, 400, factor, stuck, 1)) {
                found += usize::from(change.direction == expected);
            }
        }
        println!("times {factor}, {stuck} stuck, level 0.001: {found} of 1000 found, {expected:?}");
        assert!(found as f64 >= least * 1000.0, "{found} of 1000, {factor} {stuck}");
    }
}

#[test]
fn a_tail_that_grows_leaves_the_median_where_it_was() {
    let mut random = Random(3);
    let mut detector = ChangeDetector::new(10, 0.001);
    for _ in 0..10 {
        detector.judge(&window(&mut random, 2000, 1.0, 0.02, 1));
    }
    let Verdict::Changed(change) = detector.judge(&window(&mut random, 2000, 1.0, 0.15, 1)) else {
        panic!("not found")
    };
    let of = |permille| change.quantiles.iter().find(|q| q.permille == permille).expect("told");
    assert!(of(990).has_moved() && of(990).after_ns > of(990).before_ns, "{change:?}");
    assert!(!of(100).has_moved(), "{change:?}");
    // From here on the new distribution is what there is.
    for _ in 0..9 {
        assert_eq!(detector.judge(&window(&mut random, 2000, 1.0, 0.15, 1)), Verdict::Learning);
    }
    let same = detector.judge(&window(&mut random, 2000, 1.0, 0.15, 1));
    assert!(matches!(same, Verdict::Same { p_value } if p_value > 0.001), "{same:?}");
    let back = detector.judge(&window(&mut random, 2000, 1.0, 0.02, 1));
    assert!(matches!(&back, Verdict::Changed(change) if change.direction == Direction::Better), "{back:?}");
}

#[test]
fn few_values_and_one_range_say_nothing() {
    let mut random = Random(5);
    let mut detector = ChangeDetector::new(3, 0.01);
    assert_eq!(detector.judge(&SparseHistogram::default()), Verdict::TooFew);
    assert_eq!(detector.judge(&window(&mut random, 19, 1.0, 0.0, 1)), Verdict::TooFew);
    let mut one = SparseHistogram::default();
    one.add(300, BucketCount { count: 1000, sum_ns: 1, max_ns: 1 });
    for _ in 0..3 {
        assert_eq!(detector.judge(&one), Verdict::Learning);
    }
    assert_eq!(detector.judge(&one), Verdict::TooFew);
    // All elsewhere: the same every time, and then not.
    let mut other = SparseHistogram::default();
    other.add(500, BucketCount { count: 1000, sum_ns: 1, max_ns: 1 });
    assert!(matches!(detector.judge(&other), Verdict::Changed(_)));
}
