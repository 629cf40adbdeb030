// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of tasks over the time of a whole recording.
//!
//! A recording may see millions of tasks come and go, so a name takes 16 bytes here: names repeat, and are stored once. There
//! is a limit; tasks beyond it have no name, and are counted.

use rtscope_event::exact;
use rtscope_event::{Comm, Event, EventKind, Irq, MonotonicNs, NameLookup, Tid};
use std::cell::Cell;
use std::collections::HashMap;

/// Names that are stored: 128 MiB.
const ENTRIES_MAX: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tid: u32,
    /// The order among those of the same time.
    comm: u32,
    from: u64,
}

/// Collects names.
#[derive(Debug, Default)]
pub(crate) struct NameLog {
    entries: Vec<Entry>,
    /// Names that hold before any other of their tid, and when they were reported: the earliest counts.
    fallback: HashMap<u32, (u64, u32)>,
    comms: Vec<Comm>,
    numbers: HashMap<Comm, u32>,
    irqs: HashMap<Irq, String>,
    dropped: u64,
}

impl NameLog {
    /// Adds the name of a task from a time on.
    pub(crate) fn add(&mut self, tid: Tid, from: MonotonicNs, comm: Comm) {
        if self.entries.len() >= ENTRIES_MAX {
            self.dropped += 1;
            return;
        }
        let comm = self.number(comm);
        self.entries.push(Entry { tid: tid.0, comm, from: from.0 });
    }

    /// Adds the name of a task until `time`, unless something else tells it.
    pub(crate) fn add_fallback(&mut self, tid: Tid, time: MonotonicNs, comm: Comm) {
        if self.fallback.len() >= ENTRIES_MAX / 4 {
            self.dropped += 1;
            return;
        }
        let comm = self.number(comm);
        let known = self.fallback.entry(tid.0).or_insert((time.0, comm));
        if time.0 < known.0 {
            *known = (time.0, comm);
        }
    }

    pub(crate) fn add_irq(&mut self, irq: Irq, name: &str) {
        self.irqs.entry(irq).or_insert_with(|| name.to_owned());
    }

    /// Adds the names in an event.
    pub(crate) fn observe(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ProcessFork { child_tid, child_comm, .. } => {
                self.add(*child_tid, event.time, *child_comm);
            }
            EventKind::TaskRename { tid, old_comm, new_comm, .. } => {
                self.add_fallback(*tid, event.time, *old_comm);
                self.add(*tid, event.time, *new_comm);
            }
            EventKind::ProcessExit { tid, comm, .. } => self.add_fallback(*tid, event.time, *comm),
            _ => {}
        }
    }

    /// Adds the names of another log.
    pub(crate) fn join(&mut self, other: NameLog) {
        for entry in &other.entries {
            self.add(Tid(entry.tid), MonotonicNs(entry.from), other.comms[entry.comm as usize]);
        }
        for (tid, (time, comm)) in &other.fallback {
            self.add_fallback(Tid(*tid), MonotonicNs(*time), other.comms[*comm as usize]);
        }
        self.dropped += other.dropped;
    }

    /// Number of names that did not fit.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Sorts all names.
    pub(crate) fn finish(mut self) -> AllNames {
        self.entries.sort_by_key(|entry| (entry.tid, entry.from));
        let mut places: HashMap<u32, (u32, u32)> = HashMap::new();
        for (place, entry) in (0..).zip(&self.entries) {
            places.entry(entry.tid).or_insert((place, place)).1 = place + 1;
        }
        for tid in self.fallback.keys() {
            places.entry(*tid).or_insert((0, 0));
        }
        let NameLog { entries, fallback, comms, irqs, .. } = self;
        AllNames { entries, places, fallback, comms, irqs }
    }

    fn number(&mut self, comm: Comm) -> u32 {
        let next = exact::count(self.comms.len());
        let number = *self.numbers.entry(comm).or_insert(next);
        if number == next {
            self.comms.push(comm);
        }
        number
    }
}

/// All names of a recording.
#[derive(Debug)]
pub(crate) struct AllNames {
    entries: Vec<Entry>,
    /// Begin and end of a tid's entries.
    places: HashMap<u32, (u32, u32)>,
    fallback: HashMap<u32, (u64, u32)>,
    comms: Vec<Comm>,
    irqs: HashMap<Irq, String>,
}

