// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of instrumented programs.
//!
//! The rings of some threads are merged into each of a limited number of streams: a thousand threads must not be a thousand open
//! files for the reader. An event's thread and process are in its context on request. The payload of a program's record is
//! CTF already (include/rtscope/abi.h), so it is copied.

use super::classes::Header;
use super::growing::{GrowingMetadata, open_left};
use super::head::EventSource;
use super::metadata;
use super::packet::{PacketTotals, PacketWriter};
use super::ring::{RingAccount, RingTrace};
use super::stream_file::StreamFile;
use super::tsdl::{self, FieldName, Integer, Shape, quoted};
use super::whole::{WholePackets, whole_packets};
use crate::private_env;
use crate::{Error, Evidence, TraceInfo};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::low_half;
use rtscope_programs::description::{EventDescription, Field, FieldType};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Labels of the enumerations of a class, by the enumeration's name.
type Labels = BTreeMap<String, Vec<(i32, String)>>;

/// An event class. Programs with the same description share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserClass {
    /// Name, level and fields.
    pub event: EventDescription,
    /// Labels of the values of its enumerations.
    pub labels: Labels,
    /// Distinguishes classes of one name: the program's build id, or its path.
    pub origin: Arc<str>,
}

/// The largest context: four numbers, and a name of 15 bytes with its end.
const CONTEXT_MAX: usize = 32;

/// The context fields of each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserContext {
    /// The process.
    pub pid: bool,
    /// The thread.
    pub tid: bool,
    /// The thread's name.
    pub comm: bool,
    /// The CPU.
    pub cpu: bool,
    /// The user.
    pub uid: bool,
}

/// Whose an event is.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventThread<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub comm: &'a str,
    /// The user.
    pub uid: u32,
}

impl UserContext {
    /// Writes the context of an event. An unknown CPU is 2^32 - 1.
    pub fn encode(&self, thread: EventThread<'_>, cpu: u32, out: &mut Vec<u8>) {
        let EventThread { pid, tid, comm, uid } = thread;
        for (is, number) in [(self.cpu, cpu), (self.pid, pid), (self.tid, tid), (self.uid, uid)] {
            if is {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        if self.comm {
            out.extend(comm.bytes().take_while(|byte| *byte != 0));
            out.push(0);
        }
    }

    fn describe(&self) -> String {
        let fields = [
            (self.cpu, "uint32_t _cpu_id"),
            (self.pid, "int32_t _vpid"),
            (self.tid, "int32_t _vtid"),
            (self.uid, "uint32_t _uid"),
            (self.comm, "string _procname"),
        ];
        let there: String =
            fields.iter().filter(|(is, _)| *is).map(|(_, field)| format!("\t\t{field};\n")).collect();
        if there.is_empty() { there } else { format!("\tevent.context := struct {{\n{there}\t}};\n") }
    }
}

/// The metadata of a trace of programs, which grows with the classes of their events (`growing`).
#[derive(Debug)]
pub struct UserMetadata {
    file: GrowingMetadata,
    context: UserContext,
    /// By class of streams: the number of events' classes that it declares, once it is declared.
    declared: [Option<usize>; 2],
}

impl UserMetadata {
    /// For a trace in this directory. No reader sees it before [`UserMetadata::publish`].
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(directory: &Path, context: UserContext, info: &TraceInfo) -> Result<UserMetadata, Error> {
        UserMetadata::limited(directory, context, info, None)
    }

    /// The same; `ring`: what limits the trace's size.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn limited(
        directory: &Path,
        context: UserContext,
        info: &TraceInfo,
        ring: Option<RingTrace>,
    ) -> Result<UserMetadata, Error> {
        let mut text = String::with_capacity(16 * 1024);
        text.push_str("/* CTF 1.8 */\n\n");
        text.push_str(tsdl::ALIASES);
        text.push_str(FLOATS);
        metadata::trace(&mut text, info);
        env(&mut text, info, ring.as_ref());
        metadata::clock(&mut text, info);
        metadata::packet_context(&mut text, false);
        let file = GrowingMetadata::create(directory, &text, ring)?;
        Ok(UserMetadata { file, context, declared: [None; 2] })
    }

    /// Lets readers see it, in place of other metadata that may be there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn publish(&mut self) -> io::Result<()> {
        self.file.publish()
    }

