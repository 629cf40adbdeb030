// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats of C with arguments as SyS-T sends them: integers of 32 or 64 bits, doubles, and strings with their NUL, one behind the other.
//!
//! Formats and arguments come from devices, so whatever they say, a text has [an end](TEXT_BYTES_MAX).

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};

use super::until_nul;

/// Longer texts are cut.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Wider fields, and numbers with more digits, are refused.
const WIDTH_MAX: usize = 4096;

/// Why a text is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// There are fewer arguments than the format names.
    MissingArgument,
    /// A conversion that C does not have, or that cannot be sent (`%n`).
    Conversion,
    /// A field, or the whole text, is too long.
    TooLong,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FormatError::MissingArgument => "fewer arguments than its format names",
            FormatError::Conversion => "a conversion that is not known",
            FormatError::TooLong => "too long",
        })
    }
}

impl core::error::Error for FormatError {}

/// A conversion of a format.
#[derive(Default)]
struct Conversion {
    left: bool,
    zeros: bool,
    sign: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// The size of an integer argument in bits, as its value is cut.
    bits: u32,
    /// Of the argument as sent.
    sent_bits: u32,
}

/// Arguments that are taken one after the other.
struct Arguments<'a> {
    rest: &'a [u8],
    wide: bool,
}

impl<'a> Arguments<'a> {
    fn integer(&mut self, bits: u32) -> Result<u64, FormatError> {
        let bytes = (bits / 8) as usize;
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(FormatError::MissingArgument)?;
        self.rest = rest;
        Ok(taken.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn int(&mut self) -> Result<i32, FormatError> {
        Ok(self.integer(32)? as u32 as i32)
    }

    fn string(&mut self) -> Result<&'a [u8], FormatError> {
        if self.rest.is_empty() {
            return Err(FormatError::MissingArgument);
        }
        let (text, rest) = until_nul(self.rest);
        self.rest = rest;
        Ok(text)
    }
}

/// Appends the text; what could be made of it before an error stays.
pub(super) fn expand(
    text: &mut String,
    format: &[u8],
    arguments: &[u8],
    wide: bool,
) -> Result<(), FormatError> {
    let mut arguments = Arguments { rest: arguments, wide };
    let mut rest = format;
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        literal(text, &rest[..percent])?;
        rest = &rest[percent + 1..];
        rest = convert(text, rest, &mut arguments)?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(FormatError::TooLong);
        }
    }
    literal(text, rest)
}

/// Appends what is no conversion, as far as a text goes.
fn literal(text: &mut String, bytes: &[u8]) -> Result<(), FormatError> {
    let room = TEXT_BYTES_MAX.saturating_sub(text.len());
    text.push_str(&String::from_utf8_lossy(&bytes[..room.min(bytes.len())]));
    if bytes.len() > room { Err(FormatError::TooLong) } else { Ok(()) }
}

/// One conversion, of which `format` begins behind the percent sign. Returns what is behind it.
fn convert<'f>(
    text: &mut String,
    format: &'f [u8],
    arguments: &mut Arguments<'_>,
) -> Result<&'f [u8], FormatError> {
    let mut conversion = Conversion { bits: 32, sent_bits: 32, ..Conversion::default() };
    let rest = conversion.flags(format);
    let rest = conversion.width(rest, arguments)?;
    let rest = conversion.precision(rest, arguments)?;
    let rest = conversion.size(rest, arguments.wide);
    let (kind, rest) = rest.split_first().ok_or(FormatError::Conversion)?;
    if conversion.width.max(conversion.precision.unwrap_or(0)) > WIDTH_MAX {
        return Err(FormatError::TooLong);
    }
    match kind {
        b'%' => text.push('%'),
        b'c' => {
            let byte = arguments.integer(32)? as u8;
            conversion.pad(text, "", &String::from_utf8_lossy(&[byte]));
        }
        b's' => {
            let string = arguments.string()?;
            let length = conversion.precision.unwrap_or(string.len()).min(string.len());
            conversion.zeros = false;
            conversion.pad(text, "", &String::from_utf8_lossy(&string[..length]));
        }
        b'd' | b'i' => conversion.signed(text, arguments.integer(conversion.sent_bits)?),
        b'u' | b'o' | b'x' | b'X' => {
            conversion.unsigned(text, *kind, arguments.integer(conversion.sent_bits)?)
        }
        b'p' => {
            let bits = if arguments.wide { 64 } else { 32 };
            (conversion.bits, conversion.alternate) = (bits, true);
            conversion.unsigned(text, b'x', arguments.integer(bits)?);
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' => {
            conversion.real(text, *kind, f64::from_bits(arguments.integer(64)?));
        }
        _ => return Err(FormatError::Conversion),
    }
    Ok(rest)
}

