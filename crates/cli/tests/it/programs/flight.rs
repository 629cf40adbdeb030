// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flight recorders of programs and of the kernel: what a snapshot has, what asks for one, and what they leave.

use super::c::{EmitterFixture, babeltrace2, emitted};
use super::fixture::{Fixture, Recorded, flight_recorder, interrupt};
use crate::command::{field, rtscope};
use rtscope_abi::program as abi;
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::program_files::{self, PID, provider_name, put32, put64, record_word, ring_name};
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

// NEEDS: host
#[test]
fn root_a_flight_recorder_of_the_kernel_has_each_event_that_was_asked_for_and_names_new_threads() {
    if skip::without_watching() || skip::without_tool("babeltrace2") {
        return;
    }
    let fixture = Fixture::new();
    // Of those that eBPF records, some fire with interrupts off and some do not.
    let asked = ["sched_switch", "sched_process_fork", "sched_process_exec", "irq_softirq_entry"];
    let patterns = "sched:sched_switch,sched:sched_process_fork,sched:sched_process_exec,irq:softirq_entry";
    let (recorder, _said) = flight_recorder(&fixture, &["-k", patterns, "--buffer", "1M"]);
    // A name that was nowhere when the recording began.
    let late = fixture.path("late-comer");
    std::os::unix::fs::symlink("/bin/sleep", &late).expect("it can be linked");
    let mut child = Command::new(&late).arg("0.05").spawn().expect("it can be started");
    let (tid, _) = (child.id(), child.wait().expect("it ends"));
    let output = interrupt(recorder);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut accounts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let account = accounts.find(|account| account["schema"] == "rtscope.record/1").expect("the kernel's");
    let recorded = account["by_event"].as_object().expect("an object");
    for name in asked {
        assert!(recorded.get(name).and_then(Value::as_u64) > Some(0), "no {name}: {account}");
    }
    assert_eq!(recorded.len(), asked.len(), "nothing else is counted: {account}");
    let lines = babeltrace2(&fixture.trace().join("1/kernel")).expect("it is there");
    let comes = format!("next_tid = {tid},");
    assert!(
        lines.iter().any(|line| line.contains(&comes) && line.contains("next_comm = \"late-comer\"")),
        "thread {tid} has no name: {:?}",
        lines.iter().filter(|line| line.contains(&comes)).take(3).collect::<Vec<_>>()
    );
}

/// The events of a trace of `emitter paced`: time (CLOCK_REALTIME) and number.
fn numbered(trace: &Path) -> Option<Vec<(f64, u64)>> {
    let output = Command::new("babeltrace2").arg("--clock-seconds").arg(trace).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    let number = |text: &str| text.split(',').next().and_then(|number| number.trim().parse().ok());
    let event = |line: &str| -> Option<(f64, u64)> {
        let time = line.trim_start_matches('[').split(']').next()?.parse().ok()?;
        Some((time, number(line.split("{ n = ").nth(1)?)?))
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(|line| event(line).unwrap_or_else(|| panic!("an event: {line}"))).collect())
}

