// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans: flat lists of operations that walk an event's bits.
//!
//! A plan is made once per event class (`compile`) and run once per event (`run`); nothing is looked up and nothing is
//! allocated while it runs. Two kinds are made from the same classes. A plan for *passing over* joins all fields of fixed size, so that
//! most events are one addition. A plan for *showing* has an operation per value, and between them the literal text of a
//! [`Style`], names and brackets included, so that text is made from the bytes directly.

use super::class::{Base, ByteOrder, Mapping, Mappings, NO_SLOT, Slot};
use std::sync::Arc;

/// Where in an event a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// `packet.header`: once a packet.
    PacketHeader,
    /// `packet.context`: once a packet.
    PacketContext,
    /// `event.header`
    EventHeader,
    /// `stream { event.context }`: of all events of a stream class.
    StreamContext,
    /// `event { context }`: of one event class.
    EventContext,
    /// `event { fields }`
    Fields,
}

/// A compound, which has a beginning and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Named members.
    Struct,
    /// A variant, of which the chosen option is shown.
    Variant,
    /// An array or sequence.
    Array,
}

/// The constant text between values.
pub trait Style {
    /// Before a scope; `first` is that of the scopes shown.
    fn scope(&self, scope: Scope, first: bool) -> String;
    /// At the beginning of a compound; `depth` is 0 for a scope itself.
    fn open(&self, shape: Shape, depth: u32) -> String;
    /// At its end.
    fn close(&self, shape: Shape, depth: u32) -> String;
    /// Before a member of a struct.
    fn member(&self, name: &str, first: bool, depth: u32) -> String;
}

/// No text at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStyle;

impl Style for NoStyle {
    fn scope(&self, _: Scope, _: bool) -> String {
        String::new()
    }

    fn open(&self, _: Shape, _: u32) -> String {
        String::new()
    }

    fn close(&self, _: Shape, _: u32) -> String {
        String::new()
    }

    fn member(&self, _: &str, _: bool, _: u32) -> String {
        String::new()
    }
}

/// A field of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it is.
    pub scope: Scope,
    /// Its name, with those of the structs around it and dots between.
    pub path: String,
}

/// Index into the plan's fields.
pub type FieldIndex = u16;

/// For values that have no name of their own (elements of arrays).
pub const NO_FIELD: FieldIndex = FieldIndex::MAX;

/// How to read and show an integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integer {
    /// 1 to 64.
    pub bits: u8,
    /// Its value is to be taken for signed (it is sign-extended already).
    pub signed: bool,
    /// How it is shown.
    pub base: Base,
    /// Which field it is.
    pub field: FieldIndex,
    /// Index into the plan's enumerations plus one; 0 for a plain number.
    pub enumeration: u16,
    pub(crate) order: ByteOrder,
    /// Whether it is passed to the visitor, and not only noted.
    pub(crate) shown: bool,
    /// It moves the stream's clock.
    pub(crate) clock: bool,
    pub(crate) slot: Slot,
}

/// Where in an event a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberPlace {
    /// Of what is skipped.
    pub(crate) align: u32,
    pub(crate) skip: u64,
    /// 8, 16, 32 or 64.
    pub(crate) bits: u32,
    pub(crate) is_signed: bool,
}

/// How many elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    Fixed(u64),
    Noted(Slot),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Constant text: place and length in the plan's literals.
    Literal(u32, u32),
    /// Moves on to a multiple of this many bits.
    Align(u32),
    Skip(u64),
    /// A little-endian integer of 8, 16, 32 or 64 bits at a whole byte.
    Bytes(Integer),
    /// Any other.
    Bits(Integer),
    Float {
        bits: u32,
        order: ByteOrder,
        field: FieldIndex,
    },
    /// NUL-terminated.
    Text(FieldIndex),
    /// The same, passed over.
    SkipText,
    /// Characters.
    Characters {
        count: Count,
        field: FieldIndex,
    },
    /// Bytes that are not text, shown as an array of this integer.
    Array {
        count: Count,
        element: Integer,
    },
    /// Elements of a fixed size, passed over.
    SkipElements {
        count: Count,
        bits: u64,
    },
    /// The following `body` operations for each element.
    Loop {
        count: Count,
        body: u32,
    },
    /// The operations of the option that the tag chooses; the table has places of operations.
    Choose {
        tag: Slot,
        table: u32,
    },
    /// Jumps this many operations ahead.
    Jump(u32),
}

/// Tag values that lead to an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) first: i128,
    pub(crate) last: i128,
    pub(crate) place: u32,
}

/// An enumeration's labels, in the order in which they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumeration {
    /// Each label once, with all its ranges.
    labels: Vec<(String, Vec<(i128, i128)>)>,
}

impl Enumeration {
    pub(super) fn new(mappings: &[Mapping]) -> Enumeration {
        let mut labels: Vec<(String, Vec<(i128, i128)>)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for mapping in mappings {
            let place = *places.entry(mapping.label.as_str()).or_insert(labels.len());
            match labels.get_mut(place) {
                Some((_, ranges)) => ranges.push((mapping.first, mapping.last)),
                None => labels.push((mapping.label.clone(), vec![(mapping.first, mapping.last)])),
            }
        }
        Enumeration { labels }
    }

