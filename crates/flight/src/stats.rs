// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker's statistics, summed over the CPUs.

use rtscope_abi as abi;
use rtscope_event::Tid;
use rtscope_kernel::Memory;
use rtscope_ring::SharedMemory;
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

/// Sums of `struct rts_stats`; the fields are described there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of struct rts_stats")]
pub struct TrackerStats {
    pub seen: u64,
    pub late: u64,
    pub filtered: u64,
    pub merged: u64,
    pub unlinked: u64,
    pub untracked: u64,
    pub busy: u64,
    pub healed: u64,
    pub folded: u64,
    pub too_long: u64,
    pub suppressed_rate: u64,
    pub suppressed_busy: u64,
    pub raced: u64,
    pub hidden: u64,
    pub uncounted: u64,
    /// Responses of each thread, also of those that have ended: all of `seen` but `uncounted`.
    pub by_thread: BTreeMap<Tid, u64>,
    pub abandoned: u64,
    pub unended: u64,
    pub begun_again: u64,
    pub without_begin: u64,
    pub pairs_full: u64,
    pub pairs_failed: u64,
    pub unkeyed: u64,
    /// Late responses whose report found the ring full.
    pub late_lost: u64,
    pub sum_ns: u64,
    /// `None` while nothing was seen.
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// Log-linear buckets, see `RTS_HIST_SUB_BITS`; none where nothing was counted in the kernel.
    pub histogram: Vec<u64>,
}

impl TrackerStats {
    /// Reads those of one of so many instances. The CPUs go on counting during that, so sums of different fields may differ by the newest few.
    #[must_use]
    pub fn read(memory: &Memory, instance: usize) -> TrackerStats {
        let (words, controls, instances) = (&memory.stats, &memory.controls, memory.instances);
        let at = |cpu: usize, field: usize| {
            words.load((cpu * instances + instance) * size_of::<abi::rts_stats>() + field)
        };
        let cpus = 0..controls.cpus();
        let sum = |field: usize| cpus.clone().map(|cpu| at(cpu, field)).sum();
        let seen_on = |cpu: &usize| at(*cpu, offset_of!(abi::rts_stats, seen)) > 0;
        let histogram_at = offset_of!(abi::rts_stats, histogram);
        TrackerStats {
            seen: sum(offset_of!(abi::rts_stats, seen)),
            late: sum(offset_of!(abi::rts_stats, late)),
            filtered: sum(offset_of!(abi::rts_stats, filtered)),
            merged: sum(offset_of!(abi::rts_stats, merged)),
            unlinked: sum(offset_of!(abi::rts_stats, unlinked)),
            untracked: sum(offset_of!(abi::rts_stats, untracked)),
            busy: sum(offset_of!(abi::rts_stats, busy)),
            healed: sum(offset_of!(abi::rts_stats, healed)),
            folded: sum(offset_of!(abi::rts_stats, folded)),
            too_long: sum(offset_of!(abi::rts_stats, too_long)),
            suppressed_rate: sum(offset_of!(abi::rts_stats, suppressed_rate)),
            suppressed_busy: sum(offset_of!(abi::rts_stats, suppressed_busy)),
            raced: sum(offset_of!(abi::rts_stats, raced)),
            hidden: sum(offset_of!(abi::rts_stats, hidden)),
            uncounted: sum(offset_of!(abi::rts_stats, uncounted)),
            by_thread: memory
                .thread_counts
                .as_ref()
                .map(|counts| by_thread(counts, instance, instances))
                .unwrap_or_default(),
            abandoned: sum(offset_of!(abi::rts_stats, abandoned)),
            unended: sum(offset_of!(abi::rts_stats, unended)),
            begun_again: sum(offset_of!(abi::rts_stats, begun_again)),
            without_begin: sum(offset_of!(abi::rts_stats, without_begin)),
            pairs_full: sum(offset_of!(abi::rts_stats, pairs_full)),
            pairs_failed: sum(offset_of!(abi::rts_stats, pairs_failed)),
            unkeyed: sum(offset_of!(abi::rts_stats, unkeyed)),
            late_lost: cpus.clone().map(|cpu| controls.late_lost(cpu)).sum(),
            sum_ns: sum(offset_of!(abi::rts_stats, sum_ns)),
            min_ns: cpus.clone().filter(seen_on).map(|cpu| at(cpu, offset_of!(abi::rts_stats, min_ns))).min(),
            max_ns: cpus.clone().filter(seen_on).map(|cpu| at(cpu, offset_of!(abi::rts_stats, max_ns))).max(),
            histogram: (0..abi::RTS_HIST_BUCKETS as usize)
                .map(|bucket| sum(histogram_at + bucket * 8))
                .collect(),
        }
    }
}

fn by_thread(counts: &SharedMemory, instance: usize, instances: usize) -> BTreeMap<Tid, u64> {
    let mut threads = BTreeMap::new();
    let bytes = size_of::<abi::rts_thread_count>();
    for at in (instance * bytes..counts.bytes()).step_by(instances * bytes) {
        let seen = counts.load(at + offset_of!(abi::rts_thread_count, seen));
        if seen > 0 {
            // The first half of the slot's first word.
            let [a, b, c, d, ..] = counts.load(at + offset_of!(abi::rts_thread_count, tid)).to_ne_bytes();
            // One that has changed its slot (exec by another thread) has two.
            *threads.entry(Tid(u32::from_ne_bytes([a, b, c, d]))).or_default() += seen;
        }
    }
    threads
}
