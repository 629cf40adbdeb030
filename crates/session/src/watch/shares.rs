// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What snapshots take on the disk because of users' programs: each user has a share (`supply`), or one would fill the disk with his, and nobody
//! else's moments would be saved.
//!
//! What programs' rings held is on the account of the user whose programs they are, in whatever snapshot it is; the rest of a snapshot is on that of the
//! user whose programs' late work asked for it. What the kernel found, and what the recorder's own users cause, has no limit: that is what the watch is for.

use crate::supply::{Supply, half_of_disk, own_users};
use rtscope_programs::collector::SnapshotSpace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// What copies of rings may take of memory in one snapshot. There is at most one under way.
const MEMORY_BYTES: u64 = 1 << 30;

/// What a record takes in a trace is at most so many times what it took in a ring: one of 8 bytes has a time and its thread there.
const TRACE_OF_RING: u64 = 6;

/// More snapshots than this are never under way: those of the banks that are frozen, and the one that is written.
const UNDER_WAY_MAX: usize = 16;

/// What a snapshot has taken on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedBytes {
    /// The trace of programs.
    pub(super) programs: u64,
    /// All else.
    pub(super) rest: u64,
}

/// The shares of a watch.
#[derive(Debug)]
pub(super) struct SnapshotShares {
    own: BTreeSet<u32>,
    bytes: Supply,
    /// On whose account the last snapshots are, by their number.
    pulled: VecDeque<(u64, u32)>,
    /// Of whom it has been said that his share is used up.
    told: BTreeSet<u32>,
}

impl SnapshotShares {
    /// `bytes`: of all other users' together; `None`: half of what the disk has left. Where nothing is saved there is nothing to share.
    pub(super) fn new(dir: Option<&Path>, bytes: Option<u64>) -> SnapshotShares {
        let bytes = Supply::of(dir.and_then(|dir| bytes.or_else(|| half_of_disk(dir))));
        SnapshotShares { own: own_users(), bytes, pulled: VecDeque::new(), told: BTreeSet::new() }
    }

    /// Whether a snapshot may be taken on this account (`rates::account_of`). Whoever has nearly all of his share would have ever smaller ones.
    pub(super) fn admits(&self, account: Option<u32>) -> bool {
        let used = |user: u32| self.bytes.used_by.get(&user).copied().unwrap_or(0);
        account.is_none_or(|user| self.is_own(user) || self.bytes.left_for(user, false) > used(user) / 16)
    }

    /// A snapshot was asked for on this account.
    pub(super) fn pulled(&mut self, number: u64, account: Option<u32>) {
        let Some(user) = account else { return };
        if self.pulled.len() == UNDER_WAY_MAX {
            self.pulled.pop_front();
        }
        self.pulled.push_back((number, user));
    }

    /// On whose account a snapshot is; `None`: the kernel's.
    pub(super) fn account_of(&self, number: u64) -> Option<u32> {
        self.pulled.iter().find(|(pulled, _)| *pulled == number).map(|(_, user)| *user)
    }

    fn is_own(&self, user: u32) -> bool {
        self.own.contains(&user)
    }

    /// What rings may take in the next snapshot, which is on this account.
    pub(super) fn space(&self, account: Option<u32>) -> SnapshotSpace {
        // Of the disk one after the other; of memory half for whom it is about, the rest in equal parts.
        let mut disk = self.bytes.clone();
        let mut on_disk = |user: u32| {
            let bytes = disk.left_for(user, false);
            disk.take(&BTreeSet::from([user]), bytes);
            bytes / TRACE_OF_RING
        };
        let known = self.bytes.used_by.keys().filter(|user| !self.is_own(**user) && Some(**user) != account);
        let known: Vec<u32> = known.copied().collect();
        let parts = known.len() + self.own.len() + 1;
        let part = MEMORY_BYTES / 2 / u64::try_from(parts).unwrap_or(u64::MAX);
        let of_account = account.filter(|user| !self.is_own(*user));
        let of_account = of_account.map(|user| (user, on_disk(user).min(MEMORY_BYTES / 2)));
        let mut named: BTreeMap<u32, u64> =
            known.iter().map(|user| (*user, on_disk(*user).min(part))).collect();
        named.extend(self.own.iter().map(|user| (*user, part)));
        named.extend(account.filter(|user| self.is_own(*user)).map(|user| (user, MEMORY_BYTES / 2)));
        named.extend(of_account);
        SnapshotSpace { named, others: (disk.left() / TRACE_OF_RING).min(part) }
    }

