// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of flight recorders, which are overwritten: what is copied from them, and what is left in them at the end.

use super::Ring;
use crate::image::{PIECE_BYTES, RingImage};
use crate::memory::acquire_fence;
use crate::records::Header;
use rtscope_abi::program as abi;
use rtscope_event::exact::index;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

impl Ring {
    /// Gives back what a flight recorder has overwritten, whether or not it runs: until then a thread that is told to fill its ring finds it full. To be
    /// called before events are enabled, and by the flight recorder when it has disabled them. The newest sub-buffer is left, which begins with its time.
    pub(crate) fn give_back_overwritten(&mut self) {
        let head = self.word(offset_of!(abi::rtu_ring, head)) & !7;
        let layout = self.info.layout;
        if head.saturating_sub(self.tail) > layout.ring_bytes {
            self.sync = None;
            self.give_back(head - head % layout.sub_bytes);
        } else if self.info.left_until > 0 {
            self.give_back(self.tail);
        }
    }

    /// Gives back what a flight recorder has left that was killed, though it may not have come around yet: no part of a recording. The newest
    /// sub-buffer is left, which begins with its time. To be called while no event of its process is enabled.
    pub(crate) fn give_back_left_by_flight(&mut self) {
        let head = self.word(offset_of!(abi::rtu_ring, head)) & !7;
        self.info.left_until = head;
        let begin = head - head % self.info.layout.sub_bytes;
        if begin > self.tail {
            self.sync = None;
            self.give_back(begin);
        }
    }

    /// The newest complete records of a ring that is being overwritten, from the beginning of a sub-buffer on; for flight recorders. The copy and what is
    /// kept beside it take at most `bytes_max` bytes, but for the rest of a page. Records overwritten during the copy are left out, and so is what
    /// lies behind padding: of a liar it may be any number of bytes without memory. False: there was not enough space for all.
    ///
    /// # Errors
    /// When the system has no memory.
    pub(crate) fn snapshot(&self, bytes_max: u64) -> io::Result<(RingImage, bool)> {
        let layout = self.info.layout;
        let head = self.word(offset_of!(abi::rtu_ring, head));
        let up = |position: u64| {
            if position % layout.sub_bytes == 0 { position } else { layout.sub_end(position) }
        };
        let oldest = up(head.saturating_sub(layout.ring_bytes));
        let most = bytes_max.saturating_sub(bytes_max.div_ceil(layout.sub_bytes).saturating_mul(PIECE_BYTES));
        let from = oldest.max(up(head.saturating_sub(most)));
        let mut image = RingImage::new(layout, from < head)?;
        let mut at = from;
        while at < head && !self.mapping.is_cut() {
            let stop = layout.sub_end(at).min(head);
            let unfinished = self.copy_sub_buffer(at, stop, &mut image);
            // In the newest its thread may be in the middle of one.
            if unfinished > 0 && stop < head && !self.was_written_again(at) {
                image.add_unfinished(unfinished);
            }
            at = stop;
        }
        // ORDER: acquire; pairs with the fence in rtscope__step(): if the copy has a byte of a sub-buffer's next lap, the head below has
        // come as far. Without it the head could be read before the copy.
        acquire_fence();
        // The writer may be anywhere in its current sub-buffer. ORDER: relaxed; the fence is before it.
        let later = self.mapping.word(offset_of!(abi::rtu_ring, head)).load(Ordering::Relaxed);
        image.cut_before(up(layout.sub_end(later).saturating_sub(layout.ring_bytes).max(from)));
        Ok((image, from == oldest))
    }

    /// Copies complete records up to `stop`, which is in the same sub-buffer. Of one that is not complete, its word tells where it ends.
    /// Returns how many were not, as [`RingImage::unfinished`] counts them.
    fn copy_sub_buffer(&self, begin: u64, stop: u64, image: &mut RingImage) -> u64 {
        let layout = self.info.layout;
        let (mut from, mut at, mut unfinished) = (begin, begin, 0);
        while at < stop {
            let place = u64::from(abi::RTU_RING_OFFSET) + (at & (layout.ring_bytes - 1));
            // ORDER: acquire; as in Records::header(). What is copied afterwards has the payload.
            let word = self.mapping.word(index(place)).load(Ordering::Acquire);
            match layout.header(at, word) {
                Header::Complete { id, end, .. } if id != abi::RTU_ID_PADDING && end <= stop => at = end,
                // Not the sync record, which gives the others their time.
                Header::Open { end } if end <= stop && at > begin => {
                    let copied = self.copy_row(from, at, image);
                    unfinished += 1;
                    if copied < at {
                        image.add_piece(begin, copied);
                        return unfinished + 1;
                    }
                    // As it was read: its payload, of which this says nothing, may have come meanwhile.
                    image.bytes_mut(at, size_of::<u64>() as u64).copy_from_slice(&word.to_ne_bytes());
                    (from, at) = (end, end);
                }
                // The next sub-buffer can be read without the rest.
                Header::Complete { .. } => break,
                // No record: how many events are behind it nobody knows.
                _ => {
                    unfinished += 1;
                    break;
                }
            }
        }
        let copied = self.copy_row(from, at, image);
        image.add_piece(begin, copied);
        unfinished + u64::from(copied < at)
    }

    /// Copies records in a row. Returns where those end that are complete in the copy: the words may have changed since they were read.
    fn copy_row(&self, from: u64, to: u64, image: &mut RingImage) -> u64 {
        let place = u64::from(abi::RTU_RING_OFFSET) + (from & (self.info.layout.ring_bytes - 1));
        let row = image.bytes_mut(from, to - from);
        self.mapping.copy(index(place), row);
        from + self.info.layout.complete_bytes(from, row) as u64
    }
}
