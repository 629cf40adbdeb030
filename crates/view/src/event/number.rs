// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as text, quickly: half of the time of printing a trace went into the standard formatter.

use rtscope_ctf::{Base, Integer};
use std::fmt::Write;

const PAIRS: &[u8; 200] = b"00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Appends a number in decimal. Most have one digit or two: flags, priorities, states, CPUs.
#[inline]
pub(super) fn decimal(text: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => text.push(b'0' + number as u8),
        10..100 => {
            let pair = number as usize * 2;
            text.extend_from_slice(&PAIRS[pair..pair + 2]);
        }
        _ => long_decimal(text, number),
    }
}

/// Of three digits or more.
fn long_decimal(text: &mut Vec<u8>, mut number: u64) {
    let count = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    let mut digits = [0; 20];
    let mut at = count;
    while number >= 100 {
        let pair = (number % 100) as usize * 2;
        number /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if number >= 10 {
        let pair = number as usize * 2;
        digits[..2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        digits[0] = b'0' + number as u8;
    }
    prefix(text, &digits, count);
}

/// Appends the beginning of an array: a copy of a size that the compiler knows, and then the rest is taken off again.
#[inline]
pub(super) fn prefix<const N: usize>(text: &mut Vec<u8>, array: &[u8; N], length: usize) {
    let before = text.len();
    text.extend_from_slice(array);
    text.truncate(before + length);
}

/// Appends a number with its sign.
#[inline]
pub(super) fn signed(text: &mut Vec<u8>, number: i64) {
    if number < 0 {
        text.push(b'-');
    }
    decimal(text, number.unsigned_abs());
}

/// Nine digits: a fraction of a second.
#[inline]
pub(super) fn nine(mut number: u64) -> [u8; 9] {
    let mut digits = [b'0'; 9];
    for at in [7, 5, 3, 1] {
        let pair = (number % 100) as usize * 2;
        number /= 100;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    digits[0] = b'0' + (number % 10) as u8;
    digits
}

/// Appends a number with leading zeros; `width` is at most 20.
pub(super) fn padded(text: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 && at > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text.extend_from_slice(&digits[at.min(20 - width.min(20))..]);
}

/// Appends an integer field's value in its own base, as babeltrace2 2.0.4 shows it.
pub(super) fn integer(text: &mut Vec<u8>, class: &Integer, value: u64) {
    let bits = u32::from(class.bits);
    let low = |bits: u32| if bits < 64 { value & ((1 << bits) - 1) } else { value };
    match class.base {
        Base::Decimal if class.signed => signed(text, value as i64),
        Base::Decimal => decimal(text, value),
        // Of a negative number only as many digits as its size has.
        Base::Hexadecimal => radix(text, b"0x", low(bits.next_multiple_of(4)), 4),
        Base::Octal if class.signed && bits < 64 => radix(text, b"0", low(bits.next_multiple_of(3)), 3),
        Base::Octal => radix(text, b"0", value, 3),
        Base::Binary => {
            text.extend_from_slice(b"0b");
            text.extend((0..bits).rev().map(|bit| b'0' + (value >> bit & 1) as u8));
        }
    }
}

fn radix(text: &mut Vec<u8>, prefix: &[u8], mut number: u64, bits: u32) {
    text.extend_from_slice(prefix);
    let mut digits = [0; 22];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789ABCDEF"[(number & ((1 << bits) - 1)) as usize];
        number >>= bits;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

/// Appends a floating point number as C's `%g` does: six digits, trailing zeros left out.
pub(super) fn general(text: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        text.extend_from_slice(if number.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if number.is_infinite() {
        text.extend_from_slice(if number < 0.0 { b"-inf" } else { b"inf" });
        return;
    }
    const DIGITS: i32 = 6;
    // The digits come from one exact conversion; the rest is where to put the point.
    let mut buffer = Buffer::default();
    let _ = write!(buffer, "{number:.5e}");
    let (mantissa, exponent) = buffer.as_str().split_once('e').unwrap_or(("0", "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number.is_sign_negative() {
        text.push(b'-');
    }
    let mut digits = [b'0'; DIGITS as usize];
    for (place, digit) in digits.iter_mut().zip(mantissa.bytes().filter(u8::is_ascii_digit)) {
        *place = digit;
    }
    let count = digits.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    let (whole, lead) = match exponent {
        0..DIGITS => (exponent as usize + 1, 0),
        -4..0 => (0, -exponent - 1),
        _ => (1, 0),
    };
    if whole == 0 {
        text.extend_from_slice(b"0.");
        text.extend((0..lead).map(|_| b'0'));
        return text.extend_from_slice(&digits[..count]);
    }
    text.extend_from_slice(&digits[..whole]);
    if count > whole {
        text.push(b'.');
        text.extend_from_slice(&digits[whole..count]);
    }
    if !(-4..DIGITS).contains(&exponent) {
        text.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        padded(text, u64::from(exponent.unsigned_abs()), 2);
    }
}

/// A text on the stack.
#[derive(Default)]
struct Buffer {
    bytes: [u8; 32],
    length: usize,
}

impl Buffer {
    fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let place = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(std::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut text = Vec::new();
        write(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn decimals() {
        for number in [0, 9, 10, 99, 100, 12345, u64::MAX] {
            assert_eq!(text(|text| decimal(text, number)), number.to_string());
        }
        for number in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(text(|text| signed(text, number)), number.to_string());
        }
        assert_eq!(text(|text| padded(text, 42, 9)), "000000042");
        assert_eq!((&nine(42), &nine(987_654_321)), (b"000000042", b"987654321"));
        assert_eq!(text(|text| padded(text, u64::MAX, 20)), u64::MAX.to_string());
        assert_eq!(text(|text| padded(text, 1234, 2)), "1234");
    }

    /// What glibc prints.
    #[test]
    fn floats_as_c_prints_them() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100_000.0, "100000"),
            (999_999.5, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.0001, "0.0001"),
            (0.000_123_456_7, "0.000123457"),
            (12.5, "12.5"),
            (999_999.0, "999999"),
            (-1e-10, "-1e-10"),
            (5e-324, "4.94066e-324"),
            (0.000_012_345, "1.2345e-05"),
            (1.618_033_988_749, "1.61803"),
            (1e300, "1e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(text(|text| general(text, number)), expected);
        }
    }
}
