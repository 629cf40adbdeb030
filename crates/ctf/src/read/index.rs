// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the packets of a stream are, from when to when, and what was lost between them.
//!
//! Only headers are read. Packets are joined to *segments* of some 128 KiB, so that the index of a trace stays small
//! (a hostile trace may have a packet every 30 bytes), and parts of it can be read by different threads.

use super::class::ClockClass;
use super::cursor::{Cursor, Damage};
use super::packet::{CUT, PacketHead, TracePlans};
use std::io;
use std::path::Path;

/// Packets are joined up to this size.
const SEGMENT_BYTES: u64 = 128 << 10;

/// Losses beyond these are only counted.
const MAX_LOSSES: usize = 1000;

/// A counter of discarded events may go back by this much: tracers read it while others add to it (LTTng: several processes of a user
/// write into one stream), so a packet can have an older value than the previous one. The next value corrects this.
pub(crate) const LATE_MAX: u64 = 1 << 31;

/// The values of a packet that are compared with its neighbour's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) begin: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) sequence: Option<u64>,
    pub(crate) discarded: Option<u64>,
}

impl Edge {
    pub(crate) fn of(head: &PacketHead) -> Edge {
        Edge { begin: head.begin, end: head.end, sequence: head.sequence, discarded: head.discarded }
    }

    /// The same for comparing with the next: with the higher counter, if this one was late.
    pub(crate) fn after(self, before: &Edge) -> Edge {
        let late = |(before, own): &(u64, u64)| own < before && before - own <= LATE_MAX;
        let higher = before.discarded.zip(self.discarded).filter(late).map(|(before, _)| before);
        Edge { discarded: higher.or(self.discarded), ..self }
    }
}

/// Some packets of a file, one after the other, or a part of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Index into the stream's files.
    pub(crate) file: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) packets: u64,
    pub(crate) first: Edge,
    pub(crate) last: Edge,
    /// Where in its first packet it begins, in bits, if not at its header; and where, in bits, it ends in its last packet.
    pub(crate) place: Option<(u64, u64)>,
    /// What the clock has to be before its first event, where the packet does not tell.
    pub(crate) clock: Option<u64>,
}

/// A loss that a stream's packets report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamGap {
    /// Whole packets; else events.
    pub packets: bool,
    /// How many; `None` when unknown.
    pub count: Option<u64>,
    /// After this moment (nanoseconds since the clock's origin).
    pub from_ns: Option<i64>,
    /// Before this one.
    pub to_ns: Option<i64>,
    /// It was recorded, and removed from a ring of files before it was read.
    pub is_overwritten: bool,
}

/// All losses of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// In order of time; if there are very many, only the first ones.
    pub list: Vec<StreamGap>,
    /// Sum of the known counts.
    pub events: u64,
    /// Sum of the known counts.
    pub packets: u64,
    /// Whether there are more that cannot be counted.
    pub uncounted: bool,
}

impl Losses {
    pub(super) fn add(&mut self, missing: StreamGap) {
        match (missing.count, missing.packets) {
            (Some(count), true) => self.packets = self.packets.saturating_add(count),
            (Some(count), false) => self.events = self.events.saturating_add(count),
            (None, _) => self.uncounted = true,
        }
        if self.list.len() < MAX_LOSSES {
            self.list.push(missing);
        }
    }

    /// Compares a packet with the one before it.
    pub(super) fn between(&mut self, before: Option<&Edge>, after: &Edge, clock: Option<&ClockClass>) {
        let ns = |cycles: Option<u64>| cycles.zip(clock).map(|(cycles, clock)| clock.ns(cycles));
        let events = match (before.and_then(|before| before.discarded), after.discarded) {
            (Some(before), Some(after)) if after > before => Some(Some(after - before)),
            // Further back is not a late value but a restarted counter: losses in between are unknown.
            (Some(before), Some(after)) if before - after > LATE_MAX => Some(None),
            // Counted since the stream's beginning, which may be long ago: how many were lost here is unknown.
            (None, Some(1..)) => Some(None),
            _ => None,
        };
        if let Some(count) = events {
            let from = before.map_or(after.begin, |before| before.end);
            let (from_ns, to_ns) = (ns(from), ns(after.end));
            self.add(StreamGap { packets: false, count, from_ns, to_ns, is_overwritten: false });
        }
        if let Some((before, (one, other))) =
            before.and_then(|before| Some((before, before.sequence.zip(after.sequence)?)))
        {
            if let count @ 1.. = other.wrapping_sub(one).saturating_sub(1) {
                let (from_ns, to_ns) = (ns(before.end), ns(after.begin));
                let (packets, count, is_overwritten) = (true, Some(count), false);
                self.add(StreamGap { packets, count, from_ns, to_ns, is_overwritten });
            }
        }
    }

    pub(super) fn append(&mut self, other: &Losses) {
        self.events = self.events.saturating_add(other.events);
        self.packets = self.packets.saturating_add(other.packets);
        self.uncounted |= other.uncounted;
        let room = MAX_LOSSES.saturating_sub(self.list.len());
        self.list.extend(other.list.iter().take(room).cloned());
    }
}

