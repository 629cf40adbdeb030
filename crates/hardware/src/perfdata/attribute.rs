// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `perf_event_attr`: what was asked of an event, by which its records are read (`linux/perf_event.h`).

use super::bytes::Cursor;

/// `sample_type`: the fields of a sample, in the order in which they are written.
pub(super) mod sample_type {
    pub(in super::super) const IP: u64 = 1 << 0;
    pub(in super::super) const TID: u64 = 1 << 1;
    pub(in super::super) const TIME: u64 = 1 << 2;
    pub(in super::super) const ADDR: u64 = 1 << 3;
    pub(in super::super) const READ: u64 = 1 << 4;
    pub(in super::super) const CALLCHAIN: u64 = 1 << 5;
    pub(in super::super) const ID: u64 = 1 << 6;
    pub(in super::super) const CPU: u64 = 1 << 7;
    pub(in super::super) const PERIOD: u64 = 1 << 8;
    pub(in super::super) const STREAM_ID: u64 = 1 << 9;
    pub(in super::super) const RAW: u64 = 1 << 10;
    pub(in super::super) const BRANCH_STACK: u64 = 1 << 11;
    pub(in super::super) const IDENTIFIER: u64 = 1 << 16;
}

/// `read_format`.
pub(super) mod read_format {
    pub(in super::super) const TOTAL_TIME_ENABLED: u64 = 1 << 0;
    pub(in super::super) const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    pub(in super::super) const ID: u64 = 1 << 2;
    pub(in super::super) const GROUP: u64 = 1 << 3;
    pub(in super::super) const LOST: u64 = 1 << 4;
}

/// `branch_sample_type`.
pub(super) const BRANCH_HW_INDEX: u64 = 1 << 17;
/// Bits of the flags behind `read_format`.
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
/// The size of the first version, which all have.
const SIZE_MIN: usize = 64;

/// An event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventAttribute {
    /// The number of its PMU.
    pub pmu: u32,
    /// What is asked of the PMU.
    pub config: u64,
    /// The fields of its samples.
    pub sample_type: u64,
    /// The form of values that are read.
    pub read_format: u64,
    /// What is asked of branch stacks.
    pub branch_sample_type: u64,
    /// Other records say where and when, too.
    pub sample_id_all: bool,
    /// The clock that was chosen; `None` is the scheduler's clock.
    pub clock: Option<i32>,
    /// The numbers of this event in records.
    pub ids: Vec<u64>,
}

impl EventAttribute {
    /// Reads the structure, without the numbers. Also returns the size that it says it has.
    pub(super) fn parse(bytes: &[u8]) -> Option<(EventAttribute, usize)> {
        let mut cursor = Cursor(bytes);
        let pmu = cursor.u32()?;
        // 0 is how the first version says its size.
        let size = match usize::try_from(cursor.u32()?).ok()? {
            0 => SIZE_MIN,
            size => size,
        };
        if size < SIZE_MIN || size > bytes.len() {
            return None;
        }
        let mut cursor = Cursor(&bytes[8..size]);
        let config = cursor.u64()?;
        let _period = cursor.u64()?;
        let sample_type = cursor.u64()?;
        let read_format = cursor.u64()?;
        let flags = cursor.u64()?;
        // wakeup_events, bp_type, config1.
        cursor.take(16)?;
        // What older versions do not have was not asked for.
        let _config2 = cursor.u64();
        let branch_sample_type = cursor.u64().unwrap_or(0);
        let _regs = cursor.u64();
        let _stack = cursor.u32();
        let clock = cursor.u32().map(|clock| clock as i32).filter(|_| flags & USE_CLOCKID != 0);
        let attribute = EventAttribute {
            pmu,
            config,
            sample_type,
            read_format,
            branch_sample_type,
            sample_id_all: flags & SAMPLE_ID_ALL != 0,
            clock,
            ids: Vec::new(),
        };
        Some((attribute, size))
    }
}
