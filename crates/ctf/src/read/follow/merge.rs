// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One round: what the heads count, merged by time up to the horizon.

use super::super::class::ClockClass;
use super::super::cursor::{Bookmark, Cursor, Damage, WINDOW};
use super::super::index::StreamGap;
use super::super::lane::{Lane, NextEvent, StreamReader};
use super::super::packet::TracePlans;
use super::super::select::Selection;
use super::super::set::{DamagedFile, Stream, TraceSet};
use super::super::slices::EventView;
use super::behind::Behind;
use super::part::{Part, is_absent};
use super::tail::Tail;
use super::{Follower, Round};
use crate::Error;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Instant;

/// Takes what a round gives.
pub(super) trait Take {
    /// An event; false: no more.
    fn event(&mut self, set: &TraceSet, event: &mut EventView<'_, '_>) -> bool;
    /// Something is missing from a stream; false: no more.
    fn lost(&mut self, set: &TraceSet, stream: usize, gap: &StreamGap) -> bool;
}

/// What looking for more in a stream came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refill {
    /// There is more to read.
    Events,
    Nothing,
    /// There is more, of classes that are not known yet.
    Classes,
}

impl Follower {
    /// Gives events before the horizon, and what was lost between them.
    pub(super) fn round(&mut self, horizon_ns: i64, take: &mut dyn Take) -> Result<Round, Error> {
        let Some(limit_ns) = self.refill_all(horizon_ns)? else { return Ok(Round::More) };
        let floor_ns = self.floor_ns;
        let ((round, floor_ns, late, reached_ns), ends) = {
            let sources = Sources { limit_ns, ..self.sources(horizon_ns) };
            let (set, selection) = (sources.set, sources.selection);
            let readers: Vec<(usize, StreamReader<'_>, Bookmark)> = sources
                .tails
                .iter_mut()
                .enumerate()
                .filter_map(|(place, tail)| reader(set, selection, place, tail))
                .collect();
            let (marks, readers): (Vec<Bookmark>, Vec<(usize, StreamReader<'_>)>) =
                readers.into_iter().map(|(place, reader, mark)| (mark, (place, reader))).unzip();
            let lanes = marks.into_iter().zip(&readers).filter_map(|(mark, (_, reading))| {
                let plans = set.plans(reading.stream)?;
                Some(Lane::resumed(reading, Cursor::resume(plans, mark)))
            });
            let places = readers.iter().map(|(place, _)| *place).collect();
            let mut merge =
                Merge { sources, places, lanes: lanes.collect(), nexts: Vec::new(), floor_ns, late: 0 };
            let round = merge.run(take)?;
            let (floor_ns, late, reached_ns) = (merge.floor_ns, merge.late, merge.sources.limit_ns);
            let ends = merge.ends();
            let verdicts: Vec<_> = readers.into_iter().map(|(_, reader)| reader.verdicts).collect();
            ((round, floor_ns, late, reached_ns), ends.into_iter().zip(verdicts).collect::<Vec<_>>())
        };
        (self.floor_ns, self.late, self.reached_ns) = (floor_ns, self.late + late, reached_ns);
        for (End { place, mark, damaged }, verdicts) in ends {
            let Some(tail) = self.tails.get_mut(place) else { continue };
            tail.verdicts = Some(verdicts);
            tail.mark = mark.filter(|_| damaged.is_empty());
            self.set.damaged.extend(damaged);
        }
        self.note_sizes();
        Ok(round)
    }

    /// Looks into all streams that have been read to their end. Gives before which moment events are given out; `None`: there are more classes.
    fn refill_all(&mut self, horizon_ns: i64) -> Result<Option<i64>, Error> {
        let (mut damaged, mut dry) = (Vec::new(), Vec::new());
        let mut sources = self.sources(horizon_ns);
        for (place, stream) in sources.set.streams.iter().enumerate() {
            let Some(mut mark) = sources.tails.get_mut(place).and_then(|tail| tail.mark.take()) else {
                continue;
            };
            match if mark.is_read() { sources.advance(place, stream, &mut mark) } else { Ok(true) } {
                Ok(has_more) => {
                    dry.extend((!has_more).then_some(place));
                    if let Some(tail) = sources.tails.get_mut(place) {
                        tail.mark = Some(mark);
                    }
                }
                Err(error) => {
                    let path = stream.files.first().cloned().unwrap_or_default();
                    damaged.push(DamagedFile { path, damage: unreadable(&error) });
                }
            }
        }
        // When it is known how late the newest is.
        dry.into_iter().for_each(|place| sources.is_dry(place));
        let limit_ns = sources.limit_ns;
        // Later than the heads: what they count is declared by now.
        let mut is_new = false;
        for part in sources.parts.iter_mut() {
            is_new |= part.metadata.more()?;
        }
        self.set.damaged.append(&mut damaged);
        Ok((!is_new).then_some(limit_ns))
    }

    fn sources(&mut self, horizon_ns: i64) -> Sources<'_> {
        let looks = (!self.is_over).then_some(self.looks);
        let Follower { set, parts, tails, selection, losses, newest_ns, grown, behind, .. } = self;
        let limit_ns = horizon_ns;
        Sources {
            set,
            parts,
            tails,
            selection,
            losses,
            newest_ns,
            grown,
            behind,
            looks,
            horizon_ns,
            limit_ns,
        }
    }

    fn note_sizes(&mut self) {
        for (stream, tail) in self.set.streams.iter_mut().zip(&self.tails) {
            stream.bytes = tail.bytes;
            stream.packets = tail.mark.as_ref().map_or(stream.packets, Bookmark::packets);
            stream.losses.clone_from(&tail.losses);
        }
    }
}

fn unreadable(error: &std::io::Error) -> Damage {
    Damage { packet_at: 0, what: format!("it cannot be followed: {error}"), rest_of_file: true }
}

/// A reader for a stream that has something to read.
fn reader<'t>(
    set: &'t TraceSet,
    selection: &'t Selection,
    place: usize,
    tail: &mut Tail,
) -> Option<(usize, StreamReader<'t>, Bookmark)> {
    let stream = set.streams.get(place)?;
    if tail.mark.as_ref().is_none_or(Bookmark::is_read) {
        return None;
    }
    let reader = match tail.verdicts.take() {
        Some(verdicts) => StreamReader::resumed(set, stream, selection, verdicts),
        None => StreamReader::new(set, stream, selection),
    };
    Some((place, reader, tail.mark.take()?))
}

/// Where streams come from.
struct Sources<'f> {
    set: &'f TraceSet,
    parts: &'f mut Vec<Part>,
    tails: &'f mut Vec<Tail>,
    selection: &'f Selection,
    losses: &'f mut VecDeque<(i64, usize, StreamGap)>,
    newest_ns: &'f mut i64,
    grown: &'f mut Instant,
    behind: &'f mut Behind,
    horizon_ns: i64,
    /// Before which moment events are given out.
    limit_ns: i64,
    /// As [`Tail::next_file`] wants it.
    looks: Option<u64>,
}

