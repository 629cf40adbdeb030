// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes that forks are about.
//!
//! The kernel's tracepoint `sched_process_fork` names threads only; LTTng's has their processes, too, and tools need them to know
//! a new thread from a new process. eBPF records them with each fork, whether or not anybody asked for that event.

use rtscope_event::{Event, EventKind, MonotonicNs, Pid, Tid};
use std::collections::HashMap;

/// Forks that are stored: 64 MiB or so.
const FORKS_MAX: usize = 1 << 20;

/// Both recorders see a fork within this time: neither can be preempted between them for longer without another trace of it.
const NEAR_NS: u64 = 1_000_000_000;

/// When a fork was, and the processes of parent and child.
type Fork = (MonotonicNs, Pid, Pid);

/// All forks, by the threads of parent and child.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    known: HashMap<(Tid, Tid), Vec<Fork>>,
    stored: usize,
    /// How many were needed when others were forgotten.
    needed: usize,
}

impl Forks {
    /// Adds the event if it is a fork.
    pub(crate) fn observe(&mut self, event: &Event) {
        let EventKind::ProcessFork { parent_tid, parent_pid, child_tid, child_pid, .. } = event.kind else {
            return;
        };
        if self.stored < FORKS_MAX {
            self.stored += 1;
            let key = (parent_tid, child_tid);
            self.known.entry(key).or_default().push((event.time, parent_pid, child_pid));
        }
    }

    /// Adds those of another CPU.
    pub(crate) fn join(&mut self, other: Forks) {
        self.stored += other.stored;
        for (key, forks) in other.known {
            self.known.entry(key).or_default().extend(forks);
        }
    }

    /// No time before `time` will be asked for any more.
    pub(crate) fn forget_before(&mut self, time: MonotonicNs) {
        const FEW: usize = 4096;
        if self.stored < 2 * self.needed + FEW {
            return;
        }
        self.known.retain(|_, forks| {
            forks.retain(|(at, ..)| at.plus(NEAR_NS) >= time);
            !forks.is_empty()
        });
        self.stored = self.known.values().map(Vec::len).sum();
        self.needed = self.stored;
    }

    /// The processes of parent and child, if the fork at that time is known.
    pub(crate) fn processes(&self, parent: Tid, child: Tid, time: MonotonicNs) -> Option<(Pid, Pid)> {
        let distance = |(at, ..): &&Fork| at.0.abs_diff(time.0);
        let nearest = self.known.get(&(parent, child))?.iter().min_by_key(distance)?;
        (distance(&nearest) < NEAR_NS).then_some((nearest.1, nearest.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{Comm, CpuId};

    #[test]
    fn a_number_that_is_used_again_is_another_fork() {
        let mut forks = Forks::default();
        for (time, process) in [(10, 7), (50_000_000_000, 8)] {
            let kind = EventKind::ProcessFork {
                parent_tid: Tid(1),
                parent_pid: Pid(1),
                child_comm: Comm::from("x"),
                child_tid: Tid(8),
                child_pid: Pid(process),
            };
            forks.observe(&Event { time: MonotonicNs(time), cpu: CpuId(0), kind });
        }
        let child = |time| forks.processes(Tid(1), Tid(8), MonotonicNs(time)).map(|(_, child)| child);
        assert_eq!(child(20), Some(Pid(7)));
        assert_eq!(child(49_999_999_000), Some(Pid(8)));
        assert_eq!(child(25_000_000_000), None);
        assert_eq!(forks.processes(Tid(2), Tid(8), MonotonicNs(20)), None);
    }
}
