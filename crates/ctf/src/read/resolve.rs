// SPDX-License-Identifier: Apache-2.0 OR MIT
//! References between fields: paths of the metadata → slots of the decoder.
//!
//! A path either begins with the name of a scope (`stream.event.header.id`), or is looked up in the structs around the
//! field, innermost first. A path can only refer to an earlier field. In three passes, since a tree cannot be read and
//! changed at once: integers get numbers, paths are followed to numbers, numbers become slots.
//!
//! Each scope is walked once, also one that many events share, and names are looked up in an index: hostile metadata must not take
//! time that grows faster than its text.

use super::class::{
    Choice, ClockClass, EventClass, FieldClass, IntegerClass, NO_SLOT, Reference, Slot, StructClass,
    TraceClass, VariantClass, shown_name,
};
use rtscope_event::exact;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The scopes, in the order of their decoding.
const SCOPES: [&str; 6] = [
    "trace.packet.header.",
    "stream.packet.context.",
    "stream.event.header.",
    "stream.event.context.",
    "event.context.",
    "event.fields.",
];

/// Resolves all references, and finds each stream's clock. `copied` is told of parts that are made without being written down, and
/// refuses too many.
pub(super) fn resolve(trace: &mut TraceClass, copied: &mut dyn FnMut(usize) -> bool) -> Result<(), String> {
    map_by_name(trace);
    let mut next = 0;
    for_each_scope(trace, &mut |class| number(class, &mut next));
    let targets = targets(trace, copied)?;
    let mut slots: HashMap<u32, Slot> = HashMap::new();
    for (target, _) in targets.values() {
        let slot = exact::count(slots.len());
        slots.entry(*target).or_insert(slot);
    }
    trace.slots = exact::count(slots.len());
    for_each_scope(trace, &mut |class| apply(class, &targets, &slots));
    find_clocks(trace)
}

fn for_each_scope(trace: &mut TraceClass, visit: &mut dyn FnMut(&mut StructClass)) {
    let streams = trace
        .streams
        .iter_mut()
        .flat_map(|stream| [&mut stream.packet_context, &mut stream.event_header, &mut stream.event_context]);
    let events = trace.events.iter_mut().flat_map(|event| [&mut event.context, &mut event.fields]);
    let scopes = std::iter::once(&mut trace.packet_header).chain(streams).chain(events);
    scopes.flatten().for_each(visit);
}

/// Numbers all integers and references.
fn number(class: &mut StructClass, next: &mut u32) {
    for (_, field) in &mut class.fields {
        number_field(field, next);
    }
}

fn number_field(field: &mut FieldClass, next: &mut u32) {
    *next += 1;
    match field {
        FieldClass::Integer(integer) => integer.node = *next,
        FieldClass::Struct(class) => number(class, next),
        FieldClass::Array { element, .. } => number_field(element, next),
        FieldClass::Sequence { element, length } => {
            length.node = *next;
            number_field(element, next);
        }
        FieldClass::Variant(class) => {
            if let Some(tag) = &mut class.tag {
                tag.node = *next;
            }
            for (_, option) in &mut class.options {
                number_field(option, next);
            }
        }
        FieldClass::Float { .. } | FieldClass::Text => {}
    }
}

/// By number of the reference: the number of its target, and the choices if it is a tag.
type Targets = BTreeMap<u32, (u32, Vec<Choice>)>;

fn targets(trace: &TraceClass, copied: &mut dyn FnMut(usize) -> bool) -> Result<Targets, String> {
    let mut finder = Finder {
        targets: Targets::new(),
        copied,
        scopes: [None; SCOPES.len()],
        around: Vec::new(),
        indices: HashMap::new(),
    };
    finder.scope(0, trace.packet_header.as_ref())?;
    let mut events: HashMap<u64, Vec<&EventClass>> = HashMap::new();
    for event in &trace.events {
        events.entry(event.stream_id).or_default().push(event);
    }
    for stream in &trace.streams {
        finder.scope(1, stream.packet_context.as_ref())?;
        finder.scope(2, stream.event_header.as_ref())?;
        finder.scope(3, stream.event_context.as_ref())?;
        for event in events.remove(&stream.id).unwrap_or_default() {
            finder.event(event)?;
        }
        finder.scopes[1..].fill(None);
    }
    // Events without a stream.
    events.into_values().flatten().try_for_each(|event| finder.event(event))?;
    Ok(finder.targets)
}

/// Places of the fields of a struct, by their names in the metadata and as readers show them. In ascending order.
struct FieldIndex<'c> {
    exact: HashMap<&'c str, Vec<usize>>,
    shown: HashMap<&'c str, Vec<usize>>,
}

