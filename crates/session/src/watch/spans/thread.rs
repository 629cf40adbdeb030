// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads whose events are paired: their numbers and names in the kernel, and what was counted of them.

use super::SpanTarget;
use crate::users::may_be_of;
use rtscope_analyze::summary::SpanThreadSummary;
use rtscope_event::{Comm, Pid, Priority, Tid};
use rtscope_programs::RingInfo;
use std::fs;

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct SpanThread {
    pub(super) tid: Tid,
    /// The kernel's number here is known; else `tid` is that in its container.
    pub(super) is_known_here: bool,
    pub(super) pid: Pid,
    pub(super) comm: Comm,
    pub(super) prio: Priority,
    pub(super) is_target: bool,
    /// Its process is one of the user whose file names it. Any user can write any number into his file.
    pub(super) is_its: bool,
    /// The clock of its ring, and what that shows more than this process's.
    pub(super) clock: u32,
    pub(super) clock_offset_ns: i64,
    intervals: u64,
    late: u64,
    worst_ns: u64,
    sum_ns: u64,
}

impl SpanThread {
    /// As it is when its first event is seen; what can no longer be read is taken from its ring, and as most threads have it. `here`: its number here,
    /// if that is known.
    pub(super) fn new(ring: &RingInfo, here: Option<u32>, target: &SpanTarget) -> SpanThread {
        let pid = ring.host_pid.unwrap_or(ring.pid);
        let mut thread = SpanThread {
            tid: Tid(ring.tid),
            is_known_here: false,
            pid: Pid(pid),
            comm: Comm::from_bytes(ring.comm.as_bytes()),
            prio: Priority(120),
            is_target: false,
            is_its: may_be_of(pid, ring.uid),
            clock: ring.clock,
            clock_offset_ns: ring.clock_offset_ns,
            intervals: 0,
            late: 0,
            worst_ns: 0,
            sum_ns: 0,
        };
        thread.place(here, target);
        thread
    }

    /// Its number here, now or later.
    pub(super) fn place(&mut self, here: Option<u32>, target: &SpanTarget) {
        let here = here.filter(|_| self.is_its);
        (self.tid, self.is_known_here) = (here.map_or(self.tid, Tid), here.is_some());
        self.refresh();
        self.is_target = target.pid.is_none_or(|wanted| self.is_its && wanted == self.pid.0)
            && target.tid.is_none_or(|wanted| self.is_known_here && wanted == self.tid.0)
            && target.name.as_ref().is_none_or(|name| name.matches(self.comm.as_bytes()));
    }

    /// Its name and priority now, if it is there.
    pub(super) fn refresh(&mut self) {
        // Another thread may have that number.
        if !self.is_known_here {
            return;
        }
        let place = format!("/proc/{}/task/{}", self.pid, self.tid);
        if let Ok(comm) = fs::read(format!("{place}/comm")) {
            self.comm = Comm::from_bytes(comm.strip_suffix(b"\n").unwrap_or(&comm));
        }
        let stat = rtscope_kernel::task_file(self.tid, "stat");
        let priority = stat.ok().flatten().and_then(|stat| priority(&String::from_utf8_lossy(&stat)));
        self.prio = priority.unwrap_or(self.prio);
    }

    /// The name of its process; its own where that is not known.
    pub(super) fn process_name(&self) -> Comm {
        let name = if self.is_its { fs::read(format!("/proc/{}/comm", self.pid)).ok() } else { None };
        name.map_or(self.comm, |name| Comm::from_bytes(name.strip_suffix(b"\n").unwrap_or(&name)))
    }

    /// An interval that ended in it.
    pub(super) fn add(&mut self, length_ns: u64, is_late: bool) {
        self.intervals += 1;
        self.late += u64::from(is_late);
        self.worst_ns = self.worst_ns.max(length_ns);
        self.sum_ns = self.sum_ns.saturating_add(length_ns);
    }

    /// `None`: no interval ended in it.
    pub(super) fn summary(&self) -> Option<SpanThreadSummary> {
        (self.intervals > 0).then_some(SpanThreadSummary {
            tid: self.tid,
            pid: self.pid,
            comm: self.comm,
            intervals: self.intervals,
            late: self.late,
            worst_ns: self.worst_ns,
            sum_ns: self.sum_ns,
        })
    }
}

/// The kernel's priority, by `/proc/PID/task/TID/stat`, which shows it less 100 (proc_pid_stat(5), field 18).
fn priority(stat: &str) -> Option<Priority> {
    // A name may have spaces and parentheses.
    let (_, after) = stat.rsplit_once(')')?;
    let shown: i16 = after.split_whitespace().nth(15)?.parse().ok()?;
    Some(Priority(shown.checked_add(100)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_says_it_is_another_users_process_is_no_target() {
        let (own, user) = (std::process::id(), nix::unistd::getuid().as_raw());
        let target = SpanTarget { pid: Some(own), ..SpanTarget::default() };
        for (uid, is_its) in [(user, true), (user + 4711, false)] {
            let ring = RingInfo { pid: own, tid: own, uid, ..super::super::tests::ring(1, "one") };
            let thread = SpanThread::new(&ring, Some(own), &target);
            assert_eq!((thread.is_target, thread.is_known_here, thread.is_its), (is_its, is_its, is_its));
        }
    }

    #[test]
    fn priorities_are_the_kernels() {
        let stat = |shown: &str| {
            format!("7 (a) b (x) S 1 7 7 0 -1 4194304 90 0 0 0 1 2 0 0 {shown} 0 3 0 5517 1 2 3")
        };
        assert_eq!(priority(&stat("20")), Some(Priority(120)));
        assert_eq!(priority(&stat("-81")), Some(Priority(19)));
        assert_eq!(priority("7 (a"), None);
    }
}
