// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selection of events: by time, name, CPU, and by conditions on their fields.
//!
//! A condition is compiled for each event class: field names become places, and a condition whose fields the class does
//! not have becomes a constant, so that most unselected events are passed over undecoded.

use super::class::EnvValue;
use super::class::{EventClass, StreamClass, StructClass, shown_name};
use super::compile::picking_all;
use super::condition::{Comparison, Condition, Test};
use super::plan::{Field, Plan, Scope};
use super::set::{Stream, TraceSet};
use rtscope_event::{PatternList, Priority, Value, Values, is_event_named};
use std::collections::BTreeSet;

/// The selected events; by default all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Not before this moment (nanoseconds since the clock's origin).
    pub from_ns: Option<i64>,
    /// Not after this moment.
    pub to_ns: Option<i64>,
    /// Events whose name matches these, as [`is_event_named`] says; all if empty.
    pub events: PatternList,
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
        let origin = Origin::of(set, stream);
        let verdict = |event: usize| match set.event_class(stream, event) {
            Some(event) => self.verdict(&origin, class, event),
            None => Verdict::No,
        };
        (0..set.event_count(stream)).map(verdict).collect()
    }

    /// Whether events of this name are selected.
    pub(super) fn wants_name(&self, name: &str) -> bool {
        self.events.matches(|pattern| is_event_named(pattern, name))
    }

    fn verdict(&self, origin: &Origin, stream: &StreamClass, event: &EventClass) -> Verdict {
        if !self.wants_name(&event.name) {
            return Verdict::No;
        }
        let mut wanted = self.conditions.clone();
        wanted.extend(self.cpus.as_ref().filter(|_| says_cpu_in_events(stream)).and_then(is_on));
        if wanted.is_empty() {
            return Verdict::Yes;
        }
        let plan = picking_all(&[
            (Scope::StreamContext, stream.event_context.as_ref()),
            (Scope::EventContext, event.context.as_ref()),
            (Scope::Fields, event.fields.as_ref()),
        ]);
        let packet = picking_all(&[(Scope::PacketContext, stream.packet_context.as_ref())]);
        let mut used = false;
        let conditions: Vec<Condition<Place>> = wanted
            .iter()
            .map(|condition| {
                condition.map(&mut |name| {
                    let mut places = places(name, &plan, &packet);
                    used |= !places.is_empty();
                    let scale = origin.priority_scale(&event.name, name);
                    places.iter_mut().for_each(|place| place.priority = scale);
                    places
                })
            })
            .collect();
        if !used {
            // Nothing can hold of a field that is not there.
            let holds = conditions.iter().all(|condition| condition.holds(&mut |_| false));
            return if holds { Verdict::Yes } else { Verdict::No };
        }
        let mut tests = wanted.iter().flat_map(Condition::tests);
        let is_growing = tests.any(|test| test.tasks.as_ref().is_some_and(|spans| spans.is_growing()));
        let host = origin.host.clone();
        Verdict::Ask(Box::new(FieldCondition { plan, packet, conditions, is_growing, host }))
    }
}

/// Whether events of these streams say their CPU themselves, as programs' do: a stream of theirs is not a CPU's.
pub(super) fn says_cpu_in_events(stream: &StreamClass) -> bool {
    let has = |class: &Option<StructClass>| {
        class.iter().flat_map(|class| &class.fields).any(|(name, _)| shown_name(name) == "cpu_id")
    };
    has(&stream.event_context) && !has(&stream.packet_context)
}

/// The condition that such an event was on one of these CPUs.
fn is_on(cpus: &BTreeSet<u64>) -> Option<Condition> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let is = |comparison, cpu: u64| Condition::any_of(&["context.cpu_id"], comparison, &cpu.to_string());
    let conditions = ranges.into_iter().map(|(first, last)| {
        Condition::And(Box::new(is(Comparison::AtLeast, first)), Box::new(is(Comparison::AtMost, last)))
    });
    conditions.reduce(Condition::or)
}

/// What the trace of a stream says of numbers in it.
pub(super) struct Origin {
    /// Whose threads its numbers are; `None`: they may be of a container.
    host: Option<String>,
    /// The kernel's, as LTTng and rtscope write it.
    is_kernels: bool,
}

