// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The production line as its user runs it: what it finds is what was planted, what it loses it says, and who made a frame late is named.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use rtscope_testkit::machine::{Cpus, is_emulated};
use rtscope_testkit::process::program;
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};

/// The script, which is not in the virtual machines.
const RUN: &str = include_str!("../run");

/// The CPUs of this process.
fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("told");
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
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("run");
    fs::write(&script, RUN).expect("written");
    let build = program("rtscope").expect("built");
    let mut command = Command::new("sh");
    command.arg(&script).args(words).env("RTSCOPE_BUILD", build.parent().expect("a folder"));
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
    let said = text(&command.arg("plant").args(words).output().expect("it runs"));
    assert!(said.contains("found the queue full (image processing was too slow)"), "{said}");
}

/// Dies with the test.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_who_made_a_frame_late_is_named() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let cpu = cpus().last().expect("one").to_string();
    // 8 ms in each 100 ms, above the camera.
    let mut hog = Command::new(program("rtscope-hog").expect("built"));
    hog.args([
        "--name", "line-hog", "--policy", "fifo:90", "--cpu", &cpu, "--burst", "8ms", "--every", "97ms",
    ]);
    let _hog = Busy(hog.stdout(Stdio::null()).spawn().expect("it starts"));
    let late = tempfile::tempdir().expect("a folder");
    let late = late.path().join("late");
    let words =
        ["--mode", "stock", "--rt", &cpu, "--deadline", "4ms", "--late", late.to_str().expect("plain")];
    let output = run(&[&words[..], &["--", "--frames", "300", "--room", "256"]].concat());
    let said = text(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("planted and found agree, and so do all counts"), "{said}");
    assert!(said.contains("line-hog"), "who made frames late is not named");
}

/// In a virtual machine, in this mode: what it says. Everything is as before afterwards.
fn in_mode(mode: &str, rt: &str) -> String {
    let runtime = || fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").expect("there");
    let before = runtime();
    // Emulated CPUs are slow.
    let words = ["--frames", "40", "--period", "100ms", "--room", "64"];
    let output = run(&[&["--mode", mode, "--rt", rt, "--deadline", "50ms", "--"], &words[..]].concat());
    let said = text(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("planted and found agree, and so do all counts"), "{said}");
    assert!(!said.contains("not allowed"), "{said}");
    assert!(said.contains("settings set back"), "{said}");
    assert_eq!(runtime(), before);
    said
}

fn skipped(test: &str) -> bool {
    if !is_emulated() {
        println!("SKIP: {test}: it changes settings of the whole machine, and runs in ./x vm only");
    }
    !is_emulated()
}

#[test]
fn root_vm_the_line_runs_on_a_shield_that_is_undone() {
    if !skipped("root_vm_the_line_runs_on_a_shield_that_is_undone") {
        let said = in_mode("shield", "1");
        assert!(said.contains("CPUs 1 are shielded") && said.contains("SCHED_FIFO 2 and 1"), "{said}");
    }
}

#[test]
fn root_vm_each_shielded_cpu_has_a_camera_on_four_cpus() {
    if !skipped("root_vm_each_shielded_cpu_has_a_camera_on_four_cpus") {
        let said = in_mode("shield", "2-3");
        assert!(said.contains("CPUs 2-3 are shielded"), "{said}");
        let cameras = said.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>());
        let cameras: Vec<Vec<&str>> = cameras.filter(|words| words.get(2) == Some(&"40")).collect();
        assert_eq!(cameras, [["0", "2", "40"], ["1", "3", "40"]], "{said}");
    }
}

#[test]
fn root_vm_the_line_runs_while_its_real_time_cpu_is_lent() {
    let test = "root_vm_the_line_runs_while_its_real_time_cpu_is_lent";
    if skipped(test) {
        return;
    }
    let state = || fs::read_to_string("/sys/kernel/sched_ext/state").ok();
    if state().is_none() {
        println!("SKIP: {test}: this kernel has no sched_ext");
        return;
    }
    let said = in_mode("artis", "1");
    assert!(said.contains("SCHED_EXT under "), "{said}");
    assert_eq!(state().as_deref(), Some("disabled\n"), "the scheduler is gone");
}
