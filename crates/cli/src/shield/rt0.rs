// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a task of the shield is scheduled: from options to a policy, and what came of it for people.

use super::options::{PolicyArg, PolicyOptions};
use crate::exit::Failure;
use crate::output::note;
use rtscope_shield::policy::{Policy, Reservation};
use rtscope_shield::rt0::{self, Rt0};
use rtscope_shield::{Cpus, System};
use std::fmt::Write;

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
) -> Result<(), Failure> {
    let admitted = rt0::schedule(system, tid, policy, force, remember)?;
    // They have names of other tasks in them, which anybody chooses.
    admitted.notes.iter().for_each(|text| note(&format!("rtscope: {}", rtscope_view::clean(text))));
    if let Some(fill) = admitted.fill {
        note(&format!(
            "rtscope: DEADLINE tasks have reserved {:.1} % of its CPU now (density {:.3})",
            fill.utilisation * 100.0,
            fill.density
        ));
    }
    Ok(())
}

/// The real-time tasks of a shield for people, by CPU.
pub fn text(tasks: &[Rt0], rt: &Cpus) -> String {
    let mut text = String::from("Real-time tasks:\n");
    let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0));
    let _ = writeln!(
        text,
        "  {:<5} {:>8} {:>7}  {:<36}  {:>7} name",
        "CPU", "reserved", "used", "policy", "thread"
    );
    for one in tasks {
        let policy = one.policy.to_string();
        let (reserved, used) = (percent(one.reserved), percent(one.used));
        let _ = writeln!(
            text,
            "  {:<5} {reserved:>8} {used:>7}  {policy:<36}  {:>7} {}",
            one.cpus, one.tid, one.name
        );
    }
    for cpu in rt.iter() {
        let here = tasks.iter().filter(|one| Cpus::from_list(&one.cpus).is_ok_and(|cpus| cpus.contains(cpu)));
        let parts: Vec<f64> = here.clone().filter_map(|one| one.reserved).collect();
        match (here.count(), parts.len()) {
            (0, _) => {
                let _ = writeln!(text, "  {cpu:<5} {:>8} {:>7}  none", "-", "-");
            }
            (_, 0) => {}
            (_, count) => {
                let sum = percent(Some(parts.iter().sum()));
                let _ = writeln!(text, "  {cpu:<5} {sum:>8} {:>7}  total of {count} with deadlines", "");
            }
        }
    }
    text
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

    #[test]
    fn tasks_are_listed_by_cpu() {
        let reservation =
            Reservation { runtime_ns: 2_000_000, deadline_ns: 5_000_000, period_ns: 10_000_000 };
        let task = |cpus: &str, policy, reserved| Rt0 {
            cpus: cpus.into(),
            tid: 12,
            name: "control".into(),
            policy,
            reserved,
            used: Some(0.0123),
        };
        let tasks = [
            task("2", Policy::Deadline(reservation), Some(0.2)),
            task("2-3", Policy::Fifo { priority: 80 }, None),
        ];
        let text = text(&tasks, &Cpus::from_list("2-4").expect("a list"));
        let words: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            words[2..],
            [
                "2 20.0 % 1.2 % deadline 2ms in 5ms every 10ms 12 control",
                "2-3 - 1.2 % fifo 80 12 control",
                "2 20.0 % total of 1 with deadlines",
                "4 - - none"
            ]
        );
    }
}