#[test]
fn a_flight_recorder_saves_the_newest_events_when_asked() {
    let Some(fixture) = EmitterFixture::new() else { return };
    let (recorder, _said) = flight_recorder(&fixture, &["--user-buffer", "64K"]);
    // It writes all the time, until it is killed. 64 KiB hold some 2700 of its events.
    let mut child =
        Command::new(&fixture.emitter).args(["paced", "1000000000"]).spawn().expect("it can be started");
    let ask = || {
        let asked = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let output = rtscope().arg("snapshot").output().expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        let trace = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        (asked.as_secs_f64(), trace)
    };
    let (mut last, mut wrapped, mut number) = (0, 0, 0);
    while wrapped < 3 {
        let (asked, trace) = ask();
        number += 1;
        assert_eq!(trace, fixture.trace().join(number.to_string()).canonicalize().expect("there"));
        let Some(events) = numbered(&trace) else { break };
        let Some((newest, end)) = events.last().copied() else { continue };
        // The newest: written after it was asked for. And in a row, none is missing before it.
        assert!(newest >= asked, "the newest is {} s older than the question", asked - newest);
        assert!(end > last, "it went on");
        let begin = events[0].1;
        let row: Vec<u64> = events.iter().map(|(_, number)| *number).collect();
        assert_eq!(row, (begin..=end).collect::<Vec<_>>());
        if begin > 0 {
            assert!((1000..3000).contains(&events.len()), "{}", events.len());
            wrapped += 1;
        }
        last = end;
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    interrupt(recorder);
    assert!(fixture.trace().join((number + 1).to_string()).is_dir(), "the end saves, too");
}

// NEEDS: host
#[test]
fn root_a_snapshot_has_programs_events_between_the_switches_of_their_thread() {
    if skip::without_watching() {
        return;
    }
    let Some(fixture) = EmitterFixture::new() else { return };
    let snapshots = fixture.dir.path().join("snapshots");
    fs::create_dir(&snapshots).expect("a temporary directory");
    let mut victim = Command::new(&fixture.emitter).args(["iterations"]).spawn().expect("it can be started");
    let path = snapshots.to_str().expect("plain");
    let mut watch = rtscope_testkit::watch::Rtscope::watch(&[
        "--task",
        "e2e-iterations",
        "--threshold",
        "50us",
        "--rate",
        "5/s",
        "--pre",
        "100ms",
        "--post",
        "10ms",
        "--snapshot-dir",
        path,
        "-u",
        "test:*",
    ])
    .expect("watches");
    (0..4).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    victim.kill().expect("it runs");
    victim.wait().expect("it ends");
    watch.stop().expect("stops");
    let mut inside = 0;
    for snapshot in fs::read_dir(&snapshots).expect("there") {
        let snapshot = snapshot.expect("readable").path();
        let Some(lines) = babeltrace2(&snapshot) else { return };
        inside += inside_their_turn(&lines, &victim.id().to_string());
    }
    assert!(inside >= 8, "{inside} events between the switches of their thread");
}

/// One of its events asks for a snapshot, without a system call: it is in the snapshot, with what was before it.
#[test]
fn an_event_asks_a_flight_recorder_for_a_snapshot() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("orders.c", &[], "orders") else { return };
    let (recorder, mut said) =
        flight_recorder(&fixture, &["--snapshot-on", "test:error", "--snapshots", "2"]);
    let run = || {
        let output = Command::new(&program).arg("100").output().expect("it can be started");
        assert_eq!(emitted(&output), 400);
    };
    run();
    let first = fixture.trace().join("1");
    wait_until("the first snapshot", || first.join("ust/metadata").is_file());
    let lines = super::fixture::lines(&first);
    assert!(lines.iter().any(|line| line.contains("test:error")), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("test:order:")).count(), 100);
    // Nobody asks for one of these.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(!fixture.trace().join("2").exists());
    // The second one comes when a second has passed, however many ask.
    (0..3).for_each(|_| run());
    wait_until("the second snapshot", || fixture.trace().join("2/ust/metadata").is_file());
    // Nor is there another one than was allowed, until the end, which saves, too.
    run();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(!fixture.trace().join("3").exists());
    interrupt(recorder);
    assert!(fixture.trace().join("3").is_dir() && !fixture.trace().join("4").exists());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("text");
    assert!(!rest.contains("overwritten before"), "{rest}");
    assert!(rest.contains("2 traces were saved because of --snapshot-on, and no more will be"), "{rest}");
}

// NEEDS: host
#[test]
fn root_a_program_that_asks_for_snapshots_for_ever_leaves_other_users_theirs() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.program("orders.c", &[], "orders") else { return };
    let (recorder, mut said) =
        flight_recorder(&fixture, &["--snapshot-on", "test:error", "--snapshots", "2"]);
    let of_user = |user: &str, command: &[&str]| {
        let mut all = Command::new("setpriv");
        all.args(["--reuid", user, "--regid", user, "--clear-groups"]).args(command).arg(&program);
        all.stdout(Stdio::null());
        all
    };
    let _liar = KilledWithTest::start(&mut of_user(
        "12345",
        &["sh", "-c", "for n in $(seq 1000); do \"$0\" 100; done; sleep 60"],
    ))
    .expect("it can be started");
    let saved = |number: &str| fixture.trace().join(number).join("ust/metadata").is_file();
    wait_until("the liar's snapshot", || saved("1"));
    // It asks on: a second later there would be the next one, and that was the last.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!saved("2"), "half of them are for others");
    let mut honest = of_user("12346", &[]).arg("100").spawn().expect("it can be started");
    wait_until("the other user's snapshot", || saved("2"));
    let mine = format!("vpid = {},", honest.id());
    honest.wait().expect("it ends");
    let lines = super::fixture::lines(&fixture.trace().join("2"));
    assert!(lines.iter().any(|line| line.contains("test:error") && line.contains(&mine)), "{mine}");
    interrupt(recorder);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("text");
    for told in [
        "of the traces saved because of --snapshot-on (1), programs of user 12345 have asked for 1, which is their share (--snapshots)",
        "2 traces were saved because of --snapshot-on, and no more will be (--snapshots)",
        "programs of user 12345 asked for",
    ] {
        assert_eq!(rest.matches(told).count(), 1, "{told}: {rest}");
    }
    assert!(!rest.contains("user 12346"), "{rest}");
}

