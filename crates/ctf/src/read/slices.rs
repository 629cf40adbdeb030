// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of all streams in order of time, formatted as pieces of text on all CPUs.
//!
//! Time is cut into slices of about equal size. A thread takes a slice, decodes, merges and formats it on its own; the
//! pieces are output in order. The number of slices in progress is limited, so that little text waits.
//!
//! Order (babeltrace2 2.0.4's muxer): by time; at the same time by the rank of the stream; in a stream as
//! recorded. Without any clock, stream by stream.

use super::lane::{ALWAYS, Interval, Lane, NextEvent, StreamReader};
use super::parallel::{for_each, threads};
use super::plan::Plan;
use super::refine::refine;
use super::run::Visit;
use super::select::Selection;
use super::set::{DamagedFile, Stream, TraceSet};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of trace in progress at a time, in all threads. Text is some 8 times as long.
const UNDER_WAY_BYTES: u64 = 10 << 20;

/// Memory for windows, in all threads.
const WINDOWS_BYTES: usize = 32 << 20;

/// A piece is output when it reaches this size, even within a slice: text can be a hundred times as long as its trace.
const PIECE_BYTES: usize = 3 << 20;

/// How much text may wait for output; only the slice that is output next may add more.
const WAITING_BYTES: usize = 40 << 20;

/// A part of the output.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// One line per event.
    pub text: Vec<u8>,
    /// Number of events in it.
    pub events: u64,
    /// A number of its first event, and where in the text the result of [`Format::gap`] belongs.
    pub first: Option<(u64, usize)>,
    /// The same number of its last event.
    pub last: Option<u64>,
    /// Parts of files that could not be read.
    pub damaged: Vec<DamagedFile>,
}

/// An event to be formatted.
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
    lane: &'l mut Lane<'r>,
}

impl EventView<'_, '_> {
    /// Runs a plan for all of the event's scopes over it, once.
    pub fn show<V: Visit>(&mut self, plan: &Plan, visit: &mut V) -> bool {
        self.lane.show(plan, visit)
    }

    /// Runs a plan for the packet's context.
    pub fn show_context<V: Visit>(&mut self, plan: &Plan, visit: &mut V) {
        if let Some(cursor) = &mut self.lane.cursor {
            cursor.show_context(plan, visit);
        }
    }
}

/// Formats events as text.
pub trait Format: Sync {
    /// The state of one thread.
    type Writer<'f>: WriteEvent
    where
        Self: 'f;

    /// A new one, for a new piece.
    fn writer(&self) -> Self::Writer<'_>;

    /// Text between a piece's first event and the previous event, which another thread wrote: see [`Piece::first`].
    fn gap(&self, before: Option<u64>, first: u64, text: &mut Vec<u8>);
}

/// Writes events into a piece.
pub trait WriteEvent {
    /// Appends one line. False: the event could not be read to its end, and nothing was appended.
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool;
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    /// A segment of a stream without times.
    Untimed { stream: usize, segment: usize },
    /// All streams with times.
    Timed(Interval),
}

/// Formats the selected events and passes the pieces to `take`, in order, until it returns false. At most `limit` events.
pub fn print<F: Format>(
    set: &TraceSet,
    selection: &Selection,
    limit: u64,
    format: &F,
    take: &mut dyn FnMut(&mut Piece) -> bool,
) {
    let mut readings: Vec<StreamReader<'_>> =
        set.streams.iter().map(|stream: &Stream| StreamReader::new(set, stream, selection)).collect();
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
                        work(&readings, *slice, window, limit, format, &|piece| queue.part(place, piece));
                    }
                    queue.done(place);
                }
            });
        }
        while let Some(mut piece) = queue.take() {
            if !take(&mut piece) {
                break;
            }
            queue.give_back(piece.text);
        }
        queue.stop();
    });
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

