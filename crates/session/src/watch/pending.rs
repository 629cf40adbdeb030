// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What had begun and not ended when a watch ended: a call that hangs, a thread that nobody wakes. It is reported as the rest, with the time until
//! then; or a hang that outlives the watch would look like an all-clear.

use crate::Failure;
use rtscope_event::{LateResponse, MonotonicNs, TaskInfo, Tid, Tracker};
use rtscope_kernel::{EbpfConfig, EbpfPrograms};
use std::collections::HashMap;

/// Those beyond the limit of an instance, once for each, the longest first. The trackers have been switched off.
///
/// # Errors
/// When the kernel does not hand them out.
pub fn pending(
    ebpf: &EbpfPrograms,
    config: &EbpfConfig,
    trackers: &[(Tracker, u64)],
    now: MonotonicNs,
) -> Result<Vec<LateResponse>, Failure> {
    let failed = |error| Failure::doing("reading what had not ended", error);
    let open = ebpf.pending(config, now).map_err(failed)?;
    let tasks: HashMap<Tid, TaskInfo> = match open.is_empty() {
        true => HashMap::new(),
        false => ebpf.dump_tasks().map_err(failed)?.into_iter().map(|task| (task.tid, task)).collect(),
    };
    // Of one that is gone, nothing is pending.
    let named = open.iter().filter_map(|late| Some((late, tasks.get(&late.tid)?)));
    let mut all: Vec<LateResponse> = named
        .flat_map(|(late, task)| {
            let is_over = move |(_, (tracker, limit_ns)): &(usize, &(Tracker, u64))| {
                *tracker == late.tracker && late.response_ns() > *limit_ns
            };
            trackers.iter().enumerate().filter(is_over).map(move |(instance, (_, limit_ns))| LateResponse {
                instance: instance as u8,
                threshold_ns: *limit_ns,
                pid: task.pid,
                prio: task.prio,
                comm: task.comm,
                ..late.clone()
            })
        })
        .collect();
    all.sort_by_key(|late| std::cmp::Reverse(late.response_ns()));
    Ok(all)
}
