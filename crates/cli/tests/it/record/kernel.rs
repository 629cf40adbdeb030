// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record` against what others count and read: babeltrace2, strace, and loads that know what they did.

use crate::command::{SmallDisk, field, losses, lost, rtscope};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{PATIENCE, program};
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// Records COMMAND; gives the trace and the account.
pub fn record(directory: &Path, options: &[&str], command: &[&str]) -> (PathBuf, Value) {
    let trace = directory.join("trace");
    let output = rtscope()
        .args(["record", "--json", "-o"])
        .arg(&trace)
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {notes}", output.status);
    let line = text.lines().find(|line| line.starts_with("{\"begin") || line.contains("rtscope.record/1"));
    let account =
        serde_json::from_str(line.unwrap_or_else(|| panic!("an account: {text} {notes}"))).expect("JSON");
    (trace, account)
}

/// What babeltrace2 makes of a trace; it must have nothing to complain about.
fn babeltrace2(trace: &Path) -> Vec<String> {
    let output = Command::new("babeltrace2").arg(trace).output().expect("it can be started");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}

/// The event's name in a line of babeltrace2: the word before the first colon and brace.
fn name_of(line: &str) -> &str {
    let head = line.split(": {").next().unwrap_or_default();
    head.rsplit(' ').next().unwrap_or_default()
}

fn counts(lines: &[String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(name_of(line).to_string()).or_insert(0) += 1;
    }
    counts
}

// NEEDS: one kernel
#[test]
fn root_babeltrace2_counts_what_the_account_says() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let patterns = "sched:*,irq:*,timer:*,syscalls,kmem:*,block:*,workqueue:*,signal:*,task:*,raw_syscalls:*";
    let script = "for i in 1 2 3; do ls -lR /etc > /dev/null; done; sync -f /tmp; kill -0 $$";
    let (trace, account) = record(directory.path(), &["-k", patterns], &["sh", "-c", script]);
    let by_event: BTreeMap<String, u64> =
        serde_json::from_value(account["by_event"].clone()).expect("numbers by name");
    let mut read = counts(&babeltrace2(&trace));
    read.retain(|name, _| !name.starts_with("lttng_statedump"));
    assert_eq!(read, by_event);
    assert_eq!(account["events"].as_u64(), Some(by_event.values().sum()));
    // It was made while it was recorded, but for its end: all of so short a recording.
    assert!(account["behind_ns"].as_u64().is_some_and(|behind_ns| behind_ns > 0), "{account}");
    // The kernel may skip a program now and then, and tells; nothing else is lost.
    let losses = losses(&account);
    assert!(losses.iter().all(|loss| loss["cause"] == "recursion_miss"), "{losses:?}");
    assert!(lost(&account) <= 3, "{losses:?}");
    for name in
        ["sched_switch", "sched_waking", "sched_wakeup", "syscall_entry_openat", "raw_syscalls_sys_enter"]
    {
        let like = by_event.keys().any(|known| known == name || known.ends_with(name));
        assert!(like || name.starts_with("raw"), "{name} is missing in {:?}", by_event.keys());
    }
}

