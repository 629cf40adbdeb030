// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope convert --to perfetto`, read by Perfetto's own engine: its tables have what the events say, by a computation of
//! their own (`model`), and it complains of nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cut;
mod late;
mod model;
mod spans;

use super::command::rtscope;
use model::{Event, Expected, StateRow};
use rtscope_testkit::perfetto::{COMPLAINTS, Row, engine, query};
use rtscope_testkit::recordings::info;
use rtscope_testkit::simulated::Machine;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(arguments: &[&str], trace: &Path) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_rtscope")).arg(command).arg(trace).args(rest).output().unwrap()
}

/// Converts; returns the file and what was reported.
#[track_caller]
fn convert(trace: &Path, out: &Path, arguments: &[&str]) -> (PathBuf, String) {
    let file = out.join("converted.pftrace");
    let mut all = vec!["convert", file.to_str().unwrap(), "--to", "perfetto"];
    all.extend(arguments);
    let output = run(&all, trace);
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {report}");
    (file, report)
}

/// The events that `print` shows, on the clock of the conversion.
fn printed(trace: &Path, arguments: &[&str]) -> Vec<Event> {
    let output = run(&[&["print", "--format", "json"], arguments].concat(), trace);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    model::events(&String::from_utf8(output.stdout).unwrap(), clock_offset(trace))
}

/// Where the metadata says that the clock's zero is.
fn clock_offset(trace: &Path) -> i64 {
    let metadata = [trace.join("metadata"), trace.join("kernel/metadata")];
    let text = metadata.iter().find_map(|path| fs::read(path).ok()).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let offset = text.split("offset = ").nth(1).and_then(|rest| rest.split(';').next());
    offset.unwrap().parse().unwrap()
}

fn text(cell: &Value) -> String {
    cell.as_str().unwrap_or_default().to_owned()
}

fn slices(rows: &[Row]) -> BTreeSet<model::Slice> {
    let place = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
    let slice =
        |row: &Row| (place(&row[0]), row[1].as_i64().unwrap(), row[2].as_i64().unwrap(), text(&row[3]));
    rows.iter().map(slice).collect()
}

/// The first few elements that only one of two sets has.
#[track_caller]
fn same<T: Ord + std::fmt::Debug>(what: &str, theirs: &BTreeSet<T>, ours: &BTreeSet<T>) {
    let more: Vec<_> = theirs.difference(ours).take(3).collect();
    let less: Vec<_> = ours.difference(theirs).take(3).collect();
    let counts = (theirs.len(), ours.len());
    assert!(
        more.is_empty() && less.is_empty(),
        "{what} {counts:?}: only Perfetto {more:#?}, only we {less:#?}"
    );
}

const STATES: &str = "select t.tid, s.ts, s.dur, s.state, s.cpu, w.tid, s.irq_context from thread_state s \
    join thread t using (utid) left join thread w on w.utid = s.waker_utid where t.tid < 4194304";
const SCHED: &str = "select t.tid, s.ts, s.dur, s.end_state, s.cpu, null, null from sched s \
    join thread t using (utid) where t.tid between 1 and 4194303";
const INTERRUPTS: &str = "select t.name, s.ts, s.dur, s.name from slice s join track t on t.id = s.track_id \
    where (t.name glob 'Irq Cpu*' or t.name glob 'SoftIrq Cpu*' or t.name glob 'Hrtimer Cpu*') and s.dur >= 0";
const CALLS: &str = "select th.tid, s.ts, s.dur, s.name from slice s join thread_track t on t.id = s.track_id \
    join thread th using (utid) where s.name glob 'sys_*' and s.dur >= 0";
const PROCESSES: &str = "select distinct t.tid, p.pid from thread_state s join thread t using (utid) \
    join process p using (upid) where t.tid < 4194304";
const SPURIOUS: &str = "select count(*) from spurious_sched_wakeup";

fn state(row: &Row) -> StateRow {
    StateRow {
        tid: row[0].as_i64().unwrap(),
        ts: row[1].as_i64().unwrap(),
        dur: row[2].as_i64().unwrap(),
        state: row[3].as_str().map(str::to_owned),
        cpu: row[4].as_i64(),
        waker: row[5].as_i64(),
        in_interrupt: row[6].as_i64(),
    }
}

