// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record -u` and `rtscope list` against a program that counts what it emits (crates/testkit/c/emitter.c), compiled here
//! as a user would. In each: recorded + lost = emitted; babeltrace2 and strace are the judges.

use super::fixture::{Recorded, begun, begun_of, interrupt, send};
use crate::command::{field, lost, root, rtscope};
use nix::sys::signal::Signal;
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// A fixture with the compiled emitter.
pub(super) struct EmitterFixture {
    fixture: super::fixture::Fixture,
    pub(super) emitter: PathBuf,
}

impl Deref for EmitterFixture {
    type Target = super::fixture::Fixture;

    fn deref(&self) -> &super::fixture::Fixture {
        &self.fixture
    }
}

impl EmitterFixture {
    /// `None`, and the reason reported, without a C compiler.
    pub(super) fn new() -> Option<EmitterFixture> {
        EmitterFixture::with("cc", &["-O2", "-std=c11"])
    }

    fn with(compiler: &str, flags: &[&str]) -> Option<EmitterFixture> {
        let fixture = super::fixture::Fixture::new();
        let source = root().join("crates/testkit/c/emitter.c");
        let emitter = fixture.compile(compiler, flags, &source, "emitter")?;
        Some(EmitterFixture { fixture, emitter })
    }

    /// Records one run of the emitter.
    fn record(&self, options: &[&str], arguments: &[&str]) -> (Value, u64) {
        let output = self.recorder(options).arg("--").arg(&self.emitter).args(arguments).output();
        let output = output.expect("it can be started");
        assert!(output.status.success(), "{output:?}");
        (account(&output), emitted(&output))
    }
}

fn account(output: &Output) -> Value {
    Recorded::of(output.clone()).account
}

pub(super) fn emitted(output: &Output) -> u64 {
    Recorded::printed_in(output, "emitted ")
}

/// What babeltrace2 reads; it must have nothing to complain about but what was lost.
pub(super) fn babeltrace2(trace: &Path) -> Option<Vec<String>> {
    let output = Command::new("babeltrace2").arg(trace).output().ok()?;
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let other = complaints.lines().find(|line| !line.contains("Tracer discarded") && !line.is_empty());
    assert_eq!(other, None, "{complaints}");
    assert!(output.status.success());
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

#[track_caller]
fn assert_complete(fixture: &EmitterFixture, account: &Value, emitted: u64) {
    let recorded = account["events"].as_u64().expect("a number");
    println!("recorded {recorded} + lost {} = emitted {emitted}", lost(account));
    assert_eq!(recorded + lost(account), emitted, "{account}");
    if let Some(lines) = babeltrace2(&fixture.trace()) {
        assert_eq!(lines.len() as u64, recorded);
    }
}

#[test]
fn all_events_of_a_program_are_recorded_in_order() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (account, emitted) = fixture.record(&["--user-buffer", "16M"], &["count", "100000"]);
    assert_eq!((emitted, lost(&account)), (100_000, 0));
    assert_complete(&fixture, &account, emitted);
    let Some(lines) = babeltrace2(&fixture.trace()) else { return };
    for (number, line) in lines.iter().enumerate() {
        assert!(line.contains(&format!("{{ n = {number}, thread = 0 }}")), "{line}");
    }
}

#[test]
fn what_a_small_buffer_loses_is_counted_and_placed() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (account, emitted) = fixture.record(&["--user-buffer", "64K"], &["count", "3000000"]);
    assert!(lost(&account) > 0, "a ring of 64 KiB holds 2700 of them: {account}");
    assert_complete(&fixture, &account, emitted);
    let Some(lines) = babeltrace2(&fixture.trace()) else { return };
    // What was recorded is in order, and babeltrace2 says that something is missing, and where.
    let number = |line: &String| -> u64 {
        let text = line.split("n = ").nth(1).and_then(|rest| rest.split(',').next()).expect("a number");
        text.parse().expect("a number")
    };
    assert!(lines.iter().map(number).is_sorted());
    let output = Command::new("babeltrace2").arg(fixture.trace()).output().expect("it was there");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Tracer discarded"));
}

#[test]
fn a_thousand_threads_are_recorded() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (account, emitted) =
        fixture.record(&["--user-buffer", "64K", "--context", "tid"], &["threads", "500", "1000"]);
    assert_eq!(emitted, 500_000);
    assert_complete(&fixture, &account, emitted);
}

