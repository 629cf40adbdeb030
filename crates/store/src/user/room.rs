// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room on the disk among users, where a recording has no limit (`--max-size`): nobody ends that of all others by filling it.
//!
//! When little is left, each user has an equal part of that: events of whoever has written as much are left out and counted, until there is more. A user
//! who is alone has all of it.

use nix::sys::statvfs::statvfs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The file system is asked after so many bytes, and while there is far more than little after so long: its answer takes as long as a thousand
/// events. While little is left and nothing may be written, it is asked after that time, too.
const LOOK_BYTES: u64 = 1 << 20;
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// Part of what is there above little that may be written unasked. Others write, too, so it is not all of it.
const UNASKED_PART: u64 = 16;
/// Little is a tenth of what there was, within these limits, and half of it at most.
const LITTLE_MIN: u64 = 64 << 20;
const LITTLE_MAX: u64 = 4 << 30;

/// What users have written, and whether there is room for more.
#[derive(Debug)]
pub(super) struct DiskRoom {
    directory: PathBuf,
    /// Less than this is little; `None`: nobody has looked.
    little: Option<u64>,
    /// What may be written in a short time without asking.
    unasked: u64,
    /// How much there was when it became little, and what each has written since; `None`: there is more.
    left: Option<u64>,
    since: BTreeMap<u32, u64>,
    /// Of the last look, and what was written since.
    looked: Option<Instant>,
    written: u64,
    /// Who has ever written.
    users: BTreeSet<u32>,
    /// Events that were left out.
    left_out: BTreeMap<u32, u64>,
}

impl DiskRoom {
    pub(super) fn new(directory: PathBuf) -> DiskRoom {
        DiskRoom {
            directory,
            little: None,
            unasked: 0,
            left: None,
            since: BTreeMap::new(),
            looked: None,
            written: LOOK_BYTES,
            users: BTreeSet::new(),
            left_out: BTreeMap::new(),
        }
    }

    /// A user's events were written.
    pub(super) fn wrote(&mut self, uid: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.users.insert(uid);
        *self.since.entry(uid).or_default() += bytes;
        self.written += bytes;
        if self.written >= LOOK_BYTES && (self.written >= self.unasked || !self.has_just_looked()) {
            self.ask();
        }
    }

    fn ask(&mut self) {
        (self.written, self.looked) = (0, Some(Instant::now()));
        // Where it is not told, it is as if there were enough.
        if let Ok(found) = statvfs(&self.directory) {
            self.look(found.blocks_available().saturating_mul(found.fragment_size()));
        }
    }

    fn look(&mut self, free: u64) {
        let little = *self.little.get_or_insert((free / 10).clamp(LITTLE_MIN, LITTLE_MAX).min(free / 2));
        self.unasked = free.saturating_sub(little) / UNASKED_PART;
        if free < little && self.left.is_none() {
            (self.left, self.since) = (Some(free), BTreeMap::new());
        } else if free >= little {
            self.left = None;
        }
    }

    /// Whether this user's events are left out now. Others may have made room meanwhile.
    pub(super) fn refuses_now(&mut self, uid: u32) -> bool {
        if self.refuses(uid) && !self.has_just_looked() {
            self.ask();
        }
        self.refuses(uid)
    }

    fn has_just_looked(&self) -> bool {
        self.looked.is_some_and(|looked| looked.elapsed() < LOOK_AFTER)
    }

    fn refuses(&self, uid: u32) -> bool {
        let users = self.users.len() as u64;
        let written = self.since.get(&uid).copied().unwrap_or_default();
        users > 1 && self.left.is_some_and(|left| written > left / users)
    }

    /// So many were left out.
    pub(super) fn left_out(&mut self, uid: u32, events: u64) {
        if events > 0 {
            *self.left_out.entry(uid).or_default() += events;
        }
    }

    /// Events that were left out, by user.
    pub(super) fn all_left_out(&self) -> &BTreeMap<u32, u64> {
        &self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_written_more_than_his_share_is_refused_when_little_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let mut room = DiskRoom::new(directory.path().to_owned());
        room.looked = Some(Instant::now());
        room.look(1 << 30);
        room.written = 0;
        room.wrote(1000, 900_000);
        room.look(1000);
        room.wrote(1000, 600);
        assert!(!room.refuses(1000), "nobody else is there");
        room.wrote(1001, 10);
        assert!(room.refuses(1000) && !room.refuses(1001) && !room.refuses(1002));
        // Of what was there when it became little, also for whoever comes then.
        room.look(500);
        room.wrote(1001, 491);
        assert!(room.refuses(1000) && room.refuses(1001) && !room.refuses(1002));
        room.look(1 << 30);
        assert!(!room.refuses(1000), "there is room again");
        // Whoever is refused writes nothing, and there is room again all the same.
        room.look(100);
        room.wrote(1001, 60);
        assert!(room.refuses(1001));
        (room.little, room.looked) = (Some(0), None);
        assert!(!room.refuses_now(1001), "{room:?}");
        // Little is half of it at most.
        let mut room = DiskRoom::new(directory.path().to_owned());
        for (free, is_little) in [(20 << 20, false), (11 << 20, false), (9 << 20, true)] {
            room.look(free);
            assert_eq!(room.left.is_some(), is_little, "{free}");
        }
    }
    #[test]
    fn with_much_room_the_file_system_is_asked_seldom_and_near_the_end_for_each_mebibyte() {
        let directory = tempfile::tempdir().unwrap();
        let mut room = DiskRoom::new(directory.path().to_owned());
        let mut asks_after = |free: u64, bytes: u64| {
            room.little = Some(LITTLE_MAX);
            room.look(free);
            // Nobody waits here: it was a moment ago, or will be.
            (room.written, room.looked) = (0, Some(Instant::now() + LOOK_AFTER));
            room.wrote(1000, bytes);
            room.written == 0
        };
        let above = |bytes: u64| LITTLE_MAX + bytes;
        assert!(!asks_after(above(1 << 30), 63 << 20) && asks_after(above(1 << 30), 64 << 20));
        assert!(!asks_after(above(32 << 20), 1 << 20) && asks_after(above(32 << 20), 2 << 20));
        assert!(!asks_after(above(0), (1 << 20) - 1) && asks_after(above(0), 1 << 20));
        assert!(!asks_after(LITTLE_MAX - 1, (1 << 20) - 1) && asks_after(LITTLE_MAX - 1, 1 << 20));
        // And after a while in any case.
        (room.written, room.looked, room.unasked) = (0, None, u64::MAX);
        room.wrote(1000, 1 << 20);
        assert_eq!(room.written, 0);
    }
}
