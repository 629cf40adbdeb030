// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks of a shielded CPU: they judge by what ran there, not by any setting.
//!
//! A check passes only where nothing was lost: what has not been seen may have been a disturbance. What no setting can keep away
//! (the tick without nohz_full, threads that belong to the CPU, interrupts from other CPUs) is counted, and not checked.

use rtscope_analyze::visits::{Visit, Visitor, Visits};
use rtscope_event::VectorKind;
use serde::Serialize;
use std::collections::BTreeSet;

/// Softirqs that a CPU raises for itself: timers, its run queue, RCU. The others come from devices and from other CPUs' work.
const OWN_SOFTIRQS: [&str; 4] = ["TIMER", "SCHED", "HRTIMER", "RCU"];
/// A tick that the kernel keeps, for its statistics, where it has stopped the others.
const REST_OF_TICKS_PER_S: f64 = 2.0;
/// Where this part of the time (one in this many) has no owner, something may have been overlooked.
const UNKNOWN_PART: u64 = 100;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing came that should not.
    Pass,
    /// Something came that should not.
    Fail,
    /// Nothing came that should not, but not all was seen.
    Unknown,
    /// No setting here keeps this away.
    #[serde(rename = "not_promised")]
    NotChecked,
}

/// A check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// In words.
    pub what: &'static str,
    /// Its result.
    pub verdict: Verdict,
    /// How often something came that is meant here.
    pub count: u64,
    /// What came, the longest first.
    pub by: Vec<String>,
}

/// What the checks need to know in addition to the visits.
#[derive(Clone, Debug, Default)]
pub struct CheckContext {
    /// Threads that belong to the shield.
    pub residents: BTreeSet<u32>,
    /// Kernel threads that belong to a CPU.
    pub bound: BTreeSet<u32>,
    /// Interrupts that are to come here.
    pub kept: BTreeSet<u32>,
    /// Whether the tick stops here while one task runs.
    pub tickless: bool,
    /// Events that were lost here, as far as they were counted.
    pub lost: u64,
}

/// In words, with the number.
pub fn name(visitor: &Visitor) -> String {
    let number = |name: &Option<String>, what: &str, number: u32| match name {
        Some(name) => format!("{name} ({what} {number})"),
        None => format!("{what} {number}"),
    };
    match visitor {
        Visitor::Irq { irq, name } => number(name, "irq", irq.0),
        Visitor::Vector { vector } => format!("vector {}", vector.name()),
        Visitor::Nmi => "NMI".to_owned(),
        Visitor::Softirq { name } => format!("softirq {name}"),
        Visitor::Thread { tid, name, kernel } => {
            number(name, if *kernel == Some(true) { "kernel thread" } else { "thread" }, tid.0)
        }
        Visitor::Unknown => "unknown".to_owned(),
    }
}

