// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream's selected events in an interval of time, one after the other.

use super::class::ClockClass;
use super::cursor::{Cursor, Damage, Head, Skip, WINDOW};
use super::index::Segment;
use super::judge::Judge;
use super::packet::StreamPlans;
use super::plan::Plan;
use super::run::Visit;
use super::select::{Selection, Verdict, says_cpu_in_events};
use super::set::{DamagedFile, Stream, TraceSet};

/// Everything needed for reading a stream, made once.
#[derive(Debug)]
pub(crate) struct StreamReader<'t> {
    pub(crate) set: &'t TraceSet,
    pub(crate) stream: &'t Stream,
    pub(crate) segments: Vec<Segment>,
    clock: Option<(&'t ClockClass, i64)>,
    /// What to do with each event class.
    pub(crate) verdicts: Vec<Verdict>,
    selection: &'t Selection,
    says_cpu_in_events: bool,
}

impl<'t> StreamReader<'t> {
    pub(crate) fn new(set: &'t TraceSet, stream: &'t Stream, selection: &'t Selection) -> StreamReader<'t> {
        let verdicts = selection.verdicts(set, stream);
        let segments = stream.segments.clone();
        StreamReader { segments, ..StreamReader::resumed(set, stream, selection, verdicts) }
    }

    /// The same for a stream that grows, whose verdicts have been made before.
    pub(crate) fn resumed(
        set: &'t TraceSet,
        stream: &'t Stream,
        selection: &'t Selection,
        verdicts: Vec<Verdict>,
    ) -> StreamReader<'t> {
        let clock = set.clock(stream).map(|clock| (clock, clock.base_ns()));
        let says_cpu_in_events = set.stream_class(stream).is_some_and(says_cpu_in_events);
        StreamReader { set, stream, segments: Vec::new(), clock, verdicts, selection, says_cpu_in_events }
    }

    /// Whether a packet of this CPU may have selected events. Where events say their CPU themselves, each is judged by that.
    pub(crate) fn wants_cpu(&self, cpu: Option<u64>) -> bool {
        self.says_cpu_in_events && cpu.is_none() || self.selection.wants_cpu(cpu)
    }

    /// Nanoseconds since the clock's origin; without a clock all events have the earliest time.
    #[inline]
    pub(crate) fn ns(&self, cycles: u64) -> i64 {
        match self.clock {
            Some((clock, base)) => base.saturating_add(clock.cycles_ns(cycles)),
            None => i64::MIN,
        }
    }

    fn plans(&self) -> Option<&'t StreamPlans> {
        self.set.plans(self.stream)?.streams.get(self.stream.class_place())
    }

    /// How to pass over what is not wanted, by class.
    fn skips(&self) -> Vec<Skip> {
        let is_wanted =
            |place: usize| self.verdicts.get(place).is_some_and(|verdict| !matches!(verdict, Verdict::No));
        self.plans().map_or(Vec::new(), |plans| Skip::all(plans, is_wanted))
    }

    /// All events with a lower value of the clock are before this time. 0 where that is not known without reading them.
    fn cycles_before(&self, ns: i64) -> u64 {
        match self.clock {
            _ if ns == i64::MAX => u64::MAX,
            Some((clock, base)) if clock.counts_ns() => u64::try_from(ns.saturating_sub(base)).unwrap_or(0),
            _ => 0,
        }
    }

    /// Times of the first and of the last event.
    pub(crate) fn event_span(&self) -> (Option<i64>, Option<i64>) {
        let count = self.segments.len();
        let first = Lane::new(self, (0, count), ALWAYS, 4096).next().map(|next| next.ns);
        // Where times depend on earlier events, all have to be read.
        let places = if self.is_chained() { 0..count.min(1) } else { 0..count };
        let last = places.rev().find_map(|place| {
            let until = if self.is_chained() { count } else { place + 1 };
            let mut lane = Lane::new(self, (place, until), ALWAYS, WINDOW);
            let mut last = None;
            while let Some(next) = lane.next() {
                last = Some(next.ns);
                lane.pass(next.head);
            }
            last
        });
        (first, last)
    }

    /// The time of an event may depend on the packets before its own.
    pub(crate) fn is_chained(&self) -> bool {
        self.plans().is_some_and(|plans| plans.chained)
    }

    /// Whether no event in a segment of this span is selected, by its packets' times.
    fn is_outside(&self, (begin, end): Interval) -> bool {
        let Selection { from_ns, to_ns, .. } = self.selection;
        let outside = from_ns.is_some_and(|from| end < from) || to_ns.is_some_and(|to| begin > to);
        outside && self.is_timed() && !self.is_chained()
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.clock.is_some()
    }

    /// The time span of a segment. A packet's end time is not always true (LTTng had faults there), so an event outside counts
    /// for the nearest end.
    pub(crate) fn span(&self, place: usize) -> (i64, i64) {
        let Some(segment) = self.segments.get(place) else { return (i64::MAX, i64::MAX) };
        let Some(begin) = segment.first.begin.filter(|_| self.is_timed()) else {
            return (i64::MIN, i64::MAX);
        };
        let begin = self.ns(begin);
        let next = self.segments.get(place + 1).and_then(|next| next.first.begin);
        let next = next.map_or(i64::MAX, |next| self.ns(next).max(begin));
        let end = segment.last.end.map(|end| self.ns(end)).filter(|end| *end >= begin);
        (begin, end.unwrap_or(i64::MAX).min(next))
    }
}

