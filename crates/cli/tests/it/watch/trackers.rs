// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trackers `wakeup` and `offcpu`, judged by a program that reads the clock itself before and after each of its sleeps.

use super::truth::Truth;
use crate::command::CProgram;
use rtscope_event::{End, LateResponse, OriginKind, StepKind, Tracker};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::sched;
use rtscope_testkit::time::now_ns;
use rtscope_testkit::watch::Rtscope;
use std::collections::BTreeMap;
use std::process::Command;

const WAKEUP_LIMIT_NS: u64 = 1_000_000;
const OFFCPU_LIMIT_NS: u64 = 4_000_000;
/// From the set time until the interrupt has come and woken; from the switch until the program has read its clock.
const SLACK_NS: u64 = 500_000;
/// The clock is read before the switch, and after it, and two CPUs' clocks are one.
const STAMPS_NS: u64 = 5_000;
const ROUNDS: &str = "400";
/// Threads that sleep so long hardly do anything else.
const SLEEP_NS: u64 = 50_000_000;

/// Before, due and after, of each sleep.
type Sleep = [u64; 3];

fn sleeps(text: &str) -> Vec<Sleep> {
    let line = |line: &str| -> Sleep {
        let numbers: Vec<u64> = line.split(' ').map(|text| text.parse().expect("a number")).collect();
        numbers.try_into().expect("three of them")
    };
    text.lines().map(line).collect()
}

fn is_inside(late: &LateResponse, from_ns: u64, until_ns: u64) -> bool {
    late.chain.origin.time_ns.0 + STAMPS_NS >= from_ns && late.end_ns.0 <= until_ns + STAMPS_NS
}

/// Sleeps beyond the limit, by the program's own clock, and those of them that were reported.
fn found(sleeps: &[Sleep], late: &[&LateResponse], from: usize, limit_ns: u64) -> (usize, usize) {
    let is_long = |sleep: &&Sleep| sleep[2] - sleep[from] > limit_ns + SLACK_NS;
    let is_found = |sleep: &&Sleep| late.iter().any(|late| is_inside(late, sleep[from], sleep[2]));
    (sleeps.iter().filter(is_long).count(), sleeps.iter().filter(is_long).filter(is_found).count())
}

/// Those that are within no sleep.
fn invented(sleeps: &[Sleep], late: &[&LateResponse], from: usize) -> usize {
    let is_known = |late: &&&LateResponse| sleeps.iter().any(|sleep| is_inside(late, sleep[from], sleep[2]));
    late.len() - late.iter().filter(is_known).count()
}

// NEEDS: real time (an emulated machine takes longer than the slack for anything)
#[test]
fn root_delays_are_those_that_the_program_sees_itself() {
    let Some(program) = CProgram::build("delays") else { return };
    let Some(_cpus) = Cpus::for_watching() else { return };

    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.args([
        "watch",
        "offcpu",
        "--json",
        "--task",
        "sleeper",
        "--threshold",
        "4ms",
        "--and",
        "wakeup:1ms",
    ]);
    watch.args(["--duration", "60s"]);
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let cpu = (std::thread::available_parallelism().expect("a number").get() - 1).to_string();
    let output = Command::new(program.path()).args([cpu.as_str(), ROUNDS]).output().expect("it is built");
    assert!(output.status.success(), "{output:?}");
    let sleeps = sleeps(&String::from_utf8_lossy(&output.stdout));
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own types");
    let of = |tracker| -> Vec<&LateResponse> { late.iter().filter(|late| late.tracker == tracker).collect() };
    let (wakeups, offcpu) = (of(Tracker::Wakeup), of(Tracker::Offcpu));
    let summaries = said.of_type("summary");
    assert_eq!(summaries.len(), 2, "one for each tracker");
    let hidden = said.hidden_switches();
    println!(
        "{} sleeps, {} late wakeups, {} long times off the CPU, {hidden} switches hidden",
        sleeps.len(),
        wakeups.len(),
        offcpu.len()
    );
    assert!(wakeups.len() > 20 && offcpu.len() > 50, "hardly anything was delayed");

    // All found, but where the host hid a switch.
    let mut not_found = 0;
    let told = [
        (Tracker::Wakeup, &wakeups, 1, WAKEUP_LIMIT_NS, "a more urgent thread has the CPU"),
        (Tracker::Offcpu, &offcpu, 0, OFFCPU_LIMIT_NS, "sleeps, and the same"),
    ];
    for (tracker, late, from, limit_ns, fault) in told {
        let (injected, found) = found(&sleeps, late, from, limit_ns);
        not_found += injected - found;
        Truth { injected, found, invented: invented(&sleeps, late, from), hidden }.tell(tracker, fault);
    }
    assert!(not_found as u64 <= hidden, "{not_found} delays were not found, {hidden} switches hidden");
    // None invented: each is within one sleep, and beyond the limit; a timer has woken, and the disturber had the CPU.
    for late in &wakeups {
        let inside = sleeps.iter().any(|[_, due, after]| is_inside(late, *due, *after));
        assert!(inside && late.response_ns() > WAKEUP_LIMIT_NS, "{late:?}");
        assert_eq!(late.chain.origin.kind, OriginKind::Timer, "{late:?}");
    }
    for late in &offcpu {
        let inside = sleeps.iter().any(|[before, _, after]| is_inside(late, *before, *after));
        let preempted = late.chain.steps.iter().any(|step| step.kind == StepKind::Preempted);
        assert!((inside || preempted) && late.response_ns() > OFFCPU_LIMIT_NS, "{late:?}");
    }
}

