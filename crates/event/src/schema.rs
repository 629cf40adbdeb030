// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What any event looks like: named classes with named fields, and the values of one event.
//!
//! The built-in kernel events are an enumeration (`EventKind`), because rtscope knows them. System calls, other tracepoints,
//! events of programs and of other tracers are known from a trace only. This schema has all of them in one form; the enumeration
//! is a view over it. A consumer asks for a class's fields by name once ([`EventClass::field`]), and then takes values by
//! their place, so that no name is compared while events go by.

use crate::CpuId;
use std::ops::Range;
use std::sync::Arc;

/// The number of a class in its [`Schema`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// The number of a stream in its [`Schema`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// Who an event is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    /// The kernel.
    Kernel,
    /// An instrumented program.
    Program,
    /// The trace does not say.
    #[default]
    Unknown,
}

/// A field of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldClass {
    /// Its name, with those of the structures around it and dots between.
    pub name: String,
    /// Of the event itself; else of its context (which thread, which CPU).
    pub is_payload: bool,
    /// An address, or another number that people read in base 16.
    pub is_hex: bool,
    /// The names of an enumeration's values: first value, last value, name. Fields share them: an enumeration may be long.
    pub labels: Arc<[(i128, i128, String)]>,
}

impl FieldClass {
    /// The first name of a value.
    #[must_use]
    pub fn label(&self, value: i128) -> Option<&str> {
        let named = self.labels.iter().find(|(first, last, _)| (*first..=*last).contains(&value));
        named.map(|(.., name)| name.as_str())
    }
}

/// A class of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventClass {
    /// Its name; classes of several streams may share it.
    pub name: String,
    /// Who its events are from.
    pub domain: Domain,
    /// The fields, in the order of the values.
    pub fields: Vec<FieldClass>,
}

impl EventClass {
    /// The place of a field. A field of the event goes before one of its context.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<usize> {
        let place =
            |payload| self.fields.iter().position(|field| field.is_payload == payload && field.name == name);
        place(true).or_else(|| place(false))
    }
}

/// A stream: events of one CPU, or of some threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Who its events are from.
    pub domain: Domain,
    /// Its trace, of those that are read together.
    pub trace: u32,
    /// The host, where known.
    pub host: String,
    /// Where the zero of its clock is, in nanoseconds since the origin of the times of events.
    pub clock_offset_ns: i64,
    /// From this moment on it has all events, but for losses (as the times of events); `None` when unknown.
    pub complete_since_ns: Option<i64>,
}

/// The classes and streams of a source. It only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// By [`ClassId`].
    pub classes: Vec<EventClass>,
    /// By [`StreamId`].
    pub streams: Vec<StreamInfo>,
}

impl Schema {
    /// A class; an empty one for a number that there is not.
    #[must_use]
    pub fn class(&self, id: ClassId) -> &EventClass {
        static NONE: EventClass =
            EventClass { name: String::new(), domain: Domain::Unknown, fields: Vec::new() };
        self.classes.get(id.0 as usize).unwrap_or(&NONE)
    }

    /// A stream; an empty one for a number that there is not.
    #[must_use]
    pub fn stream(&self, id: StreamId) -> &StreamInfo {
        static NONE: StreamInfo = StreamInfo {
            domain: Domain::Unknown,
            trace: 0,
            host: String::new(),
            clock_offset_ns: 0,
            complete_since_ns: None,
        };
        self.streams.get(id.0 as usize).unwrap_or(&NONE)
    }
}

/// A value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value<'v> {
    /// The event has no such field, or it is an array of anything but bytes.
    #[default]
    None,
    /// A number of a field without a sign.
    Unsigned(u64),
    /// A number of a field with a sign.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// Text without its NUL, or an array of bytes.
    Bytes(&'v [u8]),
}

/// The values of one event, by the places of its class's fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'v> {
    list: &'v [Stored],
    bytes: &'v [u8],
}

impl<'v> Values<'v> {
    /// A field's value.
    #[inline]
    #[must_use]
    pub fn get(&self, field: usize) -> Value<'v> {
        match self.list.get(field).copied().unwrap_or_default() {
            Stored::None => Value::None,
            Stored::Unsigned(value) => Value::Unsigned(value),
            Stored::Signed(value) => Value::Signed(value),
            Stored::Float(value) => Value::Float(value),
            Stored::Bytes { from, length } => {
                let range = from as usize..from as usize + length as usize;
                self.bytes.get(range).map_or(Value::None, Value::Bytes)
            }
        }
    }

    /// A whole number.
    #[inline]
    #[must_use]
    pub fn integer(&self, field: usize) -> Option<i128> {
        match self.get(field) {
            Value::Unsigned(value) => Some(value.into()),
            Value::Signed(value) => Some(value.into()),
            _ => None,
        }
    }

    /// Text, or bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self, field: usize) -> Option<&'v [u8]> {
        match self.get(field) {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// As [`Value`], but without a borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Stored {
    #[default]
    None,
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bytes {
        from: u32,
        length: u32,
    },
}

