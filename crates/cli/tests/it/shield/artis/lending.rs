// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield create --mode artis` on a kernel that has schedulers in eBPF, in a virtual machine: CPUs are lent and taken back,
//! each eviction is accounted for, and whatever ends the scheduler, the CPUs are isolated.
//!
//! Times mean nothing there; counts and orders do.

use super::fixture::{
    ARTIS, CALLS, COMPUTES, Load, SPINS, accounted, all_accounted, bind, class, is_isolated, keeper, number,
    ran, skipped, top, undone,
};
use crate::shield::fixture::{Shield, Sleeper, facts, good, json, shield};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::sample;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const SERVERS: [&str; 2] = ["fair_server", "ext_server"];

// NEEDS: machine, sched_ext, one kernel
#[test]
fn root_vm_artis_lends_cpus_and_takes_them_back() {
    if skipped() {
        return;
    }
    let before = facts();
    for (name, script) in [("computing", COMPUTES), ("calling", CALLS)] {
        let _shield = Shield::of(&ARTIS);
        for server in SERVERS {
            let file = format!("/sys/kernel/debug/sched/{server}/cpu1/runtime");
            assert_eq!(fs::read_to_string(&file).expect(&file), "0\n");
        }
        let again = shield(&["create", "--rt", "1"]).output().expect("it runs");
        assert!(String::from_utf8_lossy(&again.stderr).contains("CPUs 1 are shielded already"));
        let rt0 = Sleeper::start(shield(&["run", "--prio", "70", "--", "sleep", "1000"]));
        assert_eq!(rt0.cpus(), "1");
        let load = Load::of(script, 4);
        wait_until("tasks are evicted", || number(&class(&top(), 1, "linux")["ended"]["moved"]) >= 100);
        let now = top();
        println!("{name}: {}", now["cpus"][1]);
        println!("{}", good(&["top", "--once"]));
        accounted(&now, 5);
        let lent = class(&now, 1, "linux");
        assert!(number(&lent["ran_ns"]) > 0 && number(&lent["moved_here"]) > 0, "{lent}");
        assert!(number(&now["cpus"][1]["eviction_ns"]["p99"]) > 0, "delays are counted");
        assert_eq!(number(&now["scx_events"]["SCX_EV_INSERT_NOT_OWNED"]), 0, "{now}");
        assert_eq!(json(&["status", "--json"])["drifted"], 0);
        drop((load, rt0));
        undone(&before, name);
    }
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_counts_a_real_time_task_that_never_sleeps() {
    if skipped() {
        return;
    }
    let _shield = Shield::of(&ARTIS);
    let ran = || number(&class(&top(), 1, "rt0")["ran_ns"]);
    let before_ns = ran();
    let _busy = Load::one(shield(&["run", "--prio", "60", "--", "sh", "-c", "while :; do :; done"]));
    // It is never switched away, so that no switch tells its time.
    wait_until("its time is seen", || ran() > before_ns + 500_000_000);
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_cpus_are_isolated_when_the_scheduler_goes() {
    if skipped() {
        return;
    }
    let before = facts();
    let load = Load::of(COMPUTES, 2);
    for killed in [true, false] {
        let _shield = Shield::of(&ARTIS);
        let rt0 = Sleeper::start(shield(&["run", "--prio", "70", "--", "sleep", "1000"]));
        if killed {
            kill(Pid::from_raw(keeper()), Signal::SIGKILL).expect("killed");
            is_isolated("was killed");
        } else {
            fs::write("/proc/sysrq-trigger", "S").expect("root may");
            is_isolated("sysrq");
        }
        assert_eq!(rt0.cpus(), "1", "who was there stays");
        let mut one = CpuSet::new();
        one.set(1).expect("a CPU");
        let refused = sched_setaffinity(Pid::from_raw(load.pids()[0]), &one);
        assert_eq!(refused, Err(nix::errno::Errno::EINVAL), "CPU 1 is open to everybody");
        drop(rt0);
        undone(&before, if killed { "killed" } else { "ejected" });
    }
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_a_killed_guard_is_replaced() {
    if skipped() {
        return;
    }
    let guard = || {
        let all = fs::read_dir("/proc").expect("there").flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers.find(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == b"guard")
        })
    };
    let _shield = Shield::of(&ARTIS);
    let first = guard().expect("there is one");
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("killed");
    wait_until("there is another one", || guard().is_some_and(|pid| pid != first));
    kill(Pid::from_raw(keeper()), Signal::SIGKILL).expect("killed");
    is_isolated("was killed");
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_honours_nice_values() {
    if skipped() {
        return;
    }
    let _shield = Shield::of(&ARTIS);
    let mut zero = CpuSet::new();
    zero.set(0).expect("a CPU");
    let script = "while :; do :; done";
    let usual = Load::of(script, 1);
    let nice = Load::of(&format!("renice -n 5 $$ > /dev/null; {script}"), 1);
    for pid in usual.pids().into_iter().chain(nice.pids()) {
        sched_setaffinity(Pid::from_raw(pid), &zero).expect("moved");
    }
    thread::sleep(Duration::from_secs(1));
    let start = (ran(usual.pids()[0]), ran(nice.pids()[0]));
    wait_until("they have run", || ran(usual.pids()[0]) > start.0 + 600);
    let (usual, nice) = (ran(usual.pids()[0]) - start.0, ran(nice.pids()[0]) - start.1);
    println!("nice 0 ran {usual} ticks, nice 5 ran {nice}: 1024 to 335 are wanted");
    // The kernel's weights are 1024 and 335.
    assert!(nice > 0 && (2..=5).contains(&(usual / nice)), "{usual} to {nice}");
}

/// Kills creating at its entry to this many a call of a name, and undoes.
fn killed_and_undone(before: &std::collections::BTreeMap<String, String>, call: &str, at: usize) {
    let inject = format!("inject={call}:signal=SIGKILL:when={at}");
    let mut command = Command::new("strace");
    // Without -f: the keeper goes on, and sees that nobody is there any more.
    command.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.arg(crate::command::path()).args(["shield", "create"]).args(ARTIS);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("strace is in the guest");
    let killed = status.signal() == Some(9) || status.code() == Some(137);
    assert!(killed, "not killed at {call} {at}: {status}");
    assert!(fs::exists("/run/rtscope/shield.json").expect("told"), "killed too early: {call} {at}");
    undone(before, &format!("killed at {call} {at}"));
    // Half of all that is undone was not killed.
    good(&[&["create"][..], &ARTIS].concat());
    undone(before, &format!("after being killed at {call} {at}"));
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_killed_in_the_middle_is_undone() {
    if skipped() {
        return;
    }
    let before = facts();
    // Settings: the first write is the journal's; before that there is nothing to undo.
    for at in sample(vec![2, 6, 10, 18, 25]) {
        killed_and_undone(&before, "write", at);
    }
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_killed_while_its_keeper_starts_is_undone() {
    if skipped() {
        return;
    }
    let before = facts();
    // The journal is written three times, each time with two fsync around the rename.
    let phases = vec![
        // The keeper is there, and the journal does not know it.
        ("rename", 2),
        // It knows it, and the keeper has no word yet.
        ("fsync", 4),
        // The scheduler runs, and the journal does not say so.
        ("rename", 3),
        // All is done but the end.
        ("fsync", 6),
    ];
    for (call, at) in sample(phases) {
        killed_and_undone(&before, call, at);
    }
    let mut command = shield(&["create"]);
    let mut creating = command.args(ARTIS).stdout(Stdio::null()).spawn().expect("starts");
    let state = || fs::read_to_string("/sys/kernel/sched_ext/state").expect("there");
    while state() == "disabled\n" {
        assert!(creating.try_wait().expect("ours").is_none(), "it ended before the scheduler began");
    }
    // It may be done by now.
    let _ = creating.kill();
    creating.wait().expect("ours");
    undone(&before, "killed while the kernel takes the scheduler");
    good(&[&["create"][..], &ARTIS].concat());
    undone(&before, "after that");
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_rt1_comes_back_where_a_linux_task_never_leaves() {
    if skipped() {
        return;
    }
    let _shielded = Shield::of(&ARTIS);
    // They never enter the kernel. While RT1 sleeps, each has a CPU, and nobody waits: they would stay for ever.
    let linux = Load::of(SPINS, 2);
    wait_until("they run", || linux.pids().iter().all(|pid| ran(*pid) > 2));
    let start = top();
    let turns = 100;
    let script = format!(
        "n=0; while [ $n -lt {turns} ]; do n=$((n+1)); usleep 20000; i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; done"
    );
    // Nobody looks meanwhile: who looks would wait for a CPU.
    good(&["run", "--class", "rt1", "--prio", "30", "--", "sh", "-c", &script]);
    let now = top();
    let since = |what: &dyn Fn(&serde_json::Value) -> u64| what(&now) - what(&start);
    let came = since(&|top| number(&class(top, 1, "rt1")["moved_here"]));
    let ran_ns = since(&|top| number(&class(top, 1, "rt1")["ran_ns"]));
    println!(
        "of {turns} turns RT1 came {came} times to CPU 1, and ran there for {ran_ns} ns\n{}",
        good(&["top", "--once"])
    );
    assert!(came >= turns / 2, "it hardly came");
    assert!(ran_ns > 0, "it was sent, and never ran");
    drop(linux);
    all_accounted();
}

// NEEDS: machine, sched_ext
#[test]
fn root_vm_artis_rt1_takes_no_cpu_from_who_is_bound_to_it() {
    if skipped() {
        return;
    }
    let _shielded = Shield::of(&ARTIS);
    let bound = Load::of(SPINS, 1);
    let bound = bound.pids()[0];
    bind(bound, &[1]).expect("bound");
    let rt1 = |_| {
        let mut command = shield(&["run", "--class", "rt1", "--"]);
        command.args(["sh", "-c", COMPUTES]);
        Load::one(command)
    };
    let rt1: Vec<Load> = (0..2).map(rt1).collect();
    let ran_all = || rt1.iter().map(|load| ran(load.pids()[0])).sum::<u64>();
    wait_until("RT1 runs", || ran_all() > 20);
    let start = (ran(bound), ran_all());
    wait_until("RT1 runs on", || ran_all() > start.1 + 400);
    let (of_bound, of_rt1) = (ran(bound) - start.0, ran_all() - start.1);
    println!("bound: {of_bound} ticks, two RT1: {of_rt1}");
    // They have the other CPU, and it has most of its own.
    assert!(of_bound * 3 > of_rt1, "bound {of_bound}, RT1 {of_rt1}");
}
