// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short histories with known figures, and long ones of which only some things are certain.

use super::{Irqs, Tasks, TasksReport};
use crate::analysis::analyze;
use rtscope_event::{
    CpuHistory, CpuId, Event, EventKind, Irq, Loss, LossCause, MonotonicNs, Names, Pid, Priority, Recording,
    RecordingSource, TaskState, Tid, WaitKind,
};

const SLEEPS: TaskState = TaskState(1);
const WAITS_FOR_DISK: TaskState = TaskState(2);
const DEAD: TaskState = TaskState(0x80);

fn at(time: u64, cpu: u32, kind: EventKind) -> Event {
    Event { time: MonotonicNs(time), cpu: CpuId(cpu), kind }
}

fn switch(time: u64, cpu: u32, prev: u32, state: TaskState, next: u32) -> Event {
    let kind = EventKind::SchedSwitch {
        prev_tid: Tid(prev),
        prev_prio: Priority(120),
        prev_state: state,
        preempt: false,
        prev_kthread: false,
        next_tid: Tid(next),
        next_prio: Priority(120),
        next_kthread: false,
        prev_wait: WaitKind::None,
        prev_wait_on: 0,
    };
    at(time, cpu, kind)
}

fn waking(time: u64, cpu: u32, tid: u32) -> Event {
    let kind = EventKind::SchedWaking {
        tid: Tid(tid),
        prio: Priority(120),
        target_cpu: CpuId(cpu),
        kthread: false,
        wait: WaitKind::None,
    };
    at(time, cpu, kind)
}

fn recording(events: Vec<Event>) -> Recording {
    Recording { events, names: Names::default(), losses: Vec::new(), history: Vec::new() }
}

fn tasks(events: Vec<Event>) -> TasksReport {
    analyze(&mut RecordingSource::new(&recording(events)), Tasks::default(), &mut |_| ()).0
}

fn task(report: &TasksReport, tid: u32) -> &super::TaskReport {
    report.tasks.iter().find(|task| task.tid == tid).unwrap()
}

#[test]
fn time_goes_to_the_state_that_a_task_was_in() {
    let report = tasks(vec![
        switch(1000, 0, 0, TaskState::RUNNABLE, 7),
        switch(1300, 0, 7, WAITS_FOR_DISK, 8),
        waking(1500, 1, 7),
        switch(1600, 0, 8, TaskState::RUNNABLE, 7),
        switch(1700, 0, 7, SLEEPS, 8),
        switch(1750, 0, 8, SLEEPS, 0),
        waking(2000, 1, 7),
        switch(2001, 1, 0, TaskState::RUNNABLE, 7),
        switch(2005, 1, 7, SLEEPS, 0),
    ]);
    let seven = task(&report, 7);
    assert_eq!((seven.running.count, seven.running.total_ns), (3, 300 + 100 + 4));
    assert_eq!((seven.running.longest_ns, seven.running.longest_at_ns), (300, Some(1300)));
    assert_eq!(
        (seven.woken_wait.count, seven.woken_wait.total_ns, seven.woken_wait.longest_ns),
        (2, 101, 100)
    );
    assert_eq!((seven.wakeups, seven.voluntary_switches, seven.involuntary_switches), (2, 3, 0));
    let waits: Vec<_> = seven
        .blocked
        .iter()
        .map(|blocked| (blocked.state, blocked.waits.count, blocked.waits.total_ns))
        .collect();
    // The last wait goes on until the end of the recording, which is at its beginning.
    assert_eq!(waits, [("interruptible", 2, 300), ("uninterruptible", 1, 200)]);
    let eight = task(&report, 8);
    assert_eq!((eight.running.total_ns, eight.preempted_wait.total_ns), (300 + 50, 100));
    assert_eq!((eight.voluntary_switches, eight.involuntary_switches), (1, 1));
    let cpus: Vec<_> = report.cpus.iter().map(|cpu| (cpu.busy_ns, cpu.idle_ns)).collect();
    assert_eq!(cpus, [(750, 255), (4, 0)]);
    assert!(report.missing.is_nothing());
}

#[test]
fn a_waking_that_is_older_than_the_switch_counts_from_the_switch() {
    let report = tasks(vec![
        switch(1000, 0, 0, TaskState::RUNNABLE, 7),
        waking(1299, 1, 7),
        switch(1300, 0, 7, SLEEPS, 0),
        switch(1350, 0, 0, TaskState::RUNNABLE, 7),
        // This one comes to nothing: a wait follows that another one ends.
        waking(1360, 1, 7),
        switch(1400, 0, 7, SLEEPS, 0),
        waking(1500, 1, 7),
        switch(1510, 0, 0, TaskState::RUNNABLE, 7),
        switch(1520, 0, 7, SLEEPS, 0),
    ]);
    let seven = task(&report, 7);
    assert_eq!((seven.woken_wait.count, seven.woken_wait.total_ns), (2, 50 + 10));
    assert_eq!(seven.blocked_ns(), 100);
    assert_eq!(seven.wakeups, 2);
}

