// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many threads that one timer interrupt wakes, and threads that do not stay what they were: a target that renames
//! itself, a target that ends early.
//!
//! As in rtscope-victim, a thread takes its name in its first turn and drops it when it ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::stop::{StopFlag, Waiter};
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

/// What one thread did.
#[derive(Debug)]
struct Account {
    index: u32,
    tid: i32,
    responses: u64,
    skipped: u64,
    max_ns: u64,
}

#[derive(Debug, Default)]
struct Progress {
    turning: AtomicU32,
    failed: AtomicU32,
}

fn turns(options: &Options, account: &mut Account, first_ns: u64, stop: &StopFlag, progress: &Progress) {
    let (period, work_ns) = (duration_ns(options.period), duration_ns(options.work));
    let mut asked_ns = first_ns;
    while options.exit_after.is_none_or(|n| account.responses < n) {
        sleep_until(asked_ns);
        let woke_ns = now_ns();
        if stop.is_set() {
            break;
        }
        if account.responses == 0 {
            sched::set_name(&format!("{}{}", options.name, account.index));
            // ORDER: relaxed: a count that the main thread polls; it reads the account after joining the thread.
            progress.turning.fetch_add(1, Ordering::Relaxed);
        }
        if options.rename_after == Some(account.responses) {
            sched::set_name(&options.new_name);
        }
        let done_ns = work(woke_ns, work_ns);
        account.responses += 1;
        account.max_ns = account.max_ns.max(done_ns - asked_ns);
        asked_ns += period;
        if asked_ns < done_ns {
            let missed = (done_ns - asked_ns).div_ceil(period);
            account.skipped += missed;
            asked_ns += missed * period;
        }
    }
    if options.exit_after == Some(account.responses) {
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
    progress: &Progress,
) -> Result<Account> {
    let mut account = Account { index, tid: sched::tid(), responses: 0, skipped: 0, max_ns: 0 };
    let cpu = options.cpu.map_or_else(sched::last_cpu, Ok);
    let prepared = cpu.and_then(sched::pin_to_cpu).and_then(|()| sched::set_policy(options.policy));
    if prepared.is_err() {
        // ORDER: relaxed: only tells the main thread to stop waiting; the error itself comes through join.
        progress.failed.fetch_add(1, Ordering::Relaxed);
    }
    prepared?;
    turns(options, &mut account, first_ns, stop, progress);
    Ok(account)
}

/// Returns when every thread has begun its first turn; false when one could not.
fn wait_until_turning(progress: &Progress, threads: u32) -> bool {
    loop {
        // ORDER: relaxed: see where the counts are added to.
        let (turning, failed) =
            (progress.turning.load(Ordering::Relaxed), progress.failed.load(Ordering::Relaxed));
        if turning == threads || failed > 0 {
            return failed == 0;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn run(options: &Options) -> Result<()> {
    if options.period.is_zero() || options.exit_after == Some(0) {
        return Err(anyhow!("--period and --exit-after must be more than 0"));
    }
    let waiter = Waiter::new()?;
    sched::lock_memory(options.policy)?;
    let (stop, progress) = (StopFlag::default(), Arc::new(Progress::default()));
    let first_ns = now_ns() + 200_000_000;
    let mut threads = Vec::new();
    for index in 0..options.threads {
        let (options, stop, progress) = (options.clone(), stop.clone(), Arc::clone(&progress));
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        threads.push(builder.spawn(move || run_thread(index, &options, first_ns, &stop, &progress))?);
    }
    if wait_until_turning(&progress, options.threads) {
        print_line(&json!({"ready": true, "pid": std::process::id(), "threads": options.threads}));
        waiter.wait(options.duration)?;
    }
    stop.set();
    let accounts: Vec<Result<Account>> =
        threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    let mut responses = 0;
    for account in accounts {
        let a = account?;
        responses += a.responses;
        print_line(&json!({"thread": {"index": a.index, "tid": a.tid, "responses": a.responses,
            "skipped": a.skipped, "max_ns": a.max_ns}}));
    }
    print_line(&json!({"summary": {"threads": options.threads, "responses": responses}}));
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rtscope-threads: {error:#}");
            ExitCode::FAILURE
        }
    }
}
