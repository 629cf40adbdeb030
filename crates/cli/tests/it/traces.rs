// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print` and `rtscope stat` as commands: filters, formats, damage, closed pipes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use nix::pty::{Winsize, openpty};
use rtscope_abi as abi;
use rtscope_event::{CpuId, MonotonicNs};
use rtscope_store::{SpoolDescription, SpoolWriter};
use std::fs::{self, File};
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

/// What a terminal of this many columns gets.
fn on_a_terminal(columns: u16, variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(Some(&size), None).unwrap();
    let (command, rest) = arguments.split_first().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rtscope"))
        .arg(command)
        .arg(trace())
        .args(rest)
        .env_remove("COLUMNS")
        .envs([("LC_ALL", "C.UTF-8"), ("NO_COLOR", "1")])
        .envs(variables.iter().copied())
        .stdout(terminal.slave)
        .spawn()
        .unwrap();
    let mut master = File::from(terminal.master);
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    // It fails when nobody has the other side any more.
    while let Ok(read @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..read]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

/// Of the lines of tables: those before are of the trace's own words, and the last one is a sentence.
fn widest(text: &str) -> usize {
    let tables = text.split_once("\n\n").unwrap().1.lines();
    let tables =
        tables.filter(|line| !line.starts_with("Nothing is missing") && !line.starts_with("Not counted"));
    tables.map(|line| line.chars().count()).max().unwrap()
}

#[test]
fn tables_keep_to_the_terminal_and_files_have_all() {
    const LATENCY: [&str; 3] = ["stat", "--latency", "probe:text -> probe:small"];
    for arguments in [&["stat"][..], &LATENCY] {
        let whole = text(arguments);
        assert!(widest(&whole) > 76, "{whole}");
        assert_eq!(on_a_terminal(200, &[], arguments).trim_end(), whole.trim_end());
        for columns in [48, 60, 75] {
            let shown = on_a_terminal(columns, &[], arguments);
            assert!(widest(&shown) <= columns.into(), "{columns}: {shown}");
            let words: Vec<&str> = shown.split_whitespace().collect();
            let words = words.join(" ");
            assert!(words.contains("(no room for: ") && words.contains("--json has all"), "{shown}");
            let asked = columns.to_string();
            let columns = [("COLUMNS", asked.as_str())];
            assert_eq!(on_a_terminal(200, &columns, arguments), shown, "the user's word goes first");
        }
        let piped = |variables: &[(&str, &str)]| {
            let (command, rest) = arguments.split_first().unwrap();
            let mut run = Command::new(env!("CARGO_BIN_EXE_rtscope"));
            let output = run.arg(command).arg(trace()).args(rest).envs(variables.iter().copied()).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert_eq!(widest(&piped(&[("COLUMNS", "40")])), widest(&whole), "a pipe has no columns");
        let plain = on_a_terminal(60, &[("LC_ALL", "C")], arguments);
        assert!(plain.is_ascii(), "{plain}");
    }
}

#[test]
fn a_trace_without_what_was_asked_for_says_what_to_record() {
    for (arguments, way) in [
        (&["stat", "--tasks"][..], "rtscope record -k 'sched:*,syscalls'"),
        (&["stat", "--irqs"], "rtscope record -k 'irq:*,irq_vectors:*'"),
        (&["stat", "--syscalls"], "rtscope record -k syscalls"),
        (&["stat", "--latency", "softirq"], "rtscope record -k 'irq:*'"),
    ] {
        let said = text(arguments);
        assert!(said.contains(way) && said.contains("none of the events that this is made of"), "{said}");
    }
    let output = rtscope(&["explain"], &trace());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("rtscope stat") && said.contains("rtscope watch saved"),
        "{said}"
    );
}

#[test]
fn files_of_other_tools_are_named_with_the_way_on() {
    let directory = tempfile::tempdir().unwrap();
    for (name, begin, way) in [
        ("perf.data", &b"PERFILE2\0\0\0\0\0\0\0\0"[..], "perf data convert -i "),
        ("trace.dat", &b"\x17\x08\x44tracing6\0\0\0"[..], "trace-cmd report reads it"),
        ("other", &b"something else, whatever it is"[..], "has no CTF trace"),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, begin).unwrap();
        for command in ["print", "stat"] {
            let output = rtscope(&[command], &path);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(1) && said.contains(way), "{command} {name}: {said}");
        }
    }
}

