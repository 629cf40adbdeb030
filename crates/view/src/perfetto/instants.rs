// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that are moments: those of programs, on their threads, and all tracepoints without a meaning of their own here, on a
//! track for each CPU. Two of a program that are the begin and the end of a span (RTSCOPE_SPAN) are a slice of their thread, and so are
//! the entry and the exit of a function in a hardware trace. And fields drawn as counters.

use super::arguments::Arguments;
use super::fields::Place;
use super::packets::{Category, NameId, Packets, Track, TrackKind, Type, event};
use super::threads::Threads;
use rtscope_event::{Domain, EventClass, StreamId, Value, Values};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

/// A class of such events.
#[derive(Clone, Debug)]
pub(super) struct Instant {
    name: NameId,
    arguments: Arguments,
    pub(super) is_program: bool,
    tid: Place,
    pid: Place,
    comm: Place,
    /// Fields that are drawn, with the names of their tracks.
    counters: Vec<(usize, String)>,
    /// The span of which it is an end, and which one.
    span: Option<(NameId, SpanEdge)>,
    /// A function of a hardware trace begins or ends: the field with its name.
    function: Option<(usize, SpanEdge)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanEdge {
    Begin,
    End,
}

/// Nothing of its own: what its context has does not count.
fn has_no_fields(class: &EventClass) -> bool {
    !class.fields.iter().any(|field| field.is_payload)
}

/// The span that a class begins or ends: it has a counterpart, and what ends it has no fields, as RTSCOPE_SPAN makes them.
fn span_of<'c>(class: &'c EventClass, classes: &[EventClass]) -> Option<(&'c str, SpanEdge)> {
    let has = |name: &str, is_end: bool| {
        classes.iter().any(|other| other.name == name && (!is_end || has_no_fields(other)))
    };
    if class.domain == Domain::Kernel {
        return None;
    }
    if let Some(name) = class.name.strip_suffix("_begin") {
        return has(&format!("{name}_end"), true).then_some((name, SpanEdge::Begin));
    }
    let name = class.name.strip_suffix("_end").filter(|_| has_no_fields(class))?;
    has(&format!("{name}_begin"), false).then_some((name, SpanEdge::End))
}

/// The field that names a function which a class says begins or ends. Of classes of hardware traces, as rtscope decodes them.
fn function_of(class: &EventClass) -> Option<(usize, SpanEdge)> {
    let edge = match class.name.as_str() {
        "hardware:function_entry" => SpanEdge::Begin,
        "hardware:function_exit" => SpanEdge::End,
        _ => return None,
    };
    Some((class.field("symbol")?, edge))
}

/// A field that is to be drawn as a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterField {
    event: String,
    field: String,
}

impl std::str::FromStr for CounterField {
    type Err = String;

    /// `EVENT.FIELD`, the event with `*` and `?`.
    fn from_str(text: &str) -> Result<CounterField, String> {
        match text.rsplit_once('.') {
            Some((event, field)) if !event.is_empty() && !field.is_empty() => {
                Ok(CounterField { event: event.to_owned(), field: field.to_owned() })
            }
            _ => Err("write EVENT.FIELD".to_owned()),
        }
    }
}

impl CounterField {
    /// The event's name, or a pattern for it, and the field's.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.event, &self.field)
    }

    fn place(&self, class: &EventClass) -> Option<usize> {
        let is_meant = rtscope_ctf::is_event_named(&rtscope_ctf::Pattern::new(&self.event), &class.name);
        is_meant.then(|| class.field(&self.field)).flatten()
    }

    /// Whether a class has it.
    #[must_use]
    pub fn is_in(&self, class: &EventClass) -> bool {
        self.place(class).is_some()
    }
}

/// The tracks of those that have no thread.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    kernel: Option<Track>,
    cpus: BTreeMap<u32, Track>,
    programs: Option<Track>,
    streams: BTreeMap<u32, Track>,
    /// By thread, class and field.
    counters: HashMap<(Option<u32>, NameId, usize), Track>,
    /// Spans of threads that have begun, the outermost first.
    spans: HashMap<u32, Vec<NameId>>,
    /// Events of programs whose thread is not known.
    pub(super) without_thread: u64,
}

impl Tracks {
    fn cpu<W: Write>(&mut self, cpu: u32, packets: &mut Packets<W>) -> Track {
        let root = *self.kernel.get_or_insert_with(|| packets.track("Kernel events", None, TrackKind::Group));
        *self
            .cpus
            .entry(cpu)
            .or_insert_with(|| packets.track(&format!("CPU {cpu}"), Some(root), TrackKind::Plain))
    }

