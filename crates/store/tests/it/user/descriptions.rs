// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lies in what programs describe: too much of it, and anything that a writer or reader of a trace may stumble over.

use super::played::{BIRTH, PlayedPrograms, Ring, STREAMS, now};
use rtscope_abi::program as abi;
use rtscope_event::LossCause;
use rtscope_store::user::UserSummary;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::descriptions::{self, DescriptionText};
use rtscope_testkit::program_files::{self, PID, provider_name, record_word, ring_name};
use rtscope_testkit::random::Random;
use std::mem::offset_of;

/// A program of 60 000 events with this many fields.
fn large(fields: usize) -> DescriptionText {
    let fields: String = (0..fields).map(|field| format!("u64 field_{field}\n")).collect();
    let text: String = (0..60_000).map(|event| format!("load:event{event} 6\n{fields}\0")).collect();
    DescriptionText { text: text.into_bytes(), events: 60_000, enumerations: 0 }
}

impl PlayedPrograms {
    /// Another life of process 1, with these descriptions and a ring with records of noise.
    fn liar(&self, birth_ns: u64, text: &DescriptionText, random: &mut Random) {
        let bytes = program_files::provider_of_text(PID, birth_ns, 0, text);
        self.directory.write(&provider_name(PID, birth_ns, 0), &bytes);
        let mut bytes = program_files::ring(PID, PID, birth_ns, abi::RTU_CLOCK_MONOTONIC);
        let time = now().monotonic_ns;
        let mut words = vec![record_word(abi::RTU_ID_SYNC, 4, time), time, 0, 0];
        for _ in 0..20 {
            let payload = random.below(60);
            words.push(record_word(random.below(6) as u32, payload + 1, time));
            // Small counts of sequences, and texts that end.
            words.extend((0..payload).map(|_| random.next() & 0x00ff_00ff_0000_0003));
        }
        for (place, word) in words.iter().enumerate() {
            program_files::put64(&mut bytes, abi::RTU_RING_OFFSET as usize + place * 8, *word);
        }
        program_files::put64(&mut bytes, offset_of!(abi::rtu_ring, head), words.len() as u64 * 8);
        self.directory.write(&ring_name(PID, birth_ns, PID, 0), &bytes);
    }
}

/// Checks that the trace has 1000 events of an honest program, and that babeltrace2 reads as many as were converted.
fn assert_readable(played: &PlayedPrograms, converted: &UserSummary, what: &str) {
    let honest = converted.by_event.get("test:event0").copied();
    assert_eq!(honest, Some(1000), "{what}: {:?} {:?}", converted.losses, converted.remarks);
    let set = rtscope_ctf::TraceSet::open(&played.trace()).unwrap();
    let read = rtscope_ctf::count(&set, &rtscope_ctf::Selection::default(), &|_| ());
    let read: u64 = read.streams.iter().flat_map(|stream| &stream.events).sum();
    assert_eq!(read, converted.events, "{what}");
    let output = babeltrace2::run(&played.trace(), &[]);
    let Some(output) = output else { return };
    let complaints = String::from_utf8_lossy(&output.stderr);
    // It reports losses, which are the liars'.
    let others = complaints.lines().filter(|line| !line.starts_with("WARNING: Tracer discarded"));
    assert!(
        output.status.success() && others.clone().count() == 0,
        "{what}: {:?}",
        others.collect::<Vec<_>>()
    );
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(lines, converted.events, "{what}");
}

#[test]
fn a_program_that_describes_too_much_is_dropped_by_name_and_costs_nobody_an_event() {
    for (fields, programs) in [(16, 1), (1, 3)] {
        let played = PlayedPrograms::new();
        for program in 0..programs {
            played.liar(1 + program, &large(fields), &mut Random(program));
        }
        let mut recording = played.recording();
        recording.poll();
        played.provider(0, 0, 1);
        let mut honest = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
        for round in 0..10 {
            honest.events(0, 100);
            recording.poll_for(honest.events.min(100 * (round + 1)));
        }
        let converted = recording.end(&played);
        assert_readable(&played, &converted, &format!("{programs} of 60 000 events"));
        assert_eq!(converted.remarks.len() as u64, programs, "{:?}", converted.remarks);
        for remark in &converted.remarks {
            assert!(
                remark.starts_with("test (process 1") && remark.contains("take more than 4 MiB"),
                "{remark}"
            );
        }
        let metadata = std::fs::metadata(played.trace().join("metadata")).unwrap();
        assert!(metadata.len() < 100_000, "{}", metadata.len());
    }
}

