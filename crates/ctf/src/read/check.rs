// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a selection makes sense for a set of traces: a misspelt name selects nothing, which looks like a trace without such events.

use super::class::StreamClass;
use super::compile::picking_all;
use super::condition::{Comparison, Test};
use super::plan::{Op, Plan, Scope};
use super::select::{Origin, Selection, places};
use super::set::TraceSet;
use rtscope_event::{is_event_named, is_known_event, nearest};
use std::collections::BTreeSet;

/// What a field can be compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Priority,
    /// With its labels.
    Labels(Vec<String>),
    Text,
}

/// The fields of an event class.
struct ClassFields {
    origin: Origin,
    name: String,
    plan: Plan,
    packet: Plan,
}

impl ClassFields {
    fn kind(&self, field: &str) -> Option<Kind> {
        let place = places(field, &self.plan, &self.packet).first().copied()?;
        let plan = if place.packet { &self.packet } else { &self.plan };
        let is_text = |op: &Op| match op {
            Op::Text(of) | Op::Characters { field: of, .. } => usize::from(*of) == place.field,
            Op::Array { element, .. } => usize::from(element.field) == place.field,
            _ => false,
        };
        Some(if plan.ops.iter().any(is_text) {
            Kind::Text
        } else if self.origin.priority_scale(&self.name, field).is_some() {
            Kind::Priority
        } else if let Some(labels) = plan.enumeration_of(place.field) {
            Kind::Labels(labels.ranges().into_iter().map(|(.., label)| label).collect())
        } else {
            Kind::Number
        })
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        self.plan.fields.iter().chain(&self.packet.fields).map(|field| field.path.as_str())
    }
}

impl Selection {
    /// Whether what it names is in these traces.
    ///
    /// # Errors
    /// When an event or a field has no such name, or cannot be compared with such a value: what to write instead. `Ok`: notes about what is
    /// right but not in these traces.
    pub fn check(&self, set: &TraceSet) -> Result<Vec<String>, String> {
        let mut notes = self.check_events(set)?;
        let tests = self.conditions.iter().flat_map(|condition| condition.tests());
        // Those of several fields are not the user's.
        let tests: Vec<&Test> = tests.filter(|test| test.fields.len() == 1).collect();
        if !tests.is_empty() {
            let classes = classes(set);
            let selected: Vec<&ClassFields> =
                classes.iter().filter(|class| self.wants_name(&class.name)).collect();
            tests.iter().try_for_each(|test| check_test(test, &selected, &classes))?;
        }
        notes.extend(self.check_cpus(set));
        Ok(notes)
    }

    /// When no selected event has a field that is to be shown: what to write instead.
    pub fn check_fields(&self, set: &TraceSet, fields: &[&str]) -> Result<(), String> {
        let classes = classes(set);
        let selected: Vec<&ClassFields> =
            classes.iter().filter(|class| self.wants_name(&class.name)).collect();
        let is_there = |field: &&str| selected.iter().any(|class| class.fields().any(|path| path == *field));
        match fields.iter().find(|field| !is_there(field)) {
            Some(field) => Err(unknown_field(field, &selected, &classes)),
            None => Ok(()),
        }
    }

    fn check_events(&self, set: &TraceSet) -> Result<Vec<String>, String> {
        let names: BTreeSet<&str> = set
            .traces
            .iter()
            .flat_map(|trace| &trace.class.events)
            .map(|event| event.name.as_str())
            .collect();
        let mut notes = Vec::new();
        for pattern in &self.events.include {
            if names.iter().any(|name| is_event_named(pattern, name)) {
                continue;
            }
            if is_known_event(pattern) {
                notes.push(format!("the trace has no event {pattern}"));
                continue;
            }
            // In the kernel's traces names are without the subsystem.
            let text = pattern.to_string();
            let event = text.split_once(':').map(|(_, event)| event);
            let near = |wanted: &str| nearest(wanted, names.iter().copied());
            let similar = near(&text).or_else(|| event.and_then(near));
            let similar = similar.map(|name| format!("; the nearest name is {name}")).unwrap_or_default();
            return Err(format!("the trace has no event {pattern}{similar} (rtscope stat lists them all)"));
        }
        // What is misspelt there would leave out nothing.
        let is_unknown = |pattern: &&rtscope_event::Pattern| {
            !is_known_event(pattern) && !names.iter().any(|name| is_event_named(pattern, name))
        };
        let useless = self.events.exclude.iter().filter(is_unknown);
        notes.extend(
            useless.map(|pattern| format!("!{pattern} leaves nothing out: the trace has no such event")),
        );
        Ok(notes)
    }

