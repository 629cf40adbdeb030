// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams as programs and others write them.

use super::*;
use rtscope_ctf::{Selection, TraceSet};
use rtscope_hardware::stp::{Decoder, Encoder};
use rtscope_programs::ProviderInfo;
use rtscope_programs::channels::{ChannelDevice, Ports};
use rtscope_programs::clock::Pair;
use rtscope_programs::description::{Descriptions, EventDescription};
use rtscope_store::user::UserSession;
use std::sync::Arc;

/// A thread that says who it is, and what it wrote.
fn who(tid: u64, number: u64, time: u64, lost: u64) -> Vec<u64> {
    let word = u64::from(abi::RTU_ID_WHO) | number << 16 | 9 << 24 | time << abi::RTU_TIME_SHIFT;
    let comm = u64::from_le_bytes(*b"motor\0\0\0");
    let version = u64::from(abi::RTU_CHANNEL_VERSION) << 32;
    vec![word, time, lost, 1 | 1 << 32, 77, 5 | tid << 32, version, comm, 0]
}

fn event(id: u64, number: u64, time: u64, payload: &[u64]) -> Vec<u64> {
    let word = id | number << 16 | (1 + payload.len() as u64) << 24 | time << abi::RTU_TIME_SHIFT;
    [&[word], payload].concat()
}

fn send(encoder: &mut Encoder, words: &[u64]) {
    encoder.marked(Width::D64, words[0], Some(1));
    words[1..].iter().for_each(|word| {
        encoder.data(Width::D64, *word, None);
    });
    encoder.flag(None);
}

fn read(bytes: &[u8]) -> ChannelEvents {
    let mut events = ChannelEvents::default();
    let mut decoder = Decoder::new();
    decoder.push(bytes, &mut events);
    decoder.finish(&mut events);
    events.finish();
    events
}

/// Times, ids and payloads of a thread.
fn of(events: &ChannelEvents, tid: u32) -> Vec<(u64, u32, Vec<u64>)> {
    let thread = events.threads.iter().find(|(thread, _)| thread.tid == tid).expect("it wrote");
    thread.1.events.iter().map(|event| (event.counter, event.id, event.payload.clone())).collect()
}

#[test]
fn a_message_within_another_is_a_handlers() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    send(&mut encoder, &who(9, 0, 5 << 30, 0));
    let (outer, inner) = (event(1, 1, (5 << 30) + 10, &[7, 8]), event(2, 2, (5 << 30) + 20, &[9]));
    encoder.marked(Width::D64, outer[0], Some(1)).data(Width::D64, outer[1], None);
    send(&mut encoder, &inner);
    encoder.data(Width::D64, outer[2], None).flag(None);
    let events = read(&encoder.finish());
    let start = 5_u64 << 30;
    assert_eq!(of(&events, 9), [(start + 20, 2, vec![9]), (start + 10, 1, vec![7, 8])]);
    assert_eq!(events.losses, ChannelLosses::default());
    assert_eq!(events.threads.values().next().map(|thread| thread.comm.as_str()), Some("motor"));
}

#[test]
fn what_is_missing_is_counted_by_cause_and_spoils_nothing_else() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    // The rest of a message, then one of whom nobody knows.
    encoder.data(Width::D64, 4, None).flag(None);
    send(&mut encoder, &event(1, 4, 100, &[1]));
    send(&mut encoder, &who(9, 5, 100, 2));
    // Number 6 never came; 7 has a word too many, 8 has no end.
    send(&mut encoder, &event(1, 7, 101, &[1])[..]);
    let short = event(1, 8, 102, &[1, 2]);
    send(&mut encoder, &short[..2]);
    let unfinished = event(1, 9, 103, &[1]);
    encoder.marked(Width::D64, unfinished[0], Some(1));
    send(&mut encoder, &event(2, 10, 104, &[5]));
    let events = read(&encoder.finish());
    assert_eq!(of(&events, 9), [(101, 1, vec![1]), (104, 2, vec![5])]);
    let expected = ChannelLosses {
        missing: 1,
        unfinished: 1,
        damaged: 1,
        unknown: 1,
        unwritten: 2,
        stray_words: 1,
        ..ChannelLosses::default()
    };
    assert_eq!(events.losses, expected);
    assert_eq!(events.losses.sentences("channels").len(), 6);
}

