// SPDX-License-Identifier: Apache-2.0 OR MIT
//! babeltrace2, a reader of traces that we did not write, as an oracle for what we write and print.

use std::path::Path;
use std::process::{Command, Output};

use crate::skip;

/// Runs it on a trace. `None`, and the test is reported as skipped, where babeltrace2 is not installed.
///
/// It finds no settings of the user: these could change what it prints.
pub fn run(trace: &Path, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("babeltrace2").arg(trace).args(arguments).env("HOME", "/nonexistent").output();
    output.map_err(|error| skip::say(format_args!("babeltrace2 cannot be run: {error}"))).ok()
}

/// What it prints of a trace about which it has nothing to complain, but that events were discarded: a host may have hidden switches.
///
/// # Panics
/// When it fails or writes anything else to standard error.
#[track_caller]
pub fn text_with_losses(trace: &Path) -> Option<String> {
    let output = run(trace, &[])?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let is_loss = |line: &str| {
        line.is_empty() || line.contains("Tracer") && line.contains("discarded") && line.contains("event")
    };
    assert!(output.status.success() && complaints.lines().all(is_loss), "{:?}: {complaints}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What it prints of a trace about which it has nothing to complain; `None` as for [`run`].
///
/// # Panics
/// When it fails or writes anything to standard error.
#[track_caller]
pub fn text(trace: &Path, arguments: &[&str]) -> Option<String> {
    let output = run(trace, arguments)?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{:?}: {complaints}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
