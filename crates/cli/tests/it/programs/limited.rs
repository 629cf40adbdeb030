// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings that are limited in their size (`--max-size`).

use super::fixture::{Fixture, Recorded, begun, interrupt};
use crate::command::rtscope;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::process::{KilledWithTest, wait_until};
use rtscope_testkit::skip;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const LIMIT: u64 = 4 << 20;

/// What a directory takes, with all in it, as `du` sees it.
fn bytes_on_disk(path: &Path) -> u64 {
    let Ok(data) = fs::symlink_metadata(path) else { return 0 };
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    data.blocks() * 512 + inside.map(|entry| bytes_on_disk(&entry.path())).sum::<u64>()
}

/// Looks all the time while `work` goes on; gives the most that the recording has taken, and how often it was looked at.
pub fn most_during<T>(trace: &Path, work: impl FnOnce() -> T) -> (T, u64, u64) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut most, mut looks) = (0, 0);
            // ORDER: relaxed; a flag that stands for itself.
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(bytes_on_disk(trace));
                looks += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            (most, looks)
        });
        let result = work();
        // ORDER: as above.
        is_over.store(true, Ordering::Relaxed);
        let (most, looks) = watcher.join().expect("it only looks");
        (result, most, looks)
    })
}

/// By thread, the numbers of the events that babeltrace2 finds. The threads' events are numbered from 0.
fn numbers(trace: &Path) -> Option<BTreeMap<u64, Vec<u64>>> {
    let mut numbers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in babeltrace2::text(trace, &[])?.lines() {
        let number = |key: &str| -> u64 {
            let rest = line.split(key).nth(1).unwrap_or_else(|| panic!("{line}"));
            rest.split([',', ' ']).next().and_then(|number| number.parse().ok()).expect("a number")
        };
        numbers.entry(number("thread = ")).or_default().push(number(" n = "));
    }
    Some(numbers)
}

fn overwritten(recorded: &Recorded) -> u64 {
    recorded.account["overwritten"]["events"].as_u64().expect("it is limited")
}

#[test]
fn a_limited_recording_of_programs_keeps_the_newest_events_and_never_takes_more() {
    let fixture = Fixture::new();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built").display().to_string();
    // Forty bytes and more each: ten times the limit.
    const EVENTS: u64 = 700_000;
    let (count, options) = (EVENTS.to_string(), ["--max-size", "4M", "--user-buffer", "64M"]);
    let run = || fixture.record(&options, &[emitter.as_str(), "count", &count, "3"]);
    let (recorded, most, looks) = most_during(&fixture.trace(), run);
    assert!(most <= LIMIT && most > LIMIT / 2 && looks > 50, "{most} bytes in {looks} looks");
    assert_eq!(recorded.lost(), 0);
    assert_eq!(recorded.events() + overwritten(&recorded), 3 * EVENTS);
    let Some(numbers) = numbers(&fixture.trace()) else { return };
    assert_eq!(numbers.values().map(|numbers| numbers.len() as u64).sum::<u64>(), recorded.events());
    for (thread, numbers) in numbers {
        let first = numbers[0];
        assert!(numbers.into_iter().eq(first..EVENTS), "thread {thread} has a gap");
    }
}

// NEEDS: host
#[test]
fn root_what_is_overwritten_is_that_of_whoever_writes_most_and_is_told() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.program("emitter.c", &[], "emitter") else { return };
    let recorder = begun(&mut fixture.recorder(&["--max-size", "4M", "--user-buffer", "64M"]));
    // Returns its number.
    let emit = |user: &str, count: &str| {
        let mut all = Command::new("setpriv");
        all.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(&program).args(["count", count]);
        let mut child = all.stdout(Stdio::null()).spawn().expect("it can be started");
        assert!(child.wait().expect("it ends").success());
        child.id()
    };
    let before = emit("12346", "1000");
    emit("12345", "1000000");
    let after = emit("12346", "1000");
    let recorded = Recorded::of(interrupt(recorder));
    crate::json::assert_documented(&recorded.account);
    let gone = &recorded.account["overwritten_by_user"];
    assert_eq!(gone.as_array().map(Vec::len), Some(1), "{gone}");
    assert_eq!((&gone[0]["uid"], gone[0]["count"].as_u64()), (&12345.into(), Some(overwritten(&recorded))));
    let lines = super::fixture::lines(&fixture.trace());
    for pid in [before, after] {
        let of_it = format!("vpid = {pid},");
        assert_eq!(lines.iter().filter(|line| line.contains(&of_it)).count(), 1000);
    }
    let stat = rtscope().arg("stat").arg(fixture.trace()).output().expect("it runs");
    let text = String::from_utf8_lossy(&stat.stdout).into_owned();
    let digits = text.replace(' ', "");
    assert!(digits.contains(&format!(":{}ofuser12345", overwritten(&recorded))), "{text}");
    assert!(text.contains("overwritten by newer ones (--max-size)"), "{text}");
}

