// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope io-profile`: the table of classes and powers of two, and what has changed, as text and JSON.

use crate::hist::losses_text;
use crate::json::report_json;
use crate::label::clean;
use crate::style::Style;
use crate::units::{count_text, counted, duration_text, reach_text};
use rtscope_analyze::change::{Direction, QuantileMove};
use rtscope_session::command::CommandEnd;
use rtscope_session::hist::ReportKind;
use rtscope_session::io_profile::{
    ClassChange, ClassCounts, Group, ProfileClass, ProfileReport, QueueEstimate,
};
use std::fmt::Write;

/// Name and version of a table.
pub const IO_PROFILE_SCHEMA: &str = "rtscope.io.profile/1";
/// Name and version of a change.
pub const IO_CHANGE_SCHEMA: &str = "rtscope.io.change/1";

/// One line of JSON. `command`: how COMMAND ended, if there was one and it ended by itself.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn io_profile_json(report: &ProfileReport, command: Option<CommandEnd>) -> serde_json::Result<String> {
    report_json(IO_PROFILE_SCHEMA, report, command)
}

/// One line of JSON.
///
/// # Errors
/// As [`io_profile_json`].
pub fn io_change_json(change: &ClassChange) -> serde_json::Result<String> {
    report_json(IO_CHANGE_SCHEMA, change, None)
}

/// Columns of a count, and of the range before them.
const COUNT: usize = 11;
const RANGE: usize = 9;

fn heading(class: ProfileClass) -> &'static str {
    match class {
        ProfileClass::ReadWrite => "read+write",
        ProfileClass::BlockRead => "block read",
        ProfileClass::BlockWrite => "block write",
        class => class.name(),
    }
}

/// A report for people; at most this many tables.
#[must_use]
pub fn io_profile_text(report: &ProfileReport, most: usize, style: Style) -> String {
    let time = match report.kind {
        ReportKind::Total => duration_text(report.window_ns / 1_000_000 * 1_000_000),
        ReportKind::Interval => format!(
            "{} up to {}",
            duration_text(report.window_ns / 1_000_000 * 1_000_000),
            reach_text(report.at_ns)
        ),
    };
    let mut text =
        format!("{}\n", style.strong(&format!("input and output of {}, {time}", clean(&report.target))));
    if report.groups.is_empty() {
        text.push_str("nothing was counted\n");
    }
    for group in report.groups.iter().take(most) {
        text.push_str(&table(group, report.by.map(|by| by.name()), style));
    }
    if report.groups.len() > most {
        let _ = writeln!(text, "and {} more (--top shows more)", report.groups.len() - most);
    }
    if report.other_requests > 0 {
        let _ = writeln!(
            text,
            "{} besides: flushes, discards and the like",
            counted(report.other_requests, "block request", "block requests")
        );
    }
    text.push_str(&queue_text(&report.queue));
    text.push_str(&losses_text(&report.losses, style));
    text
}

fn table(group: &Group, by: Option<&str>, style: Style) -> String {
    let mut text = String::new();
    if let Some(by) = by {
        let _ = writeln!(text, "\n{}", style.strong(&format!("{by} {}", clean(&group.name))));
    }
    let of = |class: ProfileClass| group.classes.iter().find(|counts| counts.class == class);
    let columns: Vec<Option<&ClassCounts>> = ProfileClass::ALL.map(of).to_vec();
    let _ = write!(text, "{:>RANGE$} ", "from");
    for class in ProfileClass::ALL {
        let _ = write!(text, "{:>1$}", heading(class), COUNT + 1);
    }
    text.push('\n');
    let rows = || columns.iter().flatten().flat_map(|counts| &counts.figures.rows);
    let first = rows().map(|row| row.from_ns).min().unwrap_or(0);
    let last = rows().map(|row| row.from_ns).max().unwrap_or(0);
    let mut from_ns = first;
    loop {
        let _ = write!(text, "{:>RANGE$} ", duration_text(from_ns));
        for counts in &columns {
            let row = counts.and_then(|counts| counts.figures.rows.iter().find(|row| row.from_ns == from_ns));
            let count = row.map_or(0, |row| row.count);
            let shown = if count == 0 { ".".to_owned() } else { count_text(count) };
            let _ = write!(text, "{shown:>0$}", COUNT + 1);
        }
        text.push('\n');
        if from_ns >= last {
            break;
        }
        from_ns = (from_ns * 2).max(1);
    }
    let mut line = |name: &str, value: &dyn Fn(&ClassCounts) -> String| {
        let _ = write!(text, "{name:>RANGE$} ");
        for counts in &columns {
            let _ = write!(text, "{:>1$}", counts.map_or("-".to_owned(), value), COUNT + 1);
        }
        text.push('\n');
    };
    line("number", &|counts| count_text(counts.figures.count));
    line("mean", &|counts| duration_text(counts.figures.mean_ns));
    line("99 %", &|counts| crate::stat::figures::percentile_text(&counts.figures.percentiles, 99_000));
    line("longest", &|counts| duration_text(counts.figures.max_ns));
    text
}

