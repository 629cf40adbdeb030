// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw recording → trace, in steps: each takes all CPUs up to the same time.
//!
//! A step first scans the banks ([`crate::scan`]), since a fork on one CPU names a task that runs on another one, then it merges and
//! writes each CPU's events. So a recording that goes on is converted behind its recorder ([`crate::LiveConversion`]), and one that is
//! over in one step ([`crate::convert()`]).

use crate::Error;
use crate::convert::{ConversionSummary, Options, Progress, formats_of};
use crate::description::{End, SpoolDescription, SpoolTask};
use crate::formats::{CallIds, Formats, TracepointEncoding};
use crate::lane::{CpuSummary, Lane, LaneFiles};
use crate::losses::{LossSummary, by_event};
use crate::scan::Scan;
use crate::spool::SpoolPlace;
use crate::stream::{END_OF_TIME, TracepointTable};
use crate::tasks::TaskTable;
use rtscope_ctf::{Classes, Evidence, RingTrace, StreamSummary, TraceWriter};
use rtscope_event::{CpuHistory, CpuId, MonotonicNs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A conversion under way.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// The spool, and the trace's final place.
    place: SpoolPlace,
    /// Where the trace is made: in the spool's directory, whatever has its path by now.
    trace_directory: PathBuf,
    description: SpoolDescription,
    formats: Formats,
    pub(crate) lanes: Vec<Lane>,
    found: Scan,
    trace: Option<Trace>,
    ring: Option<Ring>,
}

/// What limits the trace's size, and what that requires.
#[derive(Debug)]
struct Ring {
    files: RingTrace,
    tasks: TaskTable,
    /// Of the files, when tasks were last written.
    generation: u64,
}

/// The trace, once it has begun.
#[derive(Debug)]
struct Trace {
    writer: TraceWriter,
    encodings: Vec<Option<TracepointEncoding>>,
    calls: CallIds,
    /// Whether the end's losses without a known place were written at its beginning.
    losses_told: bool,
}

/// What a task takes in a state dump, about.
const TASK_BYTES: u64 = 100;

/// How far the work is, and whether it is to be ended.
pub(crate) struct Course<'a> {
    options: &'a Options<'a>,
    done: AtomicU64,
    total: u64,
}

impl<'a> Course<'a> {
    pub(crate) fn new(options: &'a Options<'a>, total: u64) -> Course<'a> {
        Course { options, done: AtomicU64::new(0), total }
    }

    /// Counts bytes as read; false when the caller has cancelled.
    fn advance(&self, bytes: u64) -> bool {
        // ORDER: a sum that only the progress display reads.
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

    fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.options.threads == 0 { available() } else { self.options.threads }
    }
}

impl Conversion {
    /// Of a spool. `files`: for each CPU. `leave_out`: threads of rtscope. `ring`: what limits the trace's size.
    pub(crate) fn new(
        place: SpoolPlace,
        description: SpoolDescription,
        files: &[(CpuId, LaneFiles)],
        leave_out: &[u32],
        ring: Option<RingTrace>,
    ) -> Result<Conversion, Error> {
        if std::fs::symlink_metadata(&place.target).is_ok() {
            return Err(Error::Exists(place.target));
        }
        let formats = formats_of(&description)
            .map_err(|what| Error::broken(&place.directory.shown.join("session.json"), what))?;
        let lane = |(cpu, files): &(CpuId, LaneFiles)| {
            Lane::new(*cpu, files, formats.layout, description.started, leave_out)
        };
        let lanes = files.iter().map(lane).collect();
        let mut found = Scan::default();
        for task in &description.tasks {
            found.names.add(task.tid, MonotonicNs(0), task.comm);
        }
        description.irqs.iter().for_each(|(irq, name)| found.names.add_irq(*irq, name));
        let tasks = |files: RingTrace| {
            let tasks = TaskTable::new(description.tasks.iter().map(SpoolTask::info));
            Ring { files, tasks, generation: 0 }
        };
        let ring = ring.map(tasks);
        Ok(Conversion {
            trace_directory: place.trace(),
            place,
            description,
            formats,
            lanes,
            found,
            trace: None,
            ring,
        })
    }

    /// The spool and the trace's final place, and where the trace is made.
    pub(crate) fn places(&self) -> (SpoolPlace, PathBuf) {
        (self.place.clone(), self.trace_directory.clone())
    }

