// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Segments for streams whose packets have no times, or are too large.
//!
//! Printing reads a trace in slices of time, and each slice has to find its first event in each stream. Where a packet has
//! no times, where its first time depends on the packets before it, or where it is very large, its events are passed
//! over once and places in it are noted.

use super::cursor::Cursor;
use super::index::Segment;
use super::lane::StreamReader;

/// Where a place is noted.
const PART_BYTES: u64 = 256 << 10;

/// Larger packets are cut into parts.
const LARGE_BYTES: u64 = 4 << 20;

/// Cuts a stream's segments where that is needed.
pub(crate) fn refine(reading: &mut StreamReader<'_>) {
    let chained = reading.is_chained();
    let timed = reading.is_timed();
    let needs = |segment: &Segment| {
        let large = segment.until - segment.from > LARGE_BYTES && segment.packets == 1;
        large || timed && (chained || segment.first.begin.is_none())
    };
    if !reading.segments.iter().any(needs) {
        return;
    }
    let segments = std::mem::take(&mut reading.segments);
    let mut clock = 0;
    let mut refined = Vec::with_capacity(segments.len());
    for segment in segments {
        if needs(&segment) {
            clock = parts(reading, &segment, clock, &mut refined);
        } else {
            refined.push(segment);
        }
    }
    // Segments have to be in the order of their beginnings, whatever the packets say.
    let mut latest = 0;
    for begin in refined.iter_mut().filter_map(|segment| segment.first.begin.as_mut()) {
        latest = latest.max(*begin);
        *begin = latest;
    }
    reading.segments = refined;
}

/// Adds a segment's parts; gives the clock after it. Damage is left to the reader of the part before it.
fn parts(reading: &StreamReader<'_>, segment: &Segment, clock: u64, parts: &mut Vec<Segment>) -> u64 {
    let path = reading.stream.files.get(segment.file);
    let Some((path, plans)) = path.zip(reading.set.plans(reading.stream)) else { return clock };
    let Ok(mut cursor) = Cursor::open(plans, path, 1 << 20, (segment.from, segment.until)) else {
        parts.push(segment.clone());
        return clock;
    };
    cursor.state.clock = clock;
    let before = parts.len();
    while cursor.next_packet() == Ok(true) {
        packet_parts(&mut cursor, segment, parts);
    }
    if parts.len() == before {
        // Nothing could be read, which the reader has to report.
        parts.push(segment.clone());
    }
    cursor.state.clock
}

fn packet_parts(cursor: &mut Cursor<'_>, segment: &Segment, parts: &mut Vec<Segment>) {
    let (from, until) = (cursor.packet_at(), cursor.packet_at() + cursor.packet.bytes);
    let end = cursor.packet.content_bits;
    let mut begin = cursor.place();
    let mut clock = cursor.state.clock;
    let mut first: Option<u64> = None;
    let mut last = 0;
    let mut add = |places: (u64, u64), clock: u64, first: u64, last: u64| {
        let mut part =
            Segment { from, until, packets: 1, place: Some(places), clock: Some(clock), ..segment.clone() };
        (part.first.begin, part.last.end) = (Some(first), Some(last));
        parts.push(part);
    };
    loop {
        let (place, before) = (cursor.place(), cursor.state.clock);
        if place - begin >= PART_BYTES * 8 {
            add((begin, place), clock, first.unwrap_or(before), last);
            (begin, clock, first) = (place, before, None);
        }
        let Ok(Some(head)) = cursor.next_event() else { break };
        first = Some(first.map_or(head.clock, |first: u64| first.min(head.clock)));
        last = head.clock;
        if cursor.pass(head).is_err() {
            break;
        }
    }
    // To the end of the packet, so that damage found here is found and reported there, too.
    let first = first.unwrap_or(cursor.state.clock);
    add((begin, end), clock, first, last.max(first));
}
