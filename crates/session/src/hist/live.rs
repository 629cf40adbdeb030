// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that has been counted by a moment, with its names, for who shows it while it grows. What came between two moments, and since one that
//! somebody chooses, is the difference of two of these: nothing is reset in the kernel.

use super::names::KeyNames;
use super::{HistKey, HistSettings};
use crate::counting::{CountLosses, Reading};
use nix::time::{ClockId, clock_gettime};
use rtscope_analyze::keyed::{Key, KeyedHistograms};
use rtscope_event::{Comm, Tracker};
use std::collections::BTreeMap;

/// Counted since the start.
#[derive(Clone, Debug, Default)]
pub struct CountedKeys {
    /// When it was read, since the start.
    pub at_ns: u64,
    /// By key.
    pub keys: KeyedHistograms,
    /// What the keys are called.
    pub names: BTreeMap<Key, String>,
    /// What was not counted.
    pub losses: CountLosses,
    /// Late responses that were counted as such, and of which nobody was told: their ring was full.
    pub unreported: u64,
    /// Cells that are used, of the CPU that has the most.
    pub cells_used: usize,
    /// Cells of each CPU.
    pub cells: usize,
    /// CPU time of this process since its start; `None`: the kernel does not say.
    pub own_ns: Option<u64>,
}

/// Makes them.
#[derive(Debug)]
pub(crate) struct LiveReader {
    tracker: Tracker,
    by: HistKey,
    names: KeyNames,
    cells: usize,
}

impl LiveReader {
    pub(crate) fn new(settings: &HistSettings) -> LiveReader {
        let by = settings.by.unwrap_or(HistKey::usual(settings.tracker));
        LiveReader::of(settings.tracker, by, settings.cells)
    }

    pub(crate) fn of(tracker: Tracker, by: HistKey, cells: u32) -> LiveReader {
        LiveReader { tracker, by, names: KeyNames::new(), cells: cells.next_power_of_two() as usize }
    }

    /// Of the first instance.
    pub(crate) fn read(&mut self, reading: Reading, unreported: u64) -> CountedKeys {
        let tasks = reading.cells.names.iter().filter(|((instance, _), _)| *instance == 0);
        let tasks: BTreeMap<u32, Comm> = tasks.map(|((_, id), comm)| (*id, *comm)).collect();
        let keys = reading.cells.instances.into_iter().next().unwrap_or_default();
        let name = |key: &Key| (*key, self.names.name((self.tracker, self.by), *key, &tasks));
        CountedKeys {
            at_ns: reading.at_ns,
            names: keys.keys.keys().map(name).collect(),
            keys,
            losses: reading.losses,
            unreported,
            cells_used: reading.cells.used,
            cells: self.cells,
            own_ns: own_ns(),
        }
    }
}

fn own_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    let (seconds, ns) = (u64::try_from(time.tv_sec()).ok()?, u64::try_from(time.tv_nsec()).ok()?);
    Some(seconds * 1_000_000_000 + ns)
}
