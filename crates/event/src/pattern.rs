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
        glob_matches(&self.0, name)
    }
}

/// Whether `pattern` describes all of `text`: `*` any characters, `?` one, all else itself.
///
/// Backtracks only to the last `*`, which is enough (text taken by an earlier one can always be taken by the later one), so the time is at
/// most the product of the lengths.
#[must_use]
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut place, mut at) = (0, 0);
    // The position of the last star, and the text it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(place) {
            Some(b'*') => {
                star = Some((place, at));
                place += 1;
            }
            Some(wanted) if *wanted == b'?' || text.get(at) == Some(wanted) => {
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

/// A list of patterns, of which those with a `!` before them leave out, wherever in the list they stand: what one of the others matches
/// (everything, if there is no other) and none of these. All lists of events are such: of tracepoints, of programs' events, of those of
/// traces; what a pattern is differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternList<P = Pattern> {
    /// Without a `!`.
    pub include: Vec<P>,
    /// With one.
    pub exclude: Vec<P>,
}

impl<P> Default for PatternList<P> {
    /// Empty.
    fn default() -> PatternList<P> {
        PatternList { include: Vec::new(), exclude: Vec::new() }
    }
}

impl<P> PatternList<P> {
    /// Of texts, of which `make` makes patterns, without the `!`.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn parse<T: AsRef<str>, E>(
        texts: impl IntoIterator<Item = T>,
        mut make: impl FnMut(&str) -> Result<P, E>,
    ) -> Result<PatternList<P>, E> {
        let mut all = PatternList::default();
        for text in texts {
            match text.as_ref().trim().strip_prefix('!') {
                Some(rest) => all.exclude.push(make(rest.trim())?),
                None => all.include.push(make(text.as_ref().trim())?),
            }
        }
        Ok(all)
    }

    /// Whether nothing was said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether something is meant, by what `is` says of single patterns. An empty list means everything.
    #[must_use]
    pub fn matches(&self, is: impl Fn(&P) -> bool) -> bool {
        (self.include.is_empty() || self.include.iter().any(&is)) && !self.exclude.iter().any(&is)
    }
}

impl PatternList {
    /// Of texts; every text is a pattern.
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> PatternList {
        let make = |text: &str| Ok::<_, std::convert::Infallible>(Pattern::new(text));
        PatternList::parse(texts, make).unwrap_or_else(|never| match never {})
    }

    /// As it is written.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let exclude = self.exclude.iter().map(|pattern| format!("!{pattern}"));
        self.include.iter().map(ToString::to_string).chain(exclude).collect()
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

    #[test]
    fn exclusions_leave_out_wherever_they_stand() {
        let meant = |list: &[&str]| -> Vec<usize> {
            let list = PatternList::new(list);
            let is = |name: &str| list.matches(|pattern| pattern.matches(name.as_bytes()));
            ["ab", "ac", "b"].into_iter().enumerate().filter(|(_, name)| is(name)).map(|(at, _)| at).collect()
        };
        assert_eq!(meant(&[]), [0, 1, 2]);
        assert_eq!(meant(&["a*"]), [0, 1]);
        assert_eq!(meant(&["a*", "!ac"]), [0]);
        assert_eq!(meant(&["! ac", " a*"]), [0]);
        assert_eq!(meant(&["!a*"]), [2]);
        assert_eq!(meant(&["a*", "!*"]), []);
        assert_eq!(PatternList::new(["!x", "y"]).texts(), ["y", "!x"]);
        assert!(PatternList::new([""; 0]).is_empty() && !PatternList::new(["!x"]).is_empty());
    }
}
