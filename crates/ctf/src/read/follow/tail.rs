// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a stream's file that grows: which packet is read, how much of it there is, and which comes next.
//!
//! A head may be read while it is written, and what is behind the last packet with events may be a head at one moment and the inside of a
//! packet at the next (`write/followed.rs`). So the heads from the packet that is being read to the next one with events are read twice;
//! if nothing differs, each of them was a head, and whole, in between.

use super::super::class::ClockClass;
use super::super::cursor::Bookmark;
use super::super::index::{Edge, Losses, StreamGap};
use super::super::packet::{PacketHead, TracePlans};
use super::super::run::{MARGIN, Position, State};
use super::super::select::Verdict;
use crate::write::RingFileName;
use rtscope_event::exact::index;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

/// More than the head of a packet.
const HEAD_BYTES: usize = 512;

/// A writer is between two states of a file for some microseconds, so a few attempts are enough; without luck, the next look tries again.
const ATTEMPTS: u32 = 200;

/// After this many looks without luck the file is not what a writer leaves.
const LOOKS: u32 = 40;

/// One page each; a writer makes a quarter of a MiB of them at most, and one for each announcement of losses.
const EMPTY_MAX: usize = 10_000;

/// A packet as its head shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    at: u64,
    pub(super) head: PacketHead,
    bytes: Vec<u8>,
}

/// The heads from the packet that is being read to the next one with events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heads {
    current: Option<Packet>,
    empty: Vec<Packet>,
    next: Option<Packet>,
}

/// Why heads could not be read.
enum Unread {
    /// What is there is not a packet, perhaps just now.
    Invalid(&'static str),
    System(io::Error),
}

/// A stream's file, and how far it has been read.
#[derive(Debug)]
pub(super) struct Tail {
    file: Arc<File>,
    /// `None` while it is read, and when it cannot be read any more.
    pub(super) mark: Option<Bookmark>,
    pub(super) verdicts: Option<Vec<Verdict>>,
    /// Its place among streams with events of the same time.
    pub(super) rank: u32,
    pub(super) losses: Losses,
    /// Of its packets so far.
    pub(super) bytes: u64,
    /// Where its first packet begins, in the clock's unit.
    pub(super) begin: Option<u64>,
    /// The latest end of a packet.
    pub(super) newest: Option<u64>,
    /// When it was found to have more events.
    pub(super) grown: Option<Instant>,
    current: Option<Packet>,
    edge: Option<Edge>,
    seen: Heads,
    failed_looks: u32,
    ring: Option<RingTail>,
}

/// A stream in several files, of which the oldest is removed.
#[derive(Debug)]
struct RingTail {
    stem: String,
    /// The one that is read.
    file: RingFileName,
    /// Those after it: their names, and at which look each was found.
    next: BTreeMap<RingFileName, (OsString, u64)>,
}

/// A file that was found to be the next.
#[derive(Debug)]
pub(super) struct NextFile {
    pub(super) name: OsString,
    pub(super) file: RingFileName,
    /// The one before it in the stream is the one that was read.
    pub(super) follows: bool,
}

impl Tail {
    pub(super) fn new(file: File) -> Tail {
        let file = Arc::new(file);
        Tail {
            mark: Some(Bookmark::new(Arc::clone(&file))),
            file,
            verdicts: None,
            rank: 0,
            losses: Losses::default(),
            bytes: 0,
            begin: None,
            newest: None,
            grown: None,
            current: None,
            edge: None,
            seen: Heads::default(),
            failed_looks: 0,
            ring: None,
        }
    }

    /// What is read.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Its file is one of several.
    pub(super) fn in_ring(mut self, file: Option<(String, RingFileName)>) -> Tail {
        self.ring = file.map(|(stem, file)| RingTail { stem, file, next: BTreeMap::new() });
        self
    }

