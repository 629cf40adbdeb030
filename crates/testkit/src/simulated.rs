// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of a machine that could be: threads that run on one CPU at a time, are woken, switched, interrupted and forked, as a
//! kernel does it. (`recordings` has random events, which need not fit each other.)

use crate::random::Random;
use crate::recordings::{START, finish};
use rtscope_event::{
    Comm, CpuId, Event, EventKind, Irq, MonotonicNs, Pid, Policy, Priority, Recording, TaskInfo, TaskState,
    Tid, VectorKind, WaitKind,
};
use std::collections::BTreeMap;

/// What a CPU handles, innermost last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handler {
    Irq(u32),
    Vector(VectorKind),
    Softirq(u32),
    Timer(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Running,
    Runnable,
    Blocked,
}

#[derive(Clone)]
struct Thread {
    status: Status,
    pid: u32,
    prio: i16,
    /// The softirqs in which it was switched out, and where: it stays there, and others wait with theirs.
    softirqs: Vec<Handler>,
    softirq_cpu: Option<u32>,
}

/// A machine.
pub struct Machine {
    random: Random,
    time: u64,
    /// What runs on each, and what it handles.
    cpus: Vec<(u32, Vec<Handler>)>,
    threads: BTreeMap<u32, Thread>,
    next_tid: u32,
    events: Vec<Event>,
    /// Softirqs can be preempted, as on PREEMPT_RT.
    realtime: bool,
}

const FIRST_TID: u32 = 100;

impl Machine {
    /// With this number of CPUs, of which every second runs a thread and the others are idle, and of threads, of which the others
    /// are blocked.
    pub fn new(seed: u64, cpus: u32, threads: u32, realtime: bool) -> Machine {
        let thread = |tid| {
            let (status, pid, prio) = (Status::Blocked, tid - tid % 3, 100 + (tid % 40) as i16);
            (
                tid,
                Thread {
                    status,
                    pid,
                    prio: if tid % 5 == 0 { 20 } else { prio },
                    softirqs: Vec::new(),
                    softirq_cpu: None,
                },
            )
        };
        let mut all: BTreeMap<u32, Thread> = (FIRST_TID..FIRST_TID + threads).map(thread).collect();
        let running = (0..cpus).map(|cpu| match all.get_mut(&(FIRST_TID + cpu)) {
            Some(thread) if cpu % 2 == 0 => {
                thread.status = Status::Running;
                (FIRST_TID + cpu, Vec::new())
            }
            _ => (0, Vec::new()),
        });
        Machine {
            random: Random(seed),
            time: START,
            cpus: running.collect(),
            threads: all,
            next_tid: FIRST_TID + threads,
            events: Vec::new(),
            realtime,
        }
    }

    /// Lets it run for this number of events, and more until the last action is complete.
    pub fn recording(mut self, events: usize) -> Recording {
        let at_begin: Vec<u32> = self.threads.keys().copied().collect();
        while self.events.len() < events {
            self.step();
        }
        let tasks = at_begin.iter().filter_map(|tid| {
            let thread = self.threads.get(tid)?;
            Some(TaskInfo {
                tid: Tid(*tid),
                pid: Pid(thread.pid),
                ppid: Pid(1),
                comm: comm(*tid),
                prio: Priority(thread.prio),
                policy: Policy(0),
                kthread: false,
            })
        });
        let tasks = tasks.collect();
        finish(self.events, Vec::new(), tasks)
    }

    fn event(&mut self, cpu: u32, kind: EventKind) {
        self.events.push(Event { time: MonotonicNs(self.time), cpu: CpuId(cpu), kind });
    }

