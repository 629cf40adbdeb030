// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hist`, judged by counters of the kernel in the same run: perf's of a tracepoint, and those of a block device.

use crate::command::{count, json_lines, rtscope};
use crate::json::assert_documented;
use crate::watch::pairs::{CALLS, PLACES, begin, end};
use crate::watch::work;
use rtscope_testkit::count::{Counters, Mark, windows};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A copy of a program under a name that nothing else has.
pub fn named(directory: &Path, program: &str, name: &str) -> String {
    let path = directory.join(name);
    let found = ["/bin", "/usr/bin"].into_iter().map(|place| Path::new(place).join(program));
    let original = found.into_iter().find(|path| path.exists()).expect("a usual program");
    std::fs::copy(original, &path).expect("a temporary directory");
    path.to_str().expect("text").to_owned()
}

/// Counters of what tasks with a name do.
pub struct Perf {
    counters: Counters,
    from: Vec<Mark>,
}

impl Perf {
    pub fn of(events: &[&str], comm: &str) -> Option<Perf> {
        let counters = Counters::for_test(events)?;
        counters.filter(&format!("comm == \"{comm}\"")).expect("a filter");
        let from = counters.mark().expect("counters can be read");
        Some(Perf { counters, from })
    }

    /// How often each event came, on all CPUs.
    pub fn counted(&self) -> Vec<u64> {
        let windows = windows(self.from.clone(), self.counters.mark().expect("counters can be read"));
        let events = 0..self.counters.events().len();
        events.map(|event| windows.iter().map(|window| window.count(event)).sum()).collect()
    }
}

fn of_key<'a>(report: &'a Value, name: &str) -> &'a Value {
    let keys = report["keys"].as_array().expect("keys");
    keys.iter().find(|key| key["name"] == name).unwrap_or_else(|| panic!("no key {name} in {report}"))
}

/// A counter of an object in an object.
fn figure(key: &Value) -> u64 {
    count(&key["figures"], "count")
}

/// The last line of what it prints: all of it.
fn total(command: &mut Command) -> Value {
    let lines = json_lines(command);
    let total = lines.last().expect("a report").clone();
    assert_documented(&total);
    assert_eq!(total["kind"], "total");
    total
}

/// The shell says which processes it has made: each of them becomes another program once.
// NEEDS: host
#[test]
fn root_pairs_of_tracepoints_are_counted_exactly_by_the_field_that_they_have_in_common() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = named(directory.path(), "true", "hist-true");
    let pids = directory.path().join("pids");
    // Others end no pair: a fork without exec, and the exec of what was forked before.
    let script = format!(
        "for i in $(seq 40); do {program} & echo $! >> {}; wait; (:); done; exec {program}",
        pids.display()
    );
    let mut command = rtscope();
    command.args(["hist", "pair", "--from", "sched:sched_process_fork", "--to", "sched:sched_process_exec"]);
    command.args(["--key", "child_pid=pid", "--by", "field", "--json", "--task", "hist-true"]);
    let total = total(command.args(["--", "sh", "-c", &script]));
    assert_eq!(total["between"], "sched:sched_process_fork -> sched:sched_process_exec by child_pid=pid");
    let made = std::fs::read_to_string(pids).expect("the shell writes it");
    let mut made: Vec<u64> = made.lines().map(|pid| pid.parse().expect("a number")).collect();
    made.sort_unstable();
    let keys = total["keys"].as_array().expect("keys");
    let mut counted: Vec<u64> = keys.iter().map(|key| count(key, "id")).collect();
    counted.sort_unstable();
    assert_eq!(counted, made);
    assert!(keys.iter().all(|key| figure(key) == 1), "{keys:?}");
    // The shell's own process was made before anything was counted.
    let losses = &total["losses"];
    assert_eq!((count(losses, "without_begin"), count(losses, "given_up")), (1, 0), "{losses}");
}

// NEEDS: host
#[test]
fn root_beginnings_that_do_not_end_make_room_for_pairs_that_are_counted() {
    const BEGINNINGS: u64 = 40_000;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let tid = nix::unistd::gettid().to_string();
    let words = [&["hist", "pair"][..], &CALLS, &["--tid", &tid, "--json", "--interval", "200ms"]].concat();
    let mut command = rtscope();
    command.args(words);
    let mut counting = Rtscope::start(command).expect("it starts");
    counting.wait_for_note("counting").expect("it counts");
    (0..BEGINNINGS).for_each(begin);
    // More than found no place: older ones have made room.
    let is_made = |line: &Value| count(&line["losses"], "given_up") > 2 * (BEGINNINGS - PLACES);
    counting.wait_for("that room was made", is_made).expect("it goes on");
    for who in BEGINNINGS..BEGINNINGS + 1000 {
        begin(who);
        end(who);
    }
    let said = counting.stop().expect("it stops");
    let total = said.lines.last().expect("all of it");
    assert_eq!((&total["kind"], count(total, "count")), (&"total".into(), 1000), "{}", total["losses"]);
}

