// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that lie. Whatever one program's files contain, another program's records are taken to the last byte, and the reports
//! name the process that was dropped and the reason. Random cases have fixed seeds.

use super::honest::{HONEST, HonestEvents, Writer, provider, record as record_honest};
use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};
use rtscope_abi::program as abi;
use rtscope_programs::collector::{DiscardingSink, ProcessReport, Programs, Records, Sink};
use rtscope_programs::description::FieldType;
use rtscope_programs::session::Settings;
use rtscope_programs::{ProviderInfo, RingInfo};
use rtscope_testkit::descriptions;
use rtscope_testkit::memory::is_alone;
use rtscope_testkit::program_files::{
    self, PID, RING_BYTES, UserDirectory, provider_name, put32, put64, record_word, ring_name,
};
use rtscope_testkit::random::Random;
use rtscope_testkit::skip;
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A ring with a sync record and this many events.
fn ring(birth_ns: u64, events: u64) -> Vec<u8> {
    let mut bytes = program_files::ring(PID, PID, birth_ns, abi::RTU_CLOCK_MONOTONIC);
    let sync = [record_word(abi::RTU_ID_SYNC, 4, 1), 1, 0, 0];
    let records = (0..events).flat_map(|number| [record_word(0, 3, 2 + number), number, 0]);
    let mut at = abi::RTU_RING_OFFSET as usize;
    for value in sync.into_iter().chain(records) {
        put64(&mut bytes, at, value);
        at += 8;
    }
    put64(&mut bytes, offset_of!(abi::rtu_ring, head), (at - abi::RTU_RING_OFFSET as usize) as u64);
    bytes
}

/// A sink that has the records of each ring.
#[derive(Default)]
struct RingRecords {
    rings: Vec<(u64, Vec<u8>)>,
}

impl Sink for RingRecords {
    /// Whatever is passed on can be in a trace.
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        let is_name = |name: &str| {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.chars().all(legal) && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty()
        };
        let described = &info.descriptions;
        assert!(described.bytes() <= 4 << 20, "{}", described.bytes());
        for event in &described.events {
            assert!(
                event.name.split_once(':').is_some_and(|(one, two)| is_name(one) && is_name(two)),
                "{event:?}"
            );
            assert!(event.index < described.declared && event.fields.len() <= 16, "{event:?}");
            for field in &event.fields {
                assert!(is_name(&field.name) && field.name.len() <= 256, "{event:?}");
                if let FieldType::Enumeration(name) = &field.kind {
                    assert!(
                        described.enumeration(name).is_some_and(|known| !known.labels.is_empty()),
                        "{event:?}"
                    );
                }
            }
        }
        let labels = described.enumerations.iter().flat_map(|known| &known.labels);
        labels.for_each(|(_, label)| assert!(!label.contains(char::is_control), "{label:?}"));
        Ok(())
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.rings.push((info.birth_ns, Vec::new()));
        Ok(())
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        let chunk = records.chunk();
        let taken = &mut self.rings[ring as usize];
        if taken.0 == HONEST {
            taken.1.extend(chunk.copy());
        } else {
            assert!(chunk.bytes <= RING_BYTES as u64, "no more than a ring holds");
        }
        Ok(())
    }
}

/// A directory with the files of an honest program.
fn with_honest_program() -> UserDirectory {
    let directory = UserDirectory::new();
    directory.write(&provider_name(PID, HONEST, 0), &provider(HONEST));
    directory.write(&ring_name(PID, HONEST, PID, 0), &ring(HONEST, 500));
    directory
}

fn recording(directory: &UserDirectory) -> Programs {
    Programs::recording(directory.above(), Settings::default()).expect("a file of the test")
}

/// Polls four times and calls `between` after each; then the honest program's records must all be there.
#[track_caller]
fn record(directory: &UserDirectory, between: impl FnMut()) -> Vec<ProcessReport> {
    record_after(directory, HONEST, between)
}

