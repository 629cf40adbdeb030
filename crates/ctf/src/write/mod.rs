// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recording → trace folder.
//!
//! One stream per CPU, written one after the other, so that memory stays at one packet however many CPUs there are.
//! Each packet is written with one call and never holds part of an event: readers refuse a trace with a packet cut short.

mod encode;
mod metadata;
mod packet;
mod state;

use crate::layout::{event_id, event_layouts, id};
use crate::{Error, StagedDir, TraceInfo};
use packet::PacketWriter;
use rtscope_event::{CpuId, Event, LossCause, MonotonicNs, Recording};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// What was written.
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

/// Writes a recording as a CTF trace into the new folder `dir`, which appears when it is complete or not at all.
///
/// # Errors
/// When `dir` exists, the recording is not in time order, or the system refuses (a full disk); nothing is left then.
pub fn write_trace(dir: &Path, recording: &Recording, info: &TraceInfo) -> Result<WriteSummary, Error> {
    let staged = StagedDir::new(dir)?;
    let mut summary = WriteSummary::default();
    let text = metadata::text(&event_layouts(), recording, info);
    write_file(&staged.path().join("metadata"), |file| file.write_all(text.as_bytes()))?;
    summary.bytes += text.len() as u64;

    let window = Window::of(recording, info);
    for (index, (cpu, events)) in by_cpu(recording)?.into_iter().enumerate() {
        let path = staged.path().join(format!("kernel_{cpu}"));
        write_file(&path, |file| {
            let mut packets =
                PacketWriter::new(file, *info.trace_uuid.as_bytes(), cpu, window, Losses::of(recording, cpu));
            packets.announce_losses()?;
            if index == 0 {
                summary.dump_events = state::write_dump(&mut packets, recording, window.begin)?;
            }
            for &event in &events {
                let event = &recording.events[event];
                packets.event(event_id(&event.kind), event.time, |out| {
                    encode::event(event, &recording.names, out)
                })?;
            }
            let done = packets.finish()?;
            summary.packets += done.packets;
            summary.bytes += done.bytes;
            Ok(())
        })?;
        summary.streams += 1;
        summary.events += events.len() as u64;
    }
    staged.publish()?;
    Ok(summary)
}

fn write_file(path: &Path, fill: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<(), Error> {
    let mut file = File::create_new(path).map_err(Error::io("make the file", path))?;
    fill(&mut file).and_then(|()| file.sync_all()).map_err(Error::io("write", path))
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

/// What CTF can say of a CPU's losses: one number, or that it is unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    known: u64,
    unknown: bool,
}

impl Losses {
    fn of(recording: &Recording, cpu: CpuId) -> Losses {
        // A gap's count is not one of events, and nobody discarded them: that stays in `env`, where it is said in words.
        let here =
            recording.losses.iter().filter(|loss| loss.cpu == Some(cpu) && loss.cause != LossCause::Gap);
        here.fold(Losses::default(), |sum, loss| Losses {
            known: sum.known.saturating_add(loss.count.unwrap_or(0)),
            unknown: sum.unknown || loss.count.is_none(),
        })
    }
}

/// Indexes of each CPU's events, with an entry for every CPU that anything is known of, and at least one entry.
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

const _: () = assert!(id::LATE_RESPONSE < packet::EXTENDED, "frequent events have compact headers");
