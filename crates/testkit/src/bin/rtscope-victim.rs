// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A periodic control loop with a deadline: the program whose late responses are looked for.
//!
//! Each turn: sleep until an absolute time, compute, note how long after that time the computing was done. After an
//! overrun the turns that were missed are skipped, so that every turn sleeps and every turn is one response.
//!
//! A thread takes its name in its first turn and drops it when it ends. So a tracer that looks for that name sees exactly
//! the turns that are counted here: not the starting of the thread, and not its end.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::{Notes, print_line};
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::stop::{StopFlag, Waiter};
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, sleep_until, work};
use serde_json::{Value, json};

/// A response this close below the deadline may be late for an observer who also counts the way into and out of sleep.
const MARGIN_NS: u64 = 30_000;
/// A turn is only started when its time is at least this far ahead, so that it really sleeps.
const LEAST_SLEEP_NS: u64 = 50_000;
/// Late responses that can be noted per thread: those of hours (crates/cli/tests/it/watch/soak.rs), in 1.5 MiB.
const ROOM: usize = 65_536;

/// A periodic control loop that notes its late responses.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Name of the thread (15 bytes)
    #[arg(long, default_value = "control-loop")]
    name: String,
    /// Time between two turns
    #[arg(long, default_value = "2ms", value_parser = parse_duration)]
    period: Duration,
    /// Computing time of a turn
    #[arg(long, default_value = "100us", value_parser = parse_duration)]
    work: Duration,
    /// A turn is late when its work is done later than this after its time
    #[arg(long, default_value = "500us", value_parser = parse_duration)]
    deadline: Duration,
    /// CPU to run on (default: the last one)
    #[arg(long)]
    cpu: Option<usize>,
    /// fifo:1..99, rr:1..99 or other
    #[arg(long, default_value = "fifo:50")]
    policy: Policy,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Number of equal loops, all on the same CPU
    #[arg(long, default_value_t = 1)]
    threads: u32,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    asked_ns: u64,
    woke_ns: u64,
    done_ns: u64,
}

/// What one thread noted.
#[derive(Debug)]
struct Account {
    tid: i32,
    loops: u64,
    skipped: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    late_margin: u64,
    late_count: u64,
    late: Notes<Turn>,
}

impl Account {
    fn new() -> Self {
        Account {
            tid: sched::tid(),
            loops: 0,
            skipped: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            late_margin: 0,
            late_count: 0,
            late: Notes::new(ROOM),
        }
    }

    fn add(&mut self, turn: Turn, deadline_ns: u64) {
        let response = turn.done_ns - turn.asked_ns;
        self.loops += 1;
        self.sum_ns += response;
        self.min_ns = self.min_ns.min(response);
        self.max_ns = self.max_ns.max(response);
        if response > deadline_ns {
            self.late_count += 1;
            self.late.push(turn);
        } else if response + MARGIN_NS > deadline_ns {
            self.late_margin += 1;
        }
    }

    fn print(&self, options: &Options) {
        for turn in self.late.items() {
            let late = json!({"tid": self.tid, "asked_ns": turn.asked_ns, "woke_ns": turn.woke_ns,
                "done_ns": turn.done_ns});
            print_line(&json!({ "late": late }));
        }
        let value = |ns: u64| if self.loops == 0 { Value::Null } else { Value::from(ns) };
        let summary = json!({"name": options.name, "tid": self.tid, "loops": self.loops, "late": self.late_count,
            "late_margin": self.late_margin, "late_not_listed": self.late.dropped(), "skipped": self.skipped,
            "min_ns": value(self.min_ns), "mean_ns": value(self.sum_ns / self.loops.max(1)),
            "max_ns": value(self.max_ns), "deadline_ns": duration_ns(options.deadline)});
        print_line(&json!({ "summary": summary }));
    }
}

/// What the threads tell the main thread.
#[derive(Debug, Default)]
struct Progress {
    turning: AtomicU32,
    failed: AtomicU32,
}

fn control_loop(options: &Options, first_ns: u64, stop: &StopFlag, progress: &Progress) -> Account {
    let (period, work_ns, deadline) =
        (duration_ns(options.period), duration_ns(options.work), duration_ns(options.deadline));
    let mut account = Account::new();
    let mut asked_ns = first_ns;
    loop {
        sleep_until(asked_ns);
        let woke_ns = now_ns();
        if stop.is_set() {
            sched::set_name("ended");
            return account;
        }
        if account.loops == 0 {
            sched::set_name(&options.name);
            // ORDER: relaxed: a count that the main thread polls; it reads the thread's account after joining it.
            progress.turning.fetch_add(1, Ordering::Relaxed);
        }
        let done_ns = work(woke_ns, work_ns);
        account.add(Turn { asked_ns, woke_ns, done_ns }, deadline);
        asked_ns += period;
        if asked_ns < done_ns + LEAST_SLEEP_NS {
            let missed = (done_ns + LEAST_SLEEP_NS - asked_ns).div_ceil(period);
            account.skipped += missed;
            asked_ns += missed * period;
        }
    }
}

fn run_thread(options: &Options, first_ns: u64, stop: &StopFlag, progress: &Progress) -> Result<Account> {
    let cpu = options.cpu.map_or_else(sched::last_cpu, Ok);
    let prepared = cpu.and_then(sched::pin_to_cpu).and_then(|()| sched::set_policy(options.policy));
    if prepared.is_err() {
        // ORDER: relaxed: only tells the main thread to stop waiting; the error itself comes through join.
        progress.failed.fetch_add(1, Ordering::Relaxed);
    }
    prepared?;
    Ok(control_loop(options, first_ns, stop, progress))
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
    if options.period.is_zero() {
        return Err(anyhow!("--period must be longer than 0"));
    }
    let waiter = Waiter::new()?;
    sched::lock_memory(options.policy)?;
    let (stop, progress) = (StopFlag::default(), Arc::new(Progress::default()));
    let first_ns = now_ns() + 20_000_000;
    let threads: Vec<_> = (0..options.threads)
        .map(|_| {
            let (options, stop, progress) = (options.clone(), stop.clone(), Arc::clone(&progress));
            thread::spawn(move || run_thread(&options, first_ns, &stop, &progress))
        })
        .collect();
    if wait_until_turning(&progress, options.threads) {
        print_line(&json!({"ready": true, "pid": std::process::id(), "first_ns": first_ns,
            "deadline_ns": duration_ns(options.deadline)}));
        waiter.wait(options.duration)?;
    }
    stop.set();
    let accounts: Vec<Result<Account>> =
        threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    for account in accounts {
        account?.print(options);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rtscope-victim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
