// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plans made once per trace from its metadata, and the headers of packets.
//!
//! A packet's UUID is not compared with the trace's: babeltrace2 does not either, and some traces rely on that.

use super::class::{EventClass, StreamClass, TraceClass};
use super::compile::{passing, picking};
use super::header::Header;
use super::plan::{FieldIndex, Integer, Plan, Scope};
use super::run::{Position, State, Stop, Visit, run};
use rtscope_event::exact;
use std::collections::HashMap;

/// First word of every packet.
const MAGIC: u64 = 0xc1fc_1fc1;

/// Fields of packet headers and contexts with a meaning for readers.
pub(crate) const KNOWN: [&str; 10] = [
    "magic",
    "stream_id",
    "stream_instance_id",
    "timestamp_begin",
    "timestamp_end",
    "packet_size",
    "content_size",
    "packet_seq_num",
    "events_discarded",
    "cpu_id",
];

/// Places in [`KNOWN`].
mod known {
    pub(super) const MAGIC: usize = 0;
    pub(super) const STREAM_ID: usize = 1;
    pub(super) const INSTANCE_ID: usize = 2;
    pub(super) const BEGIN: usize = 3;
    pub(super) const END: usize = 4;
    pub(super) const PACKET_SIZE: usize = 5;
    pub(super) const CONTENT_SIZE: usize = 6;
    pub(super) const SEQUENCE: usize = 7;
    pub(super) const DISCARDED: usize = 8;
    pub(super) const CPU: usize = 9;
}

/// Whether a field of a packet's context is for readers only, and not shown with events.
pub(crate) fn is_framing(name: &str) -> bool {
    KNOWN.iter().skip(known::BEGIN).take(known::CPU - known::BEGIN).any(|known| *known == name)
}

/// A plan whose known fields are picked out.
#[derive(Clone, Debug)]
struct FieldPicker {
    plan: Plan,
    /// For each field of the plan its place in [`KNOWN`].
    places: Vec<Option<usize>>,
}

impl FieldPicker {
    fn new(scope: Scope, class: Option<&super::class::StructClass>) -> FieldPicker {
        let plan = picking(scope, class);
        let places = plan.fields.iter().map(|field| KNOWN.iter().position(|known| *known == field.path));
        let places = places.collect();
        FieldPicker { plan, places }
    }

    fn place(&self, field: FieldIndex) -> Option<usize> {
        self.places.get(usize::from(field)).copied().flatten()
    }
}

#[derive(Debug, Default)]
struct PickedFields {
    values: [Option<u64>; KNOWN.len()],
}

struct PickVisitor<'p> {
    picking: &'p FieldPicker,
    picked: &'p mut PickedFields,
}

impl Visit for PickVisitor<'_> {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, _: &Plan, integer: &Integer, value: u64) {
        if let Some(place) = self.picking.place(integer.field) {
            if let Some(known) = self.picked.values.get_mut(place) {
                *known = Some(value);
            }
        }
    }

    fn float(&mut self, _: FieldIndex, _: f64) {}

    fn text(&mut self, _: FieldIndex, _: &[u8]) {}

    fn element(&mut self, _: u64) {}

    fn bytes(&mut self, _: &Plan, _: &Integer, _: &[u8]) {}
}

/// The header and context of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketHead {
    /// Index of the stream class.
    pub(crate) stream: usize,
    pub(crate) instance: Option<u64>,
    pub(crate) begin: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) sequence: Option<u64>,
    pub(crate) discarded: Option<u64>,
    pub(crate) cpu: Option<u64>,
    /// With padding.
    pub(crate) bytes: u64,
    pub(crate) content_bits: u64,
    /// Where its context begins, and where its events begin.
    pub(crate) context_at: u64,
    pub(crate) events_at: u64,
    /// The file ends before the packet does: `bytes` and `content_bits` are of what is there.
    pub(crate) is_cut: bool,
}

/// What is wrong with a packet whose file ends before it.
pub(crate) const CUT: &str = "it is cut short";

/// An event class, ready.
#[derive(Clone, Debug)]
pub(crate) struct EventPlan {
    /// Index of the class in the trace.
    pub(crate) class: usize,
    pub(crate) passing: Plan,
    /// Its alignment and size in bits, if they never differ.
    pub(crate) fixed: Option<(u64, u64)>,
}

/// A stream class, ready.
#[derive(Clone, Debug)]
pub(crate) struct StreamPlans {
    context: FieldPicker,
    pub(crate) header: Header,
    pub(crate) events: Vec<EventPlan>,
    /// Indices into `events` by id, for the small ids that nearly all have.
    by_small_id: Vec<u32>,
    by_id: HashMap<u64, u32>,
    /// Whether the time of a packet's first event depends on the packets before it.
    pub(crate) chained: bool,
    /// Whether packets say when they begin and end, by times that do not wrap.
    has_span: bool,
}

/// Ids below this are found without hashing.
const SMALL_IDS: u64 = 1 << 14;

