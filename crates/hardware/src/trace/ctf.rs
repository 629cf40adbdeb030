// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hardware trace as a CTF trace, which every command of rtscope and other readers of CTF read.
//!
//! It has the layout of traces of programs: a stream for each stream of the hardware, with process, thread and CPU in the context
//! of each event.

use super::classes::{EventClassKind, FieldKind, HardwareEvent, LossReason};
use super::source::{HardwareSource, NO_CPU};
use rtscope_ctf::{
    EventThread, Evidence, StagedDir, TraceInfo, UserClass, UserContext, UserMetadata, UserStreamWriter,
};
use rtscope_event::{CpuId, Loss, MonotonicNs};
use rtscope_programs::description::{EventDescription, Field, FieldType, Integer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

const CONTEXT: UserContext = UserContext { pid: true, tid: true, comm: false, cpu: true, uid: false };
/// The level of all of them: information.
const LEVEL: u32 = 6;

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The directory, or the metadata.
    #[error(transparent)]
    Ctf(#[from] rtscope_ctf::Error),
    /// A file of the trace.
    #[error("writing {}: {source}", path.display())]
    Write {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A stream.
    #[error("reading a stream: {0}")]
    Read(io::Error),
    /// Nothing could be written.
    #[error("no event has a time, so there is nothing that a trace could have")]
    Untimed,
    /// The streams have nothing that becomes an event.
    #[error("there is no event in it, so there is nothing that a trace could have")]
    Empty,
}

/// What a trace says of where it is from: of the machine that was traced, not of this one. Its clock is one that no other trace is
/// known to share.
#[must_use]
pub fn trace_info(hostname: Option<&str>, kernel_release: Option<&str>, producer_version: &str) -> TraceInfo {
    const UNKNOWN: &str = "unknown";
    TraceInfo {
        hostname: hostname.unwrap_or(UNKNOWN).to_owned(),
        kernel_release: kernel_release.unwrap_or(UNKNOWN).to_owned(),
        clock_uuid: Uuid::new_v4(),
        realtime_offset_ns: 0,
        trace_uuid: Uuid::new_v4(),
        producer_version: producer_version.to_owned(),
        window_begin: None,
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareTrace {
    /// Events.
    pub events: u64,
    /// Streams.
    pub streams: u64,
    /// Places where something is missing.
    pub losses: u64,
    /// Times of the first and the last event.
    pub span_ns: Option<(u64, u64)>,
}

fn classes() -> Vec<UserClass> {
    let number = |hex| FieldType::Integer(Integer { bytes: 8, signed: false, hex });
    let class = |(index, kind): (usize, &EventClassKind)| UserClass {
        event: EventDescription {
            index: u32::try_from(index).unwrap_or(0),
            name: kind.name().to_owned(),
            level: LEVEL,
            fields: kind
                .fields()
                .iter()
                .map(|(name, kind)| Field {
                    name: (*name).to_owned(),
                    kind: match kind {
                        FieldKind::Number => number(false),
                        FieldKind::Hex => number(true),
                        FieldKind::Text => FieldType::Text,
                    },
                })
                .collect(),
        },
        labels: BTreeMap::new(),
        origin: Arc::from(""),
    };
    EventClassKind::ALL.iter().enumerate().map(class).collect()
}

fn payload(event: &HardwareEvent, out: &mut Vec<u8>) {
    let (mut numbers, mut texts) = (event.numbers.into_iter(), event.texts());
    for (_, kind) in event.class.fields() {
        match kind {
            FieldKind::Text => {
                let text = texts.next().unwrap_or_default();
                out.extend(text.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
                out.push(0);
            }
            _ => out.extend_from_slice(&numbers.next().unwrap_or(0).to_le_bytes()),
        }
    }
}

/// Losses by CPU and cause. How many events are missing is never known.
#[derive(Default)]
struct Losses(BTreeMap<(Option<u32>, LossReason), u64>);

impl Losses {
    fn list(&self) -> Vec<Loss> {
        let loss = |(cpu, reason): &(Option<u32>, LossReason)| Loss {
            cpu: cpu.map(CpuId),
            cause: reason.cause(),
            count: None,
        };
        let mut list: Vec<Loss> = self.0.keys().map(loss).collect();
        list.dedup();
        list
    }
}

/// Writes all events of a source into the new directory `target`, which appears when it is complete, or not at all. `extra`: more
/// entries for the trace's `env`.
///
/// # Errors
/// When the directory exists, the source cannot be read to its end, or the system refuses (a full disk).
pub fn write_ctf(
    source: &mut HardwareSource<'_>,
    target: &Path,
    info: &TraceInfo,
    extra: &[(String, String)],
) -> Result<HardwareTrace, TraceError> {
    let staged = StagedDir::new(target)?;
    let path = staged.path().to_owned();
    let failed = |source| TraceError::Write { path: target.to_owned(), source };
    let classes = classes();
    let mut metadata = UserMetadata::create(&path, CONTEXT, info)?;
    let mut streams: BTreeMap<usize, UserStreamWriter> = BTreeMap::new();
    let (mut trace, mut losses) = (HardwareTrace::default(), Losses::default());
    let (mut context, mut bytes) = (Vec::new(), Vec::new());
    while let Some((place, event)) = source.take() {
        let time = MonotonicNs(event.time_ns.unwrap_or(0));
        let stream = match streams.entry(place) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let number = u32::try_from(place).unwrap_or(u32::MAX);
                let file = File::create(path.join(format!("stream_{number}"))).map_err(failed)?;
                let stream = UserStreamWriter::in_file(file, number, info.trace_uuid, classes.len(), time);
                metadata.declare(stream.class(), &classes).map_err(failed)?;
                free.insert(stream)
            }
        };
        context.clear();
        bytes.clear();
        // A thread that is not known has number 0, which no thread of a program has.
        let (pid, tid) = event.thread.unwrap_or_default();
        let thread = EventThread { pid, tid, ..EventThread::default() };
        CONTEXT.encode(thread, event.cpu.unwrap_or(NO_CPU), &mut context);
        payload(&event, &mut bytes);
        let class = EventClassKind::ALL.iter().position(|kind| *kind == event.class).unwrap_or(0);
        let class = u32::try_from(class).unwrap_or(0);
        if let Some(reason) = event.lost {
            *losses.0.entry((event.cpu, reason)).or_default() += 1;
            trace.losses += 1;
            // At least one; how many nobody knows, which the trace's `env` says.
            stream.lost(1).map_err(failed)?;
        }
        stream.event(class, time, &context, &bytes).map_err(failed)?;
        trace.events += 1;
        trace.span_ns = Some((trace.span_ns.map_or(time.0, |(first, _)| first), time.0));
    }
    if let Some(error) = source.failure() {
        return Err(TraceError::Read(error));
    }
    if trace.events == 0 {
        return Err(if source.totals.untimed == 0 { TraceError::Empty } else { TraceError::Untimed });
    }
    let end = MonotonicNs(trace.span_ns.map_or(0, |(_, last)| last));
    trace.streams = streams.len() as u64;
    for stream in streams.into_values() {
        stream.finish(end).map_err(failed)?;
    }
    let losses = losses.list();
    let evidence = Evidence { losses: &losses, history: &[], by_event: &[] };
    metadata.publish().map_err(failed)?;
    metadata.finish(&evidence, extra).map_err(failed)?;
    staged.publish()?;
    Ok(trace)
}
