// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers: they have directories of their own for programs' files, and other process numbers.
//!
//! A container has a mount namespace with its own `/dev/shm`, and a PID namespace. Its programs are unaware of this; root reaches
//! their files through `/proc/PID/root`. An open descriptor of their `/dev/shm` outlives them, so the events of a killed
//! container are still there. A mount namespace without its own PID namespace is not a container: its processes want to be
//! separate, and are left alone.
//!
//! Root of a container may mount anything anywhere in it. So nothing below its `/dev/shm` is opened that is on another mount, or
//! behind a link; and only a tmpfs is used, which never blocks on a user-space server as FUSE does (`mounts`).
//!
//! A container belongs to the user who made its user namespace, whatever users there are in it: `budget`.

use crate::census::Census;
use crate::directory::SHARED_MEMORY;
use crate::mounts::Shm;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest number of containers watched at a time, and of one ordinary user.
const CONTAINERS_MAX: usize = 256;
pub(crate) const CONTAINERS_OF_USER: usize = 16;

/// A container's `/dev/shm`.
#[derive(Debug)]
pub(crate) struct Container {
    /// Its number here; never 0.
    pub(crate) number: u64,
    pub(crate) dir: OwnedFd,
    /// For messages.
    pub(crate) shown: PathBuf,
    /// The user who made it; `None`: a user of this machine's first user namespace, whose directories are their owners'.
    pub(crate) user: Option<u32>,
    /// On whose account it is.
    account: u32,
    /// Its permissions.
    pub(crate) mode: u32,
    /// User and group whose `/dev/shm` it is.
    pub(crate) owner: (u32, u32),
    id: (u64, u64),
    /// Mount namespaces that see it.
    mounts: BTreeSet<u64>,
    /// Whether one of its processes ran at the last scan.
    is_inhabited: bool,
}

impl Container {
    /// Whether one of its processes ran at the last scan.
    pub(crate) fn is_inhabited(&self) -> bool {
        self.is_inhabited
    }
}

/// All containers.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    pub(crate) all: Vec<Container>,
    made: u64,
}

/// What became of a directory that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// A container of this number that was not known.
    New,
    /// One that is known.
    Known,
    /// This machine's own directory. A container that starts may see it before it has its own.
    Own,
    /// A directory of somebody else's, which a user has mounted there.
    OfOthers,
    /// There are too many.
    TooMany,
}

impl Containers {
    /// Notes which containers have running processes, by the census.
    pub(crate) fn update(&mut self, census: &Census) {
        for container in &mut self.all {
            container.mounts.retain(|mounts| census.containers.contains_key(mounts));
            container.is_inhabited = !container.mounts.is_empty();
        }
    }

    /// The kernel has given the number of a mount namespace to another user's.
    pub(crate) fn is_no_more_of(&mut self, mounts: u64) {
        for container in &mut self.all {
            container.mounts.remove(&mounts);
            container.is_inhabited = !container.mounts.is_empty();
        }
    }

    /// The `/dev/shm` of a mount namespace was found, by way of a process; its user is `user`, who may be a subordinate one of `account`'s. A user who mounts
    /// what is not his has no container: he could have any directory looked at as one, and files made in it.
    pub(crate) fn found(
        &mut self,
        own: &Path,
        (mounts, pid): (u64, u32),
        shm: Shm,
        (user, account): (Option<u32>, u32),
    ) -> Discovery {
        let Shm { dir, status, is_its_users } = shm;
        let id = (status.st_dev, status.st_ino);
        if let Some(known) = self.all.iter_mut().find(|container| container.id == id) {
            known.is_inhabited = true;
            known.mounts.insert(mounts);
            return Discovery::Known;
        }
        if fs::metadata(own).is_ok_and(|own| (own.dev(), own.ino()) == id) {
            return Discovery::Own;
        }
        if !is_its_users {
            return Discovery::OfOthers;
        }
        let of_account = self.all.iter().filter(|container| container.account == account).count();
        if self.all.len() >= CONTAINERS_MAX || account != 0 && of_account >= CONTAINERS_OF_USER {
            return Discovery::TooMany;
        }
        self.made += 1;
        self.all.push(Container {
            number: self.made,
            dir,
            shown: PathBuf::from(format!("/proc/{pid}/root{SHARED_MEMORY}")),
            user,
            account,
            mode: status.st_mode & 0o7777,
            owner: (status.st_uid, status.st_gid),
            id,
            mounts: BTreeSet::from([mounts]),
            is_inhabited: true,
        });
        Discovery::New
    }

    /// Whether no process of this container runs any more. 0 is not a container.
    pub(crate) fn is_deserted(&self, number: u64) -> bool {
        self.all.iter().any(|container| container.number == number && !container.is_inhabited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_number_that_another_users_mount_namespace_has_keeps_no_container() {
        let made = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut containers = Containers::default();
        let mut found = |mounts: u64| {
            let dir: OwnedFd = File::open(made.path()).unwrap().into();
            let status = nix::sys::stat::fstat(&dir).unwrap();
            containers.found(
                Path::new("/dev/shm"),
                (mounts, 1),
                Shm { dir, status, is_its_users: true },
                (Some(1000), 1000),
            )
        };
        assert_eq!((found(7), found(8)), (Discovery::New, Discovery::Known));
        containers.is_no_more_of(7);
        assert!(!containers.is_deserted(1), "another sees it still");
        containers.is_no_more_of(8);
        assert!(containers.is_deserted(1));
    }

    #[test]
    fn subordinate_users_of_one_account_have_the_containers_of_one() {
        let mut containers = Containers::default();
        let mut found = |mounts: u64, user: u32, account: u32| {
            let made = tempfile::tempdir_in("/dev/shm").unwrap();
            let dir: OwnedFd = File::open(made.path()).unwrap().into();
            let status = nix::sys::stat::fstat(&dir).unwrap();
            let shm = Shm { dir, status, is_its_users: true };
            containers.found(Path::new("/dev/shm"), (mounts, 1), shm, (Some(user), account))
        };
        let all: Vec<Discovery> = (0..1000)
            .map(|number| found(number, 200_000 + rtscope_event::exact::low_half(number), 1500))
            .collect();
        assert_eq!(all.iter().filter(|found| **found == Discovery::New).count(), CONTAINERS_OF_USER);
        assert_eq!((all[999], found(1000, 1001, 1001)), (Discovery::TooMany, Discovery::New));
    }
}