    /// Time goes on, but what follows a waking on its CPU may come at once.
    fn step(&mut self) {
        let cpu = self.random.below(self.cpus.len() as u64) as u32;
        let woke = match self.events.as_slice() {
            [.., before, last] => {
                last.cpu.0 == cpu
                    && before.time < last.time
                    && matches!(last.kind, EventKind::SchedWaking { .. })
            }
            _ => false,
        };
        let at_once = woke && self.random.below(4) == 0;
        self.time += if at_once { 0 } else { 1 + self.random.below(9_000) };
        match self.random.below(100) {
            0..38 => self.switch(cpu),
            38..63 => self.wake(cpu),
            63..74 => self.enter(cpu),
            74..90 => self.leave(cpu),
            90..92 => self.fork(cpu),
            92..94 => {
                let state = Some(self.random.below(4) as u32).filter(|state| *state > 0);
                self.event(cpu, EventKind::CpuIdle { state, cpu: CpuId(cpu) });
            }
            94..96 => self.event(cpu, EventKind::SoftirqRaise { vec: 1 }),
            96 => self.rename(cpu),
            97 => self.inherit(cpu),
            _ => {
                let (handler, duration_ns) = (0xffff_8000, self.random.below(900) as i64);
                self.event(cpu, EventKind::NmiHandler { handler, duration_ns, handled: 1 });
            }
        }
    }

    fn any(&mut self, which: impl Fn(&Thread) -> bool) -> Option<u32> {
        let fitting: Vec<u32> =
            self.threads.iter().filter(|(_, thread)| which(thread)).map(|(tid, _)| *tid).collect();
        let place = self.random.below(fitting.len().max(1) as u64) as usize;
        fitting.get(place).copied()
    }

    fn switch(&mut self, cpu: u32) {
        let (prev, handlers) = self.cpus[cpu as usize].clone();
        let in_softirq = handlers.iter().all(|handler| matches!(handler, Handler::Softirq(_)));
        let can_leave = handlers.is_empty() || (self.realtime && in_softirq && prev != 0);
        if !can_leave {
            return self.leave(cpu);
        }
        let can_run = |thread: &Thread| {
            thread.status == Status::Runnable && thread.softirq_cpu.is_none_or(|place| place == cpu)
        };
        let next = self.any(can_run).unwrap_or(0);
        if prev == next {
            return;
        }
        let dies = handlers.is_empty() && prev != 0 && self.random.below(80) == 0;
        let (state, preempt, status) = match self.random.below(9) {
            _ if prev == 0 => (0, false, Status::Runnable),
            _ if dies => (0x80, false, Status::Blocked),
            0..3 => (0, true, Status::Runnable),
            3 => (0, false, Status::Runnable),
            4 => (2, false, Status::Blocked),
            5 => (0x402, false, Status::Blocked),
            6 if self.realtime => (0x1000, false, Status::Blocked),
            _ => (1, false, Status::Blocked),
        };
        let prio = |machine: &Machine, tid| {
            Priority(machine.threads.get(&tid).map_or(120, |thread: &Thread| thread.prio))
        };
        let event = EventKind::SchedSwitch {
            prev_tid: Tid(prev),
            prev_prio: prio(self, prev),
            prev_state: TaskState(state),
            preempt,
            prev_kthread: false,
            next_tid: Tid(next),
            next_prio: prio(self, next),
            next_kthread: false,
            prev_wait: WaitKind::None,
            prev_wait_on: 0,
        };
        if dies {
            let (tid, pid) = (Tid(prev), Pid(self.threads[&prev].pid));
            self.event(cpu, EventKind::ProcessExit { tid, pid, prio: Priority(120), comm: comm(prev) });
        }
        self.event(cpu, event);
        if let Some(thread) = self.threads.get_mut(&prev) {
            thread.softirq_cpu = (!handlers.is_empty()).then_some(cpu);
            (thread.status, thread.softirqs) = (status, handlers);
        }
        if dies {
            self.threads.remove(&prev);
        }
        let softirqs = self.threads.get_mut(&next).map(|thread| {
            (thread.status, thread.softirq_cpu) = (Status::Running, None);
            std::mem::take(&mut thread.softirqs)
        });
        self.cpus[cpu as usize] = (next, softirqs.unwrap_or_default());
    }

