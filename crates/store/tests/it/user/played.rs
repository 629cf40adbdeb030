// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs played by the test: it writes their files. A recording of them, and the trace as babeltrace2 reads it.

use rtscope_abi::program as abi;
use rtscope_event::LossCause;
use rtscope_programs::clock::{Pair, counter_kind};
use rtscope_programs::collector::Programs;
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::session::Settings;
use rtscope_store::user::{UserEnd, UserRecorder, UserRecording, UserSession, UserSummary};
use rtscope_testkit::babeltrace2;
use rtscope_testkit::program_files::{
    self, PID, RING_BYTES, SUB_BUFFER_BYTES, UserDirectory, provider_name, record_word, ring_name,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// In nanoseconds, later than of any other process with these numbers: so the played programs count as alive.
pub const BIRTH: u64 = u64::MAX / 2;
/// Rings of a user that get a stream of their own; and the streams that a user may have.
pub const OWN: usize = 48;
pub const STREAMS: usize = 72;

pub fn now() -> Pair {
    Pair::now(counter_kind())
}

/// The directory of the played programs, and the trace that is recorded of them.
pub struct PlayedPrograms {
    pub directory: UserDirectory,
}

impl PlayedPrograms {
    pub fn new() -> PlayedPrograms {
        PlayedPrograms { directory: UserDirectory::new() }
    }

    pub fn trace(&self) -> PathBuf {
        self.directory.above().join("trace")
    }

    /// What a recording writes before it has its name.
    pub fn partial_trace(&self) -> PathBuf {
        self.directory.above().join("trace.partial")
    }

    pub fn provider(&self, number: u32, first_id: u32, events: u32) {
        self.provider_of(PID, number, first_id, events);
    }

    /// A provider with this many events of two integers: `eventN`.
    pub fn provider_of(&self, pid: u32, number: u32, first_id: u32, events: u32) {
        let description = |id| format!("test:event{id} 6\nu64 n\nu64 ring\n");
        let descriptions: Vec<String> = (first_id..first_id + events).map(description).collect();
        let bytes = program_files::provider(pid, BIRTH, first_id, &descriptions);
        self.directory.write(&provider_name(pid, BIRTH, number), &bytes);
    }

    pub fn ring(&self, number: u32, clock: u32) -> Ring {
        self.ring_of(PID, number, clock)
    }

    pub fn ring_of(&self, pid: u32, number: u32, clock: u32) -> Ring {
        let tid = pid + number;
        let bytes = program_files::ring(pid, tid, BIRTH, clock);
        let file = self.directory.write(&ring_name(pid, BIRTH, tid, number), &bytes);
        Ring { file, number: u64::from(number), head: 0, events: 0 }
    }

    pub fn recording(&self) -> Recording {
        self.recording_of(&[])
    }

    /// Of the events that match these patterns.
    pub fn recording_of(&self, patterns: &[&str]) -> Recording {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let events = RequestedEvents::parse(&patterns, u32::MAX).unwrap();
        let description = UserSession::of_this_machine("test", vec!["tid".to_string()]).unwrap();
        let mut recorder = UserRecorder::create(&self.trace(), &description).unwrap();
        recorder.clock(&[now()]).unwrap();
        let settings = Settings { events, ..Settings::default() };
        let programs = Programs::recording(self.directory.above(), settings).unwrap();
        Recording { programs, recorder }
    }
}

/// A ring as its thread writes it, from its start; it never wraps.
pub struct Ring {
    pub file: File,
    pub number: u64,
    pub head: u64,
    pub events: u64,
}

impl Ring {
    pub fn put(&mut self, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, u64::from(abi::RTU_RING_OFFSET) + self.head).unwrap();
        self.head += bytes.len() as u64;
        assert!(self.head as usize <= RING_BYTES);
    }

    /// A sync record: all bits of the time, and how many records were lost.
    pub fn sync(&mut self, time: u64, lost: u64) {
        self.put(&[record_word(abi::RTU_ID_SYNC, 4, time), time, lost, 0]);
    }

    /// An event of two integers.
    pub fn event(&mut self, id: u32, time: u64) {
        if SUB_BUFFER_BYTES - self.head as usize % SUB_BUFFER_BYTES < 24 {
            let to = (self.head as usize / SUB_BUFFER_BYTES + 1) * SUB_BUFFER_BYTES;
            self.put(&[record_word(abi::RTU_ID_PADDING, 1, time)]);
            self.head = to as u64;
            self.sync(time, 0);
        }
        self.put(&[record_word(id, 3, time), self.events, self.number]);
        self.events += 1;
    }

    /// A sync and some events, now.
    pub fn events(&mut self, id: u32, count: u64) {
        self.sync(now().monotonic_ns, 0);
        (0..count).for_each(|_| self.event(id, now().monotonic_ns));
        self.publish();
    }

    /// Lets the collector see the records.
    pub fn publish(&self) {
        self.set_head(self.head);
    }

    /// The thread has ended.
    pub fn end(&self) {
        self.file.write_all_at(&1_u64.to_le_bytes(), offset_of!(abi::rtu_ring, ended) as u64).unwrap();
    }

    /// This many events did not fit, in all.
    pub fn lose(&self, events: u64) {
        self.file.write_all_at(&events.to_le_bytes(), offset_of!(abi::rtu_ring, lost) as u64).unwrap();
    }

    /// Finishes an event that was begun in this place.
    pub fn commit(&mut self, place: u64, word: u64) {
        self.file.write_all_at(&word.to_le_bytes(), u64::from(abi::RTU_RING_OFFSET) + place).unwrap();
        self.events += 1;
    }

    pub fn set_head(&self, head: u64) {
        self.file.write_all_at(&head.to_le_bytes(), offset_of!(abi::rtu_ring, head) as u64).unwrap();
    }
}

