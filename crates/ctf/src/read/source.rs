// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of traces as a [`TraceSource`]: values of events instead of text, decoded on all CPUs.
//!
//! Threads decode slices of time (`slices`) into batches, which have the values of thousands of events in a few pieces of
//! memory; the source walks through them. So an analysis is a simple loop in one thread, memory does not depend on the
//! size of the trace, and the expensive part is done in parallel.

use super::class::{Base, ClockClass};
use super::compile::picking_all;
use super::lane::StreamReader;
use super::plan::{Enumeration, Field, Plan, Scope};
use super::queue::Output;
use super::select::{Selection, Verdict};
use super::set::{DamagedFile, OpenTrace, Stream, TraceSet};
use super::slices::{Decode, EventView, Pieces, Work, decode};
use super::values::Filler;
use crate::EnvValue;
use rtscope_event::exact::count;
use rtscope_event::{
    ClassId, CpuId, Domain, EventClass, EventRef, FieldClass, Item, LossCause, Lost, Schema, StreamId,
    StreamInfo, TraceSource, ValueBuffer,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Reads the selected events of the classes that are wanted: `body` gets a source for them. Streams without a clock have no
/// place in an order of time and are left out ([`CtfSource::untimed`]).
pub fn read<R>(
    set: &TraceSet,
    selection: &Selection,
    wanted: &dyn Fn(&EventClass) -> bool,
    body: impl FnOnce(&mut CtfSource<'_>) -> R,
) -> R {
    read_named(set, selection, &|_| true, wanted, body)
}

/// The same for events of few names: all other classes have no fields in the schema, which saves most of making it, and streams that have
/// none of them are not read.
pub(super) fn read_named<R>(
    set: &TraceSet,
    selection: &Selection,
    is_named: &dyn Fn(&str) -> bool,
    wanted: &dyn Fn(&EventClass) -> bool,
    body: impl FnOnce(&mut CtfSource<'_>) -> R,
) -> R {
    let mut describing = Describing::default();
    describing.extend_named(set, is_named);
    let Describing { schema, described, .. } = describing;
    let mut readings: Vec<StreamReader<'_>> =
        set.streams.iter().map(|stream| StreamReader::new(set, stream, selection)).collect();
    let untimed = readings.iter().filter(|reading| !reading.is_timed()).count();
    let mut schema = schema;
    for (reading, info) in readings.iter().zip(&mut schema.streams) {
        // A snapshot's CPUs begin at different moments, and a selection may begin later than all.
        let begin = Some(reading.span(0).0).filter(|begin| reading.is_timed() && *begin != i64::MIN);
        let trace = set.traces.get(reading.stream.trace);
        // A cut begins with a state dump that may be older than all the rest.
        let cut_from_ns = trace.and_then(OpenTrace::cut_from_ns);
        let ring_from_ns = set.ring_begins(reading.stream.trace);
        let from_ns = selection.from_ns.max(cut_from_ns).max(ring_from_ns);
        info.complete_since_ns = begin.max(from_ns.filter(|_| begin.is_some()));
    }
    for (reading, places) in readings.iter_mut().zip(&described.places) {
        let timed = reading.is_timed();
        for (verdict, class) in reading.verdicts.iter_mut().zip(places) {
            let known = schema.classes.get(*class as usize);
            if !timed || !known.is_some_and(wanted) {
                *verdict = Verdict::No;
            }
        }
        let class_of = |class: &u32| schema.classes.get(*class as usize);
        if !places.iter().filter_map(class_of).any(|class| is_named(&class.name)) {
            reading.segments.clear();
        }
    }
    let losses = losses(set, selection);
    decode(readings, selection, u64::MAX, &described, |pieces| {
        body(&mut CtfSource {
            schema,
            pieces,
            batch: Batch::default(),
            next: 0,
            latest_ns: i64::MIN,
            losses,
            damaged: Vec::new(),
            untimed,
        })
    })
}

/// The events of a set of traces in order of time.
pub struct CtfSource<'q> {
    schema: Schema,
    pieces: &'q Pieces<'q, Batch>,
    batch: Batch,
    /// Of the batch.
    next: usize,
    latest_ns: i64,
    /// By the time at which they are said.
    losses: VecDeque<(i64, Lost)>,
    /// Parts of files that could not be read so far; not those that are in [`TraceSet::damaged`].
    pub damaged: Vec<DamagedFile>,
    /// Number of streams that have no clock, and so are not read.
    pub untimed: usize,
}

impl TraceSource for CtfSource<'_> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn progress(&self) -> Option<f64> {
        Some(self.pieces.progress())
    }

    fn next(&mut self) -> Item<'_> {
        while self.next >= self.batch.entries.len() {
            let Some(batch) = self.pieces.next() else {
                return self.losses.pop_front().map_or(Item::End, |(_, lost)| Item::Lost(lost));
            };
            let done = std::mem::replace(&mut self.batch, batch);
            self.pieces.give_back(done);
            self.next = 0;
            // A stream that cannot be read on has given its last events in this batch.
            let last_ns = self.batch.entries.last().map_or(self.latest_ns, |entry| entry.time_ns);
            for damaged in self.batch.damaged.drain(..) {
                let lost = Lost { since_ns: Some(last_ns), ..unreadable() };
                let place = self.losses.partition_point(|(at, _)| *at <= last_ns);
                self.losses.insert(place, (last_ns.saturating_add(1), lost));
                self.damaged.push(damaged);
            }
        }
        let Some(entry) = self.batch.entries.get(self.next) else { return Item::End };
        if self.losses.front().is_some_and(|(at, _)| *at <= entry.time_ns) {
            return self.losses.pop_front().map_or(Item::End, |(_, lost)| Item::Lost(lost));
        }
        self.next += 1;
        // A damaged trace may go back in time; an analysis must not.
        self.latest_ns = self.latest_ns.max(entry.time_ns);
        Item::Event(EventRef { time_ns: self.latest_ns, ..self.batch.event(entry, &self.schema) })
    }
}