/// Each thread says how many it could not write, and may say anything.
#[test]
fn losses_that_threads_claim_are_added_up_to_the_largest_number() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    for tid in [9, 10] {
        send(&mut encoder, &who(tid, 0, 100, u64::MAX));
        send(&mut encoder, &event(1, 1, 101, &[]));
    }
    encoder.marked(Width::D64, event(1, 2, 102, &[])[0], Some(1));
    let events = read(&encoder.finish());
    let expected = ChannelLosses { unwritten: u64::MAX, unfinished: 1, ..ChannelLosses::default() };
    assert_eq!(
        (events.losses, events.losses.messages(), events.losses.unreadable()),
        (expected, u64::MAX, 1)
    );
}

#[test]
fn a_message_that_a_handler_has_overtaken_is_not_missing() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    send(&mut encoder, &who(9, 0, 100, 0));
    // The handler has said anew who it is, later than the time of the event that it has overtaken.
    send(&mut encoder, &who(9, 2, 102, 0));
    for (number, time) in [(3, 103), (1, 101), (4, 104), (6, 106)] {
        send(&mut encoder, &event(1, number, time, &[]));
    }
    let events = read(&encoder.finish());
    let times: Vec<u64> = of(&events, 9).iter().map(|(time, ..)| *time).collect();
    assert_eq!(times, [103, 101, 104, 106]);
    assert_eq!(events.losses, ChannelLosses { missing: 1, ..ChannelLosses::default() });
}

#[test]
fn the_first_message_of_a_thread_that_its_handlers_have_overtaken_begins_no_other_thread() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    // Handlers came between the number of the first one and its first word, and one more in the middle of it.
    send(&mut encoder, &who(9, 1, 102, 0));
    for number in 2..5 {
        send(&mut encoder, &event(1, number, 100 + number, &[]));
    }
    let first = who(9, 0, 100, 0);
    encoder.marked(Width::D64, first[0], Some(1));
    send(&mut encoder, &event(1, 5, 105, &[]));
    first[1..].iter().for_each(|word| {
        encoder.data(Width::D64, *word, None);
    });
    encoder.flag(None);
    for number in (6..128).chain(0..128).filter(|number| *number != 60) {
        let says_who = number % 64 == 0;
        send(&mut encoder, &if says_who { who(9, number, 300, 0) } else { event(1, number, 300, &[]) });
    }
    let events = read(&encoder.finish());
    assert_eq!(events.losses, ChannelLosses { missing: 2, ..ChannelLosses::default() });
    assert_eq!(of(&events, 9).len(), 4 + 120 + 125);
}

#[test]
fn what_is_missing_before_a_number_begins_again_is_missing() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    send(&mut encoder, &who(9, 120, 100, 0));
    // 121 to 127 never came.
    send(&mut encoder, &who(9, 0, 100, 0));
    send(&mut encoder, &event(1, 1, 101, &[]));
    // 2 came late, 3 never, and 1 twice: that is nothing that was missing.
    for number in [4, 2, 1] {
        send(&mut encoder, &event(1, number, 101, &[]));
    }
    // Of another thread.
    send(&mut encoder, &who(10, 0, 200, 0));
    send(&mut encoder, &event(1, 2, 201, &[]));
    let events = read(&encoder.finish());
    assert_eq!(events.losses, ChannelLosses { missing: 7 + 1 + 1, ..ChannelLosses::default() });
}

