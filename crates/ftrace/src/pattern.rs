// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which tracepoints a user asks for: `sched:*,irq:*,syscalls,!sched:sched_stat_*`.
//!
//! - `SYSTEM:NAME`: both with `*` (any characters) and `?` (one character).
//! - `syscalls`: all system calls; any other word without a colon is the name of a subsystem, or of an event of any
//!   subsystem; so `sched`, `sched_switch` and `*` mean what they look like.
//! - `syscalls:openat`: a system call, its entry and its exit. The names are the kernel's (`newfstatat`, not `fstatat`).
//! - `!PATTERN`: without these, wherever in the list it stands. A list of exclusions only: all but these.

use rtscope_event::{PatternList, glob_matches};

/// How the kernel names the events of a system call.
const SYSCALL_PREFIXES: [&str; 2] = ["sys_enter_", "sys_exit_"];

/// A list of patterns that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing between two commas, or nothing at all.
    #[error(
        "an empty event pattern in '{0}'; write SYSTEM:NAME (sched:*), a subsystem (irq), syscalls, or '*' for all"
    )]
    Empty(String),
    /// A second colon, or a blank.
    #[error(
        "'{0}' is not an event pattern; write SYSTEM:NAME (sched:sched_switch), with * and ? for any characters, and commas between"
    )]
    Form(String),
}

/// One pattern of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    system: Option<String>,
    name: String,
}

impl Pattern {
    fn parse(body: &str, list: &str) -> Result<Pattern, PatternError> {
        let empty = || PatternError::Empty(list.to_string());
        let form = || PatternError::Form(body.to_string());
        let (system, name) = match body.split_once(':') {
            Some((system, name)) => (Some(system.to_string()), name),
            None => (None, body),
        };
        if name.is_empty() || system.as_deref() == Some("") {
            return Err(empty());
        }
        if name.contains([':', '!']) || body.contains(char::is_whitespace) {
            return Err(form());
        }
        Ok(Pattern { text: body.to_string(), system, name: name.to_string() })
    }

    fn matches(&self, system: &str, name: &str) -> bool {
        match &self.system {
            None => glob(&self.name, system) || glob(&self.name, name) || self.is_syscall(system, name),
            Some(wanted) => glob(wanted, system) && (glob(&self.name, name) || self.is_syscall(system, name)),
        }
    }

    /// `openat` for `sys_enter_openat` and `sys_exit_openat`.
    fn is_syscall(&self, system: &str, name: &str) -> bool {
        let call = || SYSCALL_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        system == "syscalls" && call().is_some_and(|call| glob(&self.name, call))
    }
}

/// A list of patterns: which tracepoints are included, and which excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    list: PatternList<Pattern>,
}

impl Patterns {
    /// Reads a list with commas.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn parse(list: &str) -> Result<Patterns, PatternError> {
        Ok(Patterns { list: PatternList::parse(list.split(','), |text| Pattern::parse(text, list))? })
    }

    /// Reads several lists, as from several arguments.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn parse_all<T: AsRef<str>>(lists: impl IntoIterator<Item = T>) -> Result<Patterns, PatternError> {
        let mut all = Patterns::default();
        for list in lists {
            let PatternList { include, exclude } = Patterns::parse(list.as_ref())?.list;
            all.list.include.extend(include);
            all.list.exclude.extend(exclude);
        }
        Ok(all)
    }

    /// Whether there is no pattern, so that no event matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether this tracepoint is included.
    #[must_use]
    pub fn matches(&self, system: &str, name: &str) -> bool {
        !self.list.is_empty() && self.list.matches(|pattern| pattern.matches(system, name))
    }

    /// Patterns (other than exclusions) that match none of these events: most likely misspelled.
    #[must_use]
    pub fn without_match<'a>(&self, events: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<&str> {
        let unused = |pattern: &&Pattern| !events.clone().any(|(system, name)| pattern.matches(system, name));
        self.list.include.iter().filter(unused).map(|pattern| pattern.text.as_str()).collect()
    }
}

fn glob(pattern: &str, text: &str) -> bool {
    glob_matches(pattern.as_bytes(), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        let cases = [
            ("sched_*", "sched_switch", true),
            ("*_*", "sched_switch", true),
            ("*switch", "sched_switch_switch", true),
            ("s?hed*", "sched_switch", true),
            ("sched", "sched_switch", false),
            ("*x*", "sched_switch", false),
            ("*", "", true),
            ("", "", true),
            ("?", "", false),
            ("**a**b", "xxaxxb", true),
            ("a*b*c", "abxbc", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn lists_select_the_events_that_they_name() {
        let meant = |list: &str| {
            let patterns = Patterns::parse(list).unwrap();
            let events = [
                ("sched", "sched_switch"),
                ("sched", "sched_stat_wait"),
                ("irq", "irq_handler_entry"),
                ("syscalls", "sys_enter_openat"),
                ("syscalls", "sys_exit_openat"),
                ("syscalls", "sys_enter_openat2"),
                ("raw_syscalls", "sys_enter"),
            ];
            events.iter().enumerate().filter(|(_, (s, n))| patterns.matches(s, n)).map(|(i, _)| i).collect()
        };
        let cases: [(&str, Vec<usize>); 12] = [
            ("sched:*", vec![0, 1]),
            ("sched:*,!sched:sched_stat_*", vec![0]),
            ("!sched:sched_stat_*,sched:*", vec![0]),
            ("syscalls", vec![3, 4, 5]),
            ("syscalls:openat", vec![3, 4]),
            ("openat", vec![3, 4]),
            ("syscalls:sys_enter_*", vec![3, 5]),
            ("syscalls,!openat*", vec![]),
            ("*", vec![0, 1, 2, 3, 4, 5, 6]),
            ("!syscalls,!raw_syscalls", vec![0, 1, 2]),
            ("sched_switch, irq", vec![0, 2]),
            ("*:*_switch", vec![0]),
        ];
        for (list, expected) in cases {
            let found: Vec<usize> = meant(list);
            assert_eq!(found, expected, "{list}");
        }
        assert!(!Patterns::default().matches("sched", "sched_switch"));
    }

    #[test]
    fn texts_that_are_not_a_pattern_are_refused() {
        for text in ["", ",", "a,,b", "sched:", ":x", "!", "!sched:"] {
            assert!(matches!(Patterns::parse(text), Err(PatternError::Empty(_))), "{text}");
        }
        for text in ["a:b:c", "sched switch", "!!x"] {
            assert!(matches!(Patterns::parse(text), Err(PatternError::Form(_))), "{text}");
        }
    }

    #[test]
    fn misspelled_patterns_are_found() {
        let patterns = Patterns::parse_all(["sched:*,shed:*", "!nothing"]).unwrap();
        let events = [("sched", "sched_switch")];
        assert_eq!(patterns.without_match(events.into_iter()), ["shed:*"]);
    }
}
