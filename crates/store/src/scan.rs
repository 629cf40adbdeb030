// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first pass over the banks: it collects facts that are needed before an event is written.
//!
//! Names, because a fork on one CPU names a task that runs on another one; texts of paths that were read late; and which
//! built-in events there are, since their numbers in the trace depend on that. Nothing is stored of other records, so this
//! runs at the speed of memory.

use crate::bank::{BankReader, Entry};
use crate::forks::Forks;
use crate::names::TaskNames;
use crate::paths::{LatePaths, PathText};
use rtscope_abi as abi;
use rtscope_event::exact::low_half;
use rtscope_event::{CpuId, Event, MonotonicNs};
use rtscope_ring::{Frame, decode};
use std::collections::HashSet;
use std::io;

/// The facts found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) names: TaskNames,
    pub(crate) forks: Forks,
    pub(crate) late: LatePaths,
    /// Numbers that `EventKind::class` gives.
    pub(crate) classes: HashSet<u32>,
    /// Forks, renamings and exits, if somebody wants them.
    pub(crate) tasks: Option<Vec<Event>>,
    /// For each kind of record a bit for each kind of vector in it (bit 0 for all others) whose class has been found.
    seen: Vec<u64>,
}

impl Scan {
    /// Scans a bank, up to records that were taken from the ring after `until`, or as far as it is there. `go_on` is called after each
    /// block with the bytes read; false ends the scan.
    pub(crate) fn bank(
        &mut self,
        cpu: CpuId,
        reader: &mut BankReader,
        until: MonotonicNs,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> io::Result<()> {
        let mut before = reader.position();
        while reader.time() <= until && !reader.is_at_end() {
            reader.block(|_, entry| {
                if let Entry::Record(frame) = entry {
                    self.record(cpu, &frame);
                }
            })?;
            let read = reader.position() - before;
            before = reader.position();
            if !go_on(read) {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn record(&mut self, cpu: CpuId, frame: &Frame<'_>) {
        let kind = u32::from(frame.kind);
        match kind {
            abi::RTS_PROCESS_FORK | abi::RTS_TASK_RENAME | abi::RTS_PROCESS_EXIT => {
                // Not events of the trace: see rtscope_abi::only_names_tasks().
                if let Some(event) = decode(cpu, frame) {
                    self.names.observe(&event);
                    self.forks.observe(&event);
                    self.tasks.iter_mut().for_each(|tasks| tasks.push(event.clone()));
                }
            }
            abi::RTS_SYSCALL_PATH => {
                if let Some(path) = PathText::of(frame).filter(|path| path.is_late) {
                    self.late.add(&path);
                }
            }
            abi::RTS_SYSCALL_ENTRY | abi::RTS_SYSCALL_EXIT => {}
            _ => {
                let vector = matches!(kind, abi::RTS_VECTOR_ENTRY | abi::RTS_VECTOR_EXIT);
                let which = if vector { frame.words().get(2).map_or(0, |word| low_half(*word)) } else { 0 };
                self.seen.resize(256, 0);
                let bit = 1_u64.checked_shl(which).unwrap_or(0);
                if self.seen[usize::from(frame.kind)] & bit != 0 {
                    return;
                }
                if let Some(event) = decode(cpu, frame) {
                    self.classes.insert(event.kind.class());
                    self.seen[usize::from(frame.kind)] |= bit;
                }
            }
        }
    }

    /// Adds the result of another scan.
    pub(crate) fn join(&mut self, other: Scan) {
        self.names.join(other.names);
        self.forks.join(other.forks);
        self.late.join(other.late);
        self.classes.extend(other.classes);
    }

    /// What was found can be looked up from now on.
    pub(crate) fn settle(&mut self) {
        self.names.settle();
        self.late.settle();
    }

    /// All events before `time` have been written. To be called after [`Scan::settle`].
    pub(crate) fn forget_before(&mut self, time: MonotonicNs) {
        self.names.forget_before(time);
        self.forks.forget_before(time);
        self.late.forget_before(time.0);
    }
}
