// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of threads that are known, at looks that are known.

use super::{SpanTarget, SpanTracker};
use rtscope_abi::program as abi;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{End, FieldValue, Glob, MonotonicNs, OriginKind, StepKind, Tid};
use rtscope_programs::RingInfo;
use rtscope_programs::clock::Pair;
use rtscope_programs::collector::{NewEvent, NewEvents};
use rtscope_programs::description::Descriptions;
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::records::Layout;
use std::sync::Arc;

const TEXT: &[u8] = b"a:begin 6\nu64 id\n\0a:end 6\nu64 id\n\0a:bare 6\n\0";
pub(super) const MS: u64 = 1_000_000;

pub(super) struct Fake {
    pub(super) descriptions: Arc<Descriptions>,
    pub(super) tracker: SpanTracker,
}

/// No process has this number.
pub(crate) fn ring(tid: u32, comm: &str) -> RingInfo {
    RingInfo {
        pid: u32::MAX - 1,
        host_pid: None,
        birth_ns: 1,
        uid: 0,
        tid,
        number: 0,
        comm: comm.to_owned(),
        clock: abi::RTU_CLOCK_MONOTONIC,
        layout: Layout { ring_bytes: 65536, sub_bytes: 16384, key: 5 },
        sync: None,
        lost_before: 0,
        clock_offset_ns: 0,
        left_until: 0,
        drops_earlier: false,
        choice: rtscope_programs::ThreadChoice::default(),
    }
}

impl Fake {
    fn new(question: &str, target: SpanTarget) -> Fake {
        Fake::of(TEXT, &PairQuestion::parse(question).unwrap(), target)
    }

    pub(super) fn of(text: &[u8], question: &PairQuestion, target: SpanTarget) -> Fake {
        let descriptions = Descriptions::parse(text, 3, 0, &RequestedEvents::default()).unwrap();
        let tracker = SpanTracker::new(question, target, 3 * MS, MonotonicNs(100 * MS));
        let mut fake = Fake { descriptions: Arc::new(descriptions), tracker };
        fake.tracker.clock(Pair { counter: 1, monotonic_ns: 1 });
        fake
    }

    fn event(&mut self, thread: u32, event: usize, at_ns: u64, id: u64) {
        self.event_in(ring(thread, if thread == 1 { "driver" } else { "helper" }), event, at_ns, id);
    }

    pub(super) fn event_in(&mut self, ring: RingInfo, event: usize, at_ns: u64, id: u64) {
        self.event_of(ring.uid, ring, event, at_ns, id);
    }

    /// Of a program that is on another user's account.
    pub(super) fn event_of(&mut self, account: u32, ring: RingInfo, event: usize, at_ns: u64, id: u64) {
        let event = &self.descriptions.events[event];
        let payload = id.to_le_bytes();
        let descriptions = &self.descriptions;
        let (counter, cpu) = (at_ns, Some(1));
        let ring = &ring;
        self.tracker.event(&NewEvent { account, ring, descriptions, event, counter, cpu, payload: &payload });
    }

    pub(super) fn look(&mut self, now_ns: u64, is_last: bool) {
        self.tracker.clock(Pair { counter: now_ns, monotonic_ns: now_ns });
        self.tracker.judge(MonotonicNs(now_ns - 1000), MonotonicNs(now_ns), is_last);
    }

    fn counts(&self) -> (u64, u64) {
        (self.tracker.counts().seen, self.tracker.counts().late)
    }
}

