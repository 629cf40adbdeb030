// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bits → values, as the class model says.
//!
//! Values point into the packet, and only the top level of a struct is kept: compound fields are walked over, to find
//! where the next field begins. So an event allocates nothing, whatever its lengths claim, and there is one place to
//! replace by decoders that are compiled per event class.

use super::bits::{Cursor, Overrun};
use super::class::{FieldClass, IntegerClass, Slot, StructClass};

/// A decoded field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    /// A string without its NUL, or a whole array or sequence of bytes.
    Bytes(&'a [u8]),
    /// A struct, variant, floating point number, or array of larger elements.
    Skipped,
}

/// Decoder of one stream.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Values that later fields refer to, as unsigned or sign-extended.
    slots: Vec<i128>,
    /// The last field decoded that is mapped to the clock: value and bits.
    pub(crate) clock_field: Option<(u64, u32)>,
    /// The last field decoded that is an event's id.
    pub(crate) event_id: Option<u64>,
}

impl Decoder {
    pub(crate) fn new(slots: Slot) -> Decoder {
        Decoder { slots: vec![0; slots as usize], clock_field: None, event_id: None }
    }

    /// Decodes a struct; `values` gets one value per field.
    pub(crate) fn record<'a>(
        &mut self,
        class: &StructClass,
        cursor: &mut Cursor<'a>,
        values: &mut Vec<Value<'a>>,
    ) -> Result<(), Overrun> {
        values.clear();
        cursor.align(class.align.max(1));
        for (_, field) in &class.fields {
            values.push(self.field(field, cursor)?);
        }
        Ok(())
    }

    fn field<'a>(&mut self, class: &FieldClass, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Overrun> {
        cursor.align(class.align());
        match class {
            FieldClass::Integer(integer) => self.integer(integer, cursor),
            FieldClass::Float { bits, .. } => {
                cursor.skip((*bits).into())?;
                Ok(Value::Skipped)
            }
            FieldClass::Text => cursor.text().map(Value::Bytes),
            FieldClass::Struct(class) => {
                for (_, field) in &class.fields {
                    self.field(field, cursor)?;
                }
                Ok(Value::Skipped)
            }
            FieldClass::Array { element, length } => self.elements(element, *length, cursor),
            FieldClass::Sequence { element, length } => {
                let length = u64::try_from(self.slot(*length)).map_err(|_| Overrun)?;
                self.elements(element, length, cursor)
            }
            FieldClass::Variant { tag, choices } => {
                let tag = self.slot(*tag);
                let choice = choices.iter().find(|choice| (choice.first..=choice.last).contains(&tag));
                // A tag without an option: what follows cannot be found, as if the content had ended.
                self.field(&choice.ok_or(Overrun)?.class, cursor)?;
                Ok(Value::Skipped)
            }
        }
    }

    fn slot(&self, slot: Slot) -> i128 {
        self.slots.get(slot as usize).copied().unwrap_or(0)
    }

    fn integer<'a>(&mut self, class: &IntegerClass, cursor: &mut Cursor<'a>) -> Result<Value<'a>, Overrun> {
        let raw = cursor.unsigned(class.bits, class.order)?;
        let unused = 64 - class.bits;
        let value =
            if class.signed { Value::Signed((raw << unused) as i64 >> unused) } else { Value::Unsigned(raw) };
        if class.uses.clock {
            self.clock_field = Some((raw, class.bits));
        }
        if class.uses.event_id {
            self.event_id = Some(raw);
        }
        if let Some(slot) = class.uses.slot.and_then(|slot| self.slots.get_mut(slot as usize)) {
            *slot = match value {
                Value::Signed(value) => value.into(),
                _ => raw.into(),
            };
        }
        Ok(value)
    }

    fn elements<'a>(
        &mut self,
        element: &FieldClass,
        length: u64,
        cursor: &mut Cursor<'a>,
    ) -> Result<Value<'a>, Overrun> {
        if length.checked_mul(element.min_bits()).is_none_or(|least| least > cursor.remaining()) {
            return Err(Overrun);
        }
        match element {
            FieldClass::Integer(integer) if integer.is_byte() => cursor.bytes(length).map(Value::Bytes),
            _ => {
                for _ in 0..length {
                    self.field(element, cursor)?;
                }
                Ok(Value::Skipped)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks;
    use super::*;

    fn decode<'a>(body: &str, bytes: &'a [u8]) -> Result<Vec<Value<'a>>, Overrun> {
        let text = format!(
            "typealias integer {{ size = 8; }} := u8; typealias integer {{ size = 16; align = 8; signed = true; }} := s16;
            event {{ fields := struct {{ {body} }}; }};"
        );
        let trace = blocks::parse(&text).unwrap();
        let mut values = Vec::new();
        Decoder::new(trace.slots).record(&trace.events[0].fields, &mut Cursor::new(bytes), &mut values)?;
        Ok(values)
    }

    #[test]
    fn sequences_and_variants_follow_their_fields() {
        let body =
            "u8 n; u8 text[n]; enum : u8 { a = 1, b = 2 } tag; variant <tag> { u8 a; s16 b; } v; s16 last;";
        let values = decode(body, &[2, b'h', b'i', 2, 9, 9, 0xfe, 0xff]).unwrap();
        let expected =
            [Value::Unsigned(2), Value::Bytes(b"hi"), Value::Unsigned(2), Value::Skipped, Value::Signed(-2)];
        assert_eq!(values, expected);
        assert_eq!(decode(body, &[0, 3, 0, 0, 0]), Err(Overrun));
    }

    #[test]
    fn lengths_beyond_the_content_end_at_once() {
        let body = "integer { size = 64; align = 8; } n; struct { integer { size = 1; } b; } bits[n];";
        assert_eq!(decode(body, &[0xff; 12]), Err(Overrun));
        assert_eq!(decode("s16 n; u8 a[n];", &[0xff; 12]), Err(Overrun));
        assert_eq!(decode("u8 a[18446744073709551615];", &[0xff; 12]), Err(Overrun));
    }
}
