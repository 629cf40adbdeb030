// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the kernel's counts by call and operation to the table of classes, and to what has changed in them.

use super::queue::{QueueEstimate, QueueReader};
use super::{DetectSettings, ProfileClass, ProfileSettings};
use crate::counting::{CountLosses, Reading};
use crate::devices::disk_of;
use crate::hist::names::KeyNames;
use crate::hist::{HistKey, ReportKind};
use rtscope_analyze::change::{Change, ChangeDetector, Verdict};
use rtscope_analyze::histogram::Statistics;
use rtscope_analyze::keyed::{Key, SparseHistogram};
use rtscope_event::{BlockOperation, Comm, Tracker};
use rtscope_kernel::io_calls::{IoClass, io_class};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The instance that follows requests; the other one follows system calls.
const BLOCKS: usize = 1;

/// One class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassCounts {
    /// Which.
    pub class: ProfileClass,
    /// The sum of its times.
    pub sum_ns: u64,
    /// Its figures; `rows` are the table.
    pub figures: Statistics,
}

/// A table: of all, or of one device, cgroup, task or process.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Who or what, in words; empty where it is all.
    pub name: String,
    /// Its number; 0 where it is all.
    pub id: u32,
    /// The classes in which something was counted.
    pub classes: Vec<ClassCounts>,
}

/// What was counted.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileReport {
    /// Since the reading before, or all since the start.
    pub kind: ReportKind,
    /// By what there are tables.
    pub by: Option<HistKey>,
    /// Whose, in words.
    pub target: String,
    /// When it ends, since the start.
    pub at_ns: u64,
    /// The time that it is of.
    pub window_ns: u64,
    /// The tables, the one with the largest sum first.
    pub groups: Vec<Group>,
    /// Block requests of other kinds: flushes, discards and the like.
    pub other_requests: u64,
    /// The kernel's own estimates of the same time, for all processes.
    pub queue: QueueEstimate,
    /// What was not counted, since the start.
    pub losses: CountLosses,
}

/// A class that has become another one.
#[derive(Clone, Debug, Serialize)]
pub struct ClassChange {
    /// When the window ended, since the start.
    pub at_ns: u64,
    /// Which class.
    pub class: ProfileClass,
    /// The level at which it was judged: that of all windows and classes, by the number of classes.
    pub level: f64,
    /// What has changed.
    #[serde(flatten)]
    pub change: Change,
    /// The kernel's own estimates of the same window.
    pub queue: QueueEstimate,
}

type Table = BTreeMap<(u32, ProfileClass), SparseHistogram>;

/// Makes reports of readings.
#[derive(Debug)]
pub(super) struct Reporter {
    by: Option<HistKey>,
    target: String,
    names: KeyNames,
    before: (Table, u64, u64),
    queue: QueueReader,
    queue_from_start: QueueReader,
    detect: Option<DetectSettings>,
    detectors: HashMap<ProfileClass, ChangeDetector>,
    last_window: BTreeMap<ProfileClass, SparseHistogram>,
    window_queue: QueueReader,
    classes: HashMap<u16, Option<IoClass>>,
    disks: HashMap<u32, u32>,
}

