// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as CSV: `time_ns,cpu,event,pid,tid,comm`, then the fields, all in one column or chosen ones in their own.

use super::number;
use super::tame::tame;
use super::who::{Namer, Who};
use rtscope_ctf::{
    EventView, FieldIndex, Format, Integer, NoStyle, Piece, Plan, Scope, Shape, Stream, Style, TraceSet,
    Visit, WriteEvent,
};

/// `name=value name=value`
struct Pairs;

impl Style for Pairs {
    fn scope(&self, _: Scope, first: bool) -> String {
        if first { String::new() } else { " ".to_owned() }
    }

    fn open(&self, shape: Shape, depth: u32) -> String {
        match shape {
            Shape::Struct if depth > 0 => "{".to_owned(),
            Shape::Array => "[".to_owned(),
            _ => String::new(),
        }
    }

    fn close(&self, shape: Shape, depth: u32) -> String {
        match shape {
            Shape::Struct if depth > 0 => "}".to_owned(),
            Shape::Array => "]".to_owned(),
            _ => String::new(),
        }
    }

    fn member(&self, name: &str, first: bool, _: u32) -> String {
        format!("{}{name}=", if first { "" } else { " " })
    }
}

struct EventText {
    name: Vec<u8>,
    plan: Plan,
    /// For each of the plan's fields its column.
    columns: Vec<Option<usize>>,
}

struct StreamText {
    packet: Plan,
    packet_columns: Vec<Option<usize>>,
    events: Vec<EventText>,
}

/// CSV as in RFC 4180, but for ends of lines, which are single.
pub struct CsvFormat {
    streams: Vec<StreamText>,
    fields: Vec<String>,
    who: Who,
}

impl CsvFormat {
    /// Prepares for the streams of a set. Without `fields` all are in one column.
    #[must_use]
    pub fn new(set: &TraceSet, fields: &[String], who: Who) -> CsvFormat {
        let column = |path: &str| fields.iter().position(|field| field == path);
        let columns = |plan: &Plan| plan.fields.iter().map(|field| column(&field.path)).collect();
        let style: &dyn Style = if fields.is_empty() { &Pairs } else { &NoStyle };
        let streams = set.streams.iter().map(|stream: &Stream| {
            let packet = set.packet_plan(stream, style);
            let events = (0..set.event_count(stream)).map(|event| {
                let mut name = Vec::new();
                cell(&mut name, set.event_name(stream, event).as_bytes());
                let plan = set.event_plan(stream, event, style);
                EventText { name, columns: columns(&plan), plan }
            });
            StreamText { events: events.collect(), packet_columns: columns(&packet), packet }
        });
        CsvFormat { streams: streams.collect(), fields: fields.to_vec(), who }
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> String {
        let mut text = b"time_ns,cpu,event,pid,tid,comm".to_vec();
        for field in &self.fields {
            text.push(b',');
            cell(&mut text, field.as_bytes());
        }
        if self.fields.is_empty() {
            text.extend_from_slice(b",fields");
        }
        text.push(b'\n');
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Format for CsvFormat {
    type Writer<'f> = CsvWriter<'f>;

    fn writer(&self) -> CsvWriter<'_> {
        let cells = vec![Vec::new(); self.fields.len().max(1)];
        CsvWriter { format: self, cells, namer: self.who.namer() }
    }

    fn gap(&self, _: Option<u64>, _: u64, _: &mut Vec<u8>) {}
}

/// Writes a piece.
pub struct CsvWriter<'f> {
    format: &'f CsvFormat,
    cells: Vec<Vec<u8>>,
    namer: Namer<'f>,
}

impl WriteEvent for CsvWriter<'_> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let Some(stream) = self.format.streams.get(event.stream) else { return false };
        let Some(texts) = stream.events.get(event.event) else { return false };
        self.cells.iter_mut().for_each(Vec::clear);
        let thread = self.namer.of(event);
        let one = self.format.fields.is_empty();
        if !one {
            event.show_context(
                &stream.packet,
                &mut Cells { cells: &mut self.cells, columns: &stream.packet_columns, one },
            );
        }
        if !event.show(&texts.plan, &mut Cells { cells: &mut self.cells, columns: &texts.columns, one }) {
            return false;
        }
        let text = &mut piece.text;
        let start = text.len();
        if let Some(ns) = event.ns {
            number::signed(text, ns);
        }
        text.push(b',');
        if let Some(cpu) = event.cpu.or(thread.and_then(|thread| thread.cpu)) {
            number::decimal(text, cpu);
        }
        text.push(b',');
        text.extend_from_slice(&texts.name);
        for number in [thread.and_then(|thread| thread.pid), thread.map(|thread| thread.tid)] {
            text.push(b',');
            if let Some(number) = number {
                number::decimal(text, number.into());
            }
        }
        text.push(b',');
        if let Some(comm) = thread.and_then(|thread| thread.comm) {
            let plain = |byte: &u8| if *byte < 32 { b' ' } else { *byte };
            let comm: Vec<u8> = comm.as_bytes().iter().map(plain).collect();
            cell(text, &comm);
        }
        for value in &self.cells {
            text.push(b',');
            cell(text, value);
        }
        tame(text, start);
        text.push(b'\n');
        true
    }
}

struct Cells<'c> {
    cells: &'c mut Vec<Vec<u8>>,
    columns: &'c [Option<usize>],
    /// All goes into one.
    one: bool,
}

impl Cells<'_> {
    fn put(&mut self, field: FieldIndex, write: impl FnOnce(&mut Vec<u8>)) {
        let column = if self.one { Some(0) } else { self.columns.get(usize::from(field)).copied().flatten() };
        if let Some(cell) = column.and_then(|column| self.cells.get_mut(column)) {
            if !self.one {
                // The innermost scope of that name counts, and it comes last.
                cell.clear();
            }
            write(cell);
        }
    }
}

impl Visit for Cells<'_> {
    fn literal(&mut self, text: &[u8]) {
        self.put(0, |cell| cell.extend_from_slice(text));
    }

    fn integer(&mut self, plan: &Plan, integer: &Integer, value: u64) {
        let number = if integer.signed { i128::from(value as i64) } else { i128::from(value) };
        let label = plan.enumeration(integer).and_then(|enumeration| enumeration.labels(number).next());
        self.put(integer.field, |cell| match label {
            Some(label) => cell.extend_from_slice(label.as_bytes()),
            None => number::integer(cell, integer, value),
        });
    }

    fn float(&mut self, field: FieldIndex, value: f64) {
        self.put(field, |cell| cell.extend_from_slice(value.to_string().as_bytes()));
    }

    fn text(&mut self, field: FieldIndex, text: &[u8]) {
        // A line is an event.
        let plain = |byte: &u8| if *byte < 32 { b' ' } else { *byte };
        self.put(field, |cell| cell.extend(text.iter().map(plain)));
    }

    fn element(&mut self, index: u64) {
        if self.one && index > 0 {
            self.put(0, |cell| cell.push(b' '));
        }
    }

    fn restart(&mut self) {
        // Chosen fields are written anew, and those of the packet's context stay.
        if self.one {
            self.cells.iter_mut().for_each(Vec::clear);
        }
    }
}

/// Appends a cell, in quotes where that is needed. What is not UTF-8 stays as it is.
fn cell(text: &mut Vec<u8>, value: &[u8]) {
    if !value.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        return text.extend_from_slice(value);
    }
    text.push(b'"');
    for byte in value {
        if *byte == b'"' {
            text.push(b'"');
        }
        text.push(*byte);
    }
    text.push(b'"');
}
