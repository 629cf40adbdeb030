// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of the traced program: a decoder of the flow reads its instructions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// In which of the processor's address spaces something is: a set, as memory may be the same in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spaces(u16);

impl Spaces {
    /// EL0 and EL1, secure.
    pub const EL1_SECURE: Self = Self(1);
    /// EL0 and EL1, not secure.
    pub const EL1: Self = Self(2);
    /// EL2, not secure.
    pub const EL2: Self = Self(4);
    /// EL3.
    pub const EL3: Self = Self(8);
    /// EL2, secure.
    pub const EL2_SECURE: Self = Self(0x10);
    /// EL0 and EL1 of a realm.
    pub const EL1_REALM: Self = Self(0x20);
    /// EL2 of a realm.
    pub const EL2_REALM: Self = Self(0x40);
    /// Root.
    pub const ROOT: Self = Self(0x80);
    /// Everything secure.
    pub const SECURE: Self = Self(0x1 | 0x8 | 0x10);
    /// Everything that is not secure.
    pub const NON_SECURE: Self = Self(0x2 | 0x4);
    /// Everywhere.
    pub const ANY: Self = Self(0xFF);

    /// The space in which code of a level and world runs.
    #[must_use]
    pub fn of(level: u8, non_secure: bool, nse: bool) -> Self {
        match (nse, non_secure, level) {
            (true, false, _) => Self::ROOT,
            (true, true, 0 | 1) => Self::EL1_REALM,
            (true, true, 2) => Self::EL2_REALM,
            (true, true, _) => Self::ROOT,
            (false, true, 0 | 1) => Self::EL1,
            (false, true, 2) => Self::EL2,
            (false, false, 0 | 1) => Self::EL1_SECURE,
            (false, false, 2) => Self::EL2_SECURE,
            (false, _, _) => Self::EL3,
        }
    }

    /// The names that snapshots use: `EL1N`, `EL2`, `S` and so on.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_uppercase().as_str() {
            "EL1S" => Self::EL1_SECURE,
            "EL1N" => Self::EL1,
            "EL2" | "EL2N" | "H" => Self::EL2,
            "EL3" => Self::EL3,
            "EL2S" => Self::EL2_SECURE,
            "EL1R" => Self::EL1_REALM,
            "EL2R" => Self::EL2_REALM,
            "ROOT" => Self::ROOT,
            "S" => Self::SECURE,
            "N" => Self::NON_SECURE,
            "ANY" => Self::ANY,
            _ => return None,
        })
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[derive(Clone, Debug)]
struct Region {
    address: u64,
    file: Arc<[u8]>,
    /// What of it is there.
    part: Range<usize>,
    spaces: Spaces,
}

/// Memory, by address.
#[derive(Clone, Debug, Default)]
pub struct Image {
    regions: Vec<Region>,
}

impl Image {
    /// Without any memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds memory; where regions overlap, the first one is read.
    pub fn add(&mut self, spaces: Spaces, address: u64, bytes: impl Into<Arc<[u8]>>) {
        let bytes = bytes.into();
        let all = 0..bytes.len();
        self.add_part(spaces, address, bytes, all);
    }

    /// Adds a part of something that many regions may share; what is behind its end is not there.
    pub fn add_part(&mut self, spaces: Spaces, address: u64, file: Arc<[u8]>, part: Range<usize>) {
        let part = part.start..part.end.min(file.len());
        if !part.is_empty() {
            self.regions.push(Region { address, file, part, spaces });
        }
    }

    /// Whether there is any memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The bytes from this address on, to the end of their region.
    #[must_use]
    pub fn at(&self, spaces: Spaces, address: u64) -> &[u8] {
        for region in &self.regions {
            let Some(place) = address.checked_sub(region.address) else { continue };
            if region.spaces.meets(spaces) && place < region.part.len() as u64 {
                return &region.file[region.part.clone()][place as usize..];
            }
        }
        &[]
    }
}
