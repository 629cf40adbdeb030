// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of all streams in order of time, decoded on all CPUs.
//!
//! Time is cut into slices of about equal size. A thread takes a slice, decodes and merges it on its own, and makes pieces of it:
//! text (`print`), or values (`source`). They are taken in order. The number of slices in progress is limited, so that little waits.
//!
//! Order (babeltrace2 2.0.4's muxer): by time; at the same time by the rank of the stream; in a stream as
//! recorded. Without any clock, stream by stream.

use super::cursor::Head;
use super::lane::{ALWAYS, Interval, Lane, NextEvent, StreamReader};
use super::parallel::{for_each, threads};
use super::plan::{NumberPlace, Plan};
use super::queue::{Output, Queue, StopOnPanic};
use super::refine::refine;
use super::run::Visit;
use super::select::Selection;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of trace in progress at a time, in all threads. Text is some 8 times as long.
const UNDER_WAY_BYTES: u64 = 10 << 20;

/// Memory for windows, in all threads.
const WINDOWS_BYTES: usize = 32 << 20;

/// An event to be decoded.
#[derive(Debug)]
pub struct EventView<'l, 'r> {
    /// Index of its stream in the set.
    pub stream: usize,
    /// Index of its class in the stream.
    pub event: usize,
    /// Nanoseconds since the clock's origin; `None` if the stream has no clock.
    pub ns: Option<i64>,
    /// The clock's own value.
    pub cycles: u64,
    /// The CPU, by its packet.
    pub cpu: Option<u64>,
    /// A number of its packet, unique within the stream in this piece.
    pub packet: u64,
    /// Of a trace that is followed: by how much it is older than the newest event before it, if it came too late to be in order.
    pub late_ns: Option<u64>,
    pub(super) lane: &'l mut Lane<'r>,
}

impl EventView<'_, '_> {
    /// Runs a plan for all of the event's scopes over it, once.
    pub fn show<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> bool {
        self.lane.show(plan, visit)
    }

    /// Passes over it instead; false when it cannot be read to its end.
    pub(super) fn pass(&mut self) -> bool {
        let event = u32::try_from(self.event).unwrap_or(u32::MAX);
        self.lane.pass(Head { event, clock: self.cycles })
    }

    /// The same, and stays before the event: it can then be shown.
    pub fn peek<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> bool {
        self.lane.peek(plan, visit)
    }

    /// A number of the event, which can then be shown. `None`: it is negative, or the bytes have to be read first, as [`EventView::peek`] does.
    #[must_use]
    pub fn number(&self, place: NumberPlace) -> Option<u64> {
        self.lane.cursor.as_ref()?.number(place)
    }

    /// Runs a plan for the packet's context.
    pub fn show_context<V: Visit>(&mut self, plan: &Plan, visit: &mut V) {
        if let Some(cursor) = &mut self.lane.cursor {
            cursor.show_context(plan, visit);
        }
    }
}

/// What is made of events, by each thread for itself.
pub(crate) trait Decode: Sync {
    /// What a thread makes.
    type Piece: Output;
    /// The state of one thread.
    type Worker<'d>: Work<Piece = Self::Piece>
    where
        Self: 'd;

    /// A new one, for a new slice.
    fn worker(&self) -> Self::Worker<'_>;
}

/// Takes the events of a slice.
pub(crate) trait Work {
    /// What it adds to.
    type Piece;

    /// Adds an event, and counts it if it could be read to its end.
    fn event(&mut self, piece: &mut Self::Piece, event: &mut EventView<'_, '_>) -> bool;
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    /// A segment of a stream without times.
    Untimed { stream: usize, segment: usize },
    /// All streams with times.
    Timed(Interval),
}

/// The pieces, in order, while threads make the next ones.
pub(crate) struct Pieces<'q, P: Output>(&'q Queue<P>);

impl<P: Output> Pieces<'_, P> {
    /// The next; `None` after the last.
    pub(crate) fn next(&self) -> Option<P> {
        self.0.take()
    }

    /// How much has been taken, 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        self.0.progress()
    }

    /// Returns the memory of one that was taken.
    pub(crate) fn give_back(&self, piece: P) {
        self.0.give_back(piece);
    }
}

/// Decodes the events of `readings` on all CPUs, at most `limit` in a slice, while `body` takes the pieces.
pub(crate) fn decode<D: Decode, R>(
    mut readings: Vec<StreamReader<'_>>,
    selection: &Selection,
    limit: u64,
    decode: &D,
    body: impl FnOnce(&Pieces<'_, D::Piece>) -> R,
) -> R {
    for_each(readings.iter_mut().collect(), refine);
    let workers = threads();
    let slices = slices(&readings, selection, UNDER_WAY_BYTES / (workers as u64 + 2));
    let window = (WINDOWS_BYTES / (workers * readings.len().max(1))).clamp(16 << 10, 256 << 10);
    let workers = workers.min(slices.len());
    let queue = Queue::new(slices.len(), workers + 2);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let _guard = StopOnPanic(&queue);
                while let Some(place) = queue.next() {
                    if let Some(slice) = slices.get(place) {
                        work(&readings, *slice, window, limit, decode, &|piece| queue.part(place, piece));
                    }
                    queue.done(place);
                }
            });
        }
        // Also when the body fails: else the threads would wait for ever.
        let _guard = Stop(&queue);
        body(&Pieces(&queue))
    })
}

