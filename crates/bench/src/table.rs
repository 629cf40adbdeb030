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
    /// Measured; `None`: unknown.
    pub value: Option<f64>,
    /// Why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Must not be exceeded.
    pub limit: f64,
    /// Whether it was kept.
    pub held: bool,
}

impl Promise {
    /// At most `limit`. A value of something that was not measured is unknown.
    pub fn at_most(what: &str, value: f64, limit: f64) -> Promise {
        if !value.is_finite() {
            let unknown = Some("a part of it was not measured".to_string());
            return Promise { what: what.to_string(), value: None, unknown, limit, held: false };
        }
        Promise { what: what.to_string(), value: Some(value), unknown: None, limit, held: value <= limit }
    }

    /// One cost at most `limit` times a peer's. A peer that costs nothing measurable is no measure: the ratio is unknown then, and
    /// the promise is not held.
    pub fn ratio_at_most(what: &str, cost: f64, peer: f64, limit: f64) -> Promise {
        if peer > 0.0 {
            return Promise::at_most(what, cost / peer, limit);
        }
        let unknown = Some("the peer's cost is below the noise; repeat it on a quiet machine".to_string());
        Promise { what: what.to_string(), value: None, unknown, limit, held: false }
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
    /// Without rows that have no samples: a check says so in their place.
    pub fn measured(mut self) -> Report {
        let (rows, empty): (Vec<Row>, Vec<Row>) =
            self.rows.into_iter().partition(|row| !row.samples.is_empty());
        self.rows = rows;
        self.checks.extend(empty.iter().map(|row| format!("{}: not measured", row.what)));
        self
    }

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
            let value = promise.value.map(|value| format!("{value:.3}"));
            let value = value.or_else(|| promise.unknown.clone()).unwrap_or_default();
            text.push_str(&format!("{verdict} {}: {value} (limit {})\n", promise.what, promise.limit));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: Vec<Row>) -> Report {
        let host = Host::this(0);
        let unit = "ns".to_string();
        Report {
            schema: "rtscope.bench.flip/1",
            name: "flip",
            unit,
            host,
            rows,
            promises: vec![],
            checks: vec![],
        }
    }

    #[test]
    fn a_row_without_samples_is_reported_and_not_printed() {
        let report = report(vec![Row::new("a", vec![1.0]), Row::new("b", vec![])]).measured();
        assert_eq!(report.rows.len(), 1);
        assert_eq!(report.checks, ["b: not measured"]);
        assert!(!report.text().contains("NaN"), "{}", report.text());
    }

    #[test]
    fn a_value_of_nothing_is_unknown_and_holds_no_promise() {
        let promise = Promise::at_most("a / b", Row::new("a", vec![]).median() / 2.0, 1.0);
        assert!(!promise.held && promise.value.is_none() && promise.unknown.is_some());
    }

    #[test]
    fn a_peer_that_costs_nothing_measurable_proves_nothing() {
        let promise = |cost, peer| Promise::ratio_at_most("", cost, peer, 1.05);
        assert!(promise(1.0, 1.0).held && !promise(1.1, 1.0).held);
        // Both of these would be a ratio below the limit.
        for peer in [0.0, -0.1, f64::NAN] {
            let promise = promise(-0.2, peer);
            assert!(!promise.held && promise.value.is_none() && promise.unknown.is_some(), "{peer}");
        }
    }
}
