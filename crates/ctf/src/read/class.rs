// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of a trace's metadata: field, event, stream and clock classes.
//!
//! References between fields (the length of a sequence, the tag of a variant) are paths after parsing. `resolve` gives
//! each field that is referred to a *slot*: the decoder notes its value there, and no names are compared per event.

use super::plan::Enumeration;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// Order of bytes, and of bits in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Little-endian: from the lowest.
    Little,
    /// Big-endian: from the highest.
    Big,
}

/// How a number is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// 0b101
    Binary,
    /// 017
    Octal,
    /// 17
    #[default]
    Decimal,
    /// 0x1F
    Hexadecimal,
}

/// A place where the decoder notes a value that a later field's length or choice depends on.
pub(crate) type Slot = u32;

/// A field that nothing refers to.
pub(crate) const NO_SLOT: Slot = Slot::MAX;

/// The labels of an enumeration, each with its ranges.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mapping {
    pub(crate) label: String,
    pub(crate) first: i128,
    pub(crate) last: i128,
}

/// All labels of an enumeration. As many fields may use them, they are prepared for showing once.
#[derive(Debug)]
pub(crate) struct Mappings {
    pub(crate) all: Vec<Mapping>,
    shown: OnceLock<Enumeration>,
}

impl Mappings {
    pub(crate) fn new(all: Vec<Mapping>) -> Mappings {
        Mappings { all, shown: OnceLock::new() }
    }

    pub(crate) fn shown(&self) -> &Enumeration {
        self.shown.get_or_init(|| Enumeration::new(&self.all))
    }
}

impl PartialEq for Mappings {
    fn eq(&self, other: &Mappings) -> bool {
        self.all == other.all
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IntegerClass {
    /// 1 to 64.
    pub(crate) bits: u32,
    /// In bits, a power of two.
    pub(crate) align: u32,
    pub(crate) signed: bool,
    pub(crate) order: ByteOrder,
    pub(crate) base: Base,
    /// It has an encoding: arrays of it are text.
    pub(crate) text: bool,
    /// It updates the clock of this name.
    pub(crate) clock: Option<Arc<str>>,
    /// Where its value is noted, if another field refers to it.
    pub(crate) slot: Slot,
    /// Tells integers of one trace class from each other while references are resolved.
    pub(crate) node: u32,
    /// An enumeration's. Shared, because a type that is used twice is copied.
    pub(crate) mappings: Option<Arc<Mappings>>,
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
    /// Index of the field that readers call `name`: one leading underscore of the metadata's name does not count.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| shown_name(field) == name)
    }
}

/// A field's name without the underscore that keeps it apart from keywords.
pub(crate) fn shown_name(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

/// A path to a field that determines another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reference {
    pub(crate) path: String,
    pub(crate) slot: Slot,
    /// Tells references of one trace class from each other while they are resolved.
    pub(crate) node: u32,
}

impl Reference {
    pub(crate) fn new(path: String) -> Reference {
        Reference { path, slot: NO_SLOT, node: 0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldClass {
    Integer(IntegerClass),
    /// Size and alignment in bits.
    Float {
        bits: u32,
        align: u32,
        order: ByteOrder,
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
        length: Reference,
    },
    Variant(VariantClass),
}

/// One of several classes, chosen by a tag.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VariantClass {
    /// `None` while it is only declared: the tag comes where it is used.
    pub(crate) tag: Option<Reference>,
    pub(crate) options: Vec<(String, FieldClass)>,
    /// Which tag values choose which option, once resolved.
    pub(crate) choices: Vec<Choice>,
}

/// Tag values that choose an option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) first: i128,
    pub(crate) last: i128,
    pub(crate) option: usize,
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
            FieldClass::Variant(_) => 1,
        }
    }