/// The same, when something of the ring of this process was taken: it is found by another thread.
#[track_caller]
fn record_after(directory: &UserDirectory, process: u64, mut between: impl FnMut()) -> Vec<ProcessReport> {
    let mut programs = recording(directory);
    let mut taken = RingRecords::default();
    let begun = Instant::now();
    while !taken.rings.iter().any(|ring| ring.0 == process) {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing of {process} was taken");
        programs.poll(&mut taken).expect("a file of the test");
        programs.drain(&mut taken).expect("a file of the test");
    }
    for _ in 0..4 {
        programs.poll(&mut taken).expect("a file of the test");
        programs.drain(&mut taken).expect("a file of the test");
        between();
    }
    programs.stop(&mut taken).expect("a file of the test");
    let honest: Vec<&Vec<u8>> =
        taken.rings.iter().filter(|ring| ring.0 == HONEST).map(|ring| &ring.1).collect();
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
        'r' => ring_name(PID, birth_ns, PID, 0),
        _ => provider_name(PID, birth_ns, 0),
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
        ("a directory", |path| fs::create_dir(path).expect("a file of the test")),
        ("a link to nothing", |path| {
            std::os::unix::fs::symlink("nowhere", path).expect("a file of the test")
        }),
    ];
    for (what, make) in make {
        for kind in ['p', 'r'] {
            let directory = with_honest_program();
            make(&directory.path().join(liar(kind, 7)));
            let why = dropped(&record(&directory, || {}));
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
        let directory = with_honest_program();
        let mut bytes = ring(7, 10);
        put32(&mut bytes, offset, value);
        directory.write(&liar('p', 7), &provider(7));
        directory.write(&liar('r', 7), &bytes);
        assert!(dropped(&record(&directory, || {})).is_some(), "{offset} {value}");
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
        let directory = with_honest_program();
        let mut bytes = provider(7);
        put32(&mut bytes, offset, value);
        directory.write(&liar('p', 7), &bytes);
        assert!(dropped(&record(&directory, || {})).is_some(), "{offset} {value}");
    }
}

#[test]
fn positions_that_jump_are_refused_and_said() {
    let head = offset_of!(abi::rtu_ring, head);
    for value in [0, 8, 13, RING_BYTES as u64 * 3, u64::MAX, u64::MAX - 7, 1 << 63] {
        let directory = with_honest_program();
        // It lives: of one that has ended the ring is given up as soon as it is empty.
        let mut leader = provider(7);
        put32(&mut leader, offset_of!(abi::rtu_provider, abi_version), 2);
        let leader = directory.write(&liar('p', 7), &leader);
        let _lives = Flock::lock(leader, FlockArg::LockExclusiveNonblock).expect("nobody else has it");
        let file = directory.write(&liar('r', 7), &ring(7, 500));
        let why = dropped(&record_after(&directory, 7, || {
            file.write_all_at(&value.to_le_bytes(), head as u64).expect("a file of the test")
        }));
        assert!(why.as_ref().is_some_and(|why| why.contains("positions jump")), "{value}: {why:?}");
    }
}

/// A program whose events are enabled finds its ring full until that has happened.
#[test]
fn what_a_flight_recorder_has_overwritten_is_given_back_when_it_is_found_and_when_it_ends() {
    let directory = UserDirectory::new();
    let mut leader = provider(HONEST);
    put32(&mut leader, offset_of!(abi::rtu_provider, abi_version), 2);
    let leader = directory.write(&provider_name(PID, HONEST, 0), &leader);
    let _lives = Flock::lock(leader, FlockArg::LockExclusiveNonblock).expect("nobody else has it");
    let name = ring_name(PID, HONEST, PID, 0);
    directory.write(&name, &ring(HONEST, 100));
    let mut options = File::options();
    let file = options.read(true).write(true).open(directory.path().join(name)).expect("a file of the test");
    // The thread has written so many rings, and 2 KiB more.
    let write = |laps: u64| {
        let head = (laps * RING_BYTES as u64 + 2048).to_le_bytes();
        file.write_all_at(&head, offset_of!(abi::rtu_ring, head) as u64).expect("a file of the test");
    };
    let tail = || {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, offset_of!(abi::rtu_ring, tail) as u64).expect("a file of the test");
        u64::from_le_bytes(word)
    };
    write(3);
    let settings = Settings { flight: true, ..Settings::default() };
    let mut programs = Programs::recording(directory.above(), settings).expect("a file of the test");
    let begun = Instant::now();
    while programs.rings() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the ring was not found");
        programs.poll(&mut DiscardingSink).expect("it keeps nothing");
    }
    assert_eq!(tail(), 3 * RING_BYTES as u64);
    write(9);
    programs.stop(&mut DiscardingSink).expect("it keeps nothing");
    let left = tail();
    assert!((9 * RING_BYTES as u64..=9 * RING_BYTES as u64 + 2048).contains(&left), "{left}");
}