impl AllNames {
    /// The name of `tid` at a time, and the interval in which it holds (its end excluded).
    fn span(&self, tid: u32, time: u64) -> (Option<Comm>, u64, u64) {
        let Some((begin, end)) = self.places.get(&tid) else { return (None, 0, u64::MAX) };
        let entries = &self.entries[*begin as usize..*end as usize];
        let after = entries.partition_point(|entry| entry.from <= time);
        let until = entries.get(after).map_or(u64::MAX, |entry| entry.from);
        let comm = |number: u32| self.comms.get(number as usize).copied();
        match after.checked_sub(1).map(|place| entries[place]) {
            Some(entry) => (comm(entry.comm), entry.from, until),
            // Before the first: the fallback, or else the first, as in a snapshot.
            None => {
                let number = self
                    .fallback
                    .get(&tid)
                    .map(|(_, comm)| *comm)
                    .or(entries.first().map(|entry| entry.comm));
                (number.and_then(comm), 0, until)
            }
        }
    }
}

/// Remembered lookups: a CPU switches between few tasks.
const SLOTS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Slot {
    tid: u32,
    from: u64,
    until: u64,
    comm: Option<Comm>,
}

/// Looks up names, for one thread.
#[derive(Debug)]
pub(crate) struct Lookup<'n> {
    all: &'n AllNames,
    slots: Vec<Cell<Slot>>,
}

impl<'n> Lookup<'n> {
    pub(crate) fn new(all: &'n AllNames) -> Lookup<'n> {
        let nobody = Slot { tid: 0, from: 1, until: 0, comm: None };
        Lookup { all, slots: vec![Cell::new(nobody); SLOTS] }
    }
}

impl NameLookup for Lookup<'_> {
    fn comm(&self, tid: Tid, time: MonotonicNs) -> Option<Comm> {
        if tid == Tid(0) {
            return Some(Comm::from("swapper"));
        }
        let cell = &self.slots[tid.0 as usize % SLOTS];
        let slot = cell.get();
        if slot.tid == tid.0 && slot.from <= time.0 && time.0 < slot.until {
            return slot.comm;
        }
        let (comm, from, until) = self.all.span(tid.0, time.0);
        cell.set(Slot { tid: tid.0, from, until, comm });
        comm
    }

    fn irq(&self, irq: Irq) -> Option<&str> {
        self.all.irqs.get(&irq).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{CpuId, Pid};

    fn rename(time: u64, tid: u32, old: &str, new: &str) -> Event {
        let (old_comm, new_comm) = (Comm::from(old), Comm::from(new));
        let kind = EventKind::TaskRename { tid: Tid(tid), pid: Pid(tid), old_comm, new_comm };
        Event { time: MonotonicNs(time), cpu: CpuId(0), kind }
    }

    #[test]
    fn names_are_those_of_their_time_whatever_the_order_of_the_events() {
        let mut log = NameLog::default();
        log.observe(&rename(200, 7, "first", "second"));
        log.observe(&rename(100, 7, "before", "first"));
        log.add(Tid(9), MonotonicNs(0), Comm::from("dumped"));
        let mut other = NameLog::default();
        other.add_fallback(Tid(9), MonotonicNs(300), Comm::from("at its end"));
        other.add_fallback(Tid(10), MonotonicNs(300), Comm::from("at its end"));
        log.join(other);
        let all = log.finish();
        let names = Lookup::new(&all);
        let at = |tid, time| names.comm(Tid(tid), MonotonicNs(time)).map(|comm| comm.to_string());
        for _ in 0..2 {
            assert_eq!(at(7, 150).as_deref(), Some("first"));
            assert_eq!(at(7, 200).as_deref(), Some("second"));
            assert_eq!(at(7, 50).as_deref(), Some("before"));
            assert_eq!(at(9, 50).as_deref(), Some("dumped"));
            assert_eq!(at(10, u64::MAX).as_deref(), Some("at its end"));
            assert_eq!(at(11, 0), None);
            assert_eq!(at(0, 5).as_deref(), Some("swapper"));
        }
    }
}
