// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording of tracepoints whose trace is made, and followed, while it goes on.

use crate::command::rtscope;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::KilledWithTest;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

// NEEDS: host
#[test]
fn root_tracepoints_are_followed_while_they_are_recorded() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let mut follower = rtscope();
    follower
        .args(["print", "--format", "babeltrace", "--follow", "--delay", "2s"])
        .arg(&trace)
        .stdout(Stdio::piped());
    let mut follower = KilledWithTest::start(&mut follower).expect("it can be started");
    let mut shown = BufReader::new(follower.stdout.take().expect("piped"));
    // Names of threads, which these events do not have.
    let people = [&[][..], &["--task", "cat", "--event", "syscalls:sys_enter_*"]];
    let named = people.map(|options| {
        let mut command = rtscope();
        command.args(["print", "--follow", "--delay", "2s"]).args(options).arg(&trace).stdout(Stdio::piped());
        KilledWithTest::start(&mut command).expect("it can be started")
    });
    // All events come too late for this one.
    let mut hasty = rtscope();
    hasty.args(["stat", "--follow", "--delay", "0s", "--tasks", "--json"]).arg(&trace);
    let hasty = hasty.stdout(Stdio::piped()).stderr(Stdio::piped());
    let hasty = KilledWithTest::start(hasty).expect("it can be started");
    let mut recorder = rtscope();
    recorder.args(["record", "-k", "syscalls:kill,syscalls:openat,sched:sched_switch", "-o"]).arg(&trace);
    let recorder = recorder.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = KilledWithTest::start(recorder).expect("it can be started");
    let mut first = String::new();
    let mut notes = BufReader::new(recorder.stderr.take().expect("piped"));
    notes.read_line(&mut first).expect("it says that it records");
    assert!(first.contains("recording tracepoints"), "{first}");
    let load = Command::new("sh").args(["-c", "kill -0 $$; cat /dev/null"]).status().expect("it is there");
    assert!(load.success());
    let mut text = String::new();
    while !text.contains(" syscall_entry_kill: ") || !text.contains("filename = \"/dev/null\"") {
        assert!(shown.read_line(&mut text).expect("it is text") > 0, "the follower has ended: {text}");
    }
    assert!(recorder.try_wait().expect("it is ours").is_none() && !trace.join("kernel").exists());
    // Nobody is told to remove what is being recorded.
    let second =
        rtscope().args(["record", "-k", "sched:sched_switch", "-o"]).arg(&trace).output().expect("starts");
    let refusal = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code() == Some(2) && refusal.contains("is going on"), "{refusal}");
    kill(Pid::from_raw(recorder.id() as i32), Signal::SIGINT).expect("it runs");
    assert!(recorder.wait().expect("it ends").success());
    shown.read_to_string(&mut text).expect("it is text");
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));
    assert!(!text.contains(" late)"), "an event came later than two seconds after it happened");
    for (options, named) in people.iter().zip(named) {
        let followed = named.wait_with_output().expect("it ends");
        assert!(followed.status.success());
        let whole = rtscope().arg("print").args(*options).arg(&trace).output().expect("it is there");
        let [followed, whole] =
            [followed, whole].map(|output| String::from_utf8(output.stdout).expect("text"));
        let opens = |line: &&str| line.contains("cat/") && line.contains("filename = \"/dev/null\"");
        assert!(followed.lines().any(|line| opens(&line)), "{options:?}: {followed}");
        assert!(followed == whole, "{options:?}: print says something else: {followed}\n{whole}");
    }
    let hasty = hasty.wait_with_output().expect("it ends");
    let notes = String::from_utf8_lossy(&hasty.stderr);
    assert!(hasty.status.success() && notes.contains("the last report has all"), "{notes}");
    let whole = rtscope().args(["stat", "--tasks", "--json"]).arg(&trace).output().expect("it is there");
    let last = |out: &[u8]| String::from_utf8_lossy(out).lines().last().map(str::to_owned);
    assert_eq!(last(&hasty.stdout), last(&whole.stdout));
    let Some(expected) = babeltrace2::text(&trace, &[]) else { return };
    assert!(text == expected, "babeltrace2 prints something else");
}

/// What converts takes only time that no task needs, and says when that is not enough, unless it is to take any.
// NEEDS: host
#[test]
fn root_a_trace_is_made_in_idle_time_or_in_any_as_it_is_asked_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cpus = std::thread::available_parallelism().expect("a number").get();
    // No CPU is idle, and there is more to convert than a quick one does in the little that such a thread gets of it.
    let hogs = (0..2 * cpus).map(|_| {
        let mut hog = Command::new("sh");
        KilledWithTest::start(hog.args(["-c", "ulimit -t 60; while :; do kill -0 $$; done"]))
            .expect("it can be started")
    });
    let hogs: Vec<KilledWithTest> = hogs.collect();
    for (name, options, policy) in
        [("idle", &[][..], libc::SCHED_IDLE), ("now", &["--convert-now"], libc::SCHED_OTHER)]
    {
        let mut recorder = rtscope();
        recorder
            .args(["record", "-k", "sched:*,irq:*,timer:*,syscalls:sys_enter_kill", "-o"])
            .arg(directory.path().join(name))
            // Where it never says how far it is, its end is the end of what it says.
            .args(["--duration", "60s"])
            .args(options);
        let recorder = recorder.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut recorder = KilledWithTest::start(recorder).expect("it can be started");
        let mut notes = BufReader::new(recorder.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let mut until = |text: &str| notes.by_ref().find(|line| line.contains(text));
        assert!(until("recording tracepoints").is_some());
        if policy == libc::SCHED_IDLE {
            let note = until(" s behind: ").expect("it says how far it is");
            assert!(note.contains("--convert-now") && note.contains("nothing is lost by that"), "{note}");
        }
        assert_eq!(policy_of_converter(recorder.id()), policy);
        kill(Pid::from_raw(recorder.id() as i32), Signal::SIGINT).expect("it runs");
        assert!(recorder.wait().expect("it ends").success());
    }
    drop(hogs);
}

/// The scheduling policy of the thread that makes the trace.
fn policy_of_converter(pid: u32) -> i32 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let is_converter = |thread: &std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm == "convert\n")
    };
    let mut converters = threads.filter(is_converter);
    let converter = converters.next().expect("it has such a thread");
    let tid = converter.file_name().to_string_lossy().parse().expect("a number");
    // SAFETY: a system call with a number.
    unsafe { libc::sched_getscheduler(tid) }
}
