// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flattening the events of one CPU.
//!
//! The recording starts in the middle, so the first events are also read backwards: the first `sched_switch` says which task had run,
//! an exit without an entry says what had been entered. A context that an event proves to be over without its exit is
//! relabelled `Unknown` from its entry on, because nothing says how long it lasted.

use super::{Activity, Segment};
use rtscope_event::{Event, EventKind, MonotonicNs, TaskState, Tid};

#[derive(Clone, Copy)]
struct Piece {
    segment: Segment,
    /// An event was lost here: later events must not give it a name.
    lost: bool,
}

/// Softirqs run at an interrupt's exit, 1 to 3 us behind its last tracepoint. A softirq that is entered much later than
/// that was kept waiting by a thread with softirqs disabled.
const EXIT_PATH_NS: u64 = 10_000;

pub(super) struct Builder {
    pieces: Vec<Piece>,
    start: MonotonicNs,
    /// Up to where `pieces` reach.
    closed: MonotonicNs,
    /// Last event of this CPU; `None` before the first.
    last_event: Option<MonotonicNs>,
    thread: Option<Tid>,
    /// Since when `thread` runs.
    thread_since: MonotonicNs,
    /// Softirqs that are open, each with its thread: one a thread, and one in all without PREEMPT_RT.
    softirqs: Vec<(u32, Option<Tid>)>,
    /// A softirq was entered or left since `thread_since`.
    softirq_seen: bool,
    hard: Option<(Activity, MonotonicNs)>,
    /// The last event was the exit of this handler or softirq.
    just_left: Option<Activity>,
}

impl Builder {
    pub(super) fn new(start: MonotonicNs) -> Builder {
        Builder {
            pieces: Vec::new(),
            start,
            closed: start,
            last_event: None,
            thread: None,
            thread_since: start,
            softirqs: Vec::new(),
            softirq_seen: false,
            hard: None,
            just_left: None,
        }
    }

    pub(super) fn finish(mut self, end: MonotonicNs) -> Vec<Segment> {
        self.close(end);
        self.pieces.into_iter().map(|piece| piece.segment).collect()
    }

    pub(super) fn feed(&mut self, event: &Event) {
        let t = event.time;
        if t < self.start {
            return;
        }
        self.close(t);
        let just_left = self.just_left.take();
        match &event.kind {
            EventKind::SchedSwitch { prev_tid, prev_state, preempt, next_tid, .. } => {
                let waits = !preempt && *prev_state != TaskState::RUNNABLE && !prev_state.waits_for_lock();
                self.switch(t, *prev_tid, waits, *next_tid);
            }
            EventKind::IrqHandlerEntry { irq } => self.enter_hard(t, Activity::Irq(*irq)),
            EventKind::IrqHandlerExit { irq, .. } => self.leave_hard(Activity::Irq(*irq)),
            EventKind::VectorEntry { kind, .. } => self.enter_hard(t, Activity::Vector(*kind)),
            EventKind::VectorExit { kind, .. } => self.leave_hard(Activity::Vector(*kind)),
            EventKind::SoftirqEntry { vec } => {
                self.heal_hard();
                self.interrupt_exit(t, just_left);
                let thread = self.thread;
                self.softirqs.retain(|(_, tid)| *tid != thread);
                self.softirqs.push((*vec, thread));
                self.softirq_seen = true;
            }
            EventKind::SoftirqExit { vec } => self.leave_softirq(*vec),
            EventKind::CpuIdle { .. } => self.idle(t),
            EventKind::NmiHandler { duration_ns, .. } => {
                self.nmi(t, u64::try_from(*duration_ns).unwrap_or(0));
            }
            _ => {}
        }
        self.last_event = Some(t);
    }

    /// The innermost context now.
    fn top(&self) -> Activity {
        if let Some((activity, _)) = self.hard {
            return activity;
        }
        match self.softirqs.iter().find(|(_, tid)| *tid == self.thread) {
            Some((vec, _)) => Activity::Softirq(*vec),
            None => thread_activity(self.thread),
        }
    }

    /// Takes out the softirq of a thread.
    fn take_softirq(&mut self, thread: Option<Tid>) -> Option<u32> {
        let index = self.softirqs.iter().position(|(_, tid)| *tid == thread)?;
        Some(self.softirqs.swap_remove(index).0)
    }

    fn close(&mut self, t: MonotonicNs) {
        if t <= self.closed {
            return;
        }
        let segment = Segment { from: self.closed, to: t, what: self.top(), thread: self.thread };
        self.closed = t;
        match self.pieces.last_mut() {
            Some(Piece { segment: last, lost: false })
                if (last.what, last.thread, last.to) == (segment.what, segment.thread, segment.from) =>
            {
                last.to = t;
            }
            _ => self.pieces.push(Piece { segment, lost: false }),
        }
    }

    /// Changes the pieces that began at `since` or later.
    fn revise(&mut self, since: MonotonicNs, mut change: impl FnMut(&mut Piece)) {
        self.split(since);
        for piece in self.pieces.iter_mut().rev().take_while(|piece| piece.segment.from >= since) {
            change(piece);
        }
    }