/// A file's packets.
#[derive(Debug, Default)]
pub(crate) struct FileIndex {
    /// Index of the stream class; `None` when even the first packet is unreadable.
    pub(crate) stream: Option<usize>,
    pub(crate) instance: Option<u64>,
    /// The CPU, if it is the same in all packets.
    pub(crate) cpu: Option<u64>,
    pub(crate) segments: Vec<Segment>,
    /// For each segment, what was lost between its packets.
    pub(crate) inside: Vec<Losses>,
    pub(crate) damage: Option<Damage>,
}

/// Reads the headers of a file's packets.
pub(crate) fn index_file(
    plans: &TracePlans,
    clocks: &[Option<&ClockClass>],
    path: &Path,
) -> io::Result<FileIndex> {
    let mut cursor = Cursor::open(plans, path, 4096, (0, u64::MAX))?;
    let mut index = FileIndex::default();
    let mut cpus_differ = false;
    loop {
        match cursor.next_packet() {
            Ok(true) => {}
            Ok(false) => break,
            Err(damage) => {
                index.damage = Some(damage);
                break;
            }
        }
        let head = &cursor.packet;
        let stream = *index.stream.get_or_insert(head.stream);
        if stream != head.stream {
            let what = "it belongs to another stream than the packets before it".to_owned();
            index.damage = Some(Damage { packet_at: cursor.packet_at(), what, rest_of_file: true });
            break;
        }
        if index.segments.is_empty() {
            (index.instance, index.cpu) = (head.instance, head.cpu);
        }
        cpus_differ |= index.cpu != head.cpu;
        index.add(cursor.packet_at(), head, clocks.get(stream).copied().flatten());
        if head.is_cut {
            // Its events are there up to the end of the file.
            let (packet_at, what) = (cursor.packet_at(), CUT.to_owned());
            index.damage = Some(Damage { packet_at, what, rest_of_file: true });
        }
    }
    if cpus_differ {
        index.cpu = None;
    }
    Ok(index)
}

impl FileIndex {
    fn add(&mut self, at: u64, head: &PacketHead, clock: Option<&ClockClass>) {
        let edge = Edge::of(head);
        let open = self.segments.last_mut().zip(self.inside.last_mut());
        if let Some((segment, inside)) = open {
            let size = segment.until - segment.from;
            if size < SEGMENT_BYTES && size + head.bytes <= 2 * SEGMENT_BYTES {
                inside.between(Some(&segment.last), &edge, clock);
                segment.until = at + head.bytes;
                segment.packets += 1;
                segment.last = edge.after(&segment.last);
                return;
            }
        }
        let (file, from, until) = (0, at, at + head.bytes);
        let (first, last, packets) = (edge, edge, 1);
        self.segments.push(Segment { file, from, until, packets, first, last, place: None, clock: None });
        self.inside.push(Losses::default());
    }
}

/// Puts the segments of a stream's files in order, without duplicates (snapshots of one LTTng session overlap).
/// `is_ring`: what is before the first packet was removed.
pub(crate) fn join(
    files: Vec<FileIndex>,
    clock: Option<&ClockClass>,
    is_ring: bool,
) -> (Vec<Segment>, Losses) {
    let mut segments: Vec<(Segment, Losses)> = Vec::new();
    for (place, file) in files.into_iter().enumerate() {
        let renumbered = file.segments.into_iter().map(|segment| Segment { file: place, ..segment });
        segments.extend(renumbered.zip(file.inside));
    }
    // Stable: packets without times stay in the order of their file.
    segments.sort_by_key(|(segment, _)| segment.first.begin);
    segments.dedup_by(|(one, _), (other, _)| {
        let same = (&one.first, &one.last, one.until - one.from)
            == (&other.first, &other.last, other.until - other.from);
        same && one.first.begin.is_some() && one.file != other.file
    });
    let mut losses = Losses::default();
    let mut before: Option<Edge> = None;
    for (segment, inside) in &segments {
        if before.is_some() || !is_ring {
            losses.between(before.as_ref(), &segment.first, clock);
        }
        losses.append(inside);
        before = Some(before.map_or(segment.last, |before| segment.last.after(&before)));
    }
    (segments.into_iter().map(|(segment, _)| segment).collect(), losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(sequence: u64, discarded: u64) -> Edge {
        Edge { begin: Some(1), end: Some(2), sequence: Some(sequence), discarded: Some(discarded) }
    }

    #[test]
    fn gaps_are_counted() {
        let mut losses = Losses::default();
        losses.between(None, &edge(7, 0), None);
        losses.between(Some(&edge(7, 0)), &edge(8, 0), None);
        assert_eq!(losses, Losses::default());
        losses.between(Some(&edge(8, 0)), &edge(11, 5), None);
        assert_eq!((losses.events, losses.packets, losses.uncounted), (5, 2, false));
        losses.between(None, &edge(0, 3), None);
        assert!(losses.uncounted);
    }

    #[test]
    fn a_late_counter_is_corrected_and_a_restarted_one_is_unknown() {
        let (mut losses, counters) = (Losses::default(), [5, 9, 8, 8, 12]);
        let mut before = edge(0, counters[0]);
        for (sequence, counter) in (1..).zip(&counters[1..]) {
            let after = edge(sequence, *counter);
            losses.between(Some(&before), &after, None);
            before = after.after(&before);
        }
        assert_eq!((losses.events, losses.uncounted), (7, false));
        losses.between(Some(&edge(9, u64::MAX)), &edge(10, 1), None);
        assert_eq!((losses.events, losses.uncounted), (7, true));
    }
}