    /// Before an event is written to a stream of this class: all classes that it may have.
    ///
    /// # Errors
    /// When the system refuses (a full disk).
    pub fn declare(&mut self, stream_class: u32, classes: &[UserClass]) -> io::Result<()> {
        let Some(declared) = self.declared.get_mut(stream_class as usize) else { return Ok(()) };
        if declared.is_some_and(|declared| declared >= classes.len()) {
            return Ok(());
        }
        let mut text = String::new();
        if declared.is_none() {
            let header = if stream_class == 0 { Header::Compact } else { Header::Large };
            metadata::stream(&mut text, stream_class, header, &self.context.describe());
        }
        let known = declared.unwrap_or(0);
        for (id, class) in classes.iter().enumerate().skip(known) {
            describe(id, stream_class, class, &mut text);
        }
        self.file.append(&text)?;
        self.declared[stream_class as usize] = Some(classes.len());
        Ok(())
    }

    /// Of a writer that was killed, which declared all classes of what is in the streams. False: it had come to the end of it all.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn reopen(directory: &Path, context: UserContext) -> Result<(UserMetadata, bool), Error> {
        let (file, is_finished) = GrowingMetadata::reopen(directory)?;
        Ok((UserMetadata { file, context, declared: [Some(usize::MAX); 2] }, !is_finished))
    }

    /// What is known only at the end; `extra`: additional entries of `env`. Returns its size, when it is on the disk under its name.
    ///
    /// # Errors
    /// When the system refuses (a full disk).
    pub fn finish(mut self, evidence: &Evidence<'_>, extra: &[(String, String)]) -> io::Result<u64> {
        let mut entries = private_env::entries(evidence);
        entries.extend_from_slice(extra);
        let overwritten = self.file.ring().map(RingTrace::overwritten);
        entries.extend(overwritten.iter().flat_map(private_env::of_ring));
        entries.extend(private_env::files(self.file.directory())?);
        self.file.append(&metadata::end_env(&entries))?;
        self.file.finish()
    }
}

/// What is known at the beginning.
fn env(text: &mut String, info: &TraceInfo, ring: Option<&RingTrace>) {
    text.push_str("env {\n");
    let fixed = [
        ("domain", "ust"),
        ("sysname", "Linux"),
        ("tracer_name", "lttng-ust"),
        ("hostname", &info.hostname),
        ("kernel_release", &info.kernel_release),
        ("producer", "rtscope"),
        ("producer_version", &info.producer_version),
    ];
    for (key, value) in fixed {
        let _ = writeln!(text, "\t{key} = {};", quoted(value));
    }
    if let Some((key, value)) = ring.map(private_env::is_ring) {
        let _ = writeln!(text, "\t{key} = {};", quoted(&value));
    }
    for (key, value) in [("tracer_major", 2), ("tracer_minor", 14), ("tracer_patchlevel", 0)] {
        let _ = writeln!(text, "\t{key} = {value};");
    }
    text.push_str("};\n\n");
}

const FLOATS: &str =
    "typealias floating_point { exp_dig = 8; mant_dig = 24; byte_order = le; align = 8; } := f32_t;
typealias floating_point { exp_dig = 11; mant_dig = 53; byte_order = le; align = 8; } := f64_t;

";

/// LTTng's last one (debug). babeltrace2 warns of higher ones.
const LEVEL_MAX: u32 = 14;