pub struct Recording {
    pub programs: Programs,
    pub recorder: UserRecorder,
}

impl Recording {
    pub fn poll(&mut self) {
        self.programs.poll(&mut self.recorder).unwrap();
        self.programs.drain(&mut self.recorder).unwrap();
    }

    /// Polls until this many events were taken.
    pub fn poll_for(&mut self, events: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.recorder.events() < events {
            assert!(Instant::now() < end, "{} of {events} events", self.recorder.events());
            self.poll();
        }
    }

    /// Polls until something is so.
    pub fn poll_until(&mut self, what: &str, is_so: impl Fn(&Programs) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.programs) {
            assert!(Instant::now() < end, "{what}");
            self.poll();
        }
    }

    /// Polls until this many providers and rings, of one process, were found.
    pub fn poll_until_found(&mut self, providers: usize, rings: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            self.poll();
            let reports = self.programs.reports();
            let found: Vec<_> =
                reports.iter().map(|report| (report.providers.len(), report.rings.len())).collect();
            if found == [(providers, rings)] {
                return;
            }
            assert!(Instant::now() < end, "providers and rings: {found:?}");
        }
    }

    pub fn end(mut self, played: &PlayedPrograms) -> UserSummary {
        self.programs.stop(&mut self.recorder).unwrap();
        self.recorder.clock(&[now()]).unwrap();
        let end = UserEnd::of(now().monotonic_ns, &self.programs.reports(), Vec::new());
        complete(played, self.recorder.finish(&end).unwrap())
    }

    /// Leaves what a kill leaves.
    pub fn kill(self) {
        drop(self.recorder);
        drop(self.programs);
    }
}

pub fn complete(played: &PlayedPrograms, recording: UserRecording) -> UserSummary {
    recording.complete(&played.trace()).unwrap()
}

/// An event as babeltrace2 prints it: when, what, and its two numbers.
pub struct Line {
    pub time: u64,
    pub name: String,
    pub n: u64,
    pub ring: u64,
}

/// All events, in the order in which babeltrace2 gives them; it has to be that of time.
pub fn lines(trace: &Path) -> Option<Vec<Line>> {
    let output = babeltrace2::run(trace, &["--clock-cycles"])?;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |line: &str, name: &str| {
        let (_, rest) = line.rsplit_once(&format!(" {name} = ")).unwrap_or_else(|| panic!("{line}"));
        rest[..rest.find([',', ' ']).unwrap()].parse().unwrap()
    };
    let lines: Vec<Line> = text
        .lines()
        .map(|line| Line {
            time: line[1..line.find(']').unwrap()].trim_start_matches('0').parse().unwrap_or(0),
            name: line
                .split(' ')
                .find(|word| word.starts_with("test:"))
                .unwrap()
                .trim_end_matches(':')
                .into(),
            n: number(line, "n"),
            ring: number(line, "ring"),
        })
        .collect();
    assert!(lines.windows(2).all(|two| two[0].time <= two[1].time), "in order of time");
    Some(lines)
}

/// Asserts that all events of these rings are there, in the order of each ring.
pub fn assert_complete(lines: &[Line], rings: impl Iterator<Item = Ring>) {
    let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    lines.iter().for_each(|line| found.entry(line.ring).or_default().push(line.n));
    for ring in rings {
        let expected: Vec<u64> = (0..ring.events).collect();
        assert!(
            found.get(&ring.number) == Some(&expected),
            "ring {}: {:?}",
            ring.number,
            found.get(&ring.number)
        );
    }
}

pub fn lost(converted: &UserSummary, cause: LossCause) -> u64 {
    converted.losses.iter().filter(|loss| loss.cause == cause).filter_map(|loss| loss.count).sum()
}
