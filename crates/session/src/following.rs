// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whoever follows a recording for a reader of standard output: for how long, and how events are written while nobody may read.

use crate::Stop;
use crate::print::Audience;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtscope_ctf::{Host, StreamGap, TraceSet};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Between looks: what is new is shown this much later than it could be.
const PAUSE: Duration = Duration::from_millis(50);

/// A pipe takes this much at once, if it takes anything (PIPE_BUF).
const PIPE_BYTES: usize = 4096;

/// Whoever reads standard output, until this is asked to end.
#[derive(Debug)]
pub struct OutputReader {
    /// What ends it.
    pub stop: Rc<Stop>,
    /// Says that something is missing here from a stream (its index).
    pub lost: fn(&TraceSet, usize, &StreamGap),
}

impl Audience for OutputReader {
    fn goes_on(&self) -> bool {
        !self.stop.asked()
    }

    fn lost(&self, set: &TraceSet, stream: usize, gap: &StreamGap) {
        (self.lost)(set, stream, gap);
    }
}

impl Host for OutputReader {
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

/// Writes as fast as the reader takes it; `Interrupted` when asked to stop.
///
/// # Errors
/// That, and those of the system.
pub fn write_until(out: &mut File, bytes: &[u8], stop: &Stop) -> io::Result<()> {
    let kind = out.metadata()?.file_type();
    if kind.is_file() {
        return out.write_all(bytes);
    }
    for part in bytes.chunks(PIPE_BYTES) {
        loop {
            if stop.asked() {
                return Err(ErrorKind::Interrupted.into());
            }
            let mut polled = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut polled, PollTimeout::from(100_u8)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        out.write_all(part)?;
    }
    Ok(())
}
