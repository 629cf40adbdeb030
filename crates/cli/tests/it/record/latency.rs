// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --latency` of recordings, against the printed events, what a program knows of itself, and the other figures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::figures::reports;
use super::kernel::record;
use super::lttng::{analysis, rows};
use crate::command::{json_lines, losses, rtscope};
use rtscope_testkit::machine::{self, Cpus};
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const EVENTS: &str = "syscalls,sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_process_*,task:task_rename,irq:*,\
                      irq_vectors:*,block:*";

/// Number, sum, shortest, longest.
type Figures = [u64; 4];

fn figures(all: &Value) -> Figures {
    ["count", "total_ns", "least_ns", "longest_ns"].map(|key| all[key].as_u64().unwrap_or(0))
}

fn of_lengths(lengths: &[u64]) -> Figures {
    let (least, most) = (lengths.iter().min(), lengths.iter().max());
    [lengths.len() as u64, lengths.iter().sum(), *least.unwrap_or(&0), *most.unwrap_or(&0)]
}

fn row<'r>(report: &'r Value, rows: &str, key: &str, value: &Value) -> Option<&'r Value> {
    report[rows].as_array().unwrap().iter().find(|row| row[key] == *value)
}

fn printed(trace: &Path, event: &str) -> Vec<Value> {
    json_lines(rtscope().args(["print", "--format", "json", "--event", event]).arg(trace))
}

/// Lengths of system calls by name, from the printed events: of each thread, an exit right after the entry of the same call.
fn calls(trace: &Path) -> BTreeMap<String, Vec<u64>> {
    let mut begun: BTreeMap<i64, (String, i64)> = BTreeMap::new();
    let mut lengths: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in printed(trace, "syscall_*") {
        let (name, time) = (event["event"].as_str().unwrap(), event["time_ns"].as_i64().unwrap());
        let tid = event["event_context"]["tid"].as_i64().unwrap_or_else(|| panic!("{event}"));
        match name.strip_prefix("syscall_entry_") {
            Some(call) => {
                begun.insert(tid, (call.to_owned(), time));
            }
            None => {
                let call = name.strip_prefix("syscall_exit_").unwrap();
                if let Some((_, since)) = begun.remove(&tid).filter(|(entered, _)| entered == call) {
                    lengths.entry(call.to_owned()).or_default().push((time - since).unsigned_abs());
                }
            }
        }
    }
    lengths
}

/// The load's threads that are looked for by name.
const TALKERS: [&str; 3] = ["sleeper", "asker", "answerer"];

/// A recording of the load in which each of these threads has left its CPU for good. Its process is over a moment earlier, and with it the
/// recording: then one of them may still be waiting for a CPU, and nobody can say for how long. And one in which the host hid no switch, which
/// would be missing in some figures and not in others. `None`: it hides some in each.
fn of_the_whole_load(directory: &Path) -> Option<PathBuf> {
    const RECORDINGS: usize = 5;
    /// `TASK_DEAD`
    const DEAD: u64 = 0x80;
    let load = program("rtscope-accounts").unwrap();
    let command: &[&str] = &[&load.to_string_lossy(), "--silent"];
    let mut hidden = 0;
    for number in 0..RECORDINGS {
        let directory = directory.join(number.to_string());
        fs::create_dir(&directory).unwrap();
        let (trace, account) = record(&directory, &["-k", EVENTS], command);
        assert!(losses(&account).is_empty(), "{account}");
        if !account["losses"].as_array().unwrap().is_empty() {
            assert!(!machine::is_emulated(), "nobody hides switches here: {account}");
            hidden += 1;
            continue;
        }
        let switches = printed(&trace, "sched_switch");
        let is_dead = |event: &Value| event["prev_state_raw"].as_u64().is_some_and(|state| state & DEAD != 0);
        let has_left = |name: &&str| {
            switches
                .iter()
                .map(|event| &event["fields"])
                .any(|one| one["prev_comm"] == **name && is_dead(one))
        };
        if TALKERS.iter().all(has_left) {
            return Some(trace);
        }
    }
    if hidden == RECORDINGS {
        return None;
    }
    panic!("in none of {RECORDINGS} recordings all of {TALKERS:?} left their CPU for good");
}

