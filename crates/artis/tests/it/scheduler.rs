// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler itself on a kernel that can have it, in a virtual machine: it lends, and it takes back.

use rtscope_artis::{Counts, Scheduler, Settings, probe};
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::skip;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// This many shells with the same script.
fn load(script: &str, copies: usize) -> Vec<KilledWithTest> {
    let shell = |_| {
        let mut command = Command::new("sh");
        KilledWithTest::start(command.args(["-c", script]).stdout(Stdio::null())).expect("a shell")
    };
    (0..copies).map(shell).collect()
}

/// Waits until a condition holds that the load brings about.
fn wait_until(scheduler: &Scheduler, what: &str, is_so: impl Fn(&[Counts]) -> bool) -> Vec<Counts> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let counts = scheduler.counts().expect("read");
        if is_so(&counts) {
            return counts;
        }
        assert_eq!(scheduler.ended(), None, "{what}");
        assert!(Instant::now() < end, "never: {what}: {counts:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Each eviction has ended in one way, except those that are still under way: no more than there are tasks.
fn assert_evictions_ended(counts: &Counts, tasks: u64) {
    for class in &counts.classes {
        let (begun, ended) = (class.evictions.total(), class.ended.total());
        assert!(ended <= begun && begun - ended <= tasks, "CPU {}: {class:?}", counts.cpu);
        assert_eq!(class.ended.returned, 0, "a system call that ran to its end on a real-time CPU");
    }
}

// NEEDS: verifier, sched_ext, machine
#[test]
fn root_vm_tasks_are_lent_and_evicted() {
    if skip::outside_guests() {
        return;
    }
    if let Some(missing) = probe::probe().missing.first() {
        skip!("{missing}");
    }
    for (kind, script) in [
        (
            "computing",
            "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; read x < /proc/uptime; done",
        ),
        (
            "calling",
            "while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; read x < /proc/uptime; done",
        ),
    ] {
        let mut scheduler = Scheduler::load(&Settings::new(vec![1], vec![0], vec![])).expect("loads");
        scheduler.attach().expect("attaches");
        let load = load(script, 4);
        let counts =
            wait_until(&scheduler, "tasks are evicted", |counts| counts[1].classes[2].ended.moved >= 100);
        println!("{kind}: {:?} {:?}", counts[0].classes[2], counts[1].classes[2]);
        println!(
            "delay p50 {:?} p99 {:?} max {} emptied {} full {}",
            counts[1].delays.percentile_ns(500),
            counts[1].delays.percentile_ns(990),
            counts[1].delays.max_ns,
            counts[1].emptied,
            counts[1].ring_full
        );
        assert!(counts[1].classes[2].ran_ns > 0 && counts[1].classes[2].moved_here > 0);
        assert_evictions_ended(&counts[1], 5);
        drop(load);
        assert_eq!(scheduler.ended(), None);
    }
}
