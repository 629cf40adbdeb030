// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texts of programs in lines for people, without what drives a terminal or changes how the text around it is shown.
//!
//! Controls of ASCII are escaped where texts are formatted. Those beyond it (U+0080 to U+009F, of which one byte each is enough in terminals that take no
//! UTF-8) are only looked for in what is not ASCII, which few lines are: who writes a line knows that of its parts. What babeltrace2 prints is left as it is: that format is byte for byte.

use rtscope_event::is_invisible;
use std::io::Write;

/// What was appended from `start` on.
pub(super) fn tame(text: &mut Vec<u8>, start: usize) {
    let Some(tail) = text.get(start..).filter(|tail| !is_ascii(tail)) else { return };
    let mut tamed = Vec::with_capacity(tail.len());
    // Writing to a vector cannot fail.
    for chunk in tail.utf8_chunks() {
        for character in chunk.valid().chars() {
            let is_wild = (character.is_control() && !character.is_ascii()) || is_invisible(character);
            let _ = match is_wild {
                true => write!(tamed, "{}", character.escape_unicode()),
                false => write!(tamed, "{character}"),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(tamed, "\\x{byte:02x}");
        }
    }
    text.truncate(start);
    text.extend_from_slice(&tamed);
}

/// As `[u8]::is_ascii`, which stops at the first byte that is not, and so takes four times as long for lines that have none (12 ns for 158 bytes): it was 5 %
/// of `print`.
fn is_ascii(text: &[u8]) -> bool {
    const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
    // What the last one has in common with the one before is looked at twice.
    let Some((_, last)) = text.split_last_chunk() else { return text.is_ascii() };
    let word = |chunk: &[u8]| chunk.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    let any = text.chunks_exact(8).fold(u64::from_ne_bytes(*last), |any, chunk| any | word(chunk));
    any & NOT_ASCII == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tamed(text: &[u8]) -> String {
        let mut all = [b"\x9b", text].concat();
        tame(&mut all, 1);
        assert_eq!(all[0], 0x9b, "what was there before stays");
        String::from_utf8(all.split_off(1)).expect("what is not UTF-8 is escaped")
    }

    #[test]
    fn what_is_not_ascii_drives_no_terminal() {
        assert_eq!(tamed("Größe 5 µs → ok\n".as_bytes()), "Größe 5 µs → ok\n");
        assert_eq!(tamed("a\u{9b}31m".as_bytes()), "a\\u{9b}31m");
        assert_eq!(tamed("a\u{202e}txt.exe".as_bytes()), "a\\u{202e}txt.exe");
        assert_eq!(tamed(b"\x9b31m\xff"), "\\x9b31m\\xff");
    }

    #[test]
    fn one_byte_anywhere_is_not_ascii() {
        for length in 0..100 {
            let mut text = vec![b'a'; length];
            assert!(is_ascii(&text));
            for at in 0..length {
                text[at] = 0x80;
                assert!(!is_ascii(&text), "{at} of {length}");
                text[at] = b'a';
            }
        }
    }
}
