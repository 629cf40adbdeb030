// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes streams of ETMv4 and ETE: the inverse of [`Packets`](super::Packets), for streams whose content is known.
//!
//! It chooses the shortest form of an address and of atoms, as a unit does, so that all forms occur.

use super::config::Config;
use super::packet::{Context, TraceInfo};
use alloc::vec::Vec;

/// Writes packets.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: Config,
    out: Vec<u8>,
    history: [(u64, bool); 3],
    is_64_bit: bool,
    timestamp: u64,
    cycle_threshold: u32,
    atoms: Vec<bool>,
}

impl Encoder {
    /// With nothing written yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            out: Vec::new(),
            history: [(0, false); 3],
            is_64_bit: false,
            timestamp: 0,
            cycle_threshold: 0,
            atoms: Vec::new(),
        }
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

    /// A-Sync and trace info.
    pub fn synchronise(&mut self, info: TraceInfo) {
        self.raw(&[0; 11]);
        self.out.extend([0x80, 0x01]);
        let sections = [info.info, info.p0_key, info.speculation, info.cycle_threshold];
        let present = |value: &u32| u8::from(*value != 0);
        self.out
            .push(sections.iter().enumerate().fold(0, |bits, (place, value)| bits | present(value) << place));
        for value in sections {
            if value != 0 {
                self.field(value);
            }
        }
        self.history = [(0, false); 3];
        (self.timestamp, self.cycle_threshold) = (0, info.cycle_threshold);
    }

    /// Tracing begins.
    pub fn trace_on(&mut self) {
        self.raw(&[0x04]);
    }

    /// The unit lost trace.
    pub fn overflow(&mut self) {
        self.raw(&[0x00, 0x05]);
    }

    /// Events, one bit each.
    pub fn event(&mut self, events: u8) {
        self.raw(&[0x70 | events.clamp(1, 15)]);
    }

    /// A waypoint.
    pub fn atom(&mut self, taken: bool) {
        self.atoms.push(taken);
        if self.atoms.len() == 24 {
            self.flush();
        }
    }

    /// The state of the processor.
    pub fn context(&mut self, context: &Context) {
        self.raw(&[0x81]);
        self.context_bytes(context);
    }

    /// Where execution goes on.
    pub fn address(&mut self, value: u64, is1: bool) {
        self.flush();
        self.address_with(value, is1, [0x90, 0x95, 0x9A, 0x9D]);
    }

    /// Where a waypoint is (ETE).
    pub fn source_address(&mut self, value: u64, is1: bool) {
        self.flush();
        self.address_with(value, is1, [0xB0, 0xB4, 0xB6, 0xB8]);
    }

    /// Where execution goes on, with the state of the processor.
    pub fn address_context(&mut self, value: u64, is1: bool, context: &Context) {
        self.raw(&[if is1 { 0x86 } else { 0x85 }]);
        self.long(value, is1, 8);
        self.push(value, is1);
        self.context_bytes(context);
    }

    /// An exception; its address follows. `branch`: which is that of a branch, too.
    pub fn exception(&mut self, number: u16, branch: bool) {
        let address = if branch { 0x40 } else { 1 };
        let low = (number as u8 & 0x1F) << 1 | address;
        if number > 0x1F {
            self.raw(&[0x06, low | 0x80, (number >> 5) as u8 & 0x1F]);
        } else {
            self.raw(&[0x06, low]);
        }
    }

    /// A return from an exception (ETMv4).
    pub fn exception_return(&mut self) {
        self.raw(&[0x07]);
    }

    /// The time, without the high bits that did not change.
    pub fn timestamp(&mut self, value: u64, cycles: Option<u32>) {
        self.raw(&[0x02 | u8::from(cycles.is_some())]);
        let changed = 64 - (value ^ self.timestamp).leading_zeros();
        let bytes = changed.div_ceil(7).clamp(1, 9);
        for place in 0..bytes {
            let byte = (value >> (7 * place)) as u8;
            let more = place + 1 < bytes;
            self.out.push(if place == 8 { byte } else { byte & 0x7F | u8::from(more) << 7 });
        }
        self.timestamp = value;
        if let Some(cycles) = cycles {
            self.field(cycles);
        }
    }

    /// Cycles, in the format with full numbers.
    pub fn cycles(&mut self, cycles: Option<u32>, commit: u32) {
        self.raw(&[0x0E | u8::from(cycles.is_none())]);
        if !self.config.cycle_counts_do_not_commit() {
            self.field(commit);
        }
        if let Some(cycles) = cycles {
            self.field(cycles - self.cycle_threshold);
        }
    }

    /// Elements are sure.
    pub fn commit(&mut self, elements: u32) {
        self.raw(&[0x2D]);
        self.field(elements);
    }

    /// Elements never were.
    pub fn cancel(&mut self, elements: u32, mispredict: bool) {
        self.raw(&[0x2E | u8::from(mispredict)]);
        self.field(elements);
    }

    /// The last atom was the other one.
    pub fn mispredict(&mut self) {
        self.raw(&[0x30]);
    }

    /// Instructions without atoms, and where execution goes on.
    pub fn q(&mut self, count: u32, address: u64, is1: bool) {
        self.raw(&[if is1 { 0xAB } else { 0xAA }]);
        self.long(address, is1, 4);
        self.push(address, is1);
        self.field(count);
    }

    fn field(&mut self, mut value: u32) {
        while value > 0x7F {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn push(&mut self, value: u64, is1: bool) {
        self.history = [(value, is1), self.history[0], self.history[1]];
    }

    /// Headers: of a match, and of short, 32-bit and 64-bit addresses of IS0; those of IS1 are one more.
    fn address_with(&mut self, value: u64, is1: bool, headers: [u8; 4]) {
        let is = u8::from(is1);
        let shift = if is1 { 1 } else { 2 };
        let changed = 64 - (value ^ self.history[0].0).leading_zeros();
        if let Some(entry) = self.history.iter().position(|entry| *entry == (value, is1)) {
            self.out.push(headers[0] + entry as u8);
        } else if changed <= 15 + shift {
            self.out.push(headers[1] + is);
            let more = changed > 7 + shift;
            self.out.push((value >> shift) as u8 & 0x7F | u8::from(more) << 7);
            if more {
                self.out.push((value >> (7 + shift)) as u8);
            }
        } else if changed <= 32 && self.is_64_bit || value >> 32 == 0 && !self.is_64_bit {
            self.out.push(headers[2] + is);
            self.long(value, is1, 4);
        } else {
            self.out.push(headers[3] + is);
            self.long(value, is1, 8);
        }
        self.push(value, is1);
    }

    fn long(&mut self, value: u64, is1: bool, bytes: u32) {
        if is1 {
            self.out.extend([(value >> 1) as u8 & 0x7F, (value >> 8) as u8]);
        } else {
            self.out.extend([(value >> 2) as u8 & 0x7F, (value >> 9) as u8 & 0x7F]);
        }
        self.out.extend((2..bytes).map(|place| (value >> (8 * place)) as u8));
    }

    fn context_bytes(&mut self, context: &Context) {
        let bit = |is: bool, place: u8| u8::from(is) << place;
        let (vmid, id) = (context.vmid.is_some(), context.context_id.is_some());
        let world = bit(context.nse, 3) | bit(context.is_64_bit, 4) | bit(context.non_secure, 5);
        self.out.push(context.level & 3 | world | bit(vmid, 6) | bit(id, 7));
        if let Some(vmid) = context.vmid {
            self.out.extend(&vmid.to_le_bytes()[..self.config.vmid_bytes()]);
        }
        if let Some(id) = context.context_id {
            self.out.extend(&id.to_le_bytes()[..self.config.context_id_bytes()]);
        }
        self.is_64_bit = context.is_64_bit;
    }

    fn flush(&mut self) {
        let atoms = core::mem::take(&mut self.atoms);
        let mut rest = &atoms[..];
        while !rest.is_empty() {
            let (header, used) = pack(rest);
            self.out.push(header);
            rest = &rest[used..];
        }
    }
}

/// The header for as many atoms as fit into one, and how many they are.
fn pack(atoms: &[bool]) -> (u8, usize) {
    let taken = atoms.iter().take_while(|taken| **taken).count().min(23);
    if taken >= 3 {
        if let Some(last) = atoms.get(taken) {
            let not_taken = u8::from(!*last) << 5;
            return (0xC0 | not_taken | (taken as u8 - 3), taken + 1);
        }
    }
    if taken >= 4 {
        return (0xC0 | (taken as u8 - 4), taken);
    }
    let bits = |count: usize| {
        atoms.iter().take(count).enumerate().fold(0, |bits, (place, taken)| bits | u8::from(*taken) << place)
    };
    let fixed = |count: usize, patterns: &[(u8, u8)]| {
        let found = patterns.iter().find(|(pattern, _)| atoms.len() >= count && bits(count) == *pattern);
        found.map(|(_, header)| (*header, count))
    };
    let five = fixed(5, &[(0x1E, 0xF5), (0x00, 0xD5), (0x0A, 0xD6), (0x15, 0xD7)]);
    let four = || fixed(4, &[(0xE, 0xDC), (0x0, 0xDD), (0xA, 0xDE), (0x5, 0xDF)]);
    five.or_else(four).unwrap_or_else(|| match atoms.len() {
        1 => (0xF6 | bits(1), 1),
        2 => (0xD8 | bits(2), 2),
        _ => (0xF8 | bits(3), 3),
    })
}