    /// Removes what there is of the trace, unless nothing else has its events.
    pub(crate) fn remove_trace(&self) {
        if self.ring.is_some() {
            return;
        }
        // Where it cannot be removed, making it anew says why.
        let _ = std::fs::remove_dir_all(&self.trace_directory);
    }

    /// Finds what is to be known before events up to `until` are written. False: cancelled.
    pub(crate) fn scan(&mut self, until: MonotonicNs, course: &Course<'_>) -> Result<bool, Error> {
        let (directory, follows_tasks) = (&self.place.directory.shown, self.ring.is_some());
        let scans = on_all(&mut self.lanes, course.threads(), |lane| {
            lane.scan(until, follows_tasks, |bytes| course.advance(bytes))
                .map_err(|error| Error::io("read", directory)(error))
        })?;
        for mut scan in scans {
            if let (Some(ring), Some(tasks)) = (&mut self.ring, scan.tasks.take()) {
                ring.tasks.extend(tasks);
            }
            self.found.join(scan);
        }
        self.found.settle();
        Ok(!course.is_cancelled())
    }

    /// Writes the events up to `until`, as far as they were scanned. False: cancelled.
    pub(crate) fn write(&mut self, until: MonotonicNs, course: &Course<'_>) -> Result<bool, Error> {
        self.begin(None)?;
        let (lanes, table, found, directory) = self.writing()?;
        let whole = on_all(lanes, course.threads(), |lane| {
            let whole = lane.write(&table, &found.names, until, directory, |bytes| course.advance(bytes))?;
            lane.flush().map(|()| whole)
        })?;
        if whole.contains(&false) {
            return Ok(false);
        }
        self.found.forget_before(until);
        self.turn(until)?;
        Ok(true)
    }

