// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker `syscall`, judged by a program that reads the clock itself before and after each of its calls and knows why each is long.

use super::truth::Truth;
use crate::command::CProgram;
use rtscope_event::{End, LateResponse, Step, StepKind, SystemCall, Tracker, WaitKind};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::watch::Rtscope;
use std::collections::BTreeSet;
use std::process::Command;

const LIMIT_NS: u64 = 1_000_000;
/// From the clock's reading to the call, and back: an interrupt may come there.
const SLACK_NS: u64 = 300_000;
/// Two readings of one clock.
const STAMPS_NS: u64 = 5_000;
const ROUNDS: &str = "400";

/// A call as its program saw it.
#[derive(Debug)]
struct Call {
    before_ns: u64,
    after_ns: u64,
    name: String,
    argument: i64,
    result: i64,
}

/// The thread that the others wait for, and the calls.
fn account(text: &str) -> (u32, Vec<Call>) {
    let mut lines = text.lines();
    let helper = lines.next().and_then(|line| line.parse().ok()).expect("a thread's number");
    let call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [before, after, name, argument, result] = words[..] else { panic!("{line}") };
        Call {
            before_ns: before.parse().expect("a time"),
            after_ns: after.parse().expect("a time"),
            name: name.to_owned(),
            argument: argument.parse().expect("a number"),
            result: result.parse().expect("a number"),
        }
    };
    (helper, lines.map(call).collect())
}

fn is_of(late: &LateResponse, call: &Call) -> bool {
    let name = late.call.as_deref().and_then(|call| call.name.as_deref());
    late.chain.origin.time_ns.0 + STAMPS_NS >= call.before_ns
        && late.end_ns.0 <= call.after_ns + STAMPS_NS
        && name == Some(&call.name)
}

/// What it was given and returned, how long it took, and why: as the program knows it.
fn check(late: &LateResponse, call: &Call, helper: u32) {
    let found: &SystemCall = late.call.as_deref().expect("of this tracker");
    assert_eq!(found.result, Some(call.result), "{late:?}");
    let argument = &found.args[0];
    let given = if call.name == "getrandom" { argument.value as i64 } else { (argument.value as i32).into() };
    assert_eq!(given, call.argument, "{late:?}");
    assert!(argument.name.is_some(), "tracefs says what it is called: {late:?}");
    assert!(late.response_ns() + SLACK_NS >= call.after_ns - call.before_ns, "{call:?} {late:?}");
    let waits: Vec<&Step> = late.chain.steps.iter().filter(|step| step.kind == StepKind::Wait).collect();
    let kind = match call.name.as_str() {
        "read" => WaitKind::Read,
        "write" => WaitKind::Write,
        "flock" => WaitKind::FileLock,
        _ => {
            // It runs, or others have its CPU: it waits for nothing.
            let of_running = [StepKind::Run, StepKind::Preempted, StepKind::LockWait, StepKind::More];
            let runs = late.chain.steps.iter().all(|step| of_running.contains(&step.kind));
            assert!(runs && late.chain.steps[0].kind == StepKind::Run, "{late:?}");
            return;
        }
    };
    let longest = waits.iter().max_by_key(|step| step.duration_ns).expect("it waited");
    assert_eq!((longest.wait, longest.id), (kind, helper), "{late:?}");
}

// NEEDS: real time (an emulated machine takes longer than the slack for anything)
#[test]
fn root_long_system_calls_are_those_that_the_program_sees_itself() {
    let Some(program) = CProgram::build("calls") else { return };
    let Some(_cpus) = Cpus::for_watching() else { return };

    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.args(["watch", "syscall", "--json", "--task", "caller", "--threshold", "1ms", "--duration", "60s"]);
    watch.args(["--calls", "read,write,flock,getrandom,open*,prctl"]);
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let cpu = (std::thread::available_parallelism().expect("a number").get() - 1).to_string();
    let output = Command::new(program.path()).args([cpu.as_str(), ROUNDS]).output().expect("it is built");
    assert!(output.status.success(), "{output:?}");
    let (helper, calls) = account(&String::from_utf8_lossy(&output.stdout));
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own types");
    let hidden = said.hidden_switches();

    let is_long = |call: &&Call| call.after_ns - call.before_ns > LIMIT_NS + SLACK_NS;
    let long: Vec<&Call> = calls.iter().filter(is_long).collect();
    let names: BTreeSet<&str> = long.iter().map(|call| call.name.as_str()).collect();
    println!("{} long calls, {} found, {hidden} switches hidden", long.len(), late.len());
    assert!(["read", "write", "flock"].iter().all(|name| names.contains(name)), "{names:?}");
    // All found, but where the host hid a switch; none invented.
    let not_found = long.iter().filter(|call| !late.iter().any(|late| is_of(late, call))).count();
    let invented = late.iter().filter(|late| !calls.iter().any(|call| is_of(late, call))).count();
    let truth = Truth { injected: long.len(), found: long.len() - not_found, invented, hidden };
    truth.tell(Tracker::Syscall, "pipes, a file's lock, the kernel's work");
    assert!(not_found as u64 <= hidden, "{not_found} of {} not found, {hidden} hidden", long.len());
    let mut wrong = 0;
    for late in &late {
        assert_eq!(late.tracker, Tracker::Syscall, "{late:?}");
        assert!(late.response_ns() > LIMIT_NS, "{late:?}");
        let call = calls.iter().find(|call| is_of(late, call)).unwrap_or_else(|| panic!("{late:?}"));
        // Of one in which a switch was hidden, it is not known why it was long.
        if late.chain.steps.iter().any(|step| step.kind == StepKind::HiddenSwitch) {
            wrong += 1;
            continue;
        }
        check(late, call, helper);
    }
    assert!(wrong <= hidden, "{wrong} with a hidden switch, {hidden} hidden");
}

