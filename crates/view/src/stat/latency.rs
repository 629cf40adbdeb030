// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --latency`: how long things took, as text, JSON and a picture.

use super::columns::Columns;
use super::figures::{Wanted, missing_text, percentile_text, span_text};
use crate::event::Clock;
use crate::label::clean;
use crate::plot;
use crate::style::Style;
use crate::units::{count_text, duration_text};
use rtscope_analyze::histogram::{Row, joined};
use rtscope_analyze::stat::LatencyReport;
use rtscope_analyze::stat::latency::{LatencyFigures, LongLatency, Unpaired};
use rtscope_measure::npt::Bucket;
use serde::Serialize;

/// Name and version of the object.
pub const STAT_LATENCY_SCHEMA: &str = "rtscope.stat.latency/1";

#[derive(Serialize)]
struct Object<'r> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'r LatencyReport,
}

/// One line of JSON.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn latency_json(report: &LatencyReport) -> serde_json::Result<String> {
    serde_json::to_string(&Object { schema: STAT_LATENCY_SCHEMA, report })
}

/// A picture with the distribution of each report, one over the other.
#[must_use]
pub fn latency_svg(reports: &[LatencyReport]) -> String {
    let bucket = |row: &Row| -> Bucket { (row.from_ns as f64, row.to_ns as f64, row.count) };
    let series: Vec<(String, Vec<Bucket>)> = reports
        .iter()
        .map(|report| (title(report), report.all.histogram.iter().map(bucket).collect()))
        .collect();
    let series: Vec<plot::Series<'_>> =
        series.iter().map(|(name, buckets)| (name.as_str(), buckets.as_slice())).collect();
    let title = match series.as_slice() {
        [(name, _)] => format!("latency: {name}"),
        _ => "latencies".to_owned(),
    };
    plot::svg(&title, ["latency", "number"], &series)
}

/// In a few words. Softirqs have two latencies.
fn title(report: &LatencyReport) -> String {
    match (report.latency.as_str(), report.from.as_str()) {
        ("softirq", "irq_softirq_raise") => "softirq, raised to begun".to_owned(),
        ("softirq", _) => "softirq, begun to ended".to_owned(),
        (latency, _) => clean(latency),
    }
}

/// For people.
#[must_use]
pub fn latency_text(report: &LatencyReport, wanted: &Wanted, clock: Clock, style: Style) -> String {
    let mut text = format!("Time     {}\n", span_text(&report.span, clock));
    let events = match report.latency.contains("->") {
        true => String::new(),
        false => format!(": {} -> {}", clean(&report.from), clean(&report.to)),
    };
    text.push_str(&format!("Latency  {}{events}\n", style.strong(&title(report))));
    if report.all.all.count == 0 {
        text.push_str(&format!("\n{}\n", nothing_text(report)));
        text.push_str(&unpaired_text(report));
        text.push_str(&missing_text(&report.missing));
        return text;
    }
    text.push('\n');
    text.push_str(&tables_text(report, wanted, style));
    text.push_str(&longest_text(report, wanted, clock, style));
    text.push('\n');
    text.push_str(&histogram_text(&report.all.histogram, style));
    text.push('\n');
    text.push_str(&unpaired_text(report));
    text.push_str(&missing_text(&report.missing));
    text
}

/// What to record so that there is something.
fn nothing_text(report: &LatencyReport) -> String {
    let patterns = match report.latency.as_str() {
        "syscalls" => "syscalls",
        "block" => "block:block_rq_issue,block:block_rq_complete,block:block_rq_requeue",
        "irq" => "irq:*,irq_vectors:*",
        "softirq" => "irq:*",
        "wakeup" => "sched:sched_waking,sched:sched_wakeup_new,sched:sched_switch",
        _ => {
            return "No two events belong together. Without a key (by FIELD) they have to be of one thread."
                .to_owned();
        }
    };
    format!(
        "The trace has none of these, or none that was asked for. `rtscope record -k '{patterns}'` records them."
    )
}

const HEAD: [&str; 9] = ["times", "in all", "shortest", "mean", "50 %", "90 %", "99 %", "99.9 %", "longest"];

/// Columns, in the order in which they are left out where there is no room: number, mean and longest stay.
const EXPENDABLE: &[usize] = &[2, 6, 3, 5, 8, 7];

fn cells(figures: &LatencyFigures) -> [String; 9] {
    let or_none = |ns: Option<u64>| ns.map_or("-".to_owned(), duration_text);
    let percentile = |percent| percentile_text(&figures.percentiles, percent);
    [
        count_text(figures.all.count),
        duration_text(figures.all.total_ns),
        or_none(figures.least_ns),
        or_none(figures.mean_ns),
        percentile(50_000),
        percentile(90_000),
        percentile(99_000),
        percentile(99_900),
        duration_text(figures.all.longest_ns),
    ]
}

