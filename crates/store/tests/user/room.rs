// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of programs that a test plays itself, a recording of them, and what babeltrace2 reads of the trace.

use rtscope_abi::program as abi;
use rtscope_event::LossCause;
use rtscope_store::user::{
    UserConversionSummary, UserEnd, UserOptions, UserSpool, UserSpoolDescription, UserSpoolWriter,
};
use rtscope_user::clock::{Pair, counter_kind};
use rtscope_user::programs::Programs;
use rtscope_user::session::Settings;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const RING_BYTES: usize = 64 * 1024;
pub const SUB_BUFFERS: u32 = 4;
pub const SUB_BYTES: usize = RING_BYTES / SUB_BUFFERS as usize;
pub const KEY: u32 = 5;
/// Process 1 lives as long as the tests run, and began before any of these.
pub const PID: u32 = 1;
/// As if they were born later than anybody: so they are the ones that live.
pub const BIRTH: u64 = u64::MAX / 2;
/// Rings that get a stream of their own.
pub const STREAMS: usize = 64;

pub fn now() -> Pair {
    Pair::now(counter_kind())
}

/// What a program leaves, and where it is recorded to.
pub struct Room {
    pub folder: tempfile::TempDir,
    pub files: PathBuf,
}

impl Room {
    pub fn new() -> Room {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join(format!("rtscope-{}", nix::unistd::geteuid()));
        fs::DirBuilder::new().mode(0o700).create(&files).unwrap();
        Room { folder, files }
    }

    pub fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    pub fn leave(&self, name: &str, bytes: &[u8]) -> File {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(self.files.join(name)).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    pub fn provider(&self, number: u32, first_id: u32, events: u32) {
        self.provider_of(PID, number, first_id, events);
    }

    /// A provider with so many events of two integers: `eventN`.
    pub fn provider_of(&self, pid: u32, number: u32, first_id: u32, events: u32) {
        let text: String = (first_id..first_id + events)
            .map(|id| format!("test:event{id} 6\nu64 n\nu64 ring\n\0"))
            .collect();
        let header = size_of::<abi::rtu_provider>();
        let at = header + 4 * events as usize;
        let mut bytes = vec![0; at + text.len()];
        put64(&mut bytes, offset_of!(abi::rtu_provider, magic), abi::RTU_PROVIDER_MAGIC);
        put64(&mut bytes, offset_of!(abi::rtu_provider, birth_ns), BIRTH);
        for (offset, value) in [
            (offset_of!(abi::rtu_provider, abi_version), abi::RTU_ABI_VERSION),
            (offset_of!(abi::rtu_provider, ready), 1),
            (offset_of!(abi::rtu_provider, pid), pid),
            (offset_of!(abi::rtu_provider, clock), abi::RTU_CLOCK_MONOTONIC),
            (offset_of!(abi::rtu_provider, first_id), first_id),
            (offset_of!(abi::rtu_provider, events), events),
            (offset_of!(abi::rtu_provider, text_bytes), text.len() as u32),
            (offset_of!(abi::rtu_provider, enabled_offset), header as u32),
            (offset_of!(abi::rtu_provider, text_offset), at as u32),
        ] {
            put32(&mut bytes, offset, value);
        }
        bytes[at..].copy_from_slice(text.as_bytes());
        self.leave(&format!("p{pid}-{BIRTH:x}-{number}"), &bytes);
    }

    pub fn ring(&self, number: usize, clock: u32) -> Ring {
        self.ring_of(PID, number, clock)
    }

    pub fn ring_of(&self, pid: u32, number: usize, clock: u32) -> Ring {
        let name = format!("r{pid}-{BIRTH:x}-{}-{number}", pid + number as u32);
        let mut bytes = vec![0; abi::RTU_RING_OFFSET as usize + RING_BYTES];
        put64(&mut bytes, offset_of!(abi::rtu_ring, magic), abi::RTU_RING_MAGIC);
        put64(&mut bytes, offset_of!(abi::rtu_ring, birth_ns), BIRTH);
        for (offset, value) in [
            (offset_of!(abi::rtu_ring, abi_version), abi::RTU_ABI_VERSION),
            (offset_of!(abi::rtu_ring, ready), 1),
            (offset_of!(abi::rtu_ring, pid), pid),
            (offset_of!(abi::rtu_ring, tid), pid + number as u32),
            (offset_of!(abi::rtu_ring, clock), clock),
            (offset_of!(abi::rtu_ring, ring_bytes), RING_BYTES as u32),
            (offset_of!(abi::rtu_ring, sub_buffers), SUB_BUFFERS),
            (offset_of!(abi::rtu_ring, key), KEY),
        ] {
            put32(&mut bytes, offset, value);
        }
        Ring { file: self.leave(&name, &bytes), number: number as u64, head: 0, events: 0 }
    }

    pub fn recording(&self) -> Recording {
        let session = UserSpoolDescription::of_this_machine("test", vec!["tid".to_string()]).unwrap();
        let mut spool = UserSpoolWriter::create(&self.trace(), &session).unwrap();
        spool.clock(&[now()]).unwrap();
        let programs = Programs::recording(self.folder.path(), Settings::default()).unwrap();
        Recording { programs, spool }
    }
}

pub fn put32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

pub fn put64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// A ring as its thread writes it; it is not written around its end.
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

