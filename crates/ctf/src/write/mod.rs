// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording → trace directory.
//!
//! One stream per CPU, written one after the other, so that memory is that of one packet for any number of CPUs.
//! Each packet is written with one call and never holds part of an event: readers refuse a trace with a packet cut short.

mod classes;
mod encode;
mod followed;
mod growing;
mod head;
mod metadata;
mod packet;
mod reserved;
mod ring;
mod state;
mod stream_file;
mod trace;
mod tracepoint;
mod tsdl;
mod user;
mod whole;

pub use classes::{Classes, TracepointId};
pub(crate) use ring::RingFileName;
pub use ring::{FILES_MIN, FileRing, Overwritten, RingAccount, RingTrace};
pub use state::{TaskStatus, initial_states};
pub use trace::{EventLoss, Evidence, StreamSummary, StreamWriter, TraceWriter};
pub use tracepoint::GivenText;
pub(crate) use tsdl::quoted;
pub use user::{
    EventThread, PlainEvent, UserClass, UserContext, UserMetadata, UserStreamSummary, UserStreamWriter,
};

use crate::{Error, TraceInfo};
use rtscope_event::{CpuId, Event, Loss, LossCause, MonotonicNs, Recording};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The size of a written trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSummary {
    /// Events of the recording.
    pub events: u64,
    /// Events of the state dump before them (tasks, interrupts, start and end).
    pub dump_events: u64,
    /// Streams, one for each CPU.
    pub streams: u64,
    /// Packets of all streams.
    pub packets: u64,
    /// Size of all files.
    pub bytes: u64,
}

/// Writes a recording as a CTF trace into the new directory `dir`, which appears when it is complete, or not at all.
///
/// # Errors
/// When `dir` exists, the recording is not in time order, or the system refuses (a full disk); nothing is left then.
pub fn write_trace(dir: &Path, recording: &Recording, info: &TraceInfo) -> Result<WriteSummary, Error> {
    let occurring: HashSet<u32> = recording.events.iter().map(|event| event.kind.class()).collect();
    let classes = Classes::new(|class| occurring.contains(&class), &[]);
    let writer = TraceWriter::create(dir, classes, info.clone())?;
    let states = state::initial_states(&recording.events);
    let window = Window::of(recording, info);
    let mut done = Vec::new();
    for (index, (cpu, events)) in by_cpu(recording)?.into_iter().enumerate() {
        let mut stream = writer.stream(cpu, window.begin)?;
        let path = stream.path().to_owned();
        let mut write = || {
            stream.lost_somewhere(&recording.losses)?;
            if index == 0 {
                stream.dump(&recording.names, |tid| states.get(&tid).copied(), None)?;
            }
            for &event in &events {
                stream.event(&recording.events[event], &recording.names)?;
            }
            Ok(())
        };
        write()
            .and_then(|()| stream.finish(window.end))
            .map(|stream| done.push(stream))
            .map_err(Error::io("write", &path))?;
    }
    let evidence = Evidence { losses: &recording.losses, history: &recording.history, by_event: &[] };
    writer.finish(&evidence, &done)
}

/// The time that all streams cover.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: MonotonicNs,
    end: MonotonicNs,
}

impl Window {
    fn of(recording: &Recording, info: &TraceInfo) -> Window {
        let first = recording.events.first().map(|event| event.time);
        let begin = first.into_iter().chain(info.window_begin).min().unwrap_or_default();
        let last = recording.events.last().map_or(begin, |event| event.time);
        Window { begin, end: last.max(begin) }
    }
}

/// A CPU's losses as CTF can express them: one number, or unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    known: u64,
    unknown: bool,
}

impl Losses {
    fn of(losses: &[Loss], cpu: CpuId) -> Losses {
        // A gap's count is not a number of discarded events: that is in `env`, by cause.
        let here = losses.iter().filter(|loss| loss.cpu == Some(cpu) && loss.cause != LossCause::Gap);
        here.fold(Losses::default(), |sum, loss| Losses {
            known: sum.known.saturating_add(loss.count.unwrap_or(0)),
            unknown: sum.unknown || loss.count.is_none(),
        })
    }
}

/// Indexes of each CPU's events, with an entry for every known CPU, and at least one entry.
fn by_cpu(recording: &Recording) -> Result<BTreeMap<CpuId, Vec<usize>>, Error> {
    let mut streams: BTreeMap<CpuId, Vec<usize>> = BTreeMap::new();
    for cpu in recording.history.iter().map(|history| history.cpu) {
        streams.entry(cpu).or_default();
    }
    for cpu in recording.losses.iter().filter_map(|loss| loss.cpu) {
        streams.entry(cpu).or_default();
    }
    let mut newest = MonotonicNs(0);
    for (index, Event { time, cpu, .. }) in recording.events.iter().enumerate() {
        if *time < newest {
            return Err(Error::Unordered { index, cpu: cpu.0 });
        }
        newest = *time;
        streams.entry(*cpu).or_default().push(index);
    }
    if streams.is_empty() {
        // The state dump needs a stream to be in.
        streams.insert(CpuId(0), Vec::new());
    }
    Ok(streams)
}
