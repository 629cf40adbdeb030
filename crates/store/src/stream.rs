// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU's events of both recorders, in order of time.
//!
//! ftrace's sub-buffers are in order. Records of the eBPF programs are nearly so: a program that was interrupted after it
//! had read the clock reserves its space after those that interrupted it; up to 3 ms later where eBPF programs can be preempted.
//! So the banks are read ahead by a horizon, and records are sorted on the way; texts of paths are matched within the same time.

use crate::bank::{BankReader, Entry};
use crate::forks::Forks;
use crate::formats::{CallIds, ThreadPair, TracepointEncoding};
use crate::pages::{PageItem, PagesReader};
use crate::paths::{APART_NS, Key, LatePaths, PathText, RecentPaths, TextExtent};
use crate::sorted::{QueueEntry, SortedQueue};
use rtscope_abi as abi;
use rtscope_ctf::{Classes, StreamWriter};
use rtscope_event::{CpuId, Event, MonotonicNs, NameLookup, Pid, SwitchSequence, Tid};
use rtscope_ring::{Frame, SyscallRecord, decode};
use std::io;

/// How far the banks are read ahead: several times the largest disorder ever measured.
pub(crate) const HORIZON_NS: u64 = APART_NS;
/// Nothing follows.
pub(crate) const END_OF_TIME: MonotonicNs = MonotonicNs(u64::MAX);
/// Events that are read ahead at most, whatever their times.
const AHEAD_MAX: usize = 1 << 18;
/// A record cannot be newer than its chunk, except that the clocks of two CPUs may differ a little.
const CLOCKS_APART_NS: u64 = 1_000_000_000;
/// Texts of an event at most: a system call has six arguments.
const TEXTS: usize = 6;
/// The text for an address that is 0.
const NULL: &[u8] = b"(null)";

/// The possible times of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Older events are left out: not all recorders were active then.
    pub(crate) from: MonotonicNs,
    /// Newer times are wrong or not requested.
    pub(crate) until: MonotonicNs,
}

/// Counts of everything but written events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Events from before the recording began.
    pub(crate) early: u64,
    /// Events from after the end of a snapshot, or of an impossible time.
    pub(crate) beyond: u64,
    /// Records whose writer had not finished.
    pub(crate) unfinished: u64,
    /// Places without the expected record; each may stand for several records.
    pub(crate) unreadable: u64,
    /// Those of them that were single events.
    pub(crate) unreadable_events: u64,
    /// Losses whose place is known.
    pub(crate) lost: u64,
    /// Whether there were losses without a number.
    pub(crate) lost_unknown: bool,
    /// Paths that could not be read.
    pub(crate) without_text: u64,
    /// Paths of which only the beginning was read.
    pub(crate) cut_texts: u64,
}

/// All tracepoints of a trace, and how their events are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracepointTable<'a> {
    /// By number of the tracepoint.
    pub(crate) encodings: &'a [Option<TracepointEncoding>],
    pub(crate) classes: &'a Classes,
    /// System calls that eBPF recorded.
    pub(crate) calls: &'a CallIds,
    pub(crate) late: &'a LatePaths,
    pub(crate) forks: &'a Forks,
    /// Classes of built-in events whose tracepoints ftrace records.
    pub(crate) by_ftrace: &'a [u32],
}