/// All checks of one CPU.
pub fn evaluate(visits: &Visits, context: &CheckContext) -> Vec<Check> {
    let watched_s = visits.watched_ns as f64 / 1e9;
    let all: Vec<(&Visitor, &Visit)> = visits.iter().collect();
    let blind =
        context.lost > 0 || visits.missed_ns > 0 || visits.unknown_ns() > visits.watched_ns / UNKNOWN_PART;
    let check = |name, what, is_checked: bool, allowed: f64, is: &dyn Fn(&Visitor) -> bool| {
        let mut by: Vec<(&Visitor, &Visit)> = all.iter().filter(|(who, _)| is(who)).copied().collect();
        by.sort_by_key(|(_, visit)| std::cmp::Reverse(visit.time_ns));
        let count: u64 = by.iter().map(|(_, visit)| visit.count).sum();
        // A thread that was there all the time has not come.
        let is_kept = count as f64 <= allowed && (allowed > 0.0 || by.is_empty());
        let verdict = match (is_checked, is_kept) {
            (false, _) => Verdict::NotChecked,
            (true, false) => Verdict::Fail,
            (true, true) if blind => Verdict::Unknown,
            (true, true) => Verdict::Pass,
        };
        Check { name, what, verdict, count, by: by.iter().map(|(who, _)| self::name(who)).collect() }
    };
    let thread = |who: &Visitor, is: &dyn Fn(u32, bool) -> bool| match who {
        Visitor::Thread { tid, kernel, .. } => is(tid.0, *kernel == Some(true)),
        _ => false,
    };
    let resident = |tid: u32| context.residents.contains(&tid);
    let bound = |tid: u32| context.bound.contains(&tid);
    let is_tick = |who: &Visitor| matches!(who, Visitor::Vector { vector: VectorKind::LocalTimer });
    let is_kept = |who: &Visitor| matches!(who, Visitor::Irq { irq, .. } if context.kept.contains(&irq.0));
    // Their handlers raise them, and which one did is not known.
    let own_devices = all.iter().any(|(who, _)| is_kept(who));
    let rest = REST_OF_TICKS_PER_S * watched_s;
    vec![
        check("tasks", "no task from outside the shield", true, 0.0, &|who| {
            thread(who, &|tid, kernel| !kernel && !resident(tid))
        }),
        check("kernel-threads", "no kernel thread that may run elsewhere", true, 0.0, &|who| {
            thread(who, &|tid, kernel| kernel && !bound(tid))
        }),
        check("interrupts", "no device interrupt", true, 0.0, &|who| {
            matches!(who, Visitor::Irq { .. }) && !is_kept(who)
        }),
        check(
            "softirqs",
            "no softirq of devices or of other CPUs",
            !own_devices,
            0.0,
            &|who| matches!(who, Visitor::Softirq { name } if !OWN_SOFTIRQS.contains(name)),
        ),
        check("nmi", "no non-maskable interrupt", true, 0.0, &|who| *who == Visitor::Nmi),
        check("ticks", "no timer tick", context.tickless, rest, &is_tick),
        check("kept-interrupts", "interrupts that are kept here (--keep-irq)", false, 0.0, &is_kept),
        check("bound-threads", "kernel threads that belong to the CPU", false, 0.0, &|who| {
            thread(who, &|tid, kernel| kernel && bound(tid))
        }),
        check(
            "own-softirqs",
            "softirqs of its own: timers, run queue, RCU",
            false,
            0.0,
            &|who| matches!(who, Visitor::Softirq { name } if OWN_SOFTIRQS.contains(name)),
        ),
        check("ipis", "interrupts from other CPUs, and other vectors", false, 0.0, &|who| {
            matches!(who, Visitor::Vector { .. }) && !is_tick(who)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_analyze::timeline::Timeline;
    use rtscope_event::{CpuHistory, CpuId, MonotonicNs, Recording, parse_event};

    fn visits(lines: &str) -> Visits {
        let events: Vec<_> = lines.lines().map(|line| parse_event(line.trim()).expect("an event")).collect();
        let complete_since = Some(MonotonicNs(0));
        let history = vec![CpuHistory { cpu: CpuId(1), complete_since, events: events.len() as u64 }];
        let recording = Recording { events, history, ..Recording::default() };
        let mut visits = Visits::new(CpuId(1));
        visits.add(&recording, &Timeline::new(&recording), MonotonicNs(0), MonotonicNs(1_000_000_000));
        visits
    }

    fn verdicts(visits: &Visits, context: &CheckContext) -> Vec<(&'static str, Verdict)> {
        evaluate(visits, context).into_iter().map(|check| (check.name, check.verdict)).collect()
    }

    const QUIET: &str = "10 1 sched_switch prev_tid=0 next_tid=7
        20 1 vector_entry kind=local_timer
        30 1 vector_exit kind=local_timer
        40 1 sched_switch prev_tid=7 prev_state=1 next_tid=0
        1000000000 1 softirq_raise vec=1";

    #[test]
    fn each_check_passes_or_fails_by_what_ran() {
        let context = CheckContext { residents: [7].into(), tickless: true, ..CheckContext::default() };
        for (name, verdict) in verdicts(&visits(QUIET), &context) {
            let is_checked = !["kept-interrupts", "bound-threads", "own-softirqs", "ipis"].contains(&name);
            assert_eq!(verdict, if is_checked { Verdict::Pass } else { Verdict::NotChecked }, "{name}");
        }
        for (line, broken) in [
            ("50 1 sched_switch prev_tid=0 next_tid=8", "tasks"),
            ("50 1 sched_switch prev_tid=0 next_tid=9 next_kthread=1", "kernel-threads"),
            ("50 1 irq_handler_entry irq=9\n60 1 irq_handler_exit irq=9", "interrupts"),
            ("50 1 softirq_entry vec=3\n60 1 softirq_exit vec=3", "softirqs"),
            ("50 1 nmi_handler duration_ns=3", "nmi"),
        ] {
            let lines = QUIET.replace("1000000000", &format!("{line}\n1000000000"));
            let failed: Vec<&str> = verdicts(&visits(&lines), &context)
                .into_iter()
                .filter(|(_, verdict)| *verdict == Verdict::Fail)
                .map(|(name, _)| name)
                .collect();
            assert_eq!(failed, [broken]);
        }
    }

    #[test]
    fn an_interrupt_that_is_kept_breaks_nothing() {
        let come = "50 1 irq_handler_entry irq=9\n55 1 softirq_raise vec=3\n60 1 irq_handler_exit irq=9\n65 1 softirq_entry vec=3
            70 1 softirq_exit vec=3";
        let lines = QUIET.replace("1000000000", &format!("{come}\n1000000000"));
        let kept =
            |irq: u32| CheckContext { residents: [7].into(), kept: [irq].into(), ..CheckContext::default() };
        let verdicts = |irq| verdicts(&visits(&lines), &kept(irq));
        assert!(verdicts(9).contains(&("interrupts", Verdict::Pass)));
        assert!(verdicts(9).contains(&("softirqs", Verdict::NotChecked)));
        let listed =
            evaluate(&visits(&lines), &kept(9)).into_iter().find(|one| one.name == "kept-interrupts");
        assert_eq!(listed.map(|one| (one.count, one.by)), Some((1, vec!["irq 9".to_owned()])));
        assert!(verdicts(10).contains(&("interrupts", Verdict::Fail)));
        assert!(verdicts(10).contains(&("softirqs", Verdict::Fail)));
    }

    #[test]
    fn a_thread_that_belongs_to_the_cpu_breaks_nothing() {
        let lines = QUIET.replace("prev_tid=0 next_tid=7", "prev_tid=0 next_tid=7 next_kthread=1");
        let lines = lines.replace("prev_tid=7", "prev_kthread=1 prev_tid=7");
        let bound = CheckContext { bound: [7].into(), ..CheckContext::default() };
        assert!(verdicts(&visits(&lines), &bound).iter().all(|(_, verdict)| *verdict != Verdict::Fail));
    }

    #[test]
    fn time_that_nobody_accounts_for_is_no_quiet_time() {
        let silent = visits("1000000000 0 softirq_raise vec=1");
        assert!(
            verdicts(&silent, &CheckContext::default()).iter().all(|(_, verdict)| *verdict != Verdict::Pass)
        );
        let mut idle = Visits::new(CpuId(1));
        idle.begin_with(rtscope_event::Tid(0));
        let complete_since = Some(MonotonicNs(0));
        let history = vec![CpuHistory { cpu: CpuId(1), complete_since, events: 0 }];
        let recording = Recording { history, ..Recording::default() };
        idle.add(&recording, &Timeline::new(&recording), MonotonicNs(0), MonotonicNs(1_000_000_000));
        assert!(verdicts(&idle, &CheckContext::default()).contains(&("tasks", Verdict::Pass)));
    }

    #[test]
    fn what_was_lost_may_have_been_a_disturbance() {
        let context = CheckContext { residents: [7].into(), lost: 1, ..CheckContext::default() };
        let verdicts = verdicts(&visits(QUIET), &context);
        assert!(verdicts.iter().all(|(_, verdict)| *verdict != Verdict::Pass), "{verdicts:?}");
        assert!(verdicts.contains(&("ticks", Verdict::NotChecked)));
    }
}
