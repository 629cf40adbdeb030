// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop that must feel nothing: a real-time thread that notes when it was to wake and when it did. For its length the process
//! holds its memory, so nothing of the benchmark itself makes it wait.

use anyhow::{Result, anyhow};
use rtscope_testkit::sched::{self, Policy};
use rtscope_testkit::time::{now_ns, sleep_until, spin_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

/// What rtscope watches.
pub const NAME: &str = "own-cost-beat";
const PRIORITY: i32 = 50;
const PERIOD_NS: u64 = 1_000_000;
/// One iteration in this many works for longer than the watch's limit, so that snapshots are taken. It is over long before the next.
const SLOW_EVERY: u64 = 60;
const SLOW_NS: u64 = 300_000;
/// What the others work.
const WORK_NS: u64 = 10_000;
/// Room for the notes of a round of a minute.
const NOTES: usize = 60_000;

/// The loop.
pub struct Beat {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<(u64, u64)>>>,
}

impl Beat {
    /// Starts it on a CPU.
    pub fn start(cpu: usize) -> Beat {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        Beat { stop, thread: spawn(move || beat(cpu, &theirs)) }
    }

    /// Ends it; gives when each iteration was to wake, and when it did.
    pub fn stop(self) -> Result<Vec<(u64, u64)>> {
        // ORDER: relaxed; a flag that stands for itself. The notes come with the join.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the loop panicked"))?
    }
}

fn beat(cpu: usize, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut notes = vec![(0, 0); NOTES];
    sched::pin_to_cpu(cpu)?;
    sched::set_policy(Policy::Fifo(PRIORITY))?;
    sched::set_name(NAME);
    let mut asked = now_ns() + 5 * PERIOD_NS;
    let mut count = 0;
    // ORDER: relaxed; see stop().
    while !stop.load(Ordering::Relaxed) && count < NOTES {
        sleep_until(asked);
        let woke = now_ns();
        notes[count] = (asked, woke);
        count += 1;
        let is_slow = count as u64 % SLOW_EVERY == 0;
        let done = spin_until(woke + if is_slow { SLOW_NS } else { WORK_NS });
        asked += PERIOD_NS;
        // What was missed is skipped, so that every iteration sleeps.
        while asked < done + WORK_NS {
            asked += PERIOD_NS;
        }
    }
    notes.truncate(count);
    Ok(notes)
}
