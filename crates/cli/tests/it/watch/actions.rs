// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a watch does about a detection: the command that it runs, the metrics that it has, and limits that rise.

use super::pairs;
use nix::sys::signal::Signal;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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

// NEEDS: one kernel
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
    let sum = of("begun")
        + of("not_started")
        + of("suppressed_busy")
        + of("suppressed_own")
        + of("suppressed_rate");
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

// NEEDS: one kernel
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

pub(super) fn get(address: &str) -> String {
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

/// Between two calls, as long as this by the clock of the caller.
fn wait_between(who: u64, length: Duration) -> Duration {
    let begun = Instant::now();
    pairs::begin(who);
    while begun.elapsed() < length {
        std::hint::spin_loop();
    }
    pairs::end(who);
    begun.elapsed()
}

fn sample(body: &str, name: &str) -> f64 {
    let line =
        body.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {body}"));
    line.trim().parse().expect("a number")
}

fn set_nice(tid: &str, nice: &str) {
    let status = Command::new("renice").args(["-n", nice, "-p", tid]).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "renice {nice}");
}

/// Breaks more records than a ring of reports holds while nobody empties it, then one that is worse than those in the ring, and not as bad as those
/// that found no place. Whether it was reported; `None`: something kept this thread from measuring.
fn is_reported_after_a_full_ring() -> Option<bool> {
    const RECORDS: u64 = 420;
    const MORE: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(100);
    let tid = nix::unistd::gettid().to_string();
    let options = ["--threshold", "1us", "--record-breakers", "--metrics", "0", "--tid", &tid];
    let mut watch = pairs::watch(&[&pairs::CALLS[..], &options].concat());
    let note = watch.wait_for_note("metrics: http://").expect("it serves");
    let address = note.split("http://").nth(1).and_then(|text| text.strip_suffix("/metrics")).expect("it");
    watch.signal(Signal::SIGSTOP).expect("it is there");
    let mut worst = Duration::ZERO;
    // What else runs on this CPU breaks no records.
    set_nice(&tid, "-20");
    for who in 0..RECORDS {
        worst = worst.max(wait_between(who, worst + MORE));
        // Each is longer than those before: whoever was kept from its CPU for a second would take one for each of the rest.
        if worst > LONGEST {
            set_nice(&tid, "0");
            return None;
        }
    }
    set_nice(&tid, "0");
    watch.signal(Signal::SIGCONT).expect("it is there");
    let body = get(address);
    let lost = sample(&body, "rtscope_lost_total{cause=\"report_ring_full\"}");
    let labels = "{tracker=\"pair\",tracker_instance=\"0\"}";
    let reported = sample(&body, &format!("rtscope_late_total{labels}")) - lost;
    println!("{reported} of {RECORDS} records were reported, {lost} found no place");
    assert!(lost > 0.0 && reported > 0.0, "{body}");
    let mut all = Vec::new();
    while (all.len() as f64) < reported {
        all.push(watch.wait_for_type("late").expect("each is reported"));
    }
    let worst_reported = all.iter().map(|line| number(line, "/response_ns")).max().expect("some");
    assert_eq!(
        sample(&body, &format!("rtscope_threshold_seconds{labels}")),
        worst_reported as f64 / 1e9,
        "the limit is the worst that was reported"
    );
    let found = wait_between(RECORDS, Duration::from_nanos(worst_reported) + MORE);
    if found >= worst {
        return None;
    }
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own type");
    Some(late.iter().any(|late| pairs::number(&pairs::events(late).from, "who") == RECORDS))
}

// NEEDS: host
#[test]
fn root_a_record_that_nobody_was_told_of_does_not_hide_the_next_one() {
    let Some(cpus) = Cpus::for_watching() else { return };
    // One ring, of one CPU.
    let pinned = std::thread::spawn(|| {
        let mut only = nix::sched::CpuSet::new();
        only.set(0).expect("there is one");
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &only).expect("it may run there");
        (0..5).find_map(|_| is_reported_after_a_full_ring())
    });
    assert_eq!(pinned.join().expect("no panic"), Some(true), "its report would have had a place");
    drop(cpus);
}

