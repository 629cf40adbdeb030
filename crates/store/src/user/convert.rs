// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spool to trace.
//!
//! Rings are divided among a fixed number of streams; within a stream they are merged by time. Streams are independent, so all
//! cores work. Each record is checked against its event's description before it becomes an event: the bytes are a program's.

use super::classes::{Classes, EventLookup, ProcessClasses};
use super::end::undescribed;
use super::live;
use super::spool::{ChunkPlace, RingEnd, SPOOL, UserSpool};
use crate::Error;
use rtscope_abi::program as abi;
use rtscope_ctf::{
    Evidence, Selection, TraceSet, UserContext, UserMetadata, UserStreamSummary, UserStreamWriter,
    UserTraceWriter, count,
};
use rtscope_event::exact::{self, index};
use rtscope_event::{Loss, LossCause, MonotonicNs};
use rtscope_programs::RingInfo;
use rtscope_programs::budget::Refusal;
use rtscope_programs::clock::{AHEAD_NS, Conversion, with_rate, without_offset};
use rtscope_programs::clock_watch::ClockReport;
use rtscope_programs::records::{Decoder, Header, Record};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a ring that are in memory at a time, at most: whole chunks are, and they are no larger than a ring.
const STREAMS_MAX: usize = 16;

/// How to convert.
#[derive(Clone, Copy, Default)]
pub struct UserOptions<'a> {
    /// Streams, and threads; 0: one for each CPU that this process may use, at most 16.
    pub streams: usize,
    /// Only events in this window; others are left out, and do not count as lost.
    pub window: Option<(MonotonicNs, MonotonicNs)>,
    /// Receives bytes done and bytes in all, from any of the threads.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct UserConversionSummary {
    /// Number of events.
    pub events: u64,
    /// Events by name.
    pub by_event: BTreeMap<String, u64>,
    /// Losses by cause.
    pub losses: Vec<Loss>,
    /// Size of the trace.
    pub bytes: u64,
    /// Size of the records in the spool.
    pub spool_bytes: u64,
    /// Beginning of the trace.
    pub from: MonotonicNs,
    /// End of the trace; `None` without an orderly end of the recording.
    pub until: Option<MonotonicNs>,
    /// Events that were out of order and got the time of the previous event.
    pub moved: u64,
    /// Threads that recorded.
    pub rings: usize,
    /// How far a counter's value may be from CLOCK_MONOTONIC: median, 99th percentile, largest, in ns.
    pub clock_error_ns: Option<(u64, u64, u64)>,
    /// How often threads waited for space.
    pub waits: u64,
    /// The kernel's clock, and what made times wrong.
    pub clock: ClockReport,
    /// Remarks about single programs.
    pub remarks: Vec<String>,
    /// What was left out of users, and why.
    pub refused: Vec<Refusal>,
}