#[test]
fn a_file_that_is_cut_or_removed_is_survived() {
    for length in [0, 100, 4096, 8192, 40_000] {
        for kind in ['p', 'r'] {
            let directory = with_honest_program();
            let files =
                [directory.write(&liar('p', 7), &provider(7)), directory.write(&liar('r', 7), &ring(7, 10))];
            let file = &files[usize::from(kind == 'r')];
            // Its head points to records that are no longer there.
            let head = (RING_BYTES as u64).to_le_bytes();
            record(&directory, || {
                if kind == 'r' {
                    file.write_all_at(&head, offset_of!(abi::rtu_ring, head) as u64)
                        .expect("a file of the test");
                }
                file.set_len(length.min(file.metadata().expect("a file of the test").len()))
                    .expect("a file of the test");
            });
        }
    }
    let directory = with_honest_program();
    directory.write(&liar('p', 7), &provider(7));
    directory.write(&liar('r', 7), &ring(7, 10));
    record(&directory, || {
        let _ = fs::remove_file(directory.path().join(liar('r', 7)));
        let _ = fs::remove_file(directory.path().join(liar('p', 7)));
    });
}

#[test]
fn memory_that_is_taken_out_of_a_file_is_not_given_back_by_the_collector() {
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    // From here to the end: all records, the header too, or what the collector writes.
    for (kind, from) in [('r', i64::from(abi::RTU_RING_OFFSET)), ('r', 0), ('p', 0)] {
        let directory = UserDirectory::in_memory();
        directory.write(&provider_name(PID, HONEST, 0), &provider(HONEST));
        directory.write(&ring_name(PID, HONEST, PID, 0), &ring(HONEST, 500));
        // It lives: of one that has ended the ring is given up as soon as it is empty.
        let mut leader = provider(7);
        put32(&mut leader, offset_of!(abi::rtu_provider, abi_version), 2);
        let leader = directory.write(&liar('p', 7), &leader);
        let leader = Flock::lock(leader, FlockArg::LockExclusiveNonblock).expect("nobody else has it");
        let file = directory.write(&liar('r', 7), &ring(7, 10));
        let file = if kind == 'r' { &file } else { &*leader };
        let bytes = file.metadata().expect("a file of the test").len();
        let mut left = None;
        let reports = record_after(&directory, 7, || {
            if kind == 'r' {
                let head = offset_of!(abi::rtu_ring, head) as u64;
                file.write_all_at(&(RING_BYTES as u64).to_le_bytes(), head).expect("a file of the test");
            }
            fallocate(file, punch, from, i64::try_from(bytes).expect("it is small") - from)
                .expect("it is on a tmpfs");
            left.get_or_insert(file.metadata().expect("a file of the test").blocks());
        });
        let blocks = file.metadata().expect("a file of the test").blocks();
        assert!(Some(blocks) <= left, "{kind} from {from}: {blocks} blocks, {left:?} were left");
        // That a provider has lost its memory is seen at the next beat, which is half a second away.
        let why = dropped(&reports);
        let is_said = why.as_ref().is_some_and(|why| why.contains("taken out of it"));
        assert!(is_said || kind == 'p', "{kind} from {from}: {why:?}");
    }
}

#[test]
fn thousands_of_announced_rings_do_not_stop_the_others() {
    // A recorder of another test forks (src/hand.rs), and all of these mappings would be copied for that.
    if !is_alone() {
        return;
    }
    let directory = UserDirectory::in_memory();
    // Another process number, since of one number only the newest life lives; it has ended, or never was.
    let liar = nix::unistd::getpid().as_raw().unsigned_abs();
    directory.write(
        &provider_name(liar, u64::MAX - 1, 0),
        &program_files::provider(liar, u64::MAX - 1, 0, &["lie:event 6\n".to_owned()]),
    );
    let header = &program_files::ring(liar, liar, u64::MAX - 1, abi::RTU_CLOCK_MONOTONIC)[..4096];
    let making = Instant::now();
    for number in 0..17_000 {
        let file = directory.write(&ring_name(liar, u64::MAX - 1, number, number), header);
        let bytes = (abi::RTU_RING_OFFSET as usize + RING_BYTES) as i64;
        // Memory behind every byte, as a program makes it.
        nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::empty(), 0, bytes).expect("there is space");
    }
    // How fast this machine is. To find all of these takes about half of this, and the honest ring does not hold what is written meanwhile.
    let making = making.elapsed();
    let mut programs = recording(&directory);
    let mut events = HonestEvents::default();
    let writer = Writer::with_full_after(directory.path(), making / 3);
    let begun = Instant::now();
    let (mut writer, mut written) = (Some(writer), (0, 0));
    record_honest(&mut programs, &mut events, || {
        let is_over = begun.elapsed() > Duration::from_secs(3).max(3 * making);
        if is_over {
            written = writer.take().map_or(written, Writer::end);
        }
        is_over
    });
    println!("{} of {written:?} events; {making:?} to make the rings", events.events);
    assert!(written.0 > 100_000, "more than its ring holds: {written:?}");
    assert_eq!((events.events, written.1), (written.0, 0));
    // Of one process, 16 384 at a time are opened.
    assert!((1000..=16_385).contains(&programs.rings()), "{}", programs.rings());
}

