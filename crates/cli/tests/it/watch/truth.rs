// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a tracker found of what was done to its target, for the table at the end of `./x test` and of `./x vm`.

use rtscope_event::Tracker;
use serde_json::json;

/// The counts of one test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    /// Delays beyond the limit, by the clock of the program that was delayed.
    pub(super) injected: usize,
    /// Those of them that were reported.
    pub(super) found: usize,
    /// Reported, and nothing of it was injected.
    pub(super) invented: usize,
    /// Switches that this host keeps from eBPF.
    pub(super) hidden: u64,
}

impl Truth {
    /// Prints a row. `fault`: what was done.
    pub(super) fn tell(self, tracker: Tracker, fault: &str) {
        let Truth { injected, found, invented, hidden } = self;
        let of = format!("{}: {fault}", tracker.name());
        let row = json!({ "tracker and fault": of, "injected": injected, "found": found, "false": invented, "hidden": hidden });
        println!("TRUTH: {row}");
    }
}
