// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print --follow` of a recording of programs that is made at the same time.

use super::fixture::{Fixture, begun, interrupt, send};
use crate::command::rtscope;
use nix::sys::signal::Signal;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::process::{KilledWithTest, wait_until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::time::UNIX_EPOCH;

/// A follower, and what it says.
struct Follower {
    process: KilledWithTest,
    out: BufReader<ChildStdout>,
    notes: BufReader<ChildStderr>,
}

impl Follower {
    fn start(command: &str, trace: &Path, options: &[&str]) -> Follower {
        let mut follow = rtscope();
        follow.arg(command).arg("--follow").arg(trace).args(options);
        let mut process = KilledWithTest::start(follow.stdout(Stdio::piped()).stderr(Stdio::piped()))
            .expect("it can be started");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        let notes = BufReader::new(process.stderr.take().expect("piped"));
        Follower { process, out, notes }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it is text");
        line
    }

    fn lines(&mut self, count: usize) -> String {
        (0..count).map(|_| self.line()).collect()
    }

    fn note(&mut self) -> String {
        let mut line = String::new();
        self.notes.read_line(&mut line).expect("it is text");
        line
    }

    /// All the rest of the output, all the rest of the notes, and the exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        let (mut out, mut notes) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("it is text");
        self.notes.read_to_string(&mut notes).expect("it is text");
        (out, notes, self.process.wait().expect("it ends").code())
    }
}

fn emitter(program: &Path, arguments: &[&str]) -> KilledWithTest {
    KilledWithTest::start(Command::new(program).args(arguments).stdout(Stdio::null()))
        .expect("it can be started")
}

// NEEDS: host
#[test]
fn root_a_recording_is_followed_until_it_ends() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("emitter.c", &[], "emitter") else { return };
    let trace = fixture.trace();
    let mut text = Follower::start("print", &trace, &["--format", "babeltrace"]);
    assert!(text.note().contains("waiting for events of a recording"));
    let mut json = Follower::start(
        "print",
        &trace,
        &["--format", "json", "--delay", "300ms", "--event", "test:iter*", "--from", "-0s"],
    );
    assert!(json.note().contains("waiting for events of a recording"));
    let mut recorder = begun(&mut fixture.recorder(&[]));
    let first = emitter(&program, &["iterations", "0"]);
    // Events come while the recorder and the program go on, and not before their delay has passed.
    let mut shown = text.lines(20);
    for _ in 0..20 {
        let event: Value = serde_json::from_str(&json.line()).expect("JSON");
        let now = UNIX_EPOCH.elapsed().expect("it is later").as_nanos();
        let time = u128::from(event["time_ns"].as_u64().expect("a time"));
        assert!(time + 300_000_000 <= now + 1_000_000, "{event} at {now}");
        assert_eq!(event.get("late_ns"), None);
    }
    // More programs, and more threads than a trace has streams.
    let more = emitter(&program, &["count", "100", "100"]).wait().expect("it ends");
    assert!(more.success());
    shown += &text.lines(10020);
    assert!(recorder.try_wait().expect("it is ours").is_none() && !trace.join("ust").exists());
    drop(first);
    let output = interrupt(recorder);
    assert!(output.status.success(), "{output:?}");
    let (rest, notes, code) = text.end();
    assert_eq!((notes.as_str(), code), ("", Some(0)));
    let (rest_of_json, notes, code) = json.end();
    assert_eq!((notes.as_str(), code), ("", Some(0)));
    shown += &rest;
    let events = shown.lines().filter(|line| line.contains("test:iteration")).count();
    assert_eq!(rest_of_json.lines().count() + 20, events);
    if let Some(expected) = babeltrace2::text(&trace, &[]) {
        assert!(shown == expected, "babeltrace2 prints something else");
    }
}

