// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where rtscope runs: off the CPUs of its targets, wherever they go, while COMMAND stays where the caller was.

use crate::command;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{Workload, wait_until};
use rtscope_testkit::screen::OnTerminal;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// The CPUs of each thread of a process, as the kernel writes them.
fn cpus_of(pid: u32) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let text = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    text.filter_map(|text| allowed(&text)).collect()
}

fn allowed(status: &str) -> Option<String> {
    Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_string())
}

/// Moves all threads of a process.
fn bind(pid: u32, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("a small number");
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten() {
        let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok()).expect("a number");
        sched_setaffinity(Pid::from_raw(tid), &cpus).expect("it may be moved");
    }
}

/// That this test says something here: on two CPUs, where "the other one" is one.
fn has_two_cpus() -> bool {
    let own = fs::read_to_string("/proc/self/status").ok().and_then(|status| allowed(&status));
    own.as_deref() == Some("0-1")
}

fn only(cpu: &str) -> BTreeSet<String> {
    BTreeSet::from([cpu.to_string()])
}

// NEEDS: host
#[test]
fn root_a_watch_leaves_the_cpu_of_its_target_and_follows_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    let arguments = ["--name", "e2e-place", "--period", "2ms", "--work", "10us", "--cpu", "1"];
    let victim = Workload::start("rtscope-victim", arguments).expect("starts");
    let options = ["--task", "e2e-place", "--threshold", "1s", "-u", "none:*"];
    let watch = Rtscope::watch(&options).expect("watches");
    // The listener, the writer, those that look for programs, count processes, visit them and follow programs, and the one that waits for a second Ctrl-C: each
    // has been started there. Where the machine has a container there are two more.
    let threads = || fs::read_dir(format!("/proc/{}/task", watch.pid())).map_or(0, Iterator::count);
    wait_until("its threads have begun", || [7, 9].contains(&threads()));
    assert_eq!(cpus_of(watch.pid()), only("0"));
    // All of its threads, also the one that waits; else it would be a target on two CPUs.
    bind(victim.pid(), 0);
    wait_until("rtscope has left CPU 0", || cpus_of(watch.pid()) == only("1"));
    bind(victim.pid(), 1);
    wait_until("rtscope has left CPU 1", || cpus_of(watch.pid()) == only("0"));
    let said = watch.stop().expect("stops");
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
    let summary = said.lines.iter().find(|line| line["type"] == "summary").expect("it prints one");
    assert_eq!(summary["own"]["is_apart"], true, "{summary}");
}

// NEEDS: host
#[test]
fn root_a_screen_leaves_the_cpu_of_its_target_and_follows_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    let arguments = ["--name", "e2e-screen", "--period", "2ms", "--work", "10us", "--cpu", "1"];
    let victim = Workload::start("rtscope-victim", arguments).expect("starts");
    // One thread counts and one draws; with a limit another one explains.
    for (options, number) in [(&[][..], 2), (&["--threshold", "1s"], 3)] {
        let mut command = command::rtscope();
        command.args(["top", "wakeup", "--interval", "100ms", "--task", "e2e-screen"]).args(options);
        let mut screen = OnTerminal::start(&command, 120, 24).expect("starts");
        screen.wait_for_words("e2e-screen (").expect("a row");
        let threads = fs::read_dir(format!("/proc/{}/task", screen.pid())).map_or(0, Iterator::count);
        assert_eq!((threads, cpus_of(screen.pid())), (number, only("0")));
        bind(victim.pid(), 0);
        wait_until("rtscope has left CPU 0", || cpus_of(screen.pid()) == only("1"));
        bind(victim.pid(), 1);
        wait_until("rtscope has left CPU 1", || cpus_of(screen.pid()) == only("0"));
        screen.press("q").expect("a terminal");
        assert_eq!(screen.finish().expect("it ends").code(), Some(0));
    }
}

// NEEDS: host
#[test]
fn root_a_thread_that_begins_with_the_name_is_kept_apart_from() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    let watch = Rtscope::watch(&["--task", "e2e-late-*", "--threshold", "1s"]).expect("watches");
    let arguments = ["--name", "e2e-late-", "--policy", "other", "--period", "2ms", "--work", "10us"];
    let victim = Workload::start("rtscope-victim", [&arguments[..], &["--cpu", "1"]].concat());
    let victim = victim.expect("starts");
    wait_until("rtscope has left the target's CPU", || cpus_of(watch.pid()) == only("0"));
    drop(victim);
    wait_until("rtscope is where it was started", || cpus_of(watch.pid()) == only("0-1"));
}

// NEEDS: host
#[test]
fn root_a_watch_that_shares_its_targets_cpu_says_so() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    let arguments = ["--name", "e2e-shared", "--period", "1ms", "--work", "10us", "--cpu", "1"];
    let _victim = Workload::start("rtscope-victim", arguments).expect("starts");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("plain");
    let options = ["--task", "e2e-shared", "--threshold", "1ns", "--rate", "20/s", "--post", "1ms"];
    let mut watch = Rtscope::watch(&[&options[..], &["--snapshot-dir", path]].concat()).expect("watches");
    assert_eq!(cpus_of(watch.pid()), only("0"));
    // As somebody would who knows better: rtscope does not undo it while its targets stay where they are.
    bind(watch.pid(), 1);
    for _ in 0..3 {
        watch.wait_for_type("snapshot").expect("it goes on saving");
    }
    assert_eq!(cpus_of(watch.pid()), only("1"));
    let said = watch.stop().expect("stops");
    let report = said.report().expect("it prints one");
    let (own, late) = (report.own, report.counters.late);
    // Each of its wakes waits at least for the switch, and rtscope works all the time there.
    assert!(own.delayed > 0 && own.longest_ns > 0 && !own.is_apart, "{own:?}");
    assert!(own.culprit <= own.delayed && own.delayed <= late && own.unknown <= late, "{own:?} of {late}");
}