#[test]
fn what_contradicts_itself_belongs_to_nobody() {
    let report = tasks(vec![
        switch(1000, 0, 0, TaskState::RUNNABLE, 7),
        // The switch from 7 to 9 is missing.
        switch(1900, 0, 9, SLEEPS, 0),
        switch(2000, 0, 0, TaskState::RUNNABLE, 7),
        switch(2010, 0, 7, SLEEPS, 0),
    ]);
    assert_eq!(report.missing.gaps, 1);
    assert_eq!(task(&report, 7).running.total_ns, 10);
    assert_eq!(task(&report, 9).running.count, 0);
    assert_eq!((report.cpus[0].busy_ns, report.cpus[0].idle_ns), (10, 100));
}

#[test]
fn a_number_that_is_used_again_is_another_task() {
    let fork = EventKind::ProcessFork {
        parent_tid: Tid(7),
        parent_pid: Pid(7),
        child_tid: Tid(8),
        child_pid: Pid(8),
        child_comm: "again".into(),
    };
    let exit = EventKind::ProcessExit { tid: Tid(8), pid: Pid(8), prio: Priority(120), comm: "first".into() };
    let report = tasks(vec![
        switch(1000, 0, 0, TaskState::RUNNABLE, 8),
        at(1100, 0, exit),
        switch(1200, 0, 8, DEAD, 0),
        at(1250, 1, fork),
        switch(1300, 0, 0, TaskState::RUNNABLE, 8),
        switch(1350, 0, 8, SLEEPS, 0),
    ]);
    let named: Vec<_> = report
        .tasks
        .iter()
        .filter(|task| task.tid == 8)
        .map(|task| (task.comm.as_str(), task.ended, task.running.total_ns))
        .collect();
    assert_eq!(named, [("first", true, 200), ("again", false, 50)]);
}

#[test]
fn after_a_loss_nobody_knows_who_runs() {
    let mut recording =
        recording(vec![switch(1000, 0, 0, TaskState::RUNNABLE, 7), switch(1100, 0, 7, SLEEPS, 0)]);
    recording.losses.push(Loss { cpu: Some(CpuId(0)), cause: LossCause::Overwritten, count: Some(3) });
    let report = analyze(&mut RecordingSource::new(&recording), Tasks::default(), &mut |_| ()).0;
    assert_eq!((report.missing.events, report.missing.uncounted), (3, false));
}

#[test]
fn interrupts_nest_and_softirqs_in_threads_leave_with_them() {
    let hard = |time, cpu, entry| {
        let irq = Irq(9);
        let kind = if entry {
            EventKind::IrqHandlerEntry { irq }
        } else {
            EventKind::IrqHandlerExit { irq, ret: 1 }
        };
        at(time, cpu, kind)
    };
    let events = vec![
        switch(900, 0, 0, TaskState::RUNNABLE, 7),
        at(950, 0, EventKind::SoftirqRaise { vec: 3 }),
        at(960, 0, EventKind::SoftirqRaise { vec: 3 }),
        at(1000, 0, EventKind::SoftirqEntry { vec: 3 }),
        hard(1010, 0, true),
        hard(1040, 0, false),
        switch(1050, 0, 7, TaskState::RUNNABLE, 8),
        hard(1060, 0, true),
        hard(1061, 0, false),
        switch(1090, 0, 8, SLEEPS, 0),
        // The thread goes on on another CPU.
        switch(1100, 1, 0, TaskState::RUNNABLE, 7),
        at(1120, 1, EventKind::SoftirqExit { vec: 3 }),
        hard(1200, 0, true),
    ];
    let report = analyze(&mut RecordingSource::new(&recording(events)), Irqs::default(), &mut |_| ());
    let [irq, softirq] = report.rows.as_slice() else { panic!("{report:?}") };
    assert_eq!((irq.whole.count, irq.whole.total_ns, irq.whole.longest_ns, irq.without_end), (2, 31, 30, 1));
    assert_eq!(irq.cpus.values().copied().collect::<Vec<_>>(), [3]);
    // 1000 to 1050 and 1100 to 1120, with 30 in the interrupt.
    assert_eq!((softirq.whole.total_ns, softirq.own_ns), (70, 40));
    assert_eq!(softirq.name.as_deref(), Some("NET_RX"));
    assert_eq!(softirq.wait.map(|wait| (wait.count, wait.total_ns)), Some((1, 50)));
}

