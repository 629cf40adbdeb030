// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BTS: branches without a time.

use super::{Findings, SeenPacket, UnitDecoder};
use crate::perfdata::{BtsDecoder, BtsElement};
use crate::trace::{EventClassKind, HardwareEvent};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Bts {
    decoder: BtsDecoder,
    no_text: Option<Arc<str>>,
}

impl UnitDecoder for Bts {
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings) {
        let text = self.no_text.get_or_insert_with(|| Arc::from("")).clone();
        self.decoder.push(bytes, &mut |element| give(&element, &text, found));
    }

    fn interrupt(&mut self, found: &mut dyn Findings) {
        self.finish(found);
    }

    fn finish(&mut self, found: &mut dyn Findings) {
        let text = self.no_text.get_or_insert_with(|| Arc::from("")).clone();
        self.decoder.finish(&mut |element| give(&element, &text, found));
    }
}

fn give(element: &BtsElement, no_text: &Arc<str>, found: &mut dyn Findings) {
    match element {
        BtsElement::Record(record) => {
            let predicted = if record.predicted() { "predicted" } else { "mispredicted" };
            let text = format_args!("branch {:#x} -> {:#x} {predicted}", record.from, record.to);
            found.packet(&SeenPacket { offset: record.offset, time: None, text: &text });
            let numbers = [record.from, record.to, 0, (!record.predicted()).into()];
            found.event(HardwareEvent::new(EventClassKind::Branch, &numbers, no_text.clone()));
        }
        BtsElement::Lost(lost) => found.lost(*lost),
    }
}
