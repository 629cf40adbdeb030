// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events become a trace while they are recorded: records are converted where they lie, and written once.
//!
//! A stream for each ring, as long as there are few: nothing has to be merged, so no event waits for another thread's. Each
//! look at a ring adds to its stream's packet, whose head is written last: a kill leaves whole packets, and behind them
//! what is cut off. Only what lies before the newest pair of the clock is taken, so times are between two pairs, as if all had been known.

use super::classes::{Classes, FixedSizeEvent, KnownEvent, ProcessClasses};
use crate::Error;
use nix::sys::resource::{Resource, getrlimit};
use rtscope_abi::program as abi;
use rtscope_ctf::{PlainEvent, UserContext, UserStreamSummary, UserStreamWriter};
use rtscope_event::MonotonicNs;
use rtscope_event::exact;
use rtscope_user::ProviderInfo;
use rtscope_user::RingInfo;
use rtscope_user::clock::{EventTime, LiveClock, Pair, Stretch, counter_kind};
use rtscope_user::is_shortage;
use rtscope_user::programs::Records;
use rtscope_user::records::{Header, Layout};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Rings with a stream of their own. The reader opens each.
pub(super) const STREAMS_MAX: usize = 64;
/// Processes that have described something, and may get a stream.
const PROCESSES_MAX: usize = 8192;
/// What is converted before it is written: what stays in the second-level cache.
const WRITE_BYTES: usize = 128 << 10;
/// The largest event, with its context.
const EVENT_BYTES: usize = 9 << 10;
/// So many more files than streams the collector has to be able to open: rings, while they are mapped, and what /proc tells.
const FILES_RESERVED: u64 = 48;
/// So long an event's description is waited for. Its file is there before the event; it may be found later.
const PATIENCE: Duration = Duration::from_secs(1);

/// The trace that is being made.
#[derive(Debug)]
pub(super) struct Live {
    directory: PathBuf,
    trace: Uuid,
    started_ns: u64,
    context: UserContext,
    classes: Classes,
    clock: LiveClock,
    rings: Vec<LiveRing>,
    /// Looks at all rings so far.
    looks: u64,
    /// No ring gets a stream any more.
    is_full: bool,
}

#[derive(Debug)]
struct LiveRing {
    info: RingInfo,
    /// Until its first event is there.
    file: Option<File>,
    out: Option<UserStreamWriter>,
    /// As events have it now, and of which CPU.
    context: Vec<u8>,
    /// Losses that were told; and those that the trace has.
    lost: u64,
    lost_written: u64,
    garbage: u64,
    /// Since when, and since which look, the description of the event at a position is waited for.
    waiting: Option<(u64, Instant, u64)>,
    /// The look that takes from it now.
    look: u64,
    /// It did not come: none is waited for any more, or a liar's ring would be with each event. Until its process describes more.
    is_impatient: bool,
    /// This look has asked for the time, because the last pair of the clock was old.
    has_asked: bool,
    scratch: Vec<u8>,
}

/// What became of a ring's stream.
#[derive(Debug)]
pub(super) struct LiveStreamSummary {
    pub(super) ring: usize,
    pub(super) done: UserStreamSummary,
    pub(super) lost: u64,
}

/// What is to be done with the record at hand.
enum Step {
    /// An event, when, and how much of its payload it has.
    Event(u32, u64, usize),
    /// It was looked at, and is no event.
    On,
    Garbage,
    Later,
}

impl Live {
    pub(super) fn new(directory: PathBuf, trace: Uuid, started_ns: u64, context: UserContext) -> Live {
        let (classes, clock, rings) = (Classes::default(), LiveClock::default(), Vec::new());
        Live { directory, trace, started_ns, context, classes, clock, rings, looks: 0, is_full: false }
    }

    /// At the beginning of a look: what is older than this can be converted.
    pub(super) fn clock(&mut self, pair: Pair) {
        self.looks += 1;
        self.clock.push(pair);
    }

    pub(super) fn provider(&mut self, info: &ProviderInfo) {
        self.classes.add(info);
        // An endless recording sees any number of processes.
        self.is_full |= self.classes.processes() > PROCESSES_MAX;
        if self.is_full {
            self.classes.forget_others(self.rings.iter().map(|ring| &ring.info));
        }
        for ring in self.rings.iter_mut().filter(|ring| is_of(&ring.info, info)) {
            (ring.is_impatient, ring.waiting) = (false, None);
        }
    }

