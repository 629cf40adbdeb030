// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of programs of two users, of whom one does what he can to hide what is late of the other.

use super::tests::{Fake, MS, WORK, ring};
use super::{SpanTarget, SpanTracker};
use rtscope_analyze::pairing::PairQuestion;
use rtscope_analyze::summary::SpanUserLosses;
use rtscope_event::MonotonicNs;
use rtscope_programs::RingInfo;
use rtscope_programs::collector::{NewEvent, NewEvents};
use rtscope_programs::description::Descriptions;
use rtscope_programs::patterns::RequestedEvents;
use std::sync::Arc;

const LIAR: u32 = 1000;
const VICTIM: u32 = 1001;
const BEGIN: usize = 0;
const STEP: usize = 1;
const END: usize = 2;

fn work() -> Fake {
    Fake::of(WORK, &PairQuestion::of_work(), SpanTarget::default())
}

/// A thread of each user; the numbers of his process and thread are his own.
fn of(user: u32) -> RingInfo {
    RingInfo { uid: user, pid: u32::MAX - user, ..ring(user, "worker") }
}

/// What was left out of the one user of whom anything was.
fn only_losses(tracker: &SpanTracker) -> SpanUserLosses {
    let [losses] = tracker.counts().users.try_into().unwrap();
    losses
}

#[test]
fn what_is_missed_of_one_user_gives_up_no_others_beginnings() {
    let mut fake = work();
    fake.event_in(of(VICTIM), BEGIN, 200 * MS, 7);
    fake.event_in(of(LIAR), BEGIN, 200 * MS, 7);
    fake.look(210 * MS, false);
    fake.look(220 * MS, false);
    fake.tracker.missed(LIAR, &of(LIAR));
    fake.look(230 * MS, false);
    fake.event_in(of(VICTIM), END, 240 * MS, 7);
    fake.look(250 * MS, true);
    let [late] = fake.tracker.take_late().try_into().unwrap();
    assert_eq!(late.response_ns(), 40 * MS);
    let losses = SpanUserLosses { user: LIAR, missed_looks: 1, lost: 1, ..SpanUserLosses::default() };
    assert_eq!((only_losses(&fake.tracker), fake.tracker.counts().unmatched.lost), (losses, 1));
}

#[test]
fn events_of_one_user_end_and_step_through_nothing_that_another_has_begun() {
    let mut fake = work();
    fake.event_in(of(VICTIM), BEGIN, 200 * MS, 7);
    fake.event_in(of(LIAR), STEP, 201 * MS, 7);
    fake.event_in(of(LIAR), END, 201 * MS, 7);
    fake.event_in(of(LIAR), BEGIN, 202 * MS, 7);
    fake.event_in(of(VICTIM), END, 240 * MS, 7);
    fake.look(250 * MS, true);
    let [late] = fake.tracker.take_late().try_into().unwrap();
    assert_eq!((late.response_ns(), late.events.unwrap().through.len()), (40 * MS, 0));
    let unmatched = fake.tracker.counts().unmatched;
    assert_eq!((unmatched.without_begin, unmatched.begun_again, unmatched.without_end), (1, 0, 1));
}

#[test]
fn users_of_a_container_that_root_has_made_are_not_root() {
    let mut fake = work();
    let [root, inner] = [0, 100_033].map(of);
    fake.event_in(root.clone(), BEGIN, 200 * MS, 7);
    fake.event_of(0, inner.clone(), END, 201 * MS, 7);
    fake.look(220 * MS, false);
    fake.tracker.missed(0, &inner);
    fake.look(230 * MS, false);
    fake.event_in(root, END, 240 * MS, 7);
    fake.look(250 * MS, true);
    assert_eq!(fake.tracker.take_late().len(), 1);
    // Whoever has made a container is all of its users.
    let mut fake = work();
    fake.event_of(LIAR, of(100_000), BEGIN, 200 * MS, 7);
    fake.event_of(LIAR, of(100_033), END, 240 * MS, 7);
    fake.look(250 * MS, true);
    assert_eq!(fake.tracker.take_late().len(), 1);
}