// NEEDS: host
#[test]
fn root_what_pairs_lack_is_said() {
    for (words, why) in [
        (&["hist", "pair"][..], "--from EVENT --to EVENT"),
        (&["hist", "irq", "--from", "irq:irq_handler_entry", "--to", "irq:irq_handler_exit"], "irq has none"),
        (
            &["hist", "pair", "--from", "a:b", "--to", "c:d", "--by", "cgroup"],
            "events of programs do not say",
        ),
        (&["hist", "pair", "--from", "irq:softirq_raise", "--to", "c:d"], "is a tracepoint of the kernel"),
        (&["hist", "pair", "--from", "a:b"], "--to"),
        (&["hist", "irq", "--by", "field"], "irq has none"),
    ] {
        let refused = rtscope().args(words).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

// The program of a guest is busybox, which goes by its name.
// NEEDS: host
#[test]
fn root_calls_are_counted_exactly_by_call_and_in_all_intervals() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let calls = ["syscalls:sys_exit_read", "syscalls:sys_exit_write"];
    let Some(perf) = Perf::of(&calls, "hist-dd") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dd = named(directory.path(), "dd", "hist-dd");
    let mut command = rtscope();
    command.args(["hist", "syscall", "--calls", "read,write", "--by", "syscall", "--interval", "50ms"]);
    command.args([
        "--json",
        "--",
        &dd,
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        "count=300000",
        "status=none",
    ]);
    let lines = json_lines(&mut command);
    let (total, intervals) = lines.split_last().expect("reports");
    lines.iter().for_each(assert_documented);
    let expected = perf.counted();
    assert!(expected.iter().all(|count| *count >= 300_000), "{expected:?}");
    let found = ["read", "write"].map(|name| figure(of_key(total, name)));
    assert_eq!(found.to_vec(), expected);
    assert_eq!(count(total, "count"), expected.iter().sum::<u64>());
    assert!(intervals.len() > 1 && intervals.iter().all(|report| report["kind"] == "interval"));
    let in_intervals: u64 = intervals.iter().map(|report| count(report, "count")).sum();
    let over_time: u64 = total["over_time"]["slices"]
        .as_array()
        .expect("slices")
        .iter()
        .flat_map(|slice| slice.as_object().expect("an object").values())
        .map(|count| count.as_u64().expect("a number"))
        .sum();
    // The last interval is cut short by the end, and only in the sum.
    assert!(in_intervals <= expected.iter().sum() && over_time == expected.iter().sum::<u64>());
    assert_eq!(count(&total["losses"], "without_key"), 0);
}

// The program of a guest is busybox, which goes by its name.
// NEEDS: host
#[test]
fn root_what_finds_no_cell_is_counted_and_said() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(perf) = Perf::of(&["syscalls:sys_exit_write"], "hist-few") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dd = named(directory.path(), "dd", "hist-few");
    let mut command = rtscope();
    // 64 cells; the calls of one thread alone last so differently that they need more.
    command.args(["hist", "syscall", "--calls", "*", "--by", "syscall", "--cells", "64", "--json", "--"]);
    command.args([&dd, "if=/dev/zero", "of=/dev/null", "bs=1", "count=300000", "status=none"]);
    let total = total(&mut command);
    let without = count(&total["losses"], "without_key");
    assert!(without > 0, "{}", total["losses"]);
    let keyed: u64 = total["keys"].as_array().expect("keys").iter().map(figure).sum();
    assert_eq!(count(&total, "count"), keyed + without);
    assert!(count(&total, "count") >= perf.counted()[0]);
    let mut text = rtscope();
    text.args(["hist", "syscall", "--calls", "*", "--by", "syscall", "--cells", "64", "--"]);
    text.args([&dd, "if=/dev/zero", "of=/dev/null", "bs=1", "count=300000", "status=none"]);
    let text = text.output().expect("it runs");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("under no key and in no figure"), "{text}");
}

