// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The production line as its user runs it: it finds what was planted, reports what it loses, and names the task that made a frame
//! late.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{KilledWithTest, program};
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

/// The script, which is not in the virtual machines.
const RUN: &str = include_str!("../../run");

/// The CPUs of this process.
fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("any process may ask");
    (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect()
}

fn plant(words: &[&str]) -> Value {
    let mut command = Command::new(program("production-line").expect("built"));
    let output = command.args(["plant", "--json"]).args(words).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The script with these words.
fn run(words: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("run");
    fs::write(&script, RUN).expect("written");
    let build = program("rtscope").expect("built");
    let mut command = Command::new("sh");
    command.arg(&script).args(words).env("RTSCOPE_BUILD", build.parent().expect("a directory"));
    command.stdin(Stdio::null()).output().expect("there is a shell")
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("{name}: {line}"))
}

#[test]
fn what_was_planted_is_found() {
    let cpus = cpus();
    let list = cpus.iter().rev().take(2).map(usize::to_string).collect::<Vec<_>>().join(",");
    let report = plant(&["--cpus", &list, "--frames", "150", "--period", "5ms", "--room", "128"]);
    assert_eq!(report["wrong"], Value::Array(vec![]), "{report}");
    let lines = report["lines"].as_array().expect("a list");
    assert_eq!(lines.len(), cpus.len().min(2));
    for line in lines {
        assert_eq!(number(&line["taken"], "frames"), 150);
        assert!(number(line, "processed") > 0 && number(line, "found") > number(line, "processed"), "{line}");
        assert!(number(line, "most_analyses") > 3, "{line}");
    }
}

#[test]
fn what_finds_the_queue_full_is_counted_and_said() {
    let cpu = cpus().last().expect("one").to_string();
    let words = ["--cpus", &cpu, "--frames", "100", "--period", "2ms", "--room", "2", "--slow", "30ms"];
    let report = plant(&words);
    assert_eq!(report["wrong"], Value::Array(vec![]), "{report}");
    let line = &report["lines"][0];
    let lost = number(&line["taken"], "lost");
    assert!(lost > 50, "{line}");
    assert_eq!(number(line, "processed") + lost, 100);
    assert!(number(&line["taken"], "planted_lost") > lost, "{line}");
    let mut command = Command::new(program("production-line").expect("built"));
    let printed = text(&command.arg("plant").args(words).output().expect("it runs"));
    assert!(printed.contains("found the queue full (image processing was too slow)"), "{printed}");
}

// NEEDS: host
#[test]
fn root_who_made_a_frame_late_is_named() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let cpu = cpus().last().expect("one").to_string();
    // 8 ms in each 100 ms, above the camera.
    let mut hog = Command::new(program("rtscope-hog").expect("built"));
    hog.args([
        "--name", "line-hog", "--policy", "fifo:90", "--cpu", &cpu, "--burst", "8ms", "--every", "97ms",
    ]);
    let _hog = KilledWithTest::start(hog.stdout(Stdio::null())).expect("it starts");
    let late = tempfile::tempdir().expect("a directory");
    let late = late.path().join("late");
    let words =
        ["--mode", "stock", "--rt", &cpu, "--deadline", "4ms", "--late", late.to_str().expect("plain")];
    let output = run(&[&words[..], &["--", "--frames", "300", "--room", "256"]].concat());
    let printed = text(&output);
    println!("{printed}");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("planted and found agree, and so do all counts"), "{printed}");
    assert!(printed.contains("line-hog"), "who made frames late is not named");
}

/// Runs the line in a mode, in a guest, and checks that all settings are as before. Returns what it prints.
fn in_mode(mode: &str, rt: &str) -> String {
    let runtime = || fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").expect("there");
    let before = runtime();
    // Emulated CPUs are slow.
    let words = ["--frames", "40", "--period", "100ms", "--room", "64"];
    let output = run(&[&["--mode", mode, "--rt", rt, "--deadline", "50ms", "--"], &words[..]].concat());
    let printed = text(&output);
    println!("{printed}");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("planted and found agree, and so do all counts"), "{printed}");
    assert!(!printed.contains("not allowed"), "{printed}");
    assert!(printed.contains("settings restored"), "{printed}");
    assert_eq!(runtime(), before);
    printed
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_the_line_runs_on_a_shield_that_is_undone() {
    if skip::outside_guests() {
        return;
    }
    let printed = in_mode("shield", "1");
    assert!(printed.contains("CPUs 1 are shielded") && printed.contains("SCHED_FIFO 2 and 1"), "{printed}");
}

// NEEDS: machine, cgroups, cpus 4
#[test]
fn root_vm_each_shielded_cpu_has_a_camera_on_four_cpus() {
    if skip::outside_guests() {
        return;
    }
    let printed = in_mode("shield", "2-3");
    assert!(printed.contains("CPUs 2-3 are shielded"), "{printed}");
    let cameras = printed.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>());
    let cameras: Vec<Vec<&str>> = cameras.filter(|words| words.get(2) == Some(&"40")).collect();
    assert_eq!(cameras, [["0", "2", "40"], ["1", "3", "40"]], "{printed}");
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_the_line_runs_while_its_real_time_cpu_is_lent() {
    if skip::outside_guests() || skip::without_sched_ext() {
        return;
    }
    let state = || fs::read_to_string("/sys/kernel/sched_ext/state").ok();
    let printed = in_mode("artis", "1");
    assert!(printed.contains("SCHED_EXT under "), "{printed}");
    assert_eq!(state().as_deref(), Some("disabled\n"), "the scheduler is gone");
}
