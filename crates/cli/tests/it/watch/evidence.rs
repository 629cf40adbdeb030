// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of late responses: whole directories that foreign programs can read, nothing missing between them, and nothing
//! half when something goes wrong.

use crate::command::SmallDisk;
use nix::fcntl::{Flock, FlockArg};
use rtscope_testkit::machine::{Cpus, is_emulated};
use rtscope_testkit::process::Workload;
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Short windows, many snapshots.
const OFTEN: [&str; 6] = ["--rate", "20/s", "--pre", "50ms", "--post", "5ms"];
const LATE: [&str; 4] = ["--task", "e2e-evidence", "--threshold", "50us"];
/// A victim that is late at every iteration, 25 times a second.
const VICTIM: [&str; 6] = ["--name", "e2e-evidence", "--period", "40ms", "--deadline", "50us"];

fn temporary() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("plain").to_owned();
    (directory, path)
}

fn victim() -> Workload {
    Workload::start("rtscope-victim", VICTIM).expect("starts")
}

/// Starts to save in this directory.
fn save_in(directory: &str) -> Rtscope {
    Rtscope::watch(&[&LATE[..], &OFTEN, &["--snapshot-dir", directory]].concat()).expect("watches")
}

/// Everything in a directory, hidden or not, by name.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).expect("it can be read");
    let mut all: Vec<PathBuf> = all.map(|entry| entry.expect("it can be read").path()).collect();
    all.sort();
    all
}

/// What babeltrace2 makes of a snapshot, which it has to read without a word.
fn events(snapshot: &Path) -> String {
    let output = Command::new("babeltrace2").arg(snapshot).output().expect("./x setup installs babeltrace2");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", snapshot.display());
    // Of other programs on this machine, whose names and arguments may be anything.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.is_empty(), "{} has no events", snapshot.display());
    text
}

/// Whole directories and nothing else; gives their number.
fn check_all(directory: &Path) -> usize {
    let all = entries(directory);
    for snapshot in &all {
        let name = snapshot.file_name().unwrap_or_default().to_string_lossy();
        assert!(!name.starts_with('.'), "{name} is half a snapshot");
        events(snapshot);
    }
    all.len()
}

fn trigger(snapshot: &Path) -> Value {
    let text = fs::read_to_string(snapshot.join("trigger.json")).expect("it is in every snapshot");
    serde_json::from_str(&text).expect("JSON")
}

/// Whether rtscope lost nothing. A gap is what the kernel hid from every tracer: rtscope only found it. On an emulated CPU a
/// program takes so long that an interrupt or two does land in it; that is counted, and so no fault.
fn is_nothing_lost(losses: &Value) -> bool {
    let is_known = |loss: &Value| {
        loss["cause"] == "gap"
            || (is_emulated() && loss["cause"] == "recursion_miss" && loss["count"].as_u64() < Some(20))
    };
    losses.as_array().is_some_and(|all| all.iter().all(|loss| loss["count"] == 0 || is_known(loss)))
}

/// Watches a late victim until it has this many snapshots.
fn save(directory: &str, snapshots: usize) -> WatchOutput {
    let mut watch = save_in(directory);
    let victim = victim();
    (0..snapshots).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    drop(victim);
    watch.stop().expect("stops")
}

// NEEDS: one kernel
#[test]
fn root_every_snapshot_is_read_by_babeltrace2_with_its_detection() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, path) = temporary();
    let report = save(&path, 5).report().expect("it prints one");
    let snapshots = entries(directory.path());
    assert_eq!(snapshots.len() as u64, report.snapshots);
    for snapshot in &snapshots {
        assert!(events(snapshot).contains("rtscope_late_response: "), "{}", snapshot.display());
        let trigger = trigger(snapshot);
        assert_eq!(trigger["schema"], "rtscope.snapshot/1");
        assert!(trigger["late"].as_array().is_some_and(|late| !late.is_empty()), "{trigger}");
        assert!(is_nothing_lost(&trigger["losses"]), "{trigger}");
    }
}

// NEEDS: host
#[test]
fn root_explain_says_what_the_watch_wrote() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, path) = temporary();
    save(&path, 3);
    let explain = |snapshot: &Path, columns: Option<&str>| {
        let mut command = Command::new(crate::command::path());
        command.env("LC_ALL", "C.UTF-8").env_remove("COLUMNS").arg("explain").arg(snapshot);
        let output = command.envs(columns.map(|columns| ("COLUMNS", columns))).output();
        let output = output.expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("it is text")
    };
    for snapshot in entries(directory.path()) {
        let written = fs::read_to_string(snapshot.join("explain.txt")).expect("it is in every snapshot");
        assert_eq!(explain(&snapshot, None), written);
        // On a terminal, or as COLUMNS says: the same words, and no line is longer.
        let narrow = explain(&snapshot, Some("80"));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(written.lines().any(|line| line.chars().count() > 80), "{written}");
    }
}

