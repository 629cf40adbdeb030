// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a watch ends: by signals, by its COMMAND, by nobody listening any more. Nothing stays in the kernel.

use nix::sys::signal::Signal;
use rtscope_testkit::late::VictimNotes;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{Workload, patience, program, wait_until};
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, WatchOutput, watch_command};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const LATE: [&str; 4] = ["--task", "e2e-ends", "--threshold", "50us"];
/// A victim that is late at every iteration.
const VICTIM: [&str; 6] = ["--name", "e2e-ends", "--period", "20ms", "--deadline", "50us"];

fn victim() -> Workload {
    Workload::start("rtscope-victim", VICTIM).expect("starts")
}

/// Numbers of the kernel's objects of a kind that a process holds, by what it has open.
fn held(pid: u32, key: &str) -> BTreeSet<u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    open.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok())
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()))
        .collect()
}

/// Whether any of these programs, maps or links is still in the kernel.
fn are_there(kind: &str, numbers: &BTreeSet<u64>) -> bool {
    let output = Command::new("bpftool").args(["-j", kind, "list"]).output().expect("it was there before");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let listed = listed.as_array().expect("a list");
    listed.iter().filter_map(|object| object["id"].as_u64()).any(|id| numbers.contains(&id))
}

/// Ends a watch in the middle of its work, and looks into the kernel before and after.
fn end_by(signal: Signal) -> Option<WatchOutput> {
    let _cpus = Cpus::for_watching()?;
    if skip::without_tool("bpftool") {
        return None;
    }
    let mut watch = Rtscope::watch(&LATE).expect("watches");
    let victim = victim();
    watch.wait_for_type("late").expect("a late response");
    let kinds = [("prog", "prog_id:"), ("map", "map_id:"), ("link", "link_id:")];
    let held = kinds.map(|(kind, key)| (kind, held(watch.pid(), key)));
    for (kind, numbers) in &held {
        assert!(!numbers.is_empty() && are_there(kind, numbers), "{kind}");
    }
    watch.signal(signal).expect("it runs");
    let said = watch.finish().expect("it ends");
    drop(victim);
    // The kernel frees them a moment later.
    let end = Instant::now() + patience();
    while held.iter().any(|(kind, numbers)| are_there(kind, numbers)) {
        assert!(Instant::now() < end, "still in the kernel: {held:?}");
    }
    Some(said)
}

// NEEDS: host
#[test]
fn root_interrupted_it_prints_its_summary_and_leaves_the_kernel() {
    let Some(said) = end_by(Signal::SIGINT) else { return };
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
    assert!(said.report().expect("it prints one").counters.late > 0);
}

// NEEDS: host
#[test]
fn root_terminated_it_prints_its_summary_and_leaves_the_kernel() {
    let Some(said) = end_by(Signal::SIGTERM) else { return };
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
    assert!(said.report().expect("it prints one").counters.late > 0);
}

// NEEDS: host
#[test]
fn root_killed_it_leaves_the_kernel() {
    let Some(said) = end_by(Signal::SIGKILL) else { return };
    assert_eq!(said.code(), None);
}

// NEEDS: host
#[test]
fn root_a_second_signal_ends_it_at_once() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let post = [&LATE[..], &["--post", "10min"]].concat();
    let mut watch = Rtscope::watch(&post).expect("watches");
    let victim = victim();
    watch.wait_for_type("late").expect("a late response");
    let begun = Instant::now();
    watch.signal(Signal::SIGINT).expect("it runs");
    watch.wait_for_note("Ctrl-C again ends it").expect("it says what it waits for");
    wait_until("a Ctrl-C is another one", || begun.elapsed() > Duration::from_millis(25));
    watch.signal(Signal::SIGINT).expect("it runs");
    assert_eq!(watch.finish().expect("it ends").code(), Some(130));
    drop(victim);
}

fn with_command(options: &[&str], words: &[&str]) -> WatchOutput {
    let all = [&["--threshold", "1s"], options, &["--"], words].concat();
    Rtscope::start(watch_command(&all).expect("built")).and_then(Rtscope::finish).expect("ends with COMMAND")
}

// NEEDS: host
#[test]
fn root_a_command_that_cannot_be_started_is_said() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let said = with_command(&[], &["/no/such/program"]);
    assert_eq!(said.code(), Some(127));
    assert!(said.noted("cannot start /no/such/program: No such file or directory"), "{:?}", said.notes);
}

/// Its process waits for rtscope to be ready, and is woken by it. That is no response of COMMAND.
// NEEDS: host
#[test]
fn root_what_is_before_exec_is_not_the_command() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let options = ["--begin", "any", "--end", "running", "--threshold", "1ns"];
    let all = [&options[..], &["--", "sh", "-c", "sleep 0.01; :"]].concat();
    let watch = Rtscope::start(watch_command(&all).expect("built"));
    let said = watch.and_then(Rtscope::finish).expect("ends with COMMAND");
    let names: Vec<String> = said.late().expect("JSON").iter().map(|late| late.comm.to_string()).collect();
    assert!(!names.is_empty(), "the shell waits for its child: {:?}", said.notes);
    assert!(names.iter().all(|name| name == "sh"), "{names:?}");
}

