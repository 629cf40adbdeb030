// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope fds`: what it says is open is what /proc has, at any moment; and how that came about.

use crate::command::rtscope;
use nix::sys::signal::{Signal, killpg};
use rtscope_analyze::descriptors::{DescriptorLimits, DescriptorQuery, DescriptorReport};
use rtscope_event::Pid;
use rtscope_kernel::DescriptorSettings;
use rtscope_session::fds::Follower;

use rtscope_testkit::process::{Workload, wait_until};
use rtscope_testkit::random::Random;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Moments at which both are compared.
const INSTANTS: usize = 10;

/// What is compared of a descriptor: file system, file, close-on-exec, name.
type Open = (u64, u64, bool, String);

fn entries(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// Processes of a group, and the state of each thread.
fn group(pgid: u32) -> BTreeMap<u32, Vec<(PathBuf, char)>> {
    let mut processes = BTreeMap::new();
    for process in entries(Path::new("/proc")) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        let words = |path: &Path| -> Option<Vec<String>> {
            let stat = fs::read_to_string(path.join("stat")).ok()?;
            Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
        };
        if words(&process).is_none_or(|words| words[2] != pgid.to_string()) {
            continue;
        }
        let state = |task: PathBuf| {
            let state = words(&task)?.first()?.chars().next()?;
            Some((task, state))
        };
        processes.insert(pid, entries(&process.join("task")).into_iter().filter_map(state).collect());
    }
    processes
}

/// Stops all processes of the group, and waits until none of their threads runs. Those of io_uring do not stop, and have nothing to do then.
fn stop(pgid: u32) -> BTreeMap<u32, Vec<(PathBuf, char)>> {
    let mut before = BTreeMap::new();
    wait_until("all are stopped", || {
        killpg(nix::unistd::Pid::from_raw(pgid as i32), Signal::SIGSTOP).expect("it is there");
        let now = group(pgid);
        let is_quiet = |(task, state): &(PathBuf, char)| {
            let comm = fs::read_to_string(task.join("comm")).unwrap_or_default();
            "TtZX".contains(*state) || (*state == 'S' && comm.starts_with("iou-"))
        };
        let are_quiet = now.values().flatten().all(is_quiet) && now.keys().eq(before.keys());
        before = now;
        are_quiet
    });
    before
}

/// `(deleted)` is of the moment when it was asked; a file's path is that of the moment when it was told.
fn name(text: &str) -> String {
    text.trim_end_matches(" (deleted)").to_owned()
}

fn truth(tasks: &[(PathBuf, char)]) -> BTreeSet<(u32, Open)> {
    let mut all = BTreeSet::new();
    for (task, _) in tasks {
        for link in entries(&task.join("fd")) {
            let number = link.file_name().and_then(|name| name.to_str()).expect("a number");
            let file = fs::metadata(&link).expect("nothing runs");
            let device = libc::makedev(libc::major(file.dev()), libc::minor(file.dev()));
            let info = fs::read_to_string(task.join("fdinfo").join(number)).expect("nothing runs");
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
            let flags = u32::from_str_radix(flags.trim(), 8).expect("octal");
            let target = fs::read_link(&link).expect("nothing runs").to_string_lossy().into_owned();
            let cloexec = flags & libc::O_CLOEXEC as u32 != 0;
            all.insert((number.parse().expect("a number"), (device, file.ino(), cloexec, name(&target))));
        }
    }
    all
}

fn told(report: &DescriptorReport, pid: u32) -> BTreeSet<(u32, Open)> {
    let rows = report.descriptors.iter().filter(|row| row.pid.0 == pid);
    rows.map(|row| {
        let device = row.device.unwrap_or(0);
        let device = libc::makedev(device >> 20, device & 0xf_ffff);
        let name = name(row.file.as_deref().unwrap_or("?"));
        (row.fd, (device, row.inode.unwrap_or(0), row.cloexec, name))
    })
    .collect()
}

/// Follows for this time.
fn follow(follower: &mut Follower, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        follower.follow_up().expect("the kernel can be asked");
        std::thread::sleep(Duration::from_millis(5).min(end.saturating_duration_since(Instant::now())));
    }
}

