// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates from paired measurements that assume nothing about how they are distributed.
//!
//! The estimate is that of Hodges and Lehmann (1963), the median of the means of all pairs of differences, with the interval of
//! Wilcoxon's signed-rank test, exact for each number of pairs. A few runs that were disturbed move neither far, which a
//! mean with its standard error does not promise.

/// How often an interval has the true value in it, at least.
pub const CONFIDENCE: f64 = 0.95;

/// A value, and the interval it is in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// `None`: there are too few differences for this confidence.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Of the center of these differences; `None` without any.
    pub fn of(differences: &[f64]) -> Option<Estimate> {
        let mut means: Vec<f64> = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
        for (at, one) in differences.iter().enumerate() {
            means.extend(differences[at..].iter().map(|other| one.midpoint(*other)));
        }
        means.sort_by(f64::total_cmp);
        let interval = rank(differences.len()).map(|rank| (means[rank - 1], means[means.len() - rank]));
        Some(Estimate { value: median(&means)?, interval })
    }

    /// The same after a function that grows with its argument.
    pub fn map(self, function: impl Fn(f64) -> f64) -> Estimate {
        let interval = self.interval.map(|(low, high)| (function(low), function(high)));
        Estimate { value: function(self.value), interval }
    }
}

/// The middle one, or the mean of the two in the middle; `None` without any.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(low.midpoint(*high))
}

/// The interval goes from the mean of this rank, counted from the lowest, to that of this rank from the highest. `None`: even the whole
/// range is not wide enough.
fn rank(pairs: usize) -> Option<usize> {
    // The sum of the ranks of positive differences: each rank is in it or not, equally likely.
    let highest = pairs * (pairs + 1) / 2;
    let mut probability = vec![0.0; highest + 1];
    probability[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (0..=highest).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = f64::midpoint(probability[sum], with);
        }
    }
    let mut below = 0.0;
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let outside = probability.iter().take_while(|share| {
        below += **share;
        below <= tail
    });
    match outside.count() {
        0 => None,
        rank => Some(rank),
    }
}

/// Random numbers (splitmix64; Steele, Lea and Flood, 2014). The same seed gives the same ones.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Puts values into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal, with mean 0 and deviation 1: a sum of twelve.
    fn noise(random: &mut Random) -> f64 {
        (0..12).map(|_| random.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    #[test]
    fn ranks_are_those_of_the_published_tables() {
        // Critical values of the two-sided signed-rank test at 5 % are one less.
        let published = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52), (30, 137)];
        for (pairs, critical) in published {
            assert_eq!(rank(pairs), Some(critical + 1), "{pairs}");
        }
        assert_eq!((rank(0), rank(5)), (None, None));
    }

    #[test]
    fn estimates_are_the_center_of_what_was_seen() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[2.0, 4.0]), Some(Estimate { value: 3.0, interval: None }));
        let six = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("some");
        assert_eq!(six, Estimate { value: 3.5, interval: Some((1.0, 6.0)) });
        assert_eq!(Estimate::of(&[7.0; 8]).expect("some").interval, Some((7.0, 7.0)));
        assert_eq!(six.map(|value| value * 2.0).interval, Some((2.0, 12.0)));
        assert_eq!(
            (median(&[]), median(&[3.0, 1.0]), median(&[9.0, 1.0, 2.0])),
            (None, Some(2.0), Some(2.0))
        );
    }

    #[test]
    fn an_outlier_moves_the_estimate_little() {
        let mut differences = vec![0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1, 1.0, 0.97];
        differences.push(1000.0);
        let estimate = Estimate::of(&differences).expect("some");
        assert!((estimate.value - 1.0).abs() < 0.1, "{estimate:?}");
    }

    #[test]
    fn intervals_have_the_true_value_as_often_as_they_say() {
        let (mut random, mut inside) = (Random(1), 0);
        let experiments = 4000;
        for _ in 0..experiments {
            let differences: Vec<f64> = (0..12).map(|_| 0.3 + noise(&mut random)).collect();
            let (low, high) = Estimate::of(&differences).and_then(|it| it.interval).expect("enough");
            inside += usize::from(low <= 0.3 && 0.3 <= high);
        }
        let share = inside as f64 / f64::from(experiments);
        // Four standard errors below what is said; the exact test says a little too little.
        assert!(share > CONFIDENCE - 0.014, "{share}");
        assert!(share < 0.98, "an interval that is too wide shows nothing: {share}");
    }

    #[test]
    fn an_order_depends_on_its_seed_only() {
        let order = |seed| {
            let mut values: Vec<usize> = (0..20).collect();
            Random(seed).shuffle(&mut values);
            values
        };
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        let mut sorted = order(5);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