// NEEDS: host
#[test]
fn root_a_command_that_is_late_itself_does_not_run_itself_again() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args(["watch", "offcpu", "--threshold", "10ms", "--task", "sleep", "--json"]);
    command.args(["--exec", r#"["sleep", "0.05"]"#, "--exec-rate", "1000000/s"]);
    command.args(["--", "sh", "-c", "sleep 0.05; sleep 1.5"]);
    let said = Rtscope::start(command).expect("it starts").finish().expect("it ends");
    let [actions] = said.of_type("actions")[..] else { panic!("{:?}", said.lines) };
    let of = |field: &str| number(actions, &format!("/command/{field}"));
    println!("{actions}");
    assert!((1..=2).contains(&of("begun")), "once for each of COMMAND's: {actions}");
    assert!(of("suppressed_own") > 0, "the command sleeps, too: {actions}");
}

// NEEDS: host
#[test]
fn root_a_command_has_large_integers_as_they_were_asked_for() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    for (options, is_text) in [(&[][..], false), (&["--json-strings"][..], true)] {
        let file = dir.path().join(format!("record{}", options.len()));
        let exec = format!("cat > {}", file.display());
        let limits = ["--threshold", "1ns", "--exec", &exec];
        let mut watch = pairs::watch(&[&pairs::CALLS[..], &limits, options].concat());
        pairs::begin(1);
        pairs::end(1);
        watch.wait_for_type("late").expect("it is reported");
        // It waits for the command.
        let said = watch.stop().expect("it stops");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {:?}", said.notes));
        let record: Value = serde_json::from_str(&text).expect("one JSON object");
        // Nanoseconds since 1970 are more than a double has exactly; those of the interval are not.
        assert_eq!(
            (record["unix_ns"].is_string(), record["unix_ns"].is_number()),
            (is_text, !is_text),
            "{record}"
        );
        assert!(record["response_ns"].is_number(), "{record}");
    }
}

/// A group of processes that the kernel does not let run or die, until this is dropped. Only the old freezer does so: a signal ends what the new one froze.
struct Frozen(PathBuf);

impl Frozen {
    fn new(pid: u32) -> Result<Frozen, String> {
        let group = Path::new("/sys/fs/cgroup/freezer").join(format!("rtscope-test-{}", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", group.display());
        std::fs::create_dir(&group).map_err(failed)?;
        let frozen = Frozen(group.clone());
        std::fs::write(group.join("cgroup.procs"), pid.to_string()).map_err(failed)?;
        std::fs::write(group.join("freezer.state"), "FROZEN").map_err(failed)?;
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        let begun = Instant::now();
        // Until what was in it has ended.
        while std::fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.expect("a thread").path().join("children")).unwrap_or_default()
    };
    let all: Vec<String> = threads.map(of).collect();
    all.iter().flat_map(|text| text.split_whitespace()).map(|pid| pid.parse().expect("a number")).collect()
}

// NEEDS: host
#[test]
fn root_a_command_that_cannot_die_does_not_hold_up_the_end_and_is_named() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let limits = ["--threshold", "1ns", "--exec", r#"["sleep", "60"]"#];
    let mut watch = pairs::watch(&[&pairs::CALLS[..], &limits].concat());
    pairs::begin(1);
    pairs::end(1);
    watch.wait_for_type("late").expect("it is reported");
    let begun = Instant::now();
    let child = loop {
        let children = children(watch.pid());
        match children[..] {
            [one] => break one,
            _ => assert!(begun.elapsed() < Duration::from_secs(20), "one command: {children:?}"),
        }
    };
    let frozen = match Frozen::new(child) {
        Ok(frozen) => frozen,
        Err(why) => {
            watch.stop().expect("it stops");
            rtscope_testkit::skip!("no freezer of the first version: {why}");
        }
    };
    let said = watch.stop().expect("it stops");
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
    assert!(said.noted(&format!("the command with the process number {child}")), "{:?}", said.notes);
    assert!(said.noted("was killed and does not end"), "{:?}", said.notes);
    let [actions] = said.of_type("actions")[..] else { panic!("{:?}", said.lines) };
    assert_eq!(number(actions, "/command/killed"), 1, "{actions}");
    drop(frozen);
    // Whoever has it now may not have waited for it yet.
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "it ends as soon as it can: {stat}");
}
