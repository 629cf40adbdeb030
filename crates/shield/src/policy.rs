// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's scheduling policies: reading a thread's, giving it another, and why the kernel may say no.
//!
//! sched_setattr(2) has three answers that each mean several things. Which one it is follows from what else can be read
//! (sched(7), and `__sched_setscheduler` in the kernel's kernel/sched/syscalls.c), so a refusal is reported with its figures.

use crate::admission::{self, Refusal};
use crate::{Cpus, System};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A thread with this flag starts others as ordinary ones. A SCHED_DEADLINE thread without it can start none.
pub const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;
/// Flags that belong to a policy: the one above, reclaiming, and the signal on an overrun (sched_setattr(2)).
const FLAGS: u64 = 0x7;

/// What a SCHED_DEADLINE thread asks for: how much of a CPU, by when, how often. In nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Time of the CPU.
    pub runtime_ns: u64,
    /// By then after the beginning of a period.
    pub deadline_ns: u64,
    /// Once in this time.
    pub period_ns: u64,
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum Policy {
    /// SCHED_OTHER.
    Other {
        /// Its nice value.
        nice: i32,
    },
    /// SCHED_BATCH.
    Batch {
        /// Its nice value.
        nice: i32,
    },
    /// SCHED_IDLE.
    Idle,
    /// SCHED_FIFO.
    Fifo {
        /// 1 to 99, the highest first.
        priority: u32,
    },
    /// SCHED_RR.
    Rr {
        /// 1 to 99, the highest first.
        priority: u32,
    },
    /// SCHED_DEADLINE.
    Deadline(Reservation),
    /// SCHED_EXT, or one that this program does not know.
    Another {
        /// Its number.
        number: u32,
        /// Its nice value.
        nice: i32,
    },
}

/// A policy with its flags: all that has to be known to set it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The policy.
    pub policy: Policy,
    /// As in sched_setattr(2).
    pub flags: u64,
}

const EXT: u32 = 7;

impl Policy {
    /// Whether it comes before all ordinary tasks.
    pub fn is_real_time(&self) -> bool {
        matches!(self, Policy::Fifo { .. } | Policy::Rr { .. } | Policy::Deadline(_))
    }
}

impl Reservation {
    /// The part of a CPU that it reserves.
    pub fn utilisation(&self) -> f64 {
        self.runtime_ns as f64 / self.period_ns.max(1) as f64
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [runtime, deadline, period] =
            [self.runtime_ns, self.deadline_ns, self.period_ns].map(admission::time);
        write!(out, "{runtime} in {deadline} every {period}")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Other { .. } => out.write_str("other"),
            Policy::Batch { .. } => out.write_str("batch"),
            Policy::Idle => out.write_str("idle"),
            Policy::Fifo { priority } => write!(out, "fifo {priority}"),
            Policy::Rr { priority } => write!(out, "rr {priority}"),
            Policy::Deadline(reservation) => write!(out, "deadline {reservation}"),
            Policy::Another { number: EXT, .. } => out.write_str("ext"),
            Policy::Another { number, .. } => write!(out, "policy {number}"),
        }
    }
}

/// As the journal has it: number, flags, nice, priority, runtime, deadline, period.
impl fmt::Display for Scheduling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let a = self.attributes();
        write!(
            out,
            "{} {} {} {} {} {} {}",
            a.sched_policy,
            a.sched_flags,
            a.sched_nice,
            a.sched_priority,
            a.sched_runtime,
            a.sched_deadline,
            a.sched_period
        )
    }
}

impl Scheduling {
    /// With no flags, but for SCHED_DEADLINE, whose threads could not start any other without it.
    pub fn new(policy: Policy) -> Scheduling {
        let flags = if matches!(policy, Policy::Deadline(_)) { RESET_ON_FORK } else { 0 };
        Scheduling { policy, flags }
    }

    /// Reads what [`fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Scheduling> {
        let numbers: Option<Vec<i64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        let [number, flags, nice, priority, runtime, deadline, period] = numbers?[..] else { return None };
        let reservation = Reservation {
            runtime_ns: runtime.try_into().ok()?,
            deadline_ns: deadline.try_into().ok()?,
            period_ns: period.try_into().ok()?,
        };
        let policy =
            policy(number.try_into().ok()?, nice.try_into().ok()?, priority.try_into().ok()?, reservation);
        Some(Scheduling { policy, flags: flags.try_into().ok()? })
    }

    fn attributes(&self) -> libc::sched_attr {
        let mut attributes = empty();
        attributes.sched_flags = self.flags;
        match self.policy {
            Policy::Other { nice } => attributes.sched_nice = nice,
            Policy::Batch { nice } => {
                (attributes.sched_policy, attributes.sched_nice) = (libc::SCHED_BATCH as u32, nice);
            }
            Policy::Idle => attributes.sched_policy = libc::SCHED_IDLE as u32,
            Policy::Fifo { priority } => {
                (attributes.sched_policy, attributes.sched_priority) = (libc::SCHED_FIFO as u32, priority);
            }
            Policy::Rr { priority } => {
                (attributes.sched_policy, attributes.sched_priority) = (libc::SCHED_RR as u32, priority);
            }
            Policy::Deadline(reservation) => {
                attributes.sched_policy = libc::SCHED_DEADLINE as u32;
                attributes.sched_runtime = reservation.runtime_ns;
                attributes.sched_deadline = reservation.deadline_ns;
                attributes.sched_period = reservation.period_ns;
            }
            Policy::Another { number, nice } => {
                (attributes.sched_policy, attributes.sched_nice) = (number, nice);
            }
        }
        attributes
    }
}

