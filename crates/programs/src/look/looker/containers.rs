// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding containers: who is in them by a census, whose they are, and the way to their `/dev/shm` by walks.

use super::{Looker, SCAN_INTERVAL, WALK_AGAIN};
use crate::budget::Cause;
use crate::census::Inhabitant;
use crate::containers::Discovery;
use crate::directory::SHARED_MEMORY;
use crate::look::base::Base;
use crate::look::walker::{Walk, Way};
use crate::look::watch::Watched;
use crate::look::{Found, Until};
use crate::mounts::descriptor_path;
use std::sync::Arc;
use std::time::Instant;

fn is_here(here: &[Inhabitant], pid: u32) -> bool {
    here.iter().any(|process| process.pid == pid)
}

impl Looker {
    /// Finds containers by the newest census.
    pub(super) fn find_containers(&mut self) {
        let census = Arc::clone(self.census.newest());
        self.containers.update(&census);
        let all = &census.containers;
        self.owners.retain(|mounts, _| all.contains_key(mounts));
        self.walked.retain(|mounts, _| all.contains_key(mounts));
        // Those that were visited longest ago come first.
        let mut due: Vec<(Option<Instant>, u64)> = Vec::new();
        for (mounts, here) in all {
            let is_same = self.owners.get(mounts).is_some_and(|(pid, _)| is_here(here, *pid));
            match self.walked.get(mounts) {
                Some((at, true)) if is_same && at.elapsed() < WALK_AGAIN => {}
                walked => due.push((walked.map(|(at, _)| *at), *mounts)),
            }
        }
        due.sort_unstable();
        for walk in self.walker.retain(SCAN_INTERVAL, |mounts| all.contains_key(&mounts)) {
            self.tell_late(&walk);
        }
        for (_, mounts) in due {
            let here = all.get(&mounts).cloned().unwrap_or_default();
            let owner = match self.owners.get(&mounts) {
                // The kernel gives the number of one that is gone to the next one, which may be another user's.
                Some((pid, owner)) if is_here(&here, *pid) => *owner,
                known => {
                    let before = known.map(|(_, owner)| *owner);
                    self.walked.remove(&mounts);
                    // Whoever's processes have all just ended would be taken for root: the next scan tells.
                    let Some((pid, owner)) = self.maker_of_mounts(&here) else { continue };
                    self.owners.insert(mounts, (pid, owner));
                    if before.is_some_and(|before| before != owner) {
                        self.containers.is_no_more_of(mounts);
                    }
                    owner
                }
            };
            let user = owner.map_or(0, |owner| self.subordinates.account_of(owner));
            let answer = here.iter().filter(|process| process.does_answer);
            let pids: Vec<u32> = answer.map(|process| process.pid).collect();
            // Who does not answer is told of.
            if !pids.is_empty() {
                let do_all_answer = pids.len() == here.len();
                self.walker.ask(Walk { mounts, pids, do_all_answer, owner, user });
            }
        }
    }

    /// Who made a mount namespace, by the first of these processes that is there and answers.
    fn maker_of_mounts(&mut self, here: &[Inhabitant]) -> Option<(u32, Option<u32>)> {
        here.iter().filter(|process| process.does_answer).take(8).find_map(|Inhabitant { pid, .. }| {
            let account = self.subordinates.account_of(rtscope_procs::user_of(*pid)?);
            Some((*pid, self.processes.maker_of_mounts(account, *pid)?.ok()?))
        })
    }

    fn tell_late(&mut self, walk: &Walk) {
        let pid = walk.pids.first().copied().unwrap_or_default();
        self.out.tell(Found::Refusal(walk.user, Cause::ContainersLate, format!("process {pid}")));
    }

    /// Takes what walks to containers have found.
    pub(super) fn fetch_walks(&mut self) {
        for (walk, way) in self.walker.results() {
            let found = self.walk_ended(&walk, way);
            if self.owners.get(&walk.mounts).is_some_and(|(_, owner)| *owner == walk.owner) {
                self.walked.insert(walk.mounts, (Instant::now(), found));
            }
        }
        for walk in self.walker.late() {
            self.tell_late(&walk);
        }
    }

    /// Returns whether the `/dev/shm` is known now.
    fn walk_ended(&mut self, walk: &Walk, way: Way) -> bool {
        let pid = walk.pids.first().copied().unwrap_or_default();
        let (cause, example) = match way {
            Ok(None) => return false,
            Ok(Some(mut shm)) => {
                // Subordinate users whose numbers a process does not have: those who mount for it.
                shm.is_its_users |=
                    walk.user != 0 && self.subordinates.account_of(shm.status.st_uid) == walk.user;
                let shown = || format!("/proc/{pid}/root{SHARED_MEMORY}");
                match self.containers.found(&self.base, (walk.mounts, pid), shm, (walk.owner, walk.user)) {
                    Discovery::Known => return true,
                    Discovery::Own => return false,
                    Discovery::New => {
                        self.add_container();
                        return true;
                    }
                    // It may be that of a container around it, which is known the next time.
                    Discovery::OfOthers if !self.walked.contains_key(&walk.mounts) => return false,
                    Discovery::OfOthers => (Cause::ShmOfOthers, shown()),
                    Discovery::TooMany => (Cause::TooManyContainers, shown()),
                }
            }
            Err(why) => (Cause::Unreachable, format!("process {pid}: {why}")),
        };
        // Each container once. The kernel gives its number to another user's when it is gone.
        if self.told.insert(format!("{cause:?} {} {}", walk.user, walk.mounts)) {
            self.out.tell(Found::Refusal(walk.user, cause, example));
        }
        false
    }

    /// The last container is new.
    pub(super) fn add_container(&mut self) {
        let Some(container) = self.containers.all.last() else { return };
        let path = descriptor_path(&container.dir);
        if let Some(watch) = &mut self.watch {
            // Without the watch their directories are found when it is next read.
            let _ = watch.watch(&path, Watched::Base(container.number));
        }
        let number = container.number;
        self.bases.insert(number, Base::new(path, false));
        self.begin_base(number);
        for look in self.looks.iter_mut().filter(|look| look.until == Until::AllWalked) {
            look.rounds.insert(number, 1);
        }
    }
}
