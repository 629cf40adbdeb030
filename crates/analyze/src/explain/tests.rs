// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explanations of short hand-made recordings: who is blamed, who is not, and that everything adds up.

use super::{Actor, CauseKind, Explainer, Explanation, Note};
use crate::chain::{Config, EndCondition, Target, replay};
use crate::share;
use rtscope_event::{
    Chain, Comm, CpuHistory, CpuId, End, Event, EventKind, EventSpan, Glob, Irq, LateResponse, MonotonicNs,
    Origin, OriginKind, Pid, Policy, Priority, Recording, SpanEvent, Step, StepKind, TaskInfo, TaskState,
    Tid, VectorKind, WaitKind, parse_event,
};
use std::collections::BTreeMap;
use std::fmt::Write;

mod earlier;
mod handlers;
mod wait;

fn recording(since: u64, text: &str) -> Recording {
    let events: Vec<_> =
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| parse_event(line).unwrap()).collect();
    let mut recording = Recording { events, ..Recording::default() };
    for cpu in 0..2 {
        let complete_since = Some(MonotonicNs(since));
        recording.history.push(CpuHistory { cpu: CpuId(cpu), complete_since, events: 1 });
    }
    for (tid, comm, kthread) in [
        (7, "ctl", false),
        (8, "hog", false),
        (9, "shell", false),
        (14, "ksoftirqd/0", true),
        (40, "irq/36-eth0", true),
    ] {
        recording.names.add_task(TaskInfo {
            tid: Tid(tid),
            pid: Pid(tid),
            ppid: Pid(1),
            comm: Comm::from(comm),
            prio: Priority(120),
            policy: Policy(0),
            kthread,
        });
    }
    recording.names.add_irq(Irq(36), "virtio1-req.0".to_owned());
    recording
}

fn explain_all(recording: &Recording) -> Vec<Explanation> {
    let mut config = Config::new(0);
    config.target = Target::Comm(Glob::new("ctl").unwrap());
    let explainer = Explainer::new(recording);
    let (responses, _) = replay(recording, &config);
    responses.iter().map(|response| explainer.explain(&explainer.report(response, 0, 1))).collect()
}

fn actor(actor: Option<&Actor>) -> String {
    match actor {
        Some(Actor::Thread(thread)) => thread.comm.map_or("?".to_owned(), |comm| comm.to_string()),
        Some(Actor::Irq { irq, .. }) => format!("irq{irq}"),
        Some(Actor::Vector { vector }) => vector.name().to_owned(),
        Some(Actor::Softirq { vec }) => format!("softirq{vec}"),
        Some(Actor::Timer) => "timer".to_owned(),
        Some(Actor::Idle) => "idle".to_owned(),
        None => "-".to_owned(),
    }
}

/// One line a step: `wakeup 70: running thread hog 50, ...`.
fn show(explanation: &Explanation) -> String {
    let mut text = String::new();
    for step in &explanation.steps {
        write!(text, "{} {}:", step.kind.name(), step.duration_ns).unwrap();
        for cause in &step.causes {
            write!(text, " {} {} {},", cause.kind.name(), actor(cause.actor.as_ref()), cause.time_ns)
                .unwrap();
        }
        for note in &step.notes {
            write!(text, " {note:?}").unwrap();
        }
        text.push('\n');
    }
    if let Some(culprit) = &explanation.culprit {
        let (kind, who) = (culprit.kind.name(), actor(culprit.actor.as_ref()));
        writeln!(text, "culprit: {kind} {who} {} in {}", culprit.time_ns, culprit.step).unwrap();
    }
    text
}

fn adds_up(explanation: &Explanation) {
    let steps: u64 = explanation.steps.iter().map(|step| step.duration_ns).sum();
    assert_eq!(steps, explanation.response_ns);
    for step in &explanation.steps {
        let causes: u64 = step.causes.iter().map(|cause| cause.time_ns).sum();
        assert_eq!(causes, step.duration_ns, "{}", show(explanation));
        let shares: u32 = step.causes.iter().map(|cause| cause.share_permille).sum();
        assert_eq!(shares, step.share_permille, "{}", show(explanation));
    }
    let shares: u32 = explanation.steps.iter().map(|step| step.share_permille).sum();
    assert_eq!(shares, if explanation.response_ns == 0 { 0 } else { share::WHOLE });
}