/// The numbers that a counter gave itself as names, in a text of babeltrace2.
fn counted(events: &str) -> impl Iterator<Item = u64> {
    let names = events.lines().filter_map(|line| line.split_once("newcomm = \"c0").map(|(_, rest)| rest));
    names.filter_map(|rest| rest.split('"').next()?.parse().ok())
}

// NEEDS: real time (an emulated CPU does not reach as many events as the test needs)
#[test]
fn root_no_event_is_missed_while_the_banks_flip() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, path) = temporary();
    let rest =
        ["--rate", "20/s", "--pre", "10s", "--post", "5ms", "--buffer", "16M", "--snapshot-dir", &path];
    let mut watch = Rtscope::watch(&[&LATE[..], &rest].concat()).expect("watches");
    let counter = Workload::start("rtscope-counter", ["--every", "30us"]).expect("starts");
    let victim = victim();
    (0..20).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    let (victim, counter) = (victim.stop(), counter.stop());
    victim.and(counter).expect("both stop");
    let said = watch.stop().expect("stops");
    let numbers: BTreeSet<u64> = entries(directory.path())
        .iter()
        .flat_map(|snapshot| counted(&events(snapshot)).collect::<Vec<_>>())
        .collect();
    let (first, last) = (numbers.first().expect("it counted"), numbers.last().expect("it counted"));
    assert!(last - first > 10_000, "{first} to {last}");
    let missing: Vec<u64> = (*first..=*last).filter(|number| !numbers.contains(number)).collect();
    assert!(
        missing.is_empty(),
        "{} of {} missing: {:?}",
        missing.len(),
        last - first,
        &missing[..10.min(missing.len())]
    );
    assert!(is_nothing_lost(&said.of_type("summary")[0]["losses"]), "{:?}", said.of_type("summary"));
}

// NEEDS: host
#[test]
fn root_a_folder_with_content_is_added_to_and_nothing_in_it_changed() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, path) = temporary();
    fs::write(directory.path().join("notes.txt"), "mine").expect("it can be written");
    save(&path, 1);
    let first = entries(directory.path());
    let kept: Vec<String> = first.iter().filter(|path| path.is_dir()).map(|path| events(path)).collect();
    save(&path, 1);
    let all = entries(directory.path());
    assert!(all.len() > first.len() && first.iter().all(|path| all.contains(path)), "{first:?} {all:?}");
    assert_eq!(fs::read_to_string(directory.path().join("notes.txt")).expect("it is there"), "mine");
    let still: Vec<String> = first.iter().filter(|path| path.is_dir()).map(|path| events(path)).collect();
    assert!(kept == still, "an old snapshot was changed");
}

// NEEDS: host
#[test]
fn root_a_folder_whose_name_is_not_text_is_saved_in() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, _) = temporary();
    let odd = directory.path().join(OsStr::from_bytes(b"odd-\xff"));
    let options: Vec<&OsStr> = LATE.iter().chain(&OFTEN).map(OsStr::new).collect();
    let dir = [OsStr::new("--snapshot-dir"), odd.as_os_str()];
    let mut watch = Rtscope::watch(&[&options[..], &dir].concat()).expect("watches");
    let victim = victim();
    watch.wait_for_type("snapshot").expect("a snapshot");
    drop(victim);
    assert_eq!(watch.stop().expect("stops").code(), Some(0));
    assert!(check_all(&odd) >= 1);
}

// NEEDS: host
#[test]
fn root_two_watches_that_save_in_one_folder_both_save_all() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, path) = temporary();
    let mut watches = [save_in(&path), save_in(&path)];
    let victim = victim();
    for watch in &mut watches {
        (0..8).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    }
    drop(victim);
    let reports = watches.map(|watch| watch.stop().and_then(|said| said.report()).expect("it prints one"));
    for report in &reports {
        assert_eq!(report.snapshots_failed, 0, "{report:?}");
    }
    let taken: u64 = reports.iter().map(|report| report.snapshots).sum();
    assert_eq!(check_all(directory.path()) as u64, taken);
}

