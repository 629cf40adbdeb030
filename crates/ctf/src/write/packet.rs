// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events → packets of one stream.
//!
//! Event headers are LTTng's: 5 bits of id and 27 bits of time, 4 bytes instead of 12 (or 16 and 32 bits where there are
//! many classes). The reader completes the time from the event before (from the packet's begin for the first), so a
//! larger step than those bits hold (2^27 ns = 134 ms), and an id that does not fit, take the extended form.

use super::Losses;
use super::classes::Header;
use rtscope_event::{CpuId, MonotonicNs};
use std::io::{self, Write};

/// First word of every packet.
pub(crate) const MAGIC: u32 = 0xc1fc_1fc1;
/// Packets are cut when they exceed this. Large enough that its 84 bytes of header do not matter, small enough that a
/// reader can seek and that one write never takes long.
const PACKET_BYTES: usize = 512 * 1024;

/// Size of packet header (magic, uuid, stream_id, stream_instance_id) and context, and where the context's fields are.
const HEADER_BYTES: usize = 4 + 16 + 4 + 8;
const CONTEXT_BYTES: usize = 6 * 8 + 4;

/// A packet that begins with a loss is cut here already: the loss is known to lie before its end, so this is how precisely
/// a reader learns where it was. Also how much has to lie between two losses that are told apart.
const LOSS_PACKET_BYTES: usize = 16 * 1024;

/// Whose events a stream has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// A CPU's: its packets say which.
    Cpu(CpuId),
    /// Those of some threads, wherever they run.
    Threads(u64),
}

impl Place {
    fn instance(self) -> u64 {
        match self {
            Place::Cpu(cpu) => u64::from(cpu.0),
            Place::Threads(number) => number,
        }
    }

    fn head_bytes(self) -> usize {
        match self {
            Place::Cpu(_) => HEADER_BYTES + CONTEXT_BYTES,
            Place::Threads(_) => HEADER_BYTES + CONTEXT_BYTES - 4,
        }
    }
}

/// Cuts one stream into packets.
#[derive(Debug)]
pub(super) struct PacketWriter<W> {
    out: W,
    header: Header,
    uuid: [u8; 16],
    place: Place,
    /// events_discarded of the packet being filled.
    discarded: u64,
    /// The packet being filled has more of them than the one before.
    after_loss: bool,
    buffer: Vec<u8>,
    begin: MonotonicNs,
    /// The time a reader has in hand after what is in the buffer.
    clock: MonotonicNs,
    empty: bool,
    done: Done,
}

/// What a stream came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Events whose time was before that of the event before them; they have that one's time.
    pub(super) moved: u64,
}

impl<W: Write> PacketWriter<W> {
    /// A stream whose first packet begins at `begin`.
    pub(super) fn new(out: W, header: Header, uuid: [u8; 16], place: Place, begin: MonotonicNs) -> Self {
        let mut writer = PacketWriter {
            out,
            header,
            uuid,
            place,
            discarded: 0,
            after_loss: false,
            buffer: Vec::with_capacity(PACKET_BYTES + 8192),
            begin,
            clock: begin,
            empty: true,
            done: Done::default(),
        };
        writer.open(begin);
        writer
    }

