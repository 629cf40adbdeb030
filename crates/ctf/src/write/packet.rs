// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events → packets of one stream.
//!
//! Event headers are LTTng's: 5 bits of id and 27 bits of time, 4 bytes instead of 12 (or 16 and 32 bits where there are
//! many classes). The reader completes the time from the previous event (from the packet's beginning for the first), so a
//! larger step than those bits hold (2^27 ns = 134 ms), and an id that does not fit, take the extended form.

use super::Losses;
use super::classes::Header;
use super::followed::{GrowingFile, LastPacket};
use super::head::{EventSource, HeadFormat, PacketHead};
use super::ring::FileContent;
use rtscope_event::MonotonicNs;
use rtscope_event::exact::low_half;
use std::io::{self, IoSlice, Write};

/// Packets are closed when they exceed this. Large enough that 84 bytes of header do not matter, small enough that a
/// reader can seek and that one write never takes long.
const PACKET_BYTES: usize = 512 * 1024;

/// A packet that begins with a loss is closed at this size: the loss is known to lie before its end, so this is how precisely
/// a reader can locate it. Also the least distance of two losses that are distinguished.
const LOSS_PACKET_BYTES: usize = 16 * 1024;

/// A packet that was written before it was full is continued below this size.
const FLUSHED_PACKET_BYTES: usize = 256 * 1024;

/// babeltrace2 2.0.4 takes 2^64 - 1 for "not known", and aborts. A lying program could write that.
const DISCARDED_MAX: u64 = u64::MAX >> 1;

/// Cuts one stream into packets.
#[derive(Debug)]
pub(super) struct PacketWriter<W> {
    out: W,
    format: HeadFormat,
    /// Of a stream that readers may look at at any instant.
    last: Option<LastPacket>,
    /// events_discarded of the packet being filled.
    discarded: u64,
    /// Whether the packet being filled has more of them than the previous one.
    after_loss: bool,
    buffer: Vec<u8>,
    /// The following bytes of the packet: the first `run_bytes` of `run`, which never shrinks.
    run: Vec<u8>,
    run_bytes: usize,
    begin: MonotonicNs,
    /// The reader's time after the events in the buffer.
    clock: MonotonicNs,
    empty: bool,
    /// How much of the packet has been written already.
    begun: usize,
    /// Packets are closed when they exceed this.
    full: usize,
    /// It is in several files, of which the oldest is removed.
    is_ring: bool,
    /// Events of the stream.
    events: u64,
    /// Packets and events before the current file.
    before_file: (u64, u64),
    done: PacketTotals,
}

/// Receives packets.
pub(super) trait PacketOutput: Write + GrowingFile {
    /// How large a packet may be.
    fn packet_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Whether the next packet belongs into another file.
    fn is_due(&self) -> bool {
        false
    }

