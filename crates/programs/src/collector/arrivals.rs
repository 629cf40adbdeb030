// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of a flight recorder as they come, while they stay in the rings.
//!
//! What comes costs time here and in the sink, for each user in one thread, and a program can write millions in a moment. So where there are several
//! users, each has a time for his in each look, and the sink says when it takes no more of one. Then his further rings are passed over, and that is told;
//! or, where the order between threads is nothing, they wait for the next look, and what is overwritten before that is told.

use super::Programs;
use super::process::Process;
use super::user::User;
use super::wanted::WantedEvent;
use crate::budget::ARRIVALS;
use crate::description::{Descriptions, EventDescription};
use crate::directory::ProcessId;
use crate::look::{PlaceId, Whose};
use crate::memory::let_bus_errors_through;
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

    /// Whether events of this thread are wanted. It is asked before its records are looked at.
    fn wants_thread(&self, _ring: &RingInfo) -> bool {
        true
    }

    /// One has come.
    fn event(&mut self, event: &NewEvent<'_>);

    /// Whether more than this many further events of this user are taken in this look. If not, his others are passed over.
    fn has_room(&self, account: u32, events: usize) -> bool;

    /// Whether records for which there was no time wait for the next look: for a sink to which the order between threads is nothing. Else they are
    /// passed over.
    fn waits(&self) -> bool {
        false
    }

    /// Events of this thread, of a program on this user's account, were not looked at: they were overwritten before, or there was no time or no
    /// room for them; or they are damaged.
    fn missed(&mut self, account: u32, ring: &RingInfo);
}

/// What becomes of records that a look has no time or no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They are passed over.
    PassedOver,
    /// The next look has them first, unless they are overwritten before.
    Waits,
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
    /// What becomes of the rest, if no more is looked at. `found`: events that the sink has not seen yet.
    fn rest(&self, found: usize) -> Option<Rest> {
        if !self.sink.has_room(self.account, found) {
            return Some(Rest::PassedOver);
        }
        let is_over = self.until.is_some_and(|until| cpu_time() >= until);
        is_over.then(|| if self.sink.waits() { Rest::Waits } else { Rest::PassedOver })
    }
}

