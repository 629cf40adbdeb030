// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of traces on their way out, as lines: at most so many, with what stands between the pieces that threads have made; of finished
//! traces, and of a recording that is being made.

use crate::traces::{EventFilter, WaitingNote, how_it_ended, report_damage};
use crate::{Failure, Observer};
use rtscope_ctf::{
    DamagedFile, Error, Followed, Follower, Format, Host, NamesFollower, Piece, Round, Selection,
    SharedTaskNames, Stage, StreamGap, TraceSet, print,
};
use rtscope_event::counted;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// Lines that are being written.
pub struct Lines<W> {
    out: W,
    left: u64,
    /// Of the last event.
    before: Option<u64>,
    events: u64,
    damaged: Vec<DamagedFile>,
    failure: Option<io::Error>,
}

/// What was written.
#[derive(Debug)]
pub struct WrittenLines {
    /// Events.
    pub events: u64,
    /// What could not be read of them.
    pub damaged: Vec<DamagedFile>,
}

impl<W: Write> Lines<W> {
    /// None yet, and at most so many.
    pub fn new(out: W, limit: u64) -> Lines<W> {
        Lines { out, left: limit, before: None, events: 0, damaged: Vec::new(), failure: None }
    }

    /// Text that is no event.
    pub fn text(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.out.write_all(bytes).err();
        }
    }

    /// All events that are selected. `each` may change pieces before they are written.
    pub fn print<F: Format>(
        &mut self,
        set: &TraceSet,
        selection: &Selection,
        format: &F,
        each: &mut dyn FnMut(&mut Piece),
    ) {
        print(set, selection, self.left, format, &mut |piece: &mut Piece| {
            each(piece);
            self.piece(piece, format);
            self.wants_more()
        });
    }

    /// Whether there may be more, and somebody takes it.
    fn wants_more(&self) -> bool {
        self.left > 0 && self.failure.is_none()
    }

    fn piece<F: Format>(&mut self, piece: &mut Piece, format: &F) {
        let all = piece.text.len();
        let end = if piece.events > self.left { lines_end(&piece.text, self.left) } else { all };
        let text = piece.text.get(..end).unwrap_or_default();
        let (head, rest) = text.split_at(piece.first.map_or(0, |(_, at)| at).min(end));
        let mut gap = Vec::new();
        if let Some((first, _)) = piece.first.filter(|_| end > 0) {
            format.gap(self.before, first, &mut gap);
        }
        [head, &gap, rest].into_iter().for_each(|part| self.text(part));
        self.before = piece.last.or(self.before);
        self.events = self.events.saturating_add(piece.events);
        self.left = self.left.saturating_sub(piece.events);
        self.damaged.append(&mut piece.damaged);
    }

    /// What was written; `None`: the reader needed no more, or somebody has ended this.
    ///
    /// # Errors
    /// When it could not be written.
    pub fn finish(self) -> Result<Option<WrittenLines>, Failure> {
        match self.failure {
            None => Ok(Some(WrittenLines { events: self.events, damaged: self.damaged })),
            Some(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => Ok(None),
            Some(error) => Err(Failure::system("writing to standard output", &error)),
        }
    }
}

/// Length of the first lines.
fn lines_end(text: &[u8], lines: u64) -> usize {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    match usize::try_from(lines) {
        Ok(0) => 0,
        Ok(lines) => ends.take(lines).last().unwrap_or(0),
        Err(_) => text.len(),
    }
}

/// Who follows a recording.
pub trait Audience: Host {
    /// Whether nobody has asked to stop.
    fn goes_on(&self) -> bool;

    /// Something is missing here from a stream (its index).
    fn lost(&self, set: &TraceSet, stream: usize, gap: &StreamGap);
}

/// A recording that is being made, whose events are written as they come.
pub struct FollowedLines<'f> {
    trace: &'f Path,
    follower: Follower,
    names: NamesFollower,
    delay: Duration,
    observer: &'f dyn Observer,
    /// Whether what threads are called is of use: events are selected by that, or it is in the lines.
    pub needs_names: bool,
}

