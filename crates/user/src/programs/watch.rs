// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New files: the kernel reports them (inotify), and ends the collector's sleep.

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Sleeps of at least this long are rounded to whole milliseconds.
const WHOLE_MS: Duration = Duration::from_millis(3);

/// The watched directories.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    inotify: Inotify,
    /// Waits for new files, and for the descriptor that the caller waits for.
    epoll: Option<Epoll>,
    /// Whether there may be notifications to read.
    may_be_told: bool,
}

impl DirectoryWatch {
    pub(super) fn new() -> io::Result<DirectoryWatch> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(DirectoryWatch { inotify, epoll: None, may_be_told: true })
    }

    /// Watches for new files of a directory.
    pub(super) fn watch(&self, directory: &Path) -> io::Result<()> {
        self.inotify.add_watch(directory, AddWatchFlags::IN_CREATE)?;
        Ok(())
    }

    /// Watches for new directories, which may be made under another name first.
    pub(super) fn watch_base(&self, base: &Path) -> io::Result<()> {
        self.inotify.add_watch(base, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)?;
        Ok(())
    }

    /// Whether there were new files.
    pub(super) fn has_new_files(&self) -> bool {
        self.may_be_told && self.inotify.read_events().is_ok()
    }

    /// Sleeps until the time is over, there are new files, or `other` (the same descriptor in each call) can be read. Returns whether
    /// one of the latter two happened.
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
        // Registered once: ppoll(2) registers in each call, which is a good part of the cost of a poll. But only ppoll(2) can sleep for
        // less than a millisecond.
        let mut ready = [EpollEvent::empty(); 2];
        let came = match EpollTimeout::try_from(time.as_millis()) {
            Ok(whole) if time >= WHOLE_MS => epoll.wait(&mut ready, whole),
            _ => {
                let mut all = [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)];
                ppoll(&mut all, Some(time.into()), None)
                    .and_then(|_| epoll.wait(&mut ready, EpollTimeout::ZERO))
            }
        };
        // A signal came first: assume that there are some.
        self.may_be_told = true;
        let came = match came {
            Err(nix::Error::EINTR) => return Ok(false),
            came => came?,
        };
        self.may_be_told = ready[..came].iter().any(|ready| ready.data() == 1);
        Ok(came > 0)
    }

    /// Sleeps without being woken.
    pub(super) fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
        self.may_be_told = true;
    }
}
