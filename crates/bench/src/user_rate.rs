// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `user-rate`: the highest rate of events of one thread that is recorded with none lost, with rtscope and with LTTng-UST, as
//! `rtscope impact --max-rate` finds it; into memory (tmpfs) and onto the disk.
//!
//! Where "the loop emits no more" under a tracer, its own cost in the program is the limit, not its collector.
//!
//! `--seconds=30` makes the rate that passed in tries of some seconds pass for this long: at 15 million events a second that is a trace of 9 GB for
//! each tracer, which the memory has to hold for tmpfs. `--place=disk` (or tmpfs) does one of them.

use crate::host::Host;
use crate::pipe_cpu;
use crate::table::{Promise, Report, Row};
use anyhow::{Context, Result, ensure};
use rtscope_testkit::process::program;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The tracers, as `rtscope impact` calls them.
const TRACERS: &str = "rtscope,lttng,lttng-timer";

/// Where traces go, and by how much rtscope has to be better than LTTng-UST there. On a disk, the disk decides.
const PLACES: [(&str, &str, f64); 2] = [("tmpfs", "/dev/shm", 0.5), ("disk", "/var/tmp", 1.0)];

/// Runs it. `hold`: seconds for which the result has to pass. `only`: in this place.
pub fn run(quick: bool, hold: Option<&str>, only: Option<&str>) -> Result<Report> {
    let cpu = pipe_cpu();
    let (rounds, time) = if quick { (1, "1s") } else { (3, "5s") };
    let hold = hold.map_or(time.to_string(), |seconds| format!("{seconds}s"));
    let places = PLACES.iter().filter(|(place, ..)| only.is_none_or(|only| only == *place));
    ensure!(places.clone().next().is_some(), "--place is tmpfs or disk");
    let mut report = Report {
        schema: "rtscope.bench.user-rate/1",
        name: "user-rate",
        unit: format!("millions of events a second that one thread emits for {hold}, none lost"),
        host: Host::this(cpu),
        rows: Vec::new(),
        promises: Vec::new(),
        checks: Vec::new(),
    };
    for (place, directory, limit) in places {
        let mut found: Vec<(String, Vec<f64>)> = Vec::new();
        for _ in 0..rounds {
            for tracer in search(Path::new(directory), cpu, time, &hold)? {
                let name = tracer["tracer"].as_str().context("a name")?.to_string();
                let cell = &tracer["user_events"];
                let Some(rate) = cell["events_per_second"].as_f64() else {
                    report.checks.push(format!("{name}, {place}: none: {}", cell["reason"]));
                    continue;
                };
                if cell["limited_by_the_loop"] == true {
                    report
                        .checks
                        .push(format!("{name}, {place}: at {:.2} the loop emits no more", rate / 1e6));
                }
                match found.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, rates)) => rates.push(rate / 1e6),
                    None => found.push((name, vec![rate / 1e6])),
                }
            }
        }
        let rows: Vec<Row> =
            found.into_iter().map(|(name, rates)| Row::new(&format!("{name}, {place}"), rates)).collect();
        let (ours, theirs) = rows.split_first().context("rtscope was measured")?;
        ensure!(ours.what.starts_with("rtscope"), "the first tracer is {}", ours.what);
        for peer in theirs {
            let what = format!("{} / {}", peer.what, ours.what);
            report.promises.push(Promise::at_most(&what, peer.median() / ours.median(), *limit));
        }
        report.rows.extend(rows);
    }
    Ok(report)
}

fn search(directory: &Path, cpu: usize, time: &str, hold: &str) -> Result<Vec<Value>> {
    let directory = tempfile::Builder::new().prefix("rtscope-bench").tempdir_in(directory)?;
    let mut command = Command::new(program("rtscope")?);
    command.env("TMPDIR", directory.path()).args(["impact", "--max-rate", "--json", "--tracers", TRACERS]);
    command.args(["--cpu", &cpu.to_string(), "--duration", time, "--hold", hold, "--without-kernel"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let result: Value = serde_json::from_slice(&output.stdout).context("the rates")?;
    Ok(result["tracers"].as_array().context("tracers")?.clone())
}
