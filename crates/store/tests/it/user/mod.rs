// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of programs that this test plays: it writes their files, with honest and with lying records, which are converted while
//! they are recorded. The trace is read by babeltrace2, where that is installed, and by our reader.

mod descriptions;
mod played;
mod shared;

use played::{BIRTH, OWN, PlayedPrograms, Ring, assert_complete, complete, lines, lost, now};
use rtscope_abi::program as abi;
use rtscope_event::LossCause;
use rtscope_programs::clock::{AHEAD_NS, Pair, RATE_NS, counter_kind};
use rtscope_programs::clock_watch::ClockProblemKind;
use rtscope_programs::collector::{Looks, Records, Sink};
use rtscope_programs::{ProviderInfo, RingInfo};
use rtscope_store::user::{UserEnd, UserRecorder, UserRecording, UserSummary};
use rtscope_testkit::program_files::{PID, RING_BYTES, record_word};
use std::fs::{self, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn rings_that_have_and_that_share_a_stream_are_one_trace() {
    const RINGS: u32 = OWN as u32 * 2 + 20;
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut rings: Vec<Ring> = Vec::new();
    let mut emitted = 0;
    for round in 0..20 {
        // New threads come while the others continue.
        for number in rings.len() as u32..(RINGS * (round + 1) / 20).min(RINGS) {
            rings.push(played.ring(number, abi::RTU_CLOCK_MONOTONIC));
        }
        rings.iter_mut().for_each(|ring| ring.events((ring.number % 3) as u32, 20));
        emitted += rings.len() as u64 * 20;
        recording.poll_for(emitted);
    }
    let partial = played.partial_trace();
    let files = fs::read_dir(partial.join("trace")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.filter(|name| name != "metadata").count(), OWN);
    if let Some(lines) = lines(&partial) {
        // All of it can be read while it is recorded.
        assert_eq!(lines.len() as u64, emitted);
    }
    let converted = recording.end(&played);
    assert_eq!((converted.events, converted.losses.as_slice(), converted.moved), (emitted, [].as_slice(), 0));
    assert_eq!(converted.rings, Some(RINGS as usize));
    assert!(!partial.exists());
    if let Some(lines) = lines(&played.trace()) {
        assert_eq!(lines.len() as u64, emitted);
        assert_complete(&lines, rings.into_iter());
    }
}

#[test]
fn classes_that_come_later_are_in_streams_that_began_without_them() {
    let played = PlayedPrograms::new();
    let mut recording = played.recording();
    let mut early = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    // Its description is found later than its events.
    early.events(3, 10);
    early.events(7, 10);
    recording.poll();
    recording.poll();
    assert_eq!(recording.recorder.events(), 0);
    played.provider(0, 0, 10);
    let readable = |events: usize| {
        let read = lines(&played.partial_trace()).map(|lines| lines.len());
        assert!(
            read.is_none_or(|read| read == events),
            "{read:?} of {events} can be read while it is recorded"
        );
    };
    recording.poll_for(20);
    readable(20);
    // More than the short heads of events have played for.
    played.provider(1, 10, 40);
    early.events(45, 10);
    early.events(2, 10);
    let mut late = played.ring(1, abi::RTU_CLOCK_MONOTONIC);
    (0..50).for_each(|id| late.events(id, 2));
    recording.poll_for(140);
    readable(140);
    let converted = recording.end(&played);
    assert_eq!((converted.events, converted.losses.as_slice()), (140, [].as_slice()));
    let by_event = |id: u32| converted.by_event.get(&format!("test:event{id}")).copied();
    assert_eq!([3, 7, 45, 2, 49].map(by_event), [12, 12, 12, 12, 2].map(Some));
    if let Some(lines) = lines(&played.trace()) {
        let of = |ring: u64| {
            let names = lines.iter().filter(|line| line.ring == ring).map(|line| line.name.clone());
            names.collect::<Vec<_>>()
        };
        let expected = |ids: &[(u32, usize)]| {
            ids.iter().flat_map(|(id, count)| vec![format!("test:event{id}"); *count]).collect::<Vec<_>>()
        };
        assert_eq!(of(0), expected(&[(3, 10), (7, 10), (45, 10), (2, 10)]));
        assert_eq!(of(1), expected(&(0..50).map(|id| (id, 2)).collect::<Vec<_>>()));
        assert_complete(&lines, [early, late].into_iter());
    }
}

/// Polls once, and kills the recorder. Returns the events that its trace has: none, unless more time passed than it takes to know a rate.
fn taken_in_the_first_poll(played: &PlayedPrograms) -> u64 {
    let begun_ns = now().monotonic_ns;
    let mut recording = played.recording();
    recording.poll();
    let taken = recording.recorder.events();
    let passed_ns = now().monotonic_ns - begun_ns;
    assert!(taken == 0 || passed_ns >= RATE_NS, "{taken} events without a rate, after {passed_ns} ns");
    recording.kill();
    let recovered = complete(played, UserRecording::open(&played.trace()).unwrap());
    assert_eq!(recovered.events, taken);
    fs::remove_dir_all(played.trace()).unwrap();
    taken
}

#[test]
fn events_from_before_the_recording_have_their_time() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 1);
    let mut ring = played.ring(0, counter_kind());
    let mut known = Vec::new();
    for _ in 0..50 {
        let pair = now();
        ring.sync(pair.counter, 0);
        ring.event(0, pair.counter);
        known.push(pair.monotonic_ns);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    ring.publish();
    // A recorder that is killed before it knows the counter's rate leaves them to the next one.
    let taken = taken_in_the_first_poll(&played);
    let mut recording = played.recording();
    recording.poll_for(50 - taken);
    for _ in 0..50 {
        let pair = now();
        ring.sync(pair.counter, 0);
        ring.event(0, pair.counter);
        known.push(pair.monotonic_ns);
    }
    ring.publish();
    recording.poll_for(100 - taken);
    let converted = recording.end(&played);
    assert_eq!(
        (converted.events, converted.losses.as_slice(), converted.moved),
        (100 - taken, [].as_slice(), 0)
    );
    if let Some(lines) = lines(&played.trace()).filter(|_| taken == 0) {
        for (line, known) in lines.iter().zip(&known) {
            // The rate of 50 ms, over 100 ms. Mostly some ns; a thread that is interrupted between two readings is further off.
            assert!(line.time.abs_diff(*known) < 100_000, "{} for {known}", line.time);
        }
        assert_complete(&lines, [ring].into_iter());
    }
}

