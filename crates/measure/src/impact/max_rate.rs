// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The highest rate of events that a tracer records with none lost, by binary search on npt's rate.
//!
//! First in large steps, from a rate that all should manage, then by halves on a logarithmic scale. A loss may have been bad luck,
//! so a rate has failed when it fails twice. What passed once may have been good luck, so the result has to pass again; if it does
//! not, a lower rate has to.

use super::cases::{AbsentTracer, KernelEvents, Tracer, TracerKind, Tracers};
use super::failed;
use super::machine::Machine;
use super::rounds::traced;
use super::setup::{Limits, Sample, Setup};
use rtscope_session::{Failure, Observer};
use rtscope_tracers::Error;
use serde::{Serialize, Serializer};

/// Of an attempt, unless another time is asked for.
const TRY_NS: u64 = 1_000_000_000;
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

/// Name and version of the serialised report.
pub const SCHEMA: &str = "rtscope.impact.rate/1";

/// What is asked for of the search.
#[derive(Clone, Debug)]
pub struct RateSettings {
    /// Time of each try; `None`: a second.
    pub try_ns: Option<u64>,
    /// How long a rate has to pass to be confirmed; `None`: the time of a try.
    pub hold_ns: Option<u64>,
    /// Also while events of the kernel are recorded.
    pub with_kernel: bool,
}

/// The result. Serialised, it is what `rtscope impact --max-rate --json` prints (docs/json.md).
#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Where it was measured.
    pub machine: Machine,
    /// What the reader has to know of it.
    pub notes: Vec<String>,
    /// Where the loop ran.
    pub cpu: usize,
    /// The real-time priority that was asked for.
    pub fifo: Option<u8>,
    /// Of each tracer, for a CPU or a thread.
    pub buffer_bytes: usize,
    /// Time of each try.
    pub try_ns: u64,
    /// What was found for each.
    #[serde(rename = "tracers")]
    pub rows: Vec<RateRow>,
    /// Tracers that were not measured.
    pub absent: Vec<AbsentTracer>,
}

/// What was found for a tracer.
#[derive(Clone, Debug, Serialize)]
pub struct RateRow {
    /// Which.
    pub tracer: TracerKind,
    /// Of user events alone.
    pub user_events: RateOutcome,
    /// While events of the kernel are recorded.
    pub with_kernel_events: RateOutcome,
}

/// A rate, or why there is none.
#[derive(Clone, Debug)]
pub enum RateOutcome {
    /// The highest.
    Rate(ConfirmedRate),
    /// Why there is none.
    None(String),
    /// Not searched any more.
    Stopped,
}

/// A rate that was found.
#[derive(Clone, Debug, Serialize)]
pub struct ConfirmedRate {
    /// Events a second that were asked for; where the CPU was taken from the loop, fewer were emitted.
    #[serde(rename = "asked_per_second")]
    pub asked: f64,
    /// Events a second of the run that confirmed it.
    #[serde(rename = "events_per_second")]
    pub per_second: f64,
    /// In that run.
    pub emitted: u64,
    /// Those of them that are in the trace.
    pub recorded: u64,
    /// The loop cannot emit more under this tracer.
    #[serde(rename = "limited_by_the_loop")]
    pub is_loops_limit: bool,
    /// Events of the kernel in the same run, from the tracer's start to its end.
    #[serde(rename = "kernel_events")]
    pub kernel: Option<u64>,
    /// What it took to find it.
    pub tries: usize,
}

/// No rate, as it is serialised.
#[derive(Serialize)]
struct NoRate<'a> {
    events_per_second: Option<f64>,
    reason: &'a str,
}

impl Serialize for RateOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reason = match self {
            RateOutcome::Rate(confirmed) => return confirmed.serialize(serializer),
            RateOutcome::None(why) => why,
            RateOutcome::Stopped => "stopped",
        };
        NoRate { events_per_second: None, reason }.serialize(serializer)
    }
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

/// Searches. After a stop with what there is so far.
pub fn run(
    settings: &RateSettings,
    setup: &Setup<'_>,
    machine: Machine,
    mut tracers: Tracers,
    observer: &dyn Observer,
) -> Result<RateReport, Failure> {
    let try_ns = settings.try_ns.unwrap_or(TRY_NS);
    let hold_ns = settings.hold_ns.unwrap_or(try_ns);
    let kernels: &[KernelEvents] =
        if settings.with_kernel { &[KernelEvents::No, KernelEvents::Yes] } else { &[KernelEvents::No] };
    let mut rows = Vec::new();
    let mut stopped = false;
    for (kind, tracer) in &mut tracers.available {
        let mut outcomes = Vec::new();
        for kernel in kernels.iter().copied() {
            let outcome = if *kind == TracerKind::Flight {
                stopped |= setup.stopped();
                if kernel == KernelEvents::Yes {
                    break;
                }
                Ok(RateOutcome::None("it overwrites: it has the newest events at any rate".to_string()))
            } else {
                let (name, tracer) = (kind.name(), tracer.as_mut());
                let mut search = Search { name, tracer, setup, kernel, try_ns, hold_ns, tries: 0, observer };
                search.run().map(RateOutcome::Rate)
            };
            match outcome {
                Ok(outcome) => outcomes.push(outcome),
                Err(Error::Stopped) => stopped = true,
                Err(error) => outcomes.push(RateOutcome::None(error.to_string())),
            }
            if stopped {
                break;
            }
        }
        if !settings.with_kernel && !stopped {
            outcomes.push(RateOutcome::None("not requested".to_string()));
        }
        rows.push(RateRow::new(*kind, outcomes));
        if stopped {
            break;
        }
    }
    if stopped && rows.iter().all(|row| matches!(row.user_events, RateOutcome::Stopped)) {
        return Err(failed(Error::Stopped));
    }
    Ok(RateReport {
        schema: SCHEMA,
        notes: machine.notes([].iter()),
        machine,
        cpu: setup.cpu,
        fifo: setup.fifo,
        buffer_bytes: setup.buffer_bytes,
        try_ns,
        rows,
        absent: tracers.absent,
    })
}

impl RateRow {
    fn new(tracer: TracerKind, outcomes: Vec<RateOutcome>) -> RateRow {
        let mut outcomes = outcomes.into_iter();
        let mut next = || outcomes.next().unwrap_or(RateOutcome::Stopped);
        RateRow { tracer, user_events: next(), with_kernel_events: next() }
    }
}

struct Search<'a> {
    name: &'static str,
    tracer: &'a mut dyn Tracer,
    setup: &'a Setup<'a>,
    kernel: KernelEvents,
    try_ns: u64,
    /// Of the tries that confirm the result.
    hold_ns: u64,
    tries: usize,
    observer: &'a dyn Observer,
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
        self.observer.step(&format!("try {} of {}{with}: {per_second:.0} events/s", self.tries, self.name));
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
