// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers and softirqs that took long: whom they delayed, and what kept a softirq waiting.

use super::super::{DelayedHow, Explainer, Explanation};
use super::{actor, adds_up, recording, show};
use crate::chain::replay_handlers;
use rtscope_event::{LateResponse, Tid, Tracker};

fn explained(tracker: Tracker, events: &str) -> Explanation {
    let recording = recording(0, events);
    let explainer = Explainer::new(&recording);
    let found = replay_handlers(&recording, tracker, None, 0);
    let longest = found.iter().max_by_key(|response| response.chain.duration_ns()).expect("a handler");
    let late = LateResponse { tracker, ..explainer.report(longest, 0, 1) };
    let explanation = explainer.explain(&late);
    adds_up(&explanation);
    explanation
}

fn delayed(explanation: &Explanation) -> Vec<(Tid, DelayedHow, u64)> {
    explanation.delayed.iter().map(|one| (one.thread.tid, one.how, one.time_ns)).collect()
}

#[test]
fn a_handler_delays_whom_it_interrupts_and_who_is_woken_meanwhile() {
    let explanation = explained(
        Tracker::Irq,
        "10 0 sched_switch prev_tid=0 next_tid=8
         100 0 irq_handler_entry irq=36
         150 0 sched_waking tid=7 prio=49 target_cpu=0
         160 0 sched_waking tid=9 prio=120 target_cpu=0
         161 0 sched_migrate_task tid=9 orig_cpu=0 dest_cpu=1
         170 1 sched_waking tid=40 prio=49 target_cpu=1
         180 1 sched_switch prev_tid=0 next_tid=40
         190 1 sched_waking tid=7 prio=49 target_cpu=0
         300 0 irq_handler_exit irq=36 ret=1
         310 0 sched_switch prev_tid=8 preempt=1 next_tid=7 next_prio=49",
    );
    assert_eq!(explanation.response_ns, 200);
    assert_eq!(explanation.thread.tid, Tid(8));
    assert_eq!(
        delayed(&explanation),
        [(Tid(8), DelayedHow::Interrupted, 200), (Tid(7), DelayedHow::Woken, 150)]
    );
    assert_eq!(show(&explanation), "handler 200: handler irq36 200,\nculprit: handler irq36 200 in 0\n");
    assert!(explanation.woken_by.is_none());
}

#[test]
fn a_softirq_waits_for_what_runs_and_its_thread_is_not_delayed_by_it() {
    // 14 is ksoftirqd: what it does is its work. 40 is a thread of an interrupt, and 8 is nobody's.
    let events = |server: u32| {
        format!(
            "10 0 sched_switch prev_tid=0 next_tid=8
             20 0 irq_handler_entry irq=36
             25 0 softirq_raise vec=3
             30 0 irq_handler_exit irq=36 ret=1
             100 0 sched_switch prev_tid=8 preempt=1 next_tid={server}
             120 0 softirq_entry vec=3
             150 0 softirq_exit vec=3
             160 0 sched_switch prev_tid={server} prev_state=1 next_tid=0"
        )
    };
    let explanation = explained(Tracker::Softirq, &events(14));
    assert_eq!(
        show(&explanation),
        "softirq wait 95: running thread hog 70, work of the chain ksoftirqd/0 20, IRQ interference irq36 5,\n\
         softirq 30: softirq of the chain softirq3 30,\nculprit: running thread hog 70 in 0\n"
    );
    assert_eq!(delayed(&explanation), []);
    let explanation = explained(Tracker::Softirq, &events(9));
    assert_eq!(actor(explanation.culprit.as_ref().unwrap().actor.as_ref()), "hog");
    assert_eq!(delayed(&explanation), [(Tid(9), DelayedHow::Interrupted, 30)]);
    assert!(show(&explanation).contains("thread interference shell 20"), "{}", show(&explanation));
}