/// Slices of CPUs, from the states: each running state, with the state that follows it.
fn cpu_slices(states: &[StateRow]) -> BTreeSet<StateRow> {
    let mut of_thread: std::collections::BTreeMap<i64, Vec<&StateRow>> = Default::default();
    states.iter().for_each(|row| of_thread.entry(row.tid).or_default().push(row));
    let mut slices = BTreeSet::new();
    for rows in of_thread.values() {
        for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.state.as_deref() == Some("Running"))
        {
            let state = rows.get(place + 1).and_then(|next| next.state.clone());
            slices.insert(StateRow { state, ..(*row).clone() });
        }
    }
    slices
}

/// All tables of a trace agree with the model.
#[track_caller]
fn agree(engine: &Path, trace: &Path) -> Expected {
    let out = tempfile::tempdir().unwrap();
    let (file, report) = convert(trace, out.path(), &[]);
    let expected = Expected::of(&printed(trace, &[]));
    let answers = query(engine, &file, &[COMPLAINTS, STATES, SCHED, INTERRUPTS, CALLS, SPURIOUS, PROCESSES]);
    let [complaints, states, sched, interrupts, calls, spurious, processes] = answers.as_slice() else {
        unreachable!()
    };
    if expected.gaps == 0 {
        assert!(complaints.is_empty(), "{complaints:?}");
        assert_eq!(report, "");
    } else {
        let names: Vec<String> = complaints.iter().map(|row| text(&row[0])).collect();
        assert_eq!(names, ["ftrace_cpu_has_data_loss", "task_state_invalid"], "{complaints:?}");
        assert!(report.contains(&format!("{} time", expected.gaps)), "{report}");
    }
    let certain = |row: &StateRow| !expected.at_gaps.contains(&row.tid);
    let theirs = |rows: &[Row]| rows.iter().map(state).filter(certain).collect();
    let ours: Vec<StateRow> = expected.states.iter().filter(|row| certain(row)).cloned().collect();
    same("thread states", &theirs(states), &ours.iter().cloned().collect());
    same("CPU slices", &theirs(sched), &cpu_slices(&ours));
    assert!(ours.len() * 2 > expected.states.len() || expected.gaps > 0);
    same("interrupts", &slices(interrupts), &expected.interrupts);
    same("system calls", &slices(calls), &expected.calls);
    assert_eq!(spurious[0][0].as_u64(), Some(expected.spurious));
    let pair = |row: &Row| (row[0].as_i64().unwrap(), row[1].as_i64().unwrap());
    let in_process: BTreeSet<(i64, i64)> = processes.iter().map(pair).collect();
    for (tid, pid) in &in_process {
        assert_eq!(expected.processes.get(tid), Some(pid), "{tid}");
    }
    // All that ran and whose process the trace says.
    let known = |row: &&StateRow| expected.processes.contains_key(&row.tid);
    let tids: BTreeSet<i64> = expected.states.iter().filter(known).map(|row| row.tid).collect();
    same("threads with a process", &in_process.iter().map(|(tid, _)| *tid).collect(), &tids);
    expected
}

#[test]
fn perfetto_shows_what_a_machine_did() {
    let Some(engine) = engine() else { return };
    for (seed, cpus, threads, realtime) in [(1, 4, 30, false), (2, 8, 60, true), (3, 1, 5, true)] {
        let root = tempfile::tempdir().unwrap();
        let trace = root.path().join("trace");
        let recording = Machine::new(seed, cpus, threads, realtime).recording(20_000);
        rtscope_ctf::write_trace(&trace, &recording, &info()).unwrap();
        let expected = agree(&engine, &trace);
        assert_eq!(expected.gaps, 0);
        assert!(expected.states.len() > 1_000 && expected.interrupts.len() > 500, "{seed}");
        let woken_by = |in_interrupt| {
            expected.states.iter().filter(|row| row.in_interrupt == Some(in_interrupt)).count()
        };
        assert!(woken_by(0) > 100 && woken_by(1) > 100 && expected.spurious > 10, "{seed}");
    }
}

/// The load: processes that come and go, and read files.
const LOAD: &str = "for i in 1 2 3 4 5; do ls -l /usr/bin | wc -l; sleep 0.05; done > /dev/null";

