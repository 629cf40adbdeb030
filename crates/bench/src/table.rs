// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a benchmark prints: the host, a table, and the promises of SPECIFICATION.md with what was found.

use crate::host::Host;
use serde::Serialize;

/// A benchmark's result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Format of this object.
    pub schema: &'static str,
    /// Which benchmark.
    pub name: &'static str,
    /// What one value means.
    pub unit: String,
    /// Where it ran.
    pub host: Host,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What had to hold.
    pub promises: Vec<Promise>,
    /// Checks that the figures mean anything: events really recorded, none lost.
    pub checks: Vec<String>,
}

/// One measured thing.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What.
    pub what: String,
    /// All samples, ascending.
    pub samples: Vec<f64>,
}

/// A figure with a limit.
#[derive(Debug, Serialize)]
pub struct Promise {
    /// In words.
    pub what: String,
    /// Measured.
    pub value: f64,
    /// Must not be exceeded.
    pub limit: f64,
    /// Whether it was kept.
    pub held: bool,
}

impl Promise {
    /// At most `limit`.
    pub fn at_most(what: &str, value: f64, limit: f64) -> Promise {
        Promise { what: what.to_string(), value, limit, held: value <= limit }
    }
}

impl Row {
    /// Sorts the samples.
    pub fn new(what: &str, mut samples: Vec<f64>) -> Row {
        samples.sort_by(f64::total_cmp);
        Row { what: what.to_string(), samples }
    }

    /// The sample below which this share lies.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.samples.len().saturating_sub(1);
        self.samples.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{} ({})\n{}\n\n", self.name, self.unit, self.host);
        text.push_str(&format!(
            "{:<44} {:>9} {:>9} {:>9} {:>9} {:>5}\n",
            "", "min", "median", "90 %", "max", "n"
        ));
        for row in &self.rows {
            let [min, median, high, max] = [0.0, 0.5, 0.9, 1.0].map(|share| row.quantile(share));
            text.push_str(&format!(
                "{:<44} {min:>9.2} {median:>9.2} {high:>9.2} {max:>9.2} {:>5}\n",
                row.what,
                row.samples.len()
            ));
        }
        text.push('\n');
        for check in &self.checks {
            text.push_str(&format!("check: {check}\n"));
        }
        for promise in &self.promises {
            let verdict = if promise.held { "held  " } else { "BROKEN" };
            text.push_str(&format!(
                "{verdict} {}: {:.3} (limit {})\n",
                promise.what, promise.value, promise.limit
            ));
        }
        text
    }
}
