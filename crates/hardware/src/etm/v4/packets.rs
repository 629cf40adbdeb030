// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a stream: synchronisation, bytes in pieces, and what a packet needs of those before it.

use super::config::Config;
use super::packet::{Address, AddressForm, Packet};
use super::parse::{self, Cursor, LONGEST, Raw, RawAddress, Stop};
use crate::Lost;
use crate::etm::{At, Fault, Sink};

/// Zeros of an A-Sync.
const ZEROS: usize = 11;

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

/// Takes an ETMv4 or ETE stream apart, as bytes come.
#[derive(Clone, Debug)]
pub struct Packets {
    config: Config,
    synchronised: bool,
    /// The beginning of a packet, from earlier bytes.
    held: [u8; LONGEST],
    held_len: usize,
    held_offset: u64,
    /// Offsets of the zeros before this byte, while not synchronised.
    zeros: [u64; ZEROS],
    zero_count: usize,
    unsynchronised: Option<Lost>,
    state: State,
    counts: Counts,
}

/// What packets leave out because it was in earlier ones.
#[derive(Clone, Debug, Default)]
struct State {
    /// The last three addresses, newest first, with the instruction set.
    history: [(u64, bool); 3],
    is_64_bit: bool,
    timestamp: u64,
    /// After a trace info, a timestamp's missing bits are zero.
    timestamp_known: bool,
    trace_info: bool,
    cycle_threshold: u32,
}

impl Packets {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            synchronised: false,
            held: [0; LONGEST],
            held_len: 0,
            held_offset: 0,
            zeros: [0; ZEROS],
            zero_count: 0,
            unsynchronised: None,
            state: State::default(),
            counts: Counts::default(),
        }
    }

    /// Where the bytes went so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next bytes of the stream; the offset is that of their first one, as the caller counts.
    pub fn push(&mut self, mut offset: u64, mut bytes: &[u8], sink: &mut impl Sink<Packet>) {
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
    pub fn reset(&mut self, sink: &mut impl Sink<Packet>) {
        self.finish(sink);
        self.state = State::default();
        self.synchronised = false;
    }

    /// Ends the stream.
    pub fn finish(&mut self, sink: &mut impl Sink<Packet>) {
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
    fn search(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<Packet>) -> usize {
        for (place, &byte) in bytes.iter().enumerate() {
            let here = offset + place as u64;
            if byte == 0 {
                if self.zero_count == ZEROS {
                    self.pass(self.zeros[0]);
                    self.zeros.copy_within(1.., 0);
                    self.zero_count -= 1;
                }
                self.zeros[self.zero_count] = here;
                self.zero_count += 1;
                continue;
            }
            let zeros = core::mem::take(&mut self.zero_count);
            if byte == 0x80 && zeros == ZEROS {
                self.flush(sink);
                self.synchronised = true;
                self.give(At { offset: self.zeros[0], bytes: 12 }, Packet::Async, sink);
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
    fn go_on(&mut self, _: u64, bytes: &[u8], sink: &mut impl Sink<Packet>) -> usize {
        let before = self.held_len;
        let taken = bytes.len().min(LONGEST - before);
        self.held[before..before + taken].copy_from_slice(&bytes[..taken]);
        let held = self.held;
        let mut cursor = Cursor { bytes: &held[..before + taken], at: 0 };
        let used = match parse::packet(&mut cursor, &self.config) {
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
    fn run(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<Packet>) -> usize {
        let mut place = 0;
        while place < bytes.len() {
            let mut cursor = Cursor { bytes: &bytes[place..], at: 0 };
            let here = offset + place as u64;
            match parse::packet(&mut cursor, &self.config) {
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

    fn finish_packet(&mut self, at: At, raw: Raw, sink: &mut impl Sink<Packet>) {
        let packet = self.state.complete(raw);
        self.give(at, packet, sink);
    }

    fn give(&mut self, at: At, packet: Packet, sink: &mut impl Sink<Packet>) {
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

    fn flush(&mut self, sink: &mut impl Sink<Packet>) {
        if let Some(lost) = self.unsynchronised.take() {
            sink.lost(lost, Fault::NotSynchronised);
        }
    }

    fn lose(&mut self, offset: u64, bytes: u64, fault: Fault, sink: &mut impl Sink<Packet>) {
        self.counts.lost_bytes += bytes;
        sink.lost(Lost { offset, bytes, cause: fault.cause() }, fault);
    }
}

impl State {
    fn complete(&mut self, raw: Raw) -> Packet {
        match raw {
            Raw::Plain(packet) => {
                if let Packet::Context(Some(context)) = packet {
                    self.is_64_bit = context.is_64_bit;
                }
                packet
            }
            Raw::Zero(packet) => {
                self.push(0, false);
                packet
            }
            Raw::Timestamp(value, bits, cycles) => self.timestamp(value, bits, cycles),
            Raw::Address(raw) => Packet::Address(self.address(raw)),
            Raw::SourceAddress(raw) => Packet::SourceAddress(self.address(raw)),
            Raw::AddressContext(raw, context) => {
                let address = self.address(raw);
                self.is_64_bit = context.is_64_bit;
                Packet::AddressContext(address, context)
            }
            Raw::Q(count, raw) => Packet::Q { count, address: raw.map(|raw| self.address(raw)) },
            Raw::Cycles(format, above, commit) => {
                let cycles = above.map(|above| above.wrapping_add(self.cycle_threshold));
                Packet::Cycles { format, cycles, commit }
            }
            Raw::TraceInfo(info) => {
                self.history = [(0, false); 3];
                self.timestamp_known = false;
                self.trace_info = true;
                self.cycle_threshold = info.cycle_threshold;
                Packet::TraceInfo(info)
            }
        }
    }

    /// Given bits replace the low ones of the timestamp before, 6.4.10.
    fn timestamp(&mut self, value: u64, bits: u32, cycles: Option<u32>) -> Packet {
        if bits >= 64 || (!self.timestamp_known && self.trace_info) {
            self.timestamp = value;
        } else {
            let mask = (1u64 << bits) - 1;
            self.timestamp = self.timestamp & !mask | value & mask;
        }
        self.timestamp_known = true;
        Packet::Timestamp { value: self.timestamp, cycles }
    }

    fn push(&mut self, value: u64, is1: bool) {
        self.history = [(value, is1), self.history[0], self.history[1]];
    }

    fn address(&mut self, raw: RawAddress) -> Address {
        let (last, _) = self.history[0];
        let (value, is1, form) = match raw {
            RawAddress::Match(entry) => {
                let (value, is1) = self.history[usize::from(entry.min(2))];
                (value, is1, AddressForm::Match(entry))
            }
            RawAddress::Short(value, bits, is1) => {
                let mask = (1u64 << bits) - 1;
                (last & !mask | u64::from(value), is1, AddressForm::Short)
            }
            RawAddress::Long32(value, is1) => {
                let high = if self.is_64_bit { last & !0xFFFF_FFFF } else { 0 };
                (high | u64::from(value), is1, AddressForm::Long32)
            }
            RawAddress::Long64(value, is1) => (value, is1, AddressForm::Long64),
        };
        self.push(value, is1);
        Address { value, is1, form }
    }
}