    /// Number of classes in it, itself included. Labels do not count: copies share them.
    pub(crate) fn nodes(&self) -> usize {
        1 + match self {
            FieldClass::Struct(class) => class.fields.iter().map(|(_, field)| field.nodes()).sum(),
            FieldClass::Array { element, .. } | FieldClass::Sequence { element, .. } => element.nodes(),
            FieldClass::Variant(class) => class.options.iter().map(|(_, option)| option.nodes()).sum(),
            FieldClass::Integer(_) | FieldClass::Float { .. } | FieldClass::Text => 0,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EventClass {
    pub(crate) id: u64,
    pub(crate) stream_id: u64,
    pub(crate) name: String,
    pub(crate) loglevel: Option<i64>,
    pub(crate) context: Option<StructClass>,
    pub(crate) fields: Option<StructClass>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamClass {
    pub(crate) id: u64,
    pub(crate) packet_context: Option<StructClass>,
    pub(crate) event_header: Option<StructClass>,
    pub(crate) event_context: Option<StructClass>,
    /// Index of the clock that its integers update.
    pub(crate) clock: Option<usize>,
}

/// A clock, and how its values become nanoseconds since its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockClass {
    /// Its name.
    pub name: String,
    /// Identifies clocks that count together.
    pub uuid: Option<Uuid>,
    /// A description for people.
    pub description: String,
    /// Cycles in a second.
    pub frequency: u64,
    /// Of the clock's zero, in seconds.
    pub offset_s: i64,
    /// Of the clock's zero, in cycles, added to the seconds.
    pub offset_cycles: u64,
    /// The origin is a shared one: normally 1970.
    pub absolute: bool,
}

impl Default for ClockClass {
    fn default() -> ClockClass {
        ClockClass {
            name: String::new(),
            uuid: None,
            description: String::new(),
            frequency: NANOSECONDS,
            offset_s: 0,
            offset_cycles: 0,
            absolute: false,
        }
    }
}

/// In a second.
const NANOSECONDS: u64 = 1_000_000_000;

impl ClockClass {
    /// Cycles as nanoseconds. Like babeltrace2 (`bt_util_ns_from_value`, 2.0.4) in floating point when the clock does not
    /// count nanoseconds, so that times agree with it to the last digit.
    #[must_use]
    pub fn cycles_ns(&self, cycles: u64) -> i64 {
        if self.frequency == NANOSECONDS {
            return i64::try_from(cycles).unwrap_or(i64::MAX);
        }
        let scaled = 1e9 * cycles as f64 / self.frequency as f64;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "saturates; the fraction is cut off, as babeltrace2 does"
        )]
        let whole_ns = scaled as i64;
        whole_ns
    }

    /// Whether its cycles are nanoseconds.
    pub(crate) fn counts_ns(&self) -> bool {
        self.frequency == NANOSECONDS
    }

    /// A value of the clock as nanoseconds since its origin.
    #[must_use]
    pub fn ns(&self, cycles: u64) -> i64 {
        self.base_ns().saturating_add(self.cycles_ns(cycles))
    }

    /// Nanoseconds from the origin to the clock's zero.
    #[must_use]
    pub fn base_ns(&self) -> i64 {
        let carried = (self.offset_cycles / self.frequency.max(1)) as i64;
        let rest = self.offset_cycles % self.frequency.max(1);
        self.offset_s
            .saturating_add(carried)
            .saturating_mul(NANOSECONDS as i64)
            .saturating_add(self.cycles_ns(rest))
    }
}

/// A value of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

impl std::fmt::Display for EnvValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EnvValue::Text(text) => f.write_str(text),
            EnvValue::Number(number) => number.fmt(f),
        }
    }
}

/// All of the metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TraceClass {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) packet_header: Option<StructClass>,
    pub(crate) env: BTreeMap<String, EnvValue>,
    pub(crate) clocks: Vec<ClockClass>,
    pub(crate) streams: Vec<StreamClass>,
    pub(crate) events: Vec<EventClass>,
    /// Number of slots that the field classes refer to.
    pub(crate) slots: u32,
}
