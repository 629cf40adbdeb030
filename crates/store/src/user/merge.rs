// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events become a trace while they are recorded: records are converted where they lie, and written once.
//!
//! Rings that share a stream are merged by time, the others are taken as they are. Each poll adds to a stream's packet, whose head is
//! written last, and classes are declared before their events are there: a kill leaves a trace, and so can be read what is being written
//! (`rtscope_ctf`, `write/followed.rs` and `growing.rs`). What is not written stays in its ring. Only events before the newest pair of the
//! clock are taken, so each time lies between two pairs.

use super::classes::{Classes, ProcessClasses};
use super::filter::UserFilter;
use super::ring::{Head, LiveRing, Step};
use super::room::DiskRoom;
use super::session_file::UserSession;
use super::streams::{StreamLimits, Streams};
use rtscope_ctf::{
    Overwritten, RingTrace, UserClass, UserContext, UserMetadata, UserStreamSummary, UserStreamWriter,
};
use rtscope_event::{MonotonicNs, counted};
use rtscope_programs::ProviderInfo;
use rtscope_programs::RingInfo;
use rtscope_programs::clock::{ClockError, LiveClock, Pair};
use rtscope_programs::clock_watch::ClockProblem;
use rtscope_programs::collector::{Looks, LossesByUser, Records, UserLosses};
use rtscope_programs::records::Header;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::path::PathBuf;

/// Bytes converted before they are written: as much as stays in the second-level cache.
const WRITE_BYTES: usize = 128 << 10;
/// The largest event, with its context.
const EVENT_BYTES: usize = 9 << 10;
/// Bytes written before what they came from is given back.
const TAKE_BYTES: u64 = 512 << 10;
/// Rings that share streams keep what is younger than this: events of threads that are found, or finish an event, meanwhile are in order. It is
/// less where one of them is filled to a quarter, and nothing where it is filled to a half.
const LAG_NS: u64 = 100_000_000;
const LAG_OF_FULL_NS: u64 = 20_000_000;

/// Providers of a process that wait until records of its rings are taken: more than an honest one has.
const DESCRIBED_MAX: usize = 4096;
/// What an event has in the trace beside what it had in its ring: its context, and some more of a header.
const ADDED_BYTES: u64 = 40;

/// A trace being written.
#[derive(Debug)]
pub(super) struct Live {
    streams: Streams,
    /// `None`: it has a limit.
    room: Option<DiskRoom>,
    started_ns: u64,
    context: UserContext,
    /// Only events in this time are wanted.
    window: Option<(MonotonicNs, MonotonicNs)>,
    classes: Classes,
    /// What processes have described since records of their rings were taken.
    described: HashMap<(u32, u32, u64), Vec<ProviderInfo>>,
    clock: LiveClock,
    /// Those that are not over.
    rings: HashMap<u32, Place, BuildHasherDefault<NumberHasher>>,
    /// Those that have rings.
    processes: HashMap<(u32, u32, u64), ProcessRings>,
    /// Of those that are: events that did not fit, and that were never finished.
    over: (u64, u64),
    /// Whose these are, with invalid records.
    by_user: LossesByUser,
    /// Events that were not wanted, of rings that are over.
    filtered: u64,
    /// Events from before the recording, of rings that are over.
    earlier: u64,
    garbage: u64,
    /// For new files, so far.
    looks: Looks,
    /// A ring that fills up waits for a description, since the beginning of this poll.
    needs_look: bool,
}

/// What was written while it was recorded.
#[derive(Debug)]
pub(super) struct LiveTrace {
    pub(super) streams: Vec<UserStreamSummary>,
    /// `None`: no ring had a stream.
    pub(super) metadata: Option<UserMetadata>,
    pub(super) classes: Vec<UserClass>,
    pub(super) clock_error_ns: Option<ClockError>,
    pub(super) overwritten: Option<Overwritten>,
    /// Events of that, by user.
    pub(super) overwritten_by_user: BTreeMap<u32, u64>,
    /// Events that were not wanted.
    pub(super) filtered: u64,
    /// Events from before the recording.
    pub(super) earlier: u64,
    /// What is to be said of the filter.
    pub(super) remarks: Vec<String>,
}

/// What was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