// NEEDS: host
#[test]
fn root_a_user_who_fills_the_disk_leaves_room_for_others() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("mount") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.program("emitter.c", &[], "emitter") else { return };
    let disk = Disk::new(&fixture.path("disk"));
    let mut command = rtscope();
    command.args(["record", "--json", "--fail-if-lost=100%", "--user-buffer", "64M", "-u", "test:*", "-o"]);
    let recorder = begun(command.arg(disk.0.join("trace")));
    let emit = |user: &str, count: &str| {
        let mut all = Command::new("setpriv");
        all.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(&program).args(["count", count]);
        assert!(all.stdout(Stdio::null()).status().expect("it can be started").success());
    };
    emit("12346", "1");
    // Thirty bytes and more each: more than there is.
    (0..8).for_each(|_| emit("12345", "600000"));
    emit("12346", "1000");
    let recorded = Recorded::of(interrupt(recorder));
    assert!(recorded.output.status.success(), "{:?}", recorded.output);
    let lost = recorded.account["lost_by_user"].as_array().expect("an array");
    assert!(lost.iter().all(|user| user["uid"] == 12345) && !lost.is_empty(), "{lost:?}");
    assert!(
        recorded.account["remarks"].to_string().contains("little room on the disk"),
        "{}",
        recorded.account
    );
    let total = 1 + 8 * 600_000 + 1000;
    assert_eq!(recorded.events() + lost[0]["count"].as_u64().expect("a number"), total);
}

/// A file system of 128 MiB, unmounted in the end.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(place: &Path) -> Disk {
        fs::create_dir(place).expect("it is new");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=128m", "tmpfs"]).arg(place).status();
        assert!(mount.expect("it is there").success());
        Disk(place.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What is read is the end of what another reader has taken meanwhile, event for event; one that sleeps meanwhile is told what it missed.
#[test]
fn a_follower_that_was_overtaken_says_how_much_it_missed() {
    let fixture = Fixture::new();
    let trace = fixture.trace();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built").display().to_string();
    let recorder = begun(&mut fixture.recorder(&["--max-size", "4M", "--user-buffer", "64M"]));
    let follow = |output: &Path, notes: &Path| {
        let mut follow = rtscope();
        follow.args(["print", "--follow"]).arg(&trace);
        follow.stdout(fs::File::create(output).expect("ours")).stderr(fs::File::create(notes).expect("ours"));
        KilledWithTest::start(&mut follow).expect("it can be started")
    };
    let emit = |count: u64| {
        let done = Command::new(&emitter).args(["count", &count.to_string()]).stdout(Stdio::null()).status();
        assert!(done.expect("it is there").success());
    };
    let (output, notes) = (fixture.path("output"), fixture.path("notes"));
    let mut follower = follow(&output, &notes);
    emit(1000);
    let lines = || fs::read(&output).expect("ours").iter().filter(|byte| **byte == b'\n').count();
    wait_until("the follower has read", || lines() == 1000);
    super::fixture::send(&follower, nix::sys::signal::Signal::SIGSTOP);
    const MISSED: u64 = 1_000_000;
    emit(MISSED);
    super::fixture::send(&follower, nix::sys::signal::Signal::SIGCONT);
    let recorded = Recorded::of(interrupt(recorder));
    assert_eq!(recorded.events() + overwritten(&recorded), 1000 + MISSED);
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));
    let notes = fs::read_to_string(notes).expect("text");
    let missed = |what: &str| -> u64 {
        let told = notes.lines().filter(|line| line.contains("overwritten before they were read"));
        let counts = told.filter_map(|line| {
            let (count, rest) = line.strip_prefix("rtscope: ")?.split_once(' ')?;
            rest.starts_with(what).then(|| count.parse::<u64>().ok()).flatten()
        });
        counts.sum()
    };
    assert!(missed("packet") > 0, "{notes}");
    assert_eq!(lines() as u64 + missed("event"), 1000 + MISSED, "{notes}");
}

#[test]
fn a_limited_recording_that_is_killed_can_be_read_and_completed() {
    let fixture = Fixture::new();
    let trace = fixture.trace();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built").display().to_string();
    let mut recorder = begun(&mut fixture.recorder(&["--max-size", "4M", "--user-buffer", "64M"]));
    let done = Command::new(&emitter).args(["count", "300000"]).stdout(Stdio::null()).status();
    assert!(done.expect("it is there").success());
    let partial = trace.join("ust.partial/trace");
    let has_rotated = || {
        let files = fs::read_dir(&partial).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let streams: Vec<String> = names.filter(|name| name.starts_with("user_0_")).collect();
        // None before it has looked for the first time.
        !streams.is_empty() && streams.iter().all(|name| name != "user_0_0_0")
    };
    wait_until("files were removed", has_rotated);
    recorder.kill().expect("ours");
    recorder.wait().expect("ours");
    let Some(before) = numbers(&partial) else { return };
    let recovered = rtscope().args(["record", "--json", "--recover"]).arg(&trace).output().expect("starts");
    let recovered = Recorded::of(recovered);
    assert_eq!(numbers(&trace), Some(before.clone()));
    let left: u64 = before.values().map(|numbers| numbers.len() as u64).sum();
    assert_eq!((recovered.events(), overwritten(&recovered)), (left, before[&0][0]));
    // The next recorder gets what this one had not taken: not that of another test.
    fs::remove_dir_all(&trace).expect("it was made");
    interrupt(begun(&mut fixture.recorder(&[])));
}
