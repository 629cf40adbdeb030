// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spool to trace.
//!
//! Rings are divided among a fixed number of streams; within a stream they are merged by time. Streams are independent, so all
//! cores work. Each record is checked against its event's description before it becomes an event: the bytes are a program's.

use super::spool::{ChunkAt, UserSpool};
use crate::Error;
use rtscope_abi::program as abi;
use rtscope_ctf::{Evidence, TraceInfo, UserClass, UserContext, UserDone, UserStreamWriter, UserTraceWriter};
use rtscope_event::{Loss, LossCause, MonotonicNs};
use rtscope_user::clock::Conversion;
use rtscope_user::description::{Field, FieldType, payload_bytes};
use rtscope_user::records::{Decoder, Header, Record};
use rtscope_user::{ProviderInfo, RingInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Bytes of a ring that are in memory at a time, at most: whole chunks are, and they are no larger than a ring.
const STREAMS_MAX: usize = 16;

/// How to convert.
#[derive(Clone, Copy, Default)]
pub struct UserOptions<'a> {
    /// Streams, and threads; 0: one for each CPU that this process may use, at most 16.
    pub streams: usize,
    /// Only events of this time; what is outside is left out, and not missing.
    pub window: Option<(MonotonicNs, MonotonicNs)>,
    /// Is told bytes done and bytes in all, by any of the threads.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// What a conversion came to.
#[derive(Clone, Debug, Default)]
pub struct UserConverted {
    /// Events.
    pub events: u64,
    /// Events by name.
    pub by_event: BTreeMap<String, u64>,
    /// What is missing, by cause.
    pub losses: Vec<Loss>,
    /// Size of the trace.
    pub bytes: u64,
    /// Size of the records that it was made from.
    pub spool_bytes: u64,
    /// What the trace covers.
    pub from: MonotonicNs,
    /// What the trace covers; `None` without an orderly end.
    pub until: Option<MonotonicNs>,
    /// Events that were given the time of the one before them.
    pub moved: u64,
    /// Threads that recorded.
    pub rings: usize,
    /// How far a counter's value may be from CLOCK_MONOTONIC: median, 99th percentile, largest, in ns.
    pub clock_error_ns: Option<(u64, u64, u64)>,
    /// How often threads waited for room.
    pub waits: u64,
    /// What is to be said of single programs.
    pub remarks: Vec<String>,
}

/// Makes the trace `target` of a spool, and then removes the spool.
///
/// # Errors
/// When `target` exists or the system refuses (a full disk): the spool is left as it was.
pub fn convert_user(
    spool: UserSpool,
    target: &Path,
    options: &UserOptions<'_>,
) -> Result<UserConverted, Error> {
    let result = Conversions::new(&spool).and_then(|all| all.run(target, options));
    match result {
        Ok(converted) => spool.remove().map(|()| converted),
        Err(error) if error.is_no_room() => {
            Err(Error::DiskFull { spool: spool.folder.clone(), target: target.to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// An event id of a process: its class, and what its payload has.
#[derive(Clone, Debug)]
struct Known {
    class: u32,
    fields: Vec<Field>,
    /// All payloads have this size; else they have to be looked at.
    fixed_bytes: Option<usize>,
}

/// All events of a process, by id.
#[derive(Clone, Debug, Default)]
struct OfProcess {
    all: Vec<Option<Known>>,
    /// The same for those whose payloads have one size: class and size. Small, since each event looks there.
    plain: Vec<Option<(u32, u32)>>,
}

/// What is the same for all streams.
struct Conversions<'a> {
    spool: &'a UserSpool,
    classes: Vec<UserClass>,
    /// Of each process, by id.
    known: HashMap<(u32, u32, u64), OfProcess>,
    clock: Conversion,
    context: UserContext,
    total: u64,
    done: AtomicU64,
}

/// What became of one stream.
#[derive(Default)]
struct StreamCame {
    done: UserDone,
    /// Losses by ring whose place is known.
    lost: HashMap<usize, u64>,
    garbage: u64,
}

impl<'a> Conversions<'a> {
    fn new(spool: &'a UserSpool) -> Result<Conversions<'a>, Error> {
        let mut classes = Vec::new();
        let mut numbers = HashMap::new();
        let mut known: HashMap<(u32, u32, u64), OfProcess> = HashMap::new();
        for provider in &spool.providers {
            let of_process = known.entry((provider.uid, provider.pid, provider.birth_ns)).or_default();
            let first = provider.first_id as usize;
            let end = first + provider.descriptions.events.len();
            if end > abi::RTU_EVENTS_MAX as usize {
                continue;
            }
            of_process.all.resize(of_process.all.len().max(end), None);
            for (index, event) in provider.descriptions.events.iter().enumerate() {
                let class = class_of(provider, event);
                let same = (class.event.clone(), class.labels.clone());
                let number = *numbers.entry(same).or_insert_with(|| {
                    classes.push(class);
                    classes.len() as u32 - 1
                });
                let fields = event.fields.clone();
                of_process.all[first + index] =
                    Some(Known { class: number, fixed_bytes: fixed_bytes(&fields), fields });
            }
        }
        for of_process in known.values_mut() {
            let plain = |known: &Known| Some((known.class, u32::try_from(known.fixed_bytes?).ok()?));
            of_process.plain = of_process.all.iter().map(|known| known.as_ref().and_then(plain)).collect();
        }
        let has = |name: &str| spool.session.context.iter().any(|known| known == name);
        let context = UserContext { pid: has("pid"), tid: has("tid"), comm: has("comm"), cpu: has("cpu") };
        let total = spool.data.iter().map(|chunk| chunk.bytes).sum();
        let clock = Conversion::new(spool.pairs.clone());
        Ok(Conversions { spool, classes, known, clock, context, total, done: AtomicU64::new(0) })
    }

    fn run(&self, target: &Path, options: &UserOptions<'_>) -> Result<UserConverted, Error> {
        let session = &self.spool.session;
        let info = TraceInfo {
            hostname: session.hostname.clone(),
            kernel_release: session.kernel_release.clone(),
            clock_uuid: Uuid::parse_str(&session.boot_id).unwrap_or(Uuid::nil()),
            realtime_offset_ns: session.realtime_offset_ns,
            trace_uuid: Uuid::new_v4(),
            producer_version: session.version.clone(),
            window_begin: None,
        };
        let writer = UserTraceWriter::create(target, self.classes.clone(), self.context, info)?;
        let available = std::thread::available_parallelism().map_or(1, usize::from).min(STREAMS_MAX);
        let count = if options.streams == 0 { available } else { options.streams };
        let results: Vec<Result<StreamCame, Error>> = std::thread::scope(|scope| {
            let work = |number: usize| self.stream(number, count, &writer, options);
            let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
            let gone = || Err(Error::broken(&self.spool.folder, "a thread ended too early"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
        });
        let streams = results.into_iter().collect::<Result<Vec<StreamCame>, Error>>()?;
        self.finish(writer, &streams)
    }

    /// One stream: every `count`th ring from `number` on.
    fn stream(
        &self,
        number: usize,
        count: usize,
        writer: &UserTraceWriter,
        options: &UserOptions<'_>,
    ) -> Result<StreamCame, Error> {
        let mut rings: BTreeMap<usize, Vec<ChunkAt>> = BTreeMap::new();
        for chunk in &self.spool.data {
            let ring = chunk.index as usize;
            if ring % count == number {
                rings.entry(ring).or_default().push(*chunk);
            }
        }
        let mut merge = Merge::default();
        let mut came = StreamCame::default();
        for (ring, chunks) in rings {
            let mut reader = RingReader::new(self, ring, chunks);
            if let Some(time) = reader.advance(self, options).map_err(|error| self.reading(error))? {
                merge.waiting.push(Reverse((time, merge.readers.len())));
            }
            merge.readers.push(reader);
        }
        let first = merge.waiting.peek().map_or(self.spool.session.started_ns, |Reverse((time, _))| *time);
        // A ring may hold events from before the recording: those of a collector that was killed.
        let begin = options.window.map_or(first.min(self.spool.session.started_ns), |(from, _)| from.0);
        let mut out = writer.stream(number as u32, MonotonicNs(begin))?;
        let path = out.path().to_owned();
        merge.run(self, options, &mut out, &path)?;
        let end = self.spool.end.as_ref();
        for reader in &merge.readers {
            let told = reader.lost.saturating_sub(reader.lost_before);
            let ring =
                end.and_then(|end| end.rings.iter().find(|(index, ..)| *index as usize == reader.ring));
            let in_all = ring.map_or(told, |(_, lost, _)| *lost);
            let rest =
                in_all.saturating_sub(told).saturating_add(ring.map_or(0, |(_, _, unfinished)| *unfinished));
            out.lost(rest).map_err(Error::io("write", &path))?;
            came.lost.insert(reader.ring, in_all.max(told));
            came.garbage += reader.garbage;
        }
        let until = end.map_or(self.spool.session.started_ns, |end| end.ended_ns);
        came.done = out.finish(MonotonicNs(until)).map_err(Error::io("write", &path))?;
        Ok(came)
    }

    fn reading(&self, error: io::Error) -> Error {
        Error::io("read", &self.spool.folder.join("user.spool"))(error)
    }

    fn read_more(&self, bytes: u64, options: &UserOptions<'_>) {
        // ORDER: relaxed; a sum for the progress display.
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(progress) = options.progress {
            progress(done.min(self.total), self.total);
        }
    }

    fn finish(&self, writer: UserTraceWriter, streams: &[StreamCame]) -> Result<UserConverted, Error> {
        let end = self.spool.end.as_ref();
        let mut converted = UserConverted {
            from: MonotonicNs(self.spool.session.started_ns),
            until: end.map(|end| MonotonicNs(end.ended_ns)),
            spool_bytes: self.total,
            rings: self.spool.rings.len(),
            waits: end.map_or(0, |end| end.waits),
            clock_error_ns: self.clock.error_ns(),
            remarks: end.map(|end| end.remarks.clone()).unwrap_or_default(),
            ..UserConverted::default()
        };
        for stream in streams {
            converted.moved += stream.done.moved;
            for (class, count) in
                self.classes.iter().zip(&stream.done.counts).filter(|(_, count)| **count > 0)
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
        for (number, remark) in converted.remarks.iter().enumerate().take(100) {
            extra.push((format!("rtscope_remark_{number}"), remark.clone()));
        }
        let evidence = Evidence { losses: &converted.losses, history: &[], by_event: &[] };
        let done: Vec<UserDone> = streams.iter().map(|stream| stream.done.clone()).collect();
        converted.bytes = writer.finish(&evidence, &extra, &done)?;
        Ok(converted)
    }

    fn losses(&self, streams: &[StreamCame]) -> Vec<Loss> {
        let full = streams
            .iter()
            .flat_map(|stream| stream.lost.values())
            .fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        let garbage: u64 = streams.iter().map(|stream| stream.garbage).sum();
        let end = self.spool.end.as_ref();
        // Rings of which nothing was taken at all.
        let merged = |ring: u32| streams.iter().any(|stream| stream.lost.contains_key(&(ring as usize)));
        let silent = end.into_iter().flat_map(|end| &end.rings).filter(|(ring, ..)| !merged(*ring));
        let silent = silent.fold(0, |sum: u64, (_, lost, _)| sum.saturating_add(*lost));
        let unfinished =
            end.into_iter().flat_map(|end| &end.rings).fold(0, |sum: u64, ring| sum.saturating_add(ring.2));
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
        if end.is_none() {
            // What the rings' ends would have told.
            losses.push(Loss { cpu: None, cause: LossCause::Discarded, count: None });
        }
        losses
    }
}

fn class_of(provider: &ProviderInfo, event: &rtscope_user::description::EventDescription) -> UserClass {
    let mut labels = BTreeMap::new();
    for field in &event.fields {
        if let FieldType::Enumeration(name) = &field.kind {
            let known = provider.descriptions.enumeration(name);
            labels.insert(name.clone(), known.map(|known| known.labels.clone()).unwrap_or_default());
        }
    }
    let origin = if provider.build_id.is_empty() {
        format!("file:{}", provider.object)
    } else {
        format!("build-id:{}", provider.build_id)
    };
    UserClass { event: event.clone(), labels, origin }
}

fn fixed_bytes(fields: &[Field]) -> Option<usize> {
    let varies = |field: &Field| matches!(field.kind, FieldType::Text | FieldType::Sequence(_));
    static LARGEST: [u8; abi::RTU_RECORD_BYTES_MAX as usize] = [0; abi::RTU_RECORD_BYTES_MAX as usize];
    if fields.iter().any(varies) { None } else { payload_bytes(fields, &LARGEST) }
}

/// The rings of a stream, the one with the oldest event first.
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
                    // Usually the same ring goes on for a while: no need to ask the heap.
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
    known: &'a [Option<Known>],
    plain: &'a [Option<(u32, u32)>],
    decoder: Decoder,
    clock: Conversion,
    is_monotonic: bool,
    chunks: std::vec::IntoIter<ChunkAt>,
    bytes: Vec<u8>,
    at: usize,
    position: u64,
    /// The event in hand: its payload in `bytes`.
    time: u64,
    class: u32,
    cpu: u32,
    payload: std::ops::Range<usize>,
    /// Losses told so far, in all; and those that were told in the trace.
    lost: u64,
    lost_before: u64,
    lost_written: u64,
    garbage: u64,
}

impl<'a> RingReader<'a> {
    fn new(all: &'a Conversions<'_>, ring: usize, chunks: Vec<ChunkAt>) -> RingReader<'a> {
        let info = &all.spool.rings[ring];
        let known = all.known.get(&(info.uid, info.pid, info.birth_ns));
        RingReader {
            ring,
            info,
            known: known.map(|known| known.all.as_slice()).unwrap_or_default(),
            plain: known.map(|known| known.plain.as_slice()).unwrap_or_default(),
            decoder: Decoder::new(info.layout, info.sync),
            clock: all.clock.clone(),
            is_monotonic: info.clock == abi::RTU_CLOCK_MONOTONIC,
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

    /// Goes to the next event and gives its time; `None`: there is none.
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
                    let event = self.known.get(id as usize).and_then(Option::as_ref);
                    let used = event.and_then(|event| match event.fixed_bytes {
                        Some(bytes) => (bytes <= payload.len()).then_some(bytes),
                        None => payload_bytes(&event.fields, payload),
                    });
                    let (Some(event), Some(used)) = (event, used) else {
                        self.garbage += 1;
                        continue;
                    };
                    self.class = event.class;
                    self.cpu = cpu;
                    self.payload = begin..begin + used;
                    self.time = if self.is_monotonic { counter } else { self.clock.monotonic_ns(counter) };
                    return Ok(Some(self.time));
                }
            }
        }
    }

    /// Writes the events that follow in the chunk up to a time, as long as there is nothing to be said about them: payloads of one
    /// size, on the same CPU, nothing lost between. Nearly all events of nearly all programs are written here. `context` is that
    /// of the event before.
    fn go_on(&mut self, until: u64, context: &[u8], out: &mut UserStreamWriter) -> io::Result<()> {
        let (Some(sync), false) = (self.decoder.sync(), self.lost > self.lost_written) else { return Ok(()) };
        let (layout, is_monotonic) = (self.info.layout, self.is_monotonic);
        let mut rest = &self.bytes[self.at..];
        let mut position = self.position;
        while let Some(word) = rest.first_chunk::<8>() {
            let Header::Complete { id, end, low } = layout.header(position, u64::from_le_bytes(*word)) else {
                break;
            };
            let Some(Some((class, bytes))) = self.plain.get(id as usize).copied() else { break };
            let length = (end - position) as usize;
            let Some(words) = rest.get(8..length) else { break };
            if bytes as usize > words.len() {
                break;
            }
            let counter = sync.complete(low);
            let time = if is_monotonic { counter } else { self.clock.monotonic_ns(counter) };
            if time > until {
                break;
            }
            out.event_of_words(class, MonotonicNs(time), context, words, bytes as usize)?;
            position = end;
            rest = &rest[length..];
        }
        self.at = self.bytes.len() - rest.len();
        self.position = position;
        Ok(())
    }

    fn next_chunk(&mut self, all: &Conversions<'_>, options: &UserOptions<'_>) -> io::Result<bool> {
        let Some(chunk) = self.chunks.next() else { return Ok(false) };
        if chunk.bytes > u64::from(abi::RTU_RING_BYTES_MAX) {
            return Err(io::Error::other("a chunk is larger than a ring can be"));
        }
        self.bytes.resize(chunk.bytes as usize, 0);
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
