// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that counts in its own name, fast: `c000000000001`, `c000000000002`, and so on.
//!
//! Each new name is a task_rename event that carries its own number, so a recording with a gap, however short, shows it.

use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::stop::{StopFlag, Waiter, exit_code};
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, spin_until};
use serde_json::json;

/// Counts in the name of a thread.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// CPU to run on (default: the last one)
    #[arg(long)]
    cpu: Option<usize>,
    /// fifo:1..99, rr:1..99 or other
    #[arg(long, default_value = "other")]
    policy: Policy,
    /// Time between two numbers
    #[arg(long, default_value = "30us", value_parser = parse_duration)]
    every: Duration,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

/// Counts until the flag is set; returns the last number and when it was set.
fn count(every_ns: u64, stop: &StopFlag) -> (u64, u64) {
    let mut number = 1;
    let mut time_ns = now_ns();
    while !stop.is_set() {
        number += 1;
        sched::set_name(&format!("c{number:012}"));
        time_ns = spin_until(time_ns + every_ns);
    }
    (number, time_ns)
}

fn run(options: &Options) -> Result<()> {
    let waiter = Waiter::new()?;
    let stop = StopFlag::default();
    let (thread_options, thread_stop) = (options.clone(), stop.clone());
    let (ready, is_ready) = channel();
    let thread = thread::spawn(move || -> Result<_> {
        sched::pin_to_cpu(thread_options.cpu.map_or_else(sched::last_cpu, Ok)?)?;
        sched::set_policy(thread_options.policy)?;
        sched::set_name("c000000000001");
        let tid = sched::tid();
        ready.send(tid)?;
        let first_ns = now_ns();
        Ok((tid, first_ns, count(duration_ns(thread_options.every), &thread_stop)))
    });
    // When the thread fails it drops its end without sending; join returns the reason.
    if let Ok(tid) = is_ready.recv() {
        print_line(&json!({"ready": true, "pid": std::process::id(), "tid": tid}));
        waiter.wait(options.duration)?;
    }
    stop.set();
    let (tid, first_ns, (last, last_ns)) = thread.join().map_err(|_| anyhow!("the thread panicked"))??;
    print_line(
        &json!({"summary": {"tid": tid, "first": 1, "last": last, "first_ns": first_ns, "last_ns": last_ns}}),
    );
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
