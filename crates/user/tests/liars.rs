// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that lie. Whatever stands in one program's files, another program's records are taken to the last byte, and the
//! reports say who was dropped and why. Random cases have fixed seeds.

use rtscope_abi::program as abi;
use rtscope_user::programs::{ProcessReport, Programs, Records, Sink};
use rtscope_user::session::Settings;
use rtscope_user::{ProviderInfo, RingInfo};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const RING_BYTES: usize = 64 * 1024;
const SUB_BUFFERS: u32 = 4;
const KEY: u32 = 5;
/// Process 1 lives as long as the tests run, and began before any of these.
const PID: u32 = 1;
const HONEST: u64 = u64::MAX / 2;

fn put32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// A provider with one event of two integers.
fn provider(birth_ns: u64) -> Vec<u8> {
    let text = b"test:count 6\nu64 n\nu64 thread\n\0";
    let header = size_of::<abi::rtu_provider>();
    let mut bytes = vec![0; header + 4 + text.len()];
    put64(&mut bytes, offset_of!(abi::rtu_provider, magic), abi::RTU_PROVIDER_MAGIC);
    put64(&mut bytes, offset_of!(abi::rtu_provider, birth_ns), birth_ns);
    let halves = [
        (offset_of!(abi::rtu_provider, abi_version), abi::RTU_ABI_VERSION),
        (offset_of!(abi::rtu_provider, ready), 1),
        (offset_of!(abi::rtu_provider, pid), PID),
        (offset_of!(abi::rtu_provider, clock), abi::RTU_CLOCK_MONOTONIC),
        (offset_of!(abi::rtu_provider, events), 1),
        (offset_of!(abi::rtu_provider, text_bytes), text.len() as u32),
        (offset_of!(abi::rtu_provider, enabled_offset), header as u32),
        (offset_of!(abi::rtu_provider, text_offset), header as u32 + 4),
    ];
    halves.into_iter().for_each(|(offset, value)| put32(&mut bytes, offset, value));
    bytes[header + 4..].copy_from_slice(text);
    bytes
}

fn word(id: u32, eighths: u64, time: u64) -> u64 {
    u64::from(id) | u64::from(KEY) << 16 | eighths << 24 | time << abi::RTU_TIME_SHIFT
}

/// A ring with a sync record and so many events.
fn ring(birth_ns: u64, events: u64) -> Vec<u8> {
    let mut bytes = vec![0; abi::RTU_RING_OFFSET as usize + RING_BYTES];
    put64(&mut bytes, offset_of!(abi::rtu_ring, magic), abi::RTU_RING_MAGIC);
    put64(&mut bytes, offset_of!(abi::rtu_ring, birth_ns), birth_ns);
    let halves = [
        (offset_of!(abi::rtu_ring, abi_version), abi::RTU_ABI_VERSION),
        (offset_of!(abi::rtu_ring, ready), 1),
        (offset_of!(abi::rtu_ring, pid), PID),
        (offset_of!(abi::rtu_ring, tid), PID),
        (offset_of!(abi::rtu_ring, clock), abi::RTU_CLOCK_MONOTONIC),
        (offset_of!(abi::rtu_ring, ring_bytes), RING_BYTES as u32),
        (offset_of!(abi::rtu_ring, sub_buffers), SUB_BUFFERS),
        (offset_of!(abi::rtu_ring, key), KEY),
    ];
    halves.into_iter().for_each(|(offset, value)| put32(&mut bytes, offset, value));
    let mut at = abi::RTU_RING_OFFSET as usize;
    for value in [word(abi::RTU_ID_SYNC, 4, 1), 1, 0, 0] {
        put64(&mut bytes, at, value);
        at += 8;
    }
    for number in 0..events {
        for value in [word(0, 3, 2 + number), number, 0] {
            put64(&mut bytes, at, value);
            at += 8;
        }
    }
    put64(&mut bytes, offset_of!(abi::rtu_ring, head), (at - abi::RTU_RING_OFFSET as usize) as u64);
    bytes
}

/// Keeps what came of each ring.
#[derive(Default)]
struct Kept {
    rings: Vec<(u64, Vec<u8>)>,
}

impl Sink for Kept {
    fn provider(&mut self, _: &ProviderInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.rings.push((info.birth_ns, Vec::new()));
        Ok(())
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        let chunk = records.chunk();
        let kept = &mut self.rings[ring as usize];
        if kept.0 == HONEST {
            kept.1.extend(chunk.copy());
        } else {
            assert!(chunk.bytes <= RING_BYTES as u64, "no more than a ring holds");
        }
        Ok(())
    }
}

/// A folder as programs leave it, with an honest program in it.
struct Room {
    room: tempfile::TempDir,
    folder: PathBuf,
}

