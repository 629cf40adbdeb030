// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table of events (crates/testkit/vectors/user_events.json), and whether the C header, the Rust macro and the readers agree
//! with it: to the byte in the files that a collector finds, and as text in a trace.

use super::fixture::{Fixture, Recorded, waiting};
use crate::command::{root, rtscope};
use rtscope_abi::program as abi;
use rtscope_programs::description::{Descriptions, payload_bytes};
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::records::{Decoder, Layout, Record};
use rtscope_testkit::process::program;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Deserialize)]
struct Vectors {
    enumeration: String,
    events: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    text: String,
    payload: String,
    printed: String,
}

impl Vector {
    fn name(&self) -> &str {
        self.text.split(' ').next().expect("a name")
    }

    /// With its padding.
    fn payload(&self) -> Vec<u8> {
        let digits = self.payload.as_bytes().chunks(2);
        let mut bytes: Vec<u8> = digits
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16).expect("hexadecimal"))
            .collect();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

fn vectors() -> Vectors {
    let text = fs::read(root().join("crates/testkit/vectors/user_events.json")).expect("it is there");
    serde_json::from_slice(&text).expect("as it is described")
}

/// The program in C by two compilers, in C without optimization, and in Rust.
fn programs(fixture: &Fixture) -> Vec<PathBuf> {
    let source = root().join("crates/testkit/c/vectors.c");
    let in_c = [("gcc", "-O2"), ("gcc", "-O0"), ("clang-19", "-O2")];
    let compiled = in_c.iter().filter_map(|(compiler, level)| {
        fixture.compile(compiler, &[level, "-std=c11"], &source, &format!("{compiler}{level}"))
    });
    compiled.chain([program("rtscope-vectors").expect("built")]).collect()
}

/// Files of a process whose names begin with this letter.
fn files(kind: char, pid: u32) -> Vec<PathBuf> {
    let directory = format!("/dev/shm/rtscope-{}", nix::unistd::geteuid());
    let begin = format!("{kind}{pid}-");
    let entries = fs::read_dir(directory).expect("the program made it").flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin)))
        .collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Texts of a provider's file, event by event, then enumerations.
fn texts(provider: &[u8]) -> (Vec<String>, Descriptions) {
    let [begin, bytes, events, enumerations] = [
        offset_of!(abi::rtu_provider, text_offset),
        offset_of!(abi::rtu_provider, text_bytes),
        offset_of!(abi::rtu_provider, events),
        offset_of!(abi::rtu_provider, enumerations),
    ]
    .map(|at| u32_at(provider, at));
    let text = &provider[begin as usize..(begin + bytes) as usize];
    let descriptions = Descriptions::parse(text, events, enumerations, &RequestedEvents::default())
        .expect("the reader understands it");
    let text = std::str::from_utf8(text).expect("text");
    (text.split_terminator('\0').map(str::to_string).collect(), descriptions)
}

/// A session with the number 1, which lives as long as the file is open.
fn locked_session(path: &Path) -> fs::File {
    let file = fs::File::create(path).expect("the directory is ours");
    let mut words = vec![0_u8; size_of::<abi::rtu_session>()];
    words[offset_of!(abi::rtu_session, session)] = 1;
    file.write_all_at(&words, 0).expect("it can be written");
    // As the collector does (crates/programs/src/session.rs).
    // SAFETY: zeros are a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).expect("nobody else has it");
    file
}

/// Enables all events of a program that waits, as a collector does.
fn enable(path: &Path) {
    let file = fs::File::options().read(true).write(true).open(path).expect("it is ours");
    let provider = fs::read(path).expect("it is ours");
    let first = u32_at(&provider, offset_of!(abi::rtu_provider, enabled_offset));
    for event in 0..u32_at(&provider, offset_of!(abi::rtu_provider, events)) {
        file.write_all_at(&1_u32.to_le_bytes(), u64::from(first + 4 * event)).expect("it can be written");
    }
    let session = offset_of!(abi::rtu_provider, session) as u64;
    file.write_all_at(&1_u64.to_le_bytes(), session).expect("it can be written");
}

