// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted of intervals.

use rtscope_analyze::histogram::Histogram;
use rtscope_analyze::summary::{SpanThreadSummary, SpanUserLosses, UnmatchedEvents};

/// All of a watch.
#[derive(Clone, Debug, Default)]
pub struct SpanCounts {
    /// Intervals.
    pub seen: u64,
    /// Of them, those that took too long.
    pub late: u64,
    /// Their lengths.
    pub lengths: Histogram,
    /// From the second event to the look that saw it.
    pub noticed: Histogram,
    /// Events that have no counterpart.
    pub unmatched: UnmatchedEvents,
    /// Of each thread, those with most late ones first once they are a summary.
    pub threads: Vec<SpanThreadSummary>,
    /// What was left out, by user.
    pub users: Vec<SpanUserLosses>,
}

impl SpanCounts {
    /// An interval.
    pub fn add(&mut self, length_ns: u64, is_late: bool, noticed_after_ns: u64) {
        self.seen += 1;
        self.late += u64::from(is_late);
        self.lengths.record(length_ns);
        self.noticed.record(noticed_after_ns);
    }

    /// What all users have of something that was left out.
    pub fn sum(&self, of: fn(&SpanUserLosses) -> u64) -> u64 {
        self.users.iter().map(of).sum()
    }
}