fn check(since: u64, events: &str, expected: &str) -> Explanation {
    let explanation = explain_all(&recording(since, events)).pop().expect("one response");
    adds_up(&explanation);
    let expected: String = expected.lines().map(|line| format!("{}\n", line.trim())).collect();
    let shown: String =
        show(&explanation).lines().map(|line| format!("{}\n", line.trim_end_matches(','))).collect();
    assert_eq!(shown, expected);
    explanation
}

#[test]
fn a_thread_that_keeps_its_cpu_blocks_and_one_that_is_switched_in_interferes() {
    let explanation = check(
        0,
        "50 0 sched_switch prev_tid=0 next_tid=9
         90 0 vector_entry kind=local_timer
         95 0 hrtimer_expire_entry softexpires_ns=80 expires_ns=80
         100 0 sched_waking tid=7 prio=49 target_cpu=0
         105 0 vector_exit kind=local_timer
         200 0 sched_switch prev_tid=9 preempt=1 next_tid=8 next_prio=19
         210 0 irq_handler_entry irq=36
         220 0 irq_handler_exit irq=36 ret=1
         220 0 softirq_entry vec=3
         225 0 softirq_exit vec=3
         900 0 sched_switch prev_tid=8 prev_prio=19 prev_state=1 next_tid=7 next_prio=49
         950 0 sched_switch prev_tid=7 prev_prio=49 prev_state=1 next_tid=0",
        "timer lateness 10: unknown - 10, NotTaken { cpu: CpuId(0), current: Thread(Thread { tid: Tid(9), comm: Some(\"shell\"), prio: Some(Priority(120)), policy: Some(Policy(0)) }), time_ns: 10 }
         timer interrupt 5: handler timer 5
         handler 5: handler timer 5
         wakeup 800: thread interference hog 685, running thread shell 95, IRQ interference irq36 10, IRQ interference local_timer 5, softirq interference softirq3 5
         run 50: own work ctl 50
         culprit: thread interference hog 685 in 3",
    );
    let culprit = explanation.culprit.unwrap();
    let Some(Actor::Thread(hog)) = culprit.actor else { panic!("a thread") };
    assert_eq!(hog.prio, Some(Priority(19)));
    assert_eq!(actor(explanation.woken_by.unwrap().actor.as_ref()), "timer");
    assert_eq!(explanation.unknown_ns, 10);
}

#[test]
fn exit_from_idle_and_handlers_can_be_blamed_for_a_late_interrupt() {
    check(
        0,
        "10 0 cpu_idle state=2
         90 0 cpu_idle state=exit
         95 0 irq_handler_entry irq=36
         150 0 nmi_handler duration_ns=20
         195 0 irq_handler_exit irq=36 ret=1
         200 0 vector_entry kind=local_timer
         205 0 hrtimer_expire_entry softexpires_ns=60 expires_ns=80
         210 0 sched_waking tid=7
         215 0 vector_exit kind=local_timer
         220 0 sched_switch prev_tid=0 next_tid=7
         230 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "timer slack 20: timer slack - 20, LargeSlack
         timer lateness 120: IRQ interference irq36 80, exit from idle - 20, NMI interference - 20
         timer interrupt 5: handler timer 5
         handler 5: handler timer 5
         wakeup 10: IRQ interference local_timer 5, exit from idle - 5
         run 10: own work ctl 10
         culprit: IRQ interference irq36 80 in 1",
    );
}

#[test]
fn timers_served_first_are_told_from_the_interrupt_itself() {
    check(
        0,
        "10 0 cpu_idle state=2
         100 0 vector_entry kind=local_timer
         105 0 hrtimer_expire_entry timer=0x1 softexpires_ns=90 expires_ns=90
         130 0 hrtimer_expire_exit timer=0x1
         131 0 hrtimer_expire_entry timer=0x2 softexpires_ns=90 expires_ns=90
         140 0 sched_waking tid=7
         145 0 vector_exit kind=local_timer
         150 0 sched_switch prev_tid=0 next_tid=7
         170 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "timer lateness 10: exit from idle - 10
         timer interrupt 31: earlier timers - 26, handler timer 5
         handler 9: handler timer 9
         wakeup 10: IRQ interference local_timer 5, exit from idle - 5
         run 20: own work ctl 20
         culprit: earlier timers - 26 in 1",
    );
}

