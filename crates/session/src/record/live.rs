// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that converts the kernel's events while they are recorded.
//!
//! It reads the spool behind the threads that fill it (`drain`), so whatever becomes of it, the recording goes on: when it falls behind,
//! the spool is longer; when it fails, the trace is made at the end. It has the policy `SCHED_IDLE`, unless somebody wants the trace at once: it
//! runs where a CPU has nothing else to do, since the load is what must not be disturbed. The descriptions of what may be recorded take it some
//! milliseconds, which is much beside a load of a tenth of a second: they are read before COMMAND begins.

use crate::Failure;
use rtscope_ctf::RingTrace;
use rtscope_event::{CpuId, MonotonicNs};
use rtscope_store::{
    Error, LaneExtent, LaneFiles, LiveConversion, Options, SpoolDescription, SpoolPlace, SpoolShare,
};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle, Thread, park_timeout};
use std::time::Duration;

/// Between two looks at what has come: a part of what a follower waits for.
const PERIOD: Duration = Duration::from_millis(100);
/// Where no CPU has been idle for this long after the start, the trace is begun all the same: what a killed recorder leaves can be opened then.
const BEGUN_WITHIN_NS: u64 = 1_000_000_000;
/// The same when there is little room for more.
const HURRIED_PERIOD: Duration = Duration::from_millis(2);

/// How far the files of one CPU are written: by a thread that fills them, for the one that converts.
#[derive(Debug, Default)]
pub struct LaneProgress {
    bank_bytes: AtomicU64,
    pages_bytes: AtomicU64,
    complete_until_ns: AtomicU64,
    /// Bytes at their beginnings that have been converted, and are not there any more.
    bank_freed: AtomicU64,
    pages_freed: AtomicU64,
}

impl LaneProgress {
    /// As much is in the files now.
    pub fn publish(&self, extent: LaneExtent) {
        // ORDER: relaxed; the release below publishes them.
        self.bank_bytes.store(extent.bank_bytes, Ordering::Relaxed);
        self.pages_bytes.store(extent.pages_bytes, Ordering::Relaxed);
        // ORDER: release; pairs with the acquire in extent(): who knows the time knows files at least as long.
        self.complete_until_ns.store(extent.complete_until.0, Ordering::Release);
    }

    /// Bytes of both files that are there, when as many have been written.
    pub fn held(&self, written: &LaneExtent) -> (u64, u64) {
        // ORDER: relaxed; numbers that only grow: an older one makes a file look fuller.
        let freed = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let bank = written.bank_bytes.saturating_sub(freed(&self.bank_freed));
        (bank, written.pages_bytes.saturating_sub(freed(&self.pages_freed)))
    }

    fn free(&self, (bank, pages): (u64, u64)) {
        // ORDER: relaxed; as in held().
        self.bank_freed.store(bank, Ordering::Relaxed);
        self.pages_freed.store(pages, Ordering::Relaxed);
    }

    fn extent(&self) -> LaneExtent {
        // ORDER: acquire; pairs with the release in publish().
        let complete_until = MonotonicNs(self.complete_until_ns.load(Ordering::Acquire));
        // ORDER: relaxed; they are those of that time, or newer: whole chunks and sub-buffers in any case.
        let bank_bytes = self.bank_bytes.load(Ordering::Relaxed);
        let pages_bytes = self.pages_bytes.load(Ordering::Relaxed);
        LaneExtent { bank_bytes, pages_bytes, complete_until }
    }
}

/// How large the files of the spool may be, and who makes them smaller.
#[derive(Debug)]
pub struct SpoolLimit {
    file_bytes: u64,
    converter: OnceLock<(Thread, u32)>,
    is_hurried: AtomicBool,
    has_ended: AtomicBool,
}

impl SpoolLimit {
    /// As much for each file.
    pub fn new(file_bytes: u64) -> SpoolLimit {
        let (is_hurried, has_ended) = (AtomicBool::default(), AtomicBool::default());
        SpoolLimit { file_bytes, converter: OnceLock::new(), is_hurried, has_ended }
    }

    /// How much may be added to a file of which as much is there.
    pub fn room(&self, held: u64) -> u64 {
        self.file_bytes.saturating_sub(held)
    }

