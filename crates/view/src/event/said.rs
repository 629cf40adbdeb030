// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program says by RTSCOPE_PRINTF: the text is made here, from the event's fields, and added to the event's line.
//!
//! Such an event is known by its last field: `printf`, an enumeration with one label, the format (include/rtscope/printf.h). Formats and
//! arguments come from a trace, so nothing here relies on the two matching: a conversion without an argument stays as it is.

use rtscope_ctf::{
    EventView, FieldIndex, Format, Integer, NoStyle, Piece, Plan, Scope, TraceSet, Visit, WriteEvent,
};

use super::Addition;
use super::shared::SharedByClass;
use super::tame::tame;
use std::fmt::Write;
use std::sync::Arc;

/// No conversion makes more than this of one value.
const WIDTH_MAX: usize = 1024;

/// A format whose lines have the text of events that say something.
pub struct Saying<F> {
    inner: F,
    addition: Addition,
    /// By stream and class; `None`: an event without a text. Empty where no event has one.
    plans: Vec<Arc<[Option<Box<Plan>>]>>,
}

impl<F: Format> Saying<F> {
    /// Adds texts to the lines of a format.
    pub fn new(set: &TraceSet, inner: F, addition: Addition) -> Saying<F> {
        let mut shared = SharedByClass::default();
        let plans = set.streams.iter().map(|stream| {
            let plan = |event| {
                let plan = set.event_plan(stream, event, &NoStyle);
                let last = plan.fields.iter().rev().find(|field| field.scope == Scope::Fields);
                last.is_some_and(|field| field.path == "printf").then(|| Box::new(plan))
            };
            shared.of(stream, || (0..set.event_count(stream)).map(plan).collect())
        });
        let plans: Vec<Arc<[_]>> = plans.collect();
        let says = plans.iter().any(|plans| plans.iter().any(Option::is_some));
        Saying { plans: if says { plans } else { Vec::new() }, inner, addition }
    }
}

impl<F: Format> Format for Saying<F> {
    type Writer<'f>
        = SayingWriter<'f, F>
    where
        F: 'f;

    fn writer(&self) -> SayingWriter<'_, F> {
        SayingWriter { format: self, inner: self.inner.writer() }
    }

    fn gap(&self, before: Option<u64>, first: u64, text: &mut Vec<u8>) {
        self.inner.gap(before, first, text);
    }
}

/// Writes lines with texts.
pub struct SayingWriter<'f, F: Format + 'f> {
    format: &'f Saying<F>,
    inner: F::Writer<'f>,
}

impl<F: Format> WriteEvent for SayingWriter<'_, F> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let plan = self.format.plans.get(event.stream).and_then(|plans| plans.get(event.event)?.as_deref());
        let Some(plan) = plan else { return self.inner.write(piece, event) };
        let mut said = Said { plan, arguments: Vec::new(), format: None };
        let is_known = event.peek(plan, &mut said);
        if !self.inner.write(piece, event) {
            return false;
        }
        let Some(text) = said.text().filter(|_| is_known) else { return true };
        let out = &mut piece.text;
        match self.format.addition {
            Addition::Text => {
                out.truncate(out.len() - b"\n".len());
                let start = out.len();
                out.extend_from_slice(b" # ");
                out.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
                tame(out, start);
                out.push(b'\n');
            }
            Addition::Json => {
                out.truncate(out.len() - b"}\n".len());
                out.extend_from_slice(b",\"text\":");
                super::json::quoted(out, text.as_bytes());
                out.extend_from_slice(b"}\n");
            }
        }
        true
    }
}

/// An argument, as its field has it.
#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(Vec<u8>),
}

/// The values of an event, and the format.
#[derive(Debug)]
struct Said<'p> {
    plan: &'p Plan,
    arguments: Vec<Argument>,
    format: Option<String>,
}

impl Said<'_> {
    /// Not of its contexts, which are no arguments (the thread's name is a text like others).
    fn is_own(&self, field: FieldIndex) -> bool {
        self.plan.fields.get(usize::from(field)).is_some_and(|field| field.scope == Scope::Fields)
    }

    fn text(&self) -> Option<String> {
        Some(formatted(self.format.as_ref()?.trim_end(), &self.arguments))
    }
}