impl TracepointTable<'_> {
    /// Whether ftrace records this, too, since it was asked for.
    fn has_tracepoint(&self, event: &Event) -> bool {
        self.by_ftrace.contains(&event.kind.class())
    }

    /// Writes a record in ftrace's form. `texts` is working memory.
    #[inline]
    fn tracepoint(
        &self,
        stream: &mut StreamWriter,
        time: MonotonicNs,
        record: &[u8],
        (recent, switches): (&mut RecentPaths, &mut SwitchSequence),
        texts: &mut Vec<u8>,
        met: &mut Tally,
    ) -> io::Result<()> {
        let id = record.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
        let Some(known) = &self.encodings[usize::from(id)] else {
            met.unreadable += 1;
            met.unreadable_events += 1;
            return Ok(());
        };
        let written = match known.call_at {
            None => {
                let pair = known.threads_at.and_then(|pair| self.pair(record, pair, time, switches));
                let processes = pair.map(|(parent, child)| [parent.0.to_le_bytes(), child.0.to_le_bytes()]);
                let [parent, child] = processes.map_or([None, None], |both| both.map(Some));
                let given = [parent.as_ref().map(|pid| &pid[..]), child.as_ref().map(|pid| &pid[..])];
                stream.tracepoint(known.class, time, record, &given)?
            }
            Some(call_at) => {
                texts.clear();
                let mut ends = [None; TEXTS];
                let wanted = self.classes.texts(known.class).iter().zip(&mut ends);
                for (given, end) in wanted {
                    let found = match key(record, call_at, given.argument, given.offset) {
                        Some(key) if key.pointer == 0 => {
                            texts.extend_from_slice(NULL);
                            Some(TextExtent::Whole)
                        }
                        Some(key) => recent.take(&key, time.0, self.late, texts),
                        None => None,
                    };
                    *end = found.map(|_| texts.len());
                    met.without_text += u64::from(found.is_none());
                    met.cut_texts += u64::from(found == Some(TextExtent::Cut));
                }
                let mut begin = 0;
                let texts: [Option<&[u8]>; TEXTS] =
                    ends.map(|end| texts.get(std::mem::replace(&mut begin, end?)..end?));
                stream.tracepoint(known.class, time, record, &texts)?
            }
        };
        met.unreadable += u64::from(!written);
        met.unreadable_events += u64::from(!written);
        Ok(())
    }

    /// What two threads of an event tell: of a switch, whether it follows the one before; of a fork, its processes, which are returned.
    fn pair(
        &self,
        record: &[u8],
        (pair, one, other): (ThreadPair, u32, u32),
        time: MonotonicNs,
        switches: &mut SwitchSequence,
    ) -> Option<(Pid, Pid)> {
        let (one, other) = threads(record, (one, other))?;
        match pair {
            ThreadPair::Fork => return self.forks.processes(one, other, time),
            ThreadPair::Switch => switches.switch(one, other),
            ThreadPair::Exec => switches.exec(one, other),
        }
        None
    }
}

/// The threads at these offsets.
fn threads(record: &[u8], (one, other): (u32, u32)) -> Option<(Tid, Tid)> {
    let tid = |at: u32| record.get(at as usize..)?.first_chunk().map(|bytes| Tid(u32::from_ne_bytes(*bytes)));
    Some((tid(one)?, tid(other)?))
}

/// A system call in the layout of its tracepoint, as ftrace would have recorded it: number of the tracepoint, thread,
/// number of the call, and its arguments or its result.
#[derive(Clone, Copy, Debug)]
struct Call {
    words: [u64; CALL_WORDS],
    length: usize,
}

const CALL_WORDS: usize = 2 + abi::RTS_SYSCALL_ARGS_MAX as usize;

impl Call {
    /// `None`: this call was not to be recorded.
    #[inline]
    fn of(call: &SyscallRecord<'_>, calls: &CallIds) -> Option<Call> {
        let id = calls.get(call.number, call.is_exit)?;
        let ([a, b], [e, f, g, h]) = (id.to_ne_bytes(), call.tid.0.to_ne_bytes());
        let [m, n, o, p] = call.number.to_ne_bytes();
        let mut words = [0; CALL_WORDS];
        words[0] = u64::from_ne_bytes([a, b, 0, 0, e, f, g, h]);
        words[1] = u64::from_ne_bytes([m, n, o, p, 0, 0, 0, 0]);
        words[2..][..call.values.len()].copy_from_slice(call.values);
        Some(Call { words, length: 2 + call.values.len() })
    }

    #[inline]
    fn bytes(&self, into: &mut [u8; CALL_WORDS * 8]) -> usize {
        for (place, word) in into.chunks_exact_mut(8).zip(&self.words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        self.length * 8
    }
}

/// The eBPF records of a CPU, sorted.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    cpu: CpuId,
    limits: Limits,
    reader: Option<BankReader>,
    pending: SortedQueue<PendingRecord>,
    newest: MonotonicNs,
    recent: RecentPaths,
    /// The CPU's switches, whichever recorder has them.
    pub(crate) switches: SwitchSequence,
    /// Texts of the event being written.
    texts: Vec<u8>,
    pub(crate) met: Tally,
}

