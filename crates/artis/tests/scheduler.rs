// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler itself on a kernel that can have it, in a virtual machine: it lends, and it takes back.

use rtscope_artis::{Counts, Scheduler, Settings, probe};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Whether this is a machine whose scheduler may be replaced, and one that can do it.
fn skipped(test: &str) -> bool {
    if std::env::var("RTSCOPE_VM").is_err() {
        println!("SKIP: {test}: it replaces the machine's scheduler, and runs in ./x vm only");
        return true;
    }
    if let Some(missing) = probe::probe().missing.first() {
        println!("SKIP: {test}: {missing}");
        return true;
    }
    false
}

/// Programs that run until the test is over.
struct Load(Vec<Child>);

impl Load {
    fn of(script: &str, copies: usize) -> Load {
        let start =
            |_| Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().expect("a shell");
        Load((0..copies).map(start).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until something is so, which the load makes happen.
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

/// Each eviction has ended in one way, but for those that are on their way: no more than there are tasks.
fn accounted(counts: &Counts, tasks: u64) {
    for class in &counts.classes {
        let (begun, ended) = (class.evictions.total(), class.ended.total());
        assert!(ended <= begun && begun - ended <= tasks, "CPU {}: {class:?}", counts.cpu);
        assert_eq!(class.ended.returned, 0, "a system call that ran to its end on a real-time CPU");
    }
}

#[test]
fn root_vm_tasks_are_lent_and_evicted() {
    let test = "root_vm_tasks_are_lent_and_evicted";
    if skipped(test) {
        return;
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
        let load = Load::of(script, 4);
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
        accounted(&counts[1], 5);
        drop(load);
        assert_eq!(scheduler.ended(), None);
    }
}
