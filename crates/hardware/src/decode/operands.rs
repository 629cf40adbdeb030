// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel PT: the operands of PTWRITE alone, for whoever knows what they are.

use super::{Findings, SeenPacket, UnitDecoder};
use crate::Lost;
use crate::pt::{Decoder, Packet, Place, Sink};
use crate::trace::{HardwareEvent, LossReason};

/// Takes operands.
pub trait OperandSink {
    /// One of 64 bits.
    fn operand(&mut self, value: u64);
    /// Some may be missing here: an overflow, bytes that are in no packet, or what the recorder lost.
    fn gap(&mut self);
}

pub(super) struct PtOperands<'s> {
    decoder: Decoder,
    sink: &'s mut dyn OperandSink,
}

impl<'s> PtOperands<'s> {
    pub(super) fn new(sink: &'s mut dyn OperandSink) -> PtOperands<'s> {
        PtOperands { decoder: Decoder::new(), sink }
    }
}

struct Heard<'h> {
    sink: &'h mut dyn OperandSink,
    found: &'h mut dyn Findings,
}

impl Sink for Heard<'_> {
    fn packet(&mut self, place: Place, packet: Packet) {
        self.found.packet(&SeenPacket { offset: place.offset, time: None, text: &packet });
        match packet {
            // Where the instruction was does not matter.
            Packet::Ptw { payload, wide: true, .. } => self.sink.operand(payload),
            Packet::Ovf => {
                self.found.event(HardwareEvent::lost(LossReason::Overflow, 0));
                self.sink.gap();
            }
            _ => {}
        }
    }

    fn lost(&mut self, lost: Lost) {
        self.found.lost(lost);
        self.sink.gap();
    }
}

impl UnitDecoder for PtOperands<'_> {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        self.decoder.push(bytes, &mut Heard { sink: &mut *self.sink, found });
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
        self.decoder = Decoder::new();
        self.sink.gap();
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        self.decoder.finish(&mut Heard { sink: &mut *self.sink, found });
    }
}
