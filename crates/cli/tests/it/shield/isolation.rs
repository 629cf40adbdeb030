// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield` on a real kernel, in a virtual machine: it changes settings of the whole machine, which nobody wants of a test.
//!
//! Each way to isolate CPUs is tested on the same kernel, by mounting the control groups that it needs.

use super::fixture::{GROUPS, Sleeper, assert_same, facts, good, json, shield};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::sample;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Priority and policy, the 40th and 41st field of /proc/PID/stat.
fn policy(pid: i32) -> (u32, u32) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split_whitespace().collect();
    (fields[40 - 3].parse().expect("a number"), fields[41 - 3].parse().expect("a number"))
}

/// What holds while there is a shield of CPU 1.
fn look_at_it(kind: &str) {
    let shown = json(&["status", "--json"]);
    assert_eq!((shown["state"].as_str(), shown["drifted"].as_u64()), (Some("active"), Some(0)), "{shown}");
    let mut one = CpuSet::new();
    one.set(1).expect("a CPU");
    let stranger = Sleeper::plain();
    assert_eq!(stranger.cpus(), "0");
    if kind != "affinities" {
        let refused = sched_setaffinity(Pid::from_raw(stranger.pid()), &one);
        assert_eq!(refused, Err(nix::errno::Errno::EINVAL), "CPU 1 is open to everybody");
    }
    if kind == "partition" {
        let state = fs::read_to_string("/sys/fs/cgroup/rtscope-shield/cpuset.cpus.partition").expect("there");
        assert_eq!(state, "isolated\n");
    }
    let again = shield(&["create", "--rt", "1"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&again.stderr).contains("CPUs 1 are shielded already"));
}

/// Where each interrupt comes to, by its file.
fn effective_affinities() -> BTreeMap<String, String> {
    let path = |irq: u32| format!("/proc/irq/{irq}/effective_affinity_list");
    let read = |irq: u32| fs::read_to_string(path(irq)).ok().filter(|cpus| !cpus.trim().is_empty());
    let of = |irq: u32| Some((path(irq), read(irq)?));
    (0..1024).filter_map(of).collect()
}

/// Says which interrupt comes elsewhere than before and is not listed by `undo`.
fn assert_displaced(before: &BTreeMap<String, String>, undone: &str) {
    let cpus = |list: &str| rtscope_cpus::Cpus::from_list(list.trim()).expect("a list");
    let is_elsewhere = |(place, now): &(&String, &String)| {
        before.get(*place).is_some_and(|before| cpus(now).is_apart_from(&cpus(before)))
    };
    let now = effective_affinities();
    for (place, now) in now.iter().filter(is_elsewhere) {
        let irq = place.split('/').nth(3).expect("a number");
        let is_listed = ["", ":"].iter().any(|end| undone.contains(&format!("interrupt {irq}{end} ")));
        assert!(is_listed, "{place}: {now}, before {:?}: {undone}", before.get(place));
    }
    println!("{} interrupts, {} elsewhere", now.len(), now.iter().filter(is_elsewhere).count());
}

