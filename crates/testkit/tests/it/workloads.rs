// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workloads do what they report, by their own notes.

use std::process::Command;

use rtscope_testkit::count::{Counters, windows};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::notes::Burst;
use rtscope_testkit::process::{Workload, WorkloadOutput, program};
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::skip;
use serde_json::Value;

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number '{key}' in {value}"))
}

fn bursts(finished: &WorkloadOutput) -> Vec<Burst> {
    finished.lines.iter().filter_map(Burst::from_json).collect()
}

#[test]
fn the_victim_counts_every_turn() {
    let arguments = ["--policy", "other", "--duration", "300ms", "--period", "5ms", "--deadline", "1s"];
    let victim = Workload::start("rtscope-victim", arguments).expect("starts");
    let finished = victim.finish().expect("ends by itself");
    assert!(finished.status.success());
    let summary = finished.summary().expect("it prints one");
    let iterations = number(summary, "loops") + number(summary, "skipped");
    assert!((50..=70).contains(&iterations), "{summary}");
    assert_eq!(number(summary, "late"), 0);
    assert_eq!(number(summary, "near"), 0);
    assert!(number(summary, "min_ns") >= 100_000, "{summary}");
    assert!(number(summary, "max_ns") >= number(summary, "mean_ns"), "{summary}");
}

#[test]
fn a_victim_with_a_hog_above_it_is_late_root() {
    let allowed =
        std::thread::spawn(|| sched::set_policy(Policy::Fifo(1))).join().expect("it does not panic");
    if let Err(error) = allowed {
        skip!("{error:#}");
    }
    let hog = Workload::start("rtscope-hog", ["--burst", "3ms", "--every", "30ms"]).expect("starts");
    let victim = Workload::start("rtscope-victim", ["--duration", "500ms"]).expect("starts");
    let victim = victim.finish().expect("ends by itself");
    let bursts = bursts(&hog.stop().expect("stops when its input ends"));
    assert!(bursts.len() >= 15, "{bursts:?}");
    let late: Vec<&Value> = victim.all("late").collect();
    let summary = victim.summary().expect("it prints one");
    assert_eq!(late.len() as u64, number(summary, "late"));
    for near in victim.all("near") {
        let response = number(near, "done_ns") - number(near, "asked_ns");
        assert!((470_000..=500_000).contains(&response), "{near}");
    }
    assert_eq!(victim.all("near").count() as u64, number(summary, "near"));
    let by_hog = late.iter().filter(|l| {
        let (asked, done) = (number(l, "asked_ns"), number(l, "done_ns"));
        let share: u64 = bursts.iter().map(|b| b.overlap_ns(asked, done)).sum();
        share * 2 > done - asked
    });
    assert!(by_hog.count() >= 10, "{late:?}");
}

#[test]
fn the_flood_keeps_its_cpu() {
    let flood = Workload::start("rtscope-flood", ["--burst", "1ms", "--duration", "200ms"]).expect("starts");
    let finished = flood.finish().expect("ends by itself");
    let mut lengths: Vec<u64> = bursts(&finished).iter().map(|b| b.end_ns - b.start_ns).collect();
    lengths.sort_unstable();
    assert!(lengths.len() >= 5, "{lengths:?}");
    assert!(lengths[lengths.len() / 2] >= 250_000, "{lengths:?}");
}

#[test]
fn a_burst_starts_when_it_was_asked_to() {
    let start = rtscope_testkit::time::now_ns() + 200_000_000;
    let start_text = start.to_string();
    let arguments = ["--policy", "other", "--start-at", &start_text, "--duration", "300ms", "--every", "1s"];
    let finished = Workload::start("rtscope-hog", arguments).and_then(Workload::finish).expect("runs");
    let bursts = bursts(&finished);
    assert_eq!(bursts.len(), 1);
    assert!(bursts[0].start_ns >= start, "{bursts:?}");
}

#[test]
fn the_counter_counts() {
    let arguments = ["--every", "50us", "--duration", "100ms"];
    let finished = Workload::start("rtscope-counter", arguments).and_then(Workload::finish).expect("runs");
    let summary = finished.summary().expect("it prints one");
    assert!(number(summary, "last") > 100, "{summary}");
}

#[test]
fn threads_share_their_moments_and_end_early() {
    let arguments = ["--policy", "other", "--threads", "20", "--exit-after", "3", "--duration", "500ms"];
    let finished = Workload::start("rtscope-threads", arguments).and_then(Workload::finish).expect("runs");
    assert_eq!(number(finished.summary().expect("it prints one"), "responses"), 60);
    assert_eq!(finished.all("thread").count(), 20);
}

#[test]
fn wrong_options_are_errors_with_words() {
    for (name, arguments, words) in [
        ("rtscope-victim", ["--policy", "fifo:100"], "priority 1 to 99"),
        ("rtscope-victim", ["--period", "2"], "write it like 500us"),
        ("rtscope-hog", ["--burst", "1s"], "--every must be longer"),
        ("rtscope-hog", ["--cpu", "1000"], "is it online"),
    ] {
        let output = Command::new(program(name).expect("built")).args(arguments).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{name} {arguments:?}: {error}");
    }
}

// NEEDS: host
#[test]
fn root_the_oracle_counts_what_the_load_did_and_perf_counts_the_same() {
    let events = ["syscalls:sys_enter_getsid", "sched:sched_switch"];
    let Some(counters) = Counters::for_test(&events) else { return };
    let _cpus = Cpus::take().expect("the build directory can be written");
    // Hardly any program asks for the session that it is in, so no other does while the load runs.
    let from = counters.mark().expect("they can be read");
    let calls =
        Workload::start("rtscope-calls", ["--duration", "500ms"]).and_then(Workload::finish).expect("runs");
    let until = counters.mark().expect("they can be read");
    let sums: Vec<u64> = (0..events.len())
        .map(|event| windows(from.clone(), until.clone()).iter().map(|window| window.count(event)).sum())
        .collect();
    let made = calls.summary().expect("it prints one")["getsid"].as_u64().expect("a number");
    assert!(made > 1000, "{made}");
    assert_eq!(sums[0], made);
    assert!(sums[1] > 100, "{sums:?}");
}

// NEEDS: host
#[test]
fn root_perf_and_the_oracle_agree() {
    let event = "syscalls:sys_enter_getsid";
    if Counters::for_test(&[event]).is_none() {
        return;
    }
    if !Command::new("perf").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip!("perf is not installed (package linux-perf)");
    }
    let _cpus = Cpus::take().expect("the build directory can be written");
    let mut perf = Command::new("perf");
    perf.args(["stat", "--all-cpus", "--field-separator", ",", "--event", event, "--"]);
    perf.arg(program("rtscope-count").expect("built")).args(["--event", event, "--"]);
    perf.arg(program("rtscope-calls").expect("built")).args(["--duration", "500ms"]);
    let output = perf.output().expect("perf was there a moment ago");
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let table = String::from_utf8_lossy(&output.stderr);
    let by_perf: Option<u64> =
        table.lines().find(|line| line.contains(event)).and_then(|line| line.split(',').next()?.parse().ok());
    let ours = lines.iter().find_map(|line| line["summary"]["counts"][event].as_u64());
    let made = lines.iter().find_map(|line| line["summary"]["getsid"].as_u64());
    assert!(made.is_some_and(|made| made > 1000), "{lines:?}");
    assert_eq!((by_perf, ours), (made, made), "{table}");
}
