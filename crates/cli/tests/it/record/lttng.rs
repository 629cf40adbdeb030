// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng's own analyses of our traces: what they need is there, under LTTng's names and in LTTng's form.

use super::kernel::record;
use crate::command::lost;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes that dd writes past the page cache: 20 blocks.
const WRITTEN: u64 = 20 * 65536;

/// The tables of an analysis: their classes (or titles) and rows.
pub(super) fn analysis(name: &str, trace: &Path) -> Vec<(String, Vec<Vec<Value>>)> {
    let output = Command::new(format!("lttng-{name}-mi"))
        .arg("--skip-validation")
        .arg(trace)
        .output()
        .expect("it can be started");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lttng-{name}-mi: {complaints}");
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("lttng-{name}-mi: {error}: {complaints}"));
    let tables = result["results"].as_array().unwrap_or_else(|| panic!("lttng-{name}-mi: {result}"));
    let title = |class: &Value| class.as_str().or(class["title"].as_str()).unwrap_or_default().to_owned();
    let rows = |table: &Value| serde_json::from_value(table["data"].clone()).expect("rows");
    tables.iter().map(|table| (title(&table["class"]), rows(table))).collect()
}

pub(super) fn rows<'t>(tables: &'t [(String, Vec<Vec<Value>>)], title: &str) -> &'t [Vec<Value>] {
    let table = tables.iter().find(|(of, _)| of.contains(title));
    table.map_or_else(|| panic!("no table {title:?}: {tables:?}"), |(_, rows)| rows)
}

/// The number in a column, of the rows that are about a process of this name.
fn of_process(rows: &[Vec<Value>], name: &str, column: usize) -> u64 {
    let ours = rows.iter().filter(|row| row[0]["name"] == name);
    ours.map(|row| row[column]["value"].as_f64().expect("a number") as u64).sum()
}

// NEEDS: one kernel
#[test]
fn root_lttngs_analyses_read_a_recording() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("lttng-cputop-mi") {
        return;
    }
    // Not /tmp, which is memory on many machines.
    let program = std::env::current_exe().expect("/proc");
    let directory = tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory");
    let file = directory.path().join("file");
    let script = format!(
        "dd if=/dev/zero of={} bs=64k count=20 oflag=direct conv=notrunc && ls -l /etc > {}",
        file.display(),
        directory.path().join("list").display()
    );
    let patterns = "sched:sched_switch,sched:sched_waking,sched:sched_process_*,irq:*,block:*,syscalls";
    let (trace, account) = record(directory.path(), &["-k", patterns], &["sh", "-c", &script]);
    assert_eq!(fs::metadata(&file).expect("dd wrote it").len(), WRITTEN);
    let cpus = analysis("cputop", &trace);
    assert!(!rows(&cpus, "per-cpu").is_empty() && !rows(&cpus, "per-process").is_empty(), "{cpus:?}");
    let switches = analysis("schedstats", &trace);
    assert!(of_process(rows(&switches, "per_tid_stats"), "sh", 1) > 0, "{switches:?}");
    // An interrupt whose beginning or end is outside the recording is not counted; softirqs they do not look for.
    let interrupts = analysis("irqstats", &trace);
    let counted: u64 =
        rows(&interrupts, "hard-stats").iter().map(|row| row[1]["value"].as_u64().expect("a number")).sum();
    let recorded = account["by_event"]["irq_handler_entry"].as_u64().unwrap_or(0);
    let streams = fs::read_dir(trace.join("kernel")).expect("the trace").count() as u64 - 1;
    assert!(counted.abs_diff(recorded) <= 2 * streams, "{counted} of {recorded}: {interrupts:?}");
    let calls = analysis("syscallstats", &trace);
    let writes: Vec<u64> = (calls.iter().flat_map(|(_, rows)| rows))
        .filter(|row| row[0]["name"] == "write")
        .map(|row| row[1]["value"].as_u64().expect("a number"))
        .collect();
    // Of one thread: dd's blocks, and up to three lines that say what it did.
    assert!(writes.iter().any(|writes| (21..=23).contains(writes)), "{writes:?}");
    assert!(!rows(&analysis("iolatencytop", &trace), "[open]").is_empty());
    let disks = analysis("iousagetop", &trace);
    if account["by_event"]["block_rq_issue"].as_u64().unwrap_or(0) == 0 {
        return skip::say("there is no disk below this directory");
    }
    let written = rows(&disks, "block I/O operations [written]");
    let written: u64 = written.iter().map(|row| row[1]["value"].as_u64().expect("a number")).sum();
    assert!(written >= WRITTEN, "{written}: {disks:?}");
}

/// Fails when a sum is not the mean times the number, but for the mean's rounding.
fn same_sum(what: &str, ours: &Value, number: u64, mean_ns: f64) {
    let sum_ns = mean_ns * number as f64;
    let ours_ns = ours.as_u64().expect("a number") as f64;
    assert!((ours_ns - sum_ns).abs() <= 1.0 + sum_ns * 1e-9, "{what}: {ours_ns}, LTTng's: {sum_ns}");
}

fn number(cell: &Value) -> u64 {
    cell["value"].as_u64().expect("a number")
}

fn mean(cell: &Value) -> f64 {
    cell["value"].as_f64().expect("a number")
}