// NEEDS: host
#[test]
fn root_a_recorded_compile_has_the_system_calls_that_strace_counted() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("strace") || skip::without_tool("babeltrace2") || skip::without_tool("gcc") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let project = directory.path().join("project");
    fs::create_dir(&project).expect("a temporary directory");
    for name in ["a", "b", "c"] {
        let text = format!("#include <stdio.h>\nint {name}(void) {{ return puts(\"{name}\"); }}\n");
        fs::write(project.join(format!("{name}.c")), text).expect("written");
    }
    fs::write(
        project.join("main.c"),
        "int a(void); int b(void); int c(void); int main(void) { return a() + b() + c() < 0; }\n",
    )
    .expect("written");
    let count = directory.path().join("strace.txt");
    let script = format!("cd {} && gcc -O1 -o main main.c a.c b.c c.c && ./main", project.display());
    // strace stops its children at each call and makes calls of its own: those are left out in the kernel. The first call of
    // a child, its execve, begins under strace's name, so it is counted at its end.
    let filter = "syscalls:*: COMM != \"strace\" && COMM != \"rtscope\"";
    // By its path: looking for it takes calls, too, under rtscope's name.
    let command = ["/usr/bin/strace", "-f", "-c", "-o", count.to_str().expect("text"), "sh", "-c", &script];
    let (trace, account) = record(
        directory.path(),
        &["-k", "syscalls", "--only-command", "--filter", filter, "--buffer", "32M"],
        &command,
    );
    assert_eq!(lost(&account), 0);
    let recorded = counts(&babeltrace2(&trace));
    let counted = strace_counts(&fs::read_to_string(&count).expect("strace's table"));
    assert!(counted.values().sum::<u64>() > 1000, "{counted:?}");
    for (call, calls) in &counted {
        let name = traced_name(call);
        let side = if call == "execve" { "exit" } else { "entry" };
        let found = recorded.get(&format!("syscall_{side}_{name}")).copied().unwrap_or(0);
        assert_eq!(found, *calls, "{call}");
    }
    // And none that strace does not know, but for those that never return.
    for (name, calls) in
        recorded.iter().filter_map(|(name, calls)| Some((name.strip_prefix("syscall_entry_")?, calls)))
    {
        let known = counted.keys().any(|call| traced_name(call) == name);
        assert!(known || matches!(name, "exit_group" | "exit" | "execve"), "{name}: {calls}");
    }
}

/// Calls and their numbers in the table of `strace -c`.
fn strace_counts(table: &str) -> BTreeMap<String, u64> {
    let rows = table.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    rows.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (calls, name) = (words.get(3)?.parse().ok()?, *words.last()?);
        (name != "total").then(|| (name.to_string(), calls))
    })
    .collect()
}

/// tracefs has the names of the kernel's functions, strace those of the calls.
fn traced_name(call: &str) -> String {
    match call {
        "stat" | "lstat" | "fstat" | "uname" => format!("new{call}"),
        "newfstatat" | "pread64" | "pwrite64" => call.to_string(),
        "sendfile" => "sendfile64".to_string(),
        "umount2" => "umount".to_string(),
        _ => call.to_string(),
    }
}

// NEEDS: one kernel
#[test]
fn root_paths_are_texts_and_own_calls_are_left_out() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = "cat /etc/hostname > /dev/null; mkdir -p a; mv a b; cat /no/such/file 2> /dev/null; true";
    let script = format!("cd {} && {{ {script}; }}", directory.path().display());
    let (trace, account) = record(directory.path(), &["-k", "syscalls"], &["sh", "-c", &script]);
    let lines = babeltrace2(&trace);
    let has = |name: &str, text: &str| lines.iter().any(|line| name_of(line) == name && line.contains(text));
    assert!(has("syscall_entry_openat", "filename = \"/etc/hostname\""));
    assert!(has("syscall_entry_openat", "filename = \"/no/such/file\""));
    assert!(has("syscall_exit_openat", "ret = -2"));
    assert!(lines.iter().any(|line| name_of(line).starts_with("syscall_entry_rename") && line.contains("oldname = \"a\"")));
    // What was written is data, not a path. (Linux 7 puts such data into the event by itself.)
    let format = "/sys/kernel/tracing/events/syscalls/sys_enter_write/format";
    let by_kernel = std::fs::read_to_string(format).is_ok_and(|format| format.contains("__data_loc"));
    assert!(
        by_kernel
            || !lines.iter().any(|line| name_of(line) == "syscall_entry_write" && line.contains("buf = \""))
    );
    assert!(account["paths_not_read"].as_u64().is_some() && account["paths_cut"].as_u64().is_some());
    // rtscope writes its spool all the time: nothing of that is here.
    let own = |line: &&String| line.contains("cpu0.bank") || line.contains("cpu0.pages");
    assert_eq!(lines.iter().find(own), None);
    let names: Vec<&str> = lines
        .iter()
        .filter(|line| name_of(line) == "syscall_entry_splice")
        .map(|line| name_of(line))
        .collect();
    assert!(names.is_empty(), "rtscope's own splices were recorded: {}", names.len());
}