impl Conversion {
    fn flags<'f>(&mut self, mut format: &'f [u8]) -> &'f [u8] {
        while let Some((flag, rest)) = format.split_first() {
            match flag {
                b'-' => self.left = true,
                b'0' => self.zeros = true,
                b'+' => self.sign = true,
                b' ' => self.space = true,
                b'#' => self.alternate = true,
                _ => break,
            }
            format = rest;
        }
        format
    }

    fn width<'f>(
        &mut self,
        format: &'f [u8],
        arguments: &mut Arguments<'_>,
    ) -> Result<&'f [u8], FormatError> {
        if let Some(rest) = format.strip_prefix(b"*") {
            let width = arguments.int()?;
            self.left |= width < 0;
            self.width = width.unsigned_abs() as usize;
            return Ok(rest);
        }
        let (width, rest) = number(format);
        self.width = width;
        Ok(rest)
    }

    fn precision<'f>(
        &mut self,
        format: &'f [u8],
        arguments: &mut Arguments<'_>,
    ) -> Result<&'f [u8], FormatError> {
        let Some(rest) = format.strip_prefix(b".") else { return Ok(format) };
        if let Some(rest) = rest.strip_prefix(b"*") {
            self.precision = usize::try_from(arguments.int()?).ok();
            return Ok(rest);
        }
        let (precision, rest) = number(rest);
        self.precision = Some(precision);
        Ok(rest)
    }

    /// The size of an integer: as an argument it is sent with 32 bits at least.
    fn size<'f>(&mut self, format: &'f [u8], wide: bool) -> &'f [u8] {
        let long = if wide { 64 } else { 32 };
        let (bits, length) = match format {
            [b'h', b'h', ..] => (8, 2),
            [b'h', ..] => (16, 1),
            [b'l', b'l', ..] => (64, 2),
            [b'j' | b'q', ..] => (64, 1),
            [b'l' | b'z' | b't', ..] => (long, 1),
            [b'L', ..] => (32, 1),
            _ => (32, 0),
        };
        self.bits = bits;
        self.sent_bits = bits.max(32);
        &format[length..]
    }

    fn signed(&self, text: &mut String, sent: u64) {
        let value = (sent << (64 - self.bits)) as i64 >> (64 - self.bits);
        let sign = if value < 0 { "-" } else { self.plus() };
        self.digits(text, sign, value.unsigned_abs().to_string());
    }

    fn unsigned(&self, text: &mut String, kind: u8, sent: u64) {
        let value = sent & u64::MAX >> (64 - self.bits);
        let (prefix, digits) = match kind {
            b'o' => ("0", format!("{value:o}")),
            b'x' => ("0x", format!("{value:x}")),
            b'X' => ("0X", format!("{value:X}")),
            _ => ("", value.to_string()),
        };
        let prefix = if self.alternate && value != 0 { prefix } else { "" };
        self.digits(text, prefix, digits);
    }

    /// An integer: a precision is the least number of digits, and then zeros do not fill the field.
    fn digits(&self, text: &mut String, prefix: &str, digits: String) {
        let least = self.precision.unwrap_or(0);
        let digits = if digits.len() < least { format!("{digits:0>least$}") } else { digits };
        let zeros = self.zeros && self.precision.is_none();
        self.pad_with(text, prefix, &digits, zeros);
    }

    const fn plus(&self) -> &'static str {
        if self.sign {
            "+"
        } else if self.space {
            " "
        } else {
            ""
        }
    }

    fn real(&self, text: &mut String, kind: u8, value: f64) {
        let sign = if value.is_sign_negative() { "-" } else { self.plus() };
        let value = value.abs();
        if !value.is_finite() {
            let word = if value.is_nan() { "nan" } else { "inf" };
            self.pad_with(text, sign, word, false);
            return;
        }
        let precision = self.precision.unwrap_or(6);
        let digits = match kind.to_ascii_lowercase() {
            b'f' => format!("{value:.precision$}"),
            b'e' => scientific(value, precision),
            _ => self.shortest(value, precision.max(1)),
        };
        let digits = if kind.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
        self.pad(text, sign, &digits);
    }

    /// `%g`: the shorter one of both, without zeros at its end.
    fn shortest(&self, value: f64, digits: usize) -> String {
        let written = scientific(value, digits - 1);
        let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let is_small = exponent < -4 || exponent >= digits as i32;
        if is_small {
            let mantissa = if self.alternate { mantissa } else { without_zeros(mantissa) };
            return format!("{mantissa}{}", &written[written.find('e').unwrap_or(0)..]);
        }
        let behind = (digits as i32 - 1 - exponent).max(0) as usize;
        let fixed = format!("{value:.behind$}");
        if self.alternate { fixed } else { without_zeros(&fixed).to_string() }
    }

    fn pad(&self, text: &mut String, prefix: &str, content: &str) {
        self.pad_with(text, prefix, content, self.zeros);
    }

    fn pad_with(&self, text: &mut String, prefix: &str, content: &str, zeros: bool) {
        let filling = self.width.saturating_sub(prefix.len() + content.chars().count());
        // Writing into a String does not fail.
        let _ = match (self.left, zeros) {
            (true, _) => write!(text, "{prefix}{content}{:filling$}", ""),
            (false, true) => write!(text, "{prefix}{:0>filling$}{content}", ""),
            (false, false) => write!(text, "{:filling$}{prefix}{content}", ""),
        };
    }
}

/// As C writes it: an exponent of two digits at least, with its sign.
fn scientific(value: f64, precision: usize) -> String {
    let written = format!("{value:.precision$e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

fn without_zeros(number: &str) -> &str {
    if !number.contains('.') {
        return number;
    }
    number.trim_end_matches('0').trim_end_matches('.')
}

/// The decimal number at the begin, and what is behind it.
fn number(format: &[u8]) -> (usize, &[u8]) {
    let digits = format.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let add = |value: usize, byte: &u8| value.saturating_mul(10).saturating_add(usize::from(byte - b'0'));
    (format[..digits].iter().fold(0, add), &format[digits..])
}
