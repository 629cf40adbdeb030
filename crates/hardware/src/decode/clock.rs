// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From ticks of a unit to nanoseconds: on the recording's clock where the recorder told how, else at a frequency that the user gives.
//!
//! The two are different clocks. Who ran when is told on the recording's, so threads are known by time only where ticks are on it
//! ([`Conversion::is_of_recording`]).

use crate::pt::PerfClock;

/// How long ticks are, and from when they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// The counter on the recording's clock (`PERF_RECORD_TIME_CONV`, `PERF_RECORD_AUXTRACE_INFO`), where it was told.
    pub recording: Option<PerfClock>,
    /// The counter's frequency, where the user gives it.
    pub hz: Option<u64>,
}

impl Conversion {
    /// At this frequency, on the counter's own clock.
    #[must_use]
    pub fn at(hz: Option<u64>) -> Conversion {
        Conversion { recording: None, hz }
    }

    /// Whether times are those of the recording's clock.
    #[must_use]
    pub fn is_of_recording(self) -> bool {
        self.recording.is_some()
    }

    /// `None`: nothing says how long ticks are.
    #[must_use]
    pub fn ns(self, ticks: u64) -> Option<u64> {
        match (self.recording, self.hz) {
            (Some(clock), _) => Some(clock.nanoseconds(ticks)),
            (None, Some(hz)) => ns_of(ticks, hz),
            (None, None) => None,
        }
    }
}

/// Nanoseconds of ticks at a frequency.
pub(super) fn ns_of(ticks: u64, hz: u64) -> Option<u64> {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(hz).max(1);
    u64::try_from(ns).ok().filter(|_| hz > 0)
}
