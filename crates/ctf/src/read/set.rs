// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening: one trace, or all traces below a directory, as streams in one order.
//!
//! Grouping follows babeltrace2 2.0.4: directories whose metadata has the same UUID are one trace (an LTTng
//! session that was rotated), files with the same stream class and `stream_instance_id` are one stream. Streams get a
//! rank, which orders events of the same time: by UUID, host name, stream class, stream id.

use super::class::{ClockClass, EnvValue, EventClass, StreamClass, TraceClass};
use super::compile::showing;
use super::cursor::Damage;
use super::index::{FileIndex, Losses, Segment, index_file, join};
use super::lane::StreamReader;
use super::packet::{TracePlans, is_framing};
use super::parallel::for_each;
use super::plan::{FieldIndex, Plan, Scope, Style};
use super::select::{Origin, Selection};
use super::{blocks, files};
use crate::Error;
use crate::private_env;
use crate::write::RingFileName;
use rtscope_event::Loss;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use uuid::Uuid;

/// A trace: its metadata, and where it is.
#[derive(Debug)]
pub struct OpenTrace {
    /// Its directories; several if the session was rotated.
    pub dirs: Vec<PathBuf>,
    pub(crate) class: TraceClass,
    pub(crate) plans: TracePlans,
}

impl OpenTrace {
    /// Identifies the trace.
    #[must_use]
    pub fn uuid(&self) -> Option<Uuid> {
        self.class.uuid
    }

    /// The environment that the tracer recorded.
    #[must_use]
    pub fn env(&self) -> &BTreeMap<String, EnvValue> {
        &self.class.env
    }

    /// The clocks.
    #[must_use]
    pub fn clocks(&self) -> &[ClockClass] {
        &self.class.clocks
    }

    /// Losses by cause, for rtscope's own traces; `None` for others.
    #[must_use]
    pub fn losses_by_cause(&self) -> Option<Vec<Loss>> {
        private_env::parse(&self.class.env).map(|private| private.losses)
    }

    /// The host that it is from; empty where the trace does not say.
    #[must_use]
    pub fn host(&self) -> &str {
        match self.class.env.get("hostname") {
            Some(EnvValue::Text(name)) => name,
            _ => "",
        }
    }
}

/// A file that cannot be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its path.
    pub path: PathBuf,
    /// The damage.
    pub damage: Damage,
}

impl std::fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { packet_at, what, rest_of_file } = &self.damage;
        let rest = if *rest_of_file { "file" } else { "packet" };
        write!(
            f,
            "{}: packet at byte {packet_at}: {what}; the rest of the {rest} is left out",
            self.path.display()
        )
    }
}

/// A stream of events.
#[derive(Debug)]
pub struct Stream {
    /// Index of its trace.
    pub trace: usize,
    /// Index of its class in the trace.
    pub(crate) class: usize,
    /// The id of its class.
    pub class_id: u64,
    /// Its own id, if packets have one.
    pub instance: Option<u64>,
    /// The CPU, if it is the same in all packets.
    pub cpu: Option<u64>,
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Number of packets.
    pub packets: u64,
    /// Size of its packets.
    pub bytes: u64,
    /// Losses that its packets report.
    pub losses: Losses,
    /// Events that a ring of files has removed before those that are there; `None`: it is none.
    pub overwritten: Option<u64>,
    pub(crate) segments: Vec<Segment>,
}

impl Stream {
    /// Index of its class among the plans of its trace.
    #[must_use]
    pub fn class_place(&self) -> usize {
        self.class
    }
}

/// Traces that are read together.
#[derive(Debug)]
pub struct TraceSet {
    /// The traces.
    pub traces: Vec<OpenTrace>,
    /// Their streams, by rank.
    pub streams: Vec<Stream>,
    /// Files that cannot be read to their end.
    pub damaged: Vec<DamagedFile>,
}

