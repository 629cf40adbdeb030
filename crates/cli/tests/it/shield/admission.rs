// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several real-time tasks on one shielded CPU, on a real kernel in a virtual machine: who is admitted, who is not and why, what `status`
//! lists, and what undoing gives back.

use super::fixture::{Shield, Sleeper, good, json, shield, status};
use rtscope_testkit::process::patience;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const OTHER: u64 = 0;
const FIFO: u64 = 1;
const RR: u64 = 2;
const DEADLINE: u64 = 6;

fn run(words: &[&str]) -> Sleeper {
    Sleeper::start(shield(&[&["run", "--cpu", "1"], words, &["--", "sleep", "1000"]].concat()))
}

/// The number of its policy and the CPUs that it may use.
fn now(sleeper: &Sleeper) -> (u64, String) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.pid())).expect("it lives");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split_whitespace().collect();
    (fields[41 - 3].parse().expect("a number"), status(sleeper.pid(), "Cpus_allowed_list").expect("there"))
}

/// What the kernel keeps of CPU 1 for ordinary tasks; some kernels do not give it back.
fn servers() -> f64 {
    let part = |server: &str| {
        let number = |name: &str| -> Option<f64> {
            let path = format!("/sys/kernel/debug/sched/{server}/cpu1/{name}");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        number("runtime").zip(number("period")).map_or(0.0, |(runtime, period)| runtime / period)
    };
    part("fair_server") + part("ext_server")
}

/// What a task had reserved is free some time after its end: as long as it is not, the kernel may refuse.
fn set_runtime(value: &str) {
    let end = Instant::now() + patience();
    while let Err(error) = fs::write(RT_RUNTIME, value) {
        if Instant::now() > end {
            let all = fs::read_to_string("/sys/kernel/debug/sched/debug").unwrap_or_default();
            let account: Vec<&str> = all.lines().filter(|line| line.contains("dl_")).collect();
            panic!("{RT_RUNTIME} {value}: {error}: {account:#?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Refused, with these words.
fn bad(words: &[&str], why: &[&str]) {
    let output = shield(&[&["run", "--cpu", "1"], words, &["--", "sleep", "1000"]].concat()).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    for why in why {
        assert!(said.contains(why), "'{why}' is not in: {said}");
    }
}

fn deadline<'a>(runtime: &'a str, deadline: &'a str, period: &'a str) -> [&'a str; 8] {
    ["--policy", "deadline", "--runtime", runtime, "--deadline", deadline, "--period", period]
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_rt0_tasks_share_a_cpu_as_far_as_deadlines_can_be_kept() {
    if skip::outside_guests() {
        return;
    }
    let before = fs::read_to_string(RT_RUNTIME).expect("there");
    let shielded = Shield::of(&["--rt", "1"]);
    let first = run(&deadline("2ms", "10ms", "10ms"));
    let second = run(&deadline("5ms", "10ms", "10ms"));
    let round_robin = run(&["--policy", "rr", "--prio", "50"]);
    assert_eq!(
        [&first, &second, &round_robin].map(now),
        [DEADLINE, DEADLINE, RR].map(|policy| (policy, "1".to_owned()))
    );
    let full = format!("{:.1} %", 110.0 + servers() * 100.0);
    bad(
        &deadline("4ms", "10ms", "10ms"),
        &["CPU 1 has not enough time", &full, "50.0 %  5ms in 10ms every 10ms  sleep (thread", "--force"],
    );
    drop(second);
    // 2 ms of the first have to be done in the same 10 ms.
    bad(&deadline("9ms", "9ms", "100ms"), &["deadlines on CPU 1 would be missed: in 10ms", "11ms of work"]);
    bad(&deadline("9ms", "8ms", "100ms"), &["does not fit into a deadline of 8ms"]);
    let forced = run(&[&deadline("9ms", "9ms", "100ms")[..], &["--force"]].concat());
    assert_eq!(now(&forced).0, DEADLINE);

    let shown = good(&["status"]);
    println!("{shown}");
    assert!(shown.contains("deadline 2ms in 10ms every 10ms") && shown.contains("rr 50"), "{shown}");
    let status: Value = json(&["status", "--json"]);
    let rt0 = status["rt0"].as_array().expect("a list");
    let reserved: Vec<f64> = rt0.iter().filter_map(|one| one["reserved"].as_f64()).collect();
    assert_eq!((rt0.len(), reserved.len()), (3, 2), "{status}");
    assert!((reserved.iter().sum::<f64>() - 0.29).abs() < 1e-9, "{status}");

    let moved = Sleeper::plain();
    let pid = moved.pid().to_string();
    let mut command = shield(&["move", "--cpu", "1", "--policy", "fifo", "--prio", "70", &pid]);
    let said = command.output().expect("it runs").stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("DEADLINE tasks on CPUs 1 come before it"), "{said}");
    assert_eq!(now(&moved), (FIFO, "1".into()));
    drop(forced);
    let moved_deadline = Sleeper::plain();
    let pid = moved_deadline.pid().to_string();
    good(&[&["move", "--cpu", "1"], &deadline("1ms", "20ms", "20ms")[..], &[&pid]].concat());
    assert_eq!(now(&moved_deadline), (DEADLINE, "1".into()));
    good(&["undo"]);
    drop(shielded);
    assert_eq!([&moved, &moved_deadline].map(now), [(OTHER, "0-1".into()), (OTHER, "0-1".into())]);
    assert_eq!(now(&first), (DEADLINE, "0-1".into()), "what the program has of its own it keeps");
    assert_eq!(fs::read_to_string(RT_RUNTIME).expect("there"), before);
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_what_the_kernel_does_not_admit_is_told_with_its_figures() {
    if skip::outside_guests() {
        return;
    }
    let _shielded = Shield::of(&["--rt", "1"]);
    // Somebody has changed it back.
    set_runtime("500000");
    let first = run(&deadline("3ms", "10ms", "10ms"));
    assert_eq!(now(&first), (DEADLINE, "1".into()), "a partition is a root domain of its own");
    bad(
        &deadline("4ms", "10ms", "10ms"),
        &[
            "the kernel admits 0.500 of each CPU (sched_rt_runtime_us 500000 of sched_rt_period_us 1000000)",
            "reserved already are 0.3",
            "and this asks for 0.400: 0.7",
        ],
    );
    drop(first);
    // Where the kernel's own servers have reserved time, it cannot be 0.
    if fs::write(RT_RUNTIME, "0").is_ok() {
        bad(&deadline("3ms", "10ms", "10ms"), &["sched_rt_runtime_us is 0"]);
    }
    set_runtime("-1");
}
