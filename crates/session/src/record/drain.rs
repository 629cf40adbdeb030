// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that empty the kernel's buffers into the spool while a recording runs.
//!
//! They poll: a wakeup from the kernel would cost the traced load more than a poll of a few words does, and on
//! PREEMPT_RT can come late. The pause follows the rate, so that a buffer is emptied long before it is full and an idle
//! machine is left alone. Nothing is decoded here; that is done by another thread, behind this one (`live`), or after the recording.

use super::live::LaneProgress;
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_kernel::tracefs::RawReader;
use rtscope_ring::{Controls, SharedMemory, StreamReader};
use rtscope_store::LaneExtent;
use rtscope_store::spool::BankWriter;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// One thread serves this many CPUs: at a million events a second and CPU, copying takes about a tenth of a thread.
const CPUS_PER_THREAD: usize = 4;
/// Between polls of the buffers.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(10);
/// Between two times at which the kernel's partly filled pages are taken, for who follows the trace. Each is a whole page on disk.
const FLUSH_EVERY_NS: u64 = 200_000_000;
/// Bytes of records that are written at once: what stays in the second-level cache.
const BATCH_BYTES: u64 = 512 << 10;

/// The eBPF ring of one CPU, and where its records go.
#[derive(Debug)]
pub struct Bank {
    pub memory: SharedMemory,
    pub controls: Arc<Controls>,
    pub reader: StreamReader,
    pub out: BankWriter,
    pub bytes: u64,
}

/// The ftrace buffer of one CPU, and where its pages go.
#[derive(Debug)]
pub struct Pages {
    pub reader: RawReader,
    pub out: Arc<File>,
    /// Size of the buffer in the kernel.
    pub bytes: u64,
}

/// All that one CPU records.
#[derive(Debug, Default)]
pub struct Lane {
    pub bank: Option<Bank>,
    pub pages: Option<Pages>,
    /// Who converts while this goes on; `None`: nobody.
    pub follower: Option<Arc<LaneProgress>>,
    /// How far the files are.
    pub written: LaneExtent,
    /// Since when the kernel's pages were taken whole only.
    pub flushed: MonotonicNs,
}

/// The running threads.
#[derive(Debug)]
pub struct Drain {
    threads: Vec<JoinHandle<()>>,
    tids: Vec<u32>,
    shared: Arc<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    stop: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    failed: AtomicBool,
    /// Bytes in the spool, for the progress line.
    bytes: AtomicU64,
}

impl Drain {
    /// Starts the threads. `fifo`: their real-time priority, if they have one.
    pub fn start(lanes: Vec<Lane>, fifo: Option<u8>) -> io::Result<Drain> {
        let shared = Arc::new(SharedState::default());
        let mut drain = Drain { threads: Vec::new(), tids: Vec::new(), shared };
        let (tell, told) = channel();
        let mut lanes = lanes.into_iter().peekable();
        while lanes.peek().is_some() {
            let mine: Vec<Lane> = lanes.by_ref().take(CPUS_PER_THREAD).collect();
            let shared = Arc::clone(&drain.shared);
            let name = format!("drain/{}", drain.threads.len());
            let tell = tell.clone();
            drain.threads.push(Builder::new().name(name).spawn(move || {
                // Nobody hears it only when the start has failed.
                let _ = tell.send(nix::unistd::gettid().as_raw().unsigned_abs());
                drop(tell);
                work(mine, fifo, &shared);
            })?);
        }
        drop(tell);
        drain.tids = told.iter().collect();
        Ok(drain)
    }

    /// The threads.
    pub fn tids(&self) -> &[u32] {
        &self.tids
    }

