// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policy, CPU, name and locked memory of the calling thread.

use std::ffi::CString;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl;
use nix::unistd::gettid;
use rtscope_cpus::Thread;

/// A scheduling policy with its priority, typed as `fifo:50`, `rr:50` or `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_FIFO with priority 1 to 99.
    Fifo(i32),
    /// SCHED_RR with priority 1 to 99.
    RoundRobin(i32),
    /// SCHED_OTHER, nice 0.
    Other,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is not a policy; write it like fifo:50, rr:50 (priority 1 to 99) or other");
        if text == "other" {
            return Ok(Policy::Other);
        }
        let (name, priority) = text.split_once(':').ok_or_else(wrong)?;
        let priority = priority.parse().ok().filter(|p| (1..=99).contains(p)).ok_or_else(wrong)?;
        match name {
            "fifo" => Ok(Policy::Fifo(priority)),
            "rr" => Ok(Policy::RoundRobin(priority)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Fifo(priority) => write!(f, "fifo:{priority}"),
            Policy::RoundRobin(priority) => write!(f, "rr:{priority}"),
            Policy::Other => f.write_str("other"),
        }
    }
}

/// Gives the calling thread a policy.
pub fn set_policy(policy: Policy) -> Result<()> {
    let (class, sched_priority) = match policy {
        Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
        Policy::RoundRobin(priority) => (libc::SCHED_RR, priority),
        Policy::Other => (libc::SCHED_OTHER, 0),
    };
    let param = libc::sched_param { sched_priority };
    // SAFETY: `param` is a local that outlives the call, and the kernel only reads it; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, class, &param) };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        Err(Errno::EPERM) => bail!(
            "the kernel refuses policy {policy}: it needs root or CAP_SYS_NICE, and with CONFIG_RT_GROUP_SCHED \
             a CPU control group that has real-time time (cpu.rt_runtime_us above 0)"
        ),
        Err(error) => Err(error).with_context(|| format!("policy {policy}")),
    }
}

/// Ties the calling thread to one CPU.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    let number = u32::try_from(cpu).with_context(|| format!("CPU {cpu}"))?;
    Thread::Calling
        .set_cpus(&[number].into_iter().collect())
        .with_context(|| format!("cannot run on CPU {cpu}: is it online, and allowed for this process?"))
}

/// Names the calling thread; the kernel keeps 15 bytes.
pub fn set_name(name: &str) {
    let bytes: Vec<u8> = name.bytes().filter(|&b| b != 0).take(15).collect();
    let name = CString::new(bytes).expect("zero bytes were left out");
    // PR_SET_NAME only fails for an address that cannot be read.
    let _ = prctl::set_name(&name);
}

/// Kernel id of the calling thread.
pub fn tid() -> i32 {
    gettid().as_raw()
}

/// Keeps all memory of the process, present and future, in RAM, so that no page fault disturbs a real-time thread.
///
/// Does nothing for ordinary policies, which then need no privilege.
pub fn lock_memory(policy: Policy) -> Result<()> {
    if policy == Policy::Other {
        return Ok(());
    }
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .context("cannot lock memory: needs root, CAP_IPC_LOCK or a higher `ulimit -l`")
}

/// The highest-numbered CPU that this thread may use.
pub fn last_cpu() -> Result<usize> {
    let allowed = Thread::Calling.cpus().context("which CPUs may be used")?;
    allowed.iter().last().map(|cpu| cpu as usize).context("no CPU may be used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_back() {
        for text in ["fifo:50", "rr:1", "other"] {
            assert_eq!(text.parse::<Policy>().map(|p| p.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["fifo", "fifo:0", "fifo:100", "batch:1", "", "rr:x"] {
            assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_cpu_can_be_used() {
        let cpu = last_cpu().expect("some CPU may be used");
        pin_to_cpu(cpu).expect("it is one of those");
    }
}
