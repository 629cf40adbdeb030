// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes messages of SyS-T, for tests.

use alloc::vec::Vec;

use super::{Location, Origin, Severity, checksum};

/// Writes messages of one sender.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// Who sends them.
    pub origin: Origin,
    /// Which part of the sender.
    pub unit: u8,
    /// With this location.
    pub location: Option<Location>,
    /// With this time.
    pub ticks: Option<u64>,
    /// With a length.
    pub has_length: bool,
    /// With a checksum.
    pub has_checksum: bool,
}

impl Encoder {
    /// A message of a type, with a payload that is as the type wants it.
    #[must_use]
    pub fn message(&self, kind: u8, subtype: u8, severity: Severity, payload: &[u8]) -> Vec<u8> {
        let module = match self.origin {
            Origin::Module(module) => u32::from(module & 0x7f),
            Origin::Guid(_) => 0,
        };
        let flag = |bit: u32, is_set: bool| u32::from(is_set) << bit;
        let header = u32::from(kind & 0xf)
            | (severity as u32) << 4
            | flag(8, self.location.is_some())
            | flag(9, self.has_length)
            | flag(10, self.has_checksum)
            | flag(11, self.ticks.is_some())
            | u32::from(self.unit & 0xf) << 12
            | module << 16
            | flag(23, matches!(self.origin, Origin::Guid(_)))
            | u32::from(subtype & 0x3f) << 24;
        let mut bytes = header.to_le_bytes().to_vec();
        if let Origin::Guid(guid) = self.origin {
            bytes.extend_from_slice(&guid);
        }
        if let Some(location) = self.location {
            append_location(&mut bytes, location);
        }
        if self.has_length {
            bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        }
        if let Some(ticks) = self.ticks {
            bytes.extend_from_slice(&ticks.to_le_bytes());
        }
        bytes.extend_from_slice(payload);
        if self.has_checksum {
            bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        }
        bytes
    }
}

fn append_location(bytes: &mut Vec<u8>, location: Location) {
    match location {
        Location::Line { file, line } => match (u16::try_from(file), u16::try_from(line)) {
            (Ok(file), Ok(line)) => {
                bytes.push(0);
                bytes.extend_from_slice(&file.to_le_bytes());
                bytes.extend_from_slice(&line.to_le_bytes());
            }
            _ => {
                bytes.push(1);
                bytes.extend_from_slice(&file.to_le_bytes());
                bytes.extend_from_slice(&line.to_le_bytes());
            }
        },
        Location::Address(address) => {
            bytes.push(3);
            bytes.extend_from_slice(&address.to_le_bytes());
        }
    }
}
