// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events become a trace while they are recorded: records are converted where they lie, and written once.
//!
//! A stream for each ring, as long as there are few: nothing has to be merged, so no event waits for another thread's. Each
//! poll of a ring adds to its stream's packet, whose head is written last, and classes are declared before their events are there: a
//! kill leaves a trace, and so can be read what is being written (`rtscope_ctf`, `write/followed.rs` and `growing.rs`). Only events before the newest pair of the clock are taken, so times lie between two pairs, as in a
//! conversion after the recording.

use super::classes::{Classes, FixedSizeEvent, PlainEvents, ProcessClasses};
use super::spool::UserSpoolDescription;
use crate::Error;
use nix::sys::resource::{Resource, getrlimit};
use rtscope_abi::program as abi;
use rtscope_ctf::{
    PlainEvent, TraceInfo, UserClass, UserContext, UserMetadata, UserStreamSummary, UserStreamWriter,
};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::{self, low_half};
use rtscope_programs::ProviderInfo;
use rtscope_programs::RingInfo;
use rtscope_programs::clock::{EventTime, LiveClock, Pair, Stretch, counter_kind, without_offset};
use rtscope_programs::collector::{Looks, Records};
use rtscope_programs::is_shortage;
use rtscope_programs::records::{Header, Layout};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Rings with their own stream. The reader opens each.
pub(super) const STREAMS_MAX: usize = 64;
/// Processes that have described something, and may get a stream.
const PROCESSES_MAX: usize = 8192;
/// Bytes converted before they are written: as much as stays in the second-level cache.
const WRITE_BYTES: usize = 128 << 10;
/// The largest event, with its context.
const EVENT_BYTES: usize = 9 << 10;
/// Files that the collector must be able to open besides streams: rings, while they are mapped, and those of /proc.
const FILES_RESERVED: u64 = 48;
/// How long to wait for an event's description. Its file is there before the event, but may be found later.
const PATIENCE: Duration = Duration::from_secs(1);

/// A trace being written.
#[derive(Debug)]
pub(super) struct Live {
    directory: PathBuf,
    info: TraceInfo,
    started_ns: u64,
    context: UserContext,
    /// As of the first ring.
    metadata: Option<UserMetadata>,
    classes: Classes,
    clock: LiveClock,
    rings: Vec<LiveRing>,
    /// For new files, so far.
    looks: Looks,
    /// A ring that fills up waits for a description, since the beginning of this poll.
    needs_look: bool,
    /// Whether no further ring gets a stream.
    is_full: bool,
}

#[derive(Debug)]
struct LiveRing {
    info: RingInfo,
    /// Its process's events whose payloads have one size.
    plain: PlainEvents,
    /// The file, until its first event comes.
    file: Option<File>,
    out: Option<UserStreamWriter>,
    /// The encoded context of events now, and its CPU.
    context: Vec<u8>,
    /// Losses reported so far; and those written into the trace.
    lost: u64,
    lost_written: u64,
    garbage: u64,
    /// Since when the description of the event at a position has been awaited, and the look that finds it if it is there.
    waiting: Option<(u64, Instant, u64)>,
    looks: Looks,
    /// It waits, and fills up.
    needs_look: bool,
    /// A description did not come: none is awaited any more, or a lying program could delay its ring by each event. Until its process
    /// describes more.
    is_impatient: bool,
    /// This poll has read the clock, because its last pair was old.
    has_asked: bool,
    scratch: Vec<u8>,
}

/// Summary of a ring's stream.
#[derive(Debug)]
pub(super) struct LiveStreamSummary {
    pub(super) ring: usize,
    pub(super) done: UserStreamSummary,
    pub(super) lost: u64,
}

/// What was written while it was recorded.
#[derive(Debug)]
pub(super) struct LiveTrace {
    pub(super) streams: Vec<LiveStreamSummary>,
    /// `None`: no ring had a stream.
    pub(super) metadata: Option<UserMetadata>,
}

