// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classes of built-in events in traces, by number.
//!
//! An entry of the table is a class, in the table's order, but for the vectors: each has a class for its entry and one for its exit.

use super::origin::Origin;
use super::sink::TraceField;
use super::{ENTRIES, Place, place};
use crate::exact::count;
use crate::{EventKind, VectorKind};
use rtscope_abi as abi;
use std::sync::LazyLock;

/// A line of the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: u32,
    pub(super) place: Place,
    pub(super) origin: Origin,
    pub(super) fields: &'static [TraceField],
}

/// A class.
#[derive(Clone, Debug)]
pub struct ClassLayout {
    /// Its name, which is LTTng's where LTTng has one.
    pub name: &'static str,
    /// The fields, in order.
    pub fields: &'static [TraceField],
    pub(super) place: Place,
    pub(super) vector: Option<VectorKind>,
}

const VECTORS: u32 = Place::VectorEntry as u32;
const VECTOR_CLASSES: u32 = 2 * count(VectorKind::ALL.len());

/// All classes; an event's is at the index [`EventKind::class`].
#[must_use]
pub fn classes() -> &'static [ClassLayout] {
    static CLASSES: LazyLock<Vec<ClassLayout>> = LazyLock::new(|| ENTRIES.iter().flat_map(layouts).collect());
    &CLASSES
}

fn layouts(entry: &'static Entry) -> Vec<ClassLayout> {
    let of = |name| ClassLayout { name, fields: entry.fields, place: entry.place, vector: None };
    match entry.origin {
        Origin::Tracepoint(_, name) | Origin::Own(name) => vec![of(name)],
        // Entry and exit of each vector in turn.
        Origin::Vectors(0) => VectorKind::ALL.into_iter().flat_map(vector_layouts).collect(),
        Origin::Vectors(_) => Vec::new(),
    }
}

fn vector_layouts(vector: VectorKind) -> [ClassLayout; 2] {
    [0, 1].map(|way| {
        let entry = &ENTRIES[VECTORS as usize + way];
        // The first field is part of the name.
        let fields = &entry.fields[1..];
        ClassLayout { name: vector.in_traces()[way], fields, place: entry.place, vector: Some(vector) }
    })
}

impl EventKind {
    /// Number of [`classes`].
    pub const CLASSES: u32 = count(Self::VARIANTS) - 2 + VECTOR_CLASSES;

    /// The number of its class in [`classes`].
    #[inline]
    #[must_use]
    pub fn class(&self) -> u32 {
        match self {
            EventKind::VectorEntry { kind, .. } => VECTORS + 2 * (kind.number() - 1),
            EventKind::VectorExit { kind, .. } => VECTORS + 2 * (kind.number() - 1) + 1,
            other => match place(other) as u32 {
                before if before < VECTORS => before,
                after => after - 2 + VECTOR_CLASSES,
            },
        }
    }

    /// Its name in text, which is the tracepoint's.
    #[must_use]
    pub fn name(&self) -> &'static str {
        ENTRIES[place(self) as usize].origin.name()
    }
}

/// The name of a record that the ABI does not have.
const UNKNOWN_RECORD: &str = "record of an unknown type";

/// The name of records of this type where losses are shown: the tracepoint's where there is one.
#[must_use]
pub fn record_name(kind: u32) -> &'static str {
    let entry = ENTRIES.iter().find(|entry| entry.record == kind);
    entry.map_or_else(|| other_record_name(kind), |entry| entry.origin.lost_name())
}

fn other_record_name(kind: u32) -> &'static str {
    match kind {
        abi::RTS_PADDING => "padding",
        abi::RTS_SYSCALL_PATH => "path of a system call",
        abi::RTS_SYSCALL_ENTRY => "syscall_entry",
        abi::RTS_SYSCALL_EXIT => "syscall_exit",
        _ => UNKNOWN_RECORD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_event_is_of_the_class_at_its_number() {
        let mut numbers = |_: u64| 0;
        for entry in ENTRIES {
            let event = EventKind::random(entry.place as usize, &mut numbers);
            let class = &classes()[event.class() as usize];
            assert_eq!(class.place, entry.place);
        }
        for vector in VectorKind::ALL {
            let entry = EventKind::VectorEntry { kind: vector, vector: 0 };
            let exit = EventKind::VectorExit { kind: vector, vector: 0 };
            let class = |event: &EventKind| &classes()[event.class() as usize];
            assert_eq!(class(&entry).name, format!("x86_irq_vectors_{}_entry", vector.name()));
            assert_eq!(class(&exit).name, format!("x86_irq_vectors_{}_exit", vector.name()));
            assert_eq!((class(&exit).vector, class(&exit).place), (Some(vector), Place::VectorExit));
        }
        assert_eq!(classes().len(), EventKind::CLASSES as usize);
        let names: HashSet<&str> = classes().iter().map(|class| class.name).collect();
        assert_eq!(names.len(), classes().len());
    }

    #[test]
    fn the_frequent_events_have_the_first_numbers() {
        assert_eq!(classes()[0].name, "sched_switch");
        assert_eq!(classes()[19].name, "rtscope_late_response");
        assert_eq!(classes()[20].name, "x86_irq_vectors_local_timer_entry");
        assert_eq!(classes()[45].name, "workqueue_execute_end");
    }

    #[test]
    fn every_record_type_has_a_name_of_its_own() {
        for kind in 0..abi::RTS_RECORD_TYPES {
            let name = record_name(kind);
            assert_ne!(name, UNKNOWN_RECORD, "type {kind}: give it a name");
            assert!((0..kind).all(|other| record_name(other) != name), "type {kind}: {name} is taken");
        }
        assert_eq!(record_name(abi::RTS_RECORD_TYPES), UNKNOWN_RECORD);
        assert_eq!(record_name(abi::RTS_SOFTIRQ_RAISE), "softirq_raise");
        // Names of losses are in the JSON of recordings.
        assert_eq!(record_name(abi::RTS_VECTOR_EXIT), "irq_vectors exit");
    }
}
