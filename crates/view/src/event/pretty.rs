// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as babeltrace2 prints them: byte for byte what version 2.0.4 has without options; or the same for people, with the thread and the
//! CPU before the name.

use super::shared::SharedByClass;
use super::tame::tame;
use super::who::{Namer, Who, said_before};
use super::{Clock, number};
use rtscope_ctf::{
    EnvValue, EventView, FieldIndex, Format, Integer, OpenTrace, Piece, Plan, SHORT_LITERAL, Scope, Shape,
    Stream, Style, TraceSet, Visit, WriteEvent,
};
use std::sync::Arc;

/// The text between values.
struct Pretty {
    /// The packet's context comes before.
    follows: bool,
}

impl Style for Pretty {
    fn scope(&self, _: Scope, first: bool) -> String {
        if first && !self.follows { String::new() } else { ", ".to_owned() }
    }

    fn open(&self, shape: Shape, _: u32) -> String {
        match shape {
            Shape::Struct => "{",
            Shape::Variant => "{ ",
            Shape::Array => "[",
        }
        .to_owned()
    }

    fn close(&self, shape: Shape, _: u32) -> String {
        match shape {
            Shape::Struct | Shape::Variant => " }",
            Shape::Array => " ]",
        }
        .to_owned()
    }

    fn member(&self, name: &str, first: bool, _: u32) -> String {
        format!("{} {name} = ", if first { "" } else { "," })
    }
}

struct EventText {
    /// Host and process, then the name.
    name: Vec<u8>,
    plan: Plan,
    /// Names of events and fields.
    is_ascii: bool,
}

struct StreamText {
    packet: Plan,
    events: Arc<[EventText]>,
}

/// Events' texts are the same in all streams of a class, with and without the packet's context before them.
#[derive(Default)]
struct SharedTexts {
    alone: SharedByClass<EventText>,
    following: SharedByClass<EventText>,
}

/// Text as babeltrace2's.
pub struct PrettyFormat {
    streams: Vec<StreamText>,
    clock: Clock,
    /// Show the clocks' own values.
    raw: bool,
    /// For people: the thread and the CPU are before the name.
    who: Option<Who>,
}

impl PrettyFormat {
    /// Prepares for the streams of a set. `raw` shows the clocks' own values instead of times of day.
    #[must_use]
    pub fn new(set: &TraceSet, clock: Clock, raw: bool) -> PrettyFormat {
        let mut shared = SharedTexts::default();
        let streams = set.streams.iter().map(|stream| stream_text(set, stream, false, &mut shared));
        PrettyFormat { streams: streams.collect(), clock, raw, who: None }
    }

    /// The same with `name/tid [cpu]` before the name of each event, as far as they are known. What that says already (the host, if there
    /// is only one; thread, process and CPU in contexts) is left out.
    #[must_use]
    pub fn for_people(set: &TraceSet, clock: Clock, raw: bool, who: Who) -> PrettyFormat {
        let mut shared = SharedTexts::default();
        let streams = set.streams.iter().map(|stream| stream_text(set, stream, true, &mut shared));
        PrettyFormat { streams: streams.collect(), clock, raw, who: Some(who) }
    }
}

fn stream_text(set: &TraceSet, stream: &Stream, for_people: bool, shared: &mut SharedTexts) -> StreamText {
    let mut packet = set.packet_plan(stream, &Pretty { follows: false });
    let mut hosts = set.traces.iter().map(OpenTrace::host);
    let first = hosts.next();
    let has_one_host = hosts.all(|host| Some(host) == first);
    let says_cpu_only = stream.cpu.is_some() && packet.fields.iter().all(|field| field.path == "cpu_id");
    if for_people && says_cpu_only {
        packet = Plan::default();
    }
    let follows = !packet.is_silent();
    let origin = set.traces.get(stream.trace).filter(|_| !(for_people && has_one_host));
    let origin = origin.map(origin_text).unwrap_or_default();
    let shared = if follows { &mut shared.following } else { &mut shared.alone };
    let events = shared.of(stream, || {
        let text = |event| {
            let said = if for_people { said_before(set, stream, event) } else { Vec::new() };
            let hidden = |scope, name: &str| scope != Scope::Fields && said.iter().any(|said| said == name);
            let name = format!("{origin}{}: ", set.event_name(stream, event)).into_bytes();
            let plan = set.event_plan_without(stream, event, &Pretty { follows }, &hidden);
            let is_ascii = name.is_ascii() && plan.has_ascii_literals();
            EventText { name, plan, is_ascii }
        };
        (0..set.event_count(stream)).map(text).collect()
    });
    StreamText { events, packet }
}

