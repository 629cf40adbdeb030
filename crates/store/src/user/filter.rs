// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a recording of programs is wanted: some processes, a range of levels, events whose fields have certain values.
//!
//! All of it is decided here, by the collector, when records are taken: a program records what it would record otherwise, and its cost is the
//! same. (The patterns themselves and the highest level are decided by programs; what they exclude costs nothing.) What is left out is
//! counted: it is no loss.

use rtscope_ctf::{Condition, ConditionValue};
use rtscope_event::{exact, glob_matches, nearest};
use rtscope_programs::RingInfo;
use rtscope_programs::description::{EventDescription, Field, FieldType};
use std::fmt;
use std::sync::Arc;

/// Which threads are wanted.
pub trait ChooseThreads: fmt::Debug + Send + Sync {
    /// Whether this one is. [`UserFilter::wants`] asks once for each thread.
    fn wants(&self, ring: &RingInfo) -> bool;

    /// Whether any of this user's can be.
    fn wants_user(&self, _uid: u32) -> bool {
        true
    }

    /// What is to be said at the end of threads of which that is not known.
    fn remark(&self) -> Option<String>;
}

/// What is wanted. The default is everything.
#[derive(Clone, Debug, Default)]
pub struct UserFilter {
    /// Events of smaller levels are left out.
    pub level_from: u32,
    /// Patterns of events, each with its condition: an event is wanted if it matches one whose condition holds, or that has none.
    pub conditions: Vec<(String, Option<Condition>)>,
    /// `None`: all.
    pub threads: Option<Arc<dyn ChooseThreads>>,
}

/// What is wanted of the events of one class.
#[derive(Clone, Debug, Default)]
pub(super) enum ClassFilter {
    #[default]
    All,
    None,
    /// Those for which one of these holds, of fields by their places.
    Some(Vec<Condition<usize>>),
}

impl UserFilter {
    /// Whether events of this thread are wanted.
    #[must_use]
    pub fn wants(&self, ring: &RingInfo) -> bool {
        self.threads.as_ref().is_none_or(|threads| ring.choice.once(|| threads.wants(ring)))
    }

    /// Whether programs of this user are asked for: what those of others lost is no loss of what was.
    pub(super) fn wants_user(&self, uid: u32) -> bool {
        self.threads.as_ref().is_none_or(|choice| choice.wants_user(uid))
    }

    pub(super) fn of_class(&self, event: &EventDescription) -> ClassFilter {
        if event.level < self.level_from {
            return ClassFilter::None;
        }
        let matching = self
            .conditions
            .iter()
            .filter(|(pattern, _)| glob_matches(pattern.as_bytes(), event.name.as_bytes()));
        let mut conditions = Vec::new();
        let mut any = false;
        for (_, condition) in matching {
            let Some(condition) = condition else { return ClassFilter::All };
            any = true;
            conditions
                .push(condition.placed(&mut |name| event.fields.iter().position(|field| field.name == name)));
        }
        if any { ClassFilter::Some(conditions) } else { ClassFilter::All }
    }

    /// What is to be said of an event: a condition is about fields that it does not have, or that are no such values.
    pub(super) fn remark(&self, event: &EventDescription) -> Option<String> {
        let field = |name: &str| event.fields.iter().find(|field| field.name == name);
        self.conditions.iter().find_map(|(pattern, condition)| {
            let condition =
                condition.as_ref().filter(|_| glob_matches(pattern.as_bytes(), event.name.as_bytes()))?;
            if let Some(missing) = condition.names().into_iter().find(|name| field(name).is_none()) {
                return Some(format!(
                    "{} has no field '{missing}', which the condition of '{pattern}' is about; {}",
                    event.name,
                    fields_hint(&missing, event)
                ));
            }
            let is_number = |name: &str| {
                matches!(field(name)?.kind, FieldType::Integer(_) | FieldType::Float(_)).then_some(())
            };
            let words = condition.words();
            let (name, value) = words.iter().find(|(name, _)| is_number(name).is_some())?;
            Some(format!(
                "{}: {name} is a number, and '{value}' in the condition of '{pattern}' is not one",
                event.name
            ))
        })
    }
}

