// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The common part of all disturbers: one thread that does something to its CPU at set times, and notes when.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::notes::{Burst, Notes, print_bursts, print_line};
use crate::sched::{self, Policy};
use crate::stop::{StopFlag, Waiter};
use crate::time::{duration_ns, now_ns, parse_duration, sleep_until, thread_cpu_ns};

/// Bursts that can be noted.
const BURST_CAPACITY: usize = 65_536;

/// Where, how and when a disturber runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the thread.
    pub name: String,
    /// Policy of the thread.
    pub policy: Policy,
    /// How long one burst lasts, as intended.
    pub burst: Duration,
    /// From the start of a burst to the start of the next.
    pub every: Duration,
    /// The CPU, the start and the end.
    pub span: Span,
}

/// The options that all disturbers have: on which CPU, from when and until when.
#[derive(Debug, Clone, Args)]
pub struct Span {
    /// CPU to run on (default: the last one)
    #[arg(long)]
    cpu: Option<usize>,
    /// CLOCK_MONOTONIC nanoseconds of the first burst (default: one interval after the start)
    #[arg(long)]
    start_at: Option<u64>,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

/// Makes one burst; gets the clock reading of its start.
pub type MakeBurst = Box<dyn FnMut(u64)>;

/// Runs a disturber until it is stopped, then prints its bursts.
///
/// `prepare` runs in the disturbing thread after that has its name, CPU and policy. It returns what to add to the ready
/// line, and the function that makes a burst.
pub fn run(plan: Plan, prepare: impl FnOnce() -> Result<(Value, MakeBurst)> + Send + 'static) -> Result<()> {
    if plan.every <= plan.burst {
        bail!("--every must be longer than --burst, or the CPU has no time left for others");
    }
    let waiter = Waiter::new()?;
    sched::lock_memory(plan.policy)?;
    let stop = StopFlag::default();
    let (ready, is_ready) = channel();
    let (name, duration, thread_stop) = (plan.name.clone(), plan.span.duration, stop.clone());
    let thread = thread::spawn(move || disturb(&plan, prepare, &ready, &thread_stop));
    // When the preparation fails the thread drops its end without sending; join returns the reason.
    if let Ok(line) = is_ready.recv() {
        print_line(&line);
        waiter.wait(duration)?;
    }
    stop.set();
    let (tid, bursts) = thread.join().map_err(|_| anyhow!("the disturbing thread panicked"))??;
    print_bursts(&name, tid, &bursts);
    Ok(())
}

fn disturb(
    plan: &Plan,
    prepare: impl FnOnce() -> Result<(Value, MakeBurst)>,
    ready: &Sender<Value>,
    stop: &StopFlag,
) -> Result<(i32, Notes<Burst>)> {
    sched::set_name(&plan.name);
    sched::pin_to_cpu(plan.span.cpu.map_or_else(sched::last_cpu, Ok)?)?;
    sched::set_policy(plan.policy)?;
    let (details, make_burst) = prepare()?;
    let tid = sched::tid();
    let notes = Notes::new(BURST_CAPACITY);
    let line =
        json!({"ready": true, "pid": std::process::id(), "tid": tid, "name": plan.name, "details": details});
    ready.send(line).map_err(|_| anyhow!("the main thread is gone"))?;
    Ok((tid, repeat(plan, make_burst, notes, stop)))
}

fn repeat(plan: &Plan, mut make_burst: MakeBurst, mut notes: Notes<Burst>, stop: &StopFlag) -> Notes<Burst> {
    let every_ns = duration_ns(plan.every);
    let mut next_ns = plan.span.start_at.unwrap_or_else(|| now_ns() + every_ns);
    loop {
        sleep_until(next_ns);
        if stop.is_set() {
            return notes;
        }
        let (cpu_before, start_ns) = (thread_cpu_ns(), now_ns());
        make_burst(start_ns);
        let (end_ns, cpu_after) = (now_ns(), thread_cpu_ns());
        notes.push(Burst { start_ns, end_ns, cpu_ns: cpu_after - cpu_before });
        next_ns += every_ns;
        if next_ns < end_ns {
            next_ns += (end_ns - next_ns).div_ceil(every_ns) * every_ns;
        }
    }
}
