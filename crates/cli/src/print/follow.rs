// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print --follow TRACE`: the events of a recording while it is made.
//!
//! Standard output is written only when it takes more, so that Ctrl-C ends this also when nobody reads the pipe; until then events stay
//! in the trace's files.

use super::Events;
use crate::exit::Failure;
use crate::following::Reader;
use crate::observer::Terminal;
use crate::output::note;
use crate::stop::Stop;
use crate::trace_args::{FormatArg, PrintOptions};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtscope_ctf::{StreamGap, TraceSet};
use rtscope_session::print::{Audience, FollowedLines, Lines};
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{Addition, JsonFormat, PrettyFormat, Saying, Who, clean, missing_line};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

/// A pipe takes this much at once, if it takes anything (PIPE_BUF).
const PIPE_BYTES: usize = 4096;

/// Prints until the recording ends, or somebody ends this.
pub fn run(options: &PrintOptions) -> Result<(), Failure> {
    let observer = Terminal::new();
    let delay = Duration::from_nanos(options.follow.delay.0);
    let filter = options.trace.filter();
    let mut followed = FollowedLines::new(&options.trace.trace, &filter, delay, &observer)?;
    // Only these show nothing that other events tell.
    followed.needs_names = options.format != FormatArg::Babeltrace || filter.task.is_some();
    let mut reader = Reader::new()?;
    let out = Events::new(Some(Rc::clone(&reader.stop)))?;
    let mut lines = Lines::new(out, options.head.unwrap_or(u64::MAX));
    let names = followed.names();
    let who = |set: &TraceSet| Who::new(set, names.clone());
    let raw = options.clock_raw;
    let stage = match options.format {
        FormatArg::Text => {
            let format = |set: &TraceSet| {
                let format = PrettyFormat::for_people(set, time_of_day, raw, who(set));
                Saying::new(set, format, Addition::Text)
            };
            followed.print(&mut lines, &format, &mut reader)
        }
        FormatArg::Babeltrace => {
            followed.print(&mut lines, &|set| PrettyFormat::new(set, time_of_day, raw), &mut reader)
        }
        FormatArg::Json => {
            let format =
                |set: &TraceSet| Saying::new(set, JsonFormat::new(set, who(set)), Addition::Json);
            followed.print(&mut lines, &format, &mut reader)
        }
        FormatArg::Csv => Err(Failure::Usage(
            "--format csv needs all kinds of events at the beginning, which --follow does not know; use text or json"
                .to_owned(),
        )),
    }?;
    followed.finish(lines, stage)
}

impl Audience for Reader {
    fn goes_on(&self) -> bool {
        !self.stop.asked()
    }

    fn lost(&self, set: &TraceSet, stream: usize, gap: &StreamGap) {
        let line = set.streams.get(stream).map(|stream| missing_line(stream, gap, time_of_day));
        line.into_iter().for_each(|line| note(&format!("rtscope: {}", clean(&line))));
    }
}

/// Writes as fast as the reader takes it; `Interrupted` when asked to stop.
pub(super) fn write(out: &mut File, bytes: &[u8], stop: &Stop) -> io::Result<()> {
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
