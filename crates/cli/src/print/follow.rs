// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print --follow TRACE`: the events of a recording while it is made.
//!
//! Standard output is written only when it takes more, so that Ctrl-C ends this also when nobody reads the pipe; until then events stay
//! in the trace's files.

use super::Events;
use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::note;
use crate::stop;
use crate::trace_args::{FormatArg, PrintOptions};
use rtscope_ctf::{StreamGap, TraceSet};
use rtscope_session::following::OutputReader;
use rtscope_session::print::{FollowedLines, Lines};
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{clean, missing_line};
use std::rc::Rc;
use std::time::Duration;

/// Prints until the recording ends, or somebody ends this.
pub fn run(options: &PrintOptions) -> Result<(), Failure> {
    let observer = Terminal::new();
    let delay = Duration::from_nanos(options.follow.delay.0);
    let filter = options.trace.filter();
    let mut followed = FollowedLines::new(&options.trace.trace, &filter, delay, &observer)?;
    // Only these show nothing that other events tell.
    followed.needs_names = options.format != FormatArg::Babeltrace || filter.task.is_some();
    let mut reader = OutputReader { stop: Rc::new(stop::on_signals()?), lost };
    let out = Events::new(Some(Rc::clone(&reader.stop)))?;
    let mut lines = Lines::new(out, options.head.unwrap_or(u64::MAX));
    let stage = options.printer().follow(&mut lines, &mut followed, &mut reader)?;
    followed.finish(lines, stage)
}

fn lost(set: &TraceSet, stream: usize, gap: &StreamGap) {
    let line = set.streams.get(stream).map(|stream| missing_line(stream, gap, time_of_day));
    line.into_iter().for_each(|line| note(&format!("rtscope: {}", clean(&line))));
}
