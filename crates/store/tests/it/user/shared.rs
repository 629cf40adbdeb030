// SPDX-License-Identifier: Apache-2.0 OR MIT
//! More threads than a trace has streams: they share some, and nobody waits for anybody.

use super::played::{OWN, PlayedPrograms, Ring, STREAMS, assert_complete, complete, lines, lost, now};
use rtscope_abi::program as abi;
use rtscope_event::LossCause;
use rtscope_store::user::UserRecording;
use rtscope_testkit::program_files::record_word;
use rtscope_testkit::random::Random;
use std::fs;

/// Number of streams of the trace that is being written.
fn streams(played: &PlayedPrograms) -> usize {
    let files = fs::read_dir(played.partial_trace().join("trace")).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name() != "metadata").count()
}

/// Rings that all write, some of them into one stream.
fn rings(played: &PlayedPrograms, count: u32) -> Vec<Ring> {
    (0..count).map(|number| played.ring(number, abi::RTU_CLOCK_MONOTONIC)).collect()
}

#[test]
fn events_of_threads_that_share_a_stream_are_in_order_and_keep_their_times() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut rings = rings(&played, OWN as u32 * 4);
    let (mut random, mut emitted, mut times) = (Random(3), 0, Vec::new());
    for _ in 0..30 {
        for _ in 0..rings.len() * 2 {
            // One event each time, as of threads that take turns on a CPU.
            let ring = &mut rings[random.below(OWN as u64 * 4) as usize];
            let time = now().monotonic_ns;
            ring.sync(time, 0);
            ring.event(random.below(3) as u32, time);
            times.push(time);
            emitted += 1;
            ring.publish();
        }
        recording.poll_for(emitted);
        assert_eq!(streams(&played), OWN, "nothing is late");
    }
    let summary = recording.end(&played);
    assert_eq!((summary.events, summary.losses.as_slice(), summary.moved), (emitted, [].as_slice(), 0));
    if let Some(lines) = lines(&played.trace()) {
        let read: Vec<u64> = lines.iter().map(|line| line.time).collect();
        times.sort_unstable();
        assert!(read == times, "times differ");
        assert_complete(&lines, rings.into_iter());
    }
}

#[test]
fn an_event_that_is_finished_late_keeps_its_time_and_holds_nobody_up() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut rings = rings(&played, OWN as u32 * 2);
    rings.iter_mut().for_each(|ring| ring.events(0, 5));
    let mut emitted = rings.len() as u64 * 5;
    recording.poll_for(emitted);
    // Threads that are stopped in the middle of an event, one after the other.
    let mut begun = Vec::new();
    for ring in &mut rings[..20] {
        let (time, place) = (now().monotonic_ns, ring.head);
        let word = record_word(1, 3, time);
        ring.put(&[word | u64::from(abi::RTU_OPEN) << 16, ring.events, ring.number]);
        ring.publish();
        begun.push((place, word, time));
    }
    // All others are taken in the meantime.
    rings[20..].iter_mut().for_each(|ring| ring.events(0, 5));
    emitted += (rings.len() as u64 - 20) * 5;
    recording.poll_for(emitted);
    assert_eq!((recording.recorder.events(), streams(&played)), (emitted, OWN));
    for (ring, (place, word, _)) in rings[..20].iter_mut().zip(&begun) {
        ring.commit(*place, *word);
    }
    emitted += 20;
    recording.poll_for(emitted);
    // They are in order among themselves.
    assert_eq!(streams(&played), OWN + 1);
    let summary = recording.end(&played);
    assert_eq!((summary.events, summary.losses.as_slice(), summary.moved), (emitted, [].as_slice(), 0));
    if let Some(lines) = lines(&played.trace()) {
        let late: Vec<u64> =
            lines.iter().filter(|line| line.name == "test:event1").map(|line| line.time).collect();
        assert_eq!(late, begun.iter().map(|(.., time)| *time).collect::<Vec<_>>());
        assert_complete(&lines, rings.into_iter());
    }
}

#[test]
fn events_that_are_late_in_a_falling_order_keep_their_times_as_long_as_there_are_streams() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut rings = rings(&played, OWN as u32 * 2);
    let late = STREAMS - OWN + 12;
    // What is older than the recording is none of its events.
    let first_ns = now().monotonic_ns;
    while now().monotonic_ns < first_ns + late as u64 * 1_000_000 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let begin = now().monotonic_ns;
    rings[late..].iter_mut().for_each(|ring| ring.events(0, 5));
    let mut emitted = (rings.len() - late) as u64 * 5;
    recording.poll_for(emitted);
    let times: Vec<u64> = (0..late as u64).map(|step| begin - step * 1_000_000).collect();
    for (ring, time) in rings.iter_mut().zip(&times) {
        ring.sync(*time, 0);
        ring.event(1, *time);
        ring.publish();
        emitted += 1;
        recording.poll_for(emitted);
    }
    assert_eq!(streams(&played), STREAMS);
    let summary = recording.end(&played);
    // The others have the time of an event before, which is said.
    let expected = times.len() as u64 - (STREAMS - OWN) as u64;
    assert_eq!(
        (summary.events, summary.losses.as_slice(), summary.moved),
        (emitted, [].as_slice(), expected)
    );
    assert_eq!(summary.by_user.values().map(|losses| losses.moved).collect::<Vec<_>>(), [expected]);
    if let Some(lines) = lines(&played.trace()) {
        let late = lines.iter().filter(|line| line.name == "test:event1");
        let there_are = STREAMS - OWN;
        let exact =
            late.filter(|line| times.contains(&line.time) && (line.ring as usize) < there_are).count();
        assert_eq!(exact, there_are);
        assert_complete(&lines, rings.into_iter());
    }
}

