// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of users in what there is only so much of: traces, bytes on a disk, memory.
//!
//! The rule is that of mapped files (`programs::budget`): a user gets at most half of what the others leave. The recorder's own user, and who has become
//! root by sudo(8), get all that is left.

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Something of which there is only so much.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supply {
    /// `None`: any amount.
    pub(crate) limit: Option<u64>,
    pub(crate) used: u64,
    pub(crate) used_by: BTreeMap<u32, u64>,
}

impl Supply {
    pub(crate) fn of(limit: Option<u64>) -> Supply {
        Supply { limit, ..Supply::default() }
    }

    pub(crate) fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.used))
    }

    /// What a user may still use.
    pub(crate) fn left_for(&self, user: u32, is_own: bool) -> u64 {
        let Some(limit) = self.limit.filter(|_| !is_own) else { return self.left() };
        let mine = self.used_by.get(&user).copied().unwrap_or(0);
        let of_others = self.used.saturating_sub(mine);
        limit.saturating_sub(of_others).div_ceil(2).saturating_sub(mine).min(self.left())
    }

    /// Used once, by all of these together.
    pub(crate) fn take(&mut self, users: &BTreeSet<u32>, amount: u64) {
        self.used = self.used.saturating_add(amount);
        for user in users {
            let used = self.used_by.entry(*user).or_default();
            *used = used.saturating_add(amount);
        }
    }

    /// Used by these users: each of what was his own of it, by `by_user`, and by all of them together what was of others.
    pub(crate) fn take_parts(&mut self, users: &BTreeSet<u32>, amount: u64, by_user: &BTreeMap<u32, u64>) {
        for (users, part) in parts(users, amount, by_user) {
            self.take(&users, part);
        }
    }

    /// The same was not used, or is not any more.
    pub(crate) fn give_parts_back(
        &mut self,
        users: &BTreeSet<u32>,
        amount: u64,
        by_user: &BTreeMap<u32, u64>,
    ) {
        for (users, part) in parts(users, amount, by_user) {
            self.give_back(&users, part);
        }
    }

    /// It was not used, or is not any more.
    pub(crate) fn give_back(&mut self, users: &BTreeSet<u32>, amount: u64) {
        self.used = self.used.saturating_sub(amount);
        for user in users {
            let used = self.used_by.entry(*user).or_default();
            *used = used.saturating_sub(amount);
        }
    }
}

fn parts(users: &BTreeSet<u32>, amount: u64, by_user: &BTreeMap<u32, u64>) -> Vec<(BTreeSet<u32>, u64)> {
    let own = divided(amount, by_user).filter(|(user, _)| users.contains(user));
    let mut parts: Vec<(BTreeSet<u32>, u64)> =
        own.map(|(user, part)| (BTreeSet::from([user]), part)).collect();
    let rest = parts.iter().fold(amount, |rest, (_, part)| rest.saturating_sub(*part));
    parts.push((users.clone(), rest));
    parts
}

/// Each user's part of what all of these have taken together.
pub(crate) fn divided(amount: u64, by_user: &BTreeMap<u32, u64>) -> impl Iterator<Item = (u32, u64)> {
    let all = by_user.values().fold(0_u64, |all, mine| all.saturating_add(*mine)).max(1);
    by_user.iter().map(move |(user, mine)| {
        let part = u128::from(amount) * u128::from(*mine) / u128::from(all);
        (*user, u64::try_from(part).unwrap_or(u64::MAX))
    })
}

/// The recorder's own users: its own, and who has become root by sudo(8).
pub(crate) fn own_users() -> BTreeSet<u32> {
    let by_sudo = || std::env::var("SUDO_UID").ok()?.parse().ok();
    let user = geteuid();
    [Some(user.as_raw()), user.is_root().then(by_sudo).flatten()].into_iter().flatten().collect()
}

/// Half of what the disk of a directory has left; `None`: it does not say.
pub(crate) fn half_of_disk(place: &Path) -> Option<u64> {
    let disk = statvfs(place).ok()?;
    Some(disk.blocks_available().saturating_mul(disk.fragment_size()) / 2)
}
