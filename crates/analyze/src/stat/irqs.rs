// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What interrupts, softirqs and timers took: how often, how long, and how long softirqs waited after they had been raised.
//!
//! They nest on a CPU as calls do, so each CPU has a stack of those that have begun. Where softirqs run in threads (PREEMPT_RT, `ksoftirqd`)
//! the thread may be preempted in one: its part of the stack leaves the CPU with it and comes back with it, and the time between is
//! not the softirq's. A second raise before the entry is the same softirq, so its wait counts from the first.

use super::happening::{Happening, Happenings};
use super::{Intervals, Missing, Span};
use crate::analysis::Analysis;
use crate::histogram::{Histogram, Percentile};
use rtscope_event::{
    CpuId, EventClass, EventKind, EventRef, FoundNames, Irq, KernelView, Lost, softirq_name,
};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// What interrupts a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A device's interrupt.
    Irq,
    /// A system vector.
    Vector,
    /// A softirq.
    Softirq,
    /// A timer's function.
    Hrtimer,
    /// A handler of a non-maskable interrupt.
    Nmi,
}

/// Kind and number. Vectors have the number of their kind, timers' functions and NMI handlers their address.
type Key = (Kind, u64);

/// One that has begun.
#[derive(Clone, Copy, Debug)]
struct Frame {
    key: Key,
    since_ns: i64,
    /// Of which not its own: others on top of it.
    nested_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    stack: Vec<Frame>,
    /// By softirq: raised since.
    raised: BTreeMap<u32, i64>,
}

#[derive(Clone, Debug, Default)]
struct Figures {
    name: Option<String>,
    whole: Intervals,
    own_ns: u64,
    lengths: Histogram,
    waits: Intervals,
    wait_lengths: Histogram,
    cpus: BTreeMap<CpuId, u64>,
    without_end: u64,
}

/// Threads that were switched out within a softirq, at most.
const MAX_SUSPENDED: usize = 10_000;

/// Interrupts that have begun on a CPU, at most.
const MAX_NESTED: usize = 32;

/// The analysis.
#[derive(Clone, Debug, Default)]
pub struct Irqs {
    happenings: Happenings,
    /// What happens before this moment does not count.
    counts_since_ns: Option<i64>,
    span: Span,
    missing: Missing,
    cpus: BTreeMap<CpuId, Cpu>,
    /// By thread: its softirqs, and when it left its CPU.
    suspended: HashMap<u32, (Vec<Frame>, i64)>,
    figures: BTreeMap<Key, Figures>,
}

impl Analysis for Irqs {
    type Report = IrqsReport;

    fn wants(&self, class: &EventClass) -> bool {
        KernelView::of(class).is_some()
    }

    fn event(&mut self, event: &EventRef<'_>) {
        // Names may be told before.
        let happening = self.happenings.of(event);
        if self.counts_since_ns.is_some_and(|since_ns| event.time_ns < since_ns) {
            return;
        }
        self.span.at(event.time_ns);
        let Some(Happening::Kernel(kind, names)) = happening else { return };
        let Some(cpu) = event.cpu else { return };
        self.kernel(event.time_ns, cpu, &kind, names);
    }

    fn lost(&mut self, lost: &Lost) {
        if self.counts_since_ns.zip(lost.until_ns).is_some_and(|(since_ns, until_ns)| until_ns < since_ns) {
            return;
        }
        self.missing.lost(lost);
        for (cpu, state) in &mut self.cpus {
            if lost.cpu.is_none_or(|lost| lost == *cpu) {
                *state = Cpu::default();
            }
        }
        self.suspended.clear();
    }

    fn finish(mut self) -> IrqsReport {
        for (cpu, state) in std::mem::take(&mut self.cpus) {
            for frame in state.stack {
                self.figures(frame.key, cpu).without_end += 1;
            }
        }
        let mut rows: Vec<IrqRow> = self.figures.iter().map(row).collect();
        rows.sort_by_key(|row| (row.kind, Reverse(row.own_ns), row.id));
        IrqsReport { span: self.span, rows, missing: self.missing }
    }
}

