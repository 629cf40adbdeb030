// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ran in the long gaps: rtscope's own flight recorder runs during the loop, and is read when the loop is over.
//!
//! The loop counts in ticks, the recorder in ns of CLOCK_MONOTONIC, whose rate NTP changes: a thread on another CPU takes pairs of both
//! so that a gap is found among the events after hours, too.

use rtscope_analyze::gap::{Blamer, Part, Total, totals};
use rtscope_cpus::{Cpus, Thread};
use rtscope_event::{CpuId, MonotonicNs, Tid};
use rtscope_programs::clock::{Conversion, Pair};
use rtscope_session::Failure;
use rtscope_session::cpu_recorder::CpuRecorder;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Between pairs of the counter and the clock.
const PAIRS_EVERY: Duration = Duration::from_millis(50);
/// Then, after a day, they are taken no more.
const PAIRS_MAX: usize = 1 << 21;

/// The recorder, running.
#[derive(Debug)]
pub struct BlameRecorder {
    recorder: CpuRecorder,
    kind: u32,
    first: Pair,
    stop: Arc<AtomicBool>,
    pairs: Option<JoinHandle<Vec<Pair>>>,
}

/// A gap, and what ran in it.
#[derive(Clone, Debug, Serialize)]
pub struct BlamedGap {
    /// From the loop's begin.
    pub at_ns: f64,
    /// How long it was.
    pub ns: f64,
    /// `None`: it was before the oldest that the buffers still hold.
    pub parts: Option<Vec<Part>>,
}

/// What ran in the gaps.
#[derive(Clone, Debug, Serialize)]
pub struct BlameReport {
    /// In the order in which they came.
    pub gaps: Vec<BlamedGap>,
    /// Sums over all of them that are known.
    pub totals: Vec<Total>,
    /// Events of this CPU, or of one that is not known, that were lost, of any cause; `None`: not known.
    pub lost: Option<u64>,
}

impl BlameRecorder {
    /// Starts recording. `bank_bytes`: for `cpu`, which is measured, with which counter (`enum rtu_clock`).
    pub fn start(bank_bytes: usize, cpu: usize, kind: u32) -> Result<BlameRecorder, Failure> {
        let recorder = CpuRecorder::start_on(cpu, bank_bytes)?;
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread = Builder::new().name("clock".to_string()).spawn(move || take_pairs(cpu, kind, &theirs));
        let pairs = Some(thread.map_err(|error| Failure::doing("starting a thread", error))?);
        Ok(BlameRecorder { recorder, kind, first: Pair::now(kind), stop, pairs })
    }

    /// Stops recording. `gaps`: from and to, of thread `tid` on `cpu`; `begin`: the loop's. All in ticks of the counter.
    pub fn finish(
        mut self,
        cpu: usize,
        tid: u32,
        begin: u64,
        gaps: &[(u64, u64)],
    ) -> Result<BlameReport, Failure> {
        self.recorder.stop();
        // ORDER: relaxed; a flag that stands for itself.
        self.stop.store(true, Ordering::Relaxed);
        // It panicked: its message is on standard error, and two pairs are left.
        let between = self.pairs.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let last = Pair::now(self.kind);
        let mut clock = Conversion::new([self.first].into_iter().chain(between).chain([last]).collect());
        let mut time = |ticks: u64| MonotonicNs(clock.monotonic_ns(ticks));
        let begin = time(begin);
        let gaps: Vec<_> = gaps.iter().map(|(from, to)| (time(*from), time(*to))).collect();
        let (recording, _) = self.recorder.read(begin)?;
        let cpu = CpuId(cpu as u32);
        let since = recording.history.iter().find(|history| history.cpu == cpu);
        let since = since.and_then(|history| history.complete_since);
        let blamer = Blamer::new(&recording, cpu, Tid(tid));
        let blame_gap = |(from, to): &(MonotonicNs, MonotonicNs)| BlamedGap {
            at_ns: from.since(begin) as f64,
            ns: to.since(*from) as f64,
            parts: since.filter(|since| since <= from).map(|_| blamer.blame(*from, *to)),
        };
        let gaps: Vec<BlamedGap> = gaps.iter().map(blame_gap).collect();
        let totals = totals(gaps.iter().filter_map(|gap| gap.parts.as_deref()));
        let here = recording.losses.iter().filter(|loss| loss.cpu.is_none_or(|other| other == cpu));
        let lost = here.map(|loss| loss.count).chain([self.recorder.misses()]);
        Ok(BlameReport { totals, gaps, lost: lost.sum() })
    }
}

/// Pairs of the counter and CLOCK_MONOTONIC, taken on the other CPUs; none where there is no other.
fn take_pairs(cpu: usize, kind: u32, stop: &AtomicBool) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let others = Cpus::every().without(&[cpu as u32].into_iter().collect());
    if Thread::Calling.set_cpus(&others).is_err() {
        return pairs;
    }
    // ORDER: relaxed; as in finish().
    while !stop.load(Ordering::Relaxed) && pairs.len() < PAIRS_MAX {
        pairs.push(Pair::now(kind));
        std::thread::sleep(PAIRS_EVERY);
    }
    pairs
}
