// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of PTM and how they are in the stream.

use super::Config;
use crate::etm::Fault;
use crate::etm::address32::{Isa32, Last, update_timestamp};
use crate::etm::stream::{Cursor, Protocol, Stop};
use crate::etm::v4::Atoms;
use core::fmt;

/// Why there is an I-Sync (4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// From time to time.
    Periodic,
    /// Tracing was switched on.
    TraceOn,
    /// The unit lost trace.
    Overflow,
    /// The processor left debug state.
    DebugExit,
}

impl Reason {
    pub(crate) fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Reason::Periodic,
            1 => Reason::TraceOn,
            2 => Reason::Overflow,
            _ => Reason::DebugExit,
        }
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A-Sync, 4.3.1.
    Async,
    /// I-Sync, 4.3.2: where execution is.
    ISync {
        /// The address.
        address: u32,
        /// The instruction set there.
        isa: Isa32,
        /// Whether it is another one than before.
        isa_changed: bool,
        /// Why.
        reason: Reason,
        /// Not secure.
        non_secure: bool,
        /// In Hyp mode.
        hyp: bool,
        /// Cycles, if counted.
        cycles: Option<u32>,
        /// Context identifier, if traced.
        context_id: Option<u32>,
    },
    /// A trigger of the unit.
    Trigger,
    /// A waypoint was executed, up to which there are no atoms.
    WaypointUpdate {
        /// Of the waypoint.
        address: u32,
        /// The instruction set there.
        isa: Isa32,
    },
    /// Padding.
    Ignore,
    /// The context identifier changed.
    ContextId(u32),
    /// The virtual machine changed.
    Vmid(u8),
    /// Waypoints, with cycles, if counted.
    Atoms {
        /// They.
        atoms: Atoms,
        /// Cycles.
        cycles: Option<u32>,
    },
    /// The time.
    Timestamp {
        /// In full.
        value: u64,
        /// Cycles, if counted.
        cycles: Option<u32>,
    },
    /// Return from an exception.
    ExceptionReturn,
    /// A branch to an address, or an exception.
    Branch {
        /// The address.
        address: u32,
        /// The instruction set there.
        isa: Isa32,
        /// The exception's number.
        exception: Option<u16>,
        /// Not secure, if said.
        non_secure: Option<bool>,
        /// Cycles, if counted.
        cycles: Option<u32>,
    },
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::ISync { address, isa, reason, .. } => write!(f, "ISync {address:#x} {isa:?} {reason:?}"),
            Packet::Atoms { atoms, .. } => write!(f, "Atoms {atoms}"),
            Packet::Branch { address, exception: None, .. } => write!(f, "Branch {address:#x}"),
            Packet::Branch { exception: Some(number), .. } => write!(f, "Exception {number}"),
            Packet::Timestamp { value, .. } => write!(f, "Timestamp {value}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A packet as in the stream.
pub(super) enum Raw {
    Plain(Packet),
    Timestamp { value: u64, bits: u32, cycles: Option<u32> },
    ISync { address: u32, info: u8, cycles: Option<u32>, context_id: Option<u32> },
    Address { address: RawAddress, exception: Option<Exception>, cycles: Option<u32>, waypoint: bool },
}

/// Address bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct RawAddress {
    bytes: [u8; 5],
    len: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Exception {
    number: u16,
    non_secure: bool,
    alternative: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Ptm {
    pub config: Config,
    pub last: Last,
    pub timestamp: u64,
}

impl Protocol for Ptm {
    type Packet = Packet;
    type Raw = Raw;
    const ZEROS: usize = 5;
    const SYNC: Packet = Packet::Async;

    fn read(&self, cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
        let header = cursor.byte()?;
        let plain = |packet| Ok(Raw::Plain(packet));
        match header {
            _ if header & 1 != 0 => self.branch(cursor, header),
            _ if header & 0x80 != 0 => self.atoms(cursor, header),
            0x00 => synchronisation(cursor, Fault::Sequence).map(|()| Raw::Plain(Packet::Async)),
            0x08 => self.isync(cursor),
            0x0C => plain(Packet::Trigger),
            0x3C => plain(Packet::Vmid(cursor.byte()?)),
            0x42 | 0x46 => self.timestamp(cursor),
            0x66 => plain(Packet::Ignore),
            0x6E => plain(Packet::ContextId(cursor.little_endian(self.config.context_id_bytes())? as u32)),
            0x72 => waypoint_update(cursor),
            0x76 => plain(Packet::ExceptionReturn),
            _ => Err(Stop::Bad(1, Fault::Reserved)),
        }
    }

    fn complete(&mut self, raw: Raw) -> Packet {
        match raw {
            Raw::Plain(packet) => packet,
            Raw::Timestamp { value, bits, cycles } => {
                Packet::Timestamp { value: update_timestamp(&mut self.timestamp, value, bits), cycles }
            }
            Raw::ISync { address, info, cycles, context_id } => {
                let isa = match (address & 1 != 0, info & 4 != 0) {
                    (false, _) => Isa32::A32,
                    (true, false) => Isa32::T32,
                    (true, true) => Isa32::ThumbEe,
                };
                let isa_changed = self.last.isa != isa;
                self.last = Last { value: address & !1, isa };
                let (address, reason) = (address & !1, Reason::from_bits(info >> 5));
                let (non_secure, hyp) = (info & 8 != 0, info & 2 != 0);
                Packet::ISync { address, isa, isa_changed, reason, non_secure, hyp, cycles, context_id }
            }
            Raw::Address { address, exception, cycles, waypoint } => {
                let address =
                    self.address(&address, exception.is_some_and(|exception| exception.alternative));
                let isa = self.last.isa;
                if waypoint {
                    return Packet::WaypointUpdate { address, isa };
                }
                let non_secure = exception.map(|exception| exception.non_secure);
                Packet::Branch { address, isa, exception: exception.map(|it| it.number), non_secure, cycles }
            }
        }
    }

    fn reset(&mut self) {
        self.last = Last::default();
        self.timestamp = 0;
    }
}

/// Zeros and an 80; a zero too many is given up alone.
pub(crate) fn synchronisation(cursor: &mut Cursor<'_>, fault: Fault) -> Result<(), Stop> {
    for _ in 1..5 {
        if cursor.byte()? != 0 {
            // That byte may be a header.
            return Err(Stop::Bad(cursor.at - 1, fault));
        }
    }
    match cursor.byte()? {
        0x80 => Ok(()),
        0 => Err(Stop::Bad(1, fault)),
        _ => Err(Stop::Bad(5, fault)),
    }
}

fn waypoint_update(cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
    let mut address = RawAddress::default();
    let mut info = 0;
    loop {
        let byte = cursor.byte()?;
        address.bytes[address.len] = byte;
        address.len += 1;
        if address.len == 5 {
            if byte & 0x40 != 0 {
                info = cursor.byte()?;
            }
            break;
        }
        if byte & 0x80 == 0 {
            break;
        }
    }
    let exception = Some(Exception { number: 0, non_secure: false, alternative: info & 0x40 != 0 });
    Ok(Raw::Address { address, exception, cycles: None, waypoint: true })
}

/// Four bits, then seven a byte (4.3.9).
fn cycles(cursor: &mut Cursor<'_>, first: Option<u8>) -> Result<u32, Stop> {
    let first = match first {
        Some(byte) => byte,
        None => cursor.byte()?,
    };
    let mut count = u32::from(first >> 2 & 0xF);
    let mut more = first & 0x40 != 0;
    let mut shift = 4;
    while more {
        let byte = cursor.byte()?;
        count |= u32::from(byte & 0x7F) << shift;
        shift += 7;
        more = byte & 0x80 != 0 && shift < 32;
    }
    Ok(count)
}

impl Ptm {
    fn cycles(&self, cursor: &mut Cursor<'_>) -> Result<Option<u32>, Stop> {
        if self.config.is_cycle_accurate() { cycles(cursor, None).map(Some) } else { Ok(None) }
    }

    /// Up to five address bytes, up to two of an exception, cycles (4.3.4).
    fn branch(&self, cursor: &mut Cursor<'_>, header: u8) -> Result<Raw, Stop> {
        let mut address = RawAddress { bytes: [header, 0, 0, 0, 0], len: 1 };
        let mut has_exception = false;
        let mut more = header & 0x80 != 0;
        while more {
            let byte = cursor.byte()?;
            address.bytes[address.len] = byte;
            address.len += 1;
            more = byte & 0x80 != 0 && address.len < 5;
            has_exception = !more && byte & 0x40 != 0;
        }
        let mut exception = None;
        if has_exception {
            let first = cursor.byte()?;
            let mut number = u16::from(first >> 1 & 0xF);
            if first & 0x80 != 0 {
                number |= u16::from(cursor.byte()? & 0x1F) << 4;
            }
            exception =
                Some(Exception { number, non_secure: first & 1 != 0, alternative: first & 0x40 != 0 });
        }
        Ok(Raw::Address { address, exception, cycles: self.cycles(cursor)?, waypoint: false })
    }

    /// Without cycles, a zero bit is an E, the newest in bit 1 (4.3.5).
    fn atoms(&self, cursor: &mut Cursor<'_>, header: u8) -> Result<Raw, Stop> {
        if self.config.is_cycle_accurate() {
            let cycles = Some(cycles(cursor, Some(header))?);
            let atoms = Atoms { bits: u32::from(header & 2 == 0), count: 1 };
            return Ok(Raw::Plain(Packet::Atoms { atoms, cycles }));
        }
        let count = match header {
            0x80..=0x87 => 1,
            0x88..=0x8F => 2,
            0x90..=0x9F => 3,
            0xA0..=0xBF => 4,
            _ => 5,
        };
        let mut bits = 0;
        for place in 0..count {
            bits = bits << 1 | u32::from(header >> (place + 1) & 1 == 0);
        }
        Ok(Raw::Plain(Packet::Atoms { atoms: Atoms { bits, count }, cycles: None }))
    }

    /// Up to nine bytes, the last of eight bits; of 48-bit timestamps up to seven, the last of six (4.3.8).
    fn timestamp(&self, cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
        let (value, bits) = timestamp(cursor, self.config.timestamps_have_64_bits())?;
        Ok(Raw::Timestamp { value, bits, cycles: self.cycles(cursor)? })
    }

    fn isync(&self, cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
        let address = cursor.little_endian(4)? as u32;
        let info = cursor.byte()?;
        let cycles = if info >> 5 & 3 == 0 { None } else { self.cycles(cursor)? };
        let bytes = self.config.context_id_bytes();
        let context_id = if bytes > 0 { Some(cursor.little_endian(bytes)? as u32) } else { None };
        Ok(Raw::ISync { address, info, cycles, context_id })
    }

    /// Address bits as far as they are given; the fifth byte says the instruction set (4.3.4).
    fn address(&mut self, raw: &RawAddress, alternative: bool) -> u32 {
        if raw.len == 5 {
            self.last.isa = match raw.bytes[4] {
                byte if byte & 0x20 != 0 => Isa32::Jazelle,
                byte if byte & 0x30 == 0x10 => Isa32::T32,
                _ => Isa32::A32,
            };
        }
        if alternative && self.last.isa == Isa32::T32 {
            self.last.isa = Isa32::ThumbEe;
        }
        let isa = self.last.isa;
        let mut value = u32::from(raw.bytes[0] & 0x7E) >> u32::from(isa == Isa32::Jazelle);
        let mut bits = if isa == Isa32::Jazelle { 6 } else { 7 };
        for place in 1..raw.len {
            let taken = match (place, isa) {
                (4, Isa32::Jazelle) => 5,
                (4, Isa32::A32) => 3,
                (4, _) => 4,
                _ if place == raw.len - 1 => 6,
                _ => 7,
            };
            value |= (u32::from(raw.bytes[place]) & ((1 << taken) - 1)) << bits;
            bits += taken;
        }
        if isa == Isa32::A32 {
            value <<= 1;
            bits += 1;
        }
        self.last.update(value, bits)
    }
}

/// A timestamp's given bits and how many they are.
pub(crate) fn timestamp(cursor: &mut Cursor<'_>, has_64_bits: bool) -> Result<(u64, u32), Stop> {
    let (most, last) = if has_64_bits { (9, 8) } else { (7, 6) };
    let (mut value, mut bits) = (0, 0);
    for place in 1..=most {
        let byte = cursor.byte()?;
        if place == most {
            value |= (u64::from(byte) & ((1 << last) - 1)) << bits;
            bits += last;
            break;
        }
        value |= u64::from(byte & 0x7F) << bits;
        bits += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok((value, bits))
}
