// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counting, for `rtscope stat`. Only event headers are read, and fields that determine where the next event is.

use super::lane::{Lane, StreamReader};
use super::parallel::for_each;
use super::select::Selection;
use super::set::{DamagedFile, TraceSet};
use std::sync::{Mutex, PoisonError};

/// Files are handed out to threads in pieces of about this size.
const PIECE_BYTES: u64 = 4 << 20;

/// The counts of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamCount {
    /// The number of events of each event class.
    pub events: Vec<u64>,
    /// Time of the first (nanoseconds since the clock's origin).
    pub first_ns: Option<i64>,
    /// Time of the last.
    pub last_ns: Option<i64>,
}

impl StreamCount {
    /// All events.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.events.iter().sum()
    }

    pub(super) fn add_event(&mut self, event: usize, ns: Option<i64>) {
        if self.events.len() <= event {
            self.events.resize(event + 1, 0);
        }
        self.events.get_mut(event).into_iter().for_each(|count| *count += 1);
        self.first_ns = [self.first_ns, ns].into_iter().flatten().min();
        self.last_ns = self.last_ns.max(ns);
    }

    fn add(&mut self, other: &StreamCount) {
        if self.events.len() < other.events.len() {
            self.events.resize(other.events.len(), 0);
        }
        for (sum, count) in self.events.iter_mut().zip(&other.events) {
            *sum += count;
        }
        self.first_ns = [self.first_ns, other.first_ns].into_iter().flatten().min();
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

/// The counts of all streams, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// For each stream.
    pub streams: Vec<StreamCount>,
    /// Parts of files that could not be read; not those that are in [`TraceSet::damaged`].
    pub damaged: Vec<DamagedFile>,
}

/// Counts the selected events. `progress` is called now and then with the bytes done so far.
#[must_use]
pub fn count(set: &TraceSet, selection: &Selection, progress: &(dyn Fn(u64) + Sync)) -> Counts {
    let readings: Vec<StreamReader<'_>> =
        set.streams.iter().map(|stream| StreamReader::new(set, stream, selection)).collect();
    let counts = Counts { streams: vec![StreamCount::default(); readings.len()], damaged: Vec::new() };
    let state = Mutex::new((counts, 0_u64));
    for_each(pieces(&readings), |(stream, from, until, bytes)| {
        let Some(reading) = readings.get(stream) else { return };
        let (found, damaged) = count_piece(reading, (from, until));
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sum) = state.0.streams.get_mut(stream) {
            sum.add(&found);
        }
        state.0.damaged.extend(damaged);
        state.1 += bytes;
        progress(state.1);
    });
    let (mut counts, _) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    counts
        .damaged
        .sort_by(|one, other| (&one.path, one.damage.packet_at).cmp(&(&other.path, other.damage.packet_at)));
    counts
}

/// Stream, segments from and until, bytes. A stream whose times depend on what came before is one piece.
fn pieces(readings: &[StreamReader<'_>]) -> Vec<(usize, usize, usize, u64)> {
    let mut pieces = Vec::new();
    for (stream, reading) in readings.iter().enumerate() {
        let mut from = 0;
        let mut bytes = 0;
        for (place, segment) in reading.segments.iter().enumerate() {
            bytes += segment.until - segment.from;
            if bytes >= PIECE_BYTES && !reading.is_chained() {
                pieces.push((stream, from, place + 1, bytes));
                (from, bytes) = (place + 1, 0);
            }
        }
        if bytes > 0 {
            pieces.push((stream, from, reading.segments.len(), bytes));
        }
    }
    // Large ones first, so that the threads end at about the same time.
    pieces.sort_by_key(|(.., bytes)| std::cmp::Reverse(*bytes));
    pieces
}

fn count_piece(reading: &StreamReader<'_>, segments: (usize, usize)) -> (StreamCount, Vec<DamagedFile>) {
    let mut found = StreamCount { events: vec![0; reading.verdicts.len()], ..StreamCount::default() };
    let mut lane = Lane::counting(reading, segments, 1 << 20);
    while let Some(next) = lane.next() {
        if !lane.pass(next.head) {
            continue;
        }
        if let Some(count) = found.events.get_mut(next.head.event as usize) {
            *count += 1;
        }
        // As where events are passed over. In damaged traces times may go back.
        found.first_ns = Some(found.first_ns.map_or(next.ns, |first| first.min(next.ns)));
        found.last_ns = found.last_ns.max(Some(next.ns));
    }
    if !lane.passed.events.is_empty() {
        let (first_ns, last_ns) = lane.passed.span_ns.unzip();
        found.add(&StreamCount { events: std::mem::take(&mut lane.passed.events), first_ns, last_ns });
    }
    if !reading.is_timed() {
        (found.first_ns, found.last_ns) = (None, None);
    }
    (found, lane.damaged)
}