#[test]
fn an_interval_that_took_too_long_is_reported_with_both_events() {
    let mut fake = Fake::new("a:begin -> a:end", SpanTarget::default());
    fake.event(1, 0, 200 * MS, 7);
    fake.event(1, 1, 202 * MS, 7);
    fake.event(1, 0, 205 * MS, 8);
    fake.look(206 * MS, false);
    assert_eq!((fake.counts(), fake.tracker.take_late().len()), ((1, 0), 0));
    fake.event(1, 1, 208 * MS + 1, 9);
    fake.look(220 * MS, false);
    let [late] = fake.tracker.take_late().try_into().unwrap();
    assert_eq!((late.response_ns(), late.end, late.tid), (3 * MS + 1, End::Event, Tid(1)));
    assert_eq!(late.chain.origin.kind, OriginKind::Event);
    assert_eq!((late.chain.steps[0].kind, late.chain.duration_ns()), (StepKind::Interval, 3 * MS + 1));
    let events = late.events.unwrap();
    assert_eq!((events.from.event.as_str(), events.to.event.as_str()), ("a:begin", "a:end"));
    assert_eq!(events.from.fields["id"], FieldValue::Unsigned(8));
    assert_eq!(events.to.fields["id"], FieldValue::Unsigned(9));
    assert_eq!(events.noticed_after_ns, 12 * MS - 1);
    assert!(fake.tracker.take_late().is_empty());
    assert_eq!(fake.counts(), (2, 1));
}

#[test]
fn as_json_both_events_are_beside_the_rest_and_are_read_again() {
    let mut fake = Fake::new("a:begin -> a:end", SpanTarget::default());
    fake.event(1, 0, 200 * MS, 7);
    fake.event(1, 1, 210 * MS, u64::MAX);
    fake.look(211 * MS, false);
    let [mut late] = fake.tracker.take_late().try_into().unwrap();
    let text = serde_json::to_value(&late).unwrap();
    // On whose account it is, is for the watch alone, and not written.
    assert_eq!(late.events.as_mut().and_then(|events| events.account.take()), Some(ring(1, "driver").uid));
    assert_eq!(
        (text["from"]["event"].as_str(), text["to"]["fields"]["id"].as_u64()),
        (Some("a:begin"), Some(u64::MAX))
    );
    assert_eq!(serde_json::from_value::<rtscope_event::LateResponse>(text).unwrap(), late);
}

#[test]
fn only_the_targets_intervals_count_by_the_thread_in_which_they_end() {
    let target = SpanTarget { name: Some(Glob::new("driv*").unwrap()), ..SpanTarget::default() };
    let mut fake = Fake::new("a:begin -> a:end by id", target.clone());
    fake.event(2, 0, 200 * MS, 7);
    fake.event(1, 1, 210 * MS, 7);
    fake.event(1, 0, 211 * MS, 8);
    fake.event(2, 1, 215 * MS, 8);
    fake.look(220 * MS, true);
    assert_eq!(fake.counts(), (1, 1));
    let mut fake = Fake::new("a:begin -> a:end", target);
    for thread in [1, 2] {
        fake.event(thread, 0, 200 * MS, 7);
        fake.event(thread, 1, 201 * MS, 7);
        fake.event(thread, 1, 202 * MS, 7);
    }
    fake.look(220 * MS, true);
    let counts = fake.tracker.counts();
    assert_eq!((counts.seen, counts.unmatched.without_begin, counts.threads.len()), (1, 1, 1));
}

#[test]
fn across_threads_the_second_event_may_be_seen_a_look_before_the_first() {
    let mut fake = Fake::new("a:begin -> a:end by id", SpanTarget::default());
    // The ring of thread 1 was looked at before the event came, that of thread 2 after.
    fake.event(2, 1, 210 * MS, 7);
    fake.look(210 * MS, false);
    fake.event(1, 0, 209 * MS, 7);
    fake.look(230 * MS, false);
    fake.look(250 * MS, false);
    let counts = fake.tracker.counts();
    assert_eq!((counts.seen, counts.unmatched.without_begin, counts.unmatched.without_end), (1, 0, 0));
}

#[test]
fn what_has_no_counterpart_is_counted_by_cause() {
    let mut fake = Fake::new("a:begin -> a:end", SpanTarget::default());
    // Before the watch: nothing.
    fake.event(1, 0, 90 * MS, 7);
    fake.event(1, 1, 200 * MS, 7);
    fake.event(1, 0, 201 * MS, 7);
    fake.event(1, 0, 202 * MS, 7);
    fake.look(210 * MS, false);
    fake.tracker.missed(0, &ring(1, "driver"));
    fake.event(1, 1, 215 * MS, 7);
    fake.event(2, 0, 216 * MS, 7);
    fake.look(220 * MS, true);
    let counts = fake.tracker.counts();
    let unmatched = counts.unmatched;
    assert_eq!((unmatched.without_begin, unmatched.begun_again), (2, 1));
    assert_eq!(
        (unmatched.lost, unmatched.without_end, counts.sum(|user| user.missed_looks), counts.seen),
        (1, 1, 1, 0)
    );
}

