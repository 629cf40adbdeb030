// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks of the machine, as far as it takes to keep out of their way. It runs while targets do, so it reads as little as it can.

use rtscope_cpus::{Cpus, Thread};
use rtscope_event::{Glob, TaskInfo};
use std::collections::BTreeSet;
use std::fs;

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

/// By /proc/PID/status: some kernels (Linux 6.18) keep whoever reads /proc/PID/stat waiting while the process is in execve(2), and a user can
/// make his as long as he wants, with a file of his own file system that execve(2) closes.
fn is_kernel_thread(pid: u32) -> bool {
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    is_of_kernel_thread(&String::from_utf8_lossy(&status))
}

/// Where the kernel does not say so, a thread without memory that has not ended is its own (proc_pid_status(5)).
fn is_of_kernel_thread(status: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    match value("Kthread:") {
        Some(kthread) => kthread.starts_with('1'),
        None => {
            value("State:").is_some_and(|state| !state.starts_with(['Z', 'X'])) && value("VmSize:").is_none()
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_are_known_by_their_status() {
        let status = |lines: &[&str]| lines.join("\n") + "\n";
        for (lines, is_kernels) in [
            (&["Name:\tkthreadd", "State:\tS (sleeping)", "Kthread:\t1"][..], true),
            (&["Name:\tsh", "State:\tS (sleeping)", "Kthread:\t0", "VmSize:\t10 kB"], false),
            // On older kernels.
            (&["Name:\tkthreadd", "State:\tI (idle)", "Threads:\t1"], true),
            (&["Name:\tsh", "State:\tS (sleeping)", "VmSize:\t10 kB"], false),
            // It has ended, or its threads go on without it.
            (&["Name:\tsh", "State:\tZ (zombie)", "Threads:\t3"], false),
            (&["Name:\tVmSize:", "State:\tX (dead)"], false),
            // There is none.
            (&[], false),
        ] {
            assert_eq!(is_of_kernel_thread(&status(lines)), is_kernels, "{lines:?}");
        }
        assert!(!is_kernel_thread(std::process::id()));
    }
}