    /// If one of both files is more than half full, the conversion becomes as important as the load.
    pub fn look(&self, (bank, pages): (u64, u64)) {
        let Some((thread, tid)) = self.converter.get().filter(|_| bank.max(pages) > self.file_bytes / 2)
        else {
            return;
        };
        // ORDER: relaxed; a flag that stands for itself.
        self.is_hurried.store(true, Ordering::Relaxed);
        // Each time, as it may have made itself idle in between. If this is refused, events may be lost, which is counted.
        let _ = crate::realtime::become_normal(*tid);
        thread.unpark();
    }

    /// Whether nobody converts any more.
    pub fn has_ended(&self) -> bool {
        // ORDER: relaxed; a flag that stands for itself.
        self.has_ended.load(Ordering::Relaxed)
    }

    fn share(&self, (bank, pages): (u64, u64)) -> SpoolShare {
        match bank.max(pages) {
            most if most > self.file_bytes / 8 * 7 => SpoolShare::Full,
            most if most > self.file_bytes / 2 => SpoolShare::Much,
            _ => SpoolShare::Little,
        }
    }

    fn is_hurried(&self) -> bool {
        // ORDER: relaxed; as in look().
        self.is_hurried.load(Ordering::Relaxed)
    }

    /// There is time again.
    fn calm(&self, is_idle: bool) {
        // ORDER: relaxed; as in look().
        if self.is_hurried.swap(false, Ordering::Relaxed) {
            step_aside(is_idle);
        }
    }
}

/// What there is to convert.
pub struct LiveSource {
    /// Where the spool is, and where the trace will be.
    pub place: SpoolPlace,
    pub description: SpoolDescription,
    pub lanes: Vec<(CpuId, LaneFiles, Arc<LaneProgress>)>,
    /// The threads that fill the spool.
    pub own_tids: Vec<u32>,
    /// What limits the trace, and the spool.
    pub ring: Option<RingTrace>,
    pub limit: Option<Arc<SpoolLimit>>,
    /// It takes only time that no task needs.
    pub is_idle: bool,
}

/// The running thread.
#[derive(Debug)]
pub struct LiveConverter {
    thread: Option<JoinHandle<Result<LiveConversion, Error>>>,
    shared: Arc<SharedState>,
    started: MonotonicNs,
    tid: u32,
}

#[derive(Debug, Default)]
struct SharedState {
    stop: AtomicBool,
    until_ns: AtomicU64,
}

impl LiveConverter {
    /// Starts it, and returns when it has only events to wait for.
    pub fn start(source: LiveSource) -> std::io::Result<LiveConverter> {
        let shared = Arc::new(SharedState::default());
        let started = source.description.started;
        // ORDER: relaxed; the thread's start publishes it.
        shared.until_ns.store(started.0, Ordering::Relaxed);
        let (tell, told) = channel();
        let theirs = Arc::clone(&shared);
        let limit = source.limit.clone();
        let thread = Builder::new().name("convert".to_string()).spawn(move || {
            let limit = source.limit.clone();
            let is_idle = source.is_idle;
            let prepared = Prepared::new(source);
            step_aside(is_idle);
            // Nobody hears it only when the start has failed.
            let _ = tell.send(nix::unistd::gettid().as_raw().unsigned_abs());
            drop(tell);
            let result = prepared.and_then(|prepared| prepared.work(&theirs));
            // ORDER: relaxed; see has_ended().
            limit.iter().for_each(|limit| limit.has_ended.store(true, Ordering::Relaxed));
            result
        })?;
        let tid = told.recv().map_err(std::io::Error::other)?;
        if let Some(limit) = limit {
            // It is set once.
            let _ = limit.converter.set((thread.thread().clone(), tid));
        }
        Ok(LiveConverter { thread: Some(thread), shared, started, tid })
    }

    /// Lets it compete with the load until the trace has begun, if no CPU was idle for that.
    pub fn look(&self, now: MonotonicNs) {
        if self.until() == self.started && now.since(self.started) >= BEGUN_WITHIN_NS {
            // If this is refused, the trace begins when a CPU is idle, or with the recording's end.
            let _ = crate::realtime::become_normal(self.tid);
        }
    }