// NEEDS: host
#[test]
fn root_perfetto_shows_what_was_recorded() {
    if skip::without_root() {
        return;
    }
    let Some(engine) = engine() else { return };
    let root = tempfile::tempdir().unwrap();
    for (name, patterns) in
        [("own", &[][..]), ("all", &["-k", "sched:*,irq:*,irq_vectors:*,timer:hrtimer_expire*,syscalls"][..])]
    {
        let trace = root.path().join(name);
        let mut record = Command::new(env!("CARGO_BIN_EXE_rtscope"));
        record.args(["record", "-o"]).arg(&trace).args(patterns).args(["--", "sh", "-c", LOAD]);
        let output = record.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let expected = agree(&engine, &trace);
        assert!(expected.states.len() > 100, "{name}: {}", expected.states.len());
        assert_eq!(expected.calls.len() > 100, name == "all", "{}", expected.calls.len());
    }
}

/// The trace of a user-space tracer: 24 events of two threads.
fn programs_trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctf/tests/corpus/lttng-ust")
}

#[test]
fn events_of_programs_are_on_their_threads_with_fields_and_counters() {
    let Some(engine) = engine() else { return };
    let out = tempfile::tempdir().unwrap();
    let (file, report) = convert(&programs_trace(), out.path(), &["--counter", "probe:s*.n"]);
    assert_eq!(report, "");
    let events = "select s.ts, th.tid, s.name, s.dur, extract_arg(s.arg_set_id, 'debug.n') from slice s \
        join thread_track t on t.id = s.track_id join thread th using (utid) where s.category = 'program'";
    let counters = "select c.ts, t.name, c.value, p.name is null from counter c join track t on t.id = c.track_id \
        left join track p on p.id = t.parent_id";
    let names = "select distinct th.name from thread th where th.tid != 0";
    let answers = query(&engine, &file, &[COMPLAINTS, events, counters, names]);
    let [complaints, events, counters, names] = answers.as_slice() else { unreachable!() };
    assert!(complaints.is_empty(), "{complaints:?}");
    let printed = run(&["print", "--format", "json"], &programs_trace());
    let mut expected = BTreeSet::new();
    let mut drawn = BTreeSet::new();
    let offset = clock_offset(&programs_trace());
    for line in String::from_utf8(printed.stdout).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let ts = event["time_ns"].as_i64().unwrap() - offset;
        let (tid, n) = (event["context"]["vtid"].as_i64().unwrap(), event["fields"]["n"].as_i64());
        expected.insert((ts, tid, text(&event["event"]), 0, n));
        if event["event"] == "probe:small" {
            drawn.insert((ts, n.unwrap()));
        }
    }
    let number = |cell: &Value| cell.as_i64().unwrap();
    let row = |row: &Row| (number(&row[0]), number(&row[1]), text(&row[2]), number(&row[3]), row[4].as_i64());
    same("events", &events.iter().map(row).collect(), &expected);
    assert_eq!(expected.len(), 24);
    let value = |row: &Row| (number(&row[0]), row[2].as_f64().unwrap() as i64);
    assert!(counters.iter().all(|row| row[1] == "probe:small.n"), "{counters:?}");
    same("counters", &counters.iter().map(value).collect(), &drawn);
    assert_eq!(drawn.len(), 16);
    assert!(names.iter().any(|row| row[0].is_string()), "{names:?}");
}

#[test]
fn of_nothing_no_file_is_made() {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("converted.pftrace");
    let arguments = ["convert", file.to_str().unwrap(), "--to", "perfetto", "--from", "+1000000s"];
    let output = run(&arguments, &programs_trace());
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && report.contains("no event is selected"), "{report}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "{report}");
}