    fn check_cpus(&self, set: &TraceSet) -> Option<String> {
        let wanted = self.cpus.as_ref()?;
        let cpus: Option<BTreeSet<u64>> = set.streams.iter().map(|stream| stream.cpu).collect();
        let cpus = cpus?;
        let list =
            |cpus: &mut dyn Iterator<Item = &u64>| cpus.map(u64::to_string).collect::<Vec<_>>().join(",");
        let missing = list(&mut wanted.difference(&cpus));
        let there = list(&mut cpus.iter());
        (!missing.is_empty()).then(|| format!("the trace has nothing of CPU {missing}; it has CPUs {there}"))
    }
}

/// Each once, whatever the number of streams.
fn classes(set: &TraceSet) -> Vec<ClassFields> {
    let mut seen = BTreeSet::new();
    let mut classes = Vec::new();
    for stream in &set.streams {
        let Some(class) = set.stream_class(stream) else { continue };
        if !seen.insert((stream.trace, stream.class_place())) {
            continue;
        }
        let StreamClass { event_context, packet_context, .. } = class;
        for event in (0..set.event_count(stream)).filter_map(|event| set.event_class(stream, event)) {
            let plan = picking_all(&[
                (Scope::StreamContext, event_context.as_ref()),
                (Scope::EventContext, event.context.as_ref()),
                (Scope::Fields, event.fields.as_ref()),
            ]);
            let packet = picking_all(&[(Scope::PacketContext, packet_context.as_ref())]);
            let origin = Origin::of(set, stream);
            classes.push(ClassFields { origin, name: event.name.clone(), plan, packet });
        }
    }
    classes
}

fn check_test(test: &Test, selected: &[&ClassFields], all: &[ClassFields]) -> Result<(), String> {
    let Some(field) = test.fields.first() else { return Ok(()) };
    let kinds: Vec<Kind> = selected.iter().filter_map(|class| class.kind(field)).collect();
    if kinds.is_empty() {
        return Err(unknown_field(field, selected, all));
    }
    let faults: Vec<String> = kinds.iter().filter_map(|kind| fault(test, field, kind)).collect();
    match faults.into_iter().next() {
        // A name may be a number in one event and a text in another.
        Some(first) if kinds.iter().all(|kind| fault(test, field, kind).is_some()) => Err(first),
        _ => Ok(()),
    }
}

fn unknown_field(field: &str, selected: &[&ClassFields], all: &[ClassFields]) -> String {
    if let Some(elsewhere) = all.iter().find(|class| class.kind(field).is_some()) {
        return format!("no selected event has a field {field}; {} has one", elsewhere.name);
    }
    let similar = nearest(field, selected.iter().flat_map(|class| class.fields()));
    let similar = similar.map(|name| format!("; the nearest name is {name}")).unwrap_or_default();
    format!("no selected event has a field {field}{similar}")
}

/// Why a field of this kind cannot be compared so.
fn fault(test: &Test, field: &str, kind: &Kind) -> Option<String> {
    let value = test.value();
    let is_pattern = test.comparison == Comparison::Like;
    let has_no_order = matches!(test.comparison, Comparison::Equal | Comparison::Unequal);
    match kind {
        _ if is_pattern => None,
        Kind::Text if test.is_number() && !has_no_order => Some(format!(
            "{field} is a text, and has no order with the number {value}; compare it with ==, != or =~"
        )),
        Kind::Text => None,
        Kind::Priority if test.is_number() || test.priority.is_some() => None,
        Kind::Priority => Some(format!(
            "{field} is a priority, and '{value}' is not one; write rt 90, nice 5 or dl, or the number in the trace"
        )),
        Kind::Number if test.is_number() => None,
        Kind::Number => Some(format!("{field} is a number, and '{value}' is not one")),
        Kind::Labels(_) if test.is_number() => None,
        Kind::Labels(labels) if !labels.contains(&value) => {
            let similar = nearest(&value, labels.iter().map(String::as_str));
            let similar = similar.map(|label| format!("; the nearest is {label}")).unwrap_or_default();
            Some(format!("{field} has no value '{value}'{similar}"))
        }
        Kind::Labels(_) if !has_no_order => {
            Some(format!("the values of {field} have no order; compare with == or !="))
        }
        Kind::Labels(_) => None,
    }
}