#[test]
fn what_was_taken_before_a_kill_is_a_trace_and_the_rest_waits_for_another() {
    for (cut, garbage) in [(0, 0), (0, 1), (0, 5000), (1, 0), (700, 0)] {
        let played = PlayedPrograms::new();
        played.provider(0, 0, 2);
        let mut rings: Vec<Ring> =
            (0..3).map(|number| played.ring(number, abi::RTU_CLOCK_MONOTONIC)).collect();
        // One without any event.
        played.ring(3, abi::RTU_CLOCK_MONOTONIC);
        let mut recording = played.recording();
        rings.iter_mut().for_each(|ring| ring.events(0, 100));
        recording.poll_for(300);
        recording.kill();
        if let Some(lines) = lines(&played.partial_trace()) {
            assert_eq!(lines.len(), 300, "a killed recorder leaves a trace");
        }
        // In the middle of a write, when the machine stopped.
        let stream = played.partial_trace().join("trace/user_0");
        let file = OpenOptions::new().append(true).open(stream).unwrap();
        let size = file.metadata().unwrap().len();
        file.set_len(size - cut).unwrap();
        file.write_all_at(&vec![0xc1; garbage], size - cut).unwrap();
        rings.iter_mut().for_each(|ring| ring.events(1, 50));
        let converted = complete(&played, UserRecording::open(&played.trace()).unwrap());
        // A packet that was not finished had not been given back.
        let before = if cut > 0 { 200 } else { 300 };
        assert_eq!((converted.events, converted.earlier), (before, 0), "{cut} {garbage}");
        assert_eq!(converted.by_event["test:event0"], before);
        assert!(converted.losses.iter().all(|loss| loss.count.is_none()), "{:?}", converted.losses);
        if let Some(lines) = lines(&played.trace()) {
            assert_eq!(lines.len() as u64, before);
        }
        fs::remove_dir_all(played.trace()).unwrap();
        let mut recording = played.recording();
        recording.poll_for(150);
        let converted = recording.end(&played);
        assert_eq!((converted.events, converted.by_event["test:event1"]), (150, 150));
        // And says that they are not of its own time.
        assert_eq!(converted.earlier, 150);
        assert_eq!(converted.losses, []);
    }
}

