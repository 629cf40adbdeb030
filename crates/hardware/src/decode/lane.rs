// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream, read in pieces and decoded: for those who print or count it, and as a lane of one trace.

use super::open::{PIECE, Stream, StreamKind};
use super::operands::{OperandSink, PtOperands};
use super::stp::StpPackets;
use super::summary::{Counter, StreamSummary};
use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::coresight::{Deformatter, FrameSink};
use crate::perfdata::ReadAt;
use crate::trace::{HardwareEvent, Lane, LaneInfo, LossReason};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;

/// Bytes that are decoded at once.
const STEP: usize = 4 << 10;

/// Decodes a stream.
pub struct StreamLane<'s> {
    stream: &'s Stream,
    decoder: Box<dyn UnitDecoder + 's>,
    deformatter: Option<(Deformatter, u8)>,
    piece: usize,
    done: u64,
    has_ended: bool,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are still to be decoded.
    read: Range<usize>,
    counter: Counter,
}

impl<'s> StreamLane<'s> {
    /// At its beginning.
    #[must_use]
    pub fn new(stream: &'s Stream) -> StreamLane<'s> {
        StreamLane::with(stream, stream.decoder())
    }

    /// At its beginning, with the packets of STP for this sink, and no events. `None`: the stream is of another unit.
    #[must_use]
    pub fn of_packets(stream: &'s Stream, sink: &'s mut dyn crate::stp::Sink) -> Option<StreamLane<'s>> {
        matches!(stream.kind, StreamKind::Stp(_))
            .then(|| StreamLane::with(stream, Box::new(StpPackets::new(sink))))
    }

    /// At its beginning, with what programs wrote by PTWRITE for this sink, and no events. `None`: the stream is of another unit.
    #[must_use]
    pub fn of_operands(stream: &'s Stream, sink: &'s mut dyn OperandSink) -> Option<StreamLane<'s>> {
        matches!(stream.kind, StreamKind::Pt(_))
            .then(|| StreamLane::with(stream, Box::new(PtOperands::new(sink))))
    }

    fn with(stream: &'s Stream, decoder: Box<dyn UnitDecoder + 's>) -> StreamLane<'s> {
        StreamLane {
            stream,
            decoder,
            deformatter: stream.frames.map(|(framing, id)| (Deformatter::new(framing), id)),
            piece: 0,
            done: 0,
            has_ended: false,
            buffer: vec![0; PIECE],
            read: 0..0,
            counter: Counter::default(),
        }
    }

    /// What was found so far.
    #[must_use]
    pub fn summary(&self) -> StreamSummary {
        self.counter.summary()
    }

    /// Decodes a few more KiB: what they become is held at once by whoever merges streams. False: that was all.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn step(&mut self, found: &mut dyn Findings) -> io::Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        let mut both = Both { counter: &mut self.counter, stream: self.stream, found };
        let Some(piece) = self.stream.pieces.get(self.piece) else {
            self.has_ended = true;
            if let Some((deformatter, id)) = &mut self.deformatter {
                deformatter.finish(&mut OfSource { id: *id, decoder: &mut *self.decoder, found: &mut both });
            }
            self.decoder.finish(&mut both);
            return Ok(false);
        };
        if self.done == 0 && piece.is_apart {
            both.event(HardwareEvent::lost(LossReason::Buffer, 0));
            if let Some((deformatter, id)) = &mut self.deformatter {
                let mut of_source = OfSource { id: *id, decoder: &mut *self.decoder, found: &mut both };
                deformatter.finish(&mut of_source);
                if let Some((framing, _)) = self.stream.frames {
                    *deformatter = Deformatter::new(framing);
                }
            }
            self.decoder.interrupt(&mut both);
        }
        if self.read.is_empty() {
            let wanted = usize::try_from(piece.bytes - self.done).unwrap_or(PIECE).min(PIECE);
            self.read = 0..self.stream.file.read_at(piece.at + self.done, &mut self.buffer[..wanted])?;
        }
        let now = self.read.start..self.read.end.min(self.read.start + STEP);
        self.read.start = now.end;
        let bytes = &self.buffer[now];
        match &mut self.deformatter {
            Some((deformatter, id)) => {
                deformatter
                    .push(bytes, &mut OfSource { id: *id, decoder: &mut *self.decoder, found: &mut both });
            }
            None => self.decoder.push(bytes, &mut both),
        }
        self.done += bytes.len() as u64;
        if self.done >= piece.bytes || bytes.is_empty() {
            self.piece += 1;
            self.done = 0;
        }
        Ok(true)
    }
}

/// One source of frames.
struct OfSource<'o> {
    id: u8,
    decoder: &'o mut (dyn UnitDecoder + 'o),
    found: &'o mut dyn Findings,
}

impl FrameSink for OfSource<'_> {
    fn data(&mut self, id: u8, _: u64, bytes: &[u8]) {
        if id == self.id {
            self.decoder.push(bytes, self.found);
        }
    }

    fn lost(&mut self, lost: Lost) {
        self.found.lost(lost);
    }

    fn discontinuity(&mut self, _: u64) {
        self.found.event(HardwareEvent::lost(LossReason::Buffer, 0));
        self.decoder.interrupt(self.found);
    }
}

/// Counts, says whose an event is, and hands on.
struct Both<'b, 'f> {
    counter: &'b mut Counter,
    stream: &'b Stream,
    found: &'b mut (dyn Findings + 'f),
}

impl Findings for Both<'_, '_> {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        self.counter.packet(packet);
        self.found.packet(packet);
    }

    fn flow(&mut self, time: Option<u64>, text: &dyn fmt::Display) {
        self.counter.flow(time, text);
        self.found.flow(time, text);
    }

    fn event(&mut self, mut event: HardwareEvent) {
        event.cpu = event.cpu.or(self.stream.cpu);
        if event.thread.is_none() {
            let threads = &self.stream.threads;
            let since = |time: u64| threads.partition_point(|(begin, _)| *begin <= time);
            let place = event.time_ns.map_or(usize::from(threads.len() == 1), since);
            event.thread =
                place.checked_sub(1).and_then(|place| threads.get(place)).map(|(_, thread)| *thread);
        }
        self.counter.event(event.clone());
        self.found.event(event);
    }

    fn lost(&mut self, lost: Lost) {
        self.counter.lost(lost);
        self.found.lost(lost);
        let event = HardwareEvent::lost(LossReason::Unreadable, lost.bytes);
        self.found.event(HardwareEvent { cpu: self.stream.cpu, ..event });
    }
}

/// Takes events only. One without a time (a loss) has that of the event before it, if there was one.
struct Queue<'q>(&'q mut VecDeque<HardwareEvent>);

impl Findings for Queue<'_> {
    fn packet(&mut self, _: &SeenPacket<'_>) {}
    fn flow(&mut self, _: Option<u64>, _: &dyn fmt::Display) {}
    fn event(&mut self, event: HardwareEvent) {
        self.0.push_back(event);
    }
    fn lost(&mut self, _: Lost) {}
}

impl Lane for StreamLane<'_> {
    fn advance(&mut self, out: &mut VecDeque<HardwareEvent>) -> io::Result<bool> {
        self.step(&mut Queue(out))
    }

    fn info(&self) -> LaneInfo {
        LaneInfo { name: self.stream.name.clone() }
    }
}
