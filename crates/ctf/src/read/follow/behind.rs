// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording whose writer is behind: where no CPU is idle, the kernel's events come to its trace long after they happened.
//!
//! All that is there is before the horizon then, and one CPU's events would be given out as soon as they come, so that another's, written a moment
//! later, are late by all of that moment. So a stream that has been read to its end, and was written to within the delay, is waited for: for the delay
//! since it brought events. One that nobody has written to for so long is not (an old one that is read for the first time), and none is while the newest
//! event comes in time: what is late then is of that stream alone.

use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

/// Whether the writer is behind.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// How long a stream may take to grow.
    pub patience: Duration,
    is_behind: bool,
}

impl Behind {
    /// An event has come that is newer than all others.
    pub fn newest_came(&mut self, is_late: bool) {
        self.is_behind = is_late;
    }

    /// Whether others wait for a stream that has been read to its end. `grown`: when it brought events.
    pub fn waits_for(&self, file: &File, grown: Option<Instant>) -> bool {
        if !self.is_behind || grown.is_none_or(|grown| grown.elapsed() >= self.patience) {
            return false;
        }
        // One whose time is in the future, since a clock was set, has just been written.
        let age = |written: SystemTime| SystemTime::now().duration_since(written).unwrap_or_default();
        let written = || file.metadata().and_then(|metadata| metadata.modified());
        written().is_ok_and(|written| age(written) < self.patience)
    }
}
