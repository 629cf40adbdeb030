// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which events are requested: globs of `PROVIDER:EVENT`, exclusions, a level.
//!
//! Programs that start later decide for themselves by the same rules (include/rtscope/process.h); a test compares
//! both.

use crate::Error;
use rtscope_event::{PatternList, glob_matches};
use serde::{Deserialize, Serialize};

/// The events to be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedEvents {
    /// Patterns without `!`; `PROVIDER` alone is `PROVIDER:*`.
    include: Vec<String>,
    exclude: Vec<String>,
    /// The highest level.
    pub level: u32,
}

impl Default for RequestedEvents {
    /// All events of all levels.
    fn default() -> RequestedEvents {
        RequestedEvents { include: vec!["*".to_string()], exclude: Vec::new(), level: u32::MAX }
    }
}

impl RequestedEvents {
    /// Reads patterns: `PROVIDER:EVENT` with `*` and `?`, `PROVIDER`, and `!PATTERN` to exclude.
    ///
    /// # Errors
    /// When one cannot match anything.
    pub fn parse(patterns: &[String], level: u32) -> Result<RequestedEvents, Error> {
        let PatternList { include, exclude } = PatternList::parse(patterns, pattern)?;
        let mut wanted = RequestedEvents { include, exclude, level };
        if wanted.include.is_empty() {
            wanted.include.push("*".to_string());
        }
        if wanted.words().len() > 8192 {
            return Err(Error::Pattern(patterns[0].clone(), "all patterns together have at most 8192 bytes"));
        }
        Ok(wanted)
    }

    /// Whether an event is requested.
    #[must_use]
    pub fn matches(&self, name: &str, level: u32) -> bool {
        let any =
            |list: &[String]| list.iter().any(|pattern| glob_matches(pattern.as_bytes(), name.as_bytes()));
        level <= self.level && any(&self.include) && !any(&self.exclude)
    }

    /// What is requested, without what is excluded.
    pub(crate) fn patterns(&self) -> &[String] {
        &self.include
    }

    /// In the form of `struct rtu_session`.
    pub(crate) fn words(&self) -> Vec<u8> {
        let marked = |mark: char, list: &[String]| -> String {
            list.iter().map(|pattern| format!("{mark}{pattern}\0")).collect()
        };
        (marked('+', &self.include) + &marked('-', &self.exclude)).into_bytes()
    }
}

/// `PROVIDER:EVENT`, `PROVIDER`.
fn pattern(text: &str) -> Result<String, Error> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '?' | ':');
    if text.is_empty() || !text.chars().all(legal) {
        let why = "names of events have letters, digits and _, as PROVIDER:EVENT; * and ? stand for any";
        return Err(Error::Pattern(text.to_string(), why));
    }
    Ok(if text.contains(':') || text == "*" { text.to_string() } else { format!("{text}:*") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose() {
        let parse = |words: &[&str]| {
            RequestedEvents::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>(), 6)
        };
        let wanted = parse(&["motor:set*", "pump", "!*:debug*"]).unwrap();
        assert!(wanted.matches("motor:setpoint", 6) && wanted.matches("pump:on", 0));
        assert!(
            !wanted.matches("motor:tick", 6)
                && !wanted.matches("pump:debug_x", 6)
                && !wanted.matches("pump:on", 7)
        );
        assert_eq!(wanted.words(), b"+motor:set*\0+pump:*\0-*:debug*\0");
        assert!(parse(&["!motor:*"]).unwrap().matches("pump:on", 1));
        assert!(parse(&["a b"]).is_err() && parse(&["!"]).is_err());
    }
}
