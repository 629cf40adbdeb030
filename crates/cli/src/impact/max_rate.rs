// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--max-rate`: the highest rate of events that a tracer records with none lost, by binary search on npt's rate.
//!
//! First in large steps, from a rate that all should manage, then by halves on a logarithmic scale. A loss may have been bad luck,
//! so a rate has failed when it fails twice. What passed once may have been good luck, so the result has to pass again; if it does
//! not, a lower rate has to.

use super::cases::{AbsentTracer, KernelEvents, Tracer, Tracers, title};
use super::machine::Machine;
use super::options::{ImpactOptions, TracerArg};
use super::rounds::traced;
use super::setup::{Limits, Sample, Setup};
use super::{Progress, failed};
use crate::exit::Failure;
use crate::{output, schema};
use rtscope_tracers::Error;
use serde_json::{Value, json};
use std::fmt::Write;

/// Of an attempt, unless --duration is given.
const TRY_NS: u64 = 1_000_000_000;
/// The loop that emits less than this share of what it is asked for was kept from it.
const PACE: f64 = 0.9;
/// The first rate, and the factor of the large steps. Events a second.
const FIRST: f64 = 100_000.0;
const STEP: f64 = 8.0;
const LOWEST: f64 = 100.0;
/// Faster than one in 20 ns no loop emits.
const HIGHEST: f64 = 50e6;
/// The search ends when bad and good are so near to each other.
const NEAR: f64 = 1.08;
/// Of the result, what has to pass again; if it does not, the next.
const AGAIN: [f64; 7] = [1.0, 0.9, 0.8, 0.65, 0.5, 0.25, 0.1];
/// Where at least this share of the iterations has an event, the loop cannot emit more under this tracer.
const ALL_ITERATIONS: f64 = 0.95;

/// What was found for a tracer.
#[derive(Clone, Debug)]
enum Cell {
    Rate(ConfirmedRate),
    /// Why there is none.
    None(String),
}

#[derive(Clone, Debug)]
struct ConfirmedRate {
    /// Events a second that were asked for; where the CPU was taken from the loop, fewer were emitted.
    asked: f64,
    /// Events a second of the run that confirmed it.
    per_second: f64,
    emitted: u64,
    recorded: u64,
    /// The loop cannot emit more under this tracer.
    is_loops_limit: bool,
    /// Events of the kernel in the same run, from the tracer's start to its end.
    kernel: Option<u64>,
    tries: usize,
}

/// One attempt.
struct Attempt {
    sample: Sample,
    recorded: u64,
    kernel: Option<u64>,
    is_lossless: bool,
}

impl Attempt {
    fn per_second(&self) -> f64 {
        self.sample.emitted as f64 * 1e9 / self.sample.duration_ns.max(1.0)
    }

    fn is_loops_limit(&self) -> bool {
        self.sample.emitted as f64 > self.sample.iterations as f64 * ALL_ITERATIONS
    }
}

struct Row {
    tracer: TracerArg,
    cells: Vec<Cell>,
}

/// Searches, and reports. After a signal with what there is so far.
pub fn run(
    options: &ImpactOptions,
    setup: &Setup,
    machine: &Machine,
    mut tracers: Tracers,
) -> Result<(), Failure> {
    let try_ns = options.duration.map_or(TRY_NS, |duration| duration.0);
    let hold_ns = options.hold.map_or(try_ns, |hold| hold.0);
    let kernels: &[KernelEvents] =
        if options.without_kernel { &[KernelEvents::No] } else { &[KernelEvents::No, KernelEvents::Yes] };
    let progress = Progress::new();
    let mut rows = Vec::new();
    let mut stopped = false;
    for (name, tracer) in &mut tracers.available {
        let mut cells = Vec::new();
        for kernel in kernels.iter().copied() {
            let cell = if *name == TracerArg::Flight {
                stopped |= setup.stopped();
                if kernel == KernelEvents::Yes {
                    break;
                }
                Ok(Cell::None("it overwrites: it has the newest events at any rate".to_string()))
            } else {
                let mut search = Search {
                    name: title(*name),
                    tracer: tracer.as_mut(),
                    setup,
                    kernel,
                    try_ns,
                    hold_ns,
                    tries: 0,
                    progress: &progress,
                };
                search.run().map(Cell::Rate)
            };
            match cell {
                Ok(cell) => cells.push(cell),
                Err(Error::Stopped) => stopped = true,
                Err(error) => cells.push(Cell::None(error.to_string())),
            }
            if stopped {
                break;
            }
        }
        if options.without_kernel && !stopped {
            cells.push(Cell::None("not requested".to_string()));
        }
        rows.push(Row { tracer: *name, cells });
        if stopped {
            break;
        }
    }
    drop(progress);
    if stopped && rows.iter().all(|row| row.cells.is_empty()) {
        return Err(failed(Error::Stopped));
    }
    let notes = machine.notes([].iter());
    output::result(&if options.json {
        report_json(setup, machine, try_ns, &rows, &tracers.absent, &notes).to_string()
    } else {
        report_text(setup, machine, try_ns, &rows, &tracers.absent, &notes)
    });
    Ok(())
}