#[test]
fn where_few_files_may_be_open_all_threads_are_recorded() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let recorder = fixture.recorder(&["--user-buffer", "64K"]);
    // Fewer than 64 streams of their own would take; and what the recorder needs besides.
    let mut command = Command::new("prlimit");
    command.arg("--nofile=72").arg(recorder.get_program()).args(recorder.get_args());
    let output = command.arg("--").arg(&fixture.emitter).args(["threads", "1000", "100"]).output();
    let output = output.expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let (account, emitted) = (account(&output), emitted(&output));
    assert_eq!(emitted, 100_000);
    assert_complete(&fixture, &account, emitted);
    assert!(account["rings"].as_u64().is_some_and(|rings| rings >= 100), "{account}");
}

#[test]
fn handlers_that_interrupt_events_are_recorded() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (account, emitted) = fixture.record(&["--user-buffer", "64M"], &["signals", "2000000"]);
    assert!(account["by_event"]["test:handler"].as_u64().is_some_and(|count| count > 10), "{account}");
    assert_complete(&fixture, &account, emitted);
}

#[test]
fn children_are_recorded_or_counted() {
    let Some(fixture) = EmitterFixture::new() else { return };
    for mode in ["fork", "vfork", "clone"] {
        let (account, emitted) = fixture.record(&[], &[mode, "1000"]);
        assert_eq!(emitted, 3000);
        assert_complete(&fixture, &account, emitted);
        let rings = account["rings"].as_u64();
        let (events, expected) = (account["events"].as_u64(), if mode == "clone" { 2000 } else { 3000 });
        assert_eq!((rings, events), (Some(if mode == "fork" { 2 } else { 1 }), Some(expected)), "{mode}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn children_of_a_busy_program_are_recorded_or_counted() {
    let Some(fixture) = EmitterFixture::new() else { return };
    // Four threads emit all the time, while a fifth forks children that emit and end.
    let (account, emitted) = fixture.record(&["--user-buffer", "256K"], &["forks", "200"]);
    assert!(emitted > 200 * 100, "{emitted}");
    assert_complete(&fixture, &account, emitted);
    assert!(account["by_event"]["test:child"].as_u64() > Some(0), "{account}");
}

#[test]
fn a_program_that_becomes_another_is_recorded_in_both_lives() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (account, emitted) = fixture.record(&[], &["exec", "1000"]);
    assert_eq!(emitted, 1000, "the second life prints");
    assert_complete(&fixture, &account, 2000);
}

#[test]
fn texts_and_sequences_are_what_they_were() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (account, emitted) = fixture.record(&["--user-buffer", "16M"], &["strings", "5000"]);
    assert_complete(&fixture, &account, emitted);
    let printed = rtscope().arg("print").arg(fixture.trace()).output().expect("it can be run");
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).expect("text");
    let expected = |number: usize| {
        let (length, letter) = (number % 400, char::from(b'a' + (number % 26) as u8));
        // The mark of a text that was cut takes three bytes of the 255.
        let (kept, mark) = if length > 255 { (252, "…") } else { (length, "") };
        let text: String = std::iter::repeat_n(letter, kept).collect::<String>() + mark;
        (format!("text = \"{text}\", _bytes_length = {},", length % 50), length == 0)
    };
    for (number, line) in printed.lines().enumerate() {
        assert!(line.contains(&expected(number).0), "{number}: {line}");
    }
    for (number, line) in babeltrace2(&fixture.trace()).unwrap_or_default().iter().enumerate() {
        // babeltrace2 2.0.4 shows an earlier text where one is empty (its review 4528).
        let (text, is_empty) = expected(number);
        assert!(is_empty || line.contains(&text), "{number}: {line}");
    }
}

/// An emitter that waits for a line.
fn waiting(fixture: &EmitterFixture, count: &str) -> Child {
    super::fixture::waiting(Command::new(&fixture.emitter).args(["wait", count]))
}

fn recorder(fixture: &EmitterFixture, options: &[&str]) -> KilledWithTest {
    begun(&mut fixture.recorder(options))
}

#[test]
fn programs_that_ran_before_the_recorder_are_listed_and_recorded() {
    let Some(fixture) = EmitterFixture::new() else {
        return;
    };
    let mut child = waiting(&fixture, "7000");
    let pid = child.id();
    let listed = rtscope().args(["list", "--json"]).output().expect("it can be run");
    let list: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let programs = list["programs"].as_array().expect("a list");
    let own = programs.iter().find(|program| program["pid"] == pid).unwrap_or_else(|| panic!("{list}"));
    let events = own["providers"][0]["descriptions"]["events"].as_array().expect("events");
    assert!(
        events.iter().any(|event| event["name"] == "test:count" && event["fields"][0]["name"] == "n"),
        "{own}"
    );
    let recorder = recorder(&fixture, &[]);
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let account = account(&interrupt(recorder));
    assert_complete(&fixture, &account, emitted(&output));
    assert_eq!(emitted(&output), 7000);
}

