// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a recording was lost, and whether it is a success in spite of that.

use super::RecordedTrace;
use crate::{Failure, users};
use rtscope_event::{Loss, LossCause, count_text, counted};
use rtscope_programs::collector::{LossesByUser, UserLosses};

/// A recording that has lost a larger part is a failure, unless somebody says otherwise.
const MOST: f64 = 0.5;

/// Users of whom it is said one by one what they lost.
const USERS_MAX: usize = 8;

/// How much of a recording was lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LostEvents {
    /// Events that are in the traces, or were until newer ones replaced them, or that filters left out: what was lost had not been filtered.
    pub recorded: u64,
    /// Events that were lost, as far as they were counted.
    pub lost: u64,
    /// Others were lost.
    pub is_uncounted: bool,
    /// Whose they are, of programs.
    pub by_user: LossesByUser,
    /// Others were recorded: into channels of an STM, where nobody counts them.
    pub is_elsewhere: bool,
}

impl LostEvents {
    /// Of a trace. Where users were asked for, what programs of others lost is no loss of it, and what was left out of theirs is no part of it: any
    /// program of another user could change what this comes to.
    #[must_use]
    pub fn of(trace: &RecordedTrace<'_>) -> LostEvents {
        let lost = |losses: &[Loss]| losses.iter().filter_map(|loss| loss.count).fold(0, u64::saturating_add);
        let (events, overwritten, losses) = match trace {
            RecordedTrace::Places { capture, report, interrupted, .. } => {
                return LostEvents {
                    recorded: report.trace.as_ref().map_or(0, |trace| trace.events),
                    is_uncounted: *interrupted || capture.has_losses() || report.has_losses(),
                    ..LostEvents::default()
                };
            }
            RecordedTrace::Kernel { summary, .. } => (summary.events, summary.overwritten, &summary.losses),
            RecordedTrace::Programs { summary, .. } => {
                (summary.events.saturating_add(summary.filtered), summary.overwritten, &summary.losses)
            }
        };
        let mut of_trace = LostEvents {
            recorded: events.saturating_add(overwritten.map_or(0, |removed| removed.events)),
            lost: lost(losses),
            is_uncounted: losses.iter().any(|loss| loss.count.is_none()),
            by_user: LossesByUser::new(),
            is_elsewhere: matches!(trace, RecordedTrace::Programs { summary, .. } if summary.channels > 0),
        };
        if let RecordedTrace::Programs { summary, .. } = trace {
            let is_anybodys = summary.refused.iter().any(|refusal| refusal.user.is_none());
            of_trace.leave_out(&summary.by_user, losses, is_anybodys);
        }
        of_trace
    }

    /// Takes away what is of users who were not asked for. `is_anybodys`: something was left out, and nobody knows whose it was.
    fn leave_out(&mut self, by_user: &LossesByUser, losses: &[Loss], is_anybodys: bool) {
        let (others, asked): (LossesByUser, LossesByUser) =
            by_user.iter().partition(|(_, losses)| losses.is_unasked);
        for of_user in others.values() {
            self.lost = self.lost.saturating_sub(of_user.lost);
            self.recorded = self.recorded.saturating_sub(of_user.filtered);
        }
        // What the end of a killed recorder would have told is nobody's.
        let is_nobodys = losses.iter().any(|loss| loss.cause == LossCause::Discarded && loss.count.is_none());
        let is_known = by_user.values().any(|losses| losses.is_uncounted);
        if is_known && !is_nobodys && !is_anybodys {
            self.is_uncounted = asked.values().any(|losses| losses.is_uncounted);
        }
        self.by_user = asked;
    }

    /// With those of another trace.
    #[must_use]
    pub fn and(mut self, other: LostEvents) -> LostEvents {
        self.recorded = self.recorded.saturating_add(other.recorded);
        self.lost = self.lost.saturating_add(other.lost);
        self.is_uncounted |= other.is_uncounted;
        self.is_elsewhere |= other.is_elsewhere;
        for (uid, losses) in other.by_user {
            self.by_user.entry(uid).or_default().add(losses);
        }
        self
    }

    /// Whether more was lost than is allowed: this part of all. Where nobody has said which, more than half is no success.
    ///
    /// # Errors
    /// When it was.
    pub fn judge(&self, allowed: Option<f64>) -> Result<(), Failure> {
        let is_uncounted = self.is_uncounted && allowed.is_some_and(|allowed| allowed < 1.0);
        // The part is at most that of what came here. Who has said how much is allowed is told when it may be more; who has not, is not.
        let is_unknown = self.is_elsewhere && allowed.is_none();
        if !is_uncounted && (is_unknown || self.lost == 0 || self.share() <= allowed.unwrap_or(MOST)) {
            return Ok(());
        }
        let others = if is_uncounted { ", and others that nobody could count" } else { "" };
        let rule = match allowed {
            Some(_) => "--fail-if-lost",
            None => "more than half; --fail-if-lost=100% accepts that",
        };
        let percent = self.share() * 100.0;
        let all = self.recorded.saturating_add(self.lost);
        let users = losses_by_user(&self.by_user);
        let users = users.map_or(String::new(), |users| {
            format!(": {users}. Programs count their losses themselves; --uid asks for those of one user")
        });
        Err(Failure::Lost(format!(
            "{} of {} lost ({percent:.2} %){others} ({rule}){users}",
            count_text(self.lost),
            counted(all, "event was", "events were")
        )))
    }

