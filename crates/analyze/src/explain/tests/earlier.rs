// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Responses that begin with a waking by a thread: who led to that, as far back as the recording goes.

use super::super::{Earlier, Explainer, Explanation};
use super::{actor, recording};
use crate::chain::{Config, Target, replay};
use rtscope_event::{MonotonicNs, OriginKind, Tid};

/// 14 wakes 9, which wakes 8, which is preempted and wakes 7.
const THROUGH_THREADS: &str = "
    10 0 sched_switch prev_tid=8 prev_state=1 prev_wait=epoll next_tid=0
    20 1 sched_switch prev_tid=9 prev_state=1 prev_wait=receive next_tid=14
    60 1 sched_waking tid=9 target_cpu=1
    75 1 sched_switch prev_tid=14 prev_state=1 next_tid=9
    90 1 sched_waking tid=8 target_cpu=0
    95 0 sched_switch prev_tid=0 next_tid=8
    100 0 sched_switch prev_tid=8 preempt=1 next_tid=40
    101 1 sched_waking tid=8 target_cpu=0
    105 0 sched_switch prev_tid=40 prev_state=1 next_tid=8
    110 0 sched_waking tid=7 target_cpu=0
    112 0 sched_switch prev_tid=8 prev_state=1 prev_wait=epoll next_tid=7
    150 0 sched_switch prev_tid=7 prev_state=1 next_tid=0";

fn explained(since: u64, events: &str, targets: &[u32]) -> Explanation {
    let recording = recording(since, events);
    let mut config = Config::new(0);
    config.target = Target::Tids(targets.iter().map(|tid| Tid(*tid)).collect());
    config.origins.kinds.push(OriginKind::Task);
    let explainer = Explainer::new(&recording);
    let (responses, _) = replay(&recording, &config);
    let response = responses.iter().rfind(|response| response.tid == Tid(7)).expect("a response");
    explainer.explain(&explainer.report(response, 0, 1))
}

/// One line a thread: who, since when it had waited for what, when that ended, by whom.
fn show(earlier: &[Earlier]) -> Vec<String> {
    let line = |link: &Earlier| {
        let number = |time: Option<u64>| time.map_or("?".to_owned(), |time| time.to_string());
        format!(
            "{} woke {} woken {} by {} waited {} {}",
            link.thread.tid,
            link.woke_ns.0,
            number(link.woken_ns.map(|woken: MonotonicNs| woken.0)),
            actor(link.woken_by.as_ref()),
            number(link.waited_ns),
            link.wait.name(),
        )
    };
    earlier.iter().map(line).collect()
}

#[test]
fn a_waking_by_a_thread_is_followed_back_through_the_threads_before_it() {
    let explanation = explained(0, THROUGH_THREADS, &[7]);
    assert_eq!((explanation.origin.kind, explanation.response_ns), (OriginKind::Task, 40));
    assert_eq!(
        show(&explanation.earlier),
        [
            "8 woke 110 woken 90 by shell waited 80 epoll",
            "9 woke 90 woken 60 by ksoftirqd/0 waited 40 receive",
            "14 woke 60 woken ? by - waited ? none",
        ]
    );
}

#[test]
fn what_is_before_the_recording_is_not_known() {
    let begin = |since| show(&explained(since, THROUGH_THREADS, &[7]).earlier);
    assert_eq!(
        begin(15),
        [
            "8 woke 110 woken 90 by shell waited ? none",
            "9 woke 90 woken 60 by ksoftirqd/0 waited 40 receive",
            "14 woke 60 woken ? by - waited ? none",
        ]
    );
    assert_eq!(begin(65)[1..], ["9 woke 90 woken ? by - waited ? none"]);
}

#[test]
fn an_interrupt_ends_the_way_back() {
    // A target passes no chain on: what 7 responds to is the waking by 8, and an interrupt had woken that.
    let explanation = explained(
        0,
        "10 0 sched_switch prev_tid=8 prev_state=1 prev_wait=read next_tid=0
         30 0 irq_handler_entry irq=36
         35 0 sched_waking tid=8 target_cpu=0
         40 0 irq_handler_exit irq=36 ret=1
         45 0 sched_switch prev_tid=0 next_tid=8
         60 0 sched_waking tid=7 target_cpu=0
         65 0 sched_switch prev_tid=8 prev_state=1 next_tid=7
         90 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        &[7, 8],
    );
    assert_eq!(show(&explanation.earlier), ["8 woke 60 woken 35 by irq36 waited 25 read"]);
}

#[test]
fn two_threads_that_wake_each_other_are_followed_to_an_end() {
    let mut events = String::new();
    for turn in 0..50 {
        let (t, from, to) = if turn % 2 == 0 { (turn * 10, 8, 7) } else { (turn * 10, 7, 8) };
        events.push_str(&format!("{} 0 sched_waking tid={to} target_cpu=0\n", t + 1));
        events.push_str(&format!(
            "{} 0 sched_switch prev_tid={from} prev_state=1 prev_wait=read next_tid={to}\n",
            t + 2
        ));
    }
    let explanation = explained(0, &events, &[7]);
    assert_eq!(explanation.earlier.len(), 12);
    assert!(explanation.earlier.windows(2).all(|pair| {
        let next = pair[0].woken_by.as_ref().and_then(|actor| match actor {
            super::Actor::Thread(thread) => Some(thread.tid),
            _ => None,
        });
        next == Some(pair[1].thread.tid) && pair[0].woken_ns == Some(pair[1].woke_ns)
    }));
}

#[test]
fn a_response_to_an_interrupt_has_nothing_earlier() {
    let explanation = explained(
        0,
        "30 0 irq_handler_entry irq=36
         35 0 sched_waking tid=7 target_cpu=0
         40 0 irq_handler_exit irq=36 ret=1
         45 0 sched_switch prev_tid=0 next_tid=7
         90 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        &[7],
    );
    assert!(explanation.earlier.is_empty());
}
