// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tracker is asked to follow: whose responses, until when, from which origins, and how late is late.

use rtscope_event::{Glob, Irq, Origin, OriginKind, Pid, Tid, WaitKind};
use std::collections::BTreeSet;

/// When a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// The target is switched in.
    Running,
    /// The target goes back to waiting.
    Blocked,
    /// The target goes back to waiting for that with which its cycle began. Waits for anything else are steps of the cycle.
    Cycle,
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

/// Which origins count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginFilter {
    /// Their kinds.
    pub kinds: Vec<OriginKind>,
    /// Of device interrupts only these; empty: any.
    pub irqs: BTreeSet<Irq>,
}

/// Timers, interrupts and vectors.
impl Default for OriginFilter {
    fn default() -> OriginFilter {
        OriginFilter { kinds: OriginFilter::HARDWARE.to_vec(), irqs: BTreeSet::new() }
    }
}

impl OriginFilter {
    /// All that comes from outside the tasks.
    pub const HARDWARE: [OriginKind; 3] = [OriginKind::Timer, OriginKind::Irq, OriginKind::Vector];

    /// Whether a response with this origin counts.
    #[must_use]
    pub fn accepts(&self, origin: &Origin) -> bool {
        self.kinds.contains(&origin.kind)
            && (origin.kind != OriginKind::Irq || self.irqs.is_empty() || self.irqs.contains(&Irq(origin.id)))
    }

    /// Whether responses may begin with a task that wakes the target.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        self.kinds.contains(&OriginKind::Task)
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
    /// With waits of which kinds a cycle may begin ([`EndCondition::Cycle`]).
    pub sources: Vec<WaitKind>,
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
            sources: WaitKind::SOURCES.to_vec(),
            threshold_ns,
        }
    }
}