#[test]
fn what_is_finished_after_a_recorders_orderly_end_is_in_no_other_recording() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 1);
    let mut ring = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    let mut recording = played.recording();
    ring.events(0, 10);
    recording.poll_for(10);
    assert_eq!(recording.end(&played).events, 10);
    fs::remove_dir_all(played.trace()).unwrap();
    // Of a thread that was at it, and of one whose ring was not there yet.
    ring.events(0, 2);
    let mut late = played.ring(1, abi::RTU_CLOCK_MONOTONIC);
    late.events(0, 1);
    let mut recording = played.recording();
    ring.events(0, 5);
    late.events(0, 5);
    recording.poll_for(10);
    let converted = recording.end(&played);
    assert_eq!((converted.events, converted.earlier, converted.losses.as_slice()), (10, 0, [].as_slice()));
}

#[test]
fn a_recorder_that_was_killed_after_the_end_knows_all_losses() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 1);
    let mut ring = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    let mut recording = played.recording();
    ring.events(0, 10);
    // No such event; and some found no played.
    ring.put(&[record_word(9, 3, 0), 0, 0]);
    ring.publish();
    ring.file.write_all_at(&7_u64.to_le_bytes(), offset_of!(abi::rtu_ring, lost) as u64).unwrap();
    recording.poll_for(10);
    recording.programs.stop(&mut recording.recorder).unwrap();
    let end = UserEnd::of(now().monotonic_ns, &recording.programs.reports(), Vec::new());
    drop(recording.recorder.finish(&end).unwrap());
    let converted = complete(&played, UserRecording::open(&played.trace()).unwrap());
    let losses = [LossCause::BufferFull, LossCause::Unreadable].map(|cause| lost(&converted, cause));
    assert_eq!((converted.events, losses, converted.losses.len()), (10, [7, 1], 2));
    // And whose they are.
    let of_users: Vec<u64> = converted.by_user.values().map(|of_user| of_user.lost).collect();
    assert_eq!(of_users, [8]);
}

/// Changes of a lying program to its ring between polls.
type Lie = fn(&mut Ring, u64);

