// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decoder of ITM's and DWT's packets.

use super::{Action, Delay, Packet, Payload, Sink};
use crate::{Lost, LostCause};

/// A header and up to six bytes (GTS2).
const PACKET_BYTES_MAX: usize = 7;
/// Zero bytes that a synchronisation begins with, at least; 80 follows.
const ZEROS_MIN: u64 = 5;

/// Decodes a stream of ITM.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// Bytes decided so far: in packets or lost.
    offset: u64,
    /// Bytes of which it is not decided what they are. Zeros of a synchronisation are only counted.
    left: [u8; PACKET_BYTES_MAX],
    left_bytes: usize,
    zeros: u64,
    certain: bool,
    page: u8,
}

/// What is at the begin of some bytes.
enum Found {
    Packet(Payload, usize),
    Short,
    Malformed,
}

impl Decoder {
    /// For a stream that may begin anywhere.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a piece of the stream.
    pub fn push<S: Sink + ?Sized>(&mut self, mut bytes: &[u8], sink: &mut S) {
        while self.left_bytes > 0 {
            let Some((first, rest)) = bytes.split_first() else { return };
            // A packet is complete with its last byte, so it is never more than the buffer holds.
            self.left[self.left_bytes] = *first;
            self.left_bytes += 1;
            bytes = rest;
            let (left, count) = (self.left, self.left_bytes);
            match found(&left[..count]) {
                Found::Short => continue,
                Found::Packet(payload, length) => self.give(payload, length as u64, sink),
                // Only the header is lost; what came after it is read again.
                Found::Malformed => {
                    self.lose(1, LostCause::Malformed, sink);
                    self.left_bytes = 0;
                    self.push_rest(&left[1..count], sink);
                    continue;
                }
            }
            self.left_bytes = 0;
        }
        self.push_rest(bytes, sink);
    }

    fn push_rest<S: Sink + ?Sized>(&mut self, mut bytes: &[u8], sink: &mut S) {
        while let Some(first) = bytes.first() {
            if self.zeros > 0 || *first == 0 {
                bytes = self.zeros(bytes, sink);
                continue;
            }
            match found(bytes) {
                Found::Packet(payload, length) => {
                    self.give(payload, length as u64, sink);
                    bytes = &bytes[length..];
                }
                Found::Malformed => {
                    self.lose(1, LostCause::Malformed, sink);
                    bytes = &bytes[1..];
                }
                Found::Short => {
                    self.left[..bytes.len()].copy_from_slice(bytes);
                    self.left_bytes = bytes.len();
                    return;
                }
            }
        }
    }

    /// The stream has ended.
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let bytes = self.zeros + self.left_bytes as u64;
        if bytes > 0 {
            sink.lost(&Lost { offset: self.offset, bytes, cause: LostCause::Truncated });
        }
        *self = Self::default();
    }

    /// Zeros are the begin of a synchronisation, or nothing. Returns what is behind them.
    fn zeros<'a, S: Sink + ?Sized>(&mut self, bytes: &'a [u8], sink: &mut S) -> &'a [u8] {
        let count = bytes.iter().take_while(|byte| **byte == 0).count();
        self.zeros += count as u64;
        let rest = &bytes[count..];
        let Some(next) = rest.first() else { return rest };
        let zeros = core::mem::take(&mut self.zeros);
        if zeros >= ZEROS_MIN && *next == 0x80 {
            self.certain = true;
            self.page = 0;
            self.give(Payload::Sync, zeros + 1, sink);
            return &rest[1..];
        }
        self.lose(zeros, LostCause::Malformed, sink);
        rest
    }

    #[inline]
    fn give<S: Sink + ?Sized>(&mut self, payload: Payload, bytes: u64, sink: &mut S) {
        let payload = match payload {
            Payload::Page(page) => {
                self.page = page;
                payload
            }
            Payload::Stimulus { port, size, value } => {
                Payload::Stimulus { port: self.page << 5 | port, size, value }
            }
            _ => payload,
        };
        sink.packet(&Packet { offset: self.offset, bytes, certain: self.certain, payload });
        self.offset += bytes;
    }

    fn lose<S: Sink + ?Sized>(&mut self, bytes: u64, cause: LostCause, sink: &mut S) {
        sink.lost(&Lost { offset: self.offset, bytes, cause });
        self.certain = false;
        self.offset += bytes;
    }
}

