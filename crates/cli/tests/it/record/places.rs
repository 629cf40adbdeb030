// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record --at`: places in programs, against the program's own count, and bpftrace's.

use super::kernel::record;
use crate::command::{lost, rtscope};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{KilledWithTest, wait_until};
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Calls `hit` as often as its argument says: a thread, its main thread, and a child that executes the program anew, each a third; and says
/// which threads these were. With "seccomp" the last third is made by a thread that may do nothing but read, write and exit.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
volatile long calls;
__attribute__((noinline)) long hit(long a) { calls++; return a * 3 + calls; }
__attribute__((noinline)) long miss(long a) { return a + 1; }
static void some(long times) { for (long i = 0; i < times; i++) hit(i); }
static void *thread(void *times) {
    some((long)times);
    printf("%ld %ld\n", syscall(SYS_gettid), (long)times);
    return NULL;
}
int main(int count, char **words) {
    long times = atol(words[1]) / 3;
    const char *how = count > 2 ? words[2] : "";
    pthread_t other;
    if (!strcmp(how, "child")) {
        thread((void *)times);
        return 0;
    }
    if (pthread_create(&other, NULL, thread, (void *)times)) return 1;
    pthread_join(other, NULL);
    thread((void *)times);
    fflush(stdout);
    pid_t child = fork();
    if (!child && !strcmp(how, "seccomp")) {
        char line[64];
        int length = sprintf(line, "%d %ld\n", getpid(), times);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        some(times);
        if (write(1, line, length) < 0) return 1;
        syscall(SYS_exit, 0);
    }
    if (!child) return execl("/proc/self/exe", words[0], words[1], "child", NULL);
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
"#;

/// The program, below a directory with a name.
fn build(directory: &Path) -> Option<PathBuf> {
    if skip::without_tool("cc") {
        return None;
    }
    let (source, program) = (directory.join("calls.c"), directory.join("calls"));
    fs::write(&source, PROGRAM).expect("a temporary directory");
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
    assert!(built.expect("it starts").success());
    Some(program)
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// The events that rtscope prints of a trace.
fn printed(trace: &Path) -> Vec<Value> {
    let output = rtscope().args(["print", "--format", "json"]).arg(trace).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn number_of(account: &Value, event: &str) -> u64 {
    account["by_event"][event].as_u64().unwrap_or(0)
}

/// All uprobes of the machine that were made through its trace file system.
fn uprobes() -> String {
    fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap_or_default()
}

fn of_process(pid: u32) -> Vec<String> {
    let group = format!("p:rtscope_{pid}_");
    uprobes().lines().filter(|line| line.starts_with(&group)).map(str::to_owned).collect()
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = rtscope()
        .args(["record", "-o"])
        .arg(directory.path().join("trace"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

// NEEDS: host
#[test]
fn root_each_pass_of_a_place_is_an_event_of_its_thread() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = build(directory.path()) else { return };
    for how in ["exec", "seccomp"] {
        let _ = fs::remove_dir_all(directory.path().join("trace"));
        let log = directory.path().join("log");
        let script = format!("'{}' 3000 {how} > '{}'", text(&program), text(&log));
        let place = format!("{}:hit", text(&program));
        let (trace, account) =
            record(directory.path(), &["--at", &place, "-k", "sched:sched_switch"], &["sh", "-c", &script]);
        assert_eq!((number_of(&account, "probe:hit"), lost(&account)), (3000, 0), "{how}: {account}");
        assert!(number_of(&account, "sched_switch") > 0, "beside other tracepoints: {account}");
        let events = printed(&trace);
        let own = fs::read_to_string(&log).expect("it wrote");
        assert_eq!(own.lines().count(), 3, "{own}");
        for line in own.lines() {
            let (tid, times) = line.split_once(' ').expect("two numbers");
            let of_thread = events.iter().filter(|event| {
                event["event"] == "probe:hit"
                    && event["tid"].as_u64() == tid.parse().ok()
                    && event["cpu"].is_u64()
            });
            assert_eq!(of_thread.count().to_string(), times, "{how}, thread {tid}: {:?}", events.first());
        }
        assert_eq!(uprobes().matches("/p0_hit ").count(), 0, "{}", uprobes());
    }
}

/// Where a program begins: what runs once in each process that executes it (`e_entry`, elf(5)).
fn entry(program: &Path) -> u64 {
    let bytes = fs::read(program).expect("there");
    u64::from_le_bytes(bytes[24..32].try_into().expect("eight"))
}

// NEEDS: one kernel
#[test]
fn root_an_address_of_a_stripped_program_is_recorded() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = rtscope_testkit::process::program("rtscope-emitter").expect("built");
    let place = format!("{}:{:#x}", text(&program), entry(&program));
    let script = format!("for i in 1 2 3 4 5; do '{}' count 1 1; done", text(&program));
    let (trace, account) = record(directory.path(), &["--at", &place], &["sh", "-c", &script]);
    let events = printed(&trace);
    let passes: Vec<_> =
        events.iter().filter(|event| event["event"].to_string().contains("probe:")).collect();
    assert_eq!((passes.len(), lost(&account)), (5, 0), "{account}");
    let of: BTreeSet<_> = passes.iter().map(|event| event["tid"].as_u64()).collect();
    assert_eq!(of.len(), 5, "once in each process: {passes:?}");
    assert!(of_process(std::process::id()).is_empty(), "{}", uprobes());
}

// NEEDS: host
#[test]
fn root_bpftrace_counts_as_many_passes_of_a_place() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("bpftrace") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = build(directory.path()) else { return };
    let (program, counted) = (text(&program), directory.path().join("counted"));
    let script = format!(
        "bpftrace -q -o '{}' -e 'uprobe:{program}:hit {{ @calls = count(); }}' -c '{program} 900'",
        text(&counted)
    );
    let places = ["--at", &format!("{program}:hit"), "--at", &format!("{program}:miss")];
    let (_, account) = record(directory.path(), &places, &["sh", "-c", &script]);
    let counted = fs::read_to_string(&counted).expect("it wrote");
    assert!(
        counted.contains(&format!("@calls: {}", number_of(&account, "probe:hit"))),
        "{counted} {account}"
    );
    assert_eq!((number_of(&account, "probe:hit"), lost(&account)), (900, 0), "{account}");
    assert_eq!(number_of(&account, "probe:miss"), 0);
}

// NEEDS: host
#[test]
fn root_places_are_found_whatever_their_files_are_called() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = build(directory.path()) else { return };
    // Words, lines, comments and offsets end where the kernel reads these.
    for name in ["a b", "line\nfeed", "x:0x10", "hash#", "100%", "(refs)", "link"] {
        let _ = fs::remove_dir_all(directory.path().join("trace"));
        let named = directory.path().join(name);
        if name == "link" {
            symlink(&program, &named).expect("a temporary directory");
        } else {
            fs::copy(&program, &named).expect("a temporary directory");
        }
        // Of COMMAND, and by its name.
        let file = text(&named);
        let by_name = format!("{file}:hit");
        let options: &[&str] = if name == "x:0x10" { &["--at", &by_name] } else { &["--at", "hit"] };
        let output = Command::output(
            rtscope()
                .args(["record", "--json", "-o"])
                .arg(directory.path().join("trace"))
                .args(options)
                .args(["--", &file, "30"]),
        );
        let output = output.expect("it starts");
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        let account: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}: {notes}"));
        assert_eq!(number_of(&account, "probe:hit"), 30, "{name}: {notes}");
        assert_eq!(notes.matches("by uprobes").count(), 1, "{notes}");
    }
}

// NEEDS: host
#[test]
fn root_filters_of_tasks_hold_for_places() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = build(directory.path()) else { return };
    let file = text(&program);
    let at = format!("{file}:hit");
    // The first of COMMAND, as a shell's child has another name.
    let script = format!("'{file}' 30; cp '{file}' '{file}2'; '{file}2' 30; exec -a x '{file}' 60");
    let (_, account) = record(directory.path(), &["--at", &at, "--comm", "nobody"], &["bash", "-c", &script]);
    assert_eq!(number_of(&account, "probe:hit"), 0, "{account}");
    fs::remove_dir_all(directory.path().join("trace")).expect("it is there");
    let mut other = Command::new(&program).arg("300000").stdout(Stdio::null()).spawn().expect("it starts");
    let (_, account) = record(directory.path(), &["--at", &at, "--only-command"], &["bash", "-c", &script]);
    other.wait().expect("it ends");
    // The copy is another file.
    assert_eq!(number_of(&account, "probe:hit"), 90, "{account}");
    fs::remove_dir_all(directory.path().join("trace")).expect("it is there");
}