#[derive(Debug)]
enum PendingRecord {
    Event(Event),
    /// A fork, a renaming or an exit, which nobody asked for: by them readers name threads.
    Process(Event),
    Call(Call),
    /// This many are missing; 0: counted otherwise.
    Lost(u64),
}

impl ReadAhead {
    pub(crate) fn new(cpu: CpuId, reader: Option<BankReader>, limits: Limits) -> ReadAhead {
        ReadAhead {
            cpu,
            limits,
            reader,
            pending: SortedQueue::default(),
            newest: MonotonicNs(0),
            recent: RecentPaths::default(),
            switches: SwitchSequence::default(),
            texts: Vec::new(),
            met: Tally::default(),
        }
    }

    /// The bank has this many bytes by now, and no record in them is newer than `until`.
    pub(crate) fn grow(&mut self, bytes: u64, until: MonotonicNs) {
        self.limits.until = until;
        self.reader.iter_mut().for_each(|reader| reader.grow(bytes));
    }

    /// The time of the next event; no older one follows, unless all that is there has been read. `until`: the caller has another event at
    /// that time; when no older one is to be expected, the result is `None`, and no more is read. (A bank may hold nothing but paths.)
    /// `until` is `None` when the caller has no more events; then no event can want a path, unless eBPF recorded the calls.
    #[inline]
    pub(crate) fn peek(
        &mut self,
        table: &TracepointTable<'_>,
        until: Option<MonotonicNs>,
    ) -> io::Result<Option<MonotonicNs>> {
        let own = self.pending.front().map(|(time, _)| time).filter(|_| !table.calls.is_empty());
        match until.into_iter().chain(own).min() {
            Some(oldest) => self.recent.forget_before(oldest.0),
            None if table.calls.is_empty() => self.recent.close(),
            None => {}
        }
        loop {
            let front = self.pending.front().map(|(time, _)| time);
            let is_sure =
                |time: MonotonicNs| time.plus(HORIZON_NS) <= self.newest || self.pending.len() >= AHEAD_MAX;
            if self.reader.as_ref().is_none_or(BankReader::is_at_end) || front.is_some_and(is_sure) {
                return Ok(front);
            }
            if front.is_none() && until.is_some_and(|until| until.plus(HORIZON_NS) <= self.newest) {
                return Ok(None);
            }
            self.read(table)?;
        }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.reader.as_ref().map_or(0, BankReader::position)
    }

    fn read(&mut self, table: &TracepointTable<'_>) -> io::Result<()> {
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        let read = reader.block(|chunk_time, entry| self.take_in(table, chunk_time, entry));
        self.reader = Some(reader);
        read.map(|_| ())
    }

    fn take_in(&mut self, table: &TracepointTable<'_>, chunk_time: MonotonicNs, entry: Entry<'_>) {
        let frame = match entry {
            Entry::Record(frame) => frame,
            Entry::Unfinished => {
                self.met.unfinished += 1;
                return self.lose(0);
            }
            Entry::Garbage => {
                self.met.unreadable += 1;
                return self.lose(0);
            }
            Entry::Lost(count) => {
                self.met.lost = self.met.lost.saturating_add(count);
                return self.lose(count);
            }
        };
        let time = MonotonicNs(frame.time_ns);
        let is_path = u32::from(frame.kind) == abi::RTS_SYSCALL_PATH;
        if time < self.limits.from {
            return self.met.early += u64::from(!is_path);
        }
        if time > self.limits.until || time > chunk_time.plus(CLOCKS_APART_NS) {
            self.met.beyond += 1;
            return self.lose(0);
        }
        self.newest = self.newest.max(time);
        if is_path {
            match PathText::of(&frame) {
                Some(path) if !path.is_late => self.recent.add(&path),
                Some(_) => {}
                None => self.met.unreadable += 1,
            }
            return;
        }
        if abi::only_names_tasks(u32::from(frame.kind)) {
            if let Some(event) = decode(self.cpu, &frame).filter(|event| !table.has_tracepoint(event)) {
                self.pending.add(time, PendingRecord::Process(event));
            }
            return;
        }
        let Some(what) = self.what(table, &frame) else {
            self.met.unreadable += 1;
            return self.lose(0);
        };
        self.pending.add(time, what);
    }