#[test]
fn events_without_the_keys_field_are_counted_and_said_once() {
    let mut fake = Fake::new("a:begin -> a:bare by id", SpanTarget::default());
    fake.event(1, 0, 200 * MS, 7);
    fake.event(1, 2, 201 * MS, 7);
    fake.event(1, 2, 202 * MS, 7);
    fake.look(210 * MS, true);
    let counts = fake.tracker.counts();
    assert_eq!((counts.unmatched.without_key, counts.unmatched.without_end), (2, 1));
    assert_eq!(fake.tracker.take_notes(), ["'a:bare' has no field 'id'; it has none"]);
    assert!(fake.tracker.take_notes().is_empty());
}

#[test]
fn a_payload_that_does_not_match_its_fields_gives_up_what_had_begun() {
    let mut fake = Fake::new("a:begin -> a:end", SpanTarget::default());
    fake.event(1, 0, 200 * MS, 7);
    fake.look(210 * MS, false);
    let (ring, descriptions) = (ring(1, "driver"), Arc::clone(&fake.descriptions));
    let event = &descriptions.events[1];
    let lie = NewEvent {
        account: 0,
        ring: &ring,
        descriptions: &descriptions,
        event,
        counter: 211 * MS,
        cpu: None,
        payload: &[1],
    };
    fake.tracker.event(&lie);
    fake.look(220 * MS, true);
    let counts = fake.tracker.counts();
    assert_eq!((counts.unmatched.lost, counts.sum(|user| user.damaged), counts.seen), (1, 1, 0));
}

pub(super) const WORK: &[u8] =
    b"work:begin 6\nx64 cookie\n\0work:step 6\nx64 cookie\n\0work:end 6\nx64 cookie\n\0";

#[test]
fn work_has_the_first_threads_that_took_it_over_and_no_other_number_has() {
    let mut fake = Fake::of(WORK, &PairQuestion::of_work(), SpanTarget::default());
    fake.event(1, 0, 200 * MS, 7);
    for step in 0..40u64 {
        fake.event(2, 1, 201 * MS + step, 7);
    }
    fake.event(3, 1, 202 * MS, 8);
    fake.event(4, 2, 210 * MS, 7);
    fake.look(220 * MS, true);
    let [late] = fake.tracker.take_late().try_into().unwrap();
    let events = late.events.unwrap();
    assert_eq!((events.from.tid, events.to.tid, events.through.len()), (Tid(1), Tid(4), 32));
    assert!(events.through.iter().all(|step| step.tid == Tid(2) && step.event == "work:step"));
    assert_eq!((fake.counts(), fake.tracker.counts().unmatched.without_end), ((1, 1), 0));
}

#[test]
fn the_work_of_one_process_is_no_others_that_has_the_same_number() {
    let own = ring(1, "driver");
    let other = RingInfo { pid: own.pid - 1, ..ring(2, "helper") };
    let target = SpanTarget { pid: Some(own.pid), ..SpanTarget::default() };
    let mut fake = Fake::of(WORK, &PairQuestion::of_work(), target);
    fake.event_in(own.clone(), 0, 200 * MS, 7);
    fake.event_in(other.clone(), 0, 208 * MS, 7);
    fake.event_in(other, 1, 209 * MS, 7);
    fake.event_in(own, 2, 210 * MS, 7);
    fake.look(220 * MS, true);
    let [late] = fake.tracker.take_late().try_into().unwrap();
    assert_eq!((late.response_ns(), late.events.unwrap().through.len()), (10 * MS, 0));
    assert_eq!(fake.tracker.counts().unmatched.begun_again, 0);
}