    /// What follows goes into another file. `content`: of the one that is complete; `events`: of the stream so far.
    fn next_file(&mut self, _content: FileContent, _events: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Totals of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketTotals {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Events older than the previous one; they got its time.
    pub(super) moved: u64,
}

impl<W: PacketOutput> PacketWriter<W> {
    /// A stream whose first packet begins at `begin`.
    pub(super) fn new(
        out: W,
        header: Header,
        uuid: [u8; 16],
        place: EventSource,
        begin: MonotonicNs,
    ) -> Self {
        let mut writer = PacketWriter {
            out,
            format: HeadFormat { uuid, header, place },
            last: None,
            discarded: 0,
            after_loss: false,
            buffer: Vec::new(),
            run: Vec::new(),
            run_bytes: 0,
            begin,
            clock: begin,
            empty: true,
            begun: 0,
            full: PACKET_BYTES,
            is_ring: false,
            events: 0,
            before_file: (0, 0),
            done: PacketTotals::default(),
        };
        writer.open(begin);
        writer
    }

    /// A stream that is valid at every instant ([`super::followed`]).
    pub(super) fn followed(
        out: W,
        header: Header,
        uuid: [u8; 16],
        place: EventSource,
        begin: MonotonicNs,
    ) -> Self {
        let mut writer = PacketWriter::new(out, header, uuid, place, begin);
        writer.last = Some(LastPacket::new(writer.format, begin, 0, false));
        writer
    }

    /// The same, of several files that are removed when they are old.
    pub(super) fn in_ring(
        out: W,
        header: Header,
        uuid: [u8; 16],
        place: EventSource,
        begin: MonotonicNs,
    ) -> Self {
        let mut writer = PacketWriter::new(out, header, uuid, place, begin);
        writer.is_ring = true;
        writer.full = PACKET_BYTES.min(rtscope_event::exact::index(writer.out.packet_bytes()));
        writer.last = Some(LastPacket::new(writer.format, begin, 0, true));
        writer.open(begin);
        writer
    }

    /// Makes losses visible whose place in the stream is unknown; to be called before the first event.
    /// `events_discarded` counts since the beginning of the stream, and readers report its growth from packet to packet.
    /// So an empty packet at the beginning has 0, and all others have the sum. When the number is unknown there is no such
    /// packet: a count in a stream's first packet has nothing to be compared with, and readers report losses without a
    /// number.
    pub(super) fn announce_losses(&mut self, losses: Losses) -> io::Result<()> {
        if losses.known == 0 && !losses.unknown {
            return Ok(());
        }
        if !losses.unknown {
            self.close(self.begin)?;
            self.open_next(self.begin);
        }
        self.discarded = losses.known.clamp(1, DISCARDED_MAX);
        Ok(())
    }

    /// `count` events are missing between the last event and the next.
    pub(super) fn lost(&mut self, count: u64) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        // Losses close together are joined: packets must not become too small for their headers.
        if !self.after_loss || self.begun + self.in_hand() >= self.limit() {
            self.close(self.clock)?;
            self.open_next(self.clock);
            self.after_loss = true;
        }
        self.discarded = self.discarded.saturating_add(count).min(DISCARDED_MAX);
        Ok(())
    }

    /// Begins an event: its payload is to be appended to [`PacketWriter::payload`]. A time that goes back becomes that of
    /// the previous event.
    #[inline(always)]
    pub(super) fn begin_event(&mut self, id: u32, time: MonotonicNs) -> io::Result<()> {
        self.end_run();
        let mut time = time;
        if time < self.clock {
            time = self.clock;
            self.done.moved += 1;
        }
        if self.begun + self.buffer.len() >= self.limit() {
            self.close(self.clock)?;
            self.open_next(time);
            time = self.clock;
            self.after_loss = false;
        }
        let header = self.format.header;
        let low = time.0 & ((1 << header.time_bits()) - 1);
        if id < header.extended() && time.since(self.clock) < 1 << header.time_bits() {
            match header {
                Header::Compact => self.buffer.extend_from_slice(&(id | low_half(low) << 5).to_le_bytes()),
                Header::Large => {
                    let word = u64::from(id) | low << 16;
                    self.buffer.extend_from_slice(&word.to_le_bytes()[..6]);
                }
            }
        } else {
            match header {
                Header::Compact => self.buffer.push(header.extended().to_le_bytes()[0]),
                Header::Large => self.buffer.extend_from_slice(&header.extended().to_le_bytes()[..2]),
            }
            self.buffer.extend_from_slice(&id.to_le_bytes());
            self.buffer.extend_from_slice(&time.0.to_le_bytes());
        }
        self.clock = time;
        self.empty = false;
        self.events += 1;
        Ok(())
    }

    /// The event that was begun last does not count.
    pub(super) fn leave_out_of_count(&mut self) {
        self.events -= 1;
    }

    /// How large the packet may become.
    #[inline]
    fn limit(&self) -> usize {
        if self.after_loss { self.full.min(LOSS_PACKET_BYTES) } else { self.full }
    }

    /// The layout of event headers.
    pub(super) fn header(&self) -> Header {
        self.format.header
    }

    /// Memory for up to `most` bytes of simple events, and the time of the previous event. To be followed by
    /// [`PacketWriter::ran`].
    pub(super) fn run(&mut self, most: usize) -> (&mut [u8], u64) {
        if self.run.len() < most {
            self.run.resize(most, 0);
        }
        let room = self.limit().saturating_sub(self.begun + self.buffer.len() + self.run_bytes);
        let end = self.run.len().min(self.run_bytes + room);
        (&mut self.run[self.run_bytes..end], self.clock.0)
    }

    /// Notes that this many bytes of events were written there, the last one at `clock`.
    pub(super) fn ran(&mut self, bytes: usize, events: u64, clock: u64) {
        self.events += events;
        self.run_bytes += bytes;
        self.empty &= bytes == 0;
        self.clock = MonotonicNs(clock);
    }

    /// Other events follow.
    #[inline(always)]
    fn end_run(&mut self) {
        if self.run_bytes > 0 {
            self.buffer.extend_from_slice(&self.run[..self.run_bytes]);
            self.run_bytes = 0;
        }
    }

    /// The buffer for the payload of the current event.
    #[inline]
    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Where the next event would begin, for [`PacketWriter::take_back`].
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        Mark {
            packets: self.done.packets,
            length: self.buffer.len(),
            clock: self.clock,
            empty: self.empty,
            events: self.events,
        }
    }

    /// Drops the event that was begun after `mark`. A packet that was closed for it stays closed.
    pub(super) fn take_back(&mut self, mark: Mark) {
        self.events = mark.events;
        if mark.packets == self.done.packets {
            self.buffer.truncate(mark.length);
            (self.clock, self.empty) = (mark.clock, mark.empty);
        } else {
            self.open(self.begin);
        }
    }

    /// Writes the last packet, which ends at `end` at the earliest.
    pub(super) fn finish(mut self, end: MonotonicNs) -> io::Result<(W, PacketTotals)> {
        if !self.is_ring || self.covers_time() || self.has_events() || self.after_loss {
            self.close(end.max(self.clock))?;
        }
        self.end_file(end.max(self.clock))?;
        Ok((self.out, self.done))
    }