impl<'f> Sources<'f> {
    fn advance(&mut self, place: usize, stream: &Stream, mark: &mut Bookmark) -> std::io::Result<bool> {
        loop {
            if self.advance_in_file(place, stream, mark)? {
                return Ok(true);
            }
            if !self.change_file(place, stream, mark)? {
                return Ok(false);
            }
        }
    }

    /// Goes on with the next file of a ring; false: there is none. What was removed before it was read is noted as missing.
    fn change_file(&mut self, place: usize, stream: &Stream, mark: &mut Bookmark) -> std::io::Result<bool> {
        let (set, looks) = (self.set, self.looks);
        let Some((plans, tail)) = set.plans(stream).zip(self.tails.get_mut(place)) else { return Ok(false) };
        let Some(next) = tail.next_file(plans, looks)? else { return Ok(false) };
        let Some(part) = self.parts.iter().find(|part| part.trace == stream.trace) else { return Ok(false) };
        let file = match part.open_file(&next.name) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => {
                tail.forget_file(next.file);
                // Another one may be there.
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        let read = tail.file_read();
        let (packets, end, begin) = tail.change_file(file, next.file, plans)?;
        *mark = tail.first_mark();
        let Some((old, name)) = read.filter(|_| !next.follows) else { return Ok(true) };
        let until = name.events + count_events(set, stream, plans, &old)?;
        let clock = set.clock(stream);
        let ns = |cycles: Option<u64>| cycles.zip(clock).map(|(cycles, clock)| clock.ns(cycles));
        let (from_ns, to_ns, is_overwritten) = (ns(end), ns(begin), true);
        let missed = [(true, packets), (false, next.file.events.saturating_sub(until))];
        for (packets, count) in missed.into_iter().filter(|(_, count)| *count > 0) {
            let gap = StreamGap { packets, count: Some(count), from_ns, to_ns, is_overwritten };
            if let Some(tail) = self.tails.get_mut(place) {
                tail.losses.add(gap.clone());
            }
            self.note(place, gap);
        }
        Ok(true)
    }

    fn note(&mut self, place: usize, gap: StreamGap) {
        let at = gap.to_ns.or(gap.from_ns).unwrap_or(i64::MIN);
        if self.selection.from_ns.is_none_or(|from| at >= from) {
            let place_in_time = self.losses.partition_point(|(other, ..)| *other <= at);
            self.losses.insert(place_in_time, (at, place, gap));
        }
    }

    fn advance_in_file(
        &mut self,
        place: usize,
        stream: &Stream,
        mark: &mut Bookmark,
    ) -> std::io::Result<bool> {
        let plans = self.set.plans(stream).zip(self.tails.get_mut(place));
        let Some((plans, tail)) = plans else { return Ok(false) };
        let clock: Option<&ClockClass> = self.set.clock(stream);
        let mut found = Vec::new();
        let has_more = tail.advance(mark, (plans, clock), self.selection.from_ns, &mut found)?;
        if has_more {
            *self.grown = Instant::now();
            let newest = tail.newest.zip(clock).map(|(newest, clock)| clock.ns(newest));
            tail.grown = Some(*self.grown);
            let newest_ns = newest.unwrap_or(i64::MIN);
            if newest_ns > *self.newest_ns {
                self.behind.newest_came(newest_ns < self.horizon_ns);
            }
            *self.newest_ns = (*self.newest_ns).max(newest_ns);
        }
        found.into_iter().for_each(|gap| self.note(place, gap));
        Ok(has_more)
    }

    /// A stream has been read to its end, and may be written to.
    fn is_dry(&mut self, place: usize) {
        let Some((stream, tail)) = self.set.streams.get(place).zip(self.tails.get(place)) else { return };
        let newest = tail.newest.zip(self.set.clock(stream)).map(|(newest, clock)| clock.ns(newest));
        let Some(newest_ns) = newest.filter(|newest_ns| *newest_ns < self.limit_ns) else { return };
        // At the recording's end nothing comes.
        if self.looks.is_some() && self.behind.waits_for(tail.file(), tail.grown) {
            self.limit_ns = newest_ns.saturating_add(1);
        }
    }

    fn plans(&self, stream: &Stream) -> Option<&'f TracePlans> {
        self.set.plans(stream)
    }
}