/// Calls whose work is to wait are not reported, unless they are asked for.
// NEEDS: one kernel
#[test]
fn root_calls_that_wait_on_purpose_are_reported_when_they_are_asked_for() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for (calls, is_reported) in [(&[][..], false), (&["--calls", "clock_nanosleep"], true)] {
        let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
        watch.args(["watch", "syscall", "--json", "--threshold", "50ms"]).args(calls);
        watch.args(["--", "sleep", "0.2"]);
        let said = Rtscope::start(watch).and_then(Rtscope::finish).expect("it ends with sleep");
        let late = said.late().expect("of its own types");
        let sleeps = late.iter().filter_map(|late| late.call.as_deref()).filter(|call| {
            call.name.as_deref() == Some("clock_nanosleep") && call.result == Some(0) && call.args.len() == 4
        });
        assert_eq!(sleeps.count(), usize::from(is_reported), "{calls:?}: {late:?}");
    }
}

#[test]
fn a_call_that_does_not_exist_is_refused() {
    let mut watch = crate::command::rtscope();
    let output = watch.args(["watch", "syscall", "--threshold", "1ms", "--calls", "fsynk"]).output();
    let output = output.expect("it is built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("fsync"), "{said}");
}

/// At its end a call that replaces the program has other registers.
// NEEDS: one kernel
#[test]
fn root_an_exec_is_reported_with_what_it_was_given() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.args(["watch", "syscall", "--json", "--threshold", "1us", "--calls", "execve"]);
    watch.args(["--", "sh", "-c", "exec sleep 0.01"]);
    let said = Rtscope::start(watch).and_then(Rtscope::finish).expect("it ends with sleep");
    let late = said.late().expect("of its own types");
    let calls: Vec<&SystemCall> = late.iter().filter_map(|late| late.call.as_deref()).collect();
    // The shell looks for it in several places.
    assert!(calls.iter().any(|exec| exec.result == Some(0)), "{late:?}");
    let is_known =
        |exec: &&SystemCall| exec.args.len() == 3 && exec.args.iter().all(|given| given.value != 0);
    assert!(calls.iter().all(is_known), "{late:?}");
}

/// A thread of this process reads what nobody writes, until the watch is over.
// NEEDS: one kernel
#[test]
fn root_a_call_that_does_not_return_is_late() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (reader, writer) = nix::unistd::pipe().expect("a pipe");
    let (send, tids) = std::sync::mpsc::channel();
    let (go, begin) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(nix::unistd::gettid().as_raw()).expect("somebody waits for it");
        begin.recv().expect("it comes");
        let _ = nix::unistd::read(reader, &mut [0]);
    });
    let tid = tids.recv().expect("a thread");
    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.args([
        "watch",
        "syscall",
        "--json",
        "--calls",
        "read",
        "--threshold",
        "100ms",
        "--and",
        "offcpu:100ms",
    ]);
    watch.args(["--duration", "1500ms", "--fail-if-late", "--tid", &tid.to_string()]);
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    go.send(()).expect("it waits");
    let said = watch.finish().expect("it ends by itself");
    assert_eq!(said.status.and_then(|status| status.code()), Some(4), "late");
    drop(writer);
    thread.join().expect("it reads nothing");
    let late = said.late().expect("of its own types");
    let pending: Vec<&LateResponse> = late.iter().filter(|late| late.end == End::Pending).collect();
    let of = |tracker| pending.iter().find(|late| late.tracker == tracker).expect("one of each");
    let (call, off) = (of(Tracker::Syscall), of(Tracker::Offcpu));
    let given = call.call.as_deref().expect("a call");
    assert_eq!((given.name.as_deref(), given.result, pending.len()), (Some("read"), None, 2), "{late:?}");
    for late in [call, off] {
        let last = late.chain.steps.last().expect("a step");
        assert_eq!((last.kind, last.wait), (StepKind::Wait, WaitKind::Read), "{late:?}");
        assert!(late.response_ns() > 500_000_000 && late.tid.0 == tid.unsigned_abs(), "{late:?}");
    }
    for summary in said.of_type("summary") {
        assert_eq!((&summary["pending"], &summary["counters"]["late"]), (&1.into(), &1.into()), "{summary}");
    }
}