#[test]
fn filters_show_what_they_ask_for() {
    let all = text(&["print"]);
    let having = |part: &str| all.lines().filter(|line| line.contains(part)).count();
    assert_eq!(all.lines().count(), 24);
    for (arguments, expected) in [
        (&["print", "--event", "probe:s*"][..], having("probe:small: ")),
        (&["print", "--event", "probe:small", "--event", "*text"], 24),
        (&["print", "--cpu", "1"], having(" [1] probe:")),
        (&["print", "--cpu", "0-1"], 24),
        (&["print", "--where", "n == 7"], having(" n = 7,")),
        (&["print", "--where", "s < -5 && cpu_id == 0"], 12 / 2 - 2),
        (&["print", "--where", "c == MORE"], having("\"MORE\"")),
        (&["print", "--where", "t =~ \"plain*\" || d > 1"], having("t = \"plain") + having("d = 1.28571")),
        (&["print", "--where", "!(n == 1000)"], 24),
        (&["print", "--where", "n == 1000"], 0),
        (&["print", "--event", "probe"], 24),
        (&["print", "--event", "small,probe:text"], 24),
        (&["print", "--event", "small, probe:text"], 24),
        (&["print", "--event", "probe:*,!probe:small"], having("probe:text: ")),
        (&["print", "--event", "!small", "--event", "probe"], having("probe:text: ")),
        (&["print", "--event", "!*text"], having("probe:small: ")),
        (&["print", "--event", "probe:text,!text"], 0),
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
    assert_eq!((&first["comm"], &first["tid"]), (&"loop".into(), &first["context"]["vtid"]));
    let line = text(&["print", "--event", "probe:text", "--head", "1"]);
    let who = format!(") loop/{} [{}] probe:text: ", first["tid"], first["cpu"]);
    assert!(line.contains(&who) && !line.contains("cpu_id"), "{line}");
    assert!(text(&["print", "--format", "babeltrace"]).lines().all(|line| line.contains("cpu_id = ")));
    assert_eq!(first["fields"]["t"], "plain \u{e4}");
    assert_eq!(first["fields"]["c"], serde_json::json!({ "value": 0, "labels": ["RED"] }));
    assert_eq!(first["fields"]["b"], serde_json::json!([1, 255, 128]));
    let csv = text(&["print", "--format", "csv", "--fields", "n,c,vtid", "--event", "probe:text"]);
    let mut rows = csv.lines();
    assert_eq!(rows.next(), Some("time_ns,cpu,event,pid,tid,comm,n,c,vtid"));
    let expected = format!(
        "{},{},probe:text,,{2},loop,0x0,RED,{2}",
        first["time_ns"], first["cpu"], first["context"]["vtid"]
    );
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
fn a_stream_cut_short_is_shown_up_to_the_damage_and_said_to_be_incomplete() {
    let root = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(trace()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), root.path().join(entry.file_name())).unwrap();
        }
    }
    let path = root.path().join("ch_1");
    let whole = fs::read(&path).unwrap();
    let csv = &["print", "--format", "csv", "--fields", "cpu_id,n"];
    let events = |of: &str, cpu: &str| -> Vec<String> {
        let is_of = |line: &&str| line.split(',').nth(1) == Some(cpu);
        of.lines().filter(is_of).map(str::to_owned).collect()
    };
    let all = text(csv);
    let mut shown = Vec::new();
    for end in (0..whole.len()).rev().step_by(57) {
        fs::write(&path, &whole[..end]).unwrap();
        let output = rtscope(csv, root.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{end}: {said}");
        assert!(said.contains("ch_1") && said.contains("cut short"), "{end}: {said}");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(events(&printed, "0"), events(&all, "0"), "{end}");
        let of_it = events(&printed, "1");
        assert_eq!(of_it, events(&all, "1")[..of_it.len()], "{end}");
        shown.push(of_it.len());
    }
    assert!(shown.is_sorted_by(|one, next| one >= next), "{shown:?}");
    let number = events(&all, "1").len();
    assert!(shown[0] == number && shown.last() == Some(&0), "{shown:?}");
    assert!(shown.iter().any(|shown| (1..number).contains(shown)), "{shown:?}");
    let output = rtscope(&["stat"], root.path());
    let (counted, said) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(5), "{said}");
    // Both say the same.
    assert!(
        counted.contains("Missing:") && counted.contains("ch_1") && !counted.contains("Nothing"),
        "{counted}"
    );
    assert!(said.contains("damaged in 1 place"), "{said}");
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
        (&["stat", "--irqs", "--task", "loop"], "--task goes with --tasks or --latency"),
        (&["stat", "--latency", "disks"], "'disks' is not a latency; write syscalls"),
        (&["stat", "--latency", "probe:small -> probe:larger"], "no event 'probe:larger'; it has probe:"),
        (&["stat", "--latency", "probe:smal -> probe:text"], "; the nearest name is 'probe:small'"),
        (&["stat", "--latency", "probe:small -> probe:text by x"], "'probe:small' has no field 'x'; it has "),
        (&["stat", "--latency", "probe:small ->"], "an event is missing"),
        (&["stat", "--svg", "x.svg"], "--latency"),
        (&["stat", "--tasks", "--event", "sched_*"], "need all events"),
    ] {
        let output = rtscope(arguments, &trace());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && complaint.contains(what), "{arguments:?}: {complaint}");
    }
}

