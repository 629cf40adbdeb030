// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types of fields in the metadata's language, and the aliases that they use.

use crate::layout::Type;
use std::fmt::Write;

/// Declarations of all aliases below; they come first in the metadata.
pub(super) const ALIASES: &str = "typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 8; align = 8; signed = true; } := int8_t;
typealias integer { size = 16; align = 8; signed = true; } := int16_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
typealias integer { size = 8; align = 8; signed = false; base = 16; } := hex8_t;
typealias integer { size = 16; align = 8; signed = false; base = 16; } := hex16_t;
typealias integer { size = 32; align = 8; signed = false; base = 16; } := hex32_t;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := hex64_t;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := address_t;
typealias integer { size = 8; align = 8; signed = false; encoding = UTF8; } := char8_t;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;

";

/// An integer of whole bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integer {
    Unsigned(u8),
    Signed(u8),
    Hex(u8),
}

impl Integer {
    /// `None` unless it has 1, 2, 4 or 8 bytes.
    pub(super) fn of(bytes: u8, signed: bool, hex: bool) -> Option<Integer> {
        matches!(bytes, 1 | 2 | 4 | 8).then_some(match (hex, signed) {
            (true, _) => Integer::Hex(bytes),
            (false, true) => Integer::Signed(bytes),
            (false, false) => Integer::Unsigned(bytes),
        })
    }

    fn alias(self) -> String {
        match self {
            Integer::Unsigned(bytes) => format!("uint{}_t", u32::from(bytes) * 8),
            Integer::Signed(bytes) => format!("int{}_t", u32::from(bytes) * 8),
            Integer::Hex(bytes) => format!("hex{}_t", u32::from(bytes) * 8),
        }
    }
}

/// What a field of a tracepoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One(Integer),
    Array(Integer, u32),
    /// With the number of its elements before it, as LTTng writes it.
    Sequence(Integer),
    Text,
}

/// Prints a field of a tracepoint.
pub(super) fn field(text: &mut String, name: &str, shape: Shape) {
    // Writing to a String cannot fail, here and below.
    let _ = match shape {
        Shape::One(integer) => writeln!(text, "\t\t{} _{name};", integer.alias()),
        Shape::Array(integer, len) => writeln!(text, "\t\t{} _{name}[{len}];", integer.alias()),
        Shape::Sequence(integer) => {
            let alias = integer.alias();
            writeln!(text, "\t\tuint32_t __{name}_length;\n\t\t{alias} _{name}[ __{name}_length ];")
        }
        Shape::Text => writeln!(text, "\t\tstring _{name};"),
    };
}

/// Prints a field of one of our own events.
pub(super) fn own_field(text: &mut String, name: &str, kind: Type) {
    let _ = match kind {
        Type::U8 => writeln!(text, "\t\tuint8_t _{name};"),
        Type::U32 => writeln!(text, "\t\tuint32_t _{name};"),
        Type::S32 => writeln!(text, "\t\tint32_t _{name};"),
        Type::U64 => writeln!(text, "\t\tuint64_t _{name};"),
        Type::S64 => writeln!(text, "\t\tint64_t _{name};"),
        Type::Address => writeln!(text, "\t\taddress_t _{name};"),
        Type::Comm => writeln!(text, "\t\tchar8_t _{name}[16];"),
        Type::Text => writeln!(text, "\t\tstring _{name};"),
        Type::Origin => writeln!(text, "\t\tenum : uint8_t {{ timer = 1, irq = 2, vector = 3 }} _{name};"),
        Type::End => {
            writeln!(text, "\t\tenum : uint8_t {{ running = 1, blocked = 2, rewoken = 3 }} _{name};")
        }
    };
}

/// A TSDL string. Control characters, which a name or version cannot have anyway, become blanks.
pub(super) fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_host_name_stays_inside_its_quotes() {
        assert_eq!(quoted("a\"; }; \\ \n"), "\"a\\\"; }; \\\\  \"");
    }
}
