// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arm SPE: packets, and each record as a sample.

use super::clock::Conversion;
use super::{Findings, SeenPacket, UnitDecoder};
use crate::spe::{Decoder, Item, Packet, Record, Records, Sink};
use crate::trace::{EventClassKind, HardwareEvent, LossReason, UNKNOWN_ADDRESS};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

type Give = Box<dyn FnMut(&Record)>;

pub(super) struct Spe {
    decoder: Decoder,
    conversion: Conversion,
    items: Vec<Item>,
    records: Records<Give>,
    made: Rc<RefCell<Vec<Record>>>,
    /// Records of which it was told that they are missing.
    missing: u64,
}

impl Spe {
    pub(super) fn new(conversion: Conversion) -> Spe {
        let made = Rc::new(RefCell::new(Vec::new()));
        let into = made.clone();
        let give: Give = Box::new(move |record| into.borrow_mut().push(*record));
        let (decoder, items, records) = (Decoder::new(), Vec::new(), Records::new(give));
        Spe { decoder, conversion, items, records, made, missing: 0 }
    }

    fn give(&mut self, found: &mut dyn Findings) {
        for item in std::mem::take(&mut self.items) {
            match item {
                Item::Packet(packet) => {
                    found.packet(&SeenPacket { offset: packet.offset, time: None, text: &Shown(&packet) });
                    self.records.packet(&packet);
                }
                Item::Lost(lost) => {
                    self.records.lost(&lost);
                    found.lost(lost);
                }
            }
            for record in self.made.borrow_mut().drain(..) {
                let time_ns = record.ticks.and_then(|ticks| self.conversion.ns(ticks));
                let cycles = record.total_cycles.map_or(String::new(), |cycles| format!("{cycles} cycles"));
                let address = record.pc.unwrap_or(UNKNOWN_ADDRESS);
                let event = HardwareEvent::new(EventClassKind::Sample, &[address], cycles.into());
                found.event(HardwareEvent { time_ns, ..event });
            }
            self.tell_missing(found);
        }
    }

    /// Tells of records that became no event. Of those with bytes that cannot be read, these are lost as well.
    fn tell_missing(&mut self, found: &mut dyn Findings) {
        let missing = self.records.damaged_records();
        for _ in std::mem::replace(&mut self.missing, missing)..missing {
            found.event(HardwareEvent::lost(LossReason::Record, 0));
        }
    }
}

impl UnitDecoder for Spe {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        for piece in bytes.chunks(4096) {
            self.decoder.push(piece, &mut |item| self.items.push(item));
            self.give(found);
        }
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
        *self = Spe::new(self.conversion);
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.decoder.finish(&mut |item| self.items.push(item));
        self.give(found);
        self.records.finish();
        self.tell_missing(found);
    }
}

struct Shown<'p>(&'p Packet);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::spe::Payload::{Address, Context, Counter, DataSource, Events, Timestamp};
        match self.0.payload {
            Timestamp(ticks) => write!(f, "Timestamp {ticks}"),
            Events { bits } => write!(f, "Events {bits:#x}"),
            DataSource(source) => write!(f, "DataSource {source:#x}"),
            Context { level, id } => write!(f, "Context EL{level} {id:#x}"),
            Address { kind, value } => write!(f, "Address {kind:?} {value:#x}"),
            Counter { kind, cycles } => write!(f, "Counter {kind:?} {cycles}"),
            other => write!(f, "{other:?}"),
        }
    }
}
