// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a watch: how many, how long, and what the late ones have in common.

use crate::explanation::loss_line;
use crate::label::clean;
use crate::style::{Style, bar, wrap};
use crate::units::{count_text, duration_text};
use rtscope_analyze::histogram::{Percentile, Row, Statistics};
use rtscope_analyze::own::OwnCost;
use rtscope_analyze::summary::{Group, Report};

const BAR: usize = 40;
/// Groups shown before the rest is counted.
const GROUPS: usize = 10;

/// The whole summary, several lines, each ended.
#[must_use]
pub fn summary_text(report: &Report, style: Style) -> String {
    let mut text = head(report, style);
    if let Some(statistics) = &report.statistics {
        text.push_str(&statistics_text(statistics, report.threshold_ns, style));
    }
    text.push_str(&groups_text(&report.groups, style));
    if report.counters.late > 0 {
        text.push_str(&wrap(&own_text(&report.own), 0, 4));
    }
    if report.losses.iter().all(|loss| loss.count == Some(0)) {
        text.push_str("lost: nothing\n");
    }
    for loss in report.losses.iter().filter(|loss| loss.count != Some(0)) {
        text.push_str(&wrap(&loss_line(loss), 0, 4));
    }
    text
}

fn head(report: &Report, style: Style) -> String {
    let counters = &report.counters;
    let mut parts = vec![format!(
        "{} responses in {}, {} late (limit {})",
        count_text(counters.seen),
        duration_text(report.elapsed_ns),
        count_text(counters.late),
        duration_text(report.threshold_ns),
    )];
    for (count, words) in [
        (counters.filtered, "left out by the origin filter"),
        (counters.unlinked, "wakeups without an interrupt or timer"),
        (counters.busy, "wakeups of a task that had not left its CPU"),
        (counters.merged, "origins merged"),
        (counters.folded, "chains too long to be shown in full"),
        (counters.healed, "interrupt exits missed"),
        (counters.hidden, "switches to the target that the kernel did not report"),
        (report.untracked, "events of tasks without tracker state"),
        (counters.too_long, "branches not followed because their chain was full"),
        (report.snapshots, "snapshots"),
        (report.snapshots_failed, "snapshots that could not be saved"),
        (report.suppressed, "late responses without a snapshot of their own (rate limit or no free bank)"),
    ] {
        if count > 0 {
            parts.push(format!("{words}: {}", count_text(count)));
        }
    }
    let text = wrap(&parts.join("; "), 0, 4);
    let late = format!("{} late", count_text(counters.late));
    if counters.late > 0 { text.replacen(&late, &style.alarm(&late), 1) } else { text }
}

fn statistics_text(statistics: &Statistics, threshold_ns: u64, style: Style) -> String {
    let mut text = format!(
        "  min {}, mean {}, max {}\n",
        duration_text(statistics.min_ns),
        duration_text(statistics.mean_ns),
        duration_text(statistics.max_ns)
    );
    let given: Vec<String> = statistics.percentiles.iter().filter_map(percentile_text).collect();
    if !given.is_empty() {
        text.push_str(&wrap(&given.join(", "), 2, 2));
    }
    if let Some(first) = statistics.percentiles.iter().find(|percentile| percentile.value_ns.is_none()) {
        let (name, needed) = (percent_text(first.percent_milli), count_text(first.needed));
        let line = format!("  {name} needs {needed} responses, so that ten lie beyond it\n");
        text.push_str(&style.faint(line.trim_end()));
        text.push('\n');
    }
    text.push_str(&histogram_text(&statistics.rows, threshold_ns, style));
    text
}

fn percentile_text(percentile: &Percentile) -> Option<String> {
    Some(format!("{} {}", percent_text(percentile.percent_milli), duration_text(percentile.value_ns?)))
}

/// `99.9 %`
fn percent_text(milli: u32) -> String {
    let fraction = format!("{:03}", milli % 1000);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { format!("{} %", milli / 1000) } else { format!("{}.{fraction} %", milli / 1000) }
}

/// Bars grow with the logarithm of the count: a single late response among a million must be seen.
fn histogram_text(rows: &[Row], threshold_ns: u64, style: Style) -> String {
    let largest = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let height = |count: u64| (count as f64 + 1.0).ln() / (largest as f64 + 1.0).ln();
    let mut text = String::from("  responses by time (bars: logarithm of the count)\n");
    for row in rows {
        let part = if row.count == 0 { 0.0 } else { height(row.count) };
        let to = if row.to_ns == u64::MAX { "more".to_owned() } else { duration_text(row.to_ns) };
        let drawn = bar(part, BAR);
        let drawn = if row.from_ns > threshold_ns { style.alarm(&drawn) } else { drawn };
        let limit = (row.from_ns..row.to_ns).contains(&threshold_ns);
        let line = format!(
            "  {:>9} .. {:>9} {:>11}  {drawn}{}",
            duration_text(row.from_ns),
            to,
            count_text(row.count),
            if limit { "  < limit" } else { "" },
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn groups_text(groups: &[Group], style: Style) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let mut text = format!("{}\n", style.strong("late responses by what they have in common"));
    text.push_str("  count      worst       mean  mostly in         because of\n");
    for group in groups.iter().take(GROUPS) {
        let line = format!(
            "  {:>5}  {:>9}  {:>9}  {:<16}  {}",
            count_text(group.count),
            duration_text(group.worst_ns),
            duration_text(group.sum_ns / group.count.max(1)),
            group.step.map_or("unknown", |step| step.name()),
            because(group),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if let rest @ [_, ..] = groups.get(GROUPS..).unwrap_or_default() {
        let count = rest.iter().map(|group| group.count).sum();
        text.push_str(&format!("  {:>5}  in {} further groups\n", count_text(count), rest.len()));
    }
    text
}

/// What rtscope itself had to do with it.
fn own_text(own: &OwnCost) -> String {
    let mut parts = vec![match (own.culprit, own.delayed) {
        (0, 0) => "rtscope itself delayed none of the late responses".to_owned(),
        (culprit, delayed) => format!(
            "rtscope itself was the largest cause of late responses: {}; delayed late responses: {}, the longest by {}",
            count_text(culprit),
            count_text(delayed),
            duration_text(own.longest_ns)
        ),
    }];
    if own.unknown > 0 {
        parts.push(format!("not known for {}", count_text(own.unknown)));
    }
    if !own.is_apart {
        parts.push("it shared a CPU with the target, which may run everywhere".to_owned());
    }
    parts.join("; ")
}

fn because(group: &Group) -> String {
    match (group.cause, &group.actor) {
        (None, _) => "no recording retained".to_owned(),
        (Some(cause), Some(actor)) if cause.is_disturbance() => format!("{}: {}", cause.name(), clean(actor)),
        (Some(cause), _) => cause.name().to_owned(),
    }
}
