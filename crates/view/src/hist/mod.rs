// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hist`: histograms by key and over time, as text, JSON and a picture.

mod heat;

pub use heat::heat_svg;

use crate::json::report_json;
use crate::label::clean;
use crate::stat::columns::Columns;
use crate::stat::figures::percentile_text;
use crate::stat::latency::histogram_text;
use crate::style::Style;
use crate::units::{count_text, counted, duration_text, reach_text};
use heat::heat_text;
use rtscope_analyze::histogram::{Row, Statistics};
use rtscope_session::command::CommandEnd;
use rtscope_session::counting::CountLosses;
use rtscope_session::hist::{HistReport, KeyReport, ReportKind};

/// Name and version of the object.
pub const HIST_SCHEMA: &str = "rtscope.hist/1";

/// One line of JSON. `command`: how COMMAND ended, if there was one and it ended by itself.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn hist_json(report: &HistReport, command: Option<CommandEnd>) -> serde_json::Result<String> {
    report_json(HIST_SCHEMA, report, command)
}

const HEAD: [&str; 10] =
    ["", "number", "in all", "mean", "50 %", "90 %", "99 %", "99.9 %", "longest", "by powers of two"];
/// Columns, in the order in which they are left out where there is no room.
const EXPENDABLE: &[usize] = &[9, 5, 7, 4, 3, 6];

/// A report for people; at most this many keys.
#[must_use]
pub fn hist_text(report: &HistReport, rows: usize, style: Style) -> String {
    let what = clean(&report.what());
    let title = match report.kind {
        ReportKind::Interval => format!(
            "{what} of {}, {} up to {}",
            clean(&report.target),
            duration_text(rounded(report.window_ns)),
            reach_text(report.at_ns)
        ),
        ReportKind::Total => {
            format!("{what} of {}, {}", clean(&report.target), duration_text(rounded(report.window_ns)))
        }
    };
    let mut text = format!("{}\n", style.strong(&title));
    let Some(all) = &report.all else {
        text.push_str("nothing was counted\n");
        text.push_str(&losses_text(&report.losses, style));
        return text;
    };
    text.push_str(&table(report, all, rows, style));
    if report.kind == ReportKind::Total {
        text.push('\n');
        text.push_str(&histogram_text(&report.buckets, style));
        if let Some(map) = report.over_time.as_ref().filter(|map| map.slices.len() > 1) {
            text.push('\n');
            text.push_str(&heat_text(map, style));
        }
    }
    text.push_str(&losses_text(&report.losses, style));
    text
}

/// Without digits that say nothing.
fn rounded(ns: u64) -> u64 {
    ns / 1_000_000 * 1_000_000
}

fn table(report: &HistReport, all: &Statistics, rows: usize, style: Style) -> String {
    let mut head = HEAD;
    head[0] = report.by.map_or("", |by| by.name());
    let mut columns = Columns::new(head, &[0, 9]).whole(&[9]).expendable(EXPENDABLE);
    let range = (all.rows.first().map_or(0, |row| row.from_ns), all.rows.last().map_or(0, |row| row.from_ns));
    let mut row = |name: String, sum_ns: u64, figures: &Statistics| {
        columns.row([
            name,
            count_text(figures.count),
            duration_text(sum_ns),
            duration_text(figures.mean_ns),
            percentile_text(&figures.percentiles, 50_000),
            percentile_text(&figures.percentiles, 90_000),
            percentile_text(&figures.percentiles, 99_000),
            percentile_text(&figures.percentiles, 99_900),
            duration_text(figures.max_ns),
            sparkline(&figures.rows, range, style),
        ]);
    };
    let sum_ns = if report.by.is_some() {
        report.keys.iter().map(|key| key.sum_ns).sum()
    } else {
        all.count * all.mean_ns
    };
    row("all".to_owned(), sum_ns, all);
    for KeyReport { name, sum_ns, figures, .. } in report.keys.iter().take(rows) {
        row(clean(name), *sum_ns, figures);
    }
    let mut text = columns.text(style);
    if report.keys.len() > rows {
        text.push_str(&format!("and {} more (--top shows more)\n", report.keys.len() - rows));
    }
    text
}

/// A character for each power of two from the first to the last of all; higher is more, logarithmically.
pub(crate) fn sparkline(rows: &[Row], range: (u64, u64), style: Style) -> String {
    sparkline_within(rows, range, usize::MAX, style)
}