const LIES: [(&str, Lie); 13] = [
    ("times go back", |ring, now| (0..50).for_each(|step| ring.event(0, now - step * 1000))),
    ("syncs go back", |ring, now| {
        (0..50).for_each(|step| {
            ring.sync(now - step * 1_000_000_000, 0);
            ring.event(0, now);
        });
    }),
    ("it is the end of time", |ring, _| {
        for time in [u64::MAX, 1 << 63, i64::MAX as u64, 0, 1] {
            ring.sync(time, 0);
            ring.event(0, time);
            ring.event(0, time.wrapping_add(5));
        }
    }),
    ("it is soon", |ring, now| {
        for ahead in [500_000_000, 900_000_000, 1_500_000_000, 100_000_000_000] {
            ring.sync(now + ahead, 0);
            ring.event(0, now + ahead);
        }
    }),
    ("no such events", |ring, now| (1..200).for_each(|id| ring.event(id * 300, now))),
    ("no such records", |ring, now| {
        for id in [abi::RTU_EVENTS_MAX, abi::RTU_EVENTS_MAX + 1, abi::RTU_ID_SYNC] {
            ring.event(id, now);
        }
    }),
    ("lengths of nothing", |ring, now| ring.put(&[record_word(0, 0, now), 0, 0])),
    ("lengths over the end", |ring, now| ring.put(&[record_word(0, 1023, now), 0, 0])),
    ("payloads too short", |ring, now| {
        for eighths in [1, 2, 1, 2] {
            ring.put(&[record_word(0, eighths, now), 7][..eighths as usize]);
        }
    }),
    ("losses without measure", |ring, now| {
        for lost in [u64::MAX, 5, 0, u64::MAX - 1] {
            ring.sync(now, lost);
            ring.event(0, now);
        }
    }),
    ("padding everywhere", |ring, now| {
        ring.put(&[record_word(abi::RTU_ID_PADDING, 0, now)]);
        ring.put(&[record_word(abi::RTU_ID_PADDING, 1023, now)]);
    }),
    ("positions jump", |ring, _| ring.head = 8),
    ("the file is cut", |ring, now| {
        (0..50).for_each(|_| ring.event(0, now));
        ring.file.set_len(u64::from(abi::RTU_RING_OFFSET) + 64).unwrap();
    }),
];

/// Records an honest program and one that lies like this. Returns the conversion, and the ring of the honest one.
fn lied_to(clock: u32, lie: Lie) -> (PlayedPrograms, UserSummary, Ring) {
    let played = PlayedPrograms::new();
    // This process, which lives.
    let own = std::process::id();
    played.provider(0, 0, 1);
    played.provider_of(own, 0, 0, 1);
    let mut honest = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    let mut liar = played.ring_of(own, 1, clock);
    let mut recording = played.recording();
    let time = || if clock == abi::RTU_CLOCK_MONOTONIC { now().monotonic_ns } else { now().counter };
    liar.sync(time(), 0);
    (0..10).for_each(|_| liar.event(0, time()));
    liar.publish();
    for round in 0..10 {
        honest.events(0, 20);
        if round == 5 {
            lie(&mut liar, time());
            liar.publish();
        }
        (0..3).for_each(|_| recording.poll());
    }
    let converted = recording.end(&played);
    (played, converted, honest)
}

#[test]
fn liars_with_a_stream_of_their_own_spoil_no_trace() {
    for clock in [abi::RTU_CLOCK_MONOTONIC, counter_kind()] {
        for (what, lie) in LIES {
            let (played, converted, honest) = lied_to(clock, lie);
            let (events, losses, remarks) = (converted.events, &converted.losses, &converted.remarks);
            println!("{what}, clock {clock}: {events} events, {losses:?}, {remarks:?}");
            assert!(events >= honest.events + 10, "{what}: {events} of {}", honest.events);
            let trace = rtscope_ctf::TraceSet::open(&played.trace()).unwrap();
            let read = rtscope_ctf::count(&trace, &rtscope_ctf::Selection::default(), &|_| ());
            let read: u64 = read.streams.iter().flat_map(|stream| &stream.events).sum();
            assert_eq!(read, events, "{what}");
            if let Some(lines) = lines(&played.trace()) {
                assert_eq!(lines.len() as u64, events, "{what}");
                let latest = lines.iter().map(|line| line.time).max();
                assert!(latest < Some(now().monotonic_ns + 2_000_000_000), "{what}: {latest:?}");
                assert_complete(&lines, [honest].into_iter());
            }
        }
    }
}

#[test]
fn records_of_a_ring_that_has_no_other_are_counted() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let (mut good, mut bad) =
        (played.ring(0, abi::RTU_CLOCK_MONOTONIC), played.ring(1, abi::RTU_CLOCK_MONOTONIC));
    good.events(1, 10);
    bad.events(777, 5);
    recording.poll_for(10);
    let converted = recording.end(&played);
    assert_eq!(
        (converted.events, lost(&converted, LossCause::Unreadable)),
        (10, 5),
        "{:?}",
        converted.losses
    );
}

