// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream of a cut: its packets are walked, and what is selected is copied.
//!
//! Losses: a packet's counter says what was lost since the packet before it. The counters of a cut begin with 0, and grow where
//! those of packets grow that lie in the cut, at least with a part. So a loss at an edge is kept when it may lie inside.

use super::packets::{Failure, PacketCopier, SourcePacket, StreamLayout};
use crate::Error;
use crate::read::class::ClockClass;
use crate::read::cursor::{Cursor, Damage, Head};
use crate::read::index::{Edge, LATE_MAX, Segment};
use crate::read::judge::Judge;
use crate::read::lane::StreamReader;
use crate::read::select::Selection;
use crate::read::set::{DamagedFile, Stream, TraceSet};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The size of a window.
const WINDOW: usize = 256 << 10;

/// A stream as it was cut.
#[derive(Debug, Default)]
pub(super) struct CutStream {
    pub(super) events: u64,
    /// Of these, those of the state dump.
    pub(super) dump_events: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Events that its packets report as lost.
    pub(super) lost: u64,
    /// Some of these may be outside.
    pub(super) lost_at_edge: bool,
    pub(super) damaged: Vec<DamagedFile>,
}

/// What all streams of a cut have in common.
pub(super) struct Job<'s> {
    pub(super) set: &'s TraceSet,
    pub(super) selection: &'s Selection,
    /// The state dump is kept, also if it is not selected.
    pub(super) keeps_dump: bool,
    /// Called with the bytes of each packet that was passed; false ends it all.
    pub(super) passed: &'s (dyn Fn(u64) -> bool + Sync),
}

/// Walks a stream.
struct Walk<'s> {
    job: &'s Job<'s>,
    stream: &'s Stream,
    reading: StreamReader<'s>,
    copier: PacketCopier<'s>,
    judge: Judge,
    /// For each event class, whether it is of the state dump.
    dump: Vec<bool>,
    /// The dump may go on.
    in_dump: bool,
    /// A stream of rtscope's begins with the dump, others have it somewhere.
    dump_is_first: bool,
    /// The selected times on the stream's clock.
    from: u64,
    until: u64,
    /// The packet before.
    before: Option<Edge>,
    /// Parts that could not be read, since the last packet.
    unreadable: u64,
    done: CutStream,
}

/// Copies what is selected of a stream into a file. There is none if no packet of it is.
pub(super) fn cut_stream<'s>(
    job: &'s Job<'s>,
    stream: &'s Stream,
    uuid: Uuid,
    path: &Path,
) -> Result<CutStream, Error> {
    let set = job.set;
    let trace = set.traces.get(stream.trace);
    let parts = trace.and_then(|trace| {
        let plans = trace.plans.streams.get(stream.class_place())?;
        Some((trace, plans, set.stream_class(stream)?))
    });
    let Some((trace, plans, class)) = parts else { return Ok(CutStream::default()) };
    let events = (0..set.event_count(stream)).filter_map(|event| set.event_class(stream, event)).collect();
    let slots = trace.class.slots;
    let layout = StreamLayout { plans: &trace.plans, stream: plans, class, events, slots };
    let dump: Vec<bool> = layout.events.iter().map(|event| event.name.starts_with(DUMP)).collect();
    let (from, until) = clock_span(set.clock(stream), job.selection);
    let walk = Walk {
        job,
        stream,
        reading: StreamReader::new(set, stream, job.selection),
        copier: PacketCopier::new(&trace.class, layout, uuid, path)?,
        judge: Judge::default(),
        in_dump: job.keeps_dump && dump.contains(&true),
        dump_is_first: trace.losses_by_cause().is_some(),
        dump,
        from,
        until,
        before: None,
        unreadable: 0,
        done: CutStream::default(),
    };
    walk.run()
}

/// Names of the state dump's events begin with this.
const DUMP: &str = "lttng_statedump_";