#[test]
fn the_wait_follows_the_thread_from_queue_to_queue() {
    let explanation = check(
        0,
        "10 1 sched_switch prev_tid=0 next_tid=8
         20 0 sched_switch prev_tid=0 next_tid=9
         100 0 irq_handler_entry irq=36
         110 0 sched_waking tid=7 target_cpu=0
         112 0 sched_migrate_task tid=7 orig_cpu=0 dest_cpu=1
         120 0 irq_handler_exit irq=36 ret=1
         200 0 sched_switch prev_tid=9 prev_state=1 next_tid=0
         210 0 sched_migrate_task tid=7 orig_cpu=1 dest_cpu=0
         220 0 sched_switch prev_tid=0 next_tid=7
         240 0 sched_switch prev_tid=7 preempt=1 next_tid=9 next_prio=10
         300 0 sched_switch prev_tid=9 prev_state=1 next_tid=7
         310 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "handler 10: handler irq36 10
         wakeup 110: running thread hog 100, exit from idle - 10
         run 20: own work ctl 20
         preempted 60: thread interference shell 60
         run 10: own work ctl 10
         culprit: running thread hog 100 in 1",
    );
    let preemption = &explanation.preemptions[0];
    assert_eq!(preemption.by.as_ref().unwrap().tid, Tid(9));
    assert_eq!(preemption.by.as_ref().unwrap().prio, Some(Priority(10)));
    assert_eq!((preemption.cpu, preemption.duration_ns), (Some(CpuId(0)), 60));
}

#[test]
fn what_the_recording_does_not_cover_is_nobodys() {
    let explanation = check(
        150,
        "100 0 irq_handler_entry irq=36
         110 0 sched_waking tid=7 target_cpu=0
         120 0 irq_handler_exit irq=36 ret=1
         200 0 sched_switch prev_tid=8 preempt=1 next_tid=7
         240 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "handler 10: unknown - 10, NotRecorded { cpu: CpuId(0), time_ns: 10 }
         wakeup 90: thread interference hog 50, unknown - 40, NotRecorded { cpu: CpuId(0), time_ns: 40 }
         run 40: own work ctl 40
         culprit: unknown - 50 in 1",
    );
    assert_eq!((explanation.unknown_ns, explanation.unknown_permille), (50, 357));
}

#[test]
fn nobody_is_blamed_when_nobody_disturbed() {
    check(
        0,
        "100 0 irq_handler_entry irq=36
         110 0 sched_waking tid=7 target_cpu=0
         120 0 irq_handler_exit irq=36 ret=1
         130 0 sched_switch prev_tid=0 next_tid=7
         500 0 vector_entry kind=local_timer
         520 0 vector_exit kind=local_timer
         900 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "handler 10: handler irq36 10
         wakeup 20: IRQ interference irq36 10, exit from idle - 10
         run 770: own work ctl 750, IRQ interference local_timer 20
         culprit: own work ctl 750 in 2",
    );
}

#[test]
fn a_throttled_thread_is_held_back_and_the_idle_cpu_is_no_culprit() {
    check(
        0,
        "100 0 irq_handler_entry irq=36
         110 0 sched_waking tid=7 target_cpu=0
         120 0 irq_handler_exit irq=36 ret=1
         130 0 sched_switch prev_tid=0 next_tid=7
         200 0 sched_switch prev_tid=7 preempt=1 next_tid=0
         5000200 0 sched_switch prev_tid=0 next_tid=7
         5000300 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "handler 10: handler irq36 10
         wakeup 20: IRQ interference irq36 10, exit from idle - 10
         run 70: own work ctl 70
         preempted 5000000: unknown - 5000000, HeldBack { cpu: CpuId(0), time_ns: 5000000 }
         run 100: own work ctl 100
         culprit: unknown - 5000000 in 3",
    );
}