impl<'f> FollowedLines<'f> {
    /// At its beginning. `delay`: how long events may take to come.
    ///
    /// # Errors
    /// What of the filter cannot be understood.
    pub fn new(
        trace: &'f Path,
        filter: &EventFilter,
        delay: Duration,
        observer: &'f dyn Observer,
    ) -> Result<FollowedLines<'f>, Failure> {
        crate::limits::raise_file_limit();
        let names = NamesFollower::new(trace);
        let follower = Follower::new(trace, filter.selection_from_now(&names.names())?);
        Ok(FollowedLines { trace, follower, names, delay, observer, needs_names: true })
    }

    /// What threads are called, as far as that is known. It grows.
    #[must_use]
    pub fn names(&self) -> SharedTaskNames {
        self.names.names()
    }

    /// Writes until the recording ends, or the audience does not want to wait any more. `format`: for the events that are known by then.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn print<W: Write, F: Format>(
        &mut self,
        lines: &mut Lines<W>,
        format: &dyn Fn(&TraceSet) -> F,
        audience: &mut dyn Audience,
    ) -> Result<Stage, Failure> {
        let failed = |error: Error| Failure::Failed(error.to_string());
        let mut current: Option<(u64, F)> = None;
        let mut waiting = WaitingNote::new(self.trace, self.observer);
        loop {
            let stage = self.follower.look(&rtscope_store::is_abandoned).map_err(failed)?;
            waiting.stage(stage);
            let generation = self.follower.generation();
            let (_, format) = match current.take().filter(|(of, _)| *of == generation) {
                Some(current_format) => current.insert(current_format),
                None => current.insert((generation, format(self.follower.set()))),
            };
            let is_over = stage.is_over();
            let horizon_ns = if is_over { i64::MAX } else { self.follower.horizon(self.delay) };
            if self.needs_names {
                self.names.catch_up(&rtscope_store::is_abandoned, horizon_ns).map_err(failed)?;
            }
            let left = lines.left;
            let round = self.follower.print(format, horizon_ns, left, &mut |set, followed| {
                match followed {
                    Followed::Piece(piece) => lines.piece(piece, format),
                    Followed::Lost(stream, gap) => audience.lost(set, stream, gap),
                }
                lines.wants_more() && audience.goes_on()
            });
            match round.map_err(failed)? {
                Round::Stopped => return Ok(Stage::Growing),
                Round::More => {}
                _ if is_over || self.follower.is_past() || !audience.wait() => return Ok(stage),
                _ => {}
            }
        }
    }

    /// Says what came too late, what could not be read, and how the recording ended.
    ///
    /// # Errors
    /// When not all could be written or read, or the recording did not end in order.
    pub fn finish<W: Write>(mut self, lines: Lines<W>, stage: Stage) -> Result<(), Failure> {
        let Some(WrittenLines { mut damaged, .. }) = lines.finish()? else { return Ok(()) };
        match self.follower.late() {
            0 => {}
            late => self.observer.note(&counted(
                late,
                "event came too late to be in order; it is marked as late",
                "events came too late to be in order; they are marked as late",
            )),
        }
        damaged.extend(self.follower.take_damaged());
        report_damage(&mut damaged, self.observer)?;
        how_it_ended(stage, self.trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_ctf::{EventView, WriteEvent};

    struct Numbers;
    struct Nothing;

    impl WriteEvent for Nothing {
        fn write(&mut self, _: &mut Piece, _: &mut EventView<'_, '_>) -> bool {
            false
        }
    }

    impl Format for Numbers {
        type Writer<'f> = Nothing;

        fn writer(&self) -> Nothing {
            Nothing
        }

        fn gap(&self, before: Option<u64>, first: u64, text: &mut Vec<u8>) {
            text.extend(before.map_or(String::new(), |before| format!("+{}", first - before)).bytes());
        }
    }

    fn piece(text: &str, events: u64, first: (u64, usize), last: u64) -> Piece {
        Piece { text: text.into(), events, first: Some(first), last: Some(last), ..Piece::default() }
    }

    #[test]
    fn pieces_are_joined_and_end_at_the_limit() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out, 3);
        lines.piece(&mut piece("1:a\n2:b\n", 2, (10, 2), 20), &Numbers);
        assert!(lines.wants_more());
        lines.piece(&mut piece("3:c\n4:d\n", 2, (50, 2), 60), &Numbers);
        assert!(!lines.wants_more());
        lines.finish().unwrap().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1:a\n2:b\n3:+30c\n");
    }

    /// Takes so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_needs_no_more_is_no_failure() {
        let mut lines = Lines::new(Full(4), u64::MAX);
        lines.piece(&mut piece("1:a\n2:b\n", 2, (10, 2), 20), &Numbers);
        assert!(!lines.wants_more());
        assert!(lines.finish().unwrap().is_none());
    }
}
