// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records: those of the kernel (`linux/perf_event.h`) and those that perf writes itself (numbers from 64 on).

use super::attribute::{EventAttribute, sample_type};
use super::auxtrace::{AuxSegment, AuxtraceInfo};
use super::bytes::{Cursor, word};
use super::sample::Sample;
use crate::pt::PerfClock;

/// Numbers of records.
pub(super) mod number {
    pub(in super::super) const MMAP: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const COMM: u32 = 3;
    pub(in super::super) const EXIT: u32 = 4;
    pub(in super::super) const FORK: u32 = 7;
    pub(in super::super) const SAMPLE: u32 = 9;
    pub(in super::super) const MMAP2: u32 = 10;
    pub(in super::super) const AUX: u32 = 11;
    pub(in super::super) const ITRACE_START: u32 = 12;
    pub(in super::super) const LOST_SAMPLES: u32 = 13;
    pub(in super::super) const SWITCH: u32 = 14;
    pub(in super::super) const SWITCH_CPU_WIDE: u32 = 15;
    pub(in super::super) const AUX_OUTPUT_HW_ID: u32 = 21;
    pub(in super::super) const HEADER_ATTR: u32 = 64;
    pub(in super::super) const FINISHED_ROUND: u32 = 68;
    pub(in super::super) const AUXTRACE_INFO: u32 = 70;
    pub(in super::super) const AUXTRACE: u32 = 71;
    pub(in super::super) const TIME_CONV: u32 = 79;
    pub(in super::super) const COMPRESSED: u32 = 81;
    pub(in super::super) const COMPRESSED2: u32 = 83;
    /// The first of perf's own.
    pub(in super::super) const USER: u32 = 64;
}

/// `misc` of a switch: the thread leaves its CPU.
const SWITCH_OUT: u16 = 1 << 13;

/// Where and when: fields that samples have at the front and other records at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// Nanoseconds of the recording's clock.
    pub time: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The number of the event.
    pub id: Option<u64>,
}

impl SampleId {
    /// From the end of a record that is no sample.
    pub(super) fn at_the_end(body: &[u8], attribute: &EventAttribute) -> SampleId {
        let mut id = SampleId::default();
        if !attribute.sample_id_all {
            return id;
        }
        let has = |bit: u64| attribute.sample_type & bit != 0;
        let fields = [
            sample_type::TID,
            sample_type::TIME,
            sample_type::ID,
            sample_type::STREAM_ID,
            sample_type::CPU,
            sample_type::IDENTIFIER,
        ];
        let size = 8 * fields.iter().filter(|bit| has(**bit)).count();
        let Some(from) = body.len().checked_sub(size) else { return id };
        let mut cursor = Cursor(&body[from..]);
        for bit in fields.into_iter().filter(|bit| has(*bit)) {
            match bit {
                sample_type::TID => (id.pid, id.tid) = (cursor.u32(), cursor.u32()),
                sample_type::CPU => (id.cpu, _) = (cursor.u32(), cursor.u32()),
                sample_type::TIME => id.time = cursor.u64(),
                sample_type::STREAM_ID => _ = cursor.u64(),
                _ => id.id = cursor.u64(),
            }
        }
        id
    }
}

/// Flags of `PERF_RECORD_AUX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuxFlags(pub u64);

impl AuxFlags {
    /// Data was lost: the buffer was full.
    #[must_use]
    pub fn is_truncated(self) -> bool {
        self.0 & 1 != 0
    }

    /// The buffer is a circle: older data was overwritten.
    #[must_use]
    pub fn is_overwrite(self) -> bool {
        self.0 & 2 != 0
    }

    /// The trace has gaps: the unit was stopped for a part of the time.
    #[must_use]
    pub fn is_partial(self) -> bool {
        self.0 & 4 != 0
    }

    /// A sample met another one (SPE).
    #[must_use]
    pub fn is_collision(self) -> bool {
        self.0 & 8 != 0
    }

    /// CoreSight data without frames: straight from the unit (TRBE).
    #[must_use]
    pub fn is_raw(self) -> bool {
        self.0 >> 8 & 0xff == 1
    }
}

