// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print --follow TRACE`: the events of a recording while it is made.
//!
//! Standard output is written only when it takes more, so that Ctrl-C ends this also when nobody reads the pipe; until then events stay
//! in the trace's files.

use super::Output;
use crate::exit::Failure;
use crate::following::{PAUSE, is_closed};
use crate::observer::Terminal;
use crate::output::note;
use crate::stop::{self, Stop};
use crate::trace_args::{FormatArg, PrintOptions};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtscope_ctf::{Error, Followed, Follower, Format, NamesFollower, Round, Stage, TraceSet};
use rtscope_event::counted;
use rtscope_session::traces::{WaitingNote, how_it_ended, report_damage};
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{Addition, JsonFormat, PrettyFormat, Saying, Who, clean, missing_line};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// A pipe takes this much at once, if it takes anything (PIPE_BUF).
const PIPE_BYTES: usize = 4096;

/// Prints until the recording ends, or somebody ends this.
pub fn run(options: &PrintOptions) -> Result<(), Failure> {
    let names = NamesFollower::new(&options.trace.trace);
    let known = names.names();
    let selection = options.trace.filter().selection_from_now(&known)?;
    let delay = Duration::from_nanos(options.follow.delay.0);
    let follower = Follower::new(&options.trace.trace, selection);
    let out = Output::new().map_err(|error| Failure::doing("opening standard output", error))?;
    let out = Output { stop: Some(stop::on_signals()?), ..out };
    rtscope_session::limits::raise_file_limit();
    // Only these show nothing that other events tell.
    let needs_names = options.format != FormatArg::Babeltrace || options.trace.events.task.is_some();
    let names = needs_names.then_some(names);
    let mut printing =
        Printing { follower, names, out, before: None, left: options.head.unwrap_or(u64::MAX) };
    let who = |set: &TraceSet| Who::new(set, known.clone());
    let stage = match options.format {
        FormatArg::Text => {
            let raw = options.clock_raw;
            let format = |set: &TraceSet| {
                let format = PrettyFormat::for_people(set, time_of_day, raw, who(set));
                Saying::new(set, format, Addition::Text)
            };
            printing.until_end(options, delay, &format)
        }
        FormatArg::Babeltrace => {
            let raw = options.clock_raw;
            printing.until_end(options, delay, &|set| PrettyFormat::new(set, time_of_day, raw))
        }
        FormatArg::Json => printing.until_end(options, delay, &|set| {
            Saying::new(set, JsonFormat::new(set, who(set)), Addition::Json)
        }),
        FormatArg::Csv => Err(Failure::Usage(
            "--format csv needs all kinds of events at the beginning, which --follow does not know; use text or json"
                .to_owned(),
        )),
    }?;
    printing.finish(&options.trace.trace, stage)
}

struct Printing {
    follower: Follower,
    names: Option<NamesFollower>,
    out: Output,
    /// Of the last event.
    before: Option<u64>,
    left: u64,
}

impl Printing {
    fn until_end<F: Format>(
        &mut self,
        options: &PrintOptions,
        delay: Duration,
        format: &dyn Fn(&TraceSet) -> F,
    ) -> Result<Stage, Failure> {
        let failed = |error: Error| Failure::Failed(error.to_string());
        let mut current: Option<(u64, F)> = None;
        let observer = Terminal::new();
        let mut waiting = WaitingNote::new(&options.trace.trace, &observer);
        loop {
            let stage = self.follower.look(&rtscope_store::is_abandoned).map_err(failed)?;
            waiting.stage(stage);
            let generation = self.follower.generation();
            let (_, format) = match current.take().filter(|(of, _)| *of == generation) {
                Some(current_format) => current.insert(current_format),
                None => current.insert((generation, format(self.follower.set()))),
            };
            let is_over = stage.is_over();
            let horizon_ns = if is_over { i64::MAX } else { self.follower.horizon(delay) };
            if let Some(names) = &mut self.names {
                names.catch_up(&rtscope_store::is_abandoned, horizon_ns).map_err(failed)?;
            }
            let Printing { follower, out, before, left, .. } = self;
            let round = follower.print(format, horizon_ns, *left, &mut |set, followed| {
                match followed {
                    Followed::Piece(piece) => {
                        out.piece(piece, *left, before, format);
                        *left = left.saturating_sub(piece.events);
                    }
                    Followed::Lost(stream, gap) => {
                        let line =
                            set.streams.get(stream).map(|stream| missing_line(stream, gap, time_of_day));
                        line.into_iter().for_each(|line| note(&format!("rtscope: {}", clean(&line))));
                    }
                }
                *left > 0 && out.failure.is_none() && !out.is_asked_to_stop()
            });
            let round = round.map_err(failed)?;
            match (round, stage) {
                (Round::Stopped, _) => return Ok(Stage::Growing),
                (Round::More, _) => {}
                _ if is_over => return Ok(stage),
                _ if self.follower.is_past(horizon_ns) => return Ok(stage),
                _ => {
                    self.out.stop.iter().for_each(|stop| stop.wait(PAUSE, None));
                    if self.out.is_asked_to_stop() || is_closed(&self.out.file) {
                        return Ok(stage);
                    }
                }
            }
        }
    }

    fn finish(mut self, trace: &Path, stage: Stage) -> Result<(), Failure> {
        match self.out.failure {
            // The reader needs no more, or somebody has ended this.
            Some(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Some(error) => return Err(Failure::system("writing to standard output", &error)),
            None => {}
        }
        match self.follower.late() {
            0 => {}
            late => note(&format!(
                "rtscope: {}",
                counted(
                    late,
                    "event came too late to be in order; it is marked as late",
                    "events came too late to be in order; they are marked as late"
                )
            )),
        }
        self.out.damaged.extend(self.follower.take_damaged());
        report_damage(&mut self.out.damaged, &Terminal::new())?;
        how_it_ended(stage, trace)
    }
}

impl Output {
    fn is_asked_to_stop(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::asked)
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