    /// Ends a thread's span, and those inside it whose ends were lost. False: its begin is not in the trace.
    fn ends_span<W: Write>(
        &mut self,
        tid: u32,
        name: NameId,
        (time, track): (u64, Track),
        packets: &mut Packets<W>,
    ) -> bool {
        let Some(open) = self.spans.get_mut(&tid) else { return false };
        let Some(place) = open.iter().rposition(|other| *other == name) else { return false };
        for _ in open.drain(place..) {
            packets.event(time, Type::End, track, (None, Category::Program), |_| {});
        }
        true
    }

    fn stream<W: Write>(&mut self, StreamId(stream): StreamId, packets: &mut Packets<W>) -> Track {
        self.without_thread += 1;
        let root =
            *self.programs.get_or_insert_with(|| packets.track("Programs' events", None, TrackKind::Group));
        *self
            .streams
            .entry(stream)
            .or_insert_with(|| packets.track(&format!("stream {stream}"), Some(root), TrackKind::Plain))
    }
}

impl Instant {
    pub(super) fn new<W: Write>(
        class: &EventClass,
        classes: &[EventClass],
        counters: &[CounterField],
        packets: &mut Packets<W>,
    ) -> Instant {
        let span = span_of(class, classes).map(|(name, edge)| (packets.event_name(name), edge));
        let context = |names: &[&str]| Place::of_context(class, names);
        let drawn = counters.iter().filter_map(|counter| counter.place(class));
        let named = |place: usize| class.fields.get(place).map_or("", |field| &field.name);
        Instant {
            name: packets.event_name(&class.name),
            arguments: Arguments::new(class, packets),
            is_program: class.domain != Domain::Kernel,
            tid: context(&["vtid", "tid"]),
            pid: context(&["vpid", "pid"]),
            comm: context(&["procname", "comm"]),
            counters: drawn.map(|place| (place, format!("{}.{}", class.name, named(place)))).collect(),
            span,
            function: function_of(class),
        }
    }

    /// Writes an event.
    pub(super) fn write<W: Write>(
        &self,
        (time, cpu, stream): (u64, Option<u32>, StreamId),
        class: &EventClass,
        values: &Values<'_>,
        (threads, tracks): (&mut Threads, &mut Tracks),
        packets: &mut Packets<W>,
    ) {
        let tid = self.tid.u32(values).filter(|tid| self.is_program && *tid != 0);
        let category = if self.is_program { Category::Program } else { Category::Kernel };
        let track = match (tid, cpu) {
            (Some(tid), _) => {
                threads.belongs(tid, self.pid.u32(values));
                threads.track(tid, self.comm.bytes(values), packets).0
            }
            (None, Some(cpu)) if !self.is_program => tracks.cpu(cpu, packets),
            _ => tracks.stream(stream, packets),
        };
        // Spans are of threads: those of others would end each other. Functions of a thread that is not known are on their
        // stream, whose number no thread has.
        let span = match self.function {
            Some((place, edge)) => {
                let symbol = values.bytes(place).unwrap_or_default();
                Some((packets.event_name(&String::from_utf8_lossy(symbol)), edge))
            }
            None => self.span,
        };
        let owner = tid.or(self.function.map(|_| u32::MAX - stream.0));
        match span.zip(owner) {
            Some(((name, SpanEdge::Begin), owner)) => {
                tracks.spans.entry(owner).or_default().push(name);
                packets.event(time, Type::Begin, track, (Some(name), category), |event| {
                    self.arguments.write(class, values, event);
                });
            }
            Some(((name, SpanEdge::End), owner)) if tracks.ends_span(owner, name, (time, track), packets) => {
            }
            _ => packets.event(time, Type::Instant, track, (Some(self.name), category), |event| {
                self.arguments.write(class, values, event);
            }),
        }
        for (place, name) in &self.counters {
            let value = values.get(*place);
            if !matches!(value, Value::Unsigned(_) | Value::Signed(_) | Value::Float(_)) {
                continue;
            }
            let key = (tid, self.name, *place);
            let parent = tid.map(|_| track);
            let counter = *tracks
                .counters
                .entry(key)
                .or_insert_with(|| packets.track(name, parent, TrackKind::Counter));
            packets.event(time, Type::Counter, counter, (None, category), |event| match value {
                Value::Unsigned(value) => event.number(event::COUNTER_VALUE, value),
                Value::Signed(value) => event.signed(event::COUNTER_VALUE, value),
                Value::Float(value) => event.double(event::DOUBLE_COUNTER_VALUE, value),
                _ => {}
            });
        }
    }
}
