// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tracing costs, and the highest rates without a loss: as text, JSON and a picture.

mod plot;
mod rate;
mod text;

pub use plot::svg;
pub use rate::{rate_json, rate_text};
pub use text::text;

use rtscope_measure::impact::{AbsentTracer, Report};

/// One JSON object in a line (docs/json.md).
///
/// # Errors
/// When serde_json refuses, which this type gives it no reason to.
pub fn json(report: &Report) -> serde_json::Result<String> {
    crate::json::sorted(report)
}

/// A line on a tracer that was not measured.
fn absent_line(absent: &AbsentTracer) -> String {
    let remedy = absent.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{}: not measured: {}{remedy}", absent.tracer.name(), absent.reason)
}
