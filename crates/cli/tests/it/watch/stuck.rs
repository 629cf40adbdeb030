// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has not ended: told while it hangs (`--timeout`), and a watch whose target has.

use crate::command::rtscope;
use rtscope_event::{LateResponse, StepKind, Stuck, Tid, Tracker, WaitKind};
use rtscope_testkit::held::HeldExec;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread of this process that reads from a pipe when it is told to.
struct Reader {
    tid: Tid,
    go: Sender<()>,
    writer: File,
    thread: JoinHandle<()>,
}

impl Reader {
    fn start() -> Reader {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        let (mut reader, writer) = (File::from(reader), File::from(writer));
        let ((send, tids), (go, begin)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            send.send(nix::unistd::gettid().as_raw()).expect("somebody waits for it");
            begin.recv().expect("it comes");
            reader.read_exact(&mut [0]).expect("a byte");
        });
        let tid = Tid(tids.recv().expect("a thread").unsigned_abs());
        Reader { tid, go, writer, thread }
    }
}

// NEEDS: one kernel
#[test]
fn root_what_hangs_is_told_while_it_does_and_again_when_it_ends() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut reader = Reader::start();
    let mut watch = Command::new(program("rtscope").expect("it is built"));
    watch.args(["watch", "syscall", "--json", "--calls", "read", "--threshold", "100ms"]);
    watch.args(["--and", "offcpu:100ms", "--timeout", "300ms", "--tid", &reader.tid.to_string()]);
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let began = Instant::now();
    reader.go.send(()).expect("it waits");
    let mut told: Vec<Stuck> = Vec::new();
    while told.len() < 2 {
        let line = watch.wait_for_type("stuck").expect("it is told");
        crate::json::assert_documented(&line);
        told.push(Stuck::deserialize(&line).expect("of its own type"));
    }
    let known = began.elapsed();
    // Several more looks: it is told once.
    std::thread::sleep(Duration::from_secs(1));
    reader.writer.write_all(&[1]).expect("somebody reads");
    reader.thread.join().expect("it has its byte");
    let said = watch.finish().expect("it ends with its target");
    assert_eq!(said.of_type("stuck").len(), 2, "{told:?}");
    let late = said.late().expect("of its own types");
    for tracker in [Tracker::Syscall, Tracker::Offcpu] {
        let stuck = told.iter().find(|stuck| stuck.late.tracker == tracker).expect("one of each");
        let so_far = Duration::from_nanos(stuck.late.response_ns());
        assert!(stuck.late.tid == reader.tid && stuck.late.pid.0 == std::process::id(), "{stuck:?}");
        assert!(Duration::from_millis(300) < so_far && so_far < known, "{so_far:?} of {known:?}: {stuck:?}");
        let last = stuck.late.chain.steps.last().expect("a step");
        assert_eq!((last.kind, last.wait), (StepKind::Wait, WaitKind::Read), "{stuck:?}");
        let stack = stuck.kernel_stack.as_ref().expect("root may read it");
        assert!(stack[0].contains("pipe_read+0x"), "{stack:?}");
        let is_same = |late: &&LateResponse| {
            late.tracker == tracker && late.chain.origin.time_ns == stuck.late.chain.origin.time_ns
        };
        let ended = late.iter().find(is_same).expect("it is reported when it has ended");
        assert!(ended.response_ns() > 1_000_000_000, "{ended:?}");
        assert_eq!(ended.call.as_ref().map(|call| call.result), stuck.late.call.as_ref().map(|_| Some(1)));
    }
    let pending = |summary: &&serde_json::Value| summary["pending"] != 0;
    assert!(!said.of_type("summary").iter().any(pending), "{:?}", said.lines);
}

#[test]
fn a_timeout_of_responses_is_refused() {
    let mut watch = rtscope();
    watch.args(["watch", "response", "--threshold", "1ms", "--timeout", "1s", "--duration", "1ms"]);
    let output = watch.output().expect("it can be started");
    assert!(
        output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("--and offcpu")
    );
}

/// Ends when its input does.
fn cat() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat can be started")
}

