// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What took a CPU from a thread that never gives it up: for `rtscope npt --blame`.
//!
//! The thread only reads a counter, so whatever the recording has on its CPU between two readings was forced upon it. Time
//! in which the thread itself ran, as far as the kernel tells, and which it did not see pass, was taken by something that the
//! kernel has no tracepoint for, or does not know of: a hypervisor, the firmware, the hardware; and the ways into interrupts and out.

use crate::explain::{Actor, Thread};
use crate::timeline::{Activity, Segment, Timeline};
use rtscope_event::{CpuId, MonotonicNs, Recording, Tid};
use serde::Serialize;
use std::collections::BTreeMap;

/// What took a part of a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Taker {
    /// An interrupt, a softirq, another thread, the idle thread.
    Kernel {
        /// Which.
        actor: Actor,
    },
    /// A non-maskable interrupt.
    Nmi,
    /// Nothing that the kernel tells of.
    Outside,
    /// Not recorded, or an event must have been lost.
    Unknown,
}

impl Taker {
    /// In words; threads with their numbers.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Taker::Kernel { actor: Actor::Thread(thread) } => format!("{}/{}", self.group_name(), thread.tid),
            _ => self.group_name(),
        }
    }

    /// The same without numbers of threads.
    #[must_use]
    pub fn group_name(&self) -> String {
        match self {
            Taker::Kernel { actor: actor @ Actor::Softirq { .. } } => {
                format!("softirq {}", actor.group_name())
            }
            Taker::Kernel { actor: actor @ Actor::Vector { .. } } => {
                format!("vector {}", actor.group_name())
            }
            Taker::Kernel { actor } => actor.group_name(),
            Taker::Nmi => "NMI".to_string(),
            Taker::Outside => "outside the kernel".to_string(),
            Taker::Unknown => "unknown".to_string(),
        }
    }

    fn is_same(&self, other: &Taker) -> bool {
        match (self, other) {
            (Taker::Kernel { actor: one }, Taker::Kernel { actor: two }) => one.is_same(two),
            (one, two) => one == two,
        }
    }
}

/// A part of a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What took it.
    #[serde(flatten)]
    pub taker: Taker,
    /// For how long, in all.
    pub time_ns: u64,
}

/// What all of one name took in many gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Threads without their numbers: many short ones of one name are one disturber.
    pub name: String,
    /// For how long, in all.
    pub time_ns: u64,
    /// In how many gaps.
    pub gaps: u64,
    /// The most in one gap.
    pub most_ns: u64,
}

/// Finds out what took which part, from a recording.
#[derive(Debug)]
pub struct Blamer<'a> {
    recording: &'a Recording,
    timeline: Timeline,
    cpu: CpuId,
    tid: Tid,
}

impl<'a> Blamer<'a> {
    /// For gaps of thread `tid`, which stays on `cpu`.
    #[must_use]
    pub fn new(recording: &'a Recording, cpu: CpuId, tid: Tid) -> Blamer<'a> {
        Blamer { recording, timeline: Timeline::new(recording), cpu, tid }
    }

    /// What took the time between two readings of the clock; largest first. The parts add up to all of it.
    #[must_use]
    pub fn blame(&self, from: MonotonicNs, to: MonotonicNs) -> Vec<Part> {
        let mut parts = Vec::new();
        for segment in self.timeline.slice(self.cpu, from, to) {
            let time_ns = segment.duration_ns();
            let taker = self.taker(&segment);
            match parts.iter_mut().find(|known: &&mut Part| known.taker.is_same(&taker)) {
                Some(known) => known.time_ns += time_ns,
                None => parts.push(Part { taker, time_ns }),
            }
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.time_ns));
        parts
    }

