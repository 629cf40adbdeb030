// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaying a recording, which starts in the middle: what ran before its first event is worked out first.
//!
//! The first `sched_switch` of a CPU shows which task ran there since its history began. The tracker in the kernel knew that
//! at the time, so the replay must know it at that time too: else the first wakeups of a recording would not be seen
//! as busy, and softirqs would not be given to their thread.

use super::config::{Config, Target};
use super::handlers::Handlers;
use super::interval::Intervals;
use super::tracker::{Counters, Response, Tracker};
use rtscope_event::{CpuId, Event, EventKind, MonotonicNs, Recording, Tid, Tracker as TrackerKind};
use std::collections::{BTreeMap, HashSet};

/// The responses that the rules find in a recording, and what was counted on the way.
#[must_use]
pub fn replay(recording: &Recording, config: &Config) -> (Vec<Response>, Counters) {
    let mut tracker = Tracker::new(config.clone());
    prime_names(&mut tracker, recording);
    let mut running = first_running(recording).into_iter().peekable();
    let mut responses = Vec::new();
    for event in &recording.events {
        while let Some((_, cpu, tid)) = running.next_if(|(since, ..)| *since <= event.time) {
            tracker.prime_running(cpu, tid);
        }
        tracker.feed(event, &mut |response| responses.push(response));
    }
    (responses, tracker.counters())
}

/// The same of a tracker of intervals.
#[must_use]
pub fn replay_intervals(
    recording: &Recording,
    tracker: TrackerKind,
    target: &Target,
    threshold_ns: u64,
) -> Vec<Response> {
    let mut intervals = Intervals::new(tracker, target.clone(), threshold_ns);
    prime_names(&mut intervals.around, recording);
    let mut running = first_running(recording).into_iter().peekable();
    let mut found = Vec::new();
    for event in &recording.events {
        while let Some((_, cpu, tid)) = running.next_if(|(since, ..)| *since <= event.time) {
            intervals.around.prime_running(cpu, tid);
        }
        intervals.feed(event, &mut |response| found.push(response));
    }
    found
}

/// The same of a tracker of what CPUs do; `target`: `None` for all of it.
#[must_use]
pub fn replay_handlers(
    recording: &Recording,
    tracker: TrackerKind,
    target: Option<&Target>,
    threshold_ns: u64,
) -> Vec<Response> {
    let mut handlers = Handlers::new(tracker, target.cloned(), threshold_ns);
    prime_names(&mut handlers.around, recording);
    let mut running = first_running(recording).into_iter().peekable();
    let mut found = Vec::new();
    for event in &recording.events {
        while let Some((_, cpu, tid)) = running.next_if(|(since, ..)| *since <= event.time) {
            handlers.around.prime_running(cpu, tid);
        }
        handlers.feed(event, &mut |response| found.push(response));
    }
    found
}

/// Each task gets the name it had when the recording first speaks of it; rename events do the rest.
fn prime_names(tracker: &mut Tracker, recording: &Recording) {
    for task in recording.names.tasks() {
        tracker.prime_task(task.tid, None, Some(task.pid), Some(task.kthread));
    }
    let start = recording.events.first().map_or(MonotonicNs(0), |event| event.time);
    let dumped = recording.names.tasks().map(|task| task.tid);
    let mut known: HashSet<Tid> = HashSet::new();
    for tid in dumped.chain(recording.events.iter().flat_map(|event| tasks_of(event).into_iter().flatten())) {
        if known.insert(tid) {
            // Before the first event of all, so that a rename later in the recording finds the older name.
            tracker.prime_task(tid, recording.names.comm(tid, start.minus(1)), None, None);
        }
    }
}

fn tasks_of(event: &Event) -> [Option<Tid>; 2] {
    match event.kind {
        EventKind::SchedSwitch { prev_tid, next_tid, .. } => [Some(prev_tid), Some(next_tid)],
        EventKind::SchedWaking { tid, .. }
        | EventKind::SchedWakeupNew { tid, .. }
        | EventKind::TaskRename { tid, .. } => [Some(tid), None],
        _ => [None, None],
    }
}

/// Which task ran on each CPU from when on, before its first switch: in time order.
fn first_running(recording: &Recording) -> Vec<(MonotonicNs, CpuId, Tid)> {
    let mut first_event: BTreeMap<CpuId, MonotonicNs> = BTreeMap::new();
    let mut switched: HashSet<Tid> = HashSet::new();
    let mut done: HashSet<CpuId> = HashSet::new();
    let mut found = Vec::new();
    for event in &recording.events {
        first_event.entry(event.cpu).or_insert(event.time);
        let EventKind::SchedSwitch { prev_tid, next_tid, .. } = event.kind else { continue };
        if done.insert(event.cpu) && (prev_tid == Tid(0) || !switched.contains(&prev_tid)) {
            let complete = recording.history.iter().find(|history| history.cpu == event.cpu);
            let since =
                complete.and_then(|history| history.complete_since).unwrap_or(first_event[&event.cpu]);
            found.push((since, event.cpu, prev_tid));
        }
        switched.extend([prev_tid, next_tid]);
    }
    found.sort_by_key(|(since, cpu, _)| (*since, *cpu));
    found
}
