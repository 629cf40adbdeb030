// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table`: here without a shield, which would keep everybody else off a CPU; with it in a virtual machine.

use crate::command::number;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::{Cpus, is_preempt_rt};
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

const JOURNAL: &str = "/run/rtscope/shield.json";
/// One compute loop for each CPU comes last, so when it is there, so are all others.
const LAST_LOAD: &str = "rtscope-compute";

fn table(words: &[&str]) -> Command {
    let mut command = crate::command::rtscope();
    command.args(["shield", "table"]).args(words);
    command
}

fn measured(words: &[&str]) -> Value {
    let output = table(words).arg("--json").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{value}");
    assert_eq!(value["schema"], "rtscope.shield.table/1");
    value
}

pub fn row<'a>(table: &'a Value, name: &str) -> &'a Value {
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["row"] == name).unwrap_or_else(|| panic!("no row '{name}'"))
}

/// How many of a row's latencies of some kind are longer than a millisecond.
pub fn late(row: &Value, kind: &str) -> u64 {
    let all = row[kind]["above"].as_array().expect("counts");
    let one = all.iter().find(|one| one["above_ns"] == 1_000_000).expect("this limit");
    one["count"].as_u64().expect("a count")
}

/// What must be so of any latencies.
fn sums_up(latency: &Value, count: u64) {
    assert_eq!(latency["count"], count, "{latency}");
    let list = |key: &str| latency[key].as_array().expect("a list").clone();
    let histogram: u64 = list("histogram").iter().map(|one| one[1].as_u64().expect("a count")).sum();
    assert_eq!(histogram, count);
    let known: Vec<f64> = list("percentiles").iter().filter_map(|one| one["ns"].as_f64()).collect();
    assert!(known.is_sorted(), "{known:?}");
    assert!(known.iter().all(|ns| (number(&latency["min_ns"])..=number(&latency["max_ns"])).contains(ns)));
    let counts: Vec<u64> = list("above").iter().map(|one| one["count"].as_u64().expect("a count")).collect();
    assert!(counts.is_sorted_by(|one, next| one >= next), "{counts:?}");
    let late = counts.iter().filter(|count| **count > 0).count();
    let limits = list("above");
    let longer = limits.iter().filter(|one| number(&latency["max_ns"]) > number(&one["above_ns"])).count();
    assert_eq!(late, longer, "{latency}");
}

/// All its wakeups are there; of their interrupts, those that were seen.
fn is_whole(row: &Value, count: u64) {
    assert_eq!((&row["missing"], &row["cut"]), (&Value::Null, &Value::Null), "{row}");
    agrees(row, count);
}

/// This many wakeups, and what is said of them.
fn agrees(row: &Value, count: u64) {
    sums_up(&row["user_latency"], count);
    let (user, kernel, wake_up) = (&row["user_latency"], &row["kernel_latency"], &row["wake_up_latency"]);
    let seen = kernel["count"].as_u64().expect("interrupts are seen where rtscope can watch");
    assert!(seen <= count && seen * 10 >= count * 9, "{seen} of {count} interrupts seen");
    sums_up(kernel, seen);
    sums_up(wake_up, seen);
    // The interrupt of the fastest response may be one that was not seen.
    if seen == count {
        assert!(
            number(&kernel["min_ns"]) <= number(&user["min_ns"]),
            "an interrupt comes before who it wakes"
        );
    }
    for part in [kernel, wake_up] {
        assert!(number(&part["max_ns"]) <= number(&user["max_ns"]), "{row}");
    }
}

fn worked(row: &Value) {
    for load in ["compute_loops_per_s", "disk_mb_per_s", "echoes_per_s", "ioctls_per_s"] {
        assert!(number(&row["work"][load]) > 0.0, "{load}: {row}");
    }
}

// NEEDS: host
#[test]
fn root_a_table_without_shields_is_whole_and_sums_up() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let picture = directory.path().join("table.svg");
    let dir = directory.path().join("disk");
    fs::create_dir(&dir).expect("made");
    let (svg, disk) = (picture.display().to_string(), dir.display().to_string());
    let words = ["--rows", "unloaded,stock", "--samples", "500", "--svg", &svg, "--dir", &disk];
    let table = measured(&words);
    let (unloaded, stock) = (row(&table, "stock unloaded"), row(&table, "stock loaded"));
    is_whole(unloaded, 500);
    is_whole(stock, 500);
    assert_eq!(unloaded["work"], Value::Null);
    worked(stock);
    assert_eq!(stock["work"]["compute_of_stock"], 1.0);
    assert!(number(&table["loads"]["ioctl_events"]) > 0.0);
    let drawn = fs::read_to_string(&picture).expect("written");
    assert_eq!(drawn.matches("<path").count(), 2);
    assert_eq!(fs::read_dir(&dir).expect("there").count(), 0, "something is left on disk");
}

/// Processes by their parents.
fn children(parent: u32) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("there").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once(" (").and_then(|(_, rest)| rest.rsplit_once(") ")) else {
            continue;
        };
        if rest.split(' ').nth(1).and_then(|ppid| ppid.parse().ok()) == Some(parent) {
            found.insert(pid, name.to_owned());
        }
    }
    found
}

/// A table that takes long, until all its loads and its waiter are there; their numbers.
fn under_way(words: &[&str]) -> (Child, BTreeSet<u32>) {
    let mut command = table(words);
    command.args(["--samples", "1M"]).stdout(Stdio::null()).stderr(Stdio::null());
    let table = command.spawn().expect("starts");
    let mut there = BTreeMap::new();
    wait_until("loads and waiter", || {
        there = children(table.id());
        let is_there = |name: &str| there.values().any(|one| one == name);
        is_there(LAST_LOAD) && is_there("rtscope-waiter")
    });
    (table, there.into_keys().collect())
}

