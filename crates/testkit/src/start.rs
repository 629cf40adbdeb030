// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the threads of a workload tell its main thread that they have begun, or that they cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::sched::{self, Policy};

/// Counts of threads, shared by all of them.
#[derive(Debug, Clone, Default)]
pub struct StartCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU32,
    failed: AtomicU32,
}

impl StartCounts {
    /// Gives the calling thread its CPU (`None`: the last one) and policy; counts it when that fails.
    pub fn prepare(&self, cpu: Option<usize>, policy: Policy) -> Result<()> {
        let cpu = cpu.map_or_else(sched::last_cpu, Ok);
        let prepared = cpu.and_then(sched::pin_to_cpu).and_then(|()| sched::set_policy(policy));
        if prepared.is_err() {
            // ORDER: relaxed: only tells the main thread to stop waiting; the error itself comes through join.
            self.0.failed.fetch_add(1, Ordering::Relaxed);
        }
        prepared
    }

    /// Counts the calling thread: it is in its first iteration.
    pub fn begin(&self) {
        // ORDER: relaxed: a count that the main thread polls; it reads a thread's results after joining it.
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when this many threads have begun; false when one could not.
    pub fn wait_for(&self, threads: u32) -> bool {
        loop {
            // ORDER: relaxed: see where the counts are added to.
            let begun = self.0.begun.load(Ordering::Relaxed);
            // ORDER: relaxed: as above.
            let failed = self.0.failed.load(Ordering::Relaxed);
            if begun == threads || failed > 0 {
                return failed == 0;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_all_have_begun_or_one_cannot() {
        let counts = StartCounts::default();
        let other = counts.clone();
        let thread = thread::spawn(move || (0..2).for_each(|_| other.begin()));
        assert!(counts.wait_for(2));
        thread.join().expect("it does not panic");
        assert!(counts.prepare(Some(1_000_000), Policy::Other).is_err());
        assert!(!counts.wait_for(3));
    }
}
