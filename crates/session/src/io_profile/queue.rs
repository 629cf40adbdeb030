// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own estimates of how long input and output is queued: the average queue of each disk, from the time that it counts for requests
//! under way, and the part of the time in which tasks wait for input and output (pressure stall information).

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// A disk's queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskQueue {
    /// Which.
    pub disk: String,
    /// Requests under way, on average.
    pub mean_length: f64,
    /// How long a request took, on average; `None`: none was completed.
    pub mean_wait_ns: Option<u64>,
}

/// What the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueEstimate {
    /// Disks that had requests, the longest queue first.
    pub disks: Vec<DiskQueue>,
    /// The part of the time in which some task waited for input or output; `None`: this kernel does not say.
    pub some_stalled: Option<f64>,
    /// The part of the time in which all tasks that could run waited.
    pub all_stalled: Option<f64>,
}

/// Counters of the kernel.
#[derive(Clone, Debug, Default)]
struct Counters {
    /// By disk: requests that were completed, and milliseconds of requests under way.
    disks: BTreeMap<String, (u64, u64)>,
    /// Microseconds: of some, of all.
    stalled: Option<(u64, u64)>,
}

/// Remembers the last reading.
#[derive(Debug)]
pub(super) struct QueueReader {
    at: Instant,
    before: Counters,
}

impl QueueReader {
    pub(super) fn new() -> QueueReader {
        QueueReader { at: Instant::now(), before: Counters::read() }
    }

    /// Since the reading before.
    pub(super) fn since(&mut self) -> QueueEstimate {
        let (at, now) = (Instant::now(), Counters::read());
        let window_ms = (at - self.at).as_secs_f64() * 1e3;
        let estimate = estimate(&self.before, &now, window_ms);
        (self.at, self.before) = (at, now);
        estimate
    }
}

impl Counters {
    fn read() -> Counters {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Counters { disks: disks(&text("/proc/diskstats")), stalled: stalled(&text("/proc/pressure/io")) }
    }
}

/// Documentation/admin-guide/iostats.rst: the fields after the name.
fn disks(text: &str) -> BTreeMap<String, (u64, u64)> {
    let disk = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let name = *words.get(2)?;
        // Partitions are parts of their disks.
        let is_disk = std::path::Path::new("/sys/block").join(name.replace('/', "!")).exists();
        is_disk.then_some((name.to_owned(), (number(3)? + number(7)?, number(13)?)))
    };
    text.lines().filter_map(disk).collect()
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, and the same of `full`.
fn stalled(text: &str) -> Option<(u64, u64)> {
    let total = |of: &str| {
        let line = text.lines().find(|line| line.starts_with(of))?;
        line.split_once("total=")?.1.trim().parse().ok()
    };
    Some((total("some")?, total("full")?))
}

fn estimate(before: &Counters, now: &Counters, window_ms: f64) -> QueueEstimate {
    let disk = |(name, (completed, weighted_ms)): (&String, &(u64, u64))| {
        let (completed_before, weighted_before) = before.disks.get(name)?;
        // The counter of milliseconds has 32 bits on some kernels.
        let weighted_ms = weighted_ms.checked_sub(*weighted_before)?;
        let completed = completed.checked_sub(*completed_before)?;
        (completed > 0 || weighted_ms > 0).then(|| DiskQueue {
            disk: name.clone(),
            mean_length: weighted_ms as f64 / window_ms.max(1e-3),
            mean_wait_ns: (completed > 0).then(|| weighted_ms * 1_000_000 / completed.max(1)),
        })
    };
    let mut disks: Vec<DiskQueue> = now.disks.iter().filter_map(disk).collect();
    disks.sort_by(|a, b| b.mean_length.total_cmp(&a.mean_length));
    let part = |of: fn((u64, u64)) -> u64| {
        let (now, before) = (of(now.stalled?), of(before.stalled?));
        Some(now.checked_sub(before)? as f64 / 1e3 / window_ms.max(1e-3))
    };
    QueueEstimate { disks, some_stalled: part(|stalled| stalled.0), all_stalled: part(|stalled| stalled.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_the_time_under_way_by_the_time_that_passed() {
        let of = |completed, weighted, some| Counters {
            disks: [("vda".to_owned(), (completed, weighted))].into(),
            stalled: Some((some, some / 2)),
        };
        let found = estimate(&of(10, 100, 1_000_000), &of(60, 600, 1_500_000), 1000.0);
        assert_eq!(
            found.disks,
            [DiskQueue { disk: "vda".into(), mean_length: 0.5, mean_wait_ns: Some(10_000_000) }]
        );
        assert_eq!((found.some_stalled, found.all_stalled), (Some(0.5), Some(0.25)));
        let without = Counters { stalled: None, ..of(10, 100, 0) };
        let unknown = estimate(&without, &without, 1000.0);
        assert_eq!((unknown.disks.len(), unknown.some_stalled), (0, None));
    }

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=0.00 avg60=1.20 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=678\n";
        assert_eq!(stalled(text), Some((12345, 678)));
        assert_eq!(stalled(""), None);
    }
}