#[test]
fn who_leaves_a_cpu_first_has_run_there_since_the_beginning_and_nobody_else() {
    let mut recording = recording(vec![
        switch(1000, 0, 7, SLEEPS, 0),
        // The switch to 9 is missing.
        switch(1500, 0, 9, SLEEPS, 7),
        switch(1600, 0, 7, SLEEPS, 0),
    ]);
    recording.history.push(CpuHistory { cpu: CpuId(0), complete_since: Some(MonotonicNs(400)), events: 3 });
    let report = analyze(&mut RecordingSource::new(&recording), Tasks::default(), &mut |_| ()).0;
    assert_eq!(task(&report, 7).running.total_ns, 600 + 100);
    assert_eq!(task(&report, 9).running.total_ns, 0);
    assert_eq!((report.cpus[0].busy_ns, report.cpus[0].idle_ns), (700, 0));
    assert_eq!(report.missing.gaps, 1);
}

#[test]
fn of_interrupts_without_ends_only_the_last_are_remembered() {
    let begins = (0..1000).flat_map(|n| {
        let time = 1000 + 10 * n;
        [at(time, 0, EventKind::SoftirqEntry { vec: 3 }), switch(time + 1, 0, 7, TaskState::RUNNABLE, 7)]
    });
    let ends = (0..1000).map(|n| at(20_000 + n, 0, EventKind::SoftirqExit { vec: 3 }));
    let recording = recording(begins.chain(ends).collect());
    let report = analyze(&mut RecordingSource::new(&recording), Irqs::default(), &mut |_| ());
    assert_eq!((report.rows[0].whole.count, report.rows[0].without_end), (32, 968));
}

#[test]
fn what_was_before_says_who_ran_and_who_waited_and_does_not_count() {
    let history = || {
        vec![
            switch(1000, 0, 0, TaskState::RUNNABLE, 7),
            switch(1300, 0, 7, WAITS_FOR_DISK, 8),
            waking(1500, 1, 7),
            switch(1600, 0, 8, TaskState::RUNNABLE, 7),
            switch(1700, 0, 7, SLEEPS, 8),
            waking(1750, 1, 7),
            switch(1900, 0, 8, SLEEPS, 7),
            switch(1950, 0, 7, DEAD, 0),
        ]
    };
    let since = |since_ns: u64, events| {
        let analysis = Tasks::since(Some(since_ns as i64));
        analyze(&mut RecordingSource::new(&recording(events)), analysis, &mut |_| ()).0
    };
    let report = since(1400, history());
    let (seven, eight) = (task(&report, 7), task(&report, 8));
    assert_eq!((seven.running.count, seven.running.total_ns), (2, 100 + 50));
    assert_eq!((seven.woken_wait.count, seven.woken_wait.total_ns), (2, 100 + 150));
    let waits: Vec<_> = seven.blocked.iter().map(|blocked| (blocked.state, blocked.waits.total_ns)).collect();
    assert_eq!(waits, [("uninterruptible", 100), ("interruptible", 50)]);
    assert_eq!((seven.wakeups, seven.voluntary_switches, seven.involuntary_switches), (2, 2, 0));
    assert_eq!((eight.running.total_ns, eight.preempted_wait.total_ns), (200 + 200, 100));
    assert_eq!((report.cpus[0].busy_ns, report.cpus[0].idle_ns), (550, 0));
    assert_eq!(report.span.length_ns(), 550);
    // Wherever it is divided, the parts are the whole; a task that nothing happens to in a part is not listed there.
    let sums = |report: &TasksReport| {
        let of = |task: &super::TaskReport| {
            [task.running.total_ns, task.woken_wait.total_ns, task.preempted_wait.total_ns, task.blocked_ns()]
        };
        let mut sums = [0; 4];
        report.tasks.iter().for_each(|task| (0..4).for_each(|place| sums[place] += of(task)[place]));
        sums
    };
    let whole = sums(&tasks(history()));
    for middle in (1001..1900).filter(|time| history().iter().all(|event| event.time.0 != *time)) {
        let mut before: Vec<Event> = history().into_iter().filter(|event| event.time.0 < middle).collect();
        before.push(at(middle, 1, EventKind::SoftirqRaise { vec: 3 }));
        let (before, after) = (sums(&tasks(before)), sums(&since(middle, history())));
        let both: Vec<u64> = before.iter().zip(after).map(|(one, other)| one + other).collect();
        assert_eq!(both, whole, "divided at {middle}");
    }
    assert!(since(2000, history()).tasks.is_empty(), "nothing happened then");
}
