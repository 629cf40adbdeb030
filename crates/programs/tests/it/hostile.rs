// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Root's collector among hostile users: whatever a second user does to his directory, or to the one above, an honest user's program
//! loses no event, the end of the recording is quick, and what was refused is reported with that user and the cause.
//!
//! Each attack runs as that user, beside an honest program that writes more than its ring holds.

use super::honest::{HonestEvents, Writer, provider, record};
use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid};
use rtscope_abi::program as abi;
use rtscope_programs::budget::{Cause, Refusal};
use rtscope_programs::collector::Programs;
use rtscope_programs::session::Settings;
use rtscope_testkit::held::HeldExec;
use rtscope_testkit::program_files::{self, PID, put32, put64, record_word};
use rtscope_testkit::random::Random;
use rtscope_testkit::skip;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The hostile user.
const HOSTILE: u32 = 4711;
/// In this time the honest program writes five times what its ring holds; and what it writes at least.
const RECORDING: Duration = Duration::from_secs(2);
const EVENTS: u64 = 100_000;
/// Ends of recordings take milliseconds; this is the promise.
const END: Duration = Duration::from_secs(3);

/// What a hostile user has.
struct Attacker {
    /// Of all users.
    base: PathBuf,
    /// His directory.
    directory: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Attacker {
    /// Whether to go on.
    fn goes_on(&self) -> bool {
        // ORDER: relaxed; a flag that stands for itself.
        !self.stop.load(Ordering::Relaxed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Option<File> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.path(name));
        let file = file.ok()?;
        file.write_all_at(bytes, 0).ok()?;
        Some(file)
    }
}

/// A ring whose records are all there: the sub-buffers are full of padding.
fn ring(birth_ns: u64) -> Vec<u8> {
    let mut bytes = program_files::ring(PID, PID, birth_ns, abi::RTU_CLOCK_MONOTONIC);
    for sub in 0..program_files::SUB_BUFFERS as usize {
        let place = abi::RTU_RING_OFFSET as usize + sub * program_files::SUB_BUFFER_BYTES;
        put64(&mut bytes, place, record_word(abi::RTU_ID_PADDING, 1, 1));
    }
    put64(&mut bytes, offset_of!(abi::rtu_ring, head), program_files::RING_BYTES as u64);
    bytes
}

/// The attack that makes up names of other users' directories.
const MADE_UP: &str = "names of users";

/// Runs an attack, as the hostile user, while an honest program writes. Before the recording begins, `prepare` has ended.
fn attack(name: &str, prepare: fn(&Attacker), run: impl FnOnce(&Attacker) + Send + 'static) -> Vec<Refusal> {
    let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o1777)).expect("it is ours");
    let own = above.path().join("rtscope-0");
    let directory = above.path().join(format!("rtscope-{HOSTILE}"));
    for (path, user) in [(&own, 0), (&directory, HOSTILE)] {
        DirBuilder::new().mode(0o700).create(path).expect("a directory of the test");
        std::os::unix::fs::chown(path, Some(user), Some(user)).expect("root may");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let attacker = Attacker { base: above.path().to_owned(), directory, stop: Arc::clone(&stop) };
    let (ready, prepared) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Of this thread alone.
        nix::unistd::setfsgid(Gid::from_raw(HOSTILE));
        nix::unistd::setfsuid(Uid::from_raw(HOSTILE));
        prepare(&attacker);
        ready.send(()).expect("somebody waits");
        run(&attacker);
    });
    prepared.recv().expect("it prepares");
    let mut programs =
        Programs::recording(above.path(), Settings::default()).expect("nobody else records here");
    let mut events = HonestEvents::default();
    let writer = Writer::start(&own);
    let begun = Instant::now();
    let mut writer = Some(writer);
    let mut written = (0, 0);
    let end = record(&mut programs, &mut events, || {
        // A busy machine takes longer.
        let is_enough = writer.as_ref().is_none_or(|writer| writer.written() > EVENTS);
        let is_over = begun.elapsed() > RECORDING && (is_enough || begun.elapsed() > RECORDING * 10);
        if is_over {
            written = writer.take().map(Writer::end).unwrap_or(written);
        }
        is_over
    });
    // ORDER: relaxed; as above.
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("the attack runs to its end");
    let refusals = programs.refusals();
    println!(
        "{name}: {} of {} events, lost {}, end {end:?}, {refusals:?}",
        events.events, written.0, written.1
    );
    assert!(written.0 > EVENTS, "{name}: more than the ring holds: {written:?}");
    assert_eq!((events.events, written.1), (written.0, 0), "{name}");
    assert!(end < END, "{name}: the end took {end:?}");
    // Who has another's place is told of that one; made up in this attack only. There are so many names that they may not be read by the end: then there may be users
    // among them of whom nobody knows, and that is told.
    let is_unread = |refusal: &Refusal| refusal.user.is_none() && refusal.cause == Cause::NotLookedAt;
    let is_made_up =
        |refusal: &Refusal| name == MADE_UP && (refusal.cause == Cause::PlaceTaken || is_unread(refusal));
    assert!(
        refusals.iter().all(|refusal| refusal.user == Some(HOSTILE) || is_made_up(refusal)),
        "{name}: {refusals:?}"
    );
    refusals
}