// NEEDS: host
#[test]
fn root_a_follower_ends_with_its_reader_its_user_and_its_recorder() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("emitter.c", &[], "emitter") else { return };
    let trace = fixture.trace();
    let recorder = begun(&mut fixture.recorder(&[]));
    let mut follower = Follower::start("print", &trace, &["--format", "babeltrace", "--delay", "0s"]);
    let unread = Follower::start("print", &trace, &["--format", "json"]);
    let limited = Follower::start("print", &trace, &["--head", "100"]);
    let mut closed = Follower::start("print", &trace, &[]);
    assert!(emitter(&program, &["count", "5000"]).wait().expect("it ends").success());
    let mut shown = follower.lines(5000);
    assert_eq!(closed.lines(5000).lines().count(), 5000);
    // It has nothing to write then.
    drop(closed.out);
    assert_eq!(closed.process.wait().expect("it ends").code(), Some(0));
    let (lines, _, code) = limited.end();
    assert_eq!((lines.lines().count(), code), (100, Some(0)));
    // Its pipe is full.
    let full = || unread_bytes(&unread.out) >= 60 << 10;
    wait_until("as much is written as the pipe takes", full);
    send(&unread.process, Signal::SIGINT);
    let mut unread = unread;
    assert_eq!(unread.process.wait().expect("it ends").code(), Some(0));
    send(&recorder, Signal::SIGKILL);
    let (rest, notes, code) = follower.end();
    shown += &rest;
    assert_eq!(code, Some(5));
    assert!(notes.contains("has ended without completing the trace"), "{notes}");
    let partial = trace.join("ust.partial");
    for path in [trace.clone(), partial.clone()] {
        let output = rtscope().arg("stat").arg(&path).output().expect("it can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        let advice = format!("rtscope record --recover {}", trace.display());
        assert!(said.contains(&advice), "{}: {said}", path.display());
    }
    if let Some(expected) = babeltrace2::text(&partial.join("trace"), &[]) {
        assert!(shown == expected, "babeltrace2 prints something else");
    }
    drop(recorder);
}

fn unread_bytes(pipe: &BufReader<ChildStdout>) -> usize {
    use std::os::fd::AsRawFd;
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which lives as long as the call.
    let asked = unsafe { libc::ioctl(pipe.get_ref().as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    assert_eq!(asked, 0);
    bytes as usize
}

// NEEDS: host
#[test]
fn root_what_stat_follows_is_in_the_end_what_stat_says() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("emitter.c", &[], "emitter") else { return };
    let trace = fixture.trace();
    let recorder = begun(&mut fixture.recorder(&[]));
    let mut follower =
        Follower::start("stat", &trace, &["--json", "--interval", "100ms", "--delay", "100ms"]);
    assert!(follower.note().contains("waiting for events of a recording"));
    let mut more = Vec::new();
    for events in [1000, 3000] {
        let count = events.to_string();
        more.push(emitter(&program, &["count", &count, "2"]).wait().expect("it ends"));
        // What it says only grows, and says all in the end.
        let mut before = 0;
        let wanted = if events == 1000 { 2000 } else { 8000 };
        while before < wanted {
            let stat: Value = serde_json::from_str(&follower.line()).expect("JSON");
            let so_far = stat["events"].as_u64().expect("a number");
            assert!(before <= so_far && so_far <= wanted, "{stat}");
            before = so_far;
        }
        assert!(!trace.join("ust").exists());
    }
    assert!(more.iter().all(std::process::ExitStatus::success));
    assert!(interrupt(recorder).status.success());
    let (lines, notes, code) = follower.end();
    assert_eq!((notes.as_str(), code), ("", Some(0)));
    let last: Value = serde_json::from_str(lines.lines().last().expect("the last one")).expect("JSON");
    let output = rtscope().args(["stat", "--json"]).arg(&trace).output().expect("it is there");
    let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for part in ["events", "first_ns", "last_ns", "by_event"] {
        assert_eq!(last[part], whole[part], "{part}");
    }
}

// NEEDS: host
#[test]
fn root_the_kernel_and_programs_are_followed_together() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("emitter.c", &[], "emitter") else { return };
    let trace = fixture.trace();
    // The kernel's events take half a second to the trace, or more on a busy machine.
    let text = Follower::start("print", &trace, &["--format", "babeltrace", "--delay", "5s"]);
    let stat = Follower::start("stat", &trace, &["--delay", "5s", "--tasks", "--json"]);
    let options = ["-k", "sched:sched_switch,sched:sched_waking", "--"];
    let recorded = fixture.recorder(&options).arg(&program).args(["count", "500", "3"]).output();
    let recorded = recorded.expect("it can be started");
    assert!(recorded.status.success(), "{recorded:?}");
    let (shown, _, code) = text.end();
    assert_eq!(code, Some(0));
    assert!(shown.contains(" sched_switch: ") && shown.contains(" test:count: "));
    let (figures, _, code) = stat.end();
    assert_eq!(code, Some(0));
    let whole = rtscope().args(["stat", "--tasks", "--json"]).arg(&trace).output().expect("it is there");
    assert_eq!(figures.lines().last(), String::from_utf8_lossy(&whole.stdout).lines().last());
    if let Some(expected) = babeltrace2::text(&trace, &[]) {
        assert!(shown == expected, "babeltrace2 prints something else");
    }
}