    /// Makes a piece boundary at `at`.
    fn split(&mut self, at: MonotonicNs) {
        let index = self.pieces.partition_point(|piece| piece.segment.to <= at);
        if let Some(piece) = self.pieces.get_mut(index).filter(|piece| piece.segment.from < at) {
            let mut tail = *piece;
            piece.segment.to = at;
            tail.segment.from = at;
            self.pieces.insert(index + 1, tail);
        }
    }

    /// What was taken for `wrong` since then is unknown.
    fn disown(&mut self, since: MonotonicNs, wrong: Activity) {
        self.revise(since, |piece| {
            if piece.segment.what == wrong {
                piece.segment.what = Activity::Unknown;
                piece.lost = true;
            }
        });
    }

    fn heal_hard(&mut self) {
        if let Some((activity, since)) = self.hard.take() {
            self.disown(since, activity);
        }
    }

    fn enter_hard(&mut self, t: MonotonicNs, activity: Activity) {
        self.heal_hard();
        self.hard = Some((activity, t));
    }

    /// Between a handler's exit and the softirq that it raised (and between softirqs of one round), the CPU was on its way
    /// out of the interrupt: whatever was interrupted did not run.
    fn interrupt_exit(&mut self, t: MonotonicNs, left: Option<Activity>) {
        let (Some(left), Some(since)) = (left, self.last_event) else { return };
        if t.since(since) > EXIT_PATH_NS {
            return;
        }
        let below = self.top();
        self.revise(since, |piece| {
            if piece.segment.what == below {
                piece.segment.what = left;
            }
        });
    }

    fn leave_hard(&mut self, activity: Activity) {
        self.just_left = Some(activity);
        match self.hard {
            Some((open, _)) if open == activity => self.hard = None,
            Some(_) => self.heal_hard(),
            None => {
                // Entered before the history began, or the entry was lost some time after the last event.
                let first = self.last_event.is_none();
                let below = self.top();
                self.revise(self.last_event.unwrap_or(self.start), |piece| {
                    if piece.segment.what == below {
                        piece.segment.what = if first { activity } else { Activity::Unknown };
                        piece.lost |= !first;
                    }
                });
            }
        }
    }

    fn leave_softirq(&mut self, vec: u32) {
        let open = self.take_softirq(self.thread);
        self.just_left = Some(Activity::Softirq(vec)); // The next softirq of the same round follows at once.
        self.heal_hard();
        match open {
            Some(entered) if entered == vec => {}
            Some(entered) => self.disown(self.thread_since, Activity::Softirq(entered)),
            None => {
                // It was entered before the history began, or its thread was switched in inside it; unless another
                // softirq came in between: then the entry was lost, and nothing says when it was.
                let resumed = !self.softirq_seen;
                let since = if resumed { self.thread_since } else { self.last_event.unwrap_or(self.start) };
                let below = thread_activity(self.thread);
                self.revise(since, |piece| {
                    if piece.segment.what == below && !piece.lost {
                        piece.segment.what = if resumed { Activity::Softirq(vec) } else { Activity::Unknown };
                        piece.lost = !resumed;
                    }
                });
            }
        }
        self.softirq_seen = true;
    }

    /// An event says that `thread` was current until now.
    fn was_current(&mut self, thread: Tid) {
        match self.thread {
            Some(known) if known == thread => {}
            Some(known) => self.disown(self.thread_since, thread_activity(Some(known))),
            None => {
                self.revise(self.thread_since, |piece| {
                    piece.segment.thread = Some(thread);
                    if piece.segment.what == Activity::Unknown && !piece.lost {
                        piece.segment.what = thread_activity(Some(thread));
                    }
                });
                let unnamed = self.softirqs.iter_mut().filter(|(_, tid)| tid.is_none());
                unnamed.for_each(|(_, tid)| *tid = Some(thread));
            }
        }
        self.thread = Some(thread);
    }

    fn switch(&mut self, t: MonotonicNs, prev: Tid, waits: bool, next: Tid) {
        self.heal_hard();
        self.was_current(prev);
        // A thread can be preempted inside a softirq, and come back to it; it does not wait there, and idle does not leave it.
        if waits || prev == Tid(0) {
            if let Some(vec) = self.take_softirq(Some(prev)) {
                self.disown(self.thread_since, Activity::Softirq(vec));
            }
        }
        self.thread = Some(next);
        self.thread_since = t;
        self.softirq_seen = false;
    }

    fn idle(&mut self, t: MonotonicNs) {
        self.heal_hard();
        let known = self.thread;
        self.was_current(Tid(0));
        if known.is_some_and(|tid| tid != Tid(0)) {
            self.thread_since = t;
        }
    }

    /// An NMI that ends now. It began after the last event of this CPU, since nothing else runs inside it.
    fn nmi(&mut self, t: MonotonicNs, duration_ns: u64) {
        let from = t.minus(duration_ns).max(self.last_event.unwrap_or(self.start));
        if from < t {
            self.revise(from, |piece| {
                piece.segment.what = Activity::Nmi;
                piece.lost = false;
            });
        }
    }
}

fn thread_activity(thread: Option<Tid>) -> Activity {
    match thread {
        Some(Tid(0)) => Activity::Idle,
        Some(tid) => Activity::Thread(tid),
        None => Activity::Unknown,
    }
}