/// A killed recording of one CPU: thread 10 leaves for 11 and comes back, a hundred times; at three of them nothing says that it left.
fn spool_with_hidden_switches(target: &Path) {
    const START: u64 = 5_000_000_000_000;
    let mut description = SpoolDescription::of_this_machine("0.1.0").unwrap();
    (description.started, description.cpus) = (MonotonicNs(START), vec![CpuId(0)]);
    (description.ebpf, description.has_all_switches) = (true, true);
    let switch = |time: u64, prev: u64, next: u64| {
        let word = 5 | u64::from(abi::RTS_SCHED_SWITCH) << 8 | u64::from(abi::RTS_COMMITTED) << 16 | 1 << 32;
        [word, time, prev | next << 32, 120 | 120 << 16 | 1 << 32, 0]
    };
    let words: Vec<u64> = (0..100)
        .flat_map(|number| {
            let time = START + 1_000 + number * 20_000;
            let out = (![20, 40, 41].contains(&number)).then(|| switch(time, 10, 11));
            out.into_iter().chain([switch(time + 10_000, 11, 10)])
        })
        .flatten()
        .collect();
    let writer = SpoolWriter::create(target, &description).unwrap();
    writer.bank(CpuId(0)).unwrap().chunk(MonotonicNs(START + 10_000_000), 0, &words).unwrap();
}

