// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flight recorders: who asks for a snapshot, and what the rings hold at one moment.

use super::{LossesByUser, NewEvent, NewEvents, Programs, UserLosses};
use crate::budget::{Cause, Refusal, SNAPSHOT_BYTES_MAX};
use crate::image::RingImage;
use crate::memory::let_bus_errors_through;
use crate::provider::ProviderInfo;
use crate::ring::RingInfo;
use rtscope_event::glob_matches;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a look for events that ask for a snapshot has found. Users are those on whose account the programs are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Askers {
    /// Their programs have recorded such an event.
    pub asking: BTreeSet<u32>,
    /// Records of their programs were overwritten before they were looked at, and the others ask for nothing.
    pub missed: BTreeSet<u32>,
}

/// How many bytes of users' rings a snapshot may hold, what describes their events included. Nobody's take the space of somebody else's who is named here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpace {
    /// What those of these users may take.
    pub named: BTreeMap<u32, u64>,
    /// What those of all others may take, of which each user gets half of what those before him have left.
    pub others: u64,
    /// As many bytes of descriptions are one of rings.
    pub descriptions_of_ring: u64,
}

/// What a user may have in a snapshot, and has.
#[derive(Debug)]
pub(super) struct UserSpace {
    pub(super) left: u64,
    descriptions_of_ring: u64,
    /// Copies of rings.
    held: u64,
    /// Descriptions, in the trace.
    described: u64,
    /// Those, by address: any number of programs with the same ones share them.
    descriptions: BTreeSet<usize>,
}

impl Default for SnapshotSpace {
    /// As much for each user as a snapshot ever has.
    fn default() -> SnapshotSpace {
        SnapshotSpace { named: BTreeMap::new(), others: u64::MAX, descriptions_of_ring: 1 }
    }
}

impl SnapshotSpace {
    /// What one more user's may take. Those of others have this much less then.
    fn take(&mut self, user: u32) -> u64 {
        let most = self.named.get(&user).copied().unwrap_or_else(|| {
            let half = self.others.div_ceil(2).min(SNAPSHOT_BYTES_MAX);
            self.others -= half;
            half
        });
        most.min(SNAPSHOT_BYTES_MAX)
    }
}

impl UserSpace {
    fn new(left: u64, descriptions_of_ring: u64) -> UserSpace {
        UserSpace { left, descriptions_of_ring, held: 0, described: 0, descriptions: BTreeSet::new() }
    }

    /// A ring takes so many.
    pub(super) fn hold(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        (self.left, self.held) = (self.left - bytes, self.held + bytes);
    }

    /// What describes the events of a process is to be in the trace. False: there is no space for all of it, and none of it takes any.
    pub(super) fn describe(&mut self, providers: &[&ProviderInfo]) -> bool {
        let address = |info: &ProviderInfo| Arc::as_ptr(&info.descriptions).addr();
        let asked_for = providers.iter().filter(|info| info.is_asked_for());
        let new: BTreeMap<usize, &ProviderInfo> = asked_for
            .map(|info| (address(info), *info))
            .filter(|(address, _)| !self.descriptions.contains(address))
            .collect();
        let bytes = new.values().fold(0, |sum: u64, info| sum.saturating_add(info.metadata_bytes() as u64));
        let needed = bytes.div_ceil(self.descriptions_of_ring.max(1));
        if needed > self.left {
            return false;
        }
        (self.left, self.described) = (self.left - needed, self.described + bytes);
        self.descriptions.extend(new.into_keys());
        true
    }
}

/// The content of all rings at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The providers that describe the events.
    pub providers: Vec<ProviderInfo>,
    /// The rings: their descriptions, and what they held.
    pub rings: Vec<(RingInfo, RingImage)>,
    /// The memory that copies of rings take, by the user on whose account their programs are.
    pub held: BTreeMap<u32, u64>,
    /// What their descriptions take in a trace, at most.
    pub described: BTreeMap<u32, u64>,
    /// What was left out of users, and why.
    pub refusals: Vec<Refusal>,
    /// Events that no ring could take since the recording began.
    pub lost_outside: u64,
    /// Programs that could have no files since the recording began: how many events they lost nobody knows.
    pub untraced: u64,
    /// Programs that were dropped because of one of their files: the same.
    pub dropped: u64,
    /// Whose all of these are.
    pub by_user: LossesByUser,
}

/// Events that ask for a snapshot, as they come.
struct AskingEvents<'a> {
    patterns: &'a [String],
    wants: &'a dyn Fn(&RingInfo) -> bool,
    found: Askers,
}

impl NewEvents for AskingEvents<'_> {
    fn wants(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| glob_matches(pattern.as_bytes(), name.as_bytes()))
    }

    fn wants_thread(&self, ring: &RingInfo) -> bool {
        (self.wants)(ring)
    }

    fn event(&mut self, event: &NewEvent<'_>) {
        self.found.asking.insert(event.account);
    }

    /// One is enough: the snapshot has all that has come until now.
    fn has_room(&self, account: u32, events: usize) -> bool {
        events == 0 && !self.found.asking.contains(&account)
    }

    fn waits(&self) -> bool {
        true
    }

    fn missed(&mut self, account: u32, _ring: &RingInfo) {
        self.found.missed.insert(account);
    }
}