#[test]
fn softirqs_wait_for_their_thread_and_ipis_fly() {
    check(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=8
         20 1 cpu_idle state=1
         100 0 irq_handler_entry irq=36
         110 0 softirq_raise vec=3
         120 0 irq_handler_exit irq=36 ret=1
         300 0 sched_switch prev_tid=8 preempt=1 next_tid=14 next_kthread=1
         310 0 softirq_entry vec=3
         320 0 vector_entry kind=local_timer
         325 0 vector_exit kind=local_timer
         330 0 sched_switch prev_tid=14 prev_kthread=1 preempt=1 next_tid=9
         350 0 sched_switch prev_tid=9 prev_state=1 next_tid=14 next_kthread=1
         360 0 ipi_send_cpu target_cpu=1 call=1
         370 1 cpu_idle state=exit
         390 1 vector_entry kind=call_function_single
         400 1 sched_waking tid=7 target_cpu=1
         405 1 vector_exit kind=call_function_single
         410 1 sched_switch prev_tid=0 next_tid=7
         450 1 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "handler 10: handler irq36 10
         softirq wait 200: running thread hog 180, IRQ interference irq36 10, work of the chain ksoftirqd/0 10
         softirq 50: softirq of the chain softirq3 25, thread interference shell 20, IRQ interference local_timer 5
         ipi 30: exit from idle - 30
         handler 10: handler call_function_single 10
         wakeup 10: IRQ interference call_function_single 5, exit from idle - 5
         run 40: own work ctl 40
         culprit: running thread hog 180 in 1",
    );
}

#[test]
fn a_timer_left_to_ktimers_waits_for_its_softirq() {
    check(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=8
         100 0 vector_entry kind=local_timer
         110 0 softirq_raise vec=8
         120 0 vector_exit kind=local_timer
         300 0 sched_switch prev_tid=8 preempt=1 next_tid=14 next_kthread=1
         300 0 softirq_entry vec=8
         310 0 hrtimer_expire_entry softexpires_ns=100 expires_ns=100
         320 0 sched_waking tid=7
         330 0 softirq_exit vec=8
         340 0 sched_switch prev_tid=14 prev_kthread=1 prev_state=1 next_tid=7
         350 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "timer lateness 0:
         handler 10: handler local_timer 10
         softirq wait 190: running thread hog 180, IRQ interference local_timer 10
         softirq 10: softirq of the chain softirq8 10
         handler 10: handler timer 10
         wakeup 20: softirq interference softirq8 10, running thread ksoftirqd/0 10
         run 10: own work ctl 10
         culprit: running thread hog 180 in 2",
    );
}

#[test]
fn a_timer_that_waits_for_a_softirq_raised_before_is_late_because_of_threads() {
    check(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=8
         50 0 irq_handler_entry irq=36
         55 0 softirq_raise vec=8
         60 0 irq_handler_exit irq=36 ret=1
         100 0 vector_entry kind=local_timer
         120 0 vector_exit kind=local_timer
         300 0 sched_switch prev_tid=8 preempt=1 next_tid=14 next_kthread=1
         300 0 softirq_entry vec=8
         310 0 hrtimer_expire_entry softexpires_ns=100 expires_ns=100
         320 0 sched_waking tid=7
         330 0 softirq_exit vec=8
         340 0 sched_switch prev_tid=14 prev_kthread=1 prev_state=1 next_tid=7
         350 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "timer lateness 210: thread interference hog 180, IRQ interference local_timer 20, softirq interference softirq8 10
         handler 10: handler timer 10
         wakeup 20: softirq interference softirq8 10, running thread ksoftirqd/0 10
         run 10: own work ctl 10
         culprit: thread interference hog 180 in 0",
    );
}

#[test]
fn queued_work_waits_for_its_worker() {
    check(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=14 next_kthread=1
         15 0 workqueue_execute_start work=0x1
         100 0 irq_handler_entry irq=36
         110 0 workqueue_queue_work work=0x2
         120 0 irq_handler_exit irq=36 ret=1
         200 0 workqueue_execute_end work=0x1
         210 0 workqueue_execute_start work=0x2
         230 0 sched_waking tid=7
         240 0 workqueue_execute_end work=0x2
         250 0 sched_switch prev_tid=14 prev_kthread=1 prev_state=1 next_tid=7
         300 0 sched_switch prev_tid=7 prev_state=1 next_tid=0",
        "handler 10: handler irq36 10
         work wait 100: work of the chain ksoftirqd/0 90, IRQ interference irq36 10
         run 20: work of the chain ksoftirqd/0 20
         wakeup 20: running thread ksoftirqd/0 20
         run 50: own work ctl 50
         culprit: work of the chain ksoftirqd/0 110 in 1",
    );
}

