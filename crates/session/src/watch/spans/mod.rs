// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intervals between two events of programs, found while they stay in the programs' rings.
//!
//! The thread that looks for programs gives what has come to a [`SpanTracker`] at each look. The programs do what they would do without it: the
//! pairing is the one of `stat --latency` ([`rtscope_analyze::pairing`]), here, at the look. So an interval is known to the nanosecond, by
//! the events' own times, and noticed a look later.

mod cells;
mod classes;
mod counts;
mod held;
mod numbers;
mod thread;
mod threads;
mod users;

pub use cells::CountedIntervals;
pub use counts::SpanCounts;

use crate::hist::HistKey;
use cells::SpanCells;
use held::Held;
use rtscope_analyze::pairing::{Begun, Ended, PairQuestion};
use rtscope_analyze::summary::UnmatchedEvents;
use rtscope_event::{
    Chain, ClassId, CpuId, End, EventClass, EventSpan, FieldValue, Glob, LateResponse, MonotonicNs, Origin,
    OriginKind, SpanEvent, Step, StepKind, ValueBuffer, WaitKind,
};
use rtscope_programs::RingInfo;
use rtscope_programs::clock::{EventTime, LiveClock, Pair, without_offset};
use rtscope_programs::collector::{NewEvent, NewEvents};
use rtscope_programs::values;
use std::sync::Arc;
use threads::{SpanThreads, ThreadNumber};
use users::{Missed, Owner, SpanUsers};

/// A CPU that an event does not name.
const NO_CPU: CpuId = CpuId(u32::MAX);
/// Threads that a piece of work has passed through.
const STEPS_MAX: usize = 32;

/// Whose intervals count: those that end in such a thread.
#[derive(Clone, Debug, Default)]
pub struct SpanTarget {
    /// Its name; `None`: any.
    pub name: Option<Glob>,
    /// Its process.
    pub pid: Option<u32>,
    /// Itself.
    pub tid: Option<u32>,
}

/// An event that has come.
#[derive(Clone, Debug)]
struct Arrived {
    owner: Owner,
    thread: ThreadNumber,
    class: ClassId,
    cpu: Option<CpuId>,
    counter: u64,
    time_ns: u64,
    values: ValueBuffer,
}

impl Arrived {
    /// The memory that it takes, about.
    fn bytes(&self) -> usize {
        size_of::<Arrived>() + self.values.held_bytes()
    }
}

/// What waits for its end.
#[derive(Clone, Debug)]
struct Open {
    event: Arc<Arrived>,
    /// At most [`STEPS_MAX`].
    steps: Vec<Arc<Arrived>>,
    /// The memory of all of these.
    held: Held,
}

impl Open {
    /// Those that are named when it ends.
    fn events(&self) -> impl Iterator<Item = &Arrived> {
        std::iter::once(&self.event).chain(&self.steps).map(|event| &**event)
    }
}

/// Pairs what has come.
#[derive(Debug)]
pub struct SpanTracker {
    target: SpanTarget,
    threshold_ns: u64,
    /// What is older was there before.
    started: MonotonicNs,
    users: SpanUsers,
    threads: SpanThreads,
    clock: LiveClock,
    /// Since the last look.
    arrived: Vec<Arrived>,
    /// Before this, in [`MonotonicNs`], all events have come.
    horizon_ns: u64,
    late: Vec<LateResponse>,
    counts: SpanCounts,
    /// Intervals by key, where that is asked.
    cells: Option<SpanCells>,
    notes: Vec<String>,
    /// What comes now does not count any more.
    is_over: bool,
}

impl SpanTracker {
    /// Nothing has come yet.
    pub fn new(
        question: &PairQuestion,
        target: SpanTarget,
        threshold_ns: u64,
        started: MonotonicNs,
    ) -> SpanTracker {
        SpanTracker {
            target,
            threshold_ns,
            started,
            users: SpanUsers::new(question),
            threads: SpanThreads::default(),
            clock: LiveClock::default(),
            arrived: Vec::new(),
            horizon_ns: 0,
            late: Vec::new(),
            counts: SpanCounts::default(),
            cells: None,
            notes: Vec::new(),
            is_over: false,
        }
    }

    /// Also counts all intervals by key (`None`: all together), in at most so many cells.
    #[must_use]
    pub fn counting(self, by: Option<HistKey>, cells: u32) -> SpanTracker {
        SpanTracker { cells: Some(SpanCells::new(by, cells.next_power_of_two() as usize)), ..self }
    }

    /// What has been counted by key.
    #[must_use]
    pub fn counted(&self) -> CountedIntervals {
        self.cells.as_ref().map(|cells| cells.counted().clone()).unwrap_or_default()
    }

    /// Whether the last look is over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The late ones since the last call.
    pub fn take_late(&mut self) -> Vec<LateResponse> {
        self.users.fetched();
        std::mem::take(&mut self.late)
    }