#[test]
fn with_pid_what_is_missed_of_other_processes_gives_up_nothing() {
    let own = of(VICTIM);
    let other = RingInfo { pid: own.pid - 1, ..own.clone() };
    let target = SpanTarget { pid: Some(own.pid), ..SpanTarget::default() };
    let mut fake = Fake::of(WORK, &PairQuestion::of_work(), target);
    fake.event_in(own.clone(), BEGIN, 200 * MS, 7);
    fake.look(210 * MS, false);
    fake.look(220 * MS, false);
    fake.tracker.missed(VICTIM, &other);
    fake.event_in(own, END, 240 * MS, 7);
    fake.look(250 * MS, true);
    assert_eq!((fake.tracker.take_late().len(), fake.tracker.counts().users.len()), (1, 0));
}

#[test]
fn who_has_most_open_beginnings_makes_room_for_others() {
    let mut fake = work();
    fake.tracker.users.limit(10, 100, 100);
    for number in 0..3 {
        fake.event_in(of(VICTIM), BEGIN, 200 * MS, number);
    }
    for number in 0..100 {
        fake.event_in(of(LIAR), BEGIN, 201 * MS, number);
    }
    fake.event_in(of(VICTIM), BEGIN, 202 * MS, 3);
    for number in 0..4 {
        fake.event_in(of(VICTIM), END, 240 * MS, number);
    }
    fake.look(250 * MS, true);
    assert_eq!(fake.tracker.take_late().len(), 4);
    let losses = SpanUserLosses { user: LIAR, forgotten: 94, ..SpanUserLosses::default() };
    assert_eq!(only_losses(&fake.tracker), losses);
    let unmatched = fake.tracker.counts().unmatched;
    assert_eq!((unmatched.forgotten, unmatched.without_end), (94, 6));
}

#[test]
fn what_is_open_of_one_user_takes_its_share_of_memory_and_leaves_others_theirs() {
    let mut fake = work();
    // As much as some hundred events take.
    fake.tracker.users.limit_memory(100 << 10, 10_000);
    fake.event_in(of(VICTIM), BEGIN, 200 * MS, 7);
    for number in 0..10 {
        fake.event_in(of(LIAR), BEGIN, 201 * MS, number);
        for _ in 0..60 {
            fake.event_in(of(LIAR), STEP, 202 * MS, number);
        }
    }
    fake.event_in(of(VICTIM), STEP, 203 * MS, 7);
    fake.event_in(of(VICTIM), END, 240 * MS, 7);
    fake.look(250 * MS, false);
    fake.look(255 * MS, false);
    let [late] = fake.tracker.take_late().try_into().unwrap();
    assert_eq!((late.response_ns(), late.events.unwrap().through.len()), (40 * MS, 1));
    let losses = only_losses(&fake.tracker);
    assert_eq!((losses.user, losses.forgotten), (LIAR, 0));
    assert!(losses.steps_lost > 0 && losses.steps_lost < 320, "{losses:?}");
    // Beginnings alone: the oldest of who has most.
    for number in 100..1000 {
        fake.event_in(of(LIAR), BEGIN, 260 * MS, number);
    }
    fake.look(270 * MS, true);
    let losses = only_losses(&fake.tracker);
    assert!(losses.forgotten > 100, "{losses:?}");
}

#[test]
fn events_of_one_user_between_two_looks_leave_others_theirs() {
    let mut fake = work();
    fake.tracker.users.limit_memory(1 << 30, 100);
    for number in 0..1000 {
        fake.event_in(of(LIAR), BEGIN, 200 * MS, number);
    }
    let room = |fake: &Fake, user| fake.tracker.has_room(user, 0);
    assert!(!room(&fake, LIAR) && room(&fake, VICTIM) && !fake.tracker.has_room(VICTIM, 25));
    fake.event_in(of(VICTIM), BEGIN, 201 * MS, 7);
    fake.event_in(of(VICTIM), END, 240 * MS, 7);
    fake.look(250 * MS, false);
    fake.look(260 * MS, false);
    assert!(room(&fake, LIAR));
    assert_eq!(fake.tracker.take_late().len(), 1);
    assert_eq!(only_losses(&fake.tracker).too_many_events, 950);
    // What has come is paired, and makes room.
    fake.event_in(of(LIAR), BEGIN, 270 * MS, 3);
    fake.event_in(of(LIAR), END, 310 * MS, 3);
    fake.look(320 * MS, false);
    fake.look(330 * MS, true);
    assert_eq!(fake.tracker.take_late().len(), 1);
    assert_eq!(only_losses(&fake.tracker).too_many_events, 950);
}

