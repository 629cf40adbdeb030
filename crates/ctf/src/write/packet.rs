// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events → packets of one stream.
//!
//! Event headers are LTTng's compact ones: 5 bits of id and 27 bits of time, 4 bytes instead of 12. The reader
//! completes the time from the event before (from the packet's begin for the first), so a larger step than 2^27 ns
//! = 134 ms, and an id that does not fit, take the extended form.

use super::encode::Payload;
use super::{Losses, Window};
use crate::layout::{EventLayout, event_layouts};
use rtscope_event::{CpuId, MonotonicNs};
use std::io::{self, Write};

/// First word of every packet.
pub(crate) const MAGIC: u32 = 0xc1fc_1fc1;
/// The compact id that says: extended header.
pub(crate) const EXTENDED: u32 = 31;
/// Bits of time in a compact header.
const TIME_BITS: u32 = 27;
/// Packets are cut before they exceed this. Large enough that its 84 bytes of header do not matter, small enough that a
/// reader can seek and that one write never takes long.
const PACKET_BYTES: usize = 512 * 1024;

/// Size of packet header (magic, uuid, stream_id, stream_instance_id) and context, and where the context's fields are.
const HEADER_BYTES: usize = 4 + 16 + 4 + 8;
const CONTEXT_BYTES: usize = 6 * 8 + 4;

/// Cuts one stream into packets.
pub(super) struct PacketWriter<'f, W> {
    out: &'f mut W,
    layouts: Vec<EventLayout>,
    uuid: [u8; 16],
    cpu: CpuId,
    window: Window,
    losses: Losses,
    /// events_discarded of the packet being filled.
    discarded: u64,
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
}

impl<'f, W: Write> PacketWriter<'f, W> {
    pub(super) fn new(out: &'f mut W, uuid: [u8; 16], cpu: CpuId, window: Window, losses: Losses) -> Self {
        let mut writer = PacketWriter {
            out,
            layouts: event_layouts(),
            uuid,
            cpu,
            window,
            losses,
            discarded: 0,
            buffer: Vec::with_capacity(PACKET_BYTES),
            begin: window.begin,
            clock: window.begin,
            empty: true,
            done: Done::default(),
        };
        writer.open(window.begin);
        writer
    }

    /// Makes the losses visible. `events_discarded` counts since the beginning of the stream, and readers report its
    /// growth from packet to packet; where in the window the losses were is not known. So an empty packet at the
    /// window's begin has 0, and all others have the sum. When the number is unknown there is no such packet: a count
    /// in a stream's first packet has nothing to be compared with, and readers report losses without a number.
    pub(super) fn announce_losses(&mut self) -> io::Result<()> {
        if self.losses.known == 0 && !self.losses.unknown {
            return Ok(());
        }
        if !self.losses.unknown {
            self.close(self.window.begin)?;
            self.open(self.window.begin);
        }
        self.discarded = self.losses.known.max(1);
        Ok(())
    }

    /// Adds one event. Times must not go back.
    pub(super) fn event(
        &mut self,
        id: u32,
        time: MonotonicNs,
        encode: impl Fn(&mut Payload<'_>),
    ) -> io::Result<()> {
        let mark = self.buffer.len();
        self.append(id, time, &encode);
        if self.buffer.len() > PACKET_BYTES && !self.empty {
            self.buffer.truncate(mark);
            self.close(self.clock)?;
            self.open(time);
            self.append(id, time, &encode);
        }
        self.clock = time;
        self.empty = false;
        Ok(())
    }

    fn append(&mut self, id: u32, time: MonotonicNs, encode: &impl Fn(&mut Payload<'_>)) {
        if id < EXTENDED && time.since(self.clock) < 1 << TIME_BITS {
            let low = time.0 as u32 & ((1 << TIME_BITS) - 1);
            self.buffer.extend_from_slice(&(id | low << 5).to_le_bytes());
        } else {
            self.buffer.push(EXTENDED as u8);
            self.buffer.extend_from_slice(&id.to_le_bytes());
            self.buffer.extend_from_slice(&time.0.to_le_bytes());
        }
        let mut payload = Payload::new(&mut self.buffer, self.layouts[id as usize].fields);
        encode(&mut payload);
        payload.finish();
    }

    /// Writes the last packet.
    pub(super) fn finish(mut self) -> io::Result<Done> {
        self.close(self.window.end.max(self.clock))?;
        Ok(self.done)
    }

    fn open(&mut self, begin: MonotonicNs) {
        self.buffer.clear();
        self.buffer.resize(HEADER_BYTES + CONTEXT_BYTES, 0);
        self.begin = begin;
        self.clock = begin;
        self.empty = true;
    }

    /// Fills in what is known only now, and writes.
    fn close(&mut self, end: MonotonicNs) -> io::Result<()> {
        let bits = self.buffer.len() as u64 * 8;
        let mut head = Vec::with_capacity(HEADER_BYTES + CONTEXT_BYTES);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&self.uuid);
        head.extend_from_slice(&0u32.to_le_bytes());
        head.extend_from_slice(&u64::from(self.cpu.0).to_le_bytes());
        // timestamps, content_size and packet_size (no padding), packet_seq_num, events_discarded
        for word in [self.begin.0, end.0, bits, bits, self.done.packets, self.discarded] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&self.cpu.0.to_le_bytes());
        self.buffer[..HEADER_BYTES + CONTEXT_BYTES].copy_from_slice(&head);
        self.out.write_all(&self.buffer)?;
        self.done.packets += 1;
        self.done.bytes += self.buffer.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::id;

    fn packets(times: &[u64], losses: Losses) -> (Vec<u8>, Done) {
        let mut out = Vec::new();
        let window = Window { begin: MonotonicNs(0), end: MonotonicNs(*times.last().unwrap_or(&0)) };
        let mut writer = PacketWriter::new(&mut out, [7; 16], CpuId(1), window, losses);
        writer.announce_losses().unwrap();
        for time in times {
            writer.event(id::SOFTIRQ_RAISE, MonotonicNs(*time), |payload| payload.u32(3)).unwrap();
        }
        let done = writer.finish().unwrap();
        (out, done)
    }

    #[test]
    fn a_long_pause_takes_the_extended_header() {
        let (short, _) = packets(&[0, (1 << 27) - 1], Losses::default());
        let (long, _) = packets(&[0, 1 << 27], Losses::default());
        assert_eq!(short.len(), HEADER_BYTES + CONTEXT_BYTES + 2 * 8);
        assert_eq!(long.len(), short.len() + 9);
    }

    #[test]
    fn packets_are_cut_between_events() {
        let times: Vec<u64> = (0..100_000).collect();
        let (bytes, done) = packets(&times, Losses::default());
        assert_eq!(done.packets, 2);
        assert_eq!(bytes.len(), 2 * (HEADER_BYTES + CONTEXT_BYTES) + 100_000 * 8);
    }

    #[test]
    fn a_known_loss_has_an_empty_packet_before_it() {
        assert_eq!(packets(&[1], Losses { known: 5, unknown: false }).1.packets, 2);
        assert_eq!(packets(&[1], Losses { known: 5, unknown: true }).1.packets, 1);
    }
}
