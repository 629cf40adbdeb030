// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often something is done about what is late: a rate for each user, as one who is late all the time would take all of it.

use rtscope_event::{LateResponse, MonotonicNs};
use std::collections::HashMap;

/// Users with a rate of their own. Those beyond it, while so many are late all the time, share one.
const USERS_MAX: usize = 64;

/// On whose account a detection is: a user's whose programs said so; `None`: the kernel has found it.
pub(super) fn account_of(late: &LateResponse) -> Option<u32> {
    late.events.as_ref()?.account
}

/// At most one in each interval, for each user.
#[derive(Debug)]
pub(super) struct UserRates {
    interval_ns: u64,
    /// When the next one may come.
    next: HashMap<Option<u32>, MonotonicNs>,
    of_the_rest: MonotonicNs,
}

impl UserRates {
    pub(super) fn new(interval_ns: u64) -> UserRates {
        UserRates { interval_ns, next: HashMap::new(), of_the_rest: MonotonicNs(0) }
    }

    /// Whether one may come now.
    pub(super) fn admits(&self, account: Option<u32>, now: MonotonicNs) -> bool {
        match self.next.get(&account) {
            Some(next) => now >= *next,
            None => self.has_place(now) || now >= self.of_the_rest,
        }
    }

    /// One has come.
    pub(super) fn taken(&mut self, account: Option<u32>, now: MonotonicNs) {
        let next = now.plus(self.interval_ns);
        if self.next.len() >= USERS_MAX && !self.next.contains_key(&account) {
            self.next.retain(|_, next| *next > now);
        }
        match self.next.len() < USERS_MAX || self.next.contains_key(&account) {
            true => drop(self.next.insert(account, next)),
            false => self.of_the_rest = next,
        }
    }

    /// Whether another user can have a rate of his own.
    fn has_place(&self, now: MonotonicNs) -> bool {
        self.next.len() < USERS_MAX || self.next.values().any(|next| *next <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_NS: u64 = 1000;

    fn take(rates: &mut UserRates, account: Option<u32>, now: u64) -> bool {
        let admitted = rates.admits(account, MonotonicNs(now));
        if admitted {
            rates.taken(account, MonotonicNs(now));
        }
        admitted
    }

    #[test]
    fn who_is_late_all_the_time_takes_nothing_of_others() {
        let mut rates = UserRates::new(INTERVAL_NS);
        let of_liar = (0..10_000).filter(|now| take(&mut rates, Some(1000), *now)).count();
        assert_eq!(of_liar, 10);
        assert!(take(&mut rates, Some(1001), 10_000) && take(&mut rates, None, 10_000));
        assert!(!take(&mut rates, Some(1001), 10_999) && take(&mut rates, Some(1001), 11_000));
    }

    #[test]
    fn users_beyond_the_limit_share_a_rate_and_take_no_memory() {
        let mut rates = UserRates::new(INTERVAL_NS);
        let taken = (0..1000).filter(|user| take(&mut rates, Some(*user), 5)).count();
        assert_eq!(taken, USERS_MAX + 1);
        assert_eq!(rates.next.len(), USERS_MAX);
        // Those of before are forgotten when their time is over.
        assert!(
            take(&mut rates, Some(5000), 5 + INTERVAL_NS) && take(&mut rates, Some(5001), 5 + INTERVAL_NS)
        );
    }
}
