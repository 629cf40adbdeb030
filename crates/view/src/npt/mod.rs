// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of the non-preempt test: as text, JSON and a picture.

mod text;

pub(crate) use text::duration;
pub use text::{text, title};

use crate::plot;
use rtscope_measure::npt::Report;

/// One JSON object in a line (docs/json.md).
///
/// # Errors
/// When serde_json refuses, which this type gives it no reason to.
pub fn json(report: &Report) -> serde_json::Result<String> {
    crate::json::sorted(report)
}

/// A picture: a line for each kind of window.
#[must_use]
pub fn svg(report: &Report) -> String {
    let series: Vec<plot::Series<'_>> = report
        .measured
        .iter()
        .map(|section| (section.windows, section.statistics.buckets.as_slice()))
        .collect();
    plot::svg(&title(report), ["gap between two iterations", "iterations"], &series)
}