impl Origin {
    pub(super) fn of(set: &TraceSet, stream: &Stream) -> Origin {
        let trace = set.traces.get(stream.trace);
        let is_of = |wanted: &str| {
            let domain = trace.and_then(|trace| trace.env().get("domain"));
            matches!(domain, Some(EnvValue::Text(domain)) if domain == wanted)
        };
        let host = trace.filter(|_| !is_of("ust")).map(|trace| trace.host().to_owned());
        Origin { host, is_kernels: is_of("kernel") }
    }

    /// What is to be added to a field to get the kernel's priority; `None`: it is not a priority. LTTng counts from the first that is not
    /// real-time, perf as the kernel does.
    pub(super) fn priority_scale(&self, event: &str, field: &str) -> Option<i16> {
        const FIELDS: [&str; 7] =
            ["prio", "prev_prio", "next_prio", "oldprio", "newprio", "old_prio", "new_prio"];
        let of_scheduler = event.starts_with("sched") || event == "lttng_statedump_process_state";
        let field = field.rsplit('.').next().unwrap_or(field);
        // perf says that its traces are the kernel's, too; its names have a colon.
        let is_lttngs = self.is_kernels && !event.contains(':');
        (of_scheduler && FIELDS.contains(&field)).then_some(if is_lttngs { 100 } else { 0 })
    }
}

/// The location of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) packet: bool,
    pub(super) field: usize,
    /// It is a priority: see [`Origin::priority_scale`].
    priority: Option<i16>,
}

/// The places of a field: its own scope may be named (`fields.tid`); else the innermost scope that has it counts.
pub(super) fn places(name: &str, plan: &Plan, packet: &Plan) -> Vec<Place> {
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
                return vec![Place { packet: scope == Scope::PacketContext, field, priority: None }];
            }
        }
    }
    // Scopes are in the order of their decoding, so the last one is the innermost.
    let place = |packet: bool| move |field: usize| Place { packet, field, priority: None };
    let own = find(&plan.fields, None, name).map(place(false));
    let packets = || find(&packet.fields, None, name).map(place(true));
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
    /// Names of threads are asked for, of which more may be known when the event is given out.
    pub(crate) is_growing: bool,
    /// See [`Origin`].
    host: Option<String>,
}

impl FieldCondition {
    /// Of an event at a time.
    pub(crate) fn holds(&self, values: &Values<'_>, packet: &Values<'_>, time_ns: i64) -> bool {
        self.conditions
            .iter()
            .all(|condition| condition.holds(&mut |test| self.test(values, packet, time_ns, test)))
    }

    /// A missing field is neither equal nor unequal to anything.
    fn test(&self, values: &Values<'_>, packet: &Values<'_>, time_ns: i64, test: &Test<Place>) -> bool {
        test.fields.iter().any(|place| {
            let (plan, values) = if place.packet { (&self.packet, packet) } else { (&self.plan, values) };
            let value = values.get(place.field);
            let number = match value {
                Value::Unsigned(number) => Some(i128::from(number)),
                Value::Signed(number) => Some(number.into()),
                _ => None,
            };
            match (value, number) {
                (_, Some(tid)) if test.tasks.is_some() => {
                    let host = self.host.as_deref().zip(test.tasks.as_deref());
                    host.is_some_and(|(host, spans)| spans.has(host, tid, time_ns))
                }
                (_, Some(number)) => number_holds(plan, place, number, test),
                (Value::Float(number), _) => test.float_holds(number),
                (Value::Bytes(text), _) => test.text_holds(text),
                _ => false,
            }
        })
    }
}

/// An enumeration may be compared with its labels, too, and a priority with what people call it.
fn number_holds(plan: &Plan, place: &Place, number: i128, test: &Test<Place>) -> bool {
    let field = place.field;
    if let Some(scale) = place.priority.filter(|_| !test.is_number()) {
        let kernels = i16::try_from(number.saturating_add(scale.into()));
        return kernels.is_ok_and(|kernels| test.priority_holds(Priority(kernels)));
    }
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
