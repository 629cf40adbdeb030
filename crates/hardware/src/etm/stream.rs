// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a stream, for all units: synchronisation, bytes in pieces, and an account of all bytes.

use super::{At, Fault, Sink};
use crate::Lost;

/// The longest packet, and more; the reader of a longer one is reading nonsense.
const LONGEST: usize = 48;
/// The most zeros of a synchronisation.
const MOST_ZEROS: usize = 11;

/// Why there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It goes on after these bytes.
    More,
    /// These bytes are not a packet.
    Bad(usize, Fault),
}

/// Bytes of a packet, read one after the other.
pub(crate) struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Cursor<'_> {
    pub(crate) fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::More)?;
        self.at += 1;
        Ok(byte)
    }

    /// Seven bits a byte, lowest first, as long as bit 7 is set.
    pub(crate) fn field(&mut self, most: u32) -> Result<u32, Stop> {
        let mut value = 0u32;
        for place in 0..most {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7F).wrapping_shl(7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Bad(self.at, Fault::Sequence))
    }

    pub(crate) fn little_endian(&mut self, bytes: usize) -> Result<u64, Stop> {
        let mut value = 0;
        for place in 0..bytes {
            value |= u64::from(self.byte()?) << (8 * place);
        }
        Ok(value)
    }
}

/// The packets of a unit.
pub(crate) trait Protocol {
    /// A packet.
    type Packet;
    /// A packet as the stream has it, before what it leaves out is added.
    type Raw;
    /// Zeros of a synchronisation; an 80 follows.
    const ZEROS: usize;
    /// The packet of a synchronisation.
    const SYNC: Self::Packet;
    /// The packet that this byte is alone, if it is one that needs nothing from earlier ones: atoms are most of a stream.
    fn quick(_: u8) -> Option<Self::Packet> {
        None
    }
    /// The first packet of the bytes, of which there is at least one.
    fn read(&self, cursor: &mut Cursor<'_>) -> Result<Self::Raw, Stop>;
    /// Adds what was in earlier packets.
    fn complete(&mut self, raw: Self::Raw) -> Self::Packet;
    /// Forgets them.
    fn reset(&mut self);
}

/// Where the bytes went: [`Counts::input`] is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes given.
    pub input: u64,
    /// Bytes in packets.
    pub packet_bytes: u64,
    /// Bytes reported lost.
    pub lost_bytes: u64,
    /// Bytes of a packet of which the rest has not come yet.
    pub pending: u64,
    /// Packets.
    pub packets: u64,
}

impl Counts {
    /// Whether every byte is accounted for.
    #[must_use]
    pub fn balanced(&self) -> bool {
        self.input == self.packet_bytes + self.lost_bytes + self.pending
    }
}

/// Takes a stream apart, as bytes come.
#[derive(Clone, Debug)]
pub(crate) struct Stream<P> {
    protocol: P,
    synchronised: bool,
    /// The beginning of a packet, from earlier bytes.
    held: [u8; LONGEST],
    held_len: usize,
    held_offset: u64,
    /// Offsets of the zeros before this byte, while not synchronised.
    zeros: [u64; MOST_ZEROS],
    zero_count: usize,
    unsynchronised: Option<Lost>,
    counts: Counts,
}

impl<P: Protocol> Stream<P> {
    /// A decoder at the beginning of a stream.
    pub(crate) fn new(protocol: P) -> Self {
        Self {
            protocol,
            synchronised: false,
            held: [0; LONGEST],
            held_len: 0,
            held_offset: 0,
            zeros: [0; MOST_ZEROS],
            zero_count: 0,
            unsynchronised: None,
            counts: Counts::default(),
        }
    }

    /// Where the bytes went so far.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next bytes of the stream; the offset is that of their first one, as the caller counts.
    pub(crate) fn push(&mut self, mut offset: u64, mut bytes: &[u8], sink: &mut impl Sink<P::Packet>) {
        self.counts.input += bytes.len() as u64;
        while !bytes.is_empty() {
            let taken = if !self.synchronised {
                self.search(offset, bytes, sink)
            } else if self.held_len > 0 {
                self.go_on(offset, bytes, sink)
            } else {
                self.run(offset, bytes, sink)
            };
            offset += taken as u64;
            bytes = &bytes[taken..];
        }
        self.counts.pending = if self.synchronised { self.held_len } else { self.zero_count } as u64;
    }

    /// What comes next does not continue what came before.
    pub(crate) fn reset(&mut self, sink: &mut impl Sink<P::Packet>) {
        self.finish(sink);
        self.protocol.reset();
        self.synchronised = false;
    }

