// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names for numbers, from the C expression by which the kernel prints an event.
//!
//! `print fmt` is C source: `__print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" })`. Only what is certain is taken: the
//! first argument has to be the field itself, and each number a constant expression of literals. An enumerator that the
//! kernel did not replace by its number loses only that name.

use crate::format::EventFormat;

/// More names than any field has (system calls would have 500).
const MAX_NAMES: usize = 4096;
/// Deeper nesting than any constant has.
const MAX_DEPTH: u32 = 32;

/// The names of a field's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// Each number is a set of bits, and a value is printed as the names of all numbers that it contains.
    pub flags: bool,
    /// Numbers and their names, in the order in which the kernel compares.
    pub names: Vec<(u64, String)>,
}

impl EventFormat {
    /// The names that the kernel prints for the values of `field`; `None` when it prints the number.
    #[must_use]
    pub fn symbols(&self, field: &str) -> Option<Symbols> {
        const TABLES: [(&str, bool); 5] = [
            ("__print_symbolic(", false),
            ("__print_symbolic_u64(", false),
            ("__print_symbolic64(", false),
            ("__print_flags(", true),
            ("__print_flags_u64(", true),
        ];
        TABLES.into_iter().find_map(|(call, flags)| {
            self.print_fmt.match_indices(call).find_map(|(at, _)| {
                let arguments = self.print_fmt[at + call.len()..].trim_start();
                let rest = after_field(arguments, field)?;
                let names = names(rest);
                (!names.is_empty()).then_some(Symbols { flags, names })
            })
        })
    }
}

/// What follows `REC->field,`, also in brackets.
fn after_field<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    let inner = text.trim_start_matches(['(', ' ']);
    let open = text[..text.len() - inner.len()].matches('(').count();
    let mut rest = inner.strip_prefix("REC->")?.strip_prefix(field)?.trim_start();
    for _ in 0..open {
        rest = rest.strip_prefix(')')?.trim_start();
    }
    rest.strip_prefix(',')
}

/// The pairs `{ 1, "TIMER" }` up to the end of the call.
fn names(mut text: &str) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    while found.len() < MAX_NAMES {
        text = text.trim_start_matches([' ', ',', '\t', '\n', '\\']);
        if text.starts_with('"') {
            // The separator between the names of flags.
            let Some((_, rest)) = string(text) else { break };
            text = rest;
            continue;
        }
        let Some(pair) = text.strip_prefix('{') else { break };
        let Some((number, rest)) = pair.split_once(',') else { break };
        let Some((name, rest)) = string(rest.trim_start()) else { break };
        if let Some(value) = constant(number) {
            found.push((value, name));
        }
        let Some((_, rest)) = rest.split_once('}') else { break };
        text = rest;
    }
    found
}

/// A string literal and what follows it.
fn string(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let (text, rest) = inner.split_once('"')?;
    Some((text.to_string(), rest))
}

/// The value of a constant expression of integer literals.
fn constant(text: &str) -> Option<u64> {
    let mut parser = Parser { text: text.trim().as_bytes(), depth: 0 };
    let value = parser.binary(0)?;
    parser.skip();
    parser.text.is_empty().then_some(value)
}

/// C's binary operators that occur, with their precedence; longer ones first.
const OPERATORS: [(&[u8], u8); 8] =
    [(b"<<", 4), (b">>", 4), (b"|", 1), (b"^", 2), (b"&", 3), (b"+", 5), (b"-", 5), (b"*", 6)];

