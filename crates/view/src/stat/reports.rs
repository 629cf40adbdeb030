// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All reports that were asked for, one after the other.

use super::figures::Wanted;
use super::{
    irqs_json, irqs_text, latency_json, latency_text, syscalls_json, syscalls_text, tasks_json, tasks_text,
};
use crate::event::Clock;
use crate::style::Style;
use rtscope_session::stat::StatReports;

/// Only the tasks that are wanted.
fn narrowed(mut reports: StatReports, wanted: &Wanted) -> StatReports {
    if let Some(tasks) = &mut reports.tasks {
        tasks.tasks.retain(|task| wanted.has(task));
    }
    reports
}

/// A line of JSON for each.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn figures_json(reports: StatReports, wanted: &Wanted) -> serde_json::Result<String> {
    let reports = narrowed(reports, wanted);
    let mut lines = Vec::new();
    lines.extend(reports.tasks.as_ref().map(tasks_json));
    lines.extend(reports.syscalls.as_ref().map(syscalls_json));
    lines.extend(reports.irqs.as_ref().map(irqs_json));
    lines.extend(reports.latencies.iter().map(latency_json));
    Ok(lines.into_iter().collect::<serde_json::Result<Vec<String>>>()?.join("\n"))
}

/// For people.
#[must_use]
pub fn figures_text(reports: StatReports, wanted: &Wanted, clock: Clock, style: Style) -> String {
    let reports = narrowed(reports, wanted);
    let mut texts = Vec::new();
    texts.extend(reports.tasks.map(|tasks| tasks_text(&tasks, wanted, clock, style)));
    texts.extend(reports.syscalls.map(|syscalls| syscalls_text(&syscalls, wanted, clock, style)));
    texts.extend(reports.irqs.map(|irqs| irqs_text(&irqs, wanted, clock, style)));
    texts.extend(reports.latencies.iter().map(|report| latency_text(report, wanted, clock, style)));
    texts.join("\n")
}
