// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Subordinate users (subuid(5)): numbers that an ordinary user may give to the users of his user namespaces, usually 65 536 of them.
//!
//! Each of them can have a directory of its own, and they are all one person. So what they cost is on that person's account.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

const RANGES: &str = "/etc/subuid";
const USERS: &str = "/etc/passwd";
/// Between looks whether the ranges have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The ranges, as the files of this machine have them. Those that only a directory service knows are not known here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subordinates {
    ranges: Vec<Range>,
    /// Users with a name are nobody's subordinates, whatever the ranges say.
    named: Vec<u32>,
    read: Option<SystemTime>,
    looked: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
    owner: u32,
}

impl Subordinates {
    /// The user whose account a user is on.
    pub(crate) fn account_of(&mut self, user: u32) -> u32 {
        self.update();
        self.owner(user)
    }

    /// Whether a user has a name on this machine. One that only a directory service knows has none.
    pub(crate) fn has_name(&mut self, user: u32) -> bool {
        self.update();
        self.named.binary_search(&user).is_ok()
    }

    fn update(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        let is_first = self.looked.replace(Instant::now()).is_none();
        let changed = fs::metadata(RANGES).and_then(|file| file.modified()).ok();
        if changed != self.read || is_first {
            let text = |path: &str| {
                fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
            };
            let looked = self.looked;
            *self = Subordinates { read: changed, looked, ..Subordinates::of(&text(RANGES), &text(USERS)) };
        }
    }

    fn owner(&self, user: u32) -> u32 {
        let of = |range: &&Range| user.checked_sub(range.first).is_some_and(|place| place < range.count);
        match self.ranges.iter().find(of) {
            Some(range) if self.named.binary_search(&user).is_err() => range.owner,
            _ => user,
        }
    }

    /// `ranges`: "NAME-OR-NUMBER:FIRST:COUNT" in each line; `users`: passwd(5).
    fn of(ranges: &str, users: &str) -> Subordinates {
        let user = |line: &str| -> Option<(String, u32)> {
            let mut words = line.split(':');
            Some((words.next()?.to_string(), words.nth(1)?.parse().ok()?))
        };
        let users: Vec<(String, u32)> = users.lines().filter_map(user).collect();
        let range = |line: &str| -> Option<Range> {
            let mut words = line.trim().split(':');
            let (owner, first, count) =
                (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let known = users.iter().find(|(name, _)| name == owner).map(|(_, number)| *number);
            // Of a user who is not known, the whole range is one account.
            let owner = known.or_else(|| owner.parse().ok()).unwrap_or(first);
            // Root has no limits of number, and nobody gets that from here.
            (owner != 0 && first != 0).then_some(Range { first, count, owner })
        };
        let mut named: Vec<u32> = users.iter().map(|(_, number)| *number).collect();
        named.sort_unstable();
        Subordinates { ranges: ranges.lines().filter_map(range).collect(), named, ..Subordinates::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_users_are_on_the_account_of_their_user() {
        let users = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbob:x:100005:1:::\n";
        let ranges =
            "ada:100000:65536\n1001:165536:65536\ngone:300000:10\n# a remark\nroot:400000:10\nada:x:1\n";
        let all = Subordinates::of(ranges, users);
        let owners = [1000, 1001, 99_999, 100_000, 165_535, 165_536, 231_072, 300_009, 300_010, 400_000, 0];
        let expected = [1000, 1001, 99_999, 1000, 1000, 1001, 231_072, 300_000, 300_010, 400_000, 0];
        assert_eq!(owners.map(|user| all.owner(user)), expected);
        // One with a name of its own is itself.
        assert_eq!(all.owner(100_005), 100_005);
    }
}
