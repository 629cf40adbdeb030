// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What many late responses have in common: groups by the step in which most was lost and by actor.
//!
//! A late response whose history was not kept (snapshots are rate limited) is grouped by its longest step alone: the
//! chain says where the time went, but only the recording says what took it.

use crate::chain::Counters;
use crate::explain::{CauseKind, Explanation};
use crate::histogram::Statistics;
use crate::own::OwnCost;
use rtscope_event::{CpuId, LateResponse, Loss, StepKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Late responses that were late in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The step in which most was lost.
    pub step: Option<StepKind>,
    /// The culprit's kind; `None` when no recording explains these.
    pub cause: Option<CauseKind>,
    /// The culprit's name, without ids that change from one to the next.
    pub actor: Option<String>,
    /// How many.
    pub count: u64,
    /// Their response times, added up.
    pub sum_ns: u64,
    /// The longest of them.
    pub worst_ns: u64,
    /// On which CPU the longest was reported.
    pub worst_cpu: CpuId,
    /// Under which number.
    pub worst_sequence: u64,
}

/// Everything that is reported at the end of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How long the watch took.
    pub elapsed_ns: u64,
    /// A response that took longer was late.
    pub threshold_ns: u64,
    /// What the tracker counted.
    pub counters: Counters,
    /// Wakeups and switches of tasks for which the tracker had no state.
    pub untracked: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Of them, those that could not be saved.
    pub snapshots_failed: u64,
    /// Snapshots that were not taken: rate limit or no free bank.
    pub suppressed: u64,
    /// The distribution of all response times; `None` when there was none.
    pub statistics: Option<Statistics>,
    /// The late ones by what they have in common.
    pub groups: Vec<Group>,
    /// What the watch itself cost the target.
    pub own: OwnCost,
    /// Events that were lost over the whole watch.
    pub losses: Vec<Loss>,
}

/// Groups of their own; what comes later is put together by step and cause.
const MAX_GROUPS: usize = 1000;
const OTHERS: &str = "others";

type Key = (Option<StepKind>, Option<CauseKind>, Option<String>);

/// Collects late responses into groups.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    groups: BTreeMap<Key, Group>,
}

impl Summary {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Summary {
        Summary::default()
    }

    /// Takes in a late response that cannot be explained further.
    pub fn add_late(&mut self, late: &LateResponse) {
        let longest = late.chain.steps.iter().rev().max_by_key(|step| step.duration_ns);
        let key = (longest.map(|step| step.kind), None, None);
        self.add(key, late.chain.duration_ns(), late.cpu, late.sequence);
    }

    /// Takes in an explained one (instead of, not besides, its late response).
    pub fn add_explanation(&mut self, explanation: &Explanation) {
        let culprit = explanation.culprit.as_ref();
        let step = culprit.and_then(|culprit| explanation.steps.get(culprit.step));
        let step = step.or_else(|| explanation.longest_step());
        let key = (
            step.map(|step| step.kind),
            Some(culprit.map_or(CauseKind::Unknown, |culprit| culprit.kind)),
            culprit.and_then(|culprit| culprit.actor.as_ref()).map(|actor| actor.group_name()),
        );
        self.add(key, explanation.response_ns, explanation.cpu, explanation.sequence);
    }

    fn add(&mut self, key: Key, response_ns: u64, cpu: CpuId, sequence: u64) {
        // A culprit that goes on changing its name must not make this grow for ever.
        let full = self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key);
        let key = if full { (key.0, key.1, Some(OTHERS.to_owned())) } else { key };
        let (step, cause, actor) = key.clone();
        let group = self.groups.entry(key).or_insert(Group {
            step,
            cause,
            actor,
            count: 0,
            sum_ns: 0,
            worst_ns: 0,
            worst_cpu: cpu,
            worst_sequence: sequence,
        });
        group.count += 1;
        group.sum_ns = group.sum_ns.saturating_add(response_ns);
        if response_ns > group.worst_ns {
            (group.worst_ns, group.worst_cpu, group.worst_sequence) = (response_ns, cpu, sequence);
        }
    }

    /// How many were taken in.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.groups.values().map(|group| group.count).sum()
    }

    /// The groups, most frequent first; among equals the one with the worst response.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.values().cloned().collect();
        groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.worst_ns)));
        groups
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rtscope_event::{Chain, Comm, End, MonotonicNs, Origin, OriginKind, Pid, Priority, Step, Tid};

    pub(crate) fn late(sequence: u64, steps: &[(StepKind, u64)]) -> LateResponse {
        let origin = Origin { kind: OriginKind::Irq, id: 1, cpu: CpuId(0), time_ns: MonotonicNs(100) };
        let step = |(kind, duration_ns): &(StepKind, u64)| Step {
            kind: *kind,
            id: 1,
            cpu: CpuId(0),
            duration_ns: *duration_ns,
        };
        let steps: Vec<Step> = steps.iter().map(step).collect();
        let chain = Chain { origin, steps, merged: 0, others: vec![], busy: false };
        LateResponse {
            sequence,
            cpu: CpuId(1),
            end_ns: chain.end_ns(),
            end: End::Blocked,
            threshold_ns: 1,
            tid: Tid(7),
            pid: Pid(7),
            prio: Priority(1),
            comm: Comm::from("x"),
            snapshot: None,
            chain,
        }
    }

    #[test]
    fn groups_by_the_longest_step_most_frequent_first() {
        let mut summary = Summary::new();
        summary.add_late(&late(1, &[(StepKind::Wakeup, 50), (StepKind::Run, 60)]));
        summary.add_late(&late(2, &[(StepKind::Wakeup, 70), (StepKind::Run, 60)]));
        summary.add_late(&late(3, &[(StepKind::Wakeup, 90), (StepKind::Run, 60)]));
        let groups = summary.groups();
        assert_eq!(summary.count(), 3);
        let Group { step, count, sum_ns, worst_ns, worst_sequence, .. } = groups[0].clone();
        assert_eq!((step, count, sum_ns, worst_ns, worst_sequence), (Some(StepKind::Wakeup), 2, 280, 150, 3));
        assert_eq!((groups[1].step, groups[1].count), (Some(StepKind::Run), 1));
    }
}
