// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control characters in JSON beyond those that it forbids: texts are of programs that may want a terminal to do something.

use std::borrow::Cow;

/// The first byte of U+0080 to U+00BF in UTF-8; the control characters of 8 bits (C1) are those up to U+009F.
const LATIN: u8 = 0xc2;
const DELETE: u8 = 0x7f;

/// Lines of JSON with U+007F to U+009F as `\u` escapes. Such characters can only be in its texts.
#[must_use]
pub fn without_controls(json: &[u8]) -> Cow<'_, [u8]> {
    if !json.contains(&LATIN) && !json.contains(&DELETE) {
        return Cow::Borrowed(json);
    }
    let mut out = Vec::with_capacity(json.len() + 64);
    let mut rest = json;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (*byte, after.first()) {
            (DELETE, _) => out.extend_from_slice(b"\\u007f"),
            (LATIN, Some(second @ 0x80..=0x9f)) => {
                out.extend_from_slice(format!("\\u{second:04x}").as_bytes());
                rest = after.get(1..).unwrap_or_default();
            }
            _ => out.push(*byte),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escapes_and_the_text_is_the_same() {
        let texts = ["", "plain", "\u{9b}31m\u{7f}", "é\u{80}\u{9f}\u{a0}Â", "\u{2009}日本"];
        for text in texts {
            let json = serde_json::to_string(&[text]).unwrap();
            let escaped = without_controls(json.as_bytes());
            let is_control = |one: char| one.is_control();
            assert!(!std::str::from_utf8(&escaped).unwrap().contains(is_control), "{escaped:?}");
            assert_eq!(serde_json::from_slice::<Vec<String>>(&escaped).unwrap(), [text]);
        }
        assert!(matches!(without_controls("[\"é\"]".as_bytes()), Cow::Borrowed(_)));
    }
}
