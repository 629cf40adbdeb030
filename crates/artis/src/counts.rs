// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler counts on each CPU. The numbers only grow, and each CPU writes its own.

use crate::scheduler::bpf;
use crate::{Error, abi};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

/// The classes, in the order of the counters.
pub const CLASSES: [&str; abi::RTS_ARTIS_CLASSES as usize] = ["rt0", "rt1", "linux"];

/// How tasks entered the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entries {
    /// By a system call.
    pub syscall: u64,
    /// By a page fault.
    pub fault: u64,
    /// For a signal.
    pub signal: u64,
}

/// How evictions ended. Those that are in none of these are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// The task went to another CPU.
    pub moved: u64,
    /// It blocked before.
    pub slept: u64,
    /// It ended before.
    pub exited: u64,
    /// Its policy, its CPUs or its inherited priority changed before.
    pub changed: u64,
    /// It came back to user mode on the real-time CPU.
    pub returned: u64,
}

/// Entries into the kernel that moved nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refusals {
    /// The task may use no other CPU.
    pub bound: u64,
    /// It was in a section in which the kernel moves no task.
    pub pinned: u64,
}

/// What a class did on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Time that it ran; on a real-time CPU the time that was lent.
    pub ran_ns: u64,
    /// Times that a task was sent here.
    pub moved_here: u64,
    /// Evictions that were begun.
    pub evictions: Entries,
    /// How they ended.
    pub ended: Ends,
    /// Entries without one.
    pub refused: Refusals,
}

/// What happened on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The CPU.
    pub cpu: u32,
    /// RT0, RT1, Linux.
    pub classes: [ClassCounts; CLASSES.len()],
    /// Hand-overs that found the ring full.
    pub ring_full: u64,
    /// How often tasks that waited behind RT0 were taken elsewhere.
    pub emptied: u64,
    /// Delays from the entry to leaving the CPU.
    pub delays: Delays,
    #[serde(skip)]
    words: Vec<u64>,
}

impl Counts {
    /// What was added since an earlier reading. The longest delay is the longest of all: when it was is not kept.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        let old = before.words.iter().chain(std::iter::repeat(&0));
        let words = self.words.iter().zip(old).map(|(now, old)| now.saturating_sub(*old)).collect();
        let mut counts = parse(self.cpu, words);
        counts.delays.max_ns = self.delays.max_ns;
        counts
    }
}

/// Delays of evictions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Delays {
    /// The longest.
    pub max_ns: u64,
    /// How many in each bucket: 0 to 3 ns, then four for each power of two.
    #[serde(skip)]
    buckets: Vec<u64>,
}

impl Delays {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The delay that this many of a thousand do not exceed, to a quarter; `None`: there are no delays.
    #[must_use]
    pub fn percentile_ns(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        let rank = (count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|number| {
            seen += number;
            seen >= rank
        })?;
        Some(end_of(found).min(self.max_ns.max(1)))
    }
}

/// The last nanosecond of a bucket: the inverse of `bucket` in bpf/state.bpf.h.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket {
        0..4 => bucket,
        _ => {
            let log = bucket / 4 + 1;
            let quarter = 1_u64 << (log - 2);
            (4 + bucket % 4 + 1) * quarter - 1
        }
    }
}

/// Reads the counters of the scheduler whose map has this number, of CPUs 0 to `cpus` - 1.
///
/// # Errors
/// When there is no such map (any more), or it is not one of ours.
pub fn read(id: u32, cpus: u32) -> Result<Vec<Counts>, Error> {
    let map = MapHandle::from_map_id(id).map_err(|error| bpf("finding the scheduler's counters", error))?;
    if map.value_size() as usize != size_of::<abi::rts_artis_cpu>() {
        return Err(Error::Missing(
            "the counters are not of this rtscope's scheduler; use the one that started it".into(),
        ));
    }
    let read = |cpu: u32| {
        let value = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|error| bpf("reading the scheduler's counters", error))?;
        let value = value.unwrap_or_default();
        let words = value.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        Ok(parse(cpu, with_rt0_until(monotonic_ns(), words.collect())))
    };
    (0..cpus).map(read).collect()
}

