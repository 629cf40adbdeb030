// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a tracker follows, counted by key and told while it grows; and, beyond a limit, what is late, with its explanation.
//!
//! Without a limit that is a count, and nothing else runs. With one it is a watch whose tracker also counts: one tracker, so that each operation
//! is followed once.

use crate::hist::{self, HistKey, HistSettings};
use crate::watch::{self, CountBeside, WatchSettings};
use crate::{Failure, Observer, Stop};
use std::sync::Arc;

/// Between two readings where nobody says.
const INTERVAL_NS: u64 = 1_000_000_000;

/// At least that.
const LEAST_NS: u64 = 50_000_000;

/// What is shown.
#[derive(Clone, Debug)]
pub struct TopSettings {
    /// What is counted. Its order is nobody's business here.
    pub hist: HistSettings,
    /// What takes longer is late, and explained. `None`: nothing is.
    pub threshold_ns: Option<u64>,
}

/// Goes on until it is asked to stop, the time is over, or COMMAND or the target has ended. Gives how COMMAND ended if not well.
///
/// # Errors
/// What kept it from counting.
pub fn run(
    settings: &TopSettings,
    stop: &Stop,
    observer: &Arc<dyn Observer>,
) -> Result<Result<(), Failure>, Failure> {
    let TopSettings { hist, threshold_ns } = settings;
    let by = hist.by.unwrap_or(HistKey::usual(hist.tracker));
    let hist = HistSettings { by: Some(by), ..hist.clone() };
    if hist.interval_ns.is_some_and(|interval_ns| interval_ns < LEAST_NS) {
        return Err(Failure::Usage(
            "--interval: nobody sees more than 20 pictures each second (50ms); rtscope hist takes less"
                .to_owned(),
        ));
    }
    // Also refuses what a watch would not.
    hist::check(&hist)?;
    let Some(threshold_ns) = threshold_ns else { return hist::follow(&hist, stop, observer.as_ref()) };
    let watched = WatchSettings {
        tracker: hist.tracker,
        between: hist.between.clone(),
        calls: hist.calls.clone(),
        sample_ns: hist.sample_ns,
        task: hist.counted.task.clone(),
        pid: hist.counted.pid,
        tid: hist.counted.tid,
        duration_ns: hist.counted.duration_ns,
        command: hist.counted.command.clone(),
        command_output: hist.counted.command_output,
        count: Some(CountBeside {
            by,
            cells: hist.cells,
            interval_ns: hist.interval_ns.unwrap_or(INTERVAL_NS),
        }),
        ..WatchSettings::of(*threshold_ns)
    };
    watch::run(&watched, stop, observer).map(|(_, command)| command)
}