// NEEDS: one kernel
#[test]
fn root_a_watch_of_a_number_ends_with_the_process_that_had_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for option in ["--pid", "--tid"] {
        let mut target = cat();
        let mut watch = Command::new(program("rtscope").expect("it is built"));
        watch.args(["watch", "offcpu", "--json", "--threshold", "1h", option]).arg(target.id().to_string());
        let mut watch = Rtscope::start(watch).expect("it starts");
        watch.wait_for_type("start").expect("it watches");
        drop(target.stdin.take());
        // Nobody waits for it yet: a zombie has ended, too.
        let said = watch.finish().expect("it ends by itself");
        assert!(said.code() == Some(0) && said.noted(" has ended"), "{:?}", said.notes);
        target.wait().expect("it has ended");
    }
}

/// The next process gets this number, unless somebody else is faster. `None`: the kernel does not let us choose.
fn cat_with_number(number: u32) -> Option<Child> {
    for _ in 0..20 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
        let mut stranger = cat();
        if stranger.id() == number {
            return Some(stranger);
        }
        drop(stranger.stdin.take());
        stranger.wait().expect("it ends");
    }
    None
}

// NEEDS: one kernel
#[test]
fn root_a_stranger_with_the_number_of_a_process_that_has_ended_is_not_watched() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut target = cat();
    let number = target.id();
    let mut watch = Command::new(program("rtscope").expect("it is built"));
    watch.args(["watch", "offcpu", "--json", "--threshold", "1h", "--pid"]).arg(number.to_string());
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    drop(target.stdin.take());
    target.wait().expect("it ends");
    let Some(mut stranger) = cat_with_number(number) else {
        return skip::say("no process can be given a number that was another's");
    };
    let said = watch.finish().expect("it ends by itself");
    assert!(said.code() == Some(0) && said.noted(" has ended"), "{:?}", said.notes);
    drop(stranger.stdin.take());
    stranger.wait().expect("it ends");
}

// NEEDS: one kernel
#[test]
fn root_what_hangs_in_command_when_the_time_is_over_is_late() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for end in ["--fail-if-late", "--fail-if=max>900ms"] {
        let mut watch = Command::new(program("rtscope").expect("it is built"));
        watch.args(["watch", "syscall", "--json", "--calls", "clock_nanosleep", "--threshold", "100ms"]);
        // COMMAND begins after the watch: by 150 ms in an emulated machine.
        watch.args(["--and", "offcpu:100ms", "--duration", "2s", end, "--", "sleep", "60"]);
        let said = Rtscope::start(watch).and_then(Rtscope::finish).expect("it ends by itself");
        assert_eq!(said.code(), Some(4), "{:?}", said.notes);
        let late = said.late().expect("of its own types");
        // The signal with which rtscope ends COMMAND may have ended it.
        for tracker in [Tracker::Syscall, Tracker::Offcpu] {
            let of = late.iter().filter(|late| late.tracker == tracker);
            let hung: Vec<u64> = of.map(LateResponse::response_ns).collect();
            assert!(hung.len() == 1 && hung[0] > 900_000_000, "{late:?}");
        }
        for summary in said.of_type("summary") {
            assert_eq!(summary["counters"]["late"], 1, "{summary}");
        }
    }
}

/// What hangs is told with its place in the kernel, for which the watch reads its `/proc/TID/stack`: that it need not give.
// NEEDS: host
#[test]
fn root_a_process_that_does_not_answer_holds_up_no_watch() {
    if skip::without_watching() {
        return;
    }
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args(["watch", "offcpu", "--threshold", "50ms", "--timeout", "100ms", "--json"]);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let held = match HeldExec::start(4712) {
        Ok(held) if held.keeps_readers_waiting() => held,
        Ok(_) => skip!("this kernel tells of a process in execve(2) what it is"),
        Err(error) => skip!("no process is held in execve(2) here: {error}"),
    };
    let is_it = |line: &Value| Stuck::deserialize(line).is_ok_and(|stuck| stuck.late.tid.0 == held.pid());
    watch.wait_for("what hangs is told", is_it).expect("it goes on");
    let begun = Instant::now();
    watch.stop().expect("it ends");
    let took = begun.elapsed();
    assert!(held.keeps_readers_waiting(), "it was held all the time");
    assert!(took < Duration::from_secs(3), "{took:?}");
}
