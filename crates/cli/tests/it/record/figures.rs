// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --tasks`, `--irqs` and `--syscalls` of recordings against what the kernel and strace count.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::kernel::record;
use crate::command::{json_lines, losses, rtscope};
use rtscope_testkit::machine::{self, Cpus};
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EVENTS: &str = "syscalls,sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_migrate_task,\
                      sched:sched_process_*,task:task_rename,irq:*,irq_vectors:*";

/// The reports, each a line of JSON.
pub fn reports(trace: &Path, which: &[&str]) -> Vec<Value> {
    json_lines(rtscope().arg("stat").arg(trace).arg("--json").args(which))
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {value}"))
}

/// Fails when waits for a CPU differ by more than the two ways of counting do. The kernel counts from the moment at which a task is on
/// the other CPU's queue, to which it may have come by an interrupt of its own (`TTWU_QUEUE`); a guest's takes some 10 us.
fn about(what: &str, ours_ns: u64, kernels_ns: u64, times: u64) {
    let least_ns = (kernels_ns - kernels_ns / 50).saturating_sub(times * 3000);
    let most_ns = kernels_ns + kernels_ns / 50 + times * 30_000;
    assert!((least_ns..=most_ns).contains(&ours_ns), "{what}: {ours_ns} ns, the kernel: {kernels_ns} ns");
}

fn find(report: &Value, which: impl Fn(&Value) -> bool) -> &Value {
    let tasks = report["tasks"].as_array().unwrap();
    tasks.iter().find(|task| which(task)).unwrap_or_else(|| panic!("it is not there: {report}"))
}

/// Divided at an event, the parts are the whole: in which state a task was then, what was before says.
fn check_parts(trace: &Path, report: &Value, task: &Value) {
    let middle = task["woken_wait"]["longest_at_ns"].to_string();
    let parts = ["--to", "--from"].map(|option| reports(trace, &["--tasks", option, &middle]).remove(0));
    let times = |report: &Value| {
        let task = find(report, |other| other["tid"] == task["tid"]);
        let blocked = task["blocked"].as_array().unwrap().iter().map(|wait| number(wait, "/total_ns")).sum();
        let [running, woken, preempted] = ["running", "woken_wait", "preempted_wait"]
            .map(|state| number(task, &format!("/{state}/total_ns")));
        [running, woken, preempted, blocked]
    };
    let [before, after] = parts.each_ref().map(times);
    let both: Vec<u64> = before.iter().zip(after).map(|(before, after)| before + after).collect();
    assert_eq!(both, times(report), "divided at {middle}: {before:?} {after:?}");
}

/// How often a thread was preempted when it had said already that it would wait. The kernel does not count that it came back from there:
/// `sched_info_depart()` queues only tasks that are runnable (kernel/sched/stats.h).
fn preempted_on_the_way_to_sleep(trace: &Path, tid: u64, until_ns: u64) -> u64 {
    let mut print = rtscope();
    print.args(["print", "--format", "json", "--event", "sched_switch"]).arg(trace);
    let is_such = |event: &Value| {
        let fields = &event["fields"];
        let preempted = fields["preempt"] == 1 && fields["prev_state_raw"] != 0;
        fields["prev_tid"] == tid && preempted && number(event, "/time_ns") <= until_ns
    };
    json_lines(&mut print).iter().filter(|event| is_such(event)).count() as u64
}

/// From the event of a thread's fork to that of its first wakeup, before which the kernel has put it into a queue.
fn unqueued_ns(trace: &Path, tid: u64) -> u64 {
    let mut print = rtscope();
    print.args(["print", "--format", "json", "--event", "sched_process_fork,sched_wakeup_new"]).arg(trace);
    let events = json_lines(&mut print);
    let of = |name: &str, field: &str| {
        let mut times = events.iter().filter(|event| event["event"] == name && event["fields"][field] == tid);
        times.next().map(|event| number(event, "/time_ns")).unwrap_or_else(|| panic!("{name} of {tid}"))
    };
    of("sched_wakeup_new", "tid") - of("sched_process_fork", "child_tid")
}

/// A recording of the load, what the kernel counted for its threads, and the report.
struct RecordedLoad {
    _directory: tempfile::TempDir,
    trace: PathBuf,
    said: Value,
    report: Value,
}