/// What each process of `rtscope-every-call` did, as one recorder tells it.
fn every_call(options: &[&str]) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let output = rtscope()
        .args(["record", "-k", "syscalls", "-o"])
        .arg(&trace)
        .args(options)
        .arg("--")
        .arg(program("rtscope-every-call").expect("built"))
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("lost: nothing"), "{} {said}", output.status);
    let line = said.lines().find(|line| line.contains("processes")).expect("its line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    let processes = line["processes"].as_array().expect("a list");
    let mut calls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in babeltrace2(&trace).into_iter().filter(|line| name_of(line).starts_with("syscall_")) {
        let tid = field(&line, "tid").expect("each event has it").to_owned();
        // Other results are addresses, and numbers of processes.
        let result = field(&line, "ret").filter(|result| result.starts_with('-'));
        calls.entry(tid).or_default().push(format!("{} {}", name_of(&line), result.unwrap_or("")));
    }
    processes.iter().map(|process| calls.remove(&process.to_string()).unwrap_or_default()).collect()
}

// NEEDS: one kernel
#[test]
fn root_both_recorders_give_the_same_system_calls() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let (theirs, ours) = (every_call(&["--by", "ftrace"]), every_call(&[]));
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert!(!theirs.is_empty());
        assert_eq!(ours, theirs);
    }
}

// NEEDS: one kernel
#[test]
fn root_filters_and_limits_hold_in_the_kernel() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = [
        "-k",
        "sched:sched_switch,syscalls:sys_enter_*",
        "--only-command",
        "--filter",
        "sys_enter_write: fd == 1",
    ];
    let (trace, _) = record(
        directory.path(),
        &options,
        &["sh", "-c", "echo one; (echo three); cd /no/such/folder || true"],
    );
    let lines = babeltrace2(&trace);
    let writes: Vec<&String> = lines.iter().filter(|line| name_of(line) == "syscall_entry_write").collect();
    assert_eq!(writes.len(), 2, "{writes:?}");
    let tids: std::collections::BTreeSet<&str> = lines
        .iter()
        .filter(|line| name_of(line).starts_with("syscall_entry"))
        .filter_map(|line| field(line, "tid"))
        .collect();
    // The shell and its subshell; nobody else.
    assert!(tids.len() <= 2, "{tids:?}");
}

// NEEDS: host
#[test]
fn root_a_wrong_filter_is_refused_with_what_the_kernel_says() {
    if skip::without_watching() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let output = rtscope()
        .args(["record", "-k", "sched:sched_switch", "--filter", "sched_switch: nonsense == 1", "-o"])
        .arg(&trace)
        .args(["--", "true"])
        .output()
        .expect("it can be started");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{notes}");
    assert!(notes.contains("sched_switch") && notes.contains("nonsense"), "{notes}");
    assert!(
        fs::read_dir(directory.path()).expect("a temporary directory").next().is_none(),
        "something was left behind"
    );
}