fn describe(id: usize, stream: u32, class: &UserClass, text: &mut String) {
    let name = quoted(&class.event.name);
    let _ = write!(
        text,
        "event {{\n\tname = {name};\n\tid = {id};\n\tstream_id = {stream};\n\tloglevel = {};\n",
        class.event.level.min(LEVEL_MAX)
    );
    if !class.origin.is_empty() {
        let _ = writeln!(text, "\tmodel.emf.uri = {};", quoted(&class.origin));
    }
    text.push_str("\tfields := struct {\n");
    let is_sequence =
        |field: &Field| matches!(field.kind, FieldType::Sequence(_) | FieldType::FloatSequence(_));
    let fields = &class.event.fields;
    let names = tsdl::names(fields.iter().map(|field| (field.name.as_str(), is_sequence(field))));
    for (field, name) in fields.iter().zip(&names) {
        describe_field(&field.kind, name, &class.labels, text);
    }
    text.push_str("\t};\n};\n\n");
}

fn describe_field(kind: &FieldType, name: &FieldName, labels: &Labels, text: &mut String) {
    let integer = |integer: &rtscope_programs::description::Integer| {
        // The description was checked: sizes are 1, 2, 4 or 8.
        Integer::of(integer.bytes, integer.signed, integer.hex).unwrap_or(Integer::Unsigned(integer.bytes))
    };
    let shape = match kind {
        FieldType::Integer(element) => Shape::One(integer(element)),
        FieldType::Array(element, count) => Shape::Array(integer(element), *count),
        FieldType::Sequence(element) => Shape::Sequence(integer(element)),
        FieldType::FloatArray(bytes, count) => Shape::FloatArray(*bytes, *count),
        FieldType::FloatSequence(bytes) => Shape::FloatSequence(*bytes),
        FieldType::Text => Shape::Text,
        FieldType::Bool => {
            let _ = writeln!(text, "\t\tenum : uint8_t {{ \"false\" = 0, \"true\" = 1 }} {};", name.own);
            return;
        }
        FieldType::Float(bytes) => {
            let _ = writeln!(text, "\t\tf{}_t {};", u32::from(*bytes) * 8, name.own);
            return;
        }
        FieldType::Enumeration(enumeration) => {
            let known = labels.get(enumeration).map(Vec::as_slice).unwrap_or_default();
            let all: Vec<String> =
                known.iter().map(|(value, label)| format!("{} = {value}", quoted(label))).collect();
            let _ = writeln!(text, "\t\tenum : int32_t {{ {} }} {};", all.join(", "), name.own);
            return;
        }
    };
    tsdl::field(text, name, shape);
}

/// Writes a stream.
#[derive(Debug)]
pub struct UserStreamWriter {
    packets: PacketWriter<StreamFile>,
    counts: Vec<u64>,
    class: u32,
}

/// An event whose payload is the first `bytes` of some words.
#[derive(Clone, Copy, Debug)]
pub struct PlainEvent<W> {
    /// Its class.
    pub class: u32,
    /// Its time.
    pub time: MonotonicNs,
    /// Its payload, and the following bytes in the last word.
    pub words: W,
    /// Size of its payload.
    pub bytes: usize,
}

/// Summary of a stream.
#[derive(Clone, Debug, Default)]
pub struct UserStreamSummary {
    /// Events by class.
    pub counts: Vec<u64>,
    /// Packets.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Events that came too late: they got the time of the previous event.
    pub moved: u64,
}

impl UserStreamSummary {
    /// Of a stream whose writer was killed, or of one of its files in a ring: cuts off an incomplete packet. The events are not counted. Also returns the number of
    /// lost events that it records.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn of_interrupted(
        path: &Path,
        number: u32,
        trace: uuid::Uuid,
        is_ring: bool,
    ) -> Result<(UserStreamSummary, u64), Error> {
        let file = open_left(path)?;
        let found = whole_packets(&file, trace.into_bytes(), u64::from(number), is_ring);
        let found = found.map_err(Error::io("read", path))?;
        file.set_len(found.bytes).and_then(|()| file.sync_all()).map_err(Error::io("cut", path))?;
        let WholePackets { packets, bytes, discarded } = found;
        Ok((UserStreamSummary { packets, bytes, ..UserStreamSummary::default() }, discarded))
    }
}

