// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of ITM's packets.
//!
//! A local timestamp is a difference, and stamps the packets *before* it, back to the timestamp before. So the time of a packet is known
//! only later. After an overflow a difference may be missing: sums are not certain from there on.

use super::{Delay, Packet, Payload};

/// A time, once a timestamp packet tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTime {
    /// Sum of the local timestamps so far.
    pub local_ticks: u64,
    /// How it relates to the packets that it stamps.
    pub delay: Delay,
    /// No overflow and no loss since the stream began.
    pub complete: bool,
}

/// Follows the timestamps of a stream.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    local_ticks: u64,
    incomplete: bool,
    global: u64,
    low_bits: u8,
    has_low: bool,
    has_high: bool,
}

impl Clock {
    /// Before the stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a packet into account. Returns the time of all packets since the local timestamp before, if it is one.
    pub fn packet(&mut self, packet: &Packet) -> Option<PacketTime> {
        match packet.payload {
            Payload::LocalTimestamp { delta_ticks, delay, .. } => {
                self.local_ticks += u64::from(delta_ticks);
                return Some(PacketTime { local_ticks: self.local_ticks, delay, complete: !self.incomplete });
            }
            Payload::Overflow => self.incomplete = true,
            Payload::GlobalLow { value, bits, wrapped, clock_changed } => {
                let kept = !0 << bits;
                self.global = self.global & kept | u64::from(value) & !kept;
                self.low_bits = self.low_bits.max(bits);
                self.has_low = self.low_bits == 26 || self.has_low;
                // Its high part follows.
                self.has_high &= !wrapped && !clock_changed;
            }
            Payload::GlobalHigh { value, .. } => {
                self.global = self.global & 0x3ff_ffff | value << 26;
                self.has_high = true;
            }
            _ => {}
        }
        None
    }

    /// Bytes of the stream were lost.
    pub fn lost(&mut self) {
        self.incomplete = true;
        (self.has_low, self.low_bits) = (false, 0);
    }

    /// The global time, once both of its parts are known.
    #[must_use]
    pub fn global_ticks(&self) -> Option<u64> {
        (self.has_low && self.has_high).then_some(self.global)
    }
}