impl Programs {
    /// Whose programs have recorded an event that matches one of these patterns since the last time, and of whose records some were overwritten
    /// before they were looked at. The first time only finds what there is already. `wants`: whether a thread's events count. Where programs are of
    /// several users, what there was no time for is the first thing in the next look.
    pub fn askers(&mut self, patterns: &[String], wants: &dyn Fn(&RingInfo) -> bool) -> Askers {
        let mut events = AskingEvents { patterns, wants, found: Askers::default() };
        self.new_events(&mut events);
        let Askers { asking, mut missed } = events.found;
        missed.retain(|user| !asking.contains(user));
        Askers { asking, missed }
    }

    /// The newest records of all rings. Each user's have a limit.
    pub fn snapshot(&mut self, mut space: SnapshotSpace) -> Snapshot {
        let_bus_errors_through();
        let mut snapshot = Snapshot::default();
        let mut spaces: BTreeMap<u32, UserSpace> = BTreeMap::new();
        // What there is no space for now is missing in this one only.
        let mut refusals = self.refusals.clone();
        for user in self.users.values().filter(|user| user.served.is_some()) {
            let space = spaces
                .entry(user.account)
                .or_insert_with(|| UserSpace::new(space.take(user.account), space.descriptions_of_ring));
            let mut is_complete = true;
            let mut of_user = UserLosses::default();
            for process in user.processes.values() {
                is_complete &= process.snapshot(&mut snapshot, space);
                of_user.add(process.outside());
            }
            snapshot.by_user.entry(user.directory.uid).or_default().add(of_user);
            if !is_complete {
                refusals.add(user.account, Cause::NotTaken, &user.directory.path.display().to_string());
            }
        }
        snapshot.held = spaces.iter().map(|(account, space)| (*account, space.held)).collect();
        snapshot.described = spaces.iter().map(|(account, space)| (*account, space.described)).collect();
        snapshot.refusals = refusals.list();
        for (uid, past) in self.past_by_user() {
            snapshot.by_user.entry(uid).or_default().add(past.outside());
            snapshot.lost_outside = snapshot.lost_outside.saturating_add(past.outside().lost);
            snapshot.untraced = snapshot.untraced.saturating_add(past.untraced);
            snapshot.dropped = snapshot.dropped.saturating_add(past.dropped);
        }
        snapshot
    }

    /// The same, after a look that was not answered in time: whose programs may be missing is told in it.
    pub fn snapshot_of_seen(&mut self, space: SnapshotSpace) -> Snapshot {
        let mut snapshot = self.snapshot(space);
        let missing = |user| Refusal { user, cause: Cause::NotLookedAt, count: 1, example: String::new() };
        snapshot.refusals.extend(self.unseen().into_iter().map(missing));
        snapshot
    }

    /// Drops threads and processes that ended longer ago than any snapshot reaches back.
    pub fn forget_ended(&mut self, before: Duration) {
        for user in self.users.values_mut().filter(|user| user.served.is_some()) {
            user.forget_ended(&self.look, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Descriptions;
    use crate::patterns::RequestedEvents;

    #[test]
    fn of_the_space_for_others_each_gets_half_of_what_is_left_and_who_is_named_gets_his() {
        let mut space = SnapshotSpace {
            named: BTreeMap::from([(1, 700), (2, u64::MAX)]),
            others: 100,
            descriptions_of_ring: 1,
        };
        let taken: Vec<u64> = [7, 1, 8, 2, 9].map(|user| space.take(user)).to_vec();
        assert_eq!(taken, [50, 700, 25, SNAPSHOT_BYTES_MAX, 13]);
        let mut all = SnapshotSpace::default();
        assert!((0..1000).all(|user| all.take(user) == SNAPSHOT_BYTES_MAX));
    }

    #[test]
    fn what_describes_events_takes_space_once() {
        let provider = |name: &str| {
            let text = format!("test:{name} 6\nu64 x\n\0");
            let descriptions =
                Descriptions::parse(text.as_bytes(), 1, 0, &RequestedEvents::default()).unwrap();
            ProviderInfo { descriptions: Arc::new(descriptions), ..ProviderInfo::default() }
        };
        let (one, other) = (provider("one"), provider("other"));
        let bytes = one.metadata_bytes() as u64;
        let mut space = UserSpace::new(bytes, 1);
        // Any number of programs have the same ones.
        assert!(space.describe(&[&one, &one]) && space.describe(&[&one]) && !space.describe(&[&one, &other]));
        assert_eq!((space.left, space.described), (0, bytes));
        // What nobody asked for is not in a trace.
        assert!(space.describe(&[&one, &ProviderInfo::default()]));
        let mut space = UserSpace::new(bytes, 6);
        assert!(space.describe(&[&one]) && space.left == bytes - bytes.div_ceil(6));
        space.hold(u64::MAX);
        assert_eq!((space.left, space.held), (0, bytes - bytes.div_ceil(6)));
    }
}