#[test]
fn a_spinlock_is_its_holders_blame() {
    check(
        0,
        "10 0 sched_switch prev_tid=0 next_tid=9
         20 1 sched_switch prev_tid=0 next_tid=8
         100 0 irq_handler_entry irq=36
         110 0 sched_waking tid=7
         120 0 irq_handler_exit irq=36 ret=1
         130 0 sched_switch prev_tid=9 preempt=1 next_tid=7
         150 0 sched_switch prev_tid=7 prev_state=4096 next_tid=9
         200 1 sched_waking tid=7
         220 0 sched_switch prev_tid=9 preempt=1 next_tid=7
         250 0 sched_switch prev_tid=7 prev_state=1 next_tid=9",
        "handler 10: handler irq36 10
         wakeup 20: IRQ interference irq36 10, running thread shell 10
         run 20: own work ctl 20
         lock wait 70: running thread hog 50, running thread shell 20
         run 30: own work ctl 30
         culprit: running thread hog 50 in 3",
    );
}

#[test]
fn a_rewoken_thread_ran_on_its_own_cpu() {
    let text = "10 0 irq_handler_entry irq=36
                13 0 sched_waking tid=7
                15 0 irq_handler_exit irq=36 ret=1
                20 0 sched_switch prev_tid=0 next_tid=7
                30 1 sched_switch prev_tid=0 next_tid=8
                100 1 irq_handler_entry irq=36
                130 1 sched_waking tid=7
                150 1 irq_handler_exit irq=36 ret=1";
    let explanations = explain_all(&recording(0, text));
    let run = explanations[0].steps.last().unwrap();
    assert_eq!((run.causes[0].kind, run.causes[0].time_ns), (CauseKind::OwnWork, 110));
}

#[test]
fn folded_steps_and_missing_wakings_are_unknown() {
    let text = "100 0 irq_handler_entry irq=36
                110 0 sched_waking tid=7
                120 0 irq_handler_exit irq=36 ret=1
                130 0 sched_switch prev_tid=0 next_tid=7
                150 0 sched_switch prev_tid=7 prev_state=1 next_tid=0";
    let mut recording = recording(0, text);
    let (responses, _) = replay(&recording, &Config::new(0));
    recording.events.remove(1);
    let explainer = Explainer::new(&recording);
    let explanation = explainer.explain(&explainer.report(&responses[0], 0, 1));
    adds_up(&explanation);
    assert_eq!(explanation.steps[1].notes, [Note::PlaceUnknown]);
    assert_eq!(explanation.unknown_ns, 20);
}

#[test]
fn the_steps_of_a_folded_chain_are_found_again() {
    let mut text = String::from(
        "10 0 sched_switch prev_tid=0 next_tid=8
         100 0 irq_handler_entry irq=36
         110 0 sched_waking tid=7 target_cpu=0
         120 0 irq_handler_exit irq=36 ret=1
         130 0 sched_switch prev_tid=8 preempt=1 next_tid=7\n",
    );
    for round in 0..8 {
        let start = 200 + round * 100;
        writeln!(text, "{start} 0 sched_switch prev_tid=7 preempt=1 next_tid=8").unwrap();
        writeln!(text, "{} 0 sched_switch prev_tid=8 preempt=1 next_tid=7", start + 60).unwrap();
    }
    text.push_str("1000 0 sched_switch prev_tid=7 prev_state=1 next_tid=0");
    let explanation = explain_all(&recording(0, &text)).pop().unwrap();
    adds_up(&explanation);
    let last = explanation.steps.last().unwrap();
    assert_eq!((last.duration_ns, last.notes.len()), (400, 1));
    let causes: Vec<_> = last.causes.iter().map(|cause| (cause.kind, cause.time_ns)).collect();
    assert_eq!(causes, [(CauseKind::ThreadInterference, 240), (CauseKind::OwnWork, 160)]);
    assert_eq!(explanation.preemptions.len(), 8);
    assert_eq!(explanation.unknown_ns, 0);
    let culprit = explanation.culprit.unwrap();
    assert_eq!((actor(culprit.actor.as_ref()), culprit.time_ns), ("hog".to_owned(), 8 * 60 + 10));
}