fn unreadable() -> Lost {
    Lost {
        cause: LossCause::Unreadable,
        count: None,
        packets: false,
        stream: None,
        cpu: None,
        since_ns: None,
        until_ns: None,
    }
}

/// What packets and damaged files tell, in order of time.
fn losses(set: &TraceSet, selection: &Selection) -> VecDeque<(i64, Lost)> {
    let mut losses = Vec::new();
    for (number, stream) in (0..).zip(&set.streams) {
        let of_stream = Lost {
            cause: LossCause::Discarded,
            stream: Some(StreamId(number)),
            cpu: stream.cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId),
            ..unreadable()
        };
        for gap in &stream.losses.list {
            let (since_ns, until_ns) = (gap.from_ns, gap.to_ns);
            let before = selection.from_ns.zip(until_ns).is_some_and(|(from, until)| until < from);
            let after = selection.to_ns.zip(since_ns).is_some_and(|(to, since)| since > to);
            if !before && !after {
                let lost =
                    Lost { count: gap.count, packets: gap.packets, since_ns, until_ns, ..of_stream.clone() };
                losses.push((until_ns.unwrap_or(i64::MAX), lost));
            }
        }
    }
    for damaged in &set.damaged {
        let stream = set.streams.iter().zip(0..).find(|(stream, _)| stream.files.contains(&damaged.path));
        let at = damaged.damage.packet_at;
        let is_read = |stream: &Stream| {
            stream.segments.iter().any(|segment| {
                let is_file = stream.files.get(segment.file) == Some(&damaged.path);
                is_file && (segment.from..segment.until).contains(&at)
            })
        };
        if stream.is_some_and(|(stream, _)| is_read(stream)) {
            // It is read up to the damage, which is found again then, and where it is.
            continue;
        }
        let last_ns = stream.and_then(|(stream, _)| {
            let end = stream.segments.last()?.last.end?;
            set.clock(stream).map(|clock| clock.base_ns().saturating_add(clock.cycles_ns(end)))
        });
        let cpu = stream.and_then(|(stream, _)| u32::try_from(stream.cpu?).ok()).map(CpuId);
        let stream = stream.map(|(_, number)| StreamId(number));
        losses.push((last_ns.unwrap_or(i64::MAX), Lost { stream, cpu, since_ns: last_ns, ..unreadable() }));
    }
    losses.sort_by_key(|(at, _)| *at);
    losses.into()
}