fn is_growing(verdict: Option<&Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Ask(asking)) if asking.is_growing)
}

/// Half open: from, until.
pub(crate) type Interval = (i64, i64);

/// All times.
pub(crate) const ALWAYS: Interval = (i64::MIN, i64::MAX);

/// Reads some segments of a stream.
#[derive(Debug)]
pub(crate) struct Lane<'r> {
    pub(crate) reading: &'r StreamReader<'r>,
    pub(crate) cursor: Option<Cursor<'r>>,
    /// File that the cursor has open.
    file: usize,
    /// Segments to come.
    next: usize,
    until: usize,
    span: Interval,
    interval: Interval,
    /// Where, in bits of the packet, the segment ends, if it is a part of one.
    end_place: Option<u64>,
    /// The latest time so far: times in a stream do not go back.
    latest: i64,
    window: usize,
    judge: Judge,
    /// Of the stream, by class; see [`Cursor::skip`].
    skips: Vec<Skip>,
    /// As [`Cursor::skip`] takes it.
    skip_until: u64,
    pub(crate) passed: Passed,
    in_packet: bool,
    wants_packet: bool,
    pub(crate) packets: u64,
    pub(crate) damaged: Vec<DamagedFile>,
}

/// The events that were passed over.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// Number, by class; empty where nobody asks ([`Lane::counting`]).
    pub(crate) events: Vec<u64>,
    /// Times of the first and of the latest.
    pub(crate) span_ns: Option<(i64, i64)>,
}

impl Passed {
    fn extend(&mut self, (first_ns, latest_ns): (i64, i64)) {
        let (first, latest) = self.span_ns.unwrap_or((first_ns, latest_ns));
        self.span_ns = Some((first.min(first_ns), latest.max(latest_ns)));
    }
}

/// The next event of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextEvent {
    pub(crate) head: Head,
    pub(crate) ns: i64,
}

