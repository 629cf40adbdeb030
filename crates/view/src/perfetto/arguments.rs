// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fields of any event as what Perfetto shows as its arguments.

use super::packets::{NameId, Packets, annotation, event};
use super::wire::Message;
use rtscope_event::{EventClass, Value, Values};
use std::io::Write;

/// The arguments of a class.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    /// For each field that is shown, its place and its name.
    fields: Vec<(usize, NameId, bool)>,
}

impl Arguments {
    /// All fields of the event itself.
    pub(super) fn new<W: Write>(class: &EventClass, packets: &mut Packets<W>) -> Arguments {
        let fields = class.fields.iter().enumerate().filter(|(_, field)| field.is_payload);
        let fields = fields.map(|(place, field)| (place, packets.annotation_name(&field.name), field.is_hex));
        Arguments { fields: fields.collect() }
    }

    /// Adds the values of an event.
    pub(super) fn write(&self, class: &EventClass, values: &Values<'_>, out: &mut Message) {
        for (place, name, is_hex) in &self.fields {
            let value = values.get(*place);
            let labels = class.fields.get(*place).filter(|field| !field.labels.is_empty());
            let number = values.integer(*place);
            if let Some(label) = labels.zip(number).and_then(|(field, number)| field.label(number)) {
                text(out, *name, label.as_bytes());
                continue;
            }
            match value {
                Value::None => {}
                Value::Unsigned(value) if *is_hex => pointer(out, *name, value),
                Value::Unsigned(value) => unsigned(out, *name, value),
                Value::Signed(value) => signed(out, *name, value),
                Value::Float(value) => argument(out, *name, |out| out.double(annotation::DOUBLE, value)),
                Value::Bytes(bytes) if *is_hex => text(out, *name, hex(bytes).as_bytes()),
                Value::Bytes(bytes) => text(out, *name, bytes),
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn argument(out: &mut Message, NameId(name): NameId, fill: impl FnOnce(&mut Message)) {
    out.nested(event::DEBUG_ANNOTATIONS, |argument| {
        argument.number(annotation::NAME_IID, name);
        fill(argument);
    });
}

/// A text.
pub(super) fn text(out: &mut Message, name: NameId, text: &[u8]) {
    argument(out, name, |argument| argument.text(annotation::TEXT, text));
}

/// A number.
pub(super) fn unsigned(out: &mut Message, name: NameId, value: u64) {
    argument(out, name, |argument| argument.number(annotation::UINT, value));
}

/// A number with a sign.
pub(super) fn signed(out: &mut Message, name: NameId, value: i64) {
    argument(out, name, |argument| argument.signed(annotation::INT, value));
}

/// A number that is shown in base 16.
pub(super) fn pointer(out: &mut Message, name: NameId, value: u64) {
    argument(out, name, |argument| argument.number(annotation::POINTER, value));
}