/// Two threads of this process do the same; one of them is watched.
// NEEDS: one kernel
#[test]
fn root_a_thread_is_watched_by_its_number() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (send, tids) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let (send, is_over) = (send.clone(), &is_over);
            scope.spawn(move || {
                send.send(nix::unistd::gettid().as_raw().unsigned_abs()).expect("somebody waits for it");
                // ORDER: relaxed; a flag that stands for itself.
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            });
        }
        let wanted = tids.recv().expect("a thread");
        let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
        watch.args(["watch", "offcpu", "--json", "--threshold", "1ms", "--duration", "1s"]);
        watch.args(["--tid", &wanted.to_string()]);
        let said = Rtscope::start(watch).and_then(Rtscope::finish).expect("it ends");
        // ORDER: as above.
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let late = said.late().expect("of its own types");
        assert!(late.len() > 20, "{late:?}");
        assert!(late.iter().all(|late| late.tid.0 == wanted), "{late:?}");
        let start = &said.of_type("start")[0];
        assert_eq!(start["target"], format!("thread {wanted}"), "{start}");
    });
}

/// Three threads of this process do the same; each tracker has another one, and nobody has the third. Those that sleep longer mostly
/// sleep when the watch ends.
// NEEDS: one kernel
#[test]
fn root_each_tracker_has_targets_of_its_own() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (is_watched, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    // ORDER: relaxed, here and below; flags that stand for themselves.
    let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let names = ["e2e-mine", "e2e-theirs", "e2e-nobodys"];
        let (is_watched, is_over) = (&is_watched, &is_over);
        let mut sleepers = Vec::new();
        for (name, sleep_ms) in names.iter().flat_map(|name| [3, 70, 110].map(|sleep_ms| (*name, sleep_ms))) {
            let sleeps = move || {
                let mut begun_ns = Vec::new();
                while !is_set(is_over) {
                    begun_ns.push(now_ns());
                    // One of each name sleeps from some time in the watch until it is over.
                    match sleep_ms == 3 && is_set(is_watched) {
                        true => std::thread::park(),
                        false => std::thread::sleep(std::time::Duration::from_millis(sleep_ms)),
                    }
                }
                (sched::tid(), begun_ns)
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, sleeps);
            sleepers.push(thread.expect("a thread"));
        }
        let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
        watch.args(["watch", "offcpu", "--json", "--threshold", "1ms", "--duration", "1s"]);
        watch.args(["--task", "e2e-mine", "--and", "offcpu:1ms@e2e-their*", "--and", "wakeup:1h"]);
        let mut watch = Rtscope::start(watch).expect("it starts");
        let begun = watch.wait_for_type("start");
        is_watched.store(true, Ordering::Relaxed);
        let said = begun.and_then(|_| watch.finish());
        is_over.store(true, Ordering::Relaxed);
        sleepers.iter().for_each(|sleeper| sleeper.thread().unpark());
        let sleeps = sleepers.into_iter().map(|sleeper| sleeper.join().expect("no panic"));
        let begun_ns: BTreeMap<i32, Vec<u64>> = sleeps.collect();
        let said = said.expect("it ends");
        let late = said.late().expect("of its own types");
        for (instance, name) in [(0, "e2e-mine"), (1, "e2e-theirs")] {
            let mut own = late.iter().filter(|late| late.instance == instance).peekable();
            assert!(own.peek().is_some() && own.all(|late| late.comm.to_string() == name), "{late:?}");
        }
        // Who slept when the watch ended is pending; or it woke before the last snapshot was complete, and is reported as ended.
        let looked_ns = late.iter().filter(|late| late.end == End::Pending).map(|late| late.end_ns).max();
        let looked_ns = looked_ns.expect("who sleeps to the end is pending");
        for tid in late.iter().filter(|late| late.response_ns() > SLEEP_NS).map(|late| late.tid) {
            // Whoever has slept for less than the limit is not late yet.
            let own = &begun_ns[&i32::try_from(tid.0).expect("a thread's number")];
            let asleep_ns = own.iter().filter_map(|begun| looked_ns.0.checked_sub(*begun)).min();
            let is_told = |late: &LateResponse| late.tid == tid && late.end_ns >= looked_ns;
            let is_late = asleep_ns.is_some_and(|ns| ns > WAKEUP_LIMIT_NS);
            assert!(!is_late || late.iter().any(is_told), "{tid:?}, asleep for {asleep_ns:?} ns: {late:?}");
        }
        let start = &said.of_type("start")[0]["trackers"];
        let summaries = said.of_type("summary");
        for (instance, task) in [None, Some("e2e-their*"), None].into_iter().enumerate() {
            assert_eq!(start[instance]["task"].as_str(), task, "{start}");
            assert_eq!(summaries[instance]["task"].as_str(), task, "{summaries:?}");
            assert!(summaries[instance]["counters"]["seen"].as_u64().expect("a number") > 0, "{summaries:?}");
        }
    });
}