impl Visit for Said<'_> {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, plan: &Plan, integer: &Integer, value: u64) {
        if !self.is_own(integer.field) {
            return;
        }
        if let Some(labels) = plan.enumeration(integer) {
            let mut labels = labels.labels(i128::from(value as i64));
            // Two formats of one name: which of them it is, is not known.
            self.format = labels.next().filter(|_| labels.next().is_none()).map(str::to_owned);
            return;
        }
        self.arguments.push(match integer.signed {
            true => Argument::Signed(value as i64),
            false => Argument::Unsigned(value),
        });
    }

    fn float(&mut self, field: FieldIndex, value: f64) {
        if self.is_own(field) {
            self.arguments.push(Argument::Float(value));
        }
    }

    fn text(&mut self, field: FieldIndex, text: &[u8]) {
        if self.is_own(field) {
            self.arguments.push(Argument::Text(text.to_vec()));
        }
    }

    fn element(&mut self, _: u64) {}

    fn restart(&mut self) {
        (self.arguments, self.format) = (Vec::new(), None);
    }
}

/// A conversion: what is between `%` and its letter, which is the last.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    /// Of an integer: 1, 2, 4 or 8.
    bytes: u32,
    letter: char,
}

/// The text of a format as printf(3) describes it, without `*` and `n`.
fn formatted(format: &str, arguments: &[Argument]) -> String {
    let mut text = String::new();
    let mut arguments = arguments.iter();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("%%") {
            text.push('%');
            rest = after;
            continue;
        }
        let found = conversion(&rest[1..]);
        match found.as_ref().and_then(|(conversion, after)| Some((conversion, after, arguments.next()?))) {
            Some((conversion, after, argument)) => {
                conversion.write(argument, &mut text);
                rest = after;
            }
            // Which argument is the next one's is not known any more.
            None => break,
        }
    }
    text + rest
}

/// The conversion at the beginning of a text, and what follows.
fn conversion(text: &str) -> Option<(Conversion, &str)> {
    let mut found = Conversion { bytes: 4, ..Conversion::default() };
    let flags = text.len() - text.trim_start_matches(['-', '+', ' ', '#', '0', '\'']).len();
    for flag in text[..flags].chars() {
        match flag {
            '-' => found.left = true,
            '+' => found.plus = true,
            ' ' => found.space = true,
            '#' => found.alternative = true,
            '0' => found.zeros = true,
            _ => {}
        }
    }
    let (width, rest) = number(&text[flags..]);
    found.width = width.unwrap_or(0);
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = number(after);
        (found.precision, rest) = (Some(precision.unwrap_or(0)), after);
    }
    let lengths =
        [("hh", 1), ("h", 2), ("ll", 8), ("l", 8), ("j", 8), ("z", 8), ("t", 8), ("q", 8), ("L", 8)];
    if let Some((length, bytes)) = lengths.iter().find(|(length, _)| rest.starts_with(length)) {
        (found.bytes, rest) = (*bytes, &rest[length.len()..]);
    }
    found.letter = rest.chars().next().filter(|letter| "diouxXcspfFeEgGaA".contains(*letter))?;
    Some((found, &rest[1..]))
}

fn number(text: &str) -> (Option<usize>, &str) {
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    (digits.parse().ok().map(|number: usize| number.min(WIDTH_MAX)), rest)
}

impl Conversion {
    fn write(&self, argument: &Argument, text: &mut String) {
        let value = match (self.letter, argument) {
            ('s', Argument::Text(bytes)) => {
                let shown = String::from_utf8_lossy(bytes);
                return self.pad(
                    "",
                    &shown.chars().take(self.precision.unwrap_or(usize::MAX)).collect::<String>(),
                    text,
                );
            }
            ('p', Argument::Signed(_) | Argument::Unsigned(_)) => {
                return self.pad("", &format!("{:#x}", word(argument)), text);
            }
            ('c', Argument::Signed(_) | Argument::Unsigned(_)) => {
                let number = word(argument);
                // %lc has a character of any alphabet, %c a byte.
                let wide = u32::try_from(number).ok().and_then(char::from_u32).filter(|_| self.bytes == 8);
                return self.pad("", &wide.unwrap_or(char::from(number as u8)).to_string(), text);
            }
            ('f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A', Argument::Float(value)) => {
                return self.float(*value, text);
            }
            ('d' | 'i' | 'o' | 'u' | 'x' | 'X', Argument::Signed(_) | Argument::Unsigned(_)) => {
                word(argument)
            }
            // It does not match: as it is.
            (_, Argument::Signed(value)) => return self.pad("", &value.to_string(), text),
            (_, Argument::Unsigned(value)) => return self.pad("", &value.to_string(), text),
            (_, Argument::Float(value)) => return self.pad("", &value.to_string(), text),
            (_, Argument::Text(bytes)) => return self.pad("", &String::from_utf8_lossy(bytes), text),
        };
        self.integer(value, text);
    }