    /// Makes losses visible whose place in the stream is not known; to be called before the first event.
    /// `events_discarded` counts since the beginning of the stream, and readers report its growth from packet to packet.
    /// So an empty packet at the begin has 0, and all others have the sum. When the number is unknown there is no such
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
        self.discarded = losses.known.max(1);
        Ok(())
    }

    /// `count` events are missing between the last event and the next.
    pub(super) fn lost(&mut self, count: u64) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        // Close together, losses are one: packets must not become smaller than their headers are worth.
        if !self.after_loss || self.buffer.len() >= LOSS_PACKET_BYTES {
            self.close(self.clock)?;
            self.open(self.clock);
            self.after_loss = true;
        }
        self.discarded = self.discarded.saturating_add(count);
        Ok(())
    }

    /// Begins an event: its payload is to be appended to [`PacketWriter::payload`]. A time that goes back is moved to the
    /// time of the event before.
    #[inline(always)]
    pub(super) fn begin_event(&mut self, id: u32, time: MonotonicNs) -> io::Result<()> {
        let mut time = time;
        if time < self.clock {
            time = self.clock;
            self.done.moved += 1;
        }
        if self.buffer.len() >= if self.after_loss { LOSS_PACKET_BYTES } else { PACKET_BYTES } {
            self.close(self.clock)?;
            self.open(time);
            self.after_loss = false;
        }
        let header = self.header;
        let low = time.0 & ((1 << header.time_bits()) - 1);
        if id < header.extended() && time.since(self.clock) < 1 << header.time_bits() {
            match header {
                Header::Compact => self.buffer.extend_from_slice(&(id | (low as u32) << 5).to_le_bytes()),
                Header::Large => {
                    let word = u64::from(id) | low << 16;
                    self.buffer.extend_from_slice(&word.to_le_bytes()[..6]);
                }
            }
        } else {
            match header {
                Header::Compact => self.buffer.push(header.extended() as u8),
                Header::Large => self.buffer.extend_from_slice(&(header.extended() as u16).to_le_bytes()),
            }
            self.buffer.extend_from_slice(&id.to_le_bytes());
            self.buffer.extend_from_slice(&time.0.to_le_bytes());
        }
        self.clock = time;
        self.empty = false;
        Ok(())
    }

    /// Where the payload of the event that was begun goes.
    #[inline]
    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Where the next event would begin, for [`PacketWriter::take_back`].
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        Mark { packets: self.done.packets, length: self.buffer.len(), clock: self.clock, empty: self.empty }
    }

    /// Forgets the event that was begun after `mark`. A packet that was cut for it stays cut.
    pub(super) fn take_back(&mut self, mark: Mark) {
        if mark.packets == self.done.packets {
            self.buffer.truncate(mark.length);
            (self.clock, self.empty) = (mark.clock, mark.empty);
        } else {
            self.open(self.begin);
        }
    }

    /// Writes the last packet, which ends at `end` at the earliest.
    pub(super) fn finish(mut self, end: MonotonicNs) -> io::Result<(W, Done)> {
        self.close(end.max(self.clock))?;
        Ok((self.out, self.done))
    }

    fn open(&mut self, begin: MonotonicNs) {
        self.buffer.clear();
        self.buffer.resize(self.place.head_bytes(), 0);
        self.begin = begin;
        self.clock = begin;
        self.empty = true;
    }

    /// Fills in what is known only now, and writes with one call.
    fn close(&mut self, end: MonotonicNs) -> io::Result<()> {
        let bits = self.buffer.len() as u64 * 8;
        let mut head = Vec::with_capacity(HEADER_BYTES + CONTEXT_BYTES);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&self.uuid);
        head.extend_from_slice(&0u32.to_le_bytes());
        head.extend_from_slice(&self.place.instance().to_le_bytes());
        // timestamps, content_size and packet_size (no padding), packet_seq_num, events_discarded
        for word in [self.begin.0, end.0, bits, bits, self.done.packets, self.discarded] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        if let Place::Cpu(cpu) = self.place {
            head.extend_from_slice(&cpu.0.to_le_bytes());
        }
        self.buffer[..head.len()].copy_from_slice(&head);
        self.out.write_all(&self.buffer)?;
        self.done.packets += 1;
        self.done.bytes += self.buffer.len() as u64;
        Ok(())
    }
}

/// A place in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    packets: u64,
    length: usize,
    clock: MonotonicNs,
    empty: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(header: Header, fill: impl FnOnce(&mut PacketWriter<Vec<u8>>)) -> (Vec<u8>, Done) {
        let mut writer = PacketWriter::new(Vec::new(), header, [7; 16], Place::Cpu(CpuId(1)), MonotonicNs(0));
        fill(&mut writer);
        writer.finish(MonotonicNs(0)).unwrap()
    }

    fn event(writer: &mut PacketWriter<Vec<u8>>, time: u64) {
        writer.begin_event(11, MonotonicNs(time)).unwrap();
        writer.payload().extend_from_slice(&3_u32.to_le_bytes());
    }

    fn packets(times: &[u64], losses: Losses) -> (Vec<u8>, Done) {
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
        // The second loss is too near to the first to be told apart; after 16 KiB the packet ends.
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
}
