// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as JSON, one object a line. docs/event-formats.md describes them.

use super::number;
use super::who::{Namer, Who};
use rtscope_ctf::{
    EventView, FieldIndex, Format, Integer, Piece, Plan, SHORT_LITERAL, Scope, Shape, Stream, Style,
    TraceSet, Visit, WriteEvent,
};
use rtscope_event::Priority;

/// Name and version of the objects.
pub const EVENT_SCHEMA: &str = "rtscope.event/1";

struct Json;

impl Style for Json {
    fn scope(&self, scope: Scope, _: bool) -> String {
        let key = match scope {
            Scope::PacketHeader | Scope::EventHeader => "header",
            Scope::PacketContext => "packet",
            Scope::StreamContext => "context",
            Scope::EventContext => "event_context",
            Scope::Fields => "fields",
        };
        format!(",\"{key}\":")
    }

    fn open(&self, shape: Shape, _: u32) -> String {
        match shape {
            Shape::Struct => "{",
            Shape::Variant => "",
            Shape::Array => "[",
        }
        .to_owned()
    }

    fn close(&self, shape: Shape, _: u32) -> String {
        match shape {
            Shape::Struct => "}",
            Shape::Variant => "",
            Shape::Array => "]",
        }
        .to_owned()
    }

    fn member(&self, name: &str, first: bool, _: u32) -> String {
        let mut text = Vec::new();
        if !first {
            text.push(b',');
        }
        quoted(&mut text, name.as_bytes());
        text.push(b':');
        String::from_utf8(text).unwrap_or_default()
    }
}

struct StreamText {
    packet: Plan,
    /// For each class its name in quotes, its plan, and which of its fields are priorities.
    events: Vec<(Vec<u8>, Plan, Vec<PriorityField>)>,
    /// Its trace, where there are several.
    trace: Option<u64>,
}

/// A field that is a priority.
struct PriorityField {
    field: FieldIndex,
    /// In quotes.
    name: Vec<u8>,
    /// What is to be added to get the kernel's.
    scale: i16,
}

/// JSON lines.
pub struct JsonFormat {
    streams: Vec<StreamText>,
    who: Who,
}

impl JsonFormat {
    /// Prepares for the streams of a set.
    #[must_use]
    pub fn new(set: &TraceSet, who: Who) -> JsonFormat {
        let several = set.traces.len() > 1;
        let streams = set.streams.iter().map(|stream: &Stream| {
            let events = (0..set.event_count(stream)).map(|event| {
                let mut name = Vec::new();
                quoted(&mut name, set.event_name(stream, event).as_bytes());
                let plan = set.event_plan(stream, event, &Json);
                let priorities =
                    set.priorities(stream, event, &plan).into_iter().map(|(field, path, scale)| {
                        let mut name = Vec::new();
                        quoted(&mut name, path.as_bytes());
                        PriorityField { field, name, scale }
                    });
                let priorities = priorities.collect();
                (name, plan, priorities)
            });
            let trace = several.then_some(stream.trace as u64);
            StreamText { events: events.collect(), packet: set.packet_plan(stream, &Json), trace }
        });
        JsonFormat { streams: streams.collect(), who }
    }
}

impl Format for JsonFormat {
    type Writer<'f> = JsonWriter<'f>;

    fn writer(&self) -> JsonWriter<'_> {
        let packets = vec![(0, Vec::new()); self.streams.len()];
        JsonWriter { format: self, packets, namer: self.who.namer() }
    }

    fn gap(&self, _: Option<u64>, _: u64, _: &mut Vec<u8>) {}
}

/// Writes a piece.
pub struct JsonWriter<'f> {
    format: &'f JsonFormat,
    packets: Vec<(u64, Vec<u8>)>,
    namer: Namer<'f>,
}