/// `host:process:(pid) `, as far as the trace says.
fn origin_text(trace: &OpenTrace) -> String {
    let mut parts = Vec::new();
    for key in ["hostname", "procname"] {
        if let Some(EnvValue::Text(text)) = trace.env().get(key) {
            parts.push(text.clone());
        }
    }
    if let Some(EnvValue::Number(pid)) = trace.env().get("vpid") {
        parts.push(format!("({pid})"));
    }
    if parts.is_empty() { String::new() } else { parts.join(":") + " " }
}

impl Format for PrettyFormat {
    type Writer<'f> = PrettyWriter<'f>;

    fn writer(&self) -> PrettyWriter<'_> {
        PrettyWriter {
            format: self,
            packets: vec![Context::default(); self.streams.len()],
            second: (i64::MIN, [0; 9]),
            before: None,
            namer: self.who.as_ref().map(Who::namer),
        }
    }

    fn gap(&self, before: Option<u64>, first: u64, text: &mut Vec<u8>) {
        gap(text, b'+', before.map(|before| first.wrapping_sub(before)), self.raw);
    }
}

fn gap(text: &mut Vec<u8>, sign: u8, difference: Option<u64>, raw: bool) {
    const SECOND: u64 = 1_000_000_000;
    text.push(sign);
    match difference {
        None if raw => text.extend_from_slice(&[b'?'; 12]),
        None => text.extend_from_slice(b"?.?????????"),
        Some(cycles) if raw => number::padded(text, cycles, 12),
        Some(ns) => {
            number::decimal(text, ns / SECOND);
            text.push(b'.');
            text.extend_from_slice(&number::nine(ns % SECOND));
        }
    }
}

/// A packet's context as text.
#[derive(Clone)]
struct Context {
    packet: u64,
    text: Vec<u8>,
    is_ascii: bool,
}

impl Default for Context {
    fn default() -> Context {
        Context { packet: 0, text: Vec::new(), is_ascii: true }
    }
}

/// Writes a piece.
pub struct PrettyWriter<'f> {
    format: &'f PrettyFormat,
    /// Of each stream.
    packets: Vec<Context>,
    /// The second, and the text up to its point.
    second: (i64, [u8; 9]),
    before: Option<u64>,
    namer: Option<Namer<'f>>,
}

impl WriteEvent for PrettyWriter<'_> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let format = self.format;
        let Some(stream) = format.streams.get(event.stream) else { return false };
        let Some(texts) = stream.events.get(event.event) else { return false };
        let start = (piece.text.len(), piece.first, self.before);
        if let Some(ns) = event.ns {
            self.time(piece, ns, event.cycles, event.late_ns);
        }
        if let Some(namer) = &mut self.namer {
            namer.prefix(&mut piece.text, event);
        }
        let named = piece.text.len();
        piece.text.extend_from_slice(&texts.name);
        let mut is_ascii = texts.is_ascii;
        if let Some(context) = self.packets.get_mut(event.stream) {
            if context.packet != event.packet {
                context.packet = event.packet;
                context.text.clear();
                let mut text =
                    Text { text: &mut context.text, start: 0, is_ascii: stream.packet.has_ascii_literals() };
                event.show_context(&stream.packet, &mut text);
                context.is_ascii = text.is_ascii;
            }
            piece.text.extend_from_slice(&context.text);
            is_ascii &= context.is_ascii;
        }
        let at = piece.text.len();
        let mut text = Text { text: &mut piece.text, start: at, is_ascii };
        if event.show(&texts.plan, &mut text) {
            if !text.is_ascii && self.namer.is_some() {
                tame(&mut piece.text, named);
            }
            piece.text.push(b'\n');
            piece.last = self.before;
            return true;
        }
        piece.text.truncate(start.0);
        (piece.first, self.before) = (start.1, start.2);
        false
    }
}

