// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A place in a stream's file, from event to event, through a window of bounded size.
//!
//! Files are read, not mapped: a file that is truncated at the same time is a short read and not a SIGBUS, bytes do not
//! change while they are decoded, and memory is that of the windows, whatever the size of the trace. The copy costs a tenth
//! of the cheapest decoding (docs/adr/0006).

mod bookmark;

pub(crate) use bookmark::Bookmark;

use super::packet::{CUT, EventPlan, PacketHead, StreamPlans, TracePlans};
use super::plan::{NumberPlace, Plan};
use super::run::{MARGIN, NoVisitor, Position, State, Stop, Visit, run};
use crate::regular::{Links, open_regular};
use rtscope_event::exact::index;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Windows slide by multiples of the largest alignment that the parser accepts (4096 bits).
const ALIGN_BYTES: u64 = 512;

/// The largest event.
const MAX_WINDOW: usize = 4 << 20;

const SHRUNK: &str = "the file became shorter while it was read";

/// The default size of a window.
pub(crate) const WINDOW: usize = 256 << 10;

/// Where a part of a stream is that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the packet in its file.
    pub packet_at: u64,
    /// What is wrong.
    pub what: String,
    /// Which part is unreadable because of it: the rest of the file, or only that of the packet.
    pub rest_of_file: bool,
}

/// Part of a file in memory.
#[derive(Debug)]
struct Window {
    file: Arc<File>,
    file_bytes: u64,
    buffer: Vec<u8>,
    start: u64,
    length: usize,
    /// How much to read at a time.
    size: usize,
}

impl Window {
    /// Reads from `start`, at most to `until`.
    fn fill(&mut self, start: u64, until: u64) -> io::Result<()> {
        let wanted = index(until.saturating_sub(start)).min(self.size);
        if self.buffer.len() < wanted + MARGIN {
            self.buffer.resize(wanted + MARGIN, 0);
        }
        self.start = start;
        self.length = 0;
        while self.length < wanted {
            let place = self.buffer.get_mut(self.length..wanted).unwrap_or_default();
            match self.file.read_at(place, start + self.length as u64) {
                Ok(0) => break,
                Ok(read) => self.length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.length = 0;
                    return Err(error);
                }
            }
        }
        let margin = self.buffer.get_mut(self.length..self.length + MARGIN).unwrap_or_default();
        margin.fill(0);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    /// The buffered bytes from an offset of the file on, with the margin.
    #[inline]
    fn bytes_from(&self, offset: u64) -> &[u8] {
        if offset < self.start || offset >= self.end() {
            return &[];
        }
        let first = index(offset - self.start);
        self.buffer.get(first..self.length + MARGIN).unwrap_or_default()
    }

    /// Number of buffered bytes from there.
    fn at_hand(&self, offset: u64) -> u64 {
        self.bytes_from(offset).len().saturating_sub(MARGIN) as u64
    }

    /// At bit `at` from `origin`, within the buffered bytes and before bit `end`.
    #[inline]
    fn position(&self, origin: u64, at: u64, end: u64) -> Position<'_> {
        let bytes = self.bytes_from(origin);
        Position::new(bytes, at, (bytes.len().saturating_sub(MARGIN) as u64 * 8).min(end))
    }
}

/// How to pass over the events of a class whose fields nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// They are wanted, or it takes more than adding.
    Not,
    /// By adding.
    Add { align: u32, bits: u32 },
    /// By running the class's plan.
    Run,
}

impl Skip {
    /// By class, what nobody wants. Empty if nothing can be passed over by adding.
    pub(crate) fn all(stream: &StreamPlans, is_wanted: impl Fn(usize) -> bool) -> Vec<Skip> {
        let skip = |(place, event)| if is_wanted(place) { Skip::Not } else { Skip::of(event, Skip::Not) };
        let skips: Vec<Skip> = stream.events.iter().enumerate().map(skip).collect();
        if skips.iter().all(|skip| *skip == Skip::Not) { Vec::new() } else { skips }
    }

