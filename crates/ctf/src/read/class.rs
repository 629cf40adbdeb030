// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace's metadata says: field, event and stream classes.
//!
//! References between fields (the length of a sequence, the tag of a variant) are resolved when the metadata is parsed:
//! the field referred to gets a *slot*, the decoder notes its value there, and nobody compares names per event.

use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Order of bytes, and of bits in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// A place where the decoder notes a value that a later field's length or choice depends on.
pub(crate) type Slot = u32;

/// What the decoder has to do with an integer beyond decoding it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IntegerUse {
    /// Somebody refers to it.
    pub(crate) slot: Option<Slot>,
    /// It updates the stream's clock.
    pub(crate) clock: bool,
    /// It is the event's id (set in event headers only).
    pub(crate) event_id: bool,
}

/// An enumeration's label for a range of values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mapping {
    pub(crate) label: String,
    pub(crate) first: i128,
    pub(crate) last: i128,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IntegerClass {
    /// 1 to 64.
    pub(crate) bits: u32,
    /// In bits, a power of two.
    pub(crate) align: u32,
    pub(crate) signed: bool,
    pub(crate) order: ByteOrder,
    /// Has an encoding: arrays of it are text.
    pub(crate) text: bool,
    pub(crate) uses: IntegerUse,
    /// An enumeration's, else empty. Shared, because each variant that refers to it takes a copy.
    pub(crate) mappings: Arc<[Mapping]>,
}

impl IntegerClass {
    /// Arrays of it are plain bytes.
    pub(crate) fn is_byte(&self) -> bool {
        self.bits == 8 && self.align == 8
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StructClass {
    pub(crate) fields: Vec<(String, FieldClass)>,
    pub(crate) align: u32,
}

impl StructClass {
    /// Place of the field that readers call `name`: one leading underscore of the metadata's name does not count.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| shown_name(field) == name)
    }
}

/// A field's name without the underscore that keeps it apart from keywords.
pub(crate) fn shown_name(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldClass {
    Integer(IntegerClass),
    /// Size and alignment in bits. Decoded by nobody yet, only passed over.
    Float {
        bits: u32,
        align: u32,
    },
    /// NUL-terminated.
    Text,
    Struct(StructClass),
    Array {
        element: Box<FieldClass>,
        length: u64,
    },
    Sequence {
        element: Box<FieldClass>,
        length: Slot,
    },
    Variant {
        tag: Slot,
        choices: Vec<Choice>,
    },
}

/// One option of a variant, with the tag values that choose it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) first: i128,
    pub(crate) last: i128,
    pub(crate) class: FieldClass,
}

impl FieldClass {
    /// Alignment in bits.
    pub(crate) fn align(&self) -> u32 {
        match self {
            FieldClass::Integer(integer) => integer.align,
            FieldClass::Float { align, .. } => *align,
            FieldClass::Text => 8,
            FieldClass::Struct(class) => class.align,
            FieldClass::Array { element, .. } | FieldClass::Sequence { element, .. } => element.align(),
            FieldClass::Variant { .. } => 1,
        }
    }

    /// The least bits a value takes. A lower bound that must not be 0 for array elements: else a few bytes of a
    /// hostile trace could keep the decoder busy for ever.
    pub(crate) fn min_bits(&self) -> u64 {
        match self {
            FieldClass::Integer(integer) => integer.bits.into(),
            FieldClass::Float { bits, .. } => (*bits).into(),
            FieldClass::Text => 8,
            FieldClass::Struct(class) => {
                class.fields.iter().fold(0, |sum: u64, (_, field)| sum.saturating_add(field.min_bits()))
            }
            FieldClass::Array { element, length } => element.min_bits().saturating_mul(*length),
            FieldClass::Sequence { .. } => 0,
            FieldClass::Variant { choices, .. } => {
                choices.iter().map(|choice| choice.class.min_bits()).min().unwrap_or(0)
            }
        }
    }

    /// Number of classes in it, itself included.
    pub(crate) fn nodes(&self) -> usize {
        1 + match self {
            FieldClass::Struct(class) => class.fields.iter().map(|(_, field)| field.nodes()).sum(),
            FieldClass::Array { element, .. } | FieldClass::Sequence { element, .. } => element.nodes(),
            FieldClass::Variant { choices, .. } => choices.iter().map(|choice| choice.class.nodes()).sum(),
            FieldClass::Integer(integer) => integer.mappings.len(),
            FieldClass::Float { .. } | FieldClass::Text => 0,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EventClass {
    pub(crate) id: u64,
    pub(crate) stream_id: u64,
    pub(crate) name: String,
    pub(crate) context: StructClass,
    pub(crate) fields: StructClass,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamClass {
    pub(crate) id: u64,
    pub(crate) packet_context: StructClass,
    pub(crate) event_header: StructClass,
    pub(crate) event_context: StructClass,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClockClass {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) frequency: u64,
    pub(crate) offset_seconds: u64,
    pub(crate) offset: u64,
}

impl Default for ClockClass {
    fn default() -> ClockClass {
        ClockClass { uuid: None, frequency: 1_000_000_000, offset_seconds: 0, offset: 0 }
    }
}

/// Everything the metadata says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TraceClass {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) packet_header: StructClass,
    /// Values as text, numbers in decimal.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) clock: ClockClass,
    pub(crate) streams: Vec<StreamClass>,
    pub(crate) events: Vec<EventClass>,
    /// Number of slots that the field classes refer to.
    pub(crate) slots: u32,
}
