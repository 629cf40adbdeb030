// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes perf.data: for tests, which have no such hardware, and for what records AUX data itself.
//!
//! Both forms are written from the same records: `perf script` reads the one of a pipe with `cat FILE | perf script -i -`.

use super::attribute::sample_type;
use super::record::number;
use super::{Branch, EventAttribute, SampleId};
use crate::pt::PerfClock;

/// Flags of an event: `sample_id_all`.
const SAMPLE_ID_ALL: u64 = 1 << 18;
/// Size of `perf_event_attr` as written here (its fifth version).
const ATTRIBUTE: usize = 112;

/// Builds a perf.data.
#[derive(Clone, Debug, Default)]
pub struct PerfEncoder {
    events: Vec<EventAttribute>,
    records: Vec<u8>,
}

impl PerfEncoder {
    /// One with these events.
    #[must_use]
    pub fn new(events: Vec<EventAttribute>) -> PerfEncoder {
        PerfEncoder { events, records: Vec::new() }
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) -> &mut PerfEncoder {
        let padded = body.len().div_ceil(8) * 8;
        let size = u16::try_from(8 + padded).unwrap_or(u16::MAX);
        self.records.extend_from_slice(&kind.to_le_bytes());
        self.records.extend_from_slice(&misc.to_le_bytes());
        self.records.extend_from_slice(&size.to_le_bytes());
        self.records.extend_from_slice(body);
        self.records.resize(self.records.len() + padded - body.len(), 0);
        self
    }

    /// Records as they are.
    pub(super) fn raw(&mut self, records: &[u8]) -> &mut PerfEncoder {
        self.records.extend_from_slice(records);
        self
    }

    /// The records so far.
    pub(super) fn recorded(&self) -> &[u8] {
        &self.records
    }