/// What a record says.
#[derive(Clone, Debug)]
pub enum RecordBody<'r> {
    /// A sample.
    Sample(Sample<'r>),
    /// Something is mapped into a process, or into the kernel (process -1).
    Mmap {
        /// The process.
        pid: u32,
        /// The first address.
        start: u64,
        /// Bytes.
        length: u64,
        /// Where in the file it begins.
        page_offset: u64,
        /// Whether it can be executed; `None`: the old record does not say.
        executable: Option<bool>,
        /// The file.
        file: &'r [u8],
    },
    /// A thread has a name.
    Comm {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The name.
        name: &'r [u8],
    },
    /// A thread begins.
    Fork {
        /// The new process, and that of the parent.
        pid: [u32; 2],
        /// The new thread, and the parent.
        tid: [u32; 2],
    },
    /// A thread ends.
    Exit {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// Records were lost.
    Lost {
        /// How many.
        count: u64,
    },
    /// AUX data was written.
    Aux {
        /// From here on, in the stream of the buffer.
        offset: u64,
        /// Bytes.
        size: u64,
        /// What happened.
        flags: AuxFlags,
    },
    /// The unit begins to trace this thread.
    TraceStart {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread leaves its CPU, or comes.
    Switch {
        /// It leaves.
        out: bool,
        /// The process and the thread that come next, or were there before, where the record says.
        other: Option<(u32, u32)>,
    },
    /// A number that the hardware uses for this event (of CoreSight: the number in frames).
    HardwareId(u64),
    /// What describes AUX data.
    AuxtraceInfo(AuxtraceInfo),
    /// AUX data; it is behind the record.
    Auxtrace(AuxSegment),
    /// The counter on perf's clock.
    TimeConversion(PerfClock),
    /// Another record.
    Other,
}

/// A record.
#[derive(Clone, Debug)]
pub struct Record<'r> {
    /// Where it begins in the file.
    pub at: u64,
    /// Its number.
    pub number: u32,
    /// Its `misc`: the mode of the CPU, and more.
    pub misc: u16,
    /// Its size.
    pub size: u16,
    /// The number of its event among those of the recording.
    pub event: usize,
    /// Where and when.
    pub id: SampleId,
    /// What it says.
    pub body: RecordBody<'r>,
}

/// What a record of the kernel says; `None`: it ends too early.
pub(super) fn of_kernel<'r>(
    kind: u32,
    misc: u16,
    body: &'r [u8],
    attribute: &EventAttribute,
) -> Option<RecordBody<'r>> {
    let mut cursor = Cursor(body);
    Some(match kind {
        number::SAMPLE => RecordBody::Sample(Sample::parse(body, attribute)?),
        number::MMAP | number::MMAP2 => {
            const EXECUTABLE: u32 = 4;
            let (pid, _tid) = (cursor.u32()?, cursor.u32()?);
            let (start, length, page_offset) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
            let mut executable = None;
            if kind == number::MMAP2 {
                // Device and inode, or a build id.
                cursor.take(24)?;
                executable = Some(cursor.u32()? & EXECUTABLE != 0);
                let _flags = cursor.u32()?;
            }
            RecordBody::Mmap { pid, start, length, page_offset, executable, file: cursor.text() }
        }
        number::COMM => {
            let (pid, tid) = (cursor.u32()?, cursor.u32()?);
            RecordBody::Comm { pid, tid, name: cursor.text() }
        }
        number::FORK | number::EXIT => {
            let pid = [cursor.u32()?, cursor.u32()?];
            let tid = [cursor.u32()?, cursor.u32()?];
            if kind == number::FORK {
                RecordBody::Fork { pid, tid }
            } else {
                RecordBody::Exit { pid: pid[0], tid: tid[0] }
            }
        }
        number::LOST => {
            let _id = cursor.u64()?;
            RecordBody::Lost { count: cursor.u64()? }
        }
        number::LOST_SAMPLES => RecordBody::Lost { count: cursor.u64()? },
        number::AUX => {
            let (offset, size) = (cursor.u64()?, cursor.u64()?);
            RecordBody::Aux { offset, size, flags: AuxFlags(cursor.u64()?) }
        }
        number::ITRACE_START => RecordBody::TraceStart { pid: cursor.u32()?, tid: cursor.u32()? },
        number::SWITCH => RecordBody::Switch { out: misc & SWITCH_OUT != 0, other: None },
        number::SWITCH_CPU_WIDE => {
            let other = Some((cursor.u32()?, cursor.u32()?));
            RecordBody::Switch { out: misc & SWITCH_OUT != 0, other }
        }
        number::AUX_OUTPUT_HW_ID => RecordBody::HardwareId(cursor.u64()?),
        _ => RecordBody::Other,
    })
}

/// What a record of perf says, but for AUX data, which is behind its record.
pub(super) fn of_perf(kind: u32, body: &[u8]) -> Option<RecordBody<'_>> {
    Some(match kind {
        number::AUXTRACE_INFO => RecordBody::AuxtraceInfo(AuxtraceInfo::parse(body)?),
        number::TIME_CONV => RecordBody::TimeConversion(PerfClock {
            shift: u16::try_from(word(body, 0)?).ok()?,
            mult: u32::try_from(word(body, 1)?).ok()?,
            zero: word(body, 2)?,
        }),
        _ => RecordBody::Other,
    })
}
