// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record --while`: what is recorded of which task, judged by a recording of everything at the same time, and by delays that the test
//! makes itself.

use crate::command::{json_lines, rtscope};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::KilledWithTest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The limit of the recordings, and how far from it a time may be taken for one on its other side.
const LIMIT_NS: u64 = 30_000_000;
const UNSURE_NS: u64 = 2_000_000;

struct Recorder {
    child: KilledWithTest,
    notes: BufReader<std::process::ChildStderr>,
    trace: PathBuf,
}

impl Recorder {
    fn start(trace: PathBuf, options: &[&str]) -> Recorder {
        let mut command = rtscope();
        command.args(["record", "-o"]).arg(&trace).args(options).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = KilledWithTest::start(&mut command).expect("it can be started");
        let mut notes = BufReader::new(child.stderr.take().expect("piped"));
        let mut first = String::new();
        notes.read_line(&mut first).expect("it says that it records");
        assert!(first.contains("recording tracepoints"), "{first}");
        Recorder { child, notes, trace }
    }

    /// The events of these names, and how many switches the host has hidden.
    fn stop(mut self, names: &str) -> (Vec<Value>, u64) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a pid_t")), Signal::SIGINT)
            .expect("it runs");
        let mut notes = String::new();
        self.notes.read_to_string(&mut notes).expect("it is text");
        assert!(self.child.wait().expect("it ends").success(), "{notes}");
        let of_line = |line: &str| line.strip_prefix("lost: ")?.split_once(" switch")?.0.parse::<u64>().ok();
        let hidden = notes.lines().filter_map(of_line).sum();
        (json_lines(rtscope().args(["print", "--format", "json", "--event", names]).arg(&self.trace)), hidden)
    }
}

fn number(event: &Value, names: [&str; 2]) -> Option<u64> {
    names.iter().find_map(|name| event["fields"][name].as_u64())
}

fn is_switch(event: &Value) -> bool {
    event["event"].as_str().is_some_and(|name| name.ends_with("sched_switch"))
}

/// The task that a waking or a switch is about: which is woken, or comes.
fn subject(event: &Value) -> u64 {
    let names = if is_switch(event) { ["next_tid", "next_pid"] } else { ["tid", "pid"] };
    number(event, names).unwrap_or_else(|| panic!("{event}"))
}

/// Wakings and switches of tasks that have been off a CPU for longer than this, by task; of those of which it is known when they left.
fn off_for(events: &[Value], least_ns: u64) -> BTreeMap<u64, u64> {
    let mut left: BTreeMap<u64, u64> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for event in events {
        let (tid, time_ns) = (subject(event), event["time_ns"].as_u64().expect("a time"));
        if left.get(&tid).is_some_and(|left_ns| time_ns.saturating_sub(*left_ns) > least_ns) {
            *found.entry(tid).or_default() += 1;
        }
        if is_switch(event) {
            left.remove(&tid);
            left.insert(number(event, ["prev_tid", "prev_pid"]).expect("who leaves"), time_ns);
        }
    }
    found
}

/// In a thread, which says its number.
fn in_thread(work: impl FnOnce() + Send + 'static) -> (u64, std::thread::JoinHandle<()>) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(u64::from(gettid().as_raw().unsigned_abs())).expect("it waits for that");
        work();
    });
    (told.recv().expect("it tells"), thread)
}

const EVENTS: &str = "sched_waking,sched_switch";

// NEEDS: one kernel
#[test]
fn root_only_tasks_that_were_off_their_cpu_for_long_are_recorded_and_all_of_them() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stateful = Recorder::start(directory.path().join("stateful"), &["--while", "offcpu>30ms"]);
    let whole =
        Recorder::start(directory.path().join("whole"), &["-k", "sched:sched_switch,sched:sched_waking"]);
    let sleeps =
        |times: u32, time: Duration| in_thread(move || (0..times).for_each(|_| std::thread::sleep(time)));
    let late = sleeps(5, Duration::from_millis(60));
    let soon = sleeps(60, Duration::from_millis(3));
    late.1.join().expect("it ends");
    soon.1.join().expect("it ends");
    let (whole, hidden) = whole.stop(EVENTS);
    let (stateful, _) = stateful.stop(EVENTS);
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let time_ns = |event: &Value| event["time_ns"].as_u64().expect("a time");
    let both = time_ns(whole.first().expect("some"))..=time_ns(whole.last().expect("some"));
    let stateful = stateful.iter().filter(|event| both.contains(&time_ns(event)));
    stateful.for_each(|event| *found.entry(subject(event)).or_default() += 1);
    let (surely, perhaps) = (off_for(&whole, LIMIT_NS + UNSURE_NS), off_for(&whole, LIMIT_NS - UNSURE_NS));
    println!("{} of {} events: {found:?}", found.values().sum::<u64>(), whole.len());
    let own = [late.0, soon.0];
    let of = |all: &BTreeMap<u64, u64>, tid: u64| all.get(&tid).copied().unwrap_or(0);
    // Each sleep is a waking and a switch.
    assert!(
        of(&surely, late.0) + 2 * hidden >= 10 && of(&surely, late.0) >= 5,
        "{hidden} hidden: {surely:?}"
    );
    for tid in own {
        let all = of(&surely, tid)..=of(&perhaps, tid);
        assert!(all.contains(&of(&found, tid)), "{tid}: {all:?} {found:?}");
    }
    // Of others it may be known that they left before the recording of everything began: that is one waking and one switch.
    for (tid, found) in found.iter().filter(|(tid, _)| !own.contains(tid)) {
        assert!(*found <= of(&perhaps, *tid) + 2, "{tid}: {found} of {perhaps:?}");
    }
}

