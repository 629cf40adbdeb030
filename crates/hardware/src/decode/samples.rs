// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of perf with branch stacks: the branches before each sample as events at the sample's time.
//!
//! Records of several CPUs are not in the order of time in a file; they are within a round. So samples are held for one
//! round, as perf does it.

use super::summary::{Counter, StreamSummary};
use super::{Findings, SeenPacket};
use crate::perfdata::{Branch, PerfError, PerfFile, Record, RecordBody, Sample};
use crate::trace::{EventClassKind, HardwareEvent, Lane, LaneInfo};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

const FINISHED_ROUND: u32 = 68;
/// Samples that are held at most: a round of a normal recording has far fewer.
const HELD_MAX: usize = 1 << 18;

/// A sample that is held.
#[derive(Clone, Debug)]
struct Held {
    offset: u64,
    thread: Option<(u32, u32)>,
    cpu: Option<u32>,
    ip: Option<u64>,
    /// The newest first, as in the record.
    branches: Vec<Branch>,
}

/// Reads the samples of a perf.data.
pub struct SampleLane {
    perf: PerfFile<Arc<File>>,
    /// By time and place.
    held: BTreeMap<(u64, u64), Held>,
    newest: u64,
    of_round_before: u64,
    has_ended: bool,
    counter: Counter,
}

impl SampleLane {
    /// Of this file.
    ///
    /// # Errors
    /// When it is not a perf.data.
    pub fn new(file: &Arc<File>) -> Result<SampleLane, PerfError> {
        Ok(SampleLane {
            perf: PerfFile::open(file.clone())?,
            held: BTreeMap::new(),
            newest: 0,
            of_round_before: 0,
            has_ended: false,
            counter: Counter::default(),
        })
    }

    /// What was found so far.
    #[must_use]
    pub fn summary(&self) -> StreamSummary {
        self.counter.summary()
    }

    /// Reads on, up to the end of a round. False: that was all.
    ///
    /// # Errors
    /// When the file cannot be read. Damage ends it: whoever opened the file has said so.
    pub fn step(&mut self, found: &mut dyn Findings) -> io::Result<bool> {
        while !self.has_ended {
            let record = match self.perf.next_record() {
                Ok(Some(record)) => record,
                Ok(None) | Err(PerfError::Truncated { .. } | PerfError::Malformed { .. }) => break,
                Err(error) => return Err(other(error)),
            };
            let ends_round = record.number == FINISHED_ROUND;
            if let Some((time, sample)) = hold(&record) {
                self.newest = self.newest.max(time);
                self.held.insert((time, sample.offset), sample);
            }
            if ends_round || self.held.len() >= HELD_MAX {
                let later = self.held.split_off(&(self.of_round_before.saturating_add(1), 0));
                let due = std::mem::replace(&mut self.held, later);
                self.of_round_before = self.newest;
                for ((time, _), sample) in due {
                    self.give(time, &sample, found);
                }
                return Ok(true);
            }
        }
        self.has_ended = true;
        for ((time, _), sample) in std::mem::take(&mut self.held) {
            self.give(time, &sample, found);
        }
        Ok(false)
    }

    fn give(&mut self, time: u64, sample: &Held, found: &mut dyn Findings) {
        let time_ns = (time > 0).then_some(time);
        let packet = SeenPacket { offset: sample.offset, time: time_ns, text: sample };
        self.counter.packet(&packet);
        found.packet(&packet);
        for branch in sample.branches.iter().rev().filter(|branch| branch.from != 0 || branch.to != 0) {
            let mispredicted = branch.predicted() == Some(false);
            let numbers = [branch.from, branch.to, branch.cycles().into(), mispredicted.into()];
            let text = branch.kind().unwrap_or("").into();
            let event = HardwareEvent {
                time_ns,
                cpu: sample.cpu,
                thread: sample.thread,
                ..HardwareEvent::new(EventClassKind::Branch, &numbers, text)
            };
            self.counter.event(event.clone());
            found.event(event);
        }
    }
}

fn other(error: PerfError) -> io::Error {
    match error {
        PerfError::Io(error) => error,
        error => io::Error::other(error),
    }
}

fn hold(record: &Record<'_>) -> Option<(u64, Held)> {
    let RecordBody::Sample(sample) = &record.body else { return None };
    let Sample { id, ip, .. } = sample;
    let branches: Vec<Branch> = sample.branches().collect();
    let held = Held { offset: record.at, thread: id.pid.zip(id.tid), cpu: id.cpu, ip: *ip, branches };
    (!held.branches.is_empty()).then_some((id.time.unwrap_or(0), held))
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sample")?;
        self.thread.map_or(Ok(()), |(pid, tid)| write!(f, " {pid}/{tid}"))?;
        self.ip.map_or(Ok(()), |ip| write!(f, " {ip:#x}"))?;
        f.write_str(":")?;
        for branch in &self.branches {
            let predicted = match branch.predicted() {
                Some(true) => 'P',
                Some(false) => 'M',
                None => '-',
            };
            let transaction = if branch.in_transaction() { 'X' } else { '-' };
            let abort = if branch.is_abort() { 'A' } else { '-' };
            let Branch { from, to, .. } = branch;
            write!(f, " {from:#x}/{to:#x}/{predicted}/{transaction}/{abort}/{}", branch.cycles())?;
        }
        Ok(())
    }
}

struct Queue<'q>(&'q mut VecDeque<HardwareEvent>);

impl Findings for Queue<'_> {
    fn packet(&mut self, _: &SeenPacket<'_>) {}
    fn flow(&mut self, _: Option<u64>, _: &dyn fmt::Display) {}
    fn event(&mut self, event: HardwareEvent) {
        self.0.push_back(event);
    }
    fn lost(&mut self, _: crate::Lost) {}
}

impl Lane for SampleLane {
    fn advance(&mut self, out: &mut VecDeque<HardwareEvent>) -> io::Result<bool> {
        self.step(&mut Queue(out))
    }

    fn info(&self) -> LaneInfo {
        LaneInfo { name: "samples".to_owned() }
    }
}
