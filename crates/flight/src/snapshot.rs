// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A frozen piece of history in private memory, and how it becomes a [`Recording`].
//!
//! A CPU's two banks alternate in *epochs*. The frozen bank holds the epoch that the trigger ended. When that epoch is
//! young (two triggers came soon after each other) the other bank still holds the one before, which joins it without a
//! gap; so history reaches back at least one bank's worth however often the trigger is pulled.

use rtscope_event::{
    CpuHistory, CpuId, Event, EventKind, Irq, Loss, LossCause, MonotonicNs, Names, Recording, SwitchSequence,
    TaskInfo, Tid,
};
use rtscope_kernel::proc_comm;
use rtscope_ring::{BankImage, Gaps, decode};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The time that a snapshot is to cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From here on (if it is held that long).
    pub from: MonotonicNs,
    /// Up to here.
    pub until: MonotonicNs,
}

/// One epoch of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub image: BankImage,
    pub positions: Range<u64>,
    /// When it began; 0: with the recorder.
    pub began: MonotonicNs,
}

impl Epoch {
    fn is_whole(&self) -> bool {
        self.image.holds(self.positions.start)
    }
}

/// The frozen banks of all CPUs.
#[derive(Debug)]
pub struct Snapshot {
    /// Number of the snapshot.
    pub generation: u64,
    /// When the late response was detected.
    pub detected: MonotonicNs,
    /// How long it took from the end of the post-trigger window until all was in private memory.
    pub copied_ns: u64,
    pub(crate) until: MonotonicNs,
    pub(crate) started: MonotonicNs,
    /// Per CPU, newest first.
    pub(crate) epochs: Vec<Vec<Epoch>>,
}

impl Snapshot {
    /// The window that reaches back `pre_ns` from the detection, and to `origin` if that is earlier.
    #[must_use]
    pub fn window(&self, pre_ns: u64, origin: Option<MonotonicNs>) -> Window {
        let from = self.detected.minus(pre_ns);
        Window { from: origin.map_or(from, |origin| origin.minus(1_000_000).min(from)), until: self.until }
    }

    /// Decodes, orders and names what lies in `window`. `tasks` and `irqs` are state dumps made after the freeze.
    #[must_use]
    pub fn decode(&self, window: Window, tasks: Vec<TaskInfo>, irqs: Vec<(Irq, String)>) -> Recording {
        let mut recording = Recording::default();
        for (cpu, epochs) in self.epochs.iter().enumerate() {
            let cpu = CpuId(cpu as u32);
            let first = recording.events.len();
            let (gaps, complete_since) = self.decode_cpu(cpu, epochs, window, &mut recording.events);
            let events = (recording.events.len() - first) as u64;
            recording.history.push(CpuHistory { cpu, complete_since, events });
            for (cause, count) in
                [(LossCause::Unfinished, gaps.unfinished), (LossCause::Unreadable, gaps.unreadable)]
            {
                if count > 0 {
                    recording.losses.push(Loss { cpu: Some(cpu), cause, count: Some(count) });
                }
            }
        }
        // Records are nearly in order already (nested writers stamp out of order), which this sort makes use of.
        recording.events.sort_by_key(|event| (event.time, event.cpu));
        recording.losses.extend(gaps(&recording.events));
        recording.names = names(&recording.events, tasks, irqs);
        recording
    }

    fn decode_cpu(
        &self,
        cpu: CpuId,
        epochs: &[Epoch],
        window: Window,
        events: &mut Vec<Event>,
    ) -> (Gaps, Option<MonotonicNs>) {
        let mut gaps = Gaps::default();
        let mut complete_since = None;
        for epoch in epochs {
            let mut oldest = None;
            let found = epoch.image.walk(epoch.positions.clone(), |frame| {
                let time = MonotonicNs(frame.time_ns);
                oldest.get_or_insert(time);
                if time < window.from || time > window.until {
                    return;
                }
                match decode(cpu, &frame) {
                    Some(event) => events.push(event),
                    None => gaps.unreadable += 1,
                }
            });
            gaps.unfinished += found.unfinished;
            gaps.unreadable += found.unreadable;
            let began = epoch.began.max(self.started);
            complete_since = if epoch.is_whole() { Some(began) } else { oldest.or(complete_since) };
            if !epoch.is_whole() {
                break;
            }
        }
        (gaps, complete_since.or(Some(self.until)))
    }
}

/// Places where a CPU's switches do not follow each other, per CPU.
fn gaps(events: &[Event]) -> Vec<Loss> {
    let mut switches: BTreeMap<CpuId, SwitchSequence> = BTreeMap::new();
    for event in events {
        switches.entry(event.cpu).or_default().observe(&event.kind);
    }
    let gaps = switches.into_iter().map(|(cpu, switches)| (cpu, switches.gaps()));
    let loss = |(cpu, count)| Loss { cpu: Some(cpu), cause: LossCause::Gap, count: Some(count) };
    gaps.filter(|(_, count)| *count > 0).map(loss).collect()
}

fn names(events: &[Event], tasks: Vec<TaskInfo>, irqs: Vec<(Irq, String)>) -> Names {
    let mut names = Names::default();
    events.iter().for_each(|event| names.observe(event));
    tasks.into_iter().for_each(|task| names.add_task(task));
    irqs.into_iter().for_each(|(irq, name)| names.add_irq(irq, name));
    name_the_rest(&mut names, events);
    names
}

/// Asks `/proc` for the names of tasks that ran and that nothing has named: the task iterator need not see all.
fn name_the_rest(names: &mut Names, events: &[Event]) {
    let ran: BTreeSet<Tid> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::SchedSwitch { next_tid, .. } => Some(next_tid),
            _ => None,
        })
        .collect();
    for tid in ran {
        if names.comm(tid, MonotonicNs(0)).is_none() {
            if let Some(comm) = proc_comm(tid) {
                names.saw(tid, MonotonicNs(0), comm);
            }
        }
    }
}
