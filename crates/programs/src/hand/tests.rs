// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, pipe, read, write};
use rtscope_testkit::skip;
use std::sync::mpsc::channel;

fn directory(base: &std::path::Path, name: &str) -> UserDirectory {
    let above = base.join(name);
    std::fs::create_dir(&above).unwrap();
    UserDirectory::make(&above).unwrap()
}

/// Has a hand wait in its work for this time, as for a directory that is held. Returns whether it was asked, and how long that took.
fn hold(hand: &Hand, time: Duration) -> (bool, Duration) {
    let (reader, writer) = pipe().unwrap();
    // It writes the names into what is full.
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while write(&writer, &[0; 4096]).is_ok() {}
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let (over, is_over) = channel::<()>();
    let begun = Instant::now();
    let reads = std::thread::spawn(move || {
        let _ = is_over.recv_timeout(time);
        while read(&reader, &mut [0; 65536]).is_ok_and(|got| got == 65536) {}
        // Until whoever waits has written.
        let _ = is_over.recv_timeout(Duration::from_secs(10));
    });
    let is_held = |error: io::Error| error.raw_os_error() == Some(libc::ETIMEDOUT);
    let done = hand.call(Request::new(Work::List, "", 1), &[writer.as_raw_fd()], ANSWER);
    let took = begun.elapsed();
    drop((over, writer));
    reads.join().unwrap();
    (!done.is_err_and(is_held), took)
}

#[test]
fn short_waits_for_a_user_are_charged_to_him_and_to_nobody_else() {
    let base = tempfile::tempdir().unwrap();
    let hands = Hands::new().unwrap();
    let [first, second, third, others] =
        ["first", "second", "third", "others"].map(|name| directory(base.path(), name));
    let (holder, other) = ((7, 0), (8, 0));
    let hand = hands.hand(holder, At::of(&first)).unwrap();
    let another = hands.hand(holder, At::of(&second)).unwrap();
    let of_other = hands.hand(other, At::of(&others)).unwrap();
    // What takes time and waits for nobody costs nothing, also on a busy machine.
    for _ in 0..2000 {
        assert!(hand.names(100).is_ok());
    }
    assert!(!hand.waits.are_used_up(Instant::now()));
    let (begun, mut waited, mut asked) = (Instant::now(), Duration::ZERO, 0);
    while begun.elapsed() < Duration::from_secs(1) {
        let (is_asked, took) = hold(&hand, Duration::from_millis(30));
        waited += took;
        asked += u32::from(is_asked);
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{asked} times, {waited:?}");
    assert!((3..=5).contains(&asked), "{asked} times, {waited:?}");
    // Nor is another directory of his asked, or a new one.
    assert!(another.names(100).is_err() && hands.hand(holder, At::of(&third)).is_err());
    assert!(of_other.names(100).is_ok());
    // It is his, also when none of his directories is there any more.
    drop((hand, another));
    assert!(hands.hand(other, At::of(&others)).is_ok() && hands.hand(holder, At::of(&third)).is_err());
}

#[test]
fn a_hand_that_got_no_processor_is_not_charged_to_its_user() {
    let base = tempfile::tempdir().unwrap();
    let hands = Hands::new().unwrap();
    let hand = hands.hand((7, 0), At::of(&directory(base.path(), "first"))).unwrap();
    let mut state = hand.state();
    // As if an answer had been awaited twice as long as is allowed.
    (state.is_behind, state.charged) = (true, 2 * WAITED_MAX);
    hand.waits.charge(Instant::now(), state.charged);
    assert!(hand.waits.are_used_up(Instant::now()));
    state.asked = 1;
    let mut request = Request::new(Work::Answer, "", 0);
    request.answer = 1;
    send(hand.socket.as_raw_fd(), &request, &[]).unwrap();
    assert!(hand.answer(&mut state, Duration::from_secs(10)).unwrap().is_none());
    drop(state);
    assert!(!hand.waits.are_used_up(Instant::now()) && hand.names(100).is_ok());
}

#[test]
fn nothing_is_left_of_a_recorder_that_is_dropped() {
    let base = tempfile::tempdir().unwrap();
    let directory = directory(base.path(), "first");
    for _ in 0..3 {
        let hands = Hands::new().unwrap();
        assert!(hands.hand((7, 0), At::of(&directory)).unwrap().names(10).is_ok());
        let process = hands.starter.process.as_ref().expect("this kernel has descriptors of processes");
        let known = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
        let pid = known.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().to_owned();
        assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "rtscope-hand\n");
        drop(hands);
        assert!(!std::path::Path::new("/proc").join(&pid).exists(), "{pid}");
    }
}

// NEEDS: host
#[test]
fn root_a_hand_that_gets_no_processor_is_no_directory_that_is_held() {
    let cpus = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| cpus.is_set(*cpu).unwrap()).collect();
    let (true, [here, there, ..]) = (nix::unistd::geteuid().is_root(), cpus.as_slice()) else {
        skip!("it needs root and two CPUs");
    };
    let base = tempfile::tempdir().unwrap();
    let hands = Hands::new().unwrap();
    let hand = hands.hand((7, 0), At::of(&directory(base.path(), "first"))).unwrap();
    assert!(hand.names(100).is_ok());
    let process = hand.state().process.expect("it has begun");
    let only = |cpu: usize| {
        let mut cpus = CpuSet::new();
        cpus.set(cpu).unwrap();
        cpus
    };
    sched_setaffinity(Pid::from_raw(process), &only(*there)).unwrap();
    sched_setaffinity(Pid::from_raw(0), &only(*here)).unwrap();
    let (begun, has_begun) = channel();
    let only_there = only(*there);
    let hog = std::thread::spawn(move || {
        sched_setaffinity(Pid::from_raw(0), &only_there).unwrap();
        let first = libc::sched_param { sched_priority: 1 };
        // SAFETY: a system call that reads a structure which lives here.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) }, 0);
        begun.send(()).unwrap();
        let until = Instant::now() + 3 * ANSWER;
        while Instant::now() < until {}
    });
    has_begun.recv().unwrap();
    let asked = Instant::now();
    assert!(hand.names(100).is_ok());
    // It was not its turn for longer than a hand may wait for a user.
    assert!(asked.elapsed() > 2 * ANSWER, "{:?}", asked.elapsed());
    hog.join().unwrap();
    assert!(!hand.waits.are_used_up(Instant::now()));
}
