// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --latency` beside tools of others that watch the same load at the same time.
//!
//! What each of them calls a latency:
//!
//! - `perf trace -s`: from the tracepoint at which a system call begins to the one at which it ends, as rtscope does. Both sit at the same
//!   tracepoints, one behind the other, so each call may differ by the other's work.
//! - `strace -T`: from the stop before a system call to the stop after it (ptrace). Both tracepoints lie between them, so rtscope's time is
//!   never longer.
//! - `perf sched timehist`, "sch delay": from a waking to the switch by which the task gets a CPU; waits after a preemption are not in it.
//!   It uses `sched_waking` where perf recorded that, as rtscope does. (`perf sched latency` is something else: it adds waits after a
//!   preemption, which `stat --tasks` shows apart.)
//! - `perf script`: prints the events of interrupts and softirqs with their times, of which this file makes latencies. (bpftrace prints fewer:
//!   the kernel runs none of its programs in an interrupt that comes while one of them runs.)
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::figures::reports;
use super::kernel::record;
use crate::command::losses;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const EVENTS: &str = "syscalls,sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_process_*,task:task_rename,irq:*";

/// Threads of the load that begin and end while all tools watch.
const THREADS: [&str; 3] = ["sleeper", "asker", "answerer"];

/// How much two probes at the same tracepoint may differ, for each latency: the work of the other probes there, and an interrupt now and then.
const BETWEEN_PROBES_NS: u64 = 10_000;

/// Number and sum.
type Sum = (u64, u64);

