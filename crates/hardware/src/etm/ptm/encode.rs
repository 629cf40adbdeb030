// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes streams of PTM: the inverse of [`Packets`](super::Packets), for streams whose content is known.

use super::Config;
use super::parse::Reason;
use crate::etm::address32::Isa32;
use alloc::vec::Vec;

/// Writes packets.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: Config,
    out: Vec<u8>,
    address: u32,
    isa: Isa32,
    timestamp: u64,
    atoms: Vec<bool>,
}

impl Encoder {
    /// With nothing written yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let (address, isa) = (0, Isa32::Unknown);
        Self { config: *config, out: Vec::new(), address, isa, timestamp: 0, atoms: Vec::new() }
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
        self.out.extend((address | u32::from(isa == Isa32::T32)).to_le_bytes());
        self.out.push(1 | (reason as u8) << 5);
        if self.config.is_cycle_accurate() && reason != Reason::Periodic {
            self.out.push(0);
        }
        self.out.extend(&context_id.to_le_bytes()[..self.config.context_id_bytes()]);
        (self.address, self.isa) = (address, isa);
    }

    /// A waypoint, with its cycles where they are counted.
    pub fn atom(&mut self, taken: bool, cycles: u32) {
        if self.config.is_cycle_accurate() {
            self.cycles(cycles, 0x80 | u8::from(!taken) << 1);
            return;
        }
        self.atoms.push(taken);
        if self.atoms.len() == 5 {
            self.flush();
        }
    }

    /// A branch, or an exception with the address of its handler.
    pub fn branch(&mut self, address: u32, isa: Isa32, exception: Option<u16>, cycles: u32) {
        self.flush();
        let shift = u32::from(isa == Isa32::A32);
        let (value, last) = (address >> shift, self.address >> shift);
        let changed = 32 - (value ^ last).leading_zeros();
        let len = match changed {
            _ if isa != self.isa => 5,
            0..=7 if exception.is_none() => 1,
            0..=13 => 2,
            14..=20 => 3,
            21..=27 => 4,
            _ => 5,
        };
        let mut bits = 7;
        self.out.push(1 | value as u8 & 0x7E | u8::from(len > 1) << 7);
        for place in 1..len {
            let is_last = place == len - 1;
            let taken = if is_last { 6 } else { 7 };
            let mut byte = (value >> bits) as u8 & ((1 << taken) - 1);
            if place == 4 {
                byte = if isa == Isa32::A32 { byte & 7 | 8 } else { byte & 0xF | 0x10 };
            }
            self.out.push(byte | u8::from(!is_last) << 7 | u8::from(is_last && exception.is_some()) << 6);
            bits += 7;
        }
        if let Some(number) = exception {
            let low = (number as u8 & 0xF) << 1;
            if number > 0xF {
                self.out.extend([low | 0x80, (number >> 4) as u8 & 0x1F]);
            } else {
                self.out.push(low);
            }
        }
        if self.config.is_cycle_accurate() {
            self.cycles(cycles, 0);
        }
        (self.address, self.isa) = (address, isa);
    }

    /// A return from an exception.
    pub fn exception_return(&mut self) {
        self.raw(&[0x76]);
    }

    /// The time, without the high bits that did not change.
    pub fn timestamp(&mut self, value: u64, cycles: u32) {
        self.raw(&[0x42]);
        timestamp(&mut self.out, &mut self.timestamp, value, self.config.timestamps_have_64_bits());
        if self.config.is_cycle_accurate() {
            self.cycles(cycles, 0);
        }
    }

    fn cycles(&mut self, cycles: u32, header: u8) {
        let mut rest = cycles >> 4;
        self.out.push(header | (cycles as u8 & 0xF) << 2 | u8::from(rest > 0) << 6);
        while rest > 0 {
            self.out.push(rest as u8 & 0x7F | u8::from(rest > 0x7F) << 7);
            rest >>= 7;
        }
    }

    fn flush(&mut self) {
        let count = self.atoms.len();
        let header = [0x80u8, 0x80, 0x88, 0x90, 0xA0, 0xC0][count];
        // The oldest is in the highest bit; a zero is an E.
        let bits = self.atoms.iter().fold(0u8, |bits, taken| bits << 1 | u8::from(!*taken));
        if count > 0 {
            self.out.push(header | bits << 1);
        }
        self.atoms.clear();
    }
}

/// Seven bits a byte, with a last byte of more or of fewer.
pub(crate) fn timestamp(out: &mut Vec<u8>, last: &mut u64, value: u64, has_64_bits: bool) {
    let most = if has_64_bits { 9 } else { 7 };
    let changed = 64 - (value ^ *last).leading_zeros();
    let bytes = changed.div_ceil(7).clamp(1, most);
    for place in 0..bytes {
        let byte = (value >> (7 * place)) as u8;
        let more = place + 1 < bytes;
        out.push(if place + 1 == most { byte } else { byte & 0x7F | u8::from(more) << 7 });
    }
    *last = value;
}
