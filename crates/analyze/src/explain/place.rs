// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a thread ran or waited: read from the recording's scheduler events.

use super::Explainer;
use rtscope_event::{CpuId, Event, EventKind, MonotonicNs, Tid};

/// A part of a wait on one CPU's run queue; `None` when the recording does not tell which.
#[derive(Clone, Copy)]
pub(super) struct Stay {
    pub(super) cpu: Option<CpuId>,
    pub(super) from: MonotonicNs,
    pub(super) to: MonotonicNs,
}

impl Explainer<'_> {
    /// The index of the first event at `time` or later.
    fn index_at(&self, time: MonotonicNs) -> usize {
        self.recording.events.partition_point(|event| event.time < time)
    }

    fn events_at(&self, time: MonotonicNs) -> impl Iterator<Item = &Event> {
        self.recording.events[self.index_at(time)..].iter().take_while(move |event| event.time == time)
    }

    /// The events from `from` to `to`, both included.
    pub(super) fn events_between(&self, from: MonotonicNs, to: MonotonicNs) -> impl Iterator<Item = &Event> {
        self.recording.events[self.index_at(from)..].iter().take_while(move |event| event.time <= to)
    }

    /// When a timer's handler first began on `cpu` in this time.
    pub(super) fn first_timer(&self, cpu: CpuId, from: MonotonicNs, to: MonotonicNs) -> Option<MonotonicNs> {
        let events = self.recording.events[self.index_at(from)..].iter().take_while(|event| event.time < to);
        let timer = |event: &&Event| matches!(event.kind, EventKind::HrtimerExpireEntry { .. });
        events.filter(|event| event.cpu == cpu).find(timer).map(|event| event.time)
    }

    /// Where `tid` was switched out at `time`, and for which task.
    pub(super) fn switch_out(&self, tid: Tid, time: MonotonicNs) -> Option<(CpuId, Tid)> {
        self.events_at(time).find_map(|event| match event.kind {
            EventKind::SchedSwitch { prev_tid, next_tid, .. } if prev_tid == tid => {
                Some((event.cpu, next_tid))
            }
            _ => None,
        })
    }

    /// The run queues on which `tid` waited after it was woken at `from`.
    pub(super) fn stays_after_waking(&self, tid: Tid, from: MonotonicNs, to: MonotonicNs) -> Vec<Stay> {
        let waking = self.events_at(from).find_map(|event| match event.kind {
            EventKind::SchedWaking { tid: woken, target_cpu, .. }
            | EventKind::SchedWakeupNew { tid: woken, target_cpu, .. }
                if woken == tid =>
            {
                Some((event.cpu, target_cpu))
            }
            _ => None,
        });
        let Some((waker_cpu, target_cpu)) = waking else {
            return vec![Stay { cpu: None, from, to }];
        };
        let start = self.placed_by_waker(tid, waker_cpu, from, to).unwrap_or(target_cpu);
        self.stays(tid, Some(start), from, to)
    }

    /// The CPU that the waker chose. The wakeup names the CPU on which the task last ran; the choice follows at once on
    /// the waker's CPU, as a migration. It never waited where it last ran then.
    fn placed_by_waker(
        &self,
        tid: Tid,
        waker_cpu: CpuId,
        from: MonotonicNs,
        to: MonotonicNs,
    ) -> Option<CpuId> {
        let events = self.recording.events[self.index_at(from)..].iter().take_while(|event| event.time <= to);
        for event in events.filter(|event| event.cpu == waker_cpu) {
            match event.kind {
                EventKind::SchedMigrateTask { tid: moved, dest_cpu, .. } if moved == tid => {
                    return Some(dest_cpu);
                }
                // The waker has gone on to something else: a later migration is the load balancer's.
                EventKind::SchedSwitch { .. }
                | EventKind::IrqHandlerExit { .. }
                | EventKind::VectorExit { .. }
                | EventKind::SoftirqExit { .. } => return None,
                _ => {}
            }
        }
        None
    }

    /// The run queues on which `tid` waited after it had been switched out by `from`.
    pub(super) fn stays_after_preemption(&self, tid: Tid, from: MonotonicNs, to: MonotonicNs) -> Vec<Stay> {
        let start = self.switch_out(tid, from).map(|(cpu, _)| cpu).or_else(|| self.last_place(tid, from));
        self.stays(tid, start, from, to)
    }

    /// Where the last event before `time` put `tid`.
    pub(super) fn last_place(&self, tid: Tid, time: MonotonicNs) -> Option<CpuId> {
        let end = self.recording.events.partition_point(|event| event.time <= time);
        self.recording.events[..end].iter().rev().find_map(|event| match event.kind {
            EventKind::SchedSwitch { prev_tid, next_tid, .. } if prev_tid == tid || next_tid == tid => {
                Some(event.cpu)
            }
            EventKind::SchedMigrateTask { tid: moved, dest_cpu, .. } if moved == tid => Some(dest_cpu),
            _ => None,
        })
    }

    fn stays(&self, tid: Tid, start: Option<CpuId>, from: MonotonicNs, to: MonotonicNs) -> Vec<Stay> {
        let mut stays = vec![Stay { cpu: start, from, to }];
        let events = self.recording.events[self.index_at(from)..].iter().take_while(|event| event.time < to);
        for event in events {
            let EventKind::SchedMigrateTask { tid: moved, dest_cpu, .. } = event.kind else { continue };
            let Some(last) = stays.last_mut() else { continue };
            if moved == tid && last.cpu != Some(dest_cpu) {
                last.to = event.time;
                stays.push(Stay { cpu: Some(dest_cpu), from: event.time, to });
            }
        }
        stays
    }

    /// The CPU on which `tid` ran from `from` on. A step's own CPU is that of the event that ended it, which for a
    /// rewoken thread is its waker's.
    pub(super) fn running_on(&self, tid: Tid, from: MonotonicNs, step_cpu: CpuId) -> CpuId {
        let here =
            |cpu: &CpuId| self.timeline.at(*cpu, from).is_some_and(|segment| segment.thread == Some(tid));
        if here(&step_cpu) {
            return step_cpu;
        }
        self.timeline.cpus().find(here).unwrap_or(step_cpu)
    }
}