// NEEDS: host
#[test]
fn root_descriptors_are_those_of_proc_at_random_instants() {
    let mut random = Random(7);
    let longest = if rtscope_testkit::full() { 120_000 } else { 700 };
    let mut churn = Workload::start("rtscope-descriptors", ["--seed", "7"]).expect("it is built");
    let pgid = churn.pid();
    let settings =
        DescriptorSettings { ring_bytes: 32 << 20, processes: Some(vec![Pid(pgid)]), with_self: false };
    let mut follower = Follower::start(&settings, DescriptorLimits::default()).expect("it can be followed");
    churn.tell(b"!").expect("it waits");
    let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
    let mut compared = 0;
    for instant in 0..INSTANTS {
        follow(&mut follower, Duration::from_millis(random.below(longest) + 100));
        let processes = stop(pgid);
        follower.catch_up().expect("the kernel can be asked");
        let query = DescriptorQuery { with_closed: true, ..DescriptorQuery::default() };
        let report = follower.report(&query);
        report
            .descriptors
            .iter()
            .filter_map(|row| row.given.by.call)
            .for_each(|call| *calls.entry(call).or_default() += 1);
        let open = DescriptorReport {
            descriptors: report.descriptors.iter().filter(|row| row.closed.is_none()).cloned().collect(),
            ..DescriptorReport::default()
        };
        for (pid, tasks) in &processes {
            let (truth, told) = (truth(tasks), told(&open, *pid));
            let missing: Vec<_> = truth.difference(&told).collect();
            let invented: Vec<_> = told.difference(&truth).collect();
            assert!(
                missing.is_empty() && invented.is_empty(),
                "instant {instant}, process {pid}: missing {missing:#?}, invented {invented:#?}, {:?}",
                follower.losses()
            );
            compared += truth.len();
        }
        let is_there = |pid: &Pid| processes.contains_key(&pid.0);
        let gone: Vec<_> = open.descriptors.iter().map(|row| row.pid).filter(|pid| !is_there(pid)).collect();
        assert!(gone.is_empty(), "instant {instant}: {gone:?} have ended");
        killpg(nix::unistd::Pid::from_raw(pgid as i32), Signal::SIGCONT).expect("it is there");
    }
    let (losses, (scans, records)) = (follower.losses(), follower.effort());
    println!(
        "{compared} descriptors compared, {records} records, {scans} scans, {losses:?}, given by {calls:?}"
    );
    assert!(compared > 100 * INSTANTS, "too few to prove anything: {compared}");
    // It was followed, not looked up again and again. A file that is closed before the call that opened it returns may still be known by a copy only:
    // then all is told again, too.
    assert!(scans <= 1 + INSTANTS as u64 / 3 || losses.holes() > 0, "{scans} scans");
    let ways = [
        "openat",
        "dup",
        "dup2",
        "dup3",
        "fcntl",
        "pipe2",
        "socketpair",
        "recvmsg",
        "accept4",
        "pidfd_getfd",
    ];
    for way in ways {
        assert!(calls.contains_key(way), "nothing came by {way}: {calls:?}");
    }
}

/// The descriptors that `rtscope fds --json` prints of a command in a shell.
fn of_command(options: &[&str], script: &str) -> Value {
    let mut command = rtscope();
    command.args(["fds", "--json"]).args(options).args(["--", "sh", "-c", script]);
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one object")
}

// NEEDS: one kernel
#[test]
fn root_it_says_who_opened_what_and_how_it_was_closed() {
    let report = of_command(
        &["--path", "/etc/passwd"],
        "exec 7</etc/passwd; exec 9<&7; exec 7<&-; (sleep 0.01; true); true",
    );
    let rows = report["descriptors"].as_array().expect("an array");
    let of = |fd: u64, closed: &str| {
        let found = rows.iter().find(|row| row["fd"] == fd && row["closed"]["by"] == closed);
        found.unwrap_or_else(|| panic!("no {fd} that was closed by {closed}: {rows:#?}"))
    };
    assert!(rows.iter().all(|row| row["file"] == "/etc/passwd"), "{rows:#?}");
    let seven = of(7, "call");
    assert_eq!((&seven["closed"]["call"], &seven["opened"]["call"]), (&"close".into(), &"openat".into()));
    // The shell has it to its end; so has its child, which inherited it.
    let nine = of(9, "exit");
    assert_eq!(nine["opened"], seven["opened"], "it is the same open file");
    let inherited = rows.iter().find(|row| row["given"]["reached"] == "inherited");
    let inherited = inherited.unwrap_or_else(|| panic!("{rows:#?}"));
    assert_eq!((&inherited["fd"], &inherited["opened"]), (&9.into(), &seven["opened"]));
    assert_eq!((&report["scans"], &report["losses"]["ring_full"]), (&1.into(), &0.into()));
}

// NEEDS: host
#[test]
fn root_what_finds_no_room_is_counted_and_looked_up_again() {
    let script = "i=0; while [ $i -lt 4000 ]; do exec 7</etc/passwd; i=$((i+1)); done; sleep 1.2; exec 8</etc/group; sleep 0.2";
    let report = of_command(&["--buffer", "64K"], script);
    assert!(report["losses"]["ring_full"].as_u64() > Some(0), "{}", report["losses"]);
    assert!(report["scans"].as_u64() > Some(1), "{}", report["scans"]);
    let rows = report["descriptors"].as_array().expect("an array");
    let is_last =
        |row: &&Value| row["fd"] == 7 && row["file"] == "/etc/passwd" && row["closed"]["by"] == "exit";
    assert!(rows.iter().any(|row| is_last(&row)), "{rows:#?}");
}

// NEEDS: one kernel
#[test]
fn root_lsof_sees_the_same_files() {
    if rtscope_testkit::skip::without_tool("lsof") {
        return;
    }
    let mut sleeper = Command::new("sleep");
    let sleeper = rtscope_testkit::process::KilledWithTest::start(sleeper.arg("60")).expect("it is there");
    let pid = sleeper.id().to_string();
    wait_until("it sleeps", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
    });
    let output = rtscope().args(["fds", "--pid", &pid, "--open", "--duration", "100ms", "--json"]).output();
    let report: Value = serde_json::from_slice(&output.expect("it runs").stdout).expect("one object");
    let rows = report["descriptors"].as_array().expect("an array");
    let ours: BTreeSet<(u64, u64)> = rows
        .iter()
        .map(|row| (row["fd"].as_u64().expect("fd"), row["inode"].as_u64().expect("inode")))
        .collect();
    let output = Command::new("lsof").args(["-n", "-P", "-F", "fi", "-p", &pid]).output().expect("it runs");
    let (mut theirs, mut fd) = (BTreeSet::new(), None);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_at(1) {
            ("f", number) => fd = number.parse::<u64>().ok(),
            ("i", inode) => {
                theirs.extend(fd.zip(inode.parse::<u64>().ok()));
            }
            _ => {}
        }
    }
    assert!(theirs.len() >= 3, "{theirs:?}");
    assert_eq!(ours, theirs);
}