fn empty() -> libc::sched_attr {
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

fn policy(number: u32, nice: i32, priority: u32, reservation: Reservation) -> Policy {
    match number as i32 {
        libc::SCHED_OTHER => Policy::Other { nice },
        libc::SCHED_BATCH => Policy::Batch { nice },
        libc::SCHED_IDLE => Policy::Idle,
        libc::SCHED_FIFO => Policy::Fifo { priority },
        libc::SCHED_RR => Policy::Rr { priority },
        libc::SCHED_DEADLINE => Policy::Deadline(reservation),
        _ => Policy::Another { number, nice },
    }
}

/// How a thread is scheduled; 0 is the calling one.
///
/// # Errors
/// ESRCH when there is none.
pub fn of(tid: i32) -> Result<Scheduling, Errno> {
    let mut attributes = empty();
    let size = attributes.size;
    // SAFETY: the kernel writes at most `size` bytes, which is the structure's own size, and keeps no pointer.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
    Errno::result(result)?;
    let reservation = Reservation {
        runtime_ns: attributes.sched_runtime,
        deadline_ns: attributes.sched_deadline,
        period_ns: attributes.sched_period,
    };
    let policy =
        policy(attributes.sched_policy, attributes.sched_nice, attributes.sched_priority, reservation);
    Ok(Scheduling { policy, flags: attributes.sched_flags & FLAGS })
}

/// Schedules a thread so; 0 is the calling one.
///
/// # Errors
/// As the kernel says; [`explain`] says what it means.
pub fn set(tid: i32, scheduling: &Scheduling) -> Result<(), Errno> {
    let attributes = scheduling.attributes();
    // SAFETY: the kernel reads `size` bytes of a live structure of that size, and keeps no pointer.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
    Errno::result(result).map(drop)
}

/// What the kernel's refusal means, with the figures that it decided by.
pub fn explain(system: &System, errno: Errno, policy: &Policy, may_use: &Cpus) -> String {
    let runtime = system.read("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    let runtime = runtime.trim();
    let is_root = nix::unistd::geteuid().is_root();
    match (errno, policy) {
        (Errno::EINVAL, Policy::Deadline(reservation)) => match admission::valid(system, reservation) {
            Err(Refusal(why)) => why,
            Ok(()) => format!("the kernel takes no such times: {reservation}"),
        },
        (Errno::EBUSY, Policy::Deadline(reservation)) => {
            admission::kernel_says_busy(system, reservation, may_use)
        }
        (Errno::EPERM, _) if !is_root => {
            "only root, or a process with CAP_SYS_NICE, may do that (for fifo and rr also ulimit -r)".to_owned()
        }
        (Errno::EPERM, Policy::Deadline(_)) if runtime == "0" => {
            "the kernel admits no real-time task at all: /proc/sys/kernel/sched_rt_runtime_us is 0".to_owned()
        }
        (Errno::EPERM, Policy::Deadline(_)) => format!(
            "it may use CPUs {may_use}, and its root domain has more: while /proc/sys/kernel/sched_rt_runtime_us is not -1 (it is \
             {runtime}) the kernel takes a DEADLINE task only where it may use the whole domain. Either write -1 there, as a shield \
             does (rtscope shield status says whether that has drifted), or shield CPUs {may_use} alone: a partition is a domain"
        ),
        (Errno::EPERM, Policy::Fifo { .. } | Policy::Rr { .. }) => {
            "the control group of this process has no real-time runtime (cpu.rt_runtime_us is 0, CONFIG_RT_GROUP_SCHED), or a \
             security module forbids it"
                .to_owned()
        }
        (errno, _) => errno.desc().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_so_that_it_can_be_set_again() {
        let reservation =
            Reservation { runtime_ns: 2_000_000, deadline_ns: 5_000_000, period_ns: 10_000_000 };
        for policy in [
            Policy::Other { nice: -5 },
            Policy::Batch { nice: 19 },
            Policy::Idle,
            Policy::Fifo { priority: 80 },
            Policy::Rr { priority: 1 },
            Policy::Deadline(reservation),
            Policy::Another { number: 7, nice: 3 },
        ] {
            for flags in [0, RESET_ON_FORK] {
                let scheduling = Scheduling { policy, flags };
                assert_eq!(Scheduling::parse(&scheduling.to_string()), Some(scheduling));
            }
        }
        for wrong in ["", "1 2", "x 0 0 0 0 0 0", "0 0 0 0 0 0 -1", "0 0 0 0 0 0 0 0"] {
            assert_eq!(Scheduling::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_ordinary_thread_is_told_as_such() {
        let now = of(0).expect("our own");
        assert!(!now.policy.is_real_time(), "{now}");
        set(0, &now).expect("what it is, it may be again");
        assert_eq!(of(0), Ok(now));
        assert_eq!(of(i32::MAX), Err(Errno::ESRCH));
    }
}
