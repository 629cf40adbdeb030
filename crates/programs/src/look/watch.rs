// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New files: the kernel reports them (inotify), with the directory; in the directory of directories with the name.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads of up to 4 KiB, one after the other. A user who makes files all the time has a share of this thread's time, not all of it.
const READS_MAX: usize = 16;
/// The least time between two sleeps that new files end.
const WAKE_EVERY: Duration = Duration::from_millis(5);

/// Of linux/inotify.h.
const IN_MASK_ADD: u32 = 0x2000_0000;

/// A watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// One with users' directories: of a container, or 0.
    Base(u64),
    /// A user's.
    Place(u32),
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// There is a new name in a directory of directories.
    Base(u64, String),
    /// There are new files.
    Place(u32),
    /// Too many to be listed: anything may have changed.
    All,
}

/// The watched directories.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    inotify: Inotify,
    /// The kernel has one watch for a directory, whatever paths lead to it: several of these can be the same one.
    watched: BTreeMap<WatchDescriptor, Vec<Watched>>,
    woken: Instant,
}

impl DirectoryWatch {
    pub(super) fn new() -> io::Result<DirectoryWatch> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(DirectoryWatch { inotify, watched: BTreeMap::new(), woken: Instant::now() })
    }

    /// Watches a directory for new files; in a base also for directories that were made under another name first.
    pub(super) fn watch(&mut self, directory: &Path, what: Watched) -> io::Result<()> {
        let moved = AddWatchFlags::IN_MOVED_TO;
        let moved = if matches!(what, Watched::Base(_)) { moved } else { AddWatchFlags::empty() };
        // What it is watched for already stays: a user can have another one's directory be found again, as something else.
        let added = AddWatchFlags::from_bits_retain(IN_MASK_ADD);
        let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR | moved | added;
        let all = self.watched.entry(self.inotify.add_watch(directory, events)?).or_default();
        if !all.contains(&what) {
            all.push(what);
        }
        Ok(())
    }

    /// A directory is not looked at any more.
    pub(super) fn forget(&mut self, what: Watched) {
        let inotify = &self.inotify;
        self.watched.retain(|watch, all| {
            all.retain(|known| *known != what);
            if all.is_empty() {
                // It fails when the directory is gone, and the watch with it.
                let _ = inotify.rm_watch(*watch);
            }
            !all.is_empty()
        });
    }

    /// What was notified since the last call, or a part of it.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        for _ in 0..READS_MAX {
            let Ok(events) = self.inotify.read_events() else { break };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    add(&mut notices, Notice::All);
                }
                for watched in self.watched.get(&event.wd).into_iter().flatten() {
                    match (watched, &event.name) {
                        (Watched::Place(place), _) => add(&mut notices, Notice::Place(*place)),
                        (Watched::Base(base), Some(name)) => {
                            add(&mut notices, Notice::Base(*base, name.to_string_lossy().into_owned()));
                        }
                        (Watched::Base(_), None) => {}
                    }
                }
            }
        }
        notices
    }

    /// Sleeps until the time is over, `other` can be read, or there are new files.
    pub(super) fn wait(&mut self, time: Duration, other: &EventFd) {
        let since = self.woken.elapsed();
        if since < WAKE_EVERY {
            let rest = time.min(WAKE_EVERY - since);
            if wait_for(&mut [PollFd::new(other.as_fd(), PollFlags::POLLIN)], rest) || rest == time {
                return;
            }
        }
        let files = PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN);
        wait_for(&mut [files, PollFd::new(other.as_fd(), PollFlags::POLLIN)], time);
        self.woken = Instant::now();
    }
}

fn add(notices: &mut Vec<Notice>, notice: Notice) {
    if notices.last() != Some(&notice) {
        notices.push(notice);
    }
}

/// Sleeps until the time is over or one of the descriptors can be read; true then.
pub(super) fn wait_for(all: &mut [PollFd<'_>], time: Duration) -> bool {
    match ppoll(all, Some(time.into()), None) {
        Ok(ready) => ready > 0,
        Err(Errno::EINTR) => true,
        Err(_) => {
            // No memory: the caller polls.
            std::thread::sleep(time);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_that_is_found_again_as_something_else_stays_watched() {
        let above = tempfile::tempdir().unwrap();
        let (path, other) = (above.path().join("theirs"), above.path().join("made"));
        fs::create_dir(&path).unwrap();
        let mut watch = DirectoryWatch::new().unwrap();
        let mut number = 0;
        let mut noticed = |watch: &mut DirectoryWatch, is_moved: bool| {
            number += 1;
            let name = path.join(number.to_string());
            if is_moved {
                fs::write(&other, "").unwrap();
                fs::rename(&other, name).unwrap();
            } else {
                fs::write(name, "").unwrap();
            }
            let mut notices = watch.notices();
            notices.iter_mut().for_each(|notice| {
                if let Notice::Base(_, name) = notice {
                    assert_eq!(std::mem::take(name), number.to_string());
                }
            });
            notices
        };
        let base = |number: u64| Notice::Base(number, String::new());
        watch.watch(&path, Watched::Place(7)).unwrap();
        for number in [3, 4, 4] {
            watch.watch(&path, Watched::Base(number)).unwrap();
        }
        assert_eq!(noticed(&mut watch, false), [Notice::Place(7), base(3), base(4)]);
        // As another place: what a base is watched for is not taken away.
        watch.watch(&path, Watched::Place(8)).unwrap();
        assert_eq!(noticed(&mut watch, true), [Notice::Place(7), base(3), base(4), Notice::Place(8)]);
        for gone in [Watched::Base(3), Watched::Base(4), Watched::Place(8)] {
            watch.forget(gone);
        }
        assert_eq!(noticed(&mut watch, false), [Notice::Place(7)]);
        watch.forget(Watched::Place(7));
        assert_eq!(noticed(&mut watch, false), []);
        assert!(watch.watched.is_empty());
    }
}
