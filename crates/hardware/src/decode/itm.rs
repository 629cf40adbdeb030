// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ITM and DWT: stimuli, exceptions and samples as events, once a local timestamp tells when they were.

use super::clock::ns_of;
use super::{Findings, SeenPacket, UnitDecoder};
use crate::itm::{Clock, Decoder, Item, Packet, Payload};
use crate::trace::{EventClassKind, HardwareEvent, LossReason};
use std::fmt;

/// Events that wait for their time; a stream without timestamps has none for any.
const WAITING_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Itm {
    decoder: Decoder,
    clock: Clock,
    clock_hz: Option<u64>,
    items: Vec<Item>,
    waiting: Vec<HardwareEvent>,
}

impl Itm {
    pub(super) fn new(clock_hz: Option<u64>) -> Itm {
        Itm { clock_hz, ..Itm::default() }
    }

    fn give(&mut self, found: &mut dyn Findings) {
        for item in std::mem::take(&mut self.items) {
            match item {
                Item::Packet(packet) => self.packet(&packet, found),
                Item::Lost(lost) => {
                    self.clock.lost();
                    found.lost(lost);
                }
            }
        }
    }

    fn packet(&mut self, packet: &Packet, found: &mut dyn Findings) {
        let stamped = self.clock.packet(packet);
        let ticks = stamped.map(|time| time.local_ticks);
        let ns = |ticks: u64| self.clock_hz.map_or(Some(ticks), |hz| ns_of(ticks, hz));
        found.packet(&SeenPacket { offset: packet.offset, time: ticks.and_then(ns), text: &Shown(packet) });
        self.waiting.extend(event_of(packet));
        if ticks.is_some() || self.waiting.len() >= WAITING_MAX {
            let time = ticks.zip(self.clock_hz).and_then(|(ticks, hz)| ns_of(ticks, hz));
            self.release(time, found);
        }
    }

    fn release(&mut self, time_ns: Option<u64>, found: &mut dyn Findings) {
        self.waiting.drain(..).for_each(|event| found.event(HardwareEvent { time_ns, ..event }));
    }
}

impl UnitDecoder for Itm {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        for piece in bytes.chunks(4096) {
            self.decoder.push(piece, &mut self.items);
            self.give(found);
        }
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
        *self = Itm::new(self.clock_hz);
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.decoder.finish(&mut self.items);
        self.give(found);
        self.release(None, found);
    }
}

fn event_of(packet: &Packet) -> Option<HardwareEvent> {
    let event = |class, numbers: &[u64], text: &str| Some(HardwareEvent::new(class, numbers, text.into()));
    match packet.payload {
        Payload::Stimulus { port, size, value } => {
            let bytes = value.to_le_bytes();
            let text = super::stp::text_of(bytes.get(..usize::from(size)).unwrap_or(&bytes));
            event(EventClassKind::Stimulus, &[port.into(), size.into(), value.into()], &text)
        }
        Payload::Exception { number, action } => {
            event(EventClassKind::Exception, &[number.into()], &format!("{action:?}"))
        }
        Payload::PcSample(Some(pc)) => event(EventClassKind::Sample, &[pc.into()], ""),
        Payload::PcSample(None) => event(EventClassKind::Packet, &[0], "sleeping"),
        Payload::Overflow => Some(HardwareEvent::lost(LossReason::Overflow, 0)),
        Payload::DataValue { value, .. } => event(EventClassKind::Packet, &[value.into()], "data value"),
        Payload::DataPc { pc, .. } => event(EventClassKind::Packet, &[pc.into()], "data PC"),
        Payload::DataAddress { address, .. } => {
            event(EventClassKind::Packet, &[address.into()], "data address")
        }
        Payload::Counters(bits) => event(EventClassKind::Packet, &[bits.into()], "counters"),
        _ => None,
    }
}

struct Shown<'p>(&'p Packet);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.payload {
            Payload::LocalTimestamp { delta_ticks, delay, .. } => {
                write!(f, "LocalTimestamp +{delta_ticks} delay {delay:?}")?;
            }
            Payload::GlobalLow { value, bits, .. } => write!(f, "GlobalLow {value:#x} of {bits} bits")?,
            Payload::GlobalHigh { value, .. } => write!(f, "GlobalHigh {value:#x}")?,
            Payload::Stimulus { port, size, value } => {
                write!(f, "Stimulus port {port}: {value:#x} of {size} bytes")?
            }
            Payload::Exception { number, action } => write!(f, "Exception {number} {action:?}")?,
            Payload::PcSample(Some(pc)) => write!(f, "PcSample {pc:#x}")?,
            Payload::PcSample(None) => f.write_str("PcSample sleeping")?,
            other => write!(f, "{other:?}")?,
        }
        if self.0.certain { Ok(()) } else { f.write_str(" (not certain: no synchronisation)") }
    }
}
