// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls, from entry to exit, time in which the task did not run included.

use super::super::happening::{CallId, Happening, Happenings};
use super::super::{Missing, Span};
use super::collected::{Collected, Found};
use super::{Head, LatencyReport, Measure, Seen};
use crate::pairing::Pending;
use rtscope_event::{CpuId, EventKind};

#[derive(Clone, Debug)]
pub(super) struct Syscalls {
    collected: Collected,
    /// By thread: the call, and its beginning.
    begun: Pending<u32, (CallId, Found)>,
}

impl Syscalls {
    pub(super) fn new(collected: Collected) -> Syscalls {
        Syscalls { collected, begun: Pending::default() }
    }

    fn drop(&mut self, tid: u32) {
        if let Some((_, begun)) = self.begun.end(&tid) {
            self.collected.no_end(&begun);
        }
    }
}

impl Measure for Syscalls {
    fn event(&mut self, seen: &Seen<'_>) {
        let (now_ns, cpu) = (seen.event.time_ns, seen.event.cpu);
        let here = |call: CallId| Found {
            row: Some(call.into()),
            since_ns: now_ns,
            until_ns: now_ns,
            thread: seen.thread,
            cpu,
            asked: seen.asked,
        };
        match seen.happening {
            Some(Happening::Entry(call, _)) => {
                let Some(thread) = seen.thread else { return };
                // It has no end: what follows is the program's own work.
                if seen.names.call_name(*call) == "rt_sigreturn" {
                    return self.drop(thread.tid);
                }
                if let Some((_, before)) = self.begun.begin(thread.tid, (*call, here(*call))) {
                    self.collected.no_end(&before);
                }
            }
            Some(Happening::Exit(call, ..)) => {
                let begun = seen.thread.and_then(|thread| self.begun.end(&thread.tid));
                match begun {
                    Some((entered, begun)) if entered == *call => {
                        let asked = begun.asked.and(seen.asked);
                        self.collected.add(Found { since_ns: begun.since_ns, asked, ..here(*call) });
                    }
                    other => {
                        other.iter().for_each(|(_, begun)| self.collected.no_end(begun));
                        self.collected.no_begin(&here(*call));
                    }
                }
            }
            // A thread that execs takes the number of the process's first.
            Some(Happening::Kernel(EventKind::ProcessExec { tid, old_tid, .. }, _)) if tid != old_tid => {
                self.drop(tid.0);
                if let Some(begun) = self.begun.end(&old_tid.0) {
                    self.begun.begin(tid.0, begun);
                }
            }
            _ => {}
        }
    }

    fn thread_ended(&mut self, tid: u32) {
        self.drop(tid);
    }

    fn lost(&mut self, _: Option<CpuId>, of_program: bool) {
        if !of_program {
            self.begun.take_all().for_each(|(_, begun)| self.collected.lost(&begun));
        }
    }

    fn reports(mut self: Box<Self>, names: &Happenings, of: (Span, &Missing)) -> Vec<LatencyReport> {
        self.begun.values().for_each(|(_, begun)| self.collected.no_end(begun));
        let name = |row: u64| (row, u32::try_from(row).map_or("", |call| names.call_name(call)).to_owned());
        let parts = self.collected.report(self.begun.forgotten, &name);
        vec![Head::new("syscalls", "syscall_entry_*", "syscall_exit_*", "system call").report(parts, of)]
    }

    fn boxed(&self) -> Box<dyn Measure> {
        Box::new(self.clone())
    }
}
