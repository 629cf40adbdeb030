// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Integers in JSON that many readers would round: they take all numbers for doubles.

/// Lines of JSON with quotes around integers that a double does not have exactly.
#[must_use]
pub fn with_strings(json: &[u8]) -> Vec<u8> {
    /// 2^53.
    const EXACT: u128 = 1 << 53;
    let mut out = Vec::with_capacity(json.len() + json.len() / 16);
    let mut at = 0;
    let mut in_text = false;
    while let Some(byte) = json.get(at) {
        let rest = json.get(at..).unwrap_or_default();
        if in_text || !matches!(byte, b'-' | b'0'..=b'9') {
            match byte {
                b'"' => in_text = !in_text,
                b'\\' if in_text => {
                    out.push(*byte);
                    at += 1;
                }
                _ => {}
            }
            out.extend(json.get(at));
            at += 1;
            continue;
        }
        let is_number = |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let length = rest.iter().take_while(is_number).count();
        let number = rest.get(..length).unwrap_or_default();
        let digits = std::str::from_utf8(number).unwrap_or_default().trim_start_matches('-');
        let is_large = digits.parse::<u128>().is_ok_and(|value| value > EXACT);
        out.extend(is_large.then_some(b'"'));
        out.extend_from_slice(number);
        out.extend(is_large.then_some(b'"'));
        at += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_a_double_does_not_have_become_strings() {
        let json = br#"{"a":9007199254740993,"b":[1,-9007199254740994,9007199254740992],"c":"9007199254740993 \" 9007199254740993","d":1.7976931348623157e308,"e":18446744073709551615}"#;
        let expected = br#"{"a":"9007199254740993","b":[1,"-9007199254740994",9007199254740992],"c":"9007199254740993 \" 9007199254740993","d":1.7976931348623157e308,"e":"18446744073709551615"}"#;
        assert_eq!(String::from_utf8_lossy(&with_strings(json)), String::from_utf8_lossy(expected));
    }
}
