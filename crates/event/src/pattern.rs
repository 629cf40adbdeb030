// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patterns for names of any length: `*` stands for any characters, `?` for one.
//!
//! ([`crate::Glob`] is the one that the kernel side runs, for task names of at most 15 bytes.)

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<u8>);

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Pattern {
    /// Every text is a pattern.
    #[must_use]
    pub fn new(text: &str) -> Pattern {
        Pattern(text.as_bytes().to_vec())
    }

    /// Whether it matches all of `name`. Takes at most the product of both lengths.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let pattern = self.0.as_slice();
        let (mut place, mut at) = (0, 0);
        // The position of the last star, and the text it has taken so far.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match pattern.get(place) {
                Some(b'*') => {
                    star = Some((place, at));
                    place += 1;
                }
                Some(wanted) if *wanted == b'?' || name.get(at) == Some(wanted) => {
                    place += 1;
                    at += 1;
                }
                _ => {
                    let Some((star_place, taken)) = star else { return false };
                    star = Some((star_place, taken + 1));
                    place = star_place + 1;
                    at = taken + 1;
                }
            }
        }
        pattern.get(place..).unwrap_or_default().iter().all(|rest| *rest == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_does() {
        for (pattern, name, expected) in [
            ("sched_*", "sched_switch", true),
            ("sched_*", "sched_", true),
            ("sched_*", "my_sched_x", false),
            ("*switch", "sched_switch", true),
            ("*s*w*", "sched_switch", true),
            ("*s*w", "sched_switch", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("exact", "exactly", false),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