// NEEDS: host
#[test]
fn root_a_killed_recording_is_recovered_and_leaves_no_instance() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let mut killed = rtscope()
        .args(["record", "-k", "sched:*,irq:*", "-o"])
        .arg(&trace)
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be started");
    let spool = trace.join("kernel.partial");
    let growing = spool.join("trace");
    let size = || -> u64 {
        let files = fs::read_dir(&growing).into_iter().flatten().flatten();
        let streams = files.filter(|file| file.file_name().to_string_lossy().starts_with("kernel_"));
        streams.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    let end = Instant::now() + PATIENCE;
    while size() < 100_000 {
        assert!(Instant::now() < end, "nothing is in the trace");
        // Switches, to record.
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    // What was converted until then can be read as it is.
    let unrepaired = rtscope_testkit::babeltrace2::run(&growing, &[]).expect("it is installed");
    let complaints = String::from_utf8_lossy(&unrepaired.stderr);
    assert!(unrepaired.status.success(), "{complaints}");
    assert!(complaints.lines().all(|line| line.contains("discarded")), "{complaints}");
    let before = String::from_utf8_lossy(&unrepaired.stdout).matches(" sched_switch:").count() as u64;
    assert!(before > 10, "{before}");
    let refused = rtscope().args(["record", "-o"]).arg(&trace).args(["--", "true"]).output().expect("starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--recover"));
    let recovered = rtscope().args(["record", "--json", "--recover"]).arg(&trace).output().expect("starts");
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
    let account: Value = serde_json::from_slice(&recovered.stdout).expect("JSON");
    assert_eq!(account["interrupted"], Value::Bool(true));
    assert!(counts(&babeltrace2(&trace)).get("sched_switch").is_some_and(|switches| *switches >= before));
    assert!(account.get("behind_ns").is_none() && !spool.exists());
    // The next run takes the killed one's instance away.
    fs::remove_dir_all(&trace).expect("there");
    record(directory.path(), &["-k", "sched:sched_stat_runtime"], &["true"]);
    let instances = fs::read_dir("/sys/kernel/tracing/instances").expect("tracefs");
    let of_killed = format!("rtscope-{}-", killed.id());
    let left = instances.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(&of_killed));
    assert!(left.is_none(), "{left:?}");
}

// NEEDS: host
#[test]
fn root_a_full_disk_ends_the_recording_and_keeps_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(disk) = SmallDisk::new("size=4M") else { skip!("a small disk cannot be mounted here") };
    let small = disk.path();
    let trace = small.join("trace");
    let output = rtscope()
        .args(["record", "-k", "syscalls,sched:*", "-o"])
        .arg(&trace)
        .args(["--duration", "60s", "--", "sh", "-c", "while :; do ls -lR /usr/share > /dev/null; done"])
        .output();
    let output: Output = output.expect("it can be started");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    let spool = trace.join("kernel.partial");
    let (kept, made) = (spool.join("session.json").is_file(), trace.join("kernel/metadata").is_file());
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("No space left"), "{notes}");
    assert!(kept ^ made, "neither the raw recording nor a trace is there: {notes}");
    // Nothing of rtscope is left that uses it.
    disk.unmount();
}

// NEEDS: host
#[test]
fn root_two_recordings_at_once_see_the_same() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (outer, inner) = (directory.path().join("outer"), directory.path().join("inner"));
    fs::create_dir(&inner).expect("a temporary directory");
    let rtscope = crate::command::path();
    let rtscope = rtscope.to_str().expect("text");
    let inner_trace = inner.join("trace");
    let inner_trace = inner_trace.to_str().expect("text");
    let load = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done";
    let command =
        [rtscope, "record", "--json", "-k", "syscalls:execve", "-o", inner_trace, "--", "sh", "-c", load];
    fs::create_dir(&outer).expect("a temporary directory");
    let (_, account) = record(&outer, &["-k", "syscalls:execve"], &command);
    let execs = account["by_event"]["syscall_entry_execve"].as_u64();
    assert!(execs.is_some_and(|execs| execs >= 200), "{}", account["by_event"]);
    assert!(Path::new(inner_trace).join("kernel/metadata").is_file());
}