/// As many rounds as that with a shield that is used, and as many that are killed; in the short form, a part of both.
fn made_used_and_undone(kind: &str, rounds: usize) {
    // Those that could use less before shall not come out with more.
    let (narrow, elsewhere) = (Sleeper::plain(), Sleeper::plain());
    for (sleeper, cpu) in [(&narrow, 0), (&elsewhere, 1)] {
        let mut one = CpuSet::new();
        one.set(cpu).expect("a CPU");
        sched_setaffinity(Pid::from_raw(sleeper.pid()), &one).expect("moved");
    }
    let before = facts();
    let all = sched_getaffinity(Pid::from_raw(0)).expect("told");
    for round in sample((0..rounds).collect()) {
        let come_to = effective_affinities();
        let created = json(&["create", "--rt", "1", "--level", "full", "--json"]);
        assert_eq!(created["apart"]["kind"], kind, "{created}");
        println!("applied {}, refused {}", created["applied"], created["refused"]);
        look_at_it(kind);
        // Three at once: they alternate.
        let run = || shield(&["run", "--prio", "77", "--cpu", "1", "--", "sleep", "1000"]);
        let runners =
            [run(), run(), run()].map(|mut command| command.stdin(Stdio::null()).spawn().expect("starts"));
        let runners = runners.map(Sleeper::of);
        for runner in &runners {
            assert_eq!((policy(runner.pid()), runner.cpus()), ((77, 1), "1".into()));
        }
        let moved = Sleeper::plain();
        good(&["move", &moved.pid().to_string()]);
        assert_eq!((policy(moved.pid()), moved.cpus()), ((0, 0), "1".into()));
        let undone = good(&["undo"]);
        println!("{undone}");
        assert!(!undone.contains("left ") && !undone.contains("FAILED"), "{undone}");
        assert_same(&before, &format!("round {round}"));
        assert_displaced(&come_to, &undone);
        assert_eq!(moved.cpus(), "0-1", "where it was before");
        assert!(runners.iter().all(|runner| runner.cpus() == "0-1"));
        assert_eq!(sched_getaffinity(Pid::from_raw(0)), Ok(all), "the test's own");
    }
    killed_and_undone(&before, rounds);
}

