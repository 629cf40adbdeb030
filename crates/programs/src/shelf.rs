// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions that are kept: each once, and each user has a share.
//!
//! A trace describes an event as long as it exists, so a recording holds on to all descriptions that it has seen, and what all
//! users together may describe is limited. The shares are such that nobody can use up those of others: descriptions count for the
//! user whose program had them first, and once for any number of programs that have the same ones. What nobody holds any more, as after
//! the end of a program that a flight recorder watched, does not count.

use crate::asked::AskedNames;
use crate::description::Descriptions;
use crate::patterns::RequestedEvents;
use crate::provider::ProviderInfo;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

/// Of all users; one user's programs, also in containers that the user made, have half of it at most. A trace may have all classes twice (for two layouts of event headers), so its metadata stays below 32 MiB: half of what
/// our own reader takes. babeltrace2 needs 2.4 GB for that.
const BYTES_MAX: usize = 16 << 20;
/// Where the trace has a limit, a part in so many of it at most.
const LIMITS_PART: u64 = 16;

const OWNERS_SHARE: &str = "this user's programs describe more than 8 MiB of requested events (or a 32nd of --max-size), and a trace has to describe all of them; request fewer events (-u PROVIDER:EVENT)";
const SHARE_OF_ALL: &str = "all programs together describe so many requested events that this user's share of 16 MiB (or a 16th of --max-size) is used up; request fewer events (-u PROVIDER:EVENT)";

/// Whose share it is: the user who is charged (`budget`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(pub(crate) u32);

#[derive(Debug)]
struct Kept {
    owner: Owner,
    origin: String,
    bytes: usize,
    descriptions: Weak<Descriptions>,
}

/// The descriptions of one recording.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Others are not kept.
    pub(crate) wanted: RequestedEvents,
    /// What was seen of others.
    pub(crate) asked: Arc<AskedNames>,
    /// By hash.
    known: HashMap<u64, Vec<Kept>>,
    hasher: RandomState,
    taken: HashMap<Owner, usize>,
    /// Of all.
    bytes_max: usize,
}

impl Default for Shelf {
    fn default() -> Shelf {
        Shelf::new(RequestedEvents::default(), Arc::default(), None)
    }
}

impl Shelf {
    /// `trace_bytes_max`: of the trace, if it has a limit.
    pub(crate) fn new(
        wanted: RequestedEvents,
        asked: Arc<AskedNames>,
        trace_bytes_max: Option<u64>,
    ) -> Shelf {
        let part = trace_bytes_max.and_then(|bytes| usize::try_from(bytes / LIMITS_PART).ok());
        Shelf {
            wanted,
            asked,
            known: HashMap::new(),
            hasher: RandomState::new(),
            taken: HashMap::new(),
            bytes_max: part.map_or(BYTES_MAX, |part| part.min(BYTES_MAX)),
        }
    }

