// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What snapshots take on the disk because of users' programs, and of the time of the thread that saves them: each user has a share, or one would use up
//! all of it with his, and nobody else's moments would be saved.
//!
//! What programs' rings held, and what describes their events, is on the account of the user whose programs they are, in whatever snapshot it is; the rest
//! of a snapshot is on that of the user whose programs' late work asked for it. What the kernel found, and what the recorder's own users cause, has no limit: that is what the watch is for.

use crate::program_flight::ProgramBytes;
use crate::supply::{Supply, divided, half_of_disk, own_users};
use rtscope_event::MonotonicNs;
use rtscope_programs::collector::SnapshotSpace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// What copies of rings may take of memory in one snapshot. There is at most one under way.
const MEMORY_BYTES: u64 = 1 << 30;

/// What the rings of a user may take of that: it is written in less than a second.
const USER_BYTES: u64 = 128 << 20;

/// The same while his have used up their time.
const RESTING_BYTES: u64 = 1 << 20;

/// What was written of a user's programs takes this part of the time at most, of which so much may be owed.
const TIME_PART: u64 = 10;
const OWED_NS: u64 = 100_000_000;

/// What a record takes in a trace is at most so many times what it took in a ring: one of 8 bytes has a time and its thread there.
const TRACE_OF_RING: u64 = 6;

/// More snapshots than this are never under way: those of the banks that are frozen, and the one that is written.
const UNDER_WAY_MAX: usize = 16;

/// What a snapshot has taken on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedBytes {
    /// Of the trace of programs, what describes their events.
    pub(super) descriptions: u64,
    /// The rest of it.
    pub(super) rings: u64,
    /// The time in which that trace was written.
    pub(super) took_ns: u64,
    /// All else.
    pub(super) rest: u64,
}

/// What a user's programs have taken of the time.
#[derive(Clone, Copy, Debug)]
struct Owed {
    ns: u64,
    at: MonotonicNs,
}

impl Owed {
    fn at(self, now: MonotonicNs) -> u64 {
        self.ns.saturating_sub(now.since(self.at) / TIME_PART)
    }
}

/// The shares of a watch.
#[derive(Debug)]
pub(super) struct SnapshotShares {
    own: BTreeSet<u32>,
    bytes: Supply,
    owed: BTreeMap<u32, Owed>,
    /// On whose account the last snapshots are, by their number.
    pulled: VecDeque<(u64, u32)>,
    /// Of whom it has been said that his share is used up.
    told: BTreeSet<u32>,
}

impl SnapshotShares {
    /// `bytes`: of all other users' together; `None`: half of what the disk has left. Where nothing is saved there is nothing to share.
    pub(super) fn new(dir: Option<&Path>, bytes: Option<u64>) -> SnapshotShares {
        let bytes = Supply::of(dir.and_then(|dir| bytes.or_else(|| half_of_disk(dir))));
        let (own, owed) = (own_users(), BTreeMap::new());
        SnapshotShares { own, bytes, owed, pulled: VecDeque::new(), told: BTreeSet::new() }
    }

    /// Whether a snapshot may be taken on this account (`rates::account_of`).
    pub(super) fn admits(&self, account: Option<u32>, now: MonotonicNs) -> bool {
        account.is_none_or(|user| self.is_own(user) || self.has_room(user) && !self.rests(user, now))
    }

    /// Whoever has nearly all of his share would have ever smaller ones.
    fn has_room(&self, user: u32) -> bool {
        let used = self.bytes.used_by.get(&user).copied().unwrap_or(0);
        self.bytes.left_for(user, false) > used / 16
    }

