// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory with users' directories.

use super::place::POLL_INTERVAL;
use crate::budget::TURN;
use crate::directory::UserDirectory;
use nix::dir::{Dir, OwningIter};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reading a directory of directories takes at most one part in this many of the time.
const READING_SHARE: u32 = 20;

/// A directory with users' directories, which is read in parts: anybody can make any number of names in it.
#[derive(Debug)]
pub(super) struct Base {
    path: PathBuf,
    pub(super) reading: Option<OwningIter>,
    read: usize,
    begun: Instant,
    spent: Duration,
    /// When to read it again.
    pub(super) next: Instant,
    /// How often it has been read to its end.
    pub(super) rounds: u64,
}

impl Base {
    pub(super) fn new(path: PathBuf) -> Base {
        let now = Instant::now();
        Base { path, reading: None, read: 0, begun: now, spent: Duration::ZERO, next: now, rounds: 0 }
    }

    /// The users of directories in the next part. `limit`: names that are read at most. Sets `is_crowded` when there are more.
    pub(super) fn read(&mut self, limit: Option<usize>, is_crowded: &mut bool) -> BTreeSet<u32> {
        let begun = Instant::now();
        let mut users = BTreeSet::new();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let names = match self.reading.take() {
            Some(names) => Some(names),
            None => {
                (self.read, self.spent, self.begun) = (0, Duration::ZERO, begun);
                Dir::open(&self.path, flags, Mode::empty()).ok().map(Dir::into_iter)
            }
        };
        let mut is_over = true;
        if let Some(mut names) = names {
            while let Some(Ok(entry)) = names.next() {
                self.read += 1;
                users.extend(entry.file_name().to_str().ok().and_then(UserDirectory::user_of_name));
                *is_crowded = limit.is_some_and(|limit| self.read > limit);
                if *is_crowded {
                    break;
                }
                if self.read % 256 == 0 && begun.elapsed() > TURN {
                    is_over = false;
                    self.reading = Some(names);
                    break;
                }
            }
        }
        self.spent += begun.elapsed();
        let now = Instant::now();
        self.next = if is_over {
            self.rounds += 1;
            now + POLL_INTERVAL.max(self.spent * READING_SHARE)
        } else {
            now
        };
        users
    }
}