impl WriteEvent for JsonWriter<'_> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let Some(stream) = self.format.streams.get(event.stream) else { return false };
        let Some((name, plan, priorities)) = stream.events.get(event.event) else { return false };
        let text = &mut piece.text;
        let start = text.len();
        text.extend_from_slice(b"{\"schema\":\"");
        text.extend_from_slice(EVENT_SCHEMA.as_bytes());
        text.extend_from_slice(b"\",\"time_ns\":");
        match event.ns {
            Some(ns) => number::signed(text, ns),
            None => text.extend_from_slice(b"null"),
        }
        if let Some(late_ns) = event.late_ns {
            text.extend_from_slice(b",\"late_ns\":");
            number::decimal(text, late_ns);
        }
        if let Some(trace) = stream.trace {
            text.extend_from_slice(b",\"trace\":");
            number::decimal(text, trace);
        }
        let thread = self.namer.of(event);
        if let Some(cpu) = event.cpu.or(thread.and_then(|thread| thread.cpu)) {
            text.extend_from_slice(b",\"cpu\":");
            number::decimal(text, cpu);
        }
        if let Some(thread) = thread {
            for (key, number) in [("pid", thread.pid), ("tid", Some(thread.tid))] {
                if let Some(number) = number {
                    text.extend_from_slice(format!(",\"{key}\":{number}").as_bytes());
                }
            }
            if let Some(comm) = thread.comm {
                text.extend_from_slice(b",\"comm\":");
                quoted(text, comm.as_bytes());
            }
        }
        text.extend_from_slice(b",\"event\":");
        text.extend_from_slice(name);
        if let Some((packet, context)) = self.packets.get_mut(event.stream) {
            if *packet != event.packet {
                *packet = event.packet;
                context.clear();
                event.show_context(&stream.packet, &mut Text::new(context, &[]));
            }
            text.extend_from_slice(context);
        }
        let mut shown = Text::new(text, priorities);
        let whole = event.show(plan, &mut shown);
        let said = shown.said;
        if !whole {
            text.truncate(start);
            return false;
        }
        if !said.is_empty() {
            text.extend_from_slice(b",\"priorities\":{");
            text.extend_from_slice(&said);
            text.push(b'}');
        }
        text.extend_from_slice(b"}\n");
        true
    }
}

struct Text<'t> {
    text: &'t mut Vec<u8>,
    start: usize,
    priorities: &'t [PriorityField],
    /// What people call those so far.
    said: Vec<u8>,
}

impl<'t> Text<'t> {
    fn new(text: &'t mut Vec<u8>, priorities: &'t [PriorityField]) -> Text<'t> {
        let start = text.len();
        Text { text, start, priorities, said: Vec::new() }
    }

    #[cold]
    fn priority(&mut self, field: &PriorityField, value: i64) {
        let Ok(priority) = i16::try_from(value.saturating_add(field.scale.into())) else { return };
        if !self.said.is_empty() {
            self.said.push(b',');
        }
        self.said.extend_from_slice(&field.name);
        self.said.extend_from_slice(format!(":\"{}\"", Priority(priority)).as_bytes());
    }
}

impl Visit for Text<'_> {
    fn literal(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    #[inline]
    fn short_literal(&mut self, text: &[u8; SHORT_LITERAL], length: usize) {
        number::prefix(self.text, text, length);
    }

    fn integer(&mut self, plan: &Plan, integer: &Integer, value: u64) {
        let show = |text: &mut Vec<u8>| match integer.signed {
            true => number::signed(text, value as i64),
            false => number::decimal(text, value),
        };
        if let Some(field) = self.priorities.iter().find(|known| known.field == integer.field) {
            self.priority(field, value as i64);
        }
        let Some(enumeration) = plan.enumeration(integer) else { return show(self.text) };
        self.text.extend_from_slice(b"{\"value\":");
        show(self.text);
        self.text.extend_from_slice(b",\"labels\":[");
        let number = if integer.signed { i128::from(value as i64) } else { i128::from(value) };
        for (place, label) in enumeration.labels(number).enumerate() {
            if place > 0 {
                self.text.push(b',');
            }
            quoted(self.text, label.as_bytes());
        }
        self.text.extend_from_slice(b"]}");
    }

    fn float(&mut self, _: FieldIndex, value: f64) {
        match value.is_finite() {
            true => self.text.extend_from_slice(format!("{value:?}").as_bytes()),
            // JSON has no word for them.
            false => self.text.extend_from_slice(b"null"),
        }
    }

    fn text(&mut self, _: FieldIndex, text: &[u8]) {
        quoted(self.text, text);
    }

    fn element(&mut self, index: u64) {
        if index > 0 {
            self.text.push(b',');
        }
    }

    fn restart(&mut self) {
        self.text.truncate(self.start);
        self.said.clear();
    }
}

/// Appends a JSON string. What is not UTF-8 becomes U+FFFD.
pub(super) fn quoted(text: &mut Vec<u8>, value: &[u8]) {
    text.push(b'"');
    match std::str::from_utf8(value) {
        Ok(value) => escaped(text, value),
        Err(_) => escaped(text, &String::from_utf8_lossy(value)),
    }
    text.push(b'"');
}

fn escaped(text: &mut Vec<u8>, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            0..32 | 127 => text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => text.push(byte),
        }
    }
}