impl ClassFilter {
    pub(super) fn is_all(&self) -> bool {
        matches!(self, ClassFilter::All)
    }

    /// Whether an event with this payload is wanted. `labels`: of a field that is an enumeration, by its place.
    pub(super) fn wants(&self, fields: &[Field], payload: &[u8], labels: &[Vec<(i32, String)>]) -> bool {
        let conditions = match self {
            ClassFilter::All => return true,
            ClassFilter::None => return false,
            ClassFilter::Some(conditions) => conditions,
        };
        let names: Vec<Vec<String>> = names_of(fields, payload, labels);
        let values = values_of(fields, payload, &names);
        conditions.iter().any(|condition| condition.holds_for(&values))
    }
}

/// What there is in the place of a field that an event does not have.
fn fields_hint(missing: &str, event: &EventDescription) -> String {
    let names: Vec<&str> = event.fields.iter().map(|field| field.name.as_str()).collect();
    match nearest(missing, names.iter().copied()) {
        Some(near) => format!("the nearest is '{near}'"),
        None if names.is_empty() => "it has none".to_owned(),
        None => format!("it has {}", names.join(", ")),
    }
}

/// The labels that the values of enumerations have, by field.
fn names_of(fields: &[Field], payload: &[u8], labels: &[Vec<(i32, String)>]) -> Vec<Vec<String>> {
    let mut at = 0;
    let of_field = |(place, field): (usize, &Field)| {
        let bytes = payload.get(at..).unwrap_or_default();
        at += field_bytes(field, bytes);
        let value = match &field.kind {
            FieldType::Enumeration(_) => integer(bytes, 4, true),
            FieldType::Bool => {
                return vec![if integer(bytes, 1, false) == 0 { "false" } else { "true" }.to_string()];
            }
            _ => return Vec::new(),
        };
        let known = labels.get(place).map(Vec::as_slice).unwrap_or_default();
        known.iter().filter(|(of, _)| i128::from(*of) == value).map(|(_, name)| name.clone()).collect()
    };
    fields.iter().enumerate().map(of_field).collect()
}