    fn rests(&self, user: u32, now: MonotonicNs) -> bool {
        self.owed.get(&user).is_some_and(|owed| owed.at(now) > OWED_NS)
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
    pub(super) fn space(&self, account: Option<u32>, now: MonotonicNs) -> SnapshotSpace {
        let most = |user: u32| if self.rests(user, now) { RESTING_BYTES } else { USER_BYTES };
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
        let of_account = of_account.map(|user| (user, on_disk(user).min(most(user))));
        let mut named: BTreeMap<u32, u64> =
            known.iter().map(|user| (*user, on_disk(*user).min(part).min(most(*user)))).collect();
        named.extend(self.own.iter().map(|user| (*user, part)));
        named.extend(account.filter(|user| self.is_own(*user)).map(|user| (user, MEMORY_BYTES / 2)));
        named.extend(of_account);
        let others = (disk.left() / TRACE_OF_RING).min(part).min(USER_BYTES);
        SnapshotSpace { named, others, descriptions_of_ring: TRACE_OF_RING }
    }

    /// A snapshot was saved, with this of programs.
    pub(super) fn saved(
        &mut self,
        number: u64,
        saved: SavedBytes,
        programs: &ProgramBytes,
        now: MonotonicNs,
    ) {
        self.take(self.account_of(number), saved.rest);
        let of_rings = divided(saved.rings, &programs.held);
        let described = divided(saved.descriptions, &programs.described);
        of_rings.chain(described).for_each(|(user, bytes)| self.take(Some(user), bytes));
        self.owed.retain(|_, owed| owed.at(now) > 0);
        // What is read takes time, also what is not in the trace: it may be older.
        for (user, took_ns) in divided(saved.took_ns, &programs.all()) {
            if took_ns > 0 && !self.is_own(user) {
                let owed_ns = self.owed.get(&user).map_or(0, |owed| owed.at(now));
                self.owed.insert(user, Owed { ns: owed_ns.saturating_add(took_ns), at: now });
            }
        }
    }

    fn take(&mut self, account: Option<u32>, bytes: u64) {
        if let Some(user) = account.filter(|user| bytes > 0 && !self.is_own(*user)) {
            self.bytes.take(&BTreeSet::from([user]), bytes);
        }
    }

    /// What there is to be said: once of each user who has used up his share.
    pub(super) fn news(&mut self) -> Vec<String> {
        let used_up =
            self.bytes.used_by.iter().filter(|(user, _)| !self.is_own(**user) && !self.has_room(**user));
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
    const NOW: MonotonicNs = MonotonicNs(1_000_000_000_000);

    fn shares(limit: u64) -> SnapshotShares {
        SnapshotShares {
            own: BTreeSet::from([0]),
            owed: BTreeMap::new(),
            bytes: Supply::of(Some(limit)),
            pulled: VecDeque::new(),
            told: BTreeSet::new(),
        }
    }

    fn saved(rings: u64, rest: u64) -> SavedBytes {
        SavedBytes { descriptions: 0, rings, rest, took_ns: 0 }
    }

    fn held(held: &[(u32, u64)]) -> ProgramBytes {
        ProgramBytes { held: held.iter().copied().collect(), ..ProgramBytes::default() }
    }

    #[test]
    fn who_fills_the_disk_leaves_others_half_of_the_rest() {
        let mut shares = shares(400 * MIB);
        let mut taken = 0_u64;
        while shares.admits(Some(7), NOW) {
            let bytes = shares.space(Some(7), NOW).named[&7].min(100 * MIB);
            shares.pulled(taken, Some(7));
            shares.saved(taken, saved(bytes * TRACE_OF_RING, MIB), &held(&[(7, bytes)]), NOW);
            taken += 1;
            assert!(taken < 100, "he never has enough");
        }
        assert!(shares.bytes.used <= 201 * MIB);
        assert!(shares.space(Some(8), NOW).named[&8] * TRACE_OF_RING >= 99 * MIB);
        assert!(shares.admits(Some(8), NOW) && shares.admits(None, NOW) && shares.admits(Some(0), NOW));
        assert_eq!(shares.space(None, NOW).named[&7], 0, "also in what the kernel found");
    }

    #[test]
    fn rings_are_on_the_account_of_their_own_user() {
        let mut shares = shares(400 * MIB);
        shares.pulled(2, Some(8));
        shares.pulled(3, Some(0));
        shares.saved(1, saved(80, 1000), &held(&[(7, 300), (8, 100), (0, 0)]), NOW);
        assert_eq!(shares.bytes.used_by, BTreeMap::from([(7, 60), (8, 20)]));
        shares.saved(2, saved(0, 5), &held(&[]), NOW);
        shares.saved(3, saved(100, 5), &held(&[(0, 300)]), NOW);
        assert_eq!(shares.bytes.used_by, BTreeMap::from([(7, 60), (8, 25)]));
    }

    #[test]
    fn descriptions_are_on_the_account_of_who_describes() {
        let mut shares = shares(400 * MIB);
        let described = BTreeMap::from([(7, 900), (8, 100)]);
        let programs = ProgramBytes { held: BTreeMap::from([(7, 1), (8, 99)]), described };
        shares.saved(1, SavedBytes { descriptions: 500, rings: 200, rest: 0, took_ns: 0 }, &programs, NOW);
        assert_eq!(shares.bytes.used_by, BTreeMap::from([(7, 450 + 2), (8, 50 + 198)]));
    }

    #[test]
    fn who_has_large_buffers_is_saved_in_a_tenth_of_the_time() {
        let mut shares = shares(u64::MAX);
        let (mut now, mut written_ns) = (NOW, 0);
        let second_ns = 1_000_000_000;
        while now.since(NOW) < 100 * second_ns {
            // Others, and the kernel, are saved all the time.
            assert!(shares.admits(Some(8), now) && shares.admits(None, now) && shares.admits(Some(0), now));
            let account = shares.admits(Some(7), now).then_some(7);
            let in_it = shares.space(account, now).named.get(&7).copied().unwrap_or(USER_BYTES);
            assert!(account.is_some() || in_it == RESTING_BYTES, "{in_it}");
            let took_ns = in_it * 1000 / USER_BYTES * (second_ns / 1000);
            shares.saved(1, SavedBytes { took_ns, ..saved(1, 0) }, &held(&[(7, in_it), (8, 0), (0, 0)]), now);
            written_ns += took_ns;
            now = now.plus(second_ns);
        }
        assert!((10 * second_ns..13 * second_ns).contains(&written_ns), "{written_ns}");
    }

    #[test]
    fn all_rings_of_a_snapshot_have_so_much_memory() {
        let mut shares = shares(u64::MAX);
        let users: Vec<(u32, u64)> = (1..100).map(|user| (user, 10)).collect();
        shares.saved(1, saved(1000, 0), &held(&users), NOW);
        for account in [None, Some(0), Some(7), Some(200)] {
            let space = shares.space(account, NOW);
            assert!(space.named.values().sum::<u64>() + space.others <= MEMORY_BYTES, "{account:?}");
        }
        assert_eq!(shares.space(Some(7), NOW).named[&7], USER_BYTES);
        assert_eq!(shares.space(Some(0), NOW).named[&0], MEMORY_BYTES / 2);
    }

    #[test]
    fn it_is_said_once_of_each() {
        let mut shares = shares(10);
        shares.pulled(1, Some(7));
        shares.pulled(2, Some(8));
        shares.saved(1, saved(0, 5), &held(&[]), NOW);
        assert_eq!((shares.news().len(), shares.news().len()), (1, 0));
        shares.saved(2, saved(0, 5), &held(&[]), NOW);
        assert_eq!(shares.news().len(), 1);
    }
}
