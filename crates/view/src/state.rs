// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is under way in a watch that runs.

use crate::clean;
use crate::late::operation_text;
use crate::style::Style;
use crate::units::{counted, duration_text};
use rtscope_event::{Names, Stuck};
use rtscope_session::watch::state::{FollowedTracker, WatchState};

/// Operations that are listed one by one.
const ROWS: usize = 20;

/// Who watches what, and what is under way there, the longest first.
#[must_use]
pub fn state_text(state: &WatchState, style: Style) -> String {
    let followed: Vec<String> = state
        .trackers
        .iter()
        .map(|one| format!("{} > {}", one.tracker.name(), duration_text(one.threshold_ns)))
        .collect();
    let title = format!("watch {} of {}: {}", state.pid, clean(&state.target), followed.join(", "));
    let mut text = format!("{}\n", style.strong(&title));
    let not_seen: Vec<&FollowedTracker> = state.trackers.iter().filter(|one| !one.is_seen_pending).collect();
    for one in &not_seen {
        text.push_str(&format!("  {}: known when it has ended\n", one.tracker.name()));
    }
    if not_seen.len() == state.trackers.len() {
        return text;
    }
    let shown = state.operations.len().min(style.rows(ROWS));
    for operation in &state.operations[..shown] {
        text.push_str(&operation_lines(operation, style));
    }
    match (state.operations.len() - shown) as u64 + state.more {
        0 if shown == 0 => text.push_str("  nothing is under way\n"),
        0 => {}
        more => text.push_str(&format!("  and {}\n", counted(more, "shorter one", "shorter ones"))),
    }
    text
}

/// Late ones are marked.
fn operation_lines(operation: &Stuck, style: Style) -> String {
    let is_late = operation.late.response_ns() > operation.late.threshold_ns;
    let mark = if is_late { style.alarm("LATE") } else { "    ".to_owned() };
    let text = operation_text(operation, &Names::default(), style);
    let indented: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    format!("  {mark} {}\n", indented.join("\n").trim_start())
}
