// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of tracepoints that are limited in their size (`--max-size`).

use crate::command::rtscope;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::machine::Cpus;
use serde_json::Value;

// NEEDS: host
#[test]
fn root_a_limited_recording_of_tracepoints_has_names_of_tasks_and_counts_what_is_gone() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let load = "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done";
    let mut record = rtscope();
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
    let Some(output) = babeltrace2::run(&trace, &[]) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let dumped = text.lines().filter(|line| line.contains("lttng_statedump_"));
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
