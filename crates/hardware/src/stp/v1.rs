// SPDX-License-Identifier: Apache-2.0 OR MIT
//! STP version 1, as TI's system trace module writes it (OMAP 4).
//!
//! There is no public specification and no public capture. This follows what Adrien Vergé found out of a PandaBoard
//! (libcoresightomap4430, 2013), and has met nothing but our own [encoder](Encoder).
//!
//! A message is its timestamp, its data, and at last a nibble that says what it is, so messages can only be read from their end: blocks
//! between synchronisations (01, then at least eleven bytes 00) are kept until they are complete, and read backwards. At
//! a nibble that is not a type the rest of the block, its older part, is lost.

use alloc::vec::Vec;

use super::{Lost, Width};
use crate::LostCause;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// From here on data are of this master.
    Master(u8),
    /// From here on data are of this channel.
    Channel(u8),
    /// The unit lost messages.
    Overflow(u8),
    /// A datum, D8 to D32.
    Data {
        /// Zero-extended.
        value: u32,
        /// As sent.
        width: Width,
    },
}

/// A message with where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its first nibble, from the beginning of the stream.
    pub nibble: u64,
    /// Its length.
    pub nibbles: u32,
    /// What it says.
    pub payload: Payload,
    /// Ticks since the message with a time before it; what is longer than a byte says has less precision.
    pub delta_ticks: Option<u64>,
}

/// What the decoder gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A message.
    Message(Message),
    /// A synchronisation of so many nibbles.
    Sync {
        /// Its first nibble.
        nibble: u64,
        /// With the filling before it.
        nibbles: u64,
    },
    /// What is in no message.
    Lost(Lost),
}

/// Zero bytes that a synchronisation has at least. Messages never have so many, since their types are not 0.
const ZEROS_MIN: usize = 11;
/// And at most. More are of the next block, whose first bytes may be 0.
const ZEROS_MAX: usize = 15;

/// Decodes a stream of STP version 1.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The block so far, or as much of its begin as is kept.
    block: Vec<u8>,
    /// Bytes of the stream before the block.
    base: u64,
    /// Zero bytes at the end of the block.
    zeros: usize,
    /// Bytes of the block that were too many to be kept.
    excess: u64,
    /// Messages of a block, the last one first.
    reversed: Vec<Message>,
}

impl Decoder {
    /// Longer blocks are lost: an embedded trace buffer has a few KiB.
    pub const BLOCK_BYTES_MAX: usize = 256 * 1024;

    /// Believes the first block.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a piece of the stream.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl FnMut(Item)) {
        for byte in bytes {
            if *byte != 0 && self.zeros >= ZEROS_MIN {
                self.end_at_sync(sink);
            }
            self.zeros = if *byte == 0 { self.zeros + 1 } else { 0 };
            if self.block.len() < Self::BLOCK_BYTES_MAX {
                self.block.push(*byte);
            } else {
                self.excess += 1;
            }
            if self.zeros >= ZEROS_MAX {
                self.end_at_sync(sink);
            }
        }
    }

    /// The stream has ended.
    pub fn finish(&mut self, sink: &mut impl FnMut(Item)) {
        if self.zeros >= ZEROS_MIN {
            self.end_at_sync(sink);
        } else {
            self.end(self.block.len(), sink);
        }
        *self = Self::default();
    }

    /// The block ends with a synchronisation, if a 01 is before its zeros.
    fn end_at_sync(&mut self, sink: &mut impl FnMut(Item)) {
        let begin = self.block.len().saturating_sub(self.zeros + 1);
        let is_sync = self.excess == 0 && self.block.get(begin) == Some(&1);
        if !is_sync {
            let end = self.block.len();
            self.end(end, sink);
            return;
        }
        let after = self.block.len();
        self.block.truncate(begin);
        let base = self.base;
        self.end(begin, sink);
        self.base = base + after as u64;
        sink(Item::Sync { nibble: (base + begin as u64) * 2, nibbles: (after - begin) as u64 * 2 });
    }

    /// The block ends after `bytes`.
    fn end(&mut self, bytes: usize, sink: &mut impl FnMut(Item)) {
        let first = self.base * 2;
        let mut end = bytes * 2;
        if self.excess > 0 {
            let nibbles = (bytes as u64 + self.excess) * 2;
            sink(Item::Lost(Lost { nibble: first, nibbles, cause: LostCause::Malformed }));
        } else {
            // Half a byte is filled up with a 0.
            let filled = usize::from(end > 0 && nibble_at(&self.block, end - 1) == 0);
            end -= filled;
            let decoded_from = self.backwards(end);
            if decoded_from > 0 {
                let nibbles = decoded_from as u64;
                let cause =
                    if decoded_from == end { LostCause::Malformed } else { LostCause::NotSynchronised };
                sink(Item::Lost(Lost { nibble: first, nibbles, cause }));
            }
            for message in self.reversed.drain(..).rev() {
                sink(Item::Message(message));
            }
            if filled > 0 {
                sink(Item::Sync { nibble: first + end as u64, nibbles: 1 });
            }
        }
        self.base += bytes as u64 + self.excess;
        (self.zeros, self.excess) = (0, 0);
        self.block.clear();
    }

    /// Decodes the block from its end. Returns the nibble where the first message begins.
    fn backwards(&mut self, mut end: usize) -> usize {
        while end > 0 {
            let Some(message) = message_before(&self.block, end) else { return end };
            end -= message.nibbles as usize;
            self.reversed.push(Message { nibble: self.base * 2 + end as u64, ..message });
        }
        0
    }
}