impl TraceSet {
    /// Opens the trace in `path`, or all traces in the directories below it.
    ///
    /// # Errors
    /// When there is no trace, a file cannot be read, or metadata cannot be understood. Damaged streams are not an error: see
    /// [`TraceSet::damaged`].
    pub fn open(path: &Path) -> Result<TraceSet, Error> {
        let mut traces: Vec<OpenTrace> = Vec::new();
        let mut room = files::Room::new();
        for dir in files::trace_dirs(path)? {
            add_trace(&mut traces, dir, &mut room)?;
        }
        traces.sort_by(|one, other| {
            let key = |trace: &OpenTrace| (trace.uuid().is_none(), trace.uuid());
            key(one)
                .cmp(&key(other))
                .then_with(|| one.host().cmp(other.host()))
                .then_with(|| one.dirs.cmp(&other.dirs))
        });
        let mut set = TraceSet { traces, streams: Vec::new(), damaged: Vec::new() };
        for trace in 0..set.traces.len() {
            set.add_streams(trace)?;
        }
        Ok(set)
    }

    fn add_streams(&mut self, place: usize) -> Result<(), Error> {
        let Some(trace) = self.traces.get(place) else { return Ok(()) };
        let indices = index_files(trace)?;
        let missing = missing(&trace.class, &trace.dirs);
        let is_damaged =
            |path: &Path| indices.iter().any(|(known, index)| known == path && index.damage.is_some());
        self.damaged.extend(missing.into_iter().filter(|missing| !is_damaged(&missing.path)));
        let mut groups: Vec<Vec<(PathBuf, FileIndex)>> = Vec::new();
        let mut by_id: BTreeMap<(usize, u64), usize> = BTreeMap::new();
        for (path, mut index) in indices {
            if let Some(damage) = index.damage.take() {
                self.damaged.push(DamagedFile { path: path.clone(), damage });
            }
            let Some(class) = index.stream else { continue };
            // Without times the order of a stream's files is unknown.
            let ordered = index.segments.first().is_some_and(|segment| segment.first.begin.is_some());
            let id = index.instance.filter(|_| ordered).map(|id| (class, id));
            match id.and_then(|id| by_id.get(&id)).and_then(|group| groups.get_mut(*group)) {
                Some(group) => group.push((path, index)),
                None => {
                    id.map(|id| by_id.insert(id, groups.len()));
                    groups.push(vec![(path, index)]);
                }
            }
        }
        let mut streams: Vec<Stream> =
            groups.into_iter().filter_map(|group| stream(place, &trace.class, group)).collect();
        // Files are in the order of their paths, and so are streams without an id, as in babeltrace2.
        streams.sort_by_key(|stream| (stream.class_id, stream.instance.unwrap_or(0)));
        self.streams.append(&mut streams);
        Ok(())
    }

    /// Times of the first and of the last event (nanoseconds since the clocks' origin); `None` where no stream has a clock,
    /// or none has events. Only the first and the last packets are read.
    #[must_use]
    pub fn span(&self) -> (Option<i64>, Option<i64>) {
        let selection = Selection::default();
        let readings = self.streams.iter().map(|stream| StreamReader::new(self, stream, &selection));
        let spans: Vec<_> =
            readings.filter(StreamReader::is_timed).map(|reading| reading.event_span()).collect();
        let begin = spans.iter().filter_map(|(begin, _)| *begin).min();
        (begin, spans.iter().filter_map(|(_, end)| *end).max())
    }

    /// Since when all streams of a trace have what was recorded: for a ring of files, whose streams begin at different moments. In the unit
    /// of events' times.
    pub(crate) fn ring_begins(&self, trace: usize) -> Option<i64> {
        let streams = self.streams.iter().filter(|stream| stream.trace == trace);
        let cut = streams.filter(|stream| stream.overwritten.is_some_and(|events| events > 0));
        let begin = |stream: &Stream| {
            let first = stream.segments.first()?.first.begin?;
            self.clock(stream).map(|clock| clock.ns(first))
        };
        cut.filter_map(begin).max()
    }

    pub(crate) fn plans(&self, stream: &Stream) -> Option<&TracePlans> {
        self.traces.get(stream.trace).map(|trace| &trace.plans)
    }

