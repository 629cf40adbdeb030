// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Built-in events as a view over the open schema: from the values of any trace's event of that name.
//!
//! A class is bound once: its name is looked up in the table, and for each field of the table the place of that field in the
//! class. Taking values then follows the table's order, and never compares names. So rtscope's own traces and LTTng's go
//! through the same code.

use super::classes::{ClassLayout, classes};
use super::sink::UNKNOWN_COMM;
use crate::exact;
use crate::schema::{EventClass, Value, Values};
use crate::{Comm, EventKind, Irq, Tid, VectorKind};

/// Names that an event has in passing: of its tasks and its interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundNames {
    /// Tasks.
    pub tasks: [Option<(Tid, Comm)>; 2],
    /// The interrupt.
    pub irq: Option<(Irq, String)>,
}

impl FoundNames {
    /// The idle threads have a fixed name in the event model; an empty name is not a name.
    pub(super) fn add_task(&mut self, tid: Tid, comm: Option<Comm>) {
        let known = |comm: &Comm| !comm.as_bytes().is_empty() && comm.as_bytes() != UNKNOWN_COMM.as_bytes();
        let Some(comm) = comm.filter(|comm| tid != Tid(0) && known(comm)) else { return };
        if let Some(free) = self.tasks.iter_mut().find(|task| task.is_none()) {
            *free = Some((tid, comm));
        }
    }
}

/// How to take the events of a class.
#[derive(Clone, Debug)]
pub struct KernelView {
    layout: &'static ClassLayout,
    /// For each field of the layout, its place in the class.
    places: Vec<Option<usize>>,
}

impl KernelView {
    /// `None` when no built-in event has the class's name.
    #[must_use]
    pub fn of(class: &EventClass) -> Option<KernelView> {
        let layout = classes().iter().find(|layout| layout.name == class.name)?;
        let place = |name: &str| class.fields.iter().position(|field| field.is_payload && field.name == name);
        let places = layout.fields.iter().map(|(name, _)| place(name)).collect();
        Some(KernelView { layout, places })
    }

    /// The event; `None` when a required field is missing or invalid. The names that it tells are added to `names`.
    #[inline]
    #[must_use]
    pub fn take(&self, values: &Values<'_>, names: &mut FoundNames) -> Option<EventKind> {
        let mut fields = TakenFields { places: self.places.iter(), values, vector: self.layout.vector };
        super::take(self.layout.place, &mut fields, names)
    }
}

/// Takes values in the order of the layout.
pub(super) struct TakenFields<'v> {
    places: std::slice::Iter<'v, Option<usize>>,
    values: &'v Values<'v>,
    vector: Option<VectorKind>,
}

impl<'v> TakenFields<'v> {
    /// The number of what the name of the class says.
    #[inline]
    pub(super) fn part_of_name(&self) -> Option<i128> {
        Some(self.vector?.number().into())
    }

    #[inline]
    pub(super) fn value(&mut self) -> Value<'v> {
        match self.places.next() {
            Some(Some(place)) => self.values.get(*place),
            _ => Value::None,
        }
    }

    /// A whole number.
    #[inline]
    pub(super) fn number(&mut self) -> Option<i128> {
        match self.value() {
            Value::Unsigned(value) => Some(value.into()),
            Value::Signed(value) => Some(value.into()),
            _ => None,
        }
    }

    /// 64 bits, signed or unsigned in the trace.
    #[inline]
    pub(super) fn i64(&mut self) -> Option<i64> {
        match self.value() {
            Value::Unsigned(value) => Some(exact::signed(value)),
            Value::Signed(value) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn comm(&mut self) -> Option<Comm> {
        match self.value() {
            Value::Bytes(bytes) => Some(Comm::from_bytes(bytes)),
            _ => None,
        }
    }

    /// Up to a NUL.
    pub(super) fn text(&mut self) -> Option<String> {
        let Value::Bytes(bytes) = self.value() else { return None };
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}
