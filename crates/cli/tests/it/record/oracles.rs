// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --latency` beside tools of others.
//!
//! What each of them calls a latency:
//!
//! - `perf trace -s`: from the tracepoint at which a system call begins to the one at which it ends, as rtscope does.
//! - `strace -T`: from the stop before a system call to the stop after it (ptrace). Both tracepoints lie between them, so rtscope's time is
//!   never longer.
//! - `perf sched timehist`, "sch delay": from a waking to the switch by which the task gets a CPU; waits after a preemption are not in it.
//!   It uses `sched_waking` where perf recorded that, as rtscope does. (`perf sched latency` is something else: it adds waits after a
//!   preemption, which `stat --tasks` shows apart.) The last delay of a thread is never in it: the kernel gives a thread that has ended
//!   the number -1 in the event of its last switch, and perf then counts the run, without its delay, for a thread `:-1`.
//! - `perf script`: prints the events of interrupts and softirqs with their times, of which this file makes latencies. (bpftrace prints fewer:
//!   the kernel runs none of its programs in an interrupt that comes while one of them runs.)
//!
//! Times are compared of the same data: perf records, and makes a CTF trace of that, which rtscope reads. Times of two recordings of one load
//! differed by more than a limit allowed (pending in SPECIFICATION.md): likely by what comes between two probes of one event, which is not shown.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::figures::reports;
use super::kernel::record;
use crate::command::{json_lines, losses, rtscope};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EVENTS: &str = "syscalls,sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_process_*,task:task_rename,irq:*";

/// Threads of the load that begin and end while all tools watch.
const THREADS: [&str; 3] = ["sleeper", "asker", "answerer"];

/// perf prints milliseconds with three places.
const ROUNDED_NS: u64 = 1000;

/// Number and sum.
type Sum = (u64, u64);

