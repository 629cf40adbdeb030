// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intervals between two events of programs, found while they stay in the programs' rings.
//!
//! The thread that looks for programs gives what has come to a [`SpanTracker`] at each look. The programs do what they would do without it: the
//! pairing is the one of `stat --latency` ([`rtscope_analyze::pairing`]), here, at the look. So an interval is known to the nanosecond, by
//! the events' own times, and noticed a look later.

mod classes;
mod counts;
mod thread;
mod threads;

pub use counts::SpanCounts;

use classes::SpanClasses;
use rtscope_analyze::pairing::{Begun, Ended, Matcher, PairQuestion};
use rtscope_event::{
    Chain, ClassId, CpuId, End, EventClass, EventRef, EventSpan, FieldValue, Glob, LateResponse, MonotonicNs,
    Origin, OriginKind, SpanEvent, Step, StepKind, StreamId, ValueBuffer, WaitKind,
};
use rtscope_programs::RingInfo;
use rtscope_programs::clock::{EventTime, LiveClock, Pair, without_offset};
use rtscope_programs::collector::{NewEvent, NewEvents};
use rtscope_programs::values;
use std::sync::Arc;
use threads::{SpanThreads, ThreadNumber};

/// Late ones that wait to be fetched, at most; more are counted.
const LATE_MAX: usize = 4096;
/// A CPU that an event does not name.
const NO_CPU: CpuId = CpuId(u32::MAX);
/// Remarks on events without the field of the key.
const NOTES_MAX: usize = 16;
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
    thread: ThreadNumber,
    class: ClassId,
    cpu: Option<CpuId>,
    counter: u64,
    time_ns: u64,
    values: ValueBuffer,
}

/// What waits for its end.
#[derive(Clone, Debug)]
struct Open {
    event: Arc<Arrived>,
    /// At most [`STEPS_MAX`].
    steps: Vec<Arc<Arrived>>,
}

impl Open {
    /// Threads that are named when it ends.
    fn threads(&self) -> impl Iterator<Item = ThreadNumber> {
        std::iter::once(&self.event).chain(&self.steps).map(|event| event.thread)
    }
}

