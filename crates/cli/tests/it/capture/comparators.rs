// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in programs, found by address comparators: of a program that is started, and of a process that runs already.

use super::{counts, decode, decoded, unit};
use crate::command::rtscope;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

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

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_address_comparators_make_an_event_of_each_time_that_a_place_is_executed() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = rtscope_testkit::process::program("rtscope-passes").unwrap().display().to_string();
    // Programs have no symbols in guests.
    let said = Command::new(&program).arg("0").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let (here, there) = said.trim().split_once(' ').unwrap();
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

fn counts_of(stream: &Value, kind: &str) -> u64 {
    counts(stream).get(kind).copied().unwrap_or(0)
}
