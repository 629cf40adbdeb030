// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ran on a CPU that should be quiet: for `rtscope shield verify`.
//!
//! Counts are of events (an interrupt's entry, a switch to a thread); times are net of what nested inside. A long watch is many short
//! recordings, one after the other, so that no buffer has to hold it all.

use crate::timeline::{Activity, Timeline};
use rtscope_event::{CpuId, Event, EventKind, Irq, MonotonicNs, Recording, Tid, VectorKind, softirq_name};
use serde::Serialize;
use std::collections::BTreeMap;

/// Something that ran.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Visitor {
    /// A device interrupt.
    Irq {
        /// Its number.
        irq: Irq,
        /// Its name, where known.
        name: Option<String>,
    },
    /// A system vector: the timer, an inter-processor interrupt.
    Vector {
        /// Which.
        vector: VectorKind,
    },
    /// A non-maskable interrupt.
    Nmi,
    /// A softirq.
    Softirq {
        /// As in /proc/softirqs.
        name: &'static str,
    },
    /// A thread.
    Thread {
        /// Its number.
        tid: Tid,
        /// Its name, where known.
        name: Option<String>,
        /// Whether it is the kernel's, where known.
        kernel: Option<bool>,
    },
    /// Time about which nothing is known: an event must have been lost.
    Unknown,
}

/// How much of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Visit {
    /// How often it began.
    pub count: u64,
    /// For how long, in all.
    pub time_ns: u64,
    /// The longest piece.
    pub most_ns: u64,
}

/// What sends inter-processor interrupts here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Sender {
    /// From which CPU.
    pub cpu: CpuId,
    /// The thread that ran there, where known.
    pub thread: Option<Tid>,
    /// Its name.
    pub name: Option<String>,
    /// A function call; else a call to reschedule.
    pub call: bool,
}

/// What ran on one CPU.
#[derive(Clone, Debug)]
pub struct Visits {
    cpu: CpuId,
    by: BTreeMap<Visitor, Visit>,
    senders: BTreeMap<Sender, u64>,
    /// What had the CPU when the last piece ended.
    running: Option<Tid>,
    /// Time that was looked at.
    pub watched_ns: u64,
    /// Of it, time that the buffers did not hold any more.
    pub missed_ns: u64,
}

impl Visits {
    /// Nothing yet.
    #[must_use]
    pub fn new(cpu: CpuId) -> Visits {
        Visits {
            cpu,
            by: BTreeMap::new(),
            senders: BTreeMap::new(),
            running: None,
            watched_ns: 0,
            missed_ns: 0,
        }
    }

    /// Sets which task has the CPU at the begin (0: none): without any switch no event shows it.
    pub fn begin_with(&mut self, tid: Tid) {
        self.running = Some(tid);
    }

    /// Time about which nothing is known.
    #[must_use]
    pub fn unknown_ns(&self) -> u64 {
        self.by.get(&Visitor::Unknown).map_or(0, |visit| visit.time_ns)
    }

    /// Which CPU.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// What ran, by kind.
    pub fn iter(&self) -> impl Iterator<Item = (&Visitor, &Visit)> {
        self.by.iter()
    }

    /// What sent inter-processor interrupts, the most first.
    #[must_use]
    pub fn senders(&self) -> Vec<(&Sender, u64)> {
        let mut senders: Vec<(&Sender, u64)> =
            self.senders.iter().map(|(sender, count)| (sender, *count)).collect();
        senders.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        senders
    }

