// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace being written: a directory, and a stream for each CPU in it. The streams are independent of each other and may be written by
//! different threads.
//!
//! The directory either appears when it is complete: then the metadata is written last, because losses are known only then. Or it can be
//! read at every instant (`followed`, `growing`): then each class is declared before its first event is written, and losses by cause
//! come at the end.

use super::classes::{Classes, TracepointId};
use super::encode::Payload;
use super::growing::GrowingMetadata;
use super::head::EventSource;
use super::packet::PacketWriter;
use super::ring::{Overwritten, RingTrace};
use super::state::{self, TaskStatus};
use super::stream_file::StreamFile;
use super::{Losses, WriteSummary, metadata};
use crate::layout::id;
use crate::{Error, StagedDir, TraceInfo, private_env};
use rtscope_event::{CpuHistory, CpuId, Event, Loss, MonotonicNs, NameLookup, Names, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a trace records in addition to its events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// Losses by cause.
    pub losses: &'a [Loss],
    /// How far back each CPU's events reach.
    pub history: &'a [CpuHistory],
    /// Losses by event, where that is known: `(event, cpu, count)`; they are part of `losses`.
    pub by_event: &'a [EventLoss],
}

/// How many events of one kind are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLoss {
    /// The event's name, or that of the eBPF program that would have recorded it.
    pub event: String,
    /// The loss.
    pub loss: Loss,
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter {
    staged: StagedDir,
    classes: Arc<Classes>,
    info: TraceInfo,
    /// Of a trace that can be read while it is written.
    metadata: Option<Arc<Mutex<DeclaredClasses>>>,
    /// Of a trace whose oldest events are removed.
    ring: Option<RingTrace>,
}

/// Metadata that grows with the classes that occur.
#[derive(Debug)]
struct DeclaredClasses {
    file: GrowingMetadata,
    is_declared: Vec<bool>,
}

impl DeclaredClasses {
    fn declare(&mut self, number: u32, classes: &Classes) -> io::Result<()> {
        if std::mem::replace(&mut self.is_declared[number as usize], true) {
            return Ok(());
        }
        let mut text = String::new();
        if let Some((_, layout)) = classes.own_classes().find(|(own, _)| *own == number) {
            metadata::own_class(number, layout, &mut text);
        }
        if let Some((_, class)) = classes.twin_classes().find(|(twin, _)| *twin == number) {
            class.describe(number, &mut text);
        }
        self.file.append(&text)
    }

    fn finish(&mut self, evidence: &Evidence<'_>, overwritten: Option<Overwritten>) -> io::Result<u64> {
        let mut entries = private_env::entries(evidence);
        entries.extend(overwritten.iter().flat_map(private_env::of_ring));
        entries.extend(private_env::files(self.file.directory())?);
        self.file.append(&metadata::end_env(&entries))?;
        self.file.finish()
    }
}

impl TraceWriter {
    /// Begins the trace that is to become the new directory `dir`. Dropping the writer before [`TraceWriter::finish`] leaves nothing.
    ///
    /// # Errors
    /// When `dir` exists or cannot be made.
    pub fn create(dir: &Path, classes: Classes, info: TraceInfo) -> Result<TraceWriter, Error> {
        let (staged, classes) = (StagedDir::new(dir)?, Arc::new(classes));
        Ok(TraceWriter { staged, classes, info, metadata: None, ring: None })
    }

    /// Begins a trace that can be read at every instant, in the new directory `directory`; it becomes `dir` when it is complete. Dropping
    /// the writer before [`TraceWriter::finish`] leaves what there is. `ring`: what limits its size.
    ///
    /// # Errors
    /// When `dir` exists or `directory` cannot be made.
    pub fn growing(
        directory: &Path,
        dir: &Path,
        classes: Classes,
        info: TraceInfo,
        ring: Option<RingTrace>,
    ) -> Result<TraceWriter, Error> {
        let staged = StagedDir::kept(directory, dir)?;
        let ring_env: Vec<_> = ring.iter().map(private_env::is_ring).collect();
        let mut text = metadata::beginning(&classes, &info, &ring_env);
        let mut is_declared = vec![false; classes.names().len()];
        for (number, class) in classes.tracepoint_classes() {
            class.describe(number, &mut text);
            is_declared[number as usize] = true;
        }
        let mut file = GrowingMetadata::create(directory, &text, ring.clone())?;
        file.publish().map_err(Error::io("write", &directory.join("metadata")))?;
        let metadata = Some(Arc::new(Mutex::new(DeclaredClasses { file, is_declared })));
        Ok(TraceWriter { staged, classes: Arc::new(classes), info, metadata, ring })
    }