impl Irqs {
    /// Of what happens at this moment and later, where that is given.
    #[must_use]
    pub fn since(counts_since_ns: Option<i64>) -> Irqs {
        Irqs { counts_since_ns, ..Irqs::default() }
    }

    fn figures(&mut self, key: Key, cpu: CpuId) -> &mut Figures {
        let figures = self.figures.entry(key).or_default();
        figures.cpus.entry(cpu).or_default();
        figures
    }

    fn kernel(&mut self, now_ns: i64, cpu: CpuId, kind: &EventKind, names: FoundNames) {
        match kind {
            EventKind::IrqHandlerEntry { irq } => {
                let key = (Kind::Irq, irq.0.into());
                self.enter(now_ns, cpu, key);
                if let Some((Irq(_), name)) = names.irq {
                    self.figures(key, cpu).name = Some(name);
                }
            }
            EventKind::IrqHandlerExit { irq, .. } => self.exit(now_ns, cpu, (Kind::Irq, irq.0.into())),
            EventKind::VectorEntry { kind, .. } => {
                self.enter(now_ns, cpu, (Kind::Vector, kind.number().into()));
            }
            EventKind::VectorExit { kind, .. } => {
                self.exit(now_ns, cpu, (Kind::Vector, kind.number().into()));
            }
            EventKind::SoftirqRaise { vec } => {
                self.cpus.entry(cpu).or_default().raised.entry(*vec).or_insert(now_ns);
            }
            EventKind::SoftirqEntry { vec } => {
                let key = (Kind::Softirq, (*vec).into());
                let raised = self.cpus.entry(cpu).or_default().raised.remove(vec);
                if let Some(since_ns) = raised {
                    let figures = self.figures(key, cpu);
                    let length_ns = figures.waits.add(since_ns, now_ns);
                    figures.wait_lengths.record(length_ns);
                }
                self.enter(now_ns, cpu, key);
            }
            EventKind::SoftirqExit { vec } => self.exit(now_ns, cpu, (Kind::Softirq, (*vec).into())),
            EventKind::HrtimerExpireEntry { function, .. } => {
                self.enter(now_ns, cpu, (Kind::Hrtimer, *function));
            }
            EventKind::HrtimerExpireExit { .. } => {
                // It does not say which function; timers do not nest in each other.
                let stack = self.cpus.get(&cpu).map(|state| state.stack.as_slice()).unwrap_or_default();
                let open = stack.iter().rev().find(|frame| frame.key.0 == Kind::Hrtimer);
                if let Some(key) = open.map(|frame| frame.key) {
                    self.exit(now_ns, cpu, key);
                }
            }
            EventKind::NmiHandler { handler, duration_ns, .. } => {
                let key = (Kind::Nmi, *handler);
                self.enter(now_ns.saturating_sub(*duration_ns), cpu, key);
                self.exit(now_ns, cpu, key);
            }
            EventKind::SchedSwitch { prev_tid, next_tid, .. } => {
                self.switch(now_ns, cpu, prev_tid.0, next_tid.0);
            }
            _ => {}
        }
    }

    fn enter(&mut self, now_ns: i64, cpu: CpuId, key: Key) {
        *self.figures(key, cpu).cpus.entry(cpu).or_default() += 1;
        let stack = &mut self.cpus.entry(cpu).or_default().stack;
        if stack.len() >= MAX_NESTED {
            // So many do not nest: ends are not recorded.
            let oldest = stack.remove(0).key;
            self.figures(oldest, cpu).without_end += 1;
        }
        let stack = &mut self.cpus.entry(cpu).or_default().stack;
        stack.push(Frame { key, since_ns: now_ns, nested_ns: 0 });
    }