struct Parser<'a> {
    text: &'a [u8],
    depth: u32,
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.text = self.text.trim_ascii_start();
    }

    fn take(&mut self, token: &[u8]) -> bool {
        self.skip();
        match self.text.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn binary(&mut self, least: u8) -> Option<u64> {
        let mut left = self.unary()?;
        loop {
            self.skip();
            let next = OPERATORS.iter().find(|(token, _)| self.text.starts_with(token));
            let Some((token, precedence)) = next.filter(|(_, precedence)| *precedence > least) else {
                return Some(left);
            };
            self.take(token);
            let right = self.binary(*precedence)?;
            left = match *token {
                b"<<" => left.checked_shl(u32::try_from(right).ok()?)?,
                b">>" => left.checked_shr(u32::try_from(right).ok()?)?,
                b"|" => left | right,
                b"^" => left ^ right,
                b"&" => left & right,
                b"+" => left.wrapping_add(right),
                b"-" => left.wrapping_sub(right),
                _ => left.wrapping_mul(right),
            };
        }
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = if self.take(b"-") {
            self.unary().map(u64::wrapping_neg)
        } else if self.take(b"~") {
            self.unary().map(|value| !value)
        } else if self.take(b"(") {
            self.cast_or_group()
        } else {
            self.literal()
        };
        self.depth -= 1;
        value
    }

    /// `(gfp_t)0x40` or `(1 << 3)`, after the bracket.
    fn cast_or_group(&mut self) -> Option<u64> {
        self.skip();
        if self.text.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_') {
            let end = self.text.iter().position(|byte| *byte == b')')?;
            let is_type = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b' ');
            if !self.text[..end].iter().all(is_type) {
                return None;
            }
            self.text = &self.text[end + 1..];
            return self.unary();
        }
        let value = self.binary(0)?;
        self.take(b")").then_some(value)
    }

    fn literal(&mut self) -> Option<u64> {
        self.skip();
        let end = self.text.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        let word = std::str::from_utf8(word).ok()?.to_ascii_lowercase();
        let digits = word.trim_end_matches(['u', 'l']);
        match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok(),
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_value_in_c() {
        let cases = [
            ("0", Some(0)),
            ("0x1f", Some(0x1f)),
            ("(1UL << 3)", Some(8)),
            ("1 << 3 | 1", Some(9)),
            ("1 | 2 << 4", Some(33)),
            ("((( gfp_t)(0x400u|0x800u)) | (( gfp_t)0x40u))", Some(0xc40)),
            ("-1", Some(u64::MAX)),
            ("~0x0fU", Some(!0xf)),
            ("5 - 2 - 1", Some(2)),
            ("010", Some(8)),
            ("(1 << 64)", None),
            ("EXTENT_FLAG_PINNED", None),
            ("", None),
            ("(1", None),
            ("1)", None),
        ];
        for (text, expected) in cases {
            assert_eq!(constant(text), expected, "{text}");
        }
        assert_eq!(constant(&"(".repeat(100_000)), None);
        assert_eq!(constant(&"-".repeat(100_000)), None);
    }

    fn with(print_fmt: &str) -> EventFormat {
        EventFormat {
            id: 1,
            system: "s".to_string(),
            name: "n".to_string(),
            common: Vec::new(),
            fields: Vec::new(),
            print_fmt: print_fmt.to_string(),
        }
    }

    #[test]
    fn names_of_values_are_found() {
        let format = with(
            "\"vec=%u [action=%s]\", REC->vec, __print_symbolic(REC->vec, { 0, \"HI\" }, { 1, \"TIMER\" },{OTHER,\"x\"}), \
             __print_flags((REC->flags), \"|\", { (1UL << 1), \"A, B\" }, { 0x10, \"C}\" })",
        );
        let vec = format.symbols("vec").unwrap();
        assert_eq!(vec, Symbols { flags: false, names: vec![(0, "HI".into()), (1, "TIMER".into())] });
        let flags = format.symbols("flags").unwrap();
        assert_eq!(flags, Symbols { flags: true, names: vec![(2, "A, B".into()), (16, "C}".into())] });
        assert_eq!(format.symbols("ve"), None);
        assert_eq!(format.symbols("vector"), None);
    }

    #[test]
    fn an_expression_of_a_field_is_not_the_field() {
        assert_eq!(with("__print_symbolic(REC->code & 0xff, { 0, \"NMI\" })").symbols("code"), None);
        assert_eq!(with("__print_symbolic((REC->code, { 0, \"NMI\" })").symbols("code"), None);
    }

    #[test]
    fn text_cut_anywhere_is_harmless() {
        let text = "__print_flags(((REC->f)), \"|\", { (1UL << 1), \"A\" }, { -(~1), \"B\" }), __print_symbolic(REC->g, {3,\"G\"})";
        for end in 0..text.len() {
            let format = with(&text[..end]);
            assert!(format.symbols("f").is_none_or(|symbols| symbols.names.len() <= 2));
            assert_eq!(
                format.symbols("g"),
                None.or(format.symbols("g").filter(|s| s.names == [(3, "G".into())]))
            );
        }
    }
}