    /// By class, everything.
    pub(crate) fn everything(stream: &StreamPlans) -> Vec<Skip> {
        stream.events.iter().map(|event| Skip::of(event, Skip::Run)).collect()
    }

    fn of(event: &EventPlan, otherwise: Skip) -> Skip {
        let fixed = event.fixed.and_then(|(align, bits)| {
            Some(Skip::Add { align: u32::try_from(align).ok()?, bits: u32::try_from(bits).ok()? })
        });
        fixed.unwrap_or(otherwise)
    }
}

/// An event whose header has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Index into the stream's event plans.
    pub(crate) event: u32,
    /// The stream's clock.
    pub(crate) clock: u64,
}

/// What [`Cursor::skip`] came past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// The earliest and the latest time of an event that was passed.
    pub(crate) times: Option<(u64, u64)>,
    /// The event that it stopped at, if its header has been read: as from [`Cursor::next_event`].
    pub(crate) head: Option<Head>,
}

/// A place in a file.
#[derive(Debug)]
pub(crate) struct Cursor<'t> {
    plans: &'t TracePlans,
    window: Window,
    pub(crate) state: State,
    /// Where the next packet begins.
    next_packet: u64,
    /// Packets that begin here or later are not part of the range, or no longer exist.
    until: u64,
    /// Where the packets of the range ended when the file was indexed.
    wanted: u64,
    packet_at: u64,
    pub(crate) packet: PacketHead,
    /// Header and context of the packet.
    packet_head: Vec<u8>,
    /// Counts packets.
    pub(crate) serial: u64,
    /// A place in the file that `at` counts from.
    origin: u64,
    /// The next bit.
    at: u64,
    /// Where the event begins whose header was read last, and the clock before it.
    event_at: u64,
    clock_before: u64,
}