#[test]
fn what_does_not_exist_is_refused_with_the_way_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = |arguments: &[&str]| {
        let output =
            rtscope().arg("record").args(arguments).current_dir(directory.path()).output().expect("starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, notes) = refused(&["-o", "."]);
    assert_eq!(code, Some(2), "{notes}");
    assert!(notes.contains("exists already"), "{notes}");
    let (code, notes) = refused(&["-k", "sched:*"]);
    assert_eq!(code, Some(2), "{notes}");
    assert!(notes.contains("--output"), "{notes}");
    let (code, notes) = refused(&["--recover", "nothing"]);
    assert_eq!(code, Some(2), "{notes}");
    assert!(notes.contains("no unfinished recording"), "{notes}");
    let (code, notes) = refused(&["-k", "sched:no_such_event", "-o", "trace"]);
    assert!(code == Some(2) && notes.contains("rtscope list -k") || code == Some(3), "{code:?} {notes}");
}

// NEEDS: machine
#[test]
fn root_two_capabilities_and_a_readable_tracefs_record_system_calls() {
    const NOBODY: &str = "65534";
    if skip::outside_guests() || skip::without_tool("setpriv") {
        return;
    }
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        let status = Command::new("mount")
            .args(["-o", &options, "/sys/kernel/tracing"])
            .status()
            .expect("it can be run");
        assert!(status.success(), "mount -o {options}");
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    remount(&format!("gid={NOBODY},mode=750"));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.args(["--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon"]);
    command.arg(crate::command::path()).args(["record", "--json", "-k", "syscalls", "-o"]);
    let output =
        command.arg(directory.path().join("trace")).args(["--", "ls", "/"]).output().expect("it can be run");
    remount("gid=0,mode=700");
    if output.status.code() == Some(3) {
        // Where eBPF programs could be preempted, system calls are ftrace's, which takes more.
        let advice = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(advice.contains("/instances"), "{advice}");
        skip!("on this kernel ftrace records system calls: {}", advice.trim());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output:?}"));
    let account: Value = serde_json::from_str(line).expect("JSON");
    println!("recorded {} events, lost {}", account["events"], lost(&account));
    assert!(account["events"].as_u64() > Some(10) && lost(&account) == 0, "{account}");
}

/// README's own example: system calls have only the number of their thread.
// NEEDS: host
#[test]
fn root_every_system_call_of_a_command_is_found_by_its_name() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("read-by-cat");
    fs::write(&file, "text").expect("written");
    let script = "cat \"$0\"; cat \"$0\" | wc -c; exec ls /";
    let command = ["sh", "-c", script, file.to_str().expect("plain")];
    let (trace, account) = record(directory.path(), &["-k", "syscalls", "--only-command"], &command);
    assert_eq!(lost(&account), 0);
    let print = |arguments: &[&str]| {
        let output = rtscope().arg("print").arg(&trace).args(arguments).output().expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let of = |task: &str| print(&["--event", "syscalls", "--task", task]);
    let all = print(&["--event", "syscalls"]);
    assert_eq!(
        account["events"].as_u64(),
        Some(all.len() as u64),
        "the events that name threads do not count"
    );
    let names = ["cat", "wc", "sh", "ls", "rtscope"];
    // Each has one name at its time: rtscope's before COMMAND's execve(2), and the shell's before those of its children.
    let parts: usize = names.iter().map(|name| of(name).len()).sum();
    assert_eq!(parts, all.len());
    let opened = |task: &str| of(task).iter().filter(|line| line.contains("read-by-cat")).count();
    assert_eq!((opened("cat"), opened("wc"), opened("ls"), opened("sh")), (2, 0, 0, 0));
    let cut = directory.path().join("cut");
    let convert =
        rtscope().arg("convert").arg(&trace).arg(&cut).args(["--to", "ctf", "--task", "cat"]).output();
    assert!(convert.expect("it can be run").status.success());
    assert_eq!(
        babeltrace2(&cut).into_iter().filter(|line| name_of(line).starts_with("syscall_")).count(),
        of("cat").len()
    );
}