    pub(super) fn is_of_ring(&self, stem: &str) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.stem == stem)
    }

    /// Another file of the stream was found.
    pub(super) fn expect_file(&mut self, file: RingFileName, name: OsString, look: u64) {
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.file < file) {
            ring.next.insert(file, (name, look));
        }
    }

    /// The file to be read when this one has been: it is complete, since others were made after it. One that does not follow it may be
    /// found before those in between: then another look has to say that they are not there. `looks`: number of them; `None`: nobody
    /// writes any more.
    pub(super) fn next_file(
        &mut self,
        plans: &TracePlans,
        looks: Option<u64>,
    ) -> io::Result<Option<NextFile>> {
        let Some(ring) = &self.ring else { return Ok(None) };
        let Some((file, (name, found))) = ring.next.first_key_value() else { return Ok(None) };
        let follows = file.number == ring.file.number + 1;
        if !follows && looks.is_some_and(|looks| looks <= *found + 1) {
            return Ok(None);
        }
        let next = NextFile { name: name.clone(), file: *file, follows };
        // What was read may have got more before the next file was made.
        let known = self.current.as_ref().map(|packet| packet.head.content_bits);
        let Some(heads) = self.heads(plans)? else { return Ok(None) };
        let is_read =
            heads.next.is_none() && heads.current.as_ref().map(|now| now.head.content_bits) == known;
        Ok(Some(next).filter(|_| is_read))
    }

    /// A file that was found is not there any more.
    pub(super) fn forget_file(&mut self, file: RingFileName) {
        self.ring.iter_mut().for_each(|ring| drop(ring.next.remove(&file)));
    }

    /// The file that has been read, and what its name says.
    pub(super) fn file_read(&self) -> Option<(Arc<File>, RingFileName)> {
        Some((Arc::clone(&self.file), self.ring.as_ref()?.file))
    }

    /// Goes on with another file. Returns how many packets are missing in between, when the one that was read ended, and when this one
    /// begins, in the clock's unit.
    pub(super) fn change_file(
        &mut self,
        file: File,
        name: RingFileName,
        plans: &TracePlans,
    ) -> io::Result<(u64, Option<u64>, Option<u64>)> {
        let last = self.seen.empty.last().or(self.seen.current.as_ref());
        let (last, end) = (last.and_then(|packet| packet.head.sequence), self.edge.and_then(|edge| edge.end));
        self.forget_file(name);
        self.ring.iter_mut().for_each(|ring| ring.file = name);
        self.file = Arc::new(file);
        (self.current, self.seen, self.failed_looks) = (None, Heads::default(), 0);
        self.mark = None;
        let heads = self.heads(plans)?.unwrap_or_default();
        let first = heads.empty.first().or(heads.next.as_ref()).map(|packet| &packet.head);
        let sequence = first.and_then(|head| head.sequence);
        let packets = sequence.zip(last).map_or(0, |(first, last)| first.saturating_sub(last + 1));
        Ok((packets, end, first.and_then(|head| head.begin)))
    }

    /// Before the first packet of the file.
    pub(super) fn first_mark(&self) -> Bookmark {
        Bookmark::new(Arc::clone(&self.file))
    }

    /// The first packet, with or without events; `None` while there is none.
    pub(super) fn first(&mut self, plans: &TracePlans) -> io::Result<Option<PacketHead>> {
        let heads = self.heads(plans)?.unwrap_or_default();
        let first = heads.empty.into_iter().next().or(heads.next);
        self.begin = first.as_ref().and_then(|packet| packet.head.begin);
        Ok(first.map(|packet| packet.head))
    }

    /// Looks for more than `mark` has, which has been read: more content of its packet, or the next packet. What was lost
    /// in between is appended to `found`. Packets that end before `from` are passed over.
    pub(super) fn advance(
        &mut self,
        mark: &mut Bookmark,
        (plans, clock): (&TracePlans, Option<&ClockClass>),
        from_ns: Option<i64>,
        found: &mut Vec<StreamGap>,
    ) -> io::Result<bool> {
        while let Some(heads) = self.heads(plans)? {
            if let (Some(known), Some(now)) = (&self.current, heads.current) {
                if now.head.content_bits > known.head.content_bits {
                    self.note(&now.head, clock, found);
                    mark.grow(now.head.clone());
                    self.current = Some(now);
                    return Ok(true);
                }
            }
            for empty in &heads.empty {
                self.note(&empty.head, clock, found);
            }
            let Some(next) = heads.next else { return Ok(false) };
            self.note(&next.head, clock, found);
            mark.begin(next.at, next.head.clone(), &next.bytes);
            let end_ns = next.head.end.zip(clock).map(|(end, clock)| clock.ns(end));
            self.current = Some(next);
            if end_ns.zip(from_ns).is_none_or(|(end, from)| end >= from) {
                return Ok(true);
            }
            // It is old. If it is the last one so far, it may get events that are not.
            let is_last = self.heads(plans)?.is_none_or(|heads| heads.next.is_none());
            if is_last {
                return Ok(true);
            }
            mark.pass_packet();
        }
        Ok(false)
    }

    /// Compares a head with what was known before.
    fn note(&mut self, head: &PacketHead, clock: Option<&ClockClass>, found: &mut Vec<StreamGap>) {
        // Numbers of packets are without gaps in what is followed, and pages without events have numbers that change.
        let edge = Edge::of(&PacketHead { sequence: None, ..head.clone() });
        let mut lost = Losses::default();
        lost.between(self.edge.as_ref(), &edge, clock);
        self.losses.append(&lost);
        found.append(&mut lost.list);
        self.edge = Some(self.edge.map_or(edge, |before| edge.after(&before)));
        self.newest = self.newest.max(head.end);
        self.bytes = self.bytes.max(self.current.as_ref().map_or(0, |packet| packet.at) + head.bytes);
    }

    /// The heads from the current packet on, as they were at one moment; `None` if there was no such moment.
    fn heads(&mut self, plans: &TracePlans) -> io::Result<Option<Heads>> {
        let mut reason = "";
        for _ in 0..ATTEMPTS {
            match self.read_heads(plans) {
                Ok(heads) if heads == self.seen => {
                    self.failed_looks = 0;
                    return Ok(Some(heads));
                }
                Ok(heads) => self.seen = heads,
                Err(Unread::Invalid(what)) => reason = what,
                Err(Unread::System(error)) => return Err(error),
            }
            std::thread::yield_now();
        }
        self.failed_looks += 1;
        if self.failed_looks > LOOKS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(None)
    }

    fn read_heads(&self, plans: &TracePlans) -> Result<Heads, Unread> {
        let length = self.file.metadata().map_err(Unread::System)?.len();
        let mut heads = Heads::default();
        let mut at = 0;
        if let Some(known) = &self.current {
            let current = self.read_head(plans, known.at, length)?;
            at = known.at.saturating_add(current.head.bytes);
            heads.current = Some(current);
        }
        while at < length {
            let packet = self.read_head(plans, at, length)?;
            if packet.head.content_bits > packet.head.events_at {
                heads.next = Some(packet);
                break;
            }
            at = at.saturating_add(packet.head.bytes);
            heads.empty.push(packet);
            if heads.empty.len() > EMPTY_MAX {
                return Err(Unread::Invalid("it has more empty packets than a writer makes"));
            }
        }
        Ok(heads)
    }

    fn read_head(&self, plans: &TracePlans, at: u64, length: u64) -> Result<Packet, Unread> {
        let mut bytes = [0; HEAD_BYTES + MARGIN];
        let mut have = 0;
        while have < HEAD_BYTES {
            match self.file.read_at(&mut bytes[have..HEAD_BYTES], at + have as u64) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unread::System(error)),
            }
        }
        let mut position = Position::new(&bytes, 0, have as u64 * 8);
        let mut state = State::new(plans.slots);
        let rest = length.saturating_sub(at);
        let head = plans
            .packet_head(&mut position, &mut state, rest)
            .ok()
            .filter(|head| !head.is_cut)
            .ok_or(Unread::Invalid("what should be a packet is none"))?;
        let size = index(head.events_at.div_ceil(8)).min(HEAD_BYTES);
        Ok(Packet { at, head, bytes: bytes.get(..size).unwrap_or_default().to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; byte_order = le; } := u32;
typealias integer { size = 64; align = 8; signed = false; byte_order = le; } := u64;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; u32 stream_id; }; };
stream { id = 0; packet.context := struct { u64 content_size; u64 packet_size; };
event.header := struct { u32 id; }; };
event { id = 0; stream_id = 0; name = \"e\"; fields := struct { u32 n; }; };
";
    const PAGE: u64 = 4096;

    fn head(content_bytes: u64, packet_bytes: u64) -> Vec<u8> {
        let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend((content_bytes * 8).to_le_bytes());
        bytes.extend((packet_bytes * 8).to_le_bytes());
        bytes
    }

    /// The second page is an empty packet, and then the inside of the first one: an event that looks like a packet. That is seen by a reader
    /// that looks at the first head before, and at the second page after the change.
    #[test]
    fn an_event_that_looks_like_a_packet_is_never_taken_for_one() {
        let plans = TracePlans::new(&super::super::super::blocks::parse(METADATA).unwrap());
        let used = 24 + 8;
        for _ in 0..2000 {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&head(used, PAGE), 0).unwrap();
            file.write_all_at(&head(24, PAGE), PAGE).unwrap();
            file.set_len(2 * PAGE).unwrap();
            let mut tail = Tail::new(file.try_clone().unwrap());
            let mut mark = tail.mark.take().unwrap();
            let mut found = Vec::new();
            assert!(tail.advance(&mut mark, (&plans, None), None, &mut found).unwrap());
            let begin = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begin.wait();
                    file.write_all_at(&head(used, 2 * PAGE), 0).unwrap();
                    file.write_all_at(&head(used, PAGE), PAGE).unwrap();
                    file.write_all_at(&head(PAGE + used, 2 * PAGE), 0).unwrap();
                });
                begin.wait();
                while !tail.advance(&mut mark, (&plans, None), None, &mut found).unwrap() {}
            });
            let packet = tail.current.unwrap();
            assert_eq!((packet.at, packet.head.content_bits), (0, (PAGE + used) * 8));
        }
    }
}
