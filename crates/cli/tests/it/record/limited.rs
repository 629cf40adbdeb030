// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of tracepoints that are limited in their size (`--max-size`).

use crate::command::{SmallDisk, rtscope};
use crate::programs::limited::most_during;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;

// NEEDS: host
#[test]
fn root_a_limited_recording_of_tracepoints_has_names_of_tasks_and_counts_what_is_gone() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let load = "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done";
    let mut record = rtscope();
    // Cargo's, in which the loader of each program would search: a hundred calls for each.
    record.env_remove("LD_LIBRARY_PATH");
    record.args(["record", "-k", "sched:*,syscalls:*", "--max-size", "8M", "--json", "-o"]).arg(&trace);
    let output = record.args(["--", "sh", "-c", load]).output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (events, overwritten) = (&summary["events"], &summary["overwritten"]);
    assert!(overwritten["events"].as_u64() > Some(1000), "{summary}");
    let recorded: u64 =
        summary["by_event"].as_object().expect("a map").values().filter_map(Value::as_u64).sum();
    assert_eq!(
        events.as_u64().zip(overwritten["events"].as_u64()).map(|(one, other)| one + other),
        Some(recorded)
    );
    let Some(text) = babeltrace2::text_with_losses(&trace) else { return };
    // Renamings were not asked for: they name tasks, as the state dump.
    let names = |line: &&str| line.contains("lttng_statedump_") || line.contains(" task_rename: ");
    let dumped = text.lines().filter(names);
    assert_eq!(text.lines().count() - dumped.count(), events.as_u64().expect("a number") as usize);
    // The state of the beginning is gone; the trace has that of later moments.
    assert!(text.contains("lttng_statedump_process_state") && !trace.join("kernel_0_0_0").exists());
    assert!(
        text.contains("name = \"rcu_preempt\"") || text.contains("name = \"kthreadd\""),
        "no names of tasks"
    );
}

// NEEDS: host
#[test]
fn root_a_limit_that_is_too_small_is_refused_with_the_least_one() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let mut record = rtscope();
    record.args(["record", "-k", "sched:*", "--max-size", "100K", "-o"]).arg(&trace);
    let output = record.output().expect("it can be started");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && notes.contains("needs at least"), "{notes}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("ours").count(), 0, "something is left");
}

/// Events of a trace by name, as its account has them: what is left is in the trace, what was overwritten is counted.
fn left_and_overwritten(account: &Value) -> (u64, u64) {
    let number = |path: &str| {
        account.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {account}"))
    };
    let recorded: u64 =
        account["by_event"].as_object().expect("a map").values().filter_map(Value::as_u64).sum();
    let (left, overwritten) = (number("/events"), number("/overwritten/events"));
    assert_eq!(left + overwritten, recorded, "{account}");
    (left, overwritten)
}

// NEEDS: host
#[test]
fn root_a_limit_is_for_tracepoints_and_programs_together() {
    const LIMIT: u64 = 24 << 20;
    const EVENTS: u64 = 1_500_000;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = directory.path().join("trace");
    let (emitter, count) = (program("rtscope-emitter").expect("built"), EVENTS.to_string());
    let script = format!(
        "i=0; while [ $i -lt 1500 ]; do /bin/true; i=$((i+1)); done; {} count {count}",
        emitter.display()
    );
    let run = || {
        let mut record = rtscope();
        record.args(["record", "-k", "sched:*,syscalls:*", "-u", "test:*", "--user-buffer", "64M"]);
        record.args(["--max-size", "24M", "--json", "-o"]).arg(&target).args(["--", "sh", "-c", &script]);
        record.output().expect("it can be started")
    };
    let (output, most, looks) = most_during(&target, run);
    assert!(output.status.success(), "{output:?}");
    assert!(most <= LIMIT && most > LIMIT / 4 && looks > 20, "{most} bytes in {looks} looks");
    let text = String::from_utf8_lossy(&output.stdout);
    let accounts: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |schema: &str| {
        let account = accounts.iter().find(|account| account["schema"] == schema);
        account.unwrap_or_else(|| panic!("{schema}: {text}"))
    };
    let (_, gone) = left_and_overwritten(of("rtscope.record/1"));
    let programs = of("rtscope.record.user/1");
    let (left, overwritten) = left_and_overwritten(programs);
    assert_eq!(left + overwritten + crate::command::lost(programs), EVENTS, "{programs}");
    assert!(gone > 0 && overwritten > 0 && left > 0, "{gone} {overwritten} {left}");
    // Both are one trace, whose oldest times are the same but for what is removed at once.
    if let Some(output) = babeltrace2::run(&target, &[]) {
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        // This load is more than the buffers hold here; that is counted.
        let others: Vec<&str> = complaints.lines().filter(|line| !line.contains("discarded")).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

// NEEDS: host
#[test]
fn root_a_limit_larger_than_the_disk_ends_the_recording_and_keeps_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(disk) = SmallDisk::new("size=12M") else { skip!("a small disk cannot be mounted here") };
    let target = disk.path().join("trace");
    let mut record = rtscope();
    record
        .args(["record", "-k", "syscalls:*,sched:*", "--max-size", "64M", "--duration", "60s", "-o"])
        .arg(&target);
    let load = "while :; do ls -lR /usr/share > /dev/null; done";
    let output = record.args(["--", "sh", "-c", load]).output().expect("it can be started");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("No space left") || notes.contains("the disk is full"), "{notes}");
    // What was recorded is a trace, now or after --recover.
    if !target.join("metadata").is_file() {
        assert!(notes.contains(&format!("rtscope record --recover {}", target.display())), "{notes}");
        let recovered =
            rtscope().args(["record", "--recover"]).arg(&target).output().expect("it can be started");
        assert!(recovered.status.success(), "{notes} {recovered:?}");
    }
    let stat = rtscope().args(["stat", "--json"]).arg(&target).output().expect("it can be started");
    let stat: Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    assert!(stat["events"].as_u64() > Some(1000), "{stat}");
    fs::remove_dir_all(&target).expect("there");
    // Nothing of rtscope is left that uses it.
    disk.unmount();
}