impl<'c> FieldIndex<'c> {
    fn new(fields: &'c [(String, FieldClass)]) -> FieldIndex<'c> {
        let mut index = FieldIndex { exact: HashMap::new(), shown: HashMap::new() };
        for (place, (name, _)) in fields.iter().enumerate() {
            index.exact.entry(name.as_str()).or_default().push(place);
            index.shown.entry(shown_name(name)).or_default().push(place);
        }
        index
    }

    /// The last field of this name before a place.
    fn find(&self, name: &str, before: usize) -> Option<usize> {
        let last = |places: &Vec<usize>| {
            let count = places.partition_point(|place| *place < before);
            places.get(count.checked_sub(1)?).copied()
        };
        self.exact.get(name).and_then(last).or_else(|| self.shown.get(name).and_then(last))
    }
}

/// Follows the paths of scopes.
struct Finder<'c, 't> {
    targets: Targets,
    copied: &'t mut dyn FnMut(usize) -> bool,
    scopes: [Option<&'c StructClass>; SCOPES.len()],
    /// The structs around the field, outermost first, and how many of their fields come before it.
    around: Vec<(&'c StructClass, usize)>,
    /// By the address of the fields.
    indices: HashMap<*const (String, FieldClass), FieldIndex<'c>>,
}

impl<'c> Finder<'c, '_> {
    fn event(&mut self, event: &'c EventClass) -> Result<(), String> {
        self.scope(4, event.context.as_ref())?;
        self.scope(5, event.fields.as_ref())?;
        self.scopes[4..].fill(None);
        Ok(())
    }

    fn scope(&mut self, place: usize, class: Option<&'c StructClass>) -> Result<(), String> {
        self.around.clear();
        if let Some(scope) = self.scopes.get_mut(place) {
            *scope = class;
        }
        class.map_or(Ok(()), |class| self.structure(class))
    }

    fn structure(&mut self, class: &'c StructClass) -> Result<(), String> {
        for (place, (_, field)) in class.fields.iter().enumerate() {
            self.around.push((class, place));
            self.field(field)?;
            self.around.pop();
        }
        Ok(())
    }

    fn field(&mut self, field: &'c FieldClass) -> Result<(), String> {
        match field {
            FieldClass::Struct(class) => self.structure(class),
            FieldClass::Array { element, .. } => self.field(element),
            FieldClass::Sequence { element, length } => {
                let target = self.follow(length)?;
                self.targets.insert(length.node, (target.node, Vec::new()));
                self.field(element)
            }
            FieldClass::Variant(class) => {
                self.variant(class)?;
                class.options.iter().try_for_each(|(_, option)| self.field(option))
            }
            FieldClass::Integer(_) | FieldClass::Float { .. } | FieldClass::Text => Ok(()),
        }
    }

    fn variant(&mut self, class: &'c VariantClass) -> Result<(), String> {
        let tag = class.tag.as_ref().ok_or("a variant is used without a tag: `variant NAME <tag>`")?;
        let target = self.follow(tag)?;
        let mappings = target.mappings.as_deref();
        let mappings =
            mappings.ok_or_else(|| format!("`{}`, a variant's tag, is not an enumeration", tag.path))?;
        // Each variant of a long enumeration is a pass over it.
        if !(self.copied)(mappings.all.len()) {
            return Err("the variants have more choices than such a text can need".to_owned());
        }
        let mut exact = HashMap::new();
        let mut shown = HashMap::new();
        for (option, (name, _)) in class.options.iter().enumerate() {
            exact.entry(name.as_str()).or_insert(option);
            shown.entry(shown_name(name)).or_insert(option);
        }
        let mut choices = Vec::new();
        for mapping in &mappings.all {
            let label = mapping.label.as_str();
            if let Some(option) = exact.get(label).or_else(|| shown.get(shown_name(label))) {
                choices.push(Choice { first: mapping.first, last: mapping.last, option: *option });
            }
        }
        self.targets.insert(tag.node, (target.node, choices));
        Ok(())
    }

    /// The integer that a path leads to.
    fn follow(&mut self, reference: &Reference) -> Result<&'c IntegerClass, String> {
        let path = reference.path.as_str();
        let absolute = SCOPES.iter().zip(&self.scopes).find_map(|(prefix, scope)| {
            let rest = path.strip_prefix(prefix)?;
            Some((*scope)?.fields.as_slice()).map(|fields| (fields, rest))
        });
        let found = match absolute {
            Some((fields, rest)) => self.descend(fields, usize::MAX, rest),
            None => {
                let around: Vec<(&'c StructClass, usize)> = self.around.iter().rev().copied().collect();
                around.into_iter().find_map(|(class, before)| self.descend(&class.fields, before, path))
            }
        };
        found.ok_or_else(|| format!("`{path}` is not an integer field before the one that refers to it"))
    }

    /// Goes down a dotted path from one of the fields before a place.
    fn descend(
        &mut self,
        fields: &'c [(String, FieldClass)],
        before: usize,
        path: &str,
    ) -> Option<&'c IntegerClass> {
        let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let index = self.indices.entry(fields.as_ptr()).or_insert_with(|| FieldIndex::new(fields));
        let (_, class) = fields.get(index.find(name, before)?)?;
        match (class, rest) {
            (FieldClass::Integer(integer), None) => Some(integer),
            (FieldClass::Struct(class), Some(rest)) => self.descend(&class.fields, usize::MAX, rest),
            (FieldClass::Variant(class), Some(rest)) => self.descend(&class.options, usize::MAX, rest),
            _ => None,
        }
    }
}

/// Writes the slots into the classes.
fn apply(class: &mut StructClass, targets: &Targets, slots: &HashMap<u32, Slot>) {
    for (_, field) in &mut class.fields {
        apply_field(field, targets, slots);
    }
}

fn apply_field(field: &mut FieldClass, targets: &Targets, slots: &HashMap<u32, Slot>) {
    let slot_of = |target: u32| slots.get(&target).copied().unwrap_or(NO_SLOT);
    match field {
        FieldClass::Integer(integer) => integer.slot = slot_of(integer.node),
        FieldClass::Struct(class) => apply(class, targets, slots),
        FieldClass::Array { element, .. } => apply_field(element, targets, slots),
        FieldClass::Sequence { element, length } => {
            if let Some((target, _)) = targets.get(&length.node) {
                length.slot = slot_of(*target);
            }
            apply_field(element, targets, slots);
        }
        FieldClass::Variant(class) => {
            let tag = class.tag.as_mut();
            if let Some((tag, (target, choices))) =
                tag.and_then(|tag| targets.get(&tag.node).map(|to| (tag, to)))
            {
                tag.slot = slot_of(*target);
                class.choices.clone_from(choices);
            }
            for (_, option) in &mut class.options {
                apply_field(option, targets, slots);
            }
        }
        FieldClass::Float { .. } | FieldClass::Text => {}
    }
}

/// Timestamps that are mapped to no clock belong to the only one, or to one that counts nanoseconds from 0.
fn map_by_name(trace: &mut TraceClass) {
    if trace.clocks.len() > 1 {
        return;
    }
    let name: Arc<str> = trace.clocks.first().map_or("default", |clock| &clock.name).into();
    let mut mapped = false;
    for stream in &mut trace.streams {
        if let Some(header) = &mut stream.event_header {
            map_fields(&mut header.fields, "timestamp", &name, &mut mapped);
        }
        if let Some(context) = &mut stream.packet_context {
            map_fields(&mut context.fields, "timestamp_begin", &name, &mut mapped);
        }
    }
    if mapped && trace.clocks.is_empty() {
        trace.clocks.push(ClockClass { name: name.to_string(), ..ClockClass::default() });
    }
}

fn map_fields(fields: &mut [(String, FieldClass)], wanted: &str, clock: &Arc<str>, mapped: &mut bool) {
    for (name, field) in fields {
        match field {
            FieldClass::Integer(integer) if shown_name(name) == wanted && integer.clock.is_none() => {
                integer.clock = Some(Arc::clone(clock));
                *mapped = true;
            }
            FieldClass::Struct(class) => map_fields(&mut class.fields, wanted, clock, mapped),
            FieldClass::Variant(class) => map_fields(&mut class.options, wanted, clock, mapped),
            _ => {}
        }
    }
}

/// A stream has the clock that its integers are mapped to; it can only have one.
fn find_clocks(trace: &mut TraceClass) -> Result<(), String> {
    let places: HashMap<&str, usize> =
        trace.clocks.iter().enumerate().map(|(place, clock)| (clock.name.as_str(), place)).collect();
    let mut of_events: HashMap<u64, BTreeSet<String>> = HashMap::new();
    for event in &trace.events {
        let names = of_events.entry(event.stream_id).or_default();
        [&event.context, &event.fields].into_iter().flatten().for_each(|class| clock_names(class, names));
    }
    for stream in &mut trace.streams {
        let mut names = of_events.remove(&stream.id).unwrap_or_default();
        let scopes = [&stream.packet_context, &stream.event_header, &stream.event_context];
        scopes.into_iter().flatten().for_each(|class| clock_names(class, &mut names));
        let names: Vec<&String> = names.iter().collect();
        stream.clock = match names.as_slice() {
            [] => None,
            [name] => match places.get(name.as_str()) {
                Some(place) => Some(*place),
                None => return Err(format!("there is no clock `{name}`")),
            },
            [one, other, ..] => {
                return Err(format!("stream {} has two clocks, `{one}` and `{other}`", stream.id));
            }
        };
    }
    Ok(())
}

fn clock_names(class: &StructClass, names: &mut BTreeSet<String>) {
    for (_, field) in &class.fields {
        clock_names_of(field, names);
    }
}

fn clock_names_of(field: &FieldClass, names: &mut BTreeSet<String>) {
    match field {
        FieldClass::Integer(integer) => {
            if let Some(name) = integer.clock.as_deref().filter(|name| !names.contains(*name)) {
                names.insert(name.to_owned());
            }
        }
        FieldClass::Struct(class) => clock_names(class, names),
        FieldClass::Array { element, .. } | FieldClass::Sequence { element, .. } => {
            clock_names_of(element, names)
        }
        FieldClass::Variant(class) => {
            class.options.iter().for_each(|(_, option)| clock_names_of(option, names));
        }
        FieldClass::Float { .. } | FieldClass::Text => {}
    }
}
