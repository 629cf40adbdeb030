// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope watch --config FILE --check`: it finds what a start would refuse, makes nothing and waits for nobody.

use crate::command::rtscope;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

fn check(file: &Path) -> Output {
    let mut command = rtscope();
    command.args(["watch", "--check", "--config"]).arg(file);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > Duration::from_secs(20) {
            child.kill().expect("it is there");
            panic!("it waits for {}", file.display());
        }
        std::thread::yield_now();
    }
    child.wait_with_output().expect("it has ended")
}

#[test]
fn a_check_finds_what_a_start_would_refuse() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("watch.toml");
    let taken = dir.path().join("taken");
    std::fs::write(&taken, "").expect("written");
    let missing = dir.path().join("new/late");
    let (taken, new) = (
        format!("snapshot-dir = '{}/late'", taken.display()),
        format!("snapshot-dir = '{}'", missing.display()),
    );
    for (tracker, line, why) in [
        ("wakeup", new.as_str(), None),
        ("wakeup", taken.as_str(), Some("is not a directory")),
        ("syscall", "calls = ['nosuchcall']", Some("nosuchcall")),
        ("wakeup", "pid = 4194304", Some("4194304")),
        ("response", "irq = ['no such device']", Some("no such device")),
        ("response", "timeout = '1s'", Some("--timeout")),
        ("wakeup", "and = ['pair:1ms']", Some("--and pair")),
        ("wakeup", "fail-if = ['p50 > 1ms x']", Some("fail-if")),
    ] {
        let text = format!("version = 1\ntracker = '{tracker}'\nthreshold = '1ms'\n{line}\n");
        std::fs::write(&file, &text).expect("written");
        let output = check(&file);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = why.map_or(0, |_| 2);
        assert_eq!(output.status.code(), Some(expected), "{text}: {said}");
        assert!(said.contains(why.unwrap_or("what they name is there")), "{text}: {said}");
        assert!(why.is_none() || said.contains("watch.toml"), "{text}: {said}");
    }
    assert!(!dir.path().join("new").exists(), "a check makes nothing");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let output = check(&pipe);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("not a regular file"), "{said}");
}