    /// Completes a trace whose writer was killed, with what is known of its end, and gives it its name. Returns the size of its files.
    ///
    /// # Errors
    /// When `dir` exists or the system refuses.
    pub fn complete(directory: &Path, dir: &Path, evidence: &Evidence<'_>) -> Result<u64, Error> {
        let staged = StagedDir::kept(directory, dir)?;
        let path = directory.join("metadata");
        let (mut file, is_complete) = GrowingMetadata::reopen(directory)?;
        if !is_complete {
            let mut entries = private_env::entries(evidence);
            entries.extend(private_env::files(directory).map_err(Error::io("list", directory))?);
            file.append(&metadata::end_env(&entries)).map_err(Error::io("write", &path))?;
        }
        let bytes = RingTrace::sync(directory).map_err(Error::io("sync", directory))?;
        staged.publish()?;
        Ok(bytes)
    }

    /// The classes of the trace.
    #[must_use]
    pub fn classes(&self) -> &Arc<Classes> {
        &self.classes
    }

    /// Begins the stream of a CPU; no event may be older than `begin`.
    ///
    /// # Errors
    /// When there is one already, or it cannot be made.
    pub fn stream(&self, cpu: CpuId, begin: MonotonicNs) -> Result<StreamWriter, Error> {
        let name = format!("kernel_{cpu}");
        let path = self.staged.path().join(&name);
        let uuid = *self.info.trace_uuid.as_bytes();
        let (header, place) = (self.classes.header, EventSource::Cpu(cpu));
        let single = || {
            let file = File::create_new(&path).map_err(Error::io("make the file", &path))?;
            Ok(StreamFile::single(file))
        };
        let packets = match &self.ring {
            Some(ring) => {
                let files = ring.stream(self.staged.path(), &name)?;
                PacketWriter::in_ring(files, header, uuid, place, begin)
            }
            None if self.metadata.is_some() => PacketWriter::followed(single()?, header, uuid, place, begin),
            None => PacketWriter::new(single()?, header, uuid, place, begin),
        };
        let counts = vec![0; self.classes.names().len()];
        let (classes, metadata) = (Arc::clone(&self.classes), self.metadata.clone());
        Ok(StreamWriter {
            path,
            cpu,
            begin,
            classes,
            metadata,
            packets,
            counts,
            uncounted: BTreeMap::new(),
            dump_events: 0,
        })
    }

    /// Completes the metadata and gives the trace its name. All streams must have been finished.
    ///
    /// # Errors
    /// When the system refuses (a full disk), or something else has taken the name; nothing is left then.
    pub fn finish(self, evidence: &Evidence<'_>, streams: &[StreamSummary]) -> Result<WriteSummary, Error> {
        let path = self.staged.path().join("metadata");
        let written = match &self.metadata {
            Some(metadata) => {
                let overwritten = self.ring.as_ref().map(RingTrace::overwritten);
                metadata.lock().unwrap_or_else(PoisonError::into_inner).finish(evidence, overwritten)
            }
            None => {
                let directory = self.staged.path();
                let mut entries = private_env::entries(evidence);
                entries.extend(private_env::files(directory).map_err(Error::io("list", directory))?);
                let text = metadata::text(&self.classes, &entries, &self.info, |number| {
                    streams.iter().any(|stream| stream.occurring.contains(&number))
                });
                File::create_new(&path).and_then(|mut file| {
                    io::Write::write_all(&mut file, text.as_bytes())?;
                    file.sync_all()?;
                    Ok(text.len() as u64)
                })
            }
        };
        let bytes = written.map_err(Error::io("write", &path))?;
        let mut summary = WriteSummary { bytes, ..WriteSummary::default() };
        for stream in streams {
            summary.events += stream.events;
            summary.dump_events += stream.dump_events;
            summary.streams += 1;
            summary.packets += stream.packets;
            summary.bytes += stream.bytes;
        }
        if self.ring.is_some() {
            let directory = self.staged.path();
            summary.bytes = RingTrace::sync(directory).map_err(Error::io("sync", directory))?;
        }
        self.staged.publish()?;
        Ok(summary)
    }
}

/// Writes the stream of one CPU.
#[derive(Debug)]
pub struct StreamWriter {
    path: PathBuf,
    cpu: CpuId,
    begin: MonotonicNs,
    classes: Arc<Classes>,
    metadata: Option<Arc<Mutex<DeclaredClasses>>>,
    packets: PacketWriter<StreamFile>,
    /// Events by class.
    counts: Vec<u64>,
    /// Those of them that nobody asked for.
    uncounted: BTreeMap<u32, u64>,
    dump_events: u64,
}

/// Summary of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamSummary {
    /// Events, without those of the state dump.
    pub events: u64,
    /// Events of the state dump, and those of tasks that nobody asked for.
    pub dump_events: u64,
    /// Events by name, without those of the state dump.
    pub by_name: BTreeMap<String, u64>,
    /// Packets.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Events that came too late: they got the time of the previous event.
    pub moved: u64,
    /// Numbers of the classes of its events.
    occurring: BTreeSet<u32>,
}

