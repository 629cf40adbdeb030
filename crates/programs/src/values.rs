// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An event's description and payload in the form that every analysis reads: a class with fields, and values.

use crate::description::{Descriptions, EventDescription, Field, FieldType, payload_bytes};
use rtscope_event::exact::signed;
use rtscope_event::{Domain, EventClass, FieldClass, Value, ValueBuffer};
use std::sync::Arc;

/// The class of an event.
#[must_use]
pub fn class(event: &EventDescription, descriptions: &Descriptions) -> EventClass {
    let field = |field: &Field| FieldClass {
        name: field.name.clone(),
        is_payload: true,
        is_hex: matches!(&field.kind, FieldType::Integer(integer) if integer.hex),
        labels: labels(&field.kind, descriptions),
    };
    EventClass {
        name: event.name.clone(),
        domain: Domain::Program,
        fields: event.fields.iter().map(field).collect(),
    }
}

fn labels(kind: &FieldType, descriptions: &Descriptions) -> Arc<[(i128, i128, String)]> {
    match kind {
        FieldType::Bool => [(0, 0, "false".to_owned()), (1, 1, "true".to_owned())].into(),
        FieldType::Enumeration(name) => {
            let known = descriptions.enumeration(name).map_or(&[][..], |known| &known.labels);
            known
                .iter()
                .map(|(value, label)| (i128::from(*value), i128::from(*value), label.clone()))
                .collect()
        }
        _ => Arc::from([]),
    }
}

/// Sets the values of an event. False: its payload does not match its fields.
#[must_use]
pub fn set_values(fields: &[Field], payload: &[u8], values: &mut ValueBuffer) -> bool {
    values.begin(fields.len());
    let mut at = 0;
    for (place, field) in fields.iter().enumerate() {
        let rest = payload.get(at..).unwrap_or_default();
        let Some(bytes) = payload_bytes(std::slice::from_ref(field), rest) else {
            values.forget();
            return false;
        };
        values.set(place, value(&field.kind, rest.get(..bytes).unwrap_or_default()));
        at += bytes;
    }
    true
}

/// `bytes`: all of the field's, and no others.
fn value<'v>(kind: &FieldType, bytes: &'v [u8]) -> Value<'v> {
    let word = || {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    };
    let with_sign = |bytes: u8| {
        let unused = 64_u32.saturating_sub(8 * u32::from(bytes));
        signed(word().checked_shl(unused).unwrap_or(0)) >> unused.min(63)
    };
    match kind {
        FieldType::Integer(integer) if integer.signed => Value::Signed(with_sign(integer.bytes)),
        FieldType::Integer(_) | FieldType::Bool => Value::Unsigned(word()),
        FieldType::Enumeration(_) => Value::Signed(with_sign(4)),
        FieldType::Float(4) => {
            let four = bytes.try_into().map_or(f32::NAN, f32::from_le_bytes);
            Value::Float(f64::from(four))
        }
        FieldType::Float(_) => Value::Float(f64::from_bits(word())),
        FieldType::Text => Value::Bytes(bytes.split(|byte| *byte == 0).next().unwrap_or_default()),
        FieldType::Array(..)
        | FieldType::Sequence(_)
        | FieldType::FloatArray(..)
        | FieldType::FloatSequence(_) => Value::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::RequestedEvents;

    const TEXT: &[u8] = b"oms:order 6\nu64 id\nf64 price\nf32 part\nstr symbol\nenum side side\ns16 delta\nbool urgent\narray u8 2 raw\nu8 last\n\0side\n66 buy\n83 sell\n\0";

    fn payload() -> Vec<u8> {
        let mut payload = u64::MAX.to_le_bytes().to_vec();
        payload.extend(100.5_f64.to_le_bytes());
        payload.extend(0.25_f32.to_le_bytes());
        payload.extend(b"EUR\0");
        payload.extend(83_i32.to_le_bytes());
        payload.extend((-3_i16).to_le_bytes());
        payload.extend([1, 9, 9, 255, 0, 0]);
        payload
    }

    #[test]
    fn the_values_of_an_event_are_those_of_its_payload() {
        let all = Descriptions::parse(TEXT, 1, 1, &RequestedEvents::default()).unwrap();
        let (event, mut values) = (&all.events[0], ValueBuffer::default());
        assert!(set_values(&event.fields, &payload(), &mut values));
        let found: Vec<Value<'_>> = (0..9).map(|place| values.current().get(place)).collect();
        let expected = [
            Value::Unsigned(u64::MAX),
            Value::Float(100.5),
            Value::Float(0.25),
            Value::Bytes(b"EUR"),
            Value::Signed(83),
            Value::Signed(-3),
            Value::Unsigned(1),
            Value::None,
            Value::Unsigned(255),
        ];
        assert_eq!(found, expected);
        let class = class(event, &all);
        assert_eq!((class.name.as_str(), class.field("delta")), ("oms:order", Some(5)));
        assert_eq!((class.fields[4].label(83), class.fields[6].label(1)), (Some("sell"), Some("true")));
    }

    #[test]
    fn a_payload_that_is_too_short_has_no_values() {
        let all = Descriptions::parse(TEXT, 1, 1, &RequestedEvents::default()).unwrap();
        let mut values = ValueBuffer::default();
        for length in 0..payload().len() - 2 {
            assert!(!set_values(&all.events[0].fields, &payload()[..length], &mut values), "{length}");
        }
    }
}
