// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread's ring: complete records are passed on as they are, and their space is given back.
//!
//! Nothing is decoded here: the walk only finds how far records are complete. A lying program may have changed them
//! between the walk and the copy, so they are checked again when they are decoded.

mod arrivals;
mod flight;

pub(crate) use arrivals::Arrivals;

use crate::budget::{Account, Cause, Charge, TAKE_BYTES};
use crate::directory::{FileKind, FileName, OpenFile};
use crate::memory::{CUT, Mapping};
use crate::provider::{Refused, text_at, u32_at, u64_at};
use crate::records::{Header, Layout, Sync};
use crate::walk::Records;
use rtscope_abi::program as abi;
use rtscope_event::exact::{index, low_half};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long to wait for an unfinished record: its thread may have jumped out of a signal handler. The second: if its thread says so, and
/// may be wrong.
const PATIENCE: Duration = Duration::from_secs(1);
const DOUBTFUL: Duration = Duration::from_millis(50);

/// A ring filled to less than one part in `LITTLE` can wait for `LITTLE_FOR`: taking has a fixed cost each time.
const LITTLE: u64 = 16;
const LITTLE_FOR: Duration = Duration::from_millis(50);

/// Words read to find the record that follows a missing one.
const SEARCH_MAX: u32 = 1 << 18;
/// This many valid records in a row are not an accident: a tag has 7 bits.
const IN_A_ROW: usize = 6;
/// Unfinished records that are given up before the next ring's turn.
const GIVEN_UP_MAX: u32 = 4096;
/// A thread that leaves more records unfinished is not trusted any more.
const UNFINISHED_MAX: u64 = 100_000;

/// A turn of taking a ring's records, in which several walks go over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    begin: u64,
    /// As it was when the turn began.
    head: u64,
    last: bool,
    is_final: bool,
    is_retried: bool,
    given_up: u32,
}

/// A walk over records that is about to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    settled: u64,
}

/// Where a walk has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    position: u64,
    sync: Option<Sync>,
    stop: Header,
    settled: u64,
}

impl Visit {
    /// The walk is over.
    pub(crate) fn end(self, records: &Records<'_>) -> Left {
        let (position, sync, stop) = (records.position(), records.sync(), records.header());
        Left { position, sync, stop, settled: self.settled }
    }
}

/// A ring's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingInfo {
    /// The process, in its own PID namespace.
    pub pid: u32,
    /// The same here, if that is another number and known.
    #[serde(default)]
    pub host_pid: Option<u32>,
    /// When the process started, which tells processes of the same number apart.
    pub birth_ns: u64,
    /// The user.
    pub uid: u32,
    /// The thread, in the program's PID namespace.
    pub tid: u32,
    /// Its number among the rings of the process.
    pub number: u32,
    /// The thread's name when the ring was made.
    pub comm: String,
    /// `enum rtu_clock`.
    pub clock: u32,
    /// How it is divided.
    pub layout: Layout,
    /// Time and CPU before the first record.
    pub sync: Option<Sync>,
    /// How many of its losses are in earlier recordings already.
    pub lost_before: u64,
    /// What the program's CLOCK_MONOTONIC shows more than the collector's: it is in another time namespace. 0 for counters, which
    /// have no namespaces.
    #[serde(default)]
    pub clock_offset_ns: i64,
    /// What is before this position, and older than the recording, is what a flight recorder has left: no part of the recording.
    #[serde(default)]
    pub left_until: u64,
    /// Nothing that is older than the recording is a part of it: no recorder was killed that was to take it.
    #[serde(default)]
    pub drops_earlier: bool,
    /// Whether its events are wanted, once somebody has decided that.
    #[serde(skip)]
    pub choice: ThreadChoice,
}

/// Whether a thread's events are wanted. Copies of a ring's description share it: what it costs to find out, and what is counted then, is for each
/// thread once, however often it is looked at.
#[derive(Clone, Debug, Default)]
pub struct ThreadChoice(Arc<OnceLock<bool>>);

impl ThreadChoice {
    /// The answer that was given first.
    pub fn once(&self, ask: impl FnOnce() -> bool) -> bool {
        *self.0.get_or_init(ask)
    }
}

/// It is nothing that a ring says of itself.
impl PartialEq for ThreadChoice {
    fn eq(&self, _: &ThreadChoice) -> bool {
        true
    }
}

impl Eq for ThreadChoice {}

