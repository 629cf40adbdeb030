// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units and ids. Newtypes, so that a CPU is never taken for a thread and a duration never for a point in time.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A point in time: nanoseconds of `CLOCK_MONOTONIC`, the clock of all records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicNs(pub u64);

impl MonotonicNs {
    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: MonotonicNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This point moved back by `ns`, stopping at 0.
    #[must_use]
    pub fn minus(self, ns: u64) -> MonotonicNs {
        MonotonicNs(self.0.saturating_sub(ns))
    }

    /// This point moved on by `ns`, stopping at the largest value.
    #[must_use]
    pub fn plus(self, ns: u64) -> MonotonicNs {
        MonotonicNs(self.0.saturating_add(ns))
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A logical CPU number, as in `/proc/cpuinfo`.
    CpuId
);
id!(
    /// A thread: the kernel's `task->pid`, what `gettid` returns. 0 is the idle thread of whatever CPU it is on.
    Tid
);
id!(
    /// A process: the kernel's `task->tgid`, what `getpid` returns.
    Pid
);
id!(
    /// A device interrupt number, as in `/proc/interrupts`.
    Irq
);

/// The kernel's effective priority (`task->prio`): -1 deadline, 0 to 98 real-time 99 to 1, 100 to 139 nice -20 to 19.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub i16);

impl Priority {
    /// The real-time priority as `chrt` shows it (1 to 99), or `None` outside the real-time range.
    #[must_use]
    pub fn realtime(self) -> Option<i16> {
        (0..=98).contains(&self.0).then_some(99 - self.0)
    }
}

impl fmt::Display for Priority {
    /// `deadline`, `rt 80`, `nice 0`, in the words of `chrt` and `nice`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            p if p < 0 => f.write_str("deadline"),
            p if p < 100 => write!(f, "rt {}", 99 - p),
            p => write!(f, "nice {}", p - 120),
        }
    }
}