    fn exit(&mut self, now_ns: i64, cpu: CpuId, key: Key) {
        let stack = &mut self.cpus.entry(cpu).or_default().stack;
        // Without a beginning: it was before the recording, or is missing.
        let Some(place) = stack.iter().rposition(|frame| frame.key == key) else { return };
        // What lies on top did not end: its end is missing.
        let lost: Vec<Frame> = stack.drain(place + 1..).collect();
        let Some(frame) = stack.pop() else { return };
        let length_ns = u64::try_from(now_ns.saturating_sub(frame.since_ns)).unwrap_or(0);
        if let Some(below) = stack.last_mut() {
            below.nested_ns = below.nested_ns.saturating_add(length_ns);
        }
        for frame in lost {
            self.missing.contradictions += 1;
            self.figures(frame.key, cpu).without_end += 1;
        }
        let figures = self.figures(key, cpu);
        figures.whole.add(frame.since_ns, now_ns);
        figures.lengths.record(length_ns);
        figures.own_ns = figures.own_ns.saturating_add(length_ns.saturating_sub(frame.nested_ns));
    }

    fn switch(&mut self, now_ns: i64, cpu: CpuId, prev: u32, next: u32) {
        let stack = std::mem::take(&mut self.cpus.entry(cpu).or_default().stack);
        // Idle threads have one number on all CPUs, and run no softirqs when they leave.
        if prev != 0 && !stack.is_empty() && self.suspended.len() < MAX_SUSPENDED {
            self.suspended.insert(prev, (stack, now_ns));
        }
        let Some((mut frames, since_ns)) = self.suspended.remove(&next) else { return };
        let away_ns = now_ns.saturating_sub(since_ns);
        for frame in &mut frames {
            frame.since_ns = frame.since_ns.saturating_add(away_ns);
        }
        self.cpus.entry(cpu).or_default().stack = frames;
    }
}

/// An interrupt, a softirq, a timer's function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IrqRow {
    /// What it is.
    pub kind: Kind,
    /// Its number; the address of a timer's function or of an NMI handler.
    pub id: u64,
    /// Its name, where known.
    pub name: Option<String>,
    /// From beginning to end, with what nested in it.
    #[serde(flatten)]
    pub whole: Intervals,
    /// Sum without what nested in it.
    pub own_ns: u64,
    /// Of the whole lengths.
    pub percentiles: Vec<Percentile>,
    /// From a softirq's first raise to its beginning; `None` for others.
    pub wait: Option<Intervals>,
    /// Of these waits.
    pub wait_percentiles: Vec<Percentile>,
    /// How often it began on each CPU.
    pub cpus: BTreeMap<CpuId, u64>,
    /// How often its end is not recorded.
    pub without_end: u64,
}

/// What interrupts took; of each kind the longest in sum first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IrqsReport {
    /// When.
    pub span: Span,
    /// By interrupt.
    pub rows: Vec<IrqRow>,
    /// What is missing.
    pub missing: Missing,
}

fn row(((kind, id), figures): (&Key, &Figures)) -> IrqRow {
    let number = u32::try_from(*id).ok();
    let name = match kind {
        Kind::Irq => figures.name.clone(),
        Kind::Softirq => number.map(|vec| softirq_name(vec).to_owned()),
        Kind::Vector => number.map(|number| rtscope_event::step_vector_name(number).to_owned()),
        Kind::Hrtimer | Kind::Nmi => None,
    };
    let percentiles =
        |histogram: &Histogram| histogram.statistics().map(|all| all.percentiles).unwrap_or_default();
    IrqRow {
        kind: *kind,
        id: *id,
        name,
        whole: figures.whole,
        own_ns: figures.own_ns,
        percentiles: percentiles(&figures.lengths),
        wait: (*kind == Kind::Softirq).then_some(figures.waits),
        wait_percentiles: percentiles(&figures.wait_lengths),
        cpus: figures.cpus.clone(),
        without_end: figures.without_end,
    }
}
