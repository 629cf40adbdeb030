// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue between processes, with include/rtscope/queue.h on the other side (tests/peer.c): nothing is lost, doubled, out of
//! order or uncounted, whichever side is killed, and a side that writes false positions is found out.

use bytemuck::{AnyBitPattern, NoUninit};
use rtscope_queue::{Consumer, Error, Producer};
use rtscope_testkit::skip;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// `struct element` of peer.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AnyBitPattern, NoUninit)]
#[repr(C)]
pub(crate) struct Element {
    number: u64,
    check: u32,
    zero: u32,
}

pub(crate) fn element(number: u64) -> Element {
    Element { number, check: (number as u32).wrapping_mul(2_654_435_761), zero: 0 }
}

/// The program of peer.c, compiled.
pub(crate) struct Peer {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Peer {
    /// `None`, and the test is reported as skipped, without a compiler.
    pub(crate) fn compile() -> Option<Peer> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("peer");
        let mut command = Command::new("cc");
        command.args(["-O2", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        // Undefined behaviour ends the program; this way it needs no library.
        command.args(["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-I"]);
        let output =
            command.arg(here.join("../../include")).arg(here.join("tests/peer.c")).arg("-o").arg(&program);
        let Ok(output) = output.output() else {
            skip::say("there is no C compiler here");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Peer { directory, program })
    }

    fn command(&self, mode: &str, descriptor: &OwnedFd, count: u64) -> Command {
        let mut command = Command::new(&self.program);
        command.args([mode, &inherited(descriptor).to_string(), &count.to_string()]).stdout(Stdio::piped());
        command
    }

    /// How many system calls it makes. `None`, and the test is reported as skipped, without strace.
    fn calls(&self, mode: &str, descriptor: &OwnedFd, count: &str) -> Option<u64> {
        if skip::without_tool("strace") {
            return None;
        }
        let log = self.directory.path().join("strace");
        let mut command = Command::new("strace");
        command.args(["-c", "-o"]).arg(&log).arg(&self.program);
        command.args([mode, &inherited(descriptor).to_string(), count]).stdout(Stdio::null());
        let status = command.status().expect("strace is installed");
        assert!(status.success(), "{status}");
        let table = std::fs::read_to_string(&log).expect("strace's table");
        table.lines().find(|line| line.ends_with("total"))?.split_whitespace().nth(3)?.parse().ok()
    }

    pub(crate) fn start(&self, mode: &str, descriptor: &OwnedFd, count: u64) -> Child {
        self.command(mode, descriptor, count).spawn().expect("it was just made")
    }
}

/// Its number; it stays open in children.
fn inherited(descriptor: &OwnedFd) -> i32 {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
    descriptor.as_raw_fd()
}

#[track_caller]
pub(crate) fn succeeded(child: Child) -> String {
    let output = child.wait_with_output().expect("it was started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn c_pops_what_rust_pushes() {
    const COUNT: u64 = 300_000;
    let Some(peer) = Peer::compile() else { return };
    let (mut producer, descriptor) = Producer::<Element>::create(256).expect("it can be made");
    let child = peer.start("consume", &descriptor, COUNT);
    let mut number = 0;
    while number < COUNT {
        let batch: Vec<Element> = (number..COUNT.min(number + 40)).map(element).collect();
        let done = producer.push_some(&batch) as u64;
        number += done;
        if done == 0 {
            std::thread::yield_now();
        }
    }
    println!("{}", succeeded(child));
    let counters = producer.counters();
    assert_eq!((counters.pushed, counters.length, counters.lost), (COUNT, 0, 0));
    assert!(counters.high_water <= 256 && !counters.is_broken);
}

#[test]
fn rust_pops_what_c_pushes_and_is_woken() {
    const COUNT: u64 = 300_000;
    let Some(peer) = Peer::compile() else { return };
    let flags = nix::sys::eventfd::EfdFlags::EFD_NONBLOCK;
    for mode in ["produce", "batches"] {
        let (mut consumer, descriptor) = Consumer::<Element>::create(128).expect("it can be made");
        let event = nix::sys::eventfd::EventFd::from_value_and_flags(0, flags).expect("it can be made");
        let event: OwnedFd = event.into();
        let mut command = peer.command(mode, &descriptor, COUNT);
        let child = command.arg(inherited(&event).to_string()).spawn().expect("it was just made");
        let (mut next, mut popped) = (0, Vec::new());
        while next < COUNT {
            assert!(
                consumer.wait(Some(event.as_fd()), Some(Duration::from_secs(20)), Duration::MAX),
                "at {next}"
            );
            popped.clear();
            consumer.pop_some(&mut popped, 100);
            for found in &popped {
                assert_eq!(*found, element(next));
                next += 1;
            }
        }
        succeeded(child);
        assert!(!consumer.wait(Some(event.as_fd()), Some(Duration::from_millis(1)), Duration::MAX));
    }
}

#[test]
fn what_finds_no_room_is_counted() {
    const COUNT: u64 = 200_000;
    let Some(peer) = Peer::compile() else { return };
    let (mut consumer, descriptor) = Consumer::<Element>::create(64).expect("it can be made");
    let mut child = peer.start("flood", &descriptor, COUNT);
    let (mut popped, mut last) = (0, None);
    loop {
        let over = child.try_wait().expect("it was started").is_some();
        while let Some(found) = consumer.pop() {
            assert_eq!(found, element(found.number));
            assert!(last.is_none_or(|last| found.number > last), "{found:?} after {last:?}");
            last = Some(found.number);
            popped += 1;
        }
        if over {
            break;
        }
    }
    let counters = consumer.counters();
    println!("popped {popped}, lost {}, high water {}", counters.lost, counters.high_water);
    assert_eq!(succeeded(child), format!("lost {}\n", counters.lost));
    assert_eq!(popped + counters.lost, COUNT);
    assert!(counters.lost > 0 && counters.high_water == 64 && !counters.is_broken, "{counters:?}");
}

#[test]
fn a_side_that_was_killed_is_followed_by_another() {
    let Some(peer) = Peer::compile() else { return };
    let (mut consumer, descriptor) = Consumer::<Element>::create(32).expect("it can be made");
    let mut popped = 0;
    for _ in 0..5 {
        let mut child = peer.start("produce", &descriptor, u64::MAX);
        let mut next = None;
        for _ in 0..2000 {
            assert!(consumer.wait(None, Some(Duration::from_secs(20)), Duration::from_micros(100)));
            let found = consumer.pop().expect("there is one");
            // What the one before left, then what this one pushes from 0 on.
            assert!(next.is_none_or(|next| found.number == next || found.number == 0), "{found:?} {next:?}");
            assert_eq!(found, element(found.number));
            next = Some(found.number + 1);
            popped += 1;
        }
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
    while consumer.pop().is_some() {
        popped += 1;
    }
    assert_eq!((consumer.counters().pushed, consumer.counters().length), (popped, 0));
}

#[test]
fn a_real_time_producer_makes_no_system_call() {
    let Some(peer) = Peer::compile() else { return };
    let (_consumer, descriptor) = Consumer::<Element>::create(1024).expect("it can be made");
    let calls = |count: &str| peer.calls("flood", &descriptor, count);
    let Some(few) = calls("1") else { return };
    assert_eq!(Some(few), calls("1000000"));
}

#[test]
fn whoever_lies_is_found_out() {
    let (mut consumer, descriptor) = Consumer::<Element>::create(8).expect("it can be made");
    let file = File::from(descriptor);
    let again = || file.try_clone().expect("it is open");
    let write =
        |offset: u64, value: u64| file.write_all_at(&value.to_ne_bytes(), offset).expect("it is ours");
    let mut producer = Producer::<Element>::open(again()).expect("it is a queue");
    assert!(producer.push(&element(7)));
    // The tail, beyond what fits.
    write(128, 100);
    assert_eq!(consumer.pop(), None);
    assert!(consumer.counters().is_broken && consumer.counters().length <= 8);
    assert!(!consumer.wait(None, None, Duration::from_micros(1)), "it does not wait for ever");
    // The head, before what was pushed.
    write(256, 50);
    (0..10).for_each(|number| _ = producer.push(&element(number)));
    let pushed = producer.counters().pushed;
    assert!(!producer.push(&element(0)) && producer.counters().pushed == pushed, "nothing more");
    assert!(producer.counters().is_broken);
    assert!(matches!(Producer::<Element>::open(again()), Err(Error::NoQueue(_))));
    write(128, 0);
    write(256, 0);
    assert!(matches!(Producer::<u64>::open(again()), Err(Error::Elements { found: 16, wanted: 8 })));
    for (offset, value) in [(16, 7), (16, 1 << 40), (16, 0), (8, 2), (0, 1)] {
        let mut before = [0; 8];
        file.read_exact_at(&mut before, offset).expect("it is ours");
        write(offset, value);
        assert!(Consumer::<Element>::open(again()).is_err(), "{value} at {offset}");
        write(offset, u64::from_ne_bytes(before));
    }
    assert!(Consumer::<Element>::open(again()).is_ok());
    // It can neither shrink nor grow.
    assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
    assert!(matches!(Producer::<Element>::create(3), Err(Error::Impossible { .. })));
}

#[test]
fn who_waits_for_what_cannot_be_waited_for_sleeps_nevertheless() {
    let Some(peer) = Peer::compile() else { return };
    let make = || Producer::<Element>::create(8).expect("it can be made").1;
    let descriptor = make();
    succeeded(peer.start("wait", &descriptor, 0));
    let mut consumer = Consumer::<Element>::open(descriptor.into()).expect("it is a queue");
    assert_eq!(consumer.pop(), Some(element(7)));
    assert!(!consumer.wait(None, Some(Duration::from_millis(1)), Duration::ZERO));
    let descriptor = make();
    if let Some(calls) = peer.calls("wait", &descriptor, "0") {
        assert!(calls < 1500, "{calls} system calls in some 50 ms");
    }
}

#[test]
fn whoever_reads_the_eventfd_away_delays_but_holds_up_nobody() {
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use std::sync::atomic::{AtomicBool, Ordering};
    const ELEMENTS: u64 = 5;
    let Some(peer) = Peer::compile() else {
        return;
    };
    let event = EventFd::from_flags(EfdFlags::empty()).expect("it can be made");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Reads it whenever it can; of two readers that see a count only one gets it.
        scope.spawn(|| {
            use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
            while !over.load(Ordering::Relaxed) {
                let mut descriptors = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
                if poll(&mut descriptors, PollTimeout::from(1_u8)).is_ok_and(|ready| ready > 0) {
                    let mut count = 0_u64;
                    let into = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
                    // SAFETY: the kernel writes into the eight bytes of `count` and keeps no pointer.
                    unsafe {
                        libc::preadv2(event.as_fd().as_raw_fd(), &raw const into, 1, -1, libc::RWF_NOWAIT)
                    };
                }
            }
        });
        // Either kind of consumer gets all elements, though it may never have been woken for them.
        let (mut producer, descriptor) = Producer::<Element>::create(8).expect("it can be made");
        let mut consumer = Consumer::<Element>::open(descriptor.into()).expect("it is a queue");
        let sleeper = scope.spawn({
            let event = event.as_fd();
            move || {
                (0..ELEMENTS).all(|number| {
                    consumer.wait(Some(event), None, Duration::MAX) && consumer.pop() == Some(element(number))
                })
            }
        });
        feed(&mut producer, ELEMENTS, &event, || sleeper.is_finished());
        assert!(sleeper.join().expect("it ends"));
        let (mut producer, descriptor) = Producer::<Element>::create(8).expect("it can be made");
        let mut command = peer.command("sleep", &descriptor, ELEMENTS);
        let event_fd = event.as_fd().try_clone_to_owned().expect("a copy");
        let mut child = command.arg(inherited(&event_fd).to_string()).spawn().expect("it was just made");
        feed(&mut producer, ELEMENTS, &event, || child.try_wait().expect("its own").is_some());
        succeeded(child);
        over.store(true, Ordering::Relaxed);
    });
}

/// CPU time of this thread.
fn own_cpu_time() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    Duration::from(now.expect("each thread has this clock"))
}

#[test]
fn a_descriptor_that_is_always_ready_keeps_no_cpu_busy() {
    // Ready at any time, and nothing comes.
    let null = std::fs::File::open("/dev/null").expect("there");
    let (_producer, descriptor) = Producer::<Element>::create(8).expect("it can be made");
    let mut consumer = Consumer::<Element>::open(descriptor.into()).expect("it is a queue");
    let (wall, cpu) = (std::time::Instant::now(), own_cpu_time());
    let timeout = Some(Duration::from_millis(300));
    assert!(!consumer.wait(Some(null.as_fd()), timeout, Duration::from_millis(10)));
    let (wall, cpu) = (wall.elapsed(), own_cpu_time() - cpu);
    assert!(wall >= Duration::from_millis(300) && cpu < wall / 3, "{cpu:?} of {wall:?}");
}

/// Pushes this many elements, each after the one before was popped; wakes for every second one only. Returns when `is_over`.
fn feed(producer: &mut Producer<Element>, count: u64, event: impl AsFd, mut is_over: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let mut next = 0;
    while !is_over() {
        assert!(std::time::Instant::now() < end, "the consumer sleeps for ever at {next}");
        if next < count && producer.counters().length == 0 {
            assert!(producer.push(&element(next)));
            if next % 2 == 0 {
                producer.wake(&event);
            }
            next += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_that_could_shrink_and_numbers_that_were_written_over_do_no_harm() {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let queue = File::from(Producer::<Element>::create(2).expect("it can be made").1);
    let mut bytes = vec![0; 384 + 2 * 16];
    queue.read_exact_at(&mut bytes, 0).expect("it is ours");
    // The same bytes in a file that any process could cut.
    let copy = File::from(memfd_create(c"copy", MFdFlags::empty()).expect("it can be made"));
    copy.write_all_at(&bytes, 0).expect("it is ours");
    assert!(matches!(Consumer::<Element>::open(copy), Err(Error::NoQueue("it could shrink"))));
    // A count of losses that has no next number.
    queue.write_all_at(&u64::MAX.to_ne_bytes(), 136).expect("it is ours");
    let mut producer = Producer::<Element>::open(queue).expect("it is a queue");
    assert!(producer.push(&element(0)) && producer.push(&element(1)) && !producer.push(&element(2)));
    assert_eq!(producer.counters().lost, 0);
}

/// A sealed file of this many bytes, with a header for such a queue of elements of 16 bytes; nothing else is written.
pub(crate) fn sparse(bytes: u64, capacity: u64) -> File {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
    let file = File::from(memfd_create(c"liar", flags).expect("it can be made"));
    let honest = File::from(Producer::<Element>::create(2).expect("it can be made").1);
    let mut header = vec![0; 384];
    honest.read_exact_at(&mut header, 0).expect("it is ours");
    header[16..24].copy_from_slice(&capacity.to_ne_bytes());
    file.set_len(bytes).expect("a file with a hole");
    file.write_all_at(&header, 0).expect("it is ours");
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("it can be sealed");
    file
}

/// Bytes of memory that a file has.
pub(crate) fn memory_of(file: &File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    file.metadata().expect("it is open").blocks() * 512
}

#[test]
fn whoever_opens_a_queue_pays_for_no_memory_that_its_maker_has_not_used() {
    const HUGE: u64 = 256 << 20;
    const PAGE: u64 = 4096;
    let Some(peer) = Peer::compile() else { return };
    // The header asks for little of a large file, or for all of it, or for more.
    for (capacity, is_queue) in [(2, true), (1 << 24, false), (1 << 32, false), (1 << 63, false)] {
        let file = sparse(HUGE + 384, capacity);
        let opened = Consumer::<Element>::open(file.try_clone().expect("it is open"));
        assert_eq!(opened.is_ok(), is_queue, "{capacity}: {opened:?}");
        drop(opened);
        let descriptor: OwnedFd = file.try_clone().expect("it is open").into();
        let output = peer.start("batches", &descriptor, 2).wait_with_output().expect("it was started");
        assert_eq!(output.status.success(), is_queue, "{capacity}: {output:?}");
        assert!(memory_of(&file) <= PAGE, "{capacity}: {} bytes", memory_of(&file));
    }
    // What its maker has used is mapped, and no more than that.
    let file = sparse(HUGE, 512);
    file.write_all_at(&[0; 512 * 16], 384).expect("it is ours");
    let before = memory_of(&file);
    assert!(Consumer::<Element>::open(file.try_clone().expect("it is open")).is_ok());
    assert_eq!(memory_of(&file), before);
}