/// Writes a few numbers anywhere, or one that is nearly right, and sometimes cuts the file.
fn spoil(random: &mut Random, file: &File, interesting: u64) {
    let length = file.metadata().expect("a file of the test").len().max(8);
    for _ in 0..=random.below(6) {
        let within = if random.below(2) == 0 { interesting } else { length };
        let place = random.below(within.min(length) - 7);
        let place = if random.below(2) == 0 { place & !7 } else { place };
        let value = match random.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => random.below(1 << 20),
            3 => 1 << random.below(64),
            4 => record_word(random.below(4) as u32, random.below(1024), random.below(1000)),
            _ => random.below(1 << 31) << 32 | random.below(1 << 31),
        };
        file.write_all_at(&value.to_le_bytes(), place).expect("a file of the test");
    }
    if random.below(12) == 0 {
        file.set_len(random.below(length)).expect("a file of the test");
    }
}

#[test]
fn random_lies_harm_nobody_else() {
    if !is_alone() {
        return;
    }
    let before = resident_bytes();
    let mut dropped = 0;
    for seed in 0..400 {
        let mut random = Random(seed);
        let directory = with_honest_program();
        let files: Vec<(File, u64)> = (0..4)
            .flat_map(|birth| {
                let lie = random.flag().then(|| descriptions::provider(&mut random));
                let honest = || provider(birth);
                let bytes =
                    lie.map_or_else(honest, |lie| program_files::provider_of_text(PID, birth, 0, &lie));
                let interesting = if random.flag() { 600 } else { bytes.len() as u64 };
                let provider = directory.write(&liar('p', birth), &bytes);
                let ring = directory.write(&liar('r', birth), &ring(birth, 100));
                [(provider, interesting), (ring, 4096 + 3000)]
            })
            .collect();
        for (file, interesting) in &files {
            if random.below(3) > 0 {
                spoil(&mut random, file, *interesting);
            }
        }
        let reports = record(&directory, || {
            let (file, interesting) = &files[random.below(8) as usize];
            spoil(&mut random, file, *interesting);
        });
        dropped += reports.iter().filter(|report| report.dropped.is_some()).count();
    }
    println!("of 1600 liars {dropped} were dropped");
    assert!(dropped > 200, "{dropped}");
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
    // More than are opened in one turn: none of them is taken for over before its ring has been seen.
    const ENDED: u64 = 400;
    let directory = with_honest_program();
    // Of one process number only the newest life can live.
    for birth_ns in 1..=ENDED {
        directory.write(&liar('p', birth_ns), &provider(birth_ns));
        directory.write(&liar('r', birth_ns), &ring(birth_ns, 5));
    }
    let mut programs = recording(&directory);
    let mut taken = RingRecords::default();
    programs.poll(&mut taken).expect("a file of the test");
    programs.drain(&mut taken).expect("a file of the test");
    programs.stop(&mut taken).expect("a file of the test");
    let reports = programs.reports();
    assert_eq!(reports.len(), 1, "the one that lives: {reports:?}");
    assert_eq!((programs.count(), programs.rings()), (ENDED as u32 + 1, ENDED as u32 + 1));
    assert_eq!(taken.rings.len() as u64, ENDED + 1);
    let left = fs::read_dir(directory.path()).expect("a file of the test").flatten();
    let names: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(
        !names.iter().any(|name| !name.contains(&format!("{HONEST:x}")) && name != "collector"),
        "{names:?}"
    );
}

/// What is told of rings that are over.
#[derive(Default)]
struct RingEnds {
    rings: u64,
    lost: u64,
}