/// A deterministic source of numbers (splitmix64), so that a failure repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// Any event in any order: a recording with every kind of contradiction that lost events can leave.
fn chaos(numbers: &mut Numbers) -> Recording {
    let mut recording = recording(0, "");
    let mut time = 1000;
    let mut current = [Tid(0); 2];
    for _ in 0..400 {
        time += numbers.below(50);
        let cpu = numbers.below(2) as usize;
        let tid = Tid([7, 7, 8, 9, 14][numbers.below(5) as usize]);
        let irq = Irq(36);
        let vec = [3, 8][numbers.below(2) as usize];
        let vector = [VectorKind::LocalTimer, VectorKind::CallFunctionSingle][numbers.below(2) as usize];
        let (prio, other) = (Priority(120), CpuId(1 - cpu as u32));
        let kind = match numbers.below(15) {
            0 => EventKind::IrqHandlerEntry { irq },
            1 => EventKind::IrqHandlerExit { irq, ret: numbers.below(4) as i32 },
            2 => EventKind::VectorEntry { kind: vector, vector: 1 },
            3 => EventKind::VectorExit { kind: vector, vector: 1 },
            4 => EventKind::SoftirqRaise { vec },
            5 => EventKind::SoftirqEntry { vec },
            6 => EventKind::SoftirqExit { vec },
            7 => EventKind::HrtimerExpireEntry {
                timer: 1,
                function: 1,
                softexpires_ns: time as i64 - numbers.below(200) as i64,
                expires_ns: time as i64 - numbers.below(100) as i64,
            },
            8 => EventKind::NmiHandler { handler: 1, duration_ns: numbers.below(80) as i64, handled: 1 },
            9 => EventKind::IpiSend { target_cpu: other, call: true, callsite: 0, callback: 0 },
            10 => EventKind::SchedMigrateTask { tid, prio, orig_cpu: other, dest_cpu: CpuId(cpu as u32) },
            11 | 12 => EventKind::SchedWaking {
                tid,
                prio,
                target_cpu: CpuId(numbers.below(2) as u32),
                kthread: tid.0 == 14,
                wait: WaitKind::None,
            },
            _ => {
                let prev_tid = if numbers.below(20) == 0 { tid } else { current[cpu] };
                let next_tid = Tid([0, 7, 7, 8, 9, 14][numbers.below(6) as usize]);
                current[cpu] = next_tid;
                EventKind::SchedSwitch {
                    prev_tid,
                    prev_prio: prio,
                    prev_state: TaskState(numbers.below(2) as u32),
                    preempt: numbers.below(4) == 0,
                    prev_kthread: [0, 14].contains(&prev_tid.0),
                    next_tid,
                    next_prio: prio,
                    next_kthread: [0, 14].contains(&next_tid.0),
                    prev_wait: WaitKind::None,
                    prev_wait_on: 0,
                }
            }
        };
        if numbers.below(10) > 0 {
            recording.events.push(Event { time: MonotonicNs(time), cpu: CpuId(cpu as u32), kind });
        }
    }
    for history in &mut recording.history {
        history.complete_since = Some(MonotonicNs(1000 + numbers.below(3000)));
    }
    recording
}

#[test]
fn everything_adds_up_whatever_was_recorded() {
    let mut numbers = Numbers(1);
    let mut explained = 0;
    for _ in 0..300 {
        let recording = chaos(&mut numbers);
        for explanation in explain_all(&recording) {
            adds_up(&explanation);
            explained += 1;
        }
    }
    assert!(explained > 1000, "only {explained} responses");
}