/// Starts rtscope on CPU 1 with a COMMAND that prints what it has, and waits until rtscope is off that CPU.
fn command_prints(arguments: &[&str]) -> String {
    let print = "grep Cpus_allowed_list: /proc/self/status; umask; ulimit -n; nice; \
        grep -E 'SigBlk|SigIgn' /proc/self/status; echo end; exec sleep 60";
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(command::path()).args(arguments).args(["--", "sh", "-c", print]);
    command.stderr(Stdio::piped());
    let mut rtscope = Rtscope::start(command).expect("starts");
    rtscope.wait_for("the end of its output", |line| line == "end").expect("COMMAND prints it");
    assert_eq!(cpus_of(rtscope.pid()), only("0"), "rtscope leaves its caller's CPU to COMMAND");
    let said = rtscope.stop().expect("stops");
    // A number is JSON, too.
    let lines = said.lines.iter().map(|line| line.as_str().map_or_else(|| line.to_string(), str::to_string));
    lines.take_while(|line| line != "end").collect::<Vec<_>>().join("\n")
}

/// The same without rtscope.
fn without_rtscope() -> String {
    let print = "grep Cpus_allowed_list: /proc/self/status; umask; ulimit -n; nice; \
        grep -E 'SigBlk|SigIgn' /proc/self/status";
    let output = Command::new("taskset").args(["-c", "1", "sh", "-c", print]).output().expect("runs");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

// NEEDS: host
#[test]
fn root_command_has_the_callers_cpus_and_rtscope_has_others() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    let expected = without_rtscope();
    assert!(expected.starts_with("Cpus_allowed_list:\t1\n"), "{expected}");
    assert_eq!(command_prints(&["watch", "response", "--threshold", "1s"]), expected);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = directory.path().join("trace");
    let target = target.to_str().expect("plain");
    assert_eq!(command_prints(&["record", "-k", "sched:sched_switch", "-o", target]), expected);
}

#[test]
fn without_privilege_a_recording_leaves_its_callers_cpu_to_command() {
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = directory.path().join("trace");
    let target = target.to_str().expect("plain");
    assert_eq!(command_prints(&["record", "-u", "none:*", "-o", target]), without_rtscope());
}

/// Pages of order 0 that threads of this name freed, as perf recorded it.
fn pages_freed_by(data: &str, is_it: impl Fn(&str) -> bool) -> usize {
    let output = Command::new("perf").args(["script", "-F", "comm", "-i", data]).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| is_it(line.trim())).count()
}

/// Memory of the kernel that is mapped page by page, as maps are.
fn vmalloc_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("readable");
    let line = text.lines().find_map(|line| line.strip_prefix("VmallocUsed:")).expect("there");
    line.trim_end_matches("kB").trim().parse().expect("a number")
}

// NEEDS: host
#[test]
fn root_the_maps_of_a_watch_are_freed_by_rtscope_and_not_by_a_worker() {
    /// Two banks of 16 MiB for each of two CPUs.
    const BANK_PAGES: usize = 4 * (16 << 20) / 4096;
    let Some(_cpus) = Cpus::for_watching() else { return };
    if !has_two_cpus() {
        skip!("it takes two CPUs");
    }
    if skip::without_tool("perf") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("perf.data");
    let data = data.to_str().expect("plain");
    // perf records until the banks are gone, whoever frees them.
    let gone = vmalloc_kib() + (16 << 10);
    let rtscope = env!("CARGO_BIN_EXE_rtscope");
    let watch = "watch wakeup --task nobody --threshold 1s --buffer 16M --duration 200ms";
    let used = "$(awk '/VmallocUsed/ {print $2}' /proc/meminfo)";
    let script = format!(
        "{rtscope} {watch} || exit 1; for i in $(seq 1000); do [ {used} -lt {gone} ] && exit 0; sleep 0.01; done; exit 2"
    );
    let perf = ["record", "-q", "-a", "-m", "8M", "-e", "kmem:mm_page_free", "-o", data, "--", "sh", "-c"];
    let output = Command::new("perf").args(perf).arg(script).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let own = pages_freed_by(data, |comm| comm.starts_with("rtscope"));
    let workers = pages_freed_by(data, |comm| comm.starts_with("kworker"));
    assert!(own >= BANK_PAGES, "rtscope freed {own} pages, the banks have {BANK_PAGES}");
    assert!(workers < BANK_PAGES / 8, "workers freed {workers} pages");
}

// NEEDS: host
#[test]
fn root_what_converts_a_recording_has_the_lowest_policy_before_command_begins() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    // COMMAND's parent records. The 41st field of a thread's stat is its policy, 39 words behind its name; 5 is SCHED_IDLE.
    let script = "for task in /proc/$PPID/task/*; do read -r comm < $task/comm; stat=$(cat $task/stat); set -- ${stat##*)}; \
                  shift 36; echo \"$comm policy $3\"; done";
    let output = command::rtscope()
        .args(["record", "-k", "sched:*,syscalls", "-o"])
        .arg(directory.path().join("trace"))
        .args(["--", "bash", "-c", script])
        .output()
        .expect("it can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let policy =
        |thread: &str| said.lines().find_map(|line| line.strip_prefix(thread)?.strip_prefix(" policy "));
    assert_eq!((policy("convert"), policy("drain/0")), (Some("5"), Some("0")), "{said}");
}