    fn wake(&mut self, cpu: u32) {
        // Sometimes one that needs no waking.
        let is_spurious = self.random.below(30) == 0;
        let found = self.any(|thread| match thread.status {
            Status::Blocked => true,
            Status::Running | Status::Runnable => is_spurious,
        });
        let Some(tid) = found else { return };
        let target_cpu = CpuId(self.random.below(self.cpus.len() as u64) as u32);
        let prio = Priority(self.threads[&tid].prio);
        self.event(
            cpu,
            EventKind::SchedWaking { tid: Tid(tid), prio, target_cpu, kthread: false, wait: WaitKind::None },
        );
        if let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.status == Status::Blocked) {
            thread.status = Status::Runnable;
        }
    }

    fn enter(&mut self, cpu: u32) {
        let handlers = &self.cpus[cpu as usize].1;
        let is_hard = handlers.iter().any(|handler| !matches!(handler, Handler::Softirq(_)));
        let is_soft = handlers.iter().any(|handler| matches!(handler, Handler::Softirq(_)))
            || self.threads.values().any(|thread| thread.softirq_cpu == Some(cpu));
        let handler = match self.random.below(8) {
            0..2 => Handler::Irq(3),
            2 => Handler::Irq(9),
            3 => Handler::Vector(VectorKind::LocalTimer),
            4 => Handler::Vector(VectorKind::Reschedule),
            5 if is_hard => Handler::Timer(0xffff_9000),
            _ if !is_hard && !is_soft => Handler::Softirq(self.random.below(10) as u32),
            _ => return,
        };
        self.cpus[cpu as usize].1.push(handler);
        let event = match handler {
            Handler::Irq(irq) => EventKind::IrqHandlerEntry { irq: Irq(irq) },
            Handler::Vector(kind) => EventKind::VectorEntry { kind, vector: 236 },
            Handler::Softirq(vec) => EventKind::SoftirqEntry { vec },
            Handler::Timer(timer) => {
                let ns = self.time as i64;
                EventKind::HrtimerExpireEntry { timer, function: 7, softexpires_ns: ns, expires_ns: ns }
            }
        };
        self.event(cpu, event);
    }

    fn leave(&mut self, cpu: u32) {
        let event = match self.cpus[cpu as usize].1.pop() {
            None => return,
            Some(Handler::Irq(irq)) => EventKind::IrqHandlerExit { irq: Irq(irq), ret: 1 },
            Some(Handler::Vector(kind)) => EventKind::VectorExit { kind, vector: 236 },
            Some(Handler::Softirq(vec)) => EventKind::SoftirqExit { vec },
            Some(Handler::Timer(timer)) => EventKind::HrtimerExpireExit { timer },
        };
        self.event(cpu, event);
    }

    /// By the thread that runs there, outside of handlers.
    fn thread_on(&self, cpu: u32) -> Option<u32> {
        let (tid, handlers) = &self.cpus[cpu as usize];
        (*tid != 0 && handlers.is_empty()).then_some(*tid)
    }

    fn fork(&mut self, cpu: u32) {
        let Some(parent) = self.thread_on(cpu) else { return };
        let tid = self.next_tid;
        self.next_tid += 1;
        let parent_pid = self.threads[&parent].pid;
        let pid = if self.random.flag() { tid } else { parent_pid };
        let thread =
            Thread { status: Status::Runnable, pid, prio: 120, softirqs: Vec::new(), softirq_cpu: None };
        self.threads.insert(tid, thread);
        let fork = EventKind::ProcessFork {
            parent_tid: Tid(parent),
            parent_pid: Pid(parent_pid),
            child_tid: Tid(tid),
            child_pid: Pid(pid),
            child_comm: comm(parent),
        };
        self.event(cpu, fork);
        let (tid, prio, target_cpu) = (Tid(tid), Priority(120), CpuId(cpu));
        self.time += 50;
        self.event(
            cpu,
            EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread: false, wait: WaitKind::None },
        );
    }

    fn rename(&mut self, cpu: u32) {
        let Some(tid) = self.thread_on(cpu) else { return };
        let pid = Pid(self.threads[&tid].pid);
        let (old_comm, new_comm) = (comm(tid), Comm::from("renamed"));
        self.event(cpu, EventKind::TaskRename { tid: Tid(tid), pid, old_comm, new_comm });
    }

    fn inherit(&mut self, cpu: u32) {
        let Some(tid) = self.any(|_| true) else { return };
        let (old_prio, new_prio) = (Priority(120), Priority(self.random.below(99) as i16));
        self.event(cpu, EventKind::SchedPiSetprio { tid: Tid(tid), old_prio, new_prio });
    }
}

fn comm(tid: u32) -> Comm {
    Comm::from(format!("task-{tid}").as_str())
}