/// The C library of this process.
fn libc() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").expect("proc");
    let path = maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| format!("/{path}"));
    path.into_iter().find(|path| path.contains("/libc.so"))
}

// NEEDS: host
#[test]
fn root_of_a_library_all_processes_are_recorded_but_rtscope_itself() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(libc) = libc() else { return skip::say("this process has no C library of its own") };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let mut command = rtscope();
    command.args(["record", "--at", &format!("{libc}:malloc"), "-o"]).arg(&trace);
    // Longer than a second, in which rtscope looks several times.
    command.args(["--", "bash", "-c", "for i in 1 2 3 4; do sleep 0.3; done"]).stderr(Stdio::null());
    let recorder = command.spawn().expect("it starts");
    let own = recorder.id();
    assert!(recorder.wait_with_output().expect("it ends").status.success());
    let events = printed(&trace);
    let of = |is: &dyn Fn(&Value) -> bool| {
        events.iter().filter(|event| event["event"] == "probe:malloc" && is(event)).count()
    };
    assert!(of(&|event| event["comm"] == "bash") > 0 && of(&|event| event["comm"] == "sleep") > 0);
    assert_eq!(of(&|event| event["pid"] == own), 0, "of rtscope itself");
}

// NEEDS: host
#[test]
fn root_a_thousand_places_are_recorded_each_once() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("cc") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (source, program) = (directory.path().join("many.c"), directory.path().join("many"));
    let function =
        |n: u32| format!("__attribute__((noinline)) int f{n}(int a) {{ return a * {} + 7; }}\n", n + 2);
    let calls: String = (0..1000).map(|n| format!("    a = f{n}(a);\n")).collect();
    let functions: String = (0..1000).map(function).collect();
    fs::write(&source, format!("{functions}int main(int a, char **v) {{\n{calls}    return a == 1;\n}}\n"))
        .expect("a temporary directory");
    let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).status();
    assert!(built.expect("it starts").success());
    let places: Vec<String> = (0..1000).map(|n| format!("f{n}")).collect();
    let mut options: Vec<&str> = places.iter().flat_map(|place| ["--at", place.as_str()]).collect();
    // The same place again is none.
    options.extend(["--at", "f7", "--at", "f7+0"]);
    let (_, account) = record(directory.path(), &options, &[&text(&program)]);
    let once = places.iter().filter(|place| number_of(&account, &format!("probe:{place}")) == 1).count();
    assert_eq!((once, lost(&account)), (1000, 0), "{account}");
    assert!(!uprobes().contains("/p0_f0 "));
}

