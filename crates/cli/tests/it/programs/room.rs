// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A `/dev/shm` of a test's own, in which its program is the first one; and a program that runs before anybody records it.

use super::fixture::{Fixture, Recorded};
use std::fs;
use std::process::Command;

/// Runs a script in a mount namespace of its own with a small /dev/shm.
pub fn in_own_room(fixture: &Fixture, size: &str, script: &str) -> Recorded {
    let script = format!("mount -t tmpfs -o size={size} none /dev/shm && {script}");
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("it is there");
    assert!(output.status.success(), "{output:?}");
    let recorded = Recorded::of(output);
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    recorded
}

/// A script: starts a program that says "ready", waits for a line and says how much it has "emitted"; does what is to be done until somebody
/// records; and records what the program emits from the line on.
pub fn recorded_late(fixture: &Fixture, program: &str, until_then: &str) -> String {
    let (line, said) = (fixture.path("line"), fixture.path("said"));
    let (line, said, recorder) = (line.display(), said.display(), fixture.recorder(&[]));
    format!(
        "mkfifo {line}; {program} <{line} >{said} & exec 3>{line}; while ! grep -q ready {said}; do sleep 0.01; done; \
         {until_then}; \
         {recorder:?} -- sh -c 'echo >{line}; while ! grep -q emitted {said}; do sleep 0.01; done; cat {said}'"
    )
}
