// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where, in a packet's header and context, the values are that a copy of a part of it has to change.

use super::bits::put;
use crate::read::class::{ByteOrder, FieldClass, StreamClass, StructClass, TraceClass};
use crate::read::compile::passing;
use crate::read::packet::PacketHead;
use crate::read::plan::Plan;
use crate::read::run::{NoVisitor, Position, State, run};
use rtscope_event::exact;
use uuid::Uuid;

/// An integer of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    at: u64,
    bits: u32,
    order: ByteOrder,
}

/// A value that may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Begin,
    End,
    ContentSize,
    PacketSize,
    Sequence,
    Discarded,
}

const ITEMS: [(Item, &str); 6] = [
    (Item::Begin, "timestamp_begin"),
    (Item::End, "timestamp_end"),
    (Item::ContentSize, "content_size"),
    (Item::PacketSize, "packet_size"),
    (Item::Sequence, "packet_seq_num"),
    (Item::Discarded, "events_discarded"),
];

const UUID_BITS: u64 = 128;

/// The places in one head.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    places: [Option<Place>; ITEMS.len()],
    /// The byte at which the trace's identity is.
    uuid: Option<usize>,
}

impl Places {
    pub(super) fn has(&self, item: Item) -> bool {
        self.places[item as usize].is_some()
    }

    /// Whether a packet says where it ends.
    pub(super) fn have_sizes(&self) -> bool {
        self.has(Item::PacketSize) || self.has(Item::ContentSize)
    }

    /// Writes a value where the head has a place for it; as many bits of it as there are.
    pub(super) fn put(&self, head: &mut [u8], item: Item, value: u64) {
        if let Some(place) = self.places[item as usize] {
            put(head, place.at, place.bits, place.order, value);
        }
    }

    pub(super) fn put_uuid(&self, head: &mut [u8], uuid: Uuid) {
        if let Some(place) = self.uuid.and_then(|at| head.get_mut(at..at + 16)) {
            place.copy_from_slice(uuid.as_bytes());
        }
    }
}

/// How to find the places in the heads of a stream class: the size of what is before them may differ from packet to packet.
#[derive(Debug)]
pub(super) struct Finder {
    header: Plan,
    /// The fields up to its end.
    uuid: Option<Plan>,
    /// The same in the context, by item.
    items: Vec<(Item, Plan, u32, ByteOrder)>,
    slots: u32,
}

impl Finder {
    pub(super) fn new(trace: &TraceClass, stream: &StreamClass) -> Finder {
        let context = stream.packet_context.as_ref();
        let item = |(item, name): &(Item, &str)| {
            let context = context?;
            let place = context.find(name)?;
            let FieldClass::Integer(integer) = &context.fields.get(place)?.1 else { return None };
            Some((*item, up_to(context, place), integer.bits, integer.order))
        };
        let header = trace.packet_header.as_ref();
        let uuid = header.and_then(|header| {
            let place = header.find("uuid")?;
            let FieldClass::Array { element, length: 16 } = &header.fields.get(place)?.1 else { return None };
            matches!(&**element, FieldClass::Integer(byte) if byte.bits == 8).then(|| up_to(header, place))
        });
        Finder {
            header: passing(&[header]),
            uuid,
            items: ITEMS.iter().filter_map(item).collect(),
            slots: trace.slots,
        }
    }

    /// The places in a head that has been read before without an error.
    pub(super) fn places(&self, head: &[u8], packet: &PacketHead) -> Places {
        let mut state = State::new(self.slots);
        let mut end_of = |plan: &Plan, from: u64| {
            let mut position = Position::new(head, from, packet.events_at);
            run(plan, &mut position, &mut state, &mut NoVisitor).ok().map(|()| position.at)
        };
        // It notes values that the context may depend on.
        end_of(&self.header, 0);
        let mut places = Places::default();
        let uuid = self.uuid.as_ref().and_then(|plan| end_of(plan, 0)?.checked_sub(UUID_BITS));
        places.uuid = uuid.filter(|at| at % 8 == 0).map(|at| exact::index(at / 8));
        for (item, plan, bits, order) in &self.items {
            let end = end_of(plan, packet.context_at);
            let at = end.and_then(|end| end.checked_sub(u64::from(*bits)));
            places.places[*item as usize] = at.map(|at| Place { at, bits: *bits, order: *order });
        }
        places
    }
}

/// Passes over the fields up to this one and over it.
fn up_to(class: &StructClass, place: usize) -> Plan {
    let fields = class.fields.iter().take(place + 1).cloned().collect();
    passing(&[Some(&StructClass { fields, align: class.align })])
}