    fn integer(&self, value: u64, text: &mut String) {
        let bits = 64 - self.bytes * 8;
        let is_signed = matches!(self.letter, 'd' | 'i');
        let signed = (value << bits) as i64 >> bits;
        let unsigned = (value << bits) >> bits;
        let (sign, digits) = match self.letter {
            'd' | 'i' => (self.sign(signed < 0), signed.unsigned_abs().to_string()),
            // Its zero is a digit.
            'o' if self.alternative && unsigned != 0 => ("", format!("0{unsigned:o}")),
            'o' => ("", format!("{unsigned:o}")),
            'x' if self.alternative && unsigned != 0 => ("0x", format!("{unsigned:x}")),
            'x' => ("", format!("{unsigned:x}")),
            'X' if self.alternative && unsigned != 0 => ("0X", format!("{unsigned:X}")),
            'X' => ("", format!("{unsigned:X}")),
            _ => ("", unsigned.to_string()),
        };
        let has_zero = self.letter == 'o' && self.alternative;
        let is_nothing =
            self.precision == Some(0) && !has_zero && if is_signed { signed == 0 } else { unsigned == 0 };
        let digits = if is_nothing { String::new() } else { digits };
        let digits = format!("{digits:0>width$}", width = self.precision.unwrap_or(0));
        match self.zeros && !self.left && self.precision.is_none() {
            true => self.pad_zeros(sign, &digits, text),
            false => self.pad(sign, &digits, text),
        }
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        }
    }

    fn float(&self, value: f64, text: &mut String) {
        let sign = self.sign(value.is_sign_negative() && !value.is_nan());
        let magnitude = value.abs();
        let precision = self.precision.unwrap_or(6);
        if !magnitude.is_finite() {
            let names = if self.letter.is_ascii_uppercase() { ["NAN", "INF"] } else { ["nan", "inf"] };
            return self.pad(sign, names[usize::from(!magnitude.is_nan())], text);
        }
        let digits = match self.letter.to_ascii_lowercase() {
            'f' => format!("{magnitude:.precision$}"),
            'e' => exponential(magnitude, precision),
            // Hexadecimal digits of a number are rare in what people read.
            'a' => format!("{magnitude:?}"),
            _ => general(magnitude, precision.max(1), self.alternative),
        };
        let digits = if self.alternative { with_point(&digits) } else { digits };
        let digits = if self.letter.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
        match self.zeros && !self.left {
            true => self.pad_zeros(sign, &digits, text),
            false => self.pad(sign, &digits, text),
        }
    }

    fn pad(&self, sign: &str, value: &str, text: &mut String) {
        let blanks = self.width.saturating_sub(sign.len() + value.chars().count());
        let (before, after) = if self.left { (0, blanks) } else { (blanks, 0) };
        // Writing to a String cannot fail.
        let _ = write!(text, "{:before$}{sign}{value}{:after$}", "", "");
    }

    fn pad_zeros(&self, sign: &str, digits: &str, text: &mut String) {
        let width = self.width.saturating_sub(sign.len());
        let _ = write!(text, "{sign}{digits:0>width$}");
    }
}

fn word(argument: &Argument) -> u64 {
    match argument {
        Argument::Signed(value) => *value as u64,
        Argument::Unsigned(value) => *value,
        _ => 0,
    }
}

/// The same with a point, whatever follows it.
fn with_point(digits: &str) -> String {
    if digits.contains('.') {
        return digits.to_owned();
    }
    let (before, after) = digits.split_at(digits.find('e').unwrap_or(digits.len()));
    format!("{before}.{after}")
}

