// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two events that belong together, as a watch reports them: which, when, in which threads, with which fields.

use crate::{CpuId, EventClass, MonotonicNs, Tid, Value, Values};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Two events with the same key, from the first to the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSpan {
    /// The event with which it began.
    pub from: SpanEvent,
    /// The event with which it ended.
    pub to: SpanEvent,
    /// From the second event to the moment at which it was seen.
    pub noticed_after_ns: u64,
    /// Of work: the threads that took it over in between, each as its event says; at most the first 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<SpanEvent>,
    /// The user on whose account it is, while it is watched: what limits him limits no other. `None`: the kernel's.
    #[serde(skip)]
    pub account: Option<u32>,
}

impl EventSpan {
    /// Whether both happened in one thread.
    #[must_use]
    pub fn is_of_one_thread(&self) -> bool {
        self.from.tid == self.to.tid
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanEvent {
    /// Its name.
    pub event: String,
    /// When.
    pub time_ns: MonotonicNs,
    /// The thread in which it happened.
    pub tid: Tid,
    /// The CPU; `None`: not known.
    pub cpu: Option<CpuId>,
    /// Its fields.
    pub fields: BTreeMap<String, FieldValue>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A number without a sign.
    Unsigned(u64),
    /// A number with a sign.
    Signed(i64),
    /// A floating-point number.
    Float(FieldNumber),
    /// Text. Bytes that are no UTF-8 come as replacement characters.
    Text(String),
    /// A value with names.
    Enumeration {
        /// The value.
        value: i64,
        /// Its names.
        labels: Vec<String>,
    },
    /// An array, which is in the trace only.
    Other(()),
}

/// A floating-point number, equal to another one when its bits are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldNumber(pub f64);

impl PartialEq for FieldNumber {
    fn eq(&self, other: &FieldNumber) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for FieldNumber {}

impl FieldValue {
    /// The fields of an event.
    #[must_use]
    pub fn all(class: &EventClass, values: &Values<'_>) -> BTreeMap<String, FieldValue> {
        let payload = class.fields.iter().enumerate().filter(|(_, field)| field.is_payload);
        let of_field = |place: usize| {
            let value = values.get(place);
            let names = &class.fields[place].labels;
            match (value, values.integer(place).and_then(|value| i64::try_from(value).ok())) {
                (_, Some(value)) if !names.is_empty() => {
                    let is_its = |(first, last, _): &&(i128, i128, String)| {
                        (*first..=*last).contains(&i128::from(value))
                    };
                    let labels = names.iter().filter(is_its).map(|(.., name)| name.clone()).collect();
                    FieldValue::Enumeration { value, labels }
                }
                (Value::Unsigned(value), _) => FieldValue::Unsigned(value),
                // A reader does not see the type of a number: one that is not negative is the same without a sign.
                (Value::Signed(value), _) => {
                    u64::try_from(value).map_or(FieldValue::Signed(value), FieldValue::Unsigned)
                }
                (Value::Float(value), _) if value.is_finite() => FieldValue::Float(FieldNumber(value)),
                (Value::Bytes(bytes), _) => FieldValue::Text(String::from_utf8_lossy(bytes).into_owned()),
                // JSON has no place for infinity.
                (Value::Float(_) | Value::None, _) => FieldValue::Other(()),
            }
        };
        payload.map(|(place, field)| (field.name.clone(), of_field(place))).collect()
    }
}
