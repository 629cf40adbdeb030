// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where rtscope itself runs: off the CPUs of its targets, and off those that are kept free.
//!
//! A system call of ours on the target's CPU delays the target as long as it lasts, on a kernel without preemption even a real-time
//! one: loading an eBPF program, making memory present and writing a file take milliseconds. So this comes first, before anything is
//! opened, and all threads that are started later inherit it. ObservedTasks move, and threads of theirs begin: they are looked at again while
//! rtscope runs, often in the first seconds and seldom later. What cannot be avoided is in docs/how-to/cost.md.

pub(crate) mod tasks;

use crate::Failure;
use crate::command::{Child, CommandOutput};
use rtscope_cpus::{Affinity, Cpus, Machine, Place, Surroundings, Thread};
use rtscope_event::{Glob, MonotonicNs, TaskInfo};
use rtscope_shield::journal::Journal;
use rtscope_shield::system::System;
use std::ffi::OsString;
use std::path::Path;
use tasks::KernelThreads;

/// Between two looks at the CPUs of the targets that are known.
const LOOK_NS: u64 = 1_000_000_000;
/// The same soon after the start, when a program sets itself up: first this, and then a part of the time that has passed since.
const LOOK_EARLY_NS: u64 = 50_000_000;
const LOOK_EARLY_SHARE: u64 = 3;
const EARLY_NS: u64 = 3_000_000_000;
/// Between two searches among all tasks: with eBPF's list of them, some ten microseconds each.
const SEARCH_NS: u64 = 2_000_000_000;
/// The same in /proc: a millisecond each, so it is seldom unless a name is waited for.
const PROC_SEARCH_NS: u64 = 10_000_000_000;

/// Which tasks must not feel rtscope.
#[derive(Debug, Default)]
pub struct ObservedTasks {
    /// Tasks with a name that matches one of these.
    pub names: Vec<Glob>,
    /// All threads of these processes.
    pub processes: Vec<u32>,
    /// Also the processes that those have started.
    pub with_children: bool,
    /// These threads.
    pub threads: Vec<u32>,
    /// Whatever runs on these CPUs.
    pub cpus: Option<Cpus>,
}

impl ObservedTasks {
    fn are_named(&self) -> bool {
        !self.names.is_empty()
            || self.cpus.is_some()
            || !self.processes.is_empty()
            || !self.threads.is_empty()
    }
}

/// The place that this process has taken.
#[derive(Debug)]
pub struct Placement {
    /// Where the caller may run: there COMMAND belongs.
    caller: Cpus,
    targets: ObservedTasks,
    surroundings: Surroundings,
    place: Place,
    kernel_threads: KernelThreads,
    /// Threads with a name that matches, from the last search.
    named: Vec<u32>,
    began: MonotonicNs,
    next_look: MonotonicNs,
    next_search: MonotonicNs,
}

impl Placement {
    /// Leaves the CPUs of the targets. `begins`: COMMAND becomes a target as soon as it is there; until then the caller's CPUs, which it
    /// gets, are its own.
    pub fn take(targets: ObservedTasks, begins: bool) -> Result<Placement, Failure> {
        let failed = |error| Failure::doing("asking which CPUs rtscope may use", error);
        let caller = Thread::Calling.cpus().map_err(failed)?;
        let now = rtscope_flight::monotonic_now();
        let mut placement = Placement {
            targets,
            surroundings: Surroundings {
                shielded: shielded(),
                allowed: caller.clone(),
                ..Surroundings::default()
            },
            place: Place { cpus: caller.clone(), is_apart: true },
            kernel_threads: KernelThreads::default(),
            named: Vec::new(),
            caller,
            began: now,
            next_look: now,
            next_search: now.plus(LOOK_NS),
        };
        placement.search(None);
        placement.look();
        if begins {
            // Where it will be, unless it moves.
            placement.surroundings.targets.push(placement.caller.clone());
        }
        placement.settle();
        Ok(placement)
    }

    /// COMMAND has been started.
    fn add_command(&mut self, pid: u32) {
        self.targets.processes.push(pid);
    }

