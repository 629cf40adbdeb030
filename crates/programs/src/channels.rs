// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that go to channels of a system trace module (STM), or to PTWRITE: which of them, and what programs are told of the device
//! ([ADR 0031](../../../docs/adr/0031-events-go-to-channels-of-an-stm.md), [0032](../../../docs/adr/0032-events-go-to-ptwrite.md)). The collector
//! sees none of these events.

use rtscope_event::glob_matches;
use serde::{Deserialize, Serialize};

/// Where in a channel the words of a message are stored, by offsets of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Bytes of a channel.
    pub bytes: u32,
    /// A datum of 64 bits with a mark and a time.
    pub first: u32,
    /// One without.
    pub next: u32,
    /// A flag.
    pub last: u32,
}

impl Ports {
    /// The extended stimulus ports of Arm's STM: the guaranteed ones (STM-500 technical reference manual, 3.2).
    pub const CORESIGHT: Ports = Ports { bytes: 256, first: 0x00, next: 0x18, last: 0x68 };
    /// Those of Intel's Trace Hub (`struct intel_th_channel`, drivers/hwtracing/intel_th/sth.h).
    pub const INTEL_TH: Ports = Ports { bytes: 64, first: 24, next: 0, last: 48 };
}

/// The device to whose channels events go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelDevice {
    /// Its name in /dev.
    pub name: String,
    /// For whom the kernel is asked for channels: a node of the device's policy.
    pub policy: String,
    /// What its channels look like.
    pub ports: Ports,
    /// Bytes of one mapping, which is as many channels as fit: a page.
    pub map_bytes: u32,
}

impl ChannelDevice {
    /// The line about it in a session (`include/rtscope/channel.h`).
    fn line(&self) -> String {
        let Ports { bytes, first, next, last } = self.ports;
        format!("@/{bytes} {first} {next} {last} {} /dev/{} {}\0", self.map_bytes, self.name, self.policy)
    }
}

/// Where events go that do not go to rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Destination {
    /// Channels of a device.
    Stm(ChannelDevice),
    /// The stream of the processor that records Intel PT.
    Ptwrite,
}

impl Destination {
    /// The line about it in a session.
    fn line(&self) -> String {
        match self {
            Destination::Stm(device) => device.line(),
            Destination::Ptwrite => "@/ptwrite\0".to_string(),
        }
    }
}

/// Which events go to channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Whose.
    pub device: Destination,
    /// Globs of `PROVIDER:EVENT`, and whether what they match goes to a channel: the last one decides.
    pub patterns: Vec<(String, bool)>,
    /// Events of threads that can have no channel go into their rings, instead of being lost.
    pub or_ring: bool,
}

impl Channels {
    /// Whether an event goes to a channel.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        let matches = |(pattern, _): &&(String, bool)| glob_matches(pattern.as_bytes(), name.as_bytes());
        self.patterns.iter().rev().find(matches).is_some_and(|(_, takes)| *takes)
    }

    /// In the form of `struct rtu_session`.
    pub(crate) fn words(&self) -> Vec<u8> {
        let mark = |takes: bool| if takes { '>' } else { '<' };
        let patterns = self.patterns.iter().map(|(pattern, takes)| format!("{}/{pattern}\0", mark(*takes)));
        (patterns.collect::<String>() + &self.device.line()).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_decides_and_programs_are_told_the_same() {
        let device = ChannelDevice {
            name: "stm0".into(),
            policy: "user".into(),
            ports: Ports::CORESIGHT,
            map_bytes: 4096,
        };
        let patterns = vec![("motor:*".to_string(), true), ("motor:slow*".to_string(), false)];
        let channels = Channels { device: Destination::Stm(device), patterns, or_ring: false };
        assert!(
            channels.takes("motor:tick") && !channels.takes("motor:slow_1") && !channels.takes("pump:on")
        );
        assert_eq!(channels.words(), b">/motor:*\0</motor:slow*\0@/256 0 24 104 4096 /dev/stm0 user\0");
        let channels = Channels { device: Destination::Ptwrite, ..channels };
        assert_eq!(channels.words(), b">/motor:*\0</motor:slow*\0@/ptwrite\0");
    }
}
