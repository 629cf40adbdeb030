// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls without a pause, on every CPU, while timers expire and a FIFO thread preempts: the load under which tracers
//! lose events.
//!
//! An interrupt that lands inside a tracer's handling of a system call is where events get lost unseen. So on each CPU one
//! thread does nothing but short system calls, of five kinds one after the other, and one with real-time priority wakes by a timer,
//! makes some calls, and sleeps again. Every call is counted by the thread that made it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::stop::{StopFlag, Waiter, exit_code};
use rtscope_testkit::time::{duration_ns, now_ns, parse_duration, sleep_until};
use serde_json::json;

/// Makes system calls on every CPU.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// Policy of the threads that preempt; `other` makes none
    #[arg(long, default_value = "fifo:40")]
    policy: Policy,
    /// Time between two preemptions
    #[arg(long, default_value = "700us", value_parser = parse_duration)]
    every: Duration,
    /// End after this time
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

/// Calls that were made, by kind.
#[derive(Debug, Default, Clone, Copy)]
struct Calls {
    getsid: u64,
    read: u64,
    write: u64,
    futex: u64,
    rename: u64,
}

impl Calls {
    fn make(&mut self, zeros: &mut File, nowhere: &mut File) -> Result<()> {
        nix::unistd::getsid(None).context("getsid")?;
        self.getsid += 1;
        zeros.read_exact(&mut [0; 8]).context("read")?;
        self.read += 1;
        nowhere.write_all(&[0; 8]).context("write")?;
        self.write += 1;
        let word = 0_u32;
        // SAFETY: FUTEX_WAKE only takes the address of a live local as a name; nobody waits there.
        unsafe { libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAKE, 1) };
        self.futex += 1;
        // Nothing switches the interrupts off for the tracepoint of this one.
        sched::set_name("calls");
        self.rename += 1;
        Ok(())
    }

    fn plus(self, other: Calls) -> Calls {
        Calls {
            getsid: self.getsid + other.getsid,
            read: self.read + other.read,
            write: self.write + other.write,
            futex: self.futex + other.futex,
            rename: self.rename + other.rename,
        }
    }
}

fn files() -> Result<(File, File)> {
    let zeros = File::open("/dev/zero").context("/dev/zero")?;
    Ok((zeros, File::options().write(true).open("/dev/null").context("/dev/null")?))
}

/// Calls without a pause.
fn call(cpu: usize, stop: &StopFlag) -> Result<Calls> {
    sched::pin_to_cpu(cpu)?;
    let (mut zeros, mut nowhere) = files()?;
    let mut calls = Calls::default();
    while !stop.is_set() {
        calls.make(&mut zeros, &mut nowhere)?;
    }
    Ok(calls)
}

/// Wakes, calls a little, sleeps.
fn preempt(cpu: usize, options: &Options, stop: &StopFlag) -> Result<Calls> {
    sched::pin_to_cpu(cpu)?;
    sched::set_policy(options.policy)?;
    let (mut zeros, mut nowhere) = files()?;
    let mut calls = Calls::default();
    let mut next_ns = now_ns();
    while !stop.is_set() {
        for _ in 0..5 {
            calls.make(&mut zeros, &mut nowhere)?;
        }
        // A missed expiry is left out: an emulated CPU would never catch up.
        next_ns = (next_ns + duration_ns(options.every)).max(now_ns());
        sleep_until(next_ns);
    }
    Ok(calls)
}

fn run(options: &Options) -> Result<()> {
    let waiter = Waiter::new()?;
    let stop = StopFlag::default();
    let allowed = rtscope_cpus::Thread::Calling.cpus().context("which CPUs may be used")?;
    let cpus: Vec<usize> = allowed.iter().map(|cpu| cpu as usize).collect();
    let calls = thread::scope(|scope| -> Result<Calls> {
        let mut threads = Vec::new();
        for &cpu in &cpus {
            threads.push(scope.spawn({
                let stop = &stop;
                move || call(cpu, stop)
            }));
            if options.policy != Policy::Other {
                threads.push(scope.spawn({
                    let stop = &stop;
                    move || preempt(cpu, options, stop)
                }));
            }
        }
        print_line(&json!({"ready": true, "pid": std::process::id()}));
        let waited = waiter.wait(options.duration);
        stop.set();
        let mut sum = Calls::default();
        for thread in threads {
            sum = sum.plus(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        waited?;
        Ok(sum)
    })?;
    print_line(&json!({"summary": {"getsid": calls.getsid, "read": calls.read, "write": calls.write,
        "futex": calls.futex, "rename": calls.rename, "cpus": cpus.len()}}));
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}
