// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What trace units recorded, decoded: counted and shown stream by stream, or made one CTF trace.
//!
//! The decoders are the crate `rtscope-hardware`'s. Here is what is done with a whole capture, and whether that is a success; and what
//! captures ([`capture`]).

pub mod capture;
mod channels;
pub(crate) mod comparators;
pub(crate) mod processes;
mod ptwrite;
pub(crate) mod rings;
pub(crate) mod unit;

use crate::Failure;
use crate::record::channels::ChannelNotes;
use channels::ChannelEvents;
use ptwrite::PtwriteEvents;
use rtscope_hardware::Lost;
use rtscope_hardware::decode::{
    Capture, DecodeError, Findings, SampleLane, SeenPacket, Settings, Stream, StreamLane, StreamSummary, open,
};
use rtscope_hardware::trace::{
    HardwareEvent, HardwareSource, Lane, LossReason, TraceError, trace_info, write_ctf,
};
use rtscope_programs::channels::Destination;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
    fn add(&mut self, name: &str, unit: &str, bytes: u64, summary: StreamSummary) {
        let (name, unit) = (name.to_owned(), unit.to_owned());
        self.streams.push(DecodedStream { name, unit, bytes, summary });
    }

    /// Whether something is missing.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        let of_stream = |stream: &DecodedStream| stream.summary.lost_bytes() > 0 || stream.summary.gaps > 0;
        let of_trace = self.trace.as_ref().is_some_and(|trace| trace.losses > 0 || trace.untimed > 0);
        self.recorder_losses > 0 || self.missing_bytes > 0 || of_trace || self.streams.iter().any(of_stream)
    }
}

/// Takes what is found, stream by stream.
pub trait FindingsSink: Findings {
    /// What follows is of another stream.
    fn stream(&mut self, name: &str, unit: &str, bytes: u64);

    /// Whether anybody still wants it.
    fn wants_more(&self) -> bool;
}

/// A capture that is being decoded.
pub struct Decoding {
    path: PathBuf,
    capture: Capture,
    /// What is known by now.
    pub report: DecodeReport,
}

impl Decoding {
    /// Finds out what a file, a directory or standard input (`-`) holds.
    ///
    /// # Errors
    /// When there is nothing in it that is decoded here.
    pub fn open(path: &Path, settings: &Settings) -> Result<Decoding, Failure> {
        let capture = open(path, settings)?;
        let report = DecodeReport {
            capture: path.display().to_string(),
            recorder_losses: capture.losses.len() as u64,
            missing_bytes: capture.missing_bytes,
            damage: capture.damage.clone(),
            notes: capture.notes.clone(),
            ..DecodeReport::default()
        };
        Ok(Decoding { path: path.to_owned(), capture, report })
    }