/// Some hosts hide switches to and from threads of their own; each shows when a task leaves that never came. What they hide is in no figure,
/// so recordings are made until there is one without. `Err`: how many were hidden in each.
fn without_hidden_switches() -> Result<RecordedLoad, Vec<u64>> {
    const RECORDINGS: usize = 5;
    let mut hidden = Vec::new();
    while hidden.len() < RECORDINGS {
        let directory = tempfile::tempdir().unwrap();
        let load = program("rtscope-accounts").unwrap();
        let said = directory.path().join("said");
        let script = format!("{} > {}", load.display(), said.display());
        let (trace, account) = record(directory.path(), &["-k", EVENTS], &["sh", "-c", &script]);
        let said: Value = serde_json::from_str(&fs::read_to_string(said).unwrap()).unwrap();
        let report = reports(&trace, &["--tasks"]).remove(0);
        let gaps = number(&report, "/missing/gaps");
        assert!(gaps == 0 || !machine::is_emulated(), "nobody hides switches here: {report}");
        assert_eq!(
            gaps,
            gaps_of(&account["losses"]),
            "the account of the recording says something else: {account}"
        );
        assert_eq!(gaps, gaps_of(&reports(&trace, &[])[0]["traces"][0]["losses"]), "and its trace");
        if gaps == 0 {
            return Ok(RecordedLoad { _directory: directory, trace, said, report });
        }
        hidden.push(gaps);
    }
    Err(hidden)
}

fn gaps_of(losses: &Value) -> u64 {
    let gaps = losses.as_array().unwrap().iter().filter(|loss| loss["cause"] == "gap");
    gaps.map(|loss| number(loss, "/count")).sum()
}

// NEEDS: one kernel
#[test]
fn root_tasks_have_the_times_and_switches_that_the_kernel_counts() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let RecordedLoad { trace, said, report, .. } = &match without_hidden_switches() {
        Ok(recorded) => recorded,
        Err(hidden) => skip!("the host hides switches in each recording: {hidden:?}"),
    };
    assert_eq!(report["schema"], "rtscope.stat.tasks/1");
    for thread in said["threads"].as_array().unwrap() {
        // Until the thread read its account. What came afterwards it could not say.
        let until = reports(trace, &["--tasks", "--to", &thread["at_ns"].to_string()]).remove(0);
        let name = thread["name"].as_str().unwrap();
        let task = find(&until, |task| task["tid"] == thread["tid"]);
        assert_eq!(task["comm"], name, "{task}");
        for (ours, kernels) in [("voluntary_switches", "voluntary"), ("involuntary_switches", "involuntary")]
        {
            let (ours, kernels) = (number(task, &format!("/{ours}")), number(thread, &format!("/{kernels}")));
            assert_eq!(ours, kernels, "{ours} of {name}: {task} {thread}");
        }
        let times = number(task, "/running/count");
        let uncounted =
            preempted_on_the_way_to_sleep(trace, number(thread, "/tid"), number(thread, "/at_ns"));
        assert_eq!(times, number(thread, "/times") + uncounted, "{name}, {uncounted}: {task} {thread}");
        assert!(find(report, |task| task["tid"] == thread["tid"])["ended"].as_bool().unwrap());
        // The kernel takes its times some microseconds before or after the event. Where CPUs are emulated, the host can set one aside
        // between the two for any time, so that durations mean nothing.
        if machine::is_emulated() {
            continue;
        }
        let waited_ns = number(task, "/woken_wait/total_ns") + number(task, "/preempted_wait/total_ns");
        about(name, waited_ns, number(thread, "/waited_ns"), times);
        // What a task waits ends, and what it runs begins, when the kernel begins to choose: before the event of the switch, by more or less as the
        // host is quick or slow. But both together are from after the event of the wakeup to before that of the switch, without what the host took.
        let ours_ns =
            waited_ns + number(task, "/running/total_ns") + unqueued_ns(trace, number(thread, "/tid"));
        let kernels_ns = number(thread, "/waited_ns") + number(thread, "/running_ns");
        // The clock of events can be slower than the kernel's by 500 ppm (adjtimex(2)).
        assert!(ours_ns + kernels_ns / 2000 >= kernels_ns, "{name}: {ours_ns} ns, {task} {thread}");
    }
    let by_name = |name: &str| find(report, |task| task["comm"] == name);
    let one = reports(trace, &["--tasks", "--task", "sleepe*"]).remove(0);
    assert_eq!(one["tasks"].as_array().unwrap().len(), 1, "{one}");
    let computes = number(by_name("compute-1"), "/running/total_ns");
    // Two on one CPU: each waits about as long as it runs.
    assert!(number(by_name("compute-2"), "/preempted_wait/total_ns") > computes / 4);
    let sleeper = by_name("sleeper");
    let sleeps = &sleeper["blocked"][0];
    assert_eq!((&sleeps["syscall"], &sleeps["state"]), (&"clock_nanosleep".into(), &"interruptible".into()));
    check_parts(trace, report, sleeper);
    // A sleep whose time is over before the thread has left its CPU is no wait: an emulated CPU is slow enough for that.
    let slept = number(sleeps, "/count");
    assert!(slept == 50 || (machine::is_emulated() && (1..50).contains(&slept)), "{sleeper}");
    let calls = sleeper["syscalls"].as_array().unwrap().iter().find(|call| call["name"] == "clock_nanosleep");
    assert_eq!(number(calls.unwrap(), "/count"), 50, "{sleeper}");
    assert!(number(sleeps, "/total_ns") >= 50 * 500_000, "{sleeper}");
    let waits = by_name("asker")["blocked"].as_array().unwrap();
    assert!(waits.iter().any(|wait| wait["syscall"] == "futex"), "{waits:?}");
    let opens = sleeper["syscalls"].as_array().unwrap().iter().find(|call| call["name"] == "openat").unwrap();
    assert_eq!(number(opens, "/errors"), 50);
}