/// A recording of a tool that starts the load, or why there is none.
fn recorded_with(directory: &Path, tool: &[&str]) -> PathBuf {
    let load = program("rtscope-accounts").unwrap();
    let load = load.to_string_lossy();
    let command: Vec<&str> = tool.iter().copied().chain([&*load, "--silent"]).collect();
    let (trace, account) = record(directory, &["-k", EVENTS], &command);
    assert_eq!(losses(&account).len(), 0, "{account}");
    trace
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

/// The load's threads, by name.
fn threads(report: &Value) -> BTreeMap<String, u64> {
    let tasks = report["tasks"].as_array().unwrap().iter();
    let named = tasks.map(|task| (task["comm"].as_str().unwrap().to_owned(), number(task, "tid")));
    let found: BTreeMap<String, u64> = named.filter(|(comm, _)| THREADS.contains(&comm.as_str())).collect();
    assert_eq!(found.len(), THREADS.len(), "{report}");
    found
}

fn calls_of(trace: &Path, tid: u64) -> BTreeMap<String, Value> {
    let report = reports(trace, &["--latency", "syscalls", "--task", &tid.to_string()]).remove(0);
    let rows = report["rows"].as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Fails when two tools that stand at the same places saw different times.
fn alike(what: &str, ours: Sum, theirs: Sum) {
    assert_eq!(ours.0, theirs.0, "{what}: {ours:?}, theirs {theirs:?}");
    let most = ours.0 * BETWEEN_PROBES_NS + theirs.1 / 50;
    assert!(ours.1.abs_diff(theirs.1) <= most, "{what}: {ours:?}, theirs {theirs:?}");
}

// NEEDS: verifier
#[test]
#[ignore = "counts agree, but sums of single calls differ by more than 10 us on a loaded guest: 178 us against 60 us of 3 calls"]
fn root_latencies_of_system_calls_are_those_of_perf_trace() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("perf") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("perf");
    let trace =
        recorded_with(directory.path(), &["perf", "trace", "-s", "-o", &said.to_string_lossy(), "--"]);
    let said = fs::read_to_string(said).unwrap();
    let mut theirs: BTreeMap<(u64, String), Sum> = BTreeMap::new();
    let mut thread = None;
    for line in said.lines() {
        if let Some((head, _)) = line.split_once("), ").filter(|_| line.contains(" events, ")) {
            thread = head.rsplit_once('(').and_then(|(_, tid)| tid.parse::<u64>().ok());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        // Milliseconds with three places.
        let total = words.get(3).and_then(|total| total.parse::<f64>().ok());
        let (Some(tid), Some(total), [name, count, ..]) = (thread, total, words.as_slice()) else { continue };
        // A thread begins with the end of the call that made it, and a program with that of its execve: perf counts them, without a time.
        if let Some(count) = count.parse().ok().filter(|_| total > 0.0) {
            theirs.insert((tid, (*name).to_owned()), (count, (total * 1e6) as u64));
        }
    }
    let all = reports(&trace, &["--latency", "syscalls"]).remove(0);
    let mut compared = 0;
    for (comm, tid) in threads(&all) {
        let ours = calls_of(&trace, tid);
        let names: Vec<&String> = theirs.keys().filter(|(of, _)| *of == tid).map(|(_, name)| name).collect();
        // What perf counts has ended, as has what rtscope counts.
        assert!(names.iter().all(|name| ours.contains_key(*name)), "{comm}: {names:?} {:?}", ours.keys());
        for (name, row) in &ours {
            let what = format!("{name} of {comm}");
            let theirs = theirs.get(&(tid, name.clone())).unwrap_or_else(|| panic!("{what}: {said}"));
            alike(&what, (number(row, "count"), number(row, "total_ns")), *theirs);
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}: {said}");
}

/// By thread and call, in nanoseconds: each call's time between its two stops.
fn by_strace(said: &str) -> BTreeMap<(u64, String), Vec<u64>> {
    let mut calls: BTreeMap<(u64, String), Vec<u64>> = BTreeMap::new();
    for line in said.lines() {
        let Some((tid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let name = match rest.strip_prefix("<... ") {
            Some(resumed) => resumed.split(' ').next(),
            None => rest.split('(').next(),
        };
        let seconds = line.rsplit_once('<').and_then(|(_, end)| end.strip_suffix('>')?.parse::<f64>().ok());
        if let (Ok(tid), Some(name), Some(seconds)) = (tid.parse(), name, seconds) {
            calls.entry((tid, name.to_owned())).or_default().push((seconds * 1e9).round() as u64);
        }
    }
    calls
}

// NEEDS: verifier
#[test]
fn root_latencies_of_system_calls_lie_within_straces() {
    /// `-T` has six places.
    const ROUNDED_NS: u64 = 1000;
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("strace");
    let trace = recorded_with(directory.path(), &["strace", "-f", "-T", "-o", &said.to_string_lossy()]);
    let said = fs::read_to_string(said).unwrap();
    let theirs = by_strace(&said);
    let all = reports(&trace, &["--latency", "syscalls"]).remove(0);
    let mut compared = 0;
    for (comm, tid) in threads(&all) {
        for (name, row) in calls_of(&trace, tid) {
            let what = format!("{name} of {comm}");
            let lengths = theirs.get(&(tid, name)).unwrap_or_else(|| panic!("{what}: {said}"));
            let [count, total, longest] = ["count", "total_ns", "longest_ns"].map(|key| number(&row, key));
            assert_eq!(count, lengths.len() as u64, "{what}: {row}");
            assert!(total <= lengths.iter().sum::<u64>() + count * ROUNDED_NS, "{what}: {row} {lengths:?}");
            assert!(longest <= lengths.iter().max().unwrap() + ROUNDED_NS, "{what}: {row} {lengths:?}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}: {said}");
}

/// The delays of each thread, in nanoseconds: of lines `time [cpu] comm[tid/pid] wait delay run`, in milliseconds with three places.
fn delays(said: &str) -> BTreeMap<u64, Vec<u64>> {
    let mut delays: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, .., task, _, delay, _] = words.as_slice() else { continue };
        let tid = task
            .rsplit_once('[')
            .and_then(|(_, numbers)| numbers.trim_end_matches(']').split('/').next()?.parse::<u64>().ok());
        let delay = delay.parse::<f64>().ok().filter(|delay| *delay > 0.0);
        if let (Some(tid), Some(delay)) = (tid, delay) {
            delays.entry(tid).or_default().push((delay * 1e6).round() as u64);
        }
    }
    delays
}

// NEEDS: verifier
#[test]
#[ignore = "rtscope counts one wakeup more (51 against 50), and which one is not found out yet"]
fn root_latencies_of_wakeups_are_those_of_perf_sched() {
    /// Only timers wake it. A thread that another wakes may be woken before it has left its CPU: perf takes such a waking for one of the run
    /// that ends then, and rtscope lets the wait begin with the switch by which the thread leaves.
    const EXACT: &str = "sleeper";
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("perf") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let data = data.to_string_lossy();
    let trace =
        recorded_with(directory.path(), &["perf", "sched", "record", "-q", "-m", "8M", "-o", &data, "--"]);
    let perf = |arguments: &[&str]| {
        let output = std::process::Command::new("perf").args(arguments).args(["-i", &data]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if !perf(&["evlist"]).contains("sched:sched_waking") {
        return skip::say("this perf records no sched_waking: its delays begin later than rtscope's");
    }
    let said = perf(&["sched", "timehist"]);
    let theirs = delays(&said);
    // The same data as a CTF trace, which perf makes: then nothing is between the probes.
    let converted = directory.path().join("perf-ctf");
    let mut convert = std::process::Command::new("perf");
    let convert =
        convert.args(["data", "convert", "-i", &data, "--to-ctf"]).arg(&converted).output().unwrap();
    if !convert.status.success() {
        skip::say(format!("perf makes no CTF here: {}", String::from_utf8_lossy(&convert.stderr)));
    } else {
        let report = reports(&converted, &["--latency", "wakeup"]).remove(0);
        for (comm, tid) in threads(&report) {
            let row = report["tasks"].as_array().unwrap().iter().find(|task| task["tid"] == tid).unwrap();
            let (count, total) = (number(row, "count"), number(row, "total_ns"));
            let lengths = &theirs[&tid];
            let sum = lengths.iter().sum();
            if comm == EXACT {
                assert_eq!(count, lengths.len() as u64, "{comm}: {row}");
                // perf cuts what is below a microsecond.
                let cut = total.checked_sub(sum);
                assert!(cut.is_some_and(|cut| cut < count * 1000), "{comm}: {row} {lengths:?}");
            }
            assert!(count >= lengths.len() as u64 && total >= sum, "{comm}: {row} {lengths:?}");
        }
    }
    let report = reports(&trace, &["--latency", "wakeup"]).remove(0);
    let tid = threads(&report)[EXACT];
    let row = report["tasks"].as_array().unwrap().iter().find(|task| task["tid"] == tid).unwrap();
    let lengths = theirs.get(&tid).unwrap_or_else(|| panic!("{said}"));
    let sum = (lengths.len() as u64, lengths.iter().sum());
    alike(EXACT, (number(row, "count"), number(row, "total_ns")), sum);
}

/// An event that perf printed: its time on the trace's clock, its CPU, and of what it is the beginning or the end.
struct Printed {
    time: u64,
    cpu: u32,
    what: (&'static str, u64),
    is_end: bool,
}

/// Of a line `[001] 12.345678901: irq:softirq_entry: vec=9 [action=RCU]`.
fn printed(line: &str) -> Option<Printed> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [cpu, time, event, field, ..] = words.as_slice() else { return None };
    let cpu = cpu.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let time = time.strip_suffix(':')?.replace('.', "").parse().ok()?;
    let (kind, field) = match field.split_once('=')? {
        ("irq", number) => ("irq", number),
        ("vec", number) => ("softirq", number),
        _ => return None,
    };
    Some(Printed { time, cpu, what: (kind, field.parse().ok()?), is_end: event.ends_with("_exit:") })
}

/// Moments around which nothing happened: near the beginning, and near the end.
fn quiet(events: &[Printed]) -> Option<(u64, u64)> {
    // Both tools' times of an event differ by far less.
    const QUIET_NS: u64 = 50_000;
    let gaps: Vec<u64> = events
        .windows(2)
        .filter(|two| two[1].time - two[0].time > QUIET_NS)
        .map(|two| two[0].time + (two[1].time - two[0].time) / 2)
        .collect();
    let (first, last) = (gaps.first()?, gaps.last()?);
    (first < last).then_some((*first, *last))
}

// NEEDS: verifier
#[test]
#[ignore = "2 of 753 softirqs more than perf's events in the window, and longer by 4 us each, not explained yet"]
fn root_latencies_of_interrupts_are_those_of_the_events_that_perf_prints() {
    const THEIRS: &str = "irq:irq_handler_entry,irq:irq_handler_exit,irq:softirq_entry,irq:softirq_exit";
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("perf") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    // A file that is read from its disk is interrupts.
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "perf record -q -a -k CLOCK_MONOTONIC -m 8M -e {THEIRS} -o {} -- sh -c 'for round in 1 2 3 4 5 6 7 8; do \
         dd if={} of=/dev/null bs=64k count=50 iflag=direct 2>/dev/null; sleep 0.2; done'",
        data.display(),
        program.display()
    );
    let (trace, account) = record(directory.path(), &["-k", EVENTS], &["sh", "-c", &script]);
    assert_eq!(losses(&account).len(), 0, "{account}");
    let mut show = std::process::Command::new("perf");
    let show = show.args(["script", "--ns", "-F", "cpu,time,event,trace", "-i"]).arg(&data).output().unwrap();
    assert!(show.status.success(), "{}", String::from_utf8_lossy(&show.stderr));
    let said = String::from_utf8_lossy(&show.stdout).into_owned();
    assert!(!said.contains("LOST"), "perf lost events");
    let mut events: Vec<Printed> = said.lines().filter_map(printed).collect();
    assert!(!events.is_empty(), "perf prints something else: {said}");
    events.sort_by_key(|event| event.time);
    if events.is_empty() {
        return skip::say(format!("bpftrace prints no events here: {said}"));
    }
    let (from, to) = quiet(&events).unwrap_or_else(|| panic!("the machine is never quiet: {said}"));
    let mut begun: BTreeMap<(u32, (&str, u64)), u64> = BTreeMap::new();
    let mut theirs: BTreeMap<(&str, u64), Sum> = BTreeMap::new();
    for event in events.iter().filter(|event| (from..to).contains(&event.time)) {
        let key = (event.cpu, event.what);
        if !event.is_end {
            begun.insert(key, event.time);
        } else if let Some(since) = begun.remove(&key) {
            let sum = theirs.entry(event.what).or_default();
            *sum = (sum.0 + 1, sum.1 + event.time - since);
        }
    }
    let stat = reports(&trace, &[]).remove(0);
    let offset = stat["traces"][0]["clocks"][0]["offset_ns"].as_u64().unwrap();
    let [from, to] = [from, to].map(|time| (time + offset).to_string());
    let found = reports(&trace, &["--latency", "irq,softirq", "--from", &from, "--to", &to]);
    let [irqs, _, softirqs] = found.as_slice() else { panic!("{found:?}") };
    let mut ours: BTreeMap<(&str, u64), Sum> = BTreeMap::new();
    for (kind, report) in [("irq", irqs), ("softirq", softirqs)] {
        for row in report["rows"].as_array().unwrap() {
            ours.insert((kind, number(row, "id")), (number(row, "count"), number(row, "total_ns")));
        }
    }
    assert!(ours.keys().eq(theirs.keys()), "{ours:?} {theirs:?}");
    assert!(ours.keys().any(|(kind, _)| *kind == "softirq"), "{ours:?}");
    for (what, ours) in &ours {
        alike(&format!("{what:?}"), *ours, theirs[what]);
    }
}