/// What is explained of the time between two events of programs, in threads `from` and `to`.
fn between(recording: &Recording, (from, from_ns): (u32, u64), (to, to_ns): (u32, u64)) -> Explanation {
    let event = |tid: u32, time_ns: u64| SpanEvent {
        event: "ctl:event".to_owned(),
        time_ns: MonotonicNs(time_ns),
        tid: Tid(tid),
        cpu: None,
        fields: BTreeMap::new(),
    };
    let (kind, id, cpu) = (OriginKind::Event, from, CpuId(0));
    let origin = Origin { kind, id, cpu, time_ns: MonotonicNs(from_ns) };
    let duration_ns = to_ns - from_ns;
    let step = Step { kind: StepKind::Interval, id: to, cpu, duration_ns, wait: WaitKind::None };
    let late = LateResponse {
        tracker: rtscope_event::Tracker::Response,
        instance: 0,
        sequence: 1,
        cpu,
        end_ns: MonotonicNs(to_ns),
        end: End::Event,
        threshold_ns: 1,
        tid: Tid(to),
        pid: Pid(to),
        prio: Priority(120),
        comm: Comm::default(),
        snapshot: None,
        chain: Chain { origin, steps: vec![step], merged: 0, others: vec![], busy: false },
        events: Some(Box::new(EventSpan {
            from: event(from, from_ns),
            to: event(to, to_ns),
            noticed_after_ns: 5,
            through: Vec::new(),
            account: None,
        })),
        call: None,
        lock: None,
        block: None,
        section: None,
        stacks: None,
    };
    Explainer::new(recording).explain(&late)
}

/// Thread 7 waits for a lock that 9 holds, which 8 keeps from running; then 7 is preempted.
const LOCKED: &str = "
    50 0 sched_switch prev_tid=9 prev_prio=120 prev_state=0 next_tid=0
    100 0 sched_switch prev_tid=0 next_tid=7 next_prio=19
    200 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=futex next_tid=8 next_prio=39
    500 0 sched_switch prev_tid=8 prev_prio=39 prev_state=1 next_tid=9 next_prio=120
    560 0 sched_waking tid=7 target_cpu=0
    570 0 sched_switch prev_tid=9 prev_prio=120 prev_state=0 next_tid=7 next_prio=19
    600 0 sched_switch prev_tid=7 prev_prio=19 prev_state=0 next_tid=8 next_prio=39
    640 0 sched_switch prev_tid=8 prev_prio=39 prev_state=1 next_tid=7 next_prio=19
    900 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 next_tid=0";

#[test]
fn between_two_events_of_a_thread_its_steps_are_those_of_the_recording() {
    let recording = recording(0, LOCKED);
    let explanation = between(&recording, (7, 150), (7, 700));
    let steps: Vec<_> = explanation.steps.iter().map(|step| (step.kind, step.duration_ns)).collect();
    let expected = [
        (StepKind::Run, 50),
        (StepKind::Wait, 360),
        (StepKind::Wakeup, 10),
        (StepKind::Run, 30),
        (StepKind::Preempted, 40),
        (StepKind::Run, 60),
    ];
    assert_eq!(steps, expected);
    assert_eq!((explanation.response_ns, explanation.unknown_ns), (550, 0));
    let [wait] = &explanation.waits[..] else { panic!("{:?}", explanation.waits) };
    assert_eq!((wait.wait, wait.duration_ns), (WaitKind::Futex, 360));
    assert_eq!(wait.woken_by.as_ref().map(|thread| thread.tid), Some(Tid(9)));
    let kept = wait.kept.as_ref().unwrap();
    assert!(wait.is_inversion && (kept.thread.tid, kept.holder.tid) == (Tid(8), Tid(9)), "{wait:?}");
    assert_eq!(explanation.preemptions[0].by.as_ref().map(|thread| thread.tid), Some(Tid(8)));
    assert_eq!(explanation.thread.prio, Some(Priority(19)));
}

/// Thread 7 waits twice for a futex, for different threads, from its waking at 100 until it sleeps again.
const TWICE: &str = "
    10 0 vector_entry kind=local_timer
    11 0 hrtimer_expire_entry softexpires_ns=10 expires_ns=10
    12 0 sched_waking tid=7 prio=19
    13 0 hrtimer_expire_exit
    14 0 vector_exit kind=local_timer
    20 0 sched_switch prev_tid=0 next_tid=7 next_prio=19
    40 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=sleep next_tid=0
    100 0 vector_entry kind=local_timer
    101 0 hrtimer_expire_entry softexpires_ns=100 expires_ns=100
    102 0 sched_waking tid=7 prio=19
    103 0 hrtimer_expire_exit
    104 0 vector_exit kind=local_timer
    110 0 sched_switch prev_tid=0 next_tid=7 next_prio=19
    200 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=futex next_tid=9
    300 0 sched_waking tid=7 prio=19
    310 0 sched_switch prev_tid=9 preempt=1 next_tid=7 next_prio=19
    400 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=futex next_tid=8
    600 0 sched_waking tid=7 prio=19
    620 0 sched_switch prev_tid=8 preempt=1 next_tid=7 next_prio=19
    700 0 sched_switch prev_tid=7 prev_prio=19 prev_state=1 prev_wait=sleep next_tid=0";

