// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of the rounds: the published table, what each tracer adds, and what it loses; as text, JSON and a picture.

use super::cases::{AbsentTracer, TraceCounts};
use super::machine::Machine;
use super::options::ImpactOptions;
use super::plot;
use super::rounds::Case;
use super::setup::{Sample, Setup};
use crate::exit::Failure;
use crate::{output, schema};
use rtscope_measure::npt::PERCENTILES;
use serde_json::{Value, json};
use std::fmt::Write;

/// A case in one round.
#[derive(Debug)]
pub struct Run {
    pub sample: Sample,
    /// Of those that are traced.
    pub counts: Option<TraceCounts>,
}

/// A case in all rounds.
#[derive(Debug)]
pub struct Column {
    pub case: Case,
    pub runs: Vec<Run>,
}

/// A figure of a run: its key in JSON, its name in the table, and how it is found.
type Figure = (String, String, Box<SampleFigure>);
type SampleFigure = dyn Fn(&Sample) -> Option<f64>;

/// As in the published table, then percentiles.
fn figures() -> Vec<Figure> {
    let figure = |key: &str, name: &str, of: fn(&Sample) -> Option<f64>| -> Figure {
        (key.to_string(), name.to_string(), Box::new(of))
    };
    let mut figures = vec![
        figure("min_ns", "min", |sample| Some(sample.min)),
        figure("mean_ns", "mean", |sample| Some(sample.mean)),
        figure("max_ns", "max", |sample| Some(sample.max)),
        figure("standard_deviation_ns", "std deviation", Sample::deviation),
        figure("variance_ns2", VARIANCE, |sample| sample.variance),
    ];
    for (at, percent) in PERCENTILES.iter().enumerate() {
        let of = Box::new(move |sample: &Sample| sample.percentiles[at]);
        figures.push((format!("p{percent}_ns"), format!("{percent} %"), of));
    }
    figures
}

/// A share of losses that makes a cost look smaller than it is.
const LOST: f64 = 0.01;
/// The table has it in 10³ ns², as the published one.
const VARIANCE: &str = "variance, 10³ ns²";

impl Column {
    /// The median over the rounds.
    fn median(&self, figure: &SampleFigure) -> Option<f64> {
        median(self.runs.iter().map(|run| figure(&run.sample)).collect::<Option<_>>()?)
    }

    /// Of all rounds, in ns.
    pub fn largest(&self) -> f64 {
        self.runs.iter().map(|run| run.sample.max).fold(0.0, f64::max)
    }

    /// The median of the differences to the untraced run of the same round.
    fn added(&self, untraced: &Column, figure: &SampleFigure) -> Option<f64> {
        let pairs = self.runs.iter().zip(&untraced.runs);
        let differences = pairs.map(|(run, base)| Some(figure(&run.sample)? - figure(&base.sample)?));
        median(differences.collect::<Option<_>>()?)
    }

    /// Of all rounds.
    pub fn events(&self) -> Events {
        let sum = |of: &dyn Fn(&Run) -> u64| self.runs.iter().map(of).sum::<u64>();
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
            notes.push(format!("{repeated} events are in its files twice; each is counted once"));
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

/// What became of the events of all rounds. `None`: nobody recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    pub emitted: u64,
    pub recorded: Option<u64>,
    pub lost: Option<u64>,
    /// As the tracer itself reports.
    pub lost_reported: Option<u64>,
    pub overwrites: bool,
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

/// Prints and draws.
pub fn report(
    options: &ImpactOptions,
    setup: &Setup,
    machine: &Machine,
    columns: &[Column],
    absent: &[AbsentTracer],
) -> Result<(), Failure> {
    let samples = columns.iter().flat_map(|column| column.runs.iter().map(|run| &run.sample));
    let notes = machine.notes(samples);
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::svg(&heading(options, setup, columns), columns))
            .map_err(|error| Failure::doing(format!("writing {}", file.display()), error))?;
    }
    output::result(&if options.json {
        json(options, setup, machine, columns, absent, &notes).to_string()
    } else {
        text(options, setup, machine, columns, absent, &notes)
    });
    Ok(())
}

