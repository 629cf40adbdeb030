// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Name patterns, compiled to the bit-parallel automaton that the eBPF side runs (see `struct rts_config`).
//!
//! Matching happens in the kernel, at fork and rename, because a task must be known as a target before its first waking.

use rtscope_abi as abi;

/// A pattern over task names: `*` any number of characters, `?` one character, all else itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    any: u32,
    accept: u32,
    takes: [u32; 256],
}

impl std::fmt::Debug for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Glob").field(&self.text).finish()
    }
}

/// A pattern that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It is empty.
    #[error("an empty name pattern matches no task; use '*' for all")]
    Empty,
    /// It is longer than any name.
    #[error("the name pattern '{0}' can match no task: names have at most 15 bytes (the kernel cuts them)")]
    TooLong(String),
}

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
            if position as usize >= abi::RTS_COMM_LEN as usize - 1 {
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

    /// What the eBPF side does, here: for tasks that are there before the programs are.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let end = name
            .iter()
            .fold(1_u32, |state, byte| (state & self.any) | (state & self.takes[usize::from(*byte)]) << 1);
        end & self.accept != 0
    }

    /// Writes the automaton into the configuration.
    pub(crate) fn store(&self, config: &mut abi::rts_config) {
        config.glob_any = self.any;
        config.glob_accept = self.accept;
        config.glob = self.takes;
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
