// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls: how many, how long, with which errors.

use super::happening::{CallId, Happenings};
use super::{Intervals, Missing, Span};
use crate::histogram::{Histogram, Percentile};
use serde::Serialize;
use std::collections::BTreeMap;

/// Values below 0 and not below this are errors (`MAX_ERRNO` in the kernel).
const LOWEST_ERROR: i64 = -4095;

/// The error that a system call's value is, as a positive number.
pub(super) fn error_of(ret: i64) -> Option<u16> {
    if (LOWEST_ERROR..0).contains(&ret) { u16::try_from(-ret).ok() } else { None }
}

/// The calls of one kind by one task.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    /// Those that began in the recording.
    begun: u64,
    /// Those that ended, too.
    ended: Intervals,
    errors: u64,
}

impl Calls {
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    /// Returns how long it took.
    pub(super) fn end(&mut self, since_ns: i64, until_ns: i64, ret: Option<i64>) -> u64 {
        self.errors += u64::from(ret.is_some_and(|ret| error_of(ret).is_some()));
        self.ended.add(since_ns, until_ns)
    }

    pub(super) fn merge(&mut self, other: &Calls) {
        self.begun += other.begun;
        self.ended.merge(&other.ended);
        self.errors += other.errors;
    }

    pub(super) fn report(&self, name: &str) -> CallReport {
        CallReport {
            name: name.to_owned(),
            count: self.begun,
            unfinished: self.begun.saturating_sub(self.ended.count),
            errors: self.errors,
            total_ns: self.ended.total_ns,
            longest_ns: self.ended.longest_ns,
            longest_at_ns: self.ended.longest_at_ns,
        }
    }
}

/// The calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallReport {
    /// As the kernel calls it.
    pub name: String,
    /// Those that began in the recording.
    pub count: u64,
    /// Of these, those whose end is not recorded: they do not return (`exit_group`, `rt_sigreturn`), or went on.
    pub unfinished: u64,
    /// Those that returned an error.
    pub errors: u64,
    /// From entry to exit, time in which the task did not run included.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// When the longest ended.
    pub longest_at_ns: Option<i64>,
}

/// What all tasks together did, by system call.
#[derive(Clone, Debug, Default)]
pub(super) struct AllCalls {
    by_call: BTreeMap<CallId, OneCall>,
    exits_without_entry: u64,
}

#[derive(Clone, Debug, Default)]
struct OneCall {
    calls: Calls,
    lengths: Histogram,
    /// By number.
    errors: BTreeMap<u16, u64>,
    /// Who made the longest.
    longest: Option<(u32, String)>,
}

impl AllCalls {
    pub(super) fn begin(&mut self, call: CallId) {
        self.by_call.entry(call).or_default().calls.begin();
    }

    pub(super) fn end(
        &mut self,
        call: CallId,
        (since_ns, until_ns): (i64, i64),
        ret: Option<i64>,
        who: impl FnOnce() -> (u32, String),
    ) {
        let one = self.by_call.entry(call).or_default();
        let before = (one.calls.ended.longest_ns, one.calls.ended.count);
        let length_ns = one.calls.end(since_ns, until_ns, ret);
        one.lengths.record(length_ns);
        if length_ns > before.0 || before.1 == 0 {
            one.longest = Some(who());
        }
        if let Some(error) = ret.and_then(error_of) {
            *one.errors.entry(error).or_default() += 1;
        }
    }

    pub(super) fn exit_without_entry(&mut self) {
        self.exits_without_entry += 1;
    }

    pub(super) fn report(&self, names: &Happenings, span: Span, missing: &Missing) -> SyscallsReport {
        let one = |(call, one): (&CallId, &OneCall)| SyscallReport {
            calls: one.calls.report(names.call_name(*call)),
            percentiles: one
                .lengths
                .statistics()
                .map(|statistics| statistics.percentiles)
                .unwrap_or_default(),
            error_numbers: one.errors.clone(),
            longest_by: one.longest.clone().map(|(tid, comm)| Caller { tid, comm }),
        };
        let mut syscalls: Vec<SyscallReport> = self.by_call.iter().map(one).collect();
        syscalls.sort_by(|one, other| {
            let key = |report: &SyscallReport| std::cmp::Reverse(report.calls.total_ns);
            key(one).cmp(&key(other)).then_with(|| one.calls.name.cmp(&other.calls.name))
        });
        SyscallsReport {
            span,
            syscalls,
            exits_without_entry: self.exits_without_entry,
            missing: missing.clone(),
        }
    }
}

/// A system call of all tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyscallReport {
    /// Count, errors, times.
    #[serde(flatten)]
    pub calls: CallReport,
    /// Of the times.
    pub percentiles: Vec<Percentile>,
    /// How often each error was returned, by its number.
    pub error_numbers: BTreeMap<u16, u64>,
    /// Who made the longest call.
    pub longest_by: Option<Caller>,
}

/// A task that made a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub comm: String,
}

/// What system calls took, longest in sum first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SyscallsReport {
    /// When.
    pub span: Span,
    /// By call.
    pub syscalls: Vec<SyscallReport>,
    /// Ends of calls that began before the recording, and those of new threads, which return from a call of their parents'.
    pub exits_without_entry: u64,
    /// What is missing.
    pub missing: Missing,
}
