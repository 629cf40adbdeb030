// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests of `rtscope shield create --mode artis` in virtual machines share: loads, the counters of the scheduler, and CPUs that
//! are switched off and on.

use crate::shield::fixture::{assert_same, good, json};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// CPU 1 is lent; CPU 0 has the rest.
pub const ARTIS: [&str; 4] = ["--rt", "1", "--mode", "artis"];
pub const PARTITION: &str = "/sys/fs/cgroup/rtscope-shield/cpuset.cpus.partition";
/// Computes for a while, then makes a few system calls.
pub const COMPUTES: &str =
    "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; read x < /proc/uptime; done";
/// Hardly computes.
pub const CALLS: &str =
    "while :; do i=0; while [ $i -lt 200 ]; do i=$((i+1)); done; read x < /proc/uptime; done";
/// Never ends, and never enters the kernel by itself.
pub const SPINS: &str = "while :; do :; done";

/// Whether the test is skipped: outside of guests, and on kernels without such schedulers.
pub fn skipped() -> bool {
    skip::outside_guests() || skip::without_sched_ext()
}

/// Processes in groups of their own, until the test is over.
pub struct Load(pub Vec<Child>);

impl Load {
    /// Shells that run a script.
    pub fn of(script: &str, copies: usize) -> Load {
        let start = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Load::quiet(command)
        };
        Load((0..copies).map(start).collect())
    }

    /// One process.
    pub fn one(command: Command) -> Load {
        Load(vec![Load::quiet(command)])
    }

    fn quiet(mut command: Command) -> Child {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0).spawn().expect("it starts")
    }

    pub fn pids(&self) -> Vec<i32> {
        self.0.iter().map(|child| child.id() as i32).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Gives a process these CPUs. Errors are those of the kernel: one that has ended has none.
pub fn bind(pid: i32, cpus: &[usize]) -> nix::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu).expect("a CPU"));
    sched_setaffinity(Pid::from_raw(pid), &set)
}

/// Switches a CPU off or on.
pub fn switch(cpu: u32, on: bool) {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&file, if on { "1" } else { "0" }).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// The CPU time of a process, in ticks.
pub fn ran(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split_whitespace().collect();
    [14, 15].iter().map(|field| fields[field - 3].parse::<u64>().expect("a number")).sum()
}

pub fn top() -> Value {
    let top = json(&["top", "--once", "--json"]);
    crate::json::assert_documented(&top);
    top
}

/// What a class did on a CPU since the scheduler was loaded.
pub fn class(top: &Value, cpu: u64, class: &str) -> Value {
    let cpus = top["cpus"].as_array().expect("a list");
    let one = cpus.iter().find(|one| one["cpu"] == cpu).expect("the CPU");
    one["classes"][class].clone()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

pub fn total(numbers: &Value) -> u64 {
    numbers.as_object().expect("named numbers").values().map(number).sum()
}

/// All evictions that were begun have ended in one way, but for those on their way: no more than there are tasks.
pub fn accounted(top: &Value, tasks: u64) -> u64 {
    let mut moved = 0;
    for name in ["rt1", "linux"] {
        let counts = class(top, 1, name);
        let (begun, ended) = (total(&counts["evictions"]), total(&counts["ended"]));
        assert!(ended <= begun && begun - ended <= tasks, "{name}: {counts}");
        assert_eq!(counts["ended"]["returned"], 0, "a whole system call on a real-time CPU: {counts}");
        moved += number(&counts["ended"]["moved"]);
    }
    moved
}

/// Waits until no eviction is on its way, which it is when the load is gone, and returns how many there were.
pub fn all_accounted() -> u64 {
    let mut last = Value::Null;
    let mut begun = 0;
    wait_until("each eviction has ended", || {
        let now = top();
        let counts = ["rt1", "linux"].map(|name| class(&now, 1, name));
        let sum = |what: &str| counts.iter().map(|counts| total(&counts[what])).sum::<u64>();
        begun = sum("evictions");
        let done = sum("ended") == begun;
        if !done && last != now["cpus"][1] {
            println!("on their way: {}", begun - sum("ended").min(begun));
            last = now["cpus"][1].clone();
        }
        done
    });
    begun
}

/// The process that holds the scheduler, which runs.
pub fn keeper() -> i32 {
    let status = json(&["status", "--json"]);
    let log = fs::read_to_string("/run/rtscope/artis.log").unwrap_or_default();
    assert_eq!(status["scheduler"]["runs"], true, "{}\n{log}", status["scheduler"]);
    number(&status["scheduler"]["keeper"]) as i32
}

/// The CPUs have been isolated, and somebody says why.
pub fn is_isolated(why: &str) {
    wait_until("the CPUs are isolated", || {
        fs::read_to_string(PARTITION).is_ok_and(|state| state == "isolated\n")
    });
    wait_until("it is said", || json(&["status", "--json"])["scheduler"]["fallen"].is_string());
    let said = good(&["status"]);
    assert!(said.contains(why) && said.contains("isolated instead"), "{said}");
    // For a killed keeper it comes after the journal, from which `status` has it.
    wait_until("the log has it", || {
        fs::read_to_string("/run/rtscope/artis.log").is_ok_and(|log| log.contains(why))
    });
}

/// Undoing leaves nothing behind.
pub fn undone(before: &BTreeMap<String, String>, what: &str) {
    let said = good(&["undo"]);
    assert!(!said.contains("left ") && !said.contains("FAILED"), "{what}: {said}");
    assert_eq!(fs::read_to_string("/sys/kernel/sched_ext/state").expect("there"), "disabled\n");
    assert_same(before, what);
}