impl UserStreamWriter {
    /// Begins a stream of the trace with this number, which is valid at every instant (`followed`), in a new file. `classes`: the number of known classes. No
    /// event may be older than `begin`.
    #[must_use]
    pub fn in_file(
        file: File,
        number: u32,
        trace: uuid::Uuid,
        classes: usize,
        begin: MonotonicNs,
    ) -> UserStreamWriter {
        let (header, place) = (Header::for_classes(classes), EventSource::Threads(u64::from(number)));
        let out = StreamFile::single(file);
        let packets = PacketWriter::followed(out, header, *trace.as_bytes(), place, begin);
        UserStreamWriter { packets, counts: vec![0; classes], class: header.stream_class() }
    }

    /// The same in files of a ring in this directory, whose names begin with `name`.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn in_ring(
        (ring, directory, name): (&RingTrace, &Path, &str),
        number: u32,
        trace: uuid::Uuid,
        classes: usize,
        begin: MonotonicNs,
    ) -> Result<UserStreamWriter, Error> {
        let (header, place) = (Header::for_classes(classes), EventSource::Threads(u64::from(number)));
        let out = ring.stream(directory, name)?;
        let packets = PacketWriter::in_ring(out, header, *trace.as_bytes(), place, begin);
        Ok(UserStreamWriter { packets, counts: vec![0; classes], class: header.stream_class() })
    }

    /// If another file of a ring is due, what follows goes there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn turn(&mut self) -> io::Result<()> {
        self.packets.turn(MonotonicNs(0))
    }

    /// What follows is another user's; of a ring, it goes into other files, which are on this account.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set_account(&mut self, account: RingAccount) -> io::Result<()> {
        self.packets.output().set_account(account);
        self.turn()
    }

    /// Its class: what [`UserMetadata::declare`] is to declare.
    #[must_use]
    pub fn class(&self) -> u32 {
        self.class
    }

    /// Announces the number of classes known by now.
    pub fn expect_classes(&mut self, classes: usize) {
        self.counts.resize(classes.max(self.counts.len()), 0);
    }

    /// Writes the buffered events: they are then in the stream whatever becomes of this process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()
    }

    /// Whether there are such.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        self.packets.has_unwritten()
    }

    /// Bytes that are not written yet.
    #[must_use]
    pub fn in_hand(&self) -> usize {
        self.packets.in_hand()
    }

    /// Adds an event: context as made by [`UserContext::encode`], payload as described by its class.
    ///
    /// # Errors
    /// When the class is of another trace, or the system refuses.
    #[inline]
    pub fn event(&mut self, class: u32, time: MonotonicNs, context: &[u8], payload: &[u8]) -> io::Result<()> {
        let out = self.begin(class, time, context)?;
        out.extend_from_slice(payload);
        Ok(())
    }

    /// The same with a payload in whole words, of which the first `bytes` belong to it.
    ///
    /// # Errors
    /// As above.
    #[inline(always)]
    pub fn event_of_words(
        &mut self,
        class: u32,
        time: MonotonicNs,
        context: &[u8],
        words: impl Iterator<Item = u64>,
        bytes: usize,
    ) -> io::Result<()> {
        let out = self.begin(class, time, context)?;
        let end = out.len() + bytes;
        words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.truncate(end);
        Ok(())
    }

    /// Adds events one after the other, as long as `next` returns some and they are simple, until `most` bytes are buffered: `next`
    /// gets a position, and returns an event and the position after it. Returns the number of added events and the position after
    /// the last of them. An event that was returned but not added has to be added by [`UserStreamWriter::event`].
    #[inline(always)]
    pub fn run<W: ExactSizeIterator<Item = u64>>(
        &mut self,
        most: usize,
        context: &[u8],
        next: impl Fn(usize) -> Option<(PlainEvent<W>, usize)>,
    ) -> (u64, usize) {
        // The header of most recordings is compiled separately: its code is half as long.
        match (self.packets.header(), context) {
            (Header::Compact, []) => self.run_with::<4, 0, W>(most, context, next),
            (Header::Compact, context) => self.run_with::<4, CONTEXT_MAX, W>(most, context, next),
            (Header::Large, context) => self.run_with::<6, CONTEXT_MAX, W>(most, context, next),
        }
    }

    /// `HEAD`: bytes of an event's header, as of [`Header`]. The context is copied as if it had `ROOM` bytes, whose rest the payload
    /// overwrites: a copy of a size that the compiler knows takes a fraction of another.
    #[inline(always)]
    fn run_with<const HEAD: usize, const ROOM: usize, W: ExactSizeIterator<Item = u64>>(
        &mut self,
        most: usize,
        context: &[u8],
        next: impl Fn(usize) -> Option<(PlainEvent<W>, usize)>,
    ) -> (u64, usize) {
        let mut padded = [0; ROOM];
        let Some(start) = padded.get_mut(..context.len()) else { return (0, 0) };
        start.copy_from_slice(context);
        let header = if HEAD == 4 { Header::Compact } else { Header::Large };
        let (mut rest, mut clock) = self.packets.run(most);
        let room = rest.len();
        let (mut events, mut at) = (0, 0);
        while let Some((event, end)) = next(at) {
            let Some(count) = self.counts.get_mut(event.class as usize) else { break };
            let (id, time) = (event.class, event.time.0);
            let is_near = time.wrapping_sub(clock) < 1 << header.time_bits();
            // A header is written as a whole word, whose rest the payload overwrites.
            let need = (8 + context.len() + event.words.len() * 8).max(HEAD + ROOM);
            let used = HEAD + context.len() + event.bytes;
            if id >= header.extended() || !is_near || rest.len() < need || used > need {
                break;
            }
            let head = match header {
                Header::Compact => u64::from(id | low_half(time) << 5),
                Header::Large => u64::from(id) | time << 16,
            };
            rest[..8].copy_from_slice(&head.to_le_bytes());
            rest[HEAD..HEAD + ROOM].copy_from_slice(&padded);
            let payload = &mut rest[HEAD + context.len()..need];
            for (place, word) in payload.chunks_exact_mut(8).zip(event.words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            rest = &mut std::mem::take(&mut rest)[used..];
            *count += 1;
            clock = time;
            (events, at) = (events + 1, end);
        }
        let bytes = room - rest.len();
        self.packets.ran(bytes, events, clock);
        (events, at)
    }

    #[inline(always)]
    fn begin(&mut self, class: u32, time: MonotonicNs, context: &[u8]) -> io::Result<&mut Vec<u8>> {
        let Some(count) = self.counts.get_mut(class as usize) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an event of a class that the trace does not declare",
            ));
        };
        *count += 1;
        self.packets.begin_event(class, time)?;
        let out = self.packets.payload();
        if !context.is_empty() {
            out.extend_from_slice(context);
        }
        Ok(out)
    }

    /// `count` events are missing between the last event and the next.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn lost(&mut self, count: u64) -> io::Result<()> {
        self.packets.lost(count)
    }

    /// The time of its last event, or its beginning.
    #[must_use]
    pub fn latest(&self) -> MonotonicNs {
        self.packets.latest()
    }

    /// Writes what is left. The stream covers the time up to `end`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(self, end: MonotonicNs) -> io::Result<UserStreamSummary> {
        let (file, done) = self.packets.finish(end)?;
        file.finish()?;
        let PacketTotals { packets, bytes, moved } = done;
        Ok(UserStreamSummary { counts: self.counts, packets, bytes, moved })
    }
}
