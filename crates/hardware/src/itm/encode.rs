// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes ITM, for tests.

use alloc::vec::Vec;

use super::{Action, Delay};

/// Writes packets.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
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

    /// Bytes, whatever they mean.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A synchronisation.
    pub fn sync(&mut self) -> &mut Self {
        self.raw(&[0, 0, 0, 0, 0, 0x80])
    }

    /// An overflow.
    pub fn overflow(&mut self) -> &mut Self {
        self.raw(&[0x70])
    }

    /// The page of stimulus ports from here on.
    pub fn page(&mut self, page: u8) -> &mut Self {
        self.raw(&[(page & 7) << 4 | 8])
    }

    /// A write of 1, 2 or 4 bytes into a port of the page.
    pub fn stimulus(&mut self, port: u8, size: u8, value: u32) -> &mut Self {
        self.source(port & 0x1f, 0, size, value)
    }

    /// A packet of the DWT unit.
    pub fn hardware(&mut self, id: u8, size: u8, value: u32) -> &mut Self {
        self.source(id & 0x1f, 4, size, value)
    }

    /// An exception.
    pub fn exception(&mut self, number: u16, action: Action) -> &mut Self {
        let function = match action {
            Action::Entered => 1,
            Action::Exited => 2,
            Action::Returned => 3,
        };
        self.hardware(1, 2, u32::from(number & 0x1ff) | function << 12)
    }

    /// A sample of the program counter.
    pub fn pc_sample(&mut self, pc: Option<u32>) -> &mut Self {
        match pc {
            Some(pc) => self.hardware(2, 4, pc),
            None => self.hardware(2, 1, 0),
        }
    }

    fn source(&mut self, id: u8, kind: u8, size: u8, value: u32) -> &mut Self {
        let code = if size == 4 { 3 } else { size & 3 };
        self.bytes.push(id << 3 | kind | code);
        self.raw(&value.to_le_bytes()[..usize::from(size.min(4))])
    }

    /// A local timestamp: of one byte if that says it.
    pub fn local(&mut self, delta_ticks: u32, delay: Delay) -> &mut Self {
        if delay == Delay::None && (1..=6).contains(&delta_ticks) {
            return self.raw(&[(delta_ticks as u8) << 4]);
        }
        let code = match delay {
            Delay::None => 0,
            Delay::Timestamp => 1,
            Delay::Event => 2,
            Delay::Both => 3,
        };
        self.bytes.push(0xc0 | code << 4);
        self.groups(u64::from(delta_ticks & 0xfff_ffff), 1)
    }

    /// The low bits of the global time: as many groups of seven as are needed.
    pub fn global_low(&mut self, value: u32, wrapped: bool, clock_changed: bool) -> &mut Self {
        let flags = u64::from(wrapped) << 27 | u64::from(clock_changed) << 26;
        self.bytes.push(0x94);
        self.groups(u64::from(value & 0x3ff_ffff) | flags, 1)
    }

    /// The high bits of the global time.
    pub fn global_high(&mut self, value: u64, wide: bool) -> &mut Self {
        self.bytes.push(0xb4);
        let (bits, bytes) = if wide { (38, 6) } else { (22, 4) };
        self.groups(value & ((1 << bits) - 1), bytes)
    }

    fn groups(&mut self, mut value: u64, least: usize) -> &mut Self {
        let mut count = 1;
        while value > 0x7f || count < least {
            self.bytes.push(value as u8 & 0x7f | 0x80);
            value >>= 7;
            count += 1;
        }
        self.bytes.push(value as u8);
        self
    }
}