// NEEDS: one kernel
#[test]
fn root_latencies_are_those_of_the_events_and_of_the_other_figures() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(trace) = of_the_whole_load(directory.path()) else {
        skip!("the host hides switches in each recording");
    };
    let all = reports(&trace, &["--latency", "syscalls,wakeup,irq,softirq"]);
    let [syscalls, wakeups, irqs, waits, softirqs] = all.as_slice() else { panic!("{all:?}") };
    let lengths = calls(&trace);
    assert_eq!(syscalls["rows"].as_array().unwrap().len(), lengths.len());
    for (name, lengths) in &lengths {
        let found = row(syscalls, "rows", "name", &name.as_str().into()).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(figures(found), of_lengths(lengths), "{name}");
    }
    assert_eq!(figures(&syscalls["all"]), of_lengths(&lengths.into_values().flatten().collect::<Vec<_>>()));
    // The sleeper sleeps 50 times, 500 us or more.
    let sleeps = ["--latency", "syscalls", "--task", "sleeper", "--event", "syscall_entry_clock_nanosleep"];
    let sleeps = reports(&trace, &sleeps).remove(0);
    let slept = figures(&sleeps["all"]);
    assert!(slept[0] == 50 && slept[2] >= 500_000, "{sleeps}");
    assert_eq!(sleeps["longest"][0]["comm"], "sleeper");
    // The waits of all tasks that nothing is left open of.
    let tasks = reports(&trace, &["--tasks", "--irqs"]);
    let mut compared = BTreeSet::new();
    for task in tasks[0]["tasks"].as_array().unwrap() {
        let waited = &task["woken_wait"];
        let Some(found) = row(wakeups, "tasks", "tid", &task["tid"]) else { continue };
        if waited["count"] == found["count"] {
            let both = ["total_ns", "longest_ns", "longest_at_ns"].map(|key| (&waited[key], &found[key]));
            assert!(both.iter().all(|(one, other)| one == other), "{task} {found}");
            compared.insert(task["comm"].as_str().unwrap());
        }
    }
    assert!(
        TALKERS.iter().all(|name| compared.contains(name)),
        "{compared:?}: {} {}",
        tasks[0],
        wakeups["tasks"]
    );
    for found in tasks[1]["rows"].as_array().unwrap() {
        let (report, wait) = match found["kind"].as_str().unwrap() {
            "softirq" => (softirqs, Some(waits)),
            "vector" => (irqs, None),
            _ => continue,
        };
        let latency = row(report, "rows", "name", &found["name"]).unwrap_or_else(|| panic!("{found}"));
        for key in ["count", "total_ns", "longest_ns", "longest_at_ns"] {
            assert_eq!(latency[key], found[key], "{key}: {latency} {found}");
        }
        let waited = wait.and_then(|wait| row(wait, "rows", "name", &found["name"]));
        for key in ["count", "total_ns", "longest_ns"] {
            assert!(
                waited.is_none_or(|waited| waited[key] == found["wait"][key]),
                "{key}: {waited:?} {found}"
            );
        }
    }
    // Two events, the second one's thread in the first one's field.
    let starts = ["--latency", "sched_process_fork -> sched_process_exit by child_tid=tid"];
    let starts = reports(&trace, &starts).remove(0);
    assert!(starts["all"]["count"].as_u64().unwrap() >= 5, "the load's threads: {starts}");
}

