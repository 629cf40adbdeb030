// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of the watch's time the stacks of a user may take; and what else keeps reports waiting for as long as a user likes.
//!
//! Stacks are made one after the other, and while one is made nothing else is reported. What one takes its program decides: a list of ten thousand mappings,
//! unwind information on which to spend 100 ms. So each user's stacks have a share of the time, and wait for nobody else's when it is used up.

use rtscope_procs::is_trusted;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One part in so many of the time is each user's.
const SHARE: u32 = 10;
/// So much can be used at once after a time of quiet: what it takes to read the debug information of a large library, which is done once for all.
const BURST: Duration = Duration::from_secs(1);
/// Users that are told apart. A user can have 65 536 of a namespace: the others share what one has.
const USERS_MAX: usize = 64;

/// Whom it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum User {
    One(u32),
    Others,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// How much it has used beyond what it had.
    owed: Duration,
    at: Instant,
}

/// The time that has been taken for each user, of whom each has a tenth. Root has all, and the user of this process.
#[derive(Debug)]
pub struct Budget {
    accounts: HashMap<User, Account>,
    burst: Duration,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::with_burst(BURST)
    }
}

impl Budget {
    /// So much can be used at once after a time of quiet.
    #[must_use]
    pub fn with_burst(burst: Duration) -> Budget {
        Budget { accounts: HashMap::new(), burst }
    }

    /// Whether time may be taken for this user now.
    #[must_use]
    pub fn allows(&self, uid: u32, now: Instant) -> bool {
        is_trusted(uid) || self.owed(self.user(uid), now) < self.burst
    }

    /// So much was taken for this user.
    pub fn charge(&mut self, uid: u32, now: Instant, time: Duration) {
        if !is_trusted(uid) {
            let user = self.user(uid);
            let owed = self.owed(user, now) + time;
            self.accounts.insert(user, Account { owed, at: now });
        }
    }

    fn user(&self, uid: u32) -> User {
        let one = User::One(uid);
        if self.accounts.contains_key(&one) || self.accounts.len() < USERS_MAX { one } else { User::Others }
    }

    fn owed(&self, user: User, now: Instant) -> Duration {
        let Some(account) = self.accounts.get(&user) else { return Duration::ZERO };
        account.owed.saturating_sub(now.saturating_duration_since(account.at) / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIAR: u32 = 4_000_000_000;

    #[test]
    fn who_takes_time_waits_and_nobody_else_does() {
        let (start, mut budget) = (Instant::now(), Budget::default());
        budget.charge(LIAR, start, Duration::from_millis(999));
        assert!(budget.allows(LIAR, start));
        budget.charge(LIAR, start, Duration::from_millis(101));
        let after = |ms| start + Duration::from_millis(ms);
        assert!(!budget.allows(LIAR, start) && !budget.allows(LIAR, after(1000)));
        assert!(budget.allows(LIAR, after(1001)), "a tenth of a second in a second");
        assert!(budget.allows(LIAR + 1, start) && budget.allows(0, start));
        budget.charge(0, start, Duration::from_secs(9));
        assert!(budget.allows(0, start), "root may do what it likes");
    }

    #[test]
    fn a_user_with_many_numbers_shares_one_part() {
        let (start, mut budget) = (Instant::now(), Budget::default());
        for number in 0..1000 {
            budget.charge(LIAR + number, start, Duration::from_millis(10));
        }
        assert!(budget.accounts.len() <= USERS_MAX + 1);
        assert!(!budget.allows(LIAR + 5000, start) && budget.allows(LIAR, start));
    }
}
