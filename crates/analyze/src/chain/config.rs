// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tracker is asked to follow: whose responses, until when, from which origins, and how late is late.

use rtscope_event::{Glob, Irq, Origin, OriginKind, Pid, Tid};
use std::collections::BTreeSet;

/// When a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// The target is switched in.
    Running,
    /// The target goes back to waiting.
    Blocked,
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

/// The configuration of the tracker.
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
