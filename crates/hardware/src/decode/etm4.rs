// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ETMv4 and ETE: packets; what a program wrote (TRCIT), exceptions and overflows as events.

use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::etm::v4::{Config, Packet, Packets};
use crate::etm::{At, Fault, Sink};
use crate::trace::{EventClassKind, HardwareEvent, LossReason};

pub(super) struct Etm4 {
    packets: Packets,
    offset: u64,
    time: Option<u64>,
    clock_hz: Option<u64>,
}

impl Etm4 {
    pub(super) fn new(config: &Config, clock_hz: Option<u64>) -> Etm4 {
        Etm4 { packets: Packets::new(config), offset: 0, time: None, clock_hz }
    }

    fn with<R>(
        &mut self,
        found: &mut dyn Findings,
        run: impl FnOnce(&mut Packets, u64, &mut Taker<'_, '_>) -> R,
    ) -> R {
        let mut taker = Taker { found, time: &mut self.time, clock_hz: self.clock_hz };
        run(&mut self.packets, self.offset, &mut taker)
    }
}

impl UnitDecoder for Etm4 {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        self.with(found, |packets, offset, taker| packets.push(offset, bytes, taker));
        self.offset += bytes.len() as u64;
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.with(found, |packets, _, taker| packets.reset(taker));
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.with(found, |packets, _, taker| packets.finish(taker));
    }
}

struct Taker<'t, 'f> {
    found: &'t mut (dyn Findings + 'f),
    time: &'t mut Option<u64>,
    clock_hz: Option<u64>,
}

impl Sink<Packet> for Taker<'_, '_> {
    fn packet(&mut self, at: At, packet: &Packet) {
        if let Packet::Timestamp { value, .. } = packet {
            *self.time = Some(*value);
        }
        let ns = self.time.zip(self.clock_hz).and_then(|(ticks, hz)| super::ns_of(ticks, hz));
        let time = ns.or(*self.time);
        self.found.packet(&SeenPacket { offset: at.offset, time, text: packet });
        let event = match packet {
            Packet::Instrumentation { value, .. } => {
                HardwareEvent::new(EventClassKind::Write, &[*value], "".into())
            }
            Packet::Exception { number, .. } => {
                HardwareEvent::new(EventClassKind::Exception, &[(*number).into()], "entered".into())
            }
            Packet::Overflow => HardwareEvent::lost(LossReason::Overflow, 0),
            _ => return,
        };
        self.found.event(HardwareEvent { time_ns: ns, ..event });
    }

    fn lost(&mut self, lost: Lost, _: Fault) {
        self.found.lost(lost);
    }
}
