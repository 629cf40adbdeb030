// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came before a response that began with a waking by another thread.
//!
//! Such a response is measured from that waking on. Why the waking came so late is another question, and often the one that matters: a
//! client waits for a server, which waits for a second one. So the thread that woke is followed back: to its own last wait, to who ended
//! that, and so on, to an interrupt or the beginning of the recording. None of this time is in the response.

use super::Explainer;
use super::types::{Actor, Earlier};
use crate::timeline::Activity;
use rtscope_event::{CpuId, EventKind, LateResponse, MonotonicNs, OriginKind, Tid, VectorKind, WaitKind};

/// How many threads are followed back.
const DEPTH: usize = 12;

/// What a recording says of a thread's last wait before some time.
struct LastWait {
    /// Since when it waited; `None`: since before the recording.
    since: Option<MonotonicNs>,
    wait: WaitKind,
    woken: MonotonicNs,
    waker_cpu: CpuId,
}

impl Explainer<'_> {
    /// The threads that led to the waking with which a response began, the last first.
    pub(super) fn earlier(&self, late: &LateResponse) -> Vec<Earlier> {
        let origin = late.chain.origin;
        let mut earlier = Vec::new();
        if origin.kind != OriginKind::Task || late.events.is_some() {
            return earlier;
        }
        let (mut tid, mut woke) = (Tid(origin.id), origin.time_ns);
        while earlier.len() < DEPTH && tid != Tid(0) {
            let wait = self.last_wait(tid, woke);
            let woken_by = wait.as_ref().and_then(|wait| self.actor_at(wait.waker_cpu, wait.woken));
            earlier.push(Earlier {
                thread: self.thread(tid, woke),
                woke_ns: woke,
                woken_ns: wait.as_ref().map(|wait| wait.woken),
                waited_ns: wait.as_ref().and_then(|wait| Some(wait.woken.since(wait.since?))),
                wait: wait.as_ref().map_or(WaitKind::None, |wait| wait.wait),
                woken_by: woken_by.clone(),
            });
            match (wait, woken_by) {
                (Some(wait), Some(Actor::Thread(waker))) => (tid, woke) = (waker.tid, wait.woken),
                _ => break,
            }
        }
        earlier
    }

    /// The wait from which a thread came that runs at `time`. `None` when the recording does not reach back to its end, or does not have it.
    fn last_wait(&self, tid: Tid, time: MonotonicNs) -> Option<LastWait> {
        // Which CPU the thread was on is not known beforehand: only what all CPUs have recorded counts.
        let since = self.recording.history.iter().map(|history| history.complete_since);
        let complete = since.max().flatten().unwrap_or_default();
        let events = &self.recording.events;
        let begin = events.partition_point(|event| event.time < complete);
        let end = events.partition_point(|event| event.time <= time);
        let mut woken = None;
        for event in events.get(begin..end)?.iter().rev() {
            match event.kind {
                EventKind::SchedWaking { tid: woke, .. } if woke == tid => {
                    woken = Some((event.time, event.cpu));
                }
                EventKind::SchedSwitch { prev_tid, prev_state, preempt, prev_wait, .. }
                    if prev_tid == tid =>
                {
                    if preempt || prev_state.0 == 0 {
                        continue;
                    }
                    let (woken, waker_cpu) = woken?;
                    return Some(LastWait { since: Some(event.time), wait: prev_wait, woken, waker_cpu });
                }
                // It ran from here on: a waking after that ended no wait.
                EventKind::SchedSwitch { next_tid, .. } if next_tid == tid => woken = None,
                _ => {}
            }
        }
        let (woken, waker_cpu) = woken?;
        Some(LastWait { since: None, wait: WaitKind::None, woken, waker_cpu })
    }

    /// Who runs on a CPU at some time: a thread, or what interrupted it.
    fn actor_at(&self, cpu: CpuId, time: MonotonicNs) -> Option<Actor> {
        let what = self.timeline.at(cpu, time)?.what;
        match what {
            Activity::Thread(tid) => Some(self.thread_actor(tid, time)),
            Activity::Vector(VectorKind::LocalTimer) => Some(Actor::Timer),
            Activity::Idle => Some(Actor::Idle),
            _ => self.interference(what).and_then(|(_, actor)| actor),
        }
    }
}
