// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New files: the kernel tells of them (inotify), and ends the collector's sleep.

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Pauses from here on are in whole milliseconds.
const WHOLE_MS: Duration = Duration::from_millis(3);

/// What is watched.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    inotify: Inotify,
    /// Waits for that, and for what the caller waits for.
    epoll: Option<Epoll>,
    /// There may be something to be read.
    may_be_told: bool,
}

impl DirectoryWatch {
    pub(super) fn new() -> io::Result<DirectoryWatch> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(DirectoryWatch { inotify, epoll: None, may_be_told: true })
    }

    /// New files of a directory.
    pub(super) fn watch(&self, directory: &Path) -> io::Result<()> {
        self.inotify.add_watch(directory, AddWatchFlags::IN_CREATE)?;
        Ok(())
    }

    /// New directories, which may be made under another name first.
    pub(super) fn watch_base(&self, base: &Path) -> io::Result<()> {
        self.inotify.add_watch(base, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)?;
        Ok(())
    }

    /// Whether there were some.
    pub(super) fn has_some(&self) -> bool {
        self.may_be_told && self.inotify.read_events().is_ok()
    }

    /// Sleeps, until the time is over, there are some, or `other` can be read, which is the same in each call. Whether one of those
    /// came.
    pub(super) fn wait(&mut self, time: Duration, other: BorrowedFd<'_>) -> io::Result<bool> {
        let epoll = match &mut self.epoll {
            Some(epoll) => epoll,
            none => {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
                epoll.add(other, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
                epoll.add(&self.inotify, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
                none.insert(epoll)
            }
        };
        // Registered once: for ppoll(2) the kernel does it again and again, which is a good part of what a look costs. But only that one
        // knows less than a millisecond.
        let mut ready = [EpollEvent::empty(); 2];
        let came = match EpollTimeout::try_from(time.as_millis()) {
            Ok(whole) if time >= WHOLE_MS => epoll.wait(&mut ready, whole),
            _ => {
                let mut all = [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)];
                ppoll(&mut all, Some(time.into()), None)
                    .and_then(|_| epoll.wait(&mut ready, EpollTimeout::ZERO))
            }
        };
        // A signal came first: nobody knows.
        self.may_be_told = true;
        let came = match came {
            Err(nix::Error::EINTR) => return Ok(false),
            came => came?,
        };
        self.may_be_told = ready[..came].iter().any(|ready| ready.data() == 1);
        Ok(came > 0)
    }

    /// Sleeps, whatever comes.
    pub(super) fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
        self.may_be_told = true;
    }
}
