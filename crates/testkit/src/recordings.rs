// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings for tests that write traces: one with every event, and random ones from a seed.

use rtscope_ctf::TraceInfo;
use rtscope_event::{
    Comm, CpuHistory, CpuId, Event, EventKind, Irq, Loss, LossCause, MonotonicNs, Names, Pid, Policy,
    Priority, Recording, TaskInfo, Tid, VectorKind,
};
use uuid::Uuid;

use crate::random::Random;

/// A time as on a machine that has been up for 11 days.
pub const START: u64 = 1_000_000_000_000_000;

/// A description of a machine and its clock, with quotes in the host name.
pub fn info() -> TraceInfo {
    TraceInfo {
        hostname: "bench \"7\"".to_owned(),
        kernel_release: "6.18.0-rt".to_owned(),
        clock_uuid: Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0),
        realtime_offset_ns: 1_700_000_000_000_000_000,
        trace_uuid: Uuid::from_u128(0xfedc_ba98_7654_3210_fedc_ba98_7654_3210),
        producer_version: "0.1.0".to_owned(),
        window_begin: Some(MonotonicNs(START - 1000)),
    }
}

/// Values as a kernel has them.
impl Random {
    fn id(&mut self) -> u32 {
        // Mostly from so few that tasks meet again, sometimes any.
        if self.below(50) == 0 { self.next() as u32 } else { self.below(40) as u32 }
    }

    fn cpu(&mut self) -> CpuId {
        CpuId(self.below(4) as u32)
    }

    fn prio(&mut self) -> Priority {
        Priority(self.below(141) as i16 - 1)
    }

    fn comm(&mut self) -> Comm {
        let length = 1 + self.below(15) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| 1 + self.below(255) as u8).collect();
        Comm::from_bytes(&bytes)
    }

    /// An event of the variant with this number.
    fn kind(&mut self, variant: usize) -> EventKind {
        EventKind::random(variant, &mut |below| if below == 0 { self.next() } else { self.below(below) })
    }

    /// A step in time: often none, mostly short, sometimes longer than a compact header can say.
    fn step(&mut self) -> u64 {
        match self.below(20) {
            0..5 => 0,
            5..18 => self.below(20_000),
            18 => (1 << 27) - 2 + self.below(4),
            _ => self.below(1 << 31),
        }
    }

    /// This many events of 4 CPUs, some losses and some tasks.
    pub fn recording(&mut self, events: u64) -> Recording {
        let mut time = START;
        let mut list: Vec<Event> = (0..events)
            .map(|_| {
                time += self.step();
                let variant = self.index(EventKind::VARIANTS);
                Event { time: MonotonicNs(time), cpu: self.cpu(), kind: self.kind(variant) }
            })
            .collect();
        list.sort_by_key(|event| (event.time, event.cpu));
        let losses = (0..self.below(4)).map(|_| self.loss()).collect();
        finish(list, losses, (0..self.below(30)).map(|_| self.task()).collect())
    }

    fn loss(&mut self) -> Loss {
        let causes = [
            LossCause::RecursionMiss,
            LossCause::Unfinished,
            LossCause::Unreadable,
            LossCause::Overwritten,
            LossCause::Discarded,
        ];
        Loss {
            cpu: if self.flag() { Some(self.cpu()) } else { None },
            cause: causes[self.below(5) as usize],
            count: if self.flag() { Some(self.below(1000)) } else { None },
        }
    }

    fn task(&mut self) -> TaskInfo {
        TaskInfo {
            tid: Tid(1 + self.below(40) as u32),
            pid: Pid(self.id()),
            ppid: Pid(self.id()),
            comm: self.comm(),
            prio: self.prio(),
            policy: Policy(self.below(8) as u32),
            kthread: self.flag(),
        }
    }
}

/// Adds names, as the collector does, and the history of 4 CPUs.
pub fn finish(events: Vec<Event>, losses: Vec<Loss>, tasks: Vec<TaskInfo>) -> Recording {
    let mut names = Names::default();
    for event in &events {
        names.observe(event);
    }
    for task in tasks {
        names.add_task(task);
    }
    names.add_irq(Irq(3), "eth0-rx".to_owned());
    names.add_irq(Irq(9), "acpi".to_owned());
    let history = (0..4).map(|cpu| {
        let here = events.iter().filter(|event| event.cpu == CpuId(cpu));
        let complete_since = here.clone().next().map(|event| event.time);
        CpuHistory { cpu: CpuId(cpu), complete_since, events: here.count() as u64 }
    });
    Recording { history: history.collect(), events, names, losses }
}

/// One event of every variant, of every vector kind, and some with the values at the ends of their ranges.
pub fn every_variant() -> Recording {
    let mut random = Random(1);
    let mut kinds: Vec<EventKind> = (0..EventKind::VARIANTS).map(|variant| random.kind(variant)).collect();
    for kind in VectorKind::ALL {
        kinds.push(EventKind::VectorEntry { kind, vector: 0xec });
        kinds.push(EventKind::VectorExit { kind, vector: 0xec });
    }
    kinds.push(EventKind::CpuIdle { state: None, cpu: CpuId(0) });
    kinds.push(EventKind::CpuIdle { state: Some(0), cpu: CpuId(0) });
    let events = kinds.into_iter().zip(0..);
    let events = events.map(|(kind, at)| Event {
        time: MonotonicNs(START + at * 500),
        cpu: CpuId((at % 2) as u32),
        kind,
    });
    finish(events.collect(), Vec::new(), vec![random.task(), random.task()])
}

/// An ordinary task of its own process.
pub fn task(tid: u32, comm: &str) -> TaskInfo {
    TaskInfo {
        tid: Tid(tid),
        pid: Pid(tid),
        ppid: Pid(1),
        comm: Comm::from(comm),
        prio: Priority(120),
        policy: Policy(0),
        kthread: false,
    }
}

/// All threads that an event names.
pub fn tids(kind: &EventKind) -> Vec<Tid> {
    match kind {
        EventKind::SchedSwitch { prev_tid, next_tid, .. } => vec![*prev_tid, *next_tid],
        EventKind::SchedWaking { tid, .. }
        | EventKind::SchedWakeupNew { tid, .. }
        | EventKind::SchedMigrateTask { tid, .. }
        | EventKind::SchedPiSetprio { tid, .. }
        | EventKind::ProcessExit { tid, .. }
        | EventKind::TaskRename { tid, .. }
        | EventKind::LateResponse { tid, .. } => vec![*tid],
        EventKind::ProcessFork { parent_tid, child_tid, .. } => vec![*parent_tid, *child_tid],
        _ => Vec::new(),
    }
}