/// What is at the begin of `bytes`, which is not 0. Of stimulus ports, without the page.
#[inline]
fn found(bytes: &[u8]) -> Found {
    let header = bytes[0];
    let size = match header & 3 {
        0 => return protocol(header, &bytes[1..]),
        3 => 4,
        size => usize::from(size),
    };
    if bytes.len() <= size {
        return Found::Short;
    }
    let value = match size {
        1 => u32::from(bytes[1]),
        2 => u32::from(u16::from_le_bytes([bytes[1], bytes[2]])),
        _ => u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]),
    };
    let (id, size) = (header >> 3, size as u8);
    let payload =
        if header & 4 == 0 { Payload::Stimulus { port: id, size, value } } else { hardware(id, size, value) };
    Found::Packet(payload, usize::from(size) + 1)
}

/// Packets of the DWT unit, by their source (D4.3).
#[inline]
fn hardware(id: u8, size: u8, value: u32) -> Payload {
    let comparator = id >> 1 & 3;
    match (id, size) {
        (0, 1) => Payload::Counters(value as u8 & 0x3f),
        (1, 2) => match value >> 12 & 3 {
            0 => Payload::Hardware { id, size, value },
            1 => Payload::Exception { number: value as u16 & 0x1ff, action: Action::Entered },
            2 => Payload::Exception { number: value as u16 & 0x1ff, action: Action::Exited },
            _ => Payload::Exception { number: value as u16 & 0x1ff, action: Action::Returned },
        },
        (2, 1) if value == 0 => Payload::PcSample(None),
        (2, 4) => Payload::PcSample(Some(value)),
        (8..=15, 4) if id & 1 == 0 => Payload::DataPc { comparator, pc: value },
        (8..=15, 2) if id & 1 == 1 => Payload::DataAddress { comparator, address: value as u16 },
        (16..=23, _) => Payload::DataValue { comparator, written: id & 1 == 1, size, value },
        _ => Payload::Hardware { id, size, value },
    }
}

/// Packets of the protocol itself (D4.2), with what is behind the header.
fn protocol(header: u8, rest: &[u8]) -> Found {
    match header {
        0x70 => Found::Packet(Payload::Overflow, 1),
        0x94 => global_low(rest),
        0xb4 => global_high(rest),
        _ if header & 0xcf == 0xc0 => local(header, rest),
        _ if header & 0x8f == 0 => {
            let delta_ticks = u32::from(header >> 4);
            Found::Packet(Payload::LocalTimestamp { delta_ticks, delay: Delay::None, short: true }, 1)
        }
        _ if header & 8 != 0 => extension(header, rest),
        _ => Found::Malformed,
    }
}

/// Groups of seven bits, the low ones first, each but the last with bit 7; at most `max`. Returns the value and the number of bytes.
fn groups(rest: &[u8], max: usize) -> Result<(u64, usize), Found> {
    let mut value = 0;
    for (index, byte) in rest.iter().take(max).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((value, index + 1));
        }
    }
    Err(if rest.len() < max { Found::Short } else { Found::Malformed })
}

fn local(header: u8, rest: &[u8]) -> Found {
    let delay = match header >> 4 & 3 {
        0 => Delay::None,
        1 => Delay::Timestamp,
        2 => Delay::Event,
        _ => Delay::Both,
    };
    match groups(rest, 4) {
        Ok((value, bytes)) => {
            let delta_ticks = value as u32;
            Found::Packet(Payload::LocalTimestamp { delta_ticks, delay, short: false }, 1 + bytes)
        }
        Err(found) => found,
    }
}

fn global_low(rest: &[u8]) -> Found {
    match groups(rest, 4) {
        Ok((value, bytes)) => {
            let value = value as u32;
            // The fourth byte has five bits of time, and two flags.
            let payload = Payload::GlobalLow {
                value: value & 0x3ff_ffff,
                bits: (bytes * 7).min(26) as u8,
                wrapped: value & 1 << 27 != 0,
                clock_changed: value & 1 << 26 != 0,
            };
            Found::Packet(payload, 1 + bytes)
        }
        Err(found) => found,
    }
}

fn global_high(rest: &[u8]) -> Found {
    match groups(rest, 6) {
        Ok((value, bytes @ (4 | 6))) => {
            Found::Packet(Payload::GlobalHigh { value, wide: bytes == 6 }, 1 + bytes)
        }
        Ok(_) => Found::Malformed,
        Err(found) => found,
    }
}

/// C EX[2:0] 1 SH 00: EX is the low bits of the value, and C says that more follows.
fn extension(header: u8, rest: &[u8]) -> Found {
    let (hardware, low) = (header & 4 != 0, header >> 4 & 7);
    if header & 0x80 == 0 {
        let payload = if hardware {
            Payload::Extension { hardware, value: u32::from(low) }
        } else {
            Payload::Page(low)
        };
        return Found::Packet(payload, 1);
    }
    match groups(rest, 4) {
        Ok((value, bytes)) => {
            let value = (value << 3) as u32 | u32::from(low);
            Found::Packet(Payload::Extension { hardware, value }, 1 + bytes)
        }
        Err(found) => found,
    }
}
