// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at a ring whose records are written by hand, as a thread of a flight recorder leaves them.

use super::super::Ring;
use super::Arrivals;
use crate::collector::Rest;
use crate::directory::{FileKind, FileName, ProcessId};
use crate::memory::Mapping;
use crate::records::Layout;
use rtscope_abi::program as abi;
use rtscope_event::exact::index;
use std::fs::File;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

const LAYOUT: Layout = Layout { ring_bytes: 16384, sub_bytes: 4096, key: 5 };
const OPEN: u64 = (abi::RTU_OPEN as u64) << 16;

/// The thread.
struct Writer {
    _file: File,
    memory: Mapping,
    head: u64,
    time: u64,
}

impl Writer {
    fn new() -> (Writer, Ring) {
        let file = tempfile::tempfile().unwrap();
        let bytes = u64::from(abi::RTU_RING_OFFSET) + LAYOUT.ring_bytes;
        file.set_len(bytes).unwrap();
        let memory = Mapping::new(&file, index(bytes)).unwrap();
        let process = ProcessId { pid: 1, birth_ns: 1 };
        let ring = Ring::of_model(&file, FileName { process, kind: FileKind::Ring(1, 0) }, LAYOUT);
        (Writer { _file: file, memory, head: 0, time: 5 << 30 }, ring)
    }

    fn store(&self, place: usize, value: u64) {
        // ORDER: relaxed; one thread.
        self.memory.word(place).store(value, Ordering::Relaxed);
    }

    /// A record with these words after its first one; `flags`: [`OPEN`], or 0.
    fn record(&mut self, id: u32, flags: u64, words: &[u64]) -> u64 {
        let (position, length) = (self.head, words.len() as u64 + 1);
        let word =
            u64::from(id) | LAYOUT.tag(position) | flags | length << 24 | self.time << abi::RTU_TIME_SHIFT;
        let place = |at: u64| {
            index(u64::from(abi::RTU_RING_OFFSET) + ((position + at * 8) & (LAYOUT.ring_bytes - 1)))
        };
        self.store(place(0), word);
        words.iter().zip(1..).for_each(|(value, at)| self.store(place(at), *value));
        self.head += length * 8;
        self.store(offset_of!(abi::rtu_ring, head), self.head);
        position
    }

    /// An event, with the time of the sub-buffer before it where one begins.
    fn event(&mut self, id: u32, value: u64) -> u64 {
        self.time += 10;
        if self.head % LAYOUT.sub_bytes == 0 {
            self.record(abi::RTU_ID_SYNC, 0, &[self.time, 0, 1]);
        }
        if LAYOUT.sub_end(self.head) - self.head < 16 {
            self.record(abi::RTU_ID_PADDING, 0, &[]);
            return self.event(id, value);
        }
        self.record(id, 0, &[value])
    }

    fn finish(&self, position: u64) {
        let place = index(u64::from(abi::RTU_RING_OFFSET) + (position & (LAYOUT.ring_bytes - 1)));
        // ORDER: relaxed; one thread.
        let word = self.memory.word(place).load(Ordering::Relaxed);
        self.store(place, word & !OPEN);
    }
}

/// The values of the wanted events that a look finds, their times, and whether some were missed.
fn look(ring: &mut Ring, is_new: bool) -> (Vec<u64>, Vec<u64>, bool) {
    let mut found = Arrivals::default();
    assert_eq!(ring.arrivals(&[2, 7].into(), (is_new, false), &mut found, &|_| None), None);
    let value = |record| u64::from_le_bytes(found.payload(record)[..8].try_into().unwrap());
    let values = found.records.iter().map(value).collect();
    (values, found.records.iter().map(|record| record.counter).collect(), found.has_missed)
}

#[test]
fn each_wanted_event_comes_once_with_its_time() {
    let (mut thread, mut ring) = Writer::new();
    let mut expected = Vec::new();
    for turn in 0..2000 {
        thread.event(if turn % 3 == 0 { 7 } else { 3 }, turn);
        expected.extend((turn % 3 == 0).then_some((turn, thread.time)));
        if turn % 50 == 49 {
            let (values, times, has_missed) = look(&mut ring, true);
            let found: Vec<(u64, u64)> = values.into_iter().zip(times).collect();
            assert_eq!((found, has_missed), (std::mem::take(&mut expected), false), "{turn}");
        }
    }
}