/// What to do with the current record.
enum Step {
    /// Write an event: its class, time, and the size of its payload.
    Event(u32, u64, usize),
    /// Skip it: it is not an event.
    Skip,
    Garbage,
    Later,
}

impl Live {
    pub(super) fn new(directory: PathBuf, description: &UserSpoolDescription) -> Live {
        let (info, context) = (description.info(), description.context());
        let started_ns = description.started_ns;
        let (classes, clock, rings) = (Classes::default(), LiveClock::default(), Vec::new());
        Live {
            directory,
            info,
            started_ns,
            context,
            metadata: None,
            classes,
            clock,
            rings,
            looks: Looks::default(),
            needs_look: false,
            is_full: false,
        }
    }

    /// A poll begins.
    pub(super) fn begin(&mut self, looks: Looks) {
        (self.looks, self.needs_look) = (looks, false);
    }

    /// Older events can be converted.
    pub(super) fn clock(&mut self, pair: Pair) {
        self.clock.push(pair);
    }

    pub(super) fn provider(&mut self, info: &ProviderInfo) {
        self.classes.add(info);
        // An endless recording can see any number of processes.
        self.is_full |= self.classes.processes() > PROCESSES_MAX;
        if self.is_full {
            self.classes.forget_others(self.rings.iter().map(|ring| &ring.info));
        }
        for ring in self.rings.iter_mut().filter(|ring| is_of(&ring.info, info)) {
            (ring.is_impatient, ring.waiting) = (false, None);
            ring.plain = self.classes.of(&ring.info).map(ProcessClasses::plain).unwrap_or_default();
        }
    }

