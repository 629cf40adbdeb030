// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of 32 bits with the instruction set of Armv7, as ETMv3 and PTM have them.

use super::isa::Isa;

/// An instruction set of Armv7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isa32 {
    /// Not said yet.
    #[default]
    Unknown,
    /// Instructions of four bytes.
    A32,
    /// Instructions of two and four bytes.
    T32,
    /// ThumbEE, which has no decoder here.
    ThumbEe,
    /// Jazelle, which has no decoder here.
    Jazelle,
}

impl Isa32 {
    /// The instruction set, if its flow can be followed.
    #[must_use]
    pub fn known(self) -> Option<Isa> {
        match self {
            Isa32::A32 => Some(Isa::A32),
            Isa32::T32 => Some(Isa::T32),
            Isa32::Unknown | Isa32::ThumbEe | Isa32::Jazelle => None,
        }
    }
}

/// The last address of the stream, of which a packet gives the low bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Last {
    pub value: u32,
    pub isa: Isa32,
}

impl Last {
    /// Replaces low bits.
    pub fn update(&mut self, value: u32, bits: u32) -> u32 {
        let mask = if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
        self.value = self.value & !mask | value & mask;
        self.value
    }
}

/// Low bits of a timestamp replace those of the one before.
pub(crate) fn update_timestamp(last: &mut u64, value: u64, bits: u32) -> u64 {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    *last = *last & !mask | value & mask;
    *last
}