/// Ends the threads' work when it is dropped.
struct Stop<'q, P: Output>(&'q Queue<P>);

impl<P: Output> Drop for Stop<'_, P> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn slices(readings: &[StreamReader<'_>], selection: &Selection, bytes: u64) -> Vec<Slice> {
    let mut slices = Vec::new();
    let mut begins: Vec<(i64, u64)> = Vec::new();
    for (stream, reading) in readings.iter().enumerate() {
        for (place, segment) in reading.segments.iter().enumerate() {
            if !reading.is_timed() {
                slices.push(Slice::Untimed { stream, segment: place });
                continue;
            }
            let (from, until) = reading.span(place);
            let late = selection.to_ns.is_some_and(|to| from > to);
            if !late && selection.from_ns.is_none_or(|wanted| until >= wanted) {
                let size =
                    segment.place.map_or(segment.until - segment.from, |(from, until)| (until - from) / 8);
                begins.push((from, size));
            }
        }
    }
    begins.sort_unstable();
    let mut from = i64::MIN;
    let mut sum = 0;
    for (begin, size) in &begins {
        if sum >= bytes.max(128 << 10) && *begin > from {
            slices.push(Slice::Timed((from, *begin)));
            (from, sum) = (*begin, 0);
        }
        sum += size;
    }
    if !begins.is_empty() {
        slices.push(Slice::Timed((from, i64::MAX)));
    }
    slices
}

/// Decodes and merges a slice. `part` takes pieces, and returns an empty one, or `None` when no more are wanted.
fn work<D: Decode>(
    readings: &[StreamReader<'_>],
    slice: Slice,
    window: usize,
    limit: u64,
    decode: &D,
    part: &dyn Fn(D::Piece) -> Option<D::Piece>,
) {
    let mut worker = decode.worker();
    let mut lanes: Vec<(usize, Lane<'_>)> = Vec::new();
    match slice {
        Slice::Untimed { stream, segment } => {
            if let Some(reading) = readings.get(stream) {
                lanes.push((stream, Lane::new(reading, (segment, segment + 1), ALWAYS, window)));
            }
        }
        Slice::Timed(interval) => {
            for (stream, reading) in readings.iter().enumerate().filter(|(_, reading)| reading.is_timed()) {
                let segments = overlapping(reading, interval);
                if segments.0 < segments.1 {
                    lanes.push((stream, Lane::new(reading, segments, interval, window)));
                }
            }
        }
    }
    let Some(mut piece) = part(D::Piece::default()) else { return };
    let mut events = 0;
    merge(&mut lanes, limit, &mut |stream, lane, next| {
        let cursor = lane.cursor.as_ref();
        let (cpu, packet) = (cursor.and_then(|cursor| cursor.packet.cpu), lane.packets);
        let ns = lane.reading.is_timed().then_some(next.ns);
        let (event, cycles) = (next.head.event as usize, next.head.clock);
        let mut view = EventView { stream, event, ns, cycles, cpu, packet, late_ns: None, lane };
        let whole = worker.event(&mut piece, &mut view);
        events += u64::from(whole);
        if piece.size() >= D::Piece::PIECE_BYTES {
            match part(std::mem::take(&mut piece)) {
                Some(empty) => piece = empty,
                None => return false,
            }
        }
        events < limit
    });
    for (_, lane) in lanes {
        piece.damaged().extend(lane.damaged);
    }
    part(piece);
}

/// The segments that may have events of the interval.
fn overlapping(reading: &StreamReader<'_>, interval: Interval) -> (usize, usize) {
    // Spans begin in order and do not overlap.
    let until = partition(reading.segments.len(), |place| reading.span(place).0 < interval.1);
    let from = partition(until, |place| reading.span(place).1 < interval.0);
    (from, until)
}

/// Number of places, from 0 on, for which this holds.
fn partition(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Calls `each` with the events of all lanes in order, until it returns false.
fn merge<'r>(
    lanes: &mut [(usize, Lane<'r>)],
    limit: u64,
    each: &mut dyn FnMut(usize, &mut Lane<'r>, NextEvent) -> bool,
) {
    if limit == 0 {
        return;
    }
    let mut nexts: Vec<Option<NextEvent>> = Vec::with_capacity(lanes.len());
    let mut heap = BinaryHeap::with_capacity(lanes.len());
    for (place, (_, lane)) in lanes.iter_mut().enumerate() {
        let next = lane.next();
        if let Some(next) = &next {
            heap.push(Reverse((next.ns, place)));
        }
        nexts.push(next);
    }
    while let Some(Reverse((_, place))) = heap.pop() {
        let Some((stream, lane)) = lanes.get_mut(place) else { continue };
        let Some(next) = nexts.get_mut(place) else { continue };
        // A stream mostly has several events before another has its next.
        while let Some(found) = *next {
            if heap.peek().is_some_and(|Reverse(other)| *other < (found.ns, place)) {
                heap.push(Reverse((found.ns, place)));
                break;
            }
            if !each(*stream, lane, found) {
                return;
            }
            *next = lane.next();
        }
    }
}
