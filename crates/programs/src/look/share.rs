// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A share of the time, for what others can cause any number of.

use crate::budget::SHARE;
use std::time::{Duration, Instant};

/// What was taken beyond one part in [`SHARE`] of the time since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    owed: Duration,
    at: Instant,
}

impl Share {
    pub(super) fn new(now: Instant) -> Share {
        Share { owed: Duration::ZERO, at: now }
    }

    pub(super) fn owed(&self, now: Instant) -> Duration {
        self.owed.saturating_sub(now.saturating_duration_since(self.at) / SHARE)
    }

    pub(super) fn charge(&mut self, now: Instant, time: Duration) {
        (self.owed, self.at) = (self.owed(now) + time, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_shrinks_by_one_part_of_the_time() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut share = Share::new(now);
        share.charge(now, second);
        share.charge(now + second, second);
        let owed = |after: u32| share.owed(now + second * after);
        assert_eq!(owed(1), second * 2 - second / SHARE);
        assert_eq!(owed(11), second - second / SHARE);
        assert_eq!((owed(1 + 2 * SHARE), share.owed(now)), (Duration::ZERO, owed(1)));
    }
}
