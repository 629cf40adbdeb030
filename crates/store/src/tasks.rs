// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks at a moment of a recording, for the state that each generation of a ring of files begins with.
//!
//! The state dump of the beginning is removed with the oldest files. So the tasks that the description lists are followed: forks,
//! renamings and exits are taken from the scan, which is ahead, and applied when the trace has come so far.

use rtscope_event::{Event, EventKind, MonotonicNs, Names, TaskInfo, Tid};
use std::collections::BTreeMap;

/// The tasks as of some time, and what changes later.
#[derive(Debug, Default)]
pub(crate) struct TaskTable {
    tasks: BTreeMap<Tid, TaskInfo>,
    changes: BTreeMap<(MonotonicNs, usize), EventKind>,
    serial: usize,
}

impl TaskTable {
    /// As they were at the beginning.
    pub(crate) fn new(tasks: impl Iterator<Item = TaskInfo>) -> TaskTable {
        TaskTable { tasks: tasks.map(|task| (task.tid, task)).collect(), ..TaskTable::default() }
    }

    /// What happened, in any order.
    pub(crate) fn extend(&mut self, events: Vec<Event>) {
        for event in events {
            self.serial += 1;
            self.changes.insert((event.time, self.serial), event.kind);
        }
    }

    /// Number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Goes on to this time: what happened until then is applied.
    pub(crate) fn advance(&mut self, time: MonotonicNs) {
        let later = self.changes.split_off(&(time.plus(1), 0));
        for (_, kind) in std::mem::replace(&mut self.changes, later) {
            self.apply(&kind);
        }
    }

    fn apply(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ProcessFork { parent_tid, parent_pid, child_tid, child_pid, child_comm, .. } => {
                // A thread has the parent of its process; its policy and priority are those of whoever made it, unless it was to be reset.
                let Some(parent) = self.tasks.get(parent_tid).cloned() else { return };
                let ppid = if child_pid == parent_pid { parent.ppid } else { *parent_pid };
                let child = TaskInfo { tid: *child_tid, pid: *child_pid, ppid, comm: *child_comm, ..parent };
                self.tasks.insert(*child_tid, child);
            }
            EventKind::TaskRename { tid, new_comm, .. } => {
                if let Some(task) = self.tasks.get_mut(tid) {
                    task.comm = *new_comm;
                }
            }
            EventKind::ProcessExit { tid, .. } => {
                self.tasks.remove(tid);
            }
            _ => {}
        }
    }

    /// The tasks.
    pub(crate) fn names(&self) -> Names {
        let mut names = Names::default();
        self.tasks.values().for_each(|task| names.add_task(task.clone()));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{Comm, CpuId, Pid, Policy, Priority};

    fn event(time: u64, kind: EventKind) -> Event {
        Event { time: MonotonicNs(time), cpu: CpuId(0), kind }
    }

    #[test]
    fn tasks_are_those_of_the_time_whatever_the_order_in_which_events_are_found() {
        let init = TaskInfo {
            tid: Tid(1),
            pid: Pid(1),
            ppid: Pid(0),
            comm: Comm::from("init"),
            prio: Priority(120),
            policy: Policy(0),
            kthread: false,
        };
        let fork = |parent: u32, process: u32, tid: u32, pid: u32| EventKind::ProcessFork {
            parent_tid: Tid(parent),
            parent_pid: Pid(process),
            child_comm: Comm::from("child"),
            child_tid: Tid(tid),
            child_pid: Pid(pid),
        };
        let rename = EventKind::TaskRename {
            tid: Tid(7),
            pid: Pid(7),
            old_comm: Comm::from("child"),
            new_comm: Comm::from("new"),
        };
        let exit =
            EventKind::ProcessExit { comm: Comm::from("new"), tid: Tid(7), prio: Priority(120), pid: Pid(7) };
        let mut table = TaskTable::new(std::iter::once(init));
        table.extend(vec![event(30, rename), event(40, exit)]);
        table.extend(vec![event(20, fork(7, 7, 8, 7)), event(10, fork(1, 1, 7, 7))]);
        let at = |table: &mut TaskTable, time| {
            table.advance(MonotonicNs(time));
            let tasks = table.tasks.values();
            tasks.map(|task| (task.tid.0, task.ppid.0, task.comm.to_string())).collect::<Vec<_>>()
        };
        let init = (1, 0, "init".to_string());
        assert_eq!(at(&mut table, 9), std::slice::from_ref(&init));
        assert_eq!(at(&mut table, 10), [init.clone(), (7, 1, "child".to_string())]);
        let both = [init.clone(), (7, 1, "new".to_string()), (8, 1, "child".to_string())];
        assert_eq!(at(&mut table, 30), both);
        assert_eq!(at(&mut table, 99), [init, (8, 1, "child".to_string())]);
    }
}
