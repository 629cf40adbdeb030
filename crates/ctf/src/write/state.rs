// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state dump that a trace begins with: tasks, their state, and interrupts.
//!
//! The banks hold ids; their names were read from `/proc` afterwards. Tools expect it before the events, as
//! LTTng writes it when a session starts. The state in which a task *began* was never read, but follows from the
//! recording: from the task's first event.

use super::encode::Payload;
use super::trace::StreamWriter;
use crate::layout::id;
use rtscope_event::{CpuId, Event, EventKind, Irq, MonotonicNs, Names, TaskInfo, Tid, TraceSink};
use std::collections::HashMap;
use std::io;

/// State of a task, by LTTng's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It waits for a CPU.
    Runnable = 2,
    /// It waits for another event.
    Waiting = 5,
    /// It is on a CPU.
    Running = 6,
}

/// In what state, and on which CPU where it matters, each task was before its first event.
#[must_use]
pub fn initial_states(events: &[Event]) -> HashMap<Tid, (TaskStatus, CpuId)> {
    let mut states = HashMap::new();
    for event in events {
        let mut said = |tid: Tid, status: TaskStatus, cpu: CpuId| {
            states.entry(tid).or_insert((status, cpu));
        };
        match &event.kind {
            EventKind::SchedSwitch { prev_tid, next_tid, .. } => {
                said(*prev_tid, TaskStatus::Running, event.cpu);
                said(*next_tid, TaskStatus::Runnable, event.cpu);
            }
            EventKind::SchedWaking { tid, target_cpu, .. } => said(*tid, TaskStatus::Waiting, *target_cpu),
            EventKind::SchedWakeupNew { tid, target_cpu, .. } => said(*tid, TaskStatus::Waiting, *target_cpu),
            EventKind::ProcessFork { parent_tid, child_tid, .. } => {
                said(*parent_tid, TaskStatus::Running, event.cpu);
                // It did not exist. Tools have no status for that; waiting claims least.
                said(*child_tid, TaskStatus::Waiting, event.cpu);
            }
            EventKind::ProcessExec { tid, .. } | EventKind::ProcessExit { tid, .. } => {
                said(*tid, TaskStatus::Running, event.cpu);
            }
            // A task may be renamed, boosted or moved by another, in any state.
            _ => {}
        }
    }
    states
}

/// Writes the dump and returns its number of events.
pub(super) fn write_dump(
    stream: &mut StreamWriter,
    names: &Names,
    status: impl Fn(Tid) -> Option<(TaskStatus, CpuId)>,
    time: MonotonicNs,
) -> io::Result<u64> {
    stream.own(id::DUMP_START, time, |_| {})?;
    let mut events = 2;
    for task in names.tasks() {
        let (status, cpu) = status(task.tid).unwrap_or((TaskStatus::Waiting, CpuId(0)));
        stream.own(id::DUMP_PROCESS, time, |out| process(task, status, cpu, out))?;
        events += 1;
    }
    for (Irq(irq), name) in names.irqs() {
        stream.own(id::DUMP_INTERRUPT, time, |out| {
            out.id(irq);
            // LTTng: the interrupt chip's name, then the handler's. Only the latter is known.
            out.text("");
            out.text(name);
        })?;
        events += 1;
    }
    stream.own(id::DUMP_END, time, |_| {})?;
    Ok(events)
}

fn process(task: &TaskInfo, status: TaskStatus, cpu: CpuId, out: &mut Payload<'_>) {
    // The ids inside a pid namespace are not known; LTTng writes both, equal outside containers.
    for id in [task.tid.0, task.tid.0, task.pid.0, task.pid.0, task.ppid.0, task.ppid.0] {
        out.id(id);
    }
    out.comm(task.comm);
    let (kind, mode, submode) = (i32::from(task.kthread), 0, 0);
    [kind, mode, submode, status as i32].into_iter().for_each(|value| out.s32(value));
    out.u32(cpu.0);
    out.prio(task.prio);
    out.u32(task.policy.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{Priority, TaskState, WaitKind};

    fn switch(time: u64, cpu: u32, prev: u32, next: u32) -> Event {
        let kind = EventKind::SchedSwitch {
            prev_tid: Tid(prev),
            prev_prio: Priority(120),
            prev_state: TaskState(1),
            preempt: false,
            prev_kthread: false,
            next_tid: Tid(next),
            next_prio: Priority(120),
            next_kthread: false,
            prev_wait: WaitKind::None,
            prev_wait_on: 0,
        };
        Event { time: MonotonicNs(time), cpu: CpuId(cpu), kind }
    }

    #[test]
    fn the_first_event_of_a_task_tells_how_it_began() {
        let waking = EventKind::SchedWaking {
            tid: Tid(3),
            prio: Priority(120),
            target_cpu: CpuId(4),
            kthread: false,
            wait: WaitKind::None,
        };
        let waking = Event { time: MonotonicNs(2), cpu: CpuId(0), kind: waking };
        let states = initial_states(&[switch(1, 7, 1, 2), waking, switch(3, 7, 2, 3), switch(4, 7, 3, 1)]);
        assert_eq!(states[&Tid(1)], (TaskStatus::Running, CpuId(7)));
        assert_eq!(states[&Tid(2)], (TaskStatus::Runnable, CpuId(7)));
        assert_eq!(states[&Tid(3)], (TaskStatus::Waiting, CpuId(4)));
        assert_eq!(states.get(&Tid(4)), None);
    }
}
