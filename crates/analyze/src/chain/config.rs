// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tracker is asked to follow: whose responses, until when, from which origins, and how late is late.

use rtscope_event::{Irq, Origin, OriginKind, Pid, Tid};
use std::collections::BTreeSet;
use std::fmt;

/// When a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// The target is switched in.
    Running,
    /// The target goes back to waiting.
    Blocked,
}

/// A pattern for task names: `*` is any text, `?` any one byte, all else itself, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// A pattern. Every text is one.
    #[must_use]
    pub fn new(pattern: impl Into<String>) -> Glob {
        Glob(pattern.into())
    }

    /// Whether the pattern describes all of `name`.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        // Two positions and the last `*`: on a mismatch, that `*` takes one byte more. Linear in space, no recursion.
        let pattern = self.0.as_bytes();
        let (mut at, mut byte, mut retry) = (0, 0, None);
        while byte < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    retry = Some((at, byte));
                    at += 1;
                }
                Some(wanted) if *wanted == b'?' || *wanted == name[byte] => {
                    at += 1;
                    byte += 1;
                }
                _ => match retry {
                    Some((star, from)) => {
                        retry = Some((star, from + 1));
                        at = star + 1;
                        byte = from + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|rest| *rest == b'*')
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose responses are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The first user-space task of each chain.
    AnyUser,
    /// Tasks of this name.
    Comm(Glob),
    /// Threads of this process, all or those of this name.
    Process {
        /// Its id.
        pid: Pid,
        /// Names of threads that count.
        comm: Option<Glob>,
    },
    /// These threads.
    Tids(BTreeSet<Tid>),
}

/// Which origins count. Without any, all do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginFilter {
    /// Device interrupts that count.
    pub irqs: BTreeSet<Irq>,
    /// Timers count.
    pub timer: bool,
}

impl OriginFilter {
    /// Whether a response with this origin counts.
    #[must_use]
    pub fn accepts(&self, origin: &Origin) -> bool {
        if self.irqs.is_empty() && !self.timer {
            return true;
        }
        match origin.kind {
            OriginKind::Timer => self.timer,
            OriginKind::Irq => self.irqs.contains(&Irq(origin.id)),
            OriginKind::Vector => false,
        }
    }
}

/// All that the tracker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// When a response ends.
    pub end: EndCondition,
    /// Whose responses.
    pub target: Target,
    /// From which origins.
    pub origins: OriginFilter,
    /// A response that takes longer is late.
    pub threshold_ns: u64,
}

impl Config {
    /// Any user-space task, all origins, until it waits again.
    #[must_use]
    pub fn new(threshold_ns: u64) -> Config {
        Config {
            end: EndCondition::Blocked,
            target: Target::AnyUser,
            origins: OriginFilter::default(),
            threshold_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let matches = |pattern: &str, name: &str| Glob::new(pattern).matches(name.as_bytes());
        assert!(matches("control-*", "control-loop"));
        assert!(matches("*", ""));
        assert!(matches("irq/??-*", "irq/36-virtio"));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(!matches("a*b*c", "a-c-b"));
        assert!(!matches("Control", "control"));
        assert!(!matches("?", ""));
        assert!(!matches("", "a"));
    }
}