#[test]
fn a_selection_is_converted_alone_and_what_is_not_selected_is_no_loss() {
    let Some(engine) = engine() else { return };
    let root = tempfile::tempdir().unwrap();
    let trace = root.path().join("trace");
    rtscope_ctf::write_trace(&trace, &Machine::new(4, 2, 10, false).recording(4_000), &info()).unwrap();
    let arguments = ["--event", "irq_*", "--from", "+1ms", "--until", "+9ms"];
    let (file, report) = convert(&trace, root.path(), &arguments);
    assert_eq!(report, "");
    let printed = printed(&trace, &["--event", "irq_*", "--from", "+1ms", "--to", "+9ms"]);
    let answers = query(
        &engine,
        &file,
        &[COMPLAINTS, "select count(*) from sched", "select min(ts), max(ts) from ftrace_event"],
    );
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    assert_eq!(answers[1][0][0], 0);
    let (first, last) = (printed.first().unwrap().ts, printed.last().unwrap().ts);
    assert_eq!(answers[2][0], [Value::from(first), Value::from(last)]);
    // The switches of one task do not follow each other.
    let (file, report) = convert(&trace, root.path(), &["--task", "101", "--event", "sched_switch"]);
    assert_eq!(report, "");
    let lost = "select count(*) from stats where name = 'ftrace_cpu_has_data_loss' and value > 0";
    assert_eq!(query(&engine, &file, &[lost])[0][0][0], 0);
}

#[test]
fn a_file_is_whole_or_not_there() {
    let out = tempfile::tempdir().unwrap();
    let missing = out.path().join("missing/file");
    let arguments = ["convert", missing.to_str().unwrap(), "--to", "perfetto"];
    let output = run(&arguments, &programs_trace());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing/file"), "{output:?}");
    // A full disk, and what was there before.
    let file = out.path().join("file");
    fs::write(&file, "before").unwrap();
    let script = "ulimit -f 1; trap '' XFSZ; exec \"$@\"";
    let mut limited = Command::new("bash");
    limited.args(["-c", script, "bash", env!("CARGO_BIN_EXE_rtscope"), "convert"]);
    let output = limited.arg(programs_trace()).arg(&file).args(["--to", "perfetto"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read(&file).unwrap(), b"before");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
    // To standard output the same bytes.
    let piped = run(&["convert", "-", "--to", "perfetto"], &programs_trace());
    let (whole, _) = convert(&programs_trace(), out.path(), &[]);
    assert!(piped.stdout == fs::read(whole).unwrap() && piped.stdout.len() > 1024);
}

#[test]
fn a_device_or_a_pipe_is_written_to_and_a_link_is_followed() {
    let out = tempfile::tempdir().unwrap();
    let (whole, _) = convert(&programs_trace(), out.path(), &[]);
    let whole = fs::read(whole).unwrap();
    let pipe = out.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read(pipe).unwrap())
    };
    let output = run(&["convert", pipe.to_str().unwrap(), "--to", "perfetto"], &programs_trace());
    assert!(output.status.success(), "{output:?}");
    assert!(reader.join().unwrap() == whole);
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
    let (link, target) = (out.path().join("link"), out.path().join("target"));
    fs::write(&target, "before").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(
        run(&["convert", link.to_str().unwrap(), "--to", "perfetto"], &programs_trace()).status.success()
    );
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::read(&target).unwrap() == whole);
}

/// As open(2) would not, where `fs.protected_symlinks` is set as distributions set it.
// NEEDS: machine
#[test]
fn root_vm_a_link_of_somebody_else_in_a_directory_for_all_is_not_followed() {
    if skip::outside_guests() {
        return;
    }
    std::fs::write("/proc/sys/fs/protected_symlinks", "1").unwrap();
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let recorded = rtscope()
        .args(["record", "-k", "sched:sched_process_exit", "-o"])
        .arg(at("trace"))
        .args(["--", "true"])
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    std::fs::write(at("precious"), "of root's").unwrap();
    let for_all = at("for-all");
    std::fs::create_dir(&for_all).unwrap();
    std::fs::set_permissions(&for_all, PermissionsExt::from_mode(0o1777)).unwrap();
    let link = for_all.join("out");
    symlink(at("precious"), &link).unwrap();
    // One's own is followed.
    for (owner, is_followed) in [(1000, false), (0, true)] {
        lchown(&link, Some(owner), Some(owner)).unwrap();
        let converted =
            rtscope().arg("convert").arg(at("trace")).arg(&link).args(["--to", "perfetto"]).output().unwrap();
        let is_there = std::fs::read(at("precious")).unwrap() == b"of root's";
        assert_eq!((converted.status.success(), is_there), (is_followed, !is_followed), "{converted:?}");
    }
}