    /// Events are missing behind what has been read: this many, or as many as are counted otherwise.
    fn lose(&mut self, count: u64) {
        self.pending.add(self.newest.max(self.limits.from), PendingRecord::Lost(count));
    }

    #[inline]
    fn what(&self, table: &TracepointTable<'_>, frame: &Frame<'_>) -> Option<PendingRecord> {
        if matches!(u32::from(frame.kind), abi::RTS_SYSCALL_ENTRY | abi::RTS_SYSCALL_EXIT) {
            return Call::of(&SyscallRecord::of(frame)?, table.calls).map(PendingRecord::Call);
        }
        decode(self.cpu, frame).map(PendingRecord::Event)
    }

    /// Writes the event that [`ReadAhead::peek`] found.
    #[inline]
    pub(crate) fn write<N: NameLookup>(
        &mut self,
        table: &TracepointTable<'_>,
        stream: &mut StreamWriter,
        names: &N,
    ) -> io::Result<()> {
        let Some(QueueEntry { time, what, .. }) = self.pending.pop() else { return Ok(()) };
        match what {
            PendingRecord::Event(event) => {
                self.switches.observe(&event.kind);
                stream.event(&event, names)
            }
            PendingRecord::Lost(count) => {
                self.switches.lost();
                stream.lost(count)
            }
            PendingRecord::Process(event) => stream.process(&event, names),
            PendingRecord::Call(call) => {
                let mut bytes = [0; CALL_WORDS * 8];
                let length = call.bytes(&mut bytes);
                let (beside, texts) = ((&mut self.recent, &mut self.switches), &mut self.texts);
                table.tracepoint(stream, time, &bytes[..length], beside, texts, &mut self.met)
            }
        }
    }
}

/// The events of ftrace's sub-buffers of a CPU.
#[derive(Debug)]
pub(crate) struct PageEvents<'a> {
    reader: Option<PagesReader<'a>>,
    limits: Limits,
    /// The threads of rtscope. The kernel leaves them out as of their next switch; where a hypervisor hides switches from tracing,
    /// that is late.
    own: Vec<u32>,
    peeked: Option<MonotonicNs>,
    /// Events lost before the next one: how many, and whether there were more of an unknown number.
    lost: u64,
    lost_unknown: bool,
    /// Others are missing there, too, that are counted otherwise.
    is_hole: bool,
    /// Texts of the event being written.
    texts: Vec<u8>,
    pub(crate) met: Tally,
}

impl<'a> PageEvents<'a> {
    pub(crate) fn new(reader: Option<PagesReader<'a>>, limits: Limits) -> PageEvents<'a> {
        PageEvents {
            reader,
            limits,
            own: Vec::new(),
            peeked: None,
            lost: 0,
            lost_unknown: false,
            is_hole: false,
            texts: Vec::new(),
            met: Tally::default(),
        }
    }

    /// Leaves out the events of these threads, but not interrupts during them, and not their switches.
    pub(crate) fn leave_out(&mut self, own: &[u32]) {
        self.own = own.to_vec();
    }

    /// There are this many bytes by now, and no event in them is newer than `until`.
    pub(crate) fn grow(&mut self, bytes: u64, until: MonotonicNs) {
        self.limits.until = until;
        self.reader.iter_mut().for_each(|reader| reader.grow(bytes));
    }

    fn is_own(&self, table: &TracepointTable<'_>, record: &[u8]) -> bool {
        // common_flags: hard interrupt, softirq, NMI (TRACE_FLAG_* of the kernel's trace_events.h).
        const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40;
        let id = record.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
        let pid = record.get(4..8).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_ne_bytes(*bytes));
        // The kernel sets all bits of both where it does not say, in uprobes. They are never in an interrupt.
        let said = record.get(2..4).filter(|said| *said != [0xff, 0xff]);
        let in_interrupt = said.is_some_and(|said| said[0] & IN_INTERRUPT != 0);
        let by_own = !in_interrupt && pid.is_some_and(|pid| self.own.contains(&pid));
        by_own && table.encodings[usize::from(id)].as_ref().is_some_and(|known| !known.is_switch())
    }