fn values_of<'v>(fields: &[Field], payload: &'v [u8], names: &'v [Vec<String>]) -> Vec<ConditionValue<'v>> {
    let mut at = 0;
    let mut values = Vec::with_capacity(fields.len());
    for (field, names) in fields.iter().zip(names) {
        let bytes = payload.get(at..).unwrap_or_default();
        at += field_bytes(field, bytes);
        values.push(match &field.kind {
            FieldType::Integer(kind) => ConditionValue::Integer(integer(bytes, kind.bytes, kind.signed)),
            FieldType::Bool => ConditionValue::Label(integer(bytes, 1, false), names),
            FieldType::Enumeration(_) => ConditionValue::Label(integer(bytes, 4, true), names),
            FieldType::Float(size) => ConditionValue::Float(float(bytes, *size)),
            FieldType::Text => {
                ConditionValue::Text(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
            }
            // No comparison is about a whole array.
            _ => ConditionValue::Float(f64::NAN),
        });
    }
    values
}

/// Of a payload that matches its fields.
fn field_bytes(field: &Field, rest: &[u8]) -> usize {
    rtscope_programs::description::payload_bytes(std::slice::from_ref(field), rest).unwrap_or(0)
}

fn integer(bytes: &[u8], size: u8, signed: bool) -> i128 {
    let unused = 64 - 8 * u32::from(size);
    let size = usize::from(size);
    let mut word = [0; 8];
    let Some(source) = bytes.get(..size) else { return 0 };
    word[..size].copy_from_slice(source);
    let value = u64::from_le_bytes(word);
    if signed { i128::from(exact::signed(value << unused) >> unused) } else { i128::from(value) }
}

fn float(bytes: &[u8], size: u8) -> f64 {
    let four = bytes.get(..4).and_then(|bytes| bytes.try_into().ok()).map(f32::from_le_bytes);
    let eight = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map(f64::from_le_bytes);
    if size == 4 { four.map_or(f64::NAN, f64::from) } else { eight.unwrap_or(f64::NAN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_programs::description::Descriptions;
    use rtscope_programs::patterns::RequestedEvents;

    const TEXT: &[u8] =
        b"oms:order_new 6\nu64 id\nf64 price\nstr symbol\nenum side side\ns16 delta\nbool urgent\n\0oms:order_gone 4\nu64 id\n\0side\n66 buy\n83 sell\n\0";

    fn events() -> (Vec<EventDescription>, Vec<Vec<(i32, String)>>) {
        let all = Descriptions::parse(TEXT, 2, 1, &RequestedEvents::default()).unwrap();
        let labels = all.enumerations[0].labels.clone();
        (all.events, vec![vec![], vec![], vec![], labels, vec![], vec![]])
    }

    fn order(price: f64, symbol: &str, side: i32, delta: i16) -> Vec<u8> {
        let mut payload = 7_u64.to_le_bytes().to_vec();
        payload.extend(price.to_le_bytes());
        payload.extend(symbol.as_bytes());
        payload.push(0);
        payload.extend(side.to_le_bytes());
        payload.extend(delta.to_le_bytes());
        payload.push(1);
        payload
    }

    fn filter(conditions: &[(&str, &str)]) -> UserFilter {
        let of = |(pattern, condition): &(&str, &str)| {
            let condition = (!condition.is_empty()).then(|| Condition::parse(condition).unwrap());
            ((*pattern).to_string(), condition)
        };
        UserFilter { conditions: conditions.iter().map(of).collect(), ..UserFilter::default() }
    }

    #[test]
    fn a_condition_chooses_by_the_values_of_fields() {
        let (events, labels) = events();
        let payload = order(100.5, "EURUSD", 83, -3);
        let wants = |text: &str| {
            filter(&[("oms:order_*", text)]).of_class(&events[0]).wants(&events[0].fields, &payload, &labels)
        };
        let hold = [
            "price > 100",
            "price == 100.5",
            "symbol == EURUSD && side == sell",
            "symbol =~ 'EUR*'",
            "side == 83",
            "side != buy",
            "delta < 0 && delta == -3",
            "urgent == true",
            "id == 7 || price > 1000",
        ];
        hold.iter().for_each(|text| assert!(wants(text), "{text}"));
        let fail =
            ["price > 101", "symbol == EUR", "side == buy", "delta > 0", "urgent == false", "nothing == 1"];
        fail.iter().for_each(|text| assert!(!wants(text), "{text}"));
    }

    #[test]
    fn one_pattern_without_a_condition_is_enough_and_others_are_not_asked() {
        let (events, _) = events();
        assert!(filter(&[("oms:order_*", "price > 1"), ("oms:*", "")]).of_class(&events[0]).is_all());
        assert!(filter(&[("pump:*", "price > 1")]).of_class(&events[0]).is_all());
        let both = filter(&[("oms:order_new", "id == 1"), ("oms:order_*", "id == 2")]);
        assert!(matches!(both.of_class(&events[0]), ClassFilter::Some(conditions) if conditions.len() == 2));
    }

    #[test]
    fn levels_below_the_range_and_events_without_the_field_are_left_out() {
        let (events, labels) = events();
        let from = UserFilter { level_from: 5, ..UserFilter::default() };
        assert!(from.of_class(&events[0]).is_all());
        assert!(matches!(from.of_class(&events[1]), ClassFilter::None));
        let price = filter(&[("oms:*", "price > 1")]);
        assert!(!price.of_class(&events[1]).wants(&events[1].fields, &[0; 8], &labels));
        assert_eq!(price.remark(&events[0]), None);
        for wrong in ["price > cheap", "id == seven && price > 1", "!(delta == x)"] {
            let remark = filter(&[("oms:*", wrong)]).remark(&events[0]).unwrap_or_default();
            assert!(remark.contains("is a number, and '"), "{wrong}: {remark}");
        }
        for right in ["price > 1e3", "symbol == EUR", "side == sell", "side == 83", "id == 0x10"] {
            assert_eq!(filter(&[("oms:*", right)]).remark(&events[0]), None, "{right}");
        }
        let remark = price.remark(&events[1]).unwrap();
        assert!(remark.contains("oms:order_gone has no field 'price'"), "{remark}");
    }
}