impl<'r> Lane<'r> {
    pub(crate) fn new(
        reading: &'r StreamReader<'r>,
        (from, until): (usize, usize),
        interval: Interval,
        window: usize,
    ) -> Lane<'r> {
        Lane {
            reading,
            cursor: None,
            file: usize::MAX,
            next: from,
            until: until.min(reading.segments.len()),
            span: ALWAYS,
            interval,
            end_place: None,
            latest: i64::MIN,
            window,
            judge: Judge::default(),
            skips: reading.skips(),
            skip_until: reading.cycles_before(interval.1),
            passed: Passed::default(),
            in_packet: false,
            wants_packet: true,
            packets: 0,
            damaged: Vec::new(),
        }
    }

    /// Counts in [`Lane::passed`] what need not be looked at, if everything is wanted; returns the others.
    pub(crate) fn counting(
        reading: &'r StreamReader<'r>,
        segments: (usize, usize),
        window: usize,
    ) -> Lane<'r> {
        let mut lane = Lane::new(reading, segments, ALWAYS, window);
        if let (true, Some(plans)) = (reading.selection.is_everything(), reading.plans()) {
            lane.skips = Skip::everything(plans);
            lane.passed.events = vec![0; lane.skips.len()];
        }
        lane
    }

    /// Without segments: reads what the packet of a cursor still has, and then nothing ([`Lane::resume`]).
    pub(crate) fn resumed(reading: &'r StreamReader<'r>, cursor: Cursor<'r>) -> Lane<'r> {
        let mut lane = Lane::new(reading, (0, 0), ALWAYS, 0);
        lane.file = 0;
        lane.resume(cursor);
        lane
    }

    /// Continues where a cursor is.
    pub(crate) fn resume(&mut self, cursor: Cursor<'r>) {
        self.wants_packet = self.reading.wants_cpu(cursor.packet.cpu);
        self.packets = cursor.serial;
        self.in_packet = true;
        self.cursor = Some(cursor);
    }

    fn damage(&mut self, damage: Damage) {
        let path = self.reading.stream.files.get(self.file).cloned().unwrap_or_default();
        if self.damaged.len() < 100 {
            self.damaged.push(DamagedFile { path, damage });
        }
    }

    /// Goes to the next segment; false after the last.
    fn open(&mut self) -> bool {
        while self.next < self.until {
            let place = self.next;
            self.next += 1;
            self.span = self.reading.span(place);
            // Segments are in the order of their beginnings.
            if self.interval != ALWAYS && self.span.1 < self.interval.0 {
                continue;
            }
            if self.interval != ALWAYS && self.span.0 >= self.interval.1 {
                return false;
            }
            if self.reading.is_outside(self.span) {
                continue;
            }
            let Some(segment) = self.reading.segments.get(place) else { return false };
            match self.seek(segment) {
                Ok(()) => return true,
                Err(damage) => self.damage(damage),
            }
        }
        false
    }

    fn seek(&mut self, segment: &Segment) -> Result<(), Damage> {
        let bytes = (segment.from, segment.until);
        let cannot = |what: String| Damage { packet_at: segment.from, what, rest_of_file: true };
        match &mut self.cursor {
            Some(cursor) if self.file == segment.file => cursor.seek(bytes),
            _ => {
                self.file = segment.file;
                let path = self.reading.stream.files.get(segment.file);
                let (path, plans) = path
                    .zip(self.reading.set.plans(self.reading.stream))
                    .ok_or_else(|| cannot("it is not in the index".to_owned()))?;
                let cursor = Cursor::open(plans, path, self.window, bytes);
                self.cursor = Some(cursor.map_err(|error| cannot(format!("it cannot be opened: {error}")))?);
            }
        }
        self.in_packet = false;
        self.end_place = segment.place.map(|(_, end)| end);
        self.latest = self.latest.max(self.span.0);
        if let (Some(cursor), Some(clock)) = (&mut self.cursor, segment.clock) {
            cursor.state.clock = clock;
        }
        if let (Some((begin, _)), true) = (segment.place, self.packet()?) {
            if let (Some(cursor), Some(clock)) = (&mut self.cursor, segment.clock) {
                cursor.jump(begin, clock);
            }
        }
        Ok(())
    }

    /// Begins the next packet of the segment.
    fn packet(&mut self) -> Result<bool, Damage> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        self.in_packet = cursor.next_packet()?;
        if self.in_packet {
            self.packets += 1;
            self.wants_packet = self.reading.wants_cpu(cursor.packet.cpu);
        }
        Ok(self.in_packet)
    }

    /// The next selected event; its header has been read, its fields have not. `None` at the end of the interval.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<NextEvent> {
        loop {
            match self.try_next() {
                Ok(Some(next)) => return Some(next),
                Ok(None) => {
                    if !self.open() {
                        return None;
                    }
                }
                Err(damage) => {
                    self.in_packet = false;
                    if damage.rest_of_file {
                        self.skip_file();
                    }
                    self.damage(damage);
                }
            }
        }
    }

    fn skip_file(&mut self) {
        let segments = &self.reading.segments;
        while self.next < self.until
            && segments.get(self.next).is_some_and(|segment| segment.file == self.file)
        {
            self.next += 1;
        }
        self.cursor = None;
    }

    /// The next event of the segment.
    #[inline]
    fn try_next(&mut self) -> Result<Option<NextEvent>, Damage> {
        loop {
            if !self.in_packet || !self.wants_packet {
                // A part of a packet is begun by `seek`, and has no second packet.
                if self.end_place.is_some() || !self.packet()? {
                    return Ok(None);
                }
                continue;
            }
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            let mut read = None;
            if !self.skips.is_empty() {
                let end = self.end_place.unwrap_or(u64::MAX);
                let events = &mut self.passed.events;
                let count = |event: usize| events.get_mut(event).into_iter().for_each(|count| *count += 1);
                let skipped = cursor.skip(&self.skips, self.skip_until, end, count);
                if let Some((first, latest)) = skipped.times {
                    let latest_ns = self.reading.ns(latest);
                    self.latest = self.latest.max(latest_ns);
                    self.passed.extend((self.reading.ns(first), latest_ns));
                }
                read = skipped.head;
            }
            if read.is_none() && self.end_place.is_some_and(|end| cursor.place() >= end) {
                self.in_packet = false;
                return Ok(None);
            }
            let Some(head) = read.map_or_else(|| cursor.next_event(), |head| Ok(Some(head)))? else {
                self.in_packet = false;
                continue;
            };
            let ns = self.reading.ns(head.clock);
            self.latest = self.latest.max(ns);
            if self.interval != ALWAYS {
                let counted = self.latest.clamp(self.span.0, self.span.1);
                if counted < self.interval.0 {
                    cursor.pass(head)?;
                    continue;
                }
                if counted >= self.interval.1 {
                    return Ok(None);
                }
            }
            if self.wants(head, ns)? {
                return Ok(Some(NextEvent { head, ns }));
            }
            if let Some(cursor) = &mut self.cursor {
                cursor.pass(head)?;
            }
        }
    }

    #[inline]
    fn wants(&mut self, head: Head, ns: i64) -> Result<bool, Damage> {
        let verdict = self.reading.verdicts.get(head.event as usize);
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        // Else it is asked when the event is given out: `is_selected_now`.
        if !is_growing(verdict) && !self.judge.wants(verdict, cursor, ns)? {
            return Ok(false);
        }
        Ok(!self.reading.is_timed() || self.reading.selection.wants_time(ns))
    }

    /// Whether the event that was returned last is selected by what is known by now, where that grows. If not, passes over it.
    pub(crate) fn is_selected_now(&mut self, head: Head, ns: i64) -> bool {
        let verdict = self.reading.verdicts.get(head.event as usize);
        if !is_growing(verdict) {
            return true;
        }
        let Some(cursor) = &mut self.cursor else { return false };
        match self.judge.wants(verdict, cursor, ns) {
            Ok(true) => true,
            Ok(false) => {
                self.pass(head);
                false
            }
            Err(damage) => self.settle(Some(Err(damage))),
        }
    }

    /// Passes over the event that was returned last.
    #[inline]
    pub(crate) fn pass(&mut self, head: Head) -> bool {
        let passed = self.cursor.as_mut().map(|cursor| cursor.pass(head));
        self.settle(passed)
    }

    /// Runs a plan over the event that was returned last; false when it cannot be read to its end.
    pub(crate) fn show<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> bool {
        let shown = self.cursor.as_mut().map(|cursor| cursor.show(plan, visit));
        self.settle(shown)
    }

    /// The same, and stays before the event.
    pub(crate) fn peek<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> bool {
        let shown = self.cursor.as_mut().map(|cursor| cursor.peek(plan, visit));
        self.settle(shown)
    }

    fn settle(&mut self, result: Option<Result<(), Damage>>) -> bool {
        match result {
            Some(Ok(())) => true,
            Some(Err(damage)) => {
                self.in_packet = false;
                if damage.rest_of_file {
                    self.skip_file();
                }
                self.damage(damage);
                false
            }
            None => false,
        }
    }
}
