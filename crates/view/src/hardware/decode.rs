// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a capture has: packets and flow line by line, or everything in numbers.

use super::DECODE_SCHEMA;
use crate::label::clean;
use crate::units::counted;
use rtscope_hardware::Lost;
use rtscope_hardware::decode::{Findings, KindCount, SeenPacket, StreamSummary};
use rtscope_hardware::trace::HardwareEvent;
use serde::Serialize;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// A stream in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecodedStream {
    /// Which buffer, which source.
    pub name: String,
    /// The unit.
    pub unit: String,
    /// Bytes of the buffer that it is in.
    pub bytes: u64,
    /// What was found.
    #[serde(flatten)]
    pub summary: StreamSummary,
}

/// A CTF trace that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenTrace {
    /// Its directory.
    pub path: String,
    /// Events.
    pub events: u64,
    /// Streams.
    pub streams: u64,
    /// Places where something is missing.
    pub losses: u64,
    /// Events that no time is known of, which are not in it.
    pub untimed: u64,
    /// Events whose time went back: they have that of the event before.
    pub moved: u64,
    /// The furthest that one went back.
    pub moved_ns: u64,
    /// Time of the first event.
    pub first_ns: Option<u64>,
    /// And of the last one.
    pub last_ns: Option<u64>,
}

/// A capture in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DecodeReport {
    /// The file or directory.
    pub capture: String,
    /// Its streams.
    pub streams: Vec<DecodedStream>,
    /// Places where the recorder lost something.
    pub recorder_losses: u64,
    /// Bytes of traces that were written and are not in the file.
    pub missing_bytes: u64,
    /// Where the file cannot be read on, and why.
    pub damage: Option<String>,
    /// What people should know.
    pub notes: Vec<String>,
    /// The trace that was made.
    pub trace: Option<WrittenTrace>,
}

impl DecodeReport {
    /// Whether something is missing.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        let of_stream = |stream: &DecodedStream| stream.summary.lost_bytes() > 0 || stream.summary.gaps > 0;
        let of_trace = self.trace.as_ref().is_some_and(|trace| trace.losses > 0 || trace.untimed > 0);
        self.recorder_losses > 0 || self.missing_bytes > 0 || of_trace || self.streams.iter().any(of_stream)
    }
}

#[derive(Serialize)]
struct Object<'r> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'r DecodeReport,
}

/// One object.
///
/// # Errors
/// Never, as all of it is numbers and text.
pub fn decode_json(report: &DecodeReport) -> serde_json::Result<String> {
    serde_json::to_string(&Object { schema: DECODE_SCHEMA, report })
}

/// The numbers as text.
#[must_use]
pub fn decode_text(report: &DecodeReport) -> String {
    let mut text = String::new();
    for stream in &report.streams {
        let _ = writeln!(text, "{}: {} in {} bytes", clean(&stream.name), stream.unit, stream.bytes);
        let summary = &stream.summary;
        kinds("packets", &summary.packets, &mut text);
        kinds("events", &summary.events, &mut text);
        if summary.flow > 0 {
            let _ = writeln!(text, "  flow       {}", summary.flow);
        }
        for lost in &summary.lost {
            let places = counted(lost.places, "place", "places");
            let _ = writeln!(text, "  lost       {} bytes in {places}: {}", lost.bytes, lost.cause);
        }
        if summary.gaps > 0 {
            let _ = writeln!(text, "  gaps       {}", summary.gaps);
        }
        if let Some((first, last)) = summary.first.zip(summary.last) {
            let _ = writeln!(text, "  time       {first} to {last}");
        }
    }
    if let Some(trace) = &report.trace {
        written(trace, &mut text);
    }
    if report.recorder_losses > 0 {
        let places = counted(report.recorder_losses, "place", "places");
        let _ = writeln!(text, "the recorder lost data in {places}");
    }
    text
}

fn written(trace: &WrittenTrace, text: &mut String) {
    let events = counted(trace.events, "event", "events");
    let streams = counted(trace.streams, "stream", "streams");
    let _ = writeln!(text, "{}: {events} in {streams}", clean(&trace.path));
    if trace.losses > 0 {
        let _ = writeln!(text, "  lost       in {}", counted(trace.losses, "place", "places"));
    }
    if trace.untimed > 0 {
        let _ = writeln!(text, "  left out   {} of unknown time", counted(trace.untimed, "event", "events"));
    }
    if trace.moved > 0 {
        let events = counted(trace.moved, "event", "events");
        let _ =
            writeln!(text, "  moved      {events} whose time went back, by {} ns at most", trace.moved_ns);
    }
}

fn kinds(name: &str, kinds: &[KindCount], text: &mut String) {
    if kinds.is_empty() {
        return;
    }
    let all: u64 = kinds.iter().map(|kind| kind.count).sum();
    let each: Vec<String> = kinds.iter().map(|kind| format!("{} {}", kind.name, kind.count)).collect();
    let _ = writeln!(text, "  {name:<9}  {all}: {}", each.join(", "));
}

/// Writes packets or flow, a line each.
pub struct FindingsWriter<W> {
    out: W,
    packets: bool,
    flow: bool,
    time: bool,
    line: String,
    /// Why it could not go on.
    pub failure: Option<io::Error>,
}

impl<W: Write> FindingsWriter<W> {
    /// Writes what is asked for.
    #[must_use]
    pub fn new(out: W, packets: bool, flow: bool, time: bool) -> FindingsWriter<W> {
        FindingsWriter { out, packets, flow, time, line: String::new(), failure: None }
    }

    /// What follows is of another stream.
    pub fn stream(&mut self, name: &str, unit: &str, bytes: u64) {
        self.line.clear();
        let _ = writeln!(self.line, "{}: {unit} in {bytes} bytes", clean(name));
        self.write();
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When the system refuses, now or before.
    pub fn finish(mut self) -> io::Result<()> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn begin(&mut self, offset: Option<u64>, time: Option<u64>) {
        self.line.clear();
        let _ = match offset {
            Some(offset) => write!(self.line, "{offset:>10x}  "),
            None => write!(self.line, "{:12}", ""),
        };
        if self.time {
            let _ = match time {
                Some(time) => write!(self.line, "{time:>20}  "),
                None => write!(self.line, "{:>20}  ", "-"),
            };
        }
    }

    fn write(&mut self) {
        if self.failure.is_none() {
            self.failure = self.out.write_all(self.line.as_bytes()).err();
        }
    }
}

impl<W: Write> Findings for FindingsWriter<W> {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        if self.packets {
            self.begin(Some(packet.offset), packet.time);
            let _ = writeln!(self.line, "{}", packet.text);
            self.write();
        }
    }

    fn flow(&mut self, time: Option<u64>, text: &dyn fmt::Display) {
        if self.flow {
            self.begin(None, time);
            // Names of symbols are a file's.
            let text = text.to_string();
            let _ = writeln!(self.line, "{}", clean(&text));
            self.write();
        }
    }

    fn event(&mut self, _: HardwareEvent) {}

    fn lost(&mut self, lost: Lost) {
        if self.packets || self.flow {
            self.begin(Some(lost.offset), None);
            let _ = writeln!(self.line, "LOST {} bytes: {}", lost.bytes, lost.cause);
            self.write();
        }
    }
}
