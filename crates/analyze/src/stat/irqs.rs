// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What interrupts, softirqs and timers took: how often, how long, and how long softirqs waited after they had been raised.

use super::happening::{Happening, Happenings};
pub use super::nesting::Kind;
use super::nesting::{Handled, Interruptions, Key, Nesting};
use super::{Intervals, Missing, Span};
use crate::analysis::Analysis;
use crate::histogram::{Histogram, Percentile};
use rtscope_event::{CpuId, EventClass, EventKind, EventRef, KernelView, Lost, softirq_name};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

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

/// The analysis.
#[derive(Clone, Debug, Default)]
pub struct Irqs {
    happenings: Happenings,
    /// What happens before this moment does not count.
    counts_since_ns: Option<i64>,
    span: Span,
    nesting: Nesting,
    counted: Counted,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
struct Counted {
    figures: BTreeMap<Key, Figures>,
    missing: Missing,
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
        self.nesting.event(event.time_ns, cpu, &kind, &mut self.counted);
        if let (EventKind::IrqHandlerEntry { irq }, Some((_, name))) = (&kind, names.irq) {
            self.counted.figures((Kind::Irq, irq.0.into()), cpu).name = Some(name);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        if self.counts_since_ns.zip(lost.until_ns).is_some_and(|(since_ns, until_ns)| until_ns < since_ns) {
            return;
        }
        self.counted.missing.lost(lost);
        self.nesting.forget(lost.cpu);
    }

    fn finish(mut self) -> IrqsReport {
        for (key, cpu) in self.nesting.open() {
            self.counted.without_end(key, cpu, false);
        }
        let mut rows: Vec<IrqRow> = self.counted.figures.iter().map(row).collect();
        rows.sort_by_key(|row| (row.kind, Reverse(row.own_ns), row.id));
        IrqsReport { span: self.span, rows, missing: self.counted.missing }
    }
}

impl Irqs {
    /// Of what happens at this moment and later, where that is given.
    #[must_use]
    pub fn since(counts_since_ns: Option<i64>) -> Irqs {
        Irqs { counts_since_ns, ..Irqs::default() }
    }
}

impl Counted {
    fn figures(&mut self, key: Key, cpu: CpuId) -> &mut Figures {
        let figures = self.figures.entry(key).or_default();
        figures.cpus.entry(cpu).or_default();
        figures
    }
}

impl Interruptions for Counted {
    fn begun(&mut self, key: Key, cpu: CpuId) {
        *self.figures(key, cpu).cpus.entry(cpu).or_default() += 1;
    }

    fn ended(&mut self, key: Key, cpu: CpuId, handled: Handled) {
        let figures = self.figures(key, cpu);
        let length_ns = figures.whole.add(handled.since_ns, handled.until_ns);
        figures.lengths.record(length_ns);
        figures.own_ns = figures.own_ns.saturating_add(length_ns.saturating_sub(handled.nested_ns));
    }

    fn without_end(&mut self, key: Key, cpu: CpuId, contradicts: bool) {
        self.missing.contradictions += u64::from(contradicts);
        self.figures(key, cpu).without_end += 1;
    }

    fn waited(&mut self, key: Key, cpu: CpuId, raised_ns: i64, now_ns: i64) {
        let figures = self.figures(key, cpu);
        let length_ns = figures.waits.add(raised_ns, now_ns);
        figures.wait_lengths.record(length_ns);
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
