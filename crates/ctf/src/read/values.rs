// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of events by field, for callers that want values and not text.

use super::plan::{FieldIndex, Integer, Plan};
use super::run::Visit;
use rtscope_event::{Value, ValueBuffer};

/// Puts the values that a plan yields into a buffer.
pub(super) struct Filler<'b>(pub(super) &'b mut ValueBuffer);

impl Visit for Filler<'_> {
    fn literal(&mut self, _: &[u8]) {}

    #[inline]
    fn integer(&mut self, _: &Plan, integer: &Integer, value: u64) {
        let value = if integer.signed { Value::Signed(value as i64) } else { Value::Unsigned(value) };
        self.0.set(usize::from(integer.field), value);
    }

    fn float(&mut self, field: FieldIndex, value: f64) {
        self.0.set(usize::from(field), Value::Float(value));
    }

    #[inline]
    fn text(&mut self, field: FieldIndex, text: &[u8]) {
        self.0.set(usize::from(field), Value::Bytes(text));
    }

    fn element(&mut self, _: u64) {}

    fn restart(&mut self) {
        self.0.restart();
    }

    fn bytes(&mut self, _: &Plan, element: &Integer, bytes: &[u8]) {
        self.0.set(usize::from(element.field), Value::Bytes(bytes));
    }
}
