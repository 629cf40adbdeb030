// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler itself on a kernel that can have it, in a virtual machine: it lends, and it takes back.

use rtscope_artis::{Counts, Scheduler, Settings, grant, probe};
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::skip;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
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

/// A shell with all that it starts, which ends with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: a signal to the group of our own child, which was not waited for yet.
        unsafe { nix::libc::kill(-(self.0.id() as nix::libc::pid_t), nix::libc::SIGKILL) };
        self.0.wait().expect("it ends");
    }
}

/// A shell that waits for a line, has the policy SCHED_EXT by then, and runs the script.
fn with_the_policy(script: &str, prepare: impl Fn(u32)) -> Group {
    const SCHED_EXT: nix::libc::c_int = 7;
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read line; {script}")]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = Group(command.process_group(0).spawn().expect("a shell"));
    let parameters = nix::libc::sched_param { sched_priority: 0 };
    let pid = shell.0.id();
    // SAFETY: the pointer is to a live structure; the process is our child.
    let refused =
        unsafe { nix::libc::sched_setscheduler(pid as nix::libc::pid_t, SCHED_EXT, &raw const parameters) };
    assert_eq!(refused, 0, "{}", std::io::Error::last_os_error());
    prepare(pid);
    writeln!(shell.0.stdin.take().expect("piped"), "go").expect("it reads");
    shell
}

// NEEDS: verifier, sched_ext, machine
#[test]
fn root_vm_only_tasks_with_a_grant_and_their_children_are_rt1() {
    if skip::outside_guests() {
        return;
    }
    if let Some(missing) = probe::probe().missing.first() {
        skip!("{missing}");
    }
    const SECOND: u64 = 1_000_000_000;
    let ran =
        |counts: &[Counts], class: usize| counts.iter().map(|cpu| cpu.classes[class].ran_ns).sum::<u64>();
    let mut scheduler = Scheduler::load(&Settings::new(vec![1], vec![0], vec![])).expect("loads");
    scheduler.attach().expect("attaches");
    let grants = scheduler.grants_id().expect("known");
    // Anybody can have the policy, and children with it; that makes nobody RT1.
    let spins = "( while :; do :; done ) & while :; do :; done";
    let greedy = with_the_policy(spins, |_| ());
    let counts = wait_until(&scheduler, "they run", |counts| ran(counts, 2) > 3 * SECOND);
    let none = counts.iter().all(|cpu| cpu.classes[1].moved_here == 0) && ran(&counts, 1) == 0;
    assert!(none, "{counts:?}");
    // With a grant it is RT1, and so is what it starts, also by exec; while it sleeps, that is all that there is.
    let starts = "( exec sh -c 'while :; do :; done' ) & wait";
    let granted = with_the_policy(starts, |pid| grant(grants, pid).expect("root may"));
    let counts = wait_until(&scheduler, "the child is RT1", |counts| ran(counts, 1) > 3 * SECOND);
    println!("RT1 {} ns, Linux {} ns", ran(&counts, 1), ran(&counts, 2));
    drop((greedy, granted));
    // The next scheduler knows of none of that.
    let left = with_the_policy(spins, |pid| grant(grants, pid).expect("root may"));
    drop(scheduler);
    let mut next = Scheduler::load(&Settings::new(vec![1], vec![0], vec![])).expect("loads");
    next.attach().expect("attaches");
    let counts = wait_until(&next, "they run", |counts| ran(counts, 2) > 3 * SECOND);
    assert_eq!(ran(&counts, 1), 0, "{counts:?}");
    assert!(grant(grants, left.0.id()).is_err() || grants == next.grants_id().expect("known"));
    assert_eq!(next.ended(), None);
}