#[test]
fn channels_are_told_apart_and_a_channel_may_have_another_thread_later() {
    let mut encoder = Encoder::new();
    encoder.sync().master(16);
    for (channel, tid) in [(3, 9), (4, 10)] {
        encoder.channel(channel);
        send(&mut encoder, &who(tid, 0, 100, 0));
    }
    for (channel, number) in [(3, 1), (4, 1), (3, 2)] {
        encoder.channel(channel);
        send(&mut encoder, &event(number, number, 100 + number, &[]));
    }
    encoder.channel(3);
    send(&mut encoder, &who(11, 0, 200, 0));
    send(&mut encoder, &event(1, 1, 201, &[]));
    let events = read(&encoder.finish());
    assert_eq!(of(&events, 9), [(101, 1, vec![]), (102, 2, vec![])]);
    assert_eq!((of(&events, 10), of(&events, 11)), (vec![(101, 1, vec![])], vec![(201, 1, vec![])]));
    assert_eq!(events.losses, ChannelLosses::default());
}

/// Each thread's events were put into a mapping, and there are 60 000: so one program took all others' events with its own.
#[test]
fn a_program_that_claims_any_number_of_threads_takes_no_others_events() {
    const CLAIMED: u64 = 70_000;
    let description =
        |name: &str| EventDescription { index: 0, name: name.into(), level: 6, fields: Vec::new() };
    let provider = |pid: u32| {
        let (events, declared) =
            (vec![description("a:b"), EventDescription { index: 1, ..description("a:c") }], 2);
        let descriptions = Arc::new(Descriptions { events, declared, ..Descriptions::default() });
        ProviderInfo { pid, birth_ns: 77, descriptions, ..ProviderInfo::default() }
    };
    let directory = tempfile::tempdir().expect("a directory");
    let session = UserSession::of_this_machine("1", Vec::new()).expect("it has a name and clocks");
    let device = Destination::Stm(ChannelDevice {
        name: "stm0".into(),
        policy: "user".into(),
        ports: Ports::CORESIGHT,
        map_bytes: 4096,
    });
    let mut notes = ChannelNotes::new(directory.path(), &session, &device);
    let now = session.started_ns;
    notes.providers = vec![provider(5), provider(6)];
    notes.clock =
        vec![Pair { counter: now, monotonic_ns: now }, Pair { counter: now + 9, monotonic_ns: now + 9 }];
    let mut encoder = Encoder::new();
    encoder.sync().master(16).channel(3);
    // The honest one has the higher number: it would come last.
    for (process, tid) in (1..=CLAIMED).map(|tid| (5, tid)).chain([(6, 1)]) {
        let mut who = who(tid, 0, now, 0);
        who[5] = process | tid << 32;
        send(&mut encoder, &who);
        send(&mut encoder, &event(process - 5, 1, now + 1, &[]));
    }
    let target = directory.path().join("trace");
    let (trace, said) = write(read(&encoder.finish()), &notes, &target).expect("it can be written");
    assert_eq!((trace.events, trace.losses), (THREADS_MAX as u64, CLAIMED + 1 - THREADS_MAX as u64));
    assert!(said[0].starts_with("20 001 events are left out, of programs with so many threads"), "{said:?}");
    let recording =
        rtscope_ctf::count(&TraceSet::open(&target).expect("a trace"), &Selection::default(), &|_| ());
    let by_event: Vec<u64> = recording.streams.iter().flat_map(|stream| stream.events.clone()).collect();
    assert_eq!(by_event, [THREADS_MAX as u64 - 1, 1]);
}

#[test]
fn who_wants_less_than_his_share_leaves_the_rest_to_others() {
    assert_eq!(
        [share(vec![5, 1, 90], 100), share(vec![50, 1, 90], 100), share(vec![70, 70], 100)],
        [100, 49, 50]
    );
    assert_eq!([share(vec![], 100), share(vec![101], 100), share(vec![90, 2, 60, 90], 100)], [100, 100, 32]);
}