fn heading(options: &ImpactOptions, setup: &Setup, columns: &[Column]) -> String {
    let policy =
        setup.fifo.map_or("ordinary thread".to_string(), |priority| format!("SCHED_FIFO {priority}"));
    let iterations =
        columns.first().and_then(|column| column.runs.first()).map_or(0, |run| run.sample.iterations);
    let pace = options.rate.map_or("an event in each".to_string(), |interval| {
        format!("at most {:.0} events/s", 1e9 / interval.0 as f64)
    });
    let rounds = columns.first().map_or(0, |column| column.runs.len());
    format!("npt on CPU {}, {policy}; {iterations} iterations, {pace}; rounds: {rounds}", setup.cpu)
}

fn text(
    options: &ImpactOptions,
    setup: &Setup,
    machine: &Machine,
    columns: &[Column],
    absent: &[AbsentTracer],
    notes: &[String],
) -> String {
    let mut out = format!("{}\n{}\n", heading(options, setup, columns), machine.name());
    let _ = writeln!(
        out,
        "buffers: {} MiB for a CPU or a thread",
        setup.buffer_bytes as f64 / f64::from(1 << 20)
    );
    notes.iter().for_each(|note| {
        let _ = writeln!(out, "- {note}");
    });
    let figures = figures();
    table(&mut out, "loop iteration, ns (median)", columns, &figures, &|column, figure| {
        column.median(figure)
    });
    let _ = write!(out, "{:<NAME$}", "max of all rounds");
    columns.iter().for_each(|column| {
        let _ = write!(out, "{:>CELL$}", digits(column.largest()));
    });
    out.push('\n');
    if let Some(untraced) = columns.iter().find(|column| column.case == Case::Untraced) {
        let others: Vec<&Column> = columns.iter().filter(|column| column.case != Case::Untraced).collect();
        // A difference of variances is no variance.
        let without = |name: &str| name != VARIANCE && name != "std deviation";
        let figures: Vec<Figure> = figures.into_iter().filter(|(_, name, _)| without(name)).collect();
        table(&mut out, "added, ns (median)", &others, &figures, &|column, figure| {
            column.added(untraced, figure)
        });
    }
    events(&mut out, columns);
    for column in columns {
        column.notes().iter().for_each(|note| {
            let _ = writeln!(out, "{}: {note}", column.case.name());
        });
    }
    absent.iter().for_each(|absent| {
        let _ = writeln!(out, "{}", absent.line());
    });
    out
}

/// Width of the first column, and of the others.
const NAME: usize = 29;
const CELL: usize = 12;

fn head(out: &mut String, name: &str, columns: &[&Column]) {
    let _ = write!(out, "\n{name:<NAME$}");
    columns.iter().for_each(|column| {
        let _ = write!(out, "{:>CELL$}", column.case.name());
    });
    out.push('\n');
}

fn table<C: std::borrow::Borrow<Column>>(
    out: &mut String,
    name: &str,
    columns: &[C],
    figures: &[Figure],
    cell: &dyn Fn(&Column, &SampleFigure) -> Option<f64>,
) {
    let columns: Vec<&Column> = columns.iter().map(std::borrow::Borrow::borrow).collect();
    head(out, name, &columns);
    for (_, name, figure) in figures {
        let scale = if name == VARIANCE { 1e-3 } else { 1.0 };
        let _ = write!(out, "{name:<NAME$}");
        for column in &columns {
            let text = cell(column, figure.as_ref()).map_or("n/a".to_string(), |value| digits(value * scale));
            let _ = write!(out, "{text:>CELL$}");
        }
        out.push('\n');
    }
}

fn events(out: &mut String, columns: &[Column]) {
    let columns: Vec<&Column> = columns.iter().filter(|column| column.case != Case::Untraced).collect();
    head(out, "events, all rounds", &columns);
    let number = |number: Option<u64>| number.map_or("-".to_string(), |number| number.to_string());
    let mut row = |name: &str, cell: &dyn Fn(&Events) -> String| {
        let _ = write!(out, "{name:<NAME$}");
        columns.iter().for_each(|column| {
            let _ = write!(out, "{:>CELL$}", cell(&column.events()));
        });
        out.push('\n');
    };
    row("emitted", &|events| events.emitted.to_string());
    row("recorded", &|events| number(events.recorded));
    row("lost", &|events| if events.overwrites { "overwrites".to_string() } else { number(events.lost) });
    row("lost, as reported", &|events| number(events.lost_reported));
    row("lost, %", &|events| match events.lost {
        Some(lost) if !events.overwrites => digits(lost as f64 * 100.0 / events.emitted.max(1) as f64),
        _ => "-".to_string(),
    });
}