/// Pairs what has come.
#[derive(Debug)]
pub struct SpanTracker {
    target: SpanTarget,
    threshold_ns: u64,
    /// What is older was there before.
    started: MonotonicNs,
    classes: SpanClasses,
    threads: SpanThreads,
    matcher: Matcher<Open>,
    clock: LiveClock,
    /// Since the last look.
    arrived: Vec<Arrived>,
    /// Threads some of whose events were not seen.
    missed: Vec<ThreadNumber>,
    /// Before this, in [`MonotonicNs`], all events have come.
    horizon_ns: u64,
    late: Vec<LateResponse>,
    counts: SpanCounts,
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
            classes: SpanClasses::default(),
            threads: SpanThreads::default(),
            matcher: Matcher::new(question),
            clock: LiveClock::default(),
            arrived: Vec::new(),
            missed: Vec::new(),
            horizon_ns: 0,
            late: Vec::new(),
            counts: SpanCounts::default(),
            notes: Vec::new(),
            is_over: false,
        }
    }

    /// Whether the last look is over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The late ones since the last call.
    pub fn take_late(&mut self) -> Vec<LateResponse> {
        std::mem::take(&mut self.late)
    }

    /// What there is to be said since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        let notes = self.notes.iter_mut().map(std::mem::take);
        notes.filter(|note| !note.is_empty()).collect()
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
        if is_last && !self.matcher.is_row() {
            let target = |open: &&Open| self.is_open_counted(&open.event);
            self.counts.unmatched.without_end = self.matcher.waiting().filter(target).count() as u64;
        }
        self.counts.unmatched.forgotten = self.matcher.forgotten();
        let open = self.matcher.waiting().flat_map(Open::threads);
        let arrived = self.arrived.iter().map(|event| event.thread);
        self.threads.look_is_over(open.chain(arrived).chain(self.missed.iter().copied()));
    }

    /// Whether keys are of events' fields, not of threads.
    fn is_of_several_threads(&self) -> bool {
        !self.matcher.question().key.is_empty()
    }

    fn place_in_time(&mut self, event: &mut Arrived) {
        let thread = &self.threads[event.thread];
        let counter = without_offset(event.counter, thread.clock_offset_ns);
        event.time_ns = match self.clock.when(thread.clock, counter, true) {
            EventTime::At(time_ns) => time_ns.max(1),
            // No program can have read this value: it is dropped as one from before the beginning.
            EventTime::Never | EventTime::Later => {
                self.missed.push(event.thread);
                1
            }
        };
    }

    /// What has begun in threads whose events were missed may have ended among these.
    fn give_up(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        if missed.is_empty() {
            return;
        }
        self.counts.missed_looks += missed.len() as u64;
        let of_any = self.is_of_several_threads();
        let given_up = self.matcher.give_up(|begun| of_any || missed.contains(&begun.event.thread));
        let counted = given_up.iter().filter(|begun| self.is_open_counted(&begun.event)).count();
        self.counts.unmatched.lost += counted as u64;
    }

    /// Whether a beginning without an end counts: in which thread it would have ended is known only where that is its own.
    fn is_open_counted(&self, begun: &Arc<Arrived>) -> bool {
        self.is_of_several_threads() || self.threads[begun.thread].is_target
    }

    fn pair(&mut self, event: Arc<Arrived>, now: MonotonicNs) {
        let seen = EventRef {
            schema: self.classes.schema(),
            time_ns: i64::try_from(event.time_ns).unwrap_or(i64::MAX),
            stream: StreamId(0),
            class: event.class,
            cpu: event.cpu,
            values: event.values.current(),
        };
        if let Some(open) = self.matcher.step(&seen, Some(event.thread.0)) {
            if open.steps.len() < STEPS_MAX {
                open.steps.push(event);
            }
            return;
        }
        let open = Open { event: Arc::clone(&event), steps: Vec::new() };
        let outcome = self.matcher.event(&seen, Some(event.thread.0), open);
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
        if !is_late {
            return;
        }
        if self.late.len() >= LATE_MAX {
            self.counts.late_lost += 1;
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
            events: Some(Box::new(EventSpan { from, to, noticed_after_ns, through })),
            call: None,
            lock: None,
            block: None,
            section: None,
            stacks: None,
        }
    }

    fn span_event(&self, event: &Arrived) -> SpanEvent {
        let class = self.classes.schema().class(event.class);
        SpanEvent {
            event: class.name.clone(),
            time_ns: MonotonicNs(event.time_ns),
            tid: self.threads[event.thread].tid,
            cpu: event.cpu,
            fields: FieldValue::all(class, &event.values.current()),
        }
    }

    /// `None`: programs have described too many different events.
    fn class(&mut self, event: &NewEvent<'_>) -> Option<ClassId> {
        let (id, made) = self.classes.class(event)?;
        if made {
            self.note_fields(id);
        }
        Some(id)
    }

    /// An event that does not have the key's field can never be paired: that is said once.
    fn note_fields(&mut self, id: ClassId) {
        let why = self.matcher.question().missing_field(self.classes.schema().class(id));
        if let Some(why) = why.filter(|_| self.notes.len() < NOTES_MAX) {
            self.notes.push(why);
        }
    }

    /// The end: what was counted.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts { threads: self.threads.summaries(), ..self.counts.clone() }
    }
}

impl NewEvents for SpanTracker {
    fn wants(&self, name: &str) -> bool {
        let question = self.matcher.question();
        let class = EventClass { name: name.to_owned(), ..EventClass::default() };
        question.events().any(|event| event.matches(&class))
    }

    fn event(&mut self, event: &NewEvent<'_>) {
        // Numbers of work may be addresses, which other processes have, too.
        let process = event.ring.host_pid.unwrap_or(event.ring.pid);
        let is_work = self.matcher.question().steps.is_some();
        if is_work && self.target.pid.is_some_and(|wanted| wanted != process) {
            return;
        }
        let thread = self.threads.number(event.ring, &self.target);
        let mut values = ValueBuffer::default();
        let class = self.class(event);
        let is_whole = values::set_values(&event.event.fields, event.payload, &mut values);
        // If not, a program lies, or was cut off.
        let Some(class) = class.filter(|_| is_whole) else {
            self.missed.push(thread);
            return;
        };
        let (cpu, counter) = (event.cpu.map(CpuId), event.counter);
        self.arrived.push(Arrived { thread, class, cpu, counter, time_ns: 0, values });
    }

    fn missed(&mut self, ring: &RingInfo) {
        let thread = self.threads.number(ring, &self.target);
        self.missed.push(thread);
    }
}

#[cfg(test)]
mod tests;
