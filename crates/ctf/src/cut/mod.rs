// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace made of a part of another: `rtscope convert --to ctf`.
//!
//! Events are copied, not made anew ([ADR 0020](../../../../docs/adr/0020-a-cut-copies-events.md)): whatever a tracer wrote is in the
//! cut as it was. `stream` walks a stream and decides, `packets` writes, with the heads of packets changed at the `places` that say when,
//! how large and how many were lost, and events moved by `bits` where their alignment demands it; `metadata` gives the
//! cut another identity, and says what was cut off. Each stream is a piece of work for one thread.

mod bits;
mod metadata;
mod packets;
mod places;
mod stream;

use crate::Error;
use crate::StagedDir;
use crate::read::class::TraceClass;
use crate::read::parallel::for_each;
use crate::read::select::Selection;
use crate::read::set::{DamagedFile, OpenTrace, Stream, TraceSet, metadata_of};
use metadata::{Kept, edited, own_entries};
use rtscope_event::{CpuId, MonotonicNs};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stream::{CutStream, Job, cut_stream};
use uuid::Uuid;

/// What is cut out of which traces.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'c> {
    /// The traces.
    pub set: &'c TraceSet,
    /// The path that they were opened at.
    pub root: &'c Path,
    /// The part.
    pub selection: &'c Selection,
    /// The conditions of the selection as they were written, for people.
    pub conditions: &'c [String],
}

/// What a cut has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutSummary {
    /// Events.
    pub events: u64,
    /// Of these, those of a kernel trace's state dump that were kept to name tasks.
    pub dump_events: u64,
    /// Packets.
    pub packets: u64,
    /// Size of the streams.
    pub bytes: u64,
    /// Streams that have a packet.
    pub streams: u64,
    /// Parts of files that could not be read; not those that are in [`TraceSet::damaged`].
    pub damaged: Vec<DamagedFile>,
}

/// Makes `target`, a directory that does not exist, with a trace for each of the traces. `passed` is called with sizes of packets that were
/// read; false ends it.
///
/// # Errors
/// When `target` exists or is in the traces, when a trace's layout has no way to say what would be left, or when the system refuses.
/// Then nothing is made.
pub fn cut(cut: &Cut<'_>, target: &Path, passed: &(dyn Fn(u64) -> bool + Sync)) -> Result<CutSummary, Error> {
    refuse_inside(cut.root, target)?;
    let staged = StagedDir::new(target)?;
    let mut summary = CutSummary::default();
    for (place, trace) in cut.set.traces.iter().enumerate() {
        let first = trace.dirs.first().map_or(cut.root, PathBuf::as_path);
        let dir = staged.path().join(first.strip_prefix(cut.root).unwrap_or(Path::new("")));
        fs::create_dir_all(&dir).map_err(Error::io("make the directory", &dir))?;
        cut_trace(cut, place, trace, &dir, passed, &mut summary)?;
    }
    staged.publish()?;
    Ok(summary)
}

/// A directory in that of the traces would be one of them the next time.
fn refuse_inside(root: &Path, target: &Path) -> Result<(), Error> {
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (root.canonicalize(), parent.canonicalize()) {
        (Ok(root), Ok(parent)) if parent.starts_with(&root) => Err(Error::InsideTrace(target.to_owned())),
        _ => Ok(()),
    }
}

fn cut_trace(
    cut: &Cut<'_>,
    place: usize,
    trace: &OpenTrace,
    dir: &Path,
    passed: &(dyn Fn(u64) -> bool + Sync),
    summary: &mut CutSummary,
) -> Result<(), Error> {
    let streams: Vec<&Stream> = cut.set.streams.iter().filter(|stream| stream.trace == place).collect();
    let uuid = another_identity(trace.uuid());
    let job = Job { set: cut.set, selection: cut.selection, keeps_dump: keeps_dump(cut.selection), passed };
    let work: Vec<(&Stream, String)> = streams.iter().copied().zip(names(&streams)).collect();
    let results = Mutex::new(Vec::new());
    for_each(work, |(stream, name)| {
        let lock = || results.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().iter().any(|(_, result): &(_, Result<CutStream, Error>)| result.is_err()) {
            return;
        }
        let done = cut_stream(&job, stream, uuid, &dir.join(name));
        lock().push((stream, done));
    });
    let mut kept = Kept {
        from: cut.selection.from_ns.and_then(|from| on_the_clock(cut.set, &streams, from)),
        part_of_time: cut.selection.from_ns.is_some() || cut.selection.to_ns.is_some(),
        some_events: !cut.selection.events.is_empty() || !cut.selection.conditions.is_empty(),
        ..Kept::default()
    };
    for (stream, result) in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let done = result?;
        let cpu = stream.cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
        let is_damaged = !done.damaged.is_empty()
            || cut.set.damaged.iter().any(|damaged| stream.files.contains(&damaged.path));
        if let Some(cpu) = cpu.filter(|_| cut.selection.wants_cpu(stream.cpu)) {
            let losses = kept.losses.entry(cpu).or_default();
            losses.in_trace = losses.in_trace.saturating_add(stream.losses.events);
            losses.in_cut = losses.in_cut.saturating_add(done.lost);
            losses.at_edge |= done.lost_at_edge;
        }
        kept.damaged.extend(is_damaged.then_some(cpu));
        summary.events += done.events;
        summary.dump_events += done.dump_events;
        summary.packets += done.packets;
        summary.bytes += done.bytes;
        summary.streams += u64::from(done.packets > 0);
        summary.damaged.extend(done.damaged);
    }
    let mut entries = own_entries(trace.env(), &kept);
    entries.extend(said_of(cut, trace).into_iter().map(|(key, value)| (key, Some(value))));
    write_metadata(trace, dir, uuid, &entries)
}