    /// Writes the buffered events, so that they are in the stream whatever happens later. A small packet is continued.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let is_due = self.has_events() && self.out.is_due();
        if is_due || self.begun + self.in_hand() >= FLUSHED_PACKET_BYTES.min(self.full) {
            self.close(self.clock)?;
            self.open_next(self.clock);
            self.after_loss = false;
        } else if self.has_unwritten() {
            self.write(self.clock, false)?;
        }
        Ok(())
    }

    /// Where it goes.
    pub(super) fn output(&mut self) -> &mut W {
        &mut self.out
    }

    /// Whether there is something to write.
    pub(super) fn has_unwritten(&self) -> bool {
        self.begun == 0 && !self.empty || self.begun > 0 && self.in_hand() > 0
    }

    /// The time of the last event, or the beginning.
    pub(super) fn latest(&self) -> MonotonicNs {
        self.clock
    }

    /// Bytes that are not written yet.
    pub(super) fn in_hand(&self) -> usize {
        self.buffer.len() + self.run_bytes
    }

    fn open(&mut self, begin: MonotonicNs) {
        self.buffer.clear();
        self.buffer.resize(self.format.bytes(), 0);
        self.begin = begin;
        self.clock = begin;
        self.empty = true;
        self.begun = 0;
    }

    /// The packet after the one that was closed. Of a stream in several files, readers take packets in the order in which they begin, and
    /// babeltrace2 swaps two that begin at the same time: this one then begins, with its first events, a nanosecond later.
    fn open_next(&mut self, begin: MonotonicNs) {
        let least = self.begin.plus(u64::from(self.is_ring));
        self.open(begin.max(least));
    }

    fn close(&mut self, end: MonotonicNs) -> io::Result<()> {
        let bytes = self.write(end, true)?;
        self.done.packets += 1;
        self.done.bytes += bytes;
        if self.out.is_due() {
            self.end_file(end)?;
        }
        Ok(())
    }

    /// If another file is due, what follows goes there. `end`: no event that follows is that old.
    pub(super) fn turn(&mut self, end: MonotonicNs) -> io::Result<()> {
        if !self.out.is_due() {
            return Ok(());
        }
        if self.covers_time() || self.has_events() {
            let end = end.max(self.clock);
            self.close(end)?;
            self.open_next(end.plus(u64::from(self.covers_time())));
        } else {
            self.end_file(self.clock)?;
        }
        Ok(())
    }

    /// Whether there are packets without events, too: a CPU's stream says of each time what happened then.
    fn covers_time(&self) -> bool {
        matches!(self.format.place, EventSource::Cpu(_))
    }

    fn has_events(&self) -> bool {
        self.begun > 0 || !self.empty
    }

    /// The current file, if there is one, is complete.
    fn end_file(&mut self, end: MonotonicNs) -> io::Result<()> {
        let Some(last) = self.last.take() else { return Ok(()) };
        last.finish(&mut self.out)?;
        let (packets, events) = std::mem::replace(&mut self.before_file, (self.done.packets, self.events));
        let (packets, events) = (self.done.packets - packets, self.events - events);
        self.out.next_file(FileContent { end, packets, events }, self.events)?;
        self.last = Some(LastPacket::new(self.format, end, self.done.packets, self.is_ring));
        Ok(())
    }

    /// Fills in values that are known only now, and writes with one call; with a second one if the head has been written already.
    /// Until that succeeds, the head describes the earlier content. Returns how large the packet is by now; if it is the last write, with the
    /// unused space behind its content.
    fn write(&mut self, end: MonotonicNs, is_last: bool) -> io::Result<u64> {
        let bytes = self.begun + self.in_hand();
        let head = PacketHead {
            begin: self.begin,
            end,
            content_bytes: bytes as u64,
            // No padding.
            packet_bytes: bytes as u64,
            sequence: self.done.packets,
            discarded: self.discarded,
        };
        let run = &self.run[..self.run_bytes];
        let mut size = bytes as u64;
        if let Some(last) = &mut self.last {
            let head_bytes = self.format.bytes();
            let first = if self.begun == 0 { &self.buffer[head_bytes..] } else { &self.buffer };
            let (from, events) = (self.begun.max(head_bytes) as u64, [first, run]);
            if is_last {
                size = last.close(&mut self.out, head, from, events)?;
            } else {
                last.write(&mut self.out, head, from, events)?;
            }
        } else {
            let head = self.format.encode(&head);
            if self.begun == 0 {
                self.buffer[..head.len()].copy_from_slice(&head);
            }
            write_both(&mut self.out, &self.buffer, run)?;
            if self.begun > 0 {
                self.out.rewrite(self.done.bytes, &head)?;
            }
        }
        self.begun = bytes;
        self.buffer.clear();
        self.run_bytes = 0;
        Ok(size)
    }
}

/// Writes one after the other, with one call where the system can.
fn write_both(out: &mut impl Write, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut done = 0;
    if !second.is_empty() {
        done = match out.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            written => written.unwrap_or(0),
        };
    }
    out.write_all(&first[done.min(first.len())..])?;
    out.write_all(&second[done.saturating_sub(first.len()).min(second.len())..])
}

/// A place in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    packets: u64,
    length: usize,
    clock: MonotonicNs,
    empty: bool,
    events: u64,
}

#[cfg(test)]
mod tests;
