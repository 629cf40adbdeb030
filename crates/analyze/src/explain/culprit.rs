// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one thing to look at first.
//!
//! Disturbances are added up over all steps by actor, whatever their kind. The largest is the culprit, unless
//! something that is not a disturbance (the target's own work, slack, what is unknown) is at least as large as all of them
//! together: then no actor is blamed, because without them the response would have been about as late.

use super::types::{Cause, Culprit, StepExplanation};

struct Sum<'a> {
    largest: &'a Cause,
    step: usize,
    time_ns: u64,
    share_permille: u32,
    disturbs: bool,
}

pub(super) fn find(steps: &[StepExplanation]) -> Option<Culprit> {
    let mut sums: Vec<Sum<'_>> = Vec::new();
    for (step, cause) in
        steps.iter().enumerate().flat_map(|(i, step)| step.causes.iter().map(move |c| (i, c)))
    {
        match sums.iter_mut().find(|sum| is_same(sum.largest, cause)) {
            Some(sum) => {
                sum.time_ns += cause.time_ns;
                sum.share_permille += cause.share_permille;
                if cause.time_ns > sum.largest.time_ns {
                    (sum.largest, sum.step) = (cause, step);
                }
            }
            None => sums.push(Sum {
                largest: cause,
                step,
                time_ns: cause.time_ns,
                share_permille: cause.share_permille,
                disturbs: cause.kind.is_disturbance(),
            }),
        }
    }
    let largest = |disturbs: bool| {
        // The last of equals is what `max_by_key` takes; the first is the one that came first in the chain.
        sums.iter().rev().filter(move |sum| sum.disturbs == disturbs).max_by_key(|sum| sum.time_ns)
    };
    let disturbed: u64 = sums.iter().filter(|sum| sum.disturbs).map(|sum| sum.time_ns).sum();
    let harmless = largest(false).filter(|sum| sum.time_ns >= disturbed);
    let sum = harmless.or_else(|| largest(true))?;
    Some(Culprit {
        kind: sum.largest.kind,
        actor: sum.largest.actor.clone(),
        time_ns: sum.time_ns,
        share_permille: sum.share_permille,
        step: sum.step,
    })
}

/// A thread that first blocks and later interferes is one culprit; a softirq of the chain and the same vector
/// disturbing it are not.
fn is_same(one: &Cause, two: &Cause) -> bool {
    if one.kind.is_disturbance() != two.kind.is_disturbance() {
        return false;
    }
    match (&one.actor, &two.actor) {
        (Some(actor), Some(other)) => actor.is_same(other),
        (None, None) => one.kind == two.kind,
        _ => false,
    }
}