    /// What there is to be said since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// A pair of readings of the clocks.
    pub fn clock(&mut self, pair: Pair) {
        // That the counter has jumped is told by the clock's own report.
        let _ = self.clock.push(pair);
    }

    /// Pairs what has come. `began`: when the look began. `is_last`: nothing more will come.
    pub fn judge(&mut self, began: MonotonicNs, now: MonotonicNs, is_last: bool) {
        self.is_over |= is_last;
        self.give_up();
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.iter_mut().filter(|event| event.time_ns == 0).for_each(|event| self.place_in_time(event));
        arrived.sort_by_key(|event| event.time_ns);
        // Rings are looked at one after the other: of two threads the second event may be seen before the first. What was there when the last look
        // began has come by now, whichever ring it is in.
        let horizon_ns = std::mem::replace(&mut self.horizon_ns, began.0);
        let waits = self.is_of_several_threads() && !is_last;
        let ready =
            if waits { arrived.partition_point(|event| event.time_ns < horizon_ns) } else { arrived.len() };
        self.arrived = arrived.split_off(ready);
        for event in arrived {
            if event.time_ns >= self.started.0 {
                self.pair(Arc::new(event), now);
            }
        }
        if is_last && !self.is_row() {
            let target = |open: &&Open| self.is_open_counted(&open.event);
            self.counts.unmatched.without_end = self.users.waiting().filter(target).count() as u64;
        }
        let open = self.users.waiting().flat_map(Open::events);
        let in_use = open.chain(&self.arrived).map(|event| event.thread);
        self.threads.look_is_over(in_use.chain(self.users.missed_threads()));
        self.users.sweep(&self.arrived, now);
        self.users.arrived(&self.arrived);
    }

    /// Whether each event of a row ends one and begins the next.
    fn is_row(&self) -> bool {
        let question = self.users.question();
        question.begin == question.end
    }

    /// Whether keys are of events' fields, not of threads.
    fn is_of_several_threads(&self) -> bool {
        !self.users.question().key.is_empty()
    }

    fn place_in_time(&mut self, event: &mut Arrived) {
        let thread = &self.threads[event.thread];
        let counter = without_offset(event.counter, thread.clock_offset_ns);
        event.time_ns = match self.clock.when(thread.clock, counter, true) {
            EventTime::At(time_ns) => time_ns.max(1),
            // No program can have read this value: it is dropped as one from before the beginning.
            EventTime::Never | EventTime::Later => {
                self.users.missed(event.owner, event.thread, Missed::Damaged);
                1
            }
        };
    }

    /// What has begun in threads whose events were missed may have ended among these.
    fn give_up(&mut self) {
        let of_any = self.is_of_several_threads();
        let threads = &self.threads;
        self.users.give_up(of_any, |begun| of_any || threads[begun.event.thread].is_target);
    }

    /// Whether a beginning without an end counts: in which thread it would have ended is known only where that is its own.
    fn is_open_counted(&self, begun: &Arc<Arrived>) -> bool {
        self.is_of_several_threads() || self.threads[begun.thread].is_target
    }

    fn pair(&mut self, event: Arc<Arrived>, now: MonotonicNs) {
        let Some(outcome) = self.users.pair(&event, STEPS_MAX) else { return };
        let is_target = self.threads[event.thread].is_target;
        let is_row = outcome.begun.is_some() && outcome.ended.is_some();
        match outcome.ended {
            Some(Ended::With(begun)) if is_target => self.interval(&begun, &event, now),
            Some(Ended::WithoutBegin) if is_target && !is_row => self.counts.unmatched.without_begin += 1,
            Some(Ended::WithoutKey) if is_target => self.counts.unmatched.without_key += 1,
            _ => {}
        }
        match outcome.begun {
            Some(Begun::Again(before)) if self.is_open_counted(&before.event) => {
                self.counts.unmatched.begun_again += 1
            }
            Some(Begun::WithoutKey) if !is_row && self.is_open_counted(&event) => {
                self.counts.unmatched.without_key += 1;
            }
            _ => {}
        }
    }

    fn interval(&mut self, begun: &Open, ended: &Arrived, now: MonotonicNs) {
        let length_ns = ended.time_ns.saturating_sub(begun.event.time_ns);
        let noticed_after_ns = now.0.saturating_sub(ended.time_ns);
        let is_late = length_ns > self.threshold_ns;
        self.counts.add(length_ns, is_late, noticed_after_ns);
        self.threads[ended.thread].add(length_ns, is_late);
        if let Some(cells) = &mut self.cells {
            let class = self.users.class_of(ended);
            cells.add((ended, class), &self.threads[ended.thread], self.users.question(), length_ns);
        }
        if !is_late {
            return;
        }
        if !self.users.may_wait(ended.owner.account) {
            return;
        }
        let late = self.late_interval(begun, ended, noticed_after_ns);
        self.late.push(late);
    }