    /// First value, last value and label, in the order in which they are shown.
    pub(crate) fn ranges(&self) -> Vec<(i128, i128, String)> {
        let ranges = |(label, ranges): &(String, Vec<(i128, i128)>)| {
            ranges.iter().map(|(first, last)| (*first, *last, label.clone())).collect::<Vec<_>>()
        };
        self.labels.iter().flat_map(ranges).collect()
    }

    /// The labels of a value.
    pub fn labels(&self, value: i128) -> impl Iterator<Item = &str> {
        self.labels.iter().filter_map(move |(label, ranges)| {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&value)).then_some(label.as_str())
        })
    }
}

/// A list of operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub(crate) ops: Vec<Op>,
    pub(crate) literals: Vec<u8>,
    pub(crate) tables: Vec<Vec<Case>>,
    /// Named fields, in the order of the metadata.
    pub fields: Vec<Field>,
    pub(super) enumerations: Vec<Arc<Mappings>>,
}

impl Plan {
    /// The labels of an integer, if it is an enumeration.
    #[must_use]
    pub fn enumeration(&self, integer: &Integer) -> Option<&Enumeration> {
        let mappings = self.enumerations.get(usize::from(integer.enumeration).checked_sub(1)?)?;
        Some(mappings.shown())
    }

    /// Whether it shows nothing at all.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.literals.is_empty() && self.fields.is_empty()
    }

    /// Whether the text between values is.
    #[must_use]
    pub fn has_ascii_literals(&self) -> bool {
        self.literals.is_ascii()
    }

    /// The enumeration that a field is.
    pub(crate) fn enumeration_of(&self, field: usize) -> Option<&Enumeration> {
        self.enumeration(self.integer_of(field)?)
    }

    /// How a field is shown, if it is an integer.
    pub(crate) fn base_of(&self, field: usize) -> Option<Base> {
        self.integer_of(field).map(|integer| integer.base)
    }

    fn integer_of(&self, field: usize) -> Option<&Integer> {
        self.ops.iter().find_map(|op| match op {
            Op::Bytes(integer) | Op::Bits(integer) if usize::from(integer.field) == field => Some(integer),
            _ => None,
        })
    }

    /// The same walk as far as the last of some fields, with the values of these only. For [`super::EventView::peek`]: what comes after
    /// them is not read. The fields must not be parts of variants or elements, that is, their paths have one name. The plan has no names and
    /// no literals, so that those of many classes are equal.
    #[must_use]
    pub fn up_to(&self, wanted: &[usize]) -> Plan {
        let is_wanted = |field: FieldIndex| wanted.contains(&usize::from(field));
        let field_of = |op: &Op| match op {
            Op::Bytes(integer) | Op::Bits(integer) => Some(integer.field),
            Op::Float { field, .. } | Op::Text(field) | Op::Characters { field, .. } => Some(*field),
            _ => None,
        };
        let end =
            self.ops.iter().rposition(|op| field_of(op).is_some_and(is_wanted)).map_or(0, |last| last + 1);
        let kept = self.ops.iter().take(end).map(|op| match op {
            // Others may depend on these.
            Op::Bytes(integer) | Op::Bits(integer)
                if is_wanted(integer.field) || integer.slot != NO_SLOT || integer.clock =>
            {
                op.clone()
            }
            Op::Bytes(integer) | Op::Bits(integer) => Op::Skip(integer.bits.into()),
            Op::Float { bits, field, .. } if !is_wanted(*field) => Op::Skip((*bits).into()),
            Op::Text(field) if !is_wanted(*field) => Op::SkipText,
            other => other.clone(),
        });
        let mut ops: Vec<Op> = kept.collect();
        // Steps that others jump over or repeat must stay where they are.
        if !ops.iter().any(|op| matches!(op, Op::Choose { .. } | Op::Jump(_) | Op::Loop { .. })) {
            ops.dedup_by(|op, before| match (op, before) {
                (Op::Skip(bits), Op::Skip(sum)) => {
                    *sum = sum.saturating_add(*bits);
                    true
                }
                _ => false,
            });
        }
        Plan { ops, tables: self.tables.clone(), ..Plan::default() }
    }

    /// Where its only value is, if that is a plain number at the same place in all events: reading it there costs a part of running the plan.
    #[must_use]
    pub fn only_number(&self) -> Option<NumberPlace> {
        let (last, before) = self.ops.split_last()?;
        let Op::Bytes(integer) = last else { return None };
        let is_plain = integer.shown && !integer.clock && integer.slot == NO_SLOT;
        let mut place =
            NumberPlace { align: 1, skip: 0, bits: integer.bits.into(), is_signed: integer.signed };
        for op in before {
            match op {
                Op::Skip(bits) => place.skip = place.skip.saturating_add(*bits),
                Op::Align(align) if place.skip == 0 => place.align = place.align.max(*align),
                // What is aligned already stays so.
                Op::Align(align) if *align <= place.align => {
                    place.skip = place.skip.next_multiple_of((*align).into());
                }
                _ => return None,
            }
        }
        is_plain.then_some(place)
    }

    /// Alignment and size in bits, if they are the same for all events.
    pub(crate) fn fixed(&self) -> Option<(u64, u64)> {
        match self.ops.as_slice() {
            [] => Some((1, 0)),
            [Op::Skip(bits)] => Some((1, *bits)),
            [Op::Align(align), Op::Skip(bits)] => Some((u64::from(*align), *bits)),
            [Op::Align(align)] => Some((u64::from(*align), 0)),
            _ => None,
        }
    }
}