// NEEDS: host
#[test]
fn root_how_a_command_ended_is_passed_on_and_in_the_summary() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let said = with_command(&[], &["sh", "-c", "exit 3"]);
    let end = |said: &WatchOutput| {
        let summary = said.lines.iter().find(|line| line["type"] == "summary").expect("it prints one");
        summary["command"].clone()
    };
    assert!(said.code() == Some(3) && said.noted("COMMAND ended with status 3"), "{said:?}");
    assert_eq!(end(&said), serde_json::json!({ "status": 3, "signal": null }));
    let said = with_command(&[], &["sh", "-c", "kill -SEGV $$"]);
    assert!(said.code() == Some(139) && said.noted("COMMAND was ended by SIGSEGV"), "{said:?}");
    assert_eq!(end(&said), serde_json::json!({ "status": 139, "signal": "SIGSEGV" }));
}

// NEEDS: host
#[test]
fn root_how_a_command_ended_is_passed_on_and_in_what_was_counted() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for words in [&["hist", "wakeup"][..], &["io-profile"], &["fds"]] {
        for (script, status, signal) in [("exit 3", 3, None), ("kill -USR1 $$", 138, Some("SIGUSR1"))] {
            let mut command = crate::command::rtscope();
            let output = command.args(words).args(["--json", "--", "sh", "-c", script]).output();
            let output = output.expect("it starts");
            assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            let last = lines.lines().last().expect("a report");
            let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
            crate::json::assert_documented(&last);
            assert_eq!(last["command"], serde_json::json!({ "status": status, "signal": signal }));
        }
    }
}

// NEEDS: host
#[test]
fn root_a_command_finds_the_signals_that_a_shell_would_give_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let ask = ["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"];
    // Rust gives a child what it found itself, and so does a shell.
    let direct = Command::new(ask[0]).args(&ask[1..]).output().expect("grep is everywhere");
    let direct = String::from_utf8(direct.stdout).expect("plain");
    let said = with_command(&[], &ask);
    // With --json what COMMAND prints goes to standard error.
    let lines: Vec<&str> =
        said.notes.iter().map(String::as_str).filter(|line| line.starts_with("Sig")).collect();
    assert_eq!(lines, direct.lines().collect::<Vec<_>>());
}

// NEEDS: host
#[test]
fn root_a_command_is_ended_when_the_time_is_over() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let said = with_command(&["--duration", "200ms"], &["sleep", "1000"]);
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
}

// NEEDS: host
#[test]
fn root_with_its_output_closed_it_goes_on_saving() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("plain");
    let often = ["--rate", "20/s", "--post", "1ms", "--snapshot-dir", path];
    let mut watch = Rtscope::watch(&[&LATE[..], &often].concat()).expect("watches");
    let victim = victim();
    watch.wait_for_type("late").expect("a late response");
    watch.close_output();
    let saved = || fs::read_dir(directory.path()).expect("it is there").count();
    let (before, end) = (saved(), Instant::now() + patience());
    while saved() < before + 3 {
        assert!(Instant::now() < end, "it stopped saving");
    }
    drop(victim);
    let said = watch.stop().expect("stops");
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
}

// NEEDS: real time (an emulated CPU is late by itself, so a program and rtscope count other iterations as late)
#[test]
fn root_two_watches_at_once_count_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watches = [(); 2].map(|()| Rtscope::watch(&LATE).expect("watches"));
    let victim = Workload::start("rtscope-victim", [&VICTIM[..], &["--duration", "1s"]].concat());
    let victim = victim.and_then(Workload::finish).expect("ends by itself");
    let summary = victim.summary().expect("it prints one");
    let loops = summary["loops"].as_u64().expect("a number");
    let notes = VictimNotes::of(&victim).expect("complete");
    let counters = watches.map(|watch| {
        let said = watch.stop().expect("stops");
        let counters = said.report().expect("it prints one").counters;
        // An iteration whose switch the host hid is seen by nobody; it is not among those seen, either.
        assert!(counters.seen <= loops && loops - counters.seen <= loops / 10, "{summary}: {counters:?}");
        let told = said.late().expect("of its own types");
        assert_eq!(told.len() as u64, counters.late, "each is reported");
        let told = told.iter().map(|late| (late.tid.0.into(), late.chain.origin.time_ns.0));
        let comparison = notes.compare(told).expect("each once");
        assert!(comparison.missed.len() as u64 <= loops - counters.seen, "{counters:?}: {comparison:?}");
        // Its work alone takes twice the deadline.
        assert!(comparison.near.is_empty() && comparison.after.is_empty(), "{comparison:?}");
        counters
    });
    let [first, second] = counters;
    assert!(first.late.abs_diff(second.late) <= first.seen.abs_diff(second.seen), "{first:?} {second:?}");
}

// NEEDS: host
#[test]
fn root_as_text_the_summary_says_that_nothing_was_lost() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut command = crate::command::rtscope();
    command.args(["watch", "response"]).args(LATE).arg("--").arg(program("rtscope-victim").expect("built"));
    command.args(VICTIM).args(["--duration", "300ms"]);
    let said = Rtscope::start(command).and_then(Rtscope::finish).expect("ends with COMMAND");
    let lines = || said.lines.iter().filter_map(|line| line.as_str());
    let line = |words: &str| lines().any(|line| line.contains(words));
    // Switches that the host hides are found, and said to be losses, which they are; rtscope itself lost nothing.
    let losses: Vec<&str> = lines().filter(|line| line.trim_start().starts_with("lost: ")).collect();
    let is_nothing =
        |line: &&str| line.contains("nothing") || line.contains("that the kernel did not report");
    assert!(!losses.is_empty() && losses.iter().all(is_nothing), "{losses:?}");
    assert!(line(" LATE e2e-ends/") && line("culprit: "), "{:?}", said.lines);
}