#[test]
fn late_intervals_of_one_user_leave_room_for_those_of_others() {
    let mut fake = work();
    fake.tracker.users.limit(100, 100, 10);
    for look in 0..2 {
        let at = (200 + look * 100) * MS;
        for number in 0..20 {
            fake.event_in(of(LIAR), BEGIN, at, number);
            fake.event_in(of(LIAR), END, at + 10 * MS, number);
        }
        fake.event_in(of(VICTIM), BEGIN, at, 7);
        fake.event_in(of(VICTIM), END, at + 40 * MS, 7);
        fake.look(at + 50 * MS, false);
        fake.look(at + 60 * MS, false);
        let late = fake.tracker.take_late();
        assert_eq!((late.len(), late.last().unwrap().response_ns()), (6, 40 * MS));
    }
    assert_eq!((fake.tracker.counts().late, only_losses(&fake.tracker).late_lost), (42, 30));
}

/// A program that describes its event as no other does, with these fields, and has it once.
fn describes(fake: &mut Fake, user: u32, fields: &str, at_ns: u64) -> Arc<Descriptions> {
    let text = format!("work:begin 6\n{fields}\n\0");
    let descriptions = Descriptions::parse(text.as_bytes(), 1, 0, &RequestedEvents::default()).unwrap();
    let (ring, descriptions) = (of(user), Arc::new(descriptions));
    fake.tracker.event(&NewEvent {
        account: user,
        ring: &ring,
        descriptions: &descriptions,
        event: &descriptions.events[0],
        counter: at_ns,
        cpu: None,
        payload: &[1; 16],
    });
    descriptions
}

#[test]
fn descriptions_of_one_user_leave_room_for_those_of_others_and_end_with_their_programs() {
    let mut fake = work();
    fake.tracker.users.limit(100, 10, 100);
    let fields = |number: u32| format!("x64 cookie\nu8 of{number}");
    let programs: Vec<_> =
        (0..20).map(|number| describes(&mut fake, LIAR, &fields(number), 200 * MS)).collect();
    assert_eq!(only_losses(&fake.tracker).too_many_descriptions, 15);
    fake.event_in(of(VICTIM), BEGIN, 200 * MS, 7);
    fake.event_in(of(VICTIM), END, 240 * MS, 7);
    fake.look(250 * MS, false);
    fake.look(260 * MS, false);
    assert_eq!(fake.tracker.take_late().len(), 1);
    assert_eq!(fake.tracker.counts().users.len(), 1, "of the liar alone");
    // They run, and a second is over.
    fake.look(2000 * MS, false);
    describes(&mut fake, LIAR, &fields(20), 2001 * MS);
    assert_eq!(only_losses(&fake.tracker).too_many_descriptions, 16);
    drop(programs);
    fake.look(4000 * MS, false);
    // Of ten, the other user has two now.
    for number in 21..25 {
        describes(&mut fake, LIAR, &fields(number), 4001 * MS);
    }
    assert_eq!(only_losses(&fake.tracker).too_many_descriptions, 16);
    describes(&mut fake, LIAR, &fields(25), 4001 * MS);
    assert_eq!(only_losses(&fake.tracker).too_many_descriptions, 17);
}

#[test]
fn remarks_on_one_users_events_leave_room_for_those_on_others() {
    let mut fake = work();
    for number in 0..100 {
        let user = if number == 99 { VICTIM } else { LIAR };
        describes(&mut fake, user, &format!("u8 of{number}"), 200 * MS);
    }
    let notes = fake.tracker.take_notes();
    assert!(notes.len() == 17 && notes[16].contains("of99"), "{notes:?}");
    fake.tracker.judge(MonotonicNs(300 * MS), MonotonicNs(300 * MS), true);
    assert_eq!(fake.tracker.counts().unmatched.without_key, 100);
}
