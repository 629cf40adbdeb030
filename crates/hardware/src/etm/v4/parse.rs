// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One packet from the beginning of bytes, as the stream has it: addresses and times still compressed.

use super::config::{Config, Profile};
use super::packet::{Atoms, Context, Packet, TraceInfo};
use crate::etm::Fault;
use crate::etm::stream::{Cursor, Stop};

/// An address as in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum RawAddress {
    Match(u8),
    /// Bits that are given, and how many with those below that are zero.
    Short(u32, u32, bool),
    Long32(u32, bool),
    Long64(u64, bool),
}

/// A packet that needs what was before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raw {
    Plain(Packet),
    /// Value, bits given, cycles.
    Timestamp(u64, u32, Option<u32>),
    Address(RawAddress),
    SourceAddress(RawAddress),
    AddressContext(RawAddress, Context),
    Q(Option<u32>, Option<RawAddress>),
    /// Format, cycles above the threshold, elements to commit.
    Cycles(u8, Option<u32>, Option<u32>),
    TraceInfo(TraceInfo),
    /// Exceptions of an ETE that come without address packets.
    Zero(Packet),
}

/// Addresses and contexts, as other units do not have them.
trait Fields {
    fn short(&mut self, is1: bool) -> Result<RawAddress, Stop>;
    fn long(&mut self, is1: bool, bytes: usize) -> Result<u64, Stop>;
    fn long32(&mut self, is1: bool) -> Result<RawAddress, Stop>;
    fn long64(&mut self, is1: bool) -> Result<RawAddress, Stop>;
    fn context(&mut self, config: &Config) -> Result<Context, Stop>;
}

impl Fields for Cursor<'_> {
    fn short(&mut self, is1: bool) -> Result<RawAddress, Stop> {
        let shift = if is1 { 1 } else { 2 };
        let first = self.byte()?;
        let mut value = u32::from(first & 0x7F) << shift;
        let mut bits = 7 + shift;
        if first & 0x80 != 0 {
            value |= u32::from(self.byte()?) << bits;
            bits += 8;
        }
        Ok(RawAddress::Short(value, bits, is1))
    }

    /// Two bytes of seven and of seven or eight bits, then whole ones.
    fn long(&mut self, is1: bool, bytes: usize) -> Result<u64, Stop> {
        let first = u64::from(self.byte()? & 0x7F);
        let second = u64::from(self.byte()?);
        let low = if is1 { first << 1 | second << 8 } else { first << 2 | (second & 0x7F) << 9 };
        Ok(low | self.little_endian(bytes - 2)? << 16)
    }

    fn long32(&mut self, is1: bool) -> Result<RawAddress, Stop> {
        Ok(RawAddress::Long32(self.long(is1, 4)? as u32, is1))
    }

    fn long64(&mut self, is1: bool) -> Result<RawAddress, Stop> {
        Ok(RawAddress::Long64(self.long(is1, 8)?, is1))
    }

    fn context(&mut self, config: &Config) -> Result<Context, Stop> {
        let info = self.byte()?;
        let vmid = if info & 0x40 != 0 { config.vmid_bytes() } else { 0 };
        let id = if info & 0x80 != 0 { config.context_id_bytes() } else { 0 };
        let mut context = Context {
            level: info & 3,
            is_64_bit: info & 0x10 != 0,
            non_secure: info & 0x20 != 0,
            nse: info & 8 != 0,
            context_id: None,
            vmid: None,
        };
        if vmid > 0 {
            context.vmid = Some(self.little_endian(vmid)? as u32);
        }
        if id > 0 {
            context.context_id = Some(self.little_endian(id)? as u32);
        }
        Ok(context)
    }
}