/// Four that mean something.
fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        size if size < 0.0005 => "0".to_string(),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 100.0 => format!("{value:.2}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn json(
    options: &ImpactOptions,
    setup: &Setup,
    machine: &Machine,
    columns: &[Column],
    absent: &[AbsentTracer],
    notes: &[String],
) -> Value {
    let untraced = columns.iter().find(|column| column.case == Case::Untraced);
    json!({
        "schema": schema::IMPACT,
        "machine": machine.json(),
        "notes": notes,
        "cpu": setup.cpu,
        "fifo": setup.fifo,
        "buffer_bytes": setup.buffer_bytes,
        "rate_per_second": options.rate.map(|interval| 1e9 / interval.0 as f64),
        "rounds": columns.first().map_or(0, |column| column.runs.len()),
        "cases": columns.iter().map(|column| case_json(column, untraced)).collect::<Vec<_>>(),
        "absent": absent.iter().map(AbsentTracer::json).collect::<Vec<_>>(),
    })
}

fn case_json(column: &Column, untraced: Option<&Column>) -> Value {
    let (mut medians, mut added) = (json!({}), json!({}));
    for (key, _, figure) in figures() {
        added[&key] = json!(untraced.and_then(|untraced| column.added(untraced, figure.as_ref())));
        medians[&key] = json!(column.median(figure.as_ref()));
    }
    let events = column.events();
    json!({
        "case": column.case.name(),
        "median": medians,
        "max_of_all_rounds_ns": column.largest(),
        "added": added,
        "events": {
            "emitted": events.emitted,
            "recorded": events.recorded,
            "lost": events.lost,
            "lost_said_by_tracer": events.lost_reported,
            "overwrites": events.overwrites,
        },
        "notes": column.notes(),
        "runs": column.runs.iter().map(run_json).collect::<Vec<_>>(),
    })
}

fn run_json(run: &Run) -> Value {
    let mut object = json!({
        "turns": run.sample.iterations,
        "duration_ns": run.sample.duration_ns,
        "emitted": run.sample.emitted,
        "recorded": run.counts.as_ref().map(|counts| counts.recorded),
        "lost": run.counts.as_ref().map(|counts| counts.lost(run.sample.emitted)),
        "core_ghz": { "before": run.sample.core_ghz[0], "after": run.sample.core_ghz[1] },
        "histogram": run.sample.buckets.iter().map(|(from, to, count)| json!([from, to, count])).collect::<Vec<_>>(),
    });
    for (key, _, figure) in figures() {
        object[&key] = json!(figure(&run.sample));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mean: f64, emitted: u64, recorded: Option<u64>) -> Run {
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
        Run { sample, counts }
    }

    #[test]
    fn what_is_added_is_the_median_of_the_differences_of_each_round() {
        let untraced = Column {
            case: Case::Untraced,
            runs: vec![run(10.0, 0, None), run(20.0, 0, None), run(90.0, 0, None)],
        };
        let traced = Column {
            case: Case::Traced(super::super::options::TracerArg::Perf),
            runs: vec![run(15.0, 10, Some(8)), run(26.0, 10, Some(10)), run(91.0, 10, Some(10))],
        };
        let mean = |sample: &Sample| Some(sample.mean);
        assert_eq!((traced.median(&mean), traced.added(&untraced, &mean)), (Some(26.0), Some(5.0)));
        assert_eq!(traced.median(&|sample| sample.percentiles[1]), None);
        let events = traced.events();
        assert_eq!(
            (events.emitted, events.recorded, events.lost, events.lost_reported),
            (30, Some(28), Some(2), Some(3))
        );
        assert_eq!(untraced.events().recorded, None);
    }

    #[test]
    fn numbers_have_four_digits() {
        let all = [0.0, -1e-7, 3.52, 60.17, 498.2, 82180.4, -2.0].map(digits);
        assert_eq!(all, ["0", "0", "3.520", "60.17", "498.2", "82180", "-2.000"]);
    }
}