#[test]
fn one_poll_takes_all_that_is_not_new_however_many_threads_there_are() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut rings = rings(&played, OWN as u32 * 12);
    recording.poll_until_found(1, OWN * 12);
    // One after the other, and more than is written at once: of most of them nothing is taken with the first ones.
    rings.iter_mut().for_each(|ring| ring.events(0, 100));
    let emitted = rings.len() as u64 * 100;
    let written_ns = now().monotonic_ns;
    while now().monotonic_ns < written_ns + 150_000_000 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    recording.programs.drain(&mut recording.recorder).unwrap();
    assert_eq!(recording.recorder.events(), emitted);
    let summary = recording.end(&played);
    assert_eq!((summary.events, summary.losses.as_slice(), summary.moved), (emitted, [].as_slice(), 0));
    if let Some(lines) = lines(&played.trace()) {
        assert_complete(&lines, rings.into_iter());
    }
}

#[test]
fn what_no_other_stream_fits_goes_into_that_of_an_idle_thread() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    // One is alone in its stream, and has ceased to write before the others begin.
    let mut rings = rings(&played, OWN as u32 * 2 - 1);
    rings[OWN - 1].events(0, 5);
    recording.poll_for(5);
    let idle_ns = now().monotonic_ns;
    rings[OWN..].iter_mut().for_each(|ring| ring.events(0, 5));
    let mut emitted = 5 + (OWN as u64 - 1) * 5;
    recording.poll_for(emitted);
    // Of a class that its stream does not have yet.
    played.provider(1, 10, 40);
    recording.poll_until_found(2, OWN * 2 - 1);
    let late = (STREAMS - OWN) as u64 + 3;
    for (ring, step) in rings.iter_mut().zip(0..late) {
        let time = idle_ns + late - step;
        ring.sync(time, 0);
        ring.event(45, time);
        ring.publish();
        emitted += 1;
        recording.poll_for(emitted);
    }
    let summary = recording.end(&played);
    assert_eq!((summary.events, summary.losses.as_slice(), summary.moved), (emitted, [].as_slice(), 2));
    if let Some(lines) = lines(&played.trace()) {
        let of_idle = lines.iter().find(|line| line.ring == late - 3 && line.name == "test:event45");
        assert_eq!(of_idle.map(|line| line.time), Some(idle_ns + 3));
        assert_complete(&lines, rings.into_iter().filter(|ring| ring.events > 0));
    }
}

#[test]
fn threads_that_come_and_go_leave_their_streams_to_others() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let (mut emitted, mut all) = (0, Vec::new());
    for round in 0..8 {
        let mut now: Vec<Ring> = (0..OWN as u32 / 2)
            .map(|number| played.ring(round * 100 + number, abi::RTU_CLOCK_MONOTONIC))
            .collect();
        now.iter_mut().for_each(|ring| ring.events(0, 20));
        emitted += now.len() as u64 * 20;
        recording.poll_for(emitted);
        now.iter().for_each(Ring::end);
        recording.poll_until("the ends were seen", |programs| programs.reports()[0].rings.is_empty());
        all.extend(now);
    }
    // Nobody had to share.
    assert_eq!(streams(&played), OWN / 2);
    let summary = recording.end(&played);
    assert_eq!((summary.events, summary.losses.as_slice(), summary.moved), (emitted, [].as_slice(), 0));
    assert_eq!(summary.rings, Some(all.len()));
    if let Some(lines) = lines(&played.trace()) {
        assert_complete(&lines, all.into_iter());
    }
}

#[test]
fn what_threads_of_one_stream_lost_is_counted_in_it() {
    for is_killed in [true, false] {
        let played = PlayedPrograms::new();
        played.provider(0, 0, 1);
        let mut recording = played.recording();
        let mut rings = rings(&played, OWN as u32 * 2);
        let mut expected = 0;
        for ring in &mut rings {
            ring.events(0, 3);
            ring.sync(now().monotonic_ns, ring.number);
            ring.event(0, now().monotonic_ns);
            ring.publish();
            ring.lose(ring.number);
            expected += ring.number;
        }
        recording.poll_for(rings.len() as u64 * 4);
        let summary = if is_killed {
            recording.kill();
            complete(&played, UserRecording::open(&played.trace()).unwrap())
        } else {
            // The last ones come after any record.
            rings.iter().for_each(|ring| ring.lose(ring.number + 1));
            expected += rings.len() as u64;
            recording.end(&played)
        };
        assert_eq!(lost(&summary, LossCause::BufferFull), expected, "killed: {is_killed}");
        let unknown = summary.losses.iter().filter(|loss| loss.count.is_none()).count();
        assert_eq!((summary.losses.len() - unknown, unknown), (1, usize::from(is_killed)));
    }
}
