// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of ETMv3 and how they are in the stream.

use super::Config;
use crate::etm::Fault;
use crate::etm::address32::{Isa32, Last, update_timestamp};
use crate::etm::ptm::Reason;
use crate::etm::stream::{Cursor, Protocol, Stop};
use crate::etm::v4::Atoms;
use core::fmt;

/// An exception of a branch packet (7.4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exception {
    /// Its number.
    pub number: u16,
    /// The last instruction that was traced was not executed.
    pub cancels: bool,
    /// Not secure, if said.
    pub non_secure: Option<bool>,
    /// In Hyp mode.
    pub hyp: bool,
    /// Its deprecated form.
    pub deprecated: bool,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A-Sync, 7.7.
    Async,
    /// Cycles, 7.4.8.
    Cycles(u32),
    /// I-Sync, 7.7: where execution is.
    ISync {
        /// The address, unless only data are traced.
        address: Option<u32>,
        /// The instruction set there.
        isa: Isa32,
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
    /// A branch to an address, an exception, or both.
    Branch {
        /// The address.
        address: u32,
        /// The instruction set there.
        isa: Isa32,
        /// The exception.
        exception: Option<Exception>,
    },
    /// Instructions: a P-header, 7.4.2.
    Atoms {
        /// Each of them.
        atoms: Atoms,
        /// Format 1 to 4.
        format: u8,
        /// Cycles of all of them, if counted.
        cycles: u32,
    },
    /// The context identifier changed.
    ContextId(u32),
    /// The virtual machine changed.
    Vmid(u8),
    /// Return from an exception.
    ExceptionReturn,
    /// Entry into an exception (data trace of Armv7-M).
    ExceptionEntry,
    /// The time.
    Timestamp(u64),
    /// Padding.
    Ignore,
    /// Something of the data trace.
    Data(Data),
}

