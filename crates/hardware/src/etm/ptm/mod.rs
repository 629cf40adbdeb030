// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PTM, the trace unit of Cortex-A9, A12, A15 and A17: it traces waypoints, as ETMv4 does.
//!
//! [`Packets`] takes the stream apart, [`Flow`] follows the program. Reference: CoreSight Program Flow Trace Architecture
//! Specification, PFTv1.0 and PFTv1.1 (IHI 0035), chapter 4.

mod encode;
mod flow;
mod packets;
mod parse;

pub use encode::Encoder;
pub(crate) use encode::timestamp as encode_timestamp;
pub use flow::Flow;
pub use packets::Packets;
pub use parse::{Packet, Reason};
pub(crate) use parse::{synchronisation, timestamp};

/// Registers of a PTM.
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
}

impl Default for Config {
    /// A PFTv1.1 that traces nothing optional.
    fn default() -> Self {
        Self { control: 0, id: 0x411C_F312, capabilities: 0x34C0_1AC2, trace_id: 0x10 }
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

    /// Whether returns that the unit foresaw have no address (ETMCR bit 29, ETMCCER bit 23).
    #[must_use]
    pub fn return_stack(&self) -> bool {
        self.control & 1 << 29 != 0 && self.capabilities & 1 << 23 != 0
    }

    /// Whether timestamps have 64 bits, else 48 (ETMCCER bit 29, from PFTv1.1).
    #[must_use]
    pub fn timestamps_have_64_bits(&self) -> bool {
        self.id >> 4 & 0xF != 0 && self.capabilities & 1 << 29 != 0
    }

    /// Whether DSB and DMB are waypoints (ETMCCER bit 24).
    #[must_use]
    pub fn data_barriers_are_waypoints(&self) -> bool {
        self.capabilities & 1 << 24 != 0
    }
}