/// Where an earlier collector stopped, by the header: its position, and the time and CPU there. A program can change them, so they
/// are only used when they are possible. The third: where what a flight recorder has left ends.
fn left(mapping: &Mapping, header: &[u8], layout: Layout) -> (u64, Option<Sync>, u64) {
    let word = |offset: usize| u64_at(header, offset);
    let tail = word(offset_of!(abi::rtu_ring, tail));
    let told = offset_of!(abi::rtu_ring, reserved2);
    // ORDER: acquire; as in take().
    let head = mapping.word(offset_of!(abi::rtu_ring, head)).load(Ordering::Acquire);
    if head > tail && head - tail > layout.ring_bytes {
        // A flight recorder let it be overwritten: the newest sub-buffer begins with its time.
        return (head - head % layout.sub_bytes, None, head);
    }
    (tail, (tail > 0).then(|| Sync { counter: word(told), cpu: low_half(word(told + 8)) }), 0)
}

/// What is known of records from which their thread has jumped away.
#[derive(Debug, Default)]
struct LeftRecords {
    /// Since when the record at the tail has been unfinished, and how far its thread then said that it may have jumped away from records.
    waiting: Option<(u64, Instant, u64)>,
    /// What begins before this and is open is given up.
    given_up: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Mapping,
    pub(crate) info: RingInfo,
    pub(crate) name: FileName,
    tail: u64,
    sync: Option<Sync>,
    /// The head at the previous poll, and when records were last taken.
    seen: u64,
    taken: Option<Instant>,
    reported_lost: Cell<u64>,
    left: LeftRecords,
    /// How long it waits for an unfinished record: [`PATIENCE`], but for models.
    patience: Duration,
    /// Records that were begun and never finished.
    pub(crate) unfinished: u64,
    /// What is wrong with it, as long as its process has not been dropped for that.
    pub(crate) fault: Option<String>,
    /// How far a flight recorder's records were looked through.
    arrived: Option<arrivals::Looked>,
    /// Its records are taken together with those of others.
    pub(crate) is_shared: bool,
    /// When the end of its thread was first seen.
    ended: Cell<Option<Instant>>,
    _charge: Charge,
}

/// The header of a ring's file, as it was at this moment.
fn header(mapping: &Mapping) -> Vec<u8> {
    let mut copy = vec![0; size_of::<abi::rtu_ring>()];
    mapping.copy(0, &mut copy);
    copy
}

impl Ring {
    /// Reads a ring's header. `Ok(None)`: it is not complete yet. `Err`: what is wrong with it.
    pub(crate) fn open(
        opened: &OpenFile,
        name: FileName,
        uid: u32,
        account: &Arc<Account>,
    ) -> Result<Option<Ring>, Refused> {
        let FileKind::Ring(tid, number) = name.kind else { return Err("it is not a ring".into()) };
        let bytes = opened.bytes;
        if bytes < u64::from(abi::RTU_RING_OFFSET + abi::RTU_RING_BYTES_MIN) {
            return Ok(None);
        }
        if bytes - u64::from(abi::RTU_RING_OFFSET) > u64::from(abi::RTU_RING_BYTES_MAX) {
            return Err("it is too large".into());
        }
        let charge = account.charge(bytes, 0)?;
        let mapping = Mapping::of_program(&opened.file, index(bytes)).map_err(|error| error.to_string())?;
        // ORDER: acquire; pairs with the program's release of `ready`.
        if mapping.half(offset_of!(abi::rtu_ring, ready)).load(Ordering::Acquire) == 0 || opened.has_grown() {
            return Ok(None);
        }
        let copy = header(&mapping);
        let half = |offset: usize| u32_at(&copy, offset);
        let word = |offset: usize| u64_at(&copy, offset);
        if word(offset_of!(abi::rtu_ring, magic)) != abi::RTU_RING_MAGIC
            || !(1..=abi::RTU_ABI_VERSION).contains(&half(offset_of!(abi::rtu_ring, abi_version)))
        {
            return Err("it does not begin as a ring does, or is of another version".into());
        }
        let ring_bytes = u64::from(half(offset_of!(abi::rtu_ring, ring_bytes)));
        let sub_buffers = u64::from(half(offset_of!(abi::rtu_ring, sub_buffers)));
        let clock = half(offset_of!(abi::rtu_ring, clock));
        let layout = Layout {
            ring_bytes,
            sub_bytes: ring_bytes.checked_div(sub_buffers).unwrap_or(0),
            key: half(offset_of!(abi::rtu_ring, key)),
        };
        let (pid, birth_ns) =
            (half(offset_of!(abi::rtu_ring, pid)), word(offset_of!(abi::rtu_ring, birth_ns)));
        if !layout.is_possible()
            || ring_bytes + u64::from(abi::RTU_RING_OFFSET) != bytes
            || (pid, birth_ns) != (name.process.pid, name.process.birth_ns)
            || !crate::clock::is_known(clock)
            || word(offset_of!(abi::rtu_ring, tail)) % 8 != 0
        {
            return Err("what it says of itself cannot be".into());
        }
        // A program has memory behind every byte before it says that it is ready. Reading a hole would fill it.
        if opened.hole_bytes > 0 {
            return Err(Cause::Holes.into());
        }
        let (tail, sync, left_until) = left(&mapping, &copy, layout);
        let info = RingInfo {
            pid,
            host_pid: None,
            birth_ns,
            uid,
            tid,
            number,
            comm: text_at(&copy, offset_of!(abi::rtu_ring, comm), 16),
            clock,
            layout,
            sync,
            lost_before: word(offset_of!(abi::rtu_ring, lost_told)),
            clock_offset_ns: 0,
            left_until,
            drops_earlier: false,
            choice: ThreadChoice::default(),
        };
        Ok(Some(Ring::of(mapping, info, name, (tail, sync), charge)))
    }