impl Live {
    pub(super) fn new(
        directory: PathBuf,
        session: &UserSession,
        (limits, ring): (StreamLimits, Option<RingTrace>),
        window: Option<(MonotonicNs, MonotonicNs)>,
        filter: UserFilter,
    ) -> Live {
        let context = session.context();
        let is_limited = ring.is_some() || window.is_some();
        Live {
            room: (!is_limited).then(|| DiskRoom::new(directory.clone())),
            streams: Streams::new(directory, session.info(), context, limits, ring),
            // A window begins the trace of a snapshot, and nothing older is in it.
            started_ns: window.map_or(session.started_ns, |(from, _)| from.0),
            context,
            window,
            classes: Classes::new(filter),
            described: HashMap::new(),
            filtered: 0,
            earlier: 0,
            clock: LiveClock::default(),
            rings: HashMap::default(),
            processes: HashMap::new(),
            over: (0, 0),
            by_user: LossesByUser::new(),
            garbage: 0,
            looks: Looks::default(),
            needs_look: false,
        }
    }

    /// A poll begins.
    pub(super) fn begin(&mut self, looks: Looks) {
        (self.looks, self.needs_look) = (looks, false);
    }

    /// Older events can be converted. Returns the counter's jump, if it has jumped.
    pub(super) fn clock(&mut self, pair: Pair) -> Option<ClockProblem> {
        self.clock.push(pair)
    }