/// A dump names tasks and interrupts for all that follows. Whoever asks for certain events wants these alone.
fn keeps_dump(selection: &Selection) -> bool {
    let by_place = selection.from_ns.is_some() || selection.cpus.is_some();
    by_place && selection.events.is_empty() && selection.conditions.is_empty()
}

/// A time as a value of the trace's clock; `None` if there are several clocks.
fn on_the_clock(set: &TraceSet, streams: &[&Stream], ns: i64) -> Option<MonotonicNs> {
    let clock = set.clock(streams.first()?)?;
    let same = streams.iter().all(|stream| set.clock(stream) == Some(clock));
    let since = u64::try_from(ns.saturating_sub(clock.base_ns())).unwrap_or(0);
    (same && clock.frequency == 1_000_000_000).then_some(MonotonicNs(since))
}

/// Another trace than the one that it is cut from: readers take traces of one identity for parts of one. The first half stays as it is, by
/// which traces are put in order, and events of the same time with them.
fn another_identity(uuid: Option<Uuid>) -> Uuid {
    let mut bytes = Uuid::new_v4().into_bytes();
    if let Some(uuid) = uuid {
        bytes[..10].copy_from_slice(&uuid.as_bytes()[..10]);
    }
    Uuid::from_bytes(bytes)
}

/// The names of streams' files, in their order: that of streams that have no number themselves.
fn names(streams: &[&Stream]) -> Vec<String> {
    let name = |stream: &&Stream| {
        let name = stream.files.first().and_then(|path| path.file_name());
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let names: Vec<String> = streams.iter().map(name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    let in_order = || {
        let plain = streams.iter().zip(&names).filter(|(stream, _)| stream.instance.is_none());
        plain.map(|(_, name)| name).is_sorted()
    };
    if sorted.len() == names.len() && in_order() {
        return names;
    }
    names.into_iter().enumerate().map(|(place, name)| format!("{place:06}-{name}")).collect()
}

/// What was cut from what, for people and for later cuts.
fn said_of(cut: &Cut<'_>, trace: &OpenTrace) -> BTreeMap<String, String> {
    let selection = cut.selection;
    let of = trace.uuid().map_or("unknown".to_owned(), |uuid| uuid.to_string());
    let list = |cpus: &std::collections::BTreeSet<u64>| {
        cpus.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    };
    let events = selection.events.texts();
    let joined = |texts: &[String], sign: &str| (!texts.is_empty()).then(|| texts.join(sign));
    let old = |key: &str| trace.env().get(key).map(ToString::to_string);
    let number = |key: &str| old(key).and_then(|text| text.parse::<i64>().ok());
    let from = selection.from_ns.max(number(FROM));
    let until = [selection.to_ns, number(UNTIL)].into_iter().flatten().min();
    let facts = [
        (FROM, from.map(|ns| ns.to_string())),
        (UNTIL, until.map(|ns| ns.to_string())),
        ("rtscope_cut_cpus", both(old("rtscope_cut_cpus"), selection.cpus.as_ref().map(list))),
        (EVENTS, both(old(EVENTS), joined(&events, " or "))),
        (CONDITIONS, both(old(CONDITIONS), joined(cut.conditions, " and "))),
        ("rtscope_cut_of", Some(of)),
    ];
    facts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Of a cut of a cut.
fn both(old: Option<String>, new: Option<String>) -> Option<String> {
    match (old, new) {
        (Some(old), Some(new)) => Some(format!("{old}; {new}")),
        (old, new) => old.or(new),
    }
}

/// Nanoseconds since the clock's origin: what is before is left out.
const FROM: &str = "rtscope_cut_from";
const UNTIL: &str = "rtscope_cut_until";
const EVENTS: &str = "rtscope_cut_events";
const CONDITIONS: &str = "rtscope_cut_where";

impl OpenTrace {
    /// Since when a cut has all events, in nanoseconds since the clock's origin; only the state dump is older.
    #[must_use]
    pub fn cut_from_ns(&self) -> Option<i64> {
        self.env().get(FROM)?.to_string().parse().ok()
    }

    /// Whether this is a cut from which events were left out by their name or fields.
    #[must_use]
    pub fn is_selection(&self) -> bool {
        [EVENTS, CONDITIONS].iter().any(|key| self.env().contains_key(*key))
    }
}

/// What plain text of metadata begins with.
const SIGNATURE: &str = "/* CTF";

fn write_metadata(
    trace: &OpenTrace,
    dir: &Path,
    uuid: Uuid,
    entries: &BTreeMap<String, Option<String>>,
) -> Result<(), Error> {
    // Of several parts the one that was taken when the trace was opened: the largest.
    let size = |class: &TraceClass| class.streams.len() + class.events.len();
    let mut taken: Option<(usize, PathBuf, String)> = None;
    for part in &trace.dirs {
        let path = part.join("metadata");
        let text = crate::read::files::metadata_text(&path)?;
        let size = if trace.dirs.len() > 1 { size(&metadata_of(&path, &text)?) } else { 0 };
        if taken.as_ref().is_none_or(|(largest, ..)| size > *largest) {
            taken = Some((size, path, text));
        }
    }
    let Some((_, path, text)) = taken else { return Ok(()) };
    let new = edited(&text, trace.uuid().map(|_| uuid), entries);
    let mut new = new.map_err(|fault| Error::Metadata { path, line: fault.line, what: fault.what })?;
    if !new.starts_with(SIGNATURE) {
        // The text was in packets, whose heads say what it is.
        new.insert_str(0, &format!("{SIGNATURE} 1.8 */\n\n"));
    }
    let path = dir.join("metadata");
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(new.as_bytes())?;
        file.sync_all()
    });
    written.map_err(Error::io("write", &path))
}