/// Payloads of a ring's file, by event id.
fn payloads(ring: &[u8]) -> BTreeMap<u32, Vec<u8>> {
    let ring_bytes = u64::from(u32_at(ring, offset_of!(abi::rtu_ring, ring_bytes)));
    let layout = Layout {
        ring_bytes,
        sub_bytes: ring_bytes / u64::from(u32_at(ring, offset_of!(abi::rtu_ring, sub_buffers))),
        key: u32_at(ring, offset_of!(abi::rtu_ring, key)),
    };
    let head = offset_of!(abi::rtu_ring, head);
    let head = u64::from_le_bytes(ring[head..head + 8].try_into().expect("eight bytes")) as usize;
    let records = &ring[abi::RTU_RING_OFFSET as usize..][..head];
    assert_eq!(layout.complete_bytes(0, records), head, "all records are complete");
    let (mut decoder, mut at, mut found) = (Decoder::new(layout, None), 0, BTreeMap::new());
    while let Some((record, length)) = decoder.next(at as u64, &records[at..]) {
        match record {
            Some(Record::Event { id, payload, .. }) => assert!(found.insert(id, payload.to_vec()).is_none()),
            Some(Record::Garbage(bytes)) => panic!("{bytes} bytes of no record at {at}"),
            _ => {}
        }
        at += length;
    }
    found
}

#[test]
fn the_shared_vectors_are_what_c_and_rust_write() {
    let fixture = Fixture::new();
    let vectors = vectors();
    for program in programs(&fixture) {
        let mut child = waiting(&mut Command::new(&program));
        let provider = files('p', child.id()).pop().expect("it announced itself");
        // The program asks whether the collector that has enabled its events lives: by the lock of its session.
        let session = locked_session(&provider.with_file_name("session"));
        enable(&provider);
        let (texts, descriptions) = texts(&fs::read(&provider).expect("it is ours"));
        child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
        assert!(child.wait().expect("it ends").success());
        let rings = files('r', child.id());
        assert_eq!(rings.len(), 1, "one thread");
        let payloads = payloads(&fs::read(&rings[0]).expect("it is ours"));
        drop(session);
        let session = provider.with_file_name("session");
        [rings, vec![provider, session]]
            .concat()
            .iter()
            .for_each(|file| fs::remove_file(file).expect("it is ours"));

        assert!(texts.contains(&vectors.enumeration), "{}: {texts:?}", program.display());
        assert_eq!(payloads.len(), vectors.events.len(), "{}", program.display());
        for vector in &vectors.events {
            let id = texts.iter().position(|text| *text == vector.text);
            let id =
                id.unwrap_or_else(|| panic!("{}: {:?} is not in {texts:?}", program.display(), vector.text));
            let payload = &payloads[&(id as u32)];
            assert_eq!(payload, &vector.payload(), "{}: {}", program.display(), vector.name());
            let used = payload_bytes(&descriptions.events[id].fields, payload);
            assert_eq!(used, Some(vector.payload.len() / 2), "{}", vector.name());
        }
    }
}

#[test]
fn the_shared_vectors_are_what_a_trace_shows() {
    let fixture = Fixture::new();
    let vectors = vectors();
    for program in programs(&fixture) {
        let mut command = rtscope();
        command
            .args(["record", "--json", "-u", "vectors:*", "-o"])
            .arg(fixture.trace())
            .arg("--")
            .arg(&program);
        let output = command.stdin(Stdio::null()).output().expect("it can be started");
        assert!(output.status.success(), "{output:?}");
        let recorded = Recorded::of(output);
        recorded.assert_complete();
        assert_eq!(recorded.lost(), 0);
        let printed = rtscope().arg("print").arg(fixture.trace()).output().expect("it can be run");
        let printed = String::from_utf8(printed.stdout).expect("text");
        assert_eq!(printed.lines().count(), vectors.events.len());
        for (line, vector) in printed.lines().zip(&vectors.events) {
            let begin = line.find(vector.name()).unwrap_or_else(|| panic!("{}: {line}", vector.name()));
            assert_eq!(line[begin..], vector.printed, "{}", program.display());
        }
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}
