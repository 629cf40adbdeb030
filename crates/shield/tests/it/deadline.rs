// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel answers to SCHED_DEADLINE, and that its refusals are reported with their reason. Changes no setting: some
//! threads get a policy and sleep.

use nix::errno::Errno;
use nix::unistd::geteuid;
use rtscope_shield::policy::{self, Policy, Reservation, Scheduling};
use rtscope_shield::tasks;
use rtscope_shield::{Cpus, System};
use rtscope_testkit::skip;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const MS: u64 = 1_000_000;

fn deadline(runtime_ns: u64, deadline_ns: u64, period_ns: u64) -> Policy {
    Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns })
}

/// Sets a policy in a new thread, which then waits until the sender is dropped. `cpus`: where the thread may run, set first.
fn ask(policy: Policy, cpus: Option<Cpus>) -> (Result<Scheduling, Errno>, Cpus, Sender<()>) {
    let (stay, end): (Sender<()>, Receiver<()>) = channel();
    let (answer, answered) = channel();
    thread::spawn(move || {
        let system = System::new(Path::new("/"));
        let own = nix::unistd::gettid().as_raw();
        let task = tasks::of(&system, own).into_iter().find(|task| task.thread.tid == own).expect("this one");
        if let Some(cpus) = cpus {
            task.thread.set_cpus(&system, &cpus).expect("allowed");
        }
        let result = policy::set(0, &Scheduling::new(policy)).and_then(|()| policy::of(own));
        answer.send((result, task.thread.cpus(&system).expect("known"))).expect("the test waits");
        // It ends when the test has dropped the other end.
        let _ = end.recv();
    });
    let (answer, cpus) = answered.recv().expect("answered");
    (answer, cpus, stay)
}

/// Why the kernel gives no answer here.
fn obstacle(system: &System) -> Option<String> {
    if !geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let runtime = system.read("/proc/sys/kernel/sched_rt_runtime_us").ok()?;
    if runtime.trim().parse::<i64>().is_ok_and(|runtime| runtime <= 0) {
        return Some(format!("sched_rt_runtime_us is {}", runtime.trim()));
    }
    let (answer, ..) = ask(deadline(MS, 100 * MS, 100 * MS), None);
    answer.err().map(|errno| format!("not even 1 % of a CPU is admitted here: {errno}"))
}

// NEEDS: verifier
#[test]
fn root_the_kernels_refusals_are_told_with_their_reason() {
    let system = System::new(Path::new("/"));
    if let Some(reason) = obstacle(&system) {
        skip!("{reason}");
    }
    let good = deadline(2 * MS, 5 * MS, 10 * MS);
    let (answer, all, _stays) = ask(good, None);
    assert_eq!(answer, Ok(Scheduling { policy: good, flags: policy::RESET_ON_FORK }));

    for (policy, why) in [
        (deadline(500, MS, MS), "1024 ns or more"),
        (deadline(3 * MS, 2 * MS, 5 * MS), "does not fit into a deadline"),
        (deadline(MS, 6 * MS, 5 * MS), "after the end of a period"),
    ] {
        let (answer, cpus, _) = ask(policy, None);
        assert_eq!(answer, Err(Errno::EINVAL), "{policy}");
        let text = policy::explain(&system, Errno::EINVAL, &policy, &cpus);
        assert!(text.contains(why), "{text}");
    }

    if all.len() > 1 {
        let one: Cpus = all.iter().take(1).collect();
        let (answer, cpus, _) = ask(good, Some(one.clone()));
        assert_eq!((answer, &cpus), (Err(Errno::EPERM), &one));
        let text = policy::explain(&system, Errno::EPERM, &good, &cpus);
        assert!(text.contains(&format!("may use CPUs {one}, and its root domain has more")), "{text}");
    }

    let mut stay = Vec::new();
    let refused = (0..=all.len() + 1).find_map(|_| {
        let policy = deadline(9 * MS, 10 * MS, 10 * MS);
        let (answer, cpus, end) = ask(policy, None);
        stay.push(end);
        answer.err().map(|errno| (errno, policy::explain(&system, errno, &policy, &cpus)))
    });
    let (errno, text) = refused.expect("the CPUs are full");
    assert_eq!(errno, Errno::EBUSY);
    println!("{text}");
    let number = |file: &str| -> f64 { system.read(file).expect("there").trim().parse().expect("a number") };
    let of_each =
        number("/proc/sys/kernel/sched_rt_runtime_us") / number("/proc/sys/kernel/sched_rt_period_us");
    let at_most = format!("together at most {:.3}", of_each * all.len() as f64);
    let has_sum = text.contains(&at_most) && text.contains("this asks for 0.900");
    assert!(has_sum || !system.exists("/sys/kernel/debug/sched/debug"), "{text}");
}
