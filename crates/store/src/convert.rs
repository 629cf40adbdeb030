// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spool to trace.
//!
//! The spool stays whole until the trace is: a conversion that is killed, stopped or meets a full disk can begin again.
//! So for a while both are on the disk. Freeing the spool's blocks as they are read would save that space, but then a failure in
//! the middle would lose the recording.

use crate::conversion::{Conversion, Course};
use crate::description::SpoolDescription;
use crate::formats::Formats;
use crate::lane::{LaneExtent, LaneFiles};
use crate::losses::LossSummary;
use crate::spool::{SpoolPlace, open_regular};
use crate::{Error, Spool};
use rtscope_ctf::{EventLoss, Evidence, Overwritten, RingTrace, Selection, TraceSet, TraceWriter, count};
use rtscope_event::{CpuId, Loss, MonotonicNs};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::UNIX_EPOCH;

/// The clocks of CPUs, and the time at which a file's time was read, differ by less.
pub(crate) const MARGIN_NS: u64 = 10_000_000_000;

/// How to convert.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Threads; 0: one for each CPU that this process may use.
    pub threads: usize,
    /// Receives the progress, from any of the threads.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
    /// Ends the conversion when it becomes true.
    pub cancel: Option<&'a AtomicBool>,
}

/// How far a conversion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes to be read: the banks twice.
    pub total: u64,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct ConversionSummary {
    /// Number of events, without those of the state dump.
    pub events: u64,
    /// Events by name.
    pub by_event: BTreeMap<String, u64>,
    /// Events by CPU.
    pub by_cpu: BTreeMap<CpuId, u64>,
    /// Losses by cause and CPU.
    pub losses: Vec<Loss>,
    /// Losses by event, as far as that is known.
    pub event_losses: Vec<EventLoss>,
    /// Size of the trace.
    pub bytes: u64,
    /// Size of the spool.
    pub spool_bytes: u64,
    /// Beginning of the trace.
    pub from: MonotonicNs,
    /// End of the trace; without an orderly end of the recording: its last event.
    pub until: Option<MonotonicNs>,
    /// Events from before all recorders were active; they are left out.
    pub early: u64,
    /// Events that were out of order and got the time of the previous event.
    pub moved: u64,
    /// Paths that could not be read.
    pub without_text: u64,
    /// Paths of which only the beginning was read (511 bytes); they end with "…".
    pub cut_texts: u64,
    /// Names of tasks that did not fit.
    pub names_dropped: u64,
    /// The recording had no orderly end.
    pub interrupted: bool,
    /// What was removed to keep the trace below its limit; `None`: it had no limit. [`ConversionSummary::events`] is without them, the
    /// counts by event and CPU are with them.
    pub overwritten: Option<Overwritten>,
}

/// Makes the trace `target` of a spool, and then removes the spool.
///
/// # Errors
/// When `target` exists, the spool makes no sense, the system refuses (a full disk), or the caller stopped it: the spool is
/// left as it was.
pub fn convert(spool: Spool, target: &Path, options: &Options<'_>) -> Result<ConversionSummary, Error> {
    if spool.description.is_ring && spool.place.trace().join("metadata").exists() {
        return complete_ring(spool, target);
    }
    let files = files(&spool)?;
    let description = spool.description.clone();
    let place = SpoolPlace { target: target.to_owned(), ..spool.place.clone() };
    let conversion = Conversion::new(place, description.clone(), &files, &description.leave_out, None)?;
    // What a killed recorder has converted is a part of what comes now.
    conversion.remove_trace();
    convert_rest(conversion, spool, options)
}

