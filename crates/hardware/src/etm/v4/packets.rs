// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a stream, with what they leave out because it was in earlier ones.

use super::config::Config;
use super::packet::{Address, AddressForm, Packet};
use super::parse::{self, Raw, RawAddress};
use crate::etm::Sink;
use crate::etm::stream::{Counts, Cursor, Protocol, Stop, Stream};

/// Takes an ETMv4 or ETE stream apart, as bytes come.
#[derive(Clone, Debug)]
pub struct Packets(Stream<Etm4>);

impl Packets {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Stream::new(Etm4 { config: *config, state: State::default() }))
    }

    /// Where the bytes went so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        self.0.counts()
    }

    /// The next bytes of the stream; the offset is that of their first one, as the caller counts.
    pub fn push(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<Packet>) {
        self.0.push(offset, bytes, sink);
    }

    /// What comes next does not continue what came before.
    pub fn reset(&mut self, sink: &mut impl Sink<Packet>) {
        self.0.reset(sink);
    }

    /// Ends the stream.
    pub fn finish(&mut self, sink: &mut impl Sink<Packet>) {
        self.0.finish(sink);
    }
}

#[derive(Clone, Debug)]
struct Etm4 {
    config: Config,
    state: State,
}

impl Protocol for Etm4 {
    type Packet = Packet;
    type Raw = Raw;
    const ZEROS: usize = 11;
    const SYNC: Packet = Packet::Async;

    fn quick(byte: u8) -> Option<Packet> {
        (byte >= 0xC0).then(|| parse::atoms(byte))
    }

    fn read(&self, cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
        parse::packet(cursor, &self.config)
    }

    fn complete(&mut self, raw: Raw) -> Packet {
        self.state.complete(raw)
    }

    fn reset(&mut self) {
        self.state = State::default();
    }
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
