// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each CPU did when: contexts flattened to segments, each net of what nested inside it.
//!
//! A CPU is in exactly one [`Activity`] at a time, the innermost: an interrupt that hits a softirq that hits a thread
//! counts for the interrupt. Segments tile the time that the recording covers; outside it, and where an event must have
//! been lost, the activity is [`Activity::Unknown`], never a guess.

mod build;

use build::Builder;
use rtscope_event::{CpuId, EventKind, Irq, MonotonicNs, Priority, Recording, Tid, VectorKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a CPU was in, innermost context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A non-maskable interrupt. Known by its end and duration only.
    Nmi,
    /// A device interrupt's handler.
    Irq(Irq),
    /// A system vector.
    Vector(VectorKind),
    /// A softirq, wherever it ran.
    Softirq(u32),
    /// A thread itself.
    Thread(Tid),
    /// The idle thread.
    Idle,
    /// Not recorded, or an event must have been lost.
    Unknown,
}

/// A piece of one CPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Where it begins.
    pub from: MonotonicNs,
    /// Where the next begins.
    pub to: MonotonicNs,
    /// The innermost context.
    pub what: Activity,
    /// The thread below it (0: idle), when known.
    pub thread: Option<Tid>,
}

impl Segment {
    /// How long it took.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.to.since(self.from)
    }
}

/// The segments of all CPUs of a recording.
#[derive(Clone, Debug)]
pub struct Timeline {
    cpus: BTreeMap<CpuId, Vec<Segment>>,
    /// Priorities by thread and the time from which each was seen.
    priorities: BTreeMap<(Tid, MonotonicNs), Priority>,
}

impl Timeline {
    /// Flattens a recording. Events of a CPU from before its history is complete are left out.
    #[must_use]
    pub fn new(recording: &Recording) -> Timeline {
        let mut builders: BTreeMap<CpuId, Builder> = BTreeMap::new();
        for history in &recording.history {
            if let Some(since) = history.complete_since {
                builders.insert(history.cpu, Builder::new(since));
            }
        }
        let mut priorities = Priorities::default();
        for event in &recording.events {
            priorities.observe(event.time, &event.kind);
            if let Some(builder) = builders.get_mut(&event.cpu) {
                builder.feed(event);
            }
        }
        // The banks of all CPUs stop together, so a CPU without late events did nothing that would have made one.
        let end = recording.events.last().map_or(MonotonicNs(0), |event| event.time);
        let cpus = builders.into_iter().map(|(cpu, builder)| (cpu, builder.finish(end))).collect();
        Timeline { cpus, priorities: priorities.by_time }
    }

    /// What `cpu` did between two times. The segments tile the interval: no gap, no overlap.
    #[must_use]
    pub fn slice(&self, cpu: CpuId, from: MonotonicNs, to: MonotonicNs) -> Vec<Segment> {
        let known = self.cpus.get(&cpu).map_or(&[][..], Vec::as_slice);
        let first = known.partition_point(|segment| segment.to <= from);
        let unknown = |from, to| Segment { from, to, what: Activity::Unknown, thread: None };
        let mut result = Vec::new();
        let mut at = from;
        for segment in known[first..].iter().take_while(|segment| segment.from < to) {
            if segment.from > at {
                result.push(unknown(at, segment.from));
            }
            let clipped = Segment { from: segment.from.max(from), to: segment.to.min(to), ..*segment };
            at = clipped.to;
            result.push(clipped);
        }
        if at < to {
            result.push(unknown(at, to));
        }
        result
    }

    /// The segment of `cpu` that holds `time`, or the one that ended right there when it is the last.
    #[must_use]
    pub fn at(&self, cpu: CpuId, time: MonotonicNs) -> Option<&Segment> {
        let known = self.cpus.get(&cpu)?;
        known.get(known.partition_point(|segment| segment.to <= time)).filter(|segment| segment.from <= time)
    }

    /// The CPUs that the recording covers.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> {
        self.cpus.keys().copied()
    }

    /// The effective priority of a thread at a time: the last that an event reported, else the first one reported later.
    #[must_use]
    pub fn priority(&self, tid: Tid, time: MonotonicNs) -> Option<Priority> {
        let before = self.priorities.range((tid, MonotonicNs(0))..=(tid, time)).next_back();
        let after = || self.priorities.range((tid, time)..=(tid, MonotonicNs(u64::MAX))).next();
        before.or_else(after).map(|(_, priority)| *priority)
    }
}

/// Collects priorities, one entry a change.
#[derive(Default)]
struct Priorities {
    by_time: BTreeMap<(Tid, MonotonicNs), Priority>,
    last: BTreeMap<Tid, Priority>,
}

impl Priorities {
    fn observe(&mut self, time: MonotonicNs, kind: &EventKind) {
        match kind {
            EventKind::SchedSwitch { prev_tid, prev_prio, next_tid, next_prio, .. } => {
                self.note(*prev_tid, time, *prev_prio);
                self.note(*next_tid, time, *next_prio);
            }
            EventKind::SchedWaking { tid, prio, .. }
            | EventKind::SchedWakeupNew { tid, prio, .. }
            | EventKind::SchedMigrateTask { tid, prio, .. } => self.note(*tid, time, *prio),
            EventKind::SchedPiSetprio { tid, old_prio, new_prio } => {
                if !self.last.contains_key(tid) {
                    self.note(*tid, MonotonicNs(0), *old_prio);
                }
                self.note(*tid, time, *new_prio);
            }
            _ => {}
        }
    }

    fn note(&mut self, tid: Tid, time: MonotonicNs, priority: Priority) {
        if tid != Tid(0) && self.last.insert(tid, priority) != Some(priority) {
            self.by_time.insert((tid, time), priority);
        }
    }
}

#[cfg(test)]
mod tests;