/// Calls and errors of the load's threads, by strace.
fn by_strace(load: &Path) -> BTreeMap<String, (u64, u64)> {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("table");
    let strace = Command::new("strace")
        .args(["-f", "-c", "-U", "name,calls,errors", "-o"])
        .arg(&table)
        .arg(load)
        .arg("--silent")
        .output();
    assert!(strace.unwrap().status.success());
    let text = fs::read_to_string(table).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let calls = words.get(1)?.parse().ok()?;
        Some((words[0].to_owned(), (calls, words.get(2).and_then(|errors| errors.parse().ok()).unwrap_or(0))))
    };
    text.lines().filter_map(line).collect()
}

// NEEDS: one kernel
#[test]
fn root_system_calls_are_as_many_as_strace_counts() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let load = program("rtscope-accounts").unwrap();
    let (trace, account) = record(directory.path(), &["-k", EVENTS], &[&load.to_string_lossy(), "--silent"]);
    assert_eq!(losses(&account).len(), 0, "{account}");
    let strace = by_strace(&load);
    let all = reports(&trace, &["--tasks", "--syscalls"]);
    let [tasks, syscalls] = all.as_slice() else { panic!("{all:?}") };
    let is_of_load = |task: &&Value| {
        // As the kernel cuts the name of the first.
        let names = ["rtscope-account", "sleeper", "compute-1", "compute-2", "asker", "answerer"];
        names.iter().any(|name| task["comm"] == *name)
    };
    let mut ours: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for task in tasks["tasks"].as_array().unwrap().iter().filter(is_of_load) {
        for call in task["syscalls"].as_array().unwrap() {
            let sum = ours.entry(call["name"].as_str().unwrap().to_owned()).or_default();
            *sum = (sum.0 + number(call, "/count"), sum.1 + number(call, "/errors"));
        }
    }
    // Of the others the number depends on who is faster, or on what ran before exec.
    for name in [
        "clock_nanosleep",
        "openat",
        "read",
        "gettid",
        "prctl",
        "sched_setaffinity",
        "clone3",
        "statx",
        "sigaltstack",
    ] {
        assert_eq!(ours.get(name), strace.get(name), "{name}: {ours:?} {strace:?}");
    }
    let of = |name: &str| {
        let all = syscalls["syscalls"].as_array().unwrap();
        all.iter().find(|call| call["name"] == name).unwrap_or_else(|| panic!("{name}: {syscalls}"))
    };
    let slept = of("clock_nanosleep");
    assert_eq!(number(of("exit_group"), "/unfinished"), number(of("exit_group"), "/count"));
    assert!(number(of("openat"), "/error_numbers/2") >= 50);
    assert!(number(slept, "/longest_ns") >= 500_000 && slept["longest_by"]["comm"].is_string(), "{slept}");
}

/// Softirqs so far, by name: the sum over all CPUs.
fn softirqs() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/softirqs").unwrap();
    let line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        Some((
            name.trim().to_owned(),
            counts.split_whitespace().filter_map(|count| count.parse::<u64>().ok()).sum(),
        ))
    };
    text.lines().filter_map(line).collect()
}

// NEEDS: one kernel
#[test]
fn root_softirqs_are_as_many_as_the_kernel_counts() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    let around = softirqs();
    // Read twice within the recording: what lies between is recorded, and what is recorded lies around.
    let script =
        format!("cat /proc/softirqs > {0}.1; sleep 0.3; cat /proc/softirqs > {0}.2", inside.display());
    let (trace, _) = record(directory.path(), &["-k", EVENTS], &["sh", "-c", &script]);
    let after = softirqs();
    let within = |place: u32, name: &str| {
        let text = fs::read_to_string(format!("{}.{place}", inside.display())).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.split_whitespace().map(|count| count.parse::<u64>().unwrap()).sum::<u64>()
    };
    let report = reports(&trace, &["--irqs"]).remove(0);
    let rows = report["rows"].as_array().unwrap();
    let mut seen = 0;
    for row in rows.iter().filter(|row| row["kind"] == "softirq") {
        let name = row["name"].as_str().unwrap();
        let count: u64 = row["cpus"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        let least = within(2, name) - within(1, name);
        let most = after[name] - around[name];
        assert!((least..=most).contains(&count), "{name}: {count}, the kernel: {least} to {most}");
        assert!(number(row, "/own_ns") <= number(row, "/total_ns"));
        seen += count;
    }
    assert!(seen > 0);
    assert!(rows.iter().any(|row| row["kind"] == "vector" && row["name"] == "local_timer"), "{rows:?}");
}
