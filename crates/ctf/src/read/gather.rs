// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes one recording from the streams of a trace.

use super::class::{ClockClass, TraceClass};
use super::recording::Trace;
use crate::TraceInfo;
use crate::private_env;
use rtscope_event::{
    Comm, CpuHistory, CpuId, Event, Irq, Loss, LossCause, MonotonicNs, Names, Recording, TaskInfo, Tid,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// More warnings than this are only counted: a damaged file may have one per packet.
const MAX_WARNINGS: usize = 50;

/// Collects, stream by stream.
#[derive(Default)]
pub(super) struct RecordingBuilder {
    events: Vec<Event>,
    /// Names that events have in addition to a tid.
    names: Vec<(MonotonicNs, Tid, Comm)>,
    tasks: Vec<TaskInfo>,
    irqs: BTreeMap<Irq, String>,
    begins: BTreeMap<CpuId, MonotonicNs>,
    discarded: BTreeMap<CpuId, u64>,
    damaged: BTreeSet<Option<CpuId>>,
    /// By index of the event class.
    skipped: BTreeMap<usize, u64>,
    malformed: BTreeMap<usize, u64>,
    warnings: Vec<String>,
    more_warnings: u64,
}

impl RecordingBuilder {
    pub(super) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn name(&mut self, time: MonotonicNs, tid: Tid, comm: Comm) {
        self.names.push((time, tid, comm));
    }

    pub(super) fn task(&mut self, task: TaskInfo) {
        self.tasks.push(task);
    }

    pub(super) fn irq(&mut self, irq: Irq, name: String) {
        self.irqs.entry(irq).or_insert(name);
    }

    /// A packet begins.
    pub(super) fn begins(&mut self, cpu: CpuId, time: MonotonicNs) {
        let begin = self.begins.entry(cpu).or_insert(time);
        *begin = time.min(*begin);
    }

    /// The last value of a stream's counter of discarded events.
    pub(super) fn discarded(&mut self, cpu: Option<CpuId>, count: u64) {
        if let (Some(cpu), 1..) = (cpu, count) {
            let sum = self.discarded.entry(cpu).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Part of a stream could not be read.
    pub(super) fn damage(&mut self, cpu: Option<CpuId>, what: String) {
        self.damaged.insert(cpu);
        self.warn(what);
    }

    fn warn(&mut self, what: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(what);
        } else {
            self.more_warnings += 1;
        }
    }

    /// An event that rtscope does not use.
    pub(super) fn skipped(&mut self, class: usize) {
        *self.skipped.entry(class).or_default() += 1;
    }

    /// An event with a known name and invalid fields.
    pub(super) fn malformed(&mut self, class: usize) {
        *self.malformed.entry(class).or_default() += 1;
    }

    /// Merges the streams and settles names, losses and history.
    pub(super) fn finish(mut self, trace: &TraceClass) -> Trace {
        // Stable: events of one CPU with equal times keep their order.
        self.events.sort_by_key(|event| (event.time, event.cpu));
        let class_name = |class: &usize| trace.events.get(*class).map_or("?", |class| class.name.as_str());
        let mut skipped = BTreeMap::new();
        for (class, count) in &self.skipped {
            *skipped.entry(class_name(class).to_owned()).or_default() += count;
        }
        for (class, count) in std::mem::take(&mut self.malformed) {
            let name = class_name(&class);
            self.warn(format!("{count} events {name} have invalid fields; they are left out"));
        }
        if self.more_warnings > 0 {
            self.warnings.push(format!("{} more warnings like these", self.more_warnings));
        }
        let private = private_env::parse(&trace.env);
        let losses = self.losses(private.as_ref().map(|private| private.losses.as_slice()));
        let history = self.history(private.map(|private| private.history));
        let warnings = std::mem::take(&mut self.warnings);
        let info = info(trace);
        let names = self.names_in_time();
        let recording = Recording { events: self.events, names, losses, history };
        Trace { recording, info, skipped, warnings }
    }

    fn losses(&self, private: Option<&[Loss]>) -> Vec<Loss> {
        let counted = self.discarded.iter().map(|(cpu, count)| Loss {
            cpu: Some(*cpu),
            cause: LossCause::Discarded,
            count: Some(*count),
        });
        // The `env` entries of rtscope have the same losses by cause.
        let mut losses = private.map_or_else(|| counted.collect(), <[Loss]>::to_vec);
        let damaged = self.damaged.iter();
        losses.extend(damaged.map(|cpu| Loss { cpu: *cpu, cause: LossCause::Unreadable, count: None }));
        losses
    }

    fn history(&self, private: Option<BTreeMap<CpuId, Option<MonotonicNs>>>) -> Vec<CpuHistory> {
        let mut counts: BTreeMap<CpuId, u64> = BTreeMap::new();
        for event in &self.events {
            *counts.entry(event.cpu).or_default() += 1;
        }
        let since =
            private.unwrap_or_else(|| self.begins.iter().map(|(cpu, begin)| (*cpu, Some(*begin))).collect());
        let history = since.into_iter().map(|(cpu, complete_since)| CpuHistory {
            cpu,
            complete_since,
            events: counts.get(&cpu).copied().unwrap_or(0),
        });
        history.collect()
    }

    /// Names in the order in which they were valid: first those that events report, then those that events have in passing, then the dump's.
    fn names_in_time(&mut self) -> Names {
        let mut names = Names::default();
        self.names.sort_by_key(|(time, ..)| *time);
        let mut carried = std::mem::take(&mut self.names).into_iter().peekable();
        for event in &self.events {
            while let Some((time, tid, comm)) = carried.next_if(|(time, ..)| *time < event.time) {
                names.saw(tid, time, comm);
            }
            names.observe(event);
        }
        carried.for_each(|(time, tid, comm)| names.saw(tid, time, comm));
        std::mem::take(&mut self.tasks).into_iter().for_each(|task| names.add_task(task));
        std::mem::take(&mut self.irqs).into_iter().for_each(|(irq, name)| names.add_irq(irq, name));
        names
    }
}

fn info(trace: &TraceClass) -> TraceInfo {
    let text = |key: &str| trace.env.get(key).map(ToString::to_string).unwrap_or_default();
    let none = ClockClass::default();
    let used = trace.streams.iter().find_map(|stream| trace.clocks.get(stream.clock?));
    let clock = used.or(trace.clocks.first()).unwrap_or(&none);
    TraceInfo {
        hostname: text("hostname"),
        kernel_release: text("kernel_release"),
        clock_uuid: clock.uuid.unwrap_or(Uuid::nil()),
        realtime_offset_ns: u64::try_from(clock.base_ns()).unwrap_or(0),
        trace_uuid: trace.uuid.unwrap_or(Uuid::nil()),
        producer_version: text("producer_version"),
        window_begin: text("rtscope_window_begin").parse().ok().map(MonotonicNs),
    }
}
