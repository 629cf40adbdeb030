// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x bench NAME`: the list of the benchmarks, and the call of the program that has them; with `--against COMMIT`, of two.

mod against;
mod builds;
mod figures;
mod statistics;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use self::against::Comparison;

/// The exit code of a benchmark that cannot run here; it says why.
const CANNOT_RUN: u8 = 3;

/// Name and question of every benchmark.
pub const BENCHMARKS: [(&str, &str); 15] = [
    ("kernel-events", "cost of recording sched_switch and sched_waking, against ftrace and perf"),
    (
        "tracker",
        "cost of the response tracker, against a bpftrace script; and of recorder and tracker together",
    ),
    (
        "trackers",
        "cost of the trackers wakeup, offcpu and syscall, against bpftrace scripts of the same logic; and of two at once",
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
    (
        "hardware",
        "decoding streams of trace units, for each byte; with captures where RTSCOPE_CAPTURES names them",
    ),
    ("queue", "an element through include/rtscope/queue.h and its Rust twin, against rtrb"),
    ("shield", "what mode artis adds to a system call on the other CPUs"),
    (
        "violence",
        "programs, liars and recorders that are killed: whether every promise holds (--rounds N, --resume)",
    ),
    ("idle", "CPU time of `rtscope watch` while nothing is late"),
    ("self", "what a real-time loop feels of rtscope, judged by trace-cmd"),
];

/// What is to be run.
#[derive(Debug)]
struct Invocation {
    name: String,
    /// What only the benchmark understands.
    rest: Vec<String>,
    json: bool,
}

/// Runs one benchmark, built for release, with the arguments that follow its name.
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    let Some((name, rest)) = arguments.split_first() else { bail!("which benchmark? {}", list()) };
    if BENCHMARKS.iter().all(|(known, _)| known != name) {
        bail!("there is no benchmark '{name}'. {}", list());
    }
    let mut rest: Vec<String> = rest.iter().map(|word| (*word).to_string()).collect();
    // It is not compared with another commit, and its rounds and its seed mean something else.
    let comparison = if *name == "violence" { None } else { Comparison::take(&mut rest)? };
    if let Some(comparison) = comparison {
        let json = rest.iter().any(|word| word == "--json");
        rest.retain(|word| word != "--json" && word != "--quick");
        return against::run(&Invocation { name: (*name).to_string(), rest, json }, &comparison);
    }
    let build = builds::of_tree()?;
    let status = Command::new(&build.program)
        .arg(name)
        .args(rest)
        .status()
        .with_context(|| build.program.display().to_string())?;
    // A program that a signal has ended has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn list() -> String {
    let lines: Vec<String> =
        BENCHMARKS.iter().map(|(name, question)| format!("  {name:<14} {question}")).collect();
    format!(
        "The benchmarks are:\n{}\n\n--against COMMIT compares the tree with a commit (--rounds N pairs of short runs, --seed N); \
         --json prints for programs.",
        lines.join("\n")
    )
}