    /// The thread.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Up to when events are in the trace.
    pub fn until(&self) -> MonotonicNs {
        // ORDER: relaxed; a number for people.
        MonotonicNs(self.shared.until_ns.load(Ordering::Relaxed))
    }

    /// Ends the thread. Gives the conversion, or why it ended before.
    pub fn stop(mut self) -> Result<LiveConversion, Failure> {
        match self.end() {
            Some(Ok(conversion)) => Ok(conversion?),
            _ => Err(Failure::Failed("the thread that converts has ended unexpectedly".to_string())),
        }
    }

    fn end(&mut self) -> Option<std::thread::Result<Result<LiveConversion, Error>>> {
        let thread = self.thread.take()?;
        // ORDER: relaxed; the thread acts on nothing else that this one has written.
        self.shared.stop.store(true, Ordering::Relaxed);
        // Where every CPU is busy it would not run for a long time. If this is refused, it only takes longer.
        let _ = crate::realtime::become_normal(self.tid);
        thread.thread().unpark();
        Some(thread.join())
    }
}

impl Drop for LiveConverter {
    fn drop(&mut self) {
        // The recording has failed: its spool stays, what was made of it does not.
        if let Some(Ok(Ok(conversion))) = self.end() {
            conversion.abandon();
        }
    }
}

/// A conversion that has nothing to do but wait for events.
struct Prepared {
    conversion: LiveConversion,
    progress: Vec<Arc<LaneProgress>>,
    limit: Option<Arc<SpoolLimit>>,
    is_idle: bool,
}

/// From now on only in time that no task needs, if that is wanted. Where it is refused, the thread competes as any other.
fn step_aside(is_idle: bool) {
    if is_idle {
        let _ = crate::realtime::become_idle();
    }
}

impl Prepared {
    fn new(source: LiveSource) -> Result<Prepared, Error> {
        let mut own = source.own_tids;
        own.push(nix::unistd::gettid().as_raw().unsigned_abs());
        let (files, progress): (Vec<_>, Vec<_>) =
            source.lanes.into_iter().map(|(cpu, files, progress)| ((cpu, files), progress)).unzip();
        let conversion = LiveConversion::new(source.place, source.description, &files, &own, source.ring)?;
        Ok(Prepared { conversion, progress, limit: source.limit, is_idle: source.is_idle })
    }

    fn work(self, shared: &SharedState) -> Result<LiveConversion, Error> {
        let Prepared { mut conversion, progress, limit, is_idle } = self;
        let options = Options { cancel: Some(&shared.stop), ..Options::default() };
        let mut has_begun = false;
        // ORDER: relaxed; see end().
        while !shared.stop.load(Ordering::Relaxed) {
            let extents: Vec<LaneExtent> = progress.iter().map(|progress| progress.extent()).collect();
            let held = progress.iter().zip(&extents).map(|(progress, extent)| progress.held(extent));
            let most = held.fold((0, 0), |most, held| (held.0.max(most.0), held.1.max(most.1)));
            let share = limit.as_ref().map_or(SpoolShare::Little, |limit| limit.share(most));
            let freed = conversion.advance(&extents, share, &options).and_then(|_| conversion.free());
            match freed {
                Ok(freed) => progress.iter().zip(freed).for_each(|(progress, freed)| progress.free(freed)),
                Err(error) => {
                    conversion.abandon();
                    return Err(error);
                }
            }
            // ORDER: relaxed; a number for people, and for look(): at worst it lets this thread compete once more.
            let before = shared.until_ns.swap(conversion.until().0, Ordering::Relaxed);
            if before < conversion.until().0 && !std::mem::replace(&mut has_begun, true) {
                // Whatever becomes of this thread, there is a trace.
                step_aside(is_idle && !limit.as_ref().is_some_and(|limit| limit.is_hurried()));
            }
            match &limit {
                Some(_) if share != SpoolShare::Little => park_timeout(HURRIED_PERIOD),
                Some(limit) if has_begun => {
                    limit.calm(is_idle);
                    park_timeout(PERIOD);
                }
                _ => park_timeout(PERIOD),
            }
        }
        Ok(conversion)
    }
}