impl Reporter {
    pub(super) fn new(settings: &ProfileSettings, names: KeyNames) -> Reporter {
        Reporter {
            by: settings.by,
            target: settings.counted.words("all of user space, and all block devices"),
            names,
            before: (Table::new(), 0, 0),
            queue: QueueReader::new(),
            queue_from_start: QueueReader::new(),
            detect: settings.detect,
            detectors: HashMap::new(),
            last_window: BTreeMap::new(),
            window_queue: QueueReader::new(),
            classes: HashMap::new(),
            disks: HashMap::new(),
        }
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    fn class(&mut self, instance: usize, kind: u16) -> Option<ProfileClass> {
        if instance == BLOCKS {
            return match BlockOperation::of(kind.into(), u64::MAX) {
                BlockOperation::Read => Some(ProfileClass::BlockRead),
                BlockOperation::Write => Some(ProfileClass::BlockWrite),
                _ => None,
            };
        }
        let class = *self.classes.entry(kind).or_insert_with(|| io_class(kind.into()));
        Some(match class? {
            IoClass::Read => ProfileClass::Read,
            IoClass::Write => ProfileClass::Write,
            IoClass::ReadWrite => ProfileClass::ReadWrite,
            IoClass::Sync => ProfileClass::Sync,
            IoClass::Open => ProfileClass::Open,
            IoClass::Close => ProfileClass::Close,
        })
    }

    /// All since the start by id and class, and how many requests have no class. Files are on partitions, requests go to disks.
    fn table(&mut self, reading: &Reading) -> (Table, u64) {
        let (mut table, mut others) = (Table::new(), 0);
        for (instance, counted) in reading.cells.instances.iter().enumerate() {
            for (key, histogram) in &counted.keys {
                let Some(class) = self.class(instance, key.kind) else {
                    others += histogram.count();
                    continue;
                };
                let id = match self.by {
                    Some(HistKey::Device) => *self.disks.entry(key.id).or_insert_with(|| disk_of(key.id)),
                    Some(_) => key.id,
                    None => 0,
                };
                table.entry((id, class)).or_default().merge(histogram);
            }
        }
        (table, others)
    }

    pub(super) fn report(&mut self, kind: ReportKind, reading: &Reading) -> ProfileReport {
        let (table, others) = self.table(reading);
        let (since, window_ns, other_requests, queue) = match kind {
            ReportKind::Total => (table, reading.at_ns, others, self.queue_from_start.since()),
            ReportKind::Interval => {
                let nothing = SparseHistogram::default();
                let of = |key: &(u32, ProfileClass)| self.before.0.get(key).unwrap_or(&nothing);
                let since = table.iter().map(|(key, now)| (*key, now.since(of(key)))).collect();
                let window_ns = reading.at_ns.saturating_sub(self.before.1);
                let more = others.saturating_sub(self.before.2);
                self.before = (table, reading.at_ns, others);
                (since, window_ns, more, self.queue.since())
            }
        };
        ProfileReport {
            kind,
            by: self.by,
            target: self.target.clone(),
            at_ns: reading.at_ns,
            window_ns,
            groups: self.groups(&since, reading),
            other_requests,
            queue,
            losses: reading.losses,
        }
    }

    fn groups(&mut self, table: &Table, reading: &Reading) -> Vec<Group> {
        let tasks: BTreeMap<u32, Comm> =
            reading.cells.names.iter().map(|((_, id), comm)| (*id, *comm)).collect();
        let mut groups: BTreeMap<u32, Vec<ClassCounts>> = BTreeMap::new();
        for ((id, class), histogram) in table {
            let Some(figures) = histogram.histogram().statistics() else { continue };
            let counts = ClassCounts { class: *class, sum_ns: histogram.sum_ns(), figures };
            groups.entry(*id).or_default().push(counts);
        }
        let name = |(id, classes)| {
            let key = Key { id, kind: 0 };
            let name = self.by.map(|by| self.names.name((Tracker::Syscall, by), key, &tasks));
            Group { name: name.unwrap_or_default(), id, classes }
        };
        let mut groups: Vec<Group> = groups.into_iter().map(name).collect();
        let sum = |group: &Group| group.classes.iter().map(|class| class.sum_ns).sum::<u64>();
        groups.sort_by_key(|group| Reverse(sum(group)));
        groups
    }

    /// Compares the window that ends here with those before, class by class, everything together.
    pub(super) fn changes(&mut self, reading: &Reading) -> Vec<ClassChange> {
        let Some(detect) = self.detect else { return Vec::new() };
        let mut classes: BTreeMap<ProfileClass, SparseHistogram> = BTreeMap::new();
        for ((_, class), histogram) in self.table(reading).0 {
            classes.entry(class).or_default().merge(&histogram);
        }
        let queue = self.window_queue.since();
        // One alarm in any class is one: each class has its part of the level (Bonferroni).
        let level = detect.level / ProfileClass::ALL.len() as f64;
        let mut changes = Vec::new();
        for (class, now) in &classes {
            let before = self.last_window.get(class).cloned().unwrap_or_default();
            let detector =
                self.detectors.entry(*class).or_insert_with(|| ChangeDetector::new(detect.baseline, level));
            if let Verdict::Changed(change) = detector.judge(&now.since(&before)) {
                let (change, queue) = (*change, queue.clone());
                changes.push(ClassChange { at_ns: reading.at_ns, class: *class, level, change, queue });
            }
        }
        self.last_window = classes;
        changes
    }
}
