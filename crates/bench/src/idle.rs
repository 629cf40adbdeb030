// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `idle`: what `rtscope watch` itself uses of a CPU while nothing is late.

use crate::host::Host;
use crate::table::{Promise, Report, Row};
use anyhow::{Context, Result, ensure};
use rtscope_testkit::process::program;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn cpu_time(child: &Child) -> Result<f64> {
    // The sum over all threads, in nanoseconds, as the scheduler accounts it.
    let mut sum = 0.0;
    for task in fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).context("schedstat")?;
    }
    Ok(sum)
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let mut child = Command::new(program("rtscope")?)
        .args(["watch", "response", "--task", "no-such-task", "--threshold", "1s", "--json"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(2));
    let mut percent = Vec::new();
    for _ in 0..if quick { 3 } else { 20 } {
        let (before, start) = (cpu_time(&child)?, Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        percent.push((cpu_time(&child)? - before) / start.elapsed().as_nanos() as f64 * 100.0);
        ensure!(child.try_wait()?.is_none(), "rtscope ended");
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    child.wait()?;
    let row = Row::new("rtscope watch response, nothing late", percent);
    Ok(Report {
        schema: "rtscope.bench.idle/1",
        name: "idle",
        unit: "percent of one CPU".to_string(),
        host: Host::this(0),
        promises: vec![Promise::at_most("median, percent of a CPU", row.median(), 0.3)],
        checks: Vec::new(),
        rows: vec![row],
    })
}