/// The first packet of the bytes, of which there is at least one.
pub(super) fn packet(cursor: &mut Cursor<'_>, config: &Config) -> Result<Raw, Stop> {
    let header = cursor.byte()?;
    let plain = |packet| Ok(Raw::Plain(packet));
    match header {
        0xC0.. => plain(atoms(header)),
        0x00 => extension(cursor),
        0x01 => trace_info(cursor),
        0x02 | 0x03 => timestamp(cursor, header & 1 != 0, config),
        0x04 => plain(Packet::TraceOn),
        0x05 if config.profile == Profile::M && config.at_least(4, 2) => plain(Packet::FunctionReturn),
        0x06 => exception(cursor, config),
        0x07 if config.is_ete() => not_configured(),
        0x07 => plain(Packet::ExceptionReturn),
        0x09 if config.at_least(5, 3) => {
            let level = cursor.byte()?;
            plain(Packet::Instrumentation { level, value: cursor.little_endian(8)? })
        }
        0x0A if config.is_ete() => plain(Packet::TransactionStart),
        0x0B if config.is_ete() => plain(Packet::TransactionCommit),
        0x0C..=0x1F => cycles(cursor, header, config),
        0x20..=0x2C if !config.traces_data() => not_configured(),
        0x20..=0x2C => plain(Packet::DataSync { numbered: header < 0x28, value: header & 7 }),
        0x2D..=0x3F => speculation(cursor, header),
        0x40..=0x6F => conditional(cursor, header, config),
        0x70 if config.at_least(4, 3) => plain(Packet::Ignore),
        0x71..=0x7F => plain(Packet::Event(header & 0xF)),
        0x80 => plain(Packet::Context(None)),
        0x81 => plain(Packet::Context(Some(cursor.context(config)?))),
        0x82..=0x9F => address(cursor, header, config),
        0xA0..=0xAF => q(cursor, header, config),
        0xB0..=0xB9 if config.is_ete() => source_address(cursor, header),
        _ => reserved(),
    }
}

fn reserved<T>() -> Result<T, Stop> {
    Err(Stop::Bad(1, Fault::Reserved))
}

fn not_configured<T>() -> Result<T, Stop> {
    Err(Stop::Bad(1, Fault::NotConfigured))
}

/// Fixed patterns where three bits are not enough, 6.4.7.
pub(super) fn atoms(header: u8) -> Packet {
    let (format, bits, count) = match header {
        0xF6..=0xF7 => (1, u32::from(header & 1), 1),
        0xD8..=0xDB => (2, u32::from(header & 3), 2),
        0xF8.. => (3, u32::from(header & 7), 3),
        0xDC..=0xDF => (4, [0xE, 0x0, 0xA, 0x5][usize::from(header & 3)], 4),
        0xF5 => (5, 0x1E, 5),
        0xD5..=0xD7 => (5, [0, 0, 0x0A, 0x15][usize::from(header & 3)], 5),
        _ => {
            let taken = (header & 0x1F) + 3;
            let last = u32::from(header & 0x20 == 0) << taken;
            (6, last | ((1 << taken) - 1), taken + 1)
        }
    };
    Packet::Atoms { format, atoms: Atoms { bits, count } }
}

/// A-Sync, discard and overflow. An A-Sync is eleven zeros and 80; a longer run of zeros ends with one, so that a zero that is
/// too many is given up alone.
fn extension(cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
    match cursor.byte()? {
        3 => return Ok(Raw::Plain(Packet::Discard)),
        5 => return Ok(Raw::Plain(Packet::Overflow)),
        0 => {}
        _ => return Err(Stop::Bad(2, Fault::Sequence)),
    }
    for _ in 2..11 {
        if cursor.byte()? != 0 {
            return Err(Stop::Bad(cursor.at, Fault::Sequence));
        }
    }
    match cursor.byte()? {
        0x80 => Ok(Raw::Plain(Packet::Async)),
        0 => Err(Stop::Bad(1, Fault::Sequence)),
        _ => Err(Stop::Bad(12, Fault::Sequence)),
    }
}

