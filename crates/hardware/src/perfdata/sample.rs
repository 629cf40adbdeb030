// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `PERF_RECORD_SAMPLE`, up to its branch stack; nothing behind that is needed here.

use super::attribute::{BRANCH_HW_INDEX, EventAttribute, read_format, sample_type};
use super::branch::Branch;
use super::bytes::Cursor;
use super::record::SampleId;

/// A sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample<'r> {
    /// Where and when.
    pub id: SampleId,
    /// Where the program was.
    pub ip: Option<u64>,
    /// The callers, the innermost first, with the kernel's marks between; words, least significant byte first.
    pub callchain: &'r [u8],
    /// The number of the newest entry in the hardware's stack.
    pub hardware_index: Option<u64>,
    branches: &'r [u8],
}

impl<'r> Sample<'r> {
    /// The branches before it, the newest first. Slots that hardware had not filled are 0 → 0, as perf shows them.
    pub fn branches(&self) -> impl ExactSizeIterator<Item = Branch> + 'r {
        self.branches.chunks_exact(Branch::BYTES).map(|bytes| Branch::parse(bytes).unwrap_or_default())
    }

    /// `None`: it ends within a field.
    pub(super) fn parse(body: &'r [u8], attribute: &EventAttribute) -> Option<Sample<'r>> {
        let has = |bit: u64| attribute.sample_type & bit != 0;
        let mut cursor = Cursor(body);
        let mut sample = Sample::default();
        if has(sample_type::IDENTIFIER) {
            sample.id.id = Some(cursor.u64()?);
        }
        if has(sample_type::IP) {
            sample.ip = Some(cursor.u64()?);
        }
        if has(sample_type::TID) {
            sample.id.pid = Some(cursor.u32()?);
            sample.id.tid = Some(cursor.u32()?);
        }
        if has(sample_type::TIME) {
            sample.id.time = Some(cursor.u64()?);
        }
        if has(sample_type::ADDR) {
            cursor.u64()?;
        }
        if has(sample_type::ID) {
            sample.id.id = Some(cursor.u64()?);
        }
        if has(sample_type::STREAM_ID) {
            cursor.u64()?;
        }
        if has(sample_type::CPU) {
            sample.id.cpu = Some(cursor.u32()?);
            cursor.u32()?;
        }
        if has(sample_type::PERIOD) {
            cursor.u64()?;
        }
        if has(sample_type::READ) {
            skip_read(&mut cursor, attribute.read_format)?;
        }
        if has(sample_type::CALLCHAIN) {
            sample.callchain = words(&mut cursor, 8)?;
        }
        if has(sample_type::RAW) {
            // The kernel pads the size and the bytes together to a whole word.
            let size = cursor.u32()?;
            cursor.take(usize::try_from(size).ok()?)?;
        }
        if has(sample_type::BRANCH_STACK) {
            let count = cursor.u64()?;
            if attribute.branch_sample_type & BRANCH_HW_INDEX != 0 {
                sample.hardware_index = Some(cursor.u64()?);
            }
            let size = usize::try_from(count).ok()?.checked_mul(Branch::BYTES)?;
            sample.branches = cursor.take(size)?;
        }
        Some(sample)
    }
}

/// A count and that many pieces of a size.
fn words<'r>(cursor: &mut Cursor<'r>, size: usize) -> Option<&'r [u8]> {
    let count = usize::try_from(cursor.u64()?).ok()?;
    cursor.take(count.checked_mul(size)?)
}

fn skip_read(cursor: &mut Cursor<'_>, format: u64) -> Option<()> {
    let has = |bit: u64| usize::from(format & bit != 0);
    let times = has(read_format::TOTAL_TIME_ENABLED) + has(read_format::TOTAL_TIME_RUNNING);
    let of_each = 1 + has(read_format::ID) + has(read_format::LOST);
    let count = if format & read_format::GROUP != 0 { usize::try_from(cursor.u64()?).ok()? } else { 1 };
    let words = of_each.checked_mul(count)?.checked_add(times)?;
    cursor.take(words.checked_mul(8)?).map(|_| ())
}
