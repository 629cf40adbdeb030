// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks and the CPUs that they may use.
//!
//! A thread number is used again some time; with the time at which the thread began it is one thread's alone.

use crate::{Cpus, System};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// A kernel thread (PF_KTHREAD in the kernel's include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// A thread whose CPUs cannot be changed (PF_NO_SETAFFINITY).
const BOUND: u64 = 0x0400_0000;

/// A thread, identified for as long as the machine runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// When it began, in the kernel's ticks since boot.
    pub start: u64,
    /// Its name when it was read.
    pub name: String,
}

/// What was read about a thread.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which.
    pub thread: Thread,
    /// Whether it belongs to the kernel.
    pub kernel: bool,
    /// Whether the kernel refuses to move it.
    pub bound: bool,
    /// Whether it runs, or could.
    pub runnable: bool,
    /// The CPU that it runs on, or has run on.
    pub cpu: Option<u32>,
    /// The number of its scheduling policy (sched(7)).
    pub policy: Option<i32>,
}

impl Task {
    /// Whether it is scheduled by deadlines.
    pub fn is_deadline(&self) -> bool {
        self.policy == Some(libc::SCHED_DEADLINE)
    }

    /// Whether it comes before all ordinary tasks.
    pub fn is_real_time(&self) -> bool {
        self.is_deadline() || matches!(self.policy, Some(libc::SCHED_FIFO | libc::SCHED_RR))
    }

    /// The part of its life that it has run; `None` where the kernel does not count that.
    pub fn used(&self, system: &System) -> Option<f64> {
        // Nanoseconds of running come first (proc_pid_schedstat(5)).
        let text = system.read(&format!("/proc/{}/schedstat", self.thread.tid)).ok()?;
        let ran_ns: f64 = text.split_whitespace().next()?.parse().ok()?;
        let up_s: f64 = system.read("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
        let lived_s = up_s - self.thread.start as f64 / ticks as f64;
        (lived_s > 0.0).then_some(ran_ns / 1e9 / lived_s)
    }
}

/// All threads. None in a tree that only imitates a machine.
pub fn all(system: &System) -> Vec<Task> {
    if !system.is_real() {
        return Vec::new();
    }
    let stats = system.glob("/proc/*/task/*/stat");
    stats.iter().filter_map(|path| parse(&system.read_whole(path).ok()?)).collect()
}

/// The threads of one process.
pub fn of(system: &System, pid: i32) -> Vec<Task> {
    let stats = system.glob(&format!("/proc/{pid}/task/*/stat"));
    stats.iter().filter_map(|path| parse(&system.read_whole(path).ok()?)).collect()
}

/// The process that a thread belongs to.
pub fn process_of(system: &System, tid: i32) -> Option<i32> {
    let status = system.read_whole(&format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Reads a line of /proc/PID/stat (proc_pid_stat(5)). A name may have spaces and parentheses in it.
fn parse(stat: &str) -> Option<Task> {
    let (tid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    // The state is the third field; flags are the ninth, the start the twenty-second.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let flags: u64 = fields.get(9 - 3)?.parse().ok()?;
    let start = fields.get(22 - 3)?.parse().ok()?;
    let thread = Thread { tid: tid.parse().ok()?, start, name: name.to_owned() };
    Some(Task {
        thread,
        kernel: flags & KERNEL_THREAD != 0,
        bound: flags & BOUND != 0,
        runnable: fields.first() == Some(&"R"),
        cpu: fields.get(39 - 3).and_then(|cpu| cpu.parse().ok()),
        policy: fields.get(41 - 3).and_then(|policy| policy.parse().ok()),
    })
}

/// When the newest thread began that there can be by now: this one's, made by nobody else. `None`: not known.
pub fn start_of(system: &System, tid: i32) -> Option<u64> {
    parse(&system.read_whole(&format!("/proc/{tid}/stat")).ok()?).map(|task| task.thread.start)
}

impl Thread {
    /// Whether it still lives. One that has ended, which its parent has not noticed yet, does not.
    pub fn lives(&self, system: &System) -> bool {
        let Ok(stat) = system.read_whole(&format!("/proc/{}/stat", self.tid)) else { return false };
        let has_ended = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
        system.is_real() && !has_ended && parse(&stat).is_some_and(|task| task.thread.start == self.start)
    }

    /// The CPUs that it may use.
    pub fn cpus(&self, system: &System) -> Result<Cpus, Errno> {
        own_machine(system)?;
        rtscope_cpus::Thread::Tid(self.tid).cpus()
    }

    /// Lets it use these CPUs, and no others.
    pub fn set_cpus(&self, system: &System, cpus: &Cpus) -> Result<(), Errno> {
        own_machine(system)?;
        rtscope_cpus::Thread::Tid(self.tid).set_cpus(cpus)
    }
}

fn own_machine(system: &System) -> Result<(), Errno> {
    if system.is_real() { Ok(()) } else { Err(Errno::EPERM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn names_may_hold_what_separates_fields() {
        let stat = "12 (a) R (b) S 2 0 0 0 -1 69238848 0 0 0 0 0 5 0 0 20 0 1 0 4711 0 0";
        let task = parse(stat).expect("a task");
        assert_eq!(task.thread, Thread { tid: 12, start: 4711, name: "a) R (b".into() });
        assert!(task.kernel && task.bound && !task.runnable && task.cpu.is_none() && task.policy.is_none());
        assert!(parse("12 (a").is_none());
    }

    #[test]
    fn our_own_threads_are_found() {
        let system = System::new(Path::new("/"));
        let own = std::process::id() as i32;
        let tasks = of(&system, own);
        assert!(tasks.iter().any(|task| task.thread.tid == own && !task.kernel && !task.bound));
        assert!(tasks.iter().any(|task| task.runnable && task.cpu.is_some()), "this one runs");
        // Tests may run with the priority of idle.
        assert!(tasks.iter().all(|task| matches!(task.policy, Some(0 | 5)) && !task.is_real_time()));
        let used = tasks[0].used(&system).expect("counted");
        assert!((0.0..=1.5).contains(&used), "{used}");
        let thread = &tasks[0].thread;
        assert!(thread.lives(&system) && !thread.cpus(&system).expect("told").is_empty());
        assert!(!Thread { start: thread.start + 1, ..thread.clone() }.lives(&system));
    }

    #[test]
    fn a_name_that_is_no_text_hides_nobody() {
        let system = System::new(Path::new("/"));
        let (say, said) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            nix::sys::prctl::set_name(c"\xff) \xfe").expect("any bytes will do");
            say.send(nix::unistd::gettid().as_raw()).expect("somebody listens");
            // The end of the channel is the end.
            let _ = ended.recv();
        });
        let tid = said.recv().expect("told");
        let own = std::process::id() as i32;
        let found = of(&system, own).into_iter().find(|task| task.thread.tid == tid).expect("it is seen");
        assert_eq!(found.thread.name, "\u{fffd}) \u{fffd}");
        assert!(found.thread.lives(&system) && start_of(&system, tid) == Some(found.thread.start));
        assert_eq!(process_of(&system, tid), Some(own));
        drop(end);
        thread.join().expect("ends");
        assert!(!found.thread.lives(&system));
    }

    #[test]
    fn strangers_are_not_touched_for_an_imitated_machine() {
        let system = System::new(Path::new("/nowhere"));
        let thread = Thread { tid: std::process::id() as i32, start: 0, name: String::new() };
        assert_eq!(thread.set_cpus(&system, &Cpus::default()), Err(Errno::EPERM));
        assert!(all(&system).is_empty());
    }
}
