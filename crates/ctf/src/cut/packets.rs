// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a cut's stream: heads of the packets that its events come from, with other times, sizes and counts, and events as
//! they were.
//!
//! Events are copied as bytes, many at a time where they follow each other. Two things can stand in the way. Short times of events
//! are completed from what is before them: when that was left out, a new packet begins, whose head has the whole time. And alignment:
//! an event that comes to another place may need other space between its fields; it is then written field by field.

use super::bits::{BitWriter, Recoder, largest_align};
use super::places::{Finder, Item, Places};
use crate::Error;
use crate::read::class::{EventClass, FieldClass, StreamClass, StructClass, TraceClass};
use crate::read::cursor::{Cursor, Damage};
use crate::read::packet::{StreamPlans, TracePlans};
use crate::read::run::{MARGIN, Position, State};
use rtscope_event::exact::index;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// babeltrace2 2.0.4 takes 2^64 - 1 for "not known", and aborts.
const DISCARDED_MAX: u64 = u64::MAX >> 1;

/// A packet is closed when it exceeds this.
const PACKET_BYTES: u64 = 512 << 10;
/// Bytes that are copied at once.
const RUN_BYTES: u64 = 256 << 10;
/// Each alignment divides this (`ALIGN_BYTES` of the reader).
const ALIGN_BYTES: u64 = 512;

/// What a stream's metadata says.
pub(super) struct StreamLayout<'t> {
    pub(super) plans: &'t TracePlans,
    pub(super) stream: &'t StreamPlans,
    pub(super) class: &'t StreamClass,
    /// By the places of `stream.events`.
    pub(super) events: Vec<&'t EventClass>,
    pub(super) slots: u32,
}

impl StreamLayout<'_> {
    fn largest_align(&self) -> u32 {
        let of_stream = [&self.class.event_header, &self.class.event_context];
        let of_events = self.events.iter().flat_map(|event| [&event.context, &event.fields]);
        largest_align(of_stream.into_iter().chain(of_events).flatten())
    }

    /// The fewest bits of a time in an event's header; 0 without any.
    fn time_bits(&self) -> u32 {
        fn least(class: &FieldClass) -> Option<u32> {
            match class {
                FieldClass::Integer(integer) => integer.clock.as_ref().map(|_| integer.bits),
                FieldClass::Struct(class) => within(class),
                FieldClass::Variant(class) => {
                    let bits = class.options.iter().map(|(_, option)| least(option).unwrap_or(0));
                    bits.min()
                }
                _ => None,
            }
        }
        fn within(class: &StructClass) -> Option<u32> {
            class.fields.iter().filter_map(|(_, field)| least(field)).max()
        }
        if self.class.clock.is_none() {
            return 64;
        }
        self.class.event_header.as_ref().and_then(within).unwrap_or(0)
    }
}

/// Why events could not be copied.
pub(super) enum Failure {
    /// They cannot be read.
    Damage(Damage),
    /// They cannot be written.
    Error(Error),
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Failure {
        Failure::Damage(damage)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A part of the packet that is being read.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    until: u64,
}

/// The packet that is being written.
struct OpenPacket {
    places: Places,
    /// The head without what differs from packet to packet.
    constant: Vec<u8>,
    begin: u64,
    end: u64,
    /// Where its events begin, in bits.
    events_at: u64,
    events: u64,
    /// Nothing of another packet is added: losses would no longer be where they were.
    is_closed: bool,
}

/// What is known of the packet that events are taken from.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourcePacket {
    /// From then on the stream is covered.
    pub(super) begin: u64,
    /// Events that were lost since the packet before it, and whole packets.
    pub(super) lost_events: u64,
    pub(super) lost_packets: u64,
    /// Nothing of the next one may be added to what is made of it.
    pub(super) stays_alone: bool,
    /// When the packet before it ended, but not before the cut; `None` for the stream's first.
    pub(super) lost_since: Option<u64>,
}

/// Writes a stream.
pub(super) struct PacketCopier<'t> {
    layout: StreamLayout<'t>,
    finder: Finder,
    uuid: Uuid,
    path: PathBuf,
    file: File,
    open: Option<OpenPacket>,
    /// The open packet from `flushed` on.
    bytes: Vec<u8>,
    flushed: u64,
    /// The head of the open packet, once it has been written.
    written_head: Option<Vec<u8>>,
    /// The next bit in the open packet.
    at: u64,
    /// What a reader's clock is after the events so far.
    clock: u64,
    /// Up to here packets have been written.
    last_end: u64,
    run: Option<Run>,
    /// What the last packet was made from.
    template: Option<(Places, Vec<u8>, u64)>,
    discarded: u64,
    sequence: Option<u64>,
    align: u32,
    time_bits: u32,
    pub(super) packets: u64,
    pub(super) written: u64,
    pub(super) events: u64,
}