// NEEDS: host
#[test]
fn root_a_trace_of_one_user_that_takes_long_to_write_holds_up_nobody_elses() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.program("orders.c", &[], "orders") else { return };
    let (recorder, _said) = flight_recorder(&fixture, &["--snapshot-on", "test:error"]);
    let of_user = |user: &str, script: &str| {
        let mut all = Command::new("setpriv");
        all.args(["--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", script]).arg(&program);
        all.stdout(Stdio::null());
        KilledWithTest::start(&mut all).expect("it can be started")
    };
    // Millions of events in two buffers, and each other of them asks.
    let _liar = of_user("12345", "RTSCOPE_BUFFER=128M exec \"$0\" 6000000");
    let honest = of_user("12346", "for n in $(seq 100); do RTSCOPE_BUFFER=64K \"$0\" 10; done");
    // They are numbered as they were copied, and have their names when they are written.
    let has = |number: u64| fixture.trace().join(number.to_string()).is_dir();
    let mut passed = None;
    wait_until("a trace that is there before one that was copied earlier", || {
        passed = (2..100).find(|number| (1..*number).any(|earlier| !has(earlier)) && has(*number));
        passed.is_some()
    });
    drop(honest);
    let lines = super::fixture::lines(&fixture.trace().join(passed.unwrap_or(0).to_string()));
    assert!(lines.iter().any(|line| line.contains("test:error")), "{passed:?}: {lines:?}");
    let output = interrupt(recorder);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let accounts: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    accounts.iter().for_each(crate::json::assert_documented);
    let (last, others) = accounts.split_last().expect("it saved traces");
    assert!(others.iter().all(|account| account.get("snapshots_by_user").is_none()), "{text}");
    let asked = last["snapshots_by_user"].as_array().expect("an array");
    let users: Vec<Option<u64>> = asked.iter().map(|user| user["uid"].as_u64()).collect();
    assert_eq!(users, [Some(12345), Some(12346)]);
    assert!(asked.iter().all(|user| user["saved"].as_u64() >= Some(1)), "{asked:?}");
}

#[test]
fn what_snapshots_of_events_take_is_limited() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("orders.c", &[], "orders") else { return };
    // Less than any trace has: the first one may be of one event.
    let (recorder, mut said) =
        flight_recorder(&fixture, &["--snapshot-on", "test:error", "--snapshots-size", "1K"]);
    let run = || assert_eq!(emitted(&Command::new(&program).arg("100").output().expect("it is there")), 400);
    run();
    wait_until("the first snapshot", || fixture.trace().join("1/ust/metadata").is_file());
    std::thread::sleep(std::time::Duration::from_millis(1100));
    run();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!fixture.trace().join("2").exists());
    let output = interrupt(recorder);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("text");
    assert!(
        rest.contains("1 trace was saved because of --snapshot-on, and no more will be (--snapshots-size)"),
        "{rest}"
    );
    assert!(rest.contains("asked for 1 more trace (one a second at most)"), "{rest}");
    // The last one is no event's.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let accounts: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(accounts.last().map(|last| last["events"].as_u64()), Some(Some(800)), "{text}");
}