struct Search<'a> {
    name: &'static str,
    tracer: &'a mut dyn Tracer,
    setup: &'a Setup,
    kernel: KernelEvents,
    try_ns: u64,
    /// Of the tries that confirm the result.
    hold_ns: u64,
    tries: usize,
    progress: &'a Progress,
}

impl Search<'_> {
    /// Once more if it fails.
    fn try_at(&mut self, per_second: f64) -> Result<Attempt, Error> {
        let first = self.try_once(per_second, self.try_ns)?;
        if first.is_lossless { Ok(first) } else { self.try_once(per_second, self.try_ns) }
    }

    fn try_once(&mut self, per_second: f64, duration_ns: u64) -> Result<Attempt, Error> {
        self.tries += 1;
        let with = if self.kernel == KernelEvents::Yes { ", with the kernel's events" } else { "" };
        self.progress.say(&format!("try {} of {}{with}: {per_second:.0} events/s", self.tries, self.name));
        let limits = Limits { loops: None, duration_ns: Some(duration_ns), interval_ns: 1e9 / per_second };
        let (sample, counts) = traced(self.tracer, self.setup, limits, self.kernel)?;
        let is_lossless = counts.recorded == sample.emitted && counts.lost_reported.unwrap_or(0) == 0;
        Ok(Attempt { sample, recorded: counts.recorded, kernel: counts.kernel, is_lossless })
    }

    fn run(&mut self) -> Result<ConfirmedRate, Error> {
        let (mut good, mut bad) = (None, None);
        let mut rate = FIRST;
        while good.is_none() || bad.is_none() {
            let attempt = self.try_at(rate)?;
            if !attempt.is_lossless {
                bad = Some(rate);
                if good.is_none() {
                    rate /= STEP;
                }
                if rate < LOWEST {
                    return Err(Error::Failed(format!(
                        "it loses events even at {:.0} a second",
                        rate * STEP
                    )));
                }
                continue;
            }
            good = Some(rate);
            if attempt.is_loops_limit() || rate >= HIGHEST {
                return self.confirm(rate, attempt.per_second());
            }
            if bad.is_none() {
                rate = (rate * STEP).min(HIGHEST);
            }
        }
        let (mut good, mut bad) = (good.unwrap_or(LOWEST), bad.unwrap_or(HIGHEST));
        while bad / good > NEAR {
            let middle = (good * bad).sqrt();
            let attempt = self.try_at(middle)?;
            if !attempt.is_lossless {
                bad = middle;
            } else if attempt.is_loops_limit() {
                return self.confirm(middle, attempt.per_second());
            } else {
                good = middle;
            }
        }
        self.confirm(good, good)
    }

    /// `rate` is what is asked for, `per_second` what came of it: where the loop cannot emit more, the first may be far above.
    fn confirm(&mut self, rate: f64, per_second: f64) -> Result<ConfirmedRate, Error> {
        for share in AGAIN {
            let asked = if share < 1.0 { per_second * share } else { rate };
            let attempt = self.try_once(asked, self.hold_ns)?;
            if attempt.is_lossless {
                return Ok(ConfirmedRate {
                    asked,
                    per_second: attempt.per_second(),
                    emitted: attempt.sample.emitted,
                    recorded: attempt.recorded,
                    is_loops_limit: attempt.is_loops_limit(),
                    kernel: attempt.kernel,
                    tries: self.tries,
                });
            }
        }
        let passed = per_second.min(rate);
        Err(Error::Failed(format!(
            "{passed:.0} events a second passed once, but neither that nor less passed a second time"
        )))
    }
}

