// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waiting for one user's hands takes of the time of others.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So much at once, and one part of the time: 100 ms in 10 s.
pub(super) const WAITED_MAX: Duration = Duration::from_millis(100);
const PART: u32 = 100;

/// The time that was waited for one user lately, with all of his hands.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Owed>);

#[derive(Debug, Default)]
struct Owed {
    owed: Duration,
    at: Option<Instant>,
}

impl Owed {
    fn advance(&mut self, now: Instant) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        (self.owed, self.at) = (self.owed.saturating_sub(passed / PART), Some(now));
    }
}

impl Waits {
    fn now(&self, now: Instant) -> MutexGuard<'_, Owed> {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owed.advance(now);
        owed
    }

    /// Nobody waits for him now.
    pub(super) fn are_used_up(&self, now: Instant) -> bool {
        self.now(now).owed > WAITED_MAX
    }

    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.now(now).owed.is_zero()
    }

    /// So much was waited.
    pub(super) fn charge(&self, now: Instant, time: Duration) {
        self.now(now).owed += time;
    }

    /// What was charged was not his doing.
    pub(super) fn give_back(&self, now: Instant, time: Duration) {
        let mut all = self.now(now);
        all.owed = all.owed.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_a_user_is_a_tenth_of_a_second_in_ten() {
        let (waits, begun) = (Waits::default(), Instant::now());
        let (mut now, mut waited) = (begun, Duration::ZERO);
        let pulse = Duration::from_millis(45);
        while now < begun + Duration::from_secs(100) {
            if waits.are_used_up(now) {
                now += Duration::from_millis(1);
            } else {
                now += pulse;
                waits.charge(now, pulse);
                waited += pulse;
            }
        }
        assert!(waited > Duration::from_secs(1) && waited < Duration::from_millis(1200), "{waited:?}");
        waits.give_back(now, Duration::from_secs(1));
        assert!(waits.are_over(now) && !waits.are_used_up(now));
    }
}
