// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `watch -k`: snapshots with the tracepoints that ftrace records, on one clock with those of eBPF.

use crate::command::field;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::Workload;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const LATE: [&str; 4] = ["--task", "e2e-beside", "--threshold", "50us"];
const OFTEN: [&str; 6] = ["--rate", "5/s", "--pre", "100ms", "--post", "10ms"];
/// Late at every iteration, 25 times a second; each iteration ends in clock_nanosleep.
const VICTIM: [&str; 6] = ["--name", "e2e-beside", "--period", "40ms", "--deadline", "50us"];

// NEEDS: one kernel
#[test]
fn root_a_snapshot_has_system_calls_between_the_switches_of_their_thread() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("plain");
    let options = ["--snapshot-dir", path, "-k", "syscalls,sched:sched_wakeup"];
    let mut watch = Rtscope::watch(&[&LATE[..], &OFTEN, &options].concat()).expect("watches");
    let victim = Workload::start("rtscope-victim", VICTIM).expect("starts");
    (0..4).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    drop(victim);
    watch.stop().expect("stops");
    let mut snapshots: Vec<PathBuf> =
        fs::read_dir(directory.path()).expect("there").map(|entry| entry.expect("readable").path()).collect();
    snapshots.sort();
    assert!(snapshots.len() >= 4);
    let mut inside = 0;
    for snapshot in &snapshots {
        let output =
            Command::new("babeltrace2").arg(snapshot).output().expect("./x setup installs babeltrace2");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", snapshot.display());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("rtscope_late_response: ") && text.contains(" sched_wakeup: "),
            "{}",
            snapshot.display()
        );
        let trigger = fs::read_to_string(snapshot.join("trigger.json")).expect("there");
        let trigger: Value = serde_json::from_str(&trigger).expect("JSON");
        assert!(trigger["ftrace_from_ns"].as_u64().is_some(), "{trigger}");
        let tid = trigger["late"][0]["tid"].to_string();
        inside += calls_inside(&text, &tid);
        let explained =
            crate::command::rtscope().env("LC_ALL", "C.UTF-8").arg("explain").arg(snapshot).output();
        let explained = explained.expect("starts");
        let saved = fs::read(snapshot.join("explain.txt")).expect("there");
        assert_eq!(String::from_utf8_lossy(&explained.stdout), String::from_utf8_lossy(&saved));
    }
    assert!(inside >= snapshots.len(), "{inside} calls of the victim in {} snapshots", snapshots.len());
}

/// Counts the clock_nanosleep of a thread, each of which must stand where that thread is the one that runs: between the
/// switch to it and the switch from it, on its CPU. Before the CPU's first switch nobody knows who runs.
fn calls_inside(text: &str, tid: &str) -> usize {
    let mut running: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let mut calls = 0;
    for line in text.lines() {
        let Some(cpu) = field(line, "cpu_id") else { continue };
        if line.contains(" sched_switch: ") {
            let next = field(line, "next_tid").expect("a switch has it");
            running.insert(cpu.to_owned(), next.to_owned());
        } else if line.contains(" syscall_entry_clock_nanosleep: ") && field(line, "tid") == Some(tid) {
            let now = running.get(cpu);
            assert!(now.is_none_or(|now| now == tid), "{now:?} runs, and not {tid}: {line}");
            calls += 1;
        }
    }
    calls
}