impl<'t> PacketCopier<'t> {
    pub(super) fn new(
        trace: &TraceClass,
        layout: StreamLayout<'t>,
        uuid: Uuid,
        path: &Path,
    ) -> Result<PacketCopier<'t>, Error> {
        let file =
            File::options().write(true).create_new(true).open(path).map_err(Error::io("make", path))?;
        Ok(PacketCopier {
            finder: Finder::new(trace, layout.class),
            uuid,
            path: path.to_owned(),
            file,
            open: None,
            bytes: Vec::new(),
            flushed: 0,
            written_head: None,
            at: 0,
            clock: 0,
            last_end: 0,
            run: None,
            template: None,
            discarded: 0,
            sequence: None,
            align: layout.largest_align().max(8),
            time_bits: layout.time_bits(),
            layout,
            packets: 0,
            written: 0,
            events: 0,
        })
    }

    fn refuse(&self, what: impl Into<String>) -> Error {
        Error::Cut { stream: name_of(&self.path), what: what.into() }
    }

    /// Events of the packet that the cursor is in are to follow.
    pub(super) fn source(&mut self, cursor: &Cursor<'_>, source: SourcePacket) -> Result<(), Failure> {
        self.flush_run(cursor)?;
        let lost = source.lost_events != 0 || source.lost_packets > 0;
        let (places, constant) = self.head(cursor);
        let goes_on = self
            .open
            .as_ref()
            .is_some_and(|open| !open.is_closed && !lost && !source.stays_alone && open.constant == constant);
        if goes_on {
            return Ok(());
        }
        self.close()?;
        self.sequence = self.sequence.or(cursor.packet.sequence);
        let events_at = cursor.packet.events_at;
        let since = source.lost_since.filter(|since| self.packets == 0 || self.last_end < *since);
        if let Some(since) = since.filter(|_| lost && places.have_sizes()) {
            // Counts are compared with those of the packet before, and lost was what they have more since its end.
            self.open_packet(places.clone(), constant.clone(), events_at, since)?;
            self.close()?;
        }
        self.discarded = self.discarded.saturating_add(source.lost_events).min(DISCARDED_MAX);
        self.sequence = self.sequence.map(|sequence| sequence.wrapping_add(source.lost_packets));
        self.open_packet(places, constant, events_at, source.begin)?;
        if let Some(open) = &mut self.open {
            open.is_closed = source.lost_events != 0 || source.stays_alone;
        }
        Ok(())
    }

    /// Where the values are in the head of the cursor's packet, and what is never changed in it.
    fn head(&self, cursor: &Cursor<'_>) -> (Places, Vec<u8>) {
        let packet = &cursor.packet;
        let places = self.finder.places(cursor.head_bytes(), packet);
        let mut constant = cursor.head_bytes().to_vec();
        for item in
            [Item::Begin, Item::End, Item::ContentSize, Item::PacketSize, Item::Sequence, Item::Discarded]
        {
            places.put(&mut constant, item, 0);
        }
        constant.truncate(index(packet.events_at.div_ceil(8)));
        (places, constant)
    }

    fn open_packet(
        &mut self,
        places: Places,
        constant: Vec<u8>,
        events_at: u64,
        begin: u64,
    ) -> Result<(), Error> {
        if self.packets > 0 && !places.have_sizes() {
            return Err(
                self.refuse("it would need several packets, and its packets do not say where they end")
            );
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&constant);
        places.put_uuid(&mut self.bytes, self.uuid);
        (self.flushed, self.at, self.written_head) = (0, events_at, None);
        let begin = begin.max(self.last_end);
        let (end, events, is_closed) = (begin, 0, false);
        self.open = Some(OpenPacket { places, constant, begin, end, events_at, events, is_closed });
        Ok(())
    }

    /// Before an event is passed over: the open packet becomes one in which its time is right.
    pub(super) fn make_room(&mut self, cursor: &Cursor<'_>, time: u64) -> Result<(), Failure> {
        let is_first = self.open.as_ref().is_some_and(|open| open.events == 0);
        let begin = self.open.as_ref().map_or(0, |open| open.begin.min(time));
        if is_first {
            if let Some(open) = &mut self.open {
                open.begin = begin;
            }
        }
        let before = if is_first { self.clock_in_head(begin)? } else { self.clock };
        let waiting = self.run.map_or(0, |run| run.until - run.from);
        let full = (self.at + waiting) / 8 >= PACKET_BYTES && self.has_sizes();
        if full || !self.is_completed(cursor, before, time) {
            self.flush_run(cursor)?;
            self.another(time)?;
            let before = self.clock_in_head(time)?;
            if !self.is_completed(cursor, before, time) {
                let bits = self.time_bits;
                return Err(self.refuse(format!(
                    "the times of its events have {bits} bits, and its packets do not say when they begin: behind what is left out, \
                     they would be ambiguous"
                )).into());
            }
        }
        Ok(())
    }

    /// Whether a reader whose clock is `before` finds an event's time.
    #[inline]
    fn is_completed(&self, cursor: &Cursor<'_>, before: u64, time: u64) -> bool {
        let near = time >= before && (self.time_bits >= 64 || time - before < 1 << self.time_bits);
        near || cursor.clock_from(before) == Some(time)
    }

    /// What a reader's clock is before the first event of the open packet.
    fn clock_in_head(&self, begin: u64) -> Result<u64, Error> {
        let Some(open) = &self.open else { return Ok(self.clock) };
        let size = index(self.at.div_ceil(8)).min(open.constant.len());
        let mut head = self.bytes.get(..size).unwrap_or_default().to_vec();
        // With a byte of content: there are traces whose packets have no head.
        let bits = self.at.next_multiple_of(8) + 8;
        for (item, value) in [(Item::Begin, begin), (Item::ContentSize, bits), (Item::PacketSize, bits)] {
            open.places.put(&mut head, item, value);
        }
        head.resize(size + MARGIN, 0);
        let mut state = State::new(self.layout.slots);
        state.clock = self.clock;
        let mut position = Position::new(&head, 0, bits);
        match self.layout.plans.packet_head(&mut position, &mut state, bits / 8) {
            Ok(_) => Ok(state.clock),
            Err(_) => Err(self.refuse("the head of a packet cannot be made")),
        }
    }

    fn has_sizes(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.places.have_sizes())
    }

    /// Closes the packet and opens one like it.
    fn another(&mut self, begin: u64) -> Result<(), Failure> {
        let Some(open) = &self.open else { return Ok(()) };
        let (places, constant) = (open.places.clone(), open.constant.clone());
        let (events_at, is_closed) = (open.events_at, open.is_closed);
        if open.events > 0 {
            self.close()?;
        }
        self.open_packet(places, constant, events_at, begin)?;
        if let Some(open) = &mut self.open {
            open.is_closed = is_closed;
        }
        Ok(())
    }

    /// Adds the event that the cursor has passed over.
    pub(super) fn event(&mut self, cursor: &Cursor<'_>) -> Result<(), Failure> {
        let (from, until) = (cursor.event_place(), cursor.place());
        match &mut self.run {
            Some(run) if run.until == from && run.until - run.from < RUN_BYTES * 8 => run.until = until,
            _ => {
                self.flush_run(cursor)?;
                self.run = Some(Run { from, until });
            }
        }
        self.clock = cursor.state.clock;
        self.events += 1;
        if let Some(open) = &mut self.open {
            open.events += 1;
            open.end = open.end.max(self.clock);
        }
        Ok(())
    }

    /// Events that the packets so far report as lost.
    pub(super) fn losses(&self) -> u64 {
        self.discarded
    }

    /// The stream is covered up to this moment.
    pub(super) fn covered(&mut self, end: u64) {
        if let Some(open) = &mut self.open {
            open.end = open.end.max(end);
        }
    }

    /// Copies the events that wait. The cursor must still be in their packet.
    pub(super) fn flush_run(&mut self, cursor: &Cursor<'_>) -> Result<(), Failure> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let align =
            u64::from(self.layout.class.event_header.as_ref().map_or(1, |header| header.align.max(1)));
        let from = run.from.next_multiple_of(align);
        let to = self.at.next_multiple_of(align);
        let whole = from % 8 == 0 && run.until % 8 == 0 && to % 8 == 0;
        if whole && from % u64::from(self.align) == to % u64::from(self.align) {
            let start = index(to / 8 - self.flushed);
            let size = index(run.until.saturating_sub(from) / 8);
            self.bytes.resize(start + size, 0);
            cursor.copy(from / 8, &mut self.bytes[start..])?;
            self.at = to + size as u64 * 8;
        } else {
            self.recode(cursor, run)?;
        }
        if !self.has_sizes() && self.bytes.len() as u64 > PACKET_BYTES {
            self.write_through()?;
        }
        Ok(())
    }

    /// Writes events field by field.
    fn recode(&mut self, cursor: &Cursor<'_>, run: Run) -> Result<(), Failure> {
        let start = run.from / 8 / ALIGN_BYTES * ALIGN_BYTES;
        let size = index(run.until.div_ceil(8) - start);
        let mut bytes = vec![0; size + MARGIN];
        cursor.copy(start, &mut bytes[..size])?;
        let end = run.until - start * 8;
        let mut state = cursor.state.clone();
        let layout = &self.layout;
        let mut recoder = Recoder {
            from: Position::new(&bytes, run.from - start * 8, end),
            state: &mut state,
            to: BitWriter { at: self.at - self.flushed * 8, bytes: &mut self.bytes },
        };
        let path = &self.path;
        let odd = |_| {
            Failure::Error(Error::Cut {
                stream: name_of(path),
                what: "its events cannot be moved to other places".to_owned(),
            })
        };
        while recoder.from.at < end {
            let mut header = recoder.from;
            let id = layout.stream.header.read(&mut header, recoder.state).map_err(odd)?;
            let place = layout.stream.event(id).map(|place| place as usize);
            let Some(event) = place.and_then(|place| layout.events.get(place)) else { break };
            let scopes =
                [&layout.class.event_header, &layout.class.event_context, &event.context, &event.fields];
            for class in scopes.into_iter().flatten() {
                recoder.structure(class).map_err(odd)?;
            }
        }
        self.at = recoder.to.at + self.flushed * 8;
        Ok(())
    }

    /// Writes what is there of a packet that has no size in its head, and so can be as long as it likes.
    fn write_through(&mut self) -> Result<(), Error> {
        // What is written whole; the rest may continue in the middle of a byte.
        let whole = (self.bytes.len() as u64 - 1) / ALIGN_BYTES * ALIGN_BYTES;
        if self.written_head.is_none() {
            let head_bytes = self.open.as_ref().map_or(0, |open| open.constant.len());
            self.written_head = Some(self.bytes[..head_bytes].to_vec());
        }
        let bytes = &self.bytes[..index(whole)];
        let written = self.file.write_all_at(bytes, self.written + self.flushed);
        written.map_err(Error::io("write", &self.path))?;
        self.bytes.drain(..index(whole));
        self.flushed += whole;
        Ok(())
    }

    /// Ends the open packet, if there is one.
    fn close(&mut self) -> Result<(), Error> {
        debug_assert!(self.run.is_none(), "the cursor is no longer there");
        let Some(open) = self.open.take() else { return Ok(()) };
        let padded = self.at.next_multiple_of(8);
        let both = open.places.has(Item::PacketSize) && open.places.has(Item::ContentSize);
        if padded != self.at && !both {
            return Err(self.refuse(
                "its last event would not end at a whole byte, and packets do not say where they end",
            ));
        }
        self.bytes.resize(index(padded / 8 - self.flushed), 0);
        let end = open.end.max(open.begin);
        let values = [
            (Item::Begin, open.begin),
            (Item::End, end),
            (Item::ContentSize, self.at),
            (Item::PacketSize, padded),
            (Item::Sequence, self.sequence.unwrap_or(0)),
            (Item::Discarded, self.discarded),
        ];
        let head = self.written_head.as_mut().unwrap_or(&mut self.bytes);
        for (item, value) in values {
            open.places.put(head, item, value);
        }
        let (at, rest) = (self.written, self.written + self.flushed);
        let head = self.written_head.take().unwrap_or_default();
        let written =
            self.file.write_all_at(&self.bytes, rest).and_then(|()| self.file.write_all_at(&head, at));
        written.map_err(Error::io("write", &self.path))?;
        self.last_end = end;
        self.template = Some((open.places, open.constant, open.events_at));
        self.sequence = self.sequence.map(|sequence| sequence.wrapping_add(1));
        self.packets += 1;
        self.written += padded / 8;
        Ok(())
    }

    /// Writes the last packet. `lost`: so many losses are known to be behind it.
    pub(super) fn finish(&mut self, lost: u64) -> Result<(), Error> {
        self.close()?;
        if let Some((places, constant, events_at)) = self.template.take().filter(|_| lost > 0) {
            if places.has(Item::Discarded) && places.have_sizes() {
                self.discarded = self.discarded.saturating_add(lost).min(DISCARDED_MAX);
                self.open_packet(places, constant, events_at, self.last_end)?;
                self.close()?;
            }
        }
        if self.packets == 0 {
            return std::fs::remove_file(&self.path).map_err(Error::io("remove", &self.path));
        }
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }
}