impl<'t> Cursor<'t> {
    /// Opens a file for reading the packets that begin from `from` on and before `until`.
    pub(crate) fn open(
        plans: &'t TracePlans,
        path: &Path,
        window: usize,
        (from, until): (u64, u64),
    ) -> io::Result<Cursor<'t>> {
        let file = open_regular(path, Links::Follow)?;
        let file_bytes = file.metadata()?.len();
        Ok(Cursor {
            plans,
            window: Window {
                file: Arc::new(file),
                file_bytes,
                buffer: Vec::new(),
                start: 0,
                length: 0,
                size: window.max(4096),
            },
            state: State::new(plans.slots),
            next_packet: from,
            until: until.min(file_bytes),
            wanted: if until == u64::MAX { file_bytes } else { until },
            packet_at: from,
            packet: PacketHead::default(),
            packet_head: Vec::new(),
            serial: 0,
            origin: from,
            at: 0,
            event_at: 0,
            clock_before: 0,
        })
    }

    /// Continues with other packets of the same file.
    pub(crate) fn seek(&mut self, (from, until): (u64, u64)) {
        self.next_packet = from;
        self.until = until.min(self.window.file_bytes);
        self.wanted = until;
        self.packet.content_bits = 0;
        self.at = 0;
    }

    /// The offset of the packet that was begun last.
    pub(crate) fn packet_at(&self) -> u64 {
        self.packet_at
    }

    /// Bits from the packet's beginning to the next event.
    pub(crate) fn place(&self) -> u64 {
        (self.origin - self.packet_at) * 8 + self.at
    }

    /// Bits from the packet's beginning to the event whose header was read last, before its alignment.
    pub(crate) fn event_place(&self) -> u64 {
        (self.origin - self.packet_at) * 8 + self.event_at
    }

    /// Header and context of the packet, with [`MARGIN`] bytes behind them.
    pub(crate) fn head_bytes(&self) -> &[u8] {
        &self.packet_head
    }

    /// What the clock would be at the event whose header was read last, if it had been `before` then.
    pub(crate) fn clock_from(&self, before: u64) -> Option<u64> {
        let mut state = self.state.clone();
        state.clock = before;
        let mut position = self.window.position(self.origin, self.event_at, self.content_end());
        self.stream()?.header.read(&mut position, &mut state).ok()?;
        Some(state.clock)
    }

    /// The packet's bytes from there on.
    pub(crate) fn copy(&self, from: u64, into: &mut [u8]) -> Result<(), Damage> {
        let at = self.packet_at + from;
        if self.window.at_hand(at) >= into.len() as u64 {
            into.copy_from_slice(self.window.bytes_from(at).get(..into.len()).unwrap_or_default());
            return Ok(());
        }
        let read = self.window.file.read_exact_at(into, at);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damage(true, SHRUNK),
            _ => self.damage(true, format!("it cannot be read: {error}")),
        })
    }

    /// Goes to an event within the packet, where [`Cursor::place`] was noted, with the clock of that moment.
    pub(crate) fn jump(&mut self, place: u64, clock: u64) {
        let start = place / 8 / ALIGN_BYTES * ALIGN_BYTES;
        self.origin = self.packet_at + start;
        self.at = place - start * 8;
        self.state.clock = clock;
    }

    fn damage(&self, rest_of_file: bool, what: impl Into<String>) -> Damage {
        Damage { packet_at: self.packet_at, what: what.into(), rest_of_file }
    }

    /// Begins the next packet; false after the last.
    pub(crate) fn next_packet(&mut self) -> Result<bool, Damage> {
        if self.next_packet >= self.wanted {
            return Ok(false);
        }
        self.packet_at = self.next_packet;
        if self.next_packet >= self.until {
            self.next_packet = u64::MAX;
            return Err(self.damage(true, SHRUNK));
        }
        // In any case, this packet is not tried again.
        self.next_packet = u64::MAX;
        self.origin = self.packet_at;
        let rest = self.window.file_bytes - self.packet_at;
        loop {
            let clock = self.state.clock;
            let mut position = self.window.position(self.packet_at, 0, u64::MAX);
            match self.plans.packet_head(&mut position, &mut self.state, rest) {
                Ok(head) => {
                    self.begin(head);
                    return Ok(true);
                }
                Err(Stop::Bad(what)) => return Err(self.damage(true, what)),
                Err(Stop::Short) => {}
            }
            self.state.clock = clock;
            let at_hand = self.window.at_hand(self.packet_at);
            if at_hand >= rest {
                return Err(self.damage(true, "its header is cut short"));
            }
            let wanted = index(at_hand).saturating_mul(2).max(4096);
            if wanted > MAX_WINDOW {
                return Err(self.damage(true, "its header is larger than 4 MiB"));
            }
            self.window.size = self.window.size.max(wanted);
            let until = self.until.max(self.packet_at.saturating_add(wanted as u64));
            self.fill(self.packet_at, until.min(self.window.file_bytes))?;
            if self.window.at_hand(self.packet_at) <= at_hand {
                return Err(self.damage(true, SHRUNK));
            }
        }
    }

    fn begin(&mut self, head: PacketHead) {
        self.at = head.events_at;
        let bytes = self.window.bytes_from(self.packet_at);
        self.packet_head.clear();
        self.packet_head
            .extend_from_slice(bytes.get(..index(head.events_at.div_ceil(8))).unwrap_or_default());
        self.packet_head.extend_from_slice(&[0; MARGIN]);
        self.next_packet = self.packet_at.saturating_add(head.bytes);
        self.packet = head;
        self.serial += 1;
    }

    fn fill(&mut self, from: u64, until: u64) -> Result<(), Damage> {
        match self.window.fill(from, until) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.damage(true, format!("it cannot be read: {error}"))),
        }
    }

    /// The bit, from the origin, at which the content ends.
    fn content_end(&self) -> u64 {
        self.packet.content_bits.saturating_sub((self.origin - self.packet_at) * 8)
    }

    /// Moves the window on to the next event, or enlarges it; fails when all of the content is buffered.
    fn slide(&mut self, event_at: u64) -> Result<u64, Damage> {
        if self.window.at_hand(self.origin).saturating_mul(8) >= self.content_end() {
            if self.packet.is_cut {
                return Err(self.damage(true, CUT));
            }
            return Err(self.damage(false, "an event goes beyond its end"));
        }
        let start = event_at / 8 / ALIGN_BYTES * ALIGN_BYTES;
        let origin = self.origin + start;
        let before = (self.window.start, self.window.end());
        if origin == self.window.start && self.window.length >= self.window.size {
            if self.window.size >= MAX_WINDOW {
                return Err(self.damage(false, "an event is larger than 4 MiB"));
            }
            self.window.size *= 2;
        }
        let packet_end = self.packet_at + self.packet.content_bits.div_ceil(8);
        // The bytes after the packet are likely to be read next.
        let until = self.until.max(packet_end).min(self.window.file_bytes);
        self.fill(origin, until)?;
        if (self.window.start, self.window.end()) == before {
            return Err(self.damage(true, SHRUNK));
        }
        self.origin = origin;
        Ok(event_at - start * 8)
    }

    /// Reads the header of the next event; `None` at the end of the packet.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Result<Option<Head>, Damage> {
        if self.at >= self.content_end() {
            return if self.packet.is_cut { Err(self.damage(true, CUT)) } else { Ok(None) };
        }
        self.event_at = self.at;
        self.clock_before = self.state.clock;
        let plans = self.plans;
        let Some(stream) = plans.streams.get(self.packet.stream) else { return Ok(None) };
        loop {
            let mut position = self.window.position(self.origin, self.at, self.content_end());
            match stream.header.read(&mut position, &mut self.state) {
                Ok(id) => {
                    self.at = position.at;
                    return match stream.event(id) {
                        Some(event) => Ok(Some(Head { event, clock: self.state.clock })),
                        None => Err(self.damage(false, unknown_event(id))),
                    };
                }
                Err(Stop::Bad(what)) => return Err(self.damage(false, what)),
                Err(Stop::Short) => {
                    self.state.clock = self.clock_before;
                    self.event_at = self.slide(self.event_at)?;
                    self.at = self.event_at;
                }
            }
        }
    }

    /// Passes over events whose fields nobody wants, as long as that takes no more than adding, and stops at the first other one. Not from
    /// the clock's value `until` on, and not from the packet's bit `end` on. Tells `passed` the class of each.
    pub(crate) fn skip(
        &mut self,
        skips: &[Skip],
        until: u64,
        end: u64,
        mut passed: impl FnMut(usize),
    ) -> Skipped {
        let (content_end, plans) = (self.content_end(), self.plans);
        let end = end.saturating_sub((self.origin - self.packet_at) * 8).min(content_end);
        let Some(stream) = plans.streams.get(self.packet.stream) else { return Skipped::default() };
        let mut position = self.window.position(self.origin, self.at, content_end);
        let mut times: Option<(u64, u64)> = None;
        loop {
            let (at, clock) = (position.at, self.state.clock);
            let id = if at < end { stream.header.read(&mut position, &mut self.state).ok() } else { None };
            let event = id.and_then(|id| stream.event(id)).filter(|_| self.state.clock < until);
            let now = self.state.clock;
            let skip = event.and_then(|event| skips.get(event as usize));
            let after = match skip {
                Some(Skip::Add { align, bits }) => {
                    // The alignment is a power of two: the parser takes no other.
                    let align = u64::from(*align) - 1;
                    ((position.at + align) & !align).checked_add((*bits).into())
                }
                Some(Skip::Run) => {
                    let plan = event.and_then(|event| stream.events.get(event as usize));
                    let plan = plan.map(|plan| &plan.passing);
                    plan.and_then(|plan| {
                        run(plan, &mut position, &mut self.state, &mut NoVisitor).ok().map(|()| position.at)
                    })
                }
                Some(Skip::Not) | None => None,
            };
            let after = after.filter(|after| *after <= content_end && *after >= at + 8);
            let (Some(after), Some(event)) = (after, event) else {
                let head = event.filter(|_| skip == Some(&Skip::Not));
                let head = head.map(|event| Head { event, clock: now });
                if head.is_some() {
                    (self.event_at, self.clock_before, self.at) = (at, clock, position.at);
                } else {
                    // It is read again, by those who know what to do.
                    (self.at, self.state.clock) = (at, clock);
                }
                return Skipped { times, head };
            };
            position.at = after;
            passed(event as usize);
            times = Some(times.map_or((now, now), |(first, latest)| (first.min(now), latest.max(now))));
        }
    }

    /// The stream that the packet is of.
    pub(crate) fn stream(&self) -> Option<&'t StreamPlans> {
        self.plans.streams.get(self.packet.stream)
    }

    /// Passes over the rest of the event.
    #[inline]
    pub(crate) fn pass(&mut self, head: Head) -> Result<(), Damage> {
        let plans = self.plans;
        let stream = plans.streams.get(self.packet.stream);
        let Some(plan) = stream.and_then(|stream| stream.events.get(head.event as usize)) else {
            return Ok(());
        };
        if let Some((align, bits)) = plan.fixed {
            let at = self.at.next_multiple_of(align);
            if let Some(after) = at.checked_add(bits).filter(|after| *after <= self.content_end()) {
                // Bytes that are not buffered are not needed.
                self.at = after;
                return self.check_size();
            }
        }
        self.walk(&plan.passing, &mut NoVisitor, false)
    }

    /// Runs a plan over the rest of the event, which it must describe to its end.
    #[inline]
    pub(crate) fn show<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> Result<(), Damage> {
        self.walk(plan, visit, false)
    }

    /// Runs a plan over the rest of the event, and stays before it.
    pub(crate) fn peek<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> Result<(), Damage> {
        self.walk(plan, visit, true)
    }

    /// A number in the rest of the event, unless it is negative or not all bytes up to it are here.
    #[inline]
    pub(crate) fn number(&self, place: NumberPlace) -> Option<u64> {
        self.window.position(self.origin, self.at, self.content_end()).number_at(place)
    }

    #[inline]
    fn walk<V: Visit>(&mut self, plan: &Plan, visit: &mut V, stay: bool) -> Result<(), Damage> {
        let clock = self.state.clock;
        loop {
            let mut position = self.window.position(self.origin, self.at, self.content_end());
            match run(plan, &mut position, &mut self.state, visit) {
                Ok(()) if stay => {
                    self.state.clock = clock;
                    return Ok(());
                }
                Ok(()) => {
                    self.at = position.at;
                    return self.check_size();
                }
                Err(Stop::Bad(what)) => return Err(self.damage(false, what)),
                Err(Stop::Short) => {
                    self.state.clock = clock;
                    let header = self.at - self.event_at;
                    self.event_at = self.slide(self.event_at)?;
                    self.at = self.event_at + header;
                    visit.restart();
                }
            }
        }
    }

    fn check_size(&self) -> Result<(), Damage> {
        if self.at < self.event_at + 8 {
            // CTF allows it, but no writer does it, and it would make a small file take a long time.
            return Err(self.damage(false, "its events are smaller than a byte"));
        }
        Ok(())
    }

    /// Runs a plan over the packet's context.
    pub(crate) fn show_context<V: Visit>(&mut self, plan: &Plan, visit: &mut V) {
        let clock = self.state.clock;
        let mut position = Position::new(&self.packet_head, self.packet.context_at, self.packet.events_at);
        // It has been read before without an error.
        let _ = run(plan, &mut position, &mut self.state, visit);
        self.state.clock = clock;
    }
}

fn unknown_event(id: Option<u64>) -> String {
    match id {
        Some(id) => format!("an event has id {id}, which is not in the metadata"),
        None => "events have no id, but there are several kinds in the metadata".to_owned(),
    }
}
