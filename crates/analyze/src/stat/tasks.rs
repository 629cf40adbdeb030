// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where each task's time went: on a CPU, waiting for one, or waiting for something else, and what it was waiting in.
//!
//! A task is in one state at a time, from one event about it to the next. In which it was before the first follows from that event, if the task
//! is known to have been there when the recording began (the state dump lists it); after a loss on a CPU, what ran there is unknown again until the next switch.
//!
//! A waking may carry an earlier time than the switch by which its task leaves: the waker need not wait for that switch. Only
//! what follows tells it from a waking that came to nothing (the task had prepared to sleep, and did not): a task that comes back
//! without another waking was woken by that one, and waited for a CPU from the moment at which it left.

mod report;
mod task;

pub use report::{Blocked, CpuReport, TaskReport, TasksReport};

use super::calls::{AllCalls, SyscallsReport};
use super::happening::{DumpedTask, Happening, Happenings, is_known};
use super::{Missing, Span};
use crate::analysis::Analysis;
use rtscope_event::{CpuId, Domain, EventClass, EventKind, EventRef, FoundNames, Lost, Schema, Tid};
use std::collections::{BTreeMap, HashMap};
use task::{Begun, State, Task};

/// Tasks that have ended are listed up to this number; more are added up.
const MAX_ENDED: usize = 5_000;

/// What a CPU does.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// Who runs there; `None` when unknown.
    current: Option<u32>,
    since_ns: i64,
    busy_ns: u64,
    idle_ns: u64,
}

impl Cpu {
    fn until(&mut self, now_ns: i64) {
        let length_ns = u64::try_from(now_ns.saturating_sub(self.since_ns)).unwrap_or(0);
        match self.current {
            Some(0) => self.idle_ns += length_ns,
            Some(_) => self.busy_ns += length_ns,
            None => {}
        }
        self.since_ns = now_ns;
    }
}

/// The analysis.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    happenings: Happenings,
    /// What happens before this moment does not count, but it says in which state everything is then. `None`: all counts by now.
    counts_since_ns: Option<i64>,
    span: Span,
    /// From here on all CPUs are recorded.
    complete_since_ns: Option<i64>,
    missing: Missing,
    /// No event has come since the last loss.
    lost_just_now: bool,
    cpus: BTreeMap<CpuId, Cpu>,
    /// By thread.
    live: HashMap<u32, Box<Task>>,
    ended: Vec<Task>,
    /// Those that have ended and are not listed.
    rest: Option<Box<Task>>,
    rest_count: u64,
    calls: AllCalls,
}

impl Analysis for Tasks {
    type Report = (TasksReport, SyscallsReport);

    fn wants(&self, class: &EventClass) -> bool {
        is_known(class)
    }

