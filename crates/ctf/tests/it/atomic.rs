// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace is there whole or not at all, also when the disk is full or the writer is killed.
//!
//! A limit on the size of files stands for both: the write that exceeds it fails, or, where the signal is not ignored,
//! kills the process. The limit holds for a whole process, so the writer is this test binary, run a second time.

use rtscope_ctf::{Error, write_trace};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

const TARGET: &str = "RTSCOPE_TEST_TARGET";
const FAILED: i32 = 23;

/// What the other process does; without the variable there is nothing to test.
#[test]
fn writer() {
    let Some(target) = std::env::var_os(TARGET) else { return };
    let recording = Random(11).recording(60_000);
    match write_trace(Path::new(&target), &recording, &info()) {
        #[allow(clippy::exit, reason = "how this process tells its parent")]
        Err(Error::Io { action: "write", .. }) => std::process::exit(FAILED),
        result => panic!("{result:?}"),
    }
}

/// Runs the writer with files limited to some tens of KiB. Returns what is left in the directory, and how it ended.
fn limited_writer(before: &str) -> (Vec<String>, ExitStatus) {
    let root = tempfile::tempdir().unwrap();
    let script = format!("{before} ulimit -c 0; ulimit -f 100; exec \"$0\" --exact atomic::writer");
    let status = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(TARGET, root.path().join("final"))
        .output()
        .unwrap()
        .status;
    let left =
        fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    (left.collect(), status)
}

#[test]
fn a_full_disk_leaves_nothing() {
    let (left, status) = limited_writer("trap '' XFSZ;");
    assert_eq!(status.code(), Some(FAILED), "{status:?}");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_kill_leaves_nothing_under_the_final_name() {
    const SIGXFSZ: i32 = 25;
    let (left, status) = limited_writer("");
    assert_eq!(status.signal(), Some(SIGXFSZ), "{status:?}");
    assert_eq!(left.len(), 1);
    assert!(left[0].starts_with(".final.") && left[0].ends_with(".partial"), "{left:?}");
}
