// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduling classes of the line's tasks.
//!
//! RT0 (cameras) comes from `rtscope shield run`. RT1 and RT2 mark themselves: with the policy SCHED_EXT where a BPF scheduler runs (rtscope's
//! lends real-time CPUs to them first, by their nice values), else with low FIFO priorities, so that they still come before the
//! statistics. Where neither is allowed they are ordinary tasks, and that is said.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::unistd::Pid;
use rtscope_shield::policy::{self, Policy, Scheduling};
use std::fs;

/// The number of SCHED_EXT.
const EXT: u32 = 7;

/// A soft real-time class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soft {
    /// Image processing.
    Rt1,
    /// Analyses of defects.
    Rt2,
}

/// How soft real-time tasks mark themselves here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marks {
    /// As tasks of the BPF scheduler of this name.
    Ext(String),
    /// By FIFO priorities.
    Fifo,
}

impl Marks {
    /// Looks for a scheduler.
    pub fn find() -> Marks {
        let read =
            |name: &str| fs::read_to_string(format!("/sys/kernel/sched_ext/{name}")).unwrap_or_default();
        if read("state").trim() == "enabled" {
            Marks::Ext(read("root/ops").trim().to_owned())
        } else {
            Marks::Fifo
        }
    }

    /// Marks the calling thread, or says that it may not.
    pub fn mark(&self, class: Soft) -> bool {
        let policy = match (self, class) {
            (Marks::Ext(_), Soft::Rt1) => Policy::Another { number: EXT, nice: -10 },
            (Marks::Ext(_), Soft::Rt2) => Policy::Another { number: EXT, nice: -5 },
            (Marks::Fifo, Soft::Rt1) => Policy::Fifo { priority: 2 },
            (Marks::Fifo, Soft::Rt2) => Policy::Fifo { priority: 1 },
        };
        policy::set(0, &Scheduling { policy, flags: 0 }).is_ok()
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Marks::Ext(scheduler) => format!("SCHED_EXT under {scheduler}, nice -10 and -5"),
            Marks::Fifo => "SCHED_FIFO 2 and 1".to_owned(),
        }
    }
}

/// Without a shield: what `rtscope shield run` would do, as far as that is allowed. What was not is told.
pub fn become_rt0(cpu: Option<u32>, priority: u32) -> Vec<String> {
    let mut refused = Vec::new();
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        let pinned = set.set(cpu as usize).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
        refused.extend(pinned.err().map(|errno| format!("CPU {cpu}: {}", errno.desc())));
    }
    let scheduling = Scheduling::new(Policy::Fifo { priority });
    refused.extend(policy::set(0, &scheduling).err().map(|errno| format!("SCHED_FIFO: {}", errno.desc())));
    refused
}

/// No page of this process is fetched while it works.
pub fn lock_memory() -> Option<String> {
    let flags = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE;
    mlockall(flags).err().map(|errno| format!("locking its memory: {}", errno.desc()))
}
