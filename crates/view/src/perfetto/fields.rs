// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places of fields in a class, and values as the types that events here have.

use super::bundle::{CommKey, comm_key};
use rtscope_event::{EventClass, Value, Values};

/// A field that a class may not have: its value is then none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

impl Place {
    pub(super) const NONE: Place = Place(usize::MAX);

    /// The first of these names that the class has.
    pub(super) fn of(class: &EventClass, names: &[&str]) -> Place {
        names.iter().find_map(|name| class.field(name)).map_or(Place::NONE, Place)
    }

    /// The first of these names that the context has. A system call has fields of its own with the names of ids.
    pub(super) fn of_context(class: &EventClass, names: &[&str]) -> Place {
        let place =
            |name: &&str| class.fields.iter().position(|field| !field.is_payload && field.name == **name);
        names.iter().find_map(place).map_or(Place::NONE, Place)
    }

    #[inline]
    pub(super) fn get<'v>(self, values: &Values<'v>) -> Value<'v> {
        values.get(self.0)
    }

    /// A number that fits 64 bits, its sign extended.
    #[inline]
    pub(super) fn i64(self, values: &Values<'_>) -> Option<i64> {
        match self.get(values) {
            Value::Unsigned(value) => Some(value as i64),
            Value::Signed(value) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn u64(self, values: &Values<'_>) -> Option<u64> {
        self.i64(values).map(|value| value as u64)
    }

    /// An id: 32 bits, with or without a sign in the trace.
    #[inline]
    pub(super) fn u32(self, values: &Values<'_>) -> Option<u32> {
        self.i64(values).map(|value| value as u32)
    }

    /// The kernel's priority. Traces have it less 100, as LTTng does.
    #[inline]
    pub(super) fn prio(self, values: &Values<'_>) -> i64 {
        self.i64(values).map_or(120, |prio| prio.saturating_add(100))
    }

    #[inline]
    pub(super) fn bytes<'v>(self, values: &Values<'v>) -> &'v [u8] {
        match self.get(values) {
            Value::Bytes(bytes) => bytes.split(|byte| *byte == 0).next().unwrap_or_default(),
            _ => &[],
        }
    }

    /// A thread's name; empty when it is not known.
    #[inline]
    pub(super) fn comm(self, values: &Values<'_>) -> CommKey {
        comm_key(self.bytes(values))
    }
}
