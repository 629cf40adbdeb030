// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a capture has: packets and flow line by line, or everything in numbers.

use super::DECODE_SCHEMA;
use crate::label::clean;
use crate::units::counted;
use rtscope_hardware::Lost;
use rtscope_hardware::decode::{Findings, KindCount, SeenPacket};
use rtscope_hardware::trace::HardwareEvent;
use rtscope_session::hardware::{DecodeReport, FindingsSink, WrittenTrace};
use serde::Serialize;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

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
    failure: Option<io::Error>,
}

impl<W: Write> FindingsWriter<W> {
    /// Writes what is asked for.
    #[must_use]
    pub fn new(out: W, packets: bool, flow: bool, time: bool) -> FindingsWriter<W> {
        FindingsWriter { out, packets, flow, time, line: String::new(), failure: None }
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

impl<W: Write> FindingsSink for FindingsWriter<W> {
    fn stream(&mut self, name: &str, unit: &str, bytes: u64) {
        if self.packets || self.flow {
            self.line.clear();
            let _ = writeln!(self.line, "{}: {unit} in {bytes} bytes", clean(name));
            self.write();
        }
    }

    fn wants_more(&self) -> bool {
        self.failure.is_none()
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