/// `d.ddde+dd`, as C writes it.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// `%g`: the shorter of `%e` and `%f`, without zeros at the end.
fn general(value: f64, precision: usize, keeps_zeros: bool) -> String {
    let rounded = format!("{value:.digits$e}", digits = precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let is_plain = exponent >= -4 && i64::from(exponent) < precision as i64;
    let text = match is_plain {
        true => format!("{value:.digits$}", digits = (precision as i64 - 1 - i64::from(exponent)) as usize),
        false => exponential(value, precision - 1),
    };
    if keeps_zeros {
        return text;
    }
    let (digits, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Each format with its argument, as printf(1) writes them: by the C library, integers with 64 bits.
    fn of_c(all: &[(String, Argument)]) -> Option<Vec<String>> {
        let formats: String = all.iter().map(|(format, _)| format!("{format}\n")).collect();
        let arguments = all.iter().map(|(_, argument)| match argument {
            Argument::Signed(value) => value.to_string(),
            Argument::Unsigned(value) => value.to_string(),
            Argument::Float(value) => format!("{value:e}"),
            Argument::Text(value) => String::from_utf8_lossy(value).into_owned(),
        });
        let output = Command::new("/usr/bin/printf")
            .arg("--")
            .arg(formats)
            .args(arguments)
            .env("LC_ALL", "C")
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
    }

    #[test]
    fn numbers_and_texts_are_as_the_c_library_writes_them() {
        let flags = ["", "-", "+", " ", "#", "0", "-#", "+0", " 0"];
        let sizes = ["", "1", "12", ".0", ".3", "12.5", "12.0"];
        let integers = [0, 1, -1, 42, -300, i64::MAX, i64::MIN, 0xfedc_ba98];
        // Exact in binary, or far from a tie: printf(1) has more digits.
        let floats =
            [0.0, -0.0, 1.0, -1.5, 0.1, 1e-5, 123_456.0, 1_234_567.0, 99.9996, 0.000_123_4, f64::INFINITY];
        let mut all = Vec::new();
        for (flag, size) in flags.iter().flat_map(|flag| sizes.iter().map(move |size| (flag, size))) {
            for letter in "diuoxX".chars().filter(|letter| !(flag.contains('#') && "diu".contains(*letter))) {
                let format = format!(
                    "<%{}{size}l{letter}>%%",
                    flag.trim_matches(|c| "uoxX".contains(letter) && "+ ".contains(c))
                );
                all.extend(integers.map(|value| (format.clone(), Argument::Signed(value))));
            }
            for letter in "fFeEgG".chars() {
                all.extend(floats.map(|value| (format!("<%{flag}{size}{letter}>"), Argument::Float(value))));
            }
            let flag = if flag.contains('-') { "-" } else { "" };
            all.push((format!("<%{flag}{size}s>"), Argument::Text(b"hello".to_vec())));
        }
        let Some(expected) = of_c(&all) else { rtscope_testkit::skip!("no printf(1)") };
        assert_eq!(expected.len(), all.len());
        for ((format, argument), expected) in all.iter().zip(&expected) {
            assert_eq!(&formatted(format, std::slice::from_ref(argument)), expected, "{format} {argument:?}");
        }
        let shorter = |format: &str, value| formatted(format, &[Argument::Signed(value)]);
        assert_eq!(
            [shorter("%d", 1 << 32 | 5), shorter("%hhd", 255), shorter("%hx", -1)],
            ["5", "-1", "ffff"]
        );
        assert_eq!(
            [shorter("%u", -1), shorter("%x", -1), shorter("%zu", -1)],
            ["4294967295", "ffffffff", "18446744073709551615"]
        );
    }

    #[test]
    fn what_does_not_match_is_shown_as_it_is() {
        let one = [Argument::Text(b"text".to_vec())];
        assert_eq!(formatted("%d %s %q 100%", &one), "text %s %q 100%");
        assert_eq!(formatted("%s|%n", &[Argument::Float(0.5), Argument::Signed(3)]), "0.5|%n");
        assert_eq!(formatted("%99999999s", &one).len(), WIDTH_MAX);
        assert_eq!(formatted("%*d", &[Argument::Signed(3)]), "%*d");
        let three = [1, 2, 3].map(Argument::Signed);
        assert_eq!(formatted("%d %*d %d", &three), "1 %*d %d", "which argument is whose is not known");
        assert_eq!(formatted("%b%% %d", &three), "%b%% %d");
        assert_eq!(formatted("%lc %c", &[0x20ac, 0x41].map(Argument::Signed)), "\u{20ac} A");
        assert_eq!(formatted("%c%p", &[Argument::Signed(120), Argument::Unsigned(255)]), "x0xff");
    }
}