    fn event(&mut self, event: &EventRef<'_>) {
        if self.span.first_ns.is_none() {
            self.complete_since_ns = complete_since(event.schema);
        }
        if self.counts_since_ns.is_some_and(|since_ns| event.time_ns >= since_ns) {
            self.begin_to_count();
        }
        self.span.at(event.time_ns);
        self.lost_just_now = false;
        let Some(happening) = self.happenings.of(event) else { return };
        let (now_ns, cpu) = (event.time_ns, event.cpu);
        match happening {
            Happening::Kernel(kind, names) => self.kernel(now_ns, cpu, &kind, &names),
            Happening::Task(dumped) => self.dumped(dumped),
            Happening::Entry(call, tid) => {
                self.calls.begin(call);
                // It has no end: what follows is the program's own work.
                let returns = self.happenings.call_name(call) != "rt_sigreturn";
                if let Some(task) = self.caller(cpu, tid) {
                    task.enter_call(call, now_ns, returns);
                }
            }
            Happening::Exit(call, ret, tid) => {
                let caller = self.caller(cpu, tid);
                let done = caller.map(|task| (task.exit_call(call, now_ns, ret), task.tid, task.comm));
                match done {
                    Some((Begun::At(since_ns), tid, comm)) => {
                        self.calls.end(call, (since_ns, now_ns), ret, || (tid, comm.to_string()));
                    }
                    Some((Begun::Earlier, ..)) => {}
                    Some((Begun::Unknown, ..)) | None => self.calls.exit_without_entry(),
                }
            }
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.missing.lost(lost);
        let at_ns = lost.since_ns.or(self.span.last_ns).unwrap_or(i64::MIN);
        let cpus: Vec<CpuId> = match lost.cpu {
            Some(cpu) => vec![cpu],
            None => self.cpus.keys().copied().collect(),
        };
        for cpu in cpus {
            self.forget(cpu, at_ns);
        }
        if !std::mem::replace(&mut self.lost_just_now, true) {
            self.complete_since_ns = None;
            self.live.values_mut().for_each(|task| task.doubt());
        }
    }

    fn finish(mut self) -> Self::Report {
        if self.counts_since_ns.is_some() {
            // Nothing has happened since then.
            self.begin_to_count();
            self.span = Span::default();
            self.cpus.clear();
            self.live.clear();
        }
        let end_ns = self.span.last_ns.unwrap_or(0);
        for cpu in self.cpus.values_mut() {
            cpu.until(end_ns);
        }
        for task in self.live.values_mut() {
            task.settle(end_ns);
        }
        let syscalls = self.calls.report(&self.happenings, self.span, &self.missing);
        (report::of(self), syscalls)
    }
}

/// The moment from which on all of the kernel's streams are there.
fn complete_since(schema: &Schema) -> Option<i64> {
    let streams = schema.streams.iter().filter(|stream| stream.domain != Domain::Program);
    // One of which it is not known makes it unknown.
    streams.map(|stream| stream.complete_since_ns).collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl Tasks {
    /// Of what happens at this moment and later, where that is given. Events before it are to be there, too: they say who ran then, who
    /// waited, and in what.
    #[must_use]
    pub fn since(counts_since_ns: Option<i64>) -> Tasks {
        Tasks { counts_since_ns, ..Tasks::default() }
    }

    /// Forgets all figures, and keeps all states.
    fn begin_to_count(&mut self) {
        let Some(since_ns) = self.counts_since_ns.take() else { return };
        if self.span.first_ns.is_none() {
            return;
        }
        self.span.first_ns = Some(since_ns);
        self.complete_since_ns = self.complete_since_ns.map(|complete_ns| complete_ns.max(since_ns));
        self.missing = Missing::default();
        for cpu in self.cpus.values_mut() {
            *cpu = Cpu { current: cpu.current, since_ns: since_ns.max(cpu.since_ns), ..Cpu::default() };
        }
        self.live.values_mut().for_each(|task| task.count_since(since_ns));
        self.ended.clear();
        (self.rest, self.rest_count) = (None, 0);
        self.calls = AllCalls::default();
    }

    fn task(&mut self, tid: u32) -> &mut Task {
        self.live.entry(tid).or_insert_with(|| Box::new(Task::new(tid)))
    }

    /// Who makes a system call: who the event says, or who runs there.
    fn caller(&mut self, cpu: Option<CpuId>, tid: Option<Tid>) -> Option<&mut Task> {
        let current = || self.cpus.get(&cpu?)?.current;
        let tid = tid.map(|tid| tid.0).or_else(current)?;
        Some(self.task(tid))
    }

    fn dumped(&mut self, dumped: DumpedTask) {
        if dumped.tid == 0 {
            return;
        }
        let since_ns = self.complete_since_ns;
        let task = self.task(dumped.tid);
        task.pid = dumped.pid.or(task.pid);
        task.kernel |= dumped.kernel;
        if let Some(name) = dumped.name {
            task.comm = name;
        }
        // Events of other CPUs may have come first.
        if let (State::Unknown, Some(since_ns)) = (task.state, since_ns) {
            task.state = State::There { since_ns };
        }
    }

    fn kernel(&mut self, now_ns: i64, cpu: Option<CpuId>, kind: &EventKind, names: &FoundNames) {
        for (tid, comm) in names.tasks.iter().flatten() {
            self.task(tid.0).comm = *comm;
        }
        match kind {
            EventKind::SchedSwitch { prev_tid, next_tid, prev_kthread, next_kthread, .. } => {
                let Some(cpu) = cpu else { return };
                for (tid, kernel) in [(prev_tid, prev_kthread), (next_tid, next_kthread)] {
                    if *kernel && tid.0 != 0 {
                        self.task(tid.0).kernel = true;
                    }
                }
                self.switch(now_ns, cpu, kind);
            }
            EventKind::SchedWaking { tid, .. } => self.task(tid.0).woken(now_ns, false),
            EventKind::SchedWakeupNew { tid, .. } => self.task(tid.0).woken(now_ns, true),
            EventKind::SchedMigrateTask { tid, .. } => self.task(tid.0).migrations += 1,
            EventKind::ProcessFork { parent_tid, parent_pid, child_tid, child_pid, child_comm } => {
                self.task(parent_tid.0).pid = Some(parent_pid.0);
                self.retire(child_tid.0);
                let child = self.task(child_tid.0);
                (child.pid, child.comm) = (Some(child_pid.0), *child_comm);
            }
            EventKind::ProcessExec { tid, old_tid, .. } if tid != old_tid => {
                // A thread that execs takes the place of the process's first.
                self.retire(tid.0);
                if let Some(mut task) = self.live.remove(&old_tid.0) {
                    task.tid = tid.0;
                    self.live.insert(tid.0, task);
                }
                for cpu in self.cpus.values_mut().filter(|cpu| cpu.current == Some(old_tid.0)) {
                    cpu.current = Some(tid.0);
                }
            }
            EventKind::ProcessExit { tid, pid, comm, .. } => {
                let task = self.task(tid.0);
                // LTTng's trace does not have the process, and the view then says the thread.
                task.pid = task.pid.or(Some(pid.0));
                task.comm = *comm;
                task.ended = true;
            }
            EventKind::TaskRename { tid, new_comm, .. } => self.task(tid.0).comm = *new_comm,
            _ => {}
        }
    }

    fn switch(&mut self, now_ns: i64, cpu: CpuId, kind: &EventKind) {
        let EventKind::SchedSwitch { prev_tid, prev_state, preempt, next_tid, .. } = kind else { return };
        let since_ns = self.complete_since_ns.filter(|since| *since < now_ns);
        // Who leaves a CPU first has run there since the beginning.
        let since_beginning = since_ns.filter(|_| !self.cpus.contains_key(&cpu));
        let place = self.cpus.entry(cpu).or_insert_with(|| Cpu {
            current: since_ns.map(|_| prev_tid.0),
            since_ns: since_ns.unwrap_or(now_ns),
            ..Cpu::default()
        });
        let before = place.current;
        let contradicts = before.is_some_and(|current| current != prev_tid.0);
        if contradicts {
            // Whoever left, and when: it is not known who ran here since.
            (place.current, place.since_ns) = (None, now_ns);
        }
        place.until(now_ns);
        place.current = Some(next_tid.0);
        if contradicts {
            self.missing.gaps += 1;
            if let Some(task) = before.and_then(|tid| self.live.get_mut(&tid)) {
                task.forget_running(cpu);
            }
        }
        if prev_tid.0 != 0 {
            let task = self.task(prev_tid.0);
            task.leave((since_beginning, now_ns), cpu, *prev_state, *preempt);
            if prev_state.is_dead() && !preempt {
                task.ended = true;
                self.retire(prev_tid.0);
            }
        }
        if next_tid.0 != 0 {
            self.task(next_tid.0).come(now_ns, cpu);
        }
    }

    /// What runs on a CPU is no longer known, since this moment.
    fn forget(&mut self, cpu: CpuId, at_ns: i64) {
        let Some(place) = self.cpus.get_mut(&cpu) else { return };
        if at_ns > place.since_ns {
            place.until(at_ns);
        }
        if let Some(task) = place.current.take().and_then(|tid| self.live.get_mut(&tid)) {
            task.lose(at_ns, cpu);
        }
    }

    /// The number of a thread is free for another.
    fn retire(&mut self, tid: u32) {
        let Some(task) = self.live.remove(&tid) else { return };
        if self.ended.len() < MAX_ENDED {
            return self.ended.push(*task);
        }
        self.rest_count += 1;
        match &mut self.rest {
            Some(rest) => rest.merge(&task),
            None => self.rest = Some(task),
        }
    }
}
