// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of the rounds: the published table, what each tracer adds, and what it loses. Serialised, it is what
//! `rtscope impact --json` prints (docs/json.md): keys that are older than the names here are kept.

use super::cases::{AbsentTracer, TraceCounts, TracerKind};
use super::machine::Machine;
use super::setup::Sample;
use crate::npt::{Bucket, CoreClock, PERCENTILES};
use rtscope_event::counted;
use rtscope_session::fail_if;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Name and version of the serialised report.
pub const SCHEMA: &str = "rtscope.impact/1";

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
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
    /// At most this many events; `None`: one in each iteration.
    pub rate_per_second: Option<f64>,
    /// Rounds that were complete.
    pub rounds: usize,
    /// What was run in each round.
    pub cases: Vec<CaseReport>,
    /// Tracers that were not measured.
    pub absent: Vec<AbsentTracer>,
}

impl Report {
    /// What `--fail-if` can be about: CASE.FIGURE.
    #[must_use]
    pub fn figures(&self) -> fail_if::Figures {
        let mut figures = fail_if::Figures::new();
        for case in &self.cases {
            let name = case.case.name();
            for (figure, value) in &case.median {
                let Some(figure) = figure.name() else { continue };
                figures.push((format!("{name}.{figure}"), fail_if::Figure::Time(*value)));
            }
            figures.push((format!("{name}.lost"), fail_if::Figure::Count(case.events.lost)));
        }
        figures
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// Without an event.
    Untraced,
    /// With rtscope's event, which nobody records. For the tracers of its USDT probe it is the same.
    Disabled,
    /// With LTTng's.
    LttngDisabled,
    /// Recorded by this tracer.
    Traced(TracerKind),
}

impl Case {
    /// For people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Case::Untraced => "untraced",
            Case::Disabled => "disabled",
            Case::LttngDisabled => "lttng-off",
            Case::Traced(tracer) => tracer.name(),
        }
    }
}

impl Serialize for Case {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A figure of a run, in the order of the published table; then percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// The shortest gap.
    Min,
    /// The mean.
    Mean,
    /// The longest gap.
    Max,
    /// The standard deviation.
    Deviation,
    /// The variance, in ns².
    Variance,
    /// A percentile: which of PERCENTILES.
    Percentile(usize),
}

impl Figure {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Figure> {
        let first = [Figure::Min, Figure::Mean, Figure::Max, Figure::Deviation, Figure::Variance];
        first.into_iter().chain((0..PERCENTILES.len()).map(Figure::Percentile))
    }

    /// Its key where it is serialised.
    fn key(self) -> String {
        match self {
            Figure::Min => "min_ns".to_string(),
            Figure::Mean => "mean_ns".to_string(),
            Figure::Max => "max_ns".to_string(),
            Figure::Deviation => "standard_deviation_ns".to_string(),
            Figure::Variance => "variance_ns2".to_string(),
            Figure::Percentile(at) => format!("p{}_ns", PERCENTILES[at]),
        }
    }

    /// As people write it; `None`: it is not a time.
    #[must_use]
    pub fn name(self) -> Option<String> {
        match self {
            Figure::Variance => None,
            Figure::Deviation => Some("deviation".to_string()),
            other => other.key().strip_suffix("_ns").map(str::to_string),
        }
    }

    /// Of a run.
    fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Figure::Min => Some(sample.min),
            Figure::Mean => Some(sample.mean),
            Figure::Max => Some(sample.max),
            Figure::Deviation => sample.deviation(),
            Figure::Variance => sample.variance,
            Figure::Percentile(at) => sample.percentiles[at],
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.key())
    }
}

/// All figures, in ns; `None`: not known.
pub type Figures = BTreeMap<Figure, Option<f64>>;

/// A case in all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Which.
    pub case: Case,
    /// The median over the rounds.
    pub median: Figures,
    /// The longest gap of all rounds.
    #[serde(rename = "max_of_all_rounds_ns")]
    pub largest_ns: f64,
    /// The median of the differences to the untraced run of the same round.
    pub added: Figures,
    /// What became of the events.
    pub events: Events,
    /// What the reader has to know of it.
    pub notes: Vec<String>,
    /// In each round.
    pub runs: Vec<Run>,
}

/// A case in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Iterations.
    #[serde(rename = "turns")]
    pub iterations: u64,
    /// From the loop's begin to its end.
    pub duration_ns: f64,
    /// Events of the loop.
    pub emitted: u64,
    /// Those that are in the trace; `None`: nobody recorded.
    pub recorded: Option<u64>,
    /// Those that should be and are not.
    pub lost: Option<u64>,
    /// Cycles per ns of the core.
    pub core_ghz: CoreClock,
    /// Ascending, none empty.
    #[serde(rename = "histogram")]
    pub buckets: Vec<Bucket>,
    /// Of this run.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What became of the events of all rounds. `None`: nobody recorded.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Events {
    /// By the loop.
    pub emitted: u64,
    /// Those that are in the traces.
    pub recorded: Option<u64>,
    /// Those that should be and are not.
    pub lost: Option<u64>,
    /// As the tracer itself reports.
    #[serde(rename = "lost_said_by_tracer")]
    pub lost_reported: Option<u64>,
    /// The tracer overwrites the oldest, so what is not there any more is no loss.
    pub overwrites: bool,
}

/// A share of losses that makes a cost look smaller than it is.
const LOST: f64 = 0.01;

/// One run, as it was measured.
#[derive(Debug)]
pub struct MeasuredRun {
    pub sample: Sample,
    /// Of those that are traced.
    pub counts: Option<TraceCounts>,
}

