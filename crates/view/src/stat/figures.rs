// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the reports of tasks, interrupts and system calls have in common.

use crate::event::Clock;
use crate::units::{counted, duration_text};
use rtscope_analyze::histogram::Percentile;
use rtscope_analyze::stat::{Intervals, Missing, Span, TaskReport};
use rtscope_ctf::Pattern;

/// What of a report is shown.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A task's number, or a pattern for its name; its waits and system calls are shown, too.
    pub task: Option<String>,
    /// At most this many rows of text; 0: all.
    pub rows: usize,
}

impl Wanted {
    /// Whether a task is asked for.
    #[must_use]
    pub fn has(&self, task: &TaskReport) -> bool {
        let Some(text) = &self.task else { return true };
        match text.parse::<u32>() {
            Ok(tid) => task.tid == tid,
            Err(_) => Pattern::new(text).matches(task.comm.as_bytes()),
        }
    }

    pub(super) fn limit(&self) -> usize {
        if self.rows == 0 { usize::MAX } else { self.rows }
    }
}

pub(super) fn span_text(span: &Span, clock: Clock) -> String {
    match span.first_ns.zip(span.last_ns) {
        Some((first, last)) => format!(
            "{} to {} ({})",
            super::counts::moment(clock, first),
            super::counts::moment(clock, last),
            duration_text(span.length_ns())
        ),
        None => "none of the events that this is made of".to_owned(),
    }
}

/// The moment of the longest, where there is one.
pub(super) fn longest_text(intervals: &Intervals) -> String {
    if intervals.longest_at_ns.is_some() { duration_text(intervals.longest_ns) } else { "-".to_owned() }
}

pub(super) fn mean_text(total_ns: u64, count: u64) -> String {
    total_ns.checked_div(count).map_or("-".to_owned(), duration_text)
}

/// One percentile; "-" where there are too few values for it to mean anything.
pub(crate) fn percentile_text(percentiles: &[Percentile], percent_milli: u32) -> String {
    let found = percentiles.iter().find(|percentile| percentile.percent_milli == percent_milli);
    found.and_then(|percentile| percentile.value_ns).map_or("-".to_owned(), duration_text)
}

pub(super) fn percent_text(part_ns: u64, whole_ns: u64) -> String {
    if whole_ns == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part_ns as f64 * 100.0 / whole_ns as f64)
}

/// Lines about what is not in the figures.
pub(super) fn missing_text(missing: &Missing) -> String {
    if missing.is_nothing() {
        return "Nothing is missing, as far as the trace reports.\n".to_owned();
    }
    let mut parts = Vec::new();
    for (count, one, many) in [
        (missing.events, "event", "events"),
        (missing.packets, "packet", "packets"),
        (
            missing.gaps,
            "switch that the kernel did not report (some hosts hide those of threads of their own)",
            "switches that the kernel did not report (some hosts hide those of threads of their own)",
        ),
        (
            missing.contradictions,
            "event that others say must have come",
            "events that others say must have come",
        ),
    ] {
        if count > 0 {
            parts.push(counted(count, one, many));
        }
    }
    if missing.uncounted {
        parts.push("an unknown number of events".to_owned());
    }
    format!("Missing: {}. What happened there is in no figure.\n", parts.join(", "))
}
