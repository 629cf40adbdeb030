// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes SPE, for tests.

use alloc::vec::Vec;

use super::{AddressKind, CounterKind};

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

    /// Padding of one byte.
    pub fn padding(&mut self) -> &mut Self {
        self.raw(&[0])
    }

    /// Padding up to a multiple of 2 << `shift` bytes.
    pub fn align(&mut self, shift: u8) -> &mut Self {
        let (begin, alignment) = (self.bytes.len(), 2 << (shift & 3));
        let bytes = (alignment - begin % alignment).max(2);
        self.raw(&[0x20 | shift & 3, 0]);
        self.bytes.resize(begin + bytes, 0);
        self
    }

    /// A record's end without a time.
    pub fn end(&mut self) -> &mut Self {
        self.raw(&[1])
    }

    /// A record's end with a time.
    pub fn timestamp(&mut self, ticks: u64) -> &mut Self {
        self.raw(&[0x71]).raw(&ticks.to_le_bytes())
    }

    /// Events, in 1, 2, 4 or 8 bytes.
    pub fn events(&mut self, bits: u64, size: usize) -> &mut Self {
        self.sized(0x42, bits, size)
    }

    /// A source of data, in 1, 2, 4 or 8 bytes.
    pub fn data_source(&mut self, source: u64, size: usize) -> &mut Self {
        self.sized(0x43, source, size)
    }

    fn sized(&mut self, header: u8, value: u64, size: usize) -> &mut Self {
        let size = size.clamp(1, 8).next_power_of_two();
        self.raw(&[header | (size.trailing_zeros() as u8) << 4]).raw(&value.to_le_bytes()[..size])
    }

    /// A context of EL1 or EL2.
    pub fn context(&mut self, level: u8, id: u32) -> &mut Self {
        self.raw(&[0x64 | level.wrapping_sub(1) & 3]).raw(&id.to_le_bytes())
    }

    /// An operation: its class (0 other, 1 memory, 2 branch) and flags.
    pub fn operation(&mut self, class: u8, flags: u8) -> &mut Self {
        self.raw(&[0x48 | class & 3, flags])
    }

    /// An address.
    pub fn address(&mut self, kind: AddressKind, value: u64) -> &mut Self {
        let index = match kind {
            AddressKind::Instruction => 0,
            AddressKind::BranchTarget => 1,
            AddressKind::DataVirtual => 2,
            AddressKind::DataPhysical => 3,
            AddressKind::PreviousBranchTarget => 4,
            AddressKind::Other(index) => index,
        };
        self.indexed(0xb0, index).raw(&value.to_le_bytes())
    }

    /// A counter.
    pub fn counter(&mut self, kind: CounterKind, cycles: u16) -> &mut Self {
        let index = match kind {
            CounterKind::Total => 0,
            CounterKind::Issue => 1,
            CounterKind::Translation => 2,
            CounterKind::Other(index) => index,
        };
        self.indexed(0x98, index).raw(&cycles.to_le_bytes())
    }

    /// Indices from 8 on need a second byte.
    fn indexed(&mut self, header: u8, index: u8) -> &mut Self {
        if index >= 8 {
            self.raw(&[0x20 | index >> 3 & 3]);
        }
        self.raw(&[header | index & 7])
    }
}
