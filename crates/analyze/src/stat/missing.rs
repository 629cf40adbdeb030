// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a report does not know because events are missing.

use rtscope_event::Lost;
use serde::Serialize;

/// Losses that an analysis met. What happened there is in no figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Lost events, as far as they were counted.
    pub events: u64,
    /// Lost packets.
    pub packets: u64,
    /// There are losses that nobody counted.
    pub uncounted: bool,
    /// Switches that are missing: a task left a CPU to which another had come last. Some hosts hide those of threads of their own.
    pub gaps: u64,
    /// Places where other events contradict each other: something is missing there that the trace does not tell.
    pub contradictions: u64,
}

impl Missing {
    pub(super) fn lost(&mut self, lost: &Lost) {
        match (lost.count, lost.packets) {
            (Some(count), true) => self.packets = self.packets.saturating_add(count),
            (Some(count), false) => self.events = self.events.saturating_add(count),
            (None, _) => self.uncounted = true,
        }
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Missing::default()
    }
}