/// The remarks on a cell, below the table.
fn remarks(name: &str, with: &str, cell: &Cell) -> Vec<String> {
    match cell {
        Cell::None(why) => vec![format!("{name}{with}: none: {why}")],
        Cell::Rate(confirmed) => {
            let mut remarks = Vec::new();
            if confirmed.is_loops_limit {
                remarks.push(format!(
                    "{name}{with}: an event in each iteration, and none was lost: the loop cannot emit more"
                ));
            }
            if !confirmed.is_loops_limit && confirmed.per_second < confirmed.asked * PACE {
                remarks.push(format!(
                    "{name}{with}: {:.0} were requested, but the loop did not have its CPU all the time",
                    confirmed.asked
                ));
            }
            if let Some(kernel) = confirmed.kernel {
                remarks
                    .push(format!("{name}{with}: {} of the loop, {kernel} of the kernel", confirmed.emitted));
            }
            remarks
        }
    }
}

fn report_text(
    setup: &Setup,
    machine: &Machine,
    try_ns: u64,
    rows: &[Row],
    absent: &[AbsentTracer],
    notes: &[String],
) -> String {
    let policy =
        setup.fifo.map_or("ordinary thread".to_string(), |priority| format!("SCHED_FIFO {priority}"));
    let mut out = format!(
        "highest rate without a lost event: npt on CPU {}, {policy}; {} s each try\n{}\nbuffers: {} MiB for a CPU or a thread\n",
        setup.cpu,
        try_ns as f64 / 1e9,
        machine.name(),
        setup.buffer_bytes as f64 / f64::from(1 << 20),
    );
    notes.iter().for_each(|note| {
        let _ = writeln!(out, "- {note}");
    });
    let _ = writeln!(
        out,
        "\n{:<14}{:>22}{:>34}",
        "events/s", "user events alone", "with sched, irq, system calls"
    );
    let mut below = Vec::new();
    for row in rows {
        let name = title(row.tracer);
        let _ = write!(out, "{name:<14}");
        for (at, with, width) in [(0, "", 22), (1, " with the kernel's events", 34)] {
            let cell = row.cells.get(at);
            let text = match cell {
                Some(Cell::Rate(confirmed)) => {
                    format!("{:.0}{}", confirmed.per_second, if confirmed.is_loops_limit { "+" } else { "" })
                }
                Some(Cell::None(_)) => "-".to_string(),
                None => String::new(),
            };
            let _ = write!(out, "{text:>width$}");
            below.extend(cell.map(|cell| remarks(name, with, cell)).unwrap_or_default());
        }
        out.push('\n');
    }
    below.iter().for_each(|remark| {
        let _ = writeln!(out, "{remark}");
    });
    absent.iter().for_each(|absent| {
        let _ = writeln!(out, "{}", absent.line());
    });
    out
}

fn report_json(
    setup: &Setup,
    machine: &Machine,
    try_ns: u64,
    rows: &[Row],
    absent: &[AbsentTracer],
    notes: &[String],
) -> Value {
    let cell = |cell: Option<&Cell>| match cell {
        Some(Cell::Rate(confirmed)) => json!({
            "events_per_second": confirmed.per_second,
            "asked_per_second": confirmed.asked,
            "emitted": confirmed.emitted,
            "recorded": confirmed.recorded,
            "limited_by_the_loop": confirmed.is_loops_limit,
            "kernel_events": confirmed.kernel,
            "tries": confirmed.tries,
        }),
        Some(Cell::None(why)) => json!({ "events_per_second": null, "reason": why }),
        None => json!({ "events_per_second": null, "reason": "stopped" }),
    };
    let tracers = rows.iter().map(|row| {
        json!({
            "tracer": title(row.tracer),
            "user_events": cell(row.cells.first()),
            "with_kernel_events": cell(row.cells.get(1)),
        })
    });
    json!({
        "schema": schema::IMPACT_RATE,
        "machine": machine.json(),
        "notes": notes,
        "cpu": setup.cpu,
        "fifo": setup.fifo,
        "buffer_bytes": setup.buffer_bytes,
        "try_ns": try_ns,
        "tracers": tracers.collect::<Vec<_>>(),
        "absent": absent.iter().map(AbsentTracer::json).collect::<Vec<_>>(),
    })
}