    /// Adds what a recording has of a piece of time, the begin included and the end not.
    pub fn add(&mut self, recording: &Recording, timeline: &Timeline, from: MonotonicNs, to: MonotonicNs) {
        self.watched_ns += to.since(from);
        let history = recording.history.iter().find(|history| history.cpu == self.cpu);
        // No event at all, and nothing overwritten: it did nothing.
        let Some(since) = history.and_then(|history| history.complete_since) else { return };
        let since = since.max(from).min(to);
        self.missed_ns += since.since(from);
        let is_in = |event: &&Event| event.time >= since && event.time < to;
        for event in recording.events.iter().filter(is_in) {
            if event.cpu == self.cpu {
                self.count(recording, event);
            } else {
                self.sent(recording, timeline, event);
            }
        }
        let is_switch = |event: &&Event| {
            event.cpu == self.cpu
                && matches!(event.kind, EventKind::SchedSwitch { .. } | EventKind::CpuIdle { .. })
        };
        let first = recording.events.iter().filter(is_in).find(is_switch).map_or(to, |event| event.time);
        for segment in timeline.slice(self.cpu, since, to) {
            // A thread that never leaves makes no event that tells of it.
            let still = self.running.filter(|_| segment.what == Activity::Unknown && segment.to <= first);
            let what = match still {
                Some(Tid(0)) => Activity::Idle,
                Some(tid) => Activity::Thread(tid),
                None => segment.what,
            };
            self.running = segment.thread.or(self.running);
            let visitor = match what {
                Activity::Idle => continue,
                Activity::Nmi => Visitor::Nmi,
                Activity::Irq(irq) => irq_of(recording, irq),
                Activity::Vector(vector) => Visitor::Vector { vector },
                Activity::Softirq(vec) => Visitor::Softirq { name: softirq_name(vec) },
                Activity::Thread(tid) => self.thread(recording, tid, None, segment.to),
                Activity::Unknown => Visitor::Unknown,
            };
            let visit = self.by.entry(visitor).or_default();
            visit.time_ns += segment.duration_ns();
            visit.most_ns = visit.most_ns.max(segment.duration_ns());
        }
    }

    fn count(&mut self, recording: &Recording, event: &Event) {
        let visitor = match &event.kind {
            EventKind::IrqHandlerEntry { irq } => irq_of(recording, *irq),
            EventKind::VectorEntry { kind, .. } => Visitor::Vector { vector: *kind },
            EventKind::NmiHandler { .. } => Visitor::Nmi,
            EventKind::SoftirqEntry { vec } => Visitor::Softirq { name: softirq_name(*vec) },
            EventKind::SchedSwitch { prev_tid, prev_kthread, next_tid, next_kthread, .. } => {
                if *prev_tid != Tid(0) {
                    self.thread(recording, *prev_tid, Some(*prev_kthread), event.time);
                }
                if *next_tid == Tid(0) {
                    return;
                }
                self.thread(recording, *next_tid, Some(*next_kthread), event.time)
            }
            _ => return,
        };
        self.by.entry(visitor).or_default().count += 1;
    }

    /// One entry a thread, whenever its name and kind become known.
    fn thread(&mut self, recording: &Recording, tid: Tid, kernel: Option<bool>, at: MonotonicNs) -> Visitor {
        let is_it =
            |visitor: &&Visitor| matches!(visitor, Visitor::Thread { tid: known, .. } if *known == tid);
        let known = self.by.keys().find(is_it).cloned();
        let now = recording.names.comm(tid, at).map(|comm| comm.to_string());
        let (before, before_kernel) = match &known {
            Some(Visitor::Thread { name, kernel, .. }) => (name.clone(), *kernel),
            _ => (None, None),
        };
        let visitor = Visitor::Thread { tid, name: now.or(before), kernel: kernel.or(before_kernel) };
        if let Some(visit) = known.and_then(|known| self.by.remove(&known)) {
            self.by.insert(visitor.clone(), visit);
        }
        visitor
    }

    fn sent(&mut self, recording: &Recording, timeline: &Timeline, event: &Event) {
        let call = match &event.kind {
            EventKind::IpiSend { target_cpu, call, .. } if *target_cpu == self.cpu => *call,
            EventKind::IpiSendMask { targets, call, .. } if targets.cpus().any(|cpu| cpu == self.cpu) => {
                *call
            }
            _ => return,
        };
        let thread = timeline.at(event.cpu, event.time).and_then(|segment| segment.thread);
        let name = match thread {
            Some(Tid(0)) => Some("idle".to_owned()),
            thread => {
                thread.and_then(|tid| recording.names.comm(tid, event.time)).map(|comm| comm.to_string())
            }
        };
        *self.senders.entry(Sender { cpu: event.cpu, thread, name, call }).or_default() += 1;
    }
}