/// Keeps what was found, too.
struct Finder<'a> {
    recorder: &'a mut UserRecorder,
    providers: Vec<ProviderInfo>,
}

impl Sink for Finder<'_> {
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        self.providers.push(info.clone());
        self.recorder.provider(info)
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.recorder.ring(info)
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        self.recorder.data(ring, records)
    }

    fn merge(&mut self, rings: &mut [(u32, Records<'_>)]) -> io::Result<()> {
        self.recorder.merge(rings)
    }
}

/// Who finds files does so for all users: what a process has described costs that user the time.
#[test]
fn what_a_process_describes_is_learnt_when_its_rings_are_emptied() {
    const NEW: u32 = 200;
    let time_of = |rings: u32| {
        let played = PlayedPrograms::new();
        played.provider(0, 0, 8000);
        let mut recording = played.recording();
        let mut rings: Vec<Ring> =
            (0..rings).map(|number| played.ring(number, abi::RTU_CLOCK_MONOTONIC)).collect();
        rings.iter_mut().for_each(|ring| ring.events(1, 1));
        recording.poll_for(rings.len() as u64);
        // One with a single event; it comes again with other ids.
        played.provider(1, 8000, 1);
        let mut finder = Finder { recorder: &mut recording.recorder, providers: Vec::new() };
        while finder.providers.is_empty() {
            recording.programs.poll_now(&mut finder, Duration::from_secs(1)).unwrap();
        }
        let info = finder.providers.remove(0);
        let begun = Instant::now();
        for number in 1..NEW {
            let new = ProviderInfo { number: 1 + number, first_id: 8000 + number, ..info.clone() };
            recording.recorder.provider(&new).unwrap();
        }
        let took = begun.elapsed();
        // All of them are known when events come.
        let count = rings.len() as u64;
        for (ring, id) in rings.iter_mut().zip((8000..8000 + NEW).cycle()) {
            ring.events(id, 1);
        }
        recording.poll_for(count * 2);
        let summary = recording.end(&played);
        assert_eq!((summary.events, summary.losses.as_slice()), (count * 2, [].as_slice()));
        took
    };
    let (one, many) = (time_of(1), time_of(300));
    assert!(many < one * 20 + Duration::from_millis(20), "{many:?} with 300 rings, {one:?} with one");
}

/// Done to a recorder just before its data are looked at.
type BeforeData<'a> = Box<dyn FnOnce(&mut UserRecorder) + 'a>;

/// A collector to which something happens once, at a certain moment of a drain.
struct InterruptedCollector<'a> {
    recorder: &'a mut UserRecorder,
    /// Right after it has read the clock, and before it looks at any ring.
    at_begin: Option<Box<dyn FnOnce() + 'a>>,
    /// Before it takes what is in a ring.
    before_data: Option<BeforeData<'a>>,
}

impl Sink for InterruptedCollector<'_> {
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        self.recorder.provider(info)
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.recorder.ring(info)
    }

    fn begin(&mut self, looks: Looks) {
        self.recorder.begin(looks);
        if let Some(happens) = self.at_begin.take() {
            happens();
        }
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        if let Some(happens) = self.before_data.take() {
            happens(self.recorder);
        }
        self.recorder.data(ring, records)
    }
}

