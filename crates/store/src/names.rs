// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of tasks over the time of a recording: of all of it, or of the part that is being converted while it goes on.
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

/// Names of tasks and interrupts.
#[derive(Debug, Default)]
pub(crate) struct TaskNames {
    /// Those before `settled` are sorted by task and time.
    entries: Vec<Entry>,
    settled: usize,
    /// Begin and end of a task's sorted entries.
    places: HashMap<u32, (u32, u32)>,
    /// How many entries were needed when others were forgotten.
    needed: usize,
    /// Names that hold before any other of their tid, and when they were reported: the earliest counts.
    fallback: HashMap<u32, (u64, u32)>,
    comms: Vec<Comm>,
    numbers: HashMap<Comm, u32>,
    irqs: HashMap<Irq, String>,
    dropped: u64,
}

impl TaskNames {
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
    pub(crate) fn join(&mut self, other: TaskNames) {
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

    /// What was added can be looked up from now on.
    pub(crate) fn settle(&mut self) {
        if self.settled == self.entries.len() && self.settled > 0 {
            return;
        }
        // It finds the sorted part, and merges the rest into it.
        self.entries.sort_by_key(|entry| (entry.tid, entry.from));
        self.settled = self.entries.len();
        self.places.clear();
        for (place, entry) in (0..).zip(&self.entries) {
            self.places.entry(entry.tid).or_insert((place, place)).1 = place + 1;
        }
    }

    /// No time before `time` will be looked up any more. To be called after [`TaskNames::settle`].
    pub(crate) fn forget_before(&mut self, time: MonotonicNs) {
        const FEW: usize = 4096;
        if self.entries.len() < 2 * self.needed + FEW {
            return;
        }
        let outdated = |entry: &Entry, next: Option<&Entry>| {
            next.is_some_and(|next| next.tid == entry.tid && next.from <= time.0)
        };
        let entries = std::mem::take(&mut self.entries);
        let nexts = entries.iter().skip(1).map(Some).chain([None]);
        let needed: Vec<Entry> = entries
            .iter()
            .zip(nexts)
            .filter(|(entry, next)| !outdated(entry, *next))
            .map(|(entry, _)| *entry)
            .collect();
        // What a task was called before its first entry matters to earlier times only.
        for entry in needed.iter().filter(|entry| entry.from <= time.0) {
            self.fallback.remove(&entry.tid);
        }
        // Names that nobody has any more are forgotten, too.
        let (comms, mut fallback) = (std::mem::take(&mut self.comms), std::mem::take(&mut self.fallback));
        self.numbers.clear();
        fallback.values_mut().for_each(|(_, comm)| *comm = self.number(comms[*comm as usize]));
        self.fallback = fallback;
        for entry in needed {
            let comm = self.number(comms[entry.comm as usize]);
            self.entries.push(Entry { comm, ..entry });
        }
        self.needed = self.entries.len();
        self.settled = 0;
        self.settle();
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

impl TaskNames {
    /// The name of `tid` at a time, and the interval in which it holds (its end excluded).
    fn span(&self, tid: u32, time: u64) -> (Option<Comm>, u64, u64) {
        let (begin, end) = self.places.get(&tid).unwrap_or(&(0, 0));
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

/// Looks up names, for one thread, until others are added.
#[derive(Debug)]
pub(crate) struct Lookup<'n> {
    all: &'n TaskNames,
    slots: Vec<Cell<Slot>>,
}

impl<'n> Lookup<'n> {
    pub(crate) fn new(all: &'n TaskNames) -> Lookup<'n> {
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
        let mut log = TaskNames::default();
        log.observe(&rename(200, 7, "first", "second"));
        log.observe(&rename(100, 7, "before", "first"));
        log.add(Tid(9), MonotonicNs(0), Comm::from("dumped"));
        let mut other = TaskNames::default();
        other.add_fallback(Tid(9), MonotonicNs(300), Comm::from("at its end"));
        other.add_fallback(Tid(10), MonotonicNs(300), Comm::from("at its end"));
        log.join(other);
        log.settle();
        let names = Lookup::new(&log);
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

    /// As while a recording is converted: names come, are looked up and forgotten.
    #[test]
    fn what_is_still_asked_for_is_not_forgotten() {
        let mut names = TaskNames::default();
        names.add(Tid(1), MonotonicNs(0), Comm::from("one"));
        names.add_fallback(Tid(2), MonotonicNs(5), Comm::from("two"));
        let name = |number: u64| Comm::from(format!("n{number}").as_str());
        let mut most = 0;
        for round in 0..300 {
            for number in round * 1000..round * 1000 + 1000 {
                names.add(Tid(3 + low(number % 7)), MonotonicNs(number), name(number));
            }
            names.settle();
            let before = MonotonicNs(round * 1000);
            names.forget_before(before);
            most = most.max(names.entries.len().max(names.comms.len()));
            let lookup = Lookup::new(&names);
            for number in round * 1000..round * 1000 + 1000 {
                let found = lookup.comm(Tid(3 + low(number % 7)), MonotonicNs(number));
                assert_eq!(found, Some(name(number)), "{round}");
            }
            assert_eq!(lookup.comm(Tid(1), before), Some(Comm::from("one")));
            assert_eq!(lookup.comm(Tid(2), MonotonicNs(3)), Some(Comm::from("two")));
        }
        assert!(most < 10_000, "{most} are held");
    }

    fn low(number: u64) -> u32 {
        u32::try_from(number).unwrap()
    }
}
