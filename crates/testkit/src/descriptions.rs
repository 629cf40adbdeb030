// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions of events as programs leave them (include/rtscope/abi.h), made at random: by the grammar, and full of what readers
//! of traces may stumble over. Some are wrong, and to be refused.

use crate::random::Random;

/// Names that mean something in the metadata of a trace, or that writers and readers make of others.
const NAMES: [&str; 64] = [
    "event",
    "stream",
    "trace",
    "env",
    "clock",
    "callsite",
    "typealias",
    "typedef",
    "struct",
    "variant",
    "enum",
    "integer",
    "floating_point",
    "string",
    "align",
    "size",
    "signed",
    "unsigned",
    "int",
    "char",
    "short",
    "long",
    "float",
    "double",
    "void",
    "const",
    "_Bool",
    "_Complex",
    "_Imaginary",
    "byte_order",
    "encoding",
    "base",
    "map",
    "id",
    "v",
    "timestamp",
    "timestamp_begin",
    "packet_size",
    "content_size",
    "stream_id",
    "magic",
    "uuid",
    "name",
    "fields",
    "loglevel",
    "context",
    "header",
    "uint8_t",
    "u8",
    "true",
    "TRUE",
    "_",
    "__",
    "___",
    "a",
    "_a",
    "__a",
    "a_length",
    "_a_length",
    "__a_length",
    "a_2",
    "_a_length_2",
    "A",
    "length",
];

/// Labels that end what they are in, for a writer that is not careful; some cannot be shown.
const LABELS: [&str; 32] = [
    "idle",
    "run fast",
    "\"",
    "\\",
    "\\\\",
    "\\\"",
    "\" = 1, \"x",
    "' }",
    "};",
    "*/",
    "/* open",
    "// rest",
    "%s%n",
    "{}",
    "\\n",
    "\\x41",
    "\\0",
    "\\u00e4",
    "ä",
    "漢字",
    "🦀",
    "\u{202e}rtl",
    "\u{2028}",
    "\u{feff}",
    "a\u{0301}",
    " ",
    "  two  ",
    "-1",
    "...",
    "=",
    "\t",
    "\u{7f}",
];

const INTEGERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "x8", "x16", "x32", "x64"];

/// The text of a provider's descriptions.
#[derive(Clone, Debug)]
pub struct DescriptionText {
    /// As in its file.
    pub text: Vec<u8>,
    /// Number of events.
    pub events: u32,
    /// Number of enumerations.
    pub enumerations: u32,
}

/// A provider's descriptions. One in eight is wrong somewhere.
pub fn provider(random: &mut Random) -> DescriptionText {
    let names: Vec<String> = (0..random.below(4)).map(|_| name(random)).collect();
    let events = 1 + random.below(5);
    let mut text = String::new();
    for _ in 0..events {
        text += &format!("{}:{} {}\n", name(random), name(random), level(random));
        for _ in 0..random.below(17) {
            let field = field(random, &names);
            text += &format!("{field} {}\n", name(random));
        }
        text.push('\0');
    }
    for name in &names {
        text += &format!("{name}\n{}\0", labels(random));
    }
    let mut text = text.into_bytes();
    if random.below(8) == 0 {
        (0..=random.below(3)).for_each(|_| spoil(random, &mut text));
    }
    DescriptionText { text, events: events as u32, enumerations: names.len() as u32 }
}

/// A name: with a meaning, of any letters, or as long as they can be.
fn name(random: &mut Random) -> String {
    const LETTERS: &[u8] = b"abcxyzABC___0189";
    match random.below(8) {
        0..5 => NAMES[random.index(NAMES.len())].to_string(),
        5..7 => {
            let rest = (0..random.below(12)).map(|_| char::from(LETTERS[random.index(LETTERS.len())]));
            format!("n{}", rest.collect::<String>())
        }
        _ => "long_".repeat(60)[..mostly_good(random, &[250, 256, 257], 1)].to_string(),
    }
}

/// One of these; of the last `bad` only now and then, since a provider with one of them is refused as a whole.
fn mostly_good<T: Copy>(random: &mut Random, all: &[T], bad: usize) -> T {
    let rare = random.below(100) == 0;
    all[random.index(if rare { all.len() } else { all.len() - bad })]
}

fn level(random: &mut Random) -> u64 {
    let levels = [0, 6, 7, 13, 14, 15, 255, u64::from(u32::MAX), u64::from(u32::MAX) + 1];
    mostly_good(random, &levels, 1)
}

fn field(random: &mut Random, enumerations: &[String]) -> String {
    let integer = INTEGERS[random.index(INTEGERS.len())];
    match random.below(11) {
        0 => "bool".to_string(),
        1 => ["f32", "f64"][random.index(2)].to_string(),
        2 => "str".to_string(),
        3 => format!("seq {integer}"),
        4 => {
            let most = [("8", "1023"), ("16", "4092"), ("32", "2046"), ("64", "1023")];
            let most =
                most.into_iter().find(|(bits, _)| integer[1..] == **bits).map_or("1", |(_, most)| most);
            let counts = ["1", "2", "0x4u", "7UL", "16", "100", most, "0", "4294967295", "4294967296", "n"];
            format!("array {integer} {}", mostly_good(random, &counts, 4))
        }
        5 | 6 if !enumerations.is_empty() => {
            format!("enum {}", enumerations[random.index(enumerations.len())])
        }
        7 => format!("seq {}", ["f32", "f64"][random.index(2)]),
        8 => format!("array {}", mostly_good(random, &["f32 3", "f64 1023", "f64 1024", "f32 0"], 2)),
        _ => integer.to_string(),
    }
}

fn labels(random: &mut Random) -> String {
    let mut text = String::new();
    let count = if random.below(40) == 0 { 4096 } else { 1 + random.below(12) };
    for _ in 0..count {
        let value = match random.below(6) {
            0 => i64::from(i32::MIN),
            1 => i64::from(i32::MAX),
            2 if random.below(100) == 0 => i64::from(i32::MAX) + 1,
            // The same value and label again and again.
            _ => random.below(6) as i64 - 2,
        };
        let label = match random.below(10) {
            0 => "\\".repeat(1 + random.index(256)),
            1 => NAMES[random.index(NAMES.len())].to_string(),
            // The last two cannot be shown.
            _ => mostly_good(random, &LABELS, 2).to_string(),
        };
        text += &format!("{value} {label}\n");
    }
    text
}

/// Changes a byte, or a few, to one that means something.
pub fn spoil(random: &mut Random, text: &mut Vec<u8>) {
    let at = random.index(text.len().max(1));
    match random.below(5) {
        0 if random.flag() => text.truncate(at),
        1 => drop(text.drain(at..(at + 1 + random.index(8)).min(text.len()))),
        2 => {
            let end = (at + random.index(64)).min(text.len());
            let again = text[at..end].to_vec();
            drop(text.splice(at..at, again));
        }
        _ => {
            if let Some(byte) = text.get_mut(at) {
                *byte = b"\0\n :\"\\_0-;}\xff\xc3"[random.index(13)];
            }
        }
    }
}