#[test]
fn two_waits_of_one_kind_are_two_steps() {
    let recording = recording(0, TWICE);
    let mut config = Config::new(0);
    config.end = EndCondition::Cycle;
    config.target = Target::Comm(Glob::new("ctl").unwrap());
    let (responses, _) = replay(&recording, &config);
    let explainer = Explainer::new(&recording);
    let cycle = responses.last().expect("a cycle");
    let cycle = explainer.explain(&explainer.report(cycle, 0, 1));
    let interval = between(&recording, (7, 150), (7, 650));
    for explanation in [cycle, interval] {
        let waits = explanation.steps.iter().filter(|step| step.kind == StepKind::Wait);
        let waits: Vec<_> = waits.map(|step| (step.wait, step.duration_ns)).collect();
        assert_eq!(waits, [(WaitKind::Futex, 100), (WaitKind::Futex, 200)], "{explanation:?}");
        // Each with its own thread that ended it, the longest first.
        let woken_by = explanation
            .waits
            .iter()
            .map(|wait| (wait.duration_ns, wait.woken_by.as_ref().map(|thread| thread.tid)));
        assert_eq!(woken_by.collect::<Vec<_>>(), [(200, Some(Tid(8))), (100, Some(Tid(9)))]);
    }
}

#[test]
fn what_is_before_the_recording_is_unknown_between_two_events_too() {
    let explanation = between(&recording(120, LOCKED), (7, 50), (7, 250));
    assert_eq!(explanation.steps[0].kind, StepKind::Interval);
    assert_eq!((explanation.steps[0].duration_ns, explanation.unknown_ns), (70, 70));
    let rest: Vec<_> = explanation.steps[1..].iter().map(|step| (step.kind, step.duration_ns)).collect();
    assert_eq!(rest, [(StepKind::Run, 80), (StepKind::Wait, 50)]);
}

#[test]
fn an_interval_that_another_thread_began_is_that_of_the_thread_in_which_it_ended() {
    // 9 asks 7 while that waits already.
    let explanation = between(&recording(0, LOCKED), (9, 520), (7, 590));
    let steps: Vec<_> = explanation.steps.iter().map(|step| (step.kind, step.duration_ns)).collect();
    assert_eq!(steps, [(StepKind::Wait, 40), (StepKind::Wakeup, 10), (StepKind::Run, 20)]);
    assert_eq!(explanation.steps[0].wait, WaitKind::Futex);
}

#[test]
fn of_an_interval_with_too_many_steps_the_rest_is_one_entry_that_adds_up() {
    let mut text = String::from("100 0 sched_switch prev_tid=0 next_tid=7\n");
    for turn in 0..40 {
        let at = 200 + turn * 100;
        writeln!(text, "{at} 0 sched_switch prev_tid=7 prev_state=0 next_tid=8").unwrap();
        writeln!(text, "{} 0 sched_switch prev_tid=8 prev_state=1 next_tid=7", at + 30).unwrap();
    }
    text.push_str("6000 0 sched_switch prev_tid=7 prev_state=1 next_tid=0\n");
    let explanation = between(&recording(0, &text), (7, 150), (7, 5000));
    assert_eq!((explanation.steps.len(), explanation.steps[30].kind), (31, StepKind::More));
    assert_eq!(explanation.steps.iter().map(|step| step.duration_ns).sum::<u64>(), 4850);
    let of = |kind| {
        let causes = explanation.steps.iter().flat_map(|step| &step.causes);
        causes.filter(|cause| cause.kind == kind).map(|cause| cause.time_ns).sum::<u64>()
    };
    assert_eq!((of(CauseKind::ThreadInterference), of(CauseKind::Unknown)), (40 * 30, 0));
}