    /// Gives it a stream, if there is room for one more.
    pub(super) fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.is_full |= self.rings.len() >= STREAMS_MAX;
        if self.is_full {
            return Ok(());
        }
        if self.rings.is_empty() {
            fs::create_dir_all(&self.directory)?;
        }
        let path = self.directory.join(stream_name(self.rings.len()));
        let file = match File::create_new(&path) {
            // The user's limit: the others go into the spool, which is open.
            Err(error) if is_shortage(&error) => {
                self.is_full = true;
                return Ok(());
            }
            made => made?,
        };
        // Numbers are given from the lowest.
        if u64::from(file.as_raw_fd().unsigned_abs()) + FILES_RESERVED >= file_limit() {
            self.is_full = true;
            return fs::remove_file(path);
        }
        self.rings.push(LiveRing {
            info: info.clone(),
            file: Some(file),
            out: None,
            context: Vec::new(),
            lost: info.lost_before,
            lost_written: info.lost_before,
            garbage: 0,
            waiting: None,
            look: 0,
            is_impatient: false,
            has_asked: false,
            scratch: Vec::new(),
        });
        Ok(())
    }

    /// Whether this ring has a stream of its own.
    pub(super) fn has(&self, ring: u32) -> bool {
        (ring as usize) < self.rings.len()
    }

    /// Takes what can be converted now, up to a piece. Gives events and bytes.
    pub(super) fn take(&mut self, number: u32, records: &mut Records<'_>) -> io::Result<(u64, u64)> {
        let Some(ring) = self.rings.get_mut(number as usize) else { return Ok((0, 0)) };
        let none = ProcessClasses::default();
        let of_process = self.classes.of(&ring.info).unwrap_or(&none);
        if let Some(out) = &mut ring.out {
            out.expect_classes(self.classes.all.len());
        }
        (ring.has_asked, ring.look) = (false, self.looks);
        let mut events = 0;
        loop {
            if let (Some(out), true) = (&mut ring.out, ring.lost == ring.lost_written) {
                let stretch = self.clock.stretch(ring.info.clock);
                events += go_on(records, &of_process.plain, stretch, &ring.context, out);
                if out.in_hand() + EVENT_BYTES > WRITE_BYTES {
                    break;
                }
            }
            let Header::Complete { id, end, low } = records.header() else { break };
            let counter = records.sync().map(|sync| sync.complete(low));
            if counter.is_some_and(|counter| self.clock.seek(ring.info.clock, counter)) {
                // The same again, in the next stretch.
                continue;
            }
            match ring.step(&of_process.all, &mut self.clock, self.context, records, (id, end, low)) {
                Step::Later => break,
                Step::On => {}
                Step::Garbage => ring.garbage += 1,
                Step::Event(class, time, used) => {
                    let (classes, begin) = (self.classes.all.len(), time.min(self.started_ns));
                    if ring.out.is_none() {
                        // An earlier collector may have been told the last time.
                        ring.set_context(self.context, records);
                    }
                    ring.begin(&self.directory, number, self.trace, classes, begin)?;
                    let Some(out) = &mut ring.out else { break };
                    out.event(class, MonotonicNs(time), &ring.context, &ring.scratch[..used])?;
                    events += 1;
                }
            }
            records.go_to(end);
        }
        let Some(out) = &mut ring.out else { return Ok((events, 0)) };
        let bytes = out.in_hand() as u64;
        out.flush()?;
        Ok((events, bytes))
    }

    /// Records that were none.
    pub(super) fn garbage(&self) -> u64 {
        self.rings.iter().map(|ring| ring.garbage).sum()
    }

    /// Ends all streams. `lost`: of a ring in all, and its records that were never finished.
    pub(super) fn finish(
        mut self,
        end_ns: u64,
        lost: impl Fn(usize) -> Option<(u64, u64)>,
    ) -> io::Result<Vec<LiveStreamSummary>> {
        let mut came = Vec::new();
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let told = ring.lost - ring.info.lost_before;
            let (in_all, unfinished) = lost(number).unwrap_or((told, 0));
            let rest = in_all.saturating_sub(told).saturating_add(unfinished);
            let lost = in_all.max(told);
            if ring.out.is_none() && rest == 0 && told == 0 {
                // Nothing came of it.
                fs::remove_file(self.directory.join(stream_name(number)))?;
                continue;
            }
            ring.begin(
                &self.directory,
                exact::count(number),
                self.trace,
                self.classes.all.len(),
                self.started_ns,
            )?;
            let Some(mut out) = ring.out.take() else { continue };
            out.lost(rest)?;
            let done = out.finish(MonotonicNs(end_ns))?;
            came.push(LiveStreamSummary { ring: number, done, lost });
        }
        Ok(came)
    }
}

/// The streams that a killed recorder left, without what it had not finished.
pub(super) fn interrupted(trace: &Path, uuid: Uuid) -> Result<Vec<LiveStreamSummary>, Error> {
    let mut came = Vec::new();
    for ring in 0..STREAMS_MAX {
        let path = trace.join(stream_name(ring));
        if !path.exists() {
            continue;
        }
        let (done, lost) = UserStreamSummary::of_interrupted(&path, exact::count(ring), uuid)?;
        if done.packets == 0 {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            continue;
        }
        came.push(LiveStreamSummary { ring, done, lost });
    }
    Ok(came)
}