#[test]
fn only_what_was_requested_is_in_the_trace() {
    let played = PlayedPrograms::new();
    played.liar(1, &large(16), &mut Random(1));
    played.provider(0, 0, 3);
    let mut recording = played.recording_of(&["test:event0", "load:event1"]);
    let mut honest = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    (0..10).for_each(|_| honest.events(0, 100));
    recording.poll_for(1000);
    let converted = recording.end(&played);
    assert_readable(&played, &converted, "60 000 events, one of them requested");
    assert_eq!(converted.remarks, [""; 0]);
    let metadata = std::fs::read_to_string(played.trace().join("metadata")).unwrap();
    let named = metadata.split("name = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let names: Vec<&str> = named.filter(|name| name.contains(':')).collect();
    assert_eq!(names, ["load:event1", "test:event0"]);
}

/// Records of such an event arrive until the collector has switched it off.
#[test]
fn records_of_an_event_that_cannot_be_described_are_said_to_be_lost_and_are_not_garbage() {
    for streams in [1, STREAMS as u32 + 4] {
        let played = PlayedPrograms::new();
        let text = b"test:event0 6\nu64 n\nu64 ring\n\0test:wrong 6\narray u64 N v\n\0test:event2 6\nu64 n\nu64 ring\n\0";
        let text = DescriptionText { text: text.to_vec(), events: 3, enumerations: 0 };
        let bytes = program_files::provider_of_text(PID, BIRTH, 0, &text);
        played.directory.write(&provider_name(PID, BIRTH, 0), &bytes);
        let mut recording = played.recording();
        // The last ones have no stream of their own: they are converted at the end.
        let mut rings: Vec<Ring> =
            (0..streams).map(|number| played.ring(number, abi::RTU_CLOCK_MONOTONIC)).collect();
        rings.iter_mut().for_each(|ring| (0..3).for_each(|id| ring.events(id, 10)));
        recording.poll_for(u64::from(streams) * 20);
        let converted = recording.end(&played);
        assert_eq!(
            converted.by_event.values().sum::<u64>(),
            u64::from(streams) * 20,
            "{:?}",
            converted.by_event
        );
        let losses: Vec<(LossCause, Option<u64>)> =
            converted.losses.iter().map(|loss| (loss.cause, loss.count)).collect();
        assert_eq!(losses, [(LossCause::Undescribed, None)]);
        let [remark] = converted.remarks.as_slice() else { panic!("{:?}", converted.remarks) };
        assert!(remark.contains("test:wrong is not recorded: an array's count"), "{remark}");
    }
}

/// Any number of them may come, each with another build id.
#[test]
fn of_programs_of_which_nothing_is_asked_for_nothing_is_written() {
    let played = PlayedPrograms::new();
    let mut recording = played.recording_of(&["other:*"]);
    let before = recording.recorder.bytes();
    for program in 0..200 {
        played.provider_of(PID + program, 0, 0, 5);
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while recording.programs.count() < 200 {
        assert!(std::time::Instant::now() < deadline, "{} found", recording.programs.count());
        recording.programs.poll(&mut recording.recorder).unwrap();
    }
    assert_eq!(recording.recorder.bytes(), before);
}

/// A process can claim the highest ids with a few bytes. What it costs depends on what it describes.
#[test]
fn high_ids_take_no_memory() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 1);
    let text = DescriptionText { text: b"p:e 6\nu8 a\n\0".to_vec(), events: 1, enumerations: 0 };
    for birth in 1..2000 {
        let bytes = program_files::provider_of_text(PID, birth, abi::RTU_EVENTS_MAX - 1, &text);
        played.directory.write(&provider_name(PID, birth, 0), &bytes);
    }
    let mut recording = played.recording();
    let mut honest = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    (0..10).for_each(|_| honest.events(0, 100));
    let before = resident_bytes();
    recording.poll_for(1000);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while recording.programs.count() < 2000 {
        assert!(std::time::Instant::now() < deadline, "{} found", recording.programs.count());
        recording.poll();
    }
    let converted = recording.end(&played);
    let grown = resident_bytes().saturating_sub(before);
    assert_readable(&played, &converted, "2000 processes with high ids");
    // A table of all ids would be 8 GB; other tests run beside this one.
    assert!(grown < 1 << 30, "{grown} bytes");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn random_lies_in_descriptions_spoil_no_trace() {
    let (mut dropped, mut events) = (0, 0);
    for seed in 0..12 {
        let mut random = Random(seed);
        let played = PlayedPrograms::new();
        played.provider(0, 0, 1);
        let mut recording = played.recording();
        for birth in 1..80 {
            played.liar(birth, &descriptions::provider(&mut random), &mut random);
        }
        let mut honest = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
        (0..10).for_each(|_| honest.events(0, 100));
        recording.poll_for(1000);
        let converted = recording.end(&played);
        assert_readable(&played, &converted, &format!("seed {seed}"));
        assert!(
            converted.losses.iter().all(|loss| matches!(
                loss.cause,
                LossCause::Unreadable | LossCause::Undescribed | LossCause::Refused
            )),
            "{:?}",
            converted.losses
        );
        dropped += converted.remarks.len();
        events += converted.events - 1000;
    }
    println!("of 948 liars {dropped} were dropped; the others have {events} events");
    assert!(dropped > 20 && events > 1000, "{dropped} {events}");
}