    /// The caller's CPUs, for COMMAND: all that there are, where the caller was not bound.
    fn of_caller(&self) -> Affinity {
        let is_bound = !self.surroundings.machine.online.without(&self.caller).is_empty();
        Affinity::new(&if is_bound { self.caller.clone() } else { Cpus::every() })
    }

    /// Whether no target may run where rtscope does, also when somebody has moved it.
    pub fn is_apart(&self) -> bool {
        let targets = &self.surroundings.targets;
        let apart = |own: Cpus| targets.iter().all(|target| own.is_apart_from(target));
        Thread::Calling.cpus().map_or(self.place.is_apart, apart)
    }

    /// When [`Placement::follow`] has something to do again.
    pub fn next_look(&self) -> MonotonicNs {
        self.next_look
    }

    /// COMMAND, held at its gate, with the CPUs of the caller, which it is then kept clear of; `None`: there is none. As [`Child::held`].
    pub fn hold(&mut self, command: &[OsString], output: CommandOutput) -> Result<Option<Child>, Failure> {
        if command.is_empty() {
            return Ok(None);
        }
        let child = Child::held(command, &self.of_caller(), output)?;
        self.add_command(child.pid().0);
        Ok(Some(child))
    }

    /// Goes where the targets are not, if they or the machine have changed. Costs next to nothing until the next look is due. `dump`: all
    /// tasks, from where that is cheap.
    pub fn follow(&mut self, now: MonotonicNs, dump: impl FnOnce() -> Option<Vec<TaskInfo>>) {
        if now < self.next_look {
            return;
        }
        let age = now.since(self.began);
        let is_early = age < EARLY_NS;
        self.next_look = now.plus((age / LOOK_EARLY_SHARE).clamp(LOOK_EARLY_NS, LOOK_NS));
        if now >= self.next_search {
            let dump = dump();
            let pause = match &dump {
                Some(_) => SEARCH_NS,
                None if is_early && !self.targets.names.is_empty() => LOOK_NS,
                None => PROC_SEARCH_NS,
            };
            self.next_search = now.plus(pause);
            self.search(dump.as_deref());
        }
        self.look();
        self.settle();
    }

    /// Among all tasks: those that are named, and real-time tasks of others.
    fn search(&mut self, dump: Option<&[TaskInfo]>) {
        let names = &self.targets.names;
        let found = match dump {
            Some(tasks) => tasks::choose(tasks, names),
            None => tasks::search(names, &mut self.kernel_threads),
        };
        self.surroundings.machine = Machine::read();
        self.named = found.named;
        self.surroundings.neighbours = found.real_time.into_iter().filter_map(tasks::cpus).collect();
    }

    /// At the CPUs of the targets that are known.
    fn look(&mut self) {
        let mut threads = self.targets.threads.clone();
        threads.extend(&self.named);
        for process in &self.targets.processes {
            tasks::threads_of(*process, self.targets.with_children, &mut threads);
        }
        let mut targets: Vec<Cpus> = threads.into_iter().filter_map(tasks::cpus).collect();
        targets.extend(self.targets.cpus.clone());
        if !self.targets.are_named() {
            // Everything is a target. What can be hurt are real-time tasks, and those that are bound can be left alone.
            targets.clone_from(&self.surroundings.neighbours);
        }
        self.surroundings.targets = targets;
    }

    /// Takes the best place that the kernel gives. Where somebody has moved rtscope it stays, until something changes.
    fn settle(&mut self) {
        let places = self.surroundings.places();
        if places.first().is_some_and(|best| best.cpus == self.place.cpus) {
            self.place.is_apart = places[0].is_apart;
            return;
        }
        for place in places {
            if place.cpus == self.place.cpus || tasks::move_own_threads(&place.cpus) {
                self.place = place;
                return;
            }
        }
    }
}

/// The CPUs of a shield of rtscope's. One that cannot be read is reported by `rtscope shield status`, not here.
fn shielded() -> Cpus {
    let journal = Journal::load(&System::new(Path::new("/"))).ok().flatten();
    journal.and_then(|journal| Cpus::from_list(&journal.rt).ok()).unwrap_or_default()
}