#[test]
fn what_was_there_before_the_recording_does_not_count() {
    let (mut thread, mut ring) = Writer::new();
    thread.event(7, 1);
    assert!(look(&mut ring, false).0.is_empty());
    thread.event(7, 2);
    assert_eq!(look(&mut ring, false), (vec![2], vec![thread.time], false));
    // A thread that has begun since.
    let (mut thread, mut ring) = Writer::new();
    thread.event(7, 3);
    assert_eq!(look(&mut ring, true).0, [3]);
}

#[test]
fn events_that_were_overwritten_are_missed_and_those_after_them_have_their_time() {
    let (mut thread, mut ring) = Writer::new();
    thread.event(7, 0);
    assert_eq!(look(&mut ring, true).0, [0]);
    for turn in 1..2000 {
        thread.event(7, turn);
    }
    let (values, times, has_missed) = look(&mut ring, true);
    assert!(has_missed && values.last() == Some(&1999) && values.len() < 512, "{values:?}");
    assert_eq!(times.last(), Some(&thread.time));
    thread.event(7, 2000);
    assert_eq!(look(&mut ring, true), (vec![2000], vec![thread.time], false));
}

#[test]
fn what_there_is_no_time_for_is_passed_over_and_what_comes_then_has_its_time() {
    let (mut thread, mut ring) = Writer::new();
    let write = |thread: &mut Writer, values: std::ops::Range<u64>| {
        values.for_each(|value| {
            thread.event(7, value);
        });
    };
    write(&mut thread, 0..600);
    // There was time for the first sub-buffer.
    let mut found = Arrivals::default();
    let rest = |found| (found > 0).then_some(Rest::PassedOver);
    assert_eq!(ring.arrivals(&[7].into(), (true, false), &mut found, &rest), Some(Rest::PassedOver));
    assert!(found.has_missed && (1..300).contains(&found.records.len()), "{}", found.records.len());
    write(&mut thread, 600..610);
    let (values, times, has_missed) = look(&mut ring, true);
    assert_eq!((values, has_missed), ((600..610).collect(), false));
    assert_eq!(times.last(), Some(&thread.time));
    // And for none.
    write(&mut thread, 610..1000);
    ring.pass_over(true, &mut found);
    assert!(found.has_missed && found.records.is_empty());
    write(&mut thread, 1000..1010);
    assert_eq!(look(&mut ring, true).0, (1000..1010).collect::<Vec<u64>>());
    // Of what has not come nothing is missed, and in the same sub-buffer the time is known.
    ring.pass_over(true, &mut found);
    assert!(!found.has_missed);
    write(&mut thread, 1010..1012);
    ring.pass_over(true, &mut found);
    assert!(found.has_missed);
    write(&mut thread, 1012..1014);
    assert_eq!(look(&mut ring, true), (vec![1012, 1013], vec![thread.time - 10, thread.time], false));
}

#[test]
fn what_there_is_no_time_for_waits_until_it_is_overwritten() {
    let (mut thread, mut ring) = Writer::new();
    let write = |thread: &mut Writer, values: std::ops::Range<u64>| {
        values.for_each(|value| {
            thread.event(7, value);
        });
    };
    let rest = |found| (found > 0).then_some(Rest::Waits);
    let mut found = Arrivals::default();
    ring.wait(true);
    write(&mut thread, 0..600);
    // There was time for the first sub-buffer.
    assert_eq!(ring.arrivals(&[7].into(), (true, false), &mut found, &rest), Some(Rest::Waits));
    let values = found.records.len() as u64;
    assert!(!found.has_missed && (1..300).contains(&values), "{values}");
    // And for none.
    ring.wait(true);
    assert!(!ring.is_as_it_was());
    let (others, times, has_missed) = look(&mut ring, true);
    assert_eq!((others, has_missed), ((values..600).collect(), false));
    assert_eq!(times.last(), Some(&thread.time));
    assert!(ring.is_as_it_was());
    write(&mut thread, 600..2000);
    ring.wait(true);
    let (others, _, has_missed) = look(&mut ring, true);
    assert!(has_missed && others.last() == Some(&1999) && others.len() < 512, "{others:?}");
}