/// Whose events are left out asks for nothing.
#[test]
fn an_event_that_a_filter_leaves_out_asks_for_no_snapshot() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("orders.c", &[], "orders") else { return };
    let options = ["--snapshot-on", "test:error", "--comm", "another"];
    let (recorder, _said) = flight_recorder(&fixture, &options);
    let output = Command::new(&program).arg("100").output().expect("it can be started");
    assert_eq!(emitted(&output), 400);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!fixture.trace().join("1").exists());
    interrupt(recorder);
    assert!(fixture.trace().join("1").is_dir(), "the end saves");
}

/// A ring of this user's in which each other record is open: the program lies, and what is complete is in as many pieces as there can be.
struct RingInPieces(Vec<PathBuf>);

impl RingInPieces {
    const BYTES: usize = 32 << 20;
    const SUB_BUFFER_BYTES: usize = RingInPieces::BYTES / 16;
    /// Up to the head, which leaves the newest sub-buffer unfinished: else the oldest one is given up.
    const HEAD: usize = RingInPieces::BYTES - 64;

    fn new() -> RingInPieces {
        let directory = PathBuf::from(format!("/dev/shm/rtscope-{}", nix::unistd::geteuid()));
        // There already, or the recorder would have said so.
        let _ = fs::DirBuilder::new().mode(0o700).create(&directory);
        let birth = u64::MAX / 2;
        let names = [provider_name(PID, birth, 0), ring_name(PID, birth, PID, 0)];
        let files = RingInPieces(names.map(|name| directory.join(name)).to_vec());
        let descriptions = ["test:tick 6\n".to_string()];
        let mut ring = program_files::ring(PID, PID, birth, abi::RTU_CLOCK_MONOTONIC);
        ring.resize(abi::RTU_RING_OFFSET as usize + RingInPieces::BYTES, 0);
        put32(&mut ring, offset_of!(abi::rtu_ring, ring_bytes), RingInPieces::BYTES as u32);
        put32(&mut ring, offset_of!(abi::rtu_ring, sub_buffers), 16);
        put64(&mut ring, offset_of!(abi::rtu_ring, head), RingInPieces::HEAD as u64);
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("it is there");
        let now = now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64;
        let mut at = 0;
        while at < RingInPieces::BYTES {
            let mut put = |at: usize, value: u64| put64(&mut ring, abi::RTU_RING_OFFSET as usize + at, value);
            if at % RingInPieces::SUB_BUFFER_BYTES == 0 {
                put(at, record_word(abi::RTU_ID_SYNC, 4, now));
                put(at + 8, now);
                at += 32;
                continue;
            }
            let open = if at % 16 == 0 { u64::from(abi::RTU_OPEN) << 16 } else { 0 };
            put(at, record_word(0, 1, now) | open);
            at += 8;
        }
        for (path, bytes) in files.0.iter().zip([program_files::provider(PID, birth, 0, &descriptions), ring])
        {
            // Whoever finds it finds it whole.
            let unfinished = directory.join("unfinished");
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
            let written = file.as_mut().map(|file| file.write_all(&bytes));
            written.expect("a file of the test").expect("there is memory");
            fs::rename(unfinished, path).expect("it was made");
        }
        files
    }

    fn events() -> u64 {
        let of_each = (RingInPieces::SUB_BUFFER_BYTES - 32) / 16;
        (16 * of_each - (RingInPieces::BYTES - RingInPieces::HEAD) / 16) as u64
    }
}

