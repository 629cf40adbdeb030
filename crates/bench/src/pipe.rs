// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load: `perf bench sched pipe` on one CPU, two tasks that wake each other. Each iteration is one sched_waking and one
//! sched_switch, which is all that happens; how many there were is read from the kernel's counters of the tasks.

use crate::blocks::Load;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The running pair.
#[derive(Debug)]
pub struct Pipe {
    child: Child,
    tasks: Vec<u32>,
}

/// Iterations, and the time they took.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Switches.
    pub switches: u64,
    /// Nanoseconds per switch.
    pub ns_per_switch: f64,
}

impl Pipe {
    /// Starts it on a CPU and waits until it iterates.
    pub fn start(cpu: usize) -> Result<Pipe> {
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string(), "perf", "bench", "sched", "pipe", "-l", "2000000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting perf bench (package linux-perf)")?;
        let mut pipe = Pipe { child, tasks: Vec::new() };
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            pipe.find_tasks();
            if pipe.tasks.len() == 2 && pipe.switches().is_ok_and(|count| count > 10_000) {
                return Ok(pipe);
            }
            if let Some(status) = pipe.child.try_wait()? {
                let mut words = String::new();
                if let Some(mut stderr) = pipe.child.stderr.take() {
                    stderr.read_to_string(&mut words)?;
                }
                bail!("perf bench sched pipe ended with {status}: {}", words.trim());
            }
            if Instant::now() > deadline {
                bail!("perf bench sched pipe does not switch between its two tasks");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn find_tasks(&mut self) {
        let parent = self.child.id();
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        self.tasks = std::iter::once(parent)
            .chain(children.split_whitespace().filter_map(|pid| pid.parse().ok()))
            .collect();
    }

    fn switches(&self) -> Result<u64> {
        let mut sum = 0;
        for task in &self.tasks {
            let status = fs::read_to_string(format!("/proc/{task}/status"))?;
            sum += status
                .lines()
                .filter(|line| line.contains("ctxt_switches"))
                .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(sum)
    }
}

impl Load for Pipe {
    fn sample(&self, length: Duration) -> Result<Sample> {
        let (before, start) = (self.switches()?, Instant::now());
        std::thread::sleep(length);
        let (after, elapsed) = (self.switches()?, start.elapsed());
        let switches = after - before;
        if switches == 0 {
            bail!("the load stands still");
        }
        Ok(Sample { switches, ns_per_switch: elapsed.as_nanos() as f64 / switches as f64 })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for task in self.tasks.iter().rev() {
            if let Ok(pid) = i32::try_from(*task) {
                // It may be gone already.
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
        }
        let _ = self.child.wait();
    }
}
