// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies that were found: as a whole, by what they are of, by task, and the longest one by one.

use super::super::Intervals;
use super::threads::Thread;
use super::{LatencyFigures, LongLatency, NamedLatencies, TaskLatencies, Unpaired};
use crate::histogram::Histogram;
use rtscope_event::{Comm, CpuId, Pattern, PatternList, is_event_named};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Latencies that are shown one by one.
const LONGEST: usize = 10;

/// Tasks that are listed; more are added up. Each takes some 10 KB.
const MOST_TASKS: usize = 2000;

/// Devices, system calls and the like that are listed.
const MOST_ROWS: usize = 2000;

/// Which latencies count.
#[derive(Clone, Debug, Default)]
pub struct LatencyFilter {
    /// Those that end at this moment or later.
    pub since_ns: Option<i64>,
    /// Those of these tasks: a thread's number, or a pattern for its name.
    pub task: Option<String>,
    /// Those that end on these CPUs.
    pub cpus: Option<BTreeSet<u64>>,
    /// Those whose first or last event these names mean, and neither of which they leave out; none: all.
    pub events: PatternList,
}

impl LatencyFilter {
    fn has(&self, found: &Found) -> bool {
        let task = self.task.as_ref().is_none_or(|text| {
            found.thread.is_some_and(|thread| match text.parse::<u32>() {
                Ok(tid) => thread.tid == tid,
                Err(_) => Pattern::new(text).matches(thread.comm.as_bytes()),
            })
        });
        let on_cpu =
            self.cpus.as_ref().is_none_or(|cpus| found.cpu.is_some_and(|cpu| cpus.contains(&cpu.0.into())));
        task && on_cpu && found.asked.is_meant()
    }
}

/// One end of a latency, or both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// What it is of (a system call, a device), as the measure numbers them.
    pub(super) row: Option<u64>,
    pub(super) since_ns: i64,
    pub(super) until_ns: i64,
    /// Whose it is.
    pub(super) thread: Option<Thread>,
    /// Where it ended.
    pub(super) cpu: Option<CpuId>,
    /// Whether its events were asked for by name.
    pub(super) asked: Asked,
}

/// What a list of names says of one event, or of both of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    is_included: bool,
    is_excluded: bool,
}

impl Asked {
    pub(super) fn of(names: &PatternList, name: &str) -> Asked {
        let is = |pattern: &Pattern| is_event_named(pattern, name);
        Asked {
            is_included: names.include.is_empty() || names.include.iter().any(is),
            is_excluded: names.exclude.iter().any(is),
        }
    }

    /// Of both events.
    pub(super) fn and(self, other: Asked) -> Asked {
        Asked {
            is_included: self.is_included || other.is_included,
            is_excluded: self.is_excluded || other.is_excluded,
        }
    }

    fn is_meant(self) -> bool {
        self.is_included && !self.is_excluded
    }
}

#[derive(Clone, Debug, Default)]
struct Figures {
    all: Intervals,
    least_ns: Option<u64>,
    lengths: Histogram,
}

impl Figures {
    fn add(&mut self, since_ns: i64, until_ns: i64) {
        let length_ns = self.all.add(since_ns, until_ns);
        self.least_ns = Some(self.least_ns.map_or(length_ns, |least| least.min(length_ns)));
        self.lengths.record(length_ns);
    }

    fn report(&self) -> LatencyFigures {
        let statistics = self.lengths.statistics();
        LatencyFigures {
            all: self.all,
            least_ns: self.least_ns,
            mean_ns: self.all.total_ns.checked_div(self.all.count),
            percentiles: statistics.map(|statistics| statistics.percentiles).unwrap_or_default(),
            histogram: self.lengths.buckets(),
        }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    filter: LatencyFilter,
    all: Figures,
    rows: BTreeMap<u64, Figures>,
    /// By number and life; with the last name.
    tasks: BTreeMap<(u32, u32), (Comm, Figures)>,
    /// Of tasks beyond those that are listed.
    rest: Option<Box<Figures>>,
    /// By length, the longest first.
    longest: Vec<Found>,
    unpaired: Unpaired,
}

impl Collected {
    pub(super) fn new(filter: &LatencyFilter) -> Collected {
        Collected {
            filter: filter.clone(),
            all: Figures::default(),
            rows: BTreeMap::new(),
            tasks: BTreeMap::new(),
            rest: None,
            longest: Vec::new(),
            unpaired: Unpaired::default(),
        }
    }

    fn counts(&self, found: &Found) -> bool {
        self.filter.since_ns.is_none_or(|since_ns| found.until_ns >= since_ns) && self.filter.has(found)
    }