/// A case in all rounds, as it was measured.
#[derive(Debug)]
pub struct Column {
    pub case: Case,
    pub runs: Vec<MeasuredRun>,
}

impl Column {
    /// With all that follows from the runs; `untraced`: what it is compared with.
    pub fn report(&self, untraced: Option<&Column>) -> CaseReport {
        CaseReport {
            case: self.case,
            median: Figure::all().map(|figure| (figure, self.median(figure))).collect(),
            largest_ns: self.runs.iter().map(|run| run.sample.max).fold(0.0, f64::max),
            added: Figure::all()
                .map(|figure| (figure, untraced.and_then(|untraced| self.added(untraced, figure))))
                .collect(),
            events: self.events(),
            notes: self.notes(),
            runs: self.runs.iter().map(MeasuredRun::report).collect(),
        }
    }

    /// The median over the rounds.
    fn median(&self, figure: Figure) -> Option<f64> {
        median(self.runs.iter().map(|run| figure.of(&run.sample)).collect::<Option<_>>()?)
    }

    /// The median of the differences to the untraced run of the same round.
    fn added(&self, untraced: &Column, figure: Figure) -> Option<f64> {
        let pairs = self.runs.iter().zip(&untraced.runs);
        let differences = pairs.map(|(run, base)| Some(figure.of(&run.sample)? - figure.of(&base.sample)?));
        median(differences.collect::<Option<_>>()?)
    }

    /// Of all rounds.
    fn events(&self) -> Events {
        let sum = |of: &dyn Fn(&MeasuredRun) -> u64| self.runs.iter().map(of).sum::<u64>();
        let trace_counts = || self.runs.iter().filter_map(|run| run.counts.as_ref());
        let emitted = sum(&|run| run.sample.emitted);
        if trace_counts().next().is_none() {
            return Events { emitted, ..Events::default() };
        }
        Events {
            emitted,
            recorded: Some(trace_counts().map(|counts| counts.recorded).sum()),
            lost: Some(sum(&|run| run.counts.as_ref().map_or(0, |counts| counts.lost(run.sample.emitted)))),
            lost_reported: trace_counts().map(|counts| counts.lost_reported).sum(),
            overwrites: trace_counts().any(|counts| counts.overwrites),
        }
    }

    /// What the reader has to know of it.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let repeated: u64 = self.trace_counts().map(|counts| counts.repeated).sum();
        if repeated > 0 {
            notes.push(format!(
                "{} in its files twice; each is counted once",
                counted(repeated, "event is", "events are")
            ));
        }
        let events = self.events();
        let iterations: u64 = self.runs.iter().map(|run| run.sample.iterations).sum();
        if events.recorded.is_some() && events.emitted * 2 < iterations {
            let percent = events.emitted as f64 * 100.0 / iterations as f64;
            notes.push(format!(
                "{percent:.3} % of the iterations have an event: all but the largest {percent:.3} % of the gaps are without one"
            ));
        }
        let lost = events.lost.filter(|_| !events.overwrites).unwrap_or(0);
        if lost as f64 > events.emitted as f64 * LOST {
            notes.push(
                "lost events are not written, so the cost is too low; use --rate or a larger --buffer"
                    .to_string(),
            );
        }
        notes
    }

    fn trace_counts(&self) -> impl Iterator<Item = &TraceCounts> {
        self.runs.iter().filter_map(|run| run.counts.as_ref())
    }
}

impl MeasuredRun {
    fn report(&self) -> Run {
        let (sample, counts) = (&self.sample, self.counts.as_ref());
        Run {
            iterations: sample.iterations,
            duration_ns: sample.duration_ns,
            emitted: sample.emitted,
            recorded: counts.map(|counts| counts.recorded),
            lost: counts.map(|counts| counts.lost(sample.emitted)),
            core_ghz: CoreClock { before: sample.core_ghz[0], after: sample.core_ghz[1] },
            buckets: sample.buckets.clone(),
            figures: Figure::all().map(|figure| (figure, figure.of(sample))).collect(),
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mean: f64, emitted: u64, recorded: Option<u64>) -> MeasuredRun {
        let sample = Sample {
            iterations: 10,
            min: 1.0,
            mean,
            max: 100.0,
            variance: Some(4.0),
            percentiles: [Some(2.0), None, None, None, None, None, None],
            buckets: vec![(1.0, 2.0, 10)],
            emitted,
            duration_ns: 100.0,
            ticks_per_second: 2e9,
            core_ghz: [3.0, 3.0],
            notes: Vec::new(),
        };
        let counts = recorded.map(|recorded| TraceCounts {
            recorded,
            lost_reported: Some(1),
            ..TraceCounts::default()
        });
        MeasuredRun { sample, counts }
    }

    #[test]
    fn what_is_added_is_the_median_of_the_differences_of_each_round() {
        let untraced = Column {
            case: Case::Untraced,
            runs: vec![run(10.0, 0, None), run(20.0, 0, None), run(90.0, 0, None)],
        };
        let traced = Column {
            case: Case::Traced(TracerKind::Perf),
            runs: vec![run(15.0, 10, Some(8)), run(26.0, 10, Some(10)), run(91.0, 10, Some(10))],
        };
        let mean = Figure::Mean;
        assert_eq!((traced.median(mean), traced.added(&untraced, mean)), (Some(26.0), Some(5.0)));
        assert_eq!(traced.median(Figure::Percentile(1)), None);
        let events = traced.events();
        assert_eq!(
            (events.emitted, events.recorded, events.lost, events.lost_reported),
            (30, Some(28), Some(2), Some(3))
        );
        assert_eq!(untraced.events().recorded, None);
    }
}