/// Of this thread: a time in which others have the CPU is not a user's.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Process {
    /// Gives the wanted events that have come since the last time, beginning with the ring of this number. Returns the number of the first one that was
    /// not looked at to its end.
    fn new_events(&mut self, share: &mut Share<'_>, first: usize, arrivals: &mut Arrivals) -> Option<usize> {
        let gone = self.gone_providers.iter().map(|(info, _)| info);
        let here = self.providers.values_mut().map(|provider| (&mut provider.is_learned, &provider.info));
        self.wanted.learn(self.providers_changed, here, gone, share.sink);
        let (count, wanted) = (self.rings.len(), &self.wanted);
        let mut over: Option<(usize, Rest)> = None;
        for number in (0..count).map(|visited| (first + visited) % count) {
            let Some((_, ring)) = self.rings.get_mut(number) else { break };
            // Thousands of threads may have nothing new.
            if ring.is_as_it_was() {
                continue;
            }
            if wanted.is_empty() {
                ring.pass_over(share.is_new, arrivals);
                continue;
            }
            over = over.or_else(|| share.rest(0).map(|rest| (number, rest)));
            match over {
                Some((_, Rest::PassedOver)) => ring.pass_over(share.is_new, arrivals),
                Some((_, Rest::Waits)) => {
                    ring.wait(share.is_new);
                    continue;
                }
                None if share.sink.wants_thread(&ring.info) => {
                    // Read before the ring: records written before the end are then seen.
                    let is_last = self.dead || ring.has_ended();
                    let rest = ring
                        .arrivals(&wanted.ids, (share.is_new, is_last), arrivals, &|found| share.rest(found));
                    over = rest.map(|rest| (number, rest));
                }
                None => {
                    ring.pass_over(share.is_new, arrivals);
                    continue;
                }
            }
            if arrivals.has_missed {
                share.sink.missed(share.account, &ring.info);
            }
            for record in &arrivals.records {
                let Some(WantedEvent { descriptions, place }) = wanted.events.get(&record.id) else {
                    continue;
                };
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
        over.map(|(number, _)| number)
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
        // One share for each user, however many directories he has: each of them is the first one in turn.
        let mut taken: BTreeMap<Whose, Duration> = BTreeMap::new();
        let ids: Vec<PlaceId> = self
            .users
            .range(self.first_read..)
            .chain(self.users.range(..self.first_read))
            .map(|(id, _)| *id)
            .collect();
        self.first_read = ids.get(1).copied().unwrap_or_default();
        for id in ids {
            let Some(user) = self.users.get_mut(&id).filter(|user| user.served.is_some()) else { continue };
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

    /// A process of five threads, of whose events 7 is wanted.
    fn process() -> (Process, Vec<std::fs::File>) {
        let layout = Layout { ring_bytes: 16384, sub_bytes: 4096, key: 5 };
        let mut process = Process::new(false, true);
        process.wanted = [7].into();
        let files: Vec<std::fs::File> = (0..5).map(|_| tempfile::tempfile().unwrap()).collect();
        for (number, file) in (0..).zip(&files) {
            file.set_len(u64::from(abi::RTU_RING_OFFSET) + layout.ring_bytes).unwrap();
            let id = ProcessId { pid: 1, birth_ns: 1 };
            let mut ring =
                Ring::of_model(file, FileName { process: id, kind: FileKind::Ring(1, number) }, layout);
            ring.info.number = number;
            process.rings.push((number, ring));
        }
        (process, files)
    }

    fn set_heads(files: &[std::fs::File], head: u64) {
        let head_at = offset_of!(abi::rtu_ring, head) as u64;
        files.iter().for_each(|file| file.write_all_at(&head.to_le_bytes(), head_at).unwrap());
    }

    #[test]
    fn rings_for_which_there_was_no_room_come_first_in_the_next_look() {
        let (mut process, files) = process();
        let mut arrivals = Arrivals::default();
        let mut look = |first: usize, rings: usize, until: Option<Duration>, head: u64| {
            set_heads(&files, head);
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
    /// Acts on events of threads with even numbers; notes of which threads it was asked, and which had one.
    #[derive(Default)]
    struct Even {
        asked: Cell<u32>,
        found: Vec<u32>,
        missed: Vec<u32>,
    }

    impl NewEvents for Even {
        fn wants(&self, _: &str) -> bool {
            true
        }

        fn wants_thread(&self, ring: &RingInfo) -> bool {
            self.asked.set(self.asked.get() + 1);
            ring.number % 2 == 0
        }

        fn event(&mut self, event: &NewEvent<'_>) {
            self.found.push(event.ring.number);
        }

        fn has_room(&self, _: u32, events: usize) -> bool {
            self.found.len() + events == 0
        }

        fn waits(&self) -> bool {
            true
        }

        fn missed(&mut self, _: u32, ring: &RingInfo) {
            self.missed.push(ring.number);
        }
    }

    /// What asks for a snapshot needs no order: what there was no time for is found later. And one that asks is enough for all that has come.
    #[test]
    fn where_order_is_nothing_what_there_was_no_time_for_is_found_in_a_later_look() {
        let (mut process, files) = process();
        let layout = process.rings[0].1.info.layout;
        process.wanted.events.values_mut().for_each(|event| {
            let name = "motor:xrun".to_string();
            let events = vec![EventDescription { index: 0, name, level: 6, fields: Vec::new() }];
            event.descriptions = Arc::new(Descriptions { events, ..Descriptions::default() });
        });
        // The time of the sub-buffer, and an event.
        let (sync, event) = (u64::from(abi::RTU_ID_SYNC) | 4 << 24, 7 | 1 << 24);
        let words = [sync | layout.tag(0), 1, 0, 0, event | layout.tag(0)];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let mut arrivals = Arrivals::default();
        let mut look = |until: Option<Duration>| {
            let mut even = Even::default();
            let mut share = Share { account: 1, is_new: true, until, sink: &mut even };
            let rest = process.new_events(&mut share, 0, &mut arrivals);
            (rest, even.asked.get(), even.found, even.missed.len())
        };
        assert_eq!(look(None), (None, 5, vec![], 0));
        for file in [1, 2, 4].map(|number: usize| &files[number]) {
            file.write_all_at(&bytes, u64::from(abi::RTU_RING_OFFSET)).unwrap();
        }
        set_heads(&files, 40);
        assert_eq!(look(Some(Duration::ZERO)), (Some(0), 0, vec![], 0));
        // Of the first one nothing is complete, and the second one's thread does not count. The others are passed over.
        assert_eq!(look(None), (Some(3), 3, vec![2], 2));
        assert_eq!(look(None), (None, 1, vec![], 0), "only the first one is still waited for");
    }
}
