// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that keeps its CPU busy at intervals, and notes exactly when.
//!
//! With a priority above the victim's it preempts it; with the victim's own priority it makes it wait.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use rtscope_testkit::disturber::{self, MakeBurst, Plan, Span};
use rtscope_testkit::sched::Policy;
use rtscope_testkit::stop::exit_code;
use rtscope_testkit::time::{duration_ns, parse_duration, spin_until};
use serde_json::Value;

/// Keeps a CPU busy at intervals, and notes when.
#[derive(Debug, Parser)]
struct Options {
    /// Name of the thread (15 bytes)
    #[arg(long, default_value = "hog")]
    name: String,
    /// fifo:1..99, rr:1..99 or other
    #[arg(long, default_value = "fifo:80")]
    policy: Policy,
    /// How long to keep the CPU
    #[arg(long, default_value = "3ms", value_parser = parse_duration)]
    burst: Duration,
    /// Time from the start of a burst to the start of the next
    #[arg(long, default_value = "50ms", value_parser = parse_duration)]
    every: Duration,
    #[command(flatten)]
    span: Span,
}

fn run(options: Options) -> Result<()> {
    let burst_ns = duration_ns(options.burst);
    let plan = Plan {
        name: options.name,
        policy: options.policy,
        burst: options.burst,
        every: options.every,
        span: options.span,
    };
    disturber::run(plan, move || {
        let make_burst: MakeBurst = Box::new(move |start_ns| {
            spin_until(start_ns + burst_ns);
        });
        Ok((Value::Null, make_burst))
    })
}

fn main() -> ExitCode {
    exit_code(run(Options::parse()))
}