fn run(words: &[&str]) -> Option<String> {
    let output = Command::new(words[0]).args(&words[1..]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device on 8 MiB, until it is dropped.
pub struct Loop(String);

impl Loop {
    /// With its file in this directory. `None`: there are none here.
    pub fn new(directory: &Path) -> Option<Loop> {
        let file = directory.join("disk");
        std::fs::write(&file, vec![0; 8 << 20]).expect("room");
        run(&["losetup", "-f", "--show", file.to_str().expect("text")]).map(Loop)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Without the directory.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().expect("a name")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(&["losetup", "-d", &self.0]);
    }
}

/// Reads that a disk has completed, by its own count.
pub fn reads(disk: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/block/{disk}/stat")).expect("a disk");
    stat.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

// NEEDS: one kernel
#[test]
fn root_requests_are_counted_exactly_by_disk_until_ctrl_c() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = Loop::new(directory.path()) else { skip!("there is no loop device here") };
    let name = disk.name().to_owned();
    let svg = directory.path().join("heat.svg");
    let mut command = rtscope();
    command.args(["hist", "block", "--by", "device", "--json", "--svg"]).arg(&svg);
    let before_all = reads(&name);
    let mut hist = Rtscope::start(command).expect("it starts");
    hist.wait_for_note("counting block").expect("it counts");
    let before = reads(&name);
    let path = format!("if={}", disk.path());
    run(&["dd", &path, "of=/dev/null", "bs=4096", "count=1500", "iflag=direct", "status=none"])
        .expect("it reads");
    let after = reads(&name);
    let output = hist.stop().expect("it stops");
    let after_all = reads(&name);
    assert_eq!(output.code(), Some(0), "{:?}", output.notes);
    let total = output.lines.last().expect("a report");
    assert_documented(total);
    let found = figure(of_key(total, &name));
    // Others (udev) may look at the disk as well: between the outer and the inner readings.
    let (least, most) = (after - before, after_all - before_all);
    assert!(least >= 1500 && (least..=most).contains(&found), "{found} of {least} to {most}");
    assert_eq!(count(&total["losses"], "unended"), 0);
    let picture = std::fs::read_to_string(svg).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.contains("block of all block devices"));
}

// NEEDS: host
#[test]
fn root_a_key_that_there_is_not_is_refused_with_those_that_there_are() {
    let refused = rtscope().args(["hist", "block", "--by", "softirq"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("task, process, cgroup, cpu, device, operation"), "{said}");
    for wrong in [
        &["hist", "locks"][..],
        &["hist", "block", "--by", "sector"],
        &["hist", "block", "--by", "device", "--sort", "size"],
        &["hist", "block", "--sort", "longest"],
    ] {
        assert_eq!(rtscope().args(wrong).output().expect("it runs").status.code(), Some(2), "{wrong:?}");
    }
}

/// Each tracker and key is a program of its own to the verifier.
fn counted(cases: &[(&str, &str)]) {
    for &(tracker, by) in cases {
        let mut command = rtscope();
        command.args(["hist", tracker, "--by", by, "--duration", "300ms", "--json"]);
        // `irqoff` leaves idle CPUs out.
        let busy = (tracker == "irqoff")
            .then(|| KilledWithTest::start(Command::new("sh").args(["-c", "while :; do :; done"])));
        let _busy = busy.transpose().expect("a shell");
        let total = total(&mut command);
        let is_certain = matches!(tracker, "wakeup" | "syscall" | "irq" | "irqoff");
        assert!(!is_certain || count(&total, "count") > 0, "{tracker} by {by}: {total}");
        let keyed: u64 = total["keys"].as_array().expect("keys").iter().map(figure).sum();
        let without = count(&total["losses"], "without_key");
        assert_eq!(keyed + without, count(&total, "count"), "{tracker} by {by}");
    }
}

// NEEDS: one kernel
#[test]
fn root_every_tracker_of_tasks_is_counted_by_every_key_that_it_has() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    counted(&[
        ("response", "interrupt"),
        ("wakeup", "task"),
        ("offcpu", "process"),
        ("syscall", "device"),
        ("syscall", "cgroup"),
        ("lock", "syscall"),
    ]);
}

// NEEDS: one kernel
#[test]
fn root_every_tracker_of_the_kernel_is_counted_by_every_key_that_it_has() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    counted(&[
        ("irq", "interrupt"),
        ("softirq", "softirq"),
        ("block", "operation"),
        ("preemptoff", "cpu"),
        ("irqoff", "cpu"),
    ]);
}

// The program of a guest is busybox, which goes by its name.
// NEEDS: host
#[test]
fn root_keys_come_in_the_order_that_was_asked_for() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dd = named(directory.path(), "dd", "hist-dd");
    let sleep = named(directory.path(), "sleep", "hist-sleep");
    // One long call, and many short ones.
    let script = format!("{dd} if=/dev/zero of=/dev/null bs=1 count=10000 status=none; {sleep} 0.5");
    for (order, first) in [("total", "clock_nanosleep"), ("longest", "clock_nanosleep"), ("number", "read")] {
        let mut command = rtscope();
        command.args(["hist", "syscall", "--calls", "read,clock_nanosleep", "--by", "syscall", "--json"]);
        command.args(["--task", "hist-*", "--sort", order, "--", "sh", "-c", &script]);
        let total = total(&mut command);
        let keys = total["keys"].as_array().expect("keys");
        assert_eq!((keys.len(), &keys[0]["name"]), (2, &Value::from(first)), "{order}: {total}");
    }
}