    pub(crate) fn stream_class(&self, stream: &Stream) -> Option<&StreamClass> {
        self.traces.get(stream.trace)?.class.streams.get(stream.class)
    }

    /// The clock of a stream's events.
    #[must_use]
    pub fn clock(&self, stream: &Stream) -> Option<&ClockClass> {
        let trace = self.traces.get(stream.trace)?;
        trace.class.clocks.get(trace.class.streams.get(stream.class)?.clock?)
    }

    /// The name of an event class.
    #[must_use]
    pub fn event_name(&self, stream: &Stream, event: usize) -> &str {
        self.event_class(stream, event).map_or("", |class| &class.name)
    }

    /// A plan for showing an event after its header: see [`super::EventView::show`].
    #[must_use]
    pub fn event_plan(&self, stream: &Stream, event: usize, style: &dyn Style) -> Plan {
        self.event_plan_without(stream, event, style, &|_, _| false)
    }

    /// The same without some fields of its scopes, by their names.
    #[must_use]
    pub fn event_plan_without(
        &self,
        stream: &Stream,
        event: usize,
        style: &dyn Style,
        hidden: &dyn Fn(Scope, &str) -> bool,
    ) -> Plan {
        let classes = self.stream_class(stream).zip(self.event_class(stream, event));
        let Some((stream, event)) = classes else { return Plan::default() };
        let scopes = [
            (Scope::StreamContext, stream.event_context.as_ref()),
            (Scope::EventContext, event.context.as_ref()),
            (Scope::Fields, event.fields.as_ref()),
        ];
        showing(&scopes, style, hidden)
    }

    /// Which fields of an event's plan are priorities: their number, their path, and what is to be added to a value to get the kernel's.
    #[must_use]
    pub fn priorities(&self, stream: &Stream, event: usize, plan: &Plan) -> Vec<(FieldIndex, String, i16)> {
        let (origin, name) = (Origin::of(self, stream), self.event_name(stream, event));
        let fields = (0..).zip(&plan.fields).filter(|(_, field)| field.scope == Scope::Fields);
        let scaled = fields.filter_map(|(number, field)| {
            Some((number, field.path.clone(), origin.priority_scale(name, &field.path)?))
        });
        scaled.collect()
    }

    /// A plan for showing a packet's context without fields for readers only: see [`super::EventView::show_context`].
    #[must_use]
    pub fn packet_plan(&self, stream: &Stream, style: &dyn Style) -> Plan {
        let Some(class) = self.stream_class(stream) else { return Plan::default() };
        let scopes = [(Scope::PacketContext, class.packet_context.as_ref())];
        showing(&scopes, style, &|_, name| is_framing(name))
    }

    /// Whether it describes an event of this name.
    pub(super) fn has_event(&self, name: &str) -> bool {
        let mut traces = self.traces.iter().flat_map(|trace| &trace.class.events);
        traces.any(|event| event.name == name)
    }

    /// Number of event classes of a stream.
    #[must_use]
    pub fn event_count(&self, stream: &Stream) -> usize {
        let plans = self.plans(stream).and_then(|plans| plans.streams.get(stream.class));
        plans.map_or(0, |plans| plans.events.len())
    }

    /// The class of an event; `event` is its index in the stream.
    pub(crate) fn event_class(&self, stream: &Stream, event: usize) -> Option<&EventClass> {
        let trace = self.traces.get(stream.trace)?;
        let plan = trace.plans.streams.get(stream.class)?.events.get(event)?;
        trace.class.events.get(plan.class)
    }
}

