// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What collecting the events of a program costs: CPU time of `rtscope record -u` and of lttng-consumerd, at some rates.
//!
//! Of rtscope all is counted, from its start to its end, the making of the trace included; what it had used when the last event was
//! taken is reported separately, since only that runs while the program does. Of LTTng all threads of the consumer are counted, which writes its
//! traces as it goes, and the session daemon is not; it is started once for all runs. A part of the cost is the same in all runs of
//! this length, whatever the rate; the rest comes with each event. The line through the lowest and the highest rate tells them apart.

use crate::blocks::Order;
use crate::table::{Promise, Report, Row};
use crate::user_events::{Bench, Run, Tracer};
use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;

/// Events a second, and rtscope's buffer. The limit is for the first.
const RATES: [(u32, &str); 3] = [(200_000, "4M"), (1_000_000, "16M"), (3_000_000, "16M")];
/// How long a run is.
const MILLISECONDS: &str = "3000";

/// One run.
#[derive(Clone, Copy)]
struct Cost {
    events: f64,
    all_ms: f64,
    /// Until the last event was taken; for LTTng that is all.
    recording_ms: f64,
    /// LTTng's session daemon.
    daemon_ms: f64,
}

/// Measures the collectors, and adds what was found.
pub(crate) fn measure(
    bench: &Bench,
    tracers: &[Tracer],
    rounds: usize,
    order: &mut Order,
    report: &mut Report,
) -> Result<()> {
    // In Rust it would be the same collector again.
    let others = [Tracer::Disabled, Tracer::Rust];
    let with: Vec<Tracer> = tracers.iter().copied().filter(|tracer| !others.contains(tracer)).collect();
    let cases: Vec<(Tracer, usize)> =
        with.iter().flat_map(|tracer| (0..RATES.len()).map(|rate| (*tracer, rate))).collect();
    let mut costs = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for which in order.shuffled(cases.len()) {
            let (tracer, rate) = cases[which];
            let found = cost(bench, tracer, RATES[rate]);
            costs[which].push(found.with_context(|| format!("the collector of {}", tracer.name()))?);
        }
    }
    let of = |tracer: Tracer, rate: usize| {
        let at = cases.iter().position(|case| *case == (tracer, rate));
        at.map(|at| costs[at].as_slice()).unwrap_or_default()
    };
    for tracer in &with {
        let rows = (0..RATES.len()).flat_map(|rate| rows(*tracer, RATES[rate].0, of(*tracer, rate)));
        report.rows.extend(rows);
        let (slow, fast) = (of(*tracer, 0), of(*tracer, RATES.len() - 1));
        report.checks.push(format!("{}: {}", tracer.name(), parts(slow, fast, |cost| cost.all_ms)));
        if *tracer == Tracer::Rtscope {
            let recording = parts(slow, fast, |cost| cost.recording_ms);
            report.checks.push(format!("{}, until the last event was taken: {recording}", tracer.name()));
        } else {
            let daemon = median(fast, |cost| cost.daemon_ms);
            report.checks.push(format!("{}: the session daemon, not counted: {daemon:.1} ms", tracer.name()));
        }
    }
    let at_first =
        |tracer: Tracer, ms: fn(&Cost) -> f64| median(of(tracer, 0), |cost| ms(cost) / cost.events);
    for tracer in with.iter().skip(1) {
        let theirs = at_first(*tracer, |cost| cost.all_ms);
        let all = at_first(Tracer::Rtscope, |cost| cost.all_ms) / theirs;
        let what = format!("CPU of the collector: rtscope / {}", tracer.name());
        report.promises.push(Promise::at_most(&what, all, 0.5));
        let recording = at_first(Tracer::Rtscope, |cost| cost.recording_ms) / theirs;
        report.checks.push(format!("{what}, until the last event was taken: {recording:.2}"));
    }
    Ok(())
}

fn rows(tracer: Tracer, rate: u32, costs: &[Cost]) -> Vec<Row> {
    let row = |what: &str, ms: fn(&Cost) -> f64| {
        let name = format!("{}: {what}, ms/million at {rate}/s", tracer.name());
        Row::new(&name, costs.iter().map(|cost| ms(cost) / cost.events * 1e6).collect())
    };
    let mut rows = vec![row("collector", |cost| cost.all_ms)];
    if tracer == Tracer::Rtscope {
        rows.push(row("until all was taken", |cost| cost.recording_ms));
    }
    rows
}

/// What comes with each run, and with each event.
fn parts(slow: &[Cost], fast: &[Cost], ms: fn(&Cost) -> f64) -> String {
    let point = |costs: &[Cost]| (median(costs, |cost| cost.events), median(costs, ms));
    let ((few, cheap), (many, dear)) = (point(slow), point(fast));
    let each = (dear - cheap) / (many - few);
    format!(
        "{:.1} ms in each run of {MILLISECONDS} ms, and {:.1} ns for each event",
        cheap - each * few,
        each * 1e6
    )
}

fn median(costs: &[Cost], value: impl Fn(&Cost) -> f64) -> f64 {
    Row::new("", costs.iter().map(value).collect()).median()
}

fn cost(bench: &Bench, tracer: Tracer, (rate, buffer): (u32, &str)) -> Result<Cost> {
    let arguments = [rate.to_string(), MILLISECONDS.to_string(), "paced".to_string()];
    let arguments = [0, 1, 2].map(|at: usize| arguments[at].as_str());
    if tracer == Tracer::Rtscope {
        let before = children_us()?;
        let run = bench.run_with(tracer, buffer, &arguments)?;
        // The reader that looked for losses is a child, too, and is taken off, as the program is.
        let all_us = children_us()? - before - run.median("cpu_us")? - run.median("reader_us")?;
        return Ok(Cost { recording_ms: recording_ms(&run)?, ..Cost::new(run.emitted, all_us / 1e3, 0.0) });
    }
    let before = (threads_us("lttng-consumerd")?, threads_us("lttng-sessiond")?);
    let run = bench.run_with(tracer, buffer, &arguments)?;
    let after = (threads_us("lttng-consumerd")?, threads_us("lttng-sessiond")?);
    Ok(Cost::new(run.emitted, (after.0 - before.0) / 1e3, (after.1 - before.1) / 1e3))
}

impl Cost {
    fn new(events: f64, all_ms: f64, daemon_ms: f64) -> Cost {
        Cost { events, all_ms, recording_ms: all_ms, daemon_ms }
    }
}

fn recording_ms(run: &Run) -> Result<f64> {
    let summary = run.summary.as_ref().context("rtscope's summary")?;
    Ok(summary["recording_cpu_us"].as_f64().context("recording_cpu_us")? / 1e3)
}

/// Of all children that have ended, in us.
pub(crate) fn children_us() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok([usage.user_time(), usage.system_time()].iter().map(|time| time.num_microseconds() as f64).sum())
}

/// CPU time of all threads of all processes with this name, in us.
fn threads_us(process: &str) -> Result<f64> {
    let mut sum = 0.0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.trim() != process {
            continue;
        }
        for task in fs::read_dir(entry.path().join("task"))?.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat"))?;
            let ns = text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
            sum += ns.context("schedstat")?;
        }
    }
    Ok(sum / 1e3)
}
