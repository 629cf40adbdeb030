// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `print --follow` and `stat --follow` have in common.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::Duration;

/// Between looks: what is new is shown this much later than it could be.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Whether nobody can read any more what is written.
pub fn is_closed(out: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let found = poll(&mut polled, PollTimeout::ZERO);
    found.is_ok_and(|count| count > 0)
        && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
}