fn ended_by(mut table: Child, children: &BTreeSet<u32>, signal: Signal) -> ExitStatus {
    kill(Pid::from_raw(table.id() as i32), signal).expect("it lives");
    let status = table.wait().expect("it ended");
    let is_gone = |pid: &u32| !fs::exists(format!("/proc/{pid}")).expect("told");
    wait_until("all children gone", || children.iter().all(is_gone));
    status
}

// NEEDS: host
#[test]
fn root_loads_go_with_the_table_however_it_ends() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let disk = directory.path().display().to_string();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let (table, children) = under_way(&["--rows", "stock", "--dir", &disk]);
        // Disk, network, ioctl, the waiter, and a loop for each CPU.
        assert!(children.len() >= 6, "{children:?}");
        let status = ended_by(table, &children, signal);
        match signal {
            Signal::SIGKILL => assert_eq!(status.signal(), Some(9)),
            _ => assert_eq!(status.code(), Some(1), "{signal}: {status}"),
        }
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 0, "{signal}: something is left");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (words, said) in [
        (&["--samples", "0"][..], "--samples"),
        (&["--samples", "100M"], "--samples"),
        (&["--rate", "1M/s"], "--rate"),
        (&["--rate", "100000/s"], "--rate"),
        (&["--duration", "0s"], "--duration"),
        (&["--rows", "ideal"], "--rows"),
        (&["--dir", "/no/such/folder"], "--dir"),
        (&["--prio", "0"], "--prio"),
    ] {
        let output = table(words).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        match nix::unistd::geteuid().is_root() {
            true => assert!(code == Some(2) && text.contains(said), "{words:?}: {code:?} {text}"),
            false => assert!(matches!(code, Some(2 | 3)), "{words:?}: {code:?} {text}"),
        }
    }
}

/// Everything that a shield changes, but for single threads.
fn settings() -> BTreeMap<String, Option<String>> {
    let output =
        crate::command::rtscope().args(["shield", "plan", "--rt", "1", "--json"]).output().expect("it runs");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = plan["settings"].as_array().expect("settings").iter();
    let files = all.filter_map(|one| one["place"].as_str()).filter(|place| place.starts_with('/'));
    files.map(|place| (place.to_owned(), fs::read_to_string(place).ok())).collect()
}

/// Rows under load of an emulated machine, whose CPUs alternate: how late an interrupt is says nothing of its kernel. What comes
/// after the interrupt is mostly the kernel's, so that is what is compared.
fn loaded_rows(rows: &str) -> Value {
    let before = settings();
    let table = measured(&["--rows", rows, "--samples", "2000", "--rate", "200/s", "--duration", "8s"]);
    assert_eq!(settings(), before);
    assert!(!fs::exists(JOURNAL).expect("told"));
    for row in table["rows"].as_array().expect("rows").iter().filter(|row| row["missing"].is_null()) {
        let count = row["user_latency"]["count"].as_u64().expect("a count");
        assert!(count >= 100, "{row}");
        agrees(row, count);
        worked(row);
        assert_eq!(row["not_undone"], serde_json::json!([]));
        let part = late(row, "wake_up_latency") as f64 / count as f64;
        println!(
            "{}: {count} wake-ups, {:.1} % of them more than 1 ms after their interrupts, {} of user latencies; compute {}",
            row["row"],
            part * 100.0,
            late(row, "user_latency"),
            row["work"]["compute_of_stock"]
        );
    }
    table
}

/// The part of a row's wakeups that came more than 1 ms after their interrupts.
fn late_part(row: &Value) -> f64 {
    late(row, "wake_up_latency") as f64 / number(&row["wake_up_latency"]["count"])
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_a_shield_keeps_the_loads_away_and_is_undone() {
    if skip::outside_guests() {
        return;
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let table = loaded_rows("stock,shield");
    let disturbed = row(&table, "stock loaded");
    let (stock, shield) = (late_part(disturbed), late_part(row(&table, "shield loaded")));
    // On PREEMPT_RT the lock that the load contends for can be preempted: there is nothing to keep away.
    if !is_preempt_rt() {
        // How large a part it is depends on the emulator; so many are no accident.
        assert!(late(disturbed, "wake_up_latency") >= 15, "the loads disturb nobody: {stock}");
        assert!(shield < stock / 2.0, "stock {stock}, shield {shield}");
    }
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_a_lent_cpu_keeps_the_loads_away_where_it_matters() {
    if skip::outside_guests() {
        return;
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let table = loaded_rows("stock,artis");
    let lent = row(&table, "artis loaded");
    if !fs::exists("/sys/kernel/sched_ext").expect("told") {
        assert!(lent["missing"].as_str().is_some_and(|why| why.contains("sched_ext")), "{lent}");
        return;
    }
    assert_eq!(lent["missing"], Value::Null, "the scheduler did not last");
    let (stock, lent) = (late_part(row(&table, "stock loaded")), late_part(lent));
    if !is_preempt_rt() {
        assert!(lent < stock * 0.75, "stock {stock}, artis {lent}");
    }
}

// NEEDS: machine, cgroups
#[test]
fn root_vm_a_shield_is_undone_when_the_table_is_killed() {
    if skip::outside_guests() {
        return;
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let before = settings();
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let (table, children) = under_way(&["--rows", "shield"]);
        assert!(fs::exists(JOURNAL).expect("told"), "it is shielded");
        ended_by(table, &children, signal);
        wait_until("the shield undone", || !fs::exists(JOURNAL).expect("told"));
        assert_eq!(settings(), before, "{signal}");
    }
}
