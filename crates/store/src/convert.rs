// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spool to trace.
//!
//! The spool stays whole until the trace is: a conversion that is killed, stopped or meets a full disk can begin again.
//! So for a while both are on the disk. Freeing the spool's blocks as they are read would save that space, but then a failure in
//! the middle would lose the recording.

use crate::bank::BankReader;
use crate::forks::Forks;
use crate::formats::{CallIds, Formats, TracepointEncoding};
use crate::losses::{LossSummary, anywhere, by_event, rest};
use crate::names::{AllNames, Lookup};
use crate::pages::{PageSource, PagesReader};
use crate::paths::LatePaths;
use crate::scan::Scan;
use crate::spool::open_regular;
use crate::stream::{Limits, MergeError, PageEvents, ReadAhead, Tally, TracepointTable, merge};
use crate::{Error, Spool};
use rtscope_ctf::{Classes, EventLoss, Evidence, StreamSummary, TaskStatus, TraceWriter};
use rtscope_event::{CpuHistory, CpuId, Loss, MonotonicNs, Names, Tid};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// How to convert.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Threads; 0: one for each CPU that this process may use.
    pub threads: usize,
    /// Receives the progress, from any of the threads.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
    /// Ends the conversion when it becomes true.
    pub cancel: Option<&'a AtomicBool>,
}

/// How far a conversion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes to be read: the banks twice.
    pub total: u64,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct ConversionSummary {
    /// Number of events, without those of the state dump.
    pub events: u64,
    /// Events by name.
    pub by_event: BTreeMap<String, u64>,
    /// Events by CPU.
    pub by_cpu: BTreeMap<CpuId, u64>,
    /// Losses by cause and CPU.
    pub losses: Vec<Loss>,
    /// Losses by event, as far as that is known.
    pub event_losses: Vec<EventLoss>,
    /// Size of the trace.
    pub bytes: u64,
    /// Size of the spool.
    pub spool_bytes: u64,
    /// Beginning of the trace.
    pub from: MonotonicNs,
    /// End of the trace; without an orderly end of the recording: its last event.
    pub until: Option<MonotonicNs>,
    /// Events from before all recorders were active; they are left out.
    pub early: u64,
    /// Events that were out of order and got the time of the previous event.
    pub moved: u64,
    /// Paths that could not be read.
    pub without_text: u64,
    /// Paths of which only the beginning was read (511 bytes); they end with "…".
    pub cut_texts: u64,
    /// Names of tasks that did not fit.
    pub names_dropped: u64,
    /// The recording had no orderly end.
    pub interrupted: bool,
}

