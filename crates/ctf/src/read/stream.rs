// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream file → events: packets, headers, the clock.
//!
//! Nothing in the file is believed. A packet that makes no sense ends the file (nobody can know where the next begins);
//! an event that makes no sense ends its packet (nobody can know where the next event begins). Both are reported as a
//! loss of unknown number, and what came before is kept.

use super::bits::{Cursor, Overrun};
use super::class::{EventClass, StreamClass, StructClass, TraceClass};
use super::decode::{Decoder, Value};
use super::gather::Gathered;
use super::kernel::{Binding, Names, Said};
use crate::layout::EventLayout;
use rtscope_event::{CpuId, Event, MonotonicNs};
use std::collections::HashMap;

/// First word of every packet.
const MAGIC: u64 = 0xc1fc_1fc1;

/// A trace's classes, prepared for reading.
pub(super) struct Classes<'t> {
    pub(super) trace: &'t TraceClass,
    streams: Vec<Stream<'t>>,
}

struct Stream<'t> {
    class: &'t StreamClass,
    /// By id.
    events: Vec<BoundEvent<'t>>,
}

struct BoundEvent<'t> {
    class: &'t EventClass,
    /// Index into the trace's event classes, for counting.
    index: usize,
    binding: Option<Binding>,
}

impl<'t> Classes<'t> {
    pub(super) fn new(trace: &'t TraceClass, layouts: &[EventLayout]) -> Classes<'t> {
        let names = layouts.iter().zip(0u32..);
        let by_name: HashMap<&str, u32> = names.map(|(layout, id)| (layout.name.as_ref(), id)).collect();
        let streams = trace.streams.iter().map(|class| {
            let events = trace.events.iter().enumerate().filter(|(_, event)| event.stream_id == class.id);
            let mut events: Vec<BoundEvent<'t>> = events
                .map(|(index, class)| BoundEvent {
                    class,
                    index,
                    binding: Binding::of(class, layouts, &by_name),
                })
                .collect();
            events.sort_by_key(|event| event.class.id);
            Stream { class, events }
        });
        Classes { trace, streams: streams.collect() }
    }
}

/// What a packet's header and context say.
struct Packet<'a, 's> {
    stream: &'s Stream<'s>,
    /// After header and context, limited to the content.
    cursor: Cursor<'a>,
    bytes: usize,
    begin: Option<u64>,
    cpu: Option<CpuId>,
    discarded: u64,
}

/// Reads all packets of a stream file. `name` is for messages.
pub(super) fn read_stream(classes: &Classes<'_>, name: &str, bytes: &[u8], out: &mut Gathered) {
    let mut reader = StreamReader {
        classes,
        decoder: Decoder::new(classes.trace.slots),
        values: Vec::new(),
        clock: 0,
        cpu: None,
        discarded: 0,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let packet = match reader.packet(rest) {
            Ok(packet) => packet,
            Err(what) => {
                out.damage(
                    reader.cpu,
                    format!("{name}: packet at byte {at}: {what}; the rest of the file is left out"),
                );
                break;
            }
        };
        rest = rest.get(packet.bytes..).unwrap_or_default();
        if let Err(what) = reader.events(packet, out) {
            out.damage(
                reader.cpu,
                format!("{name}: packet at byte {at}: {what}; the rest of the packet is left out"),
            );
        }
    }
    out.discarded(reader.cpu, reader.discarded);
}

struct StreamReader<'c, 't, 'a> {
    classes: &'c Classes<'t>,
    decoder: Decoder,
    values: Vec<Value<'a>>,
    /// In the clock's own unit.
    clock: u64,
    /// Of the last packet.
    cpu: Option<CpuId>,
    discarded: u64,
}

