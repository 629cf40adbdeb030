// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a process that somebody acts on when they come, in flight recorders.
//!
//! A program can describe hundreds of thousands, most of them with ids that others have, too; and libraries come and go at any time. So each
//! description is compared once when its library comes and once when it goes, and whether an id is wanted is one bit.

use super::arrivals::NewEvents;
use crate::description::Descriptions;
use crate::provider::ProviderInfo;
use rtscope_abi::program as abi;
use rtscope_event::exact::index;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ids of events.
#[derive(Debug, Default)]
pub(crate) struct EventIds {
    /// A bit for each possible id; none: nothing is in it.
    words: Vec<u64>,
}

impl EventIds {
    fn place(id: u32) -> (usize, u64) {
        (index(u64::from(id / u64::BITS)), 1 << (id % u64::BITS))
    }

    /// Whether this one is among them.
    pub(crate) fn contains(&self, id: u32) -> bool {
        let (word, bit) = EventIds::place(id);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    fn insert(&mut self, id: u32) {
        if self.words.is_empty() {
            self.words = vec![0; index(u64::from(abi::RTU_EVENTS_MAX.div_ceil(u64::BITS)))];
        }
        let (word, bit) = EventIds::place(id);
        self.words.get_mut(word).into_iter().for_each(|word| *word |= bit);
    }

    fn remove(&mut self, id: u32) {
        let (word, bit) = EventIds::place(id);
        self.words.get_mut(word).into_iter().for_each(|word| *word &= !bit);
    }
}

#[cfg(test)]
impl<const N: usize> From<[u32; N]> for EventIds {
    fn from(ids: [u32; N]) -> EventIds {
        let mut all = EventIds::default();
        ids.into_iter().for_each(|id| all.insert(id));
        all
    }
}

/// A wanted event.
#[derive(Debug)]
pub(super) struct WantedEvent {
    pub(super) descriptions: Arc<Descriptions>,
    /// Its place there.
    pub(super) place: usize,
}

/// Those of a process.
#[derive(Debug, Default)]
pub(super) struct WantedEvents {
    pub(super) ids: EventIds,
    pub(super) events: BTreeMap<u32, WantedEvent>,
    /// Of how many changes of its providers they are.
    version: u64,
    /// The number of those that are gone whose events are among them.
    gone: usize,
}

impl WantedEvents {
    /// Adds those of providers that have come or gone since. `version`: the number of such changes. `here`: whether they were added before.
    pub(super) fn learn<'a>(
        &mut self,
        version: u64,
        here: impl Iterator<Item = (&'a mut bool, &'a ProviderInfo)>,
        gone: impl Iterator<Item = &'a ProviderInfo>,
        sink: &dyn NewEvents,
    ) {
        if self.version == version {
            return;
        }
        self.version = version;
        for (is_learned, info) in here {
            if !std::mem::replace(is_learned, true) {
                self.add(info, false, sink);
            }
        }
        // One that came and went between two looks is known only from here.
        for info in gone.skip(self.gone) {
            self.gone += 1;
            self.add(info, true, sink);
        }
    }