/// Such a program is no liar: its other events are recorded, and it is told which are not.
#[test]
fn an_event_that_cannot_be_described_costs_no_other_event() {
    let fixture = super::fixture::Fixture::new();
    let Some(program) = fixture.program("undescribed.c", &[], "undescribed") else { return };
    let recorded = fixture.record(&[], &[&program]);
    let counts =
        ["before", "after", "constant", "half_named"].map(|name| recorded.of_event(&format!("test:{name}")));
    assert_eq!((counts, recorded.events()), ([100; 4], 400), "{}", recorded.account);
    let remarks = recorded.remarks();
    assert!(
        remarks.contains(
            "test:nameless (and 1 more of its events) is not recorded: an enumeration has no labels"
        ),
        "{remarks}"
    );
    assert!(!remarks.contains("dropped"), "{remarks}");
    let losses = recorded.account["losses"].as_array().expect("a list");
    let causes: Vec<(&str, &Value)> =
        losses.iter().map(|loss| (loss["cause"].as_str().expect("a text"), &loss["count"])).collect();
    assert_eq!(causes, [("undescribed", &Value::Null)], "how many nobody knows");
    let lines = babeltrace2(&fixture.trace());
    assert!(lines.is_none_or(|lines| lines.len() == 400));
}

#[test]
fn what_a_killed_program_had_committed_is_recorded() {
    let Some(fixture) = EmitterFixture::new() else { return };
    // It fills its ring while nobody empties it: the recorder is stopped. Then it is killed.
    let recorder = recorder(&fixture, &["--user-buffer", "64M"]);
    let mut child = waiting(&fixture, "100000");
    send(&recorder, Signal::SIGSTOP);
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it says how many");
    child.kill().expect("it runs, or has ended");
    child.wait().expect("it ends");
    send(&recorder, Signal::SIGCONT);
    let account = account(&interrupt(recorder));
    assert_complete(&fixture, &account, 100_000);
    assert_eq!(lost(&account), 0);
}

#[test]
fn a_killed_recorder_is_followed_by_another() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let mut first = recorder(&fixture, &["--user-buffer", "64K"]);
    let mut child = waiting(&fixture, "50000");
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    // Enabled, and nobody empties the ring: most of it is lost, and the program runs on.
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(emitted(&output), 50_000);
    let recovered =
        rtscope().args(["record", "--json", "--recover"]).arg(fixture.trace()).output().expect("it runs");
    let before = account(&recovered)["events"].as_u64().expect("a number");
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    let account = account(&interrupt(recorder(&fixture, &[])));
    println!("the first recorded {before}, the second {}", account["events"]);
    assert_eq!(before + account["events"].as_u64().expect("a number") + lost(&account), 50_000);
    assert!(lost(&account) > 0);
    // Whoever reads the trace is told as well that they are not of its time.
    let stat = rtscope().arg("stat").arg(fixture.trace()).output().expect("it can be run");
    let text = String::from_utf8_lossy(&stat.stdout);
    let earlier = format!(
        "from before this recording: {} event",
        rtscope_event::count_text(account["earlier"].as_u64().expect("a number"))
    );
    assert!(text.contains(&earlier), "{earlier}\n{text}");
}

/// What was left is not of its pattern: it is neither recorded nor missing.
#[test]
fn a_recorder_of_others_has_and_misses_nothing_that_a_killed_one_left() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let of_others = || {
        fs::remove_dir_all(fixture.trace()).expect("it was begun");
        let other = fixture.dir.path().join("other");
        let mut command = rtscope();
        command.args(["record", "--json", "-u", "nothing:*", "-o"]).arg(&other).args(["--", "true"]);
        let account = account(&command.output().expect("it can be run"));
        assert_eq!((account["events"].as_u64(), lost(&account)), (Some(0), 0), "{account}");
        fs::remove_dir_all(other).expect("it was made");
    };
    // A program that goes on: it has events in its ring at any moment.
    let mut first = recorder(&fixture, &[]);
    let mut child = KilledWithTest::start(Command::new(&fixture.emitter).args(["paced", "1000000000"]))
        .expect("it can be started");
    while !fixture.trace().join("ust.partial/trace/user_0").exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    of_others();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    // One that has ended, with a full ring.
    let mut first = recorder(&fixture, &["--user-buffer", "64K"]);
    let mut child = waiting(&fixture, "50000");
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    assert_eq!(emitted(&child.wait_with_output().expect("it ends")), 50_000);
    of_others();
}

