// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker `lock`, judged by a program that knows for how long a lock of the kernel is held, and by whom.

use super::truth::Truth;
use crate::command::CProgram;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use rtscope_event::{LateResponse, LockAccess, LockKind, Step, StepKind, Tracker};
use rtscope_testkit::machine::{self, Cpus};
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Two readings of one clock.
const STAMPS_NS: u64 = 5_000;
/// From the clock's reading to the lock: an interrupt may come there.
const SLACK_NS: u64 = 300_000;
const LIMIT_NS: u64 = 400_000;
const ROUNDS: usize = 200;

/// A wait as its program saw it.
#[derive(Debug)]
struct Wait {
    before_ns: u64,
    released_ns: u64,
    after_ns: u64,
}

fn account(text: &str) -> (u32, Vec<Wait>) {
    let mut lines = text.lines();
    let holder = lines.next().and_then(|line| line.parse().ok()).expect("a thread's number");
    let wait = |line: &str| {
        let times: Vec<u64> = line.split(' ').map(|time| time.parse().expect("a time")).collect();
        let [before_ns, released_ns, after_ns] = times[..] else { panic!("{line}") };
        Wait { before_ns, released_ns, after_ns }
    };
    (holder, lines.map(wait).collect())
}

/// Between what the program knows before and after it: the lock was not free before it was released.
fn is_of(late: &LateResponse, wait: &Wait) -> bool {
    late.chain.origin.time_ns.0 + STAMPS_NS >= wait.before_ns
        && late.end_ns.0 + STAMPS_NS >= wait.released_ns
        && late.end_ns.0 <= wait.after_ns + STAMPS_NS
}

fn check(late: &LateResponse, wait: &Wait, holder: u32) {
    let lock = late.lock.as_deref().expect("of this tracker");
    let kind = if machine::is_preempt_rt() { LockKind::RtMutex } else { LockKind::Mutex };
    assert_eq!((lock.kind, lock.result, lock.call.as_deref()), (kind, Some(0), Some("write")), "{late:?}");
    assert!(lock.callers[0].contains("pipe_write+0x"), "{late:?}");
    if !machine::is_emulated() {
        assert!(late.chain.origin.time_ns.0 < wait.before_ns + SLACK_NS, "{wait:?} {late:?}");
    }
    let waits = late.chain.steps.iter().filter(|step| step.kind == StepKind::Wait);
    let longest: &Step = waits.max_by_key(|step| step.duration_ns).expect("it waited");
    assert_eq!(longest.id, holder, "{late:?}");
}

// NEEDS: host
#[test]
fn root_long_waits_for_a_lock_are_those_that_the_program_knows_of() {
    let Some(program) = CProgram::build("locks") else { return };
    let Some(_cpus) = Cpus::for_watching() else { return };

    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.args(["watch", "lock", "--json", "--task", "waiter", "--threshold", "400us"]);
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let cpu = (std::thread::available_parallelism().expect("a number").get() - 1).to_string();
    let output = Command::new(program.path()).args([cpu, ROUNDS.to_string()]).output().expect("it is built");
    if output.status.code() == Some(3) {
        return skip::say("no userfaultfd here");
    }
    assert!(output.status.success(), "{output:?}");
    let (holder, waits) = account(&String::from_utf8_lossy(&output.stdout));
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own types");
    let hidden = said.hidden_switches();
    println!("{} waits, {} found, {hidden} switches hidden", waits.len(), late.len());

    // The program may have come too late to wait for long.
    let is_long = |wait: &&Wait| wait.released_ns > wait.before_ns + LIMIT_NS + SLACK_NS;
    let long: Vec<&Wait> = waits.iter().filter(is_long).collect();
    assert!(long.len() > ROUNDS / 2, "{} long ones: {waits:?}", long.len());
    let not_found = long.iter().filter(|wait| !late.iter().any(|late| is_of(late, wait))).count();
    let invented = late.iter().filter(|late| !waits.iter().any(|wait| is_of(late, wait))).count();
    let truth = Truth { injected: long.len(), found: long.len() - not_found, invented, hidden };
    truth.tell(Tracker::Lock, "a pipe's mutex, held by userfaultfd");
    assert!(not_found as u64 <= hidden, "{not_found} of {} not found, {hidden} hidden", long.len());
    let mut unknown = 0;
    for late in &late {
        assert_eq!(late.tracker, Tracker::Lock, "{late:?}");
        assert!(late.response_ns() > LIMIT_NS, "{late:?}");
        let wait = waits.iter().find(|wait| is_of(late, wait)).unwrap_or_else(|| panic!("{late:?}"));
        // Of one in which a switch was hidden, it is not known who ended it.
        if late
            .chain
            .steps
            .iter()
            .any(|step| step.kind == StepKind::HiddenSwitch || step.kind == StepKind::Wait && step.id == 0)
        {
            unknown += 1;
            continue;
        }
        check(late, wait, holder);
    }
    assert!(unknown <= hidden, "{unknown} with a hidden switch, {hidden} hidden");
}

