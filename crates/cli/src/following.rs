// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `print --follow` and `stat --follow` have in common: for whom they follow, and for how long.

use crate::stop::{self, Stop};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtscope_ctf::Host;
use rtscope_session::Failure;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Between looks: what is new is shown this much later than it could be.
const PAUSE: Duration = Duration::from_millis(50);

/// Whoever reads standard output, until a signal.
pub struct Reader {
    pub stop: Rc<Stop>,
}

impl Reader {
    /// From now on signals end it.
    pub fn new() -> Result<Reader, Failure> {
        Ok(Reader { stop: Rc::new(stop::on_signals()?) })
    }
}

impl Host for Reader {
    fn wait(&mut self) -> bool {
        self.stop.wait(PAUSE, None);
        !self.stop.asked() && !is_closed(&io::stdout())
    }

    fn is_abandoned(&self, directory: &Path) -> bool {
        rtscope_store::is_abandoned(directory)
    }
}

/// Whether nobody can read any more what is written.
fn is_closed(out: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let found = poll(&mut polled, PollTimeout::ZERO);
    found.is_ok_and(|count| count > 0)
        && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
}