// NEEDS: one kernel
#[test]
fn root_requests_to_a_disk_last_no_longer_than_the_calls_that_wait_for_them() {
    const WRITES: u64 = 20;
    let Some(_cpus) = Cpus::for_watching() else { return };
    // Not /tmp, which is memory on many machines.
    let program = std::env::current_exe().unwrap();
    let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let file = directory.path().join("file");
    // Once before, so that the file has its blocks.
    let write =
        format!("dd if=/dev/zero of={} bs=64k count={WRITES} oflag=direct conv=notrunc", file.display());
    assert!(std::process::Command::new("sh").args(["-c", &write]).status().unwrap().success());
    let (trace, account) = record(directory.path(), &["-k", EVENTS], &["sh", "-c", &write]);
    if account["by_event"]["block_rq_issue"].as_u64().unwrap_or(0) == 0 {
        return skip::say("there is no disk below this directory");
    }
    let all = reports(&trace, &["--latency", "block"]).remove(0);
    let written = all["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["name"].as_str().unwrap().ends_with(" write"));
    // Now and then a kernel thread gives a request to the driver.
    assert!(written.map(|row| row["count"].as_u64().unwrap()).sum::<u64>() >= WRITES, "{all}");
    let requests = reports(&trace, &["--latency", "block", "--task", "dd"]).remove(0);
    let calls = ["--latency", "syscalls", "--task", "dd", "--event", "syscall_entry_write"];
    let calls = reports(&trace, &calls).remove(0);
    let longest = &requests["longest"][0];
    let partitions = fs::read_to_string("/proc/partitions").unwrap();
    let named = partitions.lines().filter_map(|line| line.split_whitespace().nth(3));
    let devices: Vec<String> = named.map(|name| format!("{name} write")).collect();
    let name = longest["name"].as_str().unwrap();
    assert!(devices.iter().any(|device| device == name), "{name}: {devices:?}");
    // Each request lies within the call that waited for it.
    let inside = |request: &Value| {
        calls["longest"].as_array().unwrap().iter().any(|call| {
            let (since, until) = ("since_ns", "until_ns");
            call[since].as_i64() <= request[since].as_i64() && call[until].as_i64() >= request[until].as_i64()
        })
    };
    assert!(
        inside(longest) || longest["length_ns"].as_u64() < calls["longest"][9]["length_ns"].as_u64(),
        "{longest} {calls}"
    );
    let total = |report: &Value| report["all"]["total_ns"].as_u64().unwrap();
    assert!(total(&requests) <= total(&calls) && total(&requests) > 0, "{requests} {calls}");
}

// NEEDS: one kernel
#[test]
fn root_latencies_are_those_that_lttngs_analyses_find() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("lttng-iolatencystats-mi") {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let file = directory.path().join("file");
    let write = format!("dd if=/dev/zero of={} bs=64k count=20 oflag=direct", file.display());
    let (trace, _) = record(directory.path(), &["-k", EVENTS], &["sh", "-c", &write]);
    let all = reports(&trace, &["--latency", "block,irq"]);
    let number = |cell: &Value| cell["value"].as_u64().unwrap();
    let theirs = |row: &[Value]| [number(&row[1]), number(&row[2]), number(&row[4])];
    let ours =
        |figures: &Value| ["count", "least_ns", "longest_ns"].map(|key| figures[key].as_u64().unwrap());
    let interrupts = analysis("irqstats", &trace);
    for row in rows(&interrupts, "hard-stats") {
        let name = format!("irq {} {}", row[0]["nr"], row[0]["name"].as_str().unwrap());
        let found = super::latency::row(&all[1], "rows", "name", &name.as_str().into());
        assert_eq!(ours(found.unwrap_or_else(|| panic!("{name}: {}", all[1]))), theirs(row), "{name}");
    }
    let disks = analysis("iolatencystats", &trace);
    let [disk] = rows(&disks, "disk-latency-stats") else {
        return skip::say("there is not one disk below this directory");
    };
    // They leave out what has no sectors: flushes.
    let rows = all[0]["rows"].as_array().unwrap().iter();
    let rows = rows.filter(|row| !row["name"].as_str().unwrap().ends_with(" flush"));
    let figures: Vec<[u64; 3]> = rows.map(ours).collect();
    let count = figures.iter().map(|figures| figures[0]).sum();
    let (least, most) =
        (figures.iter().map(|figures| figures[1]).min(), figures.iter().map(|figures| figures[2]).max());
    assert_eq!([count, least.unwrap(), most.unwrap()], theirs(disk), "{}", all[0]);
}
