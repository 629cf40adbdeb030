// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts events on all CPUs with perf's counters: while a command runs, or until it is stopped. See
//! `rtscope_testkit::count`.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use rtscope_testkit::count::{Counters, windows};
use rtscope_testkit::notes::print_line;
use rtscope_testkit::stop::{Waiter, exit_code};
use rtscope_testkit::time::parse_duration;
use serde_json::{Map, json};

/// Counts events on all CPUs.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Tracepoints, like sched:sched_switch
    #[arg(short, long = "event", required = true, value_delimiter = ',')]
    events: Vec<String>,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Count while this command runs
    #[arg(last = true)]
    command: Vec<String>,
}

fn run(options: &Options) -> Result<()> {
    let waiter = Waiter::new()?;
    let counters = Counters::open(&options.events)?;
    let from = counters.mark()?;
    print_line(&json!({"ready": true, "pid": std::process::id()}));
    match options.command.split_first() {
        Some((program, arguments)) => {
            let status = Command::new(program).args(arguments).status().with_context(|| program.clone())?;
            print_line(&json!({"command": {"code": status.code()}}));
        }
        None => drop(waiter.wait(options.duration)?),
    }
    let mut totals = Map::new();
    for window in windows(from, counters.mark()?) {
        let mut counts = Map::new();
        for (number, event) in counters.events().iter().enumerate() {
            let count = window.count(number);
            counts.insert(event.clone(), count.into());
            let before = totals.get(event).and_then(serde_json::Value::as_u64).unwrap_or(0);
            totals.insert(event.clone(), (before + count).into());
        }
        print_line(&json!({"cpu": window.from.cpu, "from_ns": window.from.after_ns,
            "until_ns": window.until.before_ns, "counts": counts}));
    }
    print_line(&json!({"summary": {"counts": totals}}));
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