fn irq_of(recording: &Recording, irq: Irq) -> Visitor {
    Visitor::Irq { irq, name: recording.names.irq(irq).map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{CpuHistory, parse_event};

    fn recording(lines: &str) -> Recording {
        let events: Vec<Event> =
            lines.lines().map(|line| parse_event(line.trim()).expect("an event")).collect();
        let complete_since = Some(MonotonicNs(100));
        let history =
            [0, 1].map(|cpu| CpuHistory { cpu: CpuId(cpu), complete_since, events: events.len() as u64 });
        Recording { events, history: history.into(), ..Recording::default() }
    }

    fn watched(lines: &str, pieces: &[(u64, u64)]) -> Visits {
        let recording = recording(lines);
        let (timeline, mut visits) = (Timeline::new(&recording), Visits::new(CpuId(1)));
        for (from, to) in pieces {
            visits.add(&recording, &timeline, MonotonicNs(*from), MonotonicNs(*to));
        }
        visits
    }

    const DISTURBED: &str = "110 1 sched_switch prev_tid=0 next_tid=7 next_kthread=1
        120 0 sched_switch prev_tid=0 next_tid=5
        130 0 ipi_send_cpu target_cpu=1 call=1
        140 1 vector_entry kind=call_function_single
        150 1 vector_exit kind=call_function_single
        160 1 irq_handler_entry irq=9
        170 1 irq_handler_exit irq=9
        171 1 softirq_entry vec=3
        180 1 softirq_exit vec=3
        190 1 sched_switch prev_tid=7 prev_state=1 next_tid=0 prev_kthread=1
        200 0 ipi_send_cpu target_cpu=0 call=0
        300 1 sched_switch prev_tid=0 next_tid=8
        400 0 sched_switch prev_tid=5 next_tid=0";

    #[test]
    fn everything_that_runs_is_counted_once_however_the_time_is_cut() {
        let whole = watched(DISTURBED, &[(100, 400)]);
        let cut = watched(DISTURBED, &[(100, 145), (145, 165), (165, 172), (172, 400)]);
        let counts = |visits: &Visits| -> Vec<(Visitor, u64, u64)> {
            visits.iter().map(|(who, visit)| (who.clone(), visit.count, visit.time_ns)).collect()
        };
        assert_eq!(counts(&whole), counts(&cut));
        let thread = |tid, kernel| Visitor::Thread { tid: Tid(tid), name: None, kernel: Some(kernel) };
        let expected = [
            (Visitor::Irq { irq: Irq(9), name: None }, 1, 11),
            (Visitor::Vector { vector: VectorKind::CallFunctionSingle }, 1, 10),
            (Visitor::Softirq { name: "NET_RX" }, 1, 9),
            (thread(7, true), 1, 50),
            (thread(8, false), 1, 100),
        ];
        assert_eq!(counts(&whole), expected);
        let senders = whole.senders();
        assert_eq!(senders.len(), 1);
        assert_eq!((senders[0].0.cpu, senders[0].0.thread, senders[0].1), (CpuId(0), Some(Tid(5)), 1));
        assert_eq!((whole.watched_ns, whole.missed_ns), (300, 0));
    }

    #[test]
    fn a_thread_that_never_leaves_is_known_from_before() {
        let lines = "110 1 sched_switch prev_tid=0 next_tid=7
            200 1 vector_entry kind=local_timer
            210 1 vector_exit kind=local_timer
            400 0 softirq_raise vec=1";
        let mut visits = watched(lines, &[(100, 150)]);
        let later = recording(&lines[lines.find("200").expect("there")..]);
        visits.add(&later, &Timeline::new(&later), MonotonicNs(150), MonotonicNs(400));
        let time = |is: fn(&Visitor) -> bool| {
            visits.iter().filter(|(who, _)| is(who)).map(|(_, visit)| visit.time_ns).sum::<u64>()
        };
        assert_eq!(time(|who| matches!(who, Visitor::Thread { tid: Tid(7), .. })), 280);
        assert_eq!(time(|who| *who == Visitor::Unknown), 0);
    }

    #[test]
    fn what_is_overwritten_is_missed_and_what_is_lost_unknown() {
        let visits = watched(DISTURBED, &[(50, 160)]);
        assert_eq!((visits.watched_ns, visits.missed_ns), (110, 50));
        let gap = watched(
            "110 1 sched_switch prev_tid=0 next_tid=7
            120 1 sched_switch prev_tid=9 next_tid=0
            130 1 softirq_raise vec=1",
            &[(100, 130)],
        );
        assert!(gap.iter().any(|(who, visit)| *who == Visitor::Unknown && visit.time_ns > 0));
    }
}