    /// Ends the stream.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink<P::Packet>) {
        if !self.synchronised {
            for place in 0..self.zero_count {
                self.pass(self.zeros[place]);
            }
        }
        self.zero_count = 0;
        self.flush(sink);
        if self.held_len > 0 {
            let bytes = self.held_len as u64;
            self.held_len = 0;
            self.lose(self.held_offset, bytes, Fault::Incomplete, sink);
        }
        self.counts.pending = 0;
    }

    /// Looks for eleven zeros and an 80.
    fn search(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<P::Packet>) -> usize {
        for (place, &byte) in bytes.iter().enumerate() {
            let here = offset + place as u64;
            if byte == 0 {
                if self.zero_count == P::ZEROS {
                    self.pass(self.zeros[0]);
                    self.zeros.copy_within(1..P::ZEROS, 0);
                    self.zero_count -= 1;
                }
                self.zeros[self.zero_count] = here;
                self.zero_count += 1;
                continue;
            }
            let zeros = core::mem::take(&mut self.zero_count);
            if byte == 0x80 && zeros == P::ZEROS {
                self.flush(sink);
                self.synchronised = true;
                self.give(At { offset: self.zeros[0], bytes: P::ZEROS as u32 + 1 }, P::SYNC, sink);
                return place + 1;
            }
            for zero in 0..zeros {
                self.pass(self.zeros[zero]);
            }
            self.pass(here);
        }
        bytes.len()
    }

    /// The rest of a packet that began in earlier bytes.
    fn go_on(&mut self, _: u64, bytes: &[u8], sink: &mut impl Sink<P::Packet>) -> usize {
        let before = self.held_len;
        let taken = bytes.len().min(LONGEST - before);
        self.held[before..before + taken].copy_from_slice(&bytes[..taken]);
        let held = self.held;
        let mut cursor = Cursor { bytes: &held[..before + taken], at: 0 };
        let used = match self.protocol.read(&mut cursor) {
            Ok(raw) => {
                let at = At { offset: self.held_offset, bytes: cursor.at as u32 };
                self.finish_packet(at, raw, sink);
                cursor.at
            }
            Err(Stop::More) if before + taken < LONGEST => {
                self.held_len = before + taken;
                return taken;
            }
            Err(Stop::More) => {
                self.lose(self.held_offset, before as u64, Fault::Sequence, sink);
                before
            }
            Err(Stop::Bad(used, fault)) => {
                self.lose(self.held_offset, used as u64, fault, sink);
                used
            }
        };
        if used >= before {
            self.held_len = 0;
            return used - before;
        }
        // Only one zero too many before an A-Sync ends before what was held.
        self.held.copy_within(used..before, 0);
        self.held_len = before - used;
        self.held_offset += used as u64;
        0
    }

    /// Packets that are whole in these bytes.
    fn run(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<P::Packet>) -> usize {
        let mut place = 0;
        while place < bytes.len() {
            if let Some(packet) = P::quick(bytes[place]) {
                self.give(At { offset: offset + place as u64, bytes: 1 }, packet, sink);
                place += 1;
                continue;
            }
            let mut cursor = Cursor { bytes: &bytes[place..], at: 0 };
            let here = offset + place as u64;
            match self.protocol.read(&mut cursor) {
                Ok(raw) => {
                    self.finish_packet(At { offset: here, bytes: cursor.at as u32 }, raw, sink);
                    place += cursor.at;
                }
                Err(Stop::Bad(used, fault)) => {
                    self.lose(here, used as u64, fault, sink);
                    place += used;
                }
                Err(Stop::More) => {
                    let rest = &bytes[place..];
                    self.held[..rest.len()].copy_from_slice(rest);
                    self.held_len = rest.len();
                    self.held_offset = here;
                    return bytes.len();
                }
            }
        }
        place
    }

    fn finish_packet(&mut self, at: At, raw: P::Raw, sink: &mut impl Sink<P::Packet>) {
        let packet = self.protocol.complete(raw);
        self.give(at, packet, sink);
    }

    fn give(&mut self, at: At, packet: P::Packet, sink: &mut impl Sink<P::Packet>) {
        self.counts.packets += 1;
        self.counts.packet_bytes += u64::from(at.bytes);
        sink.packet(at, &packet);
    }

    /// A byte without synchronisation.
    fn pass(&mut self, offset: u64) {
        self.counts.lost_bytes += 1;
        match &mut self.unsynchronised {
            Some(lost) => lost.bytes += 1,
            None => {
                self.unsynchronised = Some(Lost { offset, bytes: 1, cause: Fault::NotSynchronised.cause() });
            }
        }
    }

    fn flush(&mut self, sink: &mut impl Sink<P::Packet>) {
        if let Some(lost) = self.unsynchronised.take() {
            sink.lost(lost, Fault::NotSynchronised);
        }
    }

    fn lose(&mut self, offset: u64, bytes: u64, fault: Fault, sink: &mut impl Sink<P::Packet>) {
        self.counts.lost_bytes += bytes;
        sink.lost(Lost { offset, bytes, cause: fault.cause() }, fault);
    }
}