/// Of a recording that was limited in its size, and did not end in order: the trace has all but the newest events, which cannot be
/// converted without those before them.
fn complete_ring(spool: Spool, target: &Path) -> Result<ConversionSummary, Error> {
    let directory = spool.place.trace();
    let mut account = LossSummary::default();
    account.end(None, &spool.description);
    let mut summary = ConversionSummary {
        from: spool.description.started,
        interrupted: true,
        losses: account.losses(),
        overwritten: RingTrace::overwritten_of(&directory),
        ..ConversionSummary::default()
    };
    let evidence = Evidence { losses: &summary.losses, ..Evidence::default() };
    summary.bytes = TraceWriter::complete(&directory, target, &evidence)?;
    summary.by_event = events_in(target)?;
    let formats = formats_of(&spool.description)
        .map_err(|what| Error::broken(&spool.place.directory.shown.join("session.json"), what))?;
    summary.by_event.retain(|name, _| !name.starts_with("lttng_statedump_") && !formats.is_unasked(name));
    summary.events = summary.by_event.values().sum();
    spool.remove().map(|()| summary)
}

/// Those of a recording.
pub(crate) fn formats_of(description: &SpoolDescription) -> Result<Formats, String> {
    Formats::new(description.ftrace.as_ref(), &description.syscalls, &description.paths)
}

/// Events of a trace, by name.
///
/// # Errors
/// When it cannot be opened.
pub fn events_in(trace: &Path) -> Result<BTreeMap<String, u64>, Error> {
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

/// Converts what is left, and then removes the spool.
pub(crate) fn convert_rest(
    mut conversion: Conversion,
    spool: Spool,
    options: &Options<'_>,
) -> Result<ConversionSummary, Error> {
    let until = latest(&spool);
    for lane in &mut conversion.lanes {
        let bytes = |what| spool.bytes(lane.cpu, what);
        let (bank_bytes, pages_bytes) = (bytes("bank"), bytes("pages"));
        lane.grow(&LaneExtent { bank_bytes, pages_bytes, complete_until: until }, until);
    }
    let total = conversion.lanes.iter().fold(0_u64, |sum, lane| sum.saturating_add(lane.bytes_left()));
    let (place, trace) = conversion.places();
    let is_ring = spool.description.is_ring;
    match conversion.finish(spool.end.as_ref(), &Course::new(options, total)) {
        Ok(converted) => spool.remove().map(|()| converted),
        Err(error) => {
            if !is_ring {
                // It would only take the place that another attempt needs. The error matters more than a failure to remove.
                let _ = std::fs::remove_dir_all(trace);
            }
            let (spool, target) = (place.directory.shown, place.target);
            Err(if error.is_no_room() { Error::DiskFull { spool, target } } else { error })
        }
    }
}

/// The files of all CPUs.
fn files(spool: &Spool) -> Result<Vec<(CpuId, LaneFiles)>, Error> {
    let open = |cpu: CpuId, what: &str| -> Result<Option<Arc<File>>, Error> {
        match open_regular(&spool.path(cpu, what)) {
            Ok(file) => Ok(Some(Arc::new(file))),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    let mut cpus = spool.cpus()?;
    if cpus.is_empty() {
        // The state dump needs a stream to be in.
        cpus.push(CpuId(0));
    }
    let files = |cpu| Ok((cpu, LaneFiles { bank: open(cpu, "bank")?, pages: open(cpu, "pages")? }));
    cpus.into_iter().map(files).collect()
}

/// No event can have happened after this. Without an orderly end: when a file was last written, with a wide margin because
/// the wall clock may have been set.
fn latest(spool: &Spool) -> MonotonicNs {
    const WALL_MARGIN_NS: u64 = 3_600_000_000_000;
    if let Some(end) = &spool.end {
        return end.ended.plus(MARGIN_NS);
    }
    let written = |path: &Path| {
        let modified = std::fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(modified.as_nanos()).ok()?.checked_sub(spool.description.realtime_offset_ns)
    };
    let cpus = spool.cpus().unwrap_or_default();
    let paths = cpus.iter().flat_map(|cpu| [spool.path(*cpu, "bank"), spool.path(*cpu, "pages")]);
    let newest = paths.filter_map(|path| written(&path)).max();
    newest.map_or(MonotonicNs(u64::MAX), |newest| MonotonicNs(newest).plus(WALL_MARGIN_NS))
}
