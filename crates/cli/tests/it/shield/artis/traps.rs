// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What schedulers that lend CPUs fall into, each with a test in a virtual machine: who is bound to a lent CPU, RT0 that never
//! sleeps, tasks that nobody else waits behind, ends of slices that look like sections in which nobody may be moved, bombs
//! of forks, weights of control groups, RT0 that is there first.
//!
//! `isolcpus=` for domains is refused before anything is done (`shield::imitation`); the servers for ordinary tasks, nice values and
//! the scheduler's end are in `lending`; that eBPF timers are not to be had with PREEMPT_RT shows wherever these tests run
//! on such a kernel: the scheduler would not load.

use super::fixture::{
    ARTIS, CALLS, COMPUTES, Load, SPINS, accounted, all_accounted, bind, class, is_isolated, keeper, number,
    ran, skipped, top, total,
};
use crate::shield::fixture::{Shield, assert_same, facts, good, shield};
use rtscope_testkit::process::wait_until;
use rtscope_testkit::sched::{self, Policy};
use std::fs;
use std::sync::mpsc::channel;
use std::thread;

/// RT0 that does not sleep; from the moment on at which it has the CPU.
fn hog() -> Load {
    let mut command = shield(&["run", "--prio", "60", "--"]);
    command.args(["sh", "-c", SPINS]);
    let hog = Load::one(command);
    let start = hog.pids()[0];
    wait_until("RT0 has the CPU", || crate::shield::fixture::status(start, "Name").as_deref() == Some("sh"));
    let before = ran(start);
    wait_until("RT0 runs", || ran(start) > before + 2);
    hog
}