impl StreamWriter {
    /// The state dump that a trace begins with; for one stream of a trace, before its events. `status`: how a task began. In a ring of
    /// files there are more: what is known at `time`, when that of the beginning may be removed.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn dump(
        &mut self,
        names: &Names,
        status: impl Fn(Tid) -> Option<(TaskStatus, CpuId)>,
        time: Option<MonotonicNs>,
    ) -> io::Result<()> {
        self.dump_events += state::write_dump(self, names, status, time.unwrap_or(self.begin))?;
        Ok(())
    }

    /// If another file of a ring is due, what follows goes there. No event that follows is as old as `end`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn turn(&mut self, end: MonotonicNs) -> io::Result<()> {
        self.packets.turn(end)
    }

    /// Adds a built-in event.
    ///
    /// # Errors
    /// When its class was not declared, or the system refuses.
    #[inline]
    pub fn event<N: NameLookup>(&mut self, event: &Event, names: &N) -> io::Result<()> {
        self.own(event.kind.class(), event.time, |out| event.kind.put(event.time, names, out))
    }

    /// Adds what a task did that nobody asked for, but by which readers name threads. As the state dump, it is not counted as an event.
    ///
    /// # Errors
    /// As [`StreamWriter::event`].
    pub fn process<N: NameLookup>(&mut self, event: &Event, names: &N) -> io::Result<()> {
        self.event(event, names)?;
        self.packets.leave_out_of_count();
        self.dump_events += 1;
        let number = self.classes.own(event.kind.class()).map(|(number, _)| number);
        *self.uncounted.entry(number.unwrap_or_default()).or_default() += 1;
        Ok(())
    }

    /// Adds the event of a tracepoint. `record` is as the kernel wrote it; `texts` are those that [`Classes::texts`] asks for.
    /// False: the record is too short for its class, and nothing was added.
    ///
    /// # Errors
    /// When the class is of another trace, or the system refuses.
    #[inline]
    pub fn tracepoint(
        &mut self,
        class: TracepointId,
        time: MonotonicNs,
        record: &[u8],
        texts: &[Option<&[u8]>],
    ) -> io::Result<bool> {
        let Some((number, class)) = self.classes.class(class, record, texts) else {
            return Err(undeclared());
        };
        if self.counts[number as usize] == 0 {
            declare(self.metadata.as_deref(), number, &self.classes)?;
        }
        let mark = self.packets.mark();
        self.packets.begin_event(number, time)?;
        if class.encode(record, texts, self.packets.payload()).is_none() {
            self.packets.take_back(mark);
            return Ok(false);
        }
        self.counts[number as usize] += 1;
        Ok(true)
    }

    /// `count` events are missing between the last event and the next.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn lost(&mut self, count: u64) -> io::Result<()> {
        self.packets.lost(count)
    }

    /// Records the losses of this CPU among `losses`, whose place in the stream is unknown; to be called before its first event.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn lost_somewhere(&mut self, losses: &[Loss]) -> io::Result<()> {
        self.packets.announce_losses(Losses::of(losses, self.cpu))
    }

    pub(super) fn own(
        &mut self,
        layout: u32,
        time: MonotonicNs,
        encode: impl FnOnce(&mut Payload<'_>),
    ) -> io::Result<()> {
        let is_dump = (id::DUMP_START..=id::DUMP_END).contains(&layout);
        let Some((number, layout)) = self.classes.own(layout) else { return Err(undeclared()) };
        if self.counts[number as usize] == 0 {
            declare(self.metadata.as_deref(), number, &self.classes)?;
        }
        self.packets.begin_event(number, time)?;
        let mut payload = Payload::new(self.packets.payload(), layout.fields);
        encode(&mut payload);
        payload.finish();
        self.counts[number as usize] += 1;
        if is_dump {
            self.packets.leave_out_of_count();
        }
        Ok(())
    }

    /// Writes the buffered events: in a trace that grows, readers see them from then on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()
    }

    /// The file that is being written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the rest. The stream covers the time up to `end`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(self, end: MonotonicNs) -> io::Result<StreamSummary> {
        let (file, done) = self.packets.finish(end)?;
        file.finish()?;
        let names = self.classes.names();
        let is_dump = |name: &str| name.starts_with("lttng_statedump_");
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (number, (name, count)) in (0..).zip(names.into_iter().zip(&self.counts)) {
            let count = count.saturating_sub(self.uncounted.get(&number).copied().unwrap_or(0));
            if count > 0 && !is_dump(name) {
                // A class and its twins have the same name.
                *by_name.entry(name.to_owned()).or_default() += count;
            }
        }
        let occurring = (0..).zip(&self.counts).filter(|(_, count)| **count > 0).map(|(number, _)| number);
        Ok(StreamSummary {
            events: by_name.values().sum(),
            dump_events: self.dump_events,
            by_name,
            packets: done.packets,
            bytes: done.bytes,
            moved: done.moved,
            occurring: occurring.collect(),
        })
    }
}

/// Before the first event of a class is written.
#[cold]
fn declare(metadata: Option<&Mutex<DeclaredClasses>>, number: u32, classes: &Classes) -> io::Result<()> {
    let Some(metadata) = metadata else { return Ok(()) };
    metadata.lock().unwrap_or_else(PoisonError::into_inner).declare(number, classes)
}

fn undeclared() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "an event of a class that the trace does not declare")
}