/// Packets of data trace, of which only the length matters here (7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// A value, out of order.
    OutOfOrder,
    /// The place of one that comes later.
    Placeholder,
    /// A store that failed.
    StoreFailed,
    /// A value.
    Normal,
    /// Values are left out.
    Suppressed,
    /// One value is left out.
    NotTraced,
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::ISync { address: Some(address), isa, reason, .. } => {
                write!(f, "ISync {address:#x} {isa:?} {reason:?}")
            }
            Packet::Atoms { atoms, .. } => write!(f, "Atoms {atoms}"),
            Packet::Branch { address, exception: None, .. } => write!(f, "Branch {address:#x}"),
            Packet::Branch { address, exception: Some(it), .. } => {
                write!(f, "Exception {} to {address:#x}", it.number)
            }
            Packet::Timestamp(value) => write!(f, "Timestamp {value}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A packet as in the stream.
pub(super) enum Raw {
    Plain(Packet),
    Timestamp(u64, u32),
    Branch(RawBranch),
    ISync { address: Option<u32>, info: u8, cycles: Option<u32>, context_id: Option<u32> },
}

/// Address bits without their shift, and what a fifth byte says.
#[derive(Clone, Copy, Default)]
pub(super) struct RawBranch {
    value: u32,
    bits: u32,
    fifth: Option<u8>,
    exception: Option<(Exception, bool)>,
}

#[derive(Clone, Debug)]
pub(super) struct Etm3 {
    pub config: Config,
    pub last: Last,
    pub timestamp: u64,
}

impl Protocol for Etm3 {
    type Packet = Packet;
    type Raw = Raw;
    const ZEROS: usize = 5;
    const SYNC: Packet = Packet::Async;

    fn read(&self, cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
        let header = cursor.byte()?;
        let plain = |packet| Ok(Raw::Plain(packet));
        match header {
            _ if header & 1 != 0 => self.branch(cursor, header),
            _ if header & 0x80 != 0 => self.p_header(header),
            0x00 => {
                crate::etm::ptm::synchronisation(cursor, Fault::Sequence).map(|()| Raw::Plain(Packet::Async))
            }
            0x04 => plain(Packet::Cycles(cycles(cursor)?)),
            0x08 => self.isync(cursor, None),
            0x0C => plain(Packet::Trigger),
            0x3C => plain(Packet::Vmid(cursor.byte()?)),
            0x42 | 0x46 => {
                let (value, bits) =
                    crate::etm::ptm::timestamp(cursor, self.config.timestamps_have_64_bits())?;
                Ok(Raw::Timestamp(value, bits))
            }
            0x66 => plain(Packet::Ignore),
            0x6E => plain(Packet::ContextId(cursor.little_endian(self.config.context_id_bytes())? as u32)),
            0x70 => {
                let cycles = cycles(cursor)?;
                self.isync(cursor, Some(cycles))
            }
            0x76 => plain(Packet::ExceptionReturn),
            0x7E => plain(Packet::ExceptionEntry),
            _ => self.data(cursor, header),
        }
    }

    fn complete(&mut self, raw: Raw) -> Packet {
        match raw {
            Raw::Plain(packet) => packet,
            Raw::Timestamp(value, bits) => {
                Packet::Timestamp(update_timestamp(&mut self.timestamp, value, bits))
            }
            Raw::ISync { address, info, cycles, context_id } => {
                let alternative = self.config.id >> 4 & 0xF >= 3 && info & 4 != 0;
                let isa = match (info & 0x10 != 0, address.unwrap_or(0) & 1 != 0, alternative) {
                    (true, ..) => Isa32::Jazelle,
                    (_, true, true) => Isa32::ThumbEe,
                    (_, true, false) => Isa32::T32,
                    _ => Isa32::A32,
                };
                let address = address.map(|address| address & !1);
                if let Some(value) = address {
                    self.last = Last { value, isa };
                }
                let (non_secure, hyp) = (info & 8 != 0, info & 2 != 0);
                Packet::ISync {
                    address,
                    isa,
                    reason: Reason::from_bits(info >> 5),
                    non_secure,
                    hyp,
                    cycles,
                    context_id,
                }
            }
            Raw::Branch(raw) => self.complete_branch(&raw),
        }
    }

    fn reset(&mut self) {
        self.last = Last::default();
        self.timestamp = 0;
    }
}

/// Seven bits a byte, the fifth of four (7.4.8).
fn cycles(cursor: &mut Cursor<'_>) -> Result<u32, Stop> {
    let mut count = 0;
    for place in 0..5 {
        let byte = cursor.byte()?;
        let bits = if place == 4 { byte & 0xF } else { byte & 0x7F };
        count |= u32::from(bits) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(count)
}

impl Etm3 {
    /// Up to five address bytes, then those of an exception (7.4.4); in the alternative encoding an exception may follow any
    /// address byte but the first.
    fn branch(&self, cursor: &mut Cursor<'_>, header: u8) -> Result<Raw, Stop> {
        let mut raw = RawBranch { value: u32::from(header >> 1 & 0x3F), bits: 6, ..RawBranch::default() };
        let mut more = header & 0x80 != 0;
        let mut count = 1;
        while more && count < 4 {
            let byte = cursor.byte()?;
            count += 1;
            more = byte & 0x80 != 0;
            let short = self.config.has_alternative_branches() && !more;
            let taken = if short { 6 } else { 7 };
            raw.value |= (u32::from(byte) & ((1 << taken) - 1)) << raw.bits;
            raw.bits += taken;
            if short && byte & 0x40 != 0 {
                raw.exception = Some(self.exception(cursor)?);
            }
        }
        if more {
            let byte = cursor.byte()?;
            raw.fifth = Some(byte);
            if byte & 0x80 != 0 {
                let exception = Exception {
                    number: u16::from(byte >> 3 & 7),
                    cancels: byte & 0x40 != 0,
                    deprecated: true,
                    ..Exception::default()
                };
                raw.exception = Some((exception, false));
            } else {
                if byte & 0x40 != 0 {
                    raw.exception = Some(self.exception(cursor)?);
                }
                let known = byte & 0xB8 == 0x08 || byte & 0xB0 == 0x10 || byte & 0xA0 == 0x20;
                if !known {
                    return Err(Stop::Bad(cursor.at, Fault::Sequence));
                }
            }
        }
        Ok(Raw::Branch(raw))
    }

    /// Exception information, and whether the instruction set is the alternative one.
    fn exception(&self, cursor: &mut Cursor<'_>) -> Result<(Exception, bool), Stop> {
        let first = cursor.byte()?;
        let mut exception = Exception {
            number: u16::from(first >> 1 & 0xF),
            cancels: first & 0x20 != 0,
            non_secure: Some(first & 1 != 0),
            hyp: false,
            deprecated: false,
        };
        if first & 0x80 != 0 {
            let second = cursor.byte()?;
            // With bit 6 it is already the byte of resumed instructions.
            if second & 0x40 == 0 {
                if self.config.is_m_profile {
                    exception.number |= u16::from(second & 0x1F) << 4;
                }
                exception.hyp = second & 0x20 != 0;
                if second & 0x80 != 0 {
                    cursor.byte()?;
                }
            }
        }
        Ok((exception, first & 0x40 != 0))
    }

    fn complete_branch(&mut self, raw: &RawBranch) -> Packet {
        let (mut value, mut bits) = (raw.value, raw.bits);
        let alternative = raw.exception.is_some_and(|(_, alternative)| alternative);
        if let Some(fifth) = raw.fifth {
            self.last.isa = match fifth {
                byte if byte & 0x80 != 0 || byte & 0xB8 == 0x08 => Isa32::A32,
                byte if byte & 0xB0 == 0x10 && alternative => Isa32::ThumbEe,
                byte if byte & 0xB0 == 0x10 => Isa32::T32,
                _ => Isa32::Jazelle,
            };
            let taken = match self.last.isa {
                Isa32::A32 | Isa32::Unknown => 3,
                Isa32::T32 | Isa32::ThumbEe => 4,
                Isa32::Jazelle => 5,
            };
            value |= (u32::from(fifth) & ((1 << taken) - 1)) << bits;
            bits += taken;
        }
        let shift = match self.last.isa {
            Isa32::A32 | Isa32::Unknown => 2,
            Isa32::T32 | Isa32::ThumbEe => 1,
            Isa32::Jazelle => 0,
        };
        let address = self.last.update(value << shift, bits + shift);
        Packet::Branch {
            address,
            isa: self.last.isa,
            exception: raw.exception.map(|(exception, _)| exception),
        }
    }

    /// Formats 1 and 2, with cycles 1 to 4 (7.4.2 and 7.4.3).
    fn p_header(&self, header: u8) -> Result<Raw, Stop> {
        let executed = u32::from(header >> 2 & 0xF);
        let one =
            |atoms: Atoms, format: u8, cycles: u32| Ok(Raw::Plain(Packet::Atoms { atoms, format, cycles }));
        let skipped = u32::from(header >> 6 & 1);
        let two = u32::from(header & 8 == 0) | u32::from(header & 4 == 0) << 1;
        let run = |executed: u32| Atoms { bits: (1 << executed) - 1, count: (executed + skipped) as u8 };
        if !self.config.is_cycle_accurate() {
            return match header & 3 {
                0 => one(run(executed), 1, 0),
                _ => one(Atoms { bits: two, count: 2 }, 2, 0),
            };
        }
        match header & 0xA3 {
            0x80 if executed & 7 == 0 && skipped == 0 => Err(Stop::Bad(1, Fault::Reserved)),
            0x80 => one(run(executed & 7), 1, (executed & 7) + skipped),
            0x82 if header & 0x10 != 0 => one(Atoms { bits: u32::from(header & 4 == 0), count: 1 }, 4, 0),
            0x82 => one(Atoms { bits: two, count: 2 }, 2, 1),
            0xA0 => one(Atoms { bits: skipped, count: skipped as u8 }, 3, (executed & 7) + 1),
            _ => Err(Stop::Bad(1, Fault::Reserved)),
        }
    }

    fn isync(&self, cursor: &mut Cursor<'_>, cycles: Option<u32>) -> Result<Raw, Stop> {
        let bytes = self.config.context_id_bytes();
        let context_id = if bytes > 0 { Some(cursor.little_endian(bytes)? as u32) } else { None };
        let info = cursor.byte()?;
        let mut address = None;
        if self.config.traces_instructions() {
            address = Some(cursor.little_endian(4)? as u32);
            if info & 0x80 != 0 {
                // A load or store is in progress; the address of the instruction that runs beside it, as in a branch packet.
                cursor.field(5)?;
            }
        }
        Ok(Raw::ISync { address, info, cycles, context_id })
    }

    /// Data packets; where no data are traced, their headers are not configured (7.5).
    fn data(&self, cursor: &mut Cursor<'_>, header: u8) -> Result<Raw, Stop> {
        let (values, addresses) = (self.config.traces_data_values(), self.config.traces_data_addresses());
        let size = [0, 1, 2, 4][usize::from(header >> 2 & 3)];
        let (packet, allowed, has_address, size) = match header {
            _ if header & 0x93 == 0x00 => (Data::OutOfOrder, values, false, size),
            0x50 => (Data::StoreFailed, values, false, 0),
            _ if header & 0xD3 == 0x50 => (Data::Placeholder, values || addresses, header & 0x20 != 0, 0),
            _ if header & 0xD3 == 0x02 => (Data::Normal, values || addresses, header & 0x20 != 0, size),
            0x62 => (Data::Suppressed, values || addresses, false, 0),
            _ if header & 0xEF == 0x6A => (Data::NotTraced, values || addresses, header & 0x10 != 0, 0),
            _ => return Err(Stop::Bad(1, Fault::Reserved)),
        };
        if !allowed {
            return Err(Stop::Bad(1, Fault::NotConfigured));
        }
        if has_address && addresses {
            cycles(cursor)?;
        }
        cursor.little_endian(size)?;
        Ok(Raw::Plain(Packet::Data(packet)))
    }
}
