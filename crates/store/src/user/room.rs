// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room on the disk among users, where a recording has no limit (`--max-size`): nobody ends that of all others by filling it.
//!
//! When little is left, events of whoever has written more than his share are left out and counted, until others have written as much. What is
//! left is for the others. A user who is alone has all of it.

use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The file system is asked after so many bytes; and, while little is left and nothing may be written, after so long.
const LOOK_BYTES: u64 = 1 << 20;
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// Little is a tenth of what there was, within these limits, and half of it at most.
const LITTLE_MIN: u64 = 64 << 20;
const LITTLE_MAX: u64 = 4 << 30;

/// What users have written, and whether there is room for more.
#[derive(Debug)]
pub(super) struct DiskRoom {
    directory: PathBuf,
    /// Less than this is little; `None`: nobody has looked.
    little: Option<u64>,
    is_little: bool,
    /// Of the last look, and what was written since.
    looked: Option<Instant>,
    written: u64,
    all: u64,
    by_user: BTreeMap<u32, u64>,
    /// Events that were left out.
    left_out: BTreeMap<u32, u64>,
}

impl DiskRoom {
    pub(super) fn new(directory: PathBuf) -> DiskRoom {
        let (by_user, left_out) = (BTreeMap::new(), BTreeMap::new());
        let (looked, written) = (None, LOOK_BYTES);
        DiskRoom { directory, little: None, is_little: false, looked, written, all: 0, by_user, left_out }
    }

    /// A user's events were written.
    pub(super) fn wrote(&mut self, uid: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        *self.by_user.entry(uid).or_default() += bytes;
        self.all += bytes;
        self.written += bytes;
        if self.written >= LOOK_BYTES {
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
        self.is_little = free < little;
    }

    /// Whether this user's events are left out now. Others may have made room meanwhile.
    pub(super) fn refuses_now(&mut self, uid: u32) -> bool {
        if self.refuses(uid) && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AFTER) {
            self.ask();
        }
        self.refuses(uid)
    }

    fn refuses(&self, uid: u32) -> bool {
        let users = self.by_user.len() as u64;
        let is_much = |bytes: u64| bytes > self.all / users.max(1);
        self.is_little && users > 1 && self.by_user.get(&uid).is_some_and(|bytes| is_much(*bytes))
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
        room.look(1 << 30);
        room.wrote(1000, 1000);
        room.look(10 << 20);
        assert!(!room.refuses(1000), "nobody else is there");
        room.wrote(1001, 10);
        assert!(room.refuses(1000) && !room.refuses(1001) && !room.refuses(1002));
        // The other has as much now.
        room.wrote(1001, 1990);
        assert!(!room.refuses(1000) && room.refuses(1001));
        room.look(1 << 30);
        assert!(!room.refuses(1001), "there is room again");
        // Whoever is refused writes nothing, and there is room again all the same.
        room.look(10 << 20);
        assert!(room.refuses(1001));
        (room.little, room.looked) = (Some(0), None);
        assert!(!room.refuses_now(1001), "{room:?}");
        // Little is half of it at most.
        let mut room = DiskRoom::new(directory.path().to_owned());
        [(1, 100), (2, 1)].into_iter().for_each(|(uid, bytes)| room.by_user.extend([(uid, bytes)]));
        room.all = 101;
        for (free, is_refused) in [(20 << 20, false), (11 << 20, false), (9 << 20, true)] {
            room.look(free);
            assert_eq!(room.refuses(1), is_refused, "{free}");
        }
    }
}