#[test]
fn events_of_now_are_events_also_when_the_collector_was_stopped() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut writers: Vec<Ring> = (0..2).map(|number| played.ring(number, abi::RTU_CLOCK_MONOTONIC)).collect();
    // Nothing is in the rings yet: the first poll also takes what is in those that it has found, as long as it looks for others. What it
    // takes, the drain below does not begin with.
    recording.poll_until_found(1, 2);
    writers.iter_mut().for_each(|ring| ring.events(1, 1));
    // It does not run for a while, in which threads write events.
    let stop = move || {
        let before_ns = now().monotonic_ns;
        while now().monotonic_ns < before_ns + AHEAD_NS * 6 / 5 {
            std::thread::sleep(Duration::from_millis(50));
        }
        writers.iter_mut().for_each(|ring| ring.events(1, 10));
    };
    let at_begin: Option<Box<dyn FnOnce()>> = Some(Box::new(stop));
    let mut stopped = InterruptedCollector { recorder: &mut recording.recorder, at_begin, before_data: None };
    recording.programs.drain(&mut stopped).unwrap();
    assert!(stopped.at_begin.is_none(), "the collector was not stopped");
    drop(stopped);
    // Whichever ring it began with, all are in this drain: none has waited for the next one's reading of the clock.
    assert_eq!(recording.recorder.events(), 22);
    let converted = recording.end(&played);
    assert_eq!((converted.events, converted.losses.as_slice()), (22, [].as_slice()));
}

#[test]
fn a_burst_of_events_that_are_not_described_yet_waits_for_one_more_look() {
    let played = PlayedPrograms::new();
    let mut recording = played.recording();
    let mut ring = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    recording.poll();
    // As programs do: first the file, then events, here more than half of the ring. They are seen before the file is.
    played.provider(0, 0, 3);
    ring.events(1, (RING_BYTES / 24 * 2 / 3) as u64);
    recording.programs.drain(&mut recording.recorder).unwrap();
    recording.poll_for(ring.events);
    // Descriptions of others come late, too, which is no fault.
    played.provider(1, 3, 3);
    ring.events(4, 20);
    recording.programs.drain(&mut recording.recorder).unwrap();
    recording.poll_for(ring.events);
    let converted = recording.end(&played);
    assert_eq!((converted.events, converted.losses.as_slice()), (ring.events, [].as_slice()));
}

#[test]
fn events_of_a_process_that_is_over_are_known_until_its_rings_are_taken() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 3);
    let mut recording = played.recording();
    let mut ring = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    recording.poll_until_found(1, 1);
    ring.events(1, 10);
    // It learns that the process is over before it comes to what is in the process's ring.
    let uid = nix::unistd::geteuid().as_raw();
    let ends = |recorder: &mut UserRecorder| recorder.process_over(uid, PID, BIRTH);
    let before_data: Option<BeforeData<'_>> = Some(Box::new(ends));
    let mut sink = InterruptedCollector { recorder: &mut recording.recorder, at_begin: None, before_data };
    recording.programs.drain(&mut sink).unwrap();
    assert!(sink.before_data.is_none(), "nothing was taken");
    drop(sink);
    recording.poll_for(10);
    let converted = recording.end(&played);
    assert_eq!((converted.events, converted.losses.as_slice()), (10, [].as_slice()));
}

#[test]
fn a_killed_recorder_has_told_that_the_counter_had_jumped() {
    let played = PlayedPrograms::new();
    played.provider(0, 0, 1);
    let mut recording = played.recording();
    let mut ring = played.ring(0, abi::RTU_CLOCK_MONOTONIC);
    ring.events(0, 10);
    recording.poll_for(10);
    let last = now();
    let back = Pair { counter: last.counter / 2, monotonic_ns: last.monotonic_ns + 1_000_000 };
    recording.recorder.clock(&[last, back]).unwrap();
    recording.kill();
    let recovered = complete(&played, UserRecording::open(&played.trace()).unwrap());
    assert_eq!(recovered.events, 10);
    let jumps: Vec<i64> = recovered
        .clock
        .problems
        .iter()
        .filter_map(|problem| match problem.kind {
            ClockProblemKind::Jump { by_ns } => Some(by_ns),
            _ => None,
        })
        .collect();
    assert!(matches!(jumps.as_slice(), [by_ns] if *by_ns < 0), "{:?}", recovered.clock);
}