#[test]
fn hidden_switches_are_in_every_account_of_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("trace");
    spool_with_hidden_switches(&target);
    let output = Command::new(env!("CARGO_BIN_EXE_rtscope"))
        .args(["record", "--json", "--recover"])
        .arg(&target)
        .output()
        .unwrap();
    let said = |output: &Output| -> serde_json::Value { serde_json::from_slice(&output.stdout).unwrap() };
    let gap = serde_json::json!({ "cause": "gap", "cpu": 0, "count": 3 });
    let has_gap = |losses: &serde_json::Value| losses.as_array().unwrap().contains(&gap);
    assert!(has_gap(&said(&output)["losses"]), "{output:?}");
    let stat = said(&rtscope(&["stat", "--json"], &target));
    assert!(has_gap(&stat["traces"][0]["losses"]), "{stat}");
    let tasks = said(&rtscope(&["stat", "--tasks", "--json"], &target));
    assert_eq!(tasks["missing"]["gaps"], 3, "{tasks}");
    // In the same words.
    let line = "lost: 3 switches of tasks on cpu 0 that the kernel did not report";
    let stat = rtscope(&["stat"], &target);
    assert!(String::from_utf8_lossy(&stat.stdout).contains(line), "{stat:?}");
    let print = rtscope(&["print"], &target);
    assert!(String::from_utf8_lossy(&print.stderr).contains(line), "{print:?}");
}

#[test]
fn a_filter_that_cannot_match_is_refused_and_one_that_does_not_is_noted() {
    for command in ["print", "stat"] {
        for (arguments, word) in [
            (&["--event", "probe:smal"][..], "the nearest name is probe:small"),
            (&["--event", "probe:small,nothing:*"], "no event nothing:*"),
            (&["--where", "nn == 1"], "no field nn"),
            (&["--where", "n < 5ms"], "n is a number"),
            (&["--where", "c == RDE"], "the nearest is RED"),
            (&["--where", "t < 5"], "t is a text, and has no order with the number 5"),
        ] {
            let output = rtscope(&[&[command], arguments].concat(), &trace());
            let notes = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
            assert!(
                notes.contains(word) || notes.contains(&word.replace("no field", "has a field")),
                "{notes}"
            );
        }
        for (arguments, word) in [
            (&["--cpu", "7"][..], "nothing of CPU 7"),
            (&["--event", "sched:sched_switch"], "no event sched:sched_switch"),
            (&["--task", "nobody"], "no event matches --task nobody"),
            (
                &["--where", "n == 1000", "--event", "probe:small"],
                "--event probe:small and --where 'n == 1000'",
            ),
            (&["--to", "0"], "no event matches the given times"),
        ] {
            let output = rtscope(&[&[command], arguments].concat(), &trace());
            let notes = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {notes}");
            assert!(notes.contains(word), "{arguments:?}: {notes}");
        }
    }
    let filtered = rtscope(&["print", "--event", "probe:small"], &trace());
    assert!(filtered.stderr.is_empty(), "{}", String::from_utf8_lossy(&filtered.stderr));
}

#[test]
fn figures_of_what_does_not_match_are_noted() {
    let latency = ["stat", "--latency", "probe:small -> probe:text"];
    for (arguments, word) in [
        (&["--task", "nobody"][..], "no event matches --task nobody"),
        (&["--cpu", "7"], "no event matches --cpu 7"),
        (&["--to", "0"], "no event matches the given times"),
        (&["--task", "loop"], ""),
        (&["--from", "+0s"], ""),
    ] {
        let output = rtscope(&[&latency, arguments].concat(), &trace());
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {notes}");
        assert!(notes.contains(word) && notes.is_empty() == word.is_empty(), "{arguments:?}: {notes}");
    }
}

