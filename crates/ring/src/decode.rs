// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records to events. Each kind's fields, and where they lie in its record, are in the table in `event/src/table.rs`;
//! `EventKind::from_record` is made of it. A record that is `None` is counted by the caller.

use crate::Frame;
use rtscope_event::{CpuId, Event, EventKind, MonotonicNs};

/// The event of a record; `None` for unknown kinds, and for records that are too short for their kind.
#[inline]
#[must_use]
pub fn decode(cpu: CpuId, frame: &Frame<'_>) -> Option<Event> {
    let kind = EventKind::from_record(frame.kind, frame.flags, frame.words())?;
    Some(Event { time: MonotonicNs(frame.time_ns), cpu, kind })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
