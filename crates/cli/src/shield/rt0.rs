// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a task of the shield is scheduled: from options to a policy, and what came of it.

use super::options::{PolicyArg, PolicyOptions};
use crate::exit::Failure;
use rtscope_session::Observer;
use rtscope_shield::System;
use rtscope_shield::policy::{Policy, Reservation};
use rtscope_shield::rt0;

/// Without `--prio`.
const PRIORITY: u8 = 80;

/// The policy that was asked for; `None` where nothing was.
pub fn wanted(options: &PolicyOptions) -> Result<Option<Policy>, Failure> {
    let usage = |why: &str| Err(Failure::Usage(why.to_owned()));
    let priority = u32::from(options.prio.unwrap_or(PRIORITY));
    let times = options.runtime.or(options.deadline).or(options.period);
    match options.policy {
        Some(PolicyArg::Deadline) => {}
        _ if times.is_some() => {
            return usage("--runtime, --deadline and --period need --policy deadline");
        }
        _ if options.force => return usage("--force needs --policy deadline"),
        None if options.prio.is_none() => return Ok(None),
        None | Some(PolicyArg::Fifo) => return Ok(Some(Policy::Fifo { priority })),
        Some(PolicyArg::Rr) => return Ok(Some(Policy::Rr { priority })),
    }
    if options.prio.is_some() {
        return usage("--prio is for fifo and rr, not for --policy deadline");
    }
    match (options.runtime, options.deadline.or(options.period), options.period.or(options.deadline)) {
        (Some(runtime), Some(deadline), Some(period)) => Ok(Some(Policy::Deadline(Reservation {
            runtime_ns: runtime.0,
            deadline_ns: deadline.0,
            period_ns: period.0,
        }))),
        _ => usage(
            "--policy deadline needs --runtime and --period (and --deadline if it is shorter): --runtime 2ms \
             --period 10ms",
        ),
    }
}

/// Without a word: FIFO.
pub fn or_fifo(policy: Option<Policy>) -> Policy {
    policy.unwrap_or(Policy::Fifo { priority: u32::from(PRIORITY) })
}

/// Schedules a thread so, and says what is to be known of it.
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
    use rtscope_session::units::DurationNs;

    fn options(policy: Option<PolicyArg>, prio: Option<u8>, times: [Option<u64>; 3]) -> PolicyOptions {
        let [runtime, deadline, period] = times.map(|time| time.map(DurationNs));
        PolicyOptions { policy, prio, runtime, deadline, period, force: false }
    }

    #[test]
    fn a_policy_is_made_of_the_options_that_belong_to_it() {
        let good = |policy, prio, times| wanted(&options(policy, prio, times)).expect("good");
        let deadline = Some(PolicyArg::Deadline);
        assert_eq!(good(None, None, [None; 3]), None);
        assert_eq!(good(None, Some(7), [None; 3]), Some(Policy::Fifo { priority: 7 }));
        assert_eq!(good(Some(PolicyArg::Rr), None, [None; 3]), Some(Policy::Rr { priority: 80 }));
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
            (Some(PolicyArg::Fifo), None, [None, None, Some(2)]),
        ] {
            assert!(wanted(&options(policy, prio, times)).is_err(), "{policy:?} {prio:?} {times:?}");
        }
        let force = PolicyOptions { force: true, ..options(None, None, [None; 3]) };
        assert!(wanted(&force).is_err());
    }
}
