// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A periodic control loop with a deadline: the program whose late responses rtscope has to find.
//!
//! Each iteration: sleep until an absolute time, compute, note how long after that time the computing was done. After an
//! overrun the missed iterations are skipped, so that every iteration sleeps and every iteration is one response.
//!
//! A thread takes its name in its first iteration and drops it when it ends. So a tracer that looks for that name sees exactly
//! the iterations that are counted here: not the start of the thread, and not its end.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::{Notes, print_line};
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::start::StartCounts;
use rtscope_testkit::stop::{StopFlag, Waiter, exit_code};
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, sleep_until, work};
use serde_json::{Value, json};

/// A response this close below the deadline may be late for an observer who also counts the way into and out of sleep.
const MARGIN_NS: u64 = 30_000;
/// An iteration is only started when its time is at least this far ahead, so that it really sleeps.
const LEAST_SLEEP_NS: u64 = 50_000;
/// Late responses, and those near the deadline, that can be noted per thread: those of hours (crates/cli/tests/it/watch/soak.rs), in
/// 1.5 MiB each.
const NOTE_CAPACITY: usize = 65_536;

/// A periodic control loop that notes its late responses.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Name of the thread (15 bytes)
    #[arg(long, default_value = "control-loop")]
    name: String,
    /// Time between two iterations
    #[arg(long, default_value = "2ms", value_parser = parse_duration)]
    period: Duration,
    /// Computing time of an iteration
    #[arg(long, default_value = "100us", value_parser = parse_duration)]
    work: Duration,
    /// An iteration is late when its work is done later than this after its time
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
struct Iteration {
    asked_ns: u64,
    woke_ns: u64,
    done_ns: u64,
}

/// The notes of one thread.
#[derive(Debug)]
struct ThreadResult {
    tid: i32,
    loops: u64,
    skipped: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    near_count: u64,
    near: Notes<Iteration>,
    late_count: u64,
    late: Notes<Iteration>,
}

impl ThreadResult {
    fn new() -> Self {
        ThreadResult {
            tid: sched::tid(),
            loops: 0,
            skipped: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            near_count: 0,
            near: Notes::new(NOTE_CAPACITY),
            late_count: 0,
            late: Notes::new(NOTE_CAPACITY),
        }
    }

    fn add(&mut self, iteration: Iteration, deadline_ns: u64) {
        let response = iteration.done_ns - iteration.asked_ns;
        self.loops += 1;
        self.sum_ns += response;
        self.min_ns = self.min_ns.min(response);
        self.max_ns = self.max_ns.max(response);
        if response > deadline_ns {
            self.late_count += 1;
            self.late.push(iteration);
        } else if response + MARGIN_NS > deadline_ns {
            self.near_count += 1;
            self.near.push(iteration);
        }
    }

    fn print(&self, options: &Options) {
        for (key, notes) in [("late", &self.late), ("near", &self.near)] {
            for iteration in notes.items() {
                print_line(&json!({key: {"tid": self.tid, "asked_ns": iteration.asked_ns,
                    "woke_ns": iteration.woke_ns, "done_ns": iteration.done_ns}}));
            }
        }
        let value = |ns: u64| if self.loops == 0 { Value::Null } else { Value::from(ns) };
        let summary = json!({"name": options.name, "tid": self.tid, "loops": self.loops, "late": self.late_count,
            "late_not_listed": self.late.dropped(), "near": self.near_count, "near_not_listed": self.near.dropped(),
            "skipped": self.skipped,
            "min_ns": value(self.min_ns), "mean_ns": value(self.sum_ns / self.loops.max(1)),
            "max_ns": value(self.max_ns), "deadline_ns": duration_ns(options.deadline)});
        print_line(&json!({ "summary": summary }));
    }
}

fn control_loop(options: &Options, first_ns: u64, stop: &StopFlag, starts: &StartCounts) -> ThreadResult {
    let (period, work_ns, deadline) =
        (duration_ns(options.period), duration_ns(options.work), duration_ns(options.deadline));
    let mut result = ThreadResult::new();
    let mut asked_ns = first_ns;
    loop {
        sleep_until(asked_ns);
        let woke_ns = now_ns();
        if stop.is_set() {
            sched::set_name("ended");
            return result;
        }
        if result.loops == 0 {
            sched::set_name(&options.name);
            starts.begin();
        }
        let done_ns = work(woke_ns, work_ns);
        result.add(Iteration { asked_ns, woke_ns, done_ns }, deadline);
        asked_ns += period;
        if asked_ns < done_ns + LEAST_SLEEP_NS {
            let missed = (done_ns + LEAST_SLEEP_NS - asked_ns).div_ceil(period);
            result.skipped += missed;
            asked_ns += missed * period;
        }
    }
}

fn run_thread(
    options: &Options,
    first_ns: u64,
    stop: &StopFlag,
    starts: &StartCounts,
) -> Result<ThreadResult> {
    starts.prepare(options.cpu, options.policy)?;
    Ok(control_loop(options, first_ns, stop, starts))
}

fn run(options: &Options) -> Result<()> {
    if options.period.is_zero() {
        return Err(anyhow!("--period must be longer than 0"));
    }
    let waiter = Waiter::new()?;
    sched::lock_memory(options.policy)?;
    let (stop, starts) = (StopFlag::default(), StartCounts::default());
    let first_ns = now_ns() + 20_000_000;
    let threads: Vec<_> = (0..options.threads)
        .map(|_| {
            let (options, stop, starts) = (options.clone(), stop.clone(), starts.clone());
            thread::spawn(move || run_thread(&options, first_ns, &stop, &starts))
        })
        .collect();
    if starts.wait_for(options.threads) {
        print_line(&json!({"ready": true, "pid": std::process::id(), "first_ns": first_ns,
            "deadline_ns": duration_ns(options.deadline)}));
        waiter.wait(options.duration)?;
    }
    stop.set();
    let results: Vec<Result<ThreadResult>> =
        threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    for result in results {
        result?.print(options);
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
