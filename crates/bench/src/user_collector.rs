// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What collecting the events of a program costs: CPU time of `rtscope record -u` and of lttng-consumerd, at some rates.
//!
//! The steady state is measured in the middle of a run, of both in the same way: LTTng's consumer is up before, and its traces are complete
//! when it ends, so start and end say nothing of the rest. The other figures are of whole runs.
//!
//! Of rtscope all is counted, from its start to its end, the making of the trace included; what it had used when the last event was
//! taken is reported separately, since only that runs while the program does. Of LTTng all threads of the consumer are counted, which writes its
//! traces as it goes, and the session daemon is not; it is started once for all runs. A part of the cost is the same in all runs of
//! this length, whatever the rate; the rest comes with each event. The line through the lowest and the highest rate tells them apart.

use crate::blocks::Order;
use crate::progress;
use crate::table::{Promise, Report, Row};
use crate::user_events::{Bench, Run, Tracer};
use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Events a second, and rtscope's buffer. The limit is for the first.
const RATES: [(u32, &str); 3] = [(200_000, "4M"), (1_000_000, "16M"), (3_000_000, "16M")];
/// Of rtscope's steady state, at each rate, against LTTng's with its defaults.
const STEADY_LIMITS: [f64; 3] = [1.0, 0.8, 1.0];
/// How long a run is.
const MILLISECONDS: &str = "3000";
/// The steady state: from this long after the program's start, and for this long.
const STEADY_AFTER: Duration = Duration::from_millis(800);
const STEADY_FOR: Duration = Duration::from_millis(1800);
const PATIENCE: Duration = Duration::from_secs(30);

/// One run.
#[derive(Clone, Copy)]
struct Cost {
    events: f64,
    all_ms: f64,
    /// Until the last event was taken; for LTTng that is all.
    recording_ms: f64,
    /// LTTng's session daemon.
    daemon_ms: f64,
    /// In the middle of the run.
    steady_ms_per_million: f64,
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
    for _ in progress::rounds("collectors by turns", rounds) {
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
    steady_promises(&with, &of, report);
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

fn steady_promises<'a>(with: &[Tracer], of: &impl Fn(Tracer, usize) -> &'a [Cost], report: &mut Report) {
    let steady = |tracer: Tracer, rate: usize| median(of(tracer, rate), |cost| cost.steady_ms_per_million);
    for tracer in with.iter().filter(|tracer| **tracer != Tracer::Rtscope) {
        for (rate, limit) in STEADY_LIMITS.into_iter().enumerate() {
            let what =
                format!("steady CPU of the collector at {}/s: rtscope / {}", RATES[rate].0, tracer.name());
            let (ours, theirs) = (steady(Tracer::Rtscope, rate), steady(*tracer, rate));
            if *tracer == Tracer::LttngDefault {
                report.promises.push(Promise::ratio_at_most(&what, ours, theirs, limit));
            } else {
                report.checks.push(format!("{what}: {:.2}", ours / theirs));
            }
        }
    }
}

fn rows(tracer: Tracer, rate: u32, costs: &[Cost]) -> Vec<Row> {
    let row = |what: &str, ms: fn(&Cost) -> f64| {
        let name = format!("{}: {what}, ms/million at {rate}/s", tracer.name());
        Row::new(&name, costs.iter().map(|cost| ms(cost) / cost.events * 1e6).collect())
    };
    let mut rows = vec![row("collector", |cost| cost.all_ms)];
    let steady = format!("{}: steady, ms/million at {rate}/s", tracer.name());
    rows.push(Row::new(&steady, costs.iter().map(|cost| cost.steady_ms_per_million).collect()));
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
        let steady = Steady::start(bench.program_name(tracer), Collector::Parent);
        let run = bench.run_with(tracer, buffer, &arguments)?;
        // The reader that looked for losses is a child, too, and is taken off, as the program is.
        let all_us = children_us()? - before - run.median("cpu_us")? - run.median("reader_us")?;
        let cost = Cost::new(run.emitted, all_us / 1e3, 0.0);
        let steady_ms_per_million = steady.finish(run.emitted)?;
        return Ok(Cost { recording_ms: recording_ms(&run)?, steady_ms_per_million, ..cost });
    }
    let before = (threads_us("lttng-consumerd")?, threads_us("lttng-sessiond")?);
    let steady = Steady::start(bench.program_name(tracer), Collector::Named("lttng-consumerd"));
    let run = bench.run_with(tracer, buffer, &arguments)?;
    let after = (threads_us("lttng-consumerd")?, threads_us("lttng-sessiond")?);
    let cost = Cost::new(run.emitted, (after.0 - before.0) / 1e3, (after.1 - before.1) / 1e3);
    Ok(Cost { steady_ms_per_million: steady.finish(run.emitted)?, ..cost })
}

impl Cost {
    fn new(events: f64, all_ms: f64, daemon_ms: f64) -> Cost {
        Cost { events, all_ms, recording_ms: all_ms, daemon_ms, steady_ms_per_million: f64::NAN }
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

/// Whose CPU time is the collector's.
#[derive(Clone, Copy)]
enum Collector {
    /// Of the process that started the program.
    Parent,
    /// Of all processes with this name.
    Named(&'static str),
}

/// Looks at the collector in the middle of a run. A thread of its own, which sleeps but for two looks.
struct Steady(JoinHandle<Result<f64>>);

impl Steady {
    fn start(program: &str, collector: Collector) -> Steady {
        let program = program.to_string();
        Steady(spawn(move || ms_per_second(&program, collector)))
    }

    /// Milliseconds for a million events, of which there were this many in the run.
    fn finish(self, emitted: f64) -> Result<f64> {
        let ms_per_second = self.0.join().map_err(|_| anyhow!("the look at the collector panicked"))??;
        Ok(ms_per_second / (emitted / MILLISECONDS.parse::<f64>()? * 1e3) * 1e6)
    }
}

fn ms_per_second(program: &str, collector: Collector) -> Result<f64> {
    let start = Instant::now();
    let pid = loop {
        if let Some(pid) = descendant(program) {
            break pid;
        }
        ensure!(start.elapsed() < PATIENCE, "{program} did not start");
        sleep(Duration::from_millis(20));
    };
    let us = || match collector {
        Collector::Parent => process_us(parent(pid).context("the program's parent")?),
        Collector::Named(name) => threads_us(name),
    };
    sleep(STEADY_AFTER);
    let (before, begin) = (us()?, Instant::now());
    sleep(STEADY_FOR);
    Ok((us()? - before) / 1e3 / begin.elapsed().as_secs_f64())
}

/// A process with this name that this one, or a child of it, has started.
fn descendant(name: &str) -> Option<u32> {
    let own = std::process::id();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        let parent = (comm.trim() == name).then(|| parent(pid))??;
        (parent == own || self::parent(parent) == Some(own)).then_some(pid)
    })
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field behind the name, which may have spaces and parentheses in it.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// CPU time of all threads of a process, in us.
fn process_us(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat"))?;
        let ns = text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
        sum += ns.context("schedstat")?;
    }
    Ok(sum / 1e3)
}

/// The same of all processes with this name.
fn threads_us(process: &str) -> Result<f64> {
    let mut sum = 0.0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|_| name.trim() == process) {
            sum += process_us(pid)?;
        }
    }
    Ok(sum)
}
