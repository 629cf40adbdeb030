// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events → packets of one stream.
//!
//! Event headers are LTTng's: 5 bits of id and 27 bits of time, 4 bytes instead of 12 (or 16 and 32 bits where there are
//! many classes). The reader completes the time from the previous event (from the packet's beginning for the first), so a
//! larger step than those bits hold (2^27 ns = 134 ms), and an id that does not fit, take the extended form.

use super::Losses;
use super::classes::Header;
use super::followed::{GrowingFile, LastPacket};
use super::head::{CONTEXT_BYTES, EventSource, HEADER_BYTES, HeadFormat, MAGIC, PacketHead};
use super::ring::FileContent;
use rtscope_event::MonotonicNs;
use rtscope_event::exact::low_half;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;

/// Packets are closed when they exceed this. Large enough that 84 bytes of header do not matter, small enough that a
/// reader can seek and that one write never takes long.
const PACKET_BYTES: usize = 512 * 1024;

/// A packet that begins with a loss is closed at this size: the loss is known to lie before its end, so this is how precisely
/// a reader can locate it. Also the least distance of two losses that are distinguished.
const LOSS_PACKET_BYTES: usize = 16 * 1024;

/// A packet that was written before it was full is continued below this size.
const FLUSHED_PACKET_BYTES: usize = 64 * 1024;

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
        writer.last = Some(LastPacket::new(writer.format, begin, 0));
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
        writer.last = Some(LastPacket::new(writer.format, begin, 0));
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
            self.open(self.begin);
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
            self.open(self.clock);
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
            self.open(time);
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
            self.open(self.clock);
            self.after_loss = false;
        } else if self.has_unwritten() {
            self.write(self.clock)?;
        }
        Ok(())
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

    fn close(&mut self, end: MonotonicNs) -> io::Result<()> {
        self.write(end)?;
        self.done.packets += 1;
        self.done.bytes += match &mut self.last {
            Some(last) => last.close(&mut self.out)?,
            None => self.begun as u64,
        };
        // Readers order files by the times at which they begin, so no two begin at the same time.
        if self.begin < end && self.out.is_due() {
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
            self.open(end.plus(u64::from(self.covers_time())));
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
        self.last = Some(LastPacket::new(self.format, end, self.done.packets));
        Ok(())
    }

    /// Fills in values that are known only now, and writes with one call; with a second one if the head has been written already.
    /// Until that succeeds, the head describes the earlier content.
    fn write(&mut self, end: MonotonicNs) -> io::Result<()> {
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
        if let Some(last) = &mut self.last {
            let head_bytes = self.format.bytes();
            let first = if self.begun == 0 { &self.buffer[head_bytes..] } else { &self.buffer };
            last.write(&mut self.out, head, self.begun.max(head_bytes) as u64, [first, run])?;
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
        Ok(())
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

/// The whole packets at the beginning of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WholePackets {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) discarded: u64,
}

/// Reads the heads of a stream of threads as far as its packets are whole: behind them may be a rest of a killed writer.
/// In a ring, a file can begin with any number.
pub(super) fn whole_packets(
    file: &File,
    uuid: [u8; 16],
    instance: u64,
    is_ring: bool,
) -> io::Result<WholePackets> {
    let size = file.metadata()?.len();
    let mut whole = WholePackets::default();
    let mut head = [0; HEADER_BYTES + CONTEXT_BYTES - 4];
    let mut first = 0;
    while whole.bytes + head.len() as u64 <= size {
        file.read_exact_at(&mut head, whole.bytes)?;
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let context = |index: usize| word(HEADER_BYTES + index * 8);
        let is_ours = half(0) == MAGIC && head[4..20] == uuid && word(24) == instance;
        let bytes = context(3) / 8;
        let content = context(2) / 8;
        let fits = (head.len() as u64..=bytes).contains(&content) && bytes <= size - whole.bytes;
        if is_ring && whole.packets == 0 {
            first = context(4);
        }
        if !is_ours || !fits || context(4).wrapping_sub(first) != whole.packets {
            break;
        }
        whole.discarded = context(5);
        whole.bytes += bytes;
        whole.packets += 1;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::CpuId;

    impl PacketOutput for Vec<u8> {}

    impl GrowingFile for Vec<u8> {
        fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            self[rtscope_event::exact::index(at)..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn extend(&mut self, pages: &[IoSlice<'_>]) -> io::Result<usize> {
            self.write_vectored(pages)
        }

        fn cut(&mut self, at: u64) -> io::Result<()> {
            self.truncate(rtscope_event::exact::index(at));
            Ok(())
        }
    }

    fn stream(header: Header, fill: impl FnOnce(&mut PacketWriter<Vec<u8>>)) -> (Vec<u8>, PacketTotals) {
        let mut writer =
            PacketWriter::new(Vec::new(), header, [7; 16], EventSource::Cpu(CpuId(1)), MonotonicNs(0));
        fill(&mut writer);
        writer.finish(MonotonicNs(0)).unwrap()
    }

    fn event(writer: &mut PacketWriter<Vec<u8>>, time: u64) {
        writer.begin_event(11, MonotonicNs(time)).unwrap();
        writer.payload().extend_from_slice(&3_u32.to_le_bytes());
    }

    fn packets(times: &[u64], losses: Losses) -> (Vec<u8>, PacketTotals) {
        stream(Header::Compact, |writer| {
            writer.announce_losses(losses).unwrap();
            times.iter().for_each(|time| event(writer, *time));
        })
    }

    const EMPTY: usize = HEADER_BYTES + CONTEXT_BYTES;

    #[test]
    fn a_long_pause_takes_the_extended_header() {
        let (short, _) = packets(&[0, (1 << 27) - 1], Losses::default());
        let (long, _) = packets(&[0, 1 << 27], Losses::default());
        assert_eq!(short.len(), EMPTY + 2 * 8);
        assert_eq!(long.len(), short.len() + 9);
        let large = |time| stream(Header::Large, |writer| event(writer, time)).0.len() - EMPTY;
        assert_eq!((large((1 << 32) - 1), large(1 << 32)), (6 + 4, 14 + 4));
    }

    #[test]
    fn packets_are_cut_between_events() {
        let times: Vec<u64> = (0..100_000).collect();
        let (bytes, done) = packets(&times, Losses::default());
        assert_eq!(done.packets, 2);
        assert_eq!(bytes.len(), 2 * EMPTY + 100_000 * 8);
    }

    #[test]
    fn a_known_loss_has_an_empty_packet_before_it() {
        assert_eq!(packets(&[1], Losses { known: 5, unknown: false }).1.packets, 2);
        assert_eq!(packets(&[1], Losses { known: 5, unknown: true }).1.packets, 1);
    }

    /// begin, end, discarded of each packet
    fn heads(bytes: &[u8]) -> Vec<(u64, u64, u64)> {
        let mut heads = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let word = |index: usize| {
                u64::from_le_bytes(bytes[at + HEADER_BYTES + index * 8..][..8].try_into().unwrap())
            };
            heads.push((word(0), word(1), word(5)));
            at += (word(3) / 8) as usize;
        }
        heads
    }

    #[test]
    fn a_loss_is_where_it_happened() {
        let (bytes, _) = stream(Header::Compact, |writer| {
            (0..100).for_each(|time| event(writer, time));
            writer.lost(5).unwrap();
            event(writer, 200);
            writer.lost(2).unwrap();
            (300..10_000).for_each(|time| event(writer, time));
        });
        let heads = heads(&bytes);
        assert_eq!(heads[0], (0, 99, 0));
        // The second loss is too near to the first to be distinguished; after 16 KiB the packet ends.
        let (begin, end, lost) = heads[1];
        assert_eq!((begin, lost), (99, 7));
        assert!((2200..2400).contains(&end), "{end}");
        assert_eq!(heads[2].2, 7);
        assert_eq!(heads.len(), 3);
    }

    #[test]
    fn a_loss_before_all_events_has_something_to_be_compared_with() {
        let (bytes, _) = stream(Header::Compact, |writer| writer.lost(9).unwrap());
        assert_eq!(heads(&bytes), [(0, 0, 0), (0, 0, 9)]);
    }

    #[test]
    fn time_does_not_go_back_and_an_event_can_be_taken_back() {
        let (bytes, done) = stream(Header::Compact, |writer| {
            event(writer, 500);
            event(writer, 400);
            let mark = writer.mark();
            event(writer, 900);
            writer.take_back(mark);
        });
        assert_eq!((bytes.len(), done.moved), (EMPTY + 16, 1));
        assert_eq!(heads(&bytes), [(0, 500, 0)]);
    }

    #[test]
    fn a_packet_that_is_written_early_is_continued() {
        let (bytes, done) = stream(Header::Compact, |writer| {
            (0..3).for_each(|time| event(writer, time));
            writer.flush().unwrap();
            assert_eq!(heads(&writer.out), [(0, 2, 0)]);
            writer.flush().unwrap();
            event(writer, 5);
            writer.flush().unwrap();
            assert_eq!(heads(&writer.out), [(0, 5, 0)]);
            (6..10_000).for_each(|time| event(writer, time));
            writer.flush().unwrap();
            writer.lost(2).unwrap();
            event(writer, 10_000);
            writer.flush().unwrap();
        });
        assert_eq!(bytes.len(), 3 * EMPTY + 9_999 * 8);
        assert_eq!(heads(&bytes), [(0, 9_999, 0), (9_999, 9_999, 0), (9_999, 10_000, 2)]);
        assert_eq!((done.packets, done.bytes), (3, bytes.len() as u64));
    }

    #[test]
    fn wherever_a_writer_was_killed_whole_packets_are_found() {
        let file = tempfile::tempfile().unwrap();
        let place = EventSource::Threads(3);
        let out = file.try_clone().unwrap();
        let out = crate::write::reserved::ReservedFile::new(out);
        let mut writer = PacketWriter::new(out, Header::Large, [7; 16], place, MonotonicNs(0));
        let mut ends = vec![0];
        for round in 0..4 {
            for time in 0..20_000 {
                writer.begin_event(11, MonotonicNs(round * 20_000 + time)).unwrap();
            }
            writer.flush().unwrap();
            ends.push(writer.done.bytes + writer.begun as u64);
        }
        let size = file.metadata().unwrap().len();
        let whole = |instance| whole_packets(&file, [7; 16], instance, false).unwrap();
        assert_eq!(whole(3), WholePackets { packets: 4, bytes: size, discarded: 0 });
        assert_eq!(whole(4), WholePackets::default());
        for cut in [size - 1, ends[3] + 1, ends[3], ends[3] - 1, 100, 10, 0] {
            file.set_len(cut).unwrap();
            let expected = ends.iter().copied().filter(|end| *end <= cut).max();
            assert_eq!(Some(whole(3).bytes), expected, "{cut}");
        }
    }
}
