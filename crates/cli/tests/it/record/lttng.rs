// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng's own analyses of our traces: what they need is there, under LTTng's names and in LTTng's form.

use super::kernel::record;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes that dd writes past the page cache: 20 blocks.
const WRITTEN: u64 = 20 * 65536;

/// The tables of an analysis: their classes (or titles) and rows.
fn analysis(name: &str, trace: &Path) -> Vec<(String, Vec<Vec<Value>>)> {
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

fn rows<'t>(tables: &'t [(String, Vec<Vec<Value>>)], title: &str) -> &'t [Vec<Value>] {
    let table = tables.iter().find(|(of, _)| of.contains(title));
    table.map_or_else(|| panic!("no table {title:?}: {tables:?}"), |(_, rows)| rows)
}

/// The number in a column, of the rows that are about a process of this name.
fn of_process(rows: &[Vec<Value>], name: &str, column: usize) -> u64 {
    let ours = rows.iter().filter(|row| row[0]["name"] == name);
    ours.map(|row| row[column]["value"].as_f64().expect("a number") as u64).sum()
}

// NEEDS: verifier
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
    // They look for the tracer's version in a directory of this name.
    let above = directory.path().join("traces");
    fs::create_dir(&above).expect("a directory");
    fs::rename(&trace, above.join("kernel")).expect("the same file system");
    let cpus = analysis("cputop", &above);
    assert!(!rows(&cpus, "per-cpu").is_empty() && !rows(&cpus, "per-process").is_empty(), "{cpus:?}");
    let switches = analysis("schedstats", &above);
    assert!(of_process(rows(&switches, "per_tid_stats"), "sh", 1) > 0, "{switches:?}");
    // An interrupt whose beginning or end is outside the recording is not counted; softirqs they do not look for.
    let interrupts = analysis("irqstats", &above);
    let counted: u64 =
        rows(&interrupts, "hard-stats").iter().map(|row| row[1]["value"].as_u64().expect("a number")).sum();
    let recorded = account["by_event"]["irq_handler_entry"].as_u64().unwrap_or(0);
    let streams = fs::read_dir(above.join("kernel")).expect("the trace").count() as u64 - 1;
    assert!(counted.abs_diff(recorded) <= 2 * streams, "{counted} of {recorded}: {interrupts:?}");
    let calls = analysis("syscallstats", &above);
    let writes: Vec<u64> = (calls.iter().flat_map(|(_, rows)| rows))
        .filter(|row| row[0]["name"] == "write")
        .map(|row| row[1]["value"].as_u64().expect("a number"))
        .collect();
    // Of one thread: dd's blocks, and up to three lines that say what it did.
    assert!(writes.iter().any(|writes| (21..=23).contains(writes)), "{writes:?}");
    assert!(!rows(&analysis("iolatencytop", &above), "[open]").is_empty());
    let disks = analysis("iousagetop", &above);
    if account["by_event"]["block_rq_issue"].as_u64().unwrap_or(0) == 0 {
        return skip::say("there is no disk below this directory");
    }
    let written = rows(&disks, "block I/O operations [written]");
    let written: u64 = written.iter().map(|row| row[1]["value"].as_u64().expect("a number")).sum();
    assert!(written >= WRITTEN, "{written}: {disks:?}");
}
