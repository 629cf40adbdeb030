// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope convert --to ctf`, as a command. (What a cut has is tested in `view` and `ctf`.)

use super::{LOAD, programs_trace, run};
use rtscope_testkit::recordings::info;
use rtscope_testkit::simulated::Machine;
use rtscope_testkit::{babeltrace2, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What is printed, with raw times and without differences.
#[track_caller]
fn lines(trace: &Path, arguments: &[&str]) -> Vec<String> {
    let output = run(&[&["print", "--format", "babeltrace", "--clock-raw"], arguments].concat(), trace);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    plain(&String::from_utf8_lossy(&output.stdout))
}

fn plain(text: &str) -> Vec<String> {
    let plain = |line: &str| {
        let (time, rest) = line.split_once(" (").unwrap();
        format!("{time}{}", rest.split_once(')').unwrap().1)
    };
    text.lines().map(plain).collect()
}

#[track_caller]
fn cut(trace: &Path, out: &Path, arguments: &[&str]) {
    let output = run(&[&["convert", out.to_str().unwrap(), "--to", "ctf"], arguments].concat(), trace);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The cut's events are those that `print` selects, and the state dump.
#[track_caller]
fn agrees(trace: &Path, cut: &Path, arguments: &[&str]) -> usize {
    let mut selected = lines(trace, arguments).into_iter().peekable();
    let found = lines(cut, &[]);
    for line in &found {
        let is_selected = selected.next_if(|next| next == line).is_some();
        assert!(is_selected || line.contains("lttng_statedump_"), "{arguments:?}: {line}");
    }
    assert_eq!(selected.next(), None, "{arguments:?}");
    if let Some(theirs) = babeltrace2::text(cut, &["--clock-cycles"]) {
        assert!(plain(&theirs) == found, "{arguments:?}");
    }
    found.len()
}

// NEEDS: host
#[test]
fn root_what_was_recorded_is_cut() {
    if skip::without_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let trace = root.path().join("trace");
    let mut record = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    record.args(["record", "-k", "sched:*,irq:*,syscalls", "-o"]).arg(&trace).args(["--", "sh", "-c", LOAD]);
    let output = record.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, arguments) in [
        ("all", &[][..]),
        ("middle", &["--from", "+100ms", "--until", "-50ms"]),
        ("cpu", &["--cpu", "0"]),
        ("task", &["--task", "ls"]),
        ("calls", &["--event", "syscall_*", "--until", "+150ms"]),
        ("where", &["--where", "ret < 0", "--event", "syscall_exit_*"]),
    ] {
        let part = root.path().join(name);
        cut(&trace, &part, arguments);
        assert!(agrees(&trace, &part, arguments) > 20, "{name}");
    }
    // What is known of the part: CPU time of tasks from where it begins.
    let figures = run(&["stat", "--tasks", "--json"], &root.path().join("middle"));
    assert!(figures.status.success(), "{}", String::from_utf8_lossy(&figures.stderr));
}

#[test]
fn events_of_programs_are_cut() {
    let root = tempfile::tempdir().unwrap();
    let part = root.path().join("part");
    let arguments = ["--event", "probe:text", "--cpu", "0"];
    cut(&programs_trace(), &part, &arguments);
    assert!(agrees(&programs_trace(), &part, &arguments) > 0);
}

#[test]
fn figures_are_refused_of_a_cut_without_some_events() {
    let root = tempfile::tempdir().unwrap();
    let (trace, part) = (root.path().join("trace"), root.path().join("part"));
    rtscope_ctf::write_trace(&trace, &Machine::new(4, 2, 10, false).recording(4_000), &info()).unwrap();
    cut(&trace, &part, &["--event", "sched_*"]);
    let refused = run(&["stat", "--tasks"], &part);
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && complaint.contains("was cut by --event"), "{complaint}");
    // Figures of a part of time are those of the same part of the whole.
    let late = root.path().join("late");
    cut(&trace, &late, &["--from", "+2ms"]);
    let figures = |trace: &Path, arguments: &[&str]| {
        let output = run(&[&["stat", "--tasks", "--json"], arguments].concat(), trace);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["tasks"].clone()
    };
    let (whole, cut) = (figures(&trace, &["--from", "+2ms"]), figures(&late, &[]));
    let key = |task: &serde_json::Value| task["tid"].as_u64().unwrap();
    let of_cut: std::collections::BTreeMap<u64, &serde_json::Value> =
        cut.as_array().unwrap().iter().map(|task| (key(task), task)).collect();
    assert!(whole.as_array().unwrap().len() > 5);
    for task in whole.as_array().unwrap() {
        let other = of_cut[&key(task)];
        // Not the waits: a cut has the states of tasks as they were when the recording began.
        for field in ["running", "voluntary_switches", "involuntary_switches", "migrations", "wakeups"] {
            assert!(!task[field].is_null(), "{field}: {task}");
            assert_eq!(task[field], other[field], "{field}: {task} {other}");
        }
    }
}

#[test]
fn a_cut_is_whole_or_not_there() {
    let root = tempfile::tempdir().unwrap();
    let trace = root.path().join("trace");
    rtscope_ctf::write_trace(&trace, &Machine::new(4, 2, 10, false).recording(4_000), &info()).unwrap();
    let out = root.path().join("out");
    let script = "ulimit -f 1; exec \"$@\"";
    let mut limited = Command::new("bash");
    limited.args(["-c", script, "bash", env!("CARGO_BIN_EXE_rtscope"), "convert"]);
    let output = limited.arg(&trace).arg(&out).args(["--to", "ctf"]).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && complaint.contains("cannot write"), "{output:?}");
    for (target, arguments, code, word) in [
        (trace.clone(), &[][..], 1, "exists already"),
        (trace.join("part"), &[], 1, "in the trace itself"),
        (out.clone(), &["--counter", "a.b"], 2, "--to perfetto"),
        ("-".into(), &[], 2, "a trace is a directory"),
    ] {
        let output =
            run(&[&["convert", target.to_str().unwrap(), "--to", "ctf"], arguments].concat(), &trace);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && complaint.contains(word), "{word}: {complaint}");
    }
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["trace"]);
}
