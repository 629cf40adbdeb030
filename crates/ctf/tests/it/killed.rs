// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace whose writer was killed at any instant is a trace: babeltrace2 reads it as it is, and says nothing but counts of discarded
//! events. The writer is this test binary, run a second time; it spends nearly all of its time in writes.
//!
//! `RTSCOPE_KILLS` sets how many writers are killed on each file system, for long runs.

use rtscope_ctf::{
    FileRing, Selection, TraceSet, UserClass, UserContext, UserMetadata, UserStreamWriter, count,
};
use rtscope_event::MonotonicNs;
use rtscope_programs::description::{EventDescription, Field, FieldType, Integer};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use rtscope_testkit::{babeltrace2, skip};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TARGET: &str = "RTSCOPE_TEST_FOLLOWED";
/// Whether it is limited in its size.
const LIMITED: &str = "RTSCOPE_TEST_LIMITED";
const LIMIT: u64 = 3 << 20;
const STREAMS: u32 = 3;
/// More than the short form of an event's number can express. They come as long as the writer runs.
const CLASSES: usize = 1500;
/// A writer that is killed late must not leave more than can be read in a moment.
const BYTES_MAX: u64 = 48 << 20;

/// An event of a number, and of some bytes.
fn class(number: usize) -> UserClass {
    let integer = |bytes| Integer { bytes, signed: false, hex: false };
    let field = |name: &str, kind| Field { name: name.to_string(), kind };
    let fields = vec![
        field("n", FieldType::Integer(integer(8))),
        field("bytes", FieldType::Array(integer(1), array_bytes(number) as u32)),
    ];
    let event = EventDescription { index: 0, name: format!("test:event{number}"), level: 6, fields };
    UserClass { event, labels: BTreeMap::new(), origin: "".into() }
}

fn array_bytes(number: usize) -> usize {
    5 + 7 * (number % 40)
}

/// What the other process does, until it is killed; without the variable there is nothing to test.
#[test]
fn writer() {
    let Some(target) = std::env::var_os(TARGET).map(PathBuf::from) else { return };
    let trace = info();
    let ring = std::env::var_os(LIMITED).map(|_| FileRing::new(LIMIT, 8, STREAMS.into()).unwrap().trace());
    let metadata = UserMetadata::limited(&target, UserContext::default(), &trace, ring.clone());
    let mut metadata = metadata.unwrap();
    metadata.publish().unwrap();
    let mut classes = vec![class(0)];
    let mut random = Random(u64::from(std::process::id()));
    let mut streams: Vec<UserStreamWriter> = (0..STREAMS)
        .map(|number| {
            let name = format!("user_{number}");
            if let Some(ring) = &ring {
                let place = (ring, target.as_path(), name.as_str());
                return UserStreamWriter::in_ring(place, number, trace.trace_uuid, 1, MonotonicNs(0))
                    .unwrap();
            }
            let file = File::create_new(target.join(name)).unwrap();
            UserStreamWriter::in_file(file, number, trace.trace_uuid, 1, MonotonicNs(0))
        })
        .collect();
    let (mut time, mut bytes, mut numbers) = (1, 0, vec![0_u64; STREAMS as usize]);
    let mut payload = vec![0; 9000];
    while bytes < BYTES_MAX {
        while classes.len() < CLASSES && random.below(8) > 0 {
            classes.push(class(classes.len()));
        }
        for (stream, number) in streams.iter_mut().zip(&mut numbers) {
            metadata.declare(stream.class(), &classes).unwrap();
            stream.expect_classes(classes.len());
            for _ in 0..random.below(500) {
                let which = random.index(classes.len());
                payload[..8].copy_from_slice(&number.to_le_bytes());
                let used = 8 + array_bytes(which);
                stream.event(which as u32, MonotonicNs(time), &[], &payload[..used]).unwrap();
                (*number, time, bytes) = (*number + 1, time + random.below(3), bytes + used as u64);
            }
            if random.below(10) == 0 {
                stream.lost(1).unwrap();
            }
            stream.flush().unwrap();
        }
    }
    // It waits for its end.
    loop {
        std::thread::park();
    }
}

fn started_writer(target: &Path, is_limited: bool) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "killed::writer"]).env(TARGET, target);
    if is_limited {
        command.env(LIMITED, "1");
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Events, and whether the kill has cut anything short that `--recover` would have had to repair.
fn events_after_a_kill(place: &Path, random: &mut Random, is_limited: bool) -> Option<u64> {
    let root = tempfile::tempdir_in(place).unwrap();
    let mut writer = started_writer(root.path(), is_limited);
    // Not before there is something that it can spoil.
    let has_stream = || {
        let files = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap());
        let mut streams = files.filter(|file| file.file_name().to_string_lossy().starts_with("user_"));
        // One of a ring may be gone by now.
        streams.any(|file| file.metadata().is_ok_and(|file| file.len() > 0))
    };
    while !has_stream() {
        assert!(writer.try_wait().unwrap().is_none(), "the writer has ended");
        std::thread::yield_now();
    }
    // When it is killed is what the test varies.
    std::thread::sleep(Duration::from_micros(random.below(if is_limited { 60_000 } else { 12_000 })));
    writer.kill().unwrap();
    writer.wait().unwrap();
    let output = babeltrace2::run(root.path(), &["-c", "sink.utils.counter"])?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if is_limited {
        let taken = super::ring::bytes_on_disk(root.path());
        assert!(taken <= LIMIT, "{taken} bytes");
    }
    let is_count = |line: &str| {
        let starts = ["WARNING: Tracer discarded ", "WARNING: Tracer may have discarded "];
        starts.iter().take(1 + usize::from(is_limited)).any(|start| line.starts_with(start))
            && line.contains(" event")
    };
    let others: Vec<&str> = complaints.lines().filter(|line| !is_count(line)).collect();
    let kept = || fs::rename(root.path(), place.join("followed-and-killed")).is_ok();
    assert!(output.status.success() && others.is_empty(), "kept: {}: {complaints}", kept());
    let text = String::from_utf8_lossy(&output.stdout);
    // It counts again and again; its last word is of all.
    let theirs = text.lines().rfind(|line| line.contains(" Event message"));
    let theirs: u64 = theirs.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap());
    let set = TraceSet::open(root.path()).unwrap();
    let counts = count(&set, &Selection::default(), &|_| ());
    assert!(counts.damaged.is_empty(), "{:?}", counts.damaged);
    assert_eq!(counts.streams.iter().map(|stream| stream.total()).sum::<u64>(), theirs);
    Some(theirs)
}

/// Not /tmp, which is memory on many machines.
fn on_disk() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn kill_writers(place: &Path, kills: u64, is_limited: bool) {
    let mut random = Random(kills);
    let mut events = 0;
    for _ in 0..kills {
        let Some(more) = events_after_a_kill(place, &mut random, is_limited) else { return };
        events += more;
    }
    assert!(events > kills * 100, "the writers were killed before they had written: {events}");
}

fn kills() -> u64 {
    std::env::var("RTSCOPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

#[test]
fn a_writer_that_is_killed_leaves_a_trace_on_disk() {
    kill_writers(&on_disk(), kills(), false);
}

/// Also while a file is removed, and the next one begun.
#[test]
fn a_writer_that_is_killed_leaves_a_limited_trace() {
    kill_writers(&on_disk(), kills(), true);
}

#[test]
fn a_writer_that_is_killed_leaves_a_trace_in_memory() {
    let place = Path::new("/dev/shm");
    if !place.is_dir() {
        skip::say("there is no /dev/shm");
        return;
    }
    kill_writers(place, kills(), false);
}
