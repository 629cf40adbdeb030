// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From rings to events: freeze the banks, decode, order, name, and account for every loss.
//!
//! [`Recorder`](FlightRecorder) is the listener's side of the flight recorder: it polls mapped words (no system call), copies
//! what is frozen, and gives it back. [`Snapshot::decode`] does the slow part (decoding, sorting, naming) and can run on
//! another thread while the listener goes on.
#![forbid(unsafe_code)]

mod flight;
mod losses;
mod snapshot;
mod stats;

pub use flight::FlightRecorder;
pub use losses::MissCounter;
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
