// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot of `watch`, including ftrace's events.
//!
//! The eBPF events are a decoded recording already; ftrace's come as the sub-buffers that its instance held when both were
//! frozen; here they are limited to the snapshot's window.

use crate::Error;
use crate::description::FtraceDescription;
use crate::formats::{CallIds, Formats, TracepointEncoding};
use crate::pages::{PageSource, PagesReader};
use crate::paths::{LatePaths, RecentPaths};
use crate::stream::{Limits, PageEvents, TracepointTable};
use rtscope_ctf::{
    Classes, Evidence, StreamSummary, StreamWriter, TraceInfo, TraceWriter, WriteSummary, initial_states,
};
use rtscope_event::{CpuHistory, CpuId, Event, Loss, LossCause, MonotonicNs, Recording, SwitchSequence};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::Path;

/// The tracepoints that ftrace records, parsed once for all snapshots.
#[derive(Debug)]
pub struct Tracepoints(Formats);

impl Tracepoints {
    /// Parses the texts of tracefs.
    ///
    /// # Errors
    /// When one of them cannot be parsed.
    pub fn new(ftrace: &FtraceDescription) -> Result<Tracepoints, Error> {
        let tracefs = Path::new("/sys/kernel/tracing/events");
        let formats =
            Formats::new(Some(ftrace), &[], &BTreeMap::new()).map_err(|what| Error::broken(tracefs, what))?;
        Ok(Tracepoints(formats))
    }
}

/// The content of ftrace's buffers when a snapshot was frozen.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Per CPU its sub-buffers, oldest first. The last one may end behind its part in use.
    pub cpus: Vec<(CpuId, Vec<u8>)>,
    /// Beginning of the window: older events are left out.
    pub from: MonotonicNs,
    /// End of the window: newer events are left out.
    pub until: MonotonicNs,
}

/// Summary of the written trace.
#[derive(Clone, Debug)]
pub struct SnapshotSummary {
    /// Numbers of events, packets and bytes.
    pub summary: WriteSummary,
    /// Number of ftrace events among them.
    pub ftrace_events: u64,
    /// The recording's losses, and ftrace's.
    pub losses: Vec<Loss>,
    /// The recording's history; a CPU whose ftrace history is shorter has that one.
    pub history: Vec<CpuHistory>,
}

/// Writes a recording and ftrace's events as the new trace `dir`.
///
/// # Errors
/// When `dir` exists, the recording is not in time order, or the system refuses; nothing is left then.
pub fn write_snapshot(
    dir: &Path,
    recording: &Recording,
    info: &TraceInfo,
    tracepoints: &Tracepoints,
    pages: &Pages,
) -> Result<SnapshotSummary, Error> {
    let occurring: HashSet<u32> = recording.events.iter().map(|event| event.kind.class()).collect();
    let classes = Classes::new(|class| occurring.contains(&class), &tracepoints.0.for_classes());
    let encodings = tracepoints.0.encodings(&classes);
    let writer = TraceWriter::create(dir, classes, info.clone())?;
    let first = recording.events.first().map(|event| event.time);
    let begin = first.into_iter().chain(info.window_begin).chain([pages.from]).min().unwrap_or(pages.from);
    let snapshot = Snapshot { recording, tracepoints, pages, encodings, begin };
    let mut done = SnapshotSummary {
        summary: WriteSummary::default(),
        ftrace_events: 0,
        losses: recording.losses.clone(),
        history: recording.history.clone(),
    };
    let mut streams = Vec::new();
    for (index, cpu) in snapshot.cpus().into_iter().enumerate() {
        let mut stream = writer.stream(cpu, begin)?;
        let path = stream.path().to_owned();
        let mut write = || {
            stream.lost_somewhere(&recording.losses)?;
            if index == 0 {
                let states = initial_states(&recording.events);
                stream.dump(&recording.names, |tid| states.get(&tid).copied(), None)?;
            }
            snapshot.cpu(cpu, &writer, &mut stream, &mut done)
        };
        let written: io::Result<StreamSummary> = write().and_then(|()| stream.finish(pages.until));
        streams.push(written.map_err(Error::io("write", &path))?);
    }
    let evidence = Evidence { losses: &done.losses, history: &done.history, by_event: &[] };
    done.summary = writer.finish(&evidence, &streams)?;
    Ok(done)
}