    /// The time of the next event; `None`: all that is there has been read.
    #[inline]
    pub(crate) fn peek(&mut self, table: &TracepointTable<'_>) -> io::Result<Option<MonotonicNs>> {
        while self.peeked.is_none() {
            let Some(reader) = &mut self.reader else { return Ok(None) };
            match reader.next()? {
                PageItem::Event(time) if time < self.limits.from => {
                    self.met.early += 1;
                    // Events lost before it were lost before the recording began, too.
                    (self.lost, self.lost_unknown) = (0, false);
                }
                PageItem::Event(time) if time > self.limits.until => {
                    self.met.beyond += 1;
                    self.is_hole = true;
                }
                PageItem::Event(time) => {
                    let own = !self.own.is_empty()
                        && self.reader.as_ref().is_some_and(|reader| self.is_own(table, reader.payload()));
                    self.peeked = (!own).then_some(time);
                }
                PageItem::Lost(Some(count)) => self.lost = self.lost.saturating_add(count),
                PageItem::Lost(None) => self.lost_unknown = true,
                PageItem::Broken => {
                    self.met.unreadable += 1;
                    self.is_hole = true;
                }
                PageItem::End => return Ok(None),
            }
        }
        Ok(self.peeked)
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.reader.as_ref().map_or(0, PagesReader::position)
    }

    /// Writes the event that [`PageEvents::peek`] found.
    #[inline]
    pub(crate) fn write(
        &mut self,
        table: &TracepointTable<'_>,
        stream: &mut StreamWriter,
        beside: (&mut RecentPaths, &mut SwitchSequence),
    ) -> io::Result<()> {
        let (Some(time), Some(reader)) = (self.peeked.take(), &self.reader) else { return Ok(()) };
        if std::mem::take(&mut self.is_hole) {
            beside.1.lost();
        }
        if self.lost > 0 || self.lost_unknown {
            beside.1.lost();
            self.met.lost = self.met.lost.saturating_add(self.lost);
            self.met.lost_unknown |= std::mem::take(&mut self.lost_unknown);
            stream.lost(std::mem::take(&mut self.lost))?;
        }
        table.tracepoint(stream, time, reader.payload(), beside, &mut self.texts, &mut self.met)
    }

    /// Goes to the oldest event in the window and drops losses before it. Returns its time if there were any:
    /// from there on nothing is missing.
    pub(crate) fn skip_to_oldest(&mut self, table: &TracepointTable<'_>) -> io::Result<Option<MonotonicNs>> {
        let first = self.peek(table)?;
        let lost = self.lost > 0 || self.lost_unknown;
        (self.lost, self.lost_unknown) = (0, false);
        Ok(first.filter(|_| lost))
    }

    /// Writes losses after the last event.
    pub(crate) fn finish(&mut self, stream: &mut StreamWriter) -> io::Result<()> {
        self.met.lost = self.met.lost.saturating_add(self.lost);
        self.met.lost_unknown |= self.lost_unknown;
        stream.lost(std::mem::take(&mut self.lost))
    }
}

