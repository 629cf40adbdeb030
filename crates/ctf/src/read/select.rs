// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selection of events: by time, name, CPU, and by conditions on their fields.
//!
//! A condition is compiled for each event class: field names become places, and a condition whose fields the class does
//! not have becomes a constant, so that most unselected events are passed over undecoded.

use super::class::{EventClass, StreamClass};
use super::compile::picking_all;
use super::condition::{Comparison, Condition, Test};
use super::pattern::Pattern;
use super::plan::{Field, Plan, Scope};
use super::set::{Stream, TraceSet};
use rtscope_event::{Value, Values};
use std::collections::BTreeSet;

/// The selected events; by default all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Not before this moment (nanoseconds since the clock's origin).
    pub from_ns: Option<i64>,
    /// Not after this moment.
    pub to_ns: Option<i64>,
    /// Events whose name matches one of these; all if empty.
    pub events: Vec<Pattern>,
    /// Events on these CPUs.
    pub cpus: Option<BTreeSet<u64>>,
    /// All of these hold.
    pub conditions: Vec<Condition>,
}

impl Selection {
    /// Whether all events are selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.from_ns.is_none()
            && self.to_ns.is_none()
            && self.events.is_empty()
            && self.cpus.is_none()
            && self.conditions.is_empty()
    }

    pub(crate) fn wants_time(&self, ns: i64) -> bool {
        self.from_ns.is_none_or(|from| ns >= from) && self.to_ns.is_none_or(|to| ns <= to)
    }

    pub(crate) fn wants_cpu(&self, cpu: Option<u64>) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpu.is_some_and(|cpu| cpus.contains(&cpu)))
    }

    /// What to do with each event class of a stream.
    pub(crate) fn verdicts(&self, set: &TraceSet, stream: &Stream) -> Vec<Verdict> {
        let Some(class) = set.stream_class(stream) else { return Vec::new() };
        let verdict = |event: usize| match set.event_class(stream, event) {
            Some(event) => self.verdict(class, event),
            None => Verdict::No,
        };
        (0..set.event_count(stream)).map(verdict).collect()
    }

    fn verdict(&self, stream: &StreamClass, event: &EventClass) -> Verdict {
        let named = self.events.is_empty()
            || self.events.iter().any(|pattern| pattern.matches(event.name.as_bytes()));
        if !named {
            return Verdict::No;
        }
        if self.conditions.is_empty() {
            return Verdict::Yes;
        }
        let plan = picking_all(&[
            (Scope::StreamContext, stream.event_context.as_ref()),
            (Scope::EventContext, event.context.as_ref()),
            (Scope::Fields, event.fields.as_ref()),
        ]);
        let packet = picking_all(&[(Scope::PacketContext, stream.packet_context.as_ref())]);
        let mut used = false;
        let conditions: Vec<Condition<Place>> = self
            .conditions
            .iter()
            .map(|condition| {
                condition.map(&mut |name| {
                    let places = places(name, &plan, &packet);
                    used |= !places.is_empty();
                    places
                })
            })
            .collect();
        if !used {
            let nothing = (&Values::default(), &Values::default());
            let holds = conditions.iter().all(|condition| {
                condition.holds(&mut |test| FieldCondition::test(&plan, &packet, nothing, test))
            });
            return if holds { Verdict::Yes } else { Verdict::No };
        }
        Verdict::Ask(Box::new(FieldCondition { plan, packet, conditions }))
    }
}

/// The location of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    packet: bool,
    field: usize,
}

/// The places of a field: its own scope may be named (`fields.tid`); else the innermost scope that has it counts.
fn places(name: &str, plan: &Plan, packet: &Plan) -> Vec<Place> {
    let find = |fields: &[Field], scope: Option<Scope>, path: &str| {
        fields.iter().rposition(|field| field.path == path && scope.is_none_or(|scope| field.scope == scope))
    };
    let scopes = [
        ("fields.", Scope::Fields),
        ("event.context.", Scope::EventContext),
        ("context.", Scope::StreamContext),
        ("packet.", Scope::PacketContext),
    ];
    for (prefix, scope) in scopes {
        if let Some(path) = name.strip_prefix(prefix) {
            let fields = if scope == Scope::PacketContext { &packet.fields } else { &plan.fields };
            if let Some(field) = find(fields, Some(scope), path) {
                return vec![Place { packet: scope == Scope::PacketContext, field }];
            }
        }
    }
    // Scopes are in the order of their decoding, so the last one is the innermost.
    let own = find(&plan.fields, None, name).map(|field| Place { packet: false, field });
    let packets = || find(&packet.fields, None, name).map(|field| Place { packet: true, field });
    own.or_else(packets).into_iter().collect()
}

/// What to do with the events of a class.
#[derive(Debug)]
pub(crate) enum Verdict {
    Yes,
    No,
    Ask(Box<FieldCondition>),
}

/// A condition that depends on fields.
#[derive(Debug)]
pub(crate) struct FieldCondition {
    pub(crate) plan: Plan,
    pub(crate) packet: Plan,
    conditions: Vec<Condition<Place>>,
}

impl FieldCondition {
    pub(crate) fn holds(&self, values: &Values<'_>, packet: &Values<'_>) -> bool {
        self.conditions.iter().all(|condition| {
            condition
                .holds(&mut |test| FieldCondition::test(&self.plan, &self.packet, (values, packet), test))
        })
    }

    /// A missing field is neither equal nor unequal to anything.
    fn test(
        plan: &Plan,
        packet: &Plan,
        (values, packet_values): (&Values<'_>, &Values<'_>),
        test: &Test<Place>,
    ) -> bool {
        test.fields.iter().any(|place| {
            let (plan, values) = if place.packet { (packet, packet_values) } else { (plan, values) };
            match values.get(place.field) {
                Value::None => false,
                Value::Unsigned(number) => number_holds(plan, place.field, number.into(), test),
                Value::Signed(number) => number_holds(plan, place.field, number.into(), test),
                Value::Float(number) => test.float_holds(number),
                Value::Bytes(text) => test.text_holds(text),
            }
        })
    }
}

/// An enumeration may be compared with its labels, too.
fn number_holds(plan: &Plan, field: usize, number: i128, test: &Test<Place>) -> bool {
    if test.is_number() && test.comparison != Comparison::Like {
        return test.number_holds(number);
    }
    match plan.enumeration_of(field) {
        Some(enumeration) => {
            let equal = enumeration.labels(number).any(|label| test.label_matches(label.as_bytes()));
            match test.comparison {
                Comparison::Equal | Comparison::Like => equal,
                Comparison::Unequal => !equal,
                _ => false,
            }
        }
        None => test.text_holds(number.to_string().as_bytes()),
    }
}
