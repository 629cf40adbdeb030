// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads with events around their work, which note themselves when it began and ended.
//!
//! Each worker has `spans:begin` and `spans:end` around each iteration, and sleeps in the middle of every few. Another thread hears of each
//! iteration and has `spans:taken` for it. A note has the times before and after each event: the event's own lies between these.

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rtscope_probe::event;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::sched;
use rtscope_testkit::stop::exit_code;
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, sleep_until, work};
use serde_json::json;

/// Threads with events around their work.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Number of workers
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Iterations of each
    #[arg(long, default_value_t = 100)]
    count: u64,
    /// Computing time of an iteration
    #[arg(long, default_value = "200us", value_parser = parse_duration)]
    work: Duration,
    /// Every so many iterations it sleeps
    #[arg(long, default_value_t = 10)]
    sleep_every: u64,
    /// For this time
    #[arg(long, default_value = "8ms", value_parser = parse_duration)]
    sleep: Duration,
}

/// An iteration.
#[derive(Debug)]
struct Iteration {
    id: u64,
    tid: i32,
    /// Before its first event.
    before_ns: u64,
    /// After its first event.
    begun_ns: u64,
    /// Before its last event.
    done_ns: u64,
    /// After its last event.
    after_ns: u64,
    slept: bool,
}

fn iterate(options: &Options, thread: u64, told: &Sender<Iteration>) {
    sched::set_name(&format!("worker-{thread}"));
    let tid = sched::tid();
    for number in 0..options.count {
        let id = thread * options.count + number;
        let before_ns = now_ns();
        event!(spans, begin, id: u64 = id, note: str = "of an iteration");
        let begun_ns = now_ns();
        work(begun_ns, duration_ns(options.work));
        let slept = (number + 1) % options.sleep_every == 0;
        if slept {
            sleep_until(now_ns() + duration_ns(options.sleep));
        }
        let done_ns = now_ns();
        event!(spans, end, id: u64 = id);
        let after_ns = now_ns();
        // The other thread ends last.
        let _ = told.send(Iteration { id, tid, before_ns, begun_ns, done_ns, after_ns, slept });
    }
}

fn take(told: &Receiver<Iteration>) -> u64 {
    sched::set_name("taker");
    let mut count = 0;
    for Iteration { id, tid, before_ns, begun_ns, done_ns, after_ns, slept } in told {
        let done = [done_ns, after_ns];
        let earliest_ns = now_ns();
        event!(spans, taken, order: u64 = id);
        let taken = [earliest_ns, now_ns()];
        let begun = [before_ns, begun_ns];
        print_line(
            &json!({"iteration": {"id": id, "tid": tid, "begun": begun, "done": done, "taken": taken, "slept": slept}}),
        );
        count += 1;
    }
    count
}

fn run(options: &Options) -> Result<()> {
    if options.sleep_every == 0 {
        return Err(anyhow!("--sleep-every must be more than 0"));
    }
    print_line(&json!({"ready": true, "pid": std::process::id()}));
    let (tell, told) = channel();
    let taker = thread::spawn(move || take(&told));
    thread::scope(|scope| {
        for thread in 0..options.threads {
            let tell = tell.clone();
            scope.spawn(move || iterate(options, thread, &tell));
        }
    });
    drop(tell);
    let count = taker.join().map_err(|_| anyhow!("a thread panicked"))?;
    print_line(&json!({"summary": {"iterations": count}}));
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
