// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a watch does about a detection: the command that it runs, the metrics that it has, and limits that rise.

use rtscope_testkit::process::program;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

const LIMIT_NS: u64 = 10_000_000;

fn sleeps(times: &[&str]) -> String {
    times.iter().map(|time| format!("sleep {time};")).collect()
}

/// Follows what this script sleeps.
fn watch(arguments: &[&str], script: &str) -> Command {
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args(["watch", "offcpu", "--threshold", "10ms", "--duration", "120s", "--json"]);
    command.args(arguments).args(["--", "sh", "-c", script]);
    command
}

fn number(line: &Value, field: &str) -> u64 {
    line.pointer(field).and_then(Value::as_u64).unwrap_or_else(|| panic!("{field} in {line}"))
}

// NEEDS: verifier
#[test]
fn root_a_command_is_given_the_record_of_each_detection() {
    let dir = tempfile::tempdir().expect("a directory");
    let records = dir.path().join("records");
    let exec = format!("cat > {}.$$", records.display());
    let arguments = ["--exec", &exec, "--exec-rate", "1000000/s", "--report-rate", "1/h"];
    let command = watch(&arguments, &sleeps(&["0.02"; 12]));
    let said = Rtscope::start(command).expect("it starts").finish().expect("it ends");
    let summary = said.of_type("summary");
    let late = number(summary[0], "/counters/late");
    assert!(late >= 12, "{summary:?}");
    // One is printed in an hour; the rest is counted.
    assert_eq!(said.of_type("late").len(), 1);
    let [actions] = said.of_type("actions")[..] else { panic!("{:?}", said.lines) };
    assert_eq!(number(actions, "/reports_suppressed"), late - 1);
    // Each detection is in one of these.
    let of = |field: &str| number(actions, &format!("/command/{field}"));
    let sum = of("begun") + of("not_started") + of("suppressed_busy") + of("suppressed_rate");
    assert_eq!(sum, late, "{actions}");
    assert_eq!((of("not_started"), of("failed")), (0, 0), "{actions}");
    assert!(of("begun") > 0, "{actions}");
    let files: Vec<_> = std::fs::read_dir(dir.path()).expect("it is there").collect();
    assert_eq!(files.len() as u64 + of("killed"), of("begun"));
    for file in files {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("it was written");
        let record: Value = serde_json::from_str(&text).expect("one JSON object");
        assert_eq!(record["schema"], "rtscope.watch/1");
        assert_eq!((&record["type"], &record["tracker"]), (&"late".into(), &"offcpu".into()));
        assert!(number(&record, "/response_ns") > LIMIT_NS, "{record}");
    }
}

// NEEDS: verifier
#[test]
fn root_only_what_is_worse_than_all_before_breaks_the_record() {
    let times = ["0.05", "0.02", "0.03", "0.2", "0.02", "0.1", "0.4", "0.02"];
    let command = watch(&["--record-breakers"], &sleeps(&times));
    let said = Rtscope::start(command).expect("it starts").finish().expect("it ends");
    let mut late = said.of_type("late");
    late.sort_by_key(|line| number(line, "/response_ns"));
    println!("{} records of {} sleeps", late.len(), times.len());
    // The first, the 200 ms and the 400 ms, at least; the shell waits a little longer than each of its children.
    assert!(late.len() >= 3, "{late:?}");
    let mut limit_ns = LIMIT_NS;
    let mut end_ns = 0;
    for line in &late {
        assert_eq!(number(line, "/threshold_ns"), limit_ns, "the limit is the record: {late:?}");
        assert!(number(line, "/response_ns") > limit_ns && number(line, "/end_ns") >= end_ns, "{late:?}");
        (limit_ns, end_ns) = (number(line, "/response_ns"), number(line, "/end_ns"));
    }
    let summary = said.of_type("summary");
    assert_eq!(number(summary[0], "/counters/late"), late.len() as u64);
    assert_eq!(number(summary[0], "/statistics/max_ns"), limit_ns);
}

/// Reads `OpenMetrics` with Prometheus' own reader, and prints each sample as a line of JSON.
const READER: &str = "
import sys, json
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
for family in families(sys.stdin.read()):
    for sample in family.samples:
        print(json.dumps([sample.name, sample.labels, sample.value]))
";

/// What this Python says; `None`: it is not there, or has no such reader.
fn parsed(python: &str, text: &str) -> Option<Output> {
    let mut command = Command::new(python);
    command.args(["-c", READER]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut reader = command.spawn().ok()?;
    // One that has ended has said why.
    let _ = reader.stdin.take()?.write_all(text.as_bytes());
    let output = reader.wait_with_output().ok()?;
    (!String::from_utf8_lossy(&output.stderr).contains("No module named")).then_some(output)
}

/// As a reader of others has them; `None`, and skipped, where there is none.
fn samples(text: &str) -> Option<Vec<(String, Value, f64)>> {
    // The system's own has Debian's packages; the first in PATH may be another one.
    let readers = ["python3", "/usr/bin/python3"].into_iter();
    let Some(output) = readers.filter_map(|python| parsed(python, text)).next() else {
        rtscope_testkit::skip::say(format_args!("no python3-prometheus-client"));
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    let lines = String::from_utf8(output.stdout).expect("text");
    Some(lines.lines().map(|line| serde_json::from_str(line).expect("three values")).collect())
}

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    body.to_string()
}

// NEEDS: host
#[test]
fn root_metrics_are_what_the_summary_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let read = dir.path().join("read");
    let script = format!("sleep 0.02; until test -e {}; do sleep 0.02; done", read.display());
    let command = watch(&["--metrics", "0", "--and", "wakeup:1s"], &script);
    let mut rtscope = Rtscope::start(command).expect("it starts");
    let note = rtscope.wait_for_note("metrics: http://").expect("it serves");
    let address = note.split("http://").nth(1).and_then(|text| text.strip_suffix("/metrics")).expect("it");
    rtscope.wait_for_type("late").expect("it sleeps");
    let body = get(address);
    std::fs::write(&read, "").expect("COMMAND ends");
    let said = rtscope.finish().expect("it ends with that");
    let Some(samples) = samples(&body) else { return };
    let find = |name: &str, labels: &[(&str, &str)]| {
        let is_it = |all: &Value| labels.iter().all(|(label, value)| all[*label] == *value);
        samples.iter().find(|(found, all, _)| found == name && is_it(all)).map(|(.., value)| *value)
    };
    println!("{} samples", samples.len());
    let of = [("tracker", "offcpu"), ("tracker_instance", "0")];
    assert_eq!(find("rtscope_threshold_seconds", &of), Some(0.01));
    assert_eq!(find("rtscope_threshold_seconds", &[("tracker", "wakeup")]), Some(1.0));
    assert!(find("rtscope_late_total", &of).is_some_and(|late| late >= 1.0), "one was reported before");
    // It was asked before the end.
    let summary = said.of_type("summary");
    let late = find("rtscope_late_total", &of).expect("it is counted");
    assert!(late <= number(summary[0], "/counters/late") as f64, "{late} {summary:?}");
    let count = find("rtscope_latency_seconds_count", &of).expect("all are counted");
    assert!(late <= count && count <= number(summary[0], "/counters/seen") as f64, "{count} {summary:?}");
    assert_eq!(find("rtscope_lost_total", &[("cause", "report_ring_full")]), Some(0.0));
}
