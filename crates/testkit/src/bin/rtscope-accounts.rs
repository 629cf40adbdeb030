// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that compute, sleep, wait for each other and make system calls, each a known number of times; at its end each says what the
//! kernel has counted for it.
//!
//! An analysis of a recording has to find the same: times on CPUs and waiting for one (`schedstat`), switches of both kinds
//! (`status`), system calls and their errors.

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::sched;
use rtscope_testkit::stop::exit_code;
use rtscope_testkit::time::{now_ns, parse_duration};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Makes threads and says what they did.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Sleeps and failing opens of each sleeper
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// How long each computing thread computes; two share a CPU
    #[arg(long, default_value = "60ms", value_parser = parse_duration)]
    busy: Duration,
    /// Make the same system calls whatever happens: the threads do not ask for their accounts
    #[arg(long)]
    silent: bool,
}

/// A line of a file in /proc as its numbers.
fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// What the kernel has counted for this thread.
fn account(name: &str, options: &Options) -> Result<Value> {
    if options.silent {
        return Ok(Value::Null);
    }
    let tid = nix::unistd::gettid();
    let read = |file: &str| {
        let path = format!("/proc/thread-self/{file}");
        std::fs::read_to_string(&path).context(path)
    };
    let schedstat = || -> Result<[u64; 3]> {
        let numbers = numbers(&read("schedstat")?);
        numbers.try_into().map_err(|numbers| anyhow!("schedstat: {numbers:?}"))
    };
    // All of one moment: again if it left the CPU in between.
    let ([running_ns, waited_ns, times], status, realtime) = loop {
        let before = schedstat()?;
        let status = read("status")?;
        let realtime =
            nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME).context("clock_gettime")?;
        if schedstat()?[2] == before[2] {
            break (before, status, realtime);
        }
    };
    let counter = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|count| count.trim().parse::<u64>().ok()).context(key.to_owned())
    };
    Ok(json!({
        "at_ns": std::time::Duration::from(realtime).as_nanos() as u64,
        "name": name,
        "tid": tid.as_raw(),
        "running_ns": running_ns,
        "waited_ns": waited_ns,
        "times": times,
        "voluntary": counter("voluntary_ctxt_switches")?,
        "involuntary": counter("nonvoluntary_ctxt_switches")?,
    }))
}

/// Sleeps, and opens what is not there.
fn sleep(options: &Options) -> Result<Value> {
    sched::set_name("sleeper");
    for _ in 0..options.rounds {
        std::thread::sleep(Duration::from_micros(500));
        if std::fs::File::open("/nowhere/at all").is_ok() {
            return Err(anyhow!("it is there"));
        }
    }
    account("sleeper", options)
}

/// Computes, beside another on the same CPU.
fn compute(name: &'static str, options: &Options, cpu: usize) -> Result<Value> {
    sched::set_name(name);
    sched::pin_to_cpu(cpu)?;
    let until_ns = now_ns() + rtscope_testkit::time::duration_ns(options.busy);
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
    account(name, options)
}

/// Who speaks first of two.
#[derive(Clone, Copy, PartialEq)]
enum Talker {
    Asks,
    Answers,
}

/// Answers each of the other's words.
fn talk(talker: Talker, options: &Options, mine: &Receiver<()>, others: &Sender<()>) -> Result<Value> {
    let name = if talker == Talker::Asks { "asker" } else { "answerer" };
    sched::set_name(name);
    for _ in 0..options.rounds {
        if talker == Talker::Asks {
            others.send(())?;
        }
        mine.recv()?;
        if talker == Talker::Answers {
            others.send(())?;
        }
    }
    account(name, options)
}

fn run(options: &Options) -> Result<()> {
    let allowed = rtscope_cpus::Thread::Calling.cpus().context("which CPUs may be used")?;
    let cpu = allowed.iter().next().context("a CPU")? as usize;
    let (to_asker, asker) = channel();
    let (to_answerer, answerer) = channel();
    let accounts: Vec<Value> = std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| sleep(options)),
            scope.spawn(|| compute("compute-1", options, cpu)),
            scope.spawn(|| compute("compute-2", options, cpu)),
            scope.spawn(move || talk(Talker::Asks, options, &asker, &to_answerer)),
            scope.spawn(move || talk(Talker::Answers, options, &answerer, &to_asker)),
        ];
        let account = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?
        };
        threads.into_iter().map(account).collect::<Result<_>>()
    })?;
    print_line(&json!({ "threads": accounts }));
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