/// Nothing to do before, or during, the recording.
fn nothing(_: &Attacker) {}

/// How many were refused for this cause.
fn refused(refusals: &[Refusal], cause: Cause) -> u64 {
    refusals.iter().filter(|refusal| refusal.cause == cause).map(|refusal| refusal.count).sum()
}

// NEEDS: host
#[test]
fn root_a_file_with_many_names_is_taken_once() {
    if skip::without_root() {
        return;
    }
    let link = |attacker: &Attacker| {
        // As large as it may be, and valid.
        let description = |number: u32| format!("lie:event{number} 6\n{}\n", "u64 a_long_name\n".trim());
        let all: Vec<String> = (0..10_000).map(description).collect();
        attacker.file("p1-7-0", &program_files::provider(PID, 7, 0, &all));
        for number in 1..20_000 {
            let name = attacker.path(&format!("p1-7-{number}"));
            fs::hard_link(attacker.path("p1-7-0"), name).expect("it is his");
        }
        attacker.file("r1-8-1-0", &ring(8));
        (1..2000).for_each(|number| {
            let name = attacker.path(&format!("r1-8-1-{number}"));
            fs::hard_link(attacker.path("r1-8-1-0"), name).expect("it is his");
        });
    };
    let before = resident_bytes();
    let refusals = attack("hard links", link, nothing);
    assert!(refused(&refusals, Cause::SecondName) >= 2, "{refusals:?}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 << 20, "memory grew by {grown} bytes");
}

// NEEDS: host
#[test]
fn root_a_user_with_too_many_names_delays_nobody_and_is_reported() {
    if skip::without_root() {
        return;
    }
    let crowd = |attacker: &Attacker| {
        for number in 0..200_000 {
            let name = attacker.path(&format!("r1-7-{number}-{number}"));
            OpenOptions::new().write(true).create_new(true).open(name).expect("there is space for names");
        }
    };
    let refusals = attack("names in his directory", crowd, nothing);
    assert_eq!(refused(&refusals, Cause::TooManyNames), 1, "{refusals:?}");
    let crowd = |attacker: &Attacker| {
        for number in 0..200_000 {
            let name = attacker.base.join(format!("rtscope-x{number}"));
            OpenOptions::new().write(true).create_new(true).open(name).expect("there is space for names");
        }
    };
    attack("names beside the directories", crowd, nothing);
    // They come while it records.
    attack("names that come", nothing, |attacker| {
        let mut number = 0;
        while attacker.goes_on() {
            let name = attacker.path(&format!("r1-7-{number}-{number}"));
            drop(OpenOptions::new().write(true).create(true).truncate(false).open(name));
            drop(
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(attacker.base.join(format!("rtscope-{number}x"))),
            );
            number += 1;
        }
    });
}

// NEEDS: host
#[test]
fn root_names_of_users_that_another_user_makes_up_are_his() {
    if skip::without_root() {
        return;
    }
    let refusals = attack(MADE_UP, nothing, |attacker| {
        let first = attacker.base.join("one");
        File::create(&first).expect("a file of the test");
        let mut number = 1_000_000;
        // All of them stay: each round reads them.
        while attacker.goes_on() && number < 1_500_000 {
            fs::hard_link(&first, attacker.base.join(format!("rtscope-{number}"))).expect("it is his");
            number += 1;
        }
        while attacker.goes_on() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(refused(&refusals, Cause::PlaceTaken), 16, "{refusals:?}");
    let others = refusals.iter().find(|refusal| refusal.cause == Cause::PlacesOfOthers);
    assert!(others.is_some_and(|others| others.user == Some(HOSTILE) && others.count > 100), "{refusals:?}");
}

// NEEDS: host
#[test]
fn root_names_that_a_user_makes_up_hide_no_user_who_is_asked_for_or_has_a_name() {
    if skip::without_root() {
        return;
    }
    let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let take = |user: u32| {
        let path = above.path().join(format!("rtscope-{user}"));
        DirBuilder::new().mode(0o700).create(&path).expect("a directory of the test");
        std::os::unix::fs::chown(&path, Some(HOSTILE), Some(HOSTILE)).expect("root may");
    };
    let named = (1..1000)
        .find(|user| nix::unistd::User::from_uid(Uid::from_raw(*user)).is_ok_and(|user| user.is_some()));
    let (named, asked) = (named.expect("this machine has users"), HOSTILE + 1);
    (500_000..500_150).for_each(take);
    let settings = Settings { uids: vec![asked], ..Settings::default() };
    let mut programs = Programs::recording(above.path(), settings).expect("nobody else records here");
    let mut sink = rtscope_programs::collector::DiscardingSink;
    programs.poll(&mut sink).expect("it looks");
    // They come when his others are known.
    assert_eq!(refused(&programs.refusals(), Cause::PlaceTaken), 16);
    [named, asked].into_iter().for_each(take);
    programs.poll_now(&mut sink, Duration::from_secs(10)).expect("it looks");
    let refusals = programs.refusals();
    for user in [named, asked] {
        let is_told = |refusal: &Refusal| refusal.user == Some(user) && refusal.cause == Cause::PlaceTaken;
        assert!(refusals.iter().any(is_told), "{user}: {refusals:?}");
    }
    assert_eq!(refused(&refusals, Cause::PlacesOfOthers), 150 - 16, "{refusals:?}");
}

// NEEDS: host
#[test]
fn root_holes_are_not_filled_by_the_collector() {
    if skip::without_root() {
        return;
    }
    let sparse = |attacker: &Attacker| {
        attacker.file("p1-7-0", &provider(7));
        for number in 0..100 {
            let mut header = ring(7);
            header.truncate(4096);
            put32(&mut header, offset_of!(abi::rtu_ring, ring_bytes), 1 << 30);
            let file = attacker.file(&format!("r1-7-1-{number}"), &header).expect("a file of the test");
            file.set_len((1 << 30) + u64::from(abi::RTU_RING_OFFSET)).expect("a file of the test");
        }
    };
    let refusals = attack("sparse files", sparse, |attacker| {
        let before = used_bytes(&attacker.base);
        while attacker.goes_on() {
            let grown = used_bytes(&attacker.base).saturating_sub(before);
            assert!(grown < 16 << 20, "{grown} bytes of shared memory");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(refused(&refusals, Cause::Holes) > 0, "{refusals:?}");
}

// NEEDS: host
#[test]
fn root_files_that_change_while_they_are_read_harm_nobody() {
    if skip::without_root() {
        return;
    }
    let refusals = attack("files that change", nothing, |attacker| {
        let mut random = Random(1);
        let mut birth = 0x100;
        while attacker.goes_on() {
            birth += 1;
            let names = [format!("p1-{birth:x}-0"), format!("r1-{birth:x}-1-0")];
            let files = [attacker.file(&names[0], &provider(birth)), attacker.file(&names[1], &ring(birth))];
            for _ in 0..20 {
                let which = random.below(2) as usize;
                let Some(file) = &files[which] else { continue };
                let length = file.metadata().expect("it is open").len();
                let place = random.below(length.max(1));
                // What cannot be done to it now is left.
                match random.below(8) {
                    0 => drop(file.set_len(random.below(80_000))),
                    1 => {
                        let punch =
                            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                        let _ = fallocate(file, punch, place as i64, 1 + random.below(70_000) as i64);
                    }
                    2 => drop(file.set_len(1 << (10 + random.below(25)))),
                    3 => drop(fs::rename(attacker.path(&names[which]), attacker.path(&names[1 - which]))),
                    4 => drop(fs::set_permissions(
                        attacker.path(&names[which]),
                        fs::Permissions::from_mode(random.below(0o1000) as u32),
                    )),
                    5 => drop(file.write_all_at(&random.below(u64::MAX).to_le_bytes(), place & !7)),
                    6 => drop(file.write_all_at(
                        &random.below(1 << 17).to_le_bytes(),
                        offset_of!(abi::rtu_ring, head) as u64,
                    )),
                    _ => drop(fs::remove_file(attacker.path(&names[which]))),
                }
            }
            if random.below(4) == 0 {
                names.iter().for_each(|name| drop(fs::remove_file(attacker.path(name))));
            }
        }
    });
    assert!(refused(&refusals, Cause::Invalid) + refused(&refusals, Cause::Holes) > 0, "{refusals:?}");
}

// NEEDS: host
#[test]
fn root_names_of_what_is_no_file_harm_nobody() {
    if skip::without_root() {
        return;
    }
    let make = |attacker: &Attacker| {
        symlink("/etc/shadow", attacker.path("p1-1-0")).expect("his directory");
        symlink("/dev/zero", attacker.path("r1-2-1-0")).expect("his directory");
        symlink(".", attacker.path("r1-2-1-1")).expect("his directory");
        nix::unistd::mkfifo(&attacker.path("r1-3-1-0"), nix::sys::stat::Mode::S_IRWXU)
            .expect("his directory");
        nix::unistd::mkfifo(&attacker.path("look"), nix::sys::stat::Mode::S_IRWXU).expect("his directory");
        fs::create_dir(attacker.path("p1-4-0")).expect("his directory");
        fs::create_dir(attacker.path("x1-4-5")).expect("his directory");
        drop(std::os::unix::net::UnixListener::bind(attacker.path("p1-5-0")));
        for name in
            ["p4294967295-ffffffffffffffff-4294967295", "x0-0-2147483647", "r0-0-0-0", "p00-0-0", "p1--0"]
        {
            attacker.file(name, b"");
        }
        // Another user's file, by a name of his.
        drop(fs::hard_link("/etc/shadow", attacker.path("p1-9-0")));
    };
    let refusals = attack("no files", make, nothing);
    assert!(refused(&refusals, Cause::Invalid) >= 4, "{refusals:?}");
}

// NEEDS: host
#[test]
fn root_a_directory_that_is_replaced_all_the_time_harms_nobody() {
    if skip::without_root() {
        return;
    }
    attack("a directory that is replaced", nothing, |attacker| {
        let mut number = 0;
        let other = attacker.base.join("another");
        while attacker.goes_on() {
            number += 1;
            // A directory that only he may enter, one that all may, a link to root's, and nothing.
            drop(fs::rename(&attacker.directory, attacker.base.join(format!("old-{number}"))));
            match number % 4 {
                0 => drop(DirBuilder::new().mode(0o700).create(&attacker.directory)),
                1 => drop(DirBuilder::new().mode(0o777).create(&attacker.directory)),
                2 => drop(symlink(attacker.base.join("rtscope-0"), &attacker.directory)),
                _ => {}
            }
            attacker.file("p1-7-0", &provider(7));
            attacker.file("r1-7-1-0", &ring(7));
            drop(fs::set_permissions(&attacker.directory, fs::Permissions::from_mode(0o700)));
            drop(fs::rename(&attacker.directory, &other));
            drop(fs::rename(&other, &attacker.directory));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

// NEEDS: host
#[test]
fn root_rings_that_are_always_full_take_turns_with_others() {
    if skip::without_root() {
        return;
    }
    let fill = |attacker: &Attacker| {
        // Rings in any number: each is emptied, and there are never more mappings than one user may have.
        attacker.file("p1-7-0", &provider(7));
        for number in 0..3000 {
            attacker.file(&format!("r1-7-{number}-{number}"), &ring(7));
        }
    };
    attack("thousands of rings that are always full", fill, |attacker| {
        let files: Vec<File> = (0..3000)
            .filter_map(|number| {
                let path = attacker.path(&format!("r1-7-{number}-{number}"));
                OpenOptions::new().read(true).write(true).open(path).ok()
            })
            .collect();
        let mut head = program_files::RING_BYTES as u64;
        while attacker.goes_on() {
            // Each lap again: all of it is complete records.
            head += program_files::RING_BYTES as u64;
            let lap = head / program_files::RING_BYTES as u64 - 1;
            let tag = ((lap + u64::from(program_files::KEY)) & 0x7f) << 16;
            let word = u64::from(abi::RTU_ID_PADDING) | tag | 1 << 24;
            for file in &files {
                for sub in 0..u64::from(program_files::SUB_BUFFERS) {
                    let place =
                        u64::from(abi::RTU_RING_OFFSET) + sub * program_files::SUB_BUFFER_BYTES as u64;
                    let _ = file.write_all_at(&word.to_le_bytes(), place);
                }
                let _ = file.write_all_at(&head.to_le_bytes(), offset_of!(abi::rtu_ring, head) as u64);
            }
        }
    });
}

// NEEDS: host
#[test]
fn root_files_of_the_dead_that_somebody_keeps_locked_delay_nobody() {
    if skip::without_root() {
        return;
    }
    const FILES: u32 = 3000;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("it has one");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to that it may");
    let make = |attacker: &Attacker| {
        for pid in 0..FILES {
            attacker.file(&format!("x{}-1-1", u32::MAX - pid), &[]);
        }
    };
    // Each is of a process that has ended, and cannot be removed.
    attack("locked files of processes that have ended", make, |attacker| {
        let lock = |pid: u32| {
            let file = OpenOptions::new().read(true).open(attacker.path(&format!("x{}-1-1", u32::MAX - pid)));
            Flock::lock(file.ok()?, FlockArg::LockExclusiveNonblock).ok()
        };
        let locks: Vec<Flock<File>> = (0..FILES).filter_map(lock).collect();
        assert!(locks.len() > FILES as usize / 2, "{} are locked", locks.len());
        while attacker.goes_on() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

// NEEDS: host
#[test]
fn root_records_whatever_others_have_put_into_its_places() {
    if skip::without_root() {
        return;
    }
    let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let places = ["rtscope-0", "rtscope-session"].map(|name| above.path().join(name));
    for place in &places {
        fs::create_dir(place).expect("ours");
        fs::write(place.join("letter"), "precious").expect("ours");
        std::os::unix::fs::chown(place, Some(HOSTILE), Some(HOSTILE)).expect("root may");
        // A name that could be foreseen would be taken, too.
        let number = std::os::unix::fs::MetadataExt::ino(&fs::metadata(place).expect("ours"));
        fs::create_dir(format!("{}.of-{HOSTILE}-{number:x}", place.display())).expect("ours");
    }
    let programs = Programs::recording(above.path(), Settings::default()).expect("nobody else records here");
    let writer = Writer::start(&places[0]);
    drop(programs);
    writer.end();
    // Theirs have another name.
    let letters = fs::read_dir(above.path()).expect("ours").flatten().filter(|entry| {
        fs::read_to_string(entry.path().join("letter")).is_ok_and(|letter| letter == "precious")
    });
    assert_eq!(letters.count(), 2);
}

// NEEDS: host
#[test]
fn root_says_whose_place_another_user_has_taken() {
    if skip::without_root() {
        return;
    }
    let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let [taken, linked] = [1, 2].map(|more| above.path().join(format!("rtscope-{}", HOSTILE + more)));
    DirBuilder::new().mode(0o700).create(&taken).expect("a directory of the test");
    std::os::unix::fs::chown(&taken, Some(HOSTILE), Some(HOSTILE)).expect("root may");
    symlink("/etc", &linked).expect("a link of the test");
    let mut programs =
        Programs::recording(above.path(), Settings::default()).expect("nobody else records here");
    programs.poll(&mut rtscope_programs::collector::DiscardingSink).expect("it looks");
    let refusals = programs.refusals();
    let found: Vec<_> = refusals.iter().map(|refusal| (refusal.user, refusal.cause)).collect();
    let expected = [1, 2].map(|more| (Some(HOSTILE + more), Cause::PlaceTaken));
    assert_eq!(found, expected, "{refusals:?}");
}

// NEEDS: host
#[test]
fn root_gives_no_file_away_that_it_has_not_made() {
    if skip::without_root() {
        return;
    }
    let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let own = above.path().join("rtscope-0");
    let directory = above.path().join(format!("rtscope-{HOSTILE}"));
    for (path, user) in [(&own, 0), (&directory, HOSTILE)] {
        DirBuilder::new().mode(0o700).create(path).expect("a directory of the test");
        std::os::unix::fs::chown(path, Some(user), Some(user)).expect("root may");
    }
    // One of root, which the user could move: it was in a directory of his.
    let moved = directory.join("collector");
    fs::write(&moved, "precious").expect("ours");
    let mut programs =
        Programs::recording(above.path(), Settings::default()).expect("nobody else records here");
    programs.poll(&mut rtscope_programs::collector::DiscardingSink).expect("it looks");
    assert!(programs.refused.iter().any(|why| why.contains("4711")), "{:?}", programs.refused);
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&moved).expect("it is there"));
    assert_eq!((owner, fs::read_to_string(&moved).expect("ours").as_str()), (0, "precious"));
}

/// Bytes of a file system that are taken.
fn used_bytes(path: impl AsRef<Path>) -> u64 {
    let status = nix::sys::statvfs::statvfs(path.as_ref()).expect("it is mounted");
    (status.blocks() - status.blocks_free()) * status.fragment_size()
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("this process has it");
    status.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") * 4096
}

// NEEDS: host
#[test]
fn root_records_while_somebody_takes_its_places_again_and_again() {
    if skip::without_root() {
        return;
    }
    for name in ["rtscope-0", "rtscope-session"] {
        let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
        fs::set_permissions(above.path(), fs::Permissions::from_mode(0o1777)).expect("it is ours");
        let (place, stop) = (above.path().join(name), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Of this thread only.
                nix::unistd::setfsuid(Uid::from_raw(HOSTILE));
                // ORDER: relaxed; a flag that stands for itself.
                for turn in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let _ = fs::create_dir(&place);
                    // Or he gives it up again, so that it is there at one moment and not at the next.
                    if turn % 1024 < 512 {
                        let _ = fs::remove_dir(&place);
                    }
                }
            });
            let failed: Vec<_> = (0..100)
                .filter_map(|_| {
                    let _ = fs::remove_dir_all(&place);
                    Programs::recording(above.path(), Settings::default()).err()
                })
                .collect();
            // ORDER: as above.
            stop.store(true, Ordering::Relaxed);
            assert!(failed.is_empty(), "{name}: {failed:?}");
        });
    }
}

// NEEDS: host
#[test]
fn root_a_process_that_does_not_answer_delays_nobody_and_is_reported() {
    if skip::without_root() {
        return;
    }
    let held = match HeldExec::start(HOSTILE) {
        Ok(held) if held.keeps_readers_waiting() => held,
        Ok(_) => skip!("this kernel tells of a process in execve(2) what it is"),
        Err(error) => skip!("no process is held in execve(2) here: {error}"),
    };
    let pid = held.pid();
    // Files of no program, which name it.
    let refusals = attack("a process that is held in execve", nothing, move |attacker| {
        attacker.file(&format!("r{pid}-f0000000000-{pid}-0"), &[]);
        attacker.file(&format!("p{pid}-f0000000001-0"), &[]);
    });
    assert!(held.keeps_readers_waiting(), "it was held all the time");
    assert_eq!(refused(&refusals, Cause::NoAnswer), 1, "{refusals:?}");
}