impl StreamPlans {
    /// `own`: the event classes of this stream class, by their places in the trace.
    fn new(class: &StreamClass, own: &[(usize, &EventClass)]) -> StreamPlans {
        let events: Vec<EventPlan> =
            own.iter().map(|(place, event)| event_plan(*place, event, class)).collect();
        let by_id: HashMap<u64, u32> =
            own.iter().zip(0..).map(|((_, event), place)| (event.id, place)).collect();
        let largest = by_id.keys().copied().filter(|id| *id < SMALL_IDS).max();
        let by_small_id = (0..largest.map_or(0, |id| id + 1))
            .map(|id| by_id.get(&id).copied().unwrap_or(u32::MAX))
            .collect();
        let context = class.packet_context.as_ref();
        let time = |name| match &context?.fields.get(context?.find(name)?)?.1 {
            super::class::FieldClass::Integer(time) => (time.bits == 64).then_some(time),
            _ => None,
        };
        let begins = time("timestamp_begin").is_some_and(|time| time.clock.is_some());
        let header = Header::new(class.event_header.as_ref());
        StreamPlans {
            context: FieldPicker::new(Scope::PacketContext, context),
            chained: class.clock.is_some() && !begins && !header.says_whole_time(),
            // The end moves no clock.
            has_span: begins && time("timestamp_end").is_some(),
            header,
            events,
            by_small_id,
            by_id,
        }
    }

    /// Index into `events`. Without an id there must be one class only.
    #[inline]
    pub(crate) fn event(&self, id: Option<u64>) -> Option<u32> {
        let Some(id) = id else { return (self.events.len() == 1).then_some(0) };
        match self.by_small_id.get(exact::index(id)) {
            Some(place) if id < SMALL_IDS => (*place != u32::MAX).then_some(*place),
            _ => self.by_id.get(&id).copied(),
        }
    }
}

fn event_plan(place: usize, event: &EventClass, stream: &StreamClass) -> EventPlan {
    let plan = passing(&[stream.event_context.as_ref(), event.context.as_ref(), event.fields.as_ref()]);
    EventPlan { class: place, fixed: plan.fixed(), passing: plan }
}

/// A trace's metadata, ready for reading.
#[derive(Clone, Debug)]
pub(crate) struct TracePlans {
    header: FieldPicker,
    pub(crate) streams: Vec<StreamPlans>,
    stream_ids: Vec<u64>,
    pub(crate) slots: u32,
}

impl TracePlans {
    pub(crate) fn new(trace: &TraceClass) -> TracePlans {
        let mut own: HashMap<u64, Vec<(usize, &EventClass)>> = HashMap::new();
        for (place, event) in trace.events.iter().enumerate() {
            own.entry(event.stream_id).or_default().push((place, event));
        }
        let streams = trace
            .streams
            .iter()
            .map(|class| StreamPlans::new(class, own.get(&class.id).map(Vec::as_slice).unwrap_or_default()));
        TracePlans {
            header: FieldPicker::new(Scope::PacketHeader, trace.packet_header.as_ref()),
            streams: streams.collect(),
            stream_ids: trace.streams.iter().map(|class| class.id).collect(),
            slots: trace.slots,
        }
    }

    /// Reads header and context of the packet that begins at the position's origin. `rest` is the number of bytes from
    /// there to the end of the file.
    pub(crate) fn packet_head(
        &self,
        position: &mut Position<'_>,
        state: &mut State,
        rest: u64,
    ) -> Result<PacketHead, Stop> {
        let mut picked = PickedFields::default();
        run(
            &self.header.plan,
            position,
            state,
            &mut PickVisitor { picking: &self.header, picked: &mut picked },
        )?;
        if picked.values[known::MAGIC].is_some_and(|magic| magic != MAGIC) {
            return Err(Stop::Bad("it does not begin with a packet's magic number"));
        }
        let stream = match picked.values[known::STREAM_ID] {
            Some(id) => self.stream_ids.iter().position(|known| *known == id),
            None => (self.stream_ids.len() == 1).then_some(0),
        };
        let stream = stream.ok_or(Stop::Bad("its stream is not in the metadata"))?;
        let plans = self.streams.get(stream).ok_or(Stop::Bad("its stream is not in the metadata"))?;
        let context_at = position.at;
        run(
            &plans.context.plan,
            position,
            state,
            &mut PickVisitor { picking: &plans.context, picked: &mut picked },
        )?;
        let field = |place: usize| picked.values[place];
        let file_bits = rest.saturating_mul(8);
        let packet_bits = field(known::PACKET_SIZE).or(field(known::CONTENT_SIZE)).unwrap_or(file_bits);
        let content_bits = field(known::CONTENT_SIZE).unwrap_or(packet_bits);
        let makes_sense = packet_bits > 0 && packet_bits % 8 == 0 && content_bits <= packet_bits;
        let is_cut = packet_bits > file_bits;
        let (packet_bits, content_bits) = (packet_bits.min(file_bits), content_bits.min(file_bits));
        if is_cut && position.at > content_bits {
            return Err(Stop::Bad(CUT));
        }
        if !makes_sense || position.at > content_bits {
            return Err(Stop::Bad("its sizes make no sense"));
        }
        // Of a packet that its tracer has not closed, the end is 0.
        let (begin, end) = (field(known::BEGIN), field(known::END));
        if plans.has_span && end.is_some_and(|end| end > 0 && begin > Some(end)) {
            return Err(Stop::Bad("it ends before it begins"));
        }
        Ok(PacketHead {
            stream,
            instance: field(known::INSTANCE_ID),
            begin,
            end,
            sequence: field(known::SEQUENCE),
            discarded: field(known::DISCARDED),
            cpu: field(known::CPU),
            bytes: packet_bits / 8,
            content_bits,
            context_at,
            events_at: position.at,
            is_cut,
        })
    }
}
