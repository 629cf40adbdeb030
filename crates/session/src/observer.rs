// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an engine says while it runs.

use crate::record::{RecordProgress, RecordStart, RecordedTrace};
use std::path::Path;

/// Hears what an engine says, from any of its threads. The engine waits meanwhile: write, and return. Names of others in texts are as
/// they were found; whoever shows them on a terminal cleans them.
pub trait Observer: Send + Sync {
    /// A remark for people: a sentence, without the program's name before it.
    fn note(&self, text: &str);

    /// A recording records.
    fn recording(&self, _start: &RecordStart<'_>) {}

    /// So many programs that run record into their memory.
    fn flight_recording(&self, _programs: u32, _target: &Path) {}

    /// It goes on: a few times each second.
    fn progress(&self, _progress: &RecordProgress) {}

    /// It does not any more; what was shown of its progress is out of date.
    fn end_of_progress(&self) {}

    /// A trace is being made of it: so much of so much.
    fn converting(&self, _done: u64, _total: u64) {}

    /// A trace is complete.
    fn recorded(&self, _trace: &RecordedTrace<'_>) {}
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Observer for Ignore {
    fn note(&self, _: &str) {}
}
