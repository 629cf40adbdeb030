// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --irqs`: what interrupts, softirqs and timers took.

use super::columns::Columns;
use super::figures::{Wanted, longest_text, mean_text, missing_text, percentile_text, span_text};
use crate::event::Clock;
use crate::label::clean;
use crate::style::Style;
use crate::units::{count_text, duration_text};
use rtscope_analyze::stat::irqs::Kind;
use rtscope_analyze::stat::{IrqRow, IrqsReport};
use serde::Serialize;

/// Name and version of the object.
pub const STAT_IRQS_SCHEMA: &str = "rtscope.stat.irqs/1";

#[derive(Serialize)]
struct Object<'r> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'r IrqsReport,
}

/// One line of JSON.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn irqs_json(report: &IrqsReport) -> serde_json::Result<String> {
    serde_json::to_string(&Object { schema: STAT_IRQS_SCHEMA, report })
}

/// For people.
#[must_use]
pub fn irqs_text(report: &IrqsReport, wanted: &Wanted, clock: Clock, style: Style) -> String {
    let mut text = format!("Time     {}\n\n", span_text(&report.span, clock));
    if report.rows.is_empty() {
        text.push_str(
            "The trace has no interrupts. `rtscope record -k 'irq:*,irq_vectors:*'` records them.\n",
        );
        return text;
    }
    let mut columns = Columns::new(
        [
            "interrupt",
            "name",
            "times",
            "in all",
            "own",
            "mean",
            "99 %",
            "longest",
            "raised before",
            "99 %",
            "longest",
            "on CPUs",
        ],
        &[0, 1, 11],
    )
    .expendable(&[11, 9, 6, 8, 5, 10, 4])
    .whole(&[11]);
    for row in report.rows.iter().take(wanted.limit()) {
        columns.row(cells(row));
    }
    text.push_str(&columns.text(style));
    if report.rows.len() > wanted.limit() {
        let more = report.rows.len() - wanted.limit();
        text.push_str(&format!("and {more} more (--top 0 shows all)\n"));
    }
    text.push('\n');
    text.push_str(&missing_text(&report.missing));
    text
}

fn cells(row: &IrqRow) -> [String; 12] {
    let name = match row.kind {
        Kind::Irq => format!("irq {}", row.id),
        Kind::Vector => "vector".to_owned(),
        Kind::Softirq => format!("softirq {}", row.id),
        Kind::Hrtimer => format!("hrtimer {:#x}", row.id),
        Kind::Nmi => format!("nmi {:#x}", row.id),
    };
    let wait = row.wait.as_ref().filter(|wait| wait.count > 0);
    let cpus: Vec<String> =
        row.cpus.iter().map(|(cpu, count)| format!("{cpu}: {}", count_text(*count))).collect();
    [
        name,
        row.name.as_deref().map_or("-".to_owned(), clean),
        count_text(row.cpus.values().sum()),
        known_text(row, row.whole.total_ns),
        known_text(row, row.own_ns),
        mean_text(row.whole.total_ns, row.whole.count),
        percentile_text(&row.percentiles, 99_000),
        longest_text(&row.whole),
        wait.map_or("-".to_owned(), |wait| mean_text(wait.total_ns, wait.count)),
        wait.map_or("-".to_owned(), |_| percentile_text(&row.wait_percentiles, 99_000)),
        wait.map_or("-".to_owned(), longest_text),
        cpus.join(", "),
    ]
}

/// A sum of lengths, if any is known.
fn known_text(row: &IrqRow, total_ns: u64) -> String {
    if row.whole.count == 0 { "-".to_owned() } else { duration_text(total_ns) }
}
