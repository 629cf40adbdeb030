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

impl std::str::FromStr for Priority {
    type Err = String;

    /// `rt 1` to `rt 99`, `nice -20` to `nice 19`, `dl` (or `deadline`): what [`Priority`]'s text shows. `prio` and a number is the kernel's.
    fn from_str(text: &str) -> Result<Priority, String> {
        let wrong = || format!("'{text}' is not a priority; write rt 90, nice 5 or dl");
        if matches!(text, "dl" | "deadline") {
            return Ok(Priority(-1));
        }
        let (class, number) = text.split_once(' ').ok_or_else(wrong)?;
        let number: i16 = number.trim().parse().map_err(|_| wrong())?;
        match class {
            "rt" if (1..=99).contains(&number) => Ok(Priority(99 - number)),
            "nice" if (-20..=19).contains(&number) => Ok(Priority(120 + number)),
            "prio" => Ok(Priority(number)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Priority {
    /// `dl` (SCHED_DEADLINE), `rt 80`, `nice 0`. Numbers that the kernel gives no task are shown as they are, since people have no word for
    /// them: 99 would be `rt 0`, which is nobody's (`sched_setscheduler` takes 1 to 99); a damaged trace may have any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            -1 => f.write_str("dl"),
            p @ 0..=98 => write!(f, "rt {}", 99 - p),
            p @ 100..=139 => write!(f, "nice {}", p - 120),
            p => write!(f, "prio {p}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_what_its_text_says() {
        for number in i16::MIN..=i16::MAX {
            let text = Priority(number).to_string();
            assert_eq!(text.parse(), Ok(Priority(number)), "{text}");
        }
        for (number, text) in
            [(-1, "dl"), (0, "rt 99"), (98, "rt 1"), (99, "prio 99"), (100, "nice -20"), (139, "nice 19")]
        {
            assert_eq!(Priority(number).to_string(), text);
            // One account of what is real-time.
            assert_eq!(Priority(number).realtime().is_some(), text.starts_with("rt "), "{text}");
        }
    }
}
