// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakeups: from the waking of a task that had left its CPU to the moment at which it gets one.
//!
//! A second waking before that changes nothing. A waking may carry an earlier time than the switch by which its task leaves; then the task
//! waits from that switch on, if it comes back without another waking (see `tasks`). A task that was kept from going on was not woken: its
//! wait is no wakeup, whatever wakings come.

use super::super::happening::{Happening, Happenings};
use super::super::{Missing, Span};
use super::collected::{Collected, Found};
use super::{Head, LatencyReport, Measure, Seen};
use crate::pairing::Pending;
use rtscope_event::{CpuId, EventKind, TaskState};
use std::collections::HashSet;

#[derive(Clone, Debug)]
struct Begun {
    found: Found,
    /// Its waking was older than its leaving, so far.
    maybe: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Wakeup {
    collected: Collected,
    begun: Pending<u32, Begun>,
    /// Threads that were woken while they ran.
    early: HashSet<u32>,
    /// Threads that wait for a CPU because another took theirs.
    preempted: HashSet<u32>,
}

impl Wakeup {
    pub(super) fn new(collected: Collected) -> Wakeup {
        Wakeup { collected, begun: Pending::default(), early: HashSet::new(), preempted: HashSet::new() }
    }

    fn woken(&mut self, seen: &Seen<'_>, tid: u32) {
        if tid == 0 || self.preempted.contains(&tid) {
            return;
        }
        if seen.threads.runs(tid) {
            self.early.insert(tid);
            return;
        }
        if self.begun.get(&tid).is_some_and(|begun| !begun.maybe) {
            return;
        }
        let now_ns = seen.event.time_ns;
        let found = Found {
            row: None,
            since_ns: now_ns,
            until_ns: now_ns,
            thread: Some(seen.threads.thread(tid)),
            cpu: None,
            asked: seen.asked,
        };
        self.begun.begin(tid, Begun { found, maybe: false });
    }

    fn leaves(&mut self, seen: &Seen<'_>, tid: u32, stays_runnable: bool) {
        if tid == 0 {
            return;
        }
        if let Some(begun) = self.begun.end(&tid).filter(|begun| !begun.maybe) {
            // It ran, so it came; nobody saw when.
            self.collected.no_end(&begun.found);
        }
        let woken = self.early.remove(&tid);
        self.preempted.remove(&tid);
        if stays_runnable {
            self.preempted.insert(tid);
        } else if woken {
            let now_ns = seen.event.time_ns;
            let thread = Some(seen.threads.thread(tid));
            let found = Found { since_ns: now_ns, until_ns: now_ns, thread, ..Found::default() };
            self.begun.begin(tid, Begun { found, maybe: true });
        }
    }

    fn comes(&mut self, seen: &Seen<'_>, tid: u32) {
        self.preempted.remove(&tid);
        self.early.remove(&tid);
        let Some(begun) = self.begun.end(&tid) else { return };
        let cpu = seen.event.cpu;
        self.collected.add(Found {
            row: cpu.map(|cpu| cpu.0.into()),
            until_ns: seen.event.time_ns,
            thread: Some(seen.threads.thread(tid)),
            cpu,
            asked: begun.found.asked.and(seen.asked),
            ..begun.found
        });
    }

    fn forget(&mut self, tid: u32) {
        self.early.remove(&tid);
        self.preempted.remove(&tid);
        if let Some(begun) = self.begun.end(&tid).filter(|begun| !begun.maybe) {
            self.collected.no_end(&begun.found);
        }
    }
}

impl Measure for Wakeup {
    fn event(&mut self, seen: &Seen<'_>) {
        let Some(Happening::Kernel(kind, _)) = seen.happening else { return };
        match kind {
            EventKind::SchedWaking { tid, .. } | EventKind::SchedWakeupNew { tid, .. } => {
                self.woken(seen, tid.0)
            }
            EventKind::SchedSwitch { prev_tid, prev_state, preempt, next_tid, .. } => {
                self.leaves(seen, prev_tid.0, *preempt || *prev_state == TaskState::RUNNABLE);
                self.comes(seen, next_tid.0);
            }
            _ => {}
        }
    }

    fn thread_ended(&mut self, tid: u32) {
        self.forget(tid);
    }

    fn lost(&mut self, _: Option<CpuId>, of_program: bool) {
        if of_program {
            return;
        }
        self.early.clear();
        self.preempted.clear();
        for begun in self.begun.take_all().filter(|begun| !begun.maybe) {
            self.collected.lost(&begun.found);
        }
    }

    fn reports(mut self: Box<Self>, _: &Happenings, of: (Span, &Missing)) -> Vec<LatencyReport> {
        for begun in self.begun.values().filter(|begun| !begun.maybe) {
            self.collected.no_end(&begun.found);
        }
        let parts = self.collected.report(self.begun.forgotten, &|cpu| (cpu, format!("CPU {cpu}")));
        vec![Head::new("wakeup", "sched_waking", "sched_switch", "CPU").report(parts, of)]
    }

    fn boxed(&self) -> Box<dyn Measure> {
        Box::new(self.clone())
    }
}