/// All, and by what they are of; then by task.
fn tables_text(report: &LatencyReport, wanted: &Wanted, style: Style) -> String {
    let mut text = String::new();
    let mut columns = Columns::new(head(report.rows_are), &[0]).expendable(EXPENDABLE);
    columns.row(row("all".to_owned(), &report.all));
    for named in report.rows.iter().take(wanted.limit()) {
        columns.row(row(clean(&named.name), &named.figures));
    }
    text.push_str(&columns.text(style));
    text.push_str(&more_text(report.rows.len(), wanted));
    if !report.tasks.is_empty() {
        let mut columns = Columns::new(head(report.tasks_are), &[0]).expendable(EXPENDABLE);
        for task in report.tasks.iter().take(wanted.limit()) {
            columns.row(row(who(task.tid, &task.comm), &task.figures));
        }
        if let Some(unlisted) = &report.unlisted {
            columns.row(row("tasks that are not listed".to_owned(), unlisted));
        }
        text.push('\n');
        text.push_str(&columns.text(style));
        text.push_str(&more_text(report.tasks.len(), wanted));
    }
    text
}

fn head(first: &'static str) -> [&'static str; 10] {
    let mut head = [first; 10];
    head[1..].copy_from_slice(&HEAD);
    head
}

fn row(first: String, figures: &LatencyFigures) -> [String; 10] {
    let [a, b, c, d, e, f, g, h, i] = cells(figures);
    [first, a, b, c, d, e, f, g, h, i]
}

fn more_text(count: usize, wanted: &Wanted) -> String {
    match count.checked_sub(wanted.limit()).filter(|more| *more > 0) {
        Some(more) => format!("and {more} more (--top 0 shows all)\n"),
        None => String::new(),
    }
}

fn who(tid: u32, comm: &str) -> String {
    if comm.is_empty() { format!("? ({tid})") } else { format!("{} ({tid})", clean(comm)) }
}

fn longest_text(report: &LatencyReport, wanted: &Wanted, clock: Clock, style: Style) -> String {
    let mut columns = Columns::new(["longest", "ended at", "cpu", "task", ""], &[3, 4]).expendable(&[2, 1]);
    // The CPU has a column.
    let has_names = report.rows_are != "CPU";
    let name = |long: &LongLatency| long.name.as_deref().filter(|_| has_names).map(clean).unwrap_or_default();
    for long in report.longest.iter().take(wanted.limit()) {
        let task = long.tid.map(|tid| who(tid, long.comm.as_deref().unwrap_or_default()));
        columns.row([
            duration_text(long.length_ns),
            super::counts::moment(clock, long.until_ns),
            long.cpu.map_or("-".to_owned(), |cpu| cpu.to_string()),
            task.unwrap_or_else(|| "-".to_owned()),
            name(long),
        ]);
    }
    format!("\n{}", columns.text(style))
}

/// Rows that a histogram keeps to, if it can.
const ROWS: usize = 40;

/// Ranges of two to eight for each power of two, as many as fit. Bars are logarithmic: one in a million is what matters. Of a long
/// row of empty ranges only the fact is shown.
pub(crate) fn histogram_text(buckets: &[Row], style: Style) -> String {
    /// Of the figures before a bar.
    const FIGURES: usize = 31;
    let bar = style.width.saturating_sub(FIGURES).clamp(8, 40);
    let ways = [8, 4, 2].map(|parts| joined(buckets, parts));
    let used = |rows: &&Vec<Row>| rows.iter().filter(|row| row.count > 0).count() <= ROWS;
    let rows = ways.iter().find(used).unwrap_or(&ways[2]);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(1);
    let part = |count: u64| (1.0 + (count as f64).ln()) / (1.0 + (most as f64).ln());
    let head = format!("{:<12}{:>16}   (bars are logarithmic)", "from", "number");
    let mut text = format!("{}\n", style.line(&head));
    let mut empty = 0;
    for row in rows {
        if row.count == 0 {
            empty += 1;
            continue;
        }
        match std::mem::take(&mut empty) {
            0 => {}
            1 => text.push_str("-\n"),
            _ => text.push_str("...\n"),
        }
        text.push_str(&format!(
            "{:<12}{:>16}   {}\n",
            duration_text(row.from_ns),
            count_text(row.count),
            style.bar(part(row.count), bar)
        ));
    }
    text
}

/// Lines about events that have no counterpart.
fn unpaired_text(report: &LatencyReport) -> String {
    let Unpaired { without_end, without_begin, begun_again, lost, forgotten } = report.unpaired;
    let mut parts = Vec::new();
    for (count, words) in [
        (without_end, "begun, with no end in the recording"),
        (without_begin, "ended, with no beginning in the recording"),
        (begun_again, "begun again before they ended (the last beginning counts)"),
        (lost, "given up because events were lost"),
        (forgotten, "given up because more than 65 536 had begun"),
    ] {
        if count > 0 {
            parts.push(format!("{} {words}", count_text(count)));
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("Not counted: {}.\n", parts.join("; "))
}
