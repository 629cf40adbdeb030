// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything at once, in a virtual machine: `rtscope shield create --mode artis` while programs start and end, call, fault, get
//! signals, change their CPUs and their nice values, while the lent CPU is switched off and on, and RT0 comes and goes.
//!
//! It takes half a minute, ten in the full form, or as long as `./x vm --stress SECONDS` says. What must hold does not depend on how fast
//! the machine is: no stall and no ejection (the scheduler still runs), each eviction has ended in one way that is counted, and no
//! lent task's section in the kernel runs on (`super::witness`, which is rtscope's recorder). What the kernel complains about
//! is found by ./x vm in its log.

use super::fixture::{
    ARTIS, CALLS, COMPUTES, Load, all_accounted, bind, class, keeper, number, skipped, switch, top,
};
use super::witness::{self, Seen, Task};
use crate::shield::fixture::{Shield, good, shield};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::{full, sched};
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What the test runs for, and in its full form, where `RTSCOPE_STRESS_SECONDS` does not say it.
const SHORT_SECONDS: u64 = 30;
const FULL_SECONDS: u64 = 600;
/// So long is recorded at a time, and then read.
const WINDOW_S: u64 = 2;
const PAUSE_S: u64 = 20;
/// Forks, and programs that fault as they start.
const SPAWNS: &str =
    "while :; do for i in 1 2 3 4; do (ls -R /proc/self/ns; true) & done; wait; usleep 100000; done";
const PIPES: &str =
    "while :; do dd if=/dev/zero bs=64k count=4 2> /dev/null | gzip -1 | md5sum; usleep 100000; done";
/// Takes a signal each time that somebody sends one, and computes in between.
const TAKES_SIGNALS: &str = "trap : USR1; while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; done";
/// A bomb that burns out: 2^6 processes, and again.
const BOMB: &str =
    "b() { [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & wait; }; }; while :; do b 5; sleep 3; done";
/// An RT0 task: has the CPU for a while, sleeps, and has children that are RT0, too.
const RT0: &str = "for n in 1 2 3; do i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; usleep 2000; done";
const RT1: &str =
    "i=0; while [ $i -lt 500 ]; do i=$((i+1)); [ $((i%50)) = 0 ] && read x < /proc/uptime; done; true";
/// Less than this is no stress; on a slow machine it takes longer.
const ROUNDS: usize = 4;
const LENT: u64 = 50;
const SECTIONS: u64 = 20;

fn seconds() -> u64 {
    let told = std::env::var("RTSCOPE_STRESS_SECONDS").ok();
    let by_form = if full() { FULL_SECONDS } else { SHORT_SECONDS };
    told.map_or(by_form, |text| text.parse().expect("RTSCOPE_STRESS_SECONDS is a number"))
}

/// Touches memory that is not there yet, with some computing between two pages.
fn faults(over: &AtomicBool) {
    // ORDER: nothing is handed over with it.
    while !over.load(Ordering::Relaxed) {
        let mut pages = vec![0_u8; 64 * 4096];
        for page in pages.chunks_mut(4096) {
            page[0] = black_box((0..2000_u32).fold(1, u32::wrapping_add)) as u8;
        }
        black_box(&pages);
    }
}

/// May use CPU 1 only; makes calls there, and mostly sleeps, so that others are lent it.
fn stays(rounds: &Rounds, over: &AtomicBool) {
    rounds.note(sched::tid() as u32, Task::Bound);
    // ORDER: nothing is handed over with it.
    while !over.load(Ordering::Relaxed) {
        // Who was bound to a CPU that was switched off may use all.
        bind(0, &[1]).unwrap_or_else(|errno| assert_eq!(errno, Errno::EINVAL, "CPU 1 is off just now"));
        black_box(fs::read("/proc/uptime").expect("there"));
        thread::sleep(Duration::from_millis(30));
    }
}

/// RT0 comes and goes, all the time: a round takes an emulated machine 20 s and longer, and each of the windows that are recorded is to have some.
fn real_time(rounds: &Rounds, over: &AtomicBool) {
    // ORDER: nothing is handed over with it.
    while !over.load(Ordering::Relaxed) {
        let cpu = rounds.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.run(&["--prio", "50"], RT0, Task::Bound);
        drop(cpu);
        thread::sleep(Duration::from_millis(300));
    }
}

/// What is done to the load, again and again.
struct Rounds {
    load: Vec<Load>,
    /// All that are no Linux tasks. Bound are those that bound themselves to CPU 1, or are RT0 from then on.
    tasks: Mutex<BTreeMap<u32, Task>>,
    /// Grows when CPU 1 is switched off, and when it is on again.
    switches: AtomicU64,
    /// Who runs RT0 on CPU 1, or switches it off and on.
    cpu: Mutex<()>,
}

impl Rounds {
    fn start() -> Rounds {
        let scripts = [COMPUTES, CALLS, SPAWNS, TAKES_SIGNALS, PIPES, BOMB];
        let load = scripts.iter().map(|script| Load::of(script, 1)).collect();
        Rounds { load, tasks: Mutex::default(), switches: AtomicU64::default(), cpu: Mutex::default() }
    }