/// Adds to RT0's time what the program counts only when RT0 leaves the CPU: a task that never sleeps would seem never to run.
fn with_rt0_until(now_ns: Option<u64>, mut words: Vec<u64>) -> Vec<u64> {
    const SINCE: usize = std::mem::offset_of!(abi::rts_artis_cpu, rt0_since_ns) / 8;
    const RAN: usize = std::mem::offset_of!(abi::rts_artis_cpu, classes) / 8
        + abi::RTS_ARTIS_RT0 as usize * (size_of::<abi::rts_artis_counts>() / 8)
        + std::mem::offset_of!(abi::rts_artis_counts, ran_ns) / 8;
    let since_ns = words.get(SINCE).copied().filter(|since| *since != 0);
    if let (Some(now_ns), Some(since_ns), Some(ran_ns)) = (now_ns, since_ns, words.get_mut(RAN)) {
        *ran_ns += now_ns.saturating_sub(since_ns);
    }
    words
}

/// The clock of `bpf_ktime_get_ns`. `None`: the machine does not tell its time, and nothing is added.
fn monotonic_ns() -> Option<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).ok()?;
    u64::try_from(std::time::Duration::from(now).as_nanos()).ok()
}

/// The words of `struct rts_artis_cpu`, in its order.
fn parse(cpu: u32, words: Vec<u64>) -> Counts {
    let mut rest = words.iter().copied();
    let mut next = || rest.next().unwrap_or_default();
    let classes = std::array::from_fn(|_| ClassCounts {
        ran_ns: next(),
        moved_here: next(),
        evictions: Entries { syscall: next(), fault: next(), signal: next() },
        ended: Ends { moved: next(), slept: next(), exited: next(), changed: next(), returned: next() },
        refused: Refusals { bound: next(), pinned: next() },
    });
    let (ring_full, emptied, max_ns, _rt0_since_ns) = (next(), next(), next(), next());
    let delays = Delays { max_ns, buckets: rest.collect() };
    Counts { cpu, classes, ring_full, emptied, delays, words }
}

impl Entries {
    /// All.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.syscall + self.fault + self.signal
    }
}

impl Ends {
    /// All.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.moved + self.slept + self.exited + self.changed + self.returned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_programs() {
        let words = size_of::<abi::rts_artis_cpu>() / 8;
        let counts = parse(3, (0..words as u64).collect());
        assert_eq!(counts.since(&counts).classes, [ClassCounts::default(); 3]);
        let of = |offset: usize| (offset / 8) as u64;
        assert_eq!(counts.ring_full, of(std::mem::offset_of!(abi::rts_artis_cpu, ring_full)));
        assert_eq!(counts.delays.max_ns, of(std::mem::offset_of!(abi::rts_artis_cpu, delay_max_ns)));
        assert_eq!(counts.delays.buckets.len(), abi::RTS_ARTIS_BUCKETS as usize);
        let class = size_of::<abi::rts_artis_counts>();
        let ended = std::mem::offset_of!(abi::rts_artis_counts, ended);
        assert_eq!(counts.classes[2].ended.moved, of(2 * class + ended));
        assert_eq!(counts.classes[1].refused.pinned, of(2 * class - 8));
        assert_eq!(counts.classes[2].ended.returned, of(2 * class + ended) + 4);
        let since = std::mem::offset_of!(abi::rts_artis_cpu, rt0_since_ns) / 8;
        let mut numbers = vec![0; words];
        numbers[since] = 100;
        assert_eq!(parse(0, with_rt0_until(Some(350), numbers.clone())).classes[0].ran_ns, 250);
        numbers[since] = 0;
        assert_eq!(parse(0, with_rt0_until(Some(350), numbers)).classes[0].ran_ns, 0, "RT0 has not the CPU");
    }

    #[test]
    fn percentiles_are_ends_of_buckets() {
        let mut buckets = vec![0; abi::RTS_ARTIS_BUCKETS as usize];
        assert_eq!(Delays::default().percentile_ns(500), None);
        // 1000 ns: between 896 and 1023, the last quarter of 512 to 1023.
        buckets[4 * 8 + 3] = 99;
        buckets[4 * 18] = 1;
        let delays = Delays { max_ns: 600_000, buckets };
        assert_eq!((delays.count(), delays.percentile_ns(500)), (100, Some(1023)));
        assert_eq!(delays.percentile_ns(1000), Some(600_000), "not beyond the longest");
        assert_eq!((end_of(3), end_of(4), end_of(7), end_of(8)), (3, 4, 7, 9));
    }
}