/// What a command of perf prints of this data.
fn perf(data: &Path, arguments: &[&str]) -> String {
    let output = Command::new("perf").args(arguments).arg("-i").arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// The data as a trace, which perf makes. `None`: this perf makes none, which is said.
fn as_ctf(data: &Path) -> Option<PathBuf> {
    let converted = data.with_extension("ctf");
    let mut convert = Command::new("perf");
    let output =
        convert.args(["data", "convert", "-i"]).arg(data).arg("--to-ctf").arg(&converted).output().unwrap();
    if !output.status.success() {
        skip::say(format!("perf makes no CTF here: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(converted)
}

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

/// Names of system calls by number, from the kernel's header for programs.
fn call_names() -> Option<BTreeMap<String, String>> {
    let header = fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").ok()?;
    let lines = header.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    Some(lines.map(|(name, number)| (format!("call {number}"), name.to_owned())).collect())
}

/// By thread and call, as `perf trace -s` prints them.
fn by_perf_trace(said: &str) -> BTreeMap<(u64, String), Sum> {
    let mut sums = BTreeMap::new();
    let mut thread = None;
    for line in said.lines() {
        if let Some((head, _)) = line.split_once("), ").filter(|_| line.contains(" events, ")) {
            thread = head.rsplit_once('(').and_then(|(_, tid)| tid.parse::<u64>().ok());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let total = words.get(3).and_then(|total| total.parse::<f64>().ok());
        let (Some(tid), Some(total), [name, count, ..]) = (thread, total, words.as_slice()) else { continue };
        // A thread begins with the end of the call that made it, and a program with that of its execve: perf counts them, without a time.
        if let Some(count) = count.parse().ok().filter(|_| total > 0.0) {
            sums.insert((tid, (*name).to_owned()), (count, (total * 1e6).round() as u64));
        }
    }
    sums
}

// NEEDS: host
#[test]
fn root_latencies_of_system_calls_are_those_of_perf_trace() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("perf") {
        return;
    }
    let Some(names) = call_names() else { return skip::say("there are no headers of the C library") };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let tool = ["perf", "trace", "record", "-q", "-m", "4M", "-o", &data.to_string_lossy(), "--"];
    let trace = recorded_with(directory.path(), &tool);
    let said = perf(&data, &["trace", "-s"]);
    let theirs = by_perf_trace(&said);
    let Some(same) = as_ctf(&data) else { return };
    let all = reports(&trace, &["--latency", "syscalls"]).remove(0);
    let mut compared = 0;
    for (comm, tid) in threads(&all) {
        let (ours, of_same) = (calls_of(&trace, tid), calls_of(&same, tid));
        let wanted: BTreeMap<&str, Sum> = theirs
            .iter()
            .filter(|((of, _), _)| *of == tid)
            .map(|((_, name), sum)| (name.as_str(), *sum))
            .collect();
        // Of what it shows as no time nothing was taken from perf's text.
        let is_shown = |name: &str, total_ns: u64| total_ns > ROUNDED_NS || wanted.contains_key(name);
        let found: BTreeMap<&str, Sum> = of_same
            .iter()
            .map(|(call, row)| (names[call].as_str(), (number(row, "count"), number(row, "total_ns"))))
            .filter(|(name, (_, total_ns))| is_shown(name, *total_ns))
            .collect();
        assert!(found.keys().eq(wanted.keys()), "{comm}: {found:?} {wanted:?}");
        for (name, (count, total)) in &wanted {
            let same = found[name];
            assert!(
                same.0 == *count && same.1.abs_diff(*total) <= ROUNDED_NS,
                "{name} of {comm}: {same:?}, {total}"
            );
            assert_eq!(number(&ours[*name], "count"), *count, "{name} of {comm}: {}", ours[*name]);
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

// NEEDS: one kernel
#[test]
fn root_latencies_of_system_calls_lie_within_straces() {
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

/// The delays of each thread, in nanoseconds: of lines `time [cpu] comm[tid/pid] wait delay run`.
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

/// How many runs of each thread ended after it had said that it exits: perf has forgotten the thread by then and shows none of them. The run
/// in which it leaves is one, unless the host hides it; a thread that is kept from running while it exits has more.
fn runs_after_exit(said: &str) -> BTreeMap<u64, usize> {
    let mut runs = BTreeMap::new();
    for line in said.lines() {
        if let Some((_, ids)) = line.split_once("PERF_RECORD_EXIT(") {
            let tid = ids.split_once(')').and_then(|(ids, _)| ids.split_once(':')?.1.parse().ok());
            runs.extend(tid.map(|tid: u64| (tid, 0)));
        } else if let Some((_, switch)) = line.split_once("sched_switch: ") {
            let prev =
                switch.split_once("prev_pid=").and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok());
            if let Some(count) = prev.and_then(|tid: u64| runs.get_mut(&tid)) {
                *count += 1;
            }
        }
    }
    runs
}

/// The delays of a thread, from the events as they are printed, by the rules of both tools.
#[derive(Debug, Default)]
struct Printed {
    /// perf looks back when a run ends: it began with the CPU's switch before, whatever that switched to (some hosts hide threads, and with
    /// them the switches from them), and the wait with the first waking since the last run ended.
    of_perf: Vec<Option<u64>>,
    /// From the first waking after it left to the switch to it. Who was kept from going on needs no waking, and who was woken just before
    /// it left, and not after, waits from then on.
    of_rtscope: Vec<u64>,
    /// Runs whose beginning was not seen.
    hidden: u64,
}

/// What a thread has done since it left its CPU.
#[derive(Default)]
struct Since {
    left_ns: Option<u64>,
    was_preempted: bool,
    was_woken_before: bool,
    woken_ns: Option<u64>,
}

impl Since {
    fn delay_ns(&self, now_ns: u64) -> Option<u64> {
        let before = self.left_ns.filter(|_| self.was_woken_before);
        self.woken_ns.or(before).filter(|_| !self.was_preempted).map(|since_ns| now_ns - since_ns)
    }
}

/// The load's threads, as their switches name them: one whose switches some host hides has no latency.
fn threads_in(trace: &Path) -> BTreeMap<String, u64> {
    let mut print = rtscope();
    print.args(["print", "--format", "json", "--event", "sched_switch"]).arg(trace);
    let named = json_lines(&mut print).into_iter().map(|event| {
        (event["fields"]["prev_comm"].as_str().unwrap().to_owned(), number(&event["fields"], "prev_pid"))
    });
    let found: BTreeMap<String, u64> = named.filter(|(comm, _)| THREADS.contains(&comm.as_str())).collect();
    assert_eq!(found.len(), THREADS.len(), "{found:?}");
    found
}

fn printed_delays(trace: &Path, tid: u64) -> Printed {
    let events = "sched_waking,sched_wakeup_new,sched_switch";
    let mut printed = Printed::default();
    let mut switched_ns: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut runs, mut since, mut ready_ns) = (false, Since::default(), None);
    for event in json_lines(rtscope().args(["print", "--format", "json", "--event", events]).arg(trace)) {
        let (time_ns, fields) = (event["time_ns"].as_u64().unwrap(), &event["fields"]);
        // perf keeps the kernel's names of fields, others have LTTng's.
        let is_in = |names: [&str; 2]| names.iter().any(|name| fields[name] == tid);
        if event["event"].as_str().unwrap().ends_with("sched_switch") {
            let began_ns = switched_ns.insert(event["cpu"].as_u64().unwrap(), time_ns);
            if is_in(["prev_pid", "prev_tid"]) {
                let delay = began_ns.zip(ready_ns.take()).and_then(|(began, ready)| began.checked_sub(ready));
                printed.of_perf.push(delay.filter(|delay_ns| *delay_ns >= ROUNDED_NS));
                // The kernel's bit for a task that would have gone on is above those of the states.
                printed.hidden += u64::from(!runs);
                let state = fields["prev_state"].as_u64().unwrap();
                let was_woken_before = runs && since.woken_ns.is_some();
                let was_preempted = state & 0xff == 0;
                since = Since { left_ns: Some(time_ns), was_preempted, was_woken_before, woken_ns: None };
                runs = false;
            } else if is_in(["next_pid", "next_tid"]) {
                printed.of_rtscope.extend(since.delay_ns(time_ns));
                (since, runs) = (Since::default(), true);
            }
        } else if is_in(["pid", "tid"]) {
            since.woken_ns = since.woken_ns.or(Some(time_ns));
            ready_ns = ready_ns.or(Some(time_ns));
        }
    }
    printed
}

// NEEDS: host
#[test]
fn root_latencies_of_wakeups_are_those_of_perf_sched() {
    /// Only timers wake it, so that each recording of the load has the same number.
    const EXACT: &str = "sleeper";
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("perf") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let tool = ["perf", "sched", "record", "-q", "-m", "8M", "-o", &data.to_string_lossy(), "--"];
    let trace = recorded_with(directory.path(), &tool);
    if !perf(&data, &["evlist"]).contains("sched:sched_waking") {
        return skip::say("this perf records no sched_waking: its delays begin later than rtscope's");
    }
    let theirs = delays(&perf(&data, &["sched", "timehist"]));
    let last = runs_after_exit(&perf(&data, &["script", "--show-task-events"]));
    let Some(same) = as_ctf(&data) else { return };
    let row_of = |report: &Value, tid: u64| -> Sum {
        let row = report["tasks"].as_array().unwrap().iter().find(|task| task["tid"] == tid);
        row.map_or((0, 0), |row| (number(row, "count"), number(row, "total_ns")))
    };
    let report = reports(&same, &["--latency", "wakeup"]).remove(0);
    let ours = reports(&trace, &["--latency", "wakeup"]).remove(0);
    for (comm, tid) in threads_in(&same) {
        let none = Vec::new();
        let (printed, lengths) = (printed_delays(&same, tid), theirs.get(&tid).unwrap_or(&none));
        let last = *last.get(&tid).unwrap_or_else(|| panic!("perf has no end of {comm}, {tid}"));
        let but_last = &printed.of_perf[..printed.of_perf.len() - last];
        // Times are cut there, not rounded.
        let of_perf: Vec<u64> = but_last.iter().flatten().map(|ours| ours - ours % ROUNDED_NS).collect();
        assert_eq!(of_perf, *lengths, "{comm}");
        let wanted = (printed.of_rtscope.len() as u64, printed.of_rtscope.iter().sum());
        assert_eq!(row_of(&report, tid), wanted, "{comm}: {printed:?}");
        let recorded = printed_delays(&trace, tid);
        if comm == EXACT && printed.hidden + recorded.hidden == 0 {
            assert_eq!(
                row_of(&ours, tid).0,
                wanted.0,
                "another number in rtscope's recording of the same load: {recorded:?} {printed:?}"
            );
        }
    }
}

/// An event that perf printed: its time on the trace's clock, its CPU, and of what it is the beginning or the end.
struct PrintedEvent {
    time: u64,
    cpu: u32,
    what: (&'static str, u64),
    is_end: bool,
}

/// Of a line `[001] 12.345678901: irq:softirq_entry: vec=9 [action=RCU]`.
fn printed(line: &str) -> Option<PrintedEvent> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [cpu, time, event, field, ..] = words.as_slice() else { return None };
    let cpu = cpu.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let time = time.strip_suffix(':')?.replace('.', "").parse().ok()?;
    let (kind, field) = match field.split_once('=')? {
        ("irq", number) => ("irq", number),
        ("vec", number) => ("softirq", number),
        _ => return None,
    };
    Some(PrintedEvent { time, cpu, what: (kind, field.parse().ok()?), is_end: event.ends_with("_exit:") })
}

/// Number and sum of what ended, from the printed events.
fn of_printed(events: &[PrintedEvent]) -> BTreeMap<(&'static str, u64), Sum> {
    let mut begun: BTreeMap<(u32, (&str, u64)), u64> = BTreeMap::new();
    let mut sums: BTreeMap<(&str, u64), Sum> = BTreeMap::new();
    for event in events {
        let key = (event.cpu, event.what);
        if !event.is_end {
            begun.insert(key, event.time);
        } else if let Some(since) = begun.remove(&key) {
            let sum = sums.entry(event.what).or_default();
            *sum = (sum.0 + 1, sum.1 + event.time - since);
        }
    }
    sums
}

// NEEDS: host
#[test]
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
        "for round in 1 2 3 4 5 6 7 8; do dd if={} of=/dev/null bs=64k count=50 iflag=direct 2>/dev/null; sleep 0.1; done",
        program.display()
    );
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-m", "8M", "-e", THEIRS, "-o"]).arg(&data);
    let output = record.args(["--", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Some(same) = as_ctf(&data) else { return };
    let said = perf(&data, &["script", "--ns", "-F", "cpu,time,event,trace"]);
    assert!(!said.contains("LOST"), "perf lost events");
    let mut events: Vec<PrintedEvent> = said.lines().filter_map(printed).collect();
    events.sort_by_key(|event| event.time);
    let theirs = of_printed(&events);
    assert!(theirs.keys().any(|(kind, _)| *kind == "softirq"), "perf prints something else: {said}");
    let found = reports(&same, &["--latency", "irq,softirq"]);
    let [irqs, _, softirqs] = found.as_slice() else { panic!("{found:?}") };
    let mut ours: BTreeMap<(&str, u64), Sum> = BTreeMap::new();
    for (kind, report) in [("irq", irqs), ("softirq", softirqs)] {
        for row in report["rows"].as_array().unwrap() {
            ours.insert((kind, number(row, "id")), (number(row, "count"), number(row, "total_ns")));
        }
    }
    assert_eq!(ours, theirs);
}