#[test]
fn a_head_that_goes_back_has_nothing_looked_at_again() {
    let (mut thread, mut ring) = Writer::new();
    (0..500).for_each(|value| {
        thread.event(7, value);
    });
    let head_at = offset_of!(abi::rtu_ring, head);
    let values: Vec<u64> = look(&mut ring, true).0;
    assert_eq!(values, (0..500).collect::<Vec<u64>>());
    let mut found = Arrivals::default();
    for head in [64, thread.head - 4096, 64, 0, thread.head] {
        thread.store(head_at, head);
        assert_eq!(look(&mut ring, true), (vec![], vec![], head < thread.head), "{head}");
        ring.pass_over(true, &mut found);
        ring.wait(true);
    }
    thread.event(7, 500);
    assert_eq!(look(&mut ring, true).0, [500]);
}

/// The key of tags, and so what a ring has from earlier laps, is the program's choice: a sub-buffer of half a gigabyte can be one long row of records.
#[test]
fn in_a_large_sub_buffer_it_is_asked_now_and_then_whether_there_is_time() {
    let layout = Layout { ring_bytes: 8 << 20, sub_bytes: 4 << 20, key: 0 };
    let file = tempfile::tempfile().unwrap();
    let bytes = u64::from(abi::RTU_RING_OFFSET) + layout.ring_bytes;
    file.set_len(bytes).unwrap();
    let memory = Mapping::new(&file, index(bytes)).unwrap();
    let process = ProcessId { pid: 1, birth_ns: 1 };
    let mut ring = Ring::of_model(&file, FileName { process, kind: FileKind::Ring(1, 0) }, layout);
    // ORDER: relaxed; one thread.
    let store = |place: usize, value: u64| memory.word(place).store(value, Ordering::Relaxed);
    for word in 0..layout.sub_bytes / 8 {
        store(index(u64::from(abi::RTU_RING_OFFSET) + word * 8), 3 | 1 << 24);
    }
    store(offset_of!(abi::rtu_ring, head), layout.sub_bytes);
    let asked = std::cell::Cell::new(0);
    let rest = |_| {
        asked.set(asked.get() + 1);
        (asked.get() == 5).then_some(Rest::Waits)
    };
    let mut found = Arrivals::default();
    assert_eq!(ring.arrivals(&[7].into(), (true, false), &mut found, &rest), Some(Rest::Waits));
    assert_eq!(ring.arrivals(&[7].into(), (true, false), &mut found, &rest), None);
    assert_eq!(asked.get(), (4 << 20) / super::STEP_BYTES - 1);
}

#[test]
fn a_record_that_is_being_written_is_waited_for() {
    let (mut thread, mut ring) = Writer::new();
    thread.event(7, 1);
    let open = thread.record(7, OPEN, &[2]);
    thread.event(7, 3);
    assert_eq!(look(&mut ring, true).0, [1]);
    thread.finish(open);
    assert_eq!(look(&mut ring, true), (vec![2, 3], vec![thread.time - 10, thread.time], false));
    // Its thread has left one for good: what follows it comes once the next sub-buffer is written.
    thread.record(7, OPEN, &[4]);
    thread.event(7, 5);
    assert!(look(&mut ring, true).0.is_empty());
    for _ in 0..300 {
        thread.event(3, 0);
    }
    assert_eq!(look(&mut ring, true).0, [5]);
}

#[test]
fn whatever_positions_and_words_a_liar_writes_are_read_to_an_end() {
    let (mut thread, mut ring) = Writer::new();
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 20
    };
    for _ in 0..500 {
        for word in 0..LAYOUT.ring_bytes / 8 {
            thread.store(index(u64::from(abi::RTU_RING_OFFSET) + word * 8), random());
        }
        thread.head = match random() % 3 {
            0 => random(),
            1 => thread.head.wrapping_add(random() % LAYOUT.ring_bytes),
            _ => random() & !7,
        };
        thread.store(offset_of!(abi::rtu_ring, head), thread.head);
        look(&mut ring, random() % 2 == 0);
    }
}
