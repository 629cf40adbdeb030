// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print` and `rtscope stat` as commands: filters, formats, damage, closed pipes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A small trace of LTTng's user-space tracer: 24 events of two threads, `probe:text` and `probe:small`.
fn trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctf/tests/corpus/lttng-ust")
}

fn rtscope(arguments: &[&str], trace: &Path) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_rtscope")).arg(command).arg(trace).args(rest).output().unwrap()
}

/// Standard output, after checking that all went well.
fn text(arguments: &[&str]) -> String {
    let output = rtscope(arguments, &trace());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(arguments: &[&str]) -> usize {
    text(arguments).lines().count()
}

#[test]
fn filters_show_what_they_ask_for() {
    let all = text(&["print"]);
    let having = |part: &str| all.lines().filter(|line| line.contains(part)).count();
    assert_eq!(all.lines().count(), 24);
    for (arguments, expected) in [
        (&["print", "--event", "probe:s*"][..], having("probe:small: ")),
        (&["print", "--event", "probe:small", "--event", "*text"], 24),
        (&["print", "--cpu", "1"], having("cpu_id = 1 ")),
        (&["print", "--cpu", "0-1"], 24),
        (&["print", "--where", "n == 7"], having(" n = 7,")),
        (&["print", "--where", "s < -5 && cpu_id == 0"], 12 / 2 - 2),
        (&["print", "--where", "c == MORE"], having("\"MORE\"")),
        (&["print", "--where", "t =~ \"plain*\" || d > 1"], having("t = \"plain") + having("d = 1.28571")),
        (&["print", "--where", "!(nothing == 1)"], 24),
        (&["print", "--where", "nothing != 1"], 0),
        (&["print", "--task", "loo?"], 24),
        (&["print", "--task", "1"], 0),
        (&["print", "--head", "5"], 5),
        (&["print", "--head", "0"], 0),
        (&["print", "--from", "+0s", "--to", "-0s"], 24),
        (&["print", "--to", "0"], 0),
        (&["print", "--from", "2100-01-01T00:00:00Z"], 0),
    ] {
        assert_eq!(lines(arguments), expected, "{arguments:?}");
        if !arguments.contains(&"--head") {
            let mut count = arguments.to_vec();
            count[0] = "stat";
            count.push("--json");
            let stat: serde_json::Value = serde_json::from_str(&text(&count)).unwrap();
            assert_eq!(stat["events"], expected, "{count:?}");
        }
    }
    // A filter leaves each line as it is, but for the difference in time.
    let plain = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_once(") ").unwrap().1.to_owned()).collect()
    };
    let wanted = plain(&all).into_iter().filter(|line| line.contains("probe:text"));
    assert_eq!(plain(&text(&["print", "--event", "probe:text"])), wanted.collect::<Vec<_>>());
}

#[test]
fn times_select_a_part() {
    let all = text(&["print", "--format", "csv"]);
    let times: Vec<i64> =
        all.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    let (from, to) = (times[6], times[17]);
    let expected = times.iter().filter(|time| (from..=to).contains(time)).count();
    assert_eq!(lines(&["print", "--from", &from.to_string(), "--to", &to.to_string()]), expected);
    let first = times[0];
    let expected = times.iter().filter(|time| **time >= from).count();
    assert_eq!(lines(&["print", "--from", &format!("+{}ns", from - first)]), expected);
    let expected = times.iter().filter(|time| **time <= to).count();
    assert_eq!(lines(&["print", "--to", &format!("-{}ns", times[23] - to)]), expected);
}

#[test]
fn every_format_says_the_same() {
    let json: Vec<serde_json::Value> = text(&["print", "--format", "json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(json.len(), 24);
    let first = json.iter().find(|event| event["event"] == "probe:text").unwrap();
    assert_eq!(first["schema"], "rtscope.event/1");
    assert_eq!(first["context"]["procname"], "loop");
    assert_eq!(first["fields"]["t"], "plain \u{e4}");
    assert_eq!(first["fields"]["c"], serde_json::json!({ "value": 0, "labels": ["RED"] }));
    assert_eq!(first["fields"]["b"], serde_json::json!([1, 255, 128]));
    let csv = text(&["print", "--format", "csv", "--fields", "n,c,vtid", "--event", "probe:text"]);
    let mut rows = csv.lines();
    assert_eq!(rows.next(), Some("time_ns,cpu,event,n,c,vtid"));
    let expected =
        format!("{},{},probe:text,0x0,RED,{}", first["time_ns"], first["cpu"], first["context"]["vtid"]);
    assert_eq!(rows.next(), Some(expected.as_str()));
    let all = text(&["print", "--format", "csv"]);
    assert!(all.contains("t=plain \u{e4} n=0x0"), "{all}");
}

#[test]
fn wrong_filters_are_refused_with_a_reason() {
    for (arguments, word) in [
        (&["print", "--where", "a = 1"][..], "=="),
        (&["print", "--from", "noon"], "13:05:59"),
        (&["print", "--cpu", "x"], "0,2-3"),
        (&["print", "--fields", "a"], "--format csv"),
    ] {
        let output = rtscope(arguments, &trace());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(word), "{arguments:?}: {said}");
    }
    let nowhere = rtscope(&["stat"], Path::new("/nonexistent"));
    assert!(nowhere.status.code() == Some(1), "{:?}", nowhere.status);
}

#[test]
fn a_stream_cut_short_is_shown_to_its_last_whole_packet() {
    let root = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(trace()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), root.path().join(entry.file_name())).unwrap();
        }
    }
    let path = root.path().join("ch_1");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let expected = text(&["print", "--cpu", "0", "--format", "csv"]);
    for command in ["print", "stat"] {
        let output = rtscope(&[command], root.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("ch_1") && said.contains("cut short"), "{said}");
    }
    let output = rtscope(&["print", "--format", "csv"], root.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn a_closed_pipe_ends_printing_quietly() {
    let root = tempfile::tempdir().unwrap();
    // Large enough that it cannot all be in the pipe.
    for copy in 0..400 {
        let dir = root.path().join(copy.to_string());
        fs::create_dir(&dir).unwrap();
        for name in ["ch_0", "ch_1"] {
            fs::hard_link(trace().join(name), dir.join(name))
                .or_else(|_| fs::copy(trace().join(name), dir.join(name)).map(|_| ()))
                .unwrap();
        }
        // Another UUID each, since of one they would be one trace.
        let mut metadata = fs::read(trace().join("metadata")).unwrap();
        let at = metadata.windows(8).position(|window| window == b"uuid = \"").unwrap() + 8;
        metadata[at..at + 8].copy_from_slice(format!("{copy:08x}").as_bytes());
        fs::write(dir.join("metadata"), metadata).unwrap();
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_rtscope"))
        .args(["print", "--format", "json"])
        .arg(root.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 100]).unwrap();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn options_that_would_be_ignored_are_refused() {
    for (arguments, what) in [
        (&["stat", "--top", "3"][..], "--top goes with --tasks"),
        (&["stat", "--tasks", "--top", "3", "--json"], "cannot be used with"),
        (&["stat", "--irqs", "--task", "loop"], "--task goes with --tasks"),
        (&["stat", "--tasks", "--event", "sched_*"], "need all events"),
    ] {
        let output = rtscope(arguments, &trace());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && complaint.contains(what), "{arguments:?}: {complaint}");
    }
}
