// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How large each map of the eBPF object is.

use super::instances::{cells, interval_kinds};
use super::{EbpfConfig, Error, Follows, RecorderConfig, bpf};
use crate::caps::LibbpfLog;
use crate::programs::is_for_benchmarks;
use libbpf_rs::OpenObject;
use rtscope_ring::BankImage;

/// Slots in a set of the tracker's table, as bpf/tracker_state.bpf.h has it.
pub(super) const TASK_WAYS: usize = 4;

/// Block requests that are followed at once, 6 MiB; a fast disk has some thousand under way.
pub(super) const REQUESTS: u32 = 1 << 14;

/// First events of pairs that wait at once, 8 MiB.
pub(super) const PAIRS: u32 = 1 << 15;

fn follows_pairs(config: &EbpfConfig) -> bool {
    config.trackers.iter().any(|tracker| matches!(tracker.follows, Follows::Pair(_)))
}

fn follows_blocks(config: &EbpfConfig) -> bool {
    config.trackers.iter().any(|tracker| tracker.follows == Follows::Blocks)
}

/// How a map of the eBPF object gets its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapSize {
    /// As it is compiled.
    Fixed,
    /// This many entries.
    Entries(u32),
    /// This many banks of this many bytes.
    Banks { count: u32, bytes: u32 },
    /// As it is compiled, and left out unless a benchmark's programs are loaded.
    ForBenchmarks { made: bool },
}

/// The size of the map with this name; `None` for a map that is missing here: it would stay at the one entry
/// that it is compiled with, and all CPUs but the first would be without memory.
/// `cpus`: all, and those with banks.
fn map_size(name: &str, config: &EbpfConfig, cpus: (usize, usize)) -> Option<MapSize> {
    let sets = u32::try_from(task_sets()).unwrap_or(u32::MAX);
    let [cpus, bank_cpus] = [cpus.0, cpus.1].map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
    let tracks = !config.trackers.is_empty();
    let instances = u32::try_from(config.trackers.len().max(1)).unwrap_or(u32::MAX);
    let kinds = u32::try_from(interval_kinds(&config.trackers).len()).unwrap_or(u32::MAX);
    Some(match name {
        "banks" => {
            let bytes = config.recorder.as_ref().map_or(1 << 16, |recorder| recorder.bank_bytes);
            let banks_each = config.recorder.as_ref().map(RecorderConfig::banks_each);
            MapSize::Banks {
                count: banks_each.map_or(1, |banks| bank_cpus.saturating_mul(banks as u32)),
                bytes: u32::try_from(BankImage::bytes(bytes)).unwrap_or(u32::MAX),
            }
        }
        "controls" | "cpu_states" | "late_rings" | "reschedules" | "stacks_due" => MapSize::Entries(cpus),
        "stats" => MapSize::Entries(cpus.saturating_mul(instances)),
        "cells" => MapSize::Entries(cpus.saturating_mul(cells(&config.trackers))),
        "intervals" => MapSize::Entries((sets * TASK_WAYS as u32 * kinds).max(1)),
        "tasks" if tracks => MapSize::Entries(sets),
        "task_chains" if tracks => MapSize::Entries(sets * TASK_WAYS as u32),
        "thread_counts" if tracks => MapSize::Entries(sets * TASK_WAYS as u32 * instances),
        "tasks" | "task_chains" | "thread_counts" | "works" | "work_chains" => MapSize::Fixed,
        "path_scratch" | "path_waits" | "expiry_entered" | "no_request" => MapSize::Fixed,
        "stacks" if config.stacks.is_some() => MapSize::Entries(rtscope_abi::RTS_STACKS),
        "stacks" => MapSize::Fixed,
        "requests" if follows_blocks(config) => MapSize::Entries(REQUESTS),
        "pairs" if follows_pairs(config) => MapSize::Entries(PAIRS),
        "requests" | "pairs" | "pair_scratches" => MapSize::Fixed,
        name if is_for_benchmarks(name) => {
            MapSize::ForBenchmarks { made: config.only.iter().any(|program| is_for_benchmarks(program)) }
        }
        // Sections of variables, which the compiler sizes: no name in C has a dot.
        name if name.contains('.') => MapSize::Fixed,
        _ => return None,
    })
}

pub(super) fn size_maps(
    open: &mut OpenObject,
    config: &EbpfConfig,
    cpus: (usize, usize),
    log: &LibbpfLog,
) -> Result<(), Error> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let refused = |error| bpf(&format!("sizing the eBPF map {name}"), error, &log.take());
        match map_size(&name, config, cpus) {
            None => return Err(Error::Config(format!("the eBPF object has a map of unknown size: {name}"))),
            Some(MapSize::Fixed) => {}
            Some(MapSize::Entries(entries)) => map.set_max_entries(entries).map_err(refused)?,
            Some(MapSize::Banks { count, bytes }) => {
                map.set_value_size(bytes).map_err(&refused)?;
                map.set_max_entries(count).map_err(refused)?;
            }
            Some(MapSize::ForBenchmarks { made }) => map.set_autocreate(made).map_err(refused)?,
        }
    }
    Ok(())
}

/// Sets of the tracker's task table: as many as make a collision impossible where pids are few, 16 384 (16 MiB) at most.
pub(super) fn task_sets() -> usize {
    let pid_max: usize = std::fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1 << 22);
    (pid_max / 4).next_power_of_two().clamp(1 << 10, 1 << 14)
}

#[cfg(test)]
mod tests {
    use super::super::OBJECT;
    use super::*;
    use libbpf_rs::ObjectBuilder;

    fn of_4096_cpus(name: &str) -> Option<MapSize> {
        let recorder = RecorderConfig { bank_bytes: 1 << 20, snapshot: None, stream: None };
        map_size(name, &EbpfConfig { recorder: Some(recorder), ..EbpfConfig::default() }, (4096, 4096))
    }

    #[test]
    fn every_map_of_the_ebpf_object_has_a_size() {
        let open = ObjectBuilder::default().open_memory(OBJECT).expect("our own object");
        let names: Vec<String> = open.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().any(|name| name == "banks"), "{names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| of_4096_cpus(name).is_none()).collect();
        assert!(unknown.is_empty(), "say in map_size() how large they are: {unknown:?}");
        assert_eq!(of_4096_cpus("controlz"), None);
    }

    #[test]
    fn maps_have_an_entry_for_each_of_4096_cpus() {
        for name in ["controls", "cpu_states", "stats", "late_rings", "reschedules", "stacks_due", "cells"] {
            assert_eq!(of_4096_cpus(name), Some(MapSize::Entries(4096)), "{name}");
        }
        let bytes = BankImage::bytes(1 << 20) as u32;
        assert_eq!(of_4096_cpus("banks"), Some(MapSize::Banks { count: 8192, bytes }));
    }
}