/// How to take the values of each class.
#[derive(Debug, Default)]
pub(super) struct Described {
    /// By stream and event: the class.
    pub(super) places: Vec<Vec<u32>>,
    /// By class.
    takings: Vec<Taking>,
}

#[derive(Debug)]
struct Taking {
    plan: Plan,
    /// Where the CPU is, for streams of several.
    cpu: Option<usize>,
}

type Labels = Arc<[(i128, i128, String)]>;

/// Makes the schema of a set.
#[derive(Debug, Default)]
pub(super) struct Describing {
    pub(super) schema: Schema,
    pub(super) described: Described,
    /// By trace and class of streams, which have the same events: the classes.
    known: BTreeMap<(usize, usize), Vec<u32>>,
    /// By the address of an enumeration in the plans, which share it.
    labels: HashMap<*const Enumeration, Labels>,
}

impl Describing {
    /// Adds what a set has more than before.
    pub(super) fn extend(&mut self, set: &TraceSet) {
        self.extend_named(set, &|_| true);
    }

    /// The same, with the fields of events of some names only.
    pub(super) fn extend_named(&mut self, set: &TraceSet, is_named: &dyn Fn(&str) -> bool) {
        for (number, stream) in set.streams.iter().enumerate() {
            let trace = set.traces.get(stream.trace);
            let domain = trace.map(domain).unwrap_or_default();
            let key = (stream.trace, stream.class_place());
            let mut of_class = self.known.remove(&key).unwrap_or_default();
            for event in of_class.len()..set.event_count(stream) {
                of_class.push(self.add(set, (stream, event), domain, is_named));
            }
            match self.described.places.get_mut(number) {
                Some(places) => places.clone_from(&of_class),
                None => {
                    self.described.places.push(of_class.clone());
                    self.schema.streams.push(StreamInfo {
                        domain,
                        trace: count(stream.trace),
                        host: trace.map(|trace| trace.host().to_owned()).unwrap_or_default(),
                        clock_offset_ns: set.clock(stream).map_or(0, ClockClass::base_ns),
                        complete_since_ns: None,
                    });
                }
            }
            self.known.insert(key, of_class);
        }
        // The plans of a set that grows are made anew.
        self.labels.clear();
    }

    fn add(
        &mut self,
        set: &TraceSet,
        (stream, event): (&Stream, usize),
        domain: Domain,
        is_named: &dyn Fn(&str) -> bool,
    ) -> u32 {
        let number = count(self.schema.classes.len());
        let classes = set.stream_class(stream).zip(set.event_class(stream, event));
        let plan = classes.filter(|(_, event)| is_named(&event.name)).map(|(stream, event)| {
            picking_all(&[
                (Scope::StreamContext, stream.event_context.as_ref()),
                (Scope::EventContext, event.context.as_ref()),
                (Scope::Fields, event.fields.as_ref()),
            ])
        });
        let plan = plan.unwrap_or_default();
        let name = classes.map(|(_, event)| event.name.clone()).unwrap_or_default();
        let fields: Vec<FieldClass> =
            plan.fields.iter().enumerate().map(|(place, field)| self.field(&plan, place, field)).collect();
        let cpu = fields.iter().position(|field| !field.is_payload && field.name == "cpu_id");
        self.schema.classes.push(EventClass { name, domain, fields });
        self.described.takings.push(Taking { plan, cpu });
        number
    }

