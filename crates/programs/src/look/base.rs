// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory with users' directories.

use super::place::POLL_INTERVAL;
use crate::directory::UserDirectory;
use crate::mounts::status_below;
use nix::dir::{Dir, OwningIter};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reading a directory of directories, and looking at what its names are, takes at most one part in this many of the time.
const READING_SHARE: u32 = 20;
/// Names that are read before the time is looked at.
const NAMES_AT_ONCE: usize = 128;
const FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A directory with users' directories, which is read in parts: anybody can make any number of names in it.
#[derive(Debug)]
pub(super) struct Base {
    path: PathBuf,
    /// Opened once in a round: another one may be mounted over it.
    dir: Option<OwnedFd>,
    reading: Option<OwningIter>,
    read: usize,
    spent: Duration,
    /// When to read it again.
    pub(super) next: Instant,
    /// How often it has been read to its end.
    pub(super) rounds: u64,
}

/// Some of the names.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The users whose directories these are, by their names.
    pub(super) users: Vec<u32>,
    /// There are no more.
    pub(super) is_over: bool,
    /// There are more than are to be read.
    pub(super) is_crowded: bool,
}

impl Base {
    pub(super) fn new(path: PathBuf) -> Base {
        let (dir, reading, spent) = (None, None, Duration::ZERO);
        Base { path, dir, reading, read: 0, spent, next: Instant::now(), rounds: 0 }
    }

    /// Whether a round has begun that is not over.
    pub(super) fn is_being_read(&self) -> bool {
        self.reading.is_some()
    }

    /// The next part. `limit`: names that are read at most, in a round.
    pub(super) fn read(&mut self, limit: Option<usize>) -> Part {
        if self.reading.is_none() {
            (self.read, self.dir) = (0, None);
            self.reading = Dir::open(&self.path, FLAGS, Mode::empty()).ok().map(Dir::into_iter);
        }
        let mut part = Part::default();
        for _ in 0..NAMES_AT_ONCE {
            let Some(Ok(entry)) = self.reading.as_mut().and_then(Iterator::next) else {
                part.is_over = true;
                break;
            };
            self.read += 1;
            part.users.extend(entry.file_name().to_str().ok().and_then(UserDirectory::user_of_name));
            part.is_crowded = limit.is_some_and(|limit| self.read > limit);
            part.is_over = part.is_crowded;
            if part.is_over {
                break;
            }
        }
        // Of the owner of several in a container one is served, and his processes there count from 0.
        part.users.sort_unstable();
        part
    }

    /// Reading, and looking at what was found, has taken this time. Goes on at once with what is left, and rests after a round.
    pub(super) fn rest(&mut self, time: Duration, is_over: bool) {
        self.spent += time;
        self.next = Instant::now();
        if is_over {
            self.reading = None;
            self.rounds += 1;
            self.next += POLL_INTERVAL.max(std::mem::take(&mut self.spent) * READING_SHARE);
        }
    }

    /// What a name is, without asking whatever is mounted there.
    pub(super) fn status(&mut self, name: &str) -> nix::Result<FileStat> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => open(&self.path, FLAGS, Mode::empty())?,
        };
        status_below(self.dir.insert(dir), name)
    }
}