/// Decodes, merges and formats a slice. `part` takes pieces, and returns an empty one, or `None` when no more are wanted.
fn work<F: Format>(
    readings: &[StreamReader<'_>],
    slice: Slice,
    window: usize,
    limit: u64,
    format: &F,
    part: &dyn Fn(Piece) -> Option<Piece>,
) {
    let mut writer = format.writer();
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
    let Some(mut piece) = part(Piece::default()) else { return };
    let mut events = 0;
    merge(&mut lanes, limit, &mut |stream, lane, next| {
        let cursor = lane.cursor.as_ref();
        let (cpu, packet) = (cursor.and_then(|cursor| cursor.packet.cpu), lane.packets);
        let ns = lane.reading.is_timed().then_some(next.ns);
        let (event, cycles) = (next.head.event as usize, next.head.clock);
        let written =
            writer.write(&mut piece, &mut EventView { stream, event, ns, cycles, cpu, packet, lane });
        piece.events += u64::from(written);
        events += u64::from(written);
        if piece.text.len() >= PIECE_BYTES {
            match part(std::mem::take(&mut piece)) {
                Some(empty) => piece = empty,
                None => return false,
            }
        }
        events < limit
    });
    for (_, lane) in lanes {
        piece.damaged.extend(lane.damaged);
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

/// The slices to do, in progress and done.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    count: usize,
    /// Slices in progress and waiting.
    ahead: usize,
}

#[derive(Default)]
struct State {
    /// To be worked on.
    next: usize,
    /// To be output next.
    taken: usize,
    /// By slice: pieces to be output, and whether there will be more.
    pieces: BTreeMap<usize, (VecDeque<Piece>, bool)>,
    /// Size of the texts in them.
    waiting: usize,
    /// Memory of pieces that have been output: fresh memory costs a page fault every 4 KiB.
    spare: Vec<Vec<u8>>,
    stopped: bool,
}

impl Queue {
    fn new(count: usize, ahead: usize) -> Queue {
        Queue { state: Mutex::default(), changed: Condvar::new(), count, ahead }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.next >= self.count {
                return None;
            }
            if state.next < state.taken + self.ahead {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.wait(state);
        }
    }

    /// Takes a piece of a slice, waits while too much is to be output, and returns an empty one.
    fn part(&self, place: usize, piece: Piece) -> Option<Piece> {
        let mut state = self.lock();
        if piece.events > 0 || !piece.damaged.is_empty() {
            state.waiting += piece.text.len();
            state.pieces.entry(place).or_default().0.push_back(piece);
            self.changed.notify_all();
        }
        let waits = |state: &State| match state.pieces.get(&place) {
            Some((pieces, _)) if state.taken == place => pieces.len() > 2,
            _ => state.waiting > WAITING_BYTES,
        };
        while waits(&state) && !state.stopped {
            state = self.wait(state);
        }
        let text = state.spare.pop().unwrap_or_default();
        (!state.stopped).then_some(Piece { text, ..Piece::default() })
    }

    /// There are no more pieces of this slice.
    fn done(&self, place: usize) {
        self.lock().pieces.entry(place).or_default().1 = true;
        self.changed.notify_all();
    }

    /// The next piece in order.
    fn take(&self) -> Option<Piece> {
        let mut state = self.lock();
        while state.taken < self.count && !state.stopped {
            let taken = state.taken;
            let (pieces, done) = state.pieces.entry(taken).or_default();
            let done = *done;
            if let Some(piece) = pieces.pop_front() {
                state.waiting -= piece.text.len();
                self.changed.notify_all();
                return Some(piece);
            }
            if done {
                state.pieces.remove(&taken);
                state.taken += 1;
                self.changed.notify_all();
            } else {
                state = self.wait(state);
            }
        }
        None
    }

    fn give_back(&self, mut text: Vec<u8>) {
        text.clear();
        let mut state = self.lock();
        if state.spare.len() < self.ahead {
            state.spare.push(text);
        }
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Without it, a thread that fails would leave the others waiting for its slice.
struct StopOnPanic<'q>(&'q Queue);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
