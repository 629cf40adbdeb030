// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tracing costs, as people read it: the published table, what each tracer adds, and what it loses.

use super::absent_line;
use rtscope_measure::impact::{Case, CaseReport, Events, Figure, Figures, Report};
use rtscope_measure::npt::PERCENTILES;
use std::fmt::Write;

/// Over a picture, too.
pub(super) fn heading(report: &Report) -> String {
    let policy =
        report.fifo.map_or("ordinary thread".to_string(), |priority| format!("SCHED_FIFO {priority}"));
    let iterations = report.cases.first().and_then(|case| case.runs.first()).map_or(0, |run| run.iterations);
    let pace = report
        .rate_per_second
        .map_or("an event in each".to_string(), |rate| format!("at most {rate:.0} events/s"));
    format!("npt on CPU {}, {policy}; {iterations} iterations, {pace}; rounds: {}", report.cpu, report.rounds)
}

/// All of it.
#[must_use]
pub fn text(report: &Report) -> String {
    let cases: Vec<&CaseReport> = report.cases.iter().collect();
    let mut out = format!("{}\n{}\n", heading(report), report.machine.name());
    let _ = writeln!(
        out,
        "buffers: {} MiB for a CPU or a thread",
        report.buffer_bytes as f64 / f64::from(1 << 20)
    );
    report.notes.iter().for_each(|note| {
        let _ = writeln!(out, "- {note}");
    });
    let figures: Vec<Figure> = Figure::all().collect();
    table(&mut out, "loop iteration, ns (median)", &cases, &figures, |case| &case.median);
    let _ = write!(out, "{:<NAME$}", "max of all rounds");
    cases.iter().for_each(|case| {
        let _ = write!(out, "{:>CELL$}", digits(case.largest_ns));
    });
    out.push('\n');
    let others: Vec<&CaseReport> = cases.iter().copied().filter(|case| case.case != Case::Untraced).collect();
    if others.len() < cases.len() {
        // A difference of variances is no variance.
        let without = |figure: &Figure| !matches!(figure, Figure::Variance | Figure::Deviation);
        let figures: Vec<Figure> = figures.into_iter().filter(without).collect();
        table(&mut out, "added, ns (median)", &others, &figures, |case| &case.added);
    }
    events(&mut out, &others);
    for case in cases {
        case.notes.iter().for_each(|note| {
            let _ = writeln!(out, "{}: {note}", case.case.name());
        });
    }
    report.absent.iter().for_each(|absent| {
        let _ = writeln!(out, "{}", absent_line(absent));
    });
    out
}

/// Width of the first column, and of the others.
const NAME: usize = 29;
const CELL: usize = 12;

fn head(out: &mut String, name: &str, cases: &[&CaseReport]) {
    let _ = write!(out, "\n{name:<NAME$}");
    cases.iter().for_each(|case| {
        let _ = write!(out, "{:>CELL$}", case.case.name());
    });
    out.push('\n');
}

/// Of a figure. The table has the variance in 10³ ns², as the published one.
fn name(figure: Figure) -> String {
    match figure {
        Figure::Min => "min".to_string(),
        Figure::Mean => "mean".to_string(),
        Figure::Max => "max".to_string(),
        Figure::Deviation => "std deviation".to_string(),
        Figure::Variance => "variance, 10³ ns²".to_string(),
        Figure::Percentile(at) => format!("{} %", PERCENTILES[at]),
    }
}

fn table(
    out: &mut String,
    title: &str,
    cases: &[&CaseReport],
    figures: &[Figure],
    of: impl Fn(&CaseReport) -> &Figures,
) {
    head(out, title, cases);
    for figure in figures {
        let scale = if *figure == Figure::Variance { 1e-3 } else { 1.0 };
        let _ = write!(out, "{:<NAME$}", name(*figure));
        for case in cases {
            let value = of(case).get(figure).copied().flatten();
            let text = value.map_or("n/a".to_string(), |value| digits(value * scale));
            let _ = write!(out, "{text:>CELL$}");
        }
        out.push('\n');
    }
}

fn events(out: &mut String, cases: &[&CaseReport]) {
    head(out, "events, all rounds", cases);
    let number = |number: Option<u64>| number.map_or("-".to_string(), |number| number.to_string());
    let mut row = |name: &str, cell: &dyn Fn(&Events) -> String| {
        let _ = write!(out, "{name:<NAME$}");
        cases.iter().for_each(|case| {
            let _ = write!(out, "{:>CELL$}", cell(&case.events));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let all = [0.0, -1e-7, 3.52, 60.17, 498.2, 82180.4, -2.0].map(digits);
        assert_eq!(all, ["0", "0", "3.520", "60.17", "498.2", "82180", "-2.000"]);
    }
}
