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
    watched: BTreeMap<WatchDescriptor, Watched>,
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
        let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR | moved;
        let watch = self.inotify.add_watch(directory, events)?;
        self.watched.insert(watch, what);
        Ok(())
    }

    /// A directory is not looked at any more.
    pub(super) fn forget(&mut self, what: Watched) {
        let all = self.watched.iter().filter(|(_, known)| **known == what).map(|(watch, _)| *watch);
        for watch in all.collect::<Vec<WatchDescriptor>>() {
            self.watched.remove(&watch);
            // It fails when the directory is gone, and the watch with it.
            let _ = self.inotify.rm_watch(watch);
        }
    }

    /// What was notified since the last call, or a part of it.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        for _ in 0..READS_MAX {
            let Ok(events) = self.inotify.read_events() else { break };
            for event in events {
                let notice = match self.watched.get(&event.wd) {
                    _ if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) => Notice::All,
                    Some(Watched::Place(place)) => Notice::Place(*place),
                    Some(Watched::Base(base)) => {
                        let Some(name) = event.name else { continue };
                        Notice::Base(*base, name.to_string_lossy().into_owned())
                    }
                    None => continue,
                };
                if notices.last() != Some(&notice) {
                    notices.push(notice);
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