/// The same in at most so many characters: each has as many powers of two as it takes for that.
pub(crate) fn sparkline_within(
    rows: &[Row],
    (first_ns, last_ns): (u64, u64),
    width: usize,
    style: Style,
) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];
    let bars = if style.ascii { ASCII } else { BARS };
    let power = |ns: u64| ns.max(1).ilog2();
    let (first, last) = (power(first_ns), power(last_ns));
    let powers = (last.saturating_sub(first) + 1) as usize;
    let each = powers.div_ceil(width.clamp(1, powers)) as u32;
    let counts: Vec<u64> = (first..=last)
        .step_by(each as usize)
        .map(|from| {
            let has = |row: &&Row| (from..from + each).contains(&power(row.from_ns));
            rows.iter().filter(has).map(|row| row.count).sum()
        })
        .collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    let bar = |count: u64| {
        if count == 0 {
            return ' ';
        }
        let part = (1.0 + (count as f64).ln()) / (1.0 + (most as f64).ln());
        bars[((part * 8.0).ceil() as usize).clamp(1, 8) - 1]
    };
    counts.into_iter().map(bar).collect()
}

/// What was not counted; nothing where all was.
pub(crate) fn losses_text(losses: &CountLosses, style: Style) -> String {
    let CountLosses {
        without_key,
        untracked,
        unended,
        hidden,
        without_begin,
        begun_again,
        given_up,
        skipped_programs,
        programs,
    } = *losses;
    let programs = programs.unwrap_or_default();
    let mut parts = Vec::new();
    for (count, words) in [
        (
            without_key,
            "under no key and in no figure, since the table of keys was full (--cells makes it larger)",
        ),
        (untracked, "not followed, since a table was full or busy"),
        (unended, "requests whose end the kernel did not report"),
        (hidden, "switches of targets that the kernel did not report"),
        (without_begin, "ends without a beginning"),
        (begun_again, "beginnings after which another one came"),
        (given_up, "beginnings for which there was no place"),
        (
            programs.missed_looks,
            "looks that came too late for events that were overwritten, nobody knows how many",
        ),
        (programs.given_up, "beginnings that may have ended among events that were missed"),
        (programs.unreadable, "events that cannot be read"),
        (programs.too_many, "events beyond what one user's programs may have at a time"),
        (programs.without_buffer, "events of threads that had no buffer"),
        (programs.without_field, "events without a field of --key"),
        (
            programs.without_number,
            "in no figure, since their key is no number (a text has none), or is not known",
        ),
        (programs.left_out, "programs or users whose events are not recorded"),
    ] {
        if count > 0 {
            parts.push(format!("{} {words}", count_text(count)));
        }
    }
    match skipped_programs {
        Some(0) => {}
        Some(count) => parts
            .push(format!("{} of rtscope's programs skipped by the kernel", counted(count, "run", "runs"))),
        None => parts.push("runs of rtscope's programs that the kernel skipped: unknown".to_owned()),
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!("{}\n", style.alarm(&format!("Not counted: {}.", parts.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_a_place_for_each_power_of_two() {
        let row = |from_ns, count| Row { from_ns, to_ns: from_ns * 2, count };
        let rows = [row(1024, 1), row(4096, 1_000_000)];
        assert_eq!(sparkline(&rows, (512, 8192), Style::default()), " ▁ █ ");
        let ascii = Style { ascii: true, ..Style::default() };
        assert_eq!(sparkline(&rows, (1024, 4096), ascii), ". #");
        // Two powers a place, and three.
        assert_eq!(sparkline_within(&rows, (512, 8192), 3, Style::default()), "▁█ ");
        assert_eq!(sparkline_within(&rows, (512, 8192), 2, Style::default()), "▁█");
        assert_eq!(sparkline_within(&rows, (8192, 512), 0, Style::default()), "");
    }

    #[test]
    fn what_was_not_counted_is_said_and_unknown_is_not_zero() {
        let none = CountLosses { skipped_programs: Some(0), ..CountLosses::default() };
        assert_eq!(losses_text(&none, Style::default()), "");
        let unknown = CountLosses { skipped_programs: None, ..none };
        assert!(losses_text(&unknown, Style::default()).contains("unknown"));
        let some = CountLosses { without_key: 12, unended: 1, ..none };
        let text = losses_text(&some, Style::default());
        assert!(text.contains("12 under no key") && text.contains("1 requests whose end"), "{text}");
    }
}
