// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The histograms side by side: a panel for each case, all on the same axes, with the untraced one behind each.

use super::text::heading;
use crate::npt::duration;
use crate::plot::{Panel, panels};
use rtscope_measure::impact::{Case, CaseReport, Figure, Report};
use rtscope_measure::npt::Bucket;

/// The picture.
#[must_use]
pub fn svg(report: &Report) -> String {
    let cases = &report.cases;
    let merged: Vec<Vec<Bucket>> = cases.iter().map(merged).collect();
    let untraced = cases.iter().position(|case| case.case == Case::Untraced);
    let labels: Vec<String> = cases.iter().map(label).collect();
    let all: Vec<Panel<'_>> = cases
        .iter()
        .zip(&merged)
        .zip(&labels)
        .map(|((case, buckets), label)| Panel {
            name: case.case.name(),
            label,
            buckets,
            behind: untraced.filter(|_| case.case != Case::Untraced).map_or(&[], |at| merged[at].as_slice()),
        })
        .collect();
    panels(&heading(report), &all)
}

/// Of all rounds, ascending. Each run has measured the counter's rate anew, so its buckets begin a little elsewhere.
fn merged(case: &CaseReport) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = case.runs.iter().flat_map(|run| run.buckets.iter().copied()).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

fn label(case: &CaseReport) -> String {
    let runs = case.runs.len().max(1) as f64;
    let mean = case.runs.iter().filter_map(|run| *run.figures.get(&Figure::Mean)?).sum::<f64>() / runs;
    let events = &case.events;
    let lost = match events.lost {
        Some(_) if events.overwrites => ", overwrites".to_string(),
        Some(lost) => format!(", {lost} of {} events lost", events.emitted),
        None => String::new(),
    };
    format!("mean {}, max {}{lost}", duration(mean), duration(case.largest_ns))
}
