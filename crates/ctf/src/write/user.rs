// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of instrumented programs.
//!
//! A fixed number of streams, into each of which the rings of some threads are merged: a thousand threads must not be a thousand
//! open files for the reader. Who recorded an event is in its context when that was asked for. The payload of a program's record is
//! CTF already (include/rtscope/abi.h), so it is copied.

use super::classes::Header;
use super::metadata;
use super::packet::{PacketWriter, Place};
use super::tsdl::{self, Integer, quoted};
use crate::private_env;
use crate::{Error, Evidence, StagedDir, TraceInfo};
use rtscope_event::MonotonicNs;
use rtscope_user::description::{EventDescription, Field, FieldType};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Labels of the enumerations of a class, by the enumeration's name.
type Labels = BTreeMap<String, Vec<(i32, String)>>;

/// An event class. Programs with the same description share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserClass {
    /// Name, level and fields.
    pub event: EventDescription,
    /// What its enumerations' values are called.
    pub labels: Labels,
    /// Tells classes of one name apart: the program's build id, or its path.
    pub origin: String,
}

/// What each event says of who recorded it.
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
}

impl UserContext {
    /// Writes it as an event has it. An unknown CPU is 2^32 - 1.
    pub fn encode(&self, pid: u32, tid: u32, comm: &str, cpu: u32, out: &mut Vec<u8>) {
        if self.cpu {
            out.extend_from_slice(&cpu.to_le_bytes());
        }
        if self.pid {
            out.extend_from_slice(&pid.to_le_bytes());
        }
        if self.tid {
            out.extend_from_slice(&tid.to_le_bytes());
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
            (self.comm, "string _procname"),
        ];
        let there: String =
            fields.iter().filter(|(is, _)| *is).map(|(_, field)| format!("\t\t{field};\n")).collect();
        if there.is_empty() { there } else { format!("\tevent.context := struct {{\n{there}\t}};\n") }
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct UserTraceWriter {
    staged: StagedDir,
    classes: Vec<UserClass>,
    context: UserContext,
    info: TraceInfo,
}

impl UserTraceWriter {
    /// Begins the trace that is to become the new folder `dir`.
    ///
    /// # Errors
    /// When `dir` exists or cannot be made.
    pub fn create(
        dir: &Path,
        classes: Vec<UserClass>,
        context: UserContext,
        info: TraceInfo,
    ) -> Result<UserTraceWriter, Error> {
        Ok(UserTraceWriter { staged: StagedDir::new(dir)?, classes, context, info })
    }

    fn header(&self) -> Header {
        Header::for_classes(self.classes.len())
    }

    /// Begins a stream; no event may be older than `begin`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn stream(&self, number: u32, begin: MonotonicNs) -> Result<UserStreamWriter, Error> {
        let path = self.staged.path().join(format!("user_{number}"));
        let file = File::create_new(&path).map_err(Error::io("make the file", &path))?;
        let uuid = *self.info.trace_uuid.as_bytes();
        let packets = PacketWriter::new(file, self.header(), uuid, Place::Threads(u64::from(number)), begin);
        Ok(UserStreamWriter { path, packets, counts: vec![0; self.classes.len()] })
    }

    /// Writes the metadata and lets the trace appear. `extra`: more for `env`. Returns the size of all files.
    ///
    /// # Errors
    /// When the system refuses (a full disk), or something else has taken the name; nothing is left then.
    pub fn finish(
        self,
        evidence: &Evidence<'_>,
        extra: &[(String, String)],
        streams: &[UserDone],
    ) -> Result<u64, Error> {
        let text = self.metadata(evidence, extra);
        let path = self.staged.path().join("metadata");
        let write =
            |file: &mut File| io::Write::write_all(file, text.as_bytes()).and_then(|()| file.sync_all());
        let mut file = File::create_new(&path).map_err(Error::io("make the file", &path))?;
        write(&mut file).map_err(Error::io("write", &path))?;
        self.staged.publish()?;
        Ok(text.len() as u64 + streams.iter().map(|stream| stream.bytes).sum::<u64>())
    }

    fn metadata(&self, evidence: &Evidence<'_>, extra: &[(String, String)]) -> String {
        let mut text = String::with_capacity(16 * 1024);
        text.push_str("/* CTF 1.8 */\n\n");
        text.push_str(tsdl::ALIASES);
        text.push_str(FLOATS);
        metadata::trace(&mut text, &self.info);
        self.env(&mut text, evidence, extra);
        metadata::clock(&mut text, &self.info);
        metadata::stream(&mut text, self.header(), false, &self.context.describe());
        for (id, class) in self.classes.iter().enumerate() {
            describe(id, class, &mut text);
        }
        text
    }

    fn env(&self, text: &mut String, evidence: &Evidence<'_>, extra: &[(String, String)]) {
        text.push_str("env {\n");
        let fixed = [
            ("domain", "ust"),
            ("sysname", "Linux"),
            ("tracer_name", "lttng-ust"),
            ("hostname", &self.info.hostname),
            ("kernel_release", &self.info.kernel_release),
            ("producer", "rtscope"),
            ("producer_version", &self.info.producer_version),
        ];
        // Writing to a String cannot fail, here and below.
        for (key, value) in fixed {
            let _ = writeln!(text, "\t{key} = {};", quoted(value));
        }
        for (key, value) in [("tracer_major", 2), ("tracer_minor", 14), ("tracer_patchlevel", 0)] {
            let _ = writeln!(text, "\t{key} = {value};");
        }
        for (key, value) in private_env::entries(evidence).iter().chain(extra) {
            let _ = writeln!(text, "\t{key} = {};", quoted(value));
        }
        text.push_str("};\n\n");
    }
}

const FLOATS: &str =
    "typealias floating_point { exp_dig = 8; mant_dig = 24; byte_order = le; align = 8; } := f32_t;
typealias floating_point { exp_dig = 11; mant_dig = 53; byte_order = le; align = 8; } := f64_t;

";

fn describe(id: usize, class: &UserClass, text: &mut String) {
    let name = quoted(&class.event.name);
    let _ = write!(
        text,
        "event {{\n\tname = {name};\n\tid = {id};\n\tstream_id = 0;\n\tloglevel = {};\n",
        class.event.level
    );
    if !class.origin.is_empty() {
        let _ = writeln!(text, "\tmodel.emf.uri = {};", quoted(&class.origin));
    }
    text.push_str("\tfields := struct {\n");
    class.event.fields.iter().for_each(|field| describe_field(field, &class.labels, text));
    text.push_str("\t};\n};\n\n");
}

fn describe_field(Field { name, kind }: &Field, labels: &Labels, text: &mut String) {
    let integer = |integer: &rtscope_user::description::Integer| {
        // The description was checked: sizes are 1, 2, 4 or 8.
        Integer::of(integer.bytes, integer.signed, integer.hex).unwrap_or(Integer::Unsigned(integer.bytes))
    };
    let _ = match kind {
        FieldType::Integer(element) => return tsdl::field(text, name, tsdl::Shape::One(integer(element))),
        FieldType::Array(element, count) => {
            return tsdl::field(text, name, tsdl::Shape::Array(integer(element), *count));
        }
        FieldType::Sequence(element) => {
            return tsdl::field(text, name, tsdl::Shape::Sequence(integer(element)));
        }
        FieldType::Text => return tsdl::field(text, name, tsdl::Shape::Text),
        FieldType::Bool => {
            writeln!(text, "\t\tenum : uint8_t {{ \"false\" = 0, \"true\" = 1 }} _{name};")
        }
        FieldType::Float(bytes) => writeln!(text, "\t\tf{}_t _{name};", u32::from(*bytes) * 8),
        FieldType::Enumeration(enumeration) => {
            let known = labels.get(enumeration).map(Vec::as_slice).unwrap_or_default();
            let all: Vec<String> =
                known.iter().map(|(value, label)| format!("{} = {value}", quoted(label))).collect();
            writeln!(text, "\t\tenum : int32_t {{ {} }} _{name};", all.join(", "))
        }
    };
}

/// Writes a stream.
#[derive(Debug)]
pub struct UserStreamWriter {
    path: PathBuf,
    packets: PacketWriter<File>,
    counts: Vec<u64>,
}

/// What became of a stream.
#[derive(Clone, Debug, Default)]
pub struct UserDone {
    /// Events by class.
    pub counts: Vec<u64>,
    /// Packets.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Events that were given too late: they have the time of the event before them.
    pub moved: u64,
}

impl UserStreamWriter {
    /// Adds an event: context as [`UserContext::encode`] makes it, payload as its class describes it.
    ///
    /// # Errors
    /// When the class is of another trace, or the system refuses.
    #[inline]
    pub fn event(&mut self, class: u32, time: MonotonicNs, context: &[u8], payload: &[u8]) -> io::Result<()> {
        let out = self.begin(class, time, context)?;
        out.extend_from_slice(payload);
        Ok(())
    }

    /// The same with a payload in whole words, of which the first `bytes` are wanted: a short one is copied without a call.
    ///
    /// # Errors
    /// As above.
    #[inline]
    pub fn event_of_words(
        &mut self,
        class: u32,
        time: MonotonicNs,
        context: &[u8],
        words: &[u8],
        bytes: usize,
    ) -> io::Result<()> {
        const SHORT: usize = 64;
        let out = self.begin(class, time, context)?;
        if bytes > SHORT {
            out.extend_from_slice(words.get(..bytes).unwrap_or(words));
            return Ok(());
        }
        let end = out.len() + bytes;
        for word in words.chunks_exact(8) {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            out.extend_from_slice(&word);
        }
        out.truncate(end);
        Ok(())
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

    /// The file that is being written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is left. The stream covers the time up to `end`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(self, end: MonotonicNs) -> io::Result<UserDone> {
        let (file, done) = self.packets.finish(end)?;
        file.sync_all()?;
        Ok(UserDone { counts: self.counts, packets: done.packets, bytes: done.bytes, moved: done.moved })
    }
}
