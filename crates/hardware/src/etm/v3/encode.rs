// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes streams of ETMv3: the inverse of [`Packets`](super::Packets), for streams whose content is known.

use super::Config;
use crate::etm::address32::Isa32;
use crate::etm::ptm::{Reason, encode_timestamp};
use alloc::vec::Vec;

/// Writes packets.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: Config,
    out: Vec<u8>,
    address: u32,
    isa: Isa32,
    timestamp: u64,
    /// Instructions executed; one that was not ends the header.
    executed: u8,
}

impl Encoder {
    /// With nothing written yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { config: *config, out: Vec::new(), address: 0, isa: Isa32::Unknown, timestamp: 0, executed: 0 }
    }

    /// The stream.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.flush();
        self.out.extend(bytes);
    }

    /// A-Sync and I-Sync.
    pub fn synchronise(&mut self, address: u32, isa: Isa32, reason: Reason, context_id: u32) {
        self.raw(&[0, 0, 0, 0, 0, 0x80, 0x08]);
        self.out.extend(&context_id.to_le_bytes()[..self.config.context_id_bytes()]);
        self.out.push(1 | (reason as u8) << 5);
        self.out.extend((address | u32::from(isa == Isa32::T32)).to_le_bytes());
        (self.address, self.isa) = (address, isa);
    }

    /// An instruction; one that was not executed failed its condition. Without cycles only.
    pub fn instruction(&mut self, executed: bool) {
        if executed {
            self.executed += 1;
            if self.executed == 15 {
                self.flush();
            }
            return;
        }
        self.out.push(0xC0 | self.executed << 2);
        self.executed = 0;
    }

    /// A branch, or an exception with the address of its handler.
    pub fn branch(&mut self, address: u32, isa: Isa32, exception: Option<(u16, bool)>) {
        self.flush();
        let shift = if isa == Isa32::A32 { 2 } else { 1 };
        let alternative = self.config.has_alternative_branches();
        let value = address >> shift;
        let changed = 32 - (value ^ self.address >> shift).leading_zeros();
        let last_bits = if alternative { 6 } else { 7 };
        let len = match changed {
            _ if isa != self.isa || exception.is_some() && !alternative => 5,
            0..=6 if exception.is_none() => 1,
            _ if changed <= 6 + last_bits => 2,
            _ if changed <= 13 + last_bits => 3,
            _ if changed <= 20 + last_bits => 4,
            _ => 5,
        };
        let mut bits = 6;
        self.out.push(1 | (value as u8 & 0x3F) << 1 | u8::from(len > 1) << 7);
        for place in 1..len {
            let is_last = place == len - 1;
            let taken = if is_last { last_bits } else { 7 };
            let mut byte = (value >> bits) as u8 & ((1u16 << taken) - 1) as u8;
            if place == 4 {
                byte = if isa == Isa32::A32 { byte & 7 | 8 } else { byte & 0xF | 0x10 };
            }
            let follows = is_last && exception.is_some();
            self.out.push(byte | u8::from(!is_last) << 7 | u8::from(follows) << 6);
            bits += 7;
        }
        if let Some((number, cancels)) = exception {
            let low = (number as u8 & 0xF) << 1 | u8::from(cancels) << 5;
            if number > 0xF {
                self.out.extend([low | 0x80, (number >> 4) as u8 & 0x1F]);
            } else {
                self.out.push(low);
            }
        }
        (self.address, self.isa) = (address, isa);
    }

    /// A return from an exception.
    pub fn exception_return(&mut self) {
        self.raw(&[0x76]);
    }

    /// The time, without the high bits that did not change.
    pub fn timestamp(&mut self, value: u64) {
        self.raw(&[0x42]);
        encode_timestamp(&mut self.out, &mut self.timestamp, value, self.config.timestamps_have_64_bits());
    }

    fn flush(&mut self) {
        if self.executed > 0 {
            self.out.push(0x80 | self.executed << 2);
            self.executed = 0;
        }
    }
}