struct Snapshot<'a> {
    recording: &'a Recording,
    tracepoints: &'a Tracepoints,
    pages: &'a Pages,
    encodings: Vec<Option<TracepointEncoding>>,
    begin: MonotonicNs,
}

impl Snapshot<'_> {
    fn cpus(&self) -> BTreeSet<CpuId> {
        let recording = self.recording;
        let mut cpus: BTreeSet<CpuId> = recording.history.iter().map(|history| history.cpu).collect();
        cpus.extend(recording.events.iter().map(|event| event.cpu));
        cpus.extend(recording.losses.iter().filter_map(|loss| loss.cpu));
        cpus.extend(self.pages.cpus.iter().map(|(cpu, _)| *cpu));
        if cpus.is_empty() {
            cpus.insert(CpuId(0));
        }
        cpus
    }

    fn cpu(
        &self,
        cpu: CpuId,
        writer: &TraceWriter,
        stream: &mut StreamWriter,
        done: &mut SnapshotSummary,
    ) -> io::Result<()> {
        let mut own = self.recording.events.iter().filter(|event| event.cpu == cpu).peekable();
        let held = self.pages.cpus.iter().find(|(other, _)| *other == cpu);
        let held = held.zip(self.tracepoints.0.layout);
        let reader = held.map(|((_, bytes), layout)| PagesReader::new(PageSource::Memory(bytes), layout));
        let limits = Limits { from: self.pages.from, until: self.pages.until };
        let (mut recent, late, calls) = (RecentPaths::default(), LatePaths::default(), CallIds::default());
        let writing = TracepointTable {
            encodings: &self.encodings,
            classes: writer.classes(),
            calls: &calls,
            late: &late,
            forks: &crate::forks::Forks::default(),
            by_ftrace: &[],
        };
        let mut pages = PageEvents::new(reader, limits);
        // Events overwritten before the oldest one are not a loss: a flight recorder forgets.
        let since = pages.skip_to_oldest(&writing)?.filter(|since| *since > self.pages.from);
        loop {
            let mine: Option<&&Event> = own.peek();
            match (mine.map(|event| event.time), pages.peek(&writing)?) {
                (None, None) => break,
                (Some(mine), theirs) if theirs.is_none_or(|theirs| mine <= theirs) => {
                    if let Some(event) = own.next() {
                        stream.event(event, &self.recording.names)?;
                    }
                }
                _ => {
                    pages.write(&writing, stream, (&mut recent, &mut SwitchSequence::default()))?;
                    done.ftrace_events += 1;
                }
            }
        }
        pages.finish(stream)?;
        done.ftrace_events -= pages.met.unreadable_events;
        self.account(cpu, since, &pages, done);
        Ok(())
    }

    fn account(
        &self,
        cpu: CpuId,
        since: Option<MonotonicNs>,
        pages: &PageEvents<'_>,
        done: &mut SnapshotSummary,
    ) {
        let met = &pages.met;
        let overrun = if met.lost_unknown { None } else { Some(met.lost) };
        for (cause, count) in [(LossCause::Overrun, overrun), (LossCause::Unreadable, Some(met.unreadable))] {
            if count != Some(0) {
                done.losses.push(Loss { cpu: Some(cpu), cause, count });
            }
        }
        let Some(since) = since.filter(|since| *since > self.begin) else { return };
        match done.history.iter_mut().find(|history| history.cpu == cpu) {
            Some(history) => {
                history.complete_since = Some(history.complete_since.map_or(since, |own| own.max(since)));
            }
            None => done.history.push(CpuHistory { cpu, complete_since: Some(since), events: 0 }),
        }
    }
}
