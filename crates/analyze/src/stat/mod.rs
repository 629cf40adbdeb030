// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of a whole trace, whatever its size: where each task's time went, what interrupts and system calls took.
//!
//! Each is an incremental [`crate::analysis::Analysis`]; what they keep grows with the number of tasks, interrupts and system calls
//! that occur, not with the number of events. They begin with what the trace tells of its beginning (the state dump) and take nothing for granted:
//! time before the first fact about a task, and after a loss, belongs to nobody.

mod calls;
mod happening;
pub mod irqs;
pub mod latency;
mod missing;
mod nesting;
pub mod tasks;
#[cfg(test)]
mod tests;

pub use calls::{CallReport, SyscallsReport};
pub use irqs::{IrqRow, Irqs, IrqsReport};
pub use latency::{Latencies, LatencyReport};
pub use missing::Missing;
pub use tasks::{Blocked, TaskReport, Tasks, TasksReport};

use serde::Serialize;

/// A number of intervals of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Intervals {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// When the longest ended (as the times of events); `None` when there was none.
    pub longest_at_ns: Option<i64>,
}

impl Intervals {
    /// Adds one; returns its length.
    fn add(&mut self, since_ns: i64, until_ns: i64) -> u64 {
        let length_ns = u64::try_from(until_ns.saturating_sub(since_ns)).unwrap_or(0);
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(length_ns);
        if length_ns > self.longest_ns || self.longest_at_ns.is_none() {
            (self.longest_ns, self.longest_at_ns) = (length_ns, Some(until_ns));
        }
        length_ns
    }

    fn merge(&mut self, other: &Intervals) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        if other.longest_ns > self.longest_ns || self.longest_at_ns.is_none() {
            (self.longest_ns, self.longest_at_ns) = (other.longest_ns, other.longest_at_ns);
        }
    }
}

/// From the first to the last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The first event's time; `None` without events.
    pub first_ns: Option<i64>,
    /// The last event's.
    pub last_ns: Option<i64>,
}

impl Span {
    fn at(&mut self, time_ns: i64) {
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = Some(time_ns);
    }

    /// How long it is.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        let length = self.first_ns.zip(self.last_ns).map(|(first, last)| last.saturating_sub(first));
        length.and_then(|length| u64::try_from(length).ok()).unwrap_or(0)
    }
}