    /// Bytes in the spool.
    pub fn bytes(&self) -> u64 {
        // ORDER: relaxed; a number for the progress line.
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Whether a thread had to give up; [`Drain::finish`] gives the reason.
    pub fn has_failed(&self) -> bool {
        // ORDER: relaxed; a flag that stands for itself. The reason is behind a lock.
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Takes what is left, after the recorders were switched off, and ends.
    pub fn finish(mut self) -> Option<io::Error> {
        self.stop_threads();
        let mut failure = self.shared.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.take()
    }

    fn stop_threads(&mut self) {
        // ORDER: relaxed; what the threads read afterwards is in the kernel, whose switching off was a system call.
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.shared
                    .fail(io::Error::other("a thread that empties the buffers has ended unexpectedly"));
            }
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

impl SharedState {
    fn fail(&self, error: io::Error) {
        let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(error);
        // ORDER: relaxed; see has_failed().
        self.failed.store(true, Ordering::Relaxed);
    }
}

fn work(mut lanes: Vec<Lane>, fifo: Option<u8>, shared: &SharedState) {
    let result =
        fifo.map_or(Ok(()), crate::realtime::become_fifo).and_then(|()| drain_all(&mut lanes, shared));
    if let Err(error) = result {
        shared.fail(error);
    }
}

fn drain_all(lanes: &mut [Lane], shared: &SharedState) -> io::Result<()> {
    let mut pause = Duration::from_millis(5);
    loop {
        // Before the poll of the buffers: what was written before the stop is then seen by the poll.
        // ORDER: relaxed; see stop_threads().
        let stopping = shared.stop.load(Ordering::Relaxed);
        let mut fullest = 0.0_f64;
        for lane in lanes.iter_mut() {
            fullest = fullest.max(drain_lane(lane, stopping, shared)?);
        }
        if stopping {
            return Ok(());
        }
        if fullest > 0.2 {
            pause = (pause / 2).max(SHORTEST);
        } else if fullest < 0.05 {
            pause = (pause * 5 / 4).min(LONGEST);
        }
        sleep(pause);
    }
}

/// Empties one CPU's buffers; gives how full the fuller one was, from 0 to 1.
fn drain_lane(lane: &mut Lane, last: bool, shared: &SharedState) -> io::Result<f64> {
    let mut fullest = 0.0_f64;
    // What was recorded before this is in the buffers: whoever empties them has it.
    let now = monotonic_now();
    let mut complete = true;
    if let Some(bank) = &mut lane.bank {
        let head = bank.reader.head(&bank.controls);
        fullest = bank.reader.waiting(&bank.controls) as f64 / bank.bytes as f64;
        let written = drain_bank(bank)?;
        lane.written.bank_bytes = bank.out.bytes();
        // An interrupted program still writes a record, or more came than is written at once.
        complete = bank.reader.has_taken(head);
        // ORDER: relaxed; numbers for a progress line.
        shared.bytes.fetch_add(written, Ordering::Relaxed);
    }
    if let Some(pages) = &mut lane.pages {
        let mut taken =
            if last { pages.reader.drain_to(&pages.out)? } else { pages.reader.splice_to(&pages.out)? };
        complete &= lane.follower.is_some() && !last && now.since(lane.flushed) >= FLUSH_EVERY_NS;
        if complete {
            taken += pages.reader.flush_to(&pages.out)?;
            lane.flushed = now;
        }
        lane.written.pages_bytes += taken;
        fullest = fullest.max(taken as f64 / pages.bytes as f64);
        // ORDER: relaxed; as above.
        shared.bytes.fetch_add(taken, Ordering::Relaxed);
    }
    if let Some(follower) = lane.follower.as_deref().filter(|_| complete) {
        follower.publish(LaneExtent { complete_until: now, ..lane.written });
    }
    Ok(fullest)
}

/// Writes straight from the ring: whatever records shares the CPUs with the load, and each copy is time that the load does not have.
fn drain_bank(bank: &mut Bank) -> io::Result<u64> {
    let mut written = 0;
    loop {
        // The losses first: what was lost so far was lost before what is taken now ends.
        let lost =
            super::recorder::lost_events(&bank.controls, bank.reader.cpu()).map(|(_, count)| count).sum();
        let found = bank.reader.complete(&bank.memory, &bank.controls, BATCH_BYTES);
        if found.bytes() == 0 {
            return Ok(written);
        }
        bank.out.chunk_of_ring(monotonic_now(), lost, &bank.memory, &found)?;
        bank.reader.give_back(&bank.controls, &found);
        written += found.bytes();
        if found.bytes() < BATCH_BYTES {
            return Ok(written);
        }
    }
}
