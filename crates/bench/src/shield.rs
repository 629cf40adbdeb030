// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `shield`: what `shield create --mode artis` adds to each system call on a CPU that is not for real-time work: the programs at the entry
//! (always) and the exit (while there are RT1 tasks), beside programs that do nothing at the same places, which is what the
//! kernel itself takes for them.
//!
//! The call is getppid, which does next to nothing. Windows with nothing attached lie between all others; a window is a tool's
//! cost against its two neighbours.

use crate::blocks::Order;
use crate::host::Host;
use crate::progress;
use crate::table::{Promise, Report, Row};
use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_artis::hooks::Hooks;
use std::time::{Duration, Instant};

/// Nanoseconds that a system call may take longer.
const LIMIT_NS: f64 = 60.0;
/// Calls between two readings of the clock.
const BATCH: u32 = 500;
/// Batches of a window.
const BATCHES: usize = 400;
/// Time for the kernel to change its code, and for caches to settle.
const SETTLE: Duration = Duration::from_millis(30);

/// What is compared.
const WAYS: [&str; 4] =
    ["empty program, entry", "empty programs, entry and exit", "rtscope, entry", "rtscope, entry and exit"];

/// A window: nanoseconds a call of the median batch, and of the one that 99 of 100 do not pass.
#[derive(Clone, Copy)]
struct Window {
    median: f64,
    p99: f64,
}

fn window() -> Window {
    std::thread::sleep(SETTLE);
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                // SAFETY: getppid has no arguments and cannot fail.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
            start.elapsed().as_nanos() as f64 / f64::from(BATCH)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    Window { median: batches[BATCHES / 2], p99: batches[BATCHES * 99 / 100] }
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let cpu = crate::pipe_cpu();
    let mut own = CpuSet::new();
    own.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &own).context("going to the benchmark's CPU")?;
    let mut tools = [Hooks::empty(false)?, Hooks::empty(true)?, Hooks::real(false)?, Hooks::real(true)?];
    let rounds = if quick { 3 } else { 41 };
    let (mut order, mut base) = (Order::new(), Vec::new());
    let (mut costs, mut tails) = (vec![Vec::new(); WAYS.len()], vec![Vec::new(); WAYS.len()]);
    let mut before = window();
    for round in progress::rounds("ways by turns", rounds + 1) {
        for which in order.shuffled(WAYS.len()) {
            tools[which].attach()?;
            let with = window();
            tools[which].detach();
            let after = window();
            // The first round warms everything up.
            if round > 0 {
                costs[which].push(with.median - (before.median + after.median) / 2.0);
                tails[which].push(with.p99 - (before.p99 + after.p99) / 2.0);
                base.push(after.median);
            }
            before = after;
        }
    }
    let mut rows = vec![Row::new("nothing attached, absolute", base)];
    rows.extend(WAYS.iter().zip(costs).map(|(way, samples)| Row::new(way, samples)));
    rows.extend(WAYS.iter().zip(tails).map(|(way, samples)| Row::new(&format!("{way}, 99 of 100"), samples)));
    let [entry, both] = [rows[3].median(), rows[4].median()];
    let (kernel_entry, kernel_both) = (rows[1].median(), rows[2].median());
    let ours = format!(
        "of this the kernel's own part is {kernel_entry:.1} and {kernel_both:.1} ns, rtscope's {:.1} and {:.1} ns",
        entry - kernel_entry,
        both - kernel_both
    );
    Ok(Report {
        schema: "rtscope.bench.shield/1",
        name: "shield",
        unit: "added ns per system call (getppid)".to_string(),
        host: Host::this(cpu),
        promises: vec![
            Promise::at_most("a system call on another CPU", entry, LIMIT_NS),
            Promise::at_most("the same while there are RT1 tasks", both, LIMIT_NS),
        ],
        checks: vec![ours],
        rows,
    })
}