impl Drop for RingInPieces {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// A number of kB in /proc/PID/status.
fn status_bytes(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it has it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn a_snapshot_takes_the_memory_of_what_rings_hold_however_many_pieces_that_is_in() {
    let fixture = Fixture::new();
    let (recorder, _said) = flight_recorder(&fixture, &[]);
    let before = status_bytes(recorder.id(), "VmRSS:");
    let _files = RingInPieces::new();
    let mut number = 0;
    let is_saved = |number: u64| {
        fs::metadata(fixture.trace().join(format!("{number}/ust/user_0")))
            .is_ok_and(|data| data.len() > RingInPieces::events())
    };
    wait_until("the ring's snapshot", || {
        let output = rtscope().arg("snapshot").output().expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        number += 1;
        is_saved(number)
    });
    // The ring itself is in it, which the program has paid for, and one copy.
    let taken = status_bytes(recorder.id(), "VmHWM:") - before;
    assert!(taken < RingInPieces::BYTES as u64 * 5 / 2, "{taken} bytes for {}", RingInPieces::BYTES);
    let output = interrupt(recorder);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let accounts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let accounts: Vec<Value> = accounts.filter(|account| account["events"].is_u64()).collect();
    let account = accounts.get(number as usize - 1).expect("one of each snapshot");
    assert_eq!(account["events"].as_u64(), Some(RingInPieces::events()), "{account}");
    // In the newest sub-buffer they may be under way.
    let unfinished =
        account["losses"].as_array().expect("a list").iter().find(|loss| loss["cause"] == "unfinished");
    let unfinished = unfinished.and_then(|loss| loss["count"].as_u64());
    assert_eq!(unfinished, Some(15 * (RingInPieces::SUB_BUFFER_BYTES as u64 - 32) / 16), "{account}");
}

/// Waits for a fact.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

// NEEDS: host
#[test]
fn root_the_socket_of_a_killed_recorder_of_the_kernel_is_removed_and_one_that_lives_keeps_its() {
    if skip::without_watching() {
        return;
    }
    let fixture = Fixture::new();
    let socket = Path::new("/dev/shm/rtscope-0/snapshot");
    let start = |name: &str| {
        let mut command = rtscope();
        command.args(["record", "-k", "sched:sched_switch", "--flight-recorder", "-o"]);
        let command = command.arg(fixture.path(name)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut recorder = KilledWithTest::start(command).expect("it can be started");
        let mut said = BufReader::new(recorder.stderr.take().expect("piped"));
        let mut text = String::new();
        while !text.contains(" into memory") {
            assert!(said.read_line(&mut text).expect("text") > 0, "{text}");
        }
        (recorder, text)
    };
    let ask = || {
        let output = rtscope().arg("snapshot").output().expect("it can be run");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    let (mut killed, _) = start("killed");
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    assert!(socket.exists(), "it could remove nothing");
    assert_eq!(ask(), "");
    assert!(!socket.exists(), "whoever asks removes it");
    let (first, said) = start("first");
    assert!(!said.contains("another flight recorder"), "{said}");
    let (second, said) = start("second");
    assert!(said.contains("rtscope snapshot asks another flight recorder of this user"), "{said}");
    assert!(ask().ends_with("/first/1"));
    interrupt(second);
    assert!(ask().ends_with("/first/2"), "the other one's end leaves it");
    interrupt(first);
    assert!(!socket.exists());
}

// NEEDS: host
#[test]
fn root_a_flight_recorder_of_kernel_and_programs_saves_both_when_asked() {
    if skip::without_watching() || skip::without_tool("babeltrace2") {
        return;
    }
    let Some(fixture) = EmitterFixture::new() else { return };
    // What eBPF does not record needs tracefs.
    let has_tracefs = Path::new("/sys/kernel/tracing/events").is_dir();
    let events = ["sched:sched_switch,sched:sched_waking", ",syscalls:sys_enter_getppid"];
    let events = if has_tracefs { events.concat() } else { events[0].to_string() };
    let options = ["-k", events.as_str(), "--context", "tid,cpu", "--buffer", "1M"];
    let (recorder, _said) = flight_recorder(&fixture, &options);
    let mut victim = Command::new(&fixture.emitter).args(["iterations"]).spawn().expect("it can be started");
    let mut inside = 0;
    for number in 1..=3 {
        let pid = nix::unistd::getppid();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let output = rtscope().arg("snapshot").output().expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        let snapshot = fixture.trace().join(number.to_string());
        assert!(
            snapshot.join("kernel/metadata").is_file() && snapshot.join("ust/metadata").is_file(),
            "{pid}"
        );
        let lines = babeltrace2(&snapshot).expect("it is there");
        inside += inside_their_turn(&lines, &victim.id().to_string());
        let calls = lines.iter().filter(|line| line.contains("syscall_entry_getppid")).count();
        assert!(
            calls >= 1 || !has_tracefs,
            "{number}: the call before this snapshot, and since the one before"
        );
    }
    victim.kill().expect("it runs");
    victim.wait().expect("it ends");
    let output = interrupt(recorder);
    assert!(output.status.success(), "{output:?}");
    assert!(
        fixture.trace().join("4/kernel").is_dir() && fixture.trace().join("4/ust").is_dir(),
        "the end saves, too"
    );
    assert!(inside >= 8, "{inside} events between the switches of their thread");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let accounts: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(accounts.len(), 8, "two of each snapshot: {text}");
    for account in accounts.iter().filter(|account| account["schema"] == "rtscope.record/1") {
        assert!(account["by_event"]["sched_switch"].as_u64() > Some(0), "{account}");
    }
}

/// Events of a thread, each of which must stand between the switch to it and the switch from it, on its CPU; before the CPU's
/// first switch nobody knows who runs. A host that hides switches of some threads (process 1's, in some containers) may hide the
/// one before the thread's, and with it the thread's own: then the next switch says that it comes from the thread, and not from
/// who ran as far as was seen.
fn inside_their_turn(lines: &[String], tid: &str) -> usize {
    let mut running = std::collections::BTreeMap::new();
    let mut unseen = std::collections::BTreeMap::new();
    let (mut inside, mut hidden) = (0, 0);
    for line in lines {
        let Some(cpu) = field(line, "cpu_id") else { continue };
        if line.contains(" sched_switch: ") {
            if let Some(event) = unseen.remove(cpu) {
                assert_eq!(field(line, "prev_tid"), Some(tid), "another thread runs: {event}");
                hidden += 1;
            }
            running.insert(cpu.to_string(), field(line, "next_tid").expect("a switch has it").to_string());
        } else if line.contains(" test:iteration_") && field(line, "vtid") == Some(tid) {
            match running.get(cpu) {
                Some(now) if now == tid => inside += 1,
                Some(_) => drop(unseen.insert(cpu.to_string(), line)),
                None => {}
            }
        }
    }
    assert!(hidden <= 1 + inside / 10, "{hidden} switches hidden, {inside} events in their turns");
    inside
}

/// A ring has events of before, which nobody has taken: one that was overwritten, and one of a recorder that was killed before that.
#[test]
fn what_a_flight_recorder_left_is_in_no_other_recording() {
    let Some(fixture) = EmitterFixture::new() else { return };
    if skip::without_tool("babeltrace2") {
        return;
    }
    let mut paced = Command::new(&fixture.emitter);
    let _child = KilledWithTest::start(paced.args(["paced", "1000000000"])).expect("it can be started");
    let first = |trace: &Path| numbered(trace).and_then(|events| events.first().copied());
    let leave_an_overwritten_ring = || {
        let (recorder, _said) = flight_recorder(&fixture, &["--user-buffer", "64K"]);
        let mut began = None;
        for number in 1.. {
            assert!(rtscope().arg("snapshot").output().expect("it can be run").status.success());
            let Some((_, begin)) = first(&fixture.trace().join(number.to_string())) else { continue };
            if *began.get_or_insert(begin) < begin {
                break;
            }
        }
        interrupt(recorder);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    };
    let record = |options: &[&str]| {
        let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let mut command = rtscope();
        command.args(["record", "--json", "-o"]).arg(fixture.trace()).args(options);
        let recorded = Recorded::of(command.output().expect("it can be started"));
        let oldest = first(&fixture.trace()).map(|(time, _)| time - before.as_secs_f64());
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        (recorded.events(), recorded.lost(), oldest)
    };
    let leave_a_ring_that_was_not_overwritten = || {
        let (mut recorder, _said) = flight_recorder(&fixture, &["--user-buffer", "64M"]);
        let has_events = |number: &u32| {
            assert!(rtscope().arg("snapshot").output().expect("it can be run").status.success());
            first(&fixture.trace().join(number.to_string())).is_some()
        };
        assert!((1..).find(has_events).is_some());
        recorder.kill().expect("it runs");
        recorder.wait().expect("it ends");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    };
    let leave: [&dyn Fn(); 2] = [&leave_an_overwritten_ring, &leave_a_ring_that_was_not_overwritten];
    for leave in leave {
        leave();
        assert_eq!(record(&["-u", "nothing:*", "--", "true"]), (0, 0, None));
        leave();
        let (events, lost, oldest) = record(&["-u", "test:*", "--duration", "300ms"]);
        assert!(events > 0 && lost == 0, "{events} events, {lost} lost");
        assert!(oldest.is_some_and(|oldest| oldest > 0.0), "{oldest:?} s before the recording");
    }
}
