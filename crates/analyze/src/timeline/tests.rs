// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timelines of short hand-made recordings, written as text.

use super::{Activity, Timeline};
use rtscope_event::{CpuHistory, CpuId, MonotonicNs, Priority, Recording, Tid, parse_event};

fn timeline(since: u64, text: &str) -> Timeline {
    let events: Vec<_> =
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| parse_event(line).unwrap()).collect();
    let history = vec![CpuHistory {
        cpu: CpuId(0),
        complete_since: Some(MonotonicNs(since)),
        events: events.len() as u64,
    }];
    Timeline::new(&Recording { events, history, ..Recording::default() })
}

fn show(timeline: &Timeline, from: u64, to: u64) -> String {
    let segments = timeline.slice(CpuId(0), MonotonicNs(from), MonotonicNs(to));
    let mut at = from;
    let mut text = Vec::new();
    for segment in segments {
        assert_eq!(segment.from.0, at, "segments tile the interval");
        at = segment.to.0;
        let what = match segment.what {
            Activity::Nmi => "nmi".to_owned(),
            Activity::Irq(irq) => format!("irq{irq}"),
            Activity::Vector(kind) => kind.name().to_owned(),
            Activity::Softirq(vec) => format!("softirq{vec}"),
            Activity::Thread(tid) => format!("t{tid}"),
            Activity::Idle => "idle".to_owned(),
            Activity::Unknown => "?".to_owned(),
        };
        text.push(format!("{what} {}", segment.to.0));
    }
    assert_eq!(at, to, "segments tile the interval");
    text.join(", ")
}

#[test]
fn inner_contexts_are_taken_out_of_outer_ones() {
    let timeline = timeline(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=7
         20 0 irq_handler_entry irq=5
         30 0 irq_handler_exit irq=5 ret=1
         31 0 softirq_entry vec=3
         40 0 vector_entry kind=local_timer
         48 0 nmi_handler duration_ns=3
         50 0 vector_exit kind=local_timer
         60 0 softirq_exit vec=3
         70 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
    );
    assert_eq!(
        show(&timeline, 0, 80),
        "idle 10, t7 20, irq5 30, irq5 31, softirq3 40, local_timer 45, nmi 48, local_timer 50, softirq3 60, t7 70, ? 80"
    );
    assert_eq!(show(&timeline, 22, 26), "irq5 26");
    assert_eq!(timeline.at(CpuId(0), MonotonicNs(31)).unwrap().what, Activity::Softirq(3));
    assert_eq!(timeline.slice(CpuId(1), MonotonicNs(0), MonotonicNs(9))[0].what, Activity::Unknown);
}

#[test]
fn the_first_events_tell_what_ran_before_them() {
    let inside_irq = "20 0 irq_handler_exit irq=5 ret=1
                      30 0 sched_switch prev_tid=7 prev_state=1 next_tid=0
                      40 0 cpu_idle state=1";
    assert_eq!(show(&timeline(10, inside_irq), 0, 40), "? 10, irq5 20, t7 30, idle 40");

    let inside_softirq = "20 0 irq_handler_entry irq=5
                          25 0 irq_handler_exit irq=5 ret=1
                          30 0 softirq_exit vec=1
                          35 0 sched_switch prev_tid=7 prev_state=1 next_tid=0";
    assert_eq!(show(&timeline(10, inside_softirq), 10, 35), "softirq1 20, irq5 25, softirq1 30, t7 35");

    assert_eq!(show(&timeline(10, "20 0 cpu_idle state=exit"), 10, 20), "idle 20");
    // Events from before the history is complete tell nothing.
    assert_eq!(
        show(&timeline(30, "5 0 sched_switch prev_tid=1 next_tid=2\n40 0 softirq_raise vec=1"), 0, 40),
        "? 30, ? 40"
    );
}

#[test]
fn what_lost_events_leave_open_is_unknown() {
    let lost_exit = "10 0 sched_switch prev_tid=0 next_tid=7
                     20 0 irq_handler_entry irq=5
                     40 0 sched_switch prev_tid=7 next_tid=8
                     50 0 softirq_raise vec=1";
    assert_eq!(show(&timeline(0, lost_exit), 0, 50), "idle 10, t7 20, ? 40, t8 50");

    let lost_switch = "10 0 sched_switch prev_tid=0 next_tid=7
                       40 0 sched_switch prev_tid=9 next_tid=8
                       50 0 softirq_raise vec=1";
    assert_eq!(show(&timeline(0, lost_switch), 0, 50), "idle 10, ? 40, t8 50");

    let lost_entry = "10 0 sched_switch prev_tid=0 next_tid=7
                      20 0 softirq_raise vec=1
                      40 0 vector_exit kind=local_timer
                      50 0 softirq_raise vec=1";
    assert_eq!(show(&timeline(0, lost_entry), 0, 50), "idle 10, t7 20, ? 40, t7 50");
}

#[test]
fn a_softirq_thread_that_is_preempted_comes_back_to_its_softirq() {
    let timeline = timeline(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=14 next_kthread=1
         20 0 softirq_entry vec=3
         30 0 sched_switch prev_tid=14 prev_kthread=1 preempt=1 next_tid=8
         40 0 sched_switch prev_tid=8 prev_state=1 next_tid=14 next_kthread=1
         50 0 softirq_exit vec=3
         60 0 softirq_raise vec=3",
    );
    assert_eq!(show(&timeline, 10, 60), "t14 20, softirq3 30, t8 40, softirq3 50, t14 60");
}

#[test]
fn the_way_from_a_handler_to_its_softirq_is_the_interrupts() {
    let text = "10 0 sched_switch prev_tid=0 next_tid=7
                20 0 irq_handler_entry irq=5
                30 0 irq_handler_exit irq=5 ret=1
                2030 0 softirq_entry vec=4
                2040 0 softirq_exit vec=4
                3000 0 irq_handler_entry irq=5
                3010 0 irq_handler_exit irq=5 ret=1
                90010 0 softirq_entry vec=4
                90020 0 softirq_exit vec=4";
    let shown = show(&timeline(0, text), 20, 90_020);
    // The second softirq waited for the thread to enable softirqs again.
    let expected = "irq5 30, irq5 2030, softirq4 2040, t7 3000, irq5 3010, t7 90010, softirq4 90020";
    assert_eq!(shown, expected);
}

#[test]
fn an_nmi_never_reaches_back_over_another_event() {
    let text = "10 0 sched_switch prev_tid=0 next_tid=7
                20 0 softirq_raise vec=1
                30 0 nmi_handler duration_ns=500";
    assert_eq!(show(&timeline(0, text), 0, 30), "idle 10, t7 20, nmi 30");
}

#[test]
fn priorities_hold_from_the_event_that_tells_them() {
    let timeline = timeline(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=7 next_prio=110
         20 0 sched_pi_setprio tid=7 old_prio=110 new_prio=9
         30 0 sched_switch prev_tid=7 prev_prio=9 next_tid=0",
    );
    let at = |time| timeline.priority(Tid(7), MonotonicNs(time));
    assert_eq!((at(5), at(15), at(25)), (Some(Priority(110)), Some(Priority(110)), Some(Priority(9))));
    assert_eq!(timeline.priority(Tid(8), MonotonicNs(5)), None);
}
