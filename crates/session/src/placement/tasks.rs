// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks of the machine, as far as it takes to keep out of their way. It runs while targets do, so it reads as little as it can.

use rtscope_cpus::{Cpus, Thread};
use rtscope_event::{Glob, TaskInfo};
use std::collections::BTreeSet;
use std::fs;

/// PF_KTHREAD of the kernel's include/linux/sched.h, in the flags of /proc/PID/stat.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Processes that are threads of the kernel: known once, they are skipped. A number that a program gets later is found out by its
/// absence in between.
#[derive(Debug, Default)]
pub struct KernelThreads(BTreeSet<u32>);

impl KernelThreads {
    /// All of them at once: the children of kthreadd, where this process sees it.
    fn find(&mut self) {
        const KTHREADD: u32 = 2;
        if is_kernel_thread(KTHREADD) {
            self.0.insert(KTHREADD);
            self.0.extend(children(KTHREADD, KTHREADD));
        }
    }
}

/// What a search has found.
#[derive(Debug, Default)]
pub struct FoundTasks {
    /// Threads with the name.
    pub named: Vec<u32>,
    /// Threads of programs with a real-time policy.
    pub real_time: Vec<u32>,
}

/// Looks at all tasks but our own.
pub fn search(names: &[Glob], kernel_threads: &mut KernelThreads) -> FoundTasks {
    let own = std::process::id();
    let mut found = FoundTasks::default();
    let processes = numbers("/proc");
    if kernel_threads.0.is_empty() {
        kernel_threads.find();
    }
    kernel_threads.0.retain(|known| processes.binary_search(known).is_ok());
    for pid in processes.into_iter().filter(|pid| *pid != own) {
        if kernel_threads.0.contains(&pid) {
            continue;
        }
        if is_kernel_thread(pid) {
            kernel_threads.0.insert(pid);
            continue;
        }
        for tid in numbers(&format!("/proc/{pid}/task")) {
            if is_real_time(tid) {
                found.real_time.push(tid);
            }
            if has_name(tid, names) {
                found.named.push(tid);
            }
        }
    }
    found
}

/// The same from a list of all tasks.
pub fn choose(tasks: &[TaskInfo], names: &[Glob]) -> FoundTasks {
    let own = std::process::id();
    let mut found = FoundTasks::default();
    for task in tasks.iter().filter(|task| !task.kthread && task.pid.0 != own) {
        if i32::try_from(task.policy.0).is_ok_and(is_real_time_policy) {
            found.real_time.push(task.tid.0);
        }
        if names.iter().any(|name| name.matches(task.comm.as_bytes())) {
            found.named.push(task.tid.0);
        }
    }
    found
}

/// The processes that a thread has started, as far as this kernel tells (CONFIG_PROC_CHILDREN, which distributions have).
fn children(pid: u32, tid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The threads of a process, and of those that it has started, as far as this kernel tells.
pub fn threads_of(pid: u32, with_children: bool, threads: &mut Vec<u32>) {
    let mut processes = vec![pid];
    let mut seen = BTreeSet::new();
    while let Some(pid) = processes.pop() {
        if !seen.insert(pid) {
            continue;
        }
        for tid in numbers(&format!("/proc/{pid}/task")) {
            threads.push(tid);
            if with_children {
                processes.extend(children(pid, tid));
            }
        }
    }
}

/// The CPUs that a thread may use; `None`: it has ended.
pub fn cpus(tid: u32) -> Option<Cpus> {
    Thread::Tid(i32::try_from(tid).ok()?).cpus().ok()
}

/// Moves all threads of this process. False: the kernel refuses these CPUs.
pub fn move_own_threads(cpus: &Cpus) -> bool {
    if Thread::Calling.set_cpus(cpus).is_err() {
        return false;
    }
    // A thread that begins meanwhile has the CPUs of the one that starts it, which may have had the old ones: until all are seen.
    let mut moved = BTreeSet::new();
    loop {
        let threads = numbers("/proc/self/task");
        let mut is_complete = true;
        for tid in threads {
            if moved.insert(tid) {
                is_complete = false;
                // It has ended: nothing to do.
                let _ = i32::try_from(tid).map(|tid| Thread::Tid(tid).set_cpus(cpus));
            }
        }
        if is_complete {
            return true;
        }
    }
}

fn is_real_time(tid: u32) -> bool {
    let Ok(tid) = i32::try_from(tid) else { return false };
    // SAFETY: a system call with a number.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    is_real_time_policy(policy)
}

/// A failed system call gave -1, which is none.
fn is_real_time_policy(policy: i32) -> bool {
    const DEADLINE: i32 = 6;
    policy >= 0 && matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR | DEADLINE)
}

fn is_kernel_thread(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // A name may have spaces and parentheses in it; the flags are the seventh field behind it (proc_pid_stat(5)).
    let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

fn has_name(tid: u32, names: &[Glob]) -> bool {
    if names.is_empty() {
        return false;
    }
    let comm = fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    names.iter().any(|name| name.matches(comm.strip_suffix(b"\n").unwrap_or(&comm)))
}

/// The entries of a directory that are numbers, in order.
fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect();
    numbers.sort_unstable();
    numbers
}