impl PrettyWriter<'_> {
    /// `[HH:MM:SS.nnnnnnnnn] (+S.nnnnnnnnn) `, and `(-S.nnnnnnnnn late) ` for one that is out of order.
    fn time(&mut self, piece: &mut Piece, ns: i64, cycles: u64, late_ns: Option<u64>) {
        let raw = self.format.raw;
        piece.text.push(b'[');
        if raw {
            number::padded(&mut piece.text, cycles, 20);
        } else {
            self.wall(&mut piece.text, ns);
        }
        piece.text.extend_from_slice(b"] (");
        if let Some(late_ns) = late_ns {
            gap(&mut piece.text, b'-', Some(late_ns), false);
            // The next event counts from the one before this.
            return piece.text.extend_from_slice(b" late) ");
        }
        let now = if raw { cycles } else { ns as u64 };
        match self.before {
            Some(before) => gap(&mut piece.text, b'+', Some(now.wrapping_sub(before)), raw),
            None => piece.first = Some((now, piece.text.len())),
        }
        self.before = Some(now);
        piece.text.extend_from_slice(b") ");
    }

    fn wall(&mut self, text: &mut Vec<u8>, ns: i64) {
        const SECOND: i64 = 1_000_000_000;
        if ns < 0 {
            // Before 1970, where babeltrace2 shows seconds.
            text.push(b'-');
            number::decimal(text, (ns / SECOND).unsigned_abs());
            text.push(b'.');
            return text.extend_from_slice(&number::nine((ns % SECOND).unsigned_abs()));
        }
        let second = ns / SECOND;
        if second != self.second.0 {
            self.second = (second, (self.format.clock)(second));
        }
        text.extend_from_slice(&self.second.1);
        text.extend_from_slice(&number::nine((ns % SECOND) as u64));
    }
}

/// Values after the text of the style.
struct Text<'t> {
    text: &'t mut Vec<u8>,
    start: usize,
    /// As far as is known: all that was written.
    is_ascii: bool,
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
        let Some(enumeration) = plan.enumeration(integer) else {
            return number::integer(self.text, integer, value);
        };
        self.text.extend_from_slice(b"( ");
        let number = if integer.signed { i128::from(value as i64) } else { i128::from(value) };
        let mut any = false;
        for label in enumeration.labels(number) {
            if any {
                self.text.extend_from_slice(b", ");
            }
            self.is_ascii &= escaped(self.text, label.as_bytes());
            any = true;
        }
        if !any {
            self.text.extend_from_slice(b"<unknown>");
        }
        self.text.extend_from_slice(b" : container = ");
        number::integer(self.text, integer, value);
        self.text.extend_from_slice(b" )");
    }

    fn float(&mut self, _: FieldIndex, value: f64) {
        number::general(self.text, value);
    }

    fn text(&mut self, _: FieldIndex, text: &[u8]) {
        self.is_ascii &= escaped(self.text, text);
    }

    fn element(&mut self, index: u64) {
        self.text.extend_from_slice(if index == 0 { b" [" } else { b", [" });
        number::decimal(self.text, index);
        self.text.extend_from_slice(b"] = ");
    }

    fn restart(&mut self) {
        self.text.truncate(self.start);
    }
}

/// Which bytes cannot stand for themselves, or are not ASCII.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        special[byte] = byte < 32 || byte >= 127 || matches!(byte as u8, b'\\' | b'\'' | b'"' | b'?');
        byte += 1;
    }
    special
};

/// Appends text in quotes with the escapes of C. Whether it is ASCII.
fn escaped(text: &mut Vec<u8>, value: &[u8]) -> bool {
    text.push(b'"');
    let mut is_ascii = true;
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
        let (plain, special) = rest.split_at(at);
        text.extend_from_slice(plain);
        let Some((byte, after)) = special.split_first() else { break };
        match byte {
            b'\\' | b'\'' | b'"' | b'?' => text.extend_from_slice(&[b'\\', *byte]),
            7..=13 => text.extend_from_slice(&[b'\\', b"abtnvfr"[usize::from(*byte) - 7]]),
            27 => text.extend_from_slice(b"\\e"),
            128.. => {
                text.push(*byte);
                is_ascii = false;
            }
            _ => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
        rest = after;
    }
    text.extend_from_slice(rest);
    text.push(b'"');
    is_ascii
}