    /// Decodes each stream into numbers, and shows what is found, until nobody wants more.
    ///
    /// # Errors
    /// When the capture cannot be read.
    pub fn decode<S: FindingsSink>(&mut self, sink: &mut S) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::system(format!("reading {}", self.path.display()), &error);
        for stream in &self.capture.streams {
            let (unit, bytes) = (stream.kind.name(), stream.bytes());
            sink.stream(&stream.name, unit, bytes);
            let mut lane = StreamLane::new(stream);
            while sink.wants_more() && lane.step(sink).map_err(failed)? {}
            self.report.add(&stream.name, unit, bytes, lane.summary());
        }
        if let Some(file) = &self.capture.samples {
            let (name, unit) = ("samples", "branch stacks");
            let bytes = file.metadata().map_err(failed)?.len();
            sink.stream(name, unit, bytes);
            let mut lane = SampleLane::new(file).map_err(|error| Failure::Damaged(error.to_string()))?;
            while sink.wants_more() && lane.step(sink).map_err(failed)? {}
            self.report.add(name, unit, bytes, lane.summary());
        }
        Ok(())
    }

    /// Makes a CTF trace of all streams. `offset_ns` is added to all times. `recording`: its programs' events are made of what they have
    /// written into channels of an STM or by PTWRITE, and nothing else.
    ///
    /// # Errors
    /// When no event has a time, or the trace cannot be written.
    pub fn write(&mut self, target: &Path, offset_ns: i64, recording: Option<&Path>) -> Result<(), Failure> {
        match recording {
            Some(recording) => self.write_programs(target, recording),
            None if self.write_if_any(target, offset_ns)? => Ok(()),
            None => Err(TraceError::Empty.into()),
        }
    }

    /// The same of what units traced. False: there is no event in it, and no trace was made.
    ///
    /// # Errors
    /// As [`Decoding::write`].
    pub fn write_if_any(&mut self, target: &Path, offset_ns: i64) -> Result<bool, Failure> {
        let capture = &mut self.capture;
        // What the user says goes before what the recorder measured.
        let measured = capture.clock_offset_ns.filter(|_| offset_ns == 0);
        let offset_ns = measured.unwrap_or(offset_ns);
        if measured.is_some() {
            capture.clock = "CLOCK_MONOTONIC".to_owned();
        }
        let mut losses = std::mem::take(&mut capture.losses);
        losses.sort_by_key(|event| event.time_ns);
        let mut lanes: Vec<Box<dyn Lane + '_>> = vec![Box::new(RecorderLosses(losses.into()))];
        lanes.extend(
            capture.streams.iter().map(|stream: &Stream| Box::new(StreamLane::new(stream)) as Box<dyn Lane>),
        );
        if let Some(file) = &capture.samples {
            let lane = SampleLane::new(file).map_err(|error| Failure::Damaged(error.to_string()))?;
            lanes.push(Box::new(lane));
        }
        if capture.missing_bytes > 0 || capture.damage.is_some() {
            // Of no time: at the end.
            let rest = HardwareEvent::lost(LossReason::Unreadable, capture.missing_bytes);
            lanes.push(Box::new(RecorderLosses([rest].into())));
        }
        let mut source = HardwareSource::new(lanes);
        source.offset_ns = offset_ns;
        let (host, release) = &capture.machine;
        let info = trace_info(host.as_deref(), release.as_deref(), env!("CARGO_PKG_VERSION"));
        let extra = [
            ("hardware_clock".to_owned(), capture.clock.clone()),
            ("hardware_clock_offset_ns".to_owned(), offset_ns.to_string()),
        ];
        let trace = match write_ctf(&mut source, target, &info, &extra) {
            Err(TraceError::Empty) => return Ok(false),
            written => written?,
        };
        let totals = source.totals;
        self.report.trace = Some(WrittenTrace {
            path: target.display().to_string(),
            events: trace.events,
            streams: trace.streams,
            losses: trace.losses,
            untimed: totals.untimed,
            moved: totals.moved,
            moved_ns: totals.moved_ns,
            first_ns: trace.span_ns.map(|(first, _)| first),
            last_ns: trace.span_ns.map(|(_, last)| last),
        });
        if offset_ns == 0 && capture.clock != "CLOCK_MONOTONIC" {
            self.report.notes.push(format!(
                "times are those of {}; --clock-offset puts them on CLOCK_MONOTONIC, beside other traces",
                capture.clock
            ));
        }
        Ok(true)
    }

    /// What programs have written into channels or by PTWRITE, for which a recording (`--backend`) with this directory asked.
    fn write_programs(&mut self, target: &Path, recording: &Path) -> Result<(), Failure> {
        let notes = ChannelNotes::read(recording)?;
        let failed = |error: io::Error| Failure::system(format!("reading {}", self.path.display()), &error);
        let (mut events, mut operands) = (ChannelEvents::default(), PtwriteEvents::default());
        let is_ptwrite = notes.device == Destination::Ptwrite;
        let mut has_any = false;
        for stream in &self.capture.streams {
            operands.begin();
            let lane = match is_ptwrite {
                false => StreamLane::of_packets(stream, &mut events),
                true => StreamLane::of_operands(stream, &mut operands),
            };
            let Some(mut lane) = lane else { continue };
            has_any = true;
            while lane.step(&mut Unheard).map_err(failed)? {}
            let summary = lane.summary();
            self.report.add(&stream.name, stream.kind.name(), stream.bytes(), summary);
        }
        if !has_any {
            let (what, unit) = if is_ptwrite { ("Intel PT", "pt") } else { ("an STM", "stp") };
            return Err(Failure::Usage(format!(
                "--programs is for what {what} has recorded, where the events of that recording went, and {} has none of that; a raw stream is --unit {unit}",
                self.path.display()
            )));
        }
        if is_ptwrite {
            events = operands.finish();
        }
        let (trace, said) = channels::write(events, &notes, target)?;
        self.report.trace = Some(trace);
        self.report.notes.extend(said);
        Ok(())
    }

    /// Whether what was found is a success. `fail_if_lost`: whatever is missing is none.
    ///
    /// # Errors
    /// When the capture is damaged, or too much is missing.
    pub fn judge(&self, fail_if_lost: bool) -> Result<(), Failure> {
        let report = &self.report;
        if let Some(damage) = &report.damage {
            return Err(Failure::Damaged(format!(
                "{}: {damage}; what is before that was decoded",
                report.capture
            )));
        }
        let is_empty = |stream: &&DecodedStream| stream.bytes > 0 && stream.summary.packet_count() == 0;
        if let Some(DecodedStream { name, unit, .. }) = report.streams.iter().find(is_empty) {
            return Err(Failure::Damaged(format!(
                "{name}: no packet of {unit} was found; is that the unit?"
            )));
        }
        if report.missing_bytes > self.capture.streams.iter().map(Stream::bytes).sum() {
            return Err(Failure::Lost("more of the trace is missing than is there".to_owned()));
        }
        if fail_if_lost && report.has_losses() {
            return Err(Failure::Lost("something is missing (--fail-if-lost)".to_owned()));
        }
        Ok(())
    }
}

/// For whoever takes packets only.
struct Unheard;

impl Findings for Unheard {
    fn packet(&mut self, _: &SeenPacket<'_>) {}
    fn flow(&mut self, _: Option<u64>, _: &dyn fmt::Display) {}
    fn event(&mut self, _: HardwareEvent) {}
    fn lost(&mut self, _: Lost) {}
}

/// What the recorder lost, as a stream of its own.
struct RecorderLosses(VecDeque<HardwareEvent>);

impl Lane for RecorderLosses {
    fn advance(&mut self, out: &mut VecDeque<HardwareEvent>) -> io::Result<bool> {
        out.append(&mut self.0);
        Ok(false)
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Failure {
        match error {
            DecodeError::Io { path, source } => {
                Failure::system(format!("reading {}", path.display()), &source)
            }
            error @ (DecodeError::Perf { .. } | DecodeError::Snapshot(_)) => {
                Failure::Damaged(error.to_string())
            }
            error @ (DecodeError::NoUnit(_)
            | DecodeError::Nothing { .. }
            | DecodeError::Program(_)
            | DecodeError::Catalog { .. }) => Failure::Usage(error.to_string()),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        match error {
            TraceError::Untimed => Failure::Usage(format!(
                "{error}; a trace needs times: --clock-hz says how long the unit's ticks are, and BTS has none"
            )),
            TraceError::Empty => Failure::Usage(format!(
                "{error}; functions need the programs that ran (--image), and a place (capture --at) is an event when it was executed"
            )),
            error => Failure::Failed(error.to_string()),
        }
    }
}