    /// Of two with one id the newer counts, and one that is there goes before one that is gone.
    fn add(&mut self, info: &ProviderInfo, is_gone: bool, sink: &dyn NewEvents) {
        if !is_gone {
            let end = info.first_id.saturating_add(info.descriptions.declared);
            let mut over = self.events.split_off(&info.first_id);
            self.events.append(&mut over.split_off(&end));
            over.into_keys().for_each(|id| self.ids.remove(id));
        }
        let described = info.descriptions.events.iter().enumerate();
        for (place, event) in described.filter(|(_, event)| sink.wants(&event.name)) {
            let id = info.first_id.saturating_add(event.index);
            if id >= abi::RTU_EVENTS_MAX || is_gone && self.ids.contains(id) {
                continue;
            }
            self.ids.insert(id);
            self.events.insert(id, WantedEvent { descriptions: Arc::clone(&info.descriptions), place });
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
impl<const N: usize> From<[u32; N]> for WantedEvents {
    fn from(ids: [u32; N]) -> WantedEvents {
        let event = |id| (id, WantedEvent { descriptions: Arc::default(), place: 0 });
        WantedEvents { ids: ids.into(), events: ids.map(event).into(), ..WantedEvents::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewEvent;
    use super::*;
    use crate::description::EventDescription;
    use crate::ring::RingInfo;
    use std::cell::Cell;

    /// Wants events that ask, and counts how often it is asked.
    #[derive(Default)]
    struct Asking(Cell<usize>);

    impl NewEvents for Asking {
        fn wants(&self, name: &str) -> bool {
            self.0.set(self.0.get() + 1);
            name == "motor:xrun"
        }

        fn event(&mut self, _: &NewEvent<'_>) {}

        fn has_room(&self, _: u32, _: usize) -> bool {
            true
        }

        fn missed(&mut self, _: u32, _: &RingInfo) {}
    }

    fn provider(first_id: u32, names: &[&str]) -> ProviderInfo {
        let event = |(index, name): (u32, &&str)| EventDescription {
            index,
            name: (*name).to_string(),
            level: 6,
            fields: Vec::new(),
        };
        let events: Vec<EventDescription> = (0..).zip(names).map(event).collect();
        let declared = u32::try_from(names.len()).unwrap();
        ProviderInfo {
            pid: 1,
            birth_ns: 1,
            number: 0,
            uid: 0,
            comm: String::new(),
            object: String::new(),
            build_id: String::new(),
            clock: 1,
            first_id,
            descriptions: Arc::new(Descriptions { events, declared, ..Descriptions::default() }),
        }
    }

    #[test]
    fn each_description_is_compared_when_it_comes_and_when_it_goes_and_doubles_are_one() {
        let asking = Asking::default();
        let (mut wanted, mut here, mut gone) = (WantedEvents::default(), Vec::new(), Vec::new());
        let look =
            |wanted: &mut WantedEvents, here: &mut [(bool, ProviderInfo)], gone: &[ProviderInfo], version| {
                let here = here.iter_mut().map(|(is_learned, info)| (is_learned, &*info));
                wanted.learn(version, here, gone.iter(), &asking);
                asking.0.take()
            };
        // As a liar has them: 800 000, all with the same ids.
        let info = provider(1000, &["motor:xrun"; 8000]);
        here.extend((0..100).map(|_| (false, info.clone())));
        assert_eq!(look(&mut wanted, &mut here, &gone, 100), 800_000);
        assert_eq!(wanted.events.len(), 8000);
        for version in [100, 100, 101] {
            assert_eq!(look(&mut wanted, &mut here, &gone, version), 0);
        }
        here.push((false, provider(20, &["motor:tick", "motor:xrun"])));
        assert_eq!(look(&mut wanted, &mut here, &gone, 102), 2);
        gone.push(here.remove(0).1);
        assert_eq!(look(&mut wanted, &mut here, &gone, 103), 8000);
        assert_eq!(wanted.events.len(), 8001);
        let has = [20, 21, 22, 999, 1000, 8999, 9000, u32::MAX].map(|id| wanted.ids.contains(id));
        assert_eq!(has, [false, true, false, false, true, true, false, false]);
    }

    #[test]
    fn of_two_events_with_one_id_the_newer_counts_and_what_is_there_before_what_is_gone() {
        let asking = Asking::default();
        let mut wanted = WantedEvents::default();
        let ids = |wanted: &WantedEvents| wanted.events.keys().copied().collect::<Vec<u32>>();
        wanted.add(&provider(5, &["motor:xrun"; 3]), false, &asking);
        wanted.add(&provider(6, &["motor:tick"]), false, &asking);
        assert_eq!(ids(&wanted), [5, 7]);
        assert!(!wanted.ids.contains(6));
        let before = Arc::as_ptr(&wanted.events[&7].descriptions);
        wanted.add(&provider(7, &["motor:xrun", "motor:xrun"]), true, &asking);
        assert_eq!((ids(&wanted), Arc::as_ptr(&wanted.events[&7].descriptions)), (vec![5, 7, 8], before));
    }
}