/// Two threads write into one file, whose lock the first holds for a while each time; on one CPU, so that the other does not spin for it. Returns
/// their numbers.
fn contend() -> [u32; 2] {
    const LARGE: usize = 8 << 20;
    let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    let over = AtomicBool::new(false);
    let stay = || {
        let last = std::thread::available_parallelism().expect("a number").get() - 1;
        let mut cpus = CpuSet::new();
        cpus.set(last).expect("it is there");
        sched_setaffinity(Pid::from_raw(0), &cpus).expect("it may");
        gettid().as_raw().unsigned_abs()
    };
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let (tid, content) = (stay(), vec![1; LARGE]);
            // ORDER: relaxed; nothing is read because of it.
            while !over.load(Ordering::Relaxed) {
                file.write_all_at(&content, 0).expect("there is memory");
            }
            tid
        });
        let waiter = scope.spawn(|| {
            let tid = stay();
            for _ in 0..100 {
                std::thread::sleep(Duration::from_millis(3));
                file.write_all_at(&[2], 0).expect("there is memory");
            }
            // ORDER: relaxed; see above.
            over.store(true, Ordering::Relaxed);
            tid
        });
        [holder.join().expect("it writes"), waiter.join().expect("it writes")]
    })
}

// NEEDS: one kernel
#[test]
fn root_a_wait_for_a_files_lock_says_which_lock_who_wanted_it_and_who_had_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.args(["watch", "lock", "--json", "--threshold", "10us", "--pid", &std::process::id().to_string()]);
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let [holder, waiter] = contend();
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own types");
    let is_it = |late: &&LateResponse| {
        let lock = late.lock.as_deref().expect("of this tracker");
        late.tid.0 == waiter && lock.call.as_deref() == Some("pwrite64")
    };
    let waits: Vec<&LateResponse> = late.iter().filter(is_it).collect();
    said.of_type("late").first().into_iter().for_each(|line| crate::json::assert_documented(line));
    println!("{} waits of the one, {} of all", waits.len(), late.len());
    assert!(waits.len() > 20, "{late:?}");
    // With PREEMPT_RT the wait is for the mutex within, which has no readers.
    let (kind, access) = match machine::is_preempt_rt() {
        true => (LockKind::RtMutex, None),
        false => (LockKind::Rwsem, Some(LockAccess::Write)),
    };
    let mut by_holder = 0;
    for late in &waits {
        let lock = late.lock.as_deref().expect("of this tracker");
        assert_eq!((lock.kind, lock.access, lock.result), (kind, access, Some(0)), "{late:?}");
        assert!(lock.callers.iter().any(|place| place.contains("file_write_iter+0x")), "{late:?}");
        let mut waits = late.chain.steps.iter().filter(|step| step.kind == StepKind::Wait);
        by_holder += usize::from(waits.next_back().is_some_and(|step| step.id == holder));
    }
    assert!(by_holder * 2 > waits.len(), "{by_holder} of {}", waits.len());
}