/// Makes the trace `target` of a spool, and then removes the spool.
///
/// # Errors
/// When `target` exists, the spool makes no sense, the system refuses (a full disk), or the caller stopped it: the spool is
/// left as it was.
pub fn convert(spool: Spool, target: &Path, options: &Options<'_>) -> Result<ConversionSummary, Error> {
    let result = Conversion::new(&spool, options)?.run(target);
    match result {
        Ok(converted) => spool.remove().map(|()| converted),
        Err(error) if error.is_no_room() => {
            Err(Error::DiskFull { spool: spool.directory.clone(), target: target.to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// The parts of a conversion that are the same for all CPUs.
struct Conversion<'a> {
    spool: &'a Spool,
    options: &'a Options<'a>,
    cpus: Vec<CpuId>,
    threads: usize,
    limits: Limits,
    own: Vec<u32>,
    total: u64,
    done: AtomicU64,
}

/// The result of one CPU.
#[derive(Debug)]
struct CpuSummary {
    cpu: CpuId,
    stream: StreamSummary,
    bank: Tally,
    pages: Tally,
}

/// The result of the first pass.
struct ScanResult<'f> {
    names: AllNames,
    forks: Forks,
    late: LatePaths,
    encodings: Vec<Option<TracepointEncoding>>,
    calls: CallIds,
    formats: &'f Formats,
}

impl<'a> Conversion<'a> {
    fn new(spool: &'a Spool, options: &'a Options<'a>) -> Result<Conversion<'a>, Error> {
        let mut cpus = spool.cpus()?;
        if cpus.is_empty() {
            // The state dump needs a stream to be in.
            cpus.push(CpuId(0));
        }
        let bytes =
            |what: &str| cpus.iter().fold(0_u64, |sum, cpu| sum.saturating_add(spool.bytes(*cpu, what)));
        let total = bytes("bank").saturating_mul(2).saturating_add(bytes("pages"));
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if options.threads == 0 { available } else { options.threads };
        let limits = Limits { from: spool.description.started, until: latest(spool, &cpus) };
        let mut own = spool.description.leave_out.clone();
        if !own.is_empty() {
            own.extend(spool.end.iter().flat_map(|end| &end.own_tids));
        }
        Ok(Conversion { spool, options, threads, limits, own, total, done: AtomicU64::new(0), cpus })
    }

    fn run(&self, target: &Path) -> Result<ConversionSummary, Error> {
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(Error::Exists(target.to_owned()));
        }
        let description = &self.spool.description;
        let broken = |what: String| Error::broken(&self.spool.directory.join("session.json"), what);
        let formats = Formats::new(description.ftrace.as_ref(), &description.syscalls, &description.paths)
            .map_err(broken)?;
        let scan = self.scan()?;
        let for_classes = formats.for_classes();
        let classes = Classes::new(|class| scan.classes.contains(&class), &for_classes);
        let names_dropped = scan.names.dropped();
        let prepared = ScanResult {
            names: scan.names.finish(),
            forks: scan.forks,
            late: scan.late.finish(),
            encodings: formats.encodings(&classes),
            calls: formats.calls(),
            formats: &formats,
        };
        let writer = TraceWriter::create(target, classes, description.info())?;
        let mut cpus = self.on_all(|cpu| self.cpu(cpu, &writer, &prepared))?;
        cpus.sort_by_key(|done| done.cpu);
        self.finish(writer, &cpus, names_dropped)
    }

    /// Runs `work` for each CPU, on all threads; largest first, so that no thread is left with the largest.
    fn on_all<T: Send>(&self, work: impl Fn(CpuId) -> Result<T, Error> + Sync) -> Result<Vec<T>, Error> {
        let mut queue = self.cpus.clone();
        queue.sort_by_cached_key(|cpu| self.size(*cpu));
        let (queue, results) = (Mutex::new(queue), Mutex::new(Vec::new()));
        let next = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
        let keep = |result| results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(result);
        let run = || {
            while let Some(cpu) = next() {
                let result = work(cpu);
                let failed = result.is_err();
                keep(result);
                if failed {
                    // The other threads then find no work.
                    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(self.cpus.len()) {
                scope.spawn(run);
            }
            run();
        });
        results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().collect()
    }

    /// Bytes of a CPU's files.
    fn size(&self, cpu: CpuId) -> u64 {
        self.spool.bytes(cpu, "bank").saturating_add(self.spool.bytes(cpu, "pages"))
    }

    /// Counts bytes as read; false when the caller has cancelled.
    fn advance(&self, bytes: u64) -> bool {
        // ORDER: a sum that only the progress display reads, and a flag that guards nothing.
        let done = self.done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if let Some(progress) = self.options.progress {
            progress(Progress { done: done.min(self.total), total: self.total });
        }
        !self.is_cancelled()
    }

    fn is_cancelled(&self) -> bool {
        // ORDER: the flag guards nothing.
        self.options.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    fn stopped(&self) -> Error {
        Error::Cancelled(self.spool.directory.clone())
    }

    fn open(&self, cpu: CpuId, what: &str) -> Result<Option<File>, Error> {
        let path = self.spool.path(cpu, what);
        match open_regular(&path) {
            Ok(file) => Ok(Some(file)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn scan(&self) -> Result<Scan, Error> {
        let scans = self.on_all(|cpu| {
            let mut scan = Scan::default();
            if let Some(file) = self.open(cpu, "bank")? {
                let reader = BankReader::new(file);
                reader
                    .and_then(|reader| scan.bank(cpu, reader, |bytes| self.advance(bytes)))
                    .map_err(Error::io("read", &self.spool.path(cpu, "bank")))?;
            }
            Ok(scan)
        })?;
        if self.is_cancelled() {
            return Err(self.stopped());
        }
        let mut whole = Scan::default();
        let description = &self.spool.description;
        for task in &description.tasks {
            whole.names.add(task.tid, MonotonicNs(0), task.comm);
        }
        scans.into_iter().for_each(|scan| whole.join(scan));
        let end = self.spool.end.as_ref();
        for task in end.into_iter().flat_map(|end| &end.tasks) {
            whole.names.add_fallback(task.tid, MonotonicNs(u64::MAX), task.comm);
        }
        let irqs = description.irqs.iter().chain(end.into_iter().flat_map(|end| &end.irqs));
        irqs.for_each(|(irq, name)| whole.names.add_irq(*irq, name));
        Ok(whole)
    }

    fn cpu(&self, cpu: CpuId, writer: &TraceWriter, prepared: &ScanResult<'_>) -> Result<CpuSummary, Error> {
        let mut stream = writer.stream(cpu, self.limits.from)?;
        let path = stream.path().to_owned();
        let writing = |error| Error::io("write", &path)(error);
        let reading = |error| Error::io("read", &self.spool.directory)(error);
        let end = self.spool.end.as_ref();
        stream.lost_somewhere(&anywhere(end, cpu)).map_err(writing)?;
        if Some(&cpu) == self.cpus.first() {
            self.dump(&mut stream).map_err(writing)?;
        }
        let bank = self.open(cpu, "bank")?.map(BankReader::new).transpose().map_err(reading)?;
        let pages = match (self.open(cpu, "pages")?, prepared.formats.layout) {
            (Some(file), Some(layout)) => {
                let bytes = file.metadata().map_err(reading)?.len();
                Some(PagesReader::new(PageSource::File(file, bytes), layout))
            }
            _ => None,
        };
        let how = TracepointTable {
            encodings: &prepared.encodings,
            classes: writer.classes(),
            calls: &prepared.calls,
            late: &prepared.late,
            forks: &prepared.forks,
        };
        let mut own = ReadAhead::new(cpu, bank, how, self.limits);
        let mut pages = PageEvents::new(pages, how, self.limits).leave_out(&self.own);
        let names = Lookup::new(&prepared.names);
        let mut before = 0;
        let whole = merge(&mut own, &mut pages, &mut stream, &names, |read| {
            let more = read.saturating_sub(before);
            before = before.max(read);
            self.advance(more)
        });
        match whole {
            Ok(true) => {}
            Ok(false) => return Err(self.stopped()),
            Err(MergeError::Reading(error)) => return Err(reading(error)),
            Err(MergeError::Writing(error)) => return Err(writing(error)),
        }
        let until = end.map_or(self.limits.from, |end| end.ended);
        let stream = stream
            .lost(rest(end, cpu, &own.met, &pages.met))
            .and_then(|()| stream.finish(until))
            .map_err(writing)?;
        Ok(CpuSummary { cpu, stream, bank: own.met, pages: pages.met })
    }

    /// Tasks and interrupts as they were when the recording began.
    fn dump(&self, stream: &mut rtscope_ctf::StreamWriter) -> io::Result<()> {
        let description = &self.spool.description;
        let mut names = Names::default();
        description.tasks.iter().for_each(|task| names.add_task(task.info()));
        description.irqs.iter().for_each(|(irq, name)| names.add_irq(*irq, name.clone()));
        let status = |state: u32| if state == 0 { TaskStatus::Runnable } else { TaskStatus::Waiting };
        let states: HashMap<Tid, (TaskStatus, CpuId)> = description
            .tasks
            .iter()
            .filter_map(|task| Some((task.tid, (status(task.state?), task.cpu.unwrap_or(CpuId(0))))))
            .collect();
        stream.dump(&names, |tid| states.get(&tid).copied())
    }

    fn finish(
        &self,
        writer: TraceWriter,
        cpus: &[CpuSummary],
        names_dropped: u64,
    ) -> Result<ConversionSummary, Error> {
        let end = self.spool.end.as_ref();
        let mut account = LossSummary::default();
        let mut converted = ConversionSummary {
            from: self.limits.from,
            until: end.map(|end| end.ended),
            event_losses: by_event(end),
            names_dropped,
            interrupted: end.is_none(),
            ..ConversionSummary::default()
        };
        let mut history = Vec::new();
        for done in cpus {
            account.cpu(end, done.cpu, &done.bank, &done.pages);
            converted.by_cpu.insert(done.cpu, done.stream.events);
            let sums = [
                (&mut converted.events, done.stream.events),
                (&mut converted.moved, done.stream.moved),
                (&mut converted.early, done.bank.early.saturating_add(done.pages.early)),
                (&mut converted.without_text, done.bank.without_text + done.pages.without_text),
                (&mut converted.cut_texts, done.bank.cut_texts + done.pages.cut_texts),
                (&mut converted.spool_bytes, self.size(done.cpu)),
            ];
            for (sum, count) in sums {
                *sum = sum.saturating_add(count);
            }
            for (name, count) in &done.stream.by_name {
                let sum = converted.by_event.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            let complete_since = Some(self.limits.from);
            history.push(CpuHistory { cpu: done.cpu, complete_since, events: done.stream.events });
        }
        account.end(end, &self.spool.description);
        converted.losses = account.losses();
        let evidence =
            Evidence { losses: &converted.losses, history: &history, by_event: &converted.event_losses };
        let streams: Vec<StreamSummary> = cpus.iter().map(|done| done.stream.clone()).collect();
        converted.bytes = writer.finish(&evidence, &streams)?.bytes;
        Ok(converted)
    }
}

/// No event can have happened after this. Without an orderly end: when a file was last written, with a wide margin because
/// the wall clock may have been set.
fn latest(spool: &Spool, cpus: &[CpuId]) -> MonotonicNs {
    const MARGIN_NS: u64 = 10_000_000_000;
    const WALL_MARGIN_NS: u64 = 3_600_000_000_000;
    if let Some(end) = &spool.end {
        return end.ended.plus(MARGIN_NS);
    }
    let written = |path: &Path| {
        let modified = std::fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(modified.as_nanos()).ok()?.checked_sub(spool.description.realtime_offset_ns)
    };
    let paths = cpus.iter().flat_map(|cpu| [spool.path(*cpu, "bank"), spool.path(*cpu, "pages")]);
    let newest = paths.filter_map(|path| written(&path)).max();
    newest.map_or(MonotonicNs(u64::MAX), |newest| MonotonicNs(newest).plus(WALL_MARGIN_NS))
}
