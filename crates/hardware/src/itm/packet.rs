// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the decoder of ITM gives.

use alloc::vec::Vec;

use crate::Lost;

/// What a processor did with an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Its handler was entered.
    Entered,
    /// Its handler was left.
    Exited,
    /// It was returned to, from another handler; number 0: the thread was.
    Returned,
}

/// How a local timestamp relates to the packets that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// It is when they were made.
    None,
    /// The timestamp is late.
    Timestamp,
    /// The packets were late.
    Event,
    /// Both were.
    Both,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A synchronisation: at least 47 zero bits and a one.
    Sync,
    /// Packets were lost before this one.
    Overflow,
    /// Ticks since the local timestamp before it.
    LocalTimestamp {
        /// Of the clock that the ITM was given.
        delta_ticks: u32,
        /// Of it, or of what it stamps.
        delay: Delay,
        /// LTS2, of one byte, rather than LTS1.
        short: bool,
    },
    /// The low part of the global time (GTS1).
    GlobalLow {
        /// Up to 26 bits.
        value: u32,
        /// How many of them were sent; those above are as before.
        bits: u8,
        /// The high part has changed since it was sent: a GTS2 follows.
        wrapped: bool,
        /// The clock has changed.
        clock_changed: bool,
    },
    /// The high part of the global time, from bit 26 on (GTS2).
    GlobalHigh {
        /// 22 bits of a 48-bit time, or 38 of one with 64 bits.
        value: u64,
        /// Of a time with 64 bits.
        wide: bool,
    },
    /// Stimulus ports from here on are of this page, 0 to 7.
    Page(u8),
    /// Another extension packet.
    Extension {
        /// Of the DWT unit rather than the ITM.
        hardware: bool,
        /// Up to 31 bits.
        value: u32,
    },
    /// A program wrote into a stimulus port.
    Stimulus {
        /// With the page: 0 to 255.
        port: u8,
        /// Bytes written: 1, 2 or 4.
        size: u8,
        /// Zero-extended.
        value: u32,
    },
    /// Counters that overflowed: bits CPI, EXC, SLEEP, LSU, FOLD, CYC, from the lowest.
    Counters(u8),
    /// An exception.
    Exception {
        /// As the processor numbers them: 1 is reset, 16 the first interrupt.
        number: u16,
        /// What became of it.
        action: Action,
    },
    /// A sample of the program counter; None: the processor slept.
    PcSample(Option<u32>),
    /// The program counter of an access that a comparator matched.
    DataPc {
        /// Which one.
        comparator: u8,
        /// Of the instruction.
        pc: u32,
    },
    /// The low half of the address of such an access.
    DataAddress {
        /// Which one.
        comparator: u8,
        /// Bits 15 to 0.
        address: u16,
    },
    /// The value of such an access.
    DataValue {
        /// Which one.
        comparator: u8,
        /// Written rather than read.
        written: bool,
        /// Bytes: 1, 2 or 4.
        size: u8,
        /// Zero-extended.
        value: u32,
    },
    /// A packet of the DWT unit that the manual reserves.
    Hardware {
        /// Its source.
        id: u8,
        /// Bytes: 1, 2 or 4.
        size: u8,
        /// Zero-extended.
        value: u32,
    },
}

/// A packet with where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its first byte, from the beginning of the stream.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Since the last synchronisation nothing was malformed. Without one, it may be nonsense.
    pub certain: bool,
    /// What it says.
    pub payload: Payload,
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
