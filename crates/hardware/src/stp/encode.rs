// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes STP, for tests, and for devices without a trace unit.

use alloc::vec::Vec;

use super::{Encoding, Width};

/// Writes packets, with as few nibbles of each timestamp as say it.
#[derive(Clone, Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    half: bool,
    encoding: Encoding,
    /// The last time as written; None: since the last synchronisation there was none, and the next one is written completely.
    time: Option<u64>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// With binary times.
    #[must_use]
    pub const fn new() -> Self {
        Self::with(Encoding::Binary)
    }

    /// With times in this encoding.
    #[must_use]
    pub const fn with(encoding: Encoding) -> Self {
        Self { bytes: Vec::new(), half: false, encoding, time: None }
    }

    /// The stream; half a byte is filled with a NULL.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Nibbles so far.
    #[must_use]
    pub fn nibbles(&self) -> usize {
        self.bytes.len() * 2 - usize::from(self.half)
    }

    /// One nibble, whatever it means.
    pub fn nibble(&mut self, value: u8) -> &mut Self {
        match self.bytes.last_mut() {
            Some(last) if self.half => *last |= (value & 0xf) << 4,
            _ => self.bytes.push(value & 0xf),
        }
        self.half = !self.half;
        self
    }

    /// The low nibbles of a value, the most significant one first.
    pub fn value(&mut self, value: u64, nibbles: usize) -> &mut Self {
        for index in (0..nibbles).rev() {
            self.nibble((value >> (4 * index)) as u8);
        }
        self
    }

    /// ASYNC and VERSION: from here on a decoder can begin.
    pub fn sync(&mut self) -> &mut Self {
        for _ in 0..21 {
            self.nibble(0xf);
        }
        let version = match self.encoding {
            Encoding::Binary => 3,
            Encoding::Gray => 4,
        };
        self.time = None;
        self.nibble(0).value(0xf00, 3).nibble(version)
    }

    /// NULL, or NULL_TS.
    pub fn null(&mut self, ticks: Option<u64>) -> &mut Self {
        match ticks {
            None => self.nibble(0),
            Some(ticks) => self.value(0xf01, 3).time(ticks),
        }
    }

    /// M16; the channel is 0 from here on.
    pub fn master(&mut self, master: u16) -> &mut Self {
        self.value(0xf1, 2).value(u64::from(master), 4)
    }

    /// M8: the low byte of the master; the channel is 0 from here on.
    pub fn master_low(&mut self, low: u8) -> &mut Self {
        self.nibble(1).value(u64::from(low), 2)
    }

    /// C16.
    pub fn channel(&mut self, channel: u16) -> &mut Self {
        self.value(0xf3, 2).value(u64::from(channel), 4)
    }

    /// C8: the low byte of the channel.
    pub fn channel_low(&mut self, low: u8) -> &mut Self {
        self.nibble(3).value(u64::from(low), 2)
    }

    /// MERR.
    pub fn master_error(&mut self, code: u8) -> &mut Self {
        self.nibble(2).value(u64::from(code), 2)
    }

    /// GERR.
    pub fn global_error(&mut self, code: u8) -> &mut Self {
        self.value(0xf2, 2).value(u64::from(code), 2)
    }

    /// Dn, or DnTS.
    pub fn data(&mut self, width: Width, value: u64, ticks: Option<u64>) -> &mut Self {
        let code = match width {
            Width::D4 => 0xc,
            Width::D8 => 4,
            Width::D16 => 5,
            Width::D32 => 6,
            Width::D64 => 7,
        };
        if ticks.is_some() {
            self.nibble(0xf);
        }
        self.nibble(code).value(value, width.nibbles()).maybe_time(ticks)
    }

    /// DnM, or DnMTS.
    pub fn marked(&mut self, width: Width, value: u64, ticks: Option<u64>) -> &mut Self {
        let code = match width {
            Width::D4 => 0xd,
            Width::D8 => 8,
            Width::D16 => 9,
            Width::D32 => 0xa,
            Width::D64 => 0xb,
        };
        if ticks.is_none() {
            self.nibble(0xf);
        }
        self.nibble(code).value(value, width.nibbles()).maybe_time(ticks)
    }

    /// FLAG, or FLAG_TS.
    pub fn flag(&mut self, ticks: Option<u64>) -> &mut Self {
        if ticks.is_none() {
            self.nibble(0xf);
        }
        self.nibble(0xe).maybe_time(ticks)
    }

    /// USER, or USER_TS: 1 to 16 nibbles.
    pub fn user(&mut self, value: u64, nibbles: usize, ticks: Option<u64>) -> &mut Self {
        let nibbles = nibbles.clamp(1, 16);
        self.extended(2, ticks).value(nibbles as u64 - 1, 1).value(value, nibbles).maybe_time(ticks)
    }

    /// TRIG, or TRIG_TS.
    pub fn trigger(&mut self, code: u8, ticks: Option<u64>) -> &mut Self {
        self.extended(6, ticks).value(u64::from(code), 2).maybe_time(ticks)
    }

    /// FREQ, or FREQ_TS.
    pub fn frequency(&mut self, hz: u32, ticks: Option<u64>) -> &mut Self {
        self.extended(8, ticks).value(u64::from(hz), 8).maybe_time(ticks)
    }

    /// XSYNC, or XSYNC_TS.
    pub fn cross_sync(&mut self, code: u8, ticks: Option<u64>) -> &mut Self {
        self.extended(10, ticks).value(u64::from(code), 2).maybe_time(ticks)
    }

    fn extended(&mut self, code: u8, ticks: Option<u64>) -> &mut Self {
        self.value(0xf0, 2).nibble(code + u8::from(ticks.is_some()))
    }

    fn maybe_time(&mut self, ticks: Option<u64>) -> &mut Self {
        match ticks {
            None => self,
            Some(ticks) => self.time(ticks),
        }
    }

    /// A timestamp: the nibbles that differ from those of the one before.
    pub fn time(&mut self, ticks: u64) -> &mut Self {
        let written = match self.encoding {
            Encoding::Binary => ticks,
            Encoding::Gray => ticks ^ ticks >> 1,
        };
        let differing =
            self.time.map_or(16, |before| (64 - (written ^ before).leading_zeros()).div_ceil(4) as usize);
        let (size, nibbles) = match differing {
            0..=12 => (differing, differing),
            13 | 14 => (13, 14),
            _ => (14, 16),
        };
        self.time = Some(written);
        self.value(size as u64, 1).value(written, nibbles)
    }
}