// NEEDS: host
#[test]
fn root_what_is_no_place_is_refused_before_anything_starts() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = build(directory.path()) else { return };
    let file = text(&program);
    let stripped = text(&directory.path().join("stripped"));
    let strip = Command::new("strip").args(["-o", &stripped, &file]).status();
    assert!(strip.expect("binutils are there").success());
    let script = text(&directory.path().join("script"));
    fs::write(&script, "#!/bin/sh\n").expect("a temporary directory");
    let before = uprobes();
    for (place, words) in [
        (format!("{file}:hti"), "nearest name is hit"),
        (format!("{file}:hit+0x1000"), "is not in it"),
        (format!("{file}:hit+1"), "no instruction that begins at"),
        (format!("{file}:pthread_create"), "it is in a library"),
        (format!("{stripped}:hit"), "it is stripped"),
        (format!("{script}:hit"), "it is a script"),
        (format!("{file}x:hit"), "No such file"),
        ("/dev/null:hit".to_owned(), "not a regular file"),
        ("hit".to_owned(), "in which program"),
    ] {
        let (code, said) = refused(&["--at", &place, "--duration", "1ms"]);
        assert!(code == Some(2) && said.contains(words), "{place}: {code:?} {said}");
    }
    let (code, said) = refused(&["--at", "hit", "--", "/no/such/program"]);
    assert!(code == Some(2) && said.contains("No such file"), "{code:?} {said}");
    assert_eq!(uprobes(), before);
}

