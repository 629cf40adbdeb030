// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records that have come into a flight recorder's ring since the last look, in place: nothing is given back, and the program does not
//! notice.
//!
//! Its thread may overwrite them at any moment. So what a sub-buffer had is only believed when the ring's head, read after it, says that it was not
//! written again.

use super::{PATIENCE, Ring};
use crate::collector::{EventIds, Rest};
use crate::memory::acquire_fence;
use crate::records::{Header, Sync};
use rtscope_abi::program as abi;
use rtscope_event::exact::{index, low_half};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Between two questions whether there is time for more. A sub-buffer may have half a gigabyte.
const STEP_BYTES: u64 = 64 << 10;

/// How far a ring was looked at.
#[derive(Debug)]
pub(super) struct Looked {
    /// Position of the next record.
    at: u64,
    /// The time and CPU that it counts from; `None` until the next sub-buffer, which begins with them.
    sync: Option<Sync>,
    /// What is before this was there when the recording began.
    from: u64,
    /// The record here is not complete, and since when.
    waiting: Option<(u64, Instant)>,
}

impl Looked {
    /// Nothing before `head` is of interest. `begin`: of its sub-buffer.
    fn passed_over(self, begin: u64, head: u64) -> Looked {
        match self.at < begin {
            true => Looked { at: begin, sync: None, from: head, waiting: None },
            // The time is known.
            false => Looked { from: head, ..self },
        }
    }
}

/// A record that has come.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The event's id.
    pub(crate) id: u32,
    /// The time, by the program's clock.
    pub(crate) counter: u64,
    /// The CPU, or [`abi::RTU_CPU_UNKNOWN`].
    pub(crate) cpu: u32,
    /// Where its payload is among those of the look.
    payload: (usize, usize),
}

/// What has come into a ring.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) records: Vec<Arrival>,
    payloads: Vec<u8>,
    /// Some could not be looked at: they were overwritten before, or their time is not known.
    pub(crate) has_missed: bool,
}

impl Arrivals {
    /// A record's fields, with padding.
    pub(crate) fn payload(&self, record: &Arrival) -> &[u8] {
        self.payloads.get(record.payload.0..record.payload.1).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.records.clear();
        self.payloads.clear();
        self.has_missed = false;
    }

    fn truncate(&mut self, (records, bytes): (usize, usize)) {
        self.records.truncate(records);
        self.payloads.truncate(bytes);
    }
}

impl Ring {
    /// The records with these ids that have come since the last time. `is_new`: its first records count, too, if it was not looked at before.
    /// `is_last`: its thread writes nothing more. `rest` is asked now and then, with the number of those that were found: whether no more is looked
    /// at, and what becomes of the rest. Returns its answer, if there is a rest.
    pub(crate) fn arrivals(
        &mut self,
        wanted: &EventIds,
        (is_new, is_last): (bool, bool),
        into: &mut Arrivals,
        rest: &dyn Fn(usize) -> Option<Rest>,
    ) -> Option<Rest> {
        into.clear();
        let layout = self.info.layout;
        let (mut looked, head) = self.begin_look(is_new);
        let begin = head - head % layout.sub_bytes;
        // A program that writes a smaller head does not have what was looked at looked at again.
        into.has_missed = head < looked.at;
        if head.saturating_sub(looked.at) > layout.ring_bytes - layout.sub_bytes {
            into.has_missed = true;
            looked = Looked { at: begin, sync: None, waiting: None, ..looked };
        }
        while looked.at < head {
            let (before, first) = ((into.records.len(), into.payloads.len()), looked.at);
            let stop = layout.sub_end(first).min(head);
            let is_at_end = self.walk(&mut looked, (stop, head), is_last, wanted, into);
            if self.was_written_again(first) {
                into.truncate(before);
                into.has_missed = true;
                looked = Looked { at: begin.max(first), sync: None, waiting: None, ..looked };
                // What is there now is the next look's.
                break;
            }
            if !is_at_end {
                break;
            }
            let rest = if looked.at < head { rest(into.records.len()) } else { None };
            if let Some(rest) = rest {
                if rest == Rest::PassedOver {
                    into.has_missed = true;
                    looked = looked.passed_over(begin, head);
                }
                self.arrived = Some(looked);
                return Some(rest);
            }
        }
        self.arrived = Some(looked);
        None
    }

    /// The same without a look at any of them.
    pub(crate) fn pass_over(&mut self, is_new: bool, into: &mut Arrivals) {
        into.clear();
        let (looked, head) = self.begin_look(is_new);
        into.has_missed = looked.at.max(looked.from) < head;
        self.arrived = Some(looked.passed_over(head - head % self.info.layout.sub_bytes, head));
    }