    /// One from its first to its last event.
    pub(super) fn add(&mut self, found: Found) {
        if !self.counts(&found) {
            return;
        }
        let (since_ns, until_ns) = (found.since_ns, found.until_ns);
        self.all.add(since_ns, until_ns);
        if let Some(row) = found.row {
            if self.rows.len() < MOST_ROWS || self.rows.contains_key(&row) {
                self.rows.entry(row).or_default().add(since_ns, until_ns);
            }
        }
        if let Some(thread) = found.thread {
            self.add_to_task(thread, (since_ns, until_ns));
        }
        let length = |found: &Found| found.until_ns.saturating_sub(found.since_ns);
        if self.longest.len() < LONGEST
            || self.longest.last().is_some_and(|last| length(last) < length(&found))
        {
            let place = self.longest.partition_point(|other| length(other) >= length(&found));
            self.longest.insert(place, found);
            self.longest.truncate(LONGEST);
        }
    }

    fn add_to_task(&mut self, Thread { tid, comm, life }: Thread, (since_ns, until_ns): (i64, i64)) {
        let key = (tid, life);
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(&key) {
            return self.rest.get_or_insert_default().add(since_ns, until_ns);
        }
        let (name, figures) = self.tasks.entry(key).or_default();
        if !comm.as_bytes().is_empty() {
            *name = comm;
        }
        figures.add(since_ns, until_ns);
    }

    /// It began, and its end is not recorded.
    pub(super) fn no_end(&mut self, begun: &Found) {
        // When it ended nobody knows: it counts wherever it may have been.
        let open = Found { until_ns: i64::MAX, ..*begun };
        self.unpaired.without_end += u64::from(self.counts(&open));
    }

    /// Another of its key began before it had ended.
    pub(super) fn begun_again(&mut self, again: &Found) {
        self.unpaired.begun_again += u64::from(self.counts(again));
    }

    /// It ended, and its beginning is not recorded.
    pub(super) fn no_begin(&mut self, ended: &Found) {
        self.unpaired.without_begin += u64::from(self.counts(ended));
    }

    /// Events were lost: it is not known whether it ended.
    pub(super) fn lost(&mut self, begun: &Found) {
        let open = Found { until_ns: i64::MAX, ..*begun };
        self.unpaired.lost += u64::from(self.counts(&open));
    }

    /// The report's parts. `name`: number and name of a row.
    pub(super) fn report(mut self, forgotten: u64, name: &dyn Fn(u64) -> (u64, String)) -> Parts {
        self.name_longest();
        let mut rows: Vec<NamedLatencies> = self
            .rows
            .iter()
            .map(|(row, figures)| {
                let (id, name) = name(*row);
                NamedLatencies { name, id, figures: figures.report() }
            })
            .collect();
        rows.sort_by(|one, other| {
            let key = |row: &NamedLatencies| Reverse(row.figures.all.total_ns);
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        let mut tasks: Vec<TaskLatencies> = self
            .tasks
            .iter()
            .map(|((tid, _), (comm, figures))| TaskLatencies {
                tid: *tid,
                comm: comm.to_string(),
                figures: figures.report(),
            })
            .collect();
        tasks.sort_by_key(|task| (Reverse(task.figures.all.total_ns), task.tid));
        let long = |found: &Found| LongLatency {
            name: found.row.map(|row| name(row).1),
            since_ns: found.since_ns,
            until_ns: found.until_ns,
            length_ns: u64::try_from(found.until_ns.saturating_sub(found.since_ns)).unwrap_or(0),
            tid: found.thread.map(|thread| thread.tid),
            comm: found.thread.map(|thread| thread.comm.to_string()),
            cpu: found.cpu,
        };
        Parts {
            all: self.all.report(),
            rows,
            tasks,
            unlisted: self.rest.as_ref().map(|rest| rest.report()),
            longest: self.longest.iter().map(long).collect(),
            unpaired: Unpaired { forgotten, ..self.unpaired },
        }
    }

    /// A thread's name may become known after its first latency.
    fn name_longest(&mut self) {
        for thread in self.longest.iter_mut().filter_map(|found| found.thread.as_mut()) {
            if let Some((comm, _)) =
                self.tasks.get(&(thread.tid, thread.life)).filter(|_| thread.comm.as_bytes().is_empty())
            {
                thread.comm = *comm;
            }
        }
    }
}

/// All of a report but its head.
pub(super) struct Parts {
    pub(super) all: LatencyFigures,
    pub(super) rows: Vec<NamedLatencies>,
    pub(super) tasks: Vec<TaskLatencies>,
    pub(super) unlisted: Option<LatencyFigures>,
    pub(super) longest: Vec<LongLatency>,
    pub(super) unpaired: Unpaired,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_meant_if_one_of_its_events_is_and_none_is_left_out() {
        let is_meant = |list: &[&str]| {
            let names = PatternList::new(list);
            let of = |name| Asked::of(&names, name);
            of("syscall_entry_read").and(of("syscall_exit_read")).is_meant()
        };
        for list in [&[][..], &["*_read"], &["syscall_exit_*"], &["syscall_*", "!*_write"], &["!*_write"]] {
            assert!(is_meant(list), "{list:?}");
        }
        for list in [&["*_write"][..], &["!syscall_entry_read"], &["syscall_*", "!syscall_exit_*"]] {
            assert!(!is_meant(list), "{list:?}");
        }
    }
}
