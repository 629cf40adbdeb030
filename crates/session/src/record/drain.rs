// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that empty the kernel's buffers into the spool while a recording runs.
//!
//! They poll: a wakeup from the kernel would cost the traced load more than a poll of a few words does, and on
//! PREEMPT_RT can come late. The pause follows the rate, so that a buffer is emptied long before it is full and an idle
//! machine is left alone. Nothing is decoded here; that is done by another thread, behind this one (`live`), or after the recording.

use super::live::{LaneProgress, SpoolLimit};
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_kernel::tracefs::RawReader;
use rtscope_ring::{Controls, SharedMemory, StreamReader};
use rtscope_store::LaneExtent;
use rtscope_store::spool::BankWriter;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
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
/// What is written besides records, and how much more than asked for: a header and a record.
const CHUNK_HEADER_BYTES: u64 = 32;
const CHUNK_EXTRA_BYTES: u64 = CHUNK_HEADER_BYTES + 255 * 8;
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
    /// Whether everything was taken that was there.
    pub is_empty: bool,
    /// Since when the kernel's pages were taken whole only.
    pub flushed: MonotonicNs,
    /// How large the files may be; `None`: as large as the disk allows.
    pub limit: Option<Arc<SpoolLimit>>,
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
        // Where there is a limit, the rest comes when there is room.
        if stopping && lanes.iter().all(|lane| lane.is_empty) {
            return Ok(());
        }
        let is_over = |lane: &Lane| lane.limit.as_ref().is_some_and(|limit| limit.has_ended());
        if stopping && lanes.iter().any(is_over) {
            return Err(io::Error::other("nobody makes room for the last events"));
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
    let held = lane.follower.as_ref().map_or((0, 0), |follower| follower.held(&lane.written));
    let room = |held: u64| lane.limit.as_ref().map_or(u64::MAX, |limit| limit.room(held));
    let (bank_room, pages_room) = (room(held.0), room(held.1));
    // Up to when everything is in the files, if that is known.
    let mut until = Some(now);
    if let Some(bank) = &mut lane.bank {
        let head = bank.reader.head(&bank.controls);
        fullest = bank.reader.waiting(&bank.controls) as f64 / bank.bytes as f64;
        let written = drain_bank(bank, bank_room)?;
        lane.written.bank_bytes = bank.out.bytes();
        // An interrupted program still writes a record, or more came than is written at once.
        if !bank.reader.has_taken(head) {
            let next = bank.reader.next_time(&bank.memory, &bank.controls);
            until = next.filter(|_| lane.limit.is_some());
        }
        // ORDER: relaxed; numbers for a progress line.
        shared.bytes.fetch_add(written, Ordering::Relaxed);
    }
    let mut is_empty = until == Some(now);
    if let Some(pages) = &mut lane.pages {
        let page_bytes = pages.reader.page_bytes() as u64;
        let has_room = |taken: u64| taken.saturating_add(page_bytes) <= pages_room;
        let mut taken = pages.reader.splice_some(&pages.out, pages_room)?;
        let is_due = lane.follower.is_some() && until.is_some() && now.since(lane.flushed) >= FLUSH_EVERY_NS;
        let mut is_taken = false;
        while !is_taken && (last || is_due) && has_room(taken) {
            let more = pages.reader.flush_to(&pages.out)?;
            taken += more;
            lane.flushed = now;
            // While it is filled, there is always more.
            is_taken = more == 0 || !last;
        }
        if !is_taken {
            is_empty = false;
            let newest =
                if has_room(taken) { None } else { newest_page(pages, lane.written.pages_bytes + taken)? };
            until = until.zip(newest).map(|(until, newest)| until.min(newest));
        }
        lane.written.pages_bytes += taken;
        fullest = fullest.max(taken as f64 / pages.bytes as f64);
        // ORDER: relaxed; as above.
        shared.bytes.fetch_add(taken, Ordering::Relaxed);
    }
    lane.is_empty = is_empty || lane.limit.is_none();
    let Some(follower) = &lane.follower else { return Ok(fullest) };
    if let Some(until) = until.filter(|until| *until > lane.written.complete_until) {
        lane.written.complete_until = until;
        follower.publish(lane.written);
    }
    if let Some(limit) = &lane.limit {
        limit.look(follower.held(&lane.written));
    }
    Ok(fullest)
}

/// When the newest page begins: older events of this buffer are in the file.
fn newest_page(pages: &Pages, written: u64) -> io::Result<Option<MonotonicNs>> {
    let Some(at) = written.checked_sub(pages.reader.page_bytes() as u64) else { return Ok(None) };
    let mut time = [0; 8];
    pages.out.read_exact_at(&mut time, at)?;
    Ok(Some(MonotonicNs(u64::from_ne_bytes(time))))
}

/// Writes straight from the ring: whatever records shares the CPUs with the load, and each copy is time that the load does not have.
/// At most `room` bytes.
fn drain_bank(bank: &mut Bank, room: u64) -> io::Result<u64> {
    let mut written = 0;
    loop {
        // The losses first: what was lost so far was lost before what is taken now ends.
        let lost =
            super::recorder::lost_events(&bank.controls, bank.reader.cpu()).map(|(_, count)| count).sum();
        let most = BATCH_BYTES.min(room.saturating_sub(written + CHUNK_EXTRA_BYTES));
        let found = bank.reader.complete(&bank.memory, &bank.controls, most);
        if found.bytes() == 0 {
            return Ok(written);
        }
        bank.out.chunk_of_ring(monotonic_now(), lost, &bank.memory, &found)?;
        bank.reader.give_back(&bank.controls, &found);
        written += found.bytes() + CHUNK_HEADER_BYTES;
        if found.bytes() < most {
            return Ok(written);
        }
    }
}