impl Room {
    fn new() -> Room {
        let room = tempfile::tempdir().expect("a file of the test");
        let folder = room.path().join(format!("rtscope-{}", nix::unistd::geteuid()));
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("a file of the test");
        let made = Room { room, folder };
        made.leave(&format!("p{PID}-{HONEST:x}-0"), &provider(HONEST));
        made.leave(&format!("r{PID}-{HONEST:x}-{PID}-0"), &ring(HONEST, 500));
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn leave(&self, name: &str, bytes: &[u8]) -> File {
        let path = self.path(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .expect("a file of the test");
        file.write_all_at(bytes, 0).expect("a file of the test");
        file
    }

    fn recording(&self) -> Programs {
        Programs::recording(self.room.path(), Settings::default()).expect("a file of the test")
    }
}

/// Records for some rounds, with something happening between them; then the honest program's records must all be there.
#[track_caller]
fn record(room: &Room, mut between: impl FnMut(usize)) -> Vec<ProcessReport> {
    let mut programs = room.recording();
    let mut kept = Kept::default();
    for round in 0..4 {
        programs.poll(&mut kept).expect("a file of the test");
        programs.drain(&mut kept).expect("a file of the test");
        between(round);
    }
    programs.stop(&mut kept).expect("a file of the test");
    let honest: Vec<&Vec<u8>> =
        kept.rings.iter().filter(|ring| ring.0 == HONEST).map(|ring| &ring.1).collect();
    let expected = &ring(HONEST, 500)[abi::RTU_RING_OFFSET as usize..][..32 + 500 * 24];
    assert_eq!(honest.len(), 1, "the honest program's ring was found once");
    assert!(honest[0] == expected, "{} bytes of {}", honest[0].len(), expected.len());
    programs.reports()
}

/// Why the process that lies was dropped.
fn dropped(reports: &[ProcessReport]) -> Option<String> {
    let mut liars = reports.iter().filter(|report| report.dropped.is_some());
    let first = liars.next().and_then(|report| report.dropped.clone());
    assert!(liars.next().is_none(), "only one lies: {reports:?}");
    first
}

fn liar(kind: char, birth_ns: u64) -> String {
    match kind {
        'r' => format!("r{PID}-{birth_ns:x}-{PID}-0"),
        _ => format!("p{PID}-{birth_ns:x}-0"),
    }
}

type Make = fn(&Path);

#[test]
fn what_is_no_file_is_refused_and_said() {
    let make: [(&str, Make); 4] = [
        ("a link", |path| std::os::unix::fs::symlink("/etc/passwd", path).expect("a file of the test")),
        ("a FIFO", |path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a file of the test")
        }),
        ("a folder", |path| fs::create_dir(path).expect("a file of the test")),
        ("a link to nothing", |path| {
            std::os::unix::fs::symlink("nowhere", path).expect("a file of the test")
        }),
    ];
    for (what, make) in make {
        for kind in ['p', 'r'] {
            let room = Room::new();
            make(&room.path(&liar(kind, 7)));
            let why = dropped(&record(&room, |_| {}));
            assert!(why.as_ref().is_some_and(|why| why.starts_with(&liar(kind, 7))), "{what}: {why:?}");
        }
    }
}

#[test]
fn headers_that_cannot_be_are_refused_and_said() {
    let half: [(usize, u32); 9] = [
        (offset_of!(abi::rtu_ring, magic), 1),
        (offset_of!(abi::rtu_ring, abi_version), 9),
        (offset_of!(abi::rtu_ring, ring_bytes), 1 << 30),
        (offset_of!(abi::rtu_ring, ring_bytes), 3),
        (offset_of!(abi::rtu_ring, sub_buffers), 0),
        (offset_of!(abi::rtu_ring, sub_buffers), 1),
        (offset_of!(abi::rtu_ring, clock), 77),
        (offset_of!(abi::rtu_ring, pid), 2),
        (offset_of!(abi::rtu_ring, tail), 5),
    ];
    for (offset, value) in half {
        let room = Room::new();
        let mut bytes = ring(7, 10);
        put32(&mut bytes, offset, value);
        room.leave(&liar('p', 7), &provider(7));
        room.leave(&liar('r', 7), &bytes);
        assert!(dropped(&record(&room, |_| {})).is_some(), "{offset} {value}");
    }
    for (offset, value) in [
        (offset_of!(abi::rtu_provider, magic), 1),
        (offset_of!(abi::rtu_provider, abi_version), 9),
        (offset_of!(abi::rtu_provider, events), 64_000),
        (offset_of!(abi::rtu_provider, first_id), u32::MAX),
        (offset_of!(abi::rtu_provider, text_offset), u32::MAX),
        (offset_of!(abi::rtu_provider, text_bytes), u32::MAX),
        (offset_of!(abi::rtu_provider, enabled_offset), 8),
        (offset_of!(abi::rtu_provider, enumerations), 1),
    ] {
        let room = Room::new();
        let mut bytes = provider(7);
        put32(&mut bytes, offset, value);
        room.leave(&liar('p', 7), &bytes);
        assert!(dropped(&record(&room, |_| {})).is_some(), "{offset} {value}");
    }
}

#[test]
fn positions_that_jump_are_refused_and_said() {
    let head = offset_of!(abi::rtu_ring, head);
    for value in [0, 8, 13, RING_BYTES as u64 * 3, u64::MAX, u64::MAX - 7, 1 << 63] {
        let room = Room::new();
        room.leave(&liar('p', 7), &provider(7));
        let file = room.leave(&liar('r', 7), &ring(7, 10));
        let why = dropped(&record(&room, |_| {
            file.write_all_at(&value.to_le_bytes(), head as u64).expect("a file of the test")
        }));
        assert!(why.is_some_and(|why| why.contains("positions jump")), "{value}");
    }
}

#[test]
fn a_file_that_is_cut_or_removed_is_survived() {
    for length in [0, 100, 4096, 8192, 40_000] {
        for kind in ['p', 'r'] {
            let room = Room::new();
            let files = [room.leave(&liar('p', 7), &provider(7)), room.leave(&liar('r', 7), &ring(7, 10))];
            let file = &files[usize::from(kind == 'r')];
            // It says that there is more, where nothing is any more.
            let head = (RING_BYTES as u64).to_le_bytes();
            record(&room, |_| {
                if kind == 'r' {
                    file.write_all_at(&head, offset_of!(abi::rtu_ring, head) as u64)
                        .expect("a file of the test");
                }
                file.set_len(length.min(file.metadata().expect("a file of the test").len()))
                    .expect("a file of the test");
            });
        }
    }
    let room = Room::new();
    room.leave(&liar('p', 7), &provider(7));
    room.leave(&liar('r', 7), &ring(7, 10));
    record(&room, |_| {
        let _ = fs::remove_file(room.path(&liar('r', 7)));
        let _ = fs::remove_file(room.path(&liar('p', 7)));
    });
}

#[test]
fn thousands_of_announced_rings_do_not_stop_the_others() {
    let room = Room::new();
    // The newest of its number, so that it counts as alive.
    let birth = HONEST + 1;
    room.leave(&liar('p', birth), &provider(birth));
    let header = &ring(birth, 0)[..4096];
    for number in 0..9000 {
        // With holes: it costs the liar nothing.
        let file = room.leave(&format!("r{PID}-{birth:x}-{number}-{number}"), header);
        file.set_len((abi::RTU_RING_OFFSET as usize + RING_BYTES) as u64).expect("a file of the test");
    }
    let mut programs = room.recording();
    let mut kept = Kept::default();
    let honest =
        |kept: &Kept| kept.rings.iter().any(|ring| ring.0 == HONEST && ring.1.len() == 32 + 500 * 24);
    programs.poll(&mut kept).expect("a file of the test");
    programs.drain(&mut kept).expect("a file of the test");
    assert!(honest(&kept), "in the first round");
    for _ in 0..200 {
        programs.poll(&mut kept).expect("a file of the test");
        programs.drain(&mut kept).expect("a file of the test");
    }
    programs.stop(&mut kept).expect("a file of the test");
    let reports = programs.reports();
    let why = dropped(&reports).expect("9000 rings are too many");
    assert!(why.contains("announces more than"), "{why}");
    assert!(kept.rings.len() < 8300, "{}", kept.rings.len());
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What a liar writes: few bytes anywhere, or a number that is nearly right.
fn spoil(random: &mut Random, file: &File, interesting: u64) {
    let length = file.metadata().expect("a file of the test").len().max(8);
    for _ in 0..=random.next(6) {
        let within = if random.next(2) == 0 { interesting } else { length };
        let place = random.next(within.min(length) - 7);
        let place = if random.next(2) == 0 { place & !7 } else { place };
        let value = match random.next(6) {
            0 => 0,
            1 => u64::MAX,
            2 => random.next(1 << 20),
            3 => 1 << random.next(64),
            4 => word(random.next(4) as u32, random.next(1024), random.next(1000)),
            _ => random.next(1 << 31) << 32 | random.next(1 << 31),
        };
        file.write_all_at(&value.to_le_bytes(), place).expect("a file of the test");
    }
    if random.next(12) == 0 {
        file.set_len(random.next(length)).expect("a file of the test");
    }
}

#[test]
fn random_lies_harm_nobody_else() {
    let before = resident_bytes();
    let mut said = 0;
    for seed in 0..400 {
        let mut random = Random(seed);
        let room = Room::new();
        let files: Vec<(File, u64)> = (0..4)
            .flat_map(|birth| {
                let provider = room.leave(&liar('p', birth), &provider(birth));
                let ring = room.leave(&liar('r', birth), &ring(birth, 100));
                [(provider, 600), (ring, 4096 + 3000)]
            })
            .collect();
        for (file, interesting) in &files {
            if random.next(3) > 0 {
                spoil(&mut random, file, *interesting);
            }
        }
        let reports = record(&room, |_| {
            let (file, interesting) = &files[random.next(8) as usize];
            spoil(&mut random, file, *interesting);
        });
        said += reports.iter().filter(|report| report.dropped.is_some()).count();
    }
    println!("of 1600 liars {said} were dropped");
    assert!(said > 200, "{said}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "memory grew by {grown} bytes");
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("a file of the test");
    status.split_whitespace().nth(1).expect("a file of the test").parse::<u64>().expect("a file of the test")
        * 4096
}

#[test]
fn processes_that_have_ended_leave_no_account() {
    const ENDED: u64 = 100;
    let room = Room::new();
    // Of one process number only the newest life can live.
    for birth_ns in 1..=ENDED {
        room.leave(&liar('p', birth_ns), &provider(birth_ns));
        room.leave(&liar('r', birth_ns), &ring(birth_ns, 5));
    }
    let mut programs = room.recording();
    let mut kept = Kept::default();
    programs.poll(&mut kept).expect("a file of the test");
    programs.drain(&mut kept).expect("a file of the test");
    programs.stop(&mut kept).expect("a file of the test");
    let reports = programs.reports();
    assert_eq!(reports.len(), 1, "the one that lives: {reports:?}");
    assert_eq!((programs.count(), programs.rings()), (ENDED as u32 + 1, ENDED as u32 + 1));
    assert_eq!(kept.rings.len() as u64, ENDED + 1);
    let left = fs::read_dir(&room.folder).expect("a file of the test").flatten();
    let names: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(
        !names.iter().any(|name| !name.contains(&format!("{HONEST:x}")) && name != "collector"),
        "{names:?}"
    );
}

#[test]
fn who_only_watches_changes_nothing_of_what_it_cannot_read() {
    let room = Room::new();
    let mut recorded = provider(HONEST);
    put64(&mut recorded, offset_of!(abi::rtu_provider, session), 7);
    put32(&mut recorded, offset_of!(abi::rtu_provider, flags), abi::RTU_BLOCKING);
    put32(&mut recorded, size_of::<abi::rtu_provider>(), 1);
    let name = format!("p{PID}-{HONEST:x}-0");
    room.leave(&name, &recorded);
    // As a ring for which the watcher has no memory: it cannot be had.
    let mut wrong = ring(HONEST, 1);
    put32(&mut wrong, offset_of!(abi::rtu_ring, sub_buffers), 3);
    room.leave(&format!("r{PID}-{HONEST:x}-{PID}-1"), &wrong);
    let mut watcher = Programs::watching(room.room.path());
    watcher.poll(&mut Kept::default()).expect("a file of the test");
    assert!(watcher.reports()[0].dropped.is_some(), "{:?}", watcher.reports());
    drop(watcher);
    assert!(fs::read(room.path(&name)).expect("a file of the test") == recorded, "as its recorder left it");
    // A collector switches off what it takes nothing from, and nobody waits for it.
    let mut programs = room.recording();
    programs.poll(&mut Kept::default()).expect("a file of the test");
    let bytes = fs::read(room.path(&name)).expect("a file of the test");
    let half = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
    assert_eq!(half(size_of::<abi::rtu_provider>()), 0, "no event is on");
    assert_eq!(half(offset_of!(abi::rtu_provider, flags)), 0);
    assert_eq!(half(offset_of!(abi::rtu_provider, session)), 0);
}

#[test]
fn root_a_second_collector_leaves_the_session_of_the_first() {
    if !nix::unistd::geteuid().is_root() {
        println!(
            "SKIP: root_a_second_collector_leaves_the_session_of_the_first: only root leaves a session for all"
        );
        return;
    }
    let room = Room::new();
    let first = room.recording();
    let session = || fs::read(room.room.path().join("rtscope-session")).ok();
    let before = session();
    assert!(before.is_some());
    let second = Programs::recording(room.room.path(), Settings::default());
    assert!(matches!(second, Err(rtscope_user::Error::Busy(_))), "{second:?}");
    assert!(session() == before, "programs that start now still find the first one's");
    drop(first);
    assert_eq!(session(), None);
}
