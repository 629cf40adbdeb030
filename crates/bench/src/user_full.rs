// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an event costs that finds its thread's buffer full: what a program pays whose recorder cannot keep up, stands still, or was killed.
//!
//! The recorder is stopped before the program begins, so that the buffer is full after its first loop. By turns with the same events while they are
//! recorded. At the end the recorder goes on, and has to say that each event was recorded or lost.

use crate::progress;
use crate::table::{Promise, Report, Row};
use crate::user_events::{Bench, Tracer};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::process::{KilledWithTest, program, wait_until};
use serde_json::Value;
use std::fs::{self, File};
use std::process::{Command, Stdio};

/// Smaller than what a loop writes.
const BUFFER: &str = "64K";
/// Against an event that is recorded. It does less, but comes there by way of a call and two looks.
const LIMIT: f64 = 1.5;

/// Measures it, and adds what was found.
pub(crate) fn measure(bench: &Bench, rounds: usize, report: &mut Report) -> Result<()> {
    let (mut recorded, mut full) = (Vec::new(), Vec::new());
    for _ in progress::rounds("events that find their buffer full", rounds) {
        recorded.push(bench.run(Tracer::Rtscope)?.median("two")?);
        full.push(beside_a_stopped_recorder(bench).context("the program of a recorder that was stopped")?);
    }
    let row = Row::new("rtscope, the buffer is full: two 64-bit fields", full);
    let recorded = Row::new("", recorded).median();
    report.promises.push(Promise::at_most(
        "an event that finds its buffer full / one that is recorded",
        row.median() / recorded,
        LIMIT,
    ));
    report.rows.push(row);
    Ok(())
}

/// The median of the program's loops, in ns for each event.
fn beside_a_stopped_recorder(bench: &Bench) -> Result<f64> {
    let trace = bench.directory().join("full");
    let _ = fs::remove_dir_all(&trace);
    let notes = bench.directory().join("full.notes");
    let mut command = Command::new(program("rtscope")?);
    command.args(["record", "--json", "-u", "bench:*", "--context", "none", "--user-buffer", BUFFER, "-o"]);
    command.arg(&trace).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&notes)?);
    let recorder = KilledWithTest::start(&mut command)?;
    wait_until("the recorder is ready", || {
        fs::read_to_string(&notes).is_ok_and(|notes| notes.contains("recording "))
    });
    let pid = Pid::from_raw(i32::try_from(recorder.id())?);
    kill(pid, Signal::SIGSTOP)?;
    let run = bench.run_alone();
    kill(pid, Signal::SIGCONT)?;
    kill(pid, Signal::SIGINT)?;
    let run = run?;
    let output = recorder.wait_with_output()?;
    let said = fs::read_to_string(&notes)?;
    let summary: Value = serde_json::from_slice(&output.stdout).with_context(|| said)?;
    let count = |value: &Value| value["count"].as_u64().unwrap_or(0);
    let lost: u64 = summary["losses"].as_array().into_iter().flatten().map(count).sum();
    let there = summary["events"].as_u64().context("events")?;
    ensure!((there + lost) as f64 == run.emitted, "{} were emitted: {summary}", run.emitted);
    ensure!(lost > 9 * there, "the buffer was not full: {summary}");
    run.median("two")
}