/// Removes what a conversion wrote that came to nothing.
pub(super) fn remove_others(trace: &Path) {
    let names: Vec<String> = (0..STREAMS_MAX).map(stream_name).collect();
    for entry in fs::read_dir(trace).into_iter().flatten().flatten() {
        if !names.iter().any(|name| entry.file_name() == **name) {
            // Who cannot remove it will not be able to make it anew, and says so.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn stream_name(ring: usize) -> String {
    format!("user_{ring}")
}

fn is_of(ring: &RingInfo, provider: &ProviderInfo) -> bool {
    (ring.uid, ring.pid, ring.birth_ns) == (provider.uid, provider.pid, provider.birth_ns)
}

/// How many files this process may have open.
fn file_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(limit, _)| limit)
}

impl LiveRing {
    /// Looks at a complete record; of an event, the payload is in `scratch` then.
    fn step(
        &mut self,
        known: &[Option<KnownEvent>],
        clock: &mut LiveClock,
        context: UserContext,
        records: &mut Records<'_>,
        (id, end, low): (u32, u64, u64),
    ) -> Step {
        if let Some(lost) = records.read_sync(id, end) {
            self.lost = self.lost.max(lost);
            self.set_context(context, records);
            return Step::On;
        }
        if id == abi::RTU_ID_PADDING {
            return Step::On;
        }
        let Some(sync) = records.sync().filter(|_| id < abi::RTU_EVENTS_MAX) else { return Step::Garbage };
        let Some(known) = known.get(id as usize).and_then(Option::as_ref) else {
            return if self.is_patient(records) { Step::Later } else { Step::Garbage };
        };
        records.copy_payload(end, &mut self.scratch);
        let (used, counter) = (known.payload_bytes(&self.scratch), sync.complete(low));
        let mut when = clock.when(self.info.clock, counter, records.is_final());
        if when == EventTime::Never && !std::mem::replace(&mut self.has_asked, true) {
            // Or the collector was kept from running since it took the last pair.
            clock.push(Pair::now(counter_kind()));
            when = clock.when(self.info.clock, counter, records.is_final());
        }
        match (when, used) {
            (EventTime::Later, _) => Step::Later,
            (EventTime::At(time), Some(used)) => Step::Event(known.class, time, used),
            _ => Step::Garbage,
        }
    }

    /// For an event that comes now: begins the stream if it is the first, and tells what was lost before.
    fn begin(
        &mut self,
        directory: &Path,
        number: u32,
        trace: Uuid,
        classes: usize,
        begin_ns: u64,
    ) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            let path = directory.join(stream_name(number as usize));
            let begin = MonotonicNs(begin_ns);
            self.out = Some(UserStreamWriter::in_file(file, path, number, trace, classes, begin));
        }
        if let (Some(out), true) = (&mut self.out, self.lost > self.lost_written) {
            out.lost(self.lost - self.lost_written)?;
            self.lost_written = self.lost;
        }
        Ok(())
    }

    fn set_context(&mut self, wanted: UserContext, records: &Records<'_>) {
        let cpu = records.sync().map_or(abi::RTU_CPU_UNKNOWN, |sync| sync.cpu);
        self.context.clear();
        wanted.encode(self.info.pid, self.info.tid, &self.info.comm, cpu, &mut self.context);
    }

    fn is_patient(&mut self, records: &Records<'_>) -> bool {
        let position = records.position();
        let before = self.waiting.filter(|(waiting, ..)| *waiting == position);
        let (_, since, look) = before.unwrap_or_else(|| (position, Instant::now(), self.look));
        self.waiting = Some((position, since, look));
        // Not in the look that sees it first: files have not been looked for since it came.
        let is_filling = look != self.look && records.bytes() > self.info.layout.ring_bytes / 2;
        self.is_impatient |= records.is_final() || is_filling || since.elapsed() >= PATIENCE;
        !self.is_impatient
    }
}

/// Takes the events that follow, as long as there is nothing to be said about them: payloads of one size, in the time between two
/// pairs of the clock. Nearly all events of nearly all programs are taken here.
fn go_on(
    records: &mut Records<'_>,
    plain: &[FixedSizeEvent],
    stretch: Stretch,
    context: &[u8],
    out: &mut UserStreamWriter,
) -> u64 {
    let Some(sync) = records.sync() else { return 0 };
    let (tag, words, times) = (records.tag(), records.words(), stretch.times(sync));
    let next = |at: usize| {
        // ORDER: acquire; pairs with the release in rtscope__commit(): the payload is there.
        let word = words.get(at)?.load(Ordering::Acquire);
        if word & Layout::TAG != tag {
            return None;
        }
        let FixedSizeEvent { class, bytes } = *plain.get((word & 0xffff) as usize)?;
        let end = at + (word >> 24 & 0x3ff) as usize;
        let payload = words.get(at + 1..end)?;
        let (bytes, time) = (bytes as usize, times.monotonic_ns(word >> abi::RTU_TIME_SHIFT)?);
        // ORDER: relaxed; the acquire of the word covers them.
        let words = payload.iter().map(|word| word.load(Ordering::Relaxed));
        let event = PlainEvent { class, time: MonotonicNs(time), words, bytes };
        (bytes <= payload.len() * 8).then_some((event, end))
    };
    let (events, taken) = out.run(WRITE_BYTES, context, next);
    records.go_to(records.position() + taken as u64 * 8);
    events
}
