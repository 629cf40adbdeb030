// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the decoder of STP gives: packets, and nibbles that are in none.

use alloc::vec::Vec;

use crate::LostCause;

/// How timestamps are written (VERSION).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Version 3: natural binary.
    Binary,
    /// Version 4: gray.
    Gray,
}

/// The width of a datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// A nibble.
    D4,
    /// One byte.
    D8,
    /// Two bytes.
    D16,
    /// Four bytes.
    D32,
    /// Eight bytes.
    D64,
}

impl Width {
    /// All of them.
    pub const ALL: [Width; 5] = [Width::D4, Width::D8, Width::D16, Width::D32, Width::D64];

    /// In a stream.
    #[must_use]
    pub const fn nibbles(self) -> usize {
        match self {
            Width::D4 => 1,
            Width::D8 => 2,
            Width::D16 => 4,
            Width::D32 => 8,
            Width::D64 => 16,
        }
    }

    /// In memory; a nibble takes a byte.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.nibbles().div_ceil(2)
    }
}

/// When a packet was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Of the unit's clock; its frequency is in FREQ packets, if at all ([`Decoder::frequency_hz`](super::Decoder::frequency_hz)).
    pub ticks: u64,
    /// How many nibbles of it the packet had. The others are those of the time before.
    pub nibbles: u8,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: padding.
    Null,
    /// A synchronisation: master and channel are 0 from here on.
    Async,
    /// The version: 3 or 4.
    Version(u8),
    /// From here on data are of this master (whole, also if only its low byte was written), and of channel 0.
    Master {
        /// Its number.
        master: u16,
        /// M16 rather than M8.
        wide: bool,
    },
    /// From here on data are of this channel (whole, as above).
    Channel {
        /// Its number.
        channel: u16,
        /// C16 rather than C8.
        wide: bool,
    },
    /// The unit could not write what the current master sent.
    MasterError(u8),
    /// The unit could not write what some master sent.
    GlobalError(u8),
    /// A datum.
    Data {
        /// Zero-extended.
        value: u64,
        /// As sent.
        width: Width,
        /// Whatever the sender means by it, mostly a message's begin or end.
        marked: bool,
    },
    /// A marker without a datum, mostly a message's end.
    Flag,
    /// What implementations define: up to 16 nibbles.
    User {
        /// The nibbles, the first one the most significant.
        value: u64,
        /// How many.
        nibbles: u8,
    },
    /// A trigger of the unit.
    Trigger(u8),
    /// A cross-synchronisation event.
    CrossSync(u8),
    /// The frequency of the clock of timestamps, Hz; 0: not known.
    Frequency(u32),
}

/// A packet with where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its first nibble, from the beginning of the stream.
    pub nibble: u64,
    /// Its length.
    pub nibbles: u32,
    /// The master whose packet it is; of M8 and M16 the new one.
    pub master: u16,
    /// The channel whose packet it is; of C8 and C16 the new one.
    pub channel: u16,
    /// What it says.
    pub payload: Payload,
    /// When it was made.
    pub timestamp: Option<Timestamp>,
}

impl Packet {
    /// The name that the specification gives it, such as `D32MTS`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        let timed = self.timestamp.is_some();
        match self.payload {
            Payload::Null => pick(timed, "NULL_TS", "NULL"),
            Payload::Async => "ASYNC",
            Payload::Version(_) => "VERSION",
            Payload::Master { wide, .. } => pick(wide, "M16", "M8"),
            Payload::Channel { wide, .. } => pick(wide, "C16", "C8"),
            Payload::MasterError(_) => "MERR",
            Payload::GlobalError(_) => "GERR",
            Payload::Data { width, marked, .. } => data_name(width, marked, timed),
            Payload::Flag => pick(timed, "FLAG_TS", "FLAG"),
            Payload::User { .. } => pick(timed, "USER_TS", "USER"),
            Payload::Trigger(_) => pick(timed, "TRIG_TS", "TRIG"),
            Payload::CrossSync(_) => pick(timed, "XSYNC_TS", "XSYNC"),
            Payload::Frequency(_) => pick(timed, "FREQ_TS", "FREQ"),
        }
    }
}

const fn pick(first: bool, yes: &'static str, no: &'static str) -> &'static str {
    if first { yes } else { no }
}

const fn data_name(width: Width, marked: bool, timed: bool) -> &'static str {
    let names = match width {
        Width::D4 => ["D4", "D4TS", "D4M", "D4MTS"],
        Width::D8 => ["D8", "D8TS", "D8M", "D8MTS"],
        Width::D16 => ["D16", "D16TS", "D16M", "D16MTS"],
        Width::D32 => ["D32", "D32TS", "D32M", "D32MTS"],
        Width::D64 => ["D64", "D64TS", "D64M", "D64MTS"],
    };
    names[marked as usize * 2 + timed as usize]
}

/// Nibbles that are in no packet: from an error, or the stream's begin, to the next synchronisation or the stream's end. Nibbles in
/// packets and lost nibbles are together twice the stream's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The first of them, from the beginning of the stream.
    pub nibble: u64,
    /// How many.
    pub nibbles: u64,
    /// Why the first of them is not in a packet.
    pub cause: LostCause,
}

impl Lost {
    /// The same in bytes: all bytes of which a nibble was lost.
    #[must_use]
    pub const fn in_bytes(&self) -> crate::Lost {
        let (first, end) = (self.nibble / 2, (self.nibble + self.nibbles).div_ceil(2));
        crate::Lost { offset: first, bytes: end - first, cause: self.cause }
    }
}

/// What the decoder gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A packet.
    Packet(Packet),
    /// What is in none.
    Lost(Lost),
}

/// Receives what the decoder gives, in the order of the stream.
pub trait Sink {
    /// A packet.
    fn packet(&mut self, packet: &Packet);
    /// What is in none.
    fn lost(&mut self, lost: &Lost);
}

impl<F: FnMut(Item)> Sink for F {
    fn packet(&mut self, packet: &Packet) {
        self(Item::Packet(*packet));
    }

    fn lost(&mut self, lost: &Lost) {
        self(Item::Lost(*lost));
    }
}

impl Sink for Vec<Item> {
    fn packet(&mut self, packet: &Packet) {
        self.push(Item::Packet(*packet));
    }

    fn lost(&mut self, lost: &Lost) {
        self.push(Item::Lost(*lost));
    }
}