fn key(record: &[u8], (syscall_at, tid_at): (u32, u32), argument: u8, pointer_at: u32) -> Option<Key> {
    let word = |at: u32| record.get(at as usize..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    Some(Key {
        tid: word(tid_at)?,
        syscall: u16::try_from(word(syscall_at)?).ok()?,
        argument,
        pointer: u64::from_ne_bytes(*record.get(pointer_at as usize..)?.first_chunk()?),
    })
}

/// Writes both in order of time: all events up to `until`, and those that were lost before them. No older event may come later: what is
/// read must go beyond `until` by [`HORIZON_NS`], or nothing follows. `each` is called now and then with the bytes read in all; false ends
/// it early.
pub(crate) fn merge<N: NameLookup>(
    (own, pages): (&mut ReadAhead, &mut PageEvents<'_>),
    stream: &mut StreamWriter,
    (table, names): (&TracepointTable<'_>, &N),
    until: MonotonicNs,
    mut each: impl FnMut(u64) -> bool,
) -> Result<bool, MergeError> {
    /// Events between two calls of `each`.
    const EVENTS_PER_CALL: u32 = 4096;
    let is_last = until == END_OF_TIME;
    let mut events = 0;
    loop {
        let theirs = pages.peek(table).map_err(MergeError::Reading)?.filter(|time| *time <= until);
        // Others may follow that want a path.
        let expected = theirs.or((!is_last).then_some(until));
        let mine = own.peek(table, expected).map_err(MergeError::Reading)?.filter(|time| *time <= until);
        match (mine, theirs) {
            (None, None) => break,
            (Some(mine), theirs) if theirs.is_none_or(|theirs| mine <= theirs) => {
                own.write(table, stream, names).map_err(MergeError::Writing)?;
            }
            _ => {
                let beside = (&mut own.recent, &mut own.switches);
                pages.write(table, stream, beside).map_err(MergeError::Writing)?;
            }
        }
        events += 1;
        if events % EVENTS_PER_CALL == 0 && !each(own.position().saturating_add(pages.position())) {
            return Ok(false);
        }
    }
    if is_last {
        pages.finish(stream).map_err(MergeError::Writing)?;
    }
    Ok(true)
}

/// The side whose system call failed.
#[derive(Debug)]
pub(crate) enum MergeError {
    Reading(io::Error),
    Writing(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::CHUNK_MAGIC;
    use std::io::Write;
    use std::sync::Arc;

    fn record(kind: u32, time: u64, payload: &[u64]) -> Vec<u64> {
        let length = payload.len() as u64 + 2;
        let word = length | u64::from(kind) << 8 | u64::from(abi::RTS_COMMITTED) << 16 | 1 << 32;
        [&[word, time][..], payload].concat()
    }

    /// A bank of paths only, except for one event at its end.
    #[test]
    fn paths_that_no_event_can_want_are_not_stored() {
        const PATHS: u64 = 50_000;
        let mut words: Vec<u64> = (0..PATHS)
            .flat_map(|events| {
                record(abi::RTS_SYSCALL_PATH, 1_000 * events, &[events, 1_000 * events, 7, 0x2f])
            })
            .collect();
        words.extend(record(abi::RTS_SOFTIRQ_RAISE, 1_000 * PATHS, &[3]));
        let mut file = tempfile::tempfile().unwrap();
        for word in [CHUNK_MAGIC, words.len() as u64 * 8, 0, 1_000 * PATHS].iter().chain(&words) {
            file.write_all(&word.to_ne_bytes()).unwrap();
        }
        let limits = Limits { from: MonotonicNs(0), until: MonotonicNs(u64::MAX) };
        let length = file.metadata().unwrap().len();
        let file = Arc::new(file);
        let reader = || {
            let mut reader = BankReader::new(Arc::clone(&file));
            reader.grow(length);
            Some(reader)
        };
        let (classes, calls, late) = (Classes::new(|_| true, &[]), CallIds::default(), LatePaths::default());
        let writing = TracepointTable {
            encodings: &[],
            classes: &classes,
            calls: &calls,
            late: &late,
            forks: &Forks::default(),
            by_ftrace: &[],
        };
        let mut ahead = ReadAhead::new(CpuId(0), reader(), limits);
        // While ftrace still has an event: only paths younger than the horizon.
        assert_eq!(ahead.peek(&writing, Some(MonotonicNs(0))).unwrap(), None);
        assert!(
            ahead.position() < length && ahead.recent.len() < rtscope_event::exact::index(PATHS),
            "{}",
            ahead.recent.len()
        );
        let mut ahead = ReadAhead::new(CpuId(0), reader(), limits);
        assert_eq!(ahead.peek(&writing, None).unwrap(), Some(MonotonicNs(1_000 * PATHS)));
        assert_eq!(ahead.recent.len(), 0);
    }
}
