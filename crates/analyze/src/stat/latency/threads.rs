// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who: the thread of each event, and its name.

use super::super::happening::Happening;
use rtscope_event::{Comm, CpuId, Domain, EventClass, EventKind, EventRef};
use std::collections::HashMap;

/// A thread with its name, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) comm: Comm,
    /// Which of the threads that have had this number, one after the other.
    pub(super) life: u32,
}

/// Where a class has its thread.
#[derive(Clone, Copy, Debug)]
struct Places {
    tid: Option<usize>,
    comm: Option<usize>,
}

/// What is known of threads so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    comms: HashMap<u32, Comm>,
    current: HashMap<CpuId, u32>,
    /// How many threads of a number have ended.
    lives: HashMap<u32, u32>,
    /// By class.
    places: Vec<Places>,
}

/// Contexts in which tracers name threads. Only perf has its among the fields.
fn places(class: &EventClass) -> Places {
    let context = |name: &str| class.fields.iter().position(|field| !field.is_payload && field.name == name);
    let tid = context("tid").or_else(|| context("vtid")).or_else(|| class.field("perf_tid"));
    // In a program's trace this is the process's name where the thread has none.
    let comm = context("procname").filter(|_| class.domain == Domain::Program);
    Places { tid, comm }
}

impl Threads {
    /// The thread that an event happened in: the one that it names, or the one that runs on its CPU.
    pub(super) fn of(&mut self, event: &EventRef<'_>) -> Option<Thread> {
        while self.places.len() < event.schema.classes.len() {
            self.places.push(places(&event.schema.classes[self.places.len()]));
        }
        let places = self.places.get(event.class.0 as usize)?;
        let named = places.tid.and_then(|place| u32::try_from(event.values.integer(place)?).ok());
        let tid = named.or_else(|| self.current.get(&event.cpu?).copied())?;
        let comm = places.comm.and_then(|place| event.values.bytes(place)).map(Comm::from_bytes);
        let comm = comm.filter(|comm| !comm.as_bytes().is_empty());
        Some(Thread { comm: comm.unwrap_or(self.comm(tid)), ..self.thread(tid) })
    }

    /// Its name.
    pub(super) fn comm(&self, tid: u32) -> Comm {
        match tid {
            0 => Comm::from("swapper"),
            _ => self.comms.get(&tid).copied().unwrap_or_default(),
        }
    }

    pub(super) fn thread(&self, tid: u32) -> Thread {
        Thread { tid, comm: self.comm(tid), life: self.lives.get(&tid).copied().unwrap_or(0) }
    }

    /// Who runs on a CPU.
    pub(super) fn on(&self, cpu: CpuId) -> Option<u32> {
        self.current.get(&cpu).copied()
    }

    /// Whether a thread runs somewhere.
    pub(super) fn runs(&self, tid: u32) -> bool {
        self.current.values().any(|current| *current == tid)
    }

    /// Names that an event tells: before anything asks for them.
    pub(super) fn names(&mut self, happening: &Happening) {
        match happening {
            Happening::Task(task) => {
                if let Some(name) = task.name {
                    self.comms.entry(task.tid).or_insert(name);
                }
            }
            Happening::Kernel(kind, names) => {
                for (tid, comm) in names.tasks.iter().flatten() {
                    self.comms.insert(tid.0, *comm);
                }
                match kind {
                    EventKind::ProcessFork { child_tid, child_comm, .. } => {
                        self.comms.insert(child_tid.0, *child_comm);
                    }
                    EventKind::TaskRename { tid, new_comm, .. } => {
                        self.comms.insert(tid.0, *new_comm);
                    }
                    EventKind::ProcessExit { tid, comm, .. } => {
                        self.comms.insert(tid.0, *comm);
                    }
                    EventKind::ProcessExec { tid, old_tid, .. } if tid != old_tid => {
                        if let Some(comm) = self.comms.remove(&old_tid.0) {
                            self.comms.insert(tid.0, comm);
                        }
                    }
                    _ => {}
                }
            }
            Happening::Entry(..) | Happening::Exit(..) => {}
        }
    }

    /// Who runs from now on: after everything has seen the event.
    pub(super) fn switch(&mut self, cpu: CpuId, next: u32) {
        self.current.insert(cpu, next);
    }

    /// From now on its number is another's; `has_name`: which has its name already.
    pub(super) fn ended(&mut self, tid: u32, has_name: bool) {
        *self.lives.entry(tid).or_default() += 1;
        if !has_name {
            self.comms.remove(&tid);
        }
    }

    /// Events of a CPU are missing, or of any.
    pub(super) fn lost(&mut self, cpu: Option<CpuId>) {
        match cpu {
            Some(cpu) => {
                self.current.remove(&cpu);
            }
            None => self.current.clear(),
        }
    }
}
