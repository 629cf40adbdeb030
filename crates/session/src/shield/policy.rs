// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a task of the shield is scheduled: from words to a policy, and what came of it.

use crate::{Failure, Observer};
use rtscope_shield::policy::{Policy, Reservation};
use rtscope_shield::{System, rt0};

/// The priority of whoever asks for none.
const PRIORITY: u8 = 80;

/// The policies that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_RR.
    Rr,
    /// SCHED_DEADLINE.
    Deadline,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyWords {
    /// Which policy.
    pub policy: Option<PolicyName>,
    /// For FIFO and RR.
    pub prio: Option<u8>,
    /// For DEADLINE: time of the CPU.
    pub runtime_ns: Option<u64>,
    /// By then after the beginning of a period.
    pub deadline_ns: Option<u64>,
    /// Once in this time.
    pub period_ns: Option<u64>,
    /// Whether the kernel alone is to decide.
    pub force: bool,
}

/// The policy that was asked for; `None` where nothing was.
///
/// # Errors
/// When the words do not go together.
pub fn wanted(options: &PolicyWords) -> Result<Option<Policy>, Failure> {
    let usage = |why: &str| Err(Failure::Usage(why.to_owned()));
    let priority = u32::from(options.prio.unwrap_or(PRIORITY));
    let times = options.runtime_ns.or(options.deadline_ns).or(options.period_ns);
    match options.policy {
        Some(PolicyName::Deadline) => {}
        _ if times.is_some() => {
            return usage("--runtime, --deadline and --period need --policy deadline");
        }
        _ if options.force => return usage("--force needs --policy deadline"),
        None if options.prio.is_none() => return Ok(None),
        None | Some(PolicyName::Fifo) => return Ok(Some(Policy::Fifo { priority })),
        Some(PolicyName::Rr) => return Ok(Some(Policy::Rr { priority })),
    }
    if options.prio.is_some() {
        return usage("--prio is for fifo and rr, not for --policy deadline");
    }
    match (
        options.runtime_ns,
        options.deadline_ns.or(options.period_ns),
        options.period_ns.or(options.deadline_ns),
    ) {
        (Some(runtime_ns), Some(deadline_ns), Some(period_ns)) => {
            Ok(Some(Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns })))
        }
        _ => usage(
            "--policy deadline needs --runtime and --period (and --deadline if it is shorter): --runtime 2ms \
             --period 10ms",
        ),
    }
}

/// Without a word: FIFO.
#[must_use]
pub fn or_fifo(policy: Option<Policy>) -> Policy {
    policy.unwrap_or(Policy::Fifo { priority: u32::from(PRIORITY) })
}

/// Schedules a thread so, and says what is to be known of it.
///
/// # Errors
/// Why it cannot be, with figures.
pub fn schedule(
    system: &System,
    tid: i32,
    policy: Policy,
    force: bool,
    remember: bool,
    observer: &dyn Observer,
) -> Result<(), Failure> {
    let admitted = rt0::schedule(system, tid, policy, force, remember)?;
    admitted.notes.iter().for_each(|text| observer.note(text));
    if let Some(fill) = admitted.fill {
        observer.note(&format!(
            "DEADLINE tasks have reserved {:.1} % of its CPU now (density {:.3})",
            fill.utilisation * 100.0,
            fill.density
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(policy: Option<PolicyName>, prio: Option<u8>, times: [Option<u64>; 3]) -> PolicyWords {
        let [runtime_ns, deadline_ns, period_ns] = times;
        PolicyWords { policy, prio, runtime_ns, deadline_ns, period_ns, force: false }
    }

    #[test]
    fn a_policy_is_made_of_the_options_that_belong_to_it() {
        let good = |policy, prio, times| wanted(&options(policy, prio, times)).expect("good");
        let deadline = Some(PolicyName::Deadline);
        assert_eq!(good(None, None, [None; 3]), None);
        assert_eq!(good(None, Some(7), [None; 3]), Some(Policy::Fifo { priority: 7 }));
        assert_eq!(good(Some(PolicyName::Rr), None, [None; 3]), Some(Policy::Rr { priority: 80 }));
        let reservation = |deadline_ns, period_ns| Reservation { runtime_ns: 2, deadline_ns, period_ns };
        for (times, wanted) in [
            ([Some(2), Some(5), Some(10)], reservation(5, 10)),
            ([Some(2), None, Some(10)], reservation(10, 10)),
            ([Some(2), Some(5), None], reservation(5, 5)),
        ] {
            assert_eq!(good(deadline, None, times), Some(Policy::Deadline(wanted)));
        }
        for (policy, prio, times) in [
            (deadline, None, [None; 3]),
            (deadline, None, [Some(2), None, None]),
            (deadline, None, [None, Some(2), Some(2)]),
            (deadline, Some(1), [Some(2), None, Some(2)]),
            (None, None, [Some(2), None, Some(2)]),
            (Some(PolicyName::Fifo), None, [None, None, Some(2)]),
        ] {
            assert!(wanted(&options(policy, prio, times)).is_err(), "{policy:?} {prio:?} {times:?}");
        }
        let force = PolicyWords { force: true, ..options(None, None, [None; 3]) };
        assert!(wanted(&force).is_err());
    }
}
