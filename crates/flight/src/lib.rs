// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the flight recorder's banks to recordings: copy what is frozen, decode, order, name, and count every loss.
//!
//! The kernel freezes the banks: each CPU leaves its bank when a trigger's time is over. [`FlightRecorder`] is the listener's
//! side: it polls mapped words (no system call), copies the frozen banks and gives them back. [`Snapshot::decode`] does the
//! slow part (decoding, sorting, naming) and can run on another thread while the listener goes on. [`MissCounter`] says how
//! many runs of eBPF programs the kernel skipped in a snapshot's time, [`TrackerStats`] what the tracker counted.
//! Streams (`rtscope record`) do not pass here: `rtscope-store` reads them.
#![forbid(unsafe_code)]

mod misses;
mod recorder;
mod snapshot;
mod stats;

pub use misses::MissCounter;
pub use recorder::FlightRecorder;
pub use rtscope_ring::{decode, late_response};
pub use snapshot::{Snapshot, Window};
pub use stats::TrackerStats;

use rtscope_event::MonotonicNs;

/// Now, on the clock of all records.
#[must_use]
pub fn monotonic_now() -> MonotonicNs {
    // clock_gettime(CLOCK_MONOTONIC) cannot fail with a valid clock id.
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
    MonotonicNs(now.map_or(0, |now| now.as_nanos() as u64))
}
