// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ETMv3, the trace unit of Armv6 and Armv7 processors, Cortex-M3 and M4 included: it traces each instruction.
//!
//! [`Packets`] takes the stream apart, [`Flow`] follows the program. Data trace is recognised and passed over. Reference: Embedded
//! Trace Macrocell Architecture Specification, ETMv1.0 to ETMv3.5 (IHI 0014), chapter 7.

mod encode;
mod flow;
mod packets;
mod parse;

pub use encode::Encoder;
pub use flow::Flow;
pub use packets::Packets;
pub use parse::{Data, Exception, Packet};

/// Registers of an ETMv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// ETMCR: what is traced.
    pub control: u32,
    /// ETMIDR: its version.
    pub id: u32,
    /// ETMCCER: what it can.
    pub capabilities: u32,
    /// ETMTRACEIDR: the identifier in formatter frames.
    pub trace_id: u8,
    /// Armv7-M.
    pub is_m_profile: bool,
}

impl Default for Config {
    /// An ETMv3.5 that traces nothing optional.
    fn default() -> Self {
        Self { control: 0, id: 0x410C_F250, capabilities: 0x3440_08F2, trace_id: 0x10, is_m_profile: false }
    }
}

impl Config {
    /// Whether cycles are counted (ETMCR bit 12).
    #[must_use]
    pub fn is_cycle_accurate(&self) -> bool {
        self.control & 1 << 12 != 0
    }

    /// Bytes of a context identifier (ETMCR bits 15:14).
    #[must_use]
    pub fn context_id_bytes(&self) -> usize {
        [0, 1, 2, 4][(self.control >> 14 & 3) as usize]
    }

    /// Whether instructions are traced (ETMCR bit 20: data only).
    #[must_use]
    pub fn traces_instructions(&self) -> bool {
        self.control & 1 << 20 == 0
    }

    /// Whether values of data are traced (ETMCR bit 2).
    #[must_use]
    pub fn traces_data_values(&self) -> bool {
        self.control & 1 << 2 != 0
    }

    /// Whether addresses of data are traced (ETMCR bit 3).
    #[must_use]
    pub fn traces_data_addresses(&self) -> bool {
        self.control & 1 << 3 != 0
    }

    /// Whether branches are encoded in the alternative way (ETMIDR bit 20, from ETMv3.4).
    #[must_use]
    pub fn has_alternative_branches(&self) -> bool {
        self.id & 1 << 20 != 0 && self.id >> 4 & 0xF >= 4
    }

    /// Whether timestamps have 64 bits, else 48 (ETMCCER bit 29).
    #[must_use]
    pub fn timestamps_have_64_bits(&self) -> bool {
        self.capabilities & 1 << 29 != 0
    }
}
