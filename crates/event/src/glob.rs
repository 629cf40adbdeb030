// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Name patterns, compiled to the bit-parallel automaton that the eBPF side runs (see `struct rts_config`).
//!
//! Matching happens in the kernel, at fork and rename, because a task must be known as a target before its first wakeup.
//! The same automaton matches here: for tasks that are there before the programs are, and in the replay.

use std::fmt;

/// Characters of a pattern other than `*`: a task name has at most 15 bytes.
const MAX: u32 = 15;

/// A pattern over task names: `*` any number of characters, `?` one character, all else itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    any: u32,
    accept: u32,
    takes: [u32; 256],
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Glob").field(&self.text).finish()
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GlobError {
    /// It is empty.
    Empty,
    /// It is longer than any name.
    TooLong(String),
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlobError::Empty => f.write_str("an empty name pattern matches no task; use '*' for all"),
            GlobError::TooLong(text) => {
                write!(
                    f,
                    "the name pattern '{text}' can match no task: names have at most 15 bytes (the kernel cuts them)"
                )
            }
        }
    }
}

impl std::error::Error for GlobError {}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// See [`GlobError`].
    pub fn new(text: &str) -> Result<Glob, GlobError> {
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        let (mut any, mut position) = (0_u32, 0_u32);
        let mut takes = [0_u32; 256];
        for byte in text.bytes() {
            if byte == b'*' {
                any |= 1 << position;
                continue;
            }
            if position >= MAX {
                return Err(GlobError::TooLong(text.to_string()));
            }
            if byte == b'?' {
                takes.iter_mut().skip(1).for_each(|mask| *mask |= 1 << position);
            } else {
                takes[usize::from(byte)] |= 1 << position;
            }
            position += 1;
        }
        Ok(Glob { text: text.to_string(), any, accept: 1 << position, takes })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern describes all of `name`.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let end = name
            .iter()
            .fold(1_u32, |state, byte| (state & self.any) | (state & self.takes[usize::from(*byte)]) << 1);
        end & self.accept != 0
    }

    /// The automaton, for `struct rts_config`: states that take any character and stay, the final state's bit, and for each
    /// character the states that take it and go on.
    #[must_use]
    pub fn automaton(&self) -> (u32, u32, &[u32; 256]) {
        (self.any, self.accept, &self.takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_does() {
        let cases = [
            ("control*", "control-loop", true),
            ("control*", "control", true),
            ("control*", "my-control", false),
            ("*loop", "control-loop", true),
            ("*o*o*", "control-loop", true),
            ("*o*o*x", "control-loop", false),
            ("c?ntrol", "control", true),
            ("c?ntrol", "cntrol", false),
            ("*", "", true),
            ("*", "anything", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("a*b*c", "a-b-b-c", true),
            ("**a**", "bab", true),
            ("a*b*c", "a-c-b", false),
            ("Control", "control", false),
            ("?", "", false),
            ("fifteen-bytes--", "fifteen-bytes--", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(Glob::new(pattern).unwrap().matches(name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_that_can_match_nothing_are_refused() {
        assert_eq!(Glob::new(""), Err(GlobError::Empty));
        assert!(matches!(Glob::new("sixteen-bytes---"), Err(GlobError::TooLong(_))));
    }
}
