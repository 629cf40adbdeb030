// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trackers: what each follows while it happens, in the kernel.

use serde::{Deserialize, Serialize};

/// A tracker, as `enum rts_tracker`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracker {
    /// From an interrupt, a timer or a task to the end of the response to it.
    #[default]
    Response,
    /// From a wakeup until the thread is on a CPU.
    Wakeup,
    /// From leaving a CPU until the thread is on one again.
    Offcpu,
    /// From the entry of a system call to its return.
    Syscall,
    /// From where a thread begins to wait for a lock of the kernel until it has it.
    Lock,
    /// From the entry of an interrupt's handler to its exit.
    Irq,
    /// From where a softirq is raised to the exit of its handler.
    Softirq,
    /// From where a request to a block device is made until it is completed.
    Block,
    /// From where a CPU is asked to take another task until it does.
    Preemptoff,
    /// From where a sample is due until interrupts let it through.
    Irqoff,
    /// From one tracepoint to another one with the same key.
    Pair,
}

impl std::str::FromStr for Tracker {
    type Err = String;

    fn from_str(text: &str) -> Result<Tracker, String> {
        let found = Tracker::ALL.into_iter().find(|tracker| tracker.name() == text);
        let names = || Tracker::ALL.map(Tracker::name).join(", ");
        found.ok_or_else(|| format!("there is no tracker '{text}': {}", names()))
    }
}

impl Tracker {
    /// Every tracker, in the order of `enum rts_tracker` (where 0 is none).
    pub const ALL: [Tracker; 11] = [
        Tracker::Response,
        Tracker::Wakeup,
        Tracker::Offcpu,
        Tracker::Syscall,
        Tracker::Lock,
        Tracker::Irq,
        Tracker::Softirq,
        Tracker::Block,
        Tracker::Preemptoff,
        Tracker::Irqoff,
        Tracker::Pair,
    ];

    /// As commands and traces have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tracker::Response => "response",
            Tracker::Wakeup => "wakeup",
            Tracker::Offcpu => "offcpu",
            Tracker::Syscall => "syscall",
            Tracker::Lock => "lock",
            Tracker::Irq => "irq",
            Tracker::Softirq => "softirq",
            Tracker::Block => "block",
            Tracker::Preemptoff => "preemptoff",
            Tracker::Irqoff => "irqoff",
            Tracker::Pair => "pair",
        }
    }

    /// The tracker with this number in `enum rts_tracker`.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Tracker> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The number in `enum rts_tracker`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Tracker::Response => 1,
            Tracker::Wakeup => 2,
            Tracker::Offcpu => 3,
            Tracker::Syscall => 4,
            Tracker::Lock => 5,
            Tracker::Irq => 6,
            Tracker::Softirq => 7,
            Tracker::Block => 8,
            Tracker::Preemptoff => 9,
            Tracker::Irqoff => 10,
            Tracker::Pair => 11,
        }
    }

    /// Whether it follows a task from one event of its own to another, in steps.
    #[must_use]
    pub fn is_of_intervals(self) -> bool {
        matches!(self, Tracker::Wakeup | Tracker::Offcpu | Tracker::Syscall | Tracker::Lock)
    }

    /// Whether what it reports can have stacks: of the task that waited, and of its waker.
    #[must_use]
    pub fn has_stacks(self) -> bool {
        matches!(self, Tracker::Offcpu | Tracker::Syscall | Tracker::Lock)
    }

    /// Whether what it follows can be seen while it is under way: it may hang.
    #[must_use]
    pub fn is_seen_pending(self) -> bool {
        self.is_of_intervals() || matches!(self, Tracker::Block | Tracker::Pair)
    }

    /// Whether it follows what a CPU does, whichever task it interrupts; a target then is a task that is interrupted.
    #[must_use]
    pub fn is_of_cpus(self) -> bool {
        self.is_of_sections() || matches!(self, Tracker::Irq | Tracker::Softirq)
    }

    /// Whether it follows sections of the kernel in which a CPU cannot be had.
    #[must_use]
    pub fn is_of_sections(self) -> bool {
        matches!(self, Tracker::Preemptoff | Tracker::Irqoff)
    }

    /// Whether it follows, where no target is named, whatever there is, and not only what tasks of user space do.
    #[must_use]
    pub fn is_of_all(self) -> bool {
        self.is_of_cpus() || matches!(self, Tracker::Block | Tracker::Pair)
    }
}