    /// `tail` and `sync`: as the last collector left them.
    fn of(
        mapping: Mapping,
        info: RingInfo,
        name: FileName,
        (tail, sync): (u64, Option<Sync>),
        charge: Charge,
    ) -> Ring {
        Ring {
            mapping,
            reported_lost: Cell::new(info.lost_before),
            info,
            name,
            tail,
            sync,
            seen: tail,
            taken: None,
            left: LeftRecords::default(),
            patience: PATIENCE,
            unfinished: 0,
            fault: None,
            is_shared: false,
            arrived: None,
            ended: Cell::default(),
            _charge: charge,
        }
    }

    /// An empty ring of the model, of whatever size, in a file that is as large.
    #[cfg(test)]
    pub(crate) fn of_model(file: &std::fs::File, name: FileName, layout: Layout) -> Ring {
        let bytes = u64::from(abi::RTU_RING_OFFSET) + layout.ring_bytes;
        let info = RingInfo {
            pid: 1,
            host_pid: None,
            birth_ns: 1,
            uid: 0,
            tid: 1,
            number: 0,
            comm: String::new(),
            clock: 1,
            layout,
            sync: None,
            lost_before: 0,
            clock_offset_ns: 0,
            left_until: 0,
            drops_earlier: false,
            choice: ThreadChoice::default(),
        };
        let mapping = Mapping::new(file, index(bytes)).expect("it can be mapped");
        let charge = Arc::new(Account::default()).charge(bytes, 0).expect("it is small");
        Ring::of(mapping, info, name, (0, None), charge)
    }

    /// The same, which gives up what it finds unfinished a second time.
    #[cfg(test)]
    pub(crate) fn without_patience(self) -> Ring {
        Ring { patience: Duration::ZERO, ..self }
    }

    /// Whether it waits for nothing.
    #[cfg(test)]
    pub(crate) fn is_impatient(&self) -> bool {
        self.patience.is_zero()
    }

    fn word(&self, offset: usize) -> u64 {
        // ORDER: acquire; pairs with the program's releases of `ended` and of its records.
        self.mapping.word(offset).load(Ordering::Acquire)
    }

    /// Events that did not fit, in all.
    pub(crate) fn lost(&self) -> u64 {
        self.word(offset_of!(abi::rtu_ring, lost))
    }

    /// How often its thread waited for space (blocking mode).
    pub(crate) fn waits(&self) -> u64 {
        self.word(offset_of!(abi::rtu_ring, waits))
    }

    /// Whether its file was truncated or has lost memory while mapped.
    pub(crate) fn is_cut(&self) -> bool {
        self.mapping.is_cut()
    }