/// SIGKILL from strace, this many times: at writes (of the journal, then of settings) and at affinities, all along the way.
fn killed_and_undone(before: &BTreeMap<String, String>, rounds: usize) {
    let plan = json(&["plan", "--rt", "1", "--json"]);
    let changes =
        plan["settings"].as_array().expect("settings").iter().filter(|one| one["state"] == "change");
    let (files, others): (Vec<&Value>, Vec<&Value>) = changes
        .filter(|one| one["is_group"] == false)
        .partition(|one| one["place"].as_str().is_some_and(|place| place.starts_with('/')));
    let points = sample((0..rounds).collect());
    for &round in &points {
        // The first write is the journal's; before that there is nothing to undo.
        let (call, at) = match round % 2 {
            0 => ("write", 2 + files.len() * round / rounds),
            _ => ("sched_setaffinity", 1 + (others.len() / 2) * round / rounds),
        };
        let inject = format!("inject={call}:signal=SIGKILL:when={at}");
        let mut command = Command::new("strace");
        command.args(["-qq", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", &inject]);
        command.arg(crate::command::path()).args(["shield", "create", "--rt", "1"]);
        let status = command.output().expect("strace is in the guest").status;
        assert!(
            status.signal() == Some(9) || status.code() == Some(137),
            "not killed at {call} {at}: {status}"
        );
        assert!(fs::exists("/run/rtscope/shield.json").expect("told"), "killed too early: {call} {at}");
        good(&["undo"]);
        assert_same(before, &format!("killed at {call} {at}"));
    }
    println!("{} killed and undone", points.len());
}

/// Control groups mounted as a test wants them, and as they were afterwards.
struct Mounted;

impl Mounted {
    fn instead(options: Option<&str>) -> Option<Mounted> {
        assert!(Command::new("umount").arg(GROUPS).status().expect("there is one").success());
        let mounted = Mounted;
        let Some(options) = options else { return Some(mounted) };
        let done = Command::new("mount").args(["-t", "cgroup", "-o", options, "cgroup", GROUPS]).status();
        done.expect("there is one").success().then_some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing is mounted where the test wanted that.
        let _ = Command::new("umount").arg(GROUPS).status();
        let done = Command::new("mount").args(["-t", "cgroup2", "cgroup", GROUPS]).status();
        assert!(done.is_ok_and(|status| status.success()) || thread::panicking());
    }
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_a_partition_is_made_used_and_undone() {
    if !skip::outside_guests() {
        made_used_and_undone("partition", 10);
    }
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_cpusets_of_version_1_are_made_used_and_undone() {
    if skip::outside_guests() {
        return;
    }
    match Mounted::instead(Some("cpuset")) {
        Some(_mounted) => made_used_and_undone("cpusets", 3),
        None => skip::say("this kernel has no cpusets of version 1"),
    }
}

// NEEDS: machine
#[test]
fn root_vm_without_cpusets_each_task_is_told_and_gets_its_cpus_back() {
    if skip::outside_guests() {
        return;
    }
    let _mounted = Mounted::instead(None);
    made_used_and_undone("affinities", 3);
}

/// A shielded CPU is switched off and on, and the shield undone: everything is as before. A partition's own test is in shield_hotplug_vm.
fn gone_and_back(kind: &str) {
    let switch =
        |state: &str| fs::write("/sys/devices/system/cpu/cpu1/online", state).expect("it can be switched");
    let before = facts();
    let created = json(&["create", "--rt", "1", "--json"]);
    assert_eq!(created["apart"]["kind"], kind, "{created}");
    let resident = Sleeper::start(shield(&["run", "--cpu", "1", "--", "sleep", "1000"]));
    let stranger = Sleeper::plain();
    assert_eq!((resident.cpus(), stranger.cpus()), ("1".into(), "0".into()));
    switch("0");
    let status = json(&["status", "--json"]);
    assert!(status["problems"].to_string().contains("all shielded CPUs (1) are offline"), "{status}");
    switch("1");
    let undone = good(&["undo"]);
    println!("{undone}");
    assert!(!undone.contains("left ") && !undone.contains("FAILED"), "{undone}");
    assert_same(&before, "after it was off and on");
    assert_eq!((resident.cpus(), stranger.cpus()), ("0-1".into(), "0-1".into()));
}

// NEEDS: machine, cgroups, hotplug
#[test]
fn root_vm_with_cpusets_of_version_1_a_shielded_cpu_goes_and_comes_back() {
    if skip::outside_guests() {
        return;
    }
    match Mounted::instead(Some("cpuset")) {
        Some(_mounted) => gone_and_back("cpusets"),
        None => skip::say("this kernel has no cpusets of version 1"),
    }
}

// NEEDS: machine, hotplug
#[test]
fn root_vm_without_cpusets_a_shielded_cpu_goes_and_comes_back() {
    if !skip::outside_guests() {
        let _mounted = Mounted::instead(None);
        gone_and_back("affinities");
    }
}

/// Verdicts of CPU 1 by their names.
fn verdicts() -> BTreeMap<String, String> {
    let mut command = shield(&["verify", "--rt", "1", "--duration", "3s", "--json"]);
    let output = command.output().expect("it runs");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{said}");
    let promises = said["cpus"][0]["promises"].as_array().expect("a list").iter();
    let text = |promise: &Value, key: &str| promise[key].as_str().expect("a text").to_owned();
    promises.map(|promise| (text(promise, "name"), text(promise, "verdict"))).collect()
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_verify_sees_that_a_shield_keeps_others_away() {
    if skip::outside_guests() {
        return;
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("starts");
    let mut busy: Vec<Child> = (0..3).map(busy).collect();
    let before = verdicts();
    good(&["create", "--rt", "1"]);
    let resident = Sleeper::start(shield(&["run", "--cpu", "1", "--", "sleep", "1000"]));
    let shielded = verdicts();
    drop(resident);
    good(&["undo"]);
    let after = verdicts();
    busy.iter_mut().for_each(|child| {
        // Whatever came of the rest, they must not stay.
        let _ = child.kill();
        let _ = child.wait();
    });
    assert_eq!((before["tasks"].as_str(), after["tasks"].as_str()), ("fail", "fail"));
    for name in ["tasks", "kernel-threads", "interrupts", "softirqs"] {
        assert_eq!(shielded[name], "pass", "{name}");
    }
}