#[test]
fn places_that_no_kernel_side_has_are_refused() {
    for command in [&["hist", "wakeup"][..], &["io-profile"]] {
        for (cells, is_known) in [("63", true), ("4194305", true), ("many", false)] {
            let output =
                crate::command::rtscope().args(command).args(["--cells", cells]).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command:?} {cells}: {said}");
            assert_eq!(said.contains("64..=4194304"), is_known, "{said}");
        }
    }
}

/// What the program (crates/testkit/c/work.c) says of its pieces: the third of its threads, and the sums of the shortest and longest that they can have
/// been.
fn pieces(told: &str) -> (u64, u64, u64) {
    let (first, rows) = told.split_once('\n').expect("its threads");
    let third = first.split(' ').nth(3).expect("three threads").parse().expect("a number");
    let times = rows.lines().map(|row| {
        let row: Vec<u64> = row.split(' ').map(|word| word.parse().expect("a number")).collect();
        (row[3] - row[2], row[4] - row[1])
    });
    let (least, most) = times.fold((0, 0), |(least, most), row| (least + row.0, most + row.1));
    (third, least, most)
}

/// Of 100 pieces, by the record and by the program.
fn assert_pieces(total: &Value, told: &str) {
    const COUNT: u64 = 100;
    /// Between a stamp and the clock of the events, which is converted.
    const NEAR_NS: u64 = 30_000;
    let (third, least, most) = pieces(told);
    assert_eq!(total["between"], "work:begin -> work:end by cookie");
    let [key] = total["keys"].as_array().expect("keys").as_slice() else { panic!("{total}") };
    assert_eq!((count(key, "id"), figure(key)), (third, COUNT), "{total}");
    assert_eq!(key["name"], format!("work ({third})"));
    let sum_ns = count(key, "sum_ns");
    let near_ns = COUNT * NEAR_NS;
    assert!((least - near_ns.min(least)..=most + near_ns).contains(&sum_ns), "{least} {sum_ns} {most}");
    let losses = total["losses"].as_object().expect("an object");
    let of_programs = losses["programs"].as_object().expect("an object");
    let all = losses.iter().filter(|(name, _)| *name != "programs").chain(of_programs);
    all.for_each(|(cause, count)| assert_eq!(count, 0, "{cause}: {total}"));
}

#[test]
fn work_is_counted_once_by_the_thread_that_ends_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = work::compiled(directory.path()) else { return };
    let record = directory.path().join("hist.json");
    let json = format!("--json={}", record.display());
    let counted = |by: &str| {
        let mut command = rtscope();
        command.args(["hist", "work", "--by", by, "--interval", "100ms", &json, "--"]);
        let output = command.arg(&program).arg("100").output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let text = std::fs::read_to_string(&record).expect("it was written");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(lines.len() > 5, "a second, in tenths: {}", lines.len());
        std::fs::remove_file(&record).expect("it is there");
        let total = lines.last().expect("a report").clone();
        assert_documented(&total);
        (total, String::from_utf8(output.stdout).expect("text"))
    };
    let (total, told) = counted("task");
    assert_pieces(&total, &told);
    let (total, _) = counted("field");
    let keys = total["keys"].as_array().expect("keys");
    let mut cookies: Vec<u64> = keys.iter().map(|key| count(key, "id")).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..100).collect::<Vec<u64>>());
    assert!(keys.iter().all(|key| figure(key) == 1), "{total}");
    // What cannot be had is refused, with what can.
    let refused = |words: &[&str]| {
        let output = rtscope().arg("hist").args(words).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(refused(&["work", "--by", "cgroup"]).contains("task, process, cpu, field"));
    assert!(refused(&["work", "--from", "a:b", "--to", "c:d"]).contains("events of its own"));
    assert!(refused(&["werk"]).contains("pair, work"));
}

// NEEDS: host
#[test]
fn root_a_user_counts_the_work_of_his_own_programs() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = work::compiled(directory.path()) else { return };
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), readable).expect("it is root's");
    let copy = directory.path().join("rtscope");
    std::fs::copy(rtscope().get_program(), &copy).expect("a temporary directory");
    let record = directory.path().join("hist.json");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=12347", "--regid=12347", "--clear-groups"]).arg(&copy);
    command.args(["hist", "work", "--by", "task"]).arg(format!("--json={}", record.display()));
    let output = command.arg("--").arg(&program).arg("100").output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&record).expect("it was written");
    let total = text.lines().last().expect("a report");
    assert_pieces(&serde_json::from_str(total).expect("JSON"), &String::from_utf8_lossy(&output.stdout));
}