/// Values of many events in two pieces of memory, for who makes them.
#[derive(Clone, Debug, Default)]
pub struct ValueBuffer {
    list: Vec<Stored>,
    bytes: Vec<u8>,
    /// Where the last event's values begin.
    first: usize,
    first_byte: usize,
}

impl ValueBuffer {
    /// The memory that it has, besides itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Stored>() + self.bytes.capacity()
    }

    /// Begins an event with this number of fields.
    #[inline]
    pub fn begin(&mut self, fields: usize) {
        self.first = self.list.len();
        self.first_byte = self.bytes.len();
        self.list.resize(self.first + fields, Stored::None);
    }

    /// Discards the values of the event so far.
    pub fn restart(&mut self) {
        self.bytes.truncate(self.first_byte);
        self.list.iter_mut().skip(self.first).for_each(|value| *value = Stored::None);
    }

    /// Removes the event that was begun last.
    pub fn forget(&mut self) {
        self.list.truncate(self.first);
        self.bytes.truncate(self.first_byte);
    }

    /// Sets a field of the event that was begun last. Bytes beyond 4 GiB in one buffer are not kept.
    #[inline]
    pub fn set(&mut self, field: usize, value: Value<'_>) {
        let stored = match value {
            Value::None => Stored::None,
            Value::Unsigned(value) => Stored::Unsigned(value),
            Value::Signed(value) => Stored::Signed(value),
            Value::Float(value) => Stored::Float(value),
            Value::Bytes(bytes) => {
                let place = u32::try_from(self.bytes.len()).ok().zip(u32::try_from(bytes.len()).ok());
                let Some((from, length)) = place else { return };
                self.bytes.extend_from_slice(bytes);
                Stored::Bytes { from, length }
            }
        };
        if let Some(place) = self.list.get_mut(self.first + field) {
            *place = stored;
        }
    }

    /// The places of the last event's values, for [`ValueBuffer::values`].
    #[must_use]
    pub fn last(&self) -> Range<usize> {
        self.first..self.list.len()
    }

    /// The values of the event that was begun last.
    #[must_use]
    pub fn current(&self) -> Values<'_> {
        self.values(self.last())
    }

    /// The values of an event.
    #[inline]
    #[must_use]
    pub fn values(&self, places: Range<usize>) -> Values<'_> {
        Values { list: self.list.get(places).unwrap_or_default(), bytes: &self.bytes }
    }

    /// Removes all events, and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        (self.first, self.first_byte) = (0, 0);
    }

    /// Bytes in use.
    #[must_use]
    pub fn size(&self) -> usize {
        self.list.len() * size_of::<Stored>() + self.bytes.len()
    }
}

/// An event of any class.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'s> {
    /// The schema that its numbers are of.
    pub schema: &'s Schema,
    /// Nanoseconds since the origin of the source's clocks.
    pub time_ns: i64,
    /// Its stream.
    pub stream: StreamId,
    /// Its class.
    pub class: ClassId,
    /// The CPU, where the trace says.
    pub cpu: Option<CpuId>,
    /// Its values.
    pub values: Values<'s>,
}

impl<'s> EventRef<'s> {
    /// Its class.
    #[must_use]
    pub fn class(&self) -> &'s EventClass {
        self.schema.class(self.class)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'s str {
        &self.class().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_events_are_kept_apart() {
        let mut buffer = ValueBuffer::default();
        buffer.begin(2);
        buffer.set(0, Value::Bytes(b"one"));
        let first = buffer.last();
        buffer.begin(3);
        buffer.set(2, Value::Signed(-7));
        buffer.set(1, Value::Bytes(b"two"));
        buffer.set(3, Value::Unsigned(1));
        let second = buffer.last();
        assert_eq!(buffer.values(first.clone()).bytes(0), Some(&b"one"[..]));
        assert_eq!(buffer.values(first.clone()).get(1), Value::None);
        assert_eq!(buffer.values(second.clone()).integer(2), Some(-7));
        assert_eq!(buffer.values(second.clone()).bytes(1), Some(&b"two"[..]));
        assert_eq!(buffer.values(second.clone()).get(3), Value::None);
        buffer.restart();
        assert_eq!(buffer.current().get(1), Value::None);
        buffer.forget();
        assert_eq!(buffer.values(first).bytes(0), Some(&b"one"[..]));
        assert!(buffer.values(second).is_empty());
    }

    #[test]
    fn a_field_of_the_event_goes_before_one_of_its_context() {
        let field = |name: &str, is_payload| FieldClass {
            name: name.to_owned(),
            is_payload,
            labels: [(0, 0, "no".to_owned()), (1, 9, "yes".to_owned())].into(),
            ..FieldClass::default()
        };
        let class = EventClass {
            fields: vec![field("tid", false), field("tid", true), field("cpu", false)],
            ..EventClass::default()
        };
        assert_eq!(class.field("tid"), Some(1));
        assert_eq!(class.field("cpu"), Some(2));
        assert_eq!(class.field("pid"), None);
        assert_eq!(class.fields[0].label(5), Some("yes"));
        assert_eq!(class.fields[0].label(10), None);
    }
}
