// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rtscope's benchmarks. Each measures rtscope and the tool that people use today in one run, on one CPU, in random
//! order, and subtracts what the machine does without either. Absolute times on a shared machine drift; the ratios are what counts.

mod blocks;
mod calls;
mod flip;
mod hardware;
mod host;
mod idle;
mod inside;
mod kernel_events;
mod own_cost;
mod peers;
mod pipe;
mod progress;
mod queue;
mod read;
mod record;
mod requirements;
mod rtscope;
mod shield;
mod state;
mod table;
mod tracker;
mod trackers;
mod user_collector;
mod user_events;
mod user_full;
mod user_rate;
mod violence;

use self::requirements::Requirement::{Built, Cpus, Ebpf, Installed, Root, Tracefs};
use self::requirements::{BPFTRACE, CC, PERF, Requirement, TASKSET, Tool};
use self::table::Report;
use anyhow::{Result, bail, ensure};
use std::process::ExitCode;

/// A limit is exceeded; it failed; it cannot run on this machine.
const EXCEEDED: u8 = 1;
const FAILED: u8 = 2;
const CANNOT_RUN: u8 = 3;

const USAGE: &str = "name one benchmark: kernel-events, tracker, trackers, flip, idle, state, record, read, user-events, user-rate, \
    queue, hardware, shield, violence, self (and --json, --quick; a part of a row's name after record, collector after user-events; --seconds=30 and --place=disk with \
    user-rate; --plant with self binds rtscope to the CPU of the loop)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXCEEDED),
        Err(error) => {
            let name = words.iter().find(|word| !word.starts_with("--")).map_or("", String::as_str);
            let Some(missing) = requirements::unavailable(&error) else {
                eprintln!("benchmark {name} failed: {error:#}");
                return ExitCode::from(FAILED);
            };
            if words.iter().any(|word| word == "--json") {
                println!("{}", not_measured(name, &missing));
            }
            eprintln!("benchmark {name} cannot run here: {missing}");
            ExitCode::from(CANNOT_RUN)
        }
    }
}

/// What a program reads where the others find rows.
fn not_measured(name: &str, reason: &str) -> serde_json::Value {
    serde_json::json!({
        "schema": format!("rtscope.bench.{name}/1"),
        "name": name,
        "not_measured": {"reason": reason},
    })
}

/// The CPU that loads are pinned to: the last one. The benchmark itself and its tools' readers stay on the others.
fn pipe_cpu() -> usize {
    std::thread::available_parallelism().map_or(0, |count| count.get() - 1)
}

/// What each benchmark cannot do without. LTTng is left out where it is missing, and that is reported.
fn requirements(name: &str) -> &'static [Requirement] {
    const HACKBENCH: Tool = Tool { name: "hackbench", remedy: "install rt-tests (Debian: rt-tests)" };
    const TRACE_CMD: Tool =
        Tool { name: "trace-cmd", remedy: "install trace-cmd (Debian, Fedora: trace-cmd)" };
    const UNSHARE: Tool = Tool { name: "unshare", remedy: "install util-linux" };
    const BABELTRACE: Tool =
        Tool { name: "babeltrace2", remedy: "install babeltrace2 (Debian: babeltrace2)" };
    match name {
        "kernel-events" => &[Root, Ebpf, Tracefs, Installed(PERF), Installed(TASKSET)],
        "tracker" => {
            &[Root, Ebpf, Installed(PERF), Installed(TASKSET), Installed(BPFTRACE), Built("rtscope-threads")]
        }
        "trackers" => &[Root, Ebpf, Installed(PERF), Installed(TASKSET), Installed(BPFTRACE)],
        "flip" => &[Root, Ebpf, Installed(PERF), Installed(TASKSET), Built("rtscope-victim")],
        "idle" => &[Root, Ebpf, Built("rtscope")],
        "state" => &[Root, Ebpf, Installed(PERF), Installed(TASKSET)],
        "record" => &[
            Root,
            Ebpf,
            Tracefs,
            Installed(CC),
            Installed(HACKBENCH),
            Installed(TASKSET),
            Installed(UNSHARE),
            Installed(TRACE_CMD),
            Installed(PERF),
            Built("rtscope"),
        ],
        "read" => &[Installed(BABELTRACE), Built("rtscope")],
        "user-events" => {
            &[Root, Installed(CC), Installed(TASKSET), Built("rtscope"), Built("rtscope-bench-events")]
        }
        "user-rate" => &[Built("rtscope")],
        "queue" => &[Cpus(2), Installed(CC)],
        "shield" => &[Root, Ebpf],
        "self" => &[
            Root,
            Ebpf,
            Tracefs,
            Cpus(2),
            Installed(TASKSET),
            Installed(UNSHARE),
            Installed(TRACE_CMD),
            Built("rtscope"),
            Built("rtscope-bench-events"),
        ],
        _ => &[],
    }
}

/// True when every promise held.
fn run(words: &[String]) -> Result<bool> {
    // It has other options, and reports other things.
    if words.first().is_some_and(|word| word.starts_with("violence")) {
        return violence::run(words);
    }
    let json = words.iter().any(|word| word == "--json");
    let quick = words.iter().any(|word| word == "--quick");
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let plant = words.iter().any(|word| word == "--plant");
    let options = ["--json", "--quick", "--plant"];
    let is_known = |word: &&String| {
        !word.starts_with("--")
            || options.contains(&word.as_str())
            || ["--seconds=", "--place="].iter().any(|option| word.starts_with(option))
    };
    if let Some(unknown) = words.iter().find(|word| !is_known(word)) {
        bail!("there is no option {unknown}; {USAGE}");
    }
    let names: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    if let ["system-calls", count] = names.as_slice() {
        return record::system_calls(count).map(|()| true);
    }
    requirements::check(requirements(names.first().copied().unwrap_or_default()))?;
    let report = match names.as_slice() {
        ["kernel-events"] => kernel_events::run(quick)?,
        ["tracker"] => tracker::run(quick)?,
        ["trackers"] => trackers::run(quick)?,
        ["flip"] => flip::run(quick)?,
        ["idle"] => idle::run(quick)?,
        ["state"] => state::run(quick)?,
        ["record"] => record::run(quick, "")?,
        ["record", only] => record::run(quick, only)?,
        ["queue"] => queue::run(quick)?,
        ["hardware"] => hardware::run(quick)?,
        ["shield"] => shield::run(quick)?,
        ["self"] => own_cost::run(quick, plant)?,
        ["read"] => read::run(quick)?,
        ["user-events"] => user_events::run(quick)?,
        ["user-events", "collector"] => user_events::run_collector(quick)?,
        ["user-rate"] => user_rate::run(quick, value("--seconds"), value("--place"))?,
        _ => bail!("{USAGE}"),
    };
    print(report, json)
}

fn print(report: Report, json: bool) -> Result<bool> {
    let report = report.measured();
    ensure!(!report.rows.is_empty(), "nothing was measured: {}", report.checks.join("; "));
    println!("{}", if json { serde_json::to_string(&report)? } else { report.text() });
    Ok(report.promises.iter().all(|promise| promise.held))
}