impl<'c, 'a> StreamReader<'c, '_, 'a> {
    /// Reads header and context of the packet that `rest` begins with.
    fn packet(&mut self, rest: &'a [u8]) -> Result<Packet<'a, 'c>, &'static str> {
        const SHORT: &str = "its header is cut short";
        let mut cursor = Cursor::new(rest);
        let header = &self.classes.trace.packet_header;
        self.decoder.record(header, &mut cursor, &mut self.values).map_err(|Overrun| SHORT)?;
        if number(header, &self.values, "magic").is_some_and(|magic| magic != MAGIC) {
            return Err("it does not begin with a packet's magic number");
        }
        let uuid = header.find("uuid").and_then(|place| self.values.get(place));
        if let (Some(Value::Bytes(found)), Some(expected)) = (uuid, self.classes.trace.uuid) {
            if *found != expected.as_bytes() {
                return Err("it belongs to another trace");
            }
        }
        let stream_id = number(header, &self.values, "stream_id").unwrap_or(0);
        let stream = self.classes.streams.iter().find(|stream| stream.class.id == stream_id);
        let stream = stream.ok_or("its stream is not in the metadata")?;

        let context = &stream.class.packet_context;
        self.decoder.record(context, &mut cursor, &mut self.values).map_err(|Overrun| SHORT)?;
        let field = |name| number(context, &self.values, name);
        let file_bits = (rest.len() as u64).saturating_mul(8);
        let packet_bits = field("packet_size").unwrap_or(file_bits);
        let content_bits = field("content_size").unwrap_or(packet_bits);
        if packet_bits > file_bits {
            return Err("it is cut short");
        }
        if packet_bits == 0
            || packet_bits % 8 != 0
            || content_bits > packet_bits
            || cursor.position() > content_bits
        {
            return Err("its sizes make no sense");
        }
        cursor.limit(content_bits);
        Ok(Packet {
            stream,
            cursor,
            bytes: (packet_bits / 8) as usize,
            begin: field("timestamp_begin"),
            cpu: field("cpu_id").and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId),
            discarded: field("events_discarded").unwrap_or(0),
        })
    }

    /// Reads the events of a packet.
    fn events(&mut self, packet: Packet<'a, '_>, out: &mut Gathered) -> Result<(), &'static str> {
        let Packet { stream, mut cursor, begin, cpu, discarded, .. } = packet;
        self.cpu = cpu.or(self.cpu);
        self.discarded = self.discarded.max(discarded);
        let cpu = self.cpu.unwrap_or_default();
        if let Some(begin) = begin {
            self.clock = begin;
            out.begins(cpu, self.nanoseconds(begin));
        }
        while cursor.remaining() > 0 {
            let before = cursor.position();
            self.event(stream, cpu, &mut cursor, out)?;
            if cursor.position() < before + 8 {
                // CTF would allow it; no writer does it, and it is how a small file takes a long time.
                return Err("its events are smaller than a byte");
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        stream: &Stream<'_>,
        cpu: CpuId,
        cursor: &mut Cursor<'a>,
        out: &mut Gathered,
    ) -> Result<(), &'static str> {
        const SHORT: &str = "an event goes beyond its end";
        self.decoder.clock_field = None;
        self.decoder.event_id = None;
        self.decoder.record(&stream.class.event_header, cursor, &mut self.values).map_err(|Overrun| SHORT)?;
        if let Some((value, bits)) = self.decoder.clock_field {
            self.clock = advance(self.clock, value, bits);
        }
        let id = self.decoder.event_id.unwrap_or(0);
        let place = stream.events.binary_search_by_key(&id, |event| event.class.id);
        let event = place
            .ok()
            .and_then(|place| stream.events.get(place))
            .ok_or("an event's id is not in the metadata")?;
        for context in [&stream.class.event_context, &event.class.context] {
            if !context.fields.is_empty() {
                self.decoder.record(context, cursor, &mut self.values).map_err(|Overrun| SHORT)?;
            }
        }
        self.decoder.record(&event.class.fields, cursor, &mut self.values).map_err(|Overrun| SHORT)?;
        let Some(binding) = &event.binding else {
            out.skipped(event.index);
            return Ok(());
        };
        let time = self.nanoseconds(self.clock);
        match binding.take(&self.values) {
            Some((said, names)) => keep(time, cpu, said, names, out),
            None => out.malformed(event.index),
        }
        Ok(())
    }

    fn nanoseconds(&self, value: u64) -> MonotonicNs {
        const NANOSECONDS: u64 = 1_000_000_000;
        MonotonicNs(match self.classes.trace.clock.frequency {
            NANOSECONDS => value,
            frequency => {
                let scaled = u128::from(value) * u128::from(NANOSECONDS) / u128::from(frequency.max(1));
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        })
    }
}

fn keep(time: MonotonicNs, cpu: CpuId, said: Said, names: Names, out: &mut Gathered) {
    for (tid, comm) in names.tasks.into_iter().flatten() {
        out.name(time, tid, comm);
    }
    if let Some((irq, name)) = names.irq {
        out.irq(irq, name);
    }
    match said {
        Said::Event(kind) => out.event(Event { time, cpu, kind }),
        Said::Task(task) => out.task(task),
        Said::Nothing => {}
    }
}

/// Completes a time of few bits: the first moment not before `clock` that ends in them.
fn advance(clock: u64, value: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return value;
    }
    let mask = (1 << bits) - 1;
    let wrapped = value & mask < clock & mask;
    let completed = (clock & !mask) | (value & mask);
    if wrapped { completed.wrapping_add(mask + 1) } else { completed }
}

/// A number of a header or context.
fn number(class: &StructClass, values: &[Value<'_>], name: &str) -> Option<u64> {
    match values.get(class.find(name)?)? {
        Value::Unsigned(value) => Some(*value),
        Value::Signed(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_is_completed_from_the_one_before() {
        assert_eq!(advance(0x1234, 0x40, 8), 0x1240);
        assert_eq!(advance(0x1234, 0x34, 8), 0x1234);
        assert_eq!(advance(0x1234, 0x33, 8), 0x1333);
        assert_eq!(advance(u64::MAX, 0, 8), 0);
        assert_eq!(advance(7, 3, 64), 3);
    }
}
