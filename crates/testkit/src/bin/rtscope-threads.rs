// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many threads that one timer interrupt wakes, and threads that change: a target that renames itself, a target that ends early.
//!
//! As in rtscope-victim, a thread takes its name in its first iteration and drops it when it ends.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::start::StartCounts;
use rtscope_testkit::stop::{StopFlag, Waiter, exit_code};
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, sleep_until, work};
use serde_json::json;

/// Stack of a thread: small, since all memory of the process is locked.
const STACK_BYTES: usize = 128 * 1024;

/// Many threads that sleep until the same moment.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Number of threads
    #[arg(long, default_value_t = 200)]
    threads: u32,
    /// The names are this and a number from 0
    #[arg(long, default_value = "control-")]
    name: String,
    /// Time between two moments
    #[arg(long, default_value = "20ms", value_parser = parse_duration)]
    period: Duration,
    /// Computing time of each thread
    #[arg(long, default_value = "10us", value_parser = parse_duration)]
    work: Duration,
    /// CPU to run on (default: the last one)
    #[arg(long)]
    cpu: Option<usize>,
    /// fifo:1..99, rr:1..99 or other
    #[arg(long, default_value = "fifo:50")]
    policy: Policy,
    /// Each thread takes the name `--new-name` after this many responses
    #[arg(long)]
    rename_after: Option<u64>,
    /// See --rename-after
    #[arg(long, default_value = "renamed")]
    new_name: String,
    /// Each thread ends after this many responses
    #[arg(long)]
    exit_after: Option<u64>,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

/// The notes of one thread.
#[derive(Debug)]
struct ThreadResult {
    index: u32,
    tid: i32,
    responses: u64,
    skipped: u64,
    max_ns: u64,
}

fn iterate(
    options: &Options,
    result: &mut ThreadResult,
    first_ns: u64,
    stop: &StopFlag,
    starts: &StartCounts,
) {
    let (period, work_ns) = (duration_ns(options.period), duration_ns(options.work));
    let mut asked_ns = first_ns;
    while options.exit_after.is_none_or(|n| result.responses < n) {
        sleep_until(asked_ns);
        let woke_ns = now_ns();
        if stop.is_set() {
            break;
        }
        if result.responses == 0 {
            sched::set_name(&format!("{}{}", options.name, result.index));
            starts.begin();
        }
        if options.rename_after == Some(result.responses) {
            sched::set_name(&options.new_name);
        }
        let done_ns = work(woke_ns, work_ns);
        result.responses += 1;
        result.max_ns = result.max_ns.max(done_ns - asked_ns);
        asked_ns += period;
        if asked_ns < done_ns {
            let missed = (done_ns - asked_ns).div_ceil(period);
            result.skipped += missed;
            asked_ns += missed * period;
        }
    }
    if options.exit_after == Some(result.responses) {
        // The last response ends with a wait like all others, and not with the end of the thread.
        sleep_until(asked_ns);
    }
    sched::set_name("ended");
}

fn run_thread(
    index: u32,
    options: &Options,
    first_ns: u64,
    stop: &StopFlag,
    starts: &StartCounts,
) -> Result<ThreadResult> {
    let mut result = ThreadResult { index, tid: sched::tid(), responses: 0, skipped: 0, max_ns: 0 };
    starts.prepare(options.cpu, options.policy)?;
    iterate(options, &mut result, first_ns, stop, starts);
    Ok(result)
}

fn run(options: &Options) -> Result<()> {
    if options.period.is_zero() || options.exit_after == Some(0) {
        return Err(anyhow!("--period and --exit-after must be more than 0"));
    }
    let waiter = Waiter::new()?;
    sched::lock_memory(options.policy)?;
    let (stop, starts) = (StopFlag::default(), StartCounts::default());
    let first_ns = now_ns() + 200_000_000;
    let mut threads = Vec::new();
    for index in 0..options.threads {
        let (options, stop, starts) = (options.clone(), stop.clone(), starts.clone());
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        threads.push(builder.spawn(move || run_thread(index, &options, first_ns, &stop, &starts))?);
    }
    if starts.wait_for(options.threads) {
        print_line(&json!({"ready": true, "pid": std::process::id(), "threads": options.threads}));
        waiter.wait(options.duration)?;
    }
    stop.set();
    let results: Vec<Result<ThreadResult>> =
        threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    let mut responses = 0;
    for result in results {
        let a = result?;
        responses += a.responses;
        print_line(&json!({"thread": {"index": a.index, "tid": a.tid, "responses": a.responses,
            "skipped": a.skipped, "max_ns": a.max_ns}}));
    }
    print_line(&json!({"summary": {"threads": options.threads, "responses": responses}}));
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
