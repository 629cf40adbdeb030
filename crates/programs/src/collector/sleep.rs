// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleep between two rounds of emptying rings.

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Sleeps of at least this long are rounded to whole milliseconds.
const WHOLE_MS: Duration = Duration::from_millis(3);

/// What ends a sleep early.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    epoll: Option<Epoll>,
}

impl Sleep {
    /// Sleeps until the time is over, or one of these can be read: the same two in each call. Returns whether one can.
    pub(super) fn wait(&mut self, time: Duration, told: &EventFd, other: BorrowedFd<'_>) -> io::Result<bool> {
        let epoll = match &mut self.epoll {
            Some(epoll) => epoll,
            none => {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
                epoll.add(other, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
                epoll.add(told, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
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
        match came {
            Err(nix::Error::EINTR) => Ok(false),
            came => Ok(came? > 0),
        }
    }
}