// NEEDS: host
#[test]
fn root_a_full_disk_loses_a_snapshot_and_nothing_else() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(disk) = SmallDisk::new("size=600k") else {
        skip!("a small disk cannot be mounted here");
    };
    let mut watch = save_in(disk.path().to_str().expect("plain"));
    let victim = victim();
    let lost = watch.wait_for_type("snapshot_lost").expect("600 KiB are soon full");
    assert!(lost["why"].as_str().is_some_and(|why| why.contains("No space left")), "{lost}");
    crate::json::assert_documented(&lost);
    watch.wait_for_note("is lost").expect("it is said to people, too");
    watch.wait_for_type("late").expect("watching goes on");
    watch.wait_for_type("snapshot_lost").expect("and tries again");
    drop(victim);
    let said = watch.stop().expect("stops");
    let report = said.report().expect("it prints one");
    assert_eq!(said.code(), Some(1), "what was asked for is missing: {:?}", said.notes);
    assert!(report.snapshots_failed >= 2, "{report:?}");
    let saved = check_all(disk.path()) as u64;
    assert!(saved >= 1, "not one fits");
    assert_eq!(saved, report.snapshots - report.snapshots_failed);
}

// NEEDS: host
#[test]
fn root_after_a_kill_earlier_snapshots_are_whole_and_leftovers_are_swept() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (directory, path) = temporary();
    let mut watch = save_in(&path);
    let victim = victim();
    (0..3).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    watch.signal(nix::sys::signal::Signal::SIGKILL).expect("it runs");
    let said = watch.finish().expect("it ends");
    assert_eq!(said.code(), None, "a signal ended it");
    // A kill in the middle of saving cannot be had to order: this is what it leaves.
    let leftover = directory.path().join(".20261120T234107Z-1.0123456789abcdef0123456789abcdef.partial");
    let foreign = directory.path().join(".someone-elses.partial");
    for path in [&leftover, &foreign] {
        fs::create_dir_all(path.join("kernel")).expect("it can be written");
    }
    let mut next = save_in(&path);
    assert!(!leftover.exists(), "a directory that nobody will finish is removed");
    assert!(foreign.exists(), "a directory that is not ours is not touched");
    fs::remove_dir_all(&foreign).expect("it is there");
    // Also while another watch runs; one that is being filled stays, as its writer has locked it.
    let filled = directory.path().join(".20261120T234107Z-2.0123456789abcdef0123456789abcdef.partial");
    for path in [&leftover, &filled] {
        fs::create_dir_all(path).expect("it can be written");
    }
    let lock = Flock::lock(File::open(&filled).expect("it is there"), FlockArg::LockExclusive)
        .expect("nobody has it");
    let third = save_in(&path);
    assert!(!leftover.exists() && filled.exists());
    drop(lock);
    fs::remove_dir_all(&filled).expect("it is there");
    next.wait_for_type("snapshot").expect("a snapshot");
    drop(victim);
    for watch in [next, third] {
        watch.stop().expect("stops");
    }
    assert!(check_all(directory.path()) >= 4);
}

/// One thread is late forty times as often as two others. Each has a third of the snapshots: whose turn it is does not depend on who is late
/// next.
// NEEDS: host
#[test]
fn root_threads_that_are_late_have_snapshots_in_turn() {
    use nix::poll::{PollTimeout, poll};
    use std::sync::atomic::{AtomicBool, Ordering};
    const SNAPSHOTS: usize = 18;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let (_directory, path) = temporary();
    let options = ["--task", "e2e-turn-*", "--threshold", "1ns", "--snapshot-dir", &path];
    let few = ["--rate", "10/s", "--pre", "1ms", "--post", "1ms", "--buffer", "1M"];
    let mut watch = Rtscope::watch(&[&options[..], &few].concat()).expect("watches");
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let threads =
        [("e2e-turn-often", 1_u8), ("e2e-turn-one", 40), ("e2e-turn-two", 40)].map(|(name, period)| {
            let over = over.clone();
            let work = move || {
                // ORDER: relaxed; a flag that stands for itself.
                while !over.load(Ordering::Relaxed) {
                    let _ = poll(&mut [], PollTimeout::from(period));
                }
            };
            std::thread::Builder::new().name(name.to_string()).spawn(work).expect("a thread")
        });
    (0..SNAPSHOTS).for_each(|_| drop(watch.wait_for_type("snapshot").expect("a snapshot")));
    over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    let late = watch.stop().expect("stops").late().expect("JSON");
    let of = |name: &str| {
        late.iter().filter(|late| late.snapshot.is_some() && late.comm.to_string() == name).count()
    };
    let counts = ["e2e-turn-often", "e2e-turn-one", "e2e-turn-two"].map(of);
    assert!(counts.iter().all(|count| *count >= SNAPSHOTS / 6), "{counts:?}");
}
