// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that a recording asks for, and no program has: who mistyped one would take an empty trace for an answer.
//!
//! Each pattern is held against the names of all events of all programs that are seen, those that nobody asked for among them. Of these some
//! are kept, to name the nearest one. Once each pattern has an event, nothing is looked at any more.

use crate::description::event_name;
use crate::patterns::RequestedEvents;
use rtscope_event::{glob_matches, nearest};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of events that are kept, of all programs together.
const NAMES_MAX: usize = 256;
/// Of those, in a sentence.
const NAMES_SHOWN: usize = 8;

/// What no program has had so far.
#[derive(Debug, Default)]
pub(crate) struct AskedNames(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    without_event: Vec<String>,
    names: BTreeSet<String>,
}

impl AskedNames {
    pub(crate) fn new(asked: &RequestedEvents) -> AskedNames {
        let without_event = asked.patterns().to_vec();
        AskedNames(Mutex::new(State { without_event, names: BTreeSet::new() }))
    }

    /// Takes in the descriptions of a provider.
    pub(crate) fn saw(&self, text: &[u8]) {
        let mut state = self.state();
        for part in text.split(|byte| *byte == 0) {
            if state.without_event.is_empty() {
                // What was kept is of no use any more.
                state.names.clear();
                return;
            }
            let name =
                part.split(|byte| *byte == b' ').next().and_then(|name| std::str::from_utf8(name).ok());
            // Also what is no event: an enumeration's name has no provider.
            let Some(name) = name.and_then(|name| event_name(name).ok()) else { continue };
            state.without_event.retain(|pattern| !glob_matches(pattern.as_bytes(), name.as_bytes()));
            if state.names.len() < NAMES_MAX {
                state.names.insert(name.to_owned());
            }
        }
    }

    /// What is to be said at the end.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let state = self.state();
        let sentence =
            |pattern: &String| format!("no program had an event '{pattern}'{}", state.hint(pattern));
        state.without_event.iter().map(sentence).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What there is in its place.
    fn hint(&self, pattern: &str) -> String {
        if self.names.is_empty() {
            return "; no program with events was seen (rtscope list -u shows those that run)".to_owned();
        }
        let is_exact = |text: &str| !text.contains(['*', '?']);
        let provider_of = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        let providers: BTreeSet<String> = self.names.iter().map(|name| provider_of(name)).collect();
        let provider = provider_of(pattern);
        if is_exact(&provider) && !providers.contains(&provider) {
            let near = nearest(&provider, providers.iter().map(String::as_str));
            return match near {
                Some(near) => format!("; the nearest provider is '{near}'"),
                None => format!("; there are those of {}", shown(providers.iter())),
            };
        }
        if let Some(near) =
            nearest(pattern, self.names.iter().map(String::as_str)).filter(|_| is_exact(pattern))
        {
            return format!("; the nearest is '{near}'");
        }
        let of_provider =
            self.names.iter().filter(|name| !is_exact(&provider) || provider_of(name) == provider);
        format!("; there are {}", shown(of_provider))
    }
}

/// Some of these, and that there are more.
fn shown<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let mut names = names.map(String::as_str);
    let first: Vec<&str> = names.by_ref().take(NAMES_SHOWN).collect();
    let more = if names.next().is_some() { " and others" } else { "" };
    first.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(patterns: &[&str], text: &[u8]) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let asked = AskedNames::new(&RequestedEvents::parse(&patterns, 6).unwrap());
        asked.saw(text);
        asked.sentences()
    }

    #[test]
    fn what_no_program_has_is_said_with_the_nearest_that_one_has() {
        let text =
            b"oms:order_new 6\nu32 id\n\0oms:order_fill 9\n\0pump:on 6\n\0side\n1 BUY\n\0bad name:x 6\n\0";
        for (pattern, expected) in [
            ("osm:*", "no program had an event 'osm:*'; the nearest provider is 'oms'"),
            ("oms:order_fil", "no program had an event 'oms:order_fil'; the nearest is 'oms:order_fill'"),
            ("oms:trade_*", "no program had an event 'oms:trade_*'; there are oms:order_fill, oms:order_new"),
            ("entirely", "no program had an event 'entirely:*'; there are those of oms, pump"),
        ] {
            assert_eq!(sentences(&[pattern, "pump:on"], text), [expected]);
        }
        // Also those whose level is left out.
        assert!(sentences(&["oms:order_f*", "*"], text).is_empty());
        let nothing = sentences(&["oms:*"], b"");
        assert!(nothing[0].contains("no program with events was seen"), "{nothing:?}");
    }

    #[test]
    fn a_program_with_many_names_costs_no_memory() {
        let text: String = (0..10_000).map(|number| format!("liar:e{number} 6\n\0")).collect();
        let asked = AskedNames::new(&RequestedEvents::parse(&["oms:*".to_owned()], 6).unwrap());
        asked.saw(text.as_bytes());
        assert_eq!(asked.state().names.len(), NAMES_MAX);
        // Nor is anything kept once each pattern has an event.
        asked.saw(b"oms:order 6\n\0oms:other 6\n\0");
        assert!(asked.state().names.is_empty());
        assert!(asked.sentences().is_empty());
    }
}