/// The message whose last nibble is before `end`.
fn message_before(block: &[u8], end: usize) -> Option<Message> {
    let kind = nibble_at(block, end - 1);
    let (width, timed) = match kind {
        1..=4 => (Width::D8, false),
        5 => (Width::D16, false),
        6 => (Width::D32, false),
        8 => (Width::D8, true),
        9 => (Width::D16, true),
        10 => (Width::D32, true),
        _ => return None,
    };
    let data = (end - 1).checked_sub(width.nibbles())?;
    let value = little_at(block, data, width.nibbles());
    let payload = match kind {
        1 => Payload::Master(value as u8),
        2 => Payload::Overflow(value as u8),
        3 => Payload::Channel(value as u8),
        _ => Payload::Data { value, width },
    };
    let (begin, delta_ticks) = if timed { time_before(block, data)? } else { (data, None) };
    Some(Message { nibble: 0, nibbles: (end - begin) as u32, payload, delta_ticks })
}

/// The timestamp before the nibble `end`: one byte, or two, of which the first has E in its high nibble, which no message ends with.
fn time_before(block: &[u8], end: usize) -> Option<(usize, Option<u64>)> {
    let low = end.checked_sub(2)?;
    let mantissa = u64::from(little_at(block, low, 2));
    if low < 2 || nibble_at(block, low - 1) != 0xe {
        return Some((low, Some(mantissa)));
    }
    let exponent = u32::from(nibble_at(block, low - 2));
    let ticks = if exponent < 7 {
        (1 << (7 + exponent)) + ((mantissa ^ 0x80) << exponent)
    } else {
        (1 << exponent) + (mantissa << (2 * exponent - 6))
    };
    Some((low - 2, Some(ticks)))
}

fn nibble_at(block: &[u8], nibble: usize) -> u8 {
    block[nibble / 2] >> (nibble % 2 * 4) & 0xf
}

fn little_at(block: &[u8], nibble: usize, nibbles: usize) -> u32 {
    (0..nibbles).fold(0, |value, index| value | u32::from(nibble_at(block, nibble + index)) << (4 * index))
}

/// Writes STP version 1, for tests.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    half: bool,
}

impl Encoder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The stream.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn little(&mut self, value: u32, nibbles: u32) -> &mut Self {
        for index in 0..nibbles {
            let nibble = (value >> (4 * index) & 0xf) as u8;
            match self.bytes.last_mut() {
                Some(last) if self.half => *last |= nibble << 4,
                _ => self.bytes.push(nibble),
            }
            self.half = !self.half;
        }
        self
    }

    /// A synchronisation, at the next byte.
    pub fn sync(&mut self) -> &mut Self {
        self.half = false;
        self.bytes.push(1);
        self.bytes.resize(self.bytes.len() + ZEROS_MAX, 0);
        self
    }

    /// A master.
    pub fn master(&mut self, master: u8) -> &mut Self {
        self.little(u32::from(master), 2).little(1, 1)
    }

    /// A channel.
    pub fn channel(&mut self, channel: u8) -> &mut Self {
        self.little(u32::from(channel), 2).little(3, 1)
    }

    /// An overflow.
    pub fn overflow(&mut self, count: u8) -> &mut Self {
        self.little(u32::from(count), 2).little(2, 1)
    }

    /// A datum of 8, 16 or 32 bits; a timestamp of one byte, or of an exponent and a byte.
    pub fn data(&mut self, width: Width, value: u32, time: Option<(Option<u8>, u8)>) -> &mut Self {
        if let Some((exponent, low)) = time {
            if let Some(exponent) = exponent {
                self.little(u32::from(exponent & 0xf) | 0xe0, 2);
            }
            self.little(u32::from(low), 2);
        }
        let kind = match width {
            Width::D4 | Width::D8 => 4,
            Width::D16 => 5,
            Width::D32 | Width::D64 => 6,
        };
        let nibbles = width.nibbles().clamp(2, 8) as u32;
        self.little(value, nibbles).little(kind + if time.is_some() { 4 } else { 0 }, 1)
    }
}
