// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types of fields in the metadata's language, and the aliases that they use.

use rtscope_event::TraceType;
use std::collections::HashSet;
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
    /// The same of floating-point numbers of 4 or 8 bytes (`f32_t`, `f64_t`).
    FloatArray(u8, u32),
    FloatSequence(u8),
    Text,
}

/// Printed names of a struct's field.
#[derive(Debug)]
pub(super) struct FieldName {
    pub(super) own: String,
    /// Of the field with the length, if it is a sequence.
    pub(super) length: String,
}

/// The printed names of a struct so far.
///
/// babeltrace2 2.0.4 aborts on a struct with two fields of one name. A program may have given two fields one name, and may have a
/// field with the name that the length of a sequence gets. A name also counts as that of another when it is the other's without an
/// underscore: babeltrace2 compares a new name with those that it has stripped.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn add(&mut self, name: &str) -> bool {
        let is_new = !self.0.contains(name)
            && !self.0.contains(&format!("_{name}"))
            && !name.strip_prefix('_').is_some_and(|stripped| self.0.contains(stripped));
        is_new && self.0.insert(name.to_string())
    }

    /// This name, or with a number behind it.
    fn unique(&mut self, name: String) -> String {
        let mut others = (2_u32..).map(|number| format!("{name}_{number}"));
        others.find(|name| self.add(name)).unwrap_or(name)
    }
}

/// Names for fields of these names, of which some are sequences. Each has one leading underscore, which readers strip.
pub(super) fn names<'n>(fields: impl Iterator<Item = (&'n str, bool)> + Clone) -> Vec<FieldName> {
    let mut names = Names::default();
    // Programs' names first, since nobody knows those of lengths.
    let printed = fields.clone().map(|(name, _)| format!("_{name}"));
    let own: Vec<(bool, String)> = printed.map(|name| (names.add(&name), name)).collect();
    let own: Vec<String> =
        own.into_iter().map(|(is_new, name)| if is_new { name } else { names.unique(name) }).collect();
    let lengths = fields.map(|(name, is_sequence)| {
        let name = format!("__{name}_length");
        match is_sequence {
            false => String::new(),
            true if names.add(&name) => name,
            true => names.unique(name),
        }
    });
    let lengths: Vec<String> = lengths.collect();
    own.into_iter().zip(lengths).map(|(own, length)| FieldName { own, length }).collect()
}

/// Prints the fields of a tracepoint.
pub(super) fn fields(text: &mut String, fields: &[(String, Shape)]) {
    let is_sequence = |shape: &Shape| matches!(shape, Shape::Sequence(_));
    let names = names(fields.iter().map(|(name, shape)| (name.as_str(), is_sequence(shape))));
    fields.iter().zip(&names).for_each(|((_, shape), name)| field(text, name, *shape));
}

/// Prints a field.
pub(super) fn field(text: &mut String, FieldName { own: name, length }: &FieldName, shape: Shape) {
    // Writing to a String cannot fail, here and below.
    let _ = match shape {
        Shape::One(integer) => writeln!(text, "\t\t{} {name};", integer.alias()),
        Shape::Array(integer, len) => writeln!(text, "\t\t{} {name}[{len}];", integer.alias()),
        Shape::Sequence(integer) => {
            let alias = integer.alias();
            writeln!(text, "\t\tuint32_t {length};\n\t\t{alias} {name}[ {length} ];")
        }
        Shape::FloatArray(bytes, len) => writeln!(text, "\t\tf{}_t {name}[{len}];", u32::from(bytes) * 8),
        Shape::FloatSequence(bytes) => {
            let bits = u32::from(bytes) * 8;
            writeln!(text, "\t\tuint32_t {length};\n\t\tf{bits}_t {name}[ {length} ];")
        }
        Shape::Text => writeln!(text, "\t\tstring {name};"),
    };
}

/// Prints a field of one of our own events.
pub(super) fn own_field(text: &mut String, name: &str, kind: TraceType) {
    let _ = match kind {
        TraceType::U8 => writeln!(text, "\t\tuint8_t _{name};"),
        TraceType::U32 => writeln!(text, "\t\tuint32_t _{name};"),
        TraceType::S32 => writeln!(text, "\t\tint32_t _{name};"),
        TraceType::U64 => writeln!(text, "\t\tuint64_t _{name};"),
        TraceType::S64 => writeln!(text, "\t\tint64_t _{name};"),
        TraceType::Address => writeln!(text, "\t\taddress_t _{name};"),
        TraceType::Comm => writeln!(text, "\t\tchar8_t _{name}[16];"),
        TraceType::Text => writeln!(text, "\t\tstring _{name};"),
        TraceType::Labels(labels) => {
            let labels: Vec<String> =
                (1..).zip(labels).map(|(number, label)| format!("{label} = {number}")).collect();
            writeln!(text, "\t\tenum : uint8_t {{ {} }} _{name};", labels.join(", "))
        }
        TraceType::PartOfName => Ok(()),
    };
}

/// A TSDL string. Control characters, which a name or version cannot have anyway, become blanks.
pub(crate) fn quoted(value: &str) -> String {
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
    fn each_field_has_its_own_name() {
        let given = [
            ("a", true),
            ("_b_length", false),
            ("a", false),
            ("a_3", false),
            ("a", true),
            ("b", true),
            ("_a", false),
            ("a_length", false),
            ("c", true),
        ];
        let names: Vec<FieldName> = names(given.into_iter());
        let own: Vec<&str> = names.iter().map(|name| name.own.as_str()).collect();
        assert_eq!(own, ["_a", "__b_length", "_a_2", "_a_3", "_a_4", "_b", "__a_5", "_a_length", "_c"]);
        let lengths: Vec<&str> =
            names.iter().map(|name| name.length.as_str()).filter(|name| !name.is_empty()).collect();
        assert_eq!(lengths, ["__a_length_2", "__a_length_3", "__b_length_2", "__c_length"]);
    }

    #[test]
    fn a_hostile_host_name_stays_inside_its_quotes() {
        assert_eq!(quoted("a\"; }; \\ \n"), "\"a\\\"; }; \\\\  \"");
    }
}