/// Events of a file, without those of state dumps.
fn count_events(set: &TraceSet, stream: &Stream, plans: &TracePlans, file: &File) -> std::io::Result<u64> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mut cursor = Cursor::open(plans, &path, WINDOW, (0, u64::MAX))?;
    let failed = |damage: Damage| std::io::Error::new(std::io::ErrorKind::InvalidData, damage.what);
    let mut events = 0;
    while cursor.next_packet().map_err(failed)? {
        while let Some(head) = cursor.next_event().map_err(failed)? {
            events += u64::from(!set.event_name(stream, head.event as usize).starts_with("lttng_statedump_"));
            cursor.pass(head).map_err(failed)?;
        }
    }
    Ok(events)
}

/// How a stream was left.
struct End {
    place: usize,
    mark: Option<Bookmark>,
    damaged: Vec<DamagedFile>,
}

/// A merge under way.
struct Merge<'f, 'r> {
    sources: Sources<'f>,
    /// Of each lane: the index of its stream.
    places: Vec<usize>,
    lanes: Vec<Lane<'r>>,
    /// The next event of each; its header has been read.
    nexts: Vec<Option<NextEvent>>,
    floor_ns: i64,
    late: u64,
}

impl<'f: 'r, 'r> Merge<'f, 'r> {
    fn run(&mut self, take: &mut dyn Take) -> Result<Round, Error> {
        self.nexts = vec![None; self.lanes.len()];
        let mut heap = BinaryHeap::with_capacity(self.lanes.len());
        for lane in 0..self.lanes.len() {
            match self.next(lane)? {
                Refill::Events => heap.extend(self.key(lane).map(Reverse)),
                Refill::Nothing => {}
                Refill::Classes => return Ok(Round::More),
            }
        }
        while let Some(Reverse((ns, _, lane))) = heap.pop() {
            if ns >= self.sources.limit_ns {
                break;
            }
            // A stream mostly has several events before another has its next.
            while let Some(key) = self.key(lane) {
                if key.0 >= self.sources.limit_ns || heap.peek().is_some_and(|Reverse(other)| *other < key) {
                    heap.push(Reverse(key));
                    break;
                }
                if !self.say_losses(key.0, take) || !self.give(lane, take) {
                    return Ok(Round::Stopped);
                }
                if self.next(lane)? == Refill::Classes {
                    return Ok(Round::More);
                }
            }
        }
        Ok(if self.say_losses(self.sources.limit_ns, take) { Round::Dry } else { Round::Stopped })
    }

    /// In which order: time, then rank.
    fn key(&self, lane: usize) -> Option<(i64, u32, usize)> {
        let next = self.nexts.get(lane)?.as_ref()?;
        let rank = self.sources.tails.get(*self.places.get(lane)?)?.rank;
        Some((next.ns, rank, lane))
    }

    fn say_losses(&mut self, until_ns: i64, take: &mut dyn Take) -> bool {
        while self.sources.losses.front().is_some_and(|(at, ..)| *at <= until_ns) {
            let Some((_, stream, gap)) = self.sources.losses.pop_front() else { return true };
            if !take.lost(self.sources.set, stream, &gap) {
                return false;
            }
        }
        true
    }

    /// Gives the next event of a lane.
    fn give(&mut self, place: usize, take: &mut dyn Take) -> bool {
        let (Some(stream), Some(lane)) = (self.places.get(place), self.lanes.get_mut(place)) else {
            return true;
        };
        let Some(next) = self.nexts.get_mut(place).and_then(Option::take) else { return true };
        if !lane.is_selected_now(next.head, next.ns) {
            return true;
        }
        let cursor = lane.cursor.as_ref();
        let (cpu, packet) = (cursor.and_then(|cursor| cursor.packet.cpu), lane.packets);
        let late_ns = self.floor_ns.checked_sub(next.ns).filter(|late| *late > 0);
        let late_ns = late_ns.and_then(|late| u64::try_from(late).ok()).filter(|_| self.floor_ns != i64::MIN);
        self.late += u64::from(late_ns.is_some());
        self.floor_ns = self.floor_ns.max(next.ns);
        let ns = lane.reading.is_timed().then_some(next.ns);
        let (event, cycles) = (next.head.event as usize, next.head.clock);
        let mut view = EventView { stream: *stream, event, ns, cycles, cpu, packet, late_ns, lane };
        take.event(self.sources.set, &mut view)
    }

    /// Goes to the next event of a lane.
    fn next(&mut self, place: usize) -> Result<Refill, Error> {
        loop {
            let Some(lane) = self.lanes.get_mut(place) else { return Ok(Refill::Nothing) };
            let next = lane.next();
            let has_next = next.is_some();
            self.nexts.get_mut(place).into_iter().for_each(|place| *place = next);
            if has_next {
                return Ok(Refill::Events);
            }
            match self.refill(place)? {
                Refill::Events => {}
                other => return Ok(other),
            }
        }
    }

    /// Looks for more in the stream of a lane that has been read.
    fn refill(&mut self, place: usize) -> Result<Refill, Error> {
        let (Some(stream), Some(lane)) = (self.places.get(place).copied(), self.lanes.get_mut(place)) else {
            return Ok(Refill::Nothing);
        };
        if !lane.damaged.is_empty() {
            return Ok(Refill::Nothing);
        }
        let Some(cursor) = lane.cursor.take() else { return Ok(Refill::Nothing) };
        let of_stream = lane.reading.stream;
        let mut mark = cursor.suspend(false);
        mark.pass_packet();
        let advanced = match self.sources.advance(stream, of_stream, &mut mark) {
            Ok(advanced) => advanced,
            Err(error) => {
                let path = of_stream.files.first().cloned().unwrap_or_default();
                lane.damaged.push(DamagedFile { path, damage: unreadable(&error) });
                return Ok(Refill::Nothing);
            }
        };
        let Some(plans) = self.sources.plans(of_stream) else { return Ok(Refill::Nothing) };
        lane.resume(Cursor::resume(plans, mark));
        if !advanced {
            self.sources.is_dry(stream);
            return Ok(Refill::Nothing);
        }
        let mut of_trace = self.sources.parts.iter_mut().filter(|part| part.trace == of_stream.trace);
        let is_new = of_trace.next().map_or(Ok(false), |part| part.metadata.more())?;
        Ok(if is_new { Refill::Classes } else { Refill::Events })
    }

    /// Where each stream was left.
    fn ends(self) -> Vec<End> {
        let lanes = self.lanes.into_iter().zip(self.nexts).zip(self.places);
        let end = |((lane, next), place): ((Lane<'r>, Option<NextEvent>), usize)| {
            let Lane { cursor, damaged, .. } = lane;
            End { place, mark: cursor.map(|cursor| cursor.suspend(next.is_some())), damaged }
        };
        lanes.map(end).collect()
    }
}