    /// Whether its thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.word(offset_of!(abi::rtu_ring, ended)) == 1
    }

    /// How long ago its thread was first seen to have ended, or its process to be dead.
    pub(crate) fn ended_for(&self) -> Duration {
        let since = self.ended.get().unwrap_or_else(Instant::now);
        self.ended.set(Some(since));
        since.elapsed()
    }

    /// Bytes that wait to be taken, by the program's claim.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.word(offset_of!(abi::rtu_ring, head)).saturating_sub(self.tail)
    }

    /// Bytes written since the previous call, by the program's claim.
    pub(crate) fn arrived_bytes(&mut self) -> u64 {
        let head = self.word(offset_of!(abi::rtu_ring, head));
        let before = std::mem::replace(&mut self.seen, head);
        head.saturating_sub(before)
    }

    /// Whether it is empty, or so nearly empty that its records can be taken later.
    pub(crate) fn can_wait(&mut self, now: Instant) -> bool {
        let little = self.info.layout.ring_bytes / LITTLE;
        let is_new = self.taken.is_some_and(|taken| now.duration_since(taken) < LITTLE_FOR);
        // A head that went back must be looked into.
        let can_wait = match self.word(offset_of!(abi::rtu_ring, head)).wrapping_sub(self.tail) {
            0 => true,
            waiting => is_new && waiting < little,
        };
        if !can_wait {
            self.taken = Some(now);
        }
        can_wait
    }

    /// It is emptied with others that cannot wait.
    pub(crate) fn is_taken(&mut self, now: Instant) {
        self.taken = Some(now);
    }

    /// Lets `walk` take complete records, and gives their space back. `last`: no more records will be finished. `is_final`: this is the
    /// last call. Returns the bytes taken. `Err` is either an error of `walk`, or what is wrong with the ring.
    pub(crate) fn take(
        &mut self,
        last: bool,
        is_final: bool,
        mut walk: impl FnMut(&mut Records<'_>) -> io::Result<()>,
    ) -> io::Result<Result<u64, String>> {
        let mut turn = match self.turn(last, is_final) {
            Ok(turn) => turn,
            Err(why) => return Ok(Err(why)),
        };
        while self.has_turn(&turn) {
            let visit = self.visit();
            let mut records = self.records(&turn);
            walk(&mut records)?;
            let left = visit.end(&records);
            match self.went(left, &mut turn) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(self.tail - turn.begin))
    }

    /// Begins a turn of taking records: `last` and `is_final` as in [`Ring::take`]. `Err`: what is wrong with the ring.
    pub(crate) fn turn(&self, last: bool, is_final: bool) -> Result<Turn, String> {
        let head = self.word(offset_of!(abi::rtu_ring, head));
        let ring_bytes = self.info.layout.ring_bytes;
        if head < self.tail || head - self.tail > ring_bytes || head % 8 != 0 {
            // Of a file that has lost its header they are zeros.
            return Err(if self.is_cut() { CUT } else { "its positions jump" }.to_string());
        }
        Ok(Turn { begin: self.tail, head, last, is_final, is_retried: false, given_up: 0 })
    }

    /// Whether there is more to take in this turn. The rest waits for the other rings.
    pub(crate) fn has_turn(&self, turn: &Turn) -> bool {
        self.tail < turn.head && !self.is_over(turn)
    }

    /// Whether as much was taken as can be in one turn.
    pub(crate) fn is_over(&self, turn: &Turn) -> bool {
        self.tail - turn.begin >= TAKE_BYTES
    }

    /// To be called before the walk over the records: what it finds open then stays open.
    pub(crate) fn visit(&self) -> Visit {
        Visit { settled: self.word(offset_of!(abi::rtu_ring, settled)) }
    }

    /// What can be taken in this turn.
    pub(crate) fn records(&self, turn: &Turn) -> Records<'_> {
        Records::new(&self.mapping, self.info.layout, (self.tail, turn.head), self.sync, turn.is_final)
    }

    /// Bytes taken in this turn.
    pub(crate) fn taken(&self, turn: &Turn) -> u64 {
        self.tail - turn.begin
    }

    /// Gives back what a walk has taken, and what its thread has left unfinished. Returns whether another walk may take more. `Err`: what
    /// is wrong with the ring.
    pub(crate) fn went(&mut self, left: Left, turn: &mut Turn) -> Result<bool, String> {
        let Left { position, sync, stop, settled } = left;
        let went_on = position > self.tail;
        self.sync = sync;
        if went_on {
            self.give_back(position);
        }
        match stop {
            _ if self.mapping.is_cut() => return Err(CUT.to_string()),
            Header::Broken if self.unfinished > UNFINISHED_MAX => {
                return Err("its records overlap".to_string());
            }
            // The rest of the given up is left for later, too.
            Header::Open { .. } | Header::Unwritten | Header::Broken
                if !turn.is_final && turn.given_up >= GIVEN_UP_MAX =>
            {
                return Ok(false);
            }
            Header::Open { end } if turn.last || self.is_abandoned(settled) => {
                turn.given_up += 1;
                self.unfinished += 1;
                self.give_back(end);
            }
            // A record that was reserved and not begun: its thread jumped out of a handler between two instructions, or was
            // killed there. The bytes in its place are older, and may look like anything.
            Header::Unwritten | Header::Broken
                if self.tail < turn.head && (turn.last || self.is_abandoned(settled)) =>
            {
                // Searching takes long.
                turn.given_up = GIVEN_UP_MAX;
                let next = self.next_record(turn.head, turn.last).or(turn.last.then_some(turn.head));
                let Some(next) = next else { return Ok(false) };
                self.unfinished += 1;
                self.give_back(next);
            }
            // If nothing was taken, the rest is left for later.
            Header::Complete { .. } if went_on => {}
            // Or it was finished after the walk passed, and there is no later call.
            Header::Complete { .. } if turn.is_final && !std::mem::replace(&mut turn.is_retried, true) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The position after a missing record: where records follow each other up to IN_A_ROW, the end of the sub-buffer, or the head.
    /// If there is none, the next sub-buffer, which can be read without the rest. Where the thread has told how far the ring was when it
    /// knew of the missing record, that counts as the head: what is behind it may be about to be written.
    fn next_record(&self, head: u64, last: bool) -> Option<u64> {
        let layout = self.info.layout;
        let sub_end = layout.sub_end(self.tail);
        let told = self.left.given_up & !7;
        let is_told = !last && (self.tail + 1..=head.min(sub_end)).contains(&told);
        let stop = if is_told { told } else { sub_end.min(head) };
        let mut steps = 0;
        let follow = |mut at: u64, steps: &mut u32| {
            for _ in 0..IN_A_ROW {
                if at >= stop {
                    break;
                }
                *steps += 1;
                let place = u64::from(abi::RTU_RING_OFFSET) + (at & (layout.ring_bytes - 1));
                // ORDER: acquire; as in Records::header().
                let word = self.mapping.word(index(place)).load(Ordering::Acquire);
                match layout.header(at, word) {
                    Header::Complete { end, .. } | Header::Open { end } => at = end,
                    _ => return false,
                }
            }
            at <= stop
        };
        let mut candidate = self.tail + 16;
        while candidate < stop && steps < SEARCH_MAX {
            if follow(candidate, &mut steps) {
                return Some(candidate);
            }
            candidate += 8;
        }
        (is_told || sub_end <= head).then_some(if is_told { told } else { sub_end })
    }

    /// Whether to give up the unfinished record at the tail: its thread has said that it jumped away from it, or it is old. Not because
    /// the ring fills up behind it: that may be a handler which has interrupted it, and when that returns the record is finished, in
    /// whatever is in its place then. The handler's further events are lost, and counted.
    fn is_abandoned(&mut self, settled: u64) -> bool {
        self.left.given_up = self.left.given_up.max(settled);
        if self.tail < self.left.given_up {
            return true;
        }
        let doubtful = self.word(offset_of!(abi::rtu_ring, doubtful));
        match self.left.waiting {
            Some((position, since, noted))
                if position == self.tail && (noted > position || doubtful <= position) =>
            {
                let is_doubtful = noted > position && since.elapsed() > DOUBTFUL;
                if is_doubtful {
                    // Others that were open then are as old.
                    self.left.given_up = noted;
                }
                is_doubtful || since.elapsed() > self.patience
            }
            // Another record, or the thread has become doubtful only now.
            _ => {
                self.left.waiting = Some((self.tail, Instant::now(), doubtful));
                false
            }
        }
    }

    fn give_back(&mut self, position: u64) {
        self.tail = position;
        if let Some(sync) = self.sync {
            let told = offset_of!(abi::rtu_ring, reserved2);
            // ORDER: relaxed; for a later collector, if this one is killed. Before the tail: it may then repeat events, but need not guess.
            self.mapping.word(told).store(sync.counter, Ordering::Relaxed);
            self.mapping.word(told + 8).store(u64::from(sync.cpu), Ordering::Relaxed);
        }
        // ORDER: release; pairs with the acquire in rtscope__step(): the records before it have been copied.
        self.mapping.word(offset_of!(abi::rtu_ring, tail)).store(position, Ordering::Release);
    }

    /// Notes that these losses are in a recording: a later collector need not report them again.
    pub(crate) fn set_reported_lost(&self, lost: u64) {
        if self.reported_lost.replace(lost) == lost {
            return;
        }
        // ORDER: relaxed; as above.
        self.mapping.word(offset_of!(abi::rtu_ring, lost_told)).store(lost, Ordering::Relaxed);
    }

    /// What did not fit so far is no loss of any recording to come.
    pub(crate) fn forgive(&mut self) {
        self.info.lost_before = self.word(offset_of!(abi::rtu_ring, lost));
        self.set_reported_lost(self.info.lost_before);
    }
}