/// The CPU that a task was last on.
fn last_cpu(pid: i32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let after = stat.rsplit_once(") ").expect("a name").1;
    after.split_whitespace().nth(36).expect("a CPU").parse().expect("a number")
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_nobody_is_stuck_behind_rt0() {
    if skipped() {
        return;
    }
    let shielded = Shield::of(&ARTIS);
    let load = Load::of(COMPUTES, 3);
    wait_until("CPU 1 is lent", || number(&class(&top(), 1, "linux")["moved_here"]) > 10);
    // Again and again, since whoever was on the CPU when RT0 took it is the one that would be stuck.
    for _ in 0..5 {
        let hog = hog();
        let start: Vec<u64> = load.pids().iter().map(|pid| ran(*pid)).collect();
        let all_ran = || load.pids().iter().zip(&start).all(|(pid, start)| ran(*pid) > start + 20);
        wait_until("all go on while RT0 has the CPU", all_ran);
        drop(hog);
    }
    println!("emptied {}", top()["cpus"][1]["emptied"]);
    accounted(&top(), 6);
    drop(load);
    all_accounted();
    drop(shielded);
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_who_is_bound_stays_and_goes_on() {
    if skipped() {
        return;
    }
    let shielded = Shield::of(&ARTIS);
    let bound = Load::of(CALLS, 1);
    bind(bound.pids()[0], &[1]).expect("bound");
    let load = Load::of(COMPUTES, 2);
    let refused = || number(&class(&top(), 1, "linux")["refused"]["bound"]);
    wait_until("its entries evict nobody", || refused() > 50);
    // A kernel thread of each CPU has to run for that; it is bound, too.
    for _ in 0..3 {
        fs::read("/proc/sys/vm/stat_refresh").expect("all CPUs bring their counts together");
    }
    let hog = hog();
    let waits = ran(bound.pids()[0]);
    let others: u64 = load.pids().iter().map(|pid| ran(*pid)).sum();
    wait_until("others go on while RT0 has the CPU", || {
        load.pids().iter().map(|pid| ran(*pid)).sum::<u64>() > others + 20
    });
    assert!(ran(bound.pids()[0]) <= waits + 1, "who is bound ran beside RT0");
    drop(hog);
    wait_until("who is bound goes on after RT0", || ran(bound.pids()[0]) > waits + 10);
    assert_eq!(last_cpu(bound.pids()[0]), 1);
    drop((bound, load));
    all_accounted();
    keeper();
    drop(shielded);
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_evicts_when_nobody_else_waits() {
    if skipped() {
        return;
    }
    // One on each CPU: who enters the kernel on CPU 1 is the last one there, and the kernel would let it go on.
    let shielded = Shield::of(&ARTIS);
    let load = Load::of(COMPUTES, 2);
    wait_until("tasks are evicted", || number(&class(&top(), 1, "linux")["ended"]["moved"]) >= 50);
    accounted(&top(), 3);
    drop(load);
    all_accounted();
    drop(shielded);
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_the_end_of_a_slice_is_no_pinned_section() {
    if skipped() {
        return;
    }
    // They never enter the kernel: only ends of slices move them. Programs in eBPF switch migration off while they run, and who
    // takes that for the task's own section leaves each where it is, for ever.
    let shielded = Shield::of(&ARTIS);
    let load = Load::of(SPINS, 3);
    let mut seen = [[false; 2]; 3];
    wait_until("each has been on both CPUs", || {
        for (seen, pid) in seen.iter_mut().zip(load.pids()) {
            seen[last_cpu(pid) as usize] = true;
        }
        seen.iter().all(|seen| *seen == [true; 2])
    });
    let linux = class(&top(), 1, "linux");
    println!("{linux}");
    assert!(number(&linux["refused"]["pinned"]) * 10 <= number(&linux["moved_here"]), "{linux}");
    drop((load, shielded));
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_a_fork_bomb_burns_out() {
    if skipped() {
        return;
    }
    let shielded = Shield::of(&ARTIS);
    // 2^9 processes, more than a ring has room for; each computes, so that it is lent a CPU, and then ends there.
    let script = "i=0; b() { [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & wait; }; \
        while [ $i -lt 200 ]; do i=$((i+1)); done; }; b 8";
    let mut bomb = Load::of(script, 1);
    let rt0 =
        shield(&["run", "--prio", "50", "--", "sh", "-c", "i=0; while [ $i -lt 99 ]; do i=$((i+1)); done"]);
    let mut rt0 = Load::one(rt0);
    assert!(rt0.0[0].wait().expect("ours").success(), "RT0 ends while the bomb burns");
    let mut ended = None;
    wait_until("it has burnt out", || {
        ended = bomb.0[0].try_wait().expect("ours");
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()));
    println!("{} evictions\n{}", all_accounted(), good(&["top", "--once"]));
    assert!(total(&class(&top(), 1, "linux")["evictions"]) > 0);
    keeper();
    drop(shielded);
}

// NEEDS: machine, sched_ext, cgroups
#[test]
fn root_vm_artis_says_which_weights_of_groups_it_ignores() {
    if skipped() {
        return;
    }
    let group = "/sys/fs/cgroup/weighed";
    let said = || {
        let output = shield(&["create"]).args(ARTIS).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        good(&["undo"]);
        said
    };
    assert!(!said().contains("weights"), "nobody has set one");
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu").expect("the kernel has it");
    fs::create_dir(group).expect("made");
    fs::write(format!("{group}/cpu.weight"), "300").expect("set");
    let told = said();
    fs::remove_dir(group).expect("empty");
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "-cpu").expect("as it was");
    assert!(told.contains("1 weights or limits") && told.contains("/weighed/cpu.weight"), "{told}");
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_is_not_loaded_beside_rt0_that_is_there_already() {
    if skipped() {
        return;
    }
    let before = facts();
    let (ready, is_ready) = channel();
    let (over, is_over) = channel::<()>();
    let rt0 = thread::spawn(move || {
        sched::set_name("early");
        sched::pin_to_cpu(1).expect("bound");
        sched::set_policy(Policy::Fifo(50)).expect("root may");
        ready.send(sched::tid()).expect("awaited");
        // Its end is what it waits for.
        let _ = is_over.recv();
    });
    let tid = is_ready.recv().expect("it says so");
    let refused = shield(&["create"]).args(ARTIS).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains(&format!("{tid} (early)")) && said.contains("start them again"), "{said}");
    assert_eq!(fs::read_to_string("/sys/kernel/sched_ext/state").expect("there"), "disabled\n");
    assert_same(&before, "after it was refused");
    drop(over);
    rt0.join().expect("it ends");
    // Without it, it can be had.
    drop(Shield::of(&ARTIS));
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_who_waits_too_long_ends_it_and_the_cpus_are_isolated() {
    if skipped() {
        return;
    }
    let shielded = Shield::of(&ARTIS);
    let bound = Load::of(SPINS, 1);
    bind(bound.pids()[0], &[1]).expect("bound");
    wait_until("it runs there", || last_cpu(bound.pids()[0]) == 1);
    let hog = hog();
    // The kernel's watchdog, after half a minute.
    wait_until("the kernel ends the scheduler", || {
        fs::read_to_string("/sys/kernel/sched_ext/state").expect("there") != "enabled\n"
    });
    assert_eq!(
        crate::shield::fixture::status(hog.pids()[0], "Cpus_allowed_list").as_deref(),
        Some("1"),
        "RT0 stays"
    );
    // It may wait for the CPU itself before that is done; with PREEMPT_RT it does, for threads that RT0 comes before.
    drop(hog);
    is_isolated("failed to run for");
    let log = fs::read_to_string("/run/rtscope/artis.log").expect("a log");
    assert!(log.contains("the kernel ended the scheduler that lent CPUs 1 ("), "{log}");
    // The kernel's own list of who waited.
    assert!(log.contains("\nCPU states\n") && log.contains(&format!("sh[{}]", bound.pids()[0])), "{log}");
    drop((bound, shielded));
}