impl Sink for RingEnds {
    fn provider(&mut self, _: &ProviderInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, _: &RingInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring_over(&mut self, _: u32, lost: u64, _: u64) -> io::Result<()> {
        self.rings += 1;
        self.lost += lost;
        Ok(())
    }

    fn data(&mut self, _: u32, records: &mut Records<'_>) -> io::Result<()> {
        records.chunk();
        Ok(())
    }
}

#[test]
fn programs_and_threads_without_number_are_added_up() {
    const PROGRAMS: u64 = 1500;
    const RINGS: u64 = 300;
    let directory = with_honest_program();
    let mut programs = recording(&directory);
    let mut ends = RingEnds::default();
    programs.poll(&mut ends).expect("a file of the test");
    let mut names = Vec::new();
    // Programs that say that they run untraced, and have ended.
    for birth_ns in 1..=PROGRAMS {
        names.push(format!("x{PID}-{birth_ns:x}-13"));
        directory.write(names.last().expect("it was pushed"), &[]);
    }
    // Threads that have ended and lost all but everything.
    for number in 1..=RINGS {
        let mut ended = ring(HONEST, 1);
        put64(&mut ended, offset_of!(abi::rtu_ring, ended), 1);
        put64(&mut ended, offset_of!(abi::rtu_ring, lost), u64::MAX / 1000);
        put64(&mut ended, offset_of!(abi::rtu_ring, waits), u64::MAX / 2);
        directory.write(&ring_name(PID, HONEST, PID, number as u32), &ended);
    }
    let untraced =
        |reports: &[ProcessReport]| reports.iter().filter(|one| one.untraced.is_some()).count() as u64;
    let until = Instant::now() + Duration::from_secs(60);
    while ends.rings < RINGS || programs.past().untraced + untraced(&programs.reports()) < PROGRAMS {
        assert!(Instant::now() < until, "{} {:?}", ends.rings, programs.past());
        programs.poll(&mut ends).expect("a file of the test");
        programs.drain(&mut ends).expect("a file of the test");
    }
    // Those that are over are not retained one by one.
    while programs.reports().len() > 300 {
        assert!(Instant::now() < until, "{}", programs.reports().len());
        programs.poll(&mut ends).expect("a file of the test");
        programs.drain(&mut ends).expect("a file of the test");
    }
    programs.stop(&mut ends).expect("a file of the test");
    assert_eq!((ends.rings, ends.lost), (RINGS, u64::MAX / 1000 * RINGS), "each is told once");
    let reports = programs.reports();
    assert_eq!(programs.past().untraced + untraced(&reports), PROGRAMS);
    let honest = reports.iter().find(|report| report.untraced.is_none()).expect("it runs");
    assert_eq!(
        (honest.over.lost, honest.over.waits),
        (ends.lost, u64::MAX),
        "what does not fit does not wrap"
    );
    assert!(honest.rings.len() == 1 && programs.lost() >= ends.lost, "{honest:?}");
}

#[test]
fn who_only_watches_changes_nothing_of_what_it_cannot_read() {
    let directory = with_honest_program();
    let mut recorded = provider(HONEST);
    put64(&mut recorded, offset_of!(abi::rtu_provider, session), 7);
    put32(&mut recorded, offset_of!(abi::rtu_provider, flags), abi::RTU_BLOCKING);
    put32(&mut recorded, size_of::<abi::rtu_provider>(), 1);
    let name = provider_name(PID, HONEST, 0);
    directory.write(&name, &recorded);
    // A ring that a watcher cannot map.
    let mut wrong = ring(HONEST, 1);
    put32(&mut wrong, offset_of!(abi::rtu_ring, sub_buffers), 3);
    directory.write(&ring_name(PID, HONEST, PID, 1), &wrong);
    let mut watcher = Programs::watching(directory.above()).expect("it looks");
    watcher.poll(&mut RingRecords::default()).expect("a file of the test");
    assert!(watcher.reports()[0].dropped.is_some(), "{:?}", watcher.reports());
    drop(watcher);
    assert!(
        fs::read(directory.path().join(&name)).expect("a file of the test") == recorded,
        "as its recorder left it"
    );
    // A collector disables the events of a program from which it takes nothing, and no thread waits for it.
    let mut programs = recording(&directory);
    programs.poll(&mut RingRecords::default()).expect("a file of the test");
    let bytes = fs::read(directory.path().join(&name)).expect("a file of the test");
    let half = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
    assert_eq!(half(size_of::<abi::rtu_provider>()), 0, "no event is on");
    assert_eq!(half(offset_of!(abi::rtu_provider, flags)), 0);
    assert_eq!(half(offset_of!(abi::rtu_provider, session)), 0);
}

// NEEDS: host
#[test]
fn root_a_second_collector_leaves_the_session_of_the_first() {
    if skip::without_root() {
        return;
    }
    let directory = with_honest_program();
    let first = recording(&directory);
    let session = || fs::read(directory.above().join("rtscope-session")).ok();
    let before = session();
    assert!(before.is_some());
    let second = Programs::recording(directory.above(), Settings::default());
    assert!(matches!(second, Err(rtscope_programs::Error::Busy(_))), "{second:?}");
    assert!(session() == before, "programs that start now still find the first one's");
    drop(first);
    assert_eq!(session(), None);
}
