// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory with users' directories.

use super::place::POLL_INTERVAL;
use crate::directory::UserDirectory;
use crate::hand::{Hand, status_there};
use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode};
use nix::sys::statvfs::statvfs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reading a directory of directories, and looking at what its names are, takes at most one part in this many of the time.
const READING_SHARE: u32 = 20;
/// Names that are read before the time is looked at.
const NAMES_AT_ONCE: usize = 128;
const FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A round of reading.
#[derive(Debug)]
enum Reading {
    Here(OwningIter),
    /// What the hand reads.
    ByHand(OwnedFd),
}

/// A directory with users' directories, which is read in parts: anybody can make any number of names in it.
#[derive(Debug)]
pub(super) struct Base {
    path: PathBuf,
    /// Opened once in a round: another one may be mounted over it.
    dir: Option<OwnedFd>,
    reading: Option<Reading>,
    /// Of a container, whose user can hold it: does what may wait for him.
    pub(super) hand: Option<Arc<Hand>>,
    /// It has what it needs: nobody looks into it before.
    pub(super) is_begun: bool,
    read: usize,
    spent: Duration,
    /// When to read it again.
    pub(super) next: Instant,
    /// How often it has been read to its end.
    pub(super) rounds: u64,
    /// The newest round that somebody waits for.
    asked: u64,
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
    /// Its user does not let go of it.
    pub(super) is_held: bool,
    /// No further file can be made there.
    pub(super) is_full: bool,
    /// Only its owner may make a directory there.
    pub(super) is_closed: bool,
}

impl Base {
    /// `is_begun`: this process reads it itself.
    pub(super) fn new(path: PathBuf, is_begun: bool) -> Base {
        let (dir, reading, hand, spent) = (None, None, None, Duration::ZERO);
        Base { path, dir, reading, hand, is_begun, read: 0, spent, next: Instant::now(), rounds: 0, asked: 0 }
    }

    /// Whether a round has begun that is not over.
    pub(super) fn is_being_read(&self) -> bool {
        self.reading.is_some()
    }

    /// Somebody waits until all that is there now has been read. Returns the round in which it is.
    pub(super) fn ask(&mut self) -> u64 {
        let is_waited_for = self.asked > self.rounds;
        if !is_waited_for {
            // What has been read may have passed what is new.
            (self.reading, self.spent) = (None, Duration::ZERO);
        }
        self.asked = self.rounds + 1 + u64::from(self.is_being_read());
        self.next = Instant::now();
        self.asked
    }

    /// The next part. `limit`: names that are read at most, in a round.
    pub(super) fn read(&mut self, limit: Option<usize>) -> Part {
        let mut part = Part::default();
        if self.reading.is_none() {
            part.is_full = statvfs(&self.path).is_ok_and(|of| of.files() > 0 && of.files_free() == 0);
            part.is_closed = self.path.metadata().is_ok_and(|of| of.mode() & 0o002 == 0);
            (self.read, self.dir) = (0, None);
            self.reading = match self.hand {
                Some(_) => open(&self.path, FLAGS, Mode::empty()).ok().map(Reading::ByHand),
                None => {
                    Dir::open(&self.path, FLAGS, Mode::empty()).ok().map(|dir| Reading::Here(dir.into_iter()))
                }
            };
        }
        let names = self.names(&mut part);
        part.is_over |= names.len() < NAMES_AT_ONCE;
        for name in names {
            self.read += 1;
            part.users.extend(UserDirectory::user_of_name(&name));
            part.is_crowded = limit.is_some_and(|limit| self.read > limit);
            if part.is_crowded {
                part.is_over = true;
                break;
            }
        }
        // Of the owner of several in a container one is served, and his processes there count from 0.
        part.users.sort_unstable();
        part
    }

    /// The next names; fewer than [`NAMES_AT_ONCE`] are the last ones.
    fn names(&mut self, part: &mut Part) -> Vec<String> {
        match (&mut self.reading, &self.hand) {
            (Some(Reading::Here(reading)), _) => {
                let names = reading.take(NAMES_AT_ONCE).map_while(Result::ok);
                names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            }
            (Some(Reading::ByHand(opened)), Some(hand)) => {
                let names = hand.next_names(opened.as_fd(), NAMES_AT_ONCE);
                part.is_held =
                    names.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut);
                names.unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Reading, and looking at what was found, has taken this time. Goes on at once with what is left, and rests after a round.
    pub(super) fn rest(&mut self, time: Duration, is_over: bool) {
        self.spent += time;
        self.next = Instant::now();
        if is_over {
            self.reading = None;
            self.rounds += 1;
            let spent = std::mem::take(&mut self.spent);
            // Who waits for another round does not wait for a rest as well.
            if self.rounds >= self.asked {
                self.next += POLL_INTERVAL.max(spent * READING_SHARE);
            }
        }
    }

    /// What a name is, without asking whatever is mounted there.
    pub(super) fn status(&mut self, name: &str) -> nix::Result<FileStat> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => open(&self.path, FLAGS, Mode::empty())?,
        };
        let status = status_there(self.dir.insert(dir), self.hand.as_deref(), name);
        status.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}