/// The clock's values between the selected times.
fn clock_span(clock: Option<&ClockClass>, selection: &Selection) -> (u64, u64) {
    let Some(clock) = clock else { return (0, u64::MAX) };
    // The number of values below: these are in order of time.
    let below = |is_below: &dyn Fn(i64) -> bool| {
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_below(clock.ns(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    };
    let from = selection.from_ns.map_or(0, |from| below(&|ns| ns < from));
    let until = selection.to_ns.map_or(u64::MAX, |to| below(&|ns| ns <= to).saturating_sub(1));
    (from, until)
}

impl<'s> Walk<'s> {
    fn run(mut self) -> Result<CutStream, Error> {
        let mut cursor: Option<(usize, Cursor<'s>)> = None;
        let mut skipped_file = None;
        let segments = std::mem::take(&mut self.reading.segments);
        for (place, segment) in segments.iter().enumerate() {
            if skipped_file == Some(segment.file) {
                continue;
            }
            let is_last_of_file = segments.get(place + 1).is_none_or(|next| next.file != segment.file);
            if self.is_before(segment, segments.get(place + 1)) {
                self.before = Some(segment.last);
                self.passed(segment.until - segment.from)?;
                continue;
            }
            match self.segment(segment, &mut cursor) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Damage(damage)) => {
                    // Only damage to the rest of a file comes here.
                    self.damage(segment, damage);
                    (cursor, skipped_file) = (None, Some(segment.file));
                }
            }
            let path = self.stream.files.get(segment.file);
            // What was found when the trace was opened may have been found again, at its place.
            let is_found = self.done.damaged.iter().any(|found| Some(&found.path) == path);
            let mut known = self.job.set.damaged.iter();
            if is_last_of_file && !is_found && known.any(|damaged| Some(&damaged.path) == path) {
                self.unreadable += 1;
            }
        }
        self.finish()
    }

    /// Whether all of a segment is before the selected times. An end is not always true, so what follows must be there, too.
    fn is_before(&self, segment: &Segment, next: Option<&Segment>) -> bool {
        let next = next.and_then(|next| next.first.begin);
        let ended = segment.last.end.is_some_and(|end| end < self.from);
        self.can_skip() && !self.in_dump && ended && next.is_some_and(|begin| begin < self.from)
    }

    /// Packets may be left unread: the times of events do not depend on those before.
    fn can_skip(&self) -> bool {
        self.reading.is_timed() && !self.reading.is_chained()
    }

    fn damage(&mut self, segment: &Segment, damage: Damage) {
        self.unreadable += 1;
        let path = self.stream.files.get(segment.file).cloned().unwrap_or_else(PathBuf::new);
        if self.done.damaged.len() < 100 {
            self.done.damaged.push(DamagedFile { path, damage });
        }
    }

    fn passed(&self, bytes: u64) -> Result<(), Error> {
        if (self.job.passed)(bytes) { Ok(()) } else { Err(Error::Stopped) }
    }

    /// False when all that follows is later than what is selected.
    fn segment(
        &mut self,
        segment: &Segment,
        open: &mut Option<(usize, Cursor<'s>)>,
    ) -> Result<bool, Failure> {
        let cursor = self.cursor(segment, open)?;
        while cursor.next_packet()? {
            let is_behind = cursor.packet.begin.is_some_and(|begin| begin > self.until);
            if is_behind && self.can_skip() && !self.in_dump {
                self.behind(cursor)?;
                return Ok(false);
            }
            match self.packet(cursor) {
                Err(Failure::Damage(damage)) => {
                    self.copier.flush_run(cursor)?;
                    if damage.rest_of_file {
                        return Err(damage.into());
                    }
                    self.damage(segment, damage);
                }
                done => done?,
            }
            let edge = Edge::of(&cursor.packet);
            self.before = Some(self.before.map_or(edge, |before| edge.after(&before)));
            self.passed(cursor.packet.bytes)?;
        }
        Ok(true)
    }

    fn cursor<'o>(
        &self,
        segment: &Segment,
        open: &'o mut Option<(usize, Cursor<'s>)>,
    ) -> Result<&'o mut Cursor<'s>, Failure> {
        let bytes = (segment.from, segment.until);
        let cannot = |what: String| Damage { packet_at: segment.from, what, rest_of_file: true };
        match open.take() {
            Some((file, mut cursor)) if file == segment.file => {
                cursor.seek(bytes);
                Ok(&mut open.insert((file, cursor)).1)
            }
            _ => {
                let path = self.stream.files.get(segment.file);
                let found = path.zip(self.job.set.plans(self.stream));
                let (path, plans) = found.ok_or_else(|| cannot("it is not in the index".to_owned()))?;
                let cursor = Cursor::open(plans, path, WINDOW, bytes);
                let cursor = cursor.map_err(|error| cannot(format!("it cannot be opened: {error}")))?;
                Ok(&mut open.insert((segment.file, cursor)).1)
            }
        }
    }

    /// Copies what is selected of the packet that the cursor has begun.
    fn packet(&mut self, cursor: &mut Cursor<'s>) -> Result<(), Failure> {
        let head = &cursor.packet;
        let wants_cpu = self.reading.wants_cpu(head.cpu);
        if !wants_cpu && !self.in_dump {
            return Ok(());
        }
        let overlaps =
            head.end.is_none_or(|end| end >= self.from) && head.begin.is_none_or(|begin| begin <= self.until);
        let in_time = wants_cpu && (overlaps || !self.reading.is_timed());
        let mut is_open = in_time;
        if in_time {
            let begin = head.begin.unwrap_or(0).max(self.from);
            self.begin(cursor, begin, false)?;
        }
        while let Some(head) = cursor.next_event()? {
            let wanted = self.wants(cursor, head, wants_cpu)?;
            if wanted {
                if !is_open {
                    self.begin(cursor, cursor.packet.begin.unwrap_or(0), true)?;
                    is_open = true;
                }
                self.copier.make_room(cursor, head.clock)?;
            }
            cursor.pass(head)?;
            if wanted {
                self.copier.event(cursor)?;
            }
        }
        self.copier.flush_run(cursor)?;
        if in_time {
            self.copier.covered(cursor.packet.end.unwrap_or(0).min(self.until));
        }
        Ok(())
    }

    fn wants(&mut self, cursor: &mut Cursor<'s>, head: Head, wants_cpu: bool) -> Result<bool, Damage> {
        if self.in_dump {
            if self.dump.get(head.event as usize) == Some(&true) {
                self.done.dump_events += 1;
                return Ok(true);
            }
            self.in_dump = !self.dump_is_first && head.clock < self.from;
        }
        let in_time = head.clock >= self.from && head.clock <= self.until;
        if !wants_cpu || (!in_time && self.reading.is_timed()) {
            return Ok(false);
        }
        let time_ns = self.reading.ns(head.clock);
        self.judge.wants(self.reading.verdicts.get(head.event as usize), cursor, time_ns)
    }

    /// What the cursor's packet is to the one before it.
    fn begin(&mut self, cursor: &Cursor<'s>, begin: u64, stays_alone: bool) -> Result<(), Failure> {
        let edge = Edge::of(&cursor.packet);
        let before = self.before;
        let counters = before.and_then(|before| before.discarded).unwrap_or(0);
        let counters = edge.discarded.map(|after| (counters, after));
        let lost_events = match counters {
            Some((before, after)) if after > before => after - before,
            // The counter began anew: how many were lost is not known, but that there were.
            Some((before, after)) if before - after > LATE_MAX => 1,
            _ => 0,
        };
        let sequence = before.and_then(|before| before.sequence).zip(edge.sequence);
        let lost_packets = sequence.map_or(0, |(one, other)| other.wrapping_sub(one).saturating_sub(1));
        // Whole packets were lost before this one begins.
        let lost_packets = if edge.begin.is_some_and(|begin| begin < self.from) { 0 } else { lost_packets };
        let inside = before.is_none_or(|before| before.end.is_some_and(|end| end >= self.from))
            && edge.end.is_some_and(|end| end <= self.until);
        self.done.lost_at_edge |= lost_events > 0 && !inside;
        let lost_events = lost_events.saturating_add(std::mem::take(&mut self.unreadable));
        let lost_since = before.map(|before| before.end.unwrap_or(0).max(self.from));
        self.copier.source(cursor, SourcePacket { begin, lost_events, lost_packets, stays_alone, lost_since })
    }

    /// The first packet behind the selected times: what was lost before it may have been lost within them.
    fn behind(&mut self, cursor: &Cursor<'s>) -> Result<(), Failure> {
        let Some(before) = self.before else { return Ok(()) };
        let wants_cpu = self.reading.wants_cpu(cursor.packet.cpu);
        if !wants_cpu || before.end.is_none_or(|end| end > self.until) {
            return Ok(());
        }
        self.begin(cursor, self.until, false)?;
        self.copier.covered(self.until);
        Ok(())
    }

    fn finish(mut self) -> Result<CutStream, Error> {
        let finished = self.copier.finish(self.unreadable);
        finished.map(|()| CutStream {
            events: self.copier.events,
            packets: self.copier.packets,
            bytes: self.copier.written,
            lost: self.copier.losses(),
            ..self.done
        })
    }
}
