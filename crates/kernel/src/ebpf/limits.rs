// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that rise to the worst that was reported (`TrackerConfig::records`): what they have come to.

use super::{EbpfPrograms, Error, map_memory};
use rtscope_abi as abi;
use rtscope_ring::SharedMemory;

/// The worst that each instance has reported, where only what is worse is late.
#[derive(Debug)]
pub struct RaisedLimits(SharedMemory);

impl RaisedLimits {
    /// Of an instance; 0: nothing yet.
    #[must_use]
    pub fn worst_ns(&self, instance: usize) -> u64 {
        if instance < abi::RTS_INSTANCES as usize { self.0.load(instance * size_of::<u64>()) } else { 0 }
    }
}

impl EbpfPrograms {
    /// Maps them.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn raised_limits(&self) -> Result<RaisedLimits, Error> {
        let bytes = abi::RTS_INSTANCES as usize * size_of::<u64>();
        map_memory(&self.object, ".data.records", bytes, false).map(RaisedLimits)
    }
}
