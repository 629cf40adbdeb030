// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield` on a directory of plain files that imitates a machine: what is written, what is put back, and what happens when
//! a file refuses or the process is killed in the middle. Kills and refusals come from strace, at any system call that is wanted.

use rtscope_testkit::skip;
use rtscope_testkit::{full, sample};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The files of a machine with six CPUs, and what they hold.
const FILES: &[(&str, &str)] = &[
    ("proc/cmdline", "quiet\n"),
    ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"),
    ("proc/sys/kernel/random/boot_id", "a-boot\n"),
    ("proc/irq/default_smp_affinity", "3f\n"),
    ("proc/irq/9/smp_affinity_list", "0-5\n"),
    ("proc/irq/9/eth0/x", ""),
    ("proc/irq/10/smp_affinity_list", "0-3,5\n"),
    ("proc/irq/11/smp_affinity_list", "2\n"),
    ("proc/irq/12/smp_affinity_list", "1\n"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("proc/sys/kernel/watchdog_cpumask", "0-5\n"),
    ("proc/sys/kernel/nmi_watchdog", "1\n"),
    ("proc/sys/kernel/timer_migration", "1\n"),
    ("proc/sys/kernel/hung_task_timeout_secs", "120\n"),
    ("proc/sys/vm/stat_interval", "1\n"),
    ("proc/sys/vm/compaction_proactiveness", "20\n"),
    ("sys/devices/system/cpu/online", "0-5\n"),
    ("sys/devices/system/cpu/nohz_full", "(null)\n"),
    ("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "0\n"),
    ("sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "100\n"),
    ("sys/devices/virtual/workqueue/cpumask", "3f\n"),
    ("sys/devices/virtual/workqueue/writeback/cpumask", "00000000,0000003f\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "madvise\n"),
    ("sys/kernel/mm/ksm/run", "1\n"),
    ("sys/kernel/rcu_normal", "0\n"),
    ("sys/kernel/rcu_expedited", "1\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
    ("sys/fs/cgroup/cgroup.subtree_control", "cpuset memory\n"),
    ("sys/fs/cgroup/rtscope-shield/cpuset.cpus", "\n"),
    ("sys/fs/cgroup/rtscope-shield/cpuset.cpus.partition", "member\n"),
    ("sys/fs/cgroup/rtscope-shield/cgroup.procs", ""),
];

/// An imitated machine.
struct Machine {
    directory: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { directory: tempfile::tempdir().expect("a temporary directory") };
        FILES.iter().for_each(|(path, content)| machine.write(path, content));
        // In the kernel, too, what is written to the one is read from the other.
        let requested = machine.path("sys/devices/virtual/workqueue/cpumask_requested");
        std::os::unix::fs::symlink("cpumask", requested).expect("linked");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a temporary directory")).expect("made");
        fs::write(path, content).expect("written");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect(path)
    }

    /// All files but the lock: their paths, bytes and modes.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        collect(self.directory.path(), &mut files);
        files.retain(|path, _| !path.ends_with("shield.lock") && !path.ends_with("shield.json.new"));
        files
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let root = self.directory.path().to_str().expect("a plain path");
        [&["shield", "--root", root], words].concat()
    }

    fn shield(&self, words: &[&str]) -> Output {
        let mut command = crate::command::rtscope();
        command.args(self.words(words)).output().expect("it runs")
    }

    fn good(&self, words: &[&str]) -> String {
        let output = self.shield(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.good(words)).expect("JSON")
    }

    fn bad(&self, words: &[&str], code: i32) -> String {
        let output = self.shield(words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Under strace, with these of its options.
    fn traced(&self, options: &[&str], words: &[&str]) -> Output {
        let mut command = Command::new("strace");
        command.arg("-qq").args(options).arg(crate::command::path()).args(self.words(words));
        command.output().expect("strace runs")
    }
}

fn collect(directory: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).expect("read") {
        let path = entry.expect("read").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            let text = fs::read_to_string(&path).expect("read");
            files.insert(path, format!("{mode:o} {text:?}"));
        }
    }
}

/// Says only what differs.
fn assert_same(after: BTreeMap<PathBuf, String>, before: &BTreeMap<PathBuf, String>, what: &str) {
    let paths = after.keys().chain(before.keys());
    let differ: BTreeMap<&PathBuf, (Option<&String>, Option<&String>)> = paths
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| (path, (before.get(path), after.get(path))))
        .collect();
    assert!(differ.is_empty(), "{what}: before and after differ: {differ:#?}");
}

fn no_strace() -> bool {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|s| s.success());
    if !works {
        skip::say("strace is not installed, or may not trace");
    }
    !works
}

/// The system calls from the first that touches the journal on: each with its place among its kind, by which strace finds it.
fn calls(machine: &Machine, words: &[&str]) -> Vec<(String, usize)> {
    let log = machine.path("log");
    let options = ["-e", "trace=openat,write,fsync,rename,close", "-o", log.to_str().expect("plain")];
    assert!(machine.traced(&options, words).status.success());
    let text = fs::read_to_string(&log).expect("a log");
    fs::remove_file(log).expect("removed");
    let (mut counts, mut calls, mut begun) = (BTreeMap::new(), Vec::new(), false);
    for line in text.lines() {
        let Some((call, _)) = line.split_once('(') else { continue };
        let count = counts.entry(call).or_insert(0);
        *count += 1;
        begun |= line.contains("shield.json.new");
        if begun {
            calls.push((call.to_owned(), *count));
        }
    }
    calls
}

/// Kills at the call that is so far into its kind's row. Says whether it was killed.
fn kill_at(machine: &Machine, words: &[&str], call: &str, at: usize) -> bool {
    let inject = format!("inject={call}:signal=SIGKILL:when={at}");
    let output = machine.traced(&["-o", "/dev/null", "-e", &inject], words);
    output.status.signal() == Some(9) || output.status.code() == Some(137)
}

/// The CPUs of the group that has the shield.
const GROUP_CPUS: &str = "sys/fs/cgroup/rtscope-shield/cpuset.cpus";
const CREATE: [&str; 5] = ["create", "--rt", "2-3", "--level", "full"];

#[test]
fn a_plan_says_what_changes_and_changes_nothing() {
    let machine = Machine::new();
    let before = machine.files();
    let plan = machine.json(&["plan", "--rt", "2-3", "--json"]);
    let setting = |knob: &str| {
        let all = plan["settings"].as_array().expect("settings").iter();
        all.filter(|setting| setting["knob"] == knob).cloned().collect::<Vec<Value>>()
    };
    let irqs = setting("irq");
    let wanted: Vec<(&str, &str, &str)> = irqs
        .iter()
        .map(|irq| {
            let text = |key: &str| irq[key].as_str().unwrap_or("-");
            (text("label"), text("wanted"), text("state"))
        })
        .collect();
    let expected = [("9 eth0", "0-1,4-5"), ("10", "0-1,5"), ("11", "0-1,4-5")].map(|(a, b)| (a, b, "change"));
    assert_eq!(wanted[..3], expected);
    assert_eq!(wanted[3].2, "as_wanted");
    assert_eq!(setting("workqueues")[0]["wanted"], "33");
    assert_eq!(setting("governor")[0]["state"], "absent");
    assert!(setting("ksm").is_empty(), "only at level full");
    assert_eq!(plan["apart"]["kind"], "partition");
    let line = "nohz_full=2-3 isolcpus=managed_irq,2-3 irqaffinity=0-1,4-5 skew_tick=1";
    assert_eq!(plan["boot_line"], line);
    let text = machine.good(&["plan", "--rt", "2-3", "--level", "full"]);
    assert!(text.contains(line) && text.contains("ksmd"), "{text}");
    assert_same(machine.files(), &before, "files");
}

/// Files do not move interrupts, so this machine is a kernel that leaves them where they are.
#[test]
fn an_interrupt_that_does_not_come_back_is_listed_by_undo() {
    let machine = Machine::new();
    for (irq, cpu) in [(9, "2\n"), (10, "1\n"), (12, "1\n")] {
        machine.write(&format!("proc/irq/{irq}/effective_affinity_list"), cpu);
    }
    let before = machine.files();
    machine.good(&CREATE);
    // The shield moves it, and nothing moves it back.
    machine.write("proc/irq/9/effective_affinity_list", "4\n");
    let undone = machine.json(&["undo", "--json"]);
    let displaced = serde_json::json!([{
        "place": "/proc/irq/9/smp_affinity_list", "label": "9 eth0", "affinity": "0-5", "before": "2", "now": "4"
    }]);
    assert_eq!((&undone["displaced"], &undone["failed"]), (&displaced, &0.into()));
    machine.write("proc/irq/9/effective_affinity_list", "2\n");
    assert_same(machine.files(), &before, "files");
    // Again, for people, and undoing is killed while the affinity is only the CPU that it came to.
    machine.good(&CREATE);
    machine.write("proc/irq/9/effective_affinity_list", "4\n");
    machine.write("proc/irq/9/smp_affinity_list", "2");
    let journal = machine.read("run/rtscope/shield.json");
    machine.write("run/rtscope/shield.json", &journal.replace("\"active\"", "\"undoing\""));
    let undone = machine.good(&["undo"]);
    assert!(undone.contains("interrupt 9 eth0: comes to CPU 4, before the shield to CPU 2"), "{undone}");
    assert!(!undone.contains("left "), "it is not somebody else's: {undone}");
    machine.write("proc/irq/9/effective_affinity_list", "2\n");
    assert_same(machine.files(), &before, "files");
    // One that came back by itself is none.
    machine.good(&CREATE);
    assert_eq!(machine.json(&["undo", "--json"])["displaced"], serde_json::json!([]));
}

#[test]
fn an_interrupt_that_is_kept_comes_here_and_all_others_leave() {
    let machine = Machine::new();
    let before = machine.files();
    let keep = ["--rt", "2-3", "--keep-irq", "eth0@2", "--keep-irq", "11"];
    let plan = machine.json(&[&["plan"], &keep[..], &["--json"]].concat());
    let kept: Vec<(&str, &str, &str)> = plan["settings"]
        .as_array()
        .expect("settings")
        .iter()
        .filter(|setting| setting["knob"] == "kept-irq")
        .map(|setting| {
            let text = |key: &str| setting[key].as_str().unwrap_or("-");
            (text("label"), text("wanted"), text("state"))
        })
        .collect();
    assert_eq!(kept, [("9 eth0", "2", "change"), ("11", "2-3", "change")]);
    assert_same(machine.files(), &before, "files");
    machine.good(&[&["create"], &keep[..]].concat());
    for (irq, cpus) in [(9, "2"), (10, "0-1,5"), (11, "2-3")] {
        assert_eq!(machine.read(&format!("proc/irq/{irq}/smp_affinity_list")), cpus);
    }
    assert_eq!(machine.json(&["status", "--json"])["drifted"], 0);
    machine.good(&["undo"]);
    assert_same(machine.files(), &before, "files");
    for (keep, why) in [("eth1", "there are: 9 eth0"), ("eth0@1", "the shield has CPUs 2-3")] {
        let said = machine.bad(&["create", "--rt", "2-3", "--keep-irq", keep], 2);
        assert!(said.contains(why), "{said}");
    }
    assert_same(machine.files(), &before, "files");
    let unit = machine.good(&["unit", "--rt", "2-3", "--keep-irq", "eth0@2"]);
    assert!(unit.contains("--level basic --keep-irq \"eth0@2\"\n"), "{unit}");
}

#[test]
fn cpusets_of_others_that_are_in_the_way_are_named() {
    let machine = Machine::new();
    machine.write("proc/mounts", "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n");
    machine.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-5\n");
    machine.write("sys/fs/cgroup/cpuset/docker/cpuset.cpus", "0-3\n");
    machine.write("sys/fs/cgroup/cpuset/quiet/cpuset.cpus", "0-1\n");
    let plan = machine.json(&["plan", "--rt", "2-3", "--json"]);
    assert_eq!(plan["apart"]["kind"], "cpusets");
    let notes = plan["notes"].to_string();
    assert!(notes.contains("echo 0-1 > /sys/fs/cgroup/cpuset/docker/cpuset.cpus"), "{notes}");
    assert!(!notes.contains("quiet"), "{notes}");
}

#[test]
fn a_shield_is_made_looked_at_and_undone() {
    let machine = Machine::new();
    let before = machine.files();
    let created = machine.json(&["create", "--rt", "2,3", "--level", "full", "--json"]);
    assert_eq!(created["refused"], Value::Array(vec![]), "{created}");
    for (path, value) in [
        ("proc/irq/10/smp_affinity_list", "0-1,5"),
        ("proc/irq/12/smp_affinity_list", "1\n"),
        ("sys/devices/virtual/workqueue/writeback/cpumask", "33"),
        ("proc/sys/kernel/sched_rt_runtime_us", "-1"),
        ("sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "n/a"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "never"),
        ("sys/fs/cgroup/rtscope-shield/cpuset.cpus", "2-3"),
        ("sys/fs/cgroup/rtscope-shield/cpuset.cpus.partition", "isolated"),
    ] {
        assert_eq!(machine.read(path), value, "{path}");
    }
    assert_eq!(machine.json(&["status", "--json"])["drifted"], 0);
    machine.write("sys/kernel/rcu_normal", "0\n");
    let status = machine.good(&["status"]);
    assert!(
        status.contains("1 drifted") && status.contains("/sys/kernel/rcu_normal: 0, wanted 1"),
        "{status}"
    );
    let said = machine.bad(&["create", "--rt", "4"], 1);
    assert!(said.contains("CPUs 2-3 are shielded already"), "{said}");
    machine.good(&["undo"]);
    assert_same(machine.files(), &before, "files");
    assert!(machine.bad(&["undo"], 1).contains("there is no shield"));
    assert_eq!(machine.good(&["status"]), "no shield\n");
}

#[test]
fn undo_leaves_every_file_as_it_was_also_after_sigkill() {
    if no_strace() {
        return;
    }
    let calls = calls(&Machine::new(), &CREATE);
    // All along the way.
    let points = sample((0..10).map(|point| &calls[(calls.len() - 1) * point / 9]).collect());
    let (mut half_made, kills) = (0, points.len());
    for point in points.into_iter().flat_map(|point| [None, Some(point)]) {
        let machine = Machine::new();
        let before = machine.files();
        if let Some((call, at)) = point {
            assert!(kill_at(&machine, &CREATE, call, *at), "not killed at {call} {at}");
        } else {
            machine.good(&CREATE);
        }
        let mut changed = machine.files();
        let journal = changed.remove(&machine.path("run/rtscope/shield.json")).is_some();
        assert!(changed == before || journal, "a change without a journal");
        half_made += usize::from(point.is_some() && changed != before);
        if journal {
            machine.good(&["undo"]);
        }
        assert_same(machine.files(), &before, &format!("killed at {point:?}"));
    }
    println!("{kills} killed, {half_made} of them when some files were changed");
    assert!(half_made * 10 >= kills * 6, "the kills came too early to show anything: {half_made} of {kills}");
}

#[test]
fn what_was_half_made_has_to_be_undone_first() {
    if no_strace() {
        return;
    }
    let calls = calls(&Machine::new(), &CREATE);
    let machine = Machine::new();
    let (call, at) = &calls[calls.len() / 2];
    assert!(kill_at(&machine, &CREATE, call, *at));
    assert!(machine.bad(&CREATE, 1).contains("was interrupted here; rtscope shield undo"));
    assert!(machine.good(&["status"]).contains("was interrupted: rtscope shield undo"));
    machine.good(&["undo"]);
    machine.good(&CREATE);
}

#[test]
fn an_undo_that_is_killed_is_undone_by_the_next() {
    if no_strace() {
        return;
    }
    let scale = Machine::new();
    scale.good(&CREATE);
    let calls = calls(&scale, &["undo"]);
    // Every call in the full form.
    let points: Vec<&(String, usize)> = if full() {
        calls.iter().collect()
    } else {
        sample(calls.iter().step_by(calls.len() / 10).collect())
    };
    for (call, at) in points {
        let machine = Machine::new();
        let before = machine.files();
        machine.good(&CREATE);
        assert!(kill_at(&machine, &["undo"], call, *at), "not killed at {call} {at}");
        // A plain file that was opened for writing is empty until it is written, which none of the kernel's is. An empty list
        // reads as the one from before, so that undo would leave it.
        if machine.read(GROUP_CPUS).is_empty() {
            machine.write(GROUP_CPUS, "\n");
        }
        if machine.path("run/rtscope/shield.json").exists() {
            machine.good(&["undo"]);
        }
        assert_same(machine.files(), &before, call);
    }
}

#[test]
fn what_refuses_is_told_and_the_rest_is_done() {
    if no_strace() {
        return;
    }
    for error in ["EIO", "EPERM", "EROFS"] {
        let machine = Machine::new();
        let before = machine.files();
        let file = machine.path("proc/irq/9/smp_affinity_list");
        let inject = format!("inject=write:error={error}");
        let options = ["-o", "/dev/null", "-P", file.to_str().expect("plain"), "-e", &inject];
        let output = machine.traced(&options, &["create", "--rt", "2-3", "--json"]);
        let created: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let refused = created["refused"].as_array().expect("a list");
        assert_eq!(refused.len(), 1, "{created}");
        assert_eq!(refused[0]["place"], "/proc/irq/9/smp_affinity_list");
        assert_eq!(machine.read("proc/irq/11/smp_affinity_list"), "0-1,4-5");
        // The file was opened for writing, which empties a plain file but none of the kernel's.
        machine.write("proc/irq/9/smp_affinity_list", "0-5\n");
        assert!(machine.good(&["status"]).contains("1 refused"));
        machine.good(&["undo"]);
        assert_same(machine.files(), &before, error);
    }
}

#[test]
fn a_file_that_nobody_may_write_is_in_the_plan_as_such() {
    let machine = Machine::new();
    let file = machine.path("proc/irq/9/smp_affinity_list");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("changed");
    let plan = machine.good(&["plan", "--rt", "2-3"]);
    assert!(plan.contains("Cannot be changed here (1)") && plan.contains("it is read-only"), "{plan}");
    let before = machine.files();
    machine.good(&CREATE);
    assert_eq!(machine.read("proc/irq/9/smp_affinity_list"), "0-5\n");
    machine.good(&["undo"]);
    assert_same(machine.files(), &before, "files");
}

#[test]
fn cpus_that_cannot_be_isolated_leave_everything_as_it_was() {
    if no_strace() {
        return;
    }
    let machine = Machine::new();
    let before = machine.files();
    let file = machine.path("sys/fs/cgroup/rtscope-shield/cpuset.cpus.partition");
    let options =
        ["-o", "/dev/null", "-P", file.to_str().expect("plain"), "-e", "inject=openat:error=EBUSY:when=2"];
    let output = machine.traced(&options, &CREATE);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be isolated") && said.contains("as it was before"), "{said}");
    assert_same(machine.files(), &before, "files");
}

#[test]
fn what_somebody_else_has_changed_is_left() {
    let machine = Machine::new();
    let before = machine.files();
    machine.good(&CREATE);
    machine.write("proc/sys/vm/stat_interval", "33\n");
    let said = machine.good(&["undo"]);
    assert!(said.contains("stat_interval: changed to 33 by somebody else; before the shield: 1"), "{said}");
    assert_eq!(machine.read("proc/sys/vm/stat_interval"), "33\n");
    assert_eq!(machine.read("sys/kernel/rcu_normal"), "0\n");
    assert!(machine.bad(&["undo"], 1).contains("there is no shield"));
    machine.good(&["undo", "--force"]);
    assert_same(machine.files(), &before, "files");
}

#[test]
fn what_was_left_does_not_stop_the_next_shield() {
    let machine = Machine::new();
    machine.good(&CREATE);
    machine.write("proc/sys/vm/stat_interval", "33\n");
    machine.good(&["undo"]);
    let mut between = machine.files();
    machine.good(&["create", "--rt", "5"]);
    machine.good(&["undo"]);
    // All of the second one was undone, so it leaves no journal.
    assert!(between.remove(&machine.path("run/rtscope/shield.json")).is_some());
    assert_same(machine.files(), &between, "after the second");
}

#[test]
fn cpus_that_make_no_sense_are_refused() {
    let machine = Machine::new();
    for (rt, why) in [
        ("0-5", "all the CPUs that are online"),
        ("0-3,4-5", "all the CPUs that are online"),
        ("6", "CPU 6 is not online; there are 0-5"),
        ("2,9-10", "CPU 9-10 is not online"),
        ("", "no CPU is named"),
        ("x", "is not a CPU"),
        ("3-2", "write 2-3"),
        ("0-4294967295", "is not a CPU"),
    ] {
        for command in ["plan", "create"] {
            let said = machine.bad(&[command, "--rt", rt], 2);
            assert!(said.contains(why), "{rt}: {said}");
        }
    }
    machine.write("sys/devices/system/cpu/online", "0\n");
    assert!(machine.bad(&["create", "--rt", "0"], 2).contains("one CPU online"));
}

#[test]
fn another_boots_journal_is_none_and_a_damaged_one_is_told() {
    let machine = Machine::new();
    machine.good(&CREATE);
    machine.write("proc/sys/kernel/random/boot_id", "the next boot\n");
    assert_eq!(machine.good(&["status"]), "no shield\n");
    machine.write("proc/sys/kernel/random/boot_id", "a-boot\n");
    assert_eq!(machine.json(&["status", "--json"])["state"], "active");
    machine.write("run/rtscope/shield.json", "{");
    for command in [&["status"][..], &["undo"], &CREATE] {
        assert!(machine.bad(command, 1).contains("shield.json cannot be used"));
    }
}

#[test]
fn a_full_disk_leaves_nothing_half_made_and_stops_no_undo() {
    if no_strace() {
        return;
    }
    let machine = Machine::new();
    let before = machine.files();
    let new = machine.path("run/rtscope/shield.json.new");
    let full = |when: &str, words: &[&str]| {
        let inject = format!("inject=fsync:error=ENOSPC:when={when}");
        machine.traced(&["-o", "/dev/null", "-P", new.to_str().expect("plain"), "-e", &inject], words)
    };
    // The journal is saved before the first change and after the last one.
    for when in ["1", "1+", "2", "2+"] {
        let output = full(when, &CREATE);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{when}: {said}");
        assert!(said.contains("shield.json") && said.contains("No space left"), "{when}: {said}");
        assert_same(machine.files(), &before, when);
        assert!(!new.exists(), "{when}: half a file is left");
    }
    machine.good(&CREATE);
    let output = full("1+", &["undo"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_same(machine.files(), &before, "undone");
}

#[test]
fn nobody_else_may_lock_a_shield_or_write_its_journal_whatever_the_umask() {
    let machine = Machine::new();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(crate::command::path());
    assert!(command.args(machine.words(&CREATE)).status().expect("it runs").success());
    let mode = |path: &str| fs::metadata(machine.path(path)).expect(path).permissions().mode() & 0o777;
    assert_eq!(mode("run/rtscope"), 0o755);
    assert_eq!(mode("run/rtscope/shield.json"), 0o644);
    assert_eq!(mode("run/rtscope/shield.lock"), 0o600);
    // As an older rtscope left it.
    fs::set_permissions(machine.path("run/rtscope/shield.lock"), fs::Permissions::from_mode(0o644))
        .expect("set");
    machine.good(&["undo"]);
    assert_eq!(mode("run/rtscope/shield.lock"), 0o600);
}

#[test]
fn two_at_once_are_refused() {
    let machine = Machine::new();
    machine.write("run/rtscope/shield.lock", "");
    let file = fs::File::open(machine.path("run/rtscope/shield.lock")).expect("there");
    let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).expect("locked");
    let before = machine.files();
    // Each waits for a while.
    std::thread::scope(|scope| {
        for command in [&["undo"][..], &CREATE] {
            let is_said = || machine.bad(command, 1).contains("another rtscope makes or undoes a shield now");
            scope.spawn(move || assert!(is_said()));
        }
    });
    assert_same(machine.files(), &before, "files");
    drop(lock);
    machine.good(&CREATE);
}

#[test]
fn a_service_undoes_at_stop() {
    let unit = Machine::new().good(&["unit", "--rt", "2-3", "--level", "full"]);
    for line in
        ["shield create --rt 2-3 --level full\n", "ExecStop=", "shield undo\n", "RemainAfterExit=yes\n"]
    {
        assert!(unit.contains(line), "{line}: {unit}");
    }
}

#[test]
fn a_scheduler_is_refused_where_domains_were_cut_at_boot() {
    let machine = Machine::new();
    machine.write("proc/cmdline", "quiet isolcpus=domain,managed_irq,2-3\n");
    let before = machine.files();
    let said = machine.bad(&["create", "--rt", "2-3", "--mode", "artis"], 3);
    assert!(said.contains("isolcpus=") && said.contains("--mode shield"), "{said}");
    assert_eq!(machine.files(), before, "nothing has changed");
}

// NEEDS: machine
#[test]
fn root_without_schedulers_artis_is_refused_and_nothing_changes() {
    if fs::exists("/sys/kernel/sched_ext").expect("told") {
        skip!("this kernel has schedulers in eBPF");
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("told");
    let last = online.trim().rsplit([',', '-']).next().expect("a CPU");
    if last == "0" {
        skip!("one CPU cannot be divided");
    }
    let partitions = || fs::exists("/sys/fs/cgroup/rtscope-shield").expect("told");
    assert!(!partitions(), "a shield is there before");
    let output = crate::command::rtscope()
        .args(["shield", "create", "--rt", last, "--mode", "artis"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/sys/kernel/sched_ext") && said.contains("--mode shield"), "{said}");
    assert!(!partitions() && !fs::exists("/run/rtscope/shield.json").expect("told"), "something was changed");
}
