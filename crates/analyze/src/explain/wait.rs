// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits in the middle of a cycle: who ended them, and what kept that thread so long.
//!
//! Whoever wakes a thread from a futex held what it waited for; no trace says more. So the time of the wait is that thread's: it ran,
//! or something else had its CPU, or it waited itself, and then the time is that of whoever woke it, some threads deep. When what had
//! its CPU is less urgent than the thread that waits, the scheduler was right and the design was not: a priority inversion.

use super::causes::Tally;
use super::types::{CauseKind, InnerWait, Kept, Note};
use super::{Explainer, PlacedStep};
use crate::timeline::Activity;
use rtscope_event::{CpuId, EventKind, MonotonicNs, Priority, StepKind, Tid, WaitKind};

/// How many threads are followed that wait for each other.
const DEPTH: usize = 6;

/// What keeps a holder for a smaller part of the wait than this is not what the wait is about: there is always somebody who has a CPU for some microseconds while a
/// holder works, sleeps or waits for a device.
const INVERSION_SHARE: u64 = 10;

/// What a thread did for some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doing {
    Running(CpuId),
    /// Woken, not running.
    Woken,
    /// Switched out, runnable.
    Preempted,
    /// Waiting, until this thread woke it; `None`: an interrupt, or nobody until the end of the time.
    Blocked(Option<Tid>),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    doing: Doing,
    /// When it began to: the time of the first may have begun before.
    since: MonotonicNs,
    from: MonotonicNs,
    to: MonotonicNs,
}

