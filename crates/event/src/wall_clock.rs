// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of the events and the clock on the wall.

use crate::MonotonicNs;

/// How the clock of the events relates to the clock on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Unix time minus monotonic time, in nanoseconds.
    pub unix_offset_ns: i64,
    /// Local time minus UTC, in seconds.
    pub utc_offset_s: i32,
}

impl WallClock {
    /// Nanoseconds since 1970, UTC.
    #[must_use]
    pub fn unix_ns(&self, time: MonotonicNs) -> i64 {
        i64::try_from(time.0).unwrap_or(i64::MAX).saturating_add(self.unix_offset_ns)
    }

    /// Local time of day: `23:41:07.123456`.
    #[must_use]
    pub fn time_of_day(&self, time: MonotonicNs) -> String {
        let local_us =
            self.unix_ns(time).div_euclid(1000).saturating_add(i64::from(self.utc_offset_s) * 1_000_000);
        let us = local_us.rem_euclid(24 * 3600 * 1_000_000);
        let seconds = us / 1_000_000;
        format!("{:02}:{:02}:{:02}.{:06}", seconds / 3600, seconds / 60 % 60, seconds % 60, us % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_on_the_wall() {
        let clock = WallClock { unix_offset_ns: 1_700_000_000_000_000_000, utc_offset_s: 3600 };
        assert_eq!(clock.time_of_day(MonotonicNs(123_456_789)), "23:13:20.123456");
        let early = WallClock { unix_offset_ns: -1, utc_offset_s: 0 };
        assert_eq!(early.time_of_day(MonotonicNs(0)), "23:59:59.999999");
    }
}
