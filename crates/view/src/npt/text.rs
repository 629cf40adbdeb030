// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result as people read it: a column for each kind of window, and a histogram.

use crate::clean;
use crate::units::counted;
use rtscope_analyze::gap::Part;
use rtscope_measure::npt::{
    BlameReport, BlamedGap, LongGap, LongGaps, PERCENTILES, Report, Section, Statistics,
};
use std::fmt::Write;

/// Width of a bar.
const BAR: f64 = 40.0;

/// Rows of those that took most.
const TAKERS: usize = 12;

/// This many of those that took a gap are named in its line.
const PARTS: usize = 4;

/// Over a plot.
#[must_use]
pub fn title(report: &Report) -> String {
    let policy =
        report.fifo.map_or("ordinary thread".to_string(), |priority| format!("SCHED_FIFO {priority}"));
    format!("npt on CPU {}, {policy}", report.cpu)
}

/// All of it.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = head(report);
    out.push('\n');
    table(&mut out, &report.measured);
    out.push('\n');
    histogram(&mut out, &report.measured);
    longest(&mut out, report);
    if let Some(blame_report) = &report.blame {
        takers(&mut out, blame_report);
    }
    out
}

fn head(report: &Report) -> String {
    let events = match (report.events.recorded, report.events.lost) {
        (false, _) => "not recorded".to_string(),
        (true, lost) => format!("recorded, {lost} lost"),
    };
    format!(
        "{}, memory {}; {} after {} iterations of warm-up\n\
         clock: {}, {:.3} MHz measured ({:+.2} ppm against the warm-up); core {:.2} GHz before, {:.2} GHz after\n\
         events: {} in the loop, {events}\n",
        title(report),
        if report.memory_locked { "locked" } else { "not locked" },
        duration(report.duration_ns),
        report.warm_up,
        report.clock,
        report.ticks_per_second / 1e6,
        report.rate_change_ppm,
        report.core_ghz.before,
        report.core_ghz.after,
        report.events.generated,
    )
}

fn table(out: &mut String, sections: &[Section]) {
    if sections.len() > 1 {
        let names: String = sections.iter().map(|section| format!("{:>16}", section.windows)).collect();
        let _ = writeln!(out, "{:<20}{names}", "windows");
    }
    let mut row = |name: &str, cell: &dyn Fn(&Statistics) -> String| {
        let _ = write!(out, "{name:<20}");
        sections.iter().for_each(|section| {
            let _ = write!(out, "{:>16}", cell(&section.statistics));
        });
        out.push('\n');
    };
    row("iterations", &|statistics| statistics.count.to_string());
    row("min", &|statistics| duration(statistics.min_ns));
    row("mean", &|statistics| duration(statistics.mean_ns));
    row("max", &|statistics| duration(statistics.max_ns));
    row("sum", &|statistics| duration(statistics.sum_ns));
    row("variance, ns²", &|statistics| {
        statistics.variance.map_or("n/a".to_string(), |it| format!("{it:.1}"))
    });
    row("standard deviation", &|statistics| {
        statistics.standard_deviation_ns.map_or("n/a".to_string(), duration)
    });
    for (at, percent) in PERCENTILES.iter().enumerate() {
        row(&format!("{percent} %"), &|statistics| {
            statistics.percentiles_ns[at].map_or("n/a".to_string(), duration)
        });
    }
}

/// Rows of 1, 2, 5, 10, ... ns; bars are logarithmic, because one gap in a million is what matters.
fn histogram(out: &mut String, sections: &[Section]) {
    for Section { windows: name, statistics } in sections {
        let rows = statistics.rows();
        let largest = rows.iter().map(|row| row.1).max().unwrap_or(1);
        let _ =
            writeln!(out, "{:<14}{:>22}   (bars are logarithmic)", "gap from", format!("iterations, {name}"));
        for (from, count) in rows {
            let length = match count {
                0 => 0.0,
                count => 1.0 + (BAR - 1.0) * (count as f64).ln() / (largest as f64).ln().max(1.0),
            };
            let _ = writeln!(out, "{:<14}{count:>22}   {}", duration(from), "#".repeat(length as usize));
        }
        out.push('\n');
    }
}

fn longest(out: &mut String, report: &Report) {
    let gaps = &report.long_gaps;
    let _ = writeln!(out, "gaps over {}: {}", duration(gaps.threshold_ns as f64), gaps.count);
    let blame_report = report.blame.as_ref();
    for LongGap { at_ns, ns } in &gaps.longest {
        // The same gap, on another clock.
        let who = blame_report.and_then(|blame_report| {
            blame_report
                .gaps
                .iter()
                .min_by(|one, two| (one.at_ns - at_ns).abs().total_cmp(&(two.at_ns - at_ns).abs()))
        });
        let who = who.map_or(String::new(), |gap| format!("  {}", parts(gap)));
        let _ = writeln!(out, "  {:>10}  at {:.6} s{who}", duration(*ns), at_ns / 1e9);
    }
    if !gaps.complete {
        let _ = writeln!(out, "  (the longest of the first {})", LongGaps::KEPT);
    }
}

fn parts(gap: &BlamedGap) -> String {
    let Some(parts) = &gap.parts else { return "older than the oldest event in the buffer".to_string() };
    let part = |part: &Part| format!("{} {}", clean(&part.taker.name()), duration(part.time_ns as f64));
    let mut text = parts.iter().take(PARTS).map(part).collect::<Vec<_>>().join(", ");
    if let Some(more) = parts.len().checked_sub(PARTS).filter(|more| *more > 0) {
        let _ = write!(text, ", {more} more");
    }
    text
}

/// Who took most, over all long gaps.
fn takers(out: &mut String, blame_report: &BlameReport) {
    let known = blame_report.gaps.iter().filter(|gap| gap.parts.is_some()).count();
    let _ = writeln!(
        out,
        "\nwhat took the time in {known} of them{:>12}{:>12}{:>10}",
        "total", "longest", "gaps"
    );
    for total in blame_report.totals.iter().take(TAKERS) {
        let (all, most) = (duration(total.time_ns as f64), duration(total.most_ns as f64));
        let _ = writeln!(out, "  {:<32}{all:>12}{most:>12}{:>10}", clean(&total.name), total.gaps);
    }
    let rest = blame_report.totals.get(TAKERS..).unwrap_or_default();
    if !rest.is_empty() {
        let all = duration(rest.iter().map(|total| total.time_ns).sum::<u64>() as f64);
        let _ = writeln!(
            out,
            "  {:<32}{all:>12}",
            format!("{} (--json has them)", counted(rest.len(), "other", "others"))
        );
    }
}

/// With three digits or more.
pub(crate) fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{} ns", short(ns)),
        ns if ns < 1e6 => format!("{} us", short(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", short(ns / 1e6)),
        ns => format!("{} s", short(ns / 1e9)),
    }
}

fn short(number: f64) -> String {
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$}")
}