    /// They wait for the next look.
    pub(crate) fn wait(&mut self, is_new: bool) {
        self.arrived = Some(self.begin_look(is_new).0);
    }

    /// Whether nothing has come since the last time.
    pub(crate) fn is_as_it_was(&self) -> bool {
        let head = self.word(offset_of!(abi::rtu_ring, head));
        self.arrived.as_ref().is_some_and(|looked| looked.at.max(looked.from) == head)
    }

    /// How far it was looked at, and how far it is.
    fn begin_look(&mut self, is_new: bool) -> (Looked, u64) {
        // A program can write any position there.
        let head = self.word(offset_of!(abi::rtu_ring, head)) & !7;
        let begin = head - head % self.info.layout.sub_bytes;
        let looked = self.arrived.take().unwrap_or(match is_new {
            true => Looked { at: self.tail, sync: self.sync, from: self.tail, waiting: None },
            // Its time is at the beginning of the sub-buffer.
            false => Looked { at: begin, sync: None, from: head, waiting: None },
        });
        (looked, head)
    }

    /// Goes through at most [`STEP_BYTES`] of a sub-buffer. False: the record here is not complete yet.
    fn walk(
        &self,
        looked: &mut Looked,
        (stop, head): (u64, u64),
        is_last: bool,
        wanted: &EventIds,
        into: &mut Arrivals,
    ) -> bool {
        let layout = self.info.layout;
        let step_end = stop.min(looked.at.saturating_add(STEP_BYTES));
        while looked.at < step_end {
            let at = looked.at;
            let place = u64::from(abi::RTU_RING_OFFSET) + (at & (layout.ring_bytes - 1));
            // ORDER: acquire; as in Records::header().
            let word = self.mapping.word(index(place)).load(Ordering::Acquire);
            looked.at = match layout.header(at, word) {
                Header::Complete { id, end, low } => {
                    self.arrival(looked, (id, end, low), wanted, into);
                    end
                }
                // Its thread is in the middle of it, or has left it.
                header => {
                    let (position, since) = *looked.waiting.get_or_insert_with(|| (at, Instant::now()));
                    let is_old = position == at && since.elapsed() > PATIENCE;
                    if position != at {
                        looked.waiting = Some((at, Instant::now()));
                    }
                    if !is_last && !is_old && head - at <= layout.sub_bytes {
                        return false;
                    }
                    match header {
                        Header::Open { end } => end,
                        // All others of this sub-buffer cannot be found.
                        _ => {
                            into.has_missed = true;
                            looked.sync = None;
                            stop
                        }
                    }
                }
            };
        }
        true
    }

    fn arrival(
        &self,
        looked: &mut Looked,
        (id, end, low): (u32, u64, u64),
        wanted: &EventIds,
        into: &mut Arrivals,
    ) {
        let place = |offset: u64| {
            let position = looked.at + offset;
            index(u64::from(abi::RTU_RING_OFFSET) + (position & (self.info.layout.ring_bytes - 1)))
        };
        // ORDER: relaxed; the acquire of its word covers the record.
        let word = |offset: u64| self.mapping.word(place(offset)).load(Ordering::Relaxed);
        if id == abi::RTU_ID_SYNC && end - looked.at == size_of::<abi::rtu_sync>() as u64 {
            looked.sync = Some(Sync { counter: word(8), cpu: low_half(word(24)) });
            return;
        }
        if looked.at < looked.from || !wanted.contains(id) {
            return;
        }
        let Some(sync) = looked.sync else {
            into.has_missed = true;
            return;
        };
        let begin = into.payloads.len();
        (8..end - looked.at).step_by(8).for_each(|offset| {
            into.payloads.extend_from_slice(&word(offset).to_le_bytes());
        });
        let payload = (begin, into.payloads.len());
        into.records.push(Arrival { id, counter: sync.complete(low), cpu: sync.cpu, payload });
    }

    /// Whether the sub-buffer with this position may have been written again since.
    pub(super) fn was_written_again(&self, position: u64) -> bool {
        // ORDER: acquire; pairs with the fence in rtscope__step(), as in snapshot().
        acquire_fence();
        // ORDER: relaxed; the fence is before it.
        let later = self.mapping.word(offset_of!(abi::rtu_ring, head)).load(Ordering::Relaxed);
        // The writer may be anywhere in its current sub-buffer.
        self.info.layout.sub_end(later).saturating_sub(self.info.layout.ring_bytes)
            > position - position % self.info.layout.sub_bytes
    }
}

#[cfg(test)]
mod tests;
