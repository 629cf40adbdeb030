// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in programs, found by address comparators: of a program that is started, of a process that runs already, and of a recording.

use super::{Capture, counts, decode, decoded, unit};
use crate::command::{SmallDisk, rtscope};
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The events of places in a capture, as `print` has them.
fn places(capture: &Path, folder: &Path) -> Vec<Value> {
    let trace = folder.join("places");
    let info = fs::read_to_string(capture.join("capture.json")).unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    // Where the kernel does not tell how its counter becomes time, any frequency does.
    let ticks: &[&str] = if info["clock"].is_null() { &["--clock-hz", "1000000000"] } else { &[] };
    let output = decode(capture, &[&["-o", trace.to_str().unwrap(), "--json"], ticks].concat());
    assert!(output.status.success(), "{output:?} {info} {}", decoded(capture));
    let printed = rtscope().arg("print").arg(&trace).args(["--format", "json"]).output().unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    let events = text.lines().filter(|line| line.contains("hardware:place"));
    let events = events.map(|line| serde_json::from_str(line).unwrap()).collect();
    fs::remove_dir_all(trace).unwrap();
    events
}

/// The program, and where in its file its two places are: programs have no symbols in guests.
fn passes() -> (String, String, String) {
    let program = rtscope_testkit::process::program("rtscope-passes").unwrap().display().to_string();
    let said = Command::new(&program).arg("0").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let (here, there) = said.trim().split_once(' ').unwrap();
    (program, here.to_owned(), there.to_owned())
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_address_comparators_make_an_event_of_each_time_that_a_place_is_executed() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, here, there) = passes();
    let (here, there) = (here.as_str(), there.as_str());
    let capture = |places: &[&str], name: &str| {
        let directory = folder.path().join(name);
        let mut command = rtscope();
        command.args(["hardware", "capture", "intel_pt//u", "--json", "-o"]).arg(&directory);
        command.args(places.iter().flat_map(|place| ["--at", place])).args(["--", &program, "50"]);
        (command.output().unwrap(), directory)
    };
    let counted = |directory: &Path| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for event in places(directory, folder.path()) {
            assert_eq!(event["comm"].as_str().unwrap_or("rtscope-passes"), "rtscope-passes", "{event}");
            *counts.entry(event["fields"]["place"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        counts
    };
    let counts = |of: &[(&str, usize)]| of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let (output, directory) = capture(&[here], "here");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(counted(&directory), counts(&[(here, 50)]));
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["places"][0]["name"], here, "{info}");
    let (_, directory) = capture(&[there, here], "both");
    assert_eq!(counted(&directory), counts(&[(here, 50), (there, 100)]));
    // Without a comparator everything is traced, and nothing is the event of a place.
    let (_, directory) = capture(&[], "all");
    let report = decoded(&directory);
    let pge = |stream: &Value| counts_of(stream, "tip.pge");
    // Where programs were in memory is there, which --image needs.
    assert!(report["notes"].to_string().contains(&program), "{report}");
    let streams = report["streams"].as_array().unwrap();
    assert_eq!(streams.iter().map(pge).sum::<u64>(), 150, "{report}");
    assert!(streams.iter().all(|stream| stream["events"] == serde_json::json!([])), "{report}");
    // What the unit has not, and what the kernel cannot follow, is said.
    let many: Vec<String> = (0..5).map(|bytes| format!("{here}+{bytes}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (output, _) = capture(&many, "many");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && errors.contains("intel_pt has 4"), "{output:?}");
    let mut command = rtscope();
    command.args(["hardware", "capture", "intel_pt//u", "--at", &format!("{program}:{here}"), "-o"]);
    let output = command.arg(folder.path().join("cpus")).args(["--duration", "1s"]).output().unwrap();
    assert!(output.status.code() == Some(2), "{output:?}");
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_all_threads_that_a_process_has_already_are_captured() {
    const THREADS: usize = 5;
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = rtscope_testkit::process::program("rtscope-passes").unwrap().display().to_string();
    for snapshot in [&[][..], &["--snapshot"]] {
        let mut passes = Command::new(&program);
        passes.args(["50", &THREADS.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut passes = passes.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(passes.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (here, _) = line.trim().split_once(' ').unwrap();
        let directory = folder.path().join(format!("capture{}", snapshot.len()));
        let mut command = rtscope();
        command.args([
            "hardware",
            "capture",
            "intel_pt//u",
            "--json",
            "--pid",
            &passes.id().to_string(),
            "-o",
        ]);
        command.arg(&directory).args(["--at", &format!("{program}:{here}")]).args(snapshot);
        let mut rtscope = Rtscope::start(command).unwrap();
        rtscope.wait_for_note("capturing intel_pt on ").unwrap();
        drop(passes.stdin.take());
        assert!(passes.wait().unwrap().success());
        rtscope.stop().unwrap();
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for event in places(&directory, folder.path()) {
            *counts.entry(event["tid"].as_u64().unwrap_or_else(|| panic!("{event}"))).or_default() += 1;
        }
        assert_eq!(
            (counts.len(), counts.values().sum()),
            (THREADS, THREADS * 50),
            "{snapshot:?}: {counts:?}"
        );
    }
}

/// Records the program, with these arguments: what is said, and where the recording is.
fn record(folder: &Path, name: &str, options: &[&str], arguments: &[&str]) -> (Vec<Value>, String, PathBuf) {
    let directory = folder.join(name);
    let mut record = rtscope();
    record.args(["record", "--json", "--hardware", "pt", "-o"]).arg(&directory).args(options);
    let output = record.args(["--", &passes().0]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let objects: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|_| panic!("{output:?}"));
    (objects, String::from_utf8(output.stderr).unwrap(), directory)
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_places_of_a_recording_are_found_by_the_unit() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_, here, there) = passes();
    let (here, there) = (here.as_str(), there.as_str());
    // Beside the kernel's recorders, and alone.
    for (kernel, name) in [(&["-k", "sched_switch"][..], "both"), (&[], "alone")] {
        let options = [kernel, &["--at", here, "--at", there]].concat();
        let (objects, notes, directory) = record(folder.path(), name, &options, &["50"]);
        assert!(notes.contains("2 places are recorded by address comparators of intel_pt"), "{notes}");
        assert_eq!(directory.join("kernel").exists(), !kernel.is_empty());
        assert_eq!(objects.len(), 1 + kernel.len() / 2, "{objects:?}");
        let account = objects.iter().find(|object| object["schema"] == "rtscope.record.places/1").unwrap();
        assert_eq!(
            (&account["unit"], &account["incomplete"]),
            (&"intel_pt".into(), &false.into()),
            "{account}"
        );
        assert_eq!(account["places"], serde_json::json!([here, there]), "{account}");
        // As docs/json.md has them.
        let keys: Vec<&str> = account.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "command events incomplete interrupted lost_share places schema trace unit unit_bytes";
        assert_eq!(keys, expected.split(' ').collect::<Vec<_>>(), "{account}");
        if account["trace"].is_null() {
            // Where the kernel does not tell how its counter becomes time, that is said, and what was written is there.
            assert!(notes.contains("hardware decode") && notes.contains("--clock-hz"), "{notes}");
            assert_eq!(places(&directory.join("hardware"), folder.path()).len(), 150);
            continue;
        }
        assert_eq!(account["events"], 150, "{account}");
        let printed = rtscope().arg("print").arg(&directory).args(["--format", "json"]).output().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert_eq!(printed.lines().filter(|line| line.contains("hardware:place")).count(), 150);
        assert_eq!(printed.contains("sched_switch"), !kernel.is_empty());
    }
    // A unit that is on writes also where no place is executed.
    let (objects, notes, directory) =
        record(folder.path(), "never", &["--at", &format!("{here}+1")], &["50"]);
    assert_eq!((&objects[0]["trace"], &objects[0]["events"]), (&Value::Null, &0.into()), "{objects:?}");
    assert_eq!(objects[0]["incomplete"], false, "{objects:?}");
    assert!(objects[0]["unit_bytes"].as_u64().unwrap() > 0 && !directory.join("places").exists());
    assert!(notes.contains("no place was executed") || notes.contains("--clock-hz"), "{notes}");
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_places_that_the_unit_cannot_find_are_uprobes_and_why_is_said() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, here, _) = passes();
    let many: Vec<String> = (0..5).map(|bytes| format!("{here}+{bytes}")).collect();
    let many: Vec<&str> = many.iter().flat_map(|place| ["--at", place]).collect();
    let (objects, notes, _) = record(folder.path(), "many", &many, &["0"]);
    assert!(notes.contains("--hardware pt: 4 comparators of 5 that were asked for"), "{notes}");
    assert!(notes.contains("by uprobes"), "{notes}");
    assert_eq!(objects[0]["schema"], "rtscope.record/1");
    let (_, notes, _) = record(folder.path(), "comm", &["--at", &here, "--comm", "rtscope-pass*"], &["0"]);
    assert!(notes.contains("(--comm)") && notes.contains("by uprobes"), "{notes}");
    let of_all = rtscope()
        .args([
            "record",
            "--hardware",
            "pt",
            "--duration",
            "100ms",
            "--at",
            &format!("{program}:{here}"),
            "-o",
        ])
        .arg(folder.path().join("all"))
        .output()
        .unwrap();
    let notes = String::from_utf8(of_all.stderr).unwrap();
    assert!(notes.contains("of processes only") && notes.contains("by uprobes"), "{notes}");
    let other = Capture::start(&[]);
    let (objects, notes, _) = record(folder.path(), "busy", &["--at", &here], &["0"]);
    assert!(notes.contains("somebody else uses it") && notes.contains("by uprobes"), "{notes}");
    assert_eq!(objects[0]["schema"], "rtscope.record/1");
    other.stop();
}

/// CPU time of a process, in ticks.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_recording_of_a_process_that_has_ended_rests() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let program = rtscope_testkit::process::program("rtscope-passes").unwrap().display().to_string();
    let mut passes = Command::new(&program);
    let mut passes = passes.args(["50", "1"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(passes.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (here, _) = line.trim().split_once(' ').unwrap();
    let mut command = rtscope();
    command.args(["record", "--json", "--hardware", "pt", "--pid", &passes.id().to_string(), "-o"]);
    command.arg(&directory).args(["--at", &format!("{program}:{here}")]);
    let mut record = Rtscope::start(command).unwrap();
    record.wait_for_note("by address comparators of intel_pt").unwrap();
    drop(passes.stdin.take());
    assert!(passes.wait().unwrap().success());
    let size = || fs::metadata(directory.join("hardware/perf.data")).unwrap().len();
    std::thread::sleep(Duration::from_millis(500));
    let (before, size_before) = (cpu_ticks(record.pid()), size());
    std::thread::sleep(Duration::from_secs(2));
    // A thread that turns takes 200 ticks, and writes without end.
    let used = cpu_ticks(record.pid()) - before;
    assert!(used < 100 && size() - size_before < 1000, "{used} ticks, {} bytes", size() - size_before);
    record.stop().unwrap();
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_threads_that_begin_while_the_unit_is_set_up_are_told() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, here, _) = passes();
    let place = format!("{program}:{here}");
    // With so many the set-up takes a while.
    let mut others: Vec<_> = (0..100).map(|_| Command::new("sleep").arg("300").spawn().unwrap()).collect();
    // A shell that starts processes without end, and is followed; and one that starts none.
    let busy = "while :; do sleep 1 & done";
    for (script, tells) in [(busy, true), ("exec sleep 300", false)] {
        let mut shell = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut command = rtscope();
        command.args(["record", "--hardware", "pt", "--follow"]);
        for process in others.iter().chain([&shell]) {
            command.args(["--pid", &process.id().to_string()]);
        }
        command.arg("-o").arg(folder.path().join(format!("trace-{tells}"))).args(["--at", &place]);
        let mut record = Rtscope::start(command).unwrap();
        let note = record.wait_for_note("by address comparators of intel_pt").unwrap();
        assert_eq!(note.contains("began while the unit was set up"), tells, "{script}: {note}");
        record.stop().unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_what_a_unit_has_found_of_a_killed_recording_becomes_its_trace() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let (program, here, _) = passes();
    let mut record = rtscope();
    record.args(["record", "--hardware", "pt", "--at", &here, "-o"]).arg(&directory);
    let mut record = record.args(["--", &program, "30000"]).spawn().unwrap();
    let written = directory.join("hardware/perf.data");
    wait_until("the unit's data", || fs::metadata(&written).is_ok_and(|file| file.len() > 100_000));
    let recover = || rtscope().args(["record", "--json", "--recover"]).arg(&directory).output().unwrap();
    let going_on = recover();
    assert_eq!(going_on.status.code(), Some(2), "{going_on:?}");
    record.kill().unwrap();
    record.wait().unwrap();
    let output = recover();
    assert!(output.status.success(), "{output:?}");
    let account: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&account["interrupted"], &account["incomplete"]), (&true.into(), &true.into()), "{account}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(account["events"].as_u64().unwrap() > 100 || notes.contains("--clock-hz"), "{account} {notes}");
    // It is finished now.
    assert_eq!(recover().status.code(), Some(2));
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_full_disk_ends_a_recording_by_the_unit_and_what_it_has_becomes_its_trace() {
    let Some(_unit) = unit() else { return };
    let Some(disk) = SmallDisk::new("size=400k") else { skip!("a small disk cannot be mounted here") };
    let directory = disk.path().join("trace");
    let (program, here, _) = passes();
    let mut record = rtscope();
    record.args(["record", "--hardware", "pt", "--at", &here, "-o"]).arg(&directory);
    // Each is 20 bytes at least.
    let output = record.args(["--", &program, "30000"]).output().unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("No space left") && notes.contains("--recover"), "{notes}");
    disk.resize("size=64m");
    let output = rtscope().args(["record", "--json", "--recover"]).arg(&directory).output().unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{notes}");
    let account: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(account["events"].as_u64().unwrap() > 100 || notes.contains("--clock-hz"), "{account} {notes}");
    assert_eq!((&account["interrupted"], &account["incomplete"]), (&true.into(), &true.into()), "{account}");
}

fn counts_of(stream: &Value, kind: &str) -> u64 {
    counts(stream).get(kind).copied().unwrap_or(0)
}
