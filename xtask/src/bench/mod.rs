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

/// What some benchmarks understand beside the options of all.
const OWN_OPTIONS: [(&str, &str); 5] = [
    ("record", "PART            only rows with PART in their names"),
    ("user-events", "collector       only the recorders' CPU time"),
    ("user-rate", "--seconds=N     seconds of each try\n  --place=disk    only onto the disk"),
    ("self", "--plant         a lie: rtscope is bound to the CPU of the loop, which has to be found"),
    (
        "violence",
        "--rounds N      rounds (20)\n  --seed N        the order of what happens\n  --resume        goes on with the last campaign\n  \
         --round SEED    one round again\n  --dir DIR       where faulty rounds are kept",
    ),
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
    let is_help = |word: &&str| ["--help", "-h"].contains(word);
    if arguments.first().is_some_and(is_help) {
        println!("./x bench NAME [OPTIONS]\n\n{}", list());
        return Ok(ExitCode::SUCCESS);
    }
    let Some((name, rest)) = arguments.split_first() else { bail!("which benchmark? {}", list()) };
    if BENCHMARKS.iter().all(|(known, _)| known != name) {
        bail!("there is no benchmark '{name}'. {}", list());
    }
    if rest.iter().any(is_help) {
        println!("{}", help(name));
        return Ok(ExitCode::SUCCESS);
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

/// Of one benchmark.
fn help(name: &str) -> String {
    let find = |all: &[(&str, &'static str)]| {
        all.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).unwrap_or_default()
    };
    let (question, own) = (find(&BENCHMARKS), find(&OWN_OPTIONS));
    let own = if own.is_empty() { String::new() } else { format!("  {own}\n") };
    let all = match name {
        "violence" => "  --quick         3 rounds\n  --json          for programs",
        _ => {
            "  --quick         a few rounds, which only show that it works\n  --json          for programs\n  \
             --against COMMIT  compares the tree with a commit, in pairs of short runs (--rounds N, --seed N)"
        }
    };
    format!(
        "./x bench {name} [OPTIONS]: {question}\n\n{own}{all}\n\nExit codes: 0 every limit held, 1 not, 2 it failed, 3 it cannot run here."
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_benchmark_has_help() {
        for (name, question) in BENCHMARKS {
            let help = help(name);
            assert!(help.contains(question) && help.contains("--json"), "{help}");
        }
        for (name, own) in OWN_OPTIONS {
            assert!(help(name).contains(own), "{name}");
        }
    }
}
