// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x bench NAME`: the list of the benchmarks, and the call of the program that has them.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{cargo, root};

/// The package whose program runs the benchmarks.
const PACKAGE: &str = "rtscope-bench";

/// Name and question of every benchmark.
pub const BENCHMARKS: [(&str, &str); 11] = [
    ("kernel-events", "cost of recording sched_switch and sched_waking, against ftrace and perf"),
    (
        "tracker",
        "cost of the response tracker, against a bpftrace script; and of recorder and tracker together",
    ),
    ("flip", "time from the flip of the banks to the private copy"),
    ("state", "where a tracker can keep its state: table, task storage, hash"),
    ("record", "run time that recording to disk adds to a load, against trace-cmd and perf"),
    ("read", "rtscope stat and print against babeltrace2, and their memory"),
    ("user-events", "what an event adds to a program, against LTTng-UST and one reading of the counter"),
    (
        "user-rate",
        "the highest rate of a program's events that is recorded without a loss, against LTTng-UST",
    ),
    ("queue", "an element through include/rtscope/queue.h and its Rust twin, against rtrb"),
    ("shield", "what mode artis adds to a system call on the other CPUs"),
    ("idle", "CPU time of `rtscope watch` while nothing is late"),
];

/// Runs one benchmark, built for release, with the arguments that follow its name.
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    let Some((name, rest)) = arguments.split_first() else { bail!("which benchmark? {}", list()) };
    if BENCHMARKS.iter().all(|(known, _)| known != name) {
        bail!("there is no benchmark '{name}'. {}", list());
    }
    if !root().join("crates/bench").is_dir() {
        bail!("benchmark '{name}' has no program yet (crates/bench)");
    }
    // With the programs that benchmarks start.
    let built = cargo().args(["build", "--quiet", "--release", "--package", PACKAGE]).status()?;
    if !built.success() {
        bail!("the benchmarks do not build");
    }
    let status = cargo()
        .args(["run", "--quiet", "--release", "--package", PACKAGE, "--bin", PACKAGE, "--", name])
        .args(rest)
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list() -> String {
    let lines: Vec<String> =
        BENCHMARKS.iter().map(|(name, question)| format!("  {name:<14} {question}")).collect();
    format!("The benchmarks are:\n{}", lines.join("\n"))
}
