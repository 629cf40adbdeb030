// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the reader of a table has to know of it.

use super::Report;
use crate::npt::PERCENTILES;
use rtscope_event::counted;

/// For the whole table.
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for row in &report.rows {
        let Some(result) = row.result() else { continue };
        let name = row.kind.name();
        if let Some(why) = &result.cut {
            notes.push(format!("{name}: fewer wakeups than requested: {why}"));
        }
        if result.skipped > 0 {
            notes.push(format!(
                "{name}: {} expiries had passed before they could be waited for, because an earlier response took too long",
                result.skipped
            ));
        }
        if result.elsewhere > 0 {
            notes.push(format!(
                "{name}: {} on another CPU",
                counted(result.elsewhere, "interrupt came", "interrupts came")
            ));
        }
        if let (Some(user), Some(kernel), None) = (&result.user, &result.kernel, &report.no_kernel_latency) {
            let unseen = user.statistics.count - kernel.statistics.count;
            if unseen > 0 {
                let misses = result.misses;
                let misses =
                    misses.map_or("an unknown number of times".to_owned(), |n| counted(n, "time", "times"));
                let unseen = counted(unseen, "interrupt was", "interrupts were");
                notes.push(format!(
                    "{name}: {unseen} not seen, and no kernel latency measured there (the kernel skipped the eBPF programs {misses})"
                ));
            }
        }
        result.not_undone.iter().for_each(|what| notes.push(format!("{name}: not restored: {what}")));
    }
    notes.extend(unknown_percentiles(report));
    notes
}

/// Those for which there are too few samples.
fn unknown_percentiles(report: &Report) -> Option<String> {
    let most =
        report.rows.iter().filter_map(|row| Some(row.result()?.user.as_ref()?.statistics.count)).max()?;
    let unknown: Vec<String> = PERCENTILES
        .iter()
        .filter(|percent| most as f64 * (100.0 - **percent) / 100.0 < 1.0 - 1e-6)
        .map(|percent| format!("{percent} % (needs {:.0} wakeups)", 100.0 / (100.0 - percent)))
        .collect();
    (!unknown.is_empty()).then(|| format!("unknown with {most} wakeups: {}", unknown.join(", ")))
}