/// Opens a named pipe that another thread opens `late` after that, and says for how long that took.
fn open_slowly(pipe: &Path, late: Duration) -> (u64, Duration) {
    nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let (tell, told) = std::sync::mpsc::channel();
    let path = pipe.to_owned();
    let (tid, thread) = in_thread(move || {
        let begun = Instant::now();
        File::open(path).expect("it is opened");
        tell.send(begun.elapsed()).expect("it waits for that");
    });
    std::thread::sleep(late);
    let _writer = OpenOptions::new().write(true).open(pipe).expect("it is opened");
    thread.join().expect("it ends");
    (tid, told.recv().expect("it tells"))
}

// NEEDS: one kernel
#[test]
fn root_a_task_is_recorded_while_its_system_call_takes_too_long() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let recorder = Recorder::start(directory.path().join("trace"), &["--while", "syscall>30ms"]);
    let (late, late_for) = open_slowly(&directory.path().join("late"), Duration::from_millis(100));
    let (soon, soon_for) = open_slowly(&directory.path().join("soon"), Duration::from_millis(1));
    let (events, _) = recorder.stop(EVENTS);
    let of = |tid: u64, switches: bool| {
        events.iter().filter(|event| subject(event) == tid && is_switch(event) == switches).count()
    };
    println!("{} events; opened after {late_for:?} and {soon_for:?}", events.len());
    assert!(late_for.as_nanos() as u64 > LIMIT_NS);
    assert!(of(late, false) >= 1 && of(late, true) >= 1, "{events:?}");
    // Unless the machine was in the way.
    if (soon_for.as_nanos() as u64) < LIMIT_NS {
        assert_eq!((of(soon, false), of(soon, true)), (0, 0), "{events:?}");
    }
}

// NEEDS: host
#[test]
fn root_system_calls_are_recorded_where_one_of_them_takes_too_long() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let patterns = "syscalls:openat,syscalls:close,sched:sched_switch";
    let options = ["--while", "syscall>30ms", "-k", patterns];
    let recorder = Recorder::start(directory.path().join("trace"), &options);
    let (late, _) = open_slowly(&directory.path().join("late"), Duration::from_millis(100));
    let (soon, soon_for) = open_slowly(&directory.path().join("soon"), Duration::from_millis(1));
    let (events, _) = recorder.stop("syscall*");
    let of = |tid: u64| -> Vec<&str> {
        let mine = events.iter().filter(|event| event["tid"] == tid || event["context"]["tid"] == tid);
        mine.filter_map(|event| event["event"].as_str()).collect()
    };
    // Its entry was in time, and the next call is another one.
    assert!(of(late).len() == 1 && of(late)[0].contains("exit"), "{:?} {events:?}", of(late));
    assert!(of(soon).is_empty() || soon_for.as_nanos() as u64 > LIMIT_NS, "{events:?}");
}

#[test]
fn what_cannot_be_decided_by_ebpf_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (options, words) in [
        (&["--while", "block>1ms"][..], "syscall, offcpu, lock, wakeup"),
        (&["--while", "syscall"], "write 'syscall>10ms'"),
        (&["--while", "syscall>0s"], "longer than 0"),
        (&["--while", "syscall>1ms", "-u", "x:*"], "cannot be used with"),
        (&["--while", "syscall>1ms", "--flight-recorder"], "cannot be used with"),
        (&["--while", "syscall>1ms", "--comm", "x"], "--while: eBPF decides what is recorded"),
        (&["--while", "syscall>1ms", "--by", "ftrace"], "--while: eBPF decides what is recorded"),
    ] {
        let output = rtscope()
            .args(["record", "-o"])
            .arg(directory.path().join("trace"))
            .args(options)
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(words), "{options:?}: {said}");
    }
}
