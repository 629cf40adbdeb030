// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operands as programs and others write them.

use super::*;

const START: u64 = 5 << 30;

fn thread(tid: u32) -> (Thread, u32) {
    let words = who(tid, START, 0);
    let thread = Said::read(&words).expect("it says who it is").who.thread;
    let key = key_of(&thread);
    (thread, key)
}

/// A thread of process 5 that says who it is, at this time and on this CPU. Its number is that of its thread, too.
fn who(tid: u32, time: u64, cpu: u64) -> Vec<u64> {
    let word = u64::from(abi::RTU_ID_WHO) | 9 << 24 | time << abi::RTU_TIME_SHIFT;
    let version = u64::from(abi::RTU_CHANNEL_VERSION) << 32;
    let comm = u64::from_le_bytes(*b"motor\0\0\0");
    vec![word, time, 0, cpu | 1 << 32, 77, 5 | u64::from(tid) << 32, u64::from(tid) | version, comm, 0]
}

fn event(id: u64, time: u64, payload: &[u64]) -> Vec<u64> {
    let word = id | (1 + payload.len() as u64) << 24 | time << abi::RTU_TIME_SHIFT;
    [&[word], payload].concat()
}

/// A message as a program writes it: bit by bit, and not as the header does it.
fn message(key: u32, number: u32, words: &[u64]) -> Vec<u64> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(check_of(words).to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(6), 0);
    let data = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |data, byte| data << 8 | u64::from(*byte));
    let rest = bytes
        .chunks(6)
        .zip(0_u64..)
        .map(|(bytes, place)| (place & 15) << 59 | u64::from(key & KEY_BITS) << 48 | data(bytes));
    [1 << 63 | u64::from(key) << 32 | u64::from(number)].into_iter().chain(rest).collect()
}

/// Reads streams, in which `None` is a gap.
fn read(streams: &[&[Option<u64>]]) -> ChannelEvents {
    let mut events = PtwriteEvents::default();
    for stream in streams {
        events.begin();
        for word in *stream {
            match word {
                Some(word) => events.operand(*word),
                None => events.gap(),
            }
        }
    }
    events.finish()
}

fn stream(messages: &[&[u64]]) -> Vec<Option<u64>> {
    messages.concat().into_iter().map(Some).collect()
}

/// Whether a thread's events have these payloads and CPUs, in the order of the stream.
fn assert_events(events: &ChannelEvents, tid: u32, expected: &[(u64, u32)]) {
    assert_eq!(events.of(&thread(tid).0), expected, "of {tid}: {:?}", events.losses);
}

#[test]
fn words_of_threads_and_handlers_are_put_together_again() {
    let (a, b) = (thread(9).1, thread(10).1);
    let outer = message(a, 1, &event(1, START + 10, &[7; 30]));
    let inner = message(a, 2, &event(2, START + 20, &[9]));
    let other = message(b, 1, &event(1, START + 15, &[8; 30]));
    let mut words = [message(a, 0, &who(9, START, 1)), message(b, 0, &who(10, START, 1))].concat();
    // Word by word in turn, and a handler of the first thread in the middle.
    for (at, (one, two)) in outer.iter().zip(&other).enumerate() {
        words.extend([*one, *two]);
        if at == 17 {
            words.extend(&inner);
        }
    }
    let events = read(&[&stream(&[&words])]);
    assert_eq!(events.losses, ChannelLosses::default());
    assert_events(&events, 9, &[(7, 1), (9, 1)]);
    assert_events(&events, 10, &[(8, 1)]);
}

#[test]
fn what_is_missing_in_a_stream_of_ptwrite_is_counted_by_cause() {
    let key = thread(9).1;
    let says = |number, time| message(key, number, &who(9, time, 1));
    let writes =
        |number, payload: u64| message(key, number, &event(1, START + u64::from(number), &[payload]));
    // The rest of a message, one of nobody yet, a wrong bit, one that never came (5), one without an end, and two of others.
    let mut wrong = writes(3, 13);
    wrong[2] ^= 1 << 20;
    let words = stream(&[
        &writes(0, 10)[2..],
        &writes(1, 11),
        &says(2, START),
        &wrong,
        &writes(4, 14),
        &says(6, START),
        &writes(7, 17)[..2],
        &writes(8, 18),
        &[0x1234, 0xffff_0123_4567_89ab],
    ]);
    let events = read(&[&words]);
    let expected = ChannelLosses {
        missing: 1,
        unfinished: 1,
        damaged: 1,
        unknown: 1,
        // The last one. The wrong one may have said who it is, too, but what is behind it says that it would have made no difference.
        unplaced: 1,
        // Two of the first message, and one of others; the other one of those begins a message of a key that nobody has.
        stray_words: 4,
        ..ChannelLosses::default()
    };
    assert_eq!(events.losses, expected);
    assert_events(&events, 9, &[(14, 1)]);
}