/// What the kernel itself says of the same time.
fn queue_text(queue: &QueueEstimate) -> String {
    let mut parts = Vec::new();
    for disk in queue.disks.iter().take(3) {
        let wait = disk.mean_wait_ns.map_or(String::new(), |ns| format!(", {} a request", duration_text(ns)));
        parts.push(format!("{} {:.2} requests under way{wait}", clean(&disk.disk), disk.mean_length));
    }
    match (queue.some_stalled, queue.all_stalled) {
        (Some(some), Some(all)) => parts.push(format!(
            "tasks stalled on input or output {:.1} % of the time, all of them {:.1} %",
            some * 100.0,
            all * 100.0
        )),
        _ => parts.push("stalls unknown (this kernel has no pressure stall information)".to_owned()),
    }
    format!("The kernel's own estimate: {}\n", parts.join("; "))
}

/// A change for people.
#[must_use]
pub fn io_change_text(change: &ClassChange, style: Style) -> String {
    let ClassChange { at_ns, class, change, queue, .. } = change;
    let word = match change.direction {
        Direction::Better => "better",
        Direction::Worse => "worse",
        Direction::Mixed => "better and worse",
        Direction::Shape => "of another shape",
    };
    let shown = match change.p_value {
        p if p < 1e-12 => "p < 1e-12".to_owned(),
        p => format!("p = {p:.1e}"),
    };
    let head = format!("{}: {} {word}", reach_text(*at_ns), heading(*class));
    let head = if change.direction == Direction::Better { style.strong(&head) } else { style.alarm(&head) };
    let quantile = |moved: &QuantileMove| {
        format!(
            "{} %: {} -> {}",
            f64::from(moved.permille) / 10.0,
            duration_text(moved.before_ns),
            duration_text(moved.after_ns)
        )
    };
    let moved: Vec<String> =
        change.quantiles.iter().filter(|moved| moved.has_moved()).map(quantile).collect();
    let moved = if moved.is_empty() { "no quantile by itself".to_owned() } else { moved.join(", ") };
    let figures = format!(
        "{moved} ({} against {} before, chi-squared {:.0} with {} degrees of freedom, dispersion {:.1}, {shown})",
        count_text(change.after),
        count_text(change.before),
        change.chi_squared,
        change.freedom,
        change.dispersion
    );
    format!(
        "{head}\n{}\n{}",
        style.wrap(&figures, 2, 2),
        style.wrap(queue_text(queue).trim_end(), 2, 2) + "\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_analyze::change::Change;
    use rtscope_session::io_profile::DiskQueue;

    #[test]
    fn a_change_says_which_quantiles_went_which_way() {
        let quantile = |permille, before_ns, after_ns, deviations| QuantileMove {
            permille,
            before_ns,
            after_ns,
            deviations,
        };
        let change = ClassChange {
            at_ns: 12_000_000_000,
            class: ProfileClass::BlockRead,
            level: 0.000_125,
            change: Change {
                p_value: 1e-40,
                chi_squared: 912.3,
                freedom: 7,
                dispersion: 2.25,
                before: 10_000,
                after: 800,
                direction: Direction::Worse,
                quantiles: vec![
                    quantile(500, 100_000, 101_000, 0.4),
                    quantile(990, 200_000, 3_000_000, 31.0),
                ],
            },
            queue: QueueEstimate {
                disks: vec![DiskQueue {
                    disk: "vda".into(),
                    mean_length: 3.5,
                    mean_wait_ns: Some(2_000_000),
                }],
                some_stalled: None,
                all_stalled: None,
            },
        };
        let text = io_change_text(&change, Style::default());
        assert!(text.starts_with("12 s: block read worse\n"), "{text}");
        assert!(text.contains("99 %: 200 us -> 3 ms") && !text.contains("50 %"), "{text}");
        assert!(text.contains("p < 1e-12") && text.contains("vda 3.50 requests under way, 2 ms a"), "{text}");
        assert!(text.contains("unknown"), "{text}");
    }
}