fn stream(trace: usize, class: &TraceClass, group: Vec<(PathBuf, FileIndex)>) -> Option<Stream> {
    let first = &group.first()?.1;
    let (place, instance, cpu) = (first.stream?, first.instance, first.cpu);
    let cpu = cpu.filter(|cpu| group.iter().all(|(_, index)| index.cpu == Some(*cpu)));
    let stream_class = class.streams.get(place)?;
    let clock = stream_class.clock.and_then(|clock| class.clocks.get(clock));
    let (files, indices): (Vec<PathBuf>, Vec<FileIndex>) = group.into_iter().unzip();
    let names = files.iter().filter_map(|file| RingFileName::parse(file.file_name()?.to_str()?));
    let first = names.map(|(_, name)| name).min().filter(|_| private_env::has_ring(&class.env));
    let (segments, losses) = join(indices, clock, first.is_some_and(|first| first.number > 0));
    Some(Stream {
        trace,
        class: place,
        class_id: stream_class.id,
        instance,
        cpu,
        files,
        packets: segments.iter().map(|segment| segment.packets).sum(),
        bytes: segments.iter().map(|segment| segment.until - segment.from).sum(),
        losses,
        overwritten: first.map(|first| first.events),
        segments,
    })
}

/// Adds a directory as a trace, or to the trace that it is another part of.
fn add_trace(traces: &mut Vec<OpenTrace>, dir: PathBuf, room: &mut files::Room) -> Result<(), Error> {
    let path = dir.join("metadata");
    let text = files::metadata_text(&path)?;
    let class = metadata_of(&path, &text)?;
    let same = traces.iter_mut().find(|trace| class.uuid.is_some() && trace.class.uuid == class.uuid);
    let Some(trace) = same else {
        room.take(&dir, text.len())?;
        let plans = TracePlans::new(&class);
        traces.push(OpenTrace { dirs: vec![dir], class, plans });
        return Ok(());
    };
    trace.dirs.push(dir);
    let size = |class: &TraceClass| class.streams.len() + class.events.len();
    if size(&class) > size(&trace.class) {
        // Metadata only grows.
        trace.plans = TracePlans::new(&class);
        trace.class = class;
    }
    Ok(())
}

/// Reads the metadata in a directory.
pub(crate) fn metadata(dir: &Path) -> Result<TraceClass, Error> {
    let path = dir.join("metadata");
    metadata_of(&path, &files::metadata_text(&path)?)
}

/// The classes that a text describes.
pub(crate) fn metadata_of(path: &Path, text: &str) -> Result<TraceClass, Error> {
    let fault = |fault: super::lexer::Fault| Error::Metadata {
        path: path.to_owned(),
        line: fault.line,
        what: fault.what,
    };
    blocks::parse(text).map_err(fault)
}

/// The files of `dirs` that had more when the trace was complete: they were removed, emptied, or cut where a packet ends.
pub(crate) fn missing(class: &TraceClass, dirs: &[PathBuf]) -> Vec<DamagedFile> {
    let known = private_env::parse(&class.env).map(|private| private.files).unwrap_or_default();
    let missing = known.into_iter().filter_map(|(name, bytes)| {
        let mut paths = dirs.iter().map(|dir| dir.join(&name));
        let there = paths.clone().filter_map(|path| Some((std::fs::metadata(&path).ok()?.len(), path))).max();
        let (packet_at, path) = there.or_else(|| Some((0, paths.next()?)))?;
        let what = format!("the recorder wrote {bytes} bytes, and {packet_at} are there");
        let damage = Damage { packet_at, what, rest_of_file: true };
        (packet_at < bytes).then_some(DamagedFile { path, damage })
    });
    missing.collect()
}

/// The index of each file of a trace, by path.
fn index_files(trace: &OpenTrace) -> Result<Vec<(PathBuf, FileIndex)>, Error> {
    let mut paths = Vec::new();
    for dir in &trace.dirs {
        paths.extend(files::stream_files(dir)?);
    }
    paths.sort();
    let class = &trace.class;
    let clocks: Vec<Option<&ClockClass>> =
        class.streams.iter().map(|stream| stream.clock.and_then(|clock| class.clocks.get(clock))).collect();
    let indices = Mutex::new(Vec::new());
    for_each(paths, |path| {
        let index = match index_file(&trace.plans, &clocks, &path) {
            // A ring of files goes on.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            index => index.map_err(Error::io("read", &path)),
        };
        indices.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((path, index));
    });
    let mut indices = indices.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    indices.sort_by(|(one, _), (other, _)| one.cmp(other));
    indices.into_iter().map(|(path, index)| Ok((path, index?))).collect()
}
