// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `queue`: what an element costs from one CPU to another through include/rtscope/queue.h and its Rust twin, beside rtrb, a
//! well-known queue of one producer and one consumer within a process.
//!
//! Both sides run as fast as they can, and let some time pass where the queue is full or empty: a side that polls again at
//! once takes the other's cache line away for each element, and what is measured then is how the two fell into step (8 to 50 ns
//! for the same code in two runs). In each round all run, in random order.

use crate::blocks::Order;
use crate::host::Host;
use crate::progress;
use crate::requirements::CC;
use crate::table::{Promise, Report, Row};
use anyhow::{Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_queue::{Consumer, Producer};
use rtscope_tracers::finished;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Elements that fit into the queue.
const CAPACITY: u64 = 4096;
/// Nanoseconds an element, between two CPUs.
const LIMIT_NS: f64 = 15.0;
/// Elements at a time, where some are moved at once.
const BATCH: usize = 32;

/// Instructions that let the other side go ahead, each time there is nothing to be done.
const PAUSES: u32 = 32;

/// What is compared.
const WAYS: [&str; 4] = ["rtscope, C", "rtscope, Rust", "rtscope, Rust, 32 at a time", "rtrb"];

/// Some microsecond: time for the other side to do some elements. The C program's relax() does the same.
fn relax() {
    for _ in 0..PAUSES {
        std::hint::spin_loop();
    }
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let last = std::thread::available_parallelism()?.get() - 1;
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir()?;
    let program = compile(directory.path())?;
    let (rounds, count) = if quick { (3, 2_000_000) } else { (21, 20_000_000) };
    let cpus = (last - 1, last);
    let (mut order, mut costs) = (Order::new(), vec![Vec::new(); WAYS.len()]);
    for round in progress::rounds("queues by turns", rounds + 1) {
        for which in order.shuffled(WAYS.len()) {
            let ns = match which {
                0 => of_program(&program, cpus, count)?,
                1 => ours(cpus, count)?,
                2 => ours_in_batches(cpus, count)?,
                _ => rtrb(cpus, count)?,
            };
            // The first round warms everything up.
            if round > 0 {
                costs[which].push(ns);
            }
        }
    }
    let rows: Vec<Row> = WAYS.iter().zip(costs).map(|(name, costs)| Row::new(name, costs)).collect();
    let peer = rows[3].median();
    let mut promises: Vec<Promise> = Vec::new();
    for (name, row) in WAYS.iter().zip(&rows).take(2) {
        promises.push(Promise::at_most(&format!("{name}, ns an element"), row.median(), LIMIT_NS));
        promises.push(Promise::at_most(&format!("{name} / rtrb"), row.median() / peer, 1.1));
    }
    Ok(Report {
        schema: "rtscope.bench.queue/1",
        name: "queue",
        unit: format!("ns an element of 8 bytes, from CPU {} to CPU {last}, capacity {CAPACITY}", last - 1),
        host: Host::this(last),
        rows,
        promises,
        checks: vec!["each element came out once and in order".to_string()],
    })
}

fn compile(directory: &Path) -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join("queue");
    let mut command = Command::new("cc");
    command.args(["-O2", "-std=c11", "-pthread", "-I"]).arg(here.join("../../include"));
    finished(command.arg(here.join("c/queue.c")).arg("-o").arg(&program), CC.remedy)?;
    Ok(program)
}

fn of_program(program: &Path, cpus: (usize, usize), count: u64) -> Result<f64> {
    let words = [cpus.0 as u64, cpus.1 as u64, count, CAPACITY].map(|number| number.to_string());
    let output = Command::new(program).args(words).output()?;
    ensure!(output.status.success(), "{} ended with {}", program.display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

fn go_to(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &cpus)?)
}

/// Runs both sides, each on its CPU, and gives the time of the consumer for an element.
fn between(
    cpus: (usize, usize),
    count: u64,
    produce: impl FnOnce() + Send,
    consume: impl FnOnce() -> bool + Send,
) -> Result<f64> {
    let start = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<()> {
            go_to(cpus.0)?;
            // ORDER: relaxed; only the time matters.
            while !start.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            produce();
            Ok(())
        });
        let consumer = scope.spawn(|| -> Result<f64> {
            go_to(cpus.1)?;
            let begin = Instant::now();
            // ORDER: relaxed; as above.
            start.store(true, Ordering::Relaxed);
            ensure!(consume(), "an element came out of order");
            Ok(begin.elapsed().as_nanos() as f64 / count as f64)
        });
        let gone = |_| anyhow::anyhow!("a side panicked");
        producer.join().map_err(gone)??;
        consumer.join().map_err(gone)?
    })
}

fn ours(cpus: (usize, usize), count: u64) -> Result<f64> {
    let (mut producer, descriptor) = Producer::<u64>::create(CAPACITY)?;
    let mut consumer = Consumer::<u64>::open(descriptor.into())?;
    let produce = move || {
        for number in 0..count {
            while producer.push_some(&[number]) == 0 {
                relax();
            }
        }
    };
    let consume = move || {
        (0..count).all(|number| {
            loop {
                match consumer.pop() {
                    Some(found) => break found == number,
                    None => relax(),
                }
            }
        })
    };
    between(cpus, count, produce, consume)
}

fn ours_in_batches(cpus: (usize, usize), count: u64) -> Result<f64> {
    let (mut producer, descriptor) = Producer::<u64>::create(CAPACITY)?;
    let mut consumer = Consumer::<u64>::open(descriptor.into())?;
    let produce = move || {
        let mut next = 0;
        while next < count {
            let batch: [u64; BATCH] = std::array::from_fn(|at| next + at as u64);
            let wanted = (count - next).min(BATCH as u64) as usize;
            let pushed = producer.push_some(&batch[..wanted]) as u64;
            if pushed == 0 {
                relax();
            }
            next += pushed;
        }
    };
    let consume = move || {
        let (mut next, mut found) = (0, Vec::with_capacity(BATCH));
        while next < count {
            found.clear();
            if consumer.pop_some(&mut found, BATCH) == 0 {
                relax();
            }
            if !found.iter().zip(next..).all(|(found, number)| *found == number) {
                return false;
            }
            next += found.len() as u64;
        }
        true
    };
    between(cpus, count, produce, consume)
}

fn rtrb(cpus: (usize, usize), count: u64) -> Result<f64> {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(CAPACITY as usize);
    let produce = move || {
        for number in 0..count {
            while producer.push(number).is_err() {
                relax();
            }
        }
    };
    let consume = move || {
        (0..count).all(|number| {
            loop {
                match consumer.pop() {
                    Ok(found) => break found == number,
                    Err(_) => relax(),
                }
            }
        })
    };
    between(cpus, count, produce, consume)
}
