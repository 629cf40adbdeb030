// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records that come nearly in order of time, sorted.

use rtscope_event::MonotonicNs;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Pending records in order of time; at the same time in order of arrival.
///
/// Most records come in order and are appended. Late ones go to a separate heap: inserting one would move all that are newer,
/// and a damaged bank can make that the whole horizon for each record.
#[derive(Debug)]
pub(crate) struct SortedQueue<T> {
    in_order: VecDeque<QueueEntry<T>>,
    late: BinaryHeap<Reverse<QueueEntry<T>>>,
    /// Number of records so far.
    arrived: u64,
}

impl<T> Default for SortedQueue<T> {
    fn default() -> SortedQueue<T> {
        SortedQueue { in_order: VecDeque::new(), late: BinaryHeap::new(), arrived: 0 }
    }
}

impl<T> SortedQueue<T> {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.late.len()
    }

    /// Adds one that came after all others.
    #[inline]
    pub(crate) fn add(&mut self, time: MonotonicNs, what: T) {
        let pending = QueueEntry { time, arrival: self.arrived, what };
        self.arrived += 1;
        if self.in_order.back().is_none_or(|last| last.time <= time) {
            self.in_order.push_back(pending);
        } else {
            self.late.push(Reverse(pending));
        }
    }

    /// The oldest, and whether it came late.
    #[inline]
    pub(crate) fn front(&self) -> Option<(MonotonicNs, bool)> {
        let (next, late) = (self.in_order.front(), self.late.peek().map(|Reverse(late)| late));
        match (next, late) {
            (next, Some(late)) if next.is_none_or(|next| late < next) => Some((late.time, true)),
            (next, _) => next.map(|next| (next.time, false)),
        }
    }

    /// Takes the oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<QueueEntry<T>> {
        let (_, is_late) = self.front()?;
        if is_late { self.late.pop().map(|Reverse(late)| late) } else { self.in_order.pop_front() }
    }
}

/// A record that waits.
#[derive(Debug)]
pub(crate) struct QueueEntry<T> {
    pub(crate) time: MonotonicNs,
    /// Its number in the order of arrival.
    arrival: u64,
    pub(crate) what: T,
}

impl<T> QueueEntry<T> {
    fn key(&self) -> (MonotonicNs, u64) {
        (self.time, self.arrival)
    }
}

impl<T> PartialEq for QueueEntry<T> {
    fn eq(&self, other: &QueueEntry<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for QueueEntry<T> {}

impl<T> PartialOrd for QueueEntry<T> {
    fn partial_cmp(&self, other: &QueueEntry<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for QueueEntry<T> {
    fn cmp(&self, other: &QueueEntry<T>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
