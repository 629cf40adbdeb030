// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bounded piece of recorded history: what a snapshot holds and what analyses work on.

use crate::{CpuId, Event, MonotonicNs, Names};
use serde::{Deserialize, Serialize};

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// The kernel skipped a tracepoint program because the same program was already running on that CPU.
    RecursionMiss,
    /// The record's writer had been interrupted and had not finished when the bank was copied.
    Unfinished,
    /// A CPU's switches do not follow each other: the task that left is not the one that came before. Something kept the tracepoints from firing
    /// (or the programs from running) there, and counted nothing. The count is that of the gaps, not of the events.
    Gap,
    /// The bytes were not a record; the reader went on at the next known one.
    Unreadable,
    /// The record was overwritten while it was copied.
    Overwritten,
    /// The tracer that wrote the trace counted them as discarded and did not say why.
    Discarded,
    /// The report of a late response found its ring full.
    ReportRingFull,
    /// The recorder's buffer was full when the event came: the reader was too slow, or the buffer too small.
    BufferFull,
    /// The kernel's tracer overwrote the event before anybody had read it.
    Overrun,
    /// A thread of an instrumented program had no buffer: it could not be made, or was being made.
    NoBuffer,
    /// The event was larger than a record can be.
    TooLarge,
    /// An instrumented program described the event in a way that no trace can have. Nobody counts such events: the collector switches them off.
    Undescribed,
    /// The kernel's side had no place to follow something: its table was full.
    TableFull,
    /// What the kernel's side followed could not be taken up again: another CPU held its entry in the table.
    EntryBusy,
    /// Files of instrumented programs were refused, or a program was dropped because of one. Nobody knows what they would have recorded.
    Refused,
}

/// A number of lost events of one cause. `cpu` is `None` where the kernel does not say which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The CPU, where known.
    pub cpu: Option<CpuId>,
    /// Why.
    pub cause: LossCause,
    /// How many; `None` when that could not be read. Never 0 in place of unknown.
    pub count: Option<u64>,
}

/// What one CPU's banks really held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuHistory {
    /// The CPU.
    pub cpu: CpuId,
    /// From this time on nothing was overwritten; `None` when the CPU recorded nothing at all.
    pub complete_since: Option<MonotonicNs>,
    /// Number of events in the recording.
    pub events: u64,
}

/// Events of all CPUs in time order, with the names that go with them and a summary of what is missing.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In time order; events with the same time are ordered by CPU.
    pub events: Vec<Event>,
    /// Names of tasks and interrupts.
    pub names: Names,
    /// What is missing, by cause.
    pub losses: Vec<Loss>,
    /// Per CPU, how far back the events go.
    pub history: Vec<CpuHistory>,
}

impl Recording {
    /// Drops what happened before `time`.
    pub fn cut_before(&mut self, time: MonotonicNs) {
        let first = self.events.partition_point(|event| event.time < time);
        self.events.drain(..first);
        for history in &mut self.history {
            history.events = self.events.iter().filter(|event| event.cpu == history.cpu).count() as u64;
        }
    }

    /// Whether everything that happened on `cpu` since `time` is in the recording, as far as overwriting goes.
    #[must_use]
    pub fn covers(&self, cpu: CpuId, time: MonotonicNs) -> bool {
        self.history
            .iter()
            .find(|history| history.cpu == cpu)
            .is_some_and(|history| history.complete_since.is_none_or(|since| since <= time))
    }
}
