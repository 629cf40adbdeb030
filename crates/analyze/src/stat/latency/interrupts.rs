// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts from the beginning to the end of their handlers; softirqs from their raise to their beginning, and from there to their end.
//!
//! What nests in one is part of its time; time in which the thread of a softirq did not run is not (`nesting`). The task is the one that was
//! interrupted, or the thread in which a softirq ran.

use super::super::happening::{Happening, Happenings};
use super::super::nesting::{Handled, Interruptions, Key, Kind, Nesting};
use super::super::{Missing, Span};
use super::collected::{Asked, Collected, Found, LatencyFilter};
use super::threads::Thread;
use super::{Head, LatencyReport, Measure, Seen};
use rtscope_event::{CpuId, EventKind, softirq_name, step_vector_name};
use std::collections::BTreeMap;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Irq,
    Softirq,
}

/// Vectors have rows behind those of devices' interrupts, which have 32 bits.
const VECTORS: u64 = 1 << 32;

#[derive(Clone, Debug)]
pub(super) struct Interrupts {
    nesting: Nesting,
    found: Kept,
    names: BTreeMap<u64, String>,
}

/// What is kept of what [`Nesting`] says.
#[derive(Clone, Debug)]
struct Kept {
    which: Which,
    handled: Collected,
    waits: Collected,
    /// Of the event that is being looked at.
    now_ns: i64,
    thread: Option<Thread>,
    asked: Asked,
}

impl Interrupts {
    pub(super) fn new(which: Which, filter: &LatencyFilter) -> Interrupts {
        let collected = || Collected::new(filter);
        let found = Kept {
            which,
            handled: collected(),
            waits: collected(),
            now_ns: 0,
            thread: None,
            asked: Asked::default(),
        };
        Interrupts { nesting: Nesting::default(), found, names: BTreeMap::new() }
    }
}

impl Kept {
    fn row(&self, (kind, number): Key) -> Option<u64> {
        match (self.which, kind) {
            (Which::Irq, Kind::Irq) | (Which::Softirq, Kind::Softirq) => Some(number),
            (Which::Irq, Kind::Vector) => Some(VECTORS + number),
            _ => None,
        }
    }

    fn found(&self, row: u64, since_ns: i64, cpu: CpuId) -> Found {
        Found {
            row: Some(row),
            since_ns,
            until_ns: self.now_ns,
            thread: self.thread,
            cpu: Some(cpu),
            asked: self.asked,
        }
    }
}

impl Interruptions for Kept {
    fn begun(&mut self, _: Key, _: CpuId) {}

    fn ended(&mut self, key: Key, cpu: CpuId, handled: Handled) {
        if let Some(row) = self.row(key) {
            self.handled.add(self.found(row, handled.since_ns, cpu));
        }
    }

    fn without_end(&mut self, key: Key, cpu: CpuId, _: bool) {
        if let Some(row) = self.row(key) {
            self.handled.no_end(&self.found(row, self.now_ns, cpu));
        }
    }

    fn waited(&mut self, key: Key, cpu: CpuId, raised_ns: i64, _: i64) {
        if let Some(row) = self.row(key) {
            self.waits.add(self.found(row, raised_ns, cpu));
        }
    }
}

impl Measure for Interrupts {
    fn event(&mut self, seen: &Seen<'_>) {
        let (Some(Happening::Kernel(kind, names)), Some(cpu)) = (seen.happening, seen.event.cpu) else {
            return;
        };
        if let (EventKind::IrqHandlerEntry { irq }, Some((_, name))) = (kind, &names.irq) {
            self.names.entry(irq.0.into()).or_insert_with(|| name.clone());
        }
        self.found.now_ns = seen.event.time_ns;
        self.found.thread = seen.thread;
        self.found.asked = seen.asked;
        self.nesting.event(seen.event.time_ns, cpu, kind, &mut self.found);
    }

    fn lost(&mut self, cpu: Option<CpuId>, of_program: bool) {
        if !of_program {
            self.nesting.forget(cpu);
        }
    }

    fn reports(mut self: Box<Self>, _: &Happenings, of: (Span, &Missing)) -> Vec<LatencyReport> {
        for (key, cpu) in self.nesting.open() {
            self.found.without_end(key, cpu, false);
        }
        let name = |row: u64| {
            let number = |row: u64| u32::try_from(row).unwrap_or(u32::MAX);
            match (self.found.which, row.checked_sub(VECTORS)) {
                (Which::Softirq, _) => (row, softirq_name(number(row)).to_owned()),
                (Which::Irq, Some(vector)) => (vector, step_vector_name(number(vector)).to_owned()),
                (Which::Irq, None) => match self.names.get(&row) {
                    Some(name) => (row, format!("irq {row} {name}")),
                    None => (row, format!("irq {row}")),
                },
            }
        };
        let handled = self.found.handled.report(0, &name);
        let head = match self.found.which {
            Which::Irq => Head::new("irq", "irq_handler_entry", "irq_handler_exit", "interrupt"),
            Which::Softirq => Head::new("softirq", "irq_softirq_entry", "irq_softirq_exit", "softirq"),
        };
        let head = Head { tasks_are: "interrupted task", ..head };
        let handled = head.report(handled, of);
        if self.found.which == Which::Irq {
            return vec![handled];
        }
        let waits = self.found.waits.report(0, &name);
        let head = Head::new("softirq", "irq_softirq_raise", "irq_softirq_entry", "softirq");
        let head = Head { tasks_are: "interrupted task", ..head };
        vec![head.report(waits, of), handled]
    }

    fn boxed(&self) -> Box<dyn Measure> {
        Box::new(self.clone())
    }
}