    /// The part that was lost, as far as it was counted.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.lost as f64 / (self.recorded as f64 + self.lost as f64).max(1.0)
    }
}

/// Whose losses these are, those of the user who lost most first. `None`: nobody's.
#[must_use]
pub fn losses_by_user(by_user: &LossesByUser) -> Option<String> {
    let mut all: Vec<(&u32, &UserLosses)> =
        by_user.iter().filter(|(_, losses)| losses.lost > 0 || losses.is_uncounted).collect();
    all.sort_by_key(|(_, losses)| (losses.is_unasked, std::cmp::Reverse(losses.lost)));
    let more = all.len().saturating_sub(USERS_MAX);
    let text = |(uid, losses): &(&u32, &UserLosses)| {
        let count = match (losses.lost, losses.is_uncounted) {
            (0, _) => "an unknown number".to_string(),
            (lost, true) => format!("{} and an unknown number", count_text(lost)),
            (lost, false) => count_text(lost),
        };
        let unasked = if losses.is_unasked { " (whom --uid leaves out)" } else { "" };
        format!("{count} of user {}{unasked}", users::shown(**uid))
    };
    let mut texts: Vec<String> = all.iter().take(USERS_MAX).map(text).collect();
    if more > 0 {
        texts.push(format!("others of {}", counted(more, "further user", "further users")));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Of which users something was counted, the one with most first. `None`: of none.
#[must_use]
pub fn counts_by_user(counts: impl IntoIterator<Item = (u32, u64)>) -> Option<String> {
    let mut all: Vec<(u32, u64)> = counts.into_iter().collect();
    all.retain(|(_, count)| *count > 0);
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = all.len().saturating_sub(USERS_MAX);
    let text = |(uid, count): &(u32, u64)| format!("{} of user {}", count_text(*count), users::shown(*uid));
    let mut texts: Vec<String> = all.iter().take(USERS_MAX).map(text).collect();
    if more > 0 {
        texts.push(format!("others of {}", counted(more, "further user", "further users")));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_programs::budget::{Cause, Refusal};
    use rtscope_store::user::UserSummary;

    #[test]
    fn more_than_half_is_no_success_unless_that_is_allowed() {
        let lost = |recorded, lost, is_uncounted| LostEvents {
            recorded,
            lost,
            is_uncounted,
            is_elsewhere: false,
            by_user: LossesByUser::new(),
        };
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
        let beside_channels = LostEvents { is_elsewhere: true, ..lost(10, 11, false) };
        for (allowed, is_good) in [(None, true), (Some(0.0), false), (Some(0.3), false), (Some(0.6), true)] {
            assert_eq!(beside_channels.judge(allowed).is_ok(), is_good, "{allowed:?}");
        }
    }

    /// A liar of user 1000 claims a million, has filtered events for as many as he likes, and had a file refused.
    #[test]
    fn what_another_users_program_claims_is_named_and_left_out_where_users_are_asked_for() {
        let judged = |is_unasked: bool, refused: Vec<Refusal>| {
            let loss = |cause, count| Loss { cpu: None, cause, count };
            let liar = UserLosses {
                lost: 1_000_000,
                is_uncounted: true,
                filtered: 5_000_000,
                is_unasked,
                ..UserLosses::default()
            };
            let honest = UserLosses { lost: 2, ..UserLosses::default() };
            let losses = vec![loss(LossCause::NoBuffer, Some(1_000_002)), loss(LossCause::Refused, None)];
            let by_user = LossesByUser::from([(4_000_000_000, liar), (4_000_000_001, honest)]);
            let summary = UserSummary {
                events: 98,
                filtered: 5_000_000,
                losses,
                by_user,
                refused,
                ..UserSummary::default()
            };
            let trace = RecordedTrace::Programs {
                target: std::path::Path::new("t"),
                summary: &summary,
                recording_cpu_us: None,
                asked: None,
            };
            let lost = LostEvents::of(&trace);
            let why = lost.judge(Some(0.0)).expect_err("two were lost").to_string();
            (lost.share(), lost.judge(Some(0.03)).is_ok(), lost.judge(Some(0.01)).is_ok(), why)
        };
        let (share, is_good, is_bad, why) = judged(true, Vec::new());
        assert_eq!((share, is_good, is_bad), (0.02, true, false), "{why}");
        assert!(why.contains("2 of 100 events were lost") && why.contains("2 of user 4000000001"), "{why}");
        assert!(!why.contains("4000000000"), "{why}");
        let (share, is_good, is_bad, why) = judged(false, Vec::new());
        assert!(share > 0.16 && !is_good && !is_bad, "{why}");
        assert!(why.contains("and an unknown number of user 4000000000, 2 of user 4000000001"), "{why}");
        // What nobody knows whose it is may be of who is asked for.
        let refusal =
            |user| vec![Refusal { user, cause: Cause::CensusLate, count: 1, example: "0.9 s".to_owned() }];
        let (share, is_good, _, why) = judged(true, refusal(None));
        assert!(share < 0.03 && !is_good && why.contains("and others that nobody could count"), "{why}");
        assert!(judged(true, refusal(Some(4_000_000_000))).1, "whose it is, is known");
    }
}
