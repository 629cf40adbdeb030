// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits in the middle of a cycle: who ended them, and what kept that thread from it.

use super::super::{CauseKind, Explainer, Explanation};
use super::recording;
use crate::chain::{Config, EndCondition, Target, replay};
use rtscope_event::{Glob, StepKind, Tid, WaitKind};

/// A driver (rt 80) waits for a futex that the shell (nice 0) holds, which midi (rt 60) keeps from running.
const INVERSION: &str = "
    5 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=sleep next_tid=9
    10 0 vector_entry kind=local_timer
    11 0 hrtimer_expire_entry softexpires_ns=10 expires_ns=10
    12 0 sched_waking tid=8 prio=39
    13 0 hrtimer_expire_exit
    14 0 vector_exit kind=local_timer
    20 0 sched_switch prev_tid=9 preempt=1 next_tid=8 next_prio=39
    100 0 vector_entry kind=local_timer
    101 0 hrtimer_expire_entry softexpires_ns=100 expires_ns=100
    102 0 sched_waking tid=7 prio=19
    103 0 hrtimer_expire_exit
    104 0 vector_exit kind=local_timer
    110 0 sched_switch prev_tid=8 prev_prio=39 preempt=1 next_tid=7 next_prio=19
    150 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=futex next_tid=8 next_prio=39
    450 0 sched_switch prev_tid=8 prev_prio=39 prev_state=1 prev_wait=futex next_tid=9
    500 0 sched_waking tid=7 prio=19
    510 0 sched_switch prev_tid=9 preempt=1 next_tid=7 next_prio=19
    600 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=sleep next_tid=9";

/// The same where the driver wakes both before it waits.
fn asked() -> String {
    let begin = |line: &&str| {
        !matches!(line.split_whitespace().next(), Some("10" | "11" | "12" | "13" | "14" | "20"))
    };
    let rest: Vec<&str> = INVERSION.lines().filter(begin).collect();
    rest.join("\n").replacen("next_tid=9", "next_tid=0", 1).replacen(
        "prev_tid=8 prev_prio=39 preempt=1 next_tid=7 next_prio=19",
        "prev_tid=0 next_tid=7 next_prio=19
         120 0 sched_waking tid=9
         130 0 sched_waking tid=8 prio=39",
        1,
    )
}

/// The one response of `ctl`, by cycles.
fn explained_cycle(text: &str) -> Explanation {
    let recording = recording(0, text);
    let mut config = Config::new(0);
    config.end = EndCondition::Cycle;
    config.target = Target::Comm(Glob::new("ctl").unwrap());
    let (responses, _) = replay(&recording, &config);
    let explainer = Explainer::new(&recording);
    let [response] = &responses[..] else { panic!("{responses:?}") };
    explainer.explain(&explainer.report(response, 0, 1))
}

#[test]
fn who_was_woken_before_a_wait_begins_has_its_place_in_it() {
    let explanation = explained_cycle(&asked());
    let [wait] = &explanation.waits[..] else { panic!("{explanation:?}") };
    let kept = wait.kept.as_ref().unwrap();
    assert_eq!(
        (kept.holder.tid, kept.thread.tid, kept.time_ns, wait.is_inversion),
        (Tid(9), Tid(8), 300, true)
    );
    let step = explanation.steps.iter().find(|step| step.kind == StepKind::Wait).unwrap();
    let times: Vec<_> = step.causes.iter().map(|cause| (cause.kind, cause.time_ns)).collect();
    assert_eq!(times, [(CauseKind::ThreadInterference, 300), (CauseKind::Holder, 50)]);
    assert_eq!((explanation.unknown_ns, &step.notes[..]), (0, &[][..]));
}

#[test]
fn a_priority_inversion_is_named_with_all_three() {
    let waits = |text: &str| {
        let explanation = explained_cycle(text);
        let [wait] = &explanation.waits[..] else { panic!("{explanation:?}") };
        let step = explanation.steps.iter().find(|step| step.kind == StepKind::Wait).unwrap();
        assert_eq!(step.causes.iter().map(|cause| cause.time_ns).sum::<u64>(), step.duration_ns);
        let is_held = step.causes.iter().any(|cause| cause.kind == CauseKind::Holder);
        assert!(wait.wait != WaitKind::Stop || !is_held, "{step:?}");
        wait.clone()
    };
    let wait = waits(INVERSION);
    let (holder, kept) = (wait.woken_by.unwrap(), wait.kept.unwrap());
    assert_eq!((wait.wait, wait.duration_ns, wait.is_inversion), (WaitKind::Futex, 350, true));
    assert_eq!((holder.tid, kept.holder.tid, kept.thread.tid, kept.time_ns), (Tid(9), Tid(9), Tid(8), 300));
    // What is more urgent than the driver may keep anybody: no inversion.
    let urgent = INVERSION.replace("prio=39", "prio=9");
    assert!(!waits(&urgent).is_inversion);
    // Nor does it matter who had the CPU for a moment of what the holder takes.
    let brief = INVERSION.replace("450 0 sched_switch", "180 0 sched_switch");
    assert_eq!((waits(&brief).kept.unwrap().time_ns, waits(&brief).is_inversion), (30, false));
    // A pipe is held by nobody.
    assert!(!waits(&INVERSION.replace("prev_wait=futex", "prev_wait=read")).is_inversion);
    // And who continues a stopped thread has held nothing.
    let stopped = INVERSION.replacen("prev_state=1 prev_wait=futex", "prev_state=4 prev_wait=stop", 1);
    let stop = waits(&stopped);
    assert_eq!((stop.wait, stop.kept, stop.is_inversion), (WaitKind::Stop, None, false));
}