impl Explainer<'_> {
    /// Where the time of a wait in a cycle went.
    pub(super) fn cycle_wait(&self, at: &PlacedStep<'_>, tally: &mut Tally) {
        match Tid(at.step.id) {
            // Who lets a stopped thread go on has held nothing.
            _ if at.step.wait == WaitKind::Stop => tally.add(CauseKind::Waiting, None, at.step.duration_ns),
            Tid(0) => tally.add(CauseKind::Waiting, None, at.step.duration_ns),
            waker => self.time_of(at, waker, (at.from, at.to), DEPTH, tally),
        }
    }

    /// The time that others waited for a thread.
    fn time_of(
        &self,
        at: &PlacedStep<'_>,
        tid: Tid,
        (from, to): (MonotonicNs, MonotonicNs),
        depth: usize,
        tally: &mut Tally,
    ) {
        for Phase { doing, since, from, to } in self.phases(tid, from, to) {
            let placed = PlacedStep { from, to, ..*at };
            match doing {
                Doing::Running(cpu) => self.held(tid, cpu, (from, to), tally),
                Doing::Woken => {
                    self.wait(&placed, tid, &self.stays_after_waking(tid, since, to), true, tally);
                }
                Doing::Preempted => {
                    self.wait(&placed, tid, &self.stays_after_preemption(tid, since, to), false, tally);
                }
                Doing::Blocked(Some(waker)) if depth > 0 && waker != tid && waker != at.late.tid => {
                    self.time_of(at, waker, (from, to), depth - 1, tally);
                }
                Doing::Blocked(_) => {
                    tally.add(CauseKind::Waiting, Some(self.thread_actor(tid, from)), to.since(from));
                }
                Doing::Unknown => tally.unknown(Note::PlaceUnknown, to.since(from)),
            }
        }
    }

    fn held(&self, tid: Tid, cpu: CpuId, (from, to): (MonotonicNs, MonotonicNs), tally: &mut Tally) {
        for segment in self.timeline.slice(cpu, from, to) {
            let ns = segment.duration_ns();
            match (segment.what, self.interference(segment.what)) {
                (Activity::Thread(running), _) if running == tid => {
                    tally.add(CauseKind::Holder, Some(self.thread_actor(tid, from)), ns);
                }
                (_, Some((kind, actor))) => tally.add(kind, actor, ns),
                _ => tally.unknown(Self::not_recorded(cpu, &segment), ns),
            }
        }
    }

    /// What a thread did from `from` to `to`, without a gap.
    fn phases(&self, tid: Tid, from: MonotonicNs, to: MonotonicNs) -> Vec<Phase> {
        let mut phases = Vec::new();
        let (mut doing, mut since) = self.doing_at(tid, from, to);
        let mut begin = from;
        for event in self.events_between(from, to) {
            let next = match event.kind {
                EventKind::SchedSwitch { next_tid, .. } if next_tid == tid => Doing::Running(event.cpu),
                EventKind::SchedSwitch { prev_tid, prev_state, preempt, .. } if prev_tid == tid => {
                    if preempt || prev_state.0 == 0 { Doing::Preempted } else { Doing::Blocked(None) }
                }
                EventKind::SchedWaking { tid: woken, .. } if woken == tid => {
                    if !matches!(doing, Doing::Blocked(_)) {
                        continue;
                    }
                    doing = Doing::Blocked(self.waker_at(event.cpu, event.time));
                    Doing::Woken
                }
                _ => continue,
            };
            if begin < event.time {
                phases.push(Phase { doing, since, from: begin, to: event.time });
            }
            (doing, since, begin) = (next, event.time, event.time);
        }
        if begin < to {
            phases.push(Phase { doing, since, from: begin, to });
        }
        phases
    }

    /// What a thread does at `from`, and since when: as its last event before says, or else its first one after, since `from` then.
    pub(super) fn doing_at(&self, tid: Tid, from: MonotonicNs, to: MonotonicNs) -> (Doing, MonotonicNs) {
        let end = self.recording.events.partition_point(|event| event.time < from);
        let before = self.recording.events[..end].iter().rev().find_map(|event| {
            let doing = match event.kind {
                EventKind::SchedSwitch { next_tid, .. } if next_tid == tid => Doing::Running(event.cpu),
                EventKind::SchedSwitch { prev_tid, prev_state, preempt, .. } if prev_tid == tid => {
                    if preempt || prev_state.0 == 0 { Doing::Preempted } else { Doing::Blocked(None) }
                }
                EventKind::SchedWaking { tid: woken, .. } if woken == tid => Doing::Woken,
                _ => return None,
            };
            Some((doing, event.time))
        });
        let after = || {
            self.events_between(from, to).find_map(|event| match event.kind {
                EventKind::SchedSwitch { next_tid, .. } if next_tid == tid => Some(Doing::Woken),
                EventKind::SchedSwitch { prev_tid, .. } if prev_tid == tid => Some(Doing::Running(event.cpu)),
                EventKind::SchedWaking { tid: woken, .. } if woken == tid => Some(Doing::Blocked(None)),
                _ => None,
            })
        };
        before.unwrap_or_else(|| (after().unwrap_or(Doing::Unknown), from))
    }

    /// The thread that runs on a CPU and is in no interrupt there.
    pub(super) fn waker_at(&self, cpu: CpuId, time: MonotonicNs) -> Option<Tid> {
        match self.timeline.at(cpu, time)?.what {
            Activity::Thread(tid) => Some(tid),
            _ => None,
        }
    }

    /// The waits of a response, the longest first.
    pub(super) fn inner_waits(&self, placed: &[PlacedStep<'_>]) -> Vec<InnerWait> {
        let unfolded = placed.iter().flat_map(|at| match at.step.kind {
            StepKind::More => self.unfold(at),
            _ => vec![*at],
        });
        let waits = unfolded.filter(|at| at.step.kind == StepKind::Wait && at.step.duration_ns > 0);
        let mut waits: Vec<InnerWait> = waits.map(|at| self.inner_wait(&at)).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.duration_ns));
        waits
    }

    fn inner_wait(&self, at: &PlacedStep<'_>) -> InnerWait {
        let waker = Some(Tid(at.step.id)).filter(|tid| *tid != Tid(0));
        let mut kept = Vec::new();
        if let Some(waker) = waker.filter(|_| at.step.wait != WaitKind::Stop) {
            self.kept(waker, (at.from, at.to), at.late.tid, DEPTH, &mut kept);
        }
        let longest = kept.into_iter().max_by_key(|kept| kept.time_ns);
        let prio = |tid: Tid| self.timeline.priority(tid, at.from);
        let is_inversion = longest.as_ref().is_some_and(|kept| {
            kept.time_ns >= at.step.duration_ns / INVERSION_SHARE
                && is_less_urgent(kept.thread.prio, prio(at.late.tid))
                && is_less_urgent(kept.holder.prio, prio(at.late.tid))
        });
        InnerWait {
            from_ns: at.from,
            duration_ns: at.step.duration_ns,
            wait: at.step.wait,
            woken_by: waker.map(|tid| self.thread(tid, at.to)),
            is_inversion: is_inversion && is_lock(at.step.wait),
            kept: longest,
        }
    }

    /// Which threads had the CPUs for which a holder waited, and for how long.
    fn kept(
        &self,
        holder: Tid,
        (from, to): (MonotonicNs, MonotonicNs),
        waiter: Tid,
        depth: usize,
        kept: &mut Vec<Kept>,
    ) {
        for Phase { doing, since, from, to } in self.phases(holder, from, to) {
            let stays = match doing {
                Doing::Woken => self.stays_after_waking(holder, since, to),
                Doing::Preempted => self.stays_after_preemption(holder, since, to),
                Doing::Blocked(Some(waker)) if depth > 0 && waker != holder && waker != waiter => {
                    self.kept(waker, (from, to), waiter, depth - 1, kept);
                    continue;
                }
                _ => continue,
            };
            let stays = stays.iter().filter(|stay| stay.to > from);
            for (cpu, stay) in stays.filter_map(|stay| Some((stay.cpu?, stay))) {
                for segment in self.timeline.slice(cpu, stay.from.max(from), stay.to) {
                    let Activity::Thread(tid) = segment.what else { continue };
                    if tid == holder {
                        continue;
                    }
                    let ns = segment.duration_ns();
                    match kept.iter_mut().find(|kept| kept.thread.tid == tid && kept.holder.tid == holder) {
                        Some(known) => known.time_ns += ns,
                        None => kept.push(Kept {
                            thread: self.thread(tid, segment.from),
                            holder: self.thread(holder, segment.from),
                            time_ns: ns,
                        }),
                    }
                }
            }
        }
    }
}

/// Numbers of priorities are smaller where they are more urgent.
fn is_less_urgent(one: Option<Priority>, than: Option<Priority>) -> bool {
    matches!((one, than), (Some(one), Some(than)) if one > than)
}

/// A wait that a thread ends which held something; a pipe's reader waits for no holder.
fn is_lock(wait: WaitKind) -> bool {
    matches!(wait, WaitKind::Futex | WaitKind::Semaphore | WaitKind::FileLock | WaitKind::Memory)
}
