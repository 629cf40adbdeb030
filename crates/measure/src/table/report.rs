// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the table comes to. Serialised, it is what `rtscope shield table --json` prints (docs/json.md).

use super::figures::{Latency, Work};
use super::loads::LoadDescriptions;
use rtscope_session::fail_if::{Figure, Figures};
use serde::Serialize;

/// Name and version of the serialised report.
pub const SCHEMA: &str = "rtscope.shield.table/1";

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Of the kernel.
    pub release: String,
    /// The real-time CPUs.
    pub rt: String,
    /// All others that are online.
    pub others: String,
    /// The CPU that was measured.
    pub cpu: u32,
    /// Of the measured thread (SCHED_FIFO).
    pub priority: u8,
    /// From one wakeup to the next.
    pub period_ns: u64,
    /// Wakeups that were asked for.
    pub samples: u64,
    /// What t1 is; `None`: kernel latencies are not known.
    #[serde(rename = "t1")]
    pub kernel_latency_end: Option<KernelLatencyEnd>,
    /// Why kernel latencies are not known.
    #[serde(rename = "t1_missing")]
    pub no_kernel_latency: Option<String>,
    /// What the loads were; `None` where no row had any.
    pub loads: Option<LoadDescriptions>,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// What the reader has to know of it.
    pub notes: Vec<String>,
}

impl Report {
    /// What `--fail-if` can be about: ROW.FIGURE, of user latencies. Without a report: their names.
    #[must_use]
    pub fn figures(report: Option<&Report>) -> Figures {
        let rows = [
            ("unloaded", RowKind::Unloaded),
            ("stock", RowKind::Stock),
            ("shield", RowKind::Shield),
            ("artis", RowKind::Artis),
        ];
        let of = |kind: RowKind| {
            let row = report?.rows.iter().find(|row| row.kind == kind)?;
            row.result()?.user.as_ref()
        };
        let mut figures = Figures::new();
        for (name, kind) in rows {
            let latency = of(kind);
            let values = [
                ("mean", latency.map(|latency| latency.statistics.mean_ns)),
                ("max", latency.map(|latency| latency.statistics.max_ns)),
            ];
            figures.extend(values.map(|(figure, value)| (format!("{name}.{figure}"), Figure::Time(value))));
        }
        figures
    }
}

/// What is seen first of a timer's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum KernelLatencyEnd {
    /// The entry of the interrupt.
    #[serde(rename = "interrupt entry")]
    InterruptEntry,
    /// The entry of the timer's handler in it.
    #[serde(rename = "timer entry")]
    TimerEntry,
}

/// What is measured in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RowKind {
    /// No shield, no load.
    #[serde(rename = "stock unloaded")]
    Unloaded,
    /// No shield, with load.
    #[serde(rename = "stock loaded")]
    Stock,
    /// A shield, with load.
    #[serde(rename = "shield loaded")]
    Shield,
    /// A shield that lends its CPUs (mode artis), with load.
    #[serde(rename = "artis loaded")]
    Artis,
}

impl RowKind {
    /// As in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RowKind::Unloaded => "stock unloaded",
            RowKind::Stock => "stock loaded",
            RowKind::Shield => "shield loaded",
            RowKind::Artis => "artis loaded",
        }
    }
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is.
    #[serde(rename = "row")]
    pub kind: RowKind,
    /// What was measured, or why not.
    #[serde(flatten, serialize_with = "with_reason")]
    pub outcome: Result<Box<RowResult>, String>,
}

impl Row {
    /// What was measured, if it was.
    #[must_use]
    pub fn result(&self) -> Option<&RowResult> {
        self.outcome.as_deref().ok()
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct RowResult {
    /// t3-t0; `None`: there is no sample.
    #[serde(rename = "user_latency")]
    pub user: Option<Latency>,
    /// t1-t0.
    #[serde(rename = "kernel_latency")]
    pub kernel: Option<Latency>,
    /// t3-t1.
    #[serde(rename = "wake_up_latency")]
    pub wake_up: Option<Latency>,
    /// Times that had passed before they could be waited for.
    pub skipped: u64,
    /// Interrupts that came on another CPU than the waiter's.
    #[serde(rename = "interrupts_elsewhere")]
    pub elsewhere: u64,
    /// Times that the kernel left out one of our two programs, for whatever timer; `None`: not known.
    #[serde(rename = "program_misses")]
    pub misses: Option<u64>,
    /// From the first to the last counted wakeup.
    pub duration_ns: u64,
    /// What the loads did; `None`: there were none.
    pub work: Option<Work>,
    /// Why it has fewer samples than requested.
    pub cut: Option<String>,
    /// What of the shield could not be set back.
    pub not_undone: Vec<String>,
}

/// `missing` is the reason, or null beside what was measured.
#[derive(Serialize)]
struct Outcome<'a> {
    missing: Option<&'a str>,
    #[serde(flatten)]
    result: Option<&'a RowResult>,
}

fn with_reason<S: serde::Serializer>(
    outcome: &Result<Box<RowResult>, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let missing = outcome.as_ref().err().map(String::as_str);
    Outcome { missing, result: outcome.as_deref().ok() }.serialize(serializer)
}

impl Report {
    /// What the loads did in the row with which others are compared.
    fn stock_work(&self) -> Option<Work> {
        let stock = self.rows.iter().find(|row| row.kind == RowKind::Stock)?;
        stock.result()?.work.clone()
    }

    /// Compares what the loads did with the stock row.
    pub(super) fn compare_work(&mut self) {
        let stock = self.stock_work();
        for row in &mut self.rows {
            if let Ok(Some(work)) = row.outcome.as_mut().map(|result| &mut result.work) {
                work.compute_of_stock = work.of_stock(stock.as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_was_measured_or_the_reason_why_not() {
        let result = RowResult {
            user: Latency::of(vec![1, 2]),
            kernel: None,
            wake_up: None,
            skipped: 1,
            elsewhere: 2,
            misses: None,
            duration_ns: 5,
            work: Some(Work { compute_per_s: 2.0, ..Work::default() }),
            cut: None,
            not_undone: Vec::new(),
        };
        let row = Row { kind: RowKind::Stock, outcome: Ok(Box::new(result)) };
        let missing = Row { kind: RowKind::Artis, outcome: Err("no sched_ext".to_owned()) };
        let keys = |row: &Row| {
            let object = serde_json::to_value(row).expect("an object");
            object.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            keys(&row),
            "cut duration_ns interrupts_elsewhere kernel_latency missing not_undone program_misses row skipped user_latency \
             wake_up_latency work"
        );
        assert_eq!(
            serde_json::to_value(&missing).expect("an object"),
            serde_json::json!({ "row": "artis loaded", "missing": "no sched_ext" })
        );
    }
}