    fn note(&self, tid: u32, task: Task) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(tid, task);
    }

    fn task(&self, tid: u32) -> Task {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.get(&tid).copied().unwrap_or(Task::Linux)
    }

    /// Runs a program of the shield to its end.
    fn run(&self, words: &[&str], script: &str, task: Task) {
        let mut command = shield(&[&["run"], words, &["--", "sh", "-c", script]].concat());
        let mut child = command.stdout(Stdio::null()).spawn().expect("it starts");
        // RT0 is bound before it has a real-time policy.
        self.note(child.id(), task);
        let status = child.wait().expect("ours");
        assert!(status.success(), "{words:?}: {status}; {}", good(&["status"]));
    }

    fn round(&self, number: usize) {
        let of = |number: usize| self.load[number % self.load.len()].pids()[0];
        let pid = of(number);
        // For a round it may not be lent CPU 1, wherever it is just now.
        bind(pid, &[0]).expect("bound");
        bind(of(number + self.load.len() - 1), &[0, 1]).expect("free again");
        let nice = ["0", "5", "10", "15", "19"][number % 5];
        let niced = Command::new("renice").args([nice, "-p", &pid.to_string()]).status();
        assert!(niced.expect("busybox has it").success());
        for _ in 0..3 {
            kill(Pid::from_raw(self.load[3].pids()[0]), Signal::SIGUSR1).expect("it lives");
        }
        self.run(&["--class", "rt1"], RT1, Task::Rt1);
        if number % 4 == 3 {
            let _cpu = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
            // ORDER: the kernel's own locks order what is switched.
            self.switches.fetch_add(1, Ordering::SeqCst);
            switch(1, false);
            switch(1, true);
            // ORDER: as above.
            self.switches.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Records again and again, and prints what was seen.
fn watch(rounds: &Rounds, over: &AtomicBool, enough: &AtomicBool) -> Seen {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut all = Seen::default();
    let mut windows = 0;
    loop {
        // ORDER: as where it grows.
        let before = rounds.switches.load(Ordering::SeqCst);
        let seen = match witness::watch(directory.path(), 1, WINDOW_S, |tid| rounds.task(tid)) {
            Ok(seen) => seen,
            Err(why) => {
                // ORDER: as where it grows.
                let after = rounds.switches.load(Ordering::SeqCst);
                assert!(before % 2 == 1 || after != before, "CPU 1 is on, and cannot be recorded: {why}");
                continue;
            }
        };
        windows += 1;
        // Not captured either.
        let _ = writeln!(
            std::io::stderr(),
            "window {windows}: lent {} times, sections {}, RT0 {}, back {}, by ticks {:?}, of bound {}, lost {}, beyond {}",
            seen.lent,
            seen.sections(),
            seen.rt0,
            seen.came_back,
            seen.left,
            seen.of_bound,
            seen.lost,
            seen.beyond.len()
        );
        all.add(seen);
        let is_enough = all.lent >= LENT && all.rt0 > 0 && all.sections() >= SECTIONS;
        // ORDER: nothing is handed over with it.
        enough.store(is_enough, Ordering::Relaxed);
        let next = Instant::now() + Duration::from_secs(if is_enough { PAUSE_S } else { 0 });
        // ORDER: nothing is handed over with it.
        while !over.load(Ordering::Relaxed) && Instant::now() < next {
            thread::sleep(Duration::from_millis(50));
        }
        // ORDER: as above.
        if over.load(Ordering::Relaxed) {
            return all;
        }
    }
}

// NEEDS: machine, sched_ext, one kernel, hotplug, stress
#[test]
fn root_vm_artis_holds_under_stress() {
    if skipped() {
        return;
    }
    // No number of a task is given twice: who was RT0 would excuse another one.
    fs::write("/proc/sys/kernel/pid_max", "4194304").expect("root may");
    let shielded = Shield::of(&ARTIS);
    let rounds = Rounds::start();
    let (over, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut number = 0;
    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&rounds, &over, &enough));
        scope.spawn(|| faults(&over));
        scope.spawn(|| stays(&rounds, &over));
        scope.spawn(|| real_time(&rounds, &over));
        let end = Instant::now() + Duration::from_secs(seconds());
        // ORDER: nothing is handed over with it.
        let is_enough = |number| number >= ROUNDS && enough.load(Ordering::Relaxed);
        while (Instant::now() < end || !is_enough(number)) && !watcher.is_finished() {
            rounds.round(number);
            number += 1;
            // Not captured: who watches the console takes silence for a guest that hangs.
            let _ = writeln!(std::io::stderr(), "round {number}");
        }
        // ORDER: nothing is handed over with it.
        over.store(true, Ordering::Relaxed);
        watcher.join().expect("it could watch")
    });
    println!("{number} rounds\n{}", good(&["top", "--once"]));
    let now = top();
    drop(rounds);
    keeper();
    let evicted = all_accounted();
    let ended = |name: &str, how: &str| how_many(&now, name, how);
    println!("{evicted} evictions, all ended; seen: {seen:?}");
    println!("events: {}", now["scx_events"]);
    assert!(evicted >= LENT, "hardly any stress: {number} rounds, {evicted} evictions");
    for name in ["rt1", "linux"] {
        assert_eq!(ended(name, "returned"), 0, "a whole system call of {name} on a real-time CPU");
    }
    assert!(seen.sections() >= SECTIONS, "hardly any section was seen");
    assert!(seen.beyond.is_empty(), "{}", seen.beyond.join("\n"));
    let at_once = seen.left.get(&Some(0)).copied().unwrap_or_default();
    assert!(at_once * 100 >= seen.sections() * 95, "evictions that took a tick and longer: {seen:?}");
    let state = fs::read_to_string("/sys/kernel/sched_ext/state").expect("there");
    assert_eq!(state, "enabled\n");
    good(&["undo"]);
    drop(shielded);
}