    fn field(&mut self, plan: &Plan, place: usize, field: &Field) -> FieldClass {
        let labels = plan.enumeration_of(place).map(|enumeration| {
            let known = self.labels.entry(std::ptr::from_ref(enumeration));
            Arc::clone(known.or_insert_with(|| enumeration.ranges().into()))
        });
        FieldClass {
            name: field.path.clone(),
            is_payload: field.scope == Scope::Fields,
            is_hex: plan.base_of(place) == Some(Base::Hexadecimal),
            labels: labels.unwrap_or_default(),
        }
    }
}

fn domain(trace: &OpenTrace) -> Domain {
    match trace.env().get("domain") {
        Some(EnvValue::Text(domain)) if domain == "kernel" => Domain::Kernel,
        Some(EnvValue::Text(domain)) if domain == "ust" => Domain::Program,
        _ => Domain::Unknown,
    }
}

/// An event of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) time_ns: i64,
    stream: u32,
    class: u32,
    cpu: Option<CpuId>,
    /// Of its values.
    first: u32,
    fields: u32,
}

/// Many events.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) entries: Vec<Entry>,
    values: ValueBuffer,
    damaged: Vec<DamagedFile>,
}

impl Batch {
    pub(super) fn event<'s>(&'s self, entry: &Entry, schema: &'s Schema) -> EventRef<'s> {
        let first = entry.first as usize;
        EventRef {
            schema,
            time_ns: entry.time_ns,
            stream: StreamId(entry.stream),
            class: ClassId(entry.class),
            cpu: entry.cpu,
            values: self.values.values(first..first + entry.fields as usize),
        }
    }
}

impl Output for Batch {
    // An analysis keeps up with decoding, so little has to wait; lists that grow take up to twice their size.
    const PIECE_BYTES: usize = 1 << 20;
    const WAITING_BYTES: usize = 12 << 20;

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.damaged.is_empty()
    }

    fn size(&self) -> usize {
        self.entries.len() * size_of::<Entry>() + self.values.size()
    }

    fn damaged(&mut self) -> &mut Vec<DamagedFile> {
        &mut self.damaged
    }

    fn recycled(mut self) -> Batch {
        self.entries.clear();
        self.values.clear();
        self.damaged.clear();
        self
    }
}

impl Decode for Described {
    type Piece = Batch;
    type Worker<'d> = Gathering<'d>;

    fn worker(&self) -> Gathering<'_> {
        Gathering(self)
    }
}

/// Takes the values of one event after the other.
pub(crate) struct Gathering<'d>(pub(super) &'d Described);

impl Work for Gathering<'_> {
    type Piece = Batch;

    fn event(&mut self, batch: &mut Batch, event: &mut EventView<'_, '_>) -> bool {
        let class = self.0.places.get(event.stream).and_then(|places| places.get(event.event));
        let taking = class.and_then(|class| self.0.takings.get(*class as usize));
        let (Some(class), Some(taking)) = (class, taking) else { return false };
        batch.values.begin(taking.plan.fields.len());
        if !event.show(&taking.plan, &mut Filler(&mut batch.values)) {
            batch.values.forget();
            return false;
        }
        // A program whose C library does not tell its CPU says u32::MAX.
        let of_event = taking.cpu.and_then(|place| batch.values.current().integer(place)?.try_into().ok());
        let of_event = of_event.filter(|cpu| *cpu != u32::MAX);
        let cpu = of_event.or_else(|| event.cpu.and_then(|cpu| u32::try_from(cpu).ok())).map(CpuId);
        let places = batch.values.last();
        batch.entries.push(Entry {
            time_ns: event.ns.unwrap_or(i64::MIN),
            stream: count(event.stream),
            class: *class,
            cpu,
            first: count(places.start),
            fields: count(places.len()),
        });
        true
    }
}
