// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The highest rates without a loss: as text and JSON.

use super::absent_line;
use rtscope_measure::impact::{RateOutcome, RateReport};
use std::fmt::Write;

/// The loop that emits less than this share of what it is asked for was kept from it.
const PACE: f64 = 0.9;

/// One JSON object in a line (docs/json.md).
///
/// # Errors
/// When serde_json refuses, which this type gives it no reason to.
pub fn rate_json(report: &RateReport) -> serde_json::Result<String> {
    crate::json::sorted(report)
}

/// All of it.
#[must_use]
pub fn rate_text(report: &RateReport) -> String {
    let policy =
        report.fifo.map_or("ordinary thread".to_string(), |priority| format!("SCHED_FIFO {priority}"));
    let mut out = format!(
        "highest rate without a lost event: npt on CPU {}, {policy}; {} s each try\n{}\nbuffers: {} MiB for a CPU or a thread\n",
        report.cpu,
        report.try_ns as f64 / 1e9,
        report.machine.name(),
        report.buffer_bytes as f64 / f64::from(1 << 20),
    );
    report.notes.iter().for_each(|note| {
        let _ = writeln!(out, "- {note}");
    });
    let _ = writeln!(
        out,
        "\n{:<14}{:>22}{:>34}",
        "events/s", "user events alone", "with sched, irq, system calls"
    );
    let mut below = Vec::new();
    for row in &report.rows {
        let name = row.tracer.name();
        let _ = write!(out, "{name:<14}");
        let alone = (&row.user_events, "", 22);
        for (outcome, with, width) in [alone, (&row.with_kernel_events, " with the kernel's events", 34)] {
            let text = match outcome {
                RateOutcome::Rate(confirmed) => {
                    format!("{:.0}{}", confirmed.per_second, if confirmed.is_loops_limit { "+" } else { "" })
                }
                RateOutcome::None(_) => "-".to_string(),
                RateOutcome::Stopped => String::new(),
            };
            let _ = write!(out, "{text:>width$}");
            below.extend(remarks(name, with, outcome));
        }
        out.push('\n');
    }
    below.iter().for_each(|remark| {
        let _ = writeln!(out, "{remark}");
    });
    report.absent.iter().for_each(|absent| {
        let _ = writeln!(out, "{}", absent_line(absent));
    });
    out
}

/// The remarks on an outcome, below the table.
fn remarks(name: &str, with: &str, outcome: &RateOutcome) -> Vec<String> {
    match outcome {
        RateOutcome::None(why) => vec![format!("{name}{with}: none: {why}")],
        RateOutcome::Stopped => Vec::new(),
        RateOutcome::Rate(confirmed) => {
            let mut remarks = Vec::new();
            if confirmed.is_loops_limit {
                remarks.push(format!(
                    "{name}{with}: an event in each iteration, and none was lost: the loop cannot emit more"
                ));
            }
            if !confirmed.is_loops_limit && confirmed.per_second < confirmed.asked * PACE {
                remarks.push(format!(
                    "{name}{with}: {:.0} were requested, but the loop did not have its CPU all the time",
                    confirmed.asked
                ));
            }
            if let Some(kernel) = confirmed.kernel {
                remarks
                    .push(format!("{name}{with}: {} of the loop, {kernel} of the kernel", confirmed.emitted));
            }
            remarks
        }
    }
}