/// A thread that writes a million messages in a second does so after 72 minutes.
#[test]
fn a_thread_whose_numbers_go_around_is_read_in_its_order() {
    let key = thread(9).1;
    let says = |number, time| message(key, number, &who(9, time, 1));
    let writes = |number, payload: u64| message(key, number, &event(1, START + payload, &[payload]));
    let words = stream(&[
        &says(u32::MAX - 1, START),
        &writes(u32::MAX, 1),
        &writes(0, 2),
        // 1 never came.
        &says(2, START + 3),
        &writes(3, 4),
    ]);
    let events = read(&[&words]);
    assert_eq!(events.losses, ChannelLosses { missing: 1, ..ChannelLosses::default() });
    assert_events(&events, 9, &[(1, 1), (2, 1), (4, 1)]);
}

/// Behind a gap nothing says on which CPU a thread is, and how often the time has gone around, until it says so again.
#[test]
fn an_event_behind_a_loss_has_no_time_that_it_may_not_have_had() {
    let key = thread(9).1;
    let first = message(key, 0, &who(9, START, 1));
    // The message that has gone may have said that a second has passed.
    let late = START + (3 << 30);
    let after = message(key, 2, &event(1, late + 1, &[1]));
    for (again, cpu, is_here) in [(late + 2, 1, false), (START + 500, 1, true), (START + 500, 2, true)] {
        let again = message(key, 3, &who(9, again, cpu));
        let last = message(key, 4, &event(1, late + 3, &[2]));
        let (before, rest) = (stream(&[&first]), stream(&[&after, &again, &last]));
        let one = [&before[..], &[None], &rest[..]].concat();
        let events = read(&[&one]);
        let unplaced = u64::from(!is_here);
        assert_eq!(
            events.losses,
            ChannelLosses { missing: 1, unplaced, ..ChannelLosses::default() },
            "{cpu}"
        );
        let read_last = (2, cpu as u32);
        let expected = if is_here { vec![(1, 1), read_last] } else { vec![read_last] };
        assert_events(&events, 9, &expected);
        // Of another CPU's stream it could have moved.
        let events = read(&[&before, &rest]);
        assert_eq!(events.losses.unplaced, 1);
    }
}

/// A thread that is moved has its messages in two streams, which are read one after the other.
#[test]
fn a_threads_messages_are_in_the_streams_of_all_its_cpus() {
    let key = thread(9).1;
    let writes = |number, payload| message(key, number, &event(1, START + u64::from(number), &[payload]));
    let broken = writes(5, 15);
    let one = stream(&[&message(key, 0, &who(9, START, 1)), &writes(1, 11), &broken[..2]]);
    let two = stream(&[&message(key, 2, &who(9, START, 2)), &writes(3, 13), &writes(4, 14), &broken[2..]]);
    for streams in [[&one[..], &two], [&two, &one]] {
        let events = read(&streams);
        let mut expected = vec![(11, 1), (13, 2), (14, 2)];
        let mut found = events.of(&thread(9).0);
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        // Within a message it is not followed.
        let lost = ChannelLosses { unfinished: 1, stray_words: 2, ..ChannelLosses::default() };
        assert_eq!(events.losses, lost);
    }
}

/// Two threads with the same key: nobody knows whose an event is.
#[test]
fn events_of_a_key_that_two_threads_have_are_not_given_to_one_of_them() {
    let (key, other) = (thread(9).1, thread(10).1);
    let words = stream(&[
        &message(key, 0, &who(9, START, 1)),
        // It says that it is another one, and has not that one's key.
        &message(key, 1, &who(10, START, 1)),
        &message(key, 2, &event(1, START, &[1])),
        &message(other, 0, &event(1, START, &[1])),
    ]);
    let events = read(&[&words]);
    assert_eq!(events.losses.damaged, 1);
    assert_eq!(events.losses.unknown, 1);
    assert_events(&events, 9, &[(1, 1)]);
    assert_events(&events, 10, &[]);
}
