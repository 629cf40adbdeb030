// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event → payload bytes, field by field in the layout's order.

use rtscope_event::{Comm, Priority, TraceField, TraceSink, TraceType};

/// Longest text written, so that an event always fits a packet. (Linux' PATH_MAX.)
const TEXT_BYTES: usize = 4095;

/// Appends an event's fields, and checks in debug builds that they match its layout.
pub(super) struct Payload<'b> {
    bytes: &'b mut Vec<u8>,
    fields: std::slice::Iter<'static, TraceField>,
}

impl<'b> Payload<'b> {
    pub(super) fn new(bytes: &'b mut Vec<u8>, fields: &'static [TraceField]) -> Payload<'b> {
        Payload { bytes, fields: fields.iter() }
    }

    #[inline]
    fn put(&mut self, kind: TraceType, bytes: &[u8]) {
        let field = self.fields.next();
        debug_assert_eq!(field.map(|field| field.1), Some(kind), "{field:?}");
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn finish(self) {
        debug_assert!(self.fields.as_slice().is_empty(), "fields left: {:?}", self.fields);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.put(TraceType::U32, &value.to_le_bytes());
    }

    pub(super) fn s32(&mut self, value: i32) {
        self.put(TraceType::S32, &value.to_le_bytes());
    }

    /// An id (thread, process, interrupt). LTTng has these signed, as the kernel's own types are.
    pub(super) fn id(&mut self, value: u32) {
        self.number(TraceType::S32, value.into());
    }

    /// LTTng counts priorities from the first that is not real-time.
    pub(super) fn prio(&mut self, prio: Priority) {
        self.s32(i32::from(prio.0) - 100);
    }
}

/// Little-endian, and aligned to bytes, as LTTng's are on x86.
impl TraceSink for Payload<'_> {
    #[inline(always)]
    fn number(&mut self, kind: TraceType, bits: u64) {
        let bytes = bits.to_le_bytes();
        match kind {
            TraceType::U8 | TraceType::Labels(_) => self.put(kind, &bytes[..1]),
            TraceType::U32 | TraceType::S32 => self.put(kind, &bytes[..4]),
            _ => self.put(kind, &bytes),
        }
    }

    #[inline]
    fn comm(&mut self, comm: Comm) {
        self.put(TraceType::Comm, &comm.array());
    }

    /// Cut at a NUL, which would end it anyway.
    fn text(&mut self, text: &str) {
        let text = text.split('\0').next().unwrap_or_default();
        let end = (0..=text.len().min(TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.put(TraceType::Text, &text.as_bytes()[..end]);
        self.bytes.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut bytes = Vec::new();
        let mut payload = Payload::new(&mut bytes, &[("text", TraceType::Text)]);
        payload.text(&"ü".repeat(3000));
        payload.finish();
        assert_eq!(bytes.len(), 4095);
        assert_eq!(std::str::from_utf8(&bytes[..4094]).unwrap(), "ü".repeat(2047));
    }
}