    /// A snapshot was saved. `held`: what the rings in it held, by user.
    pub(super) fn saved(&mut self, number: u64, bytes: SavedBytes, held: &BTreeMap<u32, u64>) {
        self.take(self.account_of(number), bytes.rest);
        let all = held.values().fold(0_u64, |all, held| all.saturating_add(*held));
        for (user, held) in held {
            let part = u128::from(bytes.programs) * u128::from(*held) / u128::from(all.max(1));
            self.take(Some(*user), u64::try_from(part).unwrap_or(u64::MAX));
        }
    }

    fn take(&mut self, account: Option<u32>, bytes: u64) {
        if let Some(user) = account.filter(|user| bytes > 0 && !self.is_own(*user)) {
            self.bytes.take(&BTreeSet::from([user]), bytes);
        }
    }

    /// What there is to be said: once of each user who has used up his share.
    pub(super) fn news(&mut self) -> Vec<String> {
        let used_up = self.bytes.used_by.iter().filter(|(user, _)| !self.admits(Some(**user)));
        let new = used_up.filter(|(user, _)| !self.told.contains(user));
        let new: Vec<(u32, u64)> = new.map(|(user, bytes)| (*user, *bytes)).collect();
        self.told.extend(new.iter().map(|(user, _)| *user));
        let text = |(user, bytes): (u32, u64)| {
            format!(
                "snapshots have {} MiB on the disk because of programs of user {user}, which is his share (--snapshots-size): no more are saved for them, \
                 and none has more of their events",
                bytes.div_ceil(1 << 20)
            )
        };
        new.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shares(limit: u64) -> SnapshotShares {
        SnapshotShares {
            own: BTreeSet::from([0]),
            bytes: Supply::of(Some(limit)),
            pulled: VecDeque::new(),
            told: BTreeSet::new(),
        }
    }

    fn saved(programs: u64, rest: u64) -> SavedBytes {
        SavedBytes { programs, rest }
    }

    #[test]
    fn who_fills_the_disk_leaves_others_half_of_the_rest() {
        let mut shares = shares(400 * MIB);
        let mut taken = 0_u64;
        while shares.admits(Some(7)) {
            let held = shares.space(Some(7)).named[&7].min(100 * MIB);
            shares.pulled(taken, Some(7));
            shares.saved(taken, saved(held * TRACE_OF_RING, MIB), &BTreeMap::from([(7, held)]));
            taken += 1;
            assert!(taken < 100, "he never has enough");
        }
        assert!(shares.bytes.used <= 201 * MIB);
        assert!(shares.space(Some(8)).named[&8] * TRACE_OF_RING >= 99 * MIB);
        assert!(shares.admits(Some(8)) && shares.admits(None) && shares.admits(Some(0)));
        assert_eq!(shares.space(None).named[&7], 0, "also in what the kernel found");
    }

    #[test]
    fn rings_are_on_the_account_of_their_own_user() {
        let mut shares = shares(400 * MIB);
        shares.pulled(2, Some(8));
        shares.pulled(3, Some(0));
        shares.saved(1, saved(80, 1000), &BTreeMap::from([(7, 300), (8, 100), (0, 0)]));
        assert_eq!(shares.bytes.used_by, BTreeMap::from([(7, 60), (8, 20)]));
        shares.saved(2, saved(0, 5), &BTreeMap::new());
        shares.saved(3, saved(100, 5), &BTreeMap::from([(0, 300)]));
        assert_eq!(shares.bytes.used_by, BTreeMap::from([(7, 60), (8, 25)]));
    }

    #[test]
    fn all_rings_of_a_snapshot_have_so_much_memory() {
        let mut shares = shares(u64::MAX);
        let held = (1..100).map(|user| (user, 10)).collect();
        shares.saved(1, saved(1000, 0), &held);
        for account in [None, Some(0), Some(7), Some(200)] {
            let space = shares.space(account);
            assert!(space.named.values().sum::<u64>() + space.others <= MEMORY_BYTES, "{account:?}");
        }
        assert_eq!(shares.space(Some(7)).named[&7], MEMORY_BYTES / 2);
    }

    #[test]
    fn it_is_said_once_of_each() {
        let mut shares = shares(10);
        shares.pulled(1, Some(7));
        shares.pulled(2, Some(8));
        shares.saved(1, saved(0, 5), &BTreeMap::new());
        assert_eq!((shares.news().len(), shares.news().len()), (1, 0));
        shares.saved(2, saved(0, 5), &BTreeMap::new());
        assert_eq!(shares.news().len(), 1);
    }
}
