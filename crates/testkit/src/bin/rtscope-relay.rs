// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two threads on two CPUs: a timer wakes the first, which then wakes the second several times in quick succession, so that
//! many wakeups meet it while it goes to sleep. A tracker that loses count of wakeups shows it here.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rtscope_testkit::notes::print_line;
use rtscope_testkit::random::Random;
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::stop::{StopFlag, Waiter, exit_code};
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, spin_until};
use serde_json::json;

/// A waker on one CPU, a sleeper on another.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// The sleeper's CPU (default: the last one); the waker is on CPU 0
    #[arg(long)]
    cpu: Option<usize>,
    /// Policy of both
    #[arg(long, default_value = "fifo:20")]
    policy: Policy,
    /// Name of the sleeper
    #[arg(long, default_value = "control-relay")]
    name: String,
    /// The waker's timer
    #[arg(long, default_value = "2ms", value_parser = parse_duration)]
    period: Duration,
    /// Wakeups for each expiry of the timer
    #[arg(long, default_value_t = 8)]
    wakeups: u32,
    /// Longest time between two wakeups
    #[arg(long, default_value = "12us", value_parser = parse_duration)]
    gap: Duration,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

fn wake(options: &Options, bell: &EventFd, stop: &StopFlag) -> Result<u64> {
    sched::pin_to_cpu(0)?;
    sched::set_policy(options.policy)?;
    sched::set_name("relay-waker");
    let (mut random, mut wakeups) = (Random(1), 0);
    while !stop.is_set() {
        thread::sleep(options.period);
        for _ in 0..options.wakeups {
            bell.write(1)?;
            wakeups += 1;
            spin_until(now_ns() + random.below(duration_ns(options.gap)));
        }
    }
    // Once more, so that the sleeper sees the stop.
    bell.write(1)?;
    Ok(wakeups)
}

fn sleep(options: &Options, bell: &EventFd, stop: &StopFlag) -> Result<()> {
    sched::pin_to_cpu(options.cpu.map_or_else(sched::last_cpu, Ok)?)?;
    sched::set_policy(options.policy)?;
    sched::set_name(&options.name);
    while !stop.is_set() {
        bell.read()?;
    }
    Ok(())
}

fn run(options: &Options) -> Result<()> {
    let waiter = Waiter::new()?;
    let stop = StopFlag::default();
    let bell = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC).context("making an eventfd")?;
    let wakeups = thread::scope(|scope| -> Result<u64> {
        let sleeper = scope.spawn(|| sleep(options, &bell, &stop));
        let waker = scope.spawn(|| wake(options, &bell, &stop));
        print_line(&json!({ "ready": true, "pid": std::process::id() }));
        waiter.wait(options.duration)?;
        stop.set();
        let wakeups = waker.join().map_err(|_| anyhow!("the waker panicked"))??;
        sleeper.join().map_err(|_| anyhow!("the sleeper panicked"))??;
        Ok(wakeups)
    })?;
    print_line(&json!({ "summary": { "wakeups": wakeups } }));
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