    fn late_interval(&mut self, begun: &Open, ended: &Arrived, noticed_after_ns: u64) -> LateResponse {
        let sequence = self.counts.late;
        let (from, to) = (self.span_event(&begun.event), self.span_event(ended));
        let through = begun.steps.iter().map(|step| self.span_event(step)).collect();
        let cpu = to.cpu.unwrap_or(NO_CPU);
        let thread = &mut self.threads[ended.thread];
        thread.refresh();
        let origin = Origin {
            kind: OriginKind::Event,
            id: from.tid.0,
            cpu: from.cpu.unwrap_or(NO_CPU),
            time_ns: from.time_ns,
        };
        let duration_ns = to.time_ns.since(from.time_ns);
        let (kind, wait) = (StepKind::Interval, WaitKind::None);
        let steps = vec![Step { kind, id: to.tid.0, cpu, duration_ns, wait }];
        LateResponse {
            tracker: rtscope_event::Tracker::Response,
            instance: 0,
            sequence,
            cpu,
            end_ns: to.time_ns,
            end: End::Event,
            threshold_ns: self.threshold_ns,
            tid: to.tid,
            pid: thread.pid,
            prio: thread.prio,
            comm: thread.comm,
            snapshot: None,
            chain: Chain { origin, steps, merged: 0, others: Vec::new(), busy: false },
            events: Some(Box::new(EventSpan {
                from,
                to,
                noticed_after_ns,
                through,
                account: Some(ended.owner.account),
            })),
            call: None,
            lock: None,
            block: None,
            section: None,
            stacks: None,
        }
    }

    fn span_event(&self, event: &Arrived) -> SpanEvent {
        let class = self.users.class_of(event);
        SpanEvent {
            event: class.name.clone(),
            time_ns: MonotonicNs(event.time_ns),
            tid: self.threads[event.thread].tid,
            cpu: event.cpu,
            fields: FieldValue::all(class, &event.values.current()),
        }
    }

    /// Whether events of this program are left out: numbers of work may be addresses, which other processes have, too.
    fn is_of_another_process(&self, ring: &RingInfo) -> bool {
        let process = ring.host_pid.unwrap_or(ring.pid);
        self.process_wanted().is_some_and(|wanted| wanted != process)
    }

    fn process_wanted(&self) -> Option<u32> {
        self.users.question().steps.is_some().then_some(self.target.pid).flatten()
    }

    /// Whether they are of a program that only says that it is the one.
    fn is_of_a_liar(&self, thread: ThreadNumber) -> bool {
        self.process_wanted().is_some() && !self.threads[thread].is_its
    }

    /// The end: what was counted.
    pub fn counts(&self) -> SpanCounts {
        let users = self.users.losses();
        let mut counts = SpanCounts { threads: self.threads.summaries(), users, ..self.counts.clone() };
        let (lost, forgotten) = (counts.sum(|user| user.lost), counts.sum(|user| user.forgotten));
        counts.unmatched = UnmatchedEvents { lost, forgotten, ..counts.unmatched };
        counts
    }
}

impl NewEvents for SpanTracker {
    fn wants(&self, name: &str) -> bool {
        let question = self.users.question();
        let class = EventClass { name: name.to_owned(), ..EventClass::default() };
        question.events().any(|event| event.matches(&class))
    }

    fn event(&mut self, event: &NewEvent<'_>) {
        if self.is_of_another_process(event.ring) {
            return;
        }
        let owner = Owner::of(event.account, event.ring.uid);
        let thread = self.threads.number(event.ring, owner.account, &self.target);
        if self.is_of_a_liar(thread) {
            return;
        }
        if !self.users.may_arrive(owner.account) {
            self.users.missed(owner, thread, Missed::Crowded);
            return;
        }
        let Some((class, note)) = self.users.class(event) else {
            self.users.missed(owner, thread, Missed::Described);
            return;
        };
        self.notes.extend(note);
        let mut values = ValueBuffer::default();
        if !values::set_values(&event.event.fields, event.payload, &mut values) {
            // A program lies, or was cut off.
            self.users.missed(owner, thread, Missed::Damaged);
            return;
        }
        let (cpu, counter) = (event.cpu.map(CpuId), event.counter);
        self.arrived.push(Arrived { owner, thread, class, cpu, counter, time_ns: 0, values });
    }

    fn has_room(&self, account: u32, events: usize) -> bool {
        self.users.has_room(account, events)
    }

    fn missed(&mut self, account: u32, ring: &RingInfo) {
        if self.is_of_another_process(ring) {
            return;
        }
        let thread = self.threads.number(ring, account, &self.target);
        if self.is_of_a_liar(thread) {
            return;
        }
        self.users.missed(Owner::of(account, ring.uid), thread, Missed::Overwritten);
    }
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod user_tests;