/// With small rings, of events of this pattern.
fn recorder_of(pattern: &str, fixture: &EmitterFixture) -> Command {
    let mut command = rtscope();
    command.args(["record", "--json", "--fail-if-lost=100%", "--user-buffer", "64K", "-u", pattern]);
    command.arg("-o").arg(fixture.trace());
    command
}

/// The same of one program: its ring is full of what another recorder asked for, which was killed.
#[test]
fn a_recorder_of_another_event_of_the_program_misses_nothing_that_a_killed_one_left() {
    let Some(fixture) = EmitterFixture::new() else { return };
    for (pattern, is_of_others) in [("test:last", true), ("test:*", false)] {
        let mut first = begun_of("test:count", &mut recorder_of("test:count", &fixture));
        let mut command = Command::new(&fixture.emitter);
        let mut child = super::fixture::waiting(command.args(["turns", "50000", "100"]));
        first.kill().expect("it runs");
        first.wait().expect("it ends");
        let stdin = child.stdin.as_mut().expect("piped");
        stdin.write_all(b"\n").expect("it reads");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("it says when it has emitted");
        assert_eq!(line, "ready\n");
        fs::remove_dir_all(fixture.trace()).expect("it was begun");
        let second = begun_of(pattern, &mut recorder_of(pattern, &fixture));
        child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
        assert!(child.wait_with_output().expect("it ends").status.success());
        let account = account(&interrupt(second));
        // Its ring may still have been full of the others when it emitted the last.
        let seen = account["events"].as_u64().expect("a number") + lost(&account);
        assert_eq!(seen, if is_of_others { 100 } else { 50_100 }, "{pattern}: {account}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn a_traced_thread_makes_no_system_call() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let calls = |count: &str, traced: bool| -> Option<u64> {
        let log = fixture.dir.path().join("strace");
        let mut command = if traced {
            let mut command = fixture.recorder(&["--user-buffer", "1M"]);
            command.arg("--").arg("strace");
            command
        } else {
            Command::new("strace")
        };
        let status =
            command.args(["-f", "-c", "-o"]).arg(&log).arg(&fixture.emitter).args(["count", count]).output();
        let status = status.ok()?;
        assert!(status.status.success(), "{status:?}");
        let _ = fs::remove_dir_all(fixture.trace());
        let text = fs::read_to_string(&log).expect("strace's table");
        let total = text.lines().find(|line| line.ends_with("total")).expect("a sum");
        total.split_whitespace().nth(3).and_then(|number| number.parse().ok())
    };
    if skip::without_tool("strace") {
        return;
    }
    let (few, many) = (calls("1", true), calls("10000000", true));
    println!(
        "system calls with 1 event: {few:?}, with 10 million: {many:?}, untraced: {:?}",
        calls("1", false)
    );
    assert!(few.is_some());
    assert_eq!(few, many);
}

#[test]
fn a_program_that_allows_it_waits_for_room_and_a_real_time_one_never_does() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let run = |prefix: &[&str], allows: &str| {
        let mut command = fixture.recorder(&["--user-buffer", "64K", "--blocking"]);
        command.arg("--").args(prefix).arg(&fixture.emitter).args(["count", "300000"]);
        let output = command.env("RTSCOPE_ALLOW_BLOCKING", allows).output().expect("it can be started");
        assert!(output.status.success(), "{output:?}");
        let account = account(&output);
        assert_complete(&fixture, &account, emitted(&output));
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        (lost(&account), account["waits"].as_u64().expect("a number"))
    };
    let (lost, waits) = run(&[], "1");
    assert!(lost == 0 && waits > 0, "lost {lost}, waits {waits}");
    let (lost, waits) = run(&[], "0");
    assert!(lost > 0 && waits == 0, "without leave: lost {lost}, waits {waits}");
    if !nix::unistd::geteuid().is_root() {
        skip!("a real-time policy takes root");
    }
    let (lost, waits) = run(&["chrt", "-f", "1"], "1");
    assert!(lost > 0 && waits == 0, "real-time: lost {lost}, waits {waits}");
}