    /// All events up to `until` are written: what follows goes into the next files of a ring, if they are due, and tells again which tasks
    /// there are.
    fn turn(&mut self, until: MonotonicNs) -> Result<(), Error> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let generation = ring.files.ring().generation();
        ring.tasks.advance(until);
        if generation == ring.generation {
            return Ok(());
        }
        ring.generation = generation;
        self.lanes.iter_mut().try_for_each(|lane| lane.turn(until))?;
        // Where there is little room, events are wanted more.
        let size = (ring.tasks.len() as u64).saturating_mul(TASK_BYTES);
        let Some(first) = self.lanes.first_mut() else { return Ok(()) };
        if size > ring.files.ring().generation_bytes() / 4 {
            return Ok(());
        }
        let mut names = ring.tasks.names();
        self.description.irqs.iter().for_each(|(irq, name)| names.add_irq(*irq, name.clone()));
        first.dump_again(&names, until)?;
        first.flush()
    }

    /// Converts all the rest, and completes the trace.
    pub(crate) fn finish(
        mut self,
        end: Option<&End>,
        course: &Course<'_>,
    ) -> Result<ConversionSummary, Error> {
        let stopped = |directory: &Path| Error::Cancelled(directory.to_owned());
        if !self.scan(END_OF_TIME, course)? {
            return Err(stopped(&self.place.directory.shown));
        }
        for task in end.into_iter().flat_map(|end| &end.tasks) {
            self.found.names.add_fallback(task.tid, END_OF_TIME, task.comm);
        }
        for (irq, name) in end.into_iter().flat_map(|end| &end.irqs) {
            self.found.names.add_irq(*irq, name);
        }
        if !self.description.leave_out.is_empty() {
            let own: Vec<u32> = self
                .description
                .leave_out
                .iter()
                .chain(end.iter().flat_map(|end| &end.own_tids))
                .copied()
                .collect();
            self.lanes.iter_mut().for_each(|lane| lane.leave_out(&own));
        }
        self.begin(end)?;
        let told = self.trace.as_ref().is_some_and(|trace| trace.losses_told);
        let (lanes, table, found, directory) = self.writing()?;
        let mut cpus: Vec<CpuSummary> = on_all(lanes, course.threads(), |lane| {
            let go_on = |bytes| course.advance(bytes);
            if !lane.write(&table, &found.names, END_OF_TIME, directory, go_on)? {
                return Err(stopped(directory));
            }
            lane.finish(end, told)
        })?
        .into_iter()
        .flatten()
        .collect();
        cpus.sort_by_key(|done| done.cpu);
        self.complete(end, &cpus)
    }

    /// Begins the trace, if it has not begun.
    fn begin(&mut self, end: Option<&End>) -> Result<(), Error> {
        if self.trace.is_some() {
            return Ok(());
        }
        let seen = &self.found.classes;
        let classes = Classes::new(|class| seen.contains(&class), &self.formats.for_classes());
        let (encodings, calls) = (self.formats.encodings(&classes), self.formats.calls());
        let ring = self.ring.as_ref().map(|ring| ring.files.clone());
        let mut info = self.description.info();
        // It will begin later, and nobody knows when.
        info.window_begin = info.window_begin.filter(|_| ring.is_none());
        let writer = TraceWriter::growing(&self.trace_directory, &self.place.target, classes, info, ring)?;
        for lane in &mut self.lanes {
            lane.begin(&writer, end)?;
        }
        if let Some(first) = self.lanes.first_mut() {
            first.dump(&self.description)?;
        }
        self.trace = Some(Trace { writer, encodings, calls, losses_told: end.is_some() });
        Ok(())
    }

    /// What writes events, and what it needs to know.
    fn writing(&mut self) -> Result<(&mut [Lane], TracepointTable<'_>, &Scan, &Path), Error> {
        let Some(trace) = &self.trace else {
            return Err(Error::broken(&self.place.directory.shown, "the trace has not begun".to_string()));
        };
        let table = TracepointTable {
            encodings: &trace.encodings,
            classes: trace.writer.classes(),
            calls: &trace.calls,
            late: &self.found.late,
            forks: &self.found.forks,
            by_ftrace: self.formats.built_in(),
        };
        Ok((&mut self.lanes, table, &self.found, &self.place.directory.shown))
    }

    fn complete(self, end: Option<&End>, cpus: &[CpuSummary]) -> Result<ConversionSummary, Error> {
        let overwritten = self.ring.as_ref().map(|ring| ring.files.overwritten());
        let from = self.description.started.max(overwritten.map_or(MonotonicNs(0), |removed| removed.until));
        let mut account = LossSummary::default();
        let mut converted = ConversionSummary {
            from,
            until: end.map(|end| end.ended),
            event_losses: by_event(end),
            names_dropped: self.found.names.dropped(),
            interrupted: end.is_none(),
            overwritten,
            ..ConversionSummary::default()
        };
        let mut history = Vec::new();
        for done in cpus {
            account.cpu(end, done.cpu, &done.bank, &done.pages);
            if self.description.has_all_switches {
                account.gaps(done.cpu, done.gaps);
            }
            converted.by_cpu.insert(done.cpu, done.stream.events);
            let sums = [
                (&mut converted.events, done.stream.events),
                (&mut converted.moved, done.stream.moved),
                (&mut converted.early, done.bank.early.saturating_add(done.pages.early)),
                (&mut converted.without_text, done.bank.without_text + done.pages.without_text),
                (&mut converted.cut_texts, done.bank.cut_texts + done.pages.cut_texts),
                (&mut converted.spool_bytes, done.bytes),
            ];
            for (sum, count) in sums {
                *sum = sum.saturating_add(count);
            }
            for (name, count) in &done.stream.by_name {
                let sum = converted.by_event.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            history.push(CpuHistory {
                cpu: done.cpu,
                complete_since: Some(from),
                events: done.stream.events,
            });
        }
        converted.events = converted.events.saturating_sub(overwritten.map_or(0, |removed| removed.events));
        account.end(end, &self.description);
        converted.losses = account.losses();
        let evidence =
            Evidence { losses: &converted.losses, history: &history, by_event: &converted.event_losses };
        let streams: Vec<StreamSummary> = cpus.iter().map(|done| done.stream.clone()).collect();
        if let Some(trace) = self.trace {
            converted.bytes = trace.writer.finish(&evidence, &streams)?.bytes;
        }
        Ok(converted)
    }
}

/// Runs `work` for each CPU on some threads; largest first, so that no thread is left with the largest.
fn on_all<T: Send>(
    lanes: &mut [Lane],
    threads: usize,
    work: impl Fn(&mut Lane) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    if threads <= 1 {
        return lanes.iter_mut().map(work).collect();
    }
    let threads = threads.min(lanes.len());
    let mut queue: Vec<&mut Lane> = lanes.iter_mut().collect();
    queue.sort_by_cached_key(|lane| lane.bytes_left());
    let (queue, results) = (Mutex::new(queue), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let run = || {
        while let Some(lane) = next() {
            let result = work(lane);
            let failed = result.is_err();
            results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
            if failed {
                // The other threads then find no work.
                queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}
