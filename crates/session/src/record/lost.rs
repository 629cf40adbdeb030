// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a recording was lost, and whether it is a success in spite of that.

use super::RecordedTrace;
use crate::Failure;
use rtscope_event::{count_text, counted};

/// A recording that has lost a larger part is a failure, unless somebody says otherwise.
const MOST: f64 = 0.5;

/// How much of a recording was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LostEvents {
    /// Events that are in the traces, or were until newer ones replaced them, or that filters left out: what was lost had not been filtered.
    pub recorded: u64,
    /// Events that were lost, as far as they were counted.
    pub lost: u64,
    /// Others were lost.
    pub is_uncounted: bool,
}

impl LostEvents {
    /// Of a trace.
    #[must_use]
    pub fn of(trace: &RecordedTrace<'_>) -> LostEvents {
        let (events, overwritten, losses) = match trace {
            RecordedTrace::Kernel { summary, .. } => (summary.events, summary.overwritten, &summary.losses),
            RecordedTrace::Programs { summary, .. } => {
                (summary.events.saturating_add(summary.filtered), summary.overwritten, &summary.losses)
            }
        };
        LostEvents {
            recorded: events.saturating_add(overwritten.map_or(0, |removed| removed.events)),
            lost: losses.iter().filter_map(|loss| loss.count).fold(0, u64::saturating_add),
            is_uncounted: losses.iter().any(|loss| loss.count.is_none()),
        }
    }

    /// With those of another trace.
    #[must_use]
    pub fn and(self, other: LostEvents) -> LostEvents {
        LostEvents {
            recorded: self.recorded.saturating_add(other.recorded),
            lost: self.lost.saturating_add(other.lost),
            is_uncounted: self.is_uncounted || other.is_uncounted,
        }
    }

    /// Whether more was lost than is allowed: this part of all. Where nobody has said which, more than half is no success.
    ///
    /// # Errors
    /// When it was.
    pub fn judge(self, allowed: Option<f64>) -> Result<(), Failure> {
        let is_uncounted = self.is_uncounted && allowed.is_some_and(|allowed| allowed < 1.0);
        if !is_uncounted && (self.lost == 0 || self.share() <= allowed.unwrap_or(MOST)) {
            return Ok(());
        }
        let others = if is_uncounted { ", and others that nobody could count" } else { "" };
        let rule = match allowed {
            Some(_) => "--fail-if-lost",
            None => "more than half; --fail-if-lost=100% accepts that",
        };
        let percent = self.share() * 100.0;
        let all = self.recorded.saturating_add(self.lost);
        Err(Failure::Lost(format!(
            "{} of {} lost ({percent:.2} %){others} ({rule})",
            count_text(self.lost),
            counted(all, "event was", "events were")
        )))
    }

    /// The part that was lost, as far as it was counted.
    #[must_use]
    pub fn share(self) -> f64 {
        self.lost as f64 / (self.recorded as f64 + self.lost as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn more_than_half_is_no_success_unless_that_is_allowed() {
        let lost = |recorded, lost, is_uncounted| LostEvents { recorded, lost, is_uncounted };
        for (events, allowed, is_good) in [
            (lost(10, 0, false), Some(0.0), true),
            (lost(10, 10, false), None, true),
            (lost(10, 11, false), None, false),
            (lost(10, 11, false), Some(1.0), true),
            (lost(99, 1, false), Some(0.0), false),
            (lost(99, 1, false), Some(0.01), true),
            (lost(10, 0, true), None, true),
            (lost(10, 0, true), Some(0.5), false),
            (lost(10, 0, true), Some(1.0), true),
        ] {
            assert_eq!(events.judge(allowed).is_ok(), is_good, "{events:?} {allowed:?}");
        }
    }
}
