// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of a flight recorder as they come, while they stay in the rings.
//!
//! What comes costs time here and in the sink, for each user in one thread, and a program can write millions in a moment. So where there are several
//! users, each has a time for his in each look, and the sink says when it takes no more of one. His further rings are passed over, and that is told.

use super::Programs;
use super::process::Process;
use super::user::User;
use crate::budget::ARRIVALS;
use crate::description::{Descriptions, EventDescription};
use crate::directory::ProcessId;
use crate::look::Whose;
use crate::memory::let_bus_errors_through;
use crate::provider::{Provider, ProviderInfo};
use crate::ring::{Arrivals, RingInfo};
use nix::time::{ClockId, clock_gettime};
use rtscope_abi::program as abi;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An event that has come.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// The user whose account its program is on: the owner of the ring's file, or who has made its container. No program can say another one.
    pub account: u32,
    /// The ring of its thread.
    pub ring: &'a RingInfo,
    /// The descriptions of its provider.
    pub descriptions: &'a Arc<Descriptions>,
    /// What it is.
    pub event: &'a EventDescription,
    /// The time, by the program's clock.
    pub counter: u64,
    /// The CPU, where known.
    pub cpu: Option<u32>,
    /// Its fields, with padding. It may be anything.
    pub payload: &'a [u8],
}

/// Wants some of them. Those of one thread come in the order in which it wrote them.
pub trait NewEvents {
    /// Whether events of this name are wanted. It is asked once for each description.
    fn wants(&self, name: &str) -> bool;

    /// One has come.
    fn event(&mut self, event: &NewEvent<'_>);

    /// Whether more than this many further events of this user are taken in this look.
    fn has_room(&self, account: u32, events: usize) -> bool;

    /// Events of this thread, of a program on this user's account, were not looked at: they were overwritten before, or there was no time or no
    /// room for them; or they are damaged.
    fn missed(&mut self, account: u32, ring: &RingInfo);
}

/// A wanted event of a process.
#[derive(Debug)]
struct WantedEvent {
    id: u32,
    descriptions: Arc<Descriptions>,
    /// Its place there.
    place: usize,
}

/// Those of a process, by id.
#[derive(Debug, Default)]
pub(super) struct WantedEvents {
    /// Of how many changes of its providers they are.
    version: Option<u64>,
    ids: Vec<u32>,
    events: Vec<WantedEvent>,
}

impl WantedEvents {
    fn of(providers: &[&ProviderInfo], version: u64, sink: &dyn NewEvents) -> WantedEvents {
        let mut events: Vec<WantedEvent> = Vec::new();
        for info in providers {
            let described = info.descriptions.events.iter().enumerate();
            let wanted =
                described.filter(|(_, event)| sink.wants(&event.name)).map(|(place, event)| WantedEvent {
                    id: info.first_id.saturating_add(event.index),
                    descriptions: Arc::clone(&info.descriptions),
                    place,
                });
            events.extend(wanted);
        }
        // Of two with one id the first counts: libraries that are there go before those that are gone.
        events.sort_by_key(|event| event.id);
        events.dedup_by_key(|event| event.id);
        let ids = events.iter().map(|event| event.id).collect();
        WantedEvents { version: Some(version), ids, events }
    }
}

/// What one user's events may cost in one look.
struct Share<'a> {
    account: u32,
    /// Also the first events of rings that were not looked at before.
    is_new: bool,
    /// CPU time of this thread at which it is over; `None`: there is no other user.
    until: Option<Duration>,
    sink: &'a mut dyn NewEvents,
}

impl Share<'_> {
    /// `found`: events that the sink has not seen yet.
    fn is_over(&self, found: usize) -> bool {
        !self.sink.has_room(self.account, found) || self.until.is_some_and(|until| cpu_time() >= until)
    }
}

/// Of this thread: a time in which others have the CPU is not a user's.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Process {
    /// Gives the wanted events that have come since the last time, beginning with the ring of this number. Returns the number of the first one that was
    /// passed over.
    fn new_events(&mut self, share: &mut Share<'_>, first: usize, arrivals: &mut Arrivals) -> Option<usize> {
        if self.wanted.version != Some(self.providers_changed) {
            let here = self.providers.values().map(|provider: &Provider| &provider.info);
            let all: Vec<&ProviderInfo> =
                here.chain(self.gone_providers.iter().map(|(info, _)| info)).collect();
            self.wanted = WantedEvents::of(&all, self.providers_changed, share.sink);
        }
        let WantedEvents { ids, events, .. } = &self.wanted;
        let (count, mut passed_over) = (self.rings.len(), None);
        for number in (0..count).map(|visited| (first + visited) % count) {
            let Some((_, ring)) = self.rings.get_mut(number) else { break };
            // Read before the ring: records written before the end are then seen.
            let is_last = self.dead || ring.has_ended();
            if passed_over.is_some() || share.is_over(0) {
                passed_over = passed_over.or(Some(number));
                ring.pass_over(share.is_new, arrivals);
            } else {
                let is_complete =
                    ring.arrivals(ids, (share.is_new, is_last), arrivals, &|found| share.is_over(found));
                passed_over = (!is_complete).then_some(number);
            }
            if arrivals.has_missed && !ids.is_empty() {
                share.sink.missed(share.account, &ring.info);
            }
            for record in &arrivals.records {
                let found = ids.binary_search(&record.id).ok().and_then(|place| events.get(place));
                let Some(WantedEvent { descriptions, place, .. }) = found else { continue };
                let Some(event) = descriptions.events.get(*place) else { continue };
                let cpu = Some(record.cpu).filter(|cpu| *cpu != abi::RTU_CPU_UNKNOWN);
                let payload = arrivals.payload(record);
                share.sink.event(&NewEvent {
                    account: share.account,
                    ring: &ring.info,
                    descriptions,
                    event,
                    counter: record.counter,
                    cpu,
                    payload,
                });
            }
        }
        passed_over
    }
}

