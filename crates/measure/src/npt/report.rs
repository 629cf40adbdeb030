// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the non-preempt test comes to. Serialised, it is what `rtscope npt --json` prints (docs/json.md): keys that are older than
//! the names here are kept.

use super::blame::BlameReport;
use super::statistics::{PERCENTILES, Statistics};
use rtscope_session::fail_if::{Figure, Figures};
use serde::Serialize;

/// Name and version of the serialised report.
pub const SCHEMA: &str = "rtscope.npt/1";

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The CPU that was measured.
    pub cpu: usize,
    /// The real-time priority that the thread really had.
    pub fifo: Option<u8>,
    /// Whether memory was locked.
    pub memory_locked: bool,
    /// The counter that was read: `tsc`, `cntvct` or `monotonic`.
    pub clock: &'static str,
    /// Of the counter, as measured.
    pub ticks_per_second: f64,
    /// By how much the rate of the warm-up was another, in millionths.
    pub rate_change_ppm: f64,
    /// Cycles per ns of the core.
    pub core_ghz: CoreClock,
    /// From the loop's begin to its end.
    pub duration_ns: f64,
    /// Iterations that were not counted.
    #[serde(rename = "warm_up_turns")]
    pub warm_up: u64,
    /// `None`: there were no windows.
    #[serde(rename = "window_lengths")]
    pub windows: Option<WindowLengths>,
    /// The events of the loop.
    pub events: Events,
    /// The gaps: of all windows, or of the traced and of the untraced ones.
    pub measured: Vec<Section>,
    /// Those over the threshold.
    pub long_gaps: LongGaps,
    /// What took the long gaps.
    #[serde(rename = "blamed")]
    pub blame: Option<BlameReport>,
    /// What the reader has to know of it.
    pub notes: Vec<String>,
}

impl Report {
    /// What `--fail-if` can be about; of both kinds of windows, where there are two, the larger. Without a report: their names.
    #[must_use]
    pub fn figures(report: Option<&Report>) -> Figures {
        let sections =
            || report.into_iter().flat_map(|report| &report.measured).map(|section| &section.statistics);
        let time = |name: &str, of: &dyn Fn(&Statistics) -> Option<f64>| {
            (name.to_string(), Figure::Time(sections().filter_map(of).reduce(f64::max)))
        };
        let mut figures = vec![
            time("min", &|statistics| Some(statistics.min_ns)),
            time("mean", &|statistics| Some(statistics.mean_ns)),
            time("max", &|statistics| Some(statistics.max_ns)),
            ("gaps".to_string(), Figure::Count(report.map(|report| report.long_gaps.count))),
            ("lost".to_string(), Figure::Count(report.map(|report| report.events.lost))),
        ];
        for (at, percent) in PERCENTILES.iter().enumerate() {
            figures.push(time(&format!("p{percent}"), &|statistics| {
                statistics.percentiles_ns.get(at).copied()?
            }));
        }
        figures
    }
}

/// The core's clock before the loop and after it, in cycles per ns.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreClock {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

/// Lengths of both kinds of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WindowLengths {
    /// With events.
    pub traced_ns: u64,
    /// Without.
    pub untraced_ns: u64,
}

/// The events of the loop; whatever records also gets npt:start and npt:stop.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Events {
    /// This many.
    pub generated: u64,
    /// Whether somebody recorded them.
    pub recorded: bool,
    /// Of the events, those that found no space in the ring.
    pub lost: u64,
}

/// The gaps of one kind of windows.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// `all`, `traced` or `untraced`.
    pub windows: &'static str,
    /// Their figures.
    #[serde(flatten)]
    pub statistics: Statistics,
}

/// The gaps over the threshold.
#[derive(Clone, Debug, Serialize)]
pub struct LongGaps {
    /// The threshold.
    pub threshold_ns: u64,
    /// All of them.
    pub count: u64,
    /// Some of those that were kept; longest first.
    pub longest: Vec<LongGap>,
    /// Whether all were kept; else the first [`LongGaps::KEPT`].
    pub complete: bool,
}

impl LongGaps {
    /// At most this many are kept; the rest is counted.
    pub const KEPT: usize = super::gap_loop::LONGS_MAX;
}

/// A gap over the threshold.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LongGap {
    /// From the loop's begin.
    pub at_ns: f64,
    /// How long it was.
    pub ns: f64,
}