    /// Replaces descriptions that are known by the known ones, and counts others.
    pub(crate) fn keep(
        &mut self,
        owner: Owner,
        mut info: ProviderInfo,
    ) -> Result<ProviderInfo, &'static str> {
        // Nothing is kept of what nobody asked for: any number of providers may come, each with another origin.
        if !info.is_asked_for() {
            return Ok(info);
        }
        let origin = info.origin();
        let hash = self.hasher.hash_one((owner, &origin, &info.descriptions));
        for kept in self.known.get(&hash).into_iter().flatten() {
            let same = kept.descriptions.upgrade().filter(|known| {
                (kept.owner, kept.origin.as_str(), known) == (owner, origin.as_str(), &info.descriptions)
            });
            if let Some(same) = same {
                info.descriptions = same;
                return Ok(info);
            }
        }
        let bytes = info.metadata_bytes();
        self.take(owner, bytes)?;
        let descriptions = Arc::downgrade(&info.descriptions);
        self.known.entry(hash).or_default().push(Kept { owner, origin, bytes, descriptions });
        Ok(info)
    }

    fn take(&mut self, owner: Owner, bytes: usize) -> Result<(), &'static str> {
        let mut result = self.has_room(owner, bytes);
        if result.is_err() {
            self.forget_unused();
            result = self.has_room(owner, bytes);
        }
        result.map(|()| *self.taken.entry(owner).or_default() += bytes)
    }

    fn has_room(&self, owner: Owner, bytes: usize) -> Result<(), &'static str> {
        let all: usize = self.taken.values().sum();
        let taken = self.taken.get(&owner).copied().unwrap_or_default();
        // At most half of what the others leave: whoever comes next has a share, too.
        let share = self.bytes_max.saturating_sub(all - taken) / 2;
        match taken.saturating_add(bytes) {
            mine if mine > self.bytes_max / 2 => Err(OWNERS_SHARE),
            mine if mine > share => Err(SHARE_OF_ALL),
            _ => Ok(()),
        }
    }

    fn forget_unused(&mut self) {
        for kept in self.known.values_mut() {
            kept.retain(|kept| kept.descriptions.strong_count() > 0);
        }
        self.known.retain(|_, kept| !kept.is_empty());
        self.taken.clear();
        for kept in self.known.values().flatten() {
            *self.taken.entry(kept.owner).or_default() += kept.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with this many events, each of them 400 bytes in metadata.
    fn provider(name: &str, events: u32) -> ProviderInfo {
        let text: String = (0..events).map(|event| format!("test:{name}{event} 6\nu64 n\n\0")).collect();
        let descriptions = Descriptions::parse(text.as_bytes(), events, 0, &RequestedEvents::default());
        let descriptions = Arc::new(descriptions.expect("descriptions of a test"));
        ProviderInfo { object: format!("/bin/{name}"), descriptions, ..ProviderInfo::default() }
    }

    #[test]
    fn programs_with_the_same_descriptions_share_them() {
        let mut shelf = Shelf::default();
        let first = shelf.keep(Owner(1), provider("same", 5000)).expect("it has room");
        for _ in 0..1000 {
            let next = shelf.keep(Owner(1), provider("same", 5000)).expect("it is known");
            assert!(Arc::ptr_eq(&first.descriptions, &next.descriptions));
        }
    }

    #[test]
    fn of_what_nobody_asked_for_nothing_is_kept() {
        let mut shelf = Shelf::default();
        for number in 0..100 {
            let other = ProviderInfo { object: format!("/bin/other{number}"), ..ProviderInfo::default() };
            shelf.keep(Owner(1), other).expect("it takes no room");
        }
        assert!(shelf.known.is_empty() && shelf.taken.is_empty());
    }

    #[test]
    fn nobody_uses_up_the_share_of_others() {
        let mut shelf = Shelf::default();
        let mut held = Vec::new();
        let refused = loop {
            match shelf.keep(Owner(1), provider(&format!("p{}_", held.len()), 5000)) {
                Ok(kept) => held.push(kept),
                Err(why) => break why,
            }
        };
        assert_eq!((refused, held.len()), (OWNERS_SHARE, 4));
        assert!(shelf.keep(Owner(2), provider("other", 5000)).is_ok());
        assert!(shelf.keep(Owner(3), provider("other", 5000)).is_ok());
        // What is held no more does not count.
        held.pop();
        assert!(shelf.keep(Owner(1), provider("new", 5000)).is_ok());
    }

    /// They are held for ever, and make room by removing others' events.
    #[test]
    fn where_the_trace_has_a_limit_descriptions_get_a_small_part_of_it() {
        let limit = 16 << 20;
        let mut shelf = Shelf::new(RequestedEvents::default(), Arc::default(), Some(limit));
        let mut held = Vec::new();
        for user in 0..100 {
            for number in 0..20 {
                held.extend(shelf.keep(Owner(user), provider(&format!("p{user}_{number}_"), 200)));
            }
            let taken = shelf.taken.get(&Owner(user)).copied().unwrap_or_default();
            assert!(taken as u64 <= limit / LIMITS_PART / 2, "{taken}");
        }
        let all: usize = shelf.taken.values().sum();
        assert!(all as u64 <= limit / LIMITS_PART && all as u64 > limit / LIMITS_PART / 2, "{all}");
    }

    #[test]
    fn all_together_stay_below_what_readers_take() {
        let mut shelf = Shelf::default();
        let all: Vec<_> = (0..100).map(|user| shelf.keep(Owner(user), provider("large", 8000))).collect();
        let bytes: usize = all.iter().flatten().map(|info| info.descriptions.bytes()).sum();
        assert!(bytes < BYTES_MAX && bytes > BYTES_MAX / 2, "{bytes}");
        assert!(all.iter().any(|kept| matches!(kept, Err(SHARE_OF_ALL))));
        // Those who take all that they get leave something for one who asks for little.
        assert!(shelf.keep(Owner(1000), provider("small", 100)).is_ok());
    }
}