    /// The records so far, which are gone then.
    pub(super) fn take_recorded(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records)
    }

    /// A record of the kernel of the first event, with where and when behind it.
    pub fn kernel(&mut self, kind: u32, misc: u16, body: &[u8], id: &SampleId) -> &mut PerfEncoder {
        let mut whole = body.to_vec();
        whole.resize(body.len().div_ceil(8) * 8, 0);
        let has =
            self.events.first().filter(|event| event.sample_id_all).map_or(0, |event| event.sample_type);
        let halves = |low: Option<u32>, high: Option<u32>| {
            u64::from(low.unwrap_or(0)) | u64::from(high.unwrap_or(0)) << 32
        };
        let fields = [
            (sample_type::TID, halves(id.pid, id.tid)),
            (sample_type::TIME, id.time.unwrap_or(0)),
            (sample_type::CPU, halves(id.cpu, None)),
            (sample_type::IDENTIFIER, id.id.unwrap_or(0)),
        ];
        for (_, value) in fields.into_iter().filter(|(bit, _)| has & bit != 0) {
            whole.extend_from_slice(&value.to_le_bytes());
        }
        self.record(kind, misc, &whole)
    }

    /// Says of which unit AUX data is; `words` as perf's headers have them.
    pub fn auxtrace_info(&mut self, kind: u32, words: &[u64]) -> &mut PerfEncoder {
        let mut body = kind.to_le_bytes().to_vec();
        body.extend_from_slice(&[0; 4]);
        body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.record(number::AUXTRACE_INFO, 0, &body)
    }

    /// AUX data.
    pub fn auxtrace(
        &mut self,
        data: &[u8],
        offset: u64,
        (index, tid, cpu): (u32, Option<u32>, Option<u32>),
    ) -> &mut PerfEncoder {
        let padded = data.len().div_ceil(8) * 8;
        self.auxtrace_header(padded as u64, offset, (index, tid, cpu));
        self.records.extend_from_slice(data);
        self.records.resize(self.records.len() + padded - data.len(), 0);
        self
    }

    /// The record before AUX data, whose size is a multiple of 8.
    pub(super) fn auxtrace_header(
        &mut self,
        bytes: u64,
        offset: u64,
        (index, tid, cpu): (u32, Option<u32>, Option<u32>),
    ) -> &mut PerfEncoder {
        let mut body = Vec::new();
        for word in [bytes, offset, 0] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        for half in [index, tid.unwrap_or(u32::MAX), cpu.unwrap_or(u32::MAX), 0] {
            body.extend_from_slice(&half.to_le_bytes());
        }
        self.record(number::AUXTRACE, 0, &body)
    }

    /// How the processor's counter becomes perf's clock.
    pub fn time_conversion(&mut self, clock: &PerfClock) -> &mut PerfEncoder {
        let words = [u64::from(clock.shift), clock.mult.into(), clock.zero];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.record(number::TIME_CONV, 0, &body)
    }

    /// The kernel wrote AUX data.
    pub fn aux(&mut self, offset: u64, size: u64, flags: u64, id: &SampleId) -> &mut PerfEncoder {
        let body: Vec<u8> = [offset, size, flags].iter().flat_map(|word| word.to_le_bytes()).collect();
        self.kernel(number::AUX, 0, &body, id)
    }

    /// A file is mapped into a process, to be executed.
    pub fn mmap2(
        &mut self,
        pid: u32,
        (start, length, page_offset): (u64, u64, u64),
        file: &str,
        id: &SampleId,
    ) -> &mut PerfEncoder {
        const READ_AND_EXECUTE: u32 = 5;
        let mut body = [pid, pid].iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
        for word in [start, length, page_offset, 0, 0, 0] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&READ_AND_EXECUTE.to_le_bytes());
        body.extend_from_slice(&2u32.to_le_bytes());
        body.extend_from_slice(file.as_bytes());
        body.push(0);
        self.kernel(number::MMAP2, 2, &body, id)
    }

    /// A thread has a name.
    pub fn comm(&mut self, pid: u32, tid: u32, name: &str, id: &SampleId) -> &mut PerfEncoder {
        let mut body = [pid, tid].iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        self.kernel(number::COMM, 0, &body, id)
    }

    /// A thread leaves its CPU or comes; `other` is the one that comes or was there.
    pub fn switch(&mut self, out: bool, other: (u32, u32), id: &SampleId) -> &mut PerfEncoder {
        let body: Vec<u8> = [other.0, other.1].iter().flat_map(|half| half.to_le_bytes()).collect();
        self.kernel(number::SWITCH_CPU_WIDE, if out { 1 << 13 } else { 0 }, &body, id)
    }

    /// Records were lost.
    pub fn lost(&mut self, count: u64, id: &SampleId) -> &mut PerfEncoder {
        let body: Vec<u8> = [0, count].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        self.kernel(number::LOST, 0, &body, id)
    }

    /// A sample of the first event with a branch stack; of the other fields those that the event asks for: IP, TID, TIME, CPU.
    pub fn sample(&mut self, id: &SampleId, ip: u64, branches: &[Branch]) -> &mut PerfEncoder {
        let asked = self.events.first().map_or(0, |event| event.sample_type);
        let mut body = Vec::new();
        let mut add = |bit: u64, value: u64| {
            if asked & bit != 0 {
                body.extend_from_slice(&value.to_le_bytes());
            }
        };
        add(sample_type::IDENTIFIER, id.id.unwrap_or(0));
        add(sample_type::IP, ip);
        add(sample_type::TID, u64::from(id.pid.unwrap_or(0)) | u64::from(id.tid.unwrap_or(0)) << 32);
        add(sample_type::TIME, id.time.unwrap_or(0));
        add(sample_type::CPU, id.cpu.unwrap_or(0).into());
        if asked & sample_type::BRANCH_STACK != 0 {
            body.extend_from_slice(&(branches.len() as u64).to_le_bytes());
            for Branch { from, to, flags } in branches {
                for word in [from, to, flags] {
                    body.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        self.record(number::SAMPLE, 2, &body)
    }

    /// The end of a round: what follows is not older than what was before the end of the round before.
    pub fn finished_round(&mut self) -> &mut PerfEncoder {
        self.record(number::FINISHED_ROUND, 0, &[])
    }

    /// As perf writes it into a pipe.
    #[must_use]
    pub fn pipe(&self) -> Vec<u8> {
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend_from_slice(&16u64.to_le_bytes());
        let mut events = PerfEncoder::default();
        for event in &self.events {
            let mut body = attribute(event);
            body.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
            events.record(number::HEADER_ATTR, 0, &body);
        }
        bytes.extend_from_slice(&events.records);
        bytes.extend_from_slice(&self.records);
        bytes
    }

    /// As perf writes it into a file.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        const HEADER: usize = 104;
        const SECTION: usize = 16;
        let ids: usize = self.events.iter().map(|event| event.ids.len() * 8).sum();
        let attributes = HEADER + ids;
        let data = attributes + self.events.len() * (ATTRIBUTE + SECTION);
        let mut bytes = b"PERFILE2".to_vec();
        let sizes = [
            HEADER,
            ATTRIBUTE + SECTION,
            attributes,
            self.events.len() * (ATTRIBUTE + SECTION),
            data,
            self.records.len(),
            0,
            0,
        ];
        sizes.iter().for_each(|size| bytes.extend_from_slice(&(*size as u64).to_le_bytes()));
        bytes.resize(HEADER, 0);
        for event in &self.events {
            bytes.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        let mut at = HEADER;
        for event in &self.events {
            bytes.extend_from_slice(&attribute(event));
            let size = event.ids.len() * 8;
            bytes.extend([at, size].iter().flat_map(|word| (*word as u64).to_le_bytes()));
            at += size;
        }
        bytes.extend_from_slice(&self.records);
        bytes
    }
}

fn attribute(event: &EventAttribute) -> Vec<u8> {
    const USE_CLOCKID: u64 = 1 << 25;
    let mut flags = if event.sample_id_all { SAMPLE_ID_ALL } else { 0 };
    flags |= event.clock.map_or(0, |_| USE_CLOCKID);
    let mut bytes = event.pmu.to_le_bytes().to_vec();
    bytes.extend_from_slice(&u32::try_from(ATTRIBUTE).unwrap_or(0).to_le_bytes());
    for word in [event.config, 1, event.sample_type, event.read_format, flags, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for word in [event.branch_sample_type, 0, u64::from(event.clock.unwrap_or(0) as u32) << 32, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.resize(ATTRIBUTE, 0);
    bytes
}
