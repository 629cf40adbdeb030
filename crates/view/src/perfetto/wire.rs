// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocol Buffers, as far as appending goes: tags, numbers, and messages in messages.
//!
//! Perfetto's messages are written in one pass, and never read back or changed. That takes the five functions here; a
//! library would bring a tree of allocated messages, which is built and walked for each event (docs/adr/0019).

/// Bytes of one message.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

/// How a field is stored: the low bits of its tag.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The fields of another message.
    pub(super) fn append(&mut self, other: &Message) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// A number without a tag: an element of a packed list.
    #[inline]
    pub(super) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    #[inline]
    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    /// A number without a sign, a flag, or a value of an enumeration.
    #[inline]
    pub(super) fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    /// `int32` and `int64`: negative numbers as 64 bits.
    #[inline]
    pub(super) fn signed(&mut self, field: u32, number: i64) {
        self.number(field, number as u64);
    }

    pub(super) fn double(&mut self, field: u32, number: f64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// `fixed64`.
    pub(super) fn fixed(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Bytes, a packed list, or a message that is there already.
    #[inline]
    pub(super) fn raw(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Text; what is not UTF-8 becomes U+FFFD.
    #[inline]
    pub(super) fn text(&mut self, field: u32, text: &[u8]) {
        match std::str::from_utf8(text) {
            Ok(_) => self.raw(field, text),
            Err(_) => self.raw(field, String::from_utf8_lossy(text).as_bytes()),
        }
    }

    /// A message in this one.
    #[inline]
    pub(super) fn nested(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        self.tag(field, LENGTH);
        let place = self.bytes.len();
        self.bytes.push(0);
        fill(self);
        let length = self.bytes.len() - place - 1;
        if length < 0x80 {
            self.bytes[place] = length as u8;
            return;
        }
        // Longer than one byte can say: few are.
        let mut prefix = Message::default();
        prefix.varint(length as u64);
        self.bytes.splice(place..=place, prefix.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_encoding_s_own_documentation() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.text(2, b"testing");
        assert_eq!(message.bytes(), [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        message.clear();
        message.nested(3, |message| message.number(1, 150));
        assert_eq!(message.bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        message.clear();
        message.signed(1, -2);
        assert_eq!(message.bytes(), [8, 0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let (mut nested, mut raw) = (Message::default(), Message::default());
            let bytes = vec![7; length];
            nested.number(1, 1);
            nested.nested(2, |message| message.bytes.extend_from_slice(&bytes));
            raw.number(1, 1);
            raw.raw(2, &bytes);
            assert_eq!(nested.bytes(), raw.bytes(), "{length}");
        }
    }

    #[test]
    fn text_is_always_utf8() {
        let mut message = Message::default();
        message.text(1, b"a\xff");
        assert_eq!(message.bytes(), [0x0a, 4, b'a', 0xef, 0xbf, 0xbd]);
    }
}
