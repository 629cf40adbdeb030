// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one CPU's buffer says of itself: how much was recorded, and what was lost by which cause.

/// `per_cpu/cpuN/stats`. What the kernel did not say is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// The CPU.
    pub cpu: u32,
    /// Events that are in the buffer, and not yet read.
    pub entries: Option<u64>,
    /// Events that were read.
    pub read: Option<u64>,
    /// Lost: overwritten by newer ones before they were read (with `overwrite`).
    pub overrun: Option<u64>,
    /// Lost: while one event was being written, interrupts recorded so much that they came round to it.
    pub commit_overrun: Option<u64>,
    /// Lost: the buffer was full (without `overwrite`).
    pub dropped: Option<u64>,
}

impl CpuStats {
    pub(super) fn parse(cpu: u32, text: &str) -> CpuStats {
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
        };
        CpuStats {
            cpu,
            entries: value("entries"),
            read: value("read events"),
            overrun: value("overrun"),
            commit_overrun: value("commit overrun"),
            dropped: value("dropped events"),
        }
    }

    /// All that was lost; `None` when one of the causes is unknown.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        Some(self.overrun? + self.commit_overrun? + self.dropped?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_are_read_and_what_is_missing_is_unknown() {
        let text = "entries: 12\noverrun: 3\ncommit overrun: 4\nbytes: 77\noldest event ts: 1.2\nnow ts: 2.3\n\
                    dropped events: 5\nread events: 6\n";
        let stats = CpuStats::parse(1, text);
        assert_eq!((stats.entries, stats.read, stats.lost()), (Some(12), Some(6), Some(12)));
        let partly = CpuStats::parse(1, "entries: 12\noverrun: 3\n");
        assert_eq!((partly.dropped, partly.lost()), (None, None));
    }
}