fn how_many(top: &serde_json::Value, name: &str, how: &str) -> u64 {
    number(&class(top, 1, name)["ended"][how])
}

/// What the witness makes of some events on CPU 1: task 7 is lent it, 8 is RT0, 9 is bound, 2 is the kernel's.
fn witnessed(events: &[&str]) -> Seen {
    witnessed_as(events, Task::Linux)
}

fn witnessed_as(events: &[&str], lent: Task) -> Seen {
    let to = |tid: u32, prio: i32, state: u32| {
        format!(
            "sched_switch,prev_comm=a b prev_tid=7 prev_state={state} next_comm=c next_tid={tid} next_prio={prio}"
        )
    };
    let line = |event: &&str| match *event {
        "lent" => to(7, 20, 0),
        "rt0" => to(8, -51, 0),
        "bound" => to(9, 20, 0),
        "kernel" => to(2, 20, 0),
        "idle" => to(0, 20, 0),
        "sleeps" => to(0, 20, 1),
        "tick" => "x86_irq_vectors_local_timer_entry,irq_flags=0x9 vector=236".to_owned(),
        "told tick" => "x86_irq_vectors_local_timer_entry,irq_flags=0xd vector=236".to_owned(),
        other => format!("{other},tid=7 id=1"),
    };
    let columns = |line: String| line.replacen(',', ",7,7,a b,", 1);
    let lines: Vec<String> = events.iter().map(|event| format!("5,1,{}\n", columns(line(event)))).collect();
    let other_cpu = lines.concat().replace("5,1,", "5,0,");
    let task = |tid: u32| if tid == 9 { Task::Bound } else { lent };
    witness::read(&(lines.concat() + &other_cpu), 1, |tid| tid == 2, task)
}

#[test]
fn the_witness_tells_sections_that_run_on() {
    let good = witnessed(&[
        "lent",
        "sys_enter",
        "idle",
        "lent",
        "tick",
        "tick",
        "rt0",
        "sys_enter",
        "sys_exit",
        "lent",
        "page_fault_user",
        "tick",
        "told tick",
        "told tick",
        "idle",
        "bound",
        "sys_enter",
        "sys_exit",
        "kernel",
        "tick",
        "idle",
    ]);
    assert!(good.beyond.is_empty(), "{good:?}");
    assert_eq!((good.lent, good.rt0, good.of_bound, good.sections()), (3, 1, 1, 2), "{good:?}");
    assert_eq!(good.left.into_iter().collect::<Vec<_>>(), [(None, 1), (Some(0), 1), (Some(1), 1)]);
    for (bad, why) in [
        (&["lent", "sys_enter", "sys_exit", "idle"][..], "a system call ended there"),
        (&["lent", "sys_exit", "idle"], "a system call ended there"),
        (&["lent", "page_fault_user", "sys_enter", "idle"], "one section after another"),
        (&["lent", "signal_deliver", "tick", "tick", "idle"], "Some(2) ticks after signal_deliver"),
        (&["lent", "sys_enter", "sleeps"], "slept or ended there after sys_enter"),
        (&["lent", "sleeps"], "slept or ended there after no entry"),
    ] {
        let seen = witnessed(bad);
        assert!(seen.beyond.len() == 1 && seen.beyond[0].contains(why), "{bad:?}: {seen:?}");
    }
    // RT1 comes back at the end of a call, and that is all.
    let back = witnessed_as(&["lent", "sys_exit", "idle"], Task::Rt1);
    assert!(back.beyond.is_empty() && back.came_back == 1, "{back:?}");
    for bad in [&["lent", "sys_exit", "sys_exit", "idle"][..], &["lent", "sys_enter", "sys_exit", "idle"]] {
        let seen = witnessed_as(bad, Task::Rt1);
        assert_eq!(seen.beyond.len(), 1, "{bad:?}: {seen:?}");
    }
}
