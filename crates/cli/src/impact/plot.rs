// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The histograms side by side: a panel for each case, all on the same axes, with the untraced one behind each.

use super::report::Column;
use super::rounds::Case;
use rtscope_measure::npt::Bucket;
use rtscope_view::npt::duration;
use rtscope_view::plot::{Panel, panels};

/// The picture.
pub fn svg(title: &str, columns: &[Column]) -> String {
    let merged: Vec<Vec<Bucket>> = columns.iter().map(merged).collect();
    let untraced = columns.iter().position(|column| column.case == Case::Untraced);
    let labels: Vec<String> = columns.iter().map(label).collect();
    let all: Vec<Panel<'_>> = columns
        .iter()
        .zip(&merged)
        .zip(&labels)
        .map(|((column, buckets), label)| Panel {
            name: column.case.name(),
            label,
            buckets,
            behind: untraced
                .filter(|_| column.case != Case::Untraced)
                .map_or(&[], |at| merged[at].as_slice()),
        })
        .collect();
    panels(title, &all)
}

/// Of all rounds, ascending. Each run has measured the counter's rate anew, so its buckets begin a little elsewhere.
fn merged(column: &Column) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> =
        column.runs.iter().flat_map(|run| run.sample.buckets.iter().copied()).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

fn label(column: &Column) -> String {
    let runs = column.runs.len().max(1) as f64;
    let mean = column.runs.iter().map(|run| run.sample.mean).sum::<f64>() / runs;
    let events = column.events();
    let lost = match events.lost {
        Some(_) if events.overwrites => ", overwrites".to_string(),
        Some(lost) => format!(", {lost} of {} events lost", events.emitted),
        None => String::new(),
    };
    format!("mean {}, max {}{lost}", duration(mean), duration(column.largest()))
}
