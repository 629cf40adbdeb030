// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trackers as the eBPF programs see them: `instances` and what belongs to them in `struct rts_config`.

use super::maps::task_sets;
use super::{CellId, Error, Follows, ResponseConfig, TrackerConfig, pairs};
use crate::io_calls::call_files;
use rtscope_abi as abi;
use rtscope_event::{Tracker, WaitKind};

/// Fills in what the trackers need.
pub(super) fn store_trackers(values: &mut abi::rts_config, trackers: &[TrackerConfig]) -> Result<(), Error> {
    if trackers.len() > values.instances.len() {
        return Err(Error::Config(format!(
            "{} trackers: at most {} can run at once",
            trackers.len(),
            values.instances.len()
        )));
    }
    values.track = u8::from(!trackers.is_empty());
    values.sample_ns = sample_ns(trackers);
    values.pair = pairs::sides(trackers)?;
    values.cells = cells(trackers);
    if trackers.iter().filter_map(|tracker| tracker.counted_by).any(|by| by.id == CellId::Device) {
        values.call_files = call_files();
    }
    // Counters that belong to no instance have a place where no tracker runs, too.
    values.instances_len = trackers.len().max(1) as u8;
    values.set_mask = if trackers.is_empty() { 0 } else { task_sets() as u32 - 1 };
    for (index, tracker) in trackers.iter().enumerate() {
        let kind = tracker.follows.tracker();
        values.of_tracker[usize::from(kind.number())] |= 1 << index;
        values.instances[index] = instance(tracker);
        values.keyed |= u8::from(tracker.counted_by.is_some()) << index;
        let target = &tracker.target;
        if kind.is_of_all() && target.name.is_none() && target.pid.is_none() && target.tid.is_none() {
            values.untargeted |= 1 << index;
        }
        if let Follows::Syscalls(numbers) = &tracker.follows {
            for number in numbers {
                if let Some(slot) = values.call_instances.get_mut(*number) {
                    *slot |= 1 << index;
                }
            }
        }
    }
    for (slot, kind) in interval_kinds(trackers).into_iter().enumerate() {
        values.interval_kind[usize::from(kind.number())] = slot as u8;
        values.intervals |= values.of_tracker[usize::from(kind.number())];
        values.interval_kinds += 1;
    }
    let mut responses = trackers.iter().filter_map(|tracker| match &tracker.follows {
        Follows::Responses(responses) => Some(responses),
        _ => None,
    });
    let Some(first) = responses.next() else { return Ok(()) };
    if responses.any(|other| other != first) {
        return Err(Error::Config(
            "two instances of the tracker 'response' must agree in when responses begin and end".to_string(),
        ));
    }
    store_responses(values, first)
}

/// Cells of each CPU; 1 where none are needed.
pub(super) fn cells(trackers: &[TrackerConfig]) -> u32 {
    let wanted = trackers.iter().filter_map(|tracker| tracker.counted_by).map(|by| by.cells);
    wanted.max().map_or(1, |cells| cells.clamp(64, 1 << 22).next_power_of_two())
}

/// The time between two samples: the shortest that is wanted; 0: none are.
pub(super) fn sample_ns(trackers: &[TrackerConfig]) -> u64 {
    let wanted = trackers.iter().filter_map(|tracker| match tracker.follows {
        Follows::IrqOff(sample_ns) => Some(sample_ns),
        _ => None,
    });
    wanted.min().unwrap_or(0)
}

/// The trackers of intervals that run, each once.
pub(super) fn interval_kinds(trackers: &[TrackerConfig]) -> Vec<Tracker> {
    let mut kinds: Vec<Tracker> = trackers.iter().map(|tracker| tracker.follows.tracker()).collect();
    kinds.retain(|kind| kind.is_of_intervals());
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn instance(tracker: &TrackerConfig) -> abi::rts_instance {
    let mut instance = abi::rts_instance {
        threshold_ns: tracker.threshold_ns,
        target_pid: tracker.target.pid.map_or(0, |pid| pid.0),
        target_tid: tracker.target.tid.map_or(0, |tid| tid.0),
        tracker: tracker.follows.tracker().number(),
        snapshot: u8::from(tracker.snapshot),
        records: u8::from(tracker.records),
        command: u8::from(tracker.target.is_command),
        id: tracker.counted_by.map_or(0, |by| by.id as u8),
        kind: u8::from(tracker.counted_by.is_some_and(|by| by.kind)),
        ..Default::default()
    };
    if let Some(name) = &tracker.target.name {
        instance.match_comm = 1;
        let (any, accept, takes) = name.automaton();
        (instance.glob_any, instance.glob_accept, instance.glob) = (any, accept, *takes);
    }
    instance
}

fn store_responses(values: &mut abi::rts_config, responses: &ResponseConfig) -> Result<(), Error> {
    values.end = responses.end.number();
    let origins = &responses.origins;
    if origins.irqs.len() > values.irqs.len() {
        return Err(Error::Config(format!(
            "at most {} interrupts can be followed at once",
            values.irqs.len()
        )));
    }
    values.begin = origins.kinds.iter().fold(0, |mask, kind| mask | 1 << kind.number());
    values.origin_irqs = origins.irqs.len() as u32;
    for (slot, irq) in values.irqs.iter_mut().zip(&origins.irqs) {
        *slot = irq.0;
    }
    values.sources = WaitKind::mask(&responses.sources);
    Ok(())
}