/// The times of a trace's lines with this text, in CLOCK_MONOTONIC's nanoseconds, and the lines.
fn at_ns(trace: &Path, text: &str) -> Vec<(u64, String)> {
    let output =
        Command::new("babeltrace2").arg("--clock-cycles").arg(trace).output().expect("it was just there");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let with = lines.lines().filter(|line| line.contains(text));
    let time = |line: &str| line.trim_start_matches('[').split(']').next().and_then(|time| time.parse().ok());
    with.map(|line| (time(line).unwrap_or_else(|| panic!("a time: {line}")), line.to_string())).collect()
}

// NEEDS: host
#[test]
fn root_a_recording_of_kernel_and_programs_is_on_one_clock() {
    if skip::without_watching() || skip::without_tool("babeltrace2") {
        return;
    }
    let Some(fixture) = EmitterFixture::new() else { return };
    let output = fixture
        .recorder(&["-k", "syscalls:sys_enter_getppid", "--context", "tid,cpu", "--only-command", "--"])
        .arg(&fixture.emitter)
        .args(["stamps", "300"])
        .output()
        .expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let error = account(&output)["clock_error_ns"]["p99"].as_u64().expect("a number");
    println!("clock error: 99 % within {error} ns");
    assert!(error <= 30 || rtscope_testkit::machine::is_emulated());
    // The program has read the clock before and after each system call, and its event comes after that: its stamps judge both traces.
    let calls = at_ns(&fixture.trace().join("kernel"), "getppid");
    let stamps = at_ns(&fixture.trace().join("ust"), "test:stamp");
    let number = |line: &str, name: &str| -> u64 {
        field(line, name).and_then(|text| text.parse().ok()).expect("a number")
    };
    assert_eq!((stamps.len(), emitted(&output)), (300, 300));
    let mut slack = (u64::MAX, u64::MAX);
    let mut outside_ns = Vec::new();
    for (at, (time, line)) in stamps.iter().enumerate() {
        let (before, after) = (number(line, "before"), number(line, "after"));
        let call = calls.iter().find(|(call, _)| (before..=after).contains(call));
        let (call, _) = call.unwrap_or_else(|| panic!("no system call from {before} to {after}: {calls:?}"));
        let next = stamps.get(at + 1).map_or(u64::MAX, |(_, line)| number(line, "before"));
        outside_ns.push(after.saturating_sub(*time).max(time.saturating_sub(next)));
        slack = (slack.0.min(call - before), slack.1.min(time.abs_diff(after)));
    }
    println!(
        "at least {} ns from the stamp to the call, {} ns from the stamp to the event",
        slack.0, slack.1
    );
    // The conversion of the program's counter has its own error, which is measured: what is said of 99 % holds for 99 %. (Without a fence between the stamp and the
    // event one in 20 to 300 events was read 5 ns before its stamp: with it none of 6000, on the machine where that was seen.)
    outside_ns.sort_unstable();
    let (of_99, worst) = (outside_ns[outside_ns.len() * 99 / 100 - 1], outside_ns[outside_ns.len() - 1]);
    assert!(of_99 <= error && worst <= error.max(30), "{outside_ns:?} ns outside, {error} allowed");
    let stat = rtscope().args(["stat"]).arg(fixture.trace()).output().expect("it can be run");
    let text = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.status.success() && text.contains("getppid") && text.contains("test:stamp"), "{text}");
}

#[test]
fn a_pattern_that_no_program_has_is_said_with_the_nearest() {
    let Some(fixture) = EmitterFixture::new() else { return };
    for (asked, says) in [
        ("tset:*", Some("no program had an event 'tset:*'; the nearest provider is 'test'")),
        ("test:cuont", Some("no program had an event 'test:cuont'; the nearest is 'test:count'")),
        (
            "test:count if thred > 3",
            Some(
                "test:count has no field 'thred', which the condition of 'test:count' is about; the nearest is 'thread'",
            ),
        ),
        ("test:count", None),
    ] {
        let mut command = rtscope();
        command.args(["record", "--json", "-u", asked, "-o"]).arg(fixture.trace()).arg("--");
        let account =
            account(&command.arg(&fixture.emitter).args(["count", "10"]).output().expect("it can be run"));
        let remarks: Vec<&str> = account["remarks"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|remark| remark.as_str())
            .collect();
        assert_eq!(remarks, Vec::from_iter(says), "{asked}: {account}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
    // A flight recorder of the same says it, too.
    let mut command = rtscope();
    command.args(["record", "--flight-recorder", "-u", "tset:*", "-o"]).arg(fixture.trace()).arg("--");
    let output = command.arg(&fixture.emitter).args(["count", "10"]).output().expect("it can be run");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("no program had an event 'tset:*'; the nearest provider is 'test'"), "{notes}");
}
