// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has begun and not ended: a call that hangs, a thread that nobody wakes. It is told while it hangs, where there is a timeout, and
//! reported with the rest when the watch ends; or a hang that outlives the watch would look like an all-clear.

use super::plan::Plan;
use crate::Failure;
use rtscope_event::{LateResponse, MonotonicNs, Stuck, TaskInfo, Tid, Tracker};
use rtscope_kernel::{EbpfPrograms, OpenIntervals, kernel_stack};
use std::collections::{HashMap, HashSet};

/// Between two looks: a look reads a word for each task that there could be.
const LOOK_NS: std::ops::RangeInclusive<u64> = 250_000_000..=1_000_000_000;

/// An operation, to an instance.
pub type Operation = (u8, Tid, MonotonicNs);

/// What is told while it hangs.
#[derive(Debug)]
pub struct Timeout {
    intervals: OpenIntervals,
    timeout_ns: u64,
    next: MonotonicNs,
    /// Of what hung at the last look and at the one before, what has been told: one look may miss what changes just then.
    told: [HashSet<Operation>; 2],
}

impl Timeout {
    /// Of a watch with one. What takes less than its own limit is not told either.
    ///
    /// # Errors
    /// When the kernel does not hand out what is followed.
    pub fn new(ebpf: &EbpfPrograms, plan: &Plan) -> Result<Option<Timeout>, Failure> {
        let Some(timeout_ns) = plan.timeout_ns else { return Ok(None) };
        let intervals = ebpf.open_intervals(&plan.ebpf).map_err(failed)?;
        Ok(Some(Timeout { intervals, timeout_ns, next: MonotonicNs(0), told: Default::default() }))
    }

    /// What hangs and has not been told, where it is time to look.
    ///
    /// # Errors
    /// When the kernel does not list its tasks.
    pub fn look(
        &mut self,
        ebpf: &EbpfPrograms,
        plan: &Plan,
        now: MonotonicNs,
    ) -> Result<Vec<Stuck>, Failure> {
        if now < self.next {
            return Ok(Vec::new());
        }
        self.next = now.plus((self.timeout_ns / 4).clamp(*LOOK_NS.start(), *LOOK_NS.end()));
        let open = self.intervals.pending(now, self.timeout_ns);
        let all = beyond(&open, ebpf, plan)?;
        let [last, before] = std::mem::take(&mut self.told);
        let hangs: HashSet<Operation> = all.iter().map(operation).collect();
        let is_told = |key: &Operation| last.contains(key) || before.contains(key);
        let new: Vec<LateResponse> = all.into_iter().filter(|late| !is_told(&operation(late))).collect();
        self.told = [hangs, last];
        Ok(new.into_iter().map(|late| Stuck { kernel_stack: kernel_stack(late.tid), late }).collect())
    }
}

/// What has not ended now, beyond the limit of an instance. Not every first event of a pair has a second: one that waits is no more than a count,
/// unless there is a timeout and it is beyond that.
///
/// # Errors
/// When the kernel does not hand it out.
pub fn at_the_end(ebpf: &EbpfPrograms, plan: &Plan, now: MonotonicNs) -> Result<Vec<LateResponse>, Failure> {
    let mut open = ebpf.open_intervals(&plan.ebpf).map_err(failed)?.pending(now, 0);
    open.retain(|late| {
        late.tracker != Tracker::Pair
            || plan.timeout_ns.is_some_and(|timeout_ns| late.response_ns() > timeout_ns)
    });
    beyond(&open, ebpf, plan)
}

/// First events of pairs that wait for their second.
///
/// # Errors
/// When the kernel does not hand them out.
pub fn open_pairs(ebpf: &EbpfPrograms, plan: &Plan) -> Result<u64, Failure> {
    Ok(ebpf.open_intervals(&plan.ebpf).map_err(failed)?.open_pairs())
}

/// All that is under way now, the longest first.
///
/// # Errors
/// When the kernel does not hand it out.
pub fn under_way(ebpf: &EbpfPrograms, plan: &Plan, now: MonotonicNs) -> Result<Vec<LateResponse>, Failure> {
    let open = ebpf.open_intervals(&plan.ebpf).map_err(failed)?.pending(now, 0);
    of_instances(&open, ebpf, plan, |_, _| true)
}

/// Which it is, however often it is reported.
pub fn operation(late: &LateResponse) -> Operation {
    // Of a pair the end may be in another thread.
    let tid = if late.tracker == Tracker::Pair { Tid(late.chain.origin.id) } else { late.tid };
    (late.instance, tid, late.chain.origin.time_ns)
}

fn failed(error: rtscope_kernel::Error) -> Failure {
    Failure::doing("reading what has not ended", error)
}

/// A block request and a pair know it by themselves, also when the task is gone; and whoever makes a request, also the kernel, makes it for a device.
fn knows_its_task(late: &LateResponse) -> bool {
    matches!(late.tracker, Tracker::Block | Tracker::Pair)
}

/// With what is known of its task.
fn of_task(late: &LateResponse, tasks: &HashMap<Tid, TaskInfo>) -> Option<LateResponse> {
    if knows_its_task(late) {
        return Some(late.clone());
    }
    let task = tasks.get(&late.tid)?;
    Some(LateResponse { pid: task.pid, prio: task.prio, comm: task.comm, ..late.clone() })
}

/// Once for each instance whose limit it is beyond, the longest first.
fn beyond(open: &[LateResponse], ebpf: &EbpfPrograms, plan: &Plan) -> Result<Vec<LateResponse>, Failure> {
    of_instances(open, ebpf, plan, |time_ns, limit_ns| time_ns > limit_ns)
}

/// Once for each instance that follows it and means it, the longest first. `is_meant`: by the time that it has taken, and the limit.
fn of_instances(
    open: &[LateResponse],
    ebpf: &EbpfPrograms,
    plan: &Plan,
    is_meant: impl Fn(u64, u64) -> bool,
) -> Result<Vec<LateResponse>, Failure> {
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let tasks: HashMap<Tid, TaskInfo> =
        ebpf.dump_tasks().map_err(failed)?.into_iter().map(|task| (task.tid, task)).collect();
    let mut all = Vec::new();
    // Of one that is gone, nothing is under way.
    for late in open.iter().filter_map(|late| of_task(late, &tasks)) {
        let is_kernels = !knows_its_task(&late) && tasks.get(&late.tid).is_some_and(|task| task.kthread);
        for (instance, (_, limit_ns)) in plan.trackers.iter().enumerate() {
            let in_kernel = plan.in_kernel(instance).and_then(|number| plan.ebpf.trackers.get(number));
            let is_its = in_kernel.is_some_and(|tracker| tracker.means(&late, is_kernels));
            if is_its && is_meant(late.response_ns(), *limit_ns) {
                all.push(LateResponse { instance: instance as u8, threshold_ns: *limit_ns, ..late.clone() });
            }
        }
    }
    all.sort_by_key(|late| std::cmp::Reverse(late.response_ns()));
    Ok(all)
}
