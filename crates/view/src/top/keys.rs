// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the bytes of a terminal in raw mode to keys.
//!
//! Not by crossterm: its reader goes on for ever with a terminal that is gone, where another thread has the signal that says so.

use super::TopKey;

const ESCAPE: u8 = 0x1b;

/// The keys in these bytes, which are taken out. What may be the beginning of a key stays, unless no more comes for a while (`is_all`): then Escape
/// is a key.
#[must_use]
pub fn take_keys(bytes: &mut Vec<u8>, is_all: bool) -> Vec<TopKey> {
    let mut keys = Vec::new();
    let mut at = 0;
    while let Some((key, length)) = bytes.get(at..).and_then(|rest| first(rest, is_all)) {
        keys.extend(key);
        at += length;
    }
    bytes.drain(..at);
    keys
}

/// The first key, if it is one that means something, and how long it is. `None`: it is not complete.
fn first(bytes: &[u8], is_all: bool) -> Option<(Option<TopKey>, usize)> {
    match *bytes {
        [ESCAPE, b'[' | b'O', ref rest @ ..] => {
            match rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) {
                Some(end) => Some((of_sequence(&rest[..end], rest[end]), end + 3)),
                // Nobody types that: a sequence that was cut off.
                None => is_all.then_some((None, bytes.len())),
            }
        }
        [ESCAPE] => is_all.then_some((Some(TopKey::Escape), 1)),
        [ESCAPE, ..] => Some((Some(TopKey::Escape), 1)),
        [0x03, ..] => Some((Some(TopKey::Interrupt), 1)),
        [b'\r' | b'\n', ..] => Some((Some(TopKey::Enter), 1)),
        [byte @ b' '..=b'~', ..] => Some((Some(TopKey::Character(byte.into())), 1)),
        [_, ..] => Some((None, 1)),
        [] => None,
    }
}

/// As xterm has them, and the console; keys like Ctrl that are held down come in further numbers.
fn of_sequence(arguments: &[u8], end: u8) -> Option<TopKey> {
    let number = arguments.split(|byte| *byte == b';').next().unwrap_or_default();
    match (end, number) {
        (b'A', _) => Some(TopKey::Up),
        (b'B', _) => Some(TopKey::Down),
        (b'H', _) | (b'~', b"1" | b"7") => Some(TopKey::Home),
        (b'F', _) | (b'~', b"4" | b"8") => Some(TopKey::End),
        (b'~', b"5") => Some(TopKey::PageUp),
        (b'~', b"6") => Some(TopKey::PageDown),
        (b'M', _) => Some(TopKey::Enter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<TopKey> {
        let mut bytes = text.as_bytes().to_vec();
        let keys = take_keys(&mut bytes, true);
        assert!(bytes.is_empty(), "{bytes:?} of {text:?}");
        keys
    }

    #[test]
    fn keys_are_found_in_what_terminals_send() {
        assert_eq!(keys("\x1b[A\x1bOB"), [TopKey::Up, TopKey::Down]);
        assert_eq!(
            keys("\x1b[5~\x1b[6~\x1b[1;5H\x1b[4~"),
            [TopKey::PageUp, TopKey::PageDown, TopKey::Home, TopKey::End]
        );
        assert_eq!(
            keys("q?\r\x03"),
            [TopKey::Character('q'), TopKey::Character('?'), TopKey::Enter, TopKey::Interrupt]
        );
        assert_eq!(keys("\x1b"), [TopKey::Escape]);
        assert_eq!(keys("\x1bq"), [TopKey::Escape, TopKey::Character('q')]);
        // Left, F5, a letter of more than a byte, Ctrl-A.
        assert_eq!(keys("\x1b[D\x1b[15~\u{f6}\x01"), []);
        assert_eq!(keys("\x1b["), []);
    }

    #[test]
    fn a_key_may_come_in_pieces() {
        let mut bytes = vec![ESCAPE];
        assert_eq!(take_keys(&mut bytes, false), []);
        bytes.push(b'[');
        assert_eq!(take_keys(&mut bytes, false), []);
        bytes.extend(*b"5~j");
        assert_eq!(take_keys(&mut bytes, false), [TopKey::PageUp, TopKey::Character('j')]);
        assert!(bytes.is_empty());
    }
}