    /// Streams for which other files of a ring are due continue there.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        self.streams.turn()
    }

    /// A process has described events. What that costs depends on how many they are, so it is done when records of its rings are taken, in the turn of
    /// its user: whoever finds new files does so for all users, one after the other.
    pub(super) fn provider(&mut self, info: &ProviderInfo) {
        let process = (info.uid, info.pid, info.birth_ns);
        let described = self.described.entry(process).or_default();
        described.push(info.clone());
        if described.len() >= DESCRIBED_MAX {
            self.learn(process);
        }
    }

    /// Learns what a process has described.
    fn learn(&mut self, process: (u32, u32, u64)) {
        let described = self.described.remove(&process).unwrap_or_default();
        described.iter().for_each(|info| self.classes.add(info));
    }

    /// Gives a ring a stream, or a share of one.
    pub(super) fn ring(&mut self, number: u32, info: &RingInfo) -> io::Result<()> {
        let stream = self.streams.assign(info.uid, self.clock.latest_ns())?;
        self.processes.entry(process_of(info)).or_default().count += 1;
        let ring = Some(Box::new(LiveRing::new(info, stream, self.classes.wants(info))));
        self.rings.insert(number, Place { stream, ring });
        Ok(())
    }

    /// Whether a ring is not alone in its stream.
    pub(super) fn shares(&self, ring: u32) -> bool {
        self.rings.get(&ring).is_some_and(|ring| self.streams.is_shared_now(ring.stream))
    }

    /// A ring was taken to its end. `lost`: events that did not fit.
    pub(super) fn ring_over(&mut self, number: u32, lost: u64, unfinished: u64) -> io::Result<()> {
        let Some(ring) = self.rings.remove(&number).and_then(|place| place.ring) else { return Ok(()) };
        self.learn(process_of(&ring.info));
        // What did not fit into the ring of a program of whose events nobody asks for any, a killed recorder asked for.
        let is_unasked = self.classes.of(&ring.info).is_some_and(|known| known.is_unasked(&self.classes));
        let (lost, unfinished) = if is_unasked { (0, 0) } else { (lost.max(ring.told()), unfinished) };
        self.over = (self.over.0.saturating_add(lost), self.over.1.saturating_add(unfinished));
        self.by_user.entry(ring.info.uid).or_default().add(UserLosses {
            lost: lost.saturating_add(unfinished).saturating_add(ring.garbage),
            filtered: ring.filtered,
            moved: ring.moved,
            ..UserLosses::default()
        });
        self.filtered += ring.filtered;
        self.earlier += ring.earlier;
        let written = ring.lost_written - ring.info.lost_before;
        let rest = lost.saturating_sub(written).saturating_add(unfinished);
        if rest > 0 {
            if let Some(out) = self.streams.begin(ring.stream, &self.classes.all, self.started_ns)? {
                out.lost(rest)?;
                out.flush()?;
            }
        }
        self.streams.leave(ring.stream);
        self.leave(process_of(&ring.info));
        Ok(())
    }

    /// A process has no more rings than it has now.
    pub(super) fn process_over(&mut self, process: (u32, u32, u64)) {
        match self.processes.get_mut(&process) {
            Some(rings) => rings.is_all = true,
            // Nothing was taken of it.
            None => {
                self.described.remove(&process);
                self.classes.forget(process);
            }
        }
    }

    /// Its events need not be known any more after its last ring.
    fn leave(&mut self, process: (u32, u32, u64)) {
        let Some(rings) = self.processes.get_mut(&process) else { return };
        rings.count -= 1;
        if rings.count == 0 {
            let is_all = rings.is_all;
            self.processes.remove(&process);
            if is_all {
                self.described.remove(&process);
                self.classes.forget(process);
            }
        }
    }

    /// Takes the records of a ring, or of rings that share streams, that can be converted now, up to a limit.
    pub(super) fn take(&mut self, rings: &mut [(u32, &mut Records<'_>)]) -> io::Result<Taken> {
        if !self.described.is_empty() {
            let of_ring = |(number, _): &(u32, &mut Records<'_>)| {
                Some(process_of(&self.rings.get(number)?.ring.as_ref()?.info))
            };
            let processes: BTreeSet<(u32, u32, u64)> = rings.iter().filter_map(of_ring).collect();
            processes.into_iter().for_each(|process| self.learn(process));
        }
        let none = ProcessClasses::default();
        let mut members = Vec::with_capacity(rings.len());
        // Of a ring that is alone nothing can be late.
        let is_alone = !rings.first().is_some_and(|(ring, _)| self.shares(*ring));
        let mut lag_ns = if is_alone { 0 } else { LAG_NS };
        for (number, records) in rings {
            let Some(mut ring) = self.rings.get_mut(number).and_then(|place| place.ring.take()) else {
                continue;
            };
            let known = self.classes.of(&ring.info).unwrap_or(&none);
            ring.begin(self.looks, known);
            let quarters = records.bytes() * 4 / ring.info.layout.ring_bytes;
            lag_ns = lag_ns.min(match quarters {
                _ if records.is_final() => 0,
                0 => LAG_NS,
                1 => LAG_OF_FULL_NS,
                _ => 0,
            });
            let is_refused = self.room.as_mut().is_some_and(|room| room.refuses_now(ring.info.uid));
            members.push(Member {
                number: *number,
                ring,
                known,
                records,
                head: None,
                is_refused,
                left_out: 0,
            });
        }
        // They are all of one.
        let user = members.first().map(|member| (member.ring.info.uid, member.is_refused));
        let position = |members: &[Member<'_, '_>]| -> u64 {
            members.iter().fold(0, |sum: u64, member| sum.wrapping_add(member.records.position()))
        };
        let begun = position(&members);
        let merge = Merge {
            until_ns: if lag_ns > 0 { self.clock.latest_ns().saturating_sub(lag_ns) } else { u64::MAX },
            streams: &mut self.streams,
            classes: &self.classes.all,
            clock: &mut self.clock,
            context: self.context,
            started_ns: self.started_ns,
            window: self.window,
            garbage: &mut self.garbage,
            taken: Taken::default(),
        };
        let taken = merge.run(&mut members);
        if let (Some(room), Some((uid, is_refused))) = (&mut self.room, user) {
            // By what was in his rings: a packet that ends at a loss is written without being counted.
            let events = taken.as_ref().map_or(0, |taken| taken.events);
            let bytes = position(&members).wrapping_sub(begun).saturating_add(events * ADDED_BYTES);
            room.wrote(uid, if is_refused { 0 } else { bytes });
            room.left_out(uid, members.iter().map(|member| member.left_out).sum());
        }
        for member in members {
            self.needs_look |= member.ring.needs_look;
            if let Some(place) = self.rings.get_mut(&member.number) {
                place.ring = Some(member.ring);
            }
        }
        taken
    }

    /// Whether a ring that fills up waits for a description.
    pub(super) fn needs_look(&self) -> bool {
        self.needs_look
    }

    /// Number of invalid records.
    pub(super) fn garbage(&self) -> u64 {
        self.garbage
    }

    /// Ends all rings. `end`: of a ring that is not over, events that did not fit, and that were never finished. Returns the sums over all
    /// rings.
    pub(super) fn end_rings(&mut self, end: impl Fn(u32) -> (u64, u64)) -> io::Result<(u64, u64)> {
        let numbers: Vec<u32> = self.rings.keys().copied().collect();
        for number in numbers {
            let (lost, unfinished) = end(number);
            self.ring_over(number, lost, unfinished)?;
        }
        Ok(self.over)
    }

    /// Whose the losses of rings are that are over, and what was left out of theirs.
    pub(super) fn by_user(&self) -> &LossesByUser {
        &self.by_user
    }

    /// What was left out of whom, since there was little room on the disk.
    pub(super) fn left_out(&self) -> BTreeMap<u32, u64> {
        self.room.as_ref().map(|room| room.all_left_out().clone()).unwrap_or_default()
    }

    /// Whether this user's programs are asked for.
    pub(super) fn wants_user(&self, uid: u32) -> bool {
        self.classes.wants_user(uid)
    }

    /// Ends all streams.
    pub(super) fn finish(mut self, end_ns: u64) -> io::Result<LiveTrace> {
        let processes: Vec<(u32, u32, u64)> = self.described.keys().copied().collect();
        processes.into_iter().for_each(|process| self.learn(process));
        let clock_error_ns = self.clock.error_ns();
        let mut remarks: Vec<String> = crowded(self.streams.crowded()).into_iter().collect();
        let (streams, metadata, overwritten) = self.streams.finish(end_ns)?;
        remarks.extend(self.classes.remarks());
        let (filtered, earlier) = (self.filtered, self.earlier);
        let (overwritten, overwritten_by_user) = overwritten.unzip();
        let overwritten_by_user = overwritten_by_user.unwrap_or_default();
        Ok(LiveTrace {
            streams,
            metadata,
            classes: self.classes.all,
            clock_error_ns,
            overwritten,
            overwritten_by_user,
            filtered,
            earlier,
            remarks,
        })
    }
}

/// What is to be said of users for whom there was no stream.
fn crowded(users: &BTreeSet<u32>) -> Option<String> {
    let first = users.first()?;
    Some(format!(
        "more users had events than there are streams for: events of the last {}, from user {first} on, have common ones, and may have the times \
         of each other's",
        counted(users.len(), "user", "users")
    ))
}

/// By its user, number and birth.
fn process_of(ring: &RingInfo) -> (u32, u32, u64) {
    (ring.uid, ring.pid, ring.birth_ns)
}

/// The rings of a process.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessRings {
    /// Those that are not over.
    count: u32,
    /// There will be no others.
    is_all: bool,
}