    fn taker(&self, segment: &Segment) -> Taker {
        let actor = match segment.what {
            Activity::Thread(tid) if tid == self.tid => return Taker::Outside,
            Activity::Nmi => return Taker::Nmi,
            Activity::Unknown => return Taker::Unknown,
            Activity::Irq(irq) => Actor::Irq { irq, name: self.recording.names.irq(irq).map(str::to_owned) },
            Activity::Vector(vector) => Actor::Vector { vector },
            Activity::Softirq(vec) => Actor::Softirq { vec },
            Activity::Thread(tid) => Actor::Thread(Thread {
                tid,
                comm: self.recording.names.comm(tid, segment.to),
                prio: self.timeline.priority(tid, segment.from),
                policy: self.recording.names.task(tid).map(|task| task.policy),
            }),
            Activity::Idle => Actor::Idle,
        };
        Taker::Kernel { actor }
    }
}

/// The sums over many gaps, largest first.
#[must_use]
pub fn totals<'a>(gaps: impl IntoIterator<Item = &'a [Part]>) -> Vec<Total> {
    let mut totals: BTreeMap<String, Total> = BTreeMap::new();
    for gap in gaps {
        let mut of_gap: BTreeMap<String, u64> = BTreeMap::new();
        gap.iter().for_each(|part| *of_gap.entry(part.taker.group_name()).or_default() += part.time_ns);
        for (name, time_ns) in of_gap {
            let total = totals.entry(name).or_default();
            total.time_ns += time_ns;
            total.gaps += 1;
            total.most_ns = total.most_ns.max(time_ns);
        }
    }
    let mut totals: Vec<Total> = totals.into_iter().map(|(name, total)| Total { name, ..total }).collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.time_ns));
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{CpuHistory, Event, parse_event};

    fn recording(lines: &[&str]) -> Recording {
        let events: Vec<Event> = lines.iter().map(|line| parse_event(line).expect("an event")).collect();
        let complete_since = Some(MonotonicNs(0));
        let history = vec![CpuHistory { cpu: CpuId(1), complete_since, events: events.len() as u64 }];
        Recording { events, history, ..Recording::default() }
    }

    fn names(parts: &[Part]) -> Vec<(String, u64)> {
        parts.iter().map(|part| (part.taker.name(), part.time_ns)).collect()
    }

    #[test]
    fn what_nests_counts_for_the_innermost_and_all_adds_up() {
        let switch = |from: u32, state: u32, to: u32| {
            format!(
                "sched_switch prev_tid={from} prev_prio=120 prev_state={state} preempt=0 prev_kthread=0 next_tid={to} \
                 next_prio=19 next_kthread=0"
            )
        };
        let recording = recording(&[
            &format!("1000 1 {}", switch(9, 1, 7)),
            "2000 1 vector_entry kind=local_timer vector=236",
            "2300 1 vector_exit kind=local_timer vector=236",
            "2400 1 softirq_entry vec=1",
            "2600 1 irq_handler_entry irq=24",
            "2700 1 irq_handler_exit irq=24 ret=1",
            "2900 1 softirq_exit vec=1",
            &format!("5000 1 {}", switch(7, 0, 8)),
            &format!("5600 1 {}", switch(8, 1, 7)),
            "9000 1 softirq_raise vec=1",
        ]);
        let blamer = Blamer::new(&recording, CpuId(1), Tid(7));
        let gap = blamer.blame(MonotonicNs(1900), MonotonicNs(3100));
        // The way from the handler to the softirq is the handler's.
        assert_eq!(
            names(&gap),
            [
                ("vector local_timer".to_string(), 400),
                ("softirq TIMER".to_string(), 400),
                ("outside the kernel".to_string(), 300),
                ("irq 24".to_string(), 100),
            ]
        );
        let other = blamer.blame(MonotonicNs(4900), MonotonicNs(5700));
        assert_eq!(names(&other)[0], ("thread 8/8".to_string(), 600));
        let before = blamer.blame(MonotonicNs(20_000), MonotonicNs(20_100));
        assert_eq!(names(&before), [("unknown".to_string(), 100)]);
        let all = totals([gap.as_slice(), &other, &before]);
        assert_eq!(all.iter().map(|total| total.time_ns).sum::<u64>(), 1200 + 800 + 100);
        let outside = all.iter().find(|total| total.name == "outside the kernel").expect("it is there");
        assert_eq!((outside.time_ns, outside.gaps, outside.most_ns), (500, 2, 300));
        assert_eq!((all[0].name.as_str(), all[0].time_ns), ("thread 8", 600));
    }
}