// NEEDS: one kernel
#[test]
fn root_stat_says_what_lttngs_analyses_say() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("lttng-cputop-mi") {
        return;
    }
    // Where a switch is missing (some hosts hide those of some of their threads), time is nobody's in ours, and in theirs it is not.
    if !(0..5).any(|_| stat_says_what_they_say()) {
        skip::say("events were missing from five recordings (some hosts hide switches)");
    }
}

fn same_interrupts(account: &Value, above: &Path, interrupts: &Value) {
    let hard = analysis("irqstats", above);
    // Without an interrupt they have no table of them.
    let hard: Vec<_> = hard.iter().filter(|(title, _)| title.contains("hard-stats")).collect();
    assert!(!hard.is_empty() || account["by_event"]["irq_handler_entry"].is_null(), "{account}");
    for row in hard.iter().flat_map(|(_, rows)| rows) {
        let ours = interrupts["rows"].as_array().expect("rows").iter();
        let ours = ours.filter(|ours| ours["kind"] == "irq").find(|ours| ours["id"] == row[0]["nr"]);
        let ours = ours.unwrap_or_else(|| panic!("{row:?}: {interrupts}"));
        assert_eq!(ours["count"], row[1]["value"], "{row:?}");
        same_sum("an interrupt", &ours["total_ns"], number(&row[1]), mean(&row[3]));
    }
}

/// False: they cannot be compared.
fn stat_says_what_they_say() -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    // Without `sched_wakeup_new`, which they do not look for: a new thread's first wait would be in ours alone.
    let patterns =
        "sched:sched_switch,sched:sched_waking,sched:sched_process_*,task:task_rename,irq:*,syscalls";
    let load = program("rtscope-accounts").expect("built");
    let (trace, account) =
        record(directory.path(), &["-k", patterns], &[&load.to_string_lossy(), "--silent"]);
    let report = |which: &str| super::figures::reports(&trace, &[which]).remove(0);
    let (tasks, interrupts) = (report("--tasks"), report("--irqs"));
    if lost(&account) > 0 || tasks["missing"]["gaps"] != 0 {
        return false;
    }
    let all = |report: &Value, key: &str| report[key].as_array().expect("a list").clone();
    // The load's threads. Of others they know nothing before the first switch on each CPU, where our events name their thread; of
    // rtscope's own the trace has switches only.
    let names = ["sleeper", "compute-1", "compute-2", "asker", "answerer"];
    let of_load = |tid: &Value| {
        let task = all(&tasks, "tasks").into_iter().find(|task| task["tid"] == *tid)?;
        names.iter().any(|name| task["comm"] == *name).then_some(task)
    };

    let switches = analysis("schedstats", &trace);
    let mut compared = 0;
    for row in rows(&switches, "per_tid_stats") {
        let Some(task) = of_load(&row[0]["tid"]) else { continue };
        let wait = &task["woken_wait"];
        // They do not know wakings that are older than the switch by which their task leaves.
        assert!(wait["count"].as_u64() >= row[1]["value"].as_u64(), "{row:?}: {task}");
        if wait["count"] == row[1]["value"] {
            same_sum(&format!("waits of {task}"), &wait["total_ns"], number(&row[1]), mean(&row[3]));
            compared += 1;
        }
    }
    assert!(compared >= 1, "{switches:?}");

    same_interrupts(&account, &trace, &interrupts);
    let calls = analysis("syscallstats", &trace);
    let mut compared = 0;
    for (title, rows) in &calls {
        let tid = title.split_once("TID: ").and_then(|(_, tid)| tid.strip_suffix(")]")?.parse::<u32>().ok());
        let Some(task) = tid.and_then(|tid| of_load(&tid.into())) else { continue };
        for row in rows {
            let ours = all(&task, "syscalls").into_iter().find(|call| call["name"] == row[0]["name"]);
            let ours = ours.unwrap_or_else(|| panic!("{row:?}: {task}"));
            let ended =
                ours["count"].as_u64().expect("a number") - ours["unfinished"].as_u64().expect("a number");
            assert_eq!(ended, number(&row[1]), "{row:?}: {ours}");
            same_sum(&format!("{ours}"), &ours["total_ns"], number(&row[1]), mean(&row[3]));
            compared += 1;
        }
    }
    assert!(compared >= 30, "{compared} system calls");

    let cpus = analysis("cputop", &trace);
    let mut shares = Vec::new();
    for row in rows(&cpus, "per-process") {
        let Some(task) = of_load(&row[0]["tid"]) else { continue };
        shares.push((task["running"]["total_ns"].as_u64().expect("a number") as f64, mean(&row[3])));
    }
    // They list ten, and others may run more. Shares are of a time that they may end an event earlier than the trace; the load ended before.
    let length_ns = shares.first().map_or(0.0, |(ours_ns, share)| ours_ns / share);
    let time = |which: &str| tasks["span"][which].as_i64().expect("a time");
    let span_ns = (time("last_ns") - time("first_ns")) as f64;
    assert!(
        length_ns <= span_ns + 1.0 && length_ns > span_ns * 0.95,
        "{length_ns} of {span_ns} ns: {cpus:?}"
    );
    for (ours_ns, share) in shares {
        assert!((ours_ns - share * length_ns).abs() < 1.0, "{ours_ns} ns: {share} of {length_ns} ns");
    }
    true
}