#[test]
fn fields_that_no_event_has_are_refused() {
    for (arguments, word) in [
        (&["print", "--format", "csv", "--fields", "n,tt"][..], "no selected event has a field tt"),
        (&["print", "--format", "csv", "--event", "probe:small", "--fields", "d"], "probe:text has one"),
        (&["convert", "-", "--to", "perfetto", "--counter", "probe:small.nn"], "--counter probe:small.nn"),
        (&["convert", "-", "--to", "perfetto", "--counter", "smal.n"], "--counter smal.n"),
    ] {
        let output = rtscope(arguments, &trace());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    assert_eq!(lines(&["print", "--format", "csv", "--fields", "n,t"]), 25);
    assert!(
        rtscope(&["convert", "-", "--to", "perfetto", "--counter", "probe:*.n"], &trace()).status.success()
    );
}

/// Each event's time and fields, from the printed lines.
fn printed() -> Vec<serde_json::Value> {
    text(&["print", "--format", "json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn latencies_of_another_tracers_programs_are_those_of_the_printed_events() {
    let time = |event: &serde_json::Value| event["time_ns"].as_i64().unwrap();
    let mut begun = std::collections::BTreeMap::new();
    let mut lengths = Vec::new();
    for event in printed() {
        let thread = event["context"]["vtid"].as_i64().unwrap();
        if event["event"] == "probe:text" {
            lengths.extend(begun.remove(&thread).map(|since| time(&event) - since));
        } else {
            begun.insert(thread, time(&event));
        }
    }
    assert!(lengths.len() > 5, "{lengths:?}");
    let arguments = ["stat", "--latency", "probe:small -> probe:text", "--json"];
    let report: serde_json::Value = serde_json::from_str(&text(&arguments)).unwrap();
    let all = &report["all"];
    assert_eq!(all["count"], lengths.len(), "{report}");
    assert_eq!(all["total_ns"], lengths.iter().sum::<i64>());
    assert_eq!(all["longest_ns"], *lengths.iter().max().unwrap());
    assert_eq!(report["tasks"][0]["comm"], "loop");
    // By the number of the iteration both threads have the same keys.
    let by_number = ["stat", "--latency", "probe:small -> probe:text by nothing", "--json"];
    assert_eq!(rtscope(&by_number, &trace()).status.code(), Some(2));
    let one = ["stat", "--latency", "probe:small -> probe:text", "--cpu", "0", "--json"];
    let one: serde_json::Value = serde_json::from_str(&text(&one)).unwrap();
    assert!(
        one["all"]["count"].as_u64().unwrap() < lengths.len() as u64 && one["all"]["count"] != 0,
        "{one}"
    );
    let root = tempfile::tempdir().unwrap();
    let picture = root.path().join("latency.svg");
    let drawn = text(&["stat", "--latency", "probe:small -> probe:text", "--svg", picture.to_str().unwrap()]);
    assert!(drawn.contains("probe:small -> probe:text") && drawn.contains("from "), "{drawn}");
    let picture = fs::read_to_string(picture).unwrap();
    assert!(picture.contains("<path") && picture.contains("probe:small -&gt; probe:text"), "{picture}");
}

#[test]
fn a_full_disk_is_called_that_and_a_dash_is_refused_where_there_is_no_stream() {
    let pair = ["stat", "--latency", "probe:small -> probe:text", "--svg"];
    let run = |file: &str| rtscope(&[&pair[..], &[file]].concat(), &trace());
    let complaint = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let full = run("/dev/full");
    assert!(full.status.code() == Some(1) && complaint(&full).contains("the disk is full"), "{full:?}");
    let dash = run("-");
    assert!(dash.status.code() == Some(2) && complaint(&dash).contains("name a file"), "{dash:?}");
    for arguments in [&["print"][..], &["stat"], &["print", "--format", "json"]] {
        let (command, rest) = arguments.split_first().unwrap();
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_rtscope"));
        let output = process.arg(command).arg(trace()).args(rest).stdout(full).output().unwrap();
        let said = complaint(&output);
        assert!(
            output.status.code() == Some(1) && said.contains("the disk is full"),
            "{arguments:?}: {said}"
        );
    }
    let mut process = Command::new(env!("CARGO_BIN_EXE_rtscope"));
    let output = process.args(["record", "-u", "none:*", "-o", "-", "--", "true"]).output().unwrap();
    let said = complaint(&output);
    assert!(output.status.code() == Some(2) && said.contains("name a directory with -o"), "{said}");
    assert!(!Path::new("-").exists() && !Path::new("-.partial").exists());
}