impl User {
    /// The same of all his processes in this directory, from where the last look passed any over, and around.
    fn new_events(&mut self, share: &mut Share<'_>, arrivals: &mut Arrivals) {
        let begin = self.passed_over.take();
        let first = begin.map(|(process, _)| process);
        let (before, after): (Vec<ProcessId>, Vec<ProcessId>) =
            self.processes.keys().partition(|id| first.is_some_and(|first| **id < first));
        for id in after.into_iter().chain(before) {
            let Some(process) = self.processes.get_mut(&id) else { continue };
            let ring = begin.filter(|(process, _)| *process == id).map_or(0, |(_, ring)| ring);
            let passed_over = process.new_events(share, ring, arrivals);
            self.passed_over = self.passed_over.or(passed_over.map(|ring| (id, ring)));
        }
    }
}

impl Programs {
    /// For flight recorders: gives the wanted events that have come since the last time. The first time only finds what there is already.
    pub fn new_events(&mut self, sink: &mut dyn NewEvents) {
        let_bus_errors_through();
        let is_new = std::mem::replace(&mut self.has_read, true);
        let is_alone = self.is_alone();
        let mut arrivals = Arrivals::default();
        // One share for each user, however many directories he has.
        let mut taken: BTreeMap<Whose, Duration> = BTreeMap::new();
        for user in self.users.values_mut().filter(|user| user.served.is_some()) {
            let (taken, begun) = (taken.entry(user.whose()).or_default(), cpu_time());
            let until = (!is_alone).then(|| begun + ARRIVALS.saturating_sub(*taken));
            user.new_events(&mut Share { account: user.account, is_new, until, sink }, &mut arrivals);
            *taken += cpu_time().saturating_sub(begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{FileKind, FileName};
    use crate::records::Layout;
    use crate::ring::Ring;
    use std::cell::Cell;
    use std::mem::offset_of;
    use std::os::unix::fs::FileExt;

    /// Takes the events of so many rings, and notes from which some were missed.
    struct Few {
        rings: Cell<usize>,
        missed: Vec<u32>,
    }

    impl NewEvents for Few {
        fn wants(&self, _: &str) -> bool {
            true
        }

        fn event(&mut self, _: &NewEvent<'_>) {}

        fn has_room(&self, _: u32, _: usize) -> bool {
            let left = self.rings.get();
            self.rings.set(left.saturating_sub(1));
            left > 0
        }

        fn missed(&mut self, _: u32, ring: &RingInfo) {
            self.missed.push(ring.number);
        }
    }

    #[test]
    fn rings_for_which_there_was_no_room_come_first_in_the_next_look() {
        let layout = Layout { ring_bytes: 16384, sub_bytes: 4096, key: 5 };
        let mut process = Process::new(false, true);
        process.wanted = WantedEvents { version: Some(0), ids: vec![7], events: Vec::new() };
        let files: Vec<std::fs::File> = (0..5).map(|_| tempfile::tempfile().unwrap()).collect();
        for (number, file) in (0..).zip(&files) {
            file.set_len(u64::from(abi::RTU_RING_OFFSET) + layout.ring_bytes).unwrap();
            let id = ProcessId { pid: 1, birth_ns: 1 };
            let mut ring =
                Ring::of_model(file, FileName { process: id, kind: FileKind::Ring(1, number) }, layout);
            ring.info.number = number;
            process.rings.push((number, ring));
        }
        let mut arrivals = Arrivals::default();
        let mut look = |first: usize, rings: usize, until: Option<Duration>, head: u64| {
            let head_at = offset_of!(abi::rtu_ring, head) as u64;
            files.iter().for_each(|file| file.write_all_at(&head.to_le_bytes(), head_at).unwrap());
            let mut few = Few { rings: Cell::new(rings), missed: Vec::new() };
            let mut share = Share { account: 1, is_new: true, until, sink: &mut few };
            let passed_over = process.new_events(&mut share, first, &mut arrivals);
            few.missed.sort_unstable();
            (passed_over, few.missed)
        };
        assert_eq!(look(0, 5, None, 0), (None, vec![]));
        // What is there are zeros: nothing complete, and nothing that was passed over.
        assert_eq!(look(0, 5, None, 64), (None, vec![]));
        assert_eq!(look(0, 2, None, 128), (Some(2), vec![2, 3, 4]));
        assert_eq!(look(2, 2, None, 192), (Some(4), vec![0, 1, 4]));
        assert_eq!(look(4, 2, None, 256), (Some(1), vec![1, 2, 3]));
        // The user's time is over.
        assert_eq!(look(1, 5, Some(Duration::ZERO), 320), (Some(1), vec![0, 1, 2, 3, 4]));
    }
}