/// A ring, and its stream, which is asked for at each poll.
#[derive(Debug)]
struct Place {
    stream: usize,
    /// `None`: its records are being taken.
    ring: Option<Box<LiveRing>>,
}

/// For rings' numbers, which are ours and count up.
#[derive(Clone, Copy, Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u32(&mut self, number: u32) {
        // A map takes its upper and its lower bits: neither may be the same for all.
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A ring whose records are being taken.
struct Member<'a, 'r> {
    number: u32,
    ring: Box<LiveRing>,
    known: &'a ProcessClasses,
    records: &'a mut Records<'r>,
    /// Its next event.
    head: Option<Head>,
    /// There is no room for its events, and so many were left out.
    is_refused: bool,
    left_out: u64,
}

/// Takes records of rings in the order of their times, whichever stream they go to: what is late for its stream is in order, too.
struct Merge<'a> {
    /// What is later stays in the rings.
    until_ns: u64,
    streams: &'a mut Streams,
    classes: &'a [UserClass],
    clock: &'a mut LiveClock,
    context: UserContext,
    started_ns: u64,
    window: Option<(MonotonicNs, MonotonicNs)>,
    garbage: &'a mut u64,
    taken: Taken,
}

impl Merge<'_> {
    fn run(mut self, members: &mut [Member<'_, '_>]) -> io::Result<Taken> {
        for member in members.iter() {
            self.streams.declare(member.ring.stream, self.classes)?;
        }
        let mut waiting = BinaryHeap::with_capacity(members.len());
        for (at, member) in members.iter_mut().enumerate() {
            waiting.extend(self.next(member).map(|time_ns| Reverse((time_ns, at))));
        }
        'all: while let Some(Reverse((_, at))) = waiting.pop() {
            let until_ns = waiting.peek().map_or(self.until_ns, |Reverse((time_ns, _))| *time_ns);
            let Some(member) = members.get_mut(at) else { break };
            loop {
                self.put(member)?;
                self.go_on(member, until_ns)?;
                if self.taken.bytes >= TAKE_BYTES {
                    break 'all;
                }
                match self.next(member) {
                    // Usually the same ring has several events in a row: no need to use the heap.
                    Some(time_ns) if time_ns <= until_ns => {}
                    Some(time_ns) => {
                        waiting.push(Reverse((time_ns, at)));
                        break;
                    }
                    None => break,
                }
            }
        }
        // Only then are the records given back.
        self.taken.bytes += self.streams.flush()?;
        Ok(self.taken)
    }

    /// Goes to a ring's next event that can be converted, and returns its time.
    fn next(&mut self, member: &mut Member<'_, '_>) -> Option<u64> {
        let Member { ring, known, records, head, is_refused, left_out, .. } = member;
        *head = None;
        loop {
            let Header::Complete { id, end, low } = records.header() else {
                if records.next_piece() {
                    continue;
                }
                return None;
            };
            match ring.step(known, self.clock, self.context, records, (id, end, low), self.started_ns) {
                Step::Later => return None,
                Step::Skip => {}
                Step::Garbage => {
                    ring.garbage += 1;
                    *self.garbage += 1;
                }
                Step::Event(next) if next.time_ns > self.until_ns => return None,
                Step::Event(_) if *is_refused => *left_out += 1,
                Step::Event(next) => {
                    *head = Some(next);
                    return Some(next.time_ns);
                }
            }
            records.go_to(end);
        }
    }

    /// Writes a ring's next event, and what was lost before it.
    fn put(&mut self, member: &mut Member<'_, '_>) -> io::Result<()> {
        let Some(Head { class, time_ns, payload_bytes, end }) = member.head.take() else { return Ok(()) };
        let ring = &mut member.ring;
        member.records.go_to(end);
        let time = MonotonicNs(time_ns);
        if self.window.is_some_and(|(from, until)| !(from..=until).contains(&time)) {
            return Ok(());
        }
        ring.has_begun |= time_ns >= self.started_ns;
        ring.earlier += u64::from(!ring.has_begun);
        let out = self.streams.begin(ring.stream, self.classes, time_ns.min(self.started_ns))?;
        if let (Some(out), true) = (out, ring.lost > ring.lost_written) {
            out.lost(ring.lost - ring.lost_written)?;
            ring.lost_written = ring.lost;
        }
        if let Some(out) = self.streams.writer(ring.stream, self.classes, time_ns)? {
            ring.moved += u64::from(time < out.latest());
            let payload = ring.payload.get(..payload_bytes).unwrap_or_default();
            out.event(class, time, &ring.context, payload)?;
            self.taken.events += 1;
            self.taken.bytes += flush_if_full(out)?;
        }
        Ok(())
    }

    /// Writes the simple events that follow, up to a time, and the stream if there is enough for a write.
    fn go_on(&mut self, member: &mut Member<'_, '_>, until_ns: u64) -> io::Result<()> {
        let Member { ring, records, .. } = member;
        let Some(out) = self.streams.begun(ring.stream) else { return Ok(()) };
        // What is to be left out is decided one by one.
        let is_ours =
            records.position() >= ring.info.left_until && (ring.has_begun || !ring.info.drops_earlier);
        if self.window.is_none() && ring.lost == ring.lost_written && is_ours {
            if let (Header::Complete { low, .. }, Some(sync)) = (records.header(), records.sync()) {
                let _ = self.clock.seek(ring.info.clock, sync.complete(low));
            }
            let stretch = self.clock.stretch(ring.info.clock, ring.info.clock_offset_ns);
            // What is from before the recording is counted apart: it ends here.
            let until_ns =
                if ring.has_begun { until_ns } else { until_ns.min(self.started_ns.saturating_sub(1)) };
            let events = ring.go_on(records, stretch, (until_ns, WRITE_BYTES), out);
            self.taken.events += events;
            ring.earlier += if ring.has_begun { 0 } else { events };
        }
        self.taken.bytes += flush_if_full(out)?;
        Ok(())
    }
}

/// Writes what is buffered, if that is enough for a write. Returns the number of bytes.
fn flush_if_full(out: &mut UserStreamWriter) -> io::Result<u64> {
    let bytes = out.in_hand();
    if bytes + EVENT_BYTES <= WRITE_BYTES {
        return Ok(0);
    }
    out.flush()?;
    Ok(bytes as u64)
}
