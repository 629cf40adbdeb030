// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of one event by field, for callers that want values and not text.

use super::plan::{FieldIndex, Integer, Plan};
use super::run::Visit;

/// A value of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Value {
    /// The event has no such field, or it is an array.
    #[default]
    None,
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// Where in [`Values`] the bytes are.
    Bytes {
        from: usize,
        length: usize,
    },
}

/// The values of the event that a plan was run over last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    list: Vec<Value>,
    /// The bytes of texts and arrays, since the window moves on.
    bytes: Vec<u8>,
}

impl Values {
    /// Reserves space for the fields of a plan.
    pub(crate) fn begin(&mut self, plan: &Plan) {
        self.list.clear();
        self.list.resize(plan.fields.len(), Value::None);
        self.bytes.clear();
    }

    pub(crate) fn get(&self, field: usize) -> Value {
        self.list.get(field).copied().unwrap_or_default()
    }

    pub(crate) fn bytes(&self, value: Value) -> Option<&[u8]> {
        match value {
            Value::Bytes { from, length } => self.bytes.get(from..from + length),
            _ => None,
        }
    }

    fn put(&mut self, field: FieldIndex, value: Value) {
        if let Some(place) = self.list.get_mut(usize::from(field)) {
            *place = value;
        }
    }

    fn put_bytes(&mut self, field: FieldIndex, bytes: &[u8]) {
        let (from, length) = (self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.put(field, Value::Bytes { from, length });
    }
}

impl Visit for Values {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, _: &Plan, integer: &Integer, value: u64) {
        self.put(
            integer.field,
            if integer.signed { Value::Signed(value as i64) } else { Value::Unsigned(value) },
        );
    }

    fn float(&mut self, field: FieldIndex, value: f64) {
        self.put(field, Value::Float(value));
    }

    fn text(&mut self, field: FieldIndex, text: &[u8]) {
        self.put_bytes(field, text);
    }

    fn element(&mut self, _: u64) {}

    fn restart(&mut self) {
        self.list.fill(Value::None);
        self.bytes.clear();
    }

    fn bytes(&mut self, _: &Plan, element: &Integer, bytes: &[u8]) {
        self.put_bytes(element.field, bytes);
    }
}
