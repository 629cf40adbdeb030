// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `print --follow` and `stat --follow` have in common.

use crate::exit::Failure;
use crate::output::note;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtscope_ctf::{Follower, Stage};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Between looks: what is new is shown this much later than it could be.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Whether a trace is not complete: there is none yet, or it is being made.
pub fn is_being_made(trace: &Path) -> bool {
    !trace.exists() || Follower::is_being_made(trace)
}

/// Says once that there is nothing yet.
pub struct WaitingNote<'t> {
    trace: &'t Path,
    is_said: bool,
}

impl<'t> WaitingNote<'t> {
    pub fn new(trace: &'t Path) -> WaitingNote<'t> {
        WaitingNote { trace, is_said: false }
    }

    pub fn stage(&mut self, stage: Stage) {
        if stage == Stage::Waiting && !std::mem::replace(&mut self.is_said, true) {
            note(&format!("rtscope: waiting for events of a recording to {}", self.trace.display()));
        }
    }
}

/// What to say of a recording that did not end in order; one that goes on was left by whoever followed it.
pub fn how_it_ended(stage: Stage, trace: &Path) -> Result<(), Failure> {
    let trace = trace.display();
    match stage {
        Stage::Waiting | Stage::Growing | Stage::Complete => Ok(()),
        Stage::Abandoned => Err(Failure::Damaged(format!(
            "the recorder of {trace} has ended without completing the trace; what it had written was shown; \
             rtscope record --recover {trace} makes the trace"
        ))),
        Stage::Removed => Err(Failure::Damaged(format!(
            "{trace} was removed or made anew while it was followed; what had been read by then was shown. A recorder does that \
             when converting fails while it records (a full disk), and --recover after a kill: rtscope print {trace} then shows all"
        ))),
    }
}

/// Whether nobody can read any more what is written.
pub fn is_closed(out: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let found = poll(&mut polled, PollTimeout::ZERO);
    found.is_ok_and(|count| count > 0)
        && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
}