    pub fn word(id: u32, eighths: u64, time: u64) -> u64 {
        u64::from(id) | u64::from(KEY) << 16 | eighths << 24 | time << abi::RTU_TIME_SHIFT
    }

    /// Tells the whole time, and what was lost.
    pub fn sync(&mut self, time: u64, lost: u64) {
        self.put(&[Ring::word(abi::RTU_ID_SYNC, 4, time), time, lost, 0]);
    }

    /// An event of two integers.
    pub fn event(&mut self, id: u32, time: u64) {
        if SUB_BYTES - self.head as usize % SUB_BYTES < 24 {
            let to = (self.head as usize / SUB_BYTES + 1) * SUB_BYTES;
            self.put(&[Ring::word(abi::RTU_ID_PADDING, 1, time)]);
            self.head = to as u64;
            self.sync(time, 0);
        }
        self.put(&[Ring::word(id, 3, time), self.events, self.number]);
        self.events += 1;
    }

    /// A sync and some events, now.
    pub fn events(&mut self, id: u32, count: u64) {
        self.sync(now().monotonic_ns, 0);
        (0..count).for_each(|_| self.event(id, now().monotonic_ns));
        self.show();
    }

    /// Lets the collector see them.
    pub fn show(&self) {
        self.set_head(self.head);
    }

    pub fn set_head(&self, head: u64) {
        self.file.write_all_at(&head.to_le_bytes(), offset_of!(abi::rtu_ring, head) as u64).unwrap();
    }
}

pub struct Recording {
    pub programs: Programs,
    pub spool: UserSpoolWriter,
}

impl Recording {
    pub fn look(&mut self) {
        self.programs.poll(&mut self.spool).unwrap();
        self.programs.drain(&mut self.spool).unwrap();
    }

    /// Looks until so many events were taken.
    pub fn look_for(&mut self, events: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.spool.events() < events {
            assert!(Instant::now() < end, "{} of {events} events", self.spool.events());
            self.look();
        }
    }

    pub fn end(mut self, room: &Room) -> UserConversionSummary {
        self.programs.stop(&mut self.spool).unwrap();
        self.spool.clock(&[now()]).unwrap();
        let end = UserEnd::of(now().monotonic_ns, &self.programs.reports());
        let spool = self.spool.finish(&end).unwrap();
        convert_to(room, spool)
    }

    /// As after a kill.
    pub fn kill(self) {
        drop(self.spool);
        drop(self.programs);
    }
}

pub fn convert_to(room: &Room, spool: UserSpool) -> UserConversionSummary {
    rtscope_store::user::convert_user(spool, &room.trace(), &UserOptions::default()).unwrap()
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
    let output = Command::new("babeltrace2").arg("--clock-cycles").arg(trace).output();
    let Ok(output) = output else {
        println!("SKIP: babeltrace2 cannot be run");
        return None;
    };
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

/// Each ring's events are all there, and in their order; of those rings that are asked for.
pub fn assert_whole(lines: &[Line], rings: impl Iterator<Item = Ring>) {
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

pub fn lost(converted: &UserConversionSummary, cause: LossCause) -> u64 {
    converted.losses.iter().filter(|loss| loss.cause == cause).filter_map(|loss| loss.count).sum()
}