    /// Gives a ring a stream, if the limit allows one more.
    pub(super) fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.is_full |= self.rings.len() >= STREAMS_MAX;
        if self.is_full {
            return Ok(());
        }
        if self.metadata.is_none() {
            fs::create_dir_all(&self.directory)?;
            let metadata = UserMetadata::create(&self.directory, self.context, &self.info);
            let mut metadata = metadata.map_err(io::Error::other)?;
            metadata.publish()?;
            self.metadata = Some(metadata);
        }
        let path = self.directory.join(stream_name(self.rings.len()));
        let file = match File::create_new(&path) {
            // The limit of open files is reached: other rings go into the spool, which is open already.
            Err(error) if is_shortage(&error) => {
                self.is_full = true;
                return Ok(());
            }
            made => made?,
        };
        // The kernel assigns the lowest free number.
        if u64::from(file.as_raw_fd().unsigned_abs()) + FILES_RESERVED >= file_limit() {
            self.is_full = true;
            return fs::remove_file(path);
        }
        self.rings.push(LiveRing {
            info: info.clone(),
            plain: self.classes.of(info).map(ProcessClasses::plain).unwrap_or_default(),
            file: Some(file),
            out: None,
            context: Vec::new(),
            lost: info.lost_before,
            lost_written: info.lost_before,
            garbage: 0,
            waiting: None,
            looks: Looks::default(),
            needs_look: false,
            is_impatient: false,
            has_asked: false,
            scratch: Vec::new(),
        });
        Ok(())
    }

    /// Whether this ring has its own stream.
    pub(super) fn has(&self, ring: u32) -> bool {
        (ring as usize) < self.rings.len()
    }

    /// Takes the records that can be converted now, up to a limit. Returns events and bytes.
    pub(super) fn take(&mut self, number: u32, records: &mut Records<'_>) -> io::Result<(u64, u64)> {
        let Some(ring) = self.rings.get_mut(number as usize) else { return Ok((0, 0)) };
        let Some(metadata) = &mut self.metadata else { return Ok((0, 0)) };
        let none = ProcessClasses::default();
        let of_process = self.classes.of(&ring.info).unwrap_or(&none);
        if let Some(out) = &mut ring.out {
            out.expect_classes(self.classes.all.len());
            metadata.declare(out.class(), &self.classes.all)?;
        }
        (ring.has_asked, ring.needs_look, ring.looks) = (false, false, self.looks);
        let mut events = 0;
        loop {
            if let (Some(out), true) = (&mut ring.out, ring.lost == ring.lost_written) {
                let stretch = self.clock.stretch(ring.info.clock, ring.info.clock_offset_ns);
                events += go_on(records, &ring.plain, stretch, &ring.context, out);
                if out.in_hand() + EVENT_BYTES > WRITE_BYTES {
                    break;
                }
            }
            let Header::Complete { id, end, low } = records.header() else { break };
            let counter = records.sync().map(|sync| sync.complete(low));
            if counter.is_some_and(|counter| self.clock.seek(ring.info.clock, counter)) {
                // The same record again, in the next stretch.
                continue;
            }
            match ring.step(of_process, &mut self.clock, self.context, records, (id, end, low)) {
                Step::Later => {
                    self.needs_look |= ring.needs_look;
                    break;
                }
                Step::Skip => {}
                Step::Garbage => ring.garbage += 1,
                Step::Event(class, time, used) => {
                    let begin = time.min(self.started_ns);
                    if ring.out.is_none() {
                        // An earlier collector may have taken the last sync record.
                        ring.set_context(self.context, records);
                    }
                    let trace = (self.directory.as_path(), self.info.trace_uuid);
                    ring.begin(trace, number, (metadata, &self.classes.all), begin)?;
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

    /// Whether a ring that fills up waits for a description.
    pub(super) fn needs_look(&self) -> bool {
        self.needs_look
    }

    /// Number of invalid records.
    pub(super) fn garbage(&self) -> u64 {
        self.rings.iter().map(|ring| ring.garbage).sum()
    }

    /// Ends all streams. `lost`: a ring's losses in all, and its records that were never finished.
    pub(super) fn finish(
        mut self,
        end_ns: u64,
        lost: impl Fn(usize) -> Option<(u64, u64)>,
    ) -> io::Result<LiveTrace> {
        let mut came = Vec::new();
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let Some(metadata) = &mut self.metadata else { break };
            let told = ring.lost - ring.info.lost_before;
            let (in_all, unfinished) = lost(number).unwrap_or((told, 0));
            let rest = in_all.saturating_sub(told).saturating_add(unfinished);
            let lost = in_all.max(told);
            if ring.out.is_none() && rest == 0 && told == 0 {
                // It has no event and no loss.
                fs::remove_file(self.directory.join(stream_name(number)))?;
                continue;
            }
            let trace = (self.directory.as_path(), self.info.trace_uuid);
            ring.begin(trace, exact::count(number), (metadata, &self.classes.all), self.started_ns)?;
            let Some(mut out) = ring.out.take() else { continue };
            out.lost(rest)?;
            let done = out.finish(MonotonicNs(end_ns))?;
            came.push(LiveStreamSummary { ring: number, done, lost });
        }
        Ok(LiveTrace { streams: came, metadata: self.metadata })
    }
}

/// The streams of a killed recorder, without its unfinished packets.
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

/// Removes the files of a failed conversion.
pub(super) fn remove_others(trace: &Path) -> Result<(), Error> {
    if !fs::symlink_metadata(trace).map_or(true, |found| found.is_dir()) {
        return Err(Error::broken(trace, "it is not a directory; no recording makes that"));
    }
    // The metadata of what was recorded is replaced when the new one is complete.
    let names: Vec<String> = (0..STREAMS_MAX).map(stream_name).chain(["metadata".to_string()]).collect();
    for entry in fs::read_dir(trace).into_iter().flatten().flatten() {
        if !names.iter().any(|name| entry.file_name() == **name) {
            // If it cannot be removed, making it anew fails, too, and reports that.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn stream_name(ring: usize) -> String {
    format!("user_{ring}")
}

fn is_of(ring: &RingInfo, provider: &ProviderInfo) -> bool {
    (ring.uid, ring.pid, ring.birth_ns) == (provider.uid, provider.pid, provider.birth_ns)
}

/// The limit of open files of this process.
fn file_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(limit, _)| limit)
}

impl LiveRing {
    /// Decodes a complete record; an event's payload is in `scratch` afterwards.
    fn step(
        &mut self,
        known: &ProcessClasses,
        clock: &mut LiveClock,
        context: UserContext,
        records: &mut Records<'_>,
        (id, end, low): (u32, u64, u64),
    ) -> Step {
        if let Some(lost) = records.read_sync(id, end) {
            self.lost = self.lost.max(lost);
            self.set_context(context, records);
            return Step::Skip;
        }
        if id == abi::RTU_ID_PADDING {
            return Step::Skip;
        }
        let Some(sync) = records.sync().filter(|_| id < abi::RTU_EVENTS_MAX) else { return Step::Garbage };
        let Some(known) = known.event(id) else {
            if known.is_undescribed(id) {
                return Step::Skip;
            }
            return if self.is_patient(records) { Step::Later } else { Step::Garbage };
        };
        records.copy_payload(end, &mut self.scratch);
        let (used, counter) = (known.payload_bytes(&self.scratch), sync.complete(low));
        let counter = without_offset(counter, self.info.clock_offset_ns);
        let mut when = clock.when(self.info.clock, counter, records.is_final());
        if when == EventTime::Never && !std::mem::replace(&mut self.has_asked, true) {
            // Or the collector did not run since it took the last pair.
            clock.push(Pair::now(counter_kind()));
            when = clock.when(self.info.clock, counter, records.is_final());
        }
        match (when, used) {
            (EventTime::Later, _) => Step::Later,
            (EventTime::At(time), Some(used)) => Step::Event(known.class, time, used),
            _ => Step::Garbage,
        }
    }

    /// Prepares writing an event: begins the stream if it is the first, and writes losses before it.
    fn begin(
        &mut self,
        (directory, trace): (&Path, Uuid),
        number: u32,
        (metadata, classes): (&mut UserMetadata, &[UserClass]),
        begin_ns: u64,
    ) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            let path = directory.join(stream_name(number as usize));
            let begin = MonotonicNs(begin_ns);
            let out = UserStreamWriter::in_file(file, path, number, trace, classes.len(), begin);
            metadata.declare(out.class(), classes)?;
            self.out = Some(out);
        }
        if let (Some(out), true) = (&mut self.out, self.lost > self.lost_written) {
            out.lost(self.lost - self.lost_written)?;
            self.lost_written = self.lost;
        }
        Ok(())
    }

    fn set_context(&mut self, requested: UserContext, records: &Records<'_>) {
        let cpu = records.sync().map_or(abi::RTU_CPU_UNKNOWN, |sync| sync.cpu);
        self.context.clear();
        requested.encode(self.info.pid, self.info.tid, &self.info.comm, cpu, &mut self.context);
    }

    fn is_patient(&mut self, records: &Records<'_>) -> bool {
        let position = records.position();
        let before = self.waiting.filter(|(waiting, ..)| *waiting == position);
        let (_, since, look) = before.unwrap_or_else(|| (position, Instant::now(), self.looks.asked + 1));
        self.waiting = Some((position, since, look));
        let is_filling = records.bytes() > self.info.layout.ring_bytes / 2;
        // The file was there before the event: what a look that began after it was seen has not found will not come.
        let is_answered = self.looks.answered >= look;
        self.needs_look = is_filling && !is_answered;
        self.is_impatient |= records.is_final() || is_filling && is_answered || since.elapsed() >= PATIENCE;
        !self.is_impatient
    }
}

/// Takes the events that follow, as long as they are simple: payloads of one size, in the time between two pairs of the clock.
/// Nearly all events of nearly all programs are taken here.
fn go_on(
    records: &mut Records<'_>,
    plain: &PlainEvents,
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
        let FixedSizeEvent { class, bytes } = plain.get(low_half(word) & 0xffff)?;
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