/// A byte of which bits say which sections follow, 6.4.3.
fn trace_info(cursor: &mut Cursor<'_>) -> Result<Raw, Stop> {
    let sections = cursor.byte()?;
    if sections & 0x80 != 0 {
        cursor.field(4)?;
    }
    let mut info = TraceInfo::default();
    for section in 0..5 {
        if sections >> section & 1 == 0 {
            continue;
        }
        let value = cursor.field(5)?;
        match section {
            0 => info.info = value,
            1 => info.p0_key = value,
            2 => info.speculation = value,
            3 => info.cycle_threshold = value,
            // The commit window: no version of the specification gives it a meaning for decoders.
            _ => {}
        }
    }
    Ok(Raw::TraceInfo(info))
}

/// Up to eight bytes of seven bits and a ninth of eight, 6.4.10.
fn timestamp(cursor: &mut Cursor<'_>, has_cycles: bool, config: &Config) -> Result<Raw, Stop> {
    let mut value = 0;
    let mut bits = 0;
    loop {
        let byte = cursor.byte()?;
        if bits == 56 {
            value |= u64::from(byte) << bits;
            bits = 64;
            break;
        }
        value |= u64::from(byte & 0x7F) << bits;
        bits += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let cycles =
        if has_cycles { Some(cursor.field(3)? & ((1 << config.cycle_bits().min(31)) - 1)) } else { None };
    Ok(Raw::Timestamp(value, bits, cycles))
}

fn exception(cursor: &mut Cursor<'_>, config: &Config) -> Result<Raw, Stop> {
    let first = cursor.byte()?;
    let mut number = u16::from(first >> 1 & 0x1F);
    let alone = config.is_ete() && (number == 0 || number == 0x18);
    let mut fault_pending = false;
    if first & 0x80 != 0 || alone {
        let second = cursor.byte()?;
        if first & 0x80 != 0 {
            number |= u16::from(second & 0x1F) << 5;
            fault_pending = second & 0x20 != 0;
        }
    }
    if config.is_ete() && number == 0 {
        return Ok(Raw::Zero(Packet::Reset));
    }
    if config.is_ete() && number == 0x18 {
        return Ok(Raw::Zero(Packet::TransactionFailed));
    }
    let address = (first & 0x40) >> 5 | first & 1;
    Ok(Raw::Plain(Packet::Exception { number, address, fault_pending }))
}

/// Format 1 has both numbers in full, format 2 four bits each, format 3 two bits each, 6.4.11.
fn cycles(cursor: &mut Cursor<'_>, header: u8, config: &Config) -> Result<Raw, Stop> {
    let commits = !config.cycle_counts_do_not_commit();
    match header {
        0x0C | 0x0D => {
            let byte = cursor.byte()?;
            // With F set the number is counted from the maximum.
            let value = u32::from(byte >> 4);
            let commit = if header & 1 == 0 {
                value + 1
            } else {
                (value + config.max_speculation()).saturating_sub(15)
            };
            Ok(Raw::Cycles(2, Some(u32::from(byte & 0xF)), commits.then_some(commit)))
        }
        0x0E | 0x0F => {
            let commit = if commits { Some(cursor.field(5)?) } else { None };
            let cycles = if header & 1 == 0 { Some(cursor.field(3)?) } else { None };
            Ok(Raw::Cycles(1, cycles, commit))
        }
        _ => {
            let commit = u32::from(header >> 2 & 3) + 1;
            Ok(Raw::Cycles(3, Some(u32::from(header & 3)), commits.then_some(commit)))
        }
    }
}

fn speculation(cursor: &mut Cursor<'_>, header: u8) -> Result<Raw, Stop> {
    let few = match header & 3 {
        1 => Atoms { bits: 1, count: 1 },
        2 => Atoms { bits: 3, count: 2 },
        3 => Atoms { bits: 0, count: 1 },
        _ => Atoms::default(),
    };
    let packet = match header {
        0x2D => Packet::Commit(cursor.field(5)?),
        0x2E | 0x2F => Packet::Cancel {
            format: 1,
            elements: cursor.field(5)?,
            mispredict: header & 1 != 0,
            atoms: Atoms::default(),
        },
        0x30..=0x33 => Packet::Mispredict(few),
        0x34..=0x37 => Packet::Cancel { format: 2, elements: 1, mispredict: true, atoms: few },
        _ => Packet::Cancel {
            format: 3,
            elements: u32::from(header >> 1 & 3) + 2,
            mispredict: true,
            atoms: if header & 1 != 0 { Atoms { bits: 1, count: 1 } } else { Atoms::default() },
        },
    };
    Ok(Raw::Plain(packet))
}

/// Conditional instructions and their results, 6.4.21 and 6.4.22: only as far as their length.
fn conditional(cursor: &mut Cursor<'_>, header: u8, config: &Config) -> Result<Raw, Stop> {
    let known = matches!(header, 0x40..=0x46 | 0x48..=0x4A | 0x4C..=0x4E | 0x50..=0x5F | 0x68..=0x6F);
    if !known {
        return reserved();
    }
    if !config.traces_conditions() {
        return not_configured();
    }
    let packet = match header {
        0x40..=0x42 => Packet::Conditional(2),
        0x43 => Packet::ConditionalFlush,
        0x44..=0x46 => Packet::ConditionalResult(4),
        0x48..=0x4E => Packet::ConditionalResult(2),
        0x50..=0x5F => {
            cursor.byte()?;
            Packet::ConditionalResult(3)
        }
        0x6C => {
            cursor.field(5)?;
            Packet::Conditional(1)
        }
        0x6D => {
            cursor.byte()?;
            Packet::Conditional(3)
        }
        _ => {
            cursor.field(6)?;
            if header < 0x6C {
                cursor.field(6)?;
            }
            Packet::ConditionalResult(1)
        }
    };
    Ok(Raw::Plain(packet))
}

fn address(cursor: &mut Cursor<'_>, header: u8, config: &Config) -> Result<Raw, Stop> {
    let raw = match header {
        0x82 | 0x83 => {
            let address = cursor.long32(header == 0x83)?;
            return Ok(Raw::AddressContext(address, cursor.context(config)?));
        }
        0x85 | 0x86 => {
            let address = cursor.long64(header == 0x86)?;
            return Ok(Raw::AddressContext(address, cursor.context(config)?));
        }
        0x88 if config.at_least(4, 6) => return Ok(Raw::Plain(Packet::TimestampMarker)),
        0x90..=0x92 => RawAddress::Match(header & 3),
        0x95 | 0x96 => cursor.short(header == 0x96)?,
        0x9A | 0x9B => cursor.long32(header == 0x9B)?,
        0x9D | 0x9E => cursor.long64(header == 0x9E)?,
        _ => return reserved(),
    };
    Ok(Raw::Address(raw))
}

fn source_address(cursor: &mut Cursor<'_>, header: u8) -> Result<Raw, Stop> {
    let raw = match header {
        0xB0..=0xB2 => RawAddress::Match(header & 3),
        0xB4 | 0xB5 => cursor.short(header & 1 != 0)?,
        0xB6 | 0xB7 => cursor.long32(header & 1 != 0)?,
        0xB8 | 0xB9 => cursor.long64(header & 1 != 0)?,
        _ => return reserved(),
    };
    Ok(Raw::SourceAddress(raw))
}

/// An address in some forms, then a count, 6.4.18.
fn q(cursor: &mut Cursor<'_>, header: u8, config: &Config) -> Result<Raw, Stop> {
    let kind = header & 0xF;
    if !config.has_q() || matches!(kind, 3 | 4 | 7 | 8 | 9 | 0xD | 0xE) {
        return reserved();
    }
    let address = match kind {
        0..=2 => Some(RawAddress::Match(kind)),
        5 | 6 => Some(cursor.short(kind == 6)?),
        0xA | 0xB => Some(cursor.long32(kind == 0xB)?),
        _ => None,
    };
    let count = if kind == 0xF { None } else { Some(cursor.field(5)?) };
    Ok(Raw::Q(count, address))
}