/// Makes the trace `target` of a spool, and then removes the spool.
///
/// # Errors
/// When `target` exists or the system refuses (a full disk): the spool is left as it was.
pub fn convert_user(
    mut spool: UserSpool,
    target: &Path,
    options: &UserOptions<'_>,
) -> Result<UserConversionSummary, Error> {
    live::remove_others(&spool.trace())?;
    let metadata = spool.live.as_mut().and_then(|live| live.metadata.take());
    let result = Conversions::new(&spool).and_then(|all| all.run(target, metadata, options));
    if result.is_err() {
        live::remove_others(&spool.trace())?;
    }
    match result {
        Ok(converted) => spool.remove().map(|()| converted),
        Err(error) if error.is_no_room() => {
            Err(Error::DiskFull { spool: spool.directory.shown.clone(), target: target.to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// The parts of a conversion that are the same for all streams.
struct Conversions<'a> {
    spool: &'a UserSpool,
    classes: Classes,
    clock: Conversion,
    context: UserContext,
    /// No program can have recorded anything later.
    latest_ns: u64,
    total: u64,
    done: AtomicU64,
}

/// The result of one stream.
#[derive(Default)]
struct StreamSummary {
    done: UserStreamSummary,
    /// Losses with a known place, by ring.
    lost: HashMap<usize, u64>,
    garbage: u64,
}

impl<'a> Conversions<'a> {
    fn new(spool: &'a UserSpool) -> Result<Conversions<'a>, Error> {
        let mut classes = Classes::default();
        spool.providers.iter().for_each(|provider| classes.add(provider));
        let context = spool.description.context();
        let total = spool.data.iter().map(|chunk| chunk.bytes).sum();
        // One that was killed just after its start is recovered while the machine still knows the rate of its counter.
        let pairs = spool.pairs.clone();
        let has_rate = spool.end.is_some() || !spool.description.is_of_this_boot();
        let clock = Conversion::new(if has_rate { pairs } else { with_rate(pairs) });
        let last = spool.pairs.iter().map(|pair| pair.monotonic_ns).max();
        let last =
            last.max(spool.end.as_ref().map(|end| end.ended_ns)).max(Some(spool.description.started_ns));
        let latest_ns = last.unwrap_or(0).saturating_add(AHEAD_NS);
        Ok(Conversions { spool, classes, clock, context, latest_ns, total, done: AtomicU64::new(0) })
    }

    fn run(
        &self,
        target: &Path,
        metadata: Option<UserMetadata>,
        options: &UserOptions<'_>,
    ) -> Result<UserConversionSummary, Error> {
        let description = &self.spool.description;
        let interrupted;
        let live = match &self.spool.live {
            Some(live) => &live.streams,
            None => {
                interrupted = live::interrupted(&self.spool.trace(), description.trace())?;
                &interrupted
            }
        };
        let (trace, classes, info) = (self.spool.trace(), self.classes.all.clone(), description.info());
        let writer = match metadata {
            Some(metadata) => UserTraceWriter::resume(&trace, target, classes, metadata, info)?,
            None => UserTraceWriter::create(&trace, target, classes, self.context, info)?,
        };
        let available = std::thread::available_parallelism().map_or(1, usize::from).min(STREAMS_MAX);
        let count = if options.streams == 0 { available } else { options.streams };
        let count = if self.spool.data.is_empty() && !live.is_empty() { 0 } else { count };
        let results: Vec<Result<StreamSummary, Error>> = std::thread::scope(|scope| {
            let work = |number: usize| self.stream(number, count, &writer, options);
            let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
            let gone = || Err(Error::broken(&self.spool.directory.shown, "a thread ended too early"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
        });
        let mut streams = results.into_iter().collect::<Result<Vec<StreamSummary>, Error>>()?;
        streams.extend(live.iter().map(|live| StreamSummary {
            done: live.done.clone(),
            // An orderly end has more complete counts than the streams.
            lost: HashMap::from([(live.ring, self.ring_end(live.ring).map_or(live.lost, |(lost, _)| lost))]),
            // The spool's end has this count, including rings without any event.
            garbage: 0,
        }));
        self.finish(writer, target, &streams)
    }

    /// One stream: every `count`th ring from `number` on.
    fn stream(
        &self,
        number: usize,
        count: usize,
        writer: &UserTraceWriter,
        options: &UserOptions<'_>,
    ) -> Result<StreamSummary, Error> {
        let mut rings: BTreeMap<usize, Vec<ChunkPlace>> = BTreeMap::new();
        for chunk in &self.spool.data {
            let ring = index(chunk.index);
            if ring % count == number {
                rings.entry(ring).or_default().push(*chunk);
            }
        }
        let mut merge = Merge::default();
        let mut came = StreamSummary::default();
        for (ring, chunks) in rings {
            let mut reader = RingReader::new(self, ring, chunks);
            if let Some(time) = reader.advance(self, options).map_err(|error| self.reading(error))? {
                merge.waiting.push(Reverse((time, merge.readers.len())));
            }
            merge.readers.push(reader);
        }
        let first =
            merge.waiting.peek().map_or(self.spool.description.started_ns, |Reverse((time, _))| *time);
        // A ring may hold events from before the recording, left by a collector that was killed.
        let begin = options.window.map_or(first.min(self.spool.description.started_ns), |(from, _)| from.0);
        let mut out = writer.stream(exact::count(live::STREAMS_MAX + number), MonotonicNs(begin))?;
        let path = out.path().to_owned();
        merge.run(self, options, &mut out, &path)?;
        let end = self.spool.end.as_ref();
        for reader in &merge.readers {
            let told = reader.lost.saturating_sub(reader.lost_before);
            let (in_all, unfinished) = self.ring_end(reader.ring).unwrap_or((told, 0));
            let rest = in_all.saturating_sub(told).saturating_add(unfinished);
            out.lost(rest).map_err(Error::io("write", &path))?;
            came.lost.insert(reader.ring, in_all.max(told));
            came.garbage += reader.garbage;
        }
        let until = end.map_or(self.spool.description.started_ns, |end| end.ended_ns);
        came.done = out.finish(MonotonicNs(until)).map_err(Error::io("write", &path))?;
        Ok(came)
    }

    /// A ring's counts, if something is known: lost in all, and never finished.
    fn ring_end(&self, ring: usize) -> Option<RingEnd> {
        self.spool.ends.get(&exact::count(ring)).copied()
    }

    fn reading(&self, error: io::Error) -> Error {
        Error::io("read", &self.spool.directory.shown.join(SPOOL))(error)
    }

    fn read_more(&self, bytes: u64, options: &UserOptions<'_>) {
        // ORDER: relaxed; a sum for the progress display.
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(progress) = options.progress {
            progress(done.min(self.total), self.total);
        }
    }

    fn finish(
        &self,
        writer: UserTraceWriter,
        target: &Path,
        streams: &[StreamSummary],
    ) -> Result<UserConversionSummary, Error> {
        let end = self.spool.end.as_ref();
        let mut converted = UserConversionSummary {
            from: MonotonicNs(self.spool.description.started_ns),
            until: end.map(|end| MonotonicNs(end.ended_ns)),
            spool_bytes: self.total,
            rings: self.spool.rings.len(),
            waits: end.map_or(0, |end| end.waits),
            clock_error_ns: self.clock.error_ns(),
            clock: end.map_or_else(|| self.clock.report(), |end| end.clock.clone()),
            remarks: undescribed(&self.spool.providers)
                .into_iter()
                .chain(end.into_iter().flat_map(|end| end.remarks.iter().cloned()))
                .collect(),
            refused: end.map(|end| end.refused.clone()).unwrap_or_default(),
            ..UserConversionSummary::default()
        };
        for stream in streams {
            converted.moved += stream.done.moved;
            for (class, count) in
                self.classes.all.iter().zip(&stream.done.counts).filter(|(_, count)| **count > 0)
            {
                *converted.by_event.entry(class.event.name.clone()).or_default() += count;
                converted.events += count;
            }
        }
        converted.losses = self.losses(streams);
        let mut extra = Vec::new();
        if let Some((median, p99, worst)) = converted.clock_error_ns {
            let text = format!("median={median} p99={p99} max={worst}");
            extra.push(("rtscope_clock_error_ns".to_string(), text));
        }
        let problems = converted.clock.problems.iter().enumerate();
        extra.extend(
            converted.clock.source.iter().map(|source| ("rtscope_clock_source".to_string(), source.clone())),
        );
        extra.extend(
            problems.map(|(at, problem)| (format!("rtscope_clock_problem_{at}"), problem.sentence())),
        );
        for (number, remark) in converted.remarks.iter().enumerate().take(100) {
            extra.push((format!("rtscope_remark_{number}"), remark.clone()));
        }
        let evidence = Evidence { losses: &converted.losses, history: &[], by_event: &[] };
        let done: Vec<UserStreamSummary> = streams.iter().map(|stream| stream.done.clone()).collect();
        converted.bytes = writer.finish(&evidence, &extra, &done)?;
        if self.spool.live.is_none() && streams.iter().any(|stream| stream.done.counts.is_empty()) {
            converted.by_event = events_in(target)?;
            converted.events = converted.by_event.values().sum();
        }
        Ok(converted)
    }

    fn losses(&self, streams: &[StreamSummary]) -> Vec<Loss> {
        let full = streams
            .iter()
            .flat_map(|stream| stream.lost.values())
            .fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        let end = self.spool.end.as_ref();
        let garbage: u64 = streams.iter().map(|stream| stream.garbage).sum();
        let garbage = garbage.saturating_add(end.map_or(0, |end| end.unreadable));
        // Rings from which nothing was taken at all.
        let merged: HashSet<usize> = streams.iter().flat_map(|stream| stream.lost.keys().copied()).collect();
        let silent = self.spool.ends.iter().filter(|(ring, _)| !merged.contains(&(**ring as usize)));
        let silent = silent.fold(0, |sum: u64, (_, (lost, _))| sum.saturating_add(*lost));
        let unfinished = self.spool.ends.values();
        let unfinished = unfinished.fold(0, |sum: u64, (_, unfinished)| sum.saturating_add(*unfinished));
        let counts = [
            (LossCause::BufferFull, full.saturating_add(silent)),
            (LossCause::Unfinished, unfinished),
            (LossCause::Unreadable, garbage),
            (LossCause::NoBuffer, end.map_or(0, |end| end.lost_no_buffer)),
            (LossCause::TooLarge, end.map_or(0, |end| end.lost_too_large)),
        ];
        let mut losses: Vec<Loss> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| Loss { cpu: None, cause, count: Some(count) })
            .collect();
        if end.is_some_and(|end| end.untraced > 0) {
            // They had no buffer, and nothing that counts.
            losses.push(Loss { cpu: None, cause: LossCause::NoBuffer, count: None });
        }
        if end.is_some_and(|end| end.dropped > 0 || !end.refused.is_empty()) {
            losses.push(Loss { cpu: None, cause: LossCause::Refused, count: None });
        }
        if self.spool.providers.iter().any(|provider| !provider.descriptions.undescribed.is_empty()) {
            // The collector switched them off.
            losses.push(Loss { cpu: None, cause: LossCause::Undescribed, count: None });
        }
        if end.is_none() {
            // The losses that an orderly end would have reported.
            losses.push(Loss { cpu: None, cause: LossCause::Discarded, count: None });
        }
        losses
    }
}

/// Events of a trace, by name.
fn events_in(trace: &Path) -> Result<BTreeMap<String, u64>, Error> {
    let set = TraceSet::open(trace)?;
    let counts = count(&set, &Selection::default(), &|_| ());
    let mut events = BTreeMap::new();
    for (stream, found) in set.streams.iter().zip(&counts.streams) {
        for (event, number) in found.events.iter().enumerate().filter(|(_, number)| **number > 0) {
            *events.entry(set.event_name(stream, event).to_string()).or_default() += number;
        }
    }
    Ok(events)
}

/// Merges the rings of a stream, the one with the oldest event first.
#[derive(Default)]
struct Merge<'a> {
    readers: Vec<RingReader<'a>>,
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Merge<'a> {
    fn run(
        &mut self,
        all: &'a Conversions<'_>,
        options: &UserOptions<'_>,
        out: &mut UserStreamWriter,
        path: &Path,
    ) -> Result<(), Error> {
        let mut context = Vec::new();
        while let Some(Reverse((_, index))) = self.waiting.pop() {
            let next = self.waiting.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
            let reader = &mut self.readers[index];
            loop {
                let wanted =
                    |(from, until): (MonotonicNs, MonotonicNs)| (from.0..=until.0).contains(&reader.time);
                if options.window.is_none_or(wanted) {
                    // Not for each event: it copies the path.
                    reader.write(all, out, &mut context).map_err(|error| Error::io("write", path)(error))?;
                }
                if options.window.is_none() {
                    let went = reader.go_on(next, &context, out);
                    went.map_err(|error| Error::io("write", path)(error))?;
                }
                match reader.advance(all, options).map_err(|error| all.reading(error))? {
                    // Usually the same ring has several events in a row: no need to use the heap.
                    Some(time) if time <= next => {}
                    Some(time) => {
                        self.waiting.push(Reverse((time, index)));
                        break;
                    }
                    None => break,
                }
            }
        }
        Ok(())
    }
}

/// Reads one ring's chunks.
struct RingReader<'a> {
    ring: usize,
    info: &'a RingInfo,
    known: EventLookup<'a>,
    decoder: Decoder,
    clock: Conversion,
    is_monotonic: bool,
    /// Later times are wrong: readers would end there.
    latest_ns: u64,
    chunks: std::vec::IntoIter<ChunkPlace>,
    bytes: Vec<u8>,
    at: usize,
    position: u64,
    /// The current event: its payload in `bytes`.
    time: u64,
    class: u32,
    cpu: u32,
    payload: std::ops::Range<usize>,
    /// Losses reported so far, in all; and those written into the trace.
    lost: u64,
    lost_before: u64,
    lost_written: u64,
    garbage: u64,
}

impl<'a> RingReader<'a> {
    fn new(all: &'a Conversions<'_>, ring: usize, chunks: Vec<ChunkPlace>) -> RingReader<'a> {
        let info = &all.spool.rings[ring];
        RingReader {
            ring,
            info,
            known: all.classes.of(info).map(ProcessClasses::lookup).unwrap_or_default(),
            decoder: Decoder::new(info.layout, info.sync),
            clock: all.clock.clone(),
            is_monotonic: info.clock == abi::RTU_CLOCK_MONOTONIC,
            latest_ns: all.latest_ns,
            chunks: chunks.into_iter(),
            bytes: Vec::new(),
            at: 0,
            position: 0,
            time: 0,
            class: 0,
            cpu: abi::RTU_CPU_UNKNOWN,
            payload: 0..0,
            lost: info.lost_before,
            lost_before: info.lost_before,
            lost_written: info.lost_before,
            garbage: 0,
        }
    }

    /// Goes to the next event and returns its time; `None`: there is none.
    fn advance(&mut self, all: &Conversions<'_>, options: &UserOptions<'_>) -> io::Result<Option<u64>> {
        loop {
            let Some((record, length)) = self.decoder.next(self.position, &self.bytes[self.at..]) else {
                if self.at < self.bytes.len() {
                    self.garbage += 1;
                }
                if !self.next_chunk(all, options)? {
                    return Ok(None);
                }
                continue;
            };
            let begin = self.at + 8;
            self.at += length;
            self.position += length as u64;
            match record {
                None => {}
                Some(Record::Lost(lost)) => self.lost = self.lost.max(lost),
                Some(Record::Garbage(_)) => self.garbage += 1,
                Some(Record::Event { id, counter, cpu, payload }) => {
                    let event = self.known.event(id);
                    if event.is_none() && self.known.is_undescribed(id) {
                        continue;
                    }
                    let used = event.and_then(|event| event.payload_bytes(payload));
                    let (Some(event), Some(used)) = (event, used) else {
                        self.garbage += 1;
                        continue;
                    };
                    self.class = event.class;
                    self.cpu = cpu;
                    self.payload = begin..begin + used;
                    self.time = self.monotonic_ns(counter);
                    if self.time > self.latest_ns {
                        self.garbage += 1;
                        continue;
                    }
                    return Ok(Some(self.time));
                }
            }
        }
    }

    /// The time at a value of the ring's clock.
    fn monotonic_ns(&mut self, counter: u64) -> u64 {
        if self.is_monotonic {
            without_offset(counter, self.info.clock_offset_ns)
        } else {
            self.clock.monotonic_ns(counter)
        }
    }

    /// Writes the events that follow in the chunk up to a time, as long as they are simple: payloads of one size, on the same
    /// CPU, nothing lost between. Nearly all events of nearly all programs are written here. `context` is that of the previous
    /// event.
    fn go_on(&mut self, until: u64, context: &[u8], out: &mut UserStreamWriter) -> io::Result<()> {
        let (Some(sync), false) = (self.decoder.sync(), self.lost > self.lost_written) else { return Ok(()) };
        let (layout, is_monotonic, mut known) = (self.info.layout, self.is_monotonic, self.known);
        let offset_ns = self.info.clock_offset_ns;
        let mut rest = &self.bytes[self.at..];
        let mut position = self.position;
        while let Some(word) = rest.first_chunk::<8>() {
            let Header::Complete { id, end, low } = layout.header(position, u64::from_le_bytes(*word)) else {
                break;
            };
            let Some((class, bytes)) =
                known.event(id).and_then(|event| Some((event.class, event.fixed_bytes?)))
            else {
                break;
            };
            let length = index(end - position);
            let Some(words) = rest.get(8..length) else { break };
            if bytes > words.len() {
                break;
            }
            let counter = sync.complete(low);
            let time = if is_monotonic {
                without_offset(counter, offset_ns)
            } else {
                self.clock.monotonic_ns(counter)
            };
            if time > until.min(self.latest_ns) {
                break;
            }
            let words =
                words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
            out.event_of_words(class, MonotonicNs(time), context, words, bytes)?;
            position = end;
            rest = &rest[length..];
        }
        self.at = self.bytes.len() - rest.len();
        (self.position, self.known) = (position, known);
        Ok(())
    }

    fn next_chunk(&mut self, all: &Conversions<'_>, options: &UserOptions<'_>) -> io::Result<bool> {
        let Some(chunk) = self.chunks.next() else { return Ok(false) };
        if chunk.bytes > u64::from(abi::RTU_RING_BYTES_MAX) {
            return Err(io::Error::other("a chunk is larger than a ring can be"));
        }
        self.bytes.resize(index(chunk.bytes), 0);
        all.spool.file.read_exact_at(&mut self.bytes, chunk.offset)?;
        (self.at, self.position) = (0, chunk.position);
        all.read_more(chunk.bytes, options);
        Ok(true)
    }

    fn write(
        &mut self,
        all: &Conversions<'_>,
        out: &mut UserStreamWriter,
        context: &mut Vec<u8>,
    ) -> io::Result<()> {
        if self.lost > self.lost_written {
            out.lost(self.lost - self.lost_written)?;
            self.lost_written = self.lost;
        }
        let info = self.info;
        context.clear();
        all.context.encode(info.pid, info.tid, &info.comm, self.cpu, context);
        out.event(self.class, MonotonicNs(self.time), context, &self.bytes[self.payload.clone()])
    }
}
