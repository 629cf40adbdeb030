// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is reported of programs: each ring and process that is there, and sums of those that are over, of which a user can have any
//! number.

use crate::provider::{ProcessCounters, ProviderInfo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A report of one ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingReport {
    /// Its index among all rings of the recording.
    pub index: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name when it was made.
    pub comm: String,
    /// Size.
    pub bytes: u64,
    /// Bytes that have not been taken yet.
    pub waiting_bytes: u64,
    /// Events that did not fit since the recording began.
    pub lost: u64,
    /// Records that were begun and never finished.
    pub unfinished: u64,
    /// How often its thread waited for space.
    pub waits: u64,
    /// The thread has ended.
    pub ended: bool,
}

/// Sums over rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingTotals {
    /// As in [`RingReport`].
    pub lost: u64,
    /// As in [`RingReport`].
    pub unfinished: u64,
    /// As in [`RingReport`].
    pub waits: u64,
}

impl RingTotals {
    pub(super) fn add(&mut self, other: RingTotals) {
        self.lost = self.lost.saturating_add(other.lost);
        self.unfinished = self.unfinished.saturating_add(other.unfinished);
        self.waits = self.waits.saturating_add(other.waits);
    }

    pub(super) fn is_nothing(self) -> bool {
        self == RingTotals::default()
    }
}

/// Processes that are over, and are not reported one by one any more: a user can have any number of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastProcesses {
    /// Their number, without those that had nothing to report.
    pub processes: u32,
    /// Their rings.
    pub rings: RingTotals,
    /// Events that were lost outside of rings, except for the next.
    pub lost_no_buffer: u64,
    /// Events that were larger than a record can be.
    pub lost_too_large: u64,
    /// Events of processes that could make no file to count them in: at most so many of those that were asked for.
    pub lost_without_file: u64,
    /// How many of them ran untraced.
    pub untraced: u64,
    /// How many of them were dropped because of one of their files.
    pub dropped: u64,
}

impl PastProcesses {
    pub(super) fn add(&mut self, report: &ProcessReport) {
        let rings = report.rings.iter().map(RingReport::totals);
        rings.chain([report.over]).for_each(|ring| self.rings.add(ring));
        let outside = report.lost_outside;
        self.processes += 1;
        self.lost_no_buffer =
            self.lost_no_buffer.saturating_add(outside.lost().saturating_sub(outside.lost_too_large));
        self.lost_too_large = self.lost_too_large.saturating_add(outside.lost_too_large);
        self.untraced += u64::from(report.untraced.is_some());
        self.dropped += u64::from(report.dropped.is_some());
    }

    /// Adds those of others.
    pub fn merge(&mut self, other: &PastProcesses) {
        self.processes += other.processes;
        self.rings.add(other.rings);
        self.lost_no_buffer = self.lost_no_buffer.saturating_add(other.lost_no_buffer);
        self.lost_too_large = self.lost_too_large.saturating_add(other.lost_too_large);
        self.lost_without_file = self.lost_without_file.saturating_add(other.lost_without_file);
        self.untraced += other.untraced;
        self.dropped += other.dropped;
    }

    /// What was lost outside of rings.
    #[must_use]
    pub fn outside(&self) -> UserLosses {
        let counts = [self.lost_no_buffer, self.lost_too_large, self.lost_without_file];
        UserLosses {
            lost: counts.into_iter().fold(0, u64::saturating_add),
            is_uncounted: self.untraced > 0 || self.dropped > 0,
            ..UserLosses::default()
        }
    }

    /// Events lost because a ring was full or missing.
    pub(super) fn lost(&self) -> u64 {
        self.outside().lost.saturating_add(self.rings.lost)
    }
}

/// What one user's programs have lost. They count most of it themselves, and may lie: so it is known whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLosses {
    /// Events, as far as somebody has counted them.
    pub lost: u64,
    /// Others were lost that nobody has counted.
    pub is_uncounted: bool,
    /// Events that were left out, since they were not asked for.
    pub filtered: u64,
    /// Events that are recorded with the time of an event before them, since they came too late for their own.
    #[serde(default)]
    pub moved: u64,
    /// This user's programs were not asked for.
    pub is_unasked: bool,
}

/// The same of all users, by number.
pub type LossesByUser = BTreeMap<u32, UserLosses>;

impl UserLosses {
    /// Adds what else was lost.
    pub fn add(&mut self, other: UserLosses) {
        self.lost = self.lost.saturating_add(other.lost);
        self.filtered = self.filtered.saturating_add(other.filtered);
        self.moved = self.moved.saturating_add(other.moved);
        self.is_uncounted |= other.is_uncounted;
        self.is_unasked |= other.is_unasked;
    }
}

/// Losses of a process outside its rings since the recording began.
pub type OutsideLosses = ProcessCounters;

/// A report of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// Its number in its own PID namespace.
    pub pid: u32,
    /// Its number in this PID namespace, when it is in another one and could be found.
    pub host_pid: Option<u32>,
    /// It is in a container, whose process numbers are not those of this machine.
    pub container: bool,
    /// The user, as this machine sees it.
    pub uid: u32,
    /// Name of its main thread at the start.
    pub comm: String,
    /// The program and its libraries that have events.
    pub providers: Vec<ProviderInfo>,
    /// Number of enabled events.
    pub enabled: u32,
    /// Its rings.
    pub rings: Vec<RingReport>,
    /// Its earlier rings.
    #[serde(skip)]
    pub over: RingTotals,
    /// Events lost outside its rings.
    pub lost_outside: OutsideLosses,
    /// Why it runs untraced (errno), if it does.
    pub untraced: Option<i32>,
    /// Why nothing more is taken from it.
    pub dropped: Option<String>,
    /// It has ended.
    pub dead: bool,
}

impl RingReport {
    /// What is added up.
    #[must_use]
    pub fn totals(&self) -> RingTotals {
        RingTotals { lost: self.lost, unfinished: self.unfinished, waits: self.waits }
    }
}

impl ProcessReport {
    /// Events lost because a ring was full or missing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let rings = self.rings.iter().map(|ring| ring.lost).chain([self.over.lost]);
        rings.fold(self.lost_outside.lost(), u64::saturating_add)
    }

    /// What was lost outside of rings.
    #[must_use]
    pub fn outside(&self) -> UserLosses {
        UserLosses {
            lost: self.lost_outside.lost(),
            is_uncounted: self.untraced.is_some() || self.dropped.is_some(),
            ..UserLosses::default()
        }
    }

    /// The process, for messages.
    #[must_use]
    pub fn who(&self) -> String {
        match (self.container, self.host_pid) {
            (_, Some(here)) => format!("process {} of a container ({here} on this machine)", self.pid),
            (true, None) => format!("process {} of a container", self.pid),
            (false, None) => format!("process {}", self.pid),
        }
    }
}

impl ProcessCounters {
    /// The sum of the lost events.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let lost = [self.lost_no_ring, self.lost_in_setup, self.lost_too_large, self.lost_in_child];
        let others = [self.lost_nobody, self.lost_no_file, self.lost_no_channel];
        lost.into_iter().chain(others).fold(0, u64::saturating_add)
    }
}
