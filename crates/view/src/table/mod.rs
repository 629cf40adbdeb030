// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of the shield's table: as text, JSON and a picture.

mod text;

pub use text::{text, title};

use crate::plot;
use rtscope_measure::table::Report;

/// One JSON object in a line (docs/json.md).
///
/// # Errors
/// When serde_json refuses, which this type gives it no reason to.
pub fn json(report: &Report) -> serde_json::Result<String> {
    crate::json::sorted(report)
}

/// A picture: the distribution of user latencies of each row.
#[must_use]
pub fn svg(report: &Report) -> String {
    let user = |row| -> Option<plot::Series<'_>> {
        let row: &rtscope_measure::table::Row = row;
        Some((row.kind.name(), row.result()?.user.as_ref()?.statistics.buckets.as_slice()))
    };
    let series: Vec<plot::Series<'_>> = report.rows.iter().filter_map(user).collect();
    plot::svg(&title(report), ["user latency", "wakeups"], &series)
}