/// Somebody else's uprobe, which is there as long as this is.
struct Foreign;

impl Foreign {
    fn define(program: &Path) -> Foreign {
        let offset = Command::new("nm").arg(program).output().expect("binutils are there");
        let offset = String::from_utf8_lossy(&offset.stdout).into_owned();
        let line = offset.lines().find(|line| line.ends_with(" T hit")).expect("it has that").to_owned();
        let address = line.split(' ').next().unwrap_or_default().to_owned();
        append(&format!("p:foreign/rtscope_1_2_3 {}:0x{address}", text(program)));
        Foreign
    }

    fn is_there(&self) -> bool {
        uprobes().contains("p:foreign/rtscope_1_2_3 ")
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // Also where the test has failed because it is gone.
        if self.is_there() {
            append("-:foreign/rtscope_1_2_3");
        }
    }
}

fn append(line: &str) {
    let list = OpenOptions::new().append(true).open("/sys/kernel/tracing/uprobe_events");
    writeln!(list.expect("this kernel has uprobes"), "{line}").expect("it is taken");
}

// NEEDS: host
#[test]
fn root_places_are_removed_however_a_recording_ends_and_those_of_others_stay() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = build(directory.path()) else { return };
    let foreign = Foreign::define(&program);
    let at = format!("{}:hit", text(&program));
    for (number, signals) in
        [&[Signal::SIGINT][..], &[Signal::SIGTERM], &[Signal::SIGINT, Signal::SIGINT], &[Signal::SIGKILL]]
            .into_iter()
            .enumerate()
    {
        let (trace, notes) = (directory.path().join(number.to_string()), directory.path().join("notes"));
        let mut command = rtscope();
        command.args(["record", "--at", &at, "-o"]).arg(&trace).stdout(Stdio::null());
        command.stderr(File::create(&notes).expect("a temporary directory"));
        let mut recorder = KilledWithTest::start(&mut command).expect("it starts");
        let said = || fs::read_to_string(&notes).unwrap_or_default();
        wait_until("it records", || said().contains("recording tracepoints"));
        let pid = recorder.id();
        assert_eq!(of_process(pid).len(), 1, "{}", said());
        for signal in signals {
            // The second one may find it ended.
            let _ = kill(Pid::from_raw(pid as i32), *signal);
        }
        recorder.wait().expect("it ends");
        if signals == [Signal::SIGKILL] {
            assert_eq!(of_process(pid).len(), 1, "nothing takes it away after SIGKILL");
            let recovered: Output =
                rtscope().args(["record", "--recover"]).arg(&trace).output().expect("it starts");
            assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
        }
        assert_eq!(of_process(pid), Vec::<String>::new(), "{signals:?}: {}", said());
        assert!(foreign.is_there(), "{signals:?}: {}", uprobes());
    }
    // One of a process that never was, by the next recording; and not that of one that is: process 1.
    let birth = fs::read_to_string("/proc/1/stat").expect("proc");
    let birth =
        birth.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).expect("a time").to_owned();
    let living = format!("rtscope_1_{birth}_0/p0_hit");
    let file = text(&program);
    append(&format!("p:rtscope_4194305_7_0/p0_hit {file}:0x1000"));
    append(&format!("p:{living} {file}:0x1000"));
    let (_, account) = record(directory.path(), &["--at", &at], &[&file, "30"]);
    let left = uprobes();
    append(&format!("-:{living}"));
    assert_eq!(number_of(&account, "probe:hit"), 30);
    assert!(!left.contains("rtscope_4194305_7_0") && left.contains(&living), "{left}");
    assert!(foreign.is_there());
}
