// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording that goes on, read as it grows.
//!
//! Nothing is kept but places in files: what was not taken yet stays on the disk, however slow the taker is. Each look reads the heads
//! that changed and the metadata that was appended, each round what those heads count, merged by time up to a moment: the *horizon*, `now`
//! less the delay. A stream without events up to the horizon has none that are in time; whatever it still brings is late, and says so. So
//! nobody waits for a thread that is idle, stopped in the middle of an event, or recorded by a process that has fallen behind.
//!
//! Where the newest that comes is late, its writer is behind (`behind.rs`), and its streams wait for each other as far as they grow.
//!
//! What the writer promises, on which this rests: `write/followed.rs` (streams), `write/growing.rs` (metadata).

mod behind;
mod count;
mod merge;
mod names;
mod part;
mod print;
mod source;
mod tail;

use super::blocks;
use super::class::TraceClass;
use super::index::{Losses, StreamGap};
use super::packet::TracePlans;
use super::select::Selection;
use super::set::{DamagedFile, OpenTrace, Stream, TraceSet};
use crate::Error;
use crate::private_env;
use crate::write::RingFileName;
use behind::Behind;
pub use names::NamesFollower;
use nix::time::{ClockId, clock_gettime};
use part::{Part, is_absent};
pub use print::Followed;
pub use source::{FollowSource, Host};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tail::Tail;
use uuid::Uuid;

/// Traces that one recording may consist of, beside the one that has its name.
const PARTS: [&str; 2] = ["kernel", "ust"];

impl Stage {
    /// Whether nothing will come.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Stage::Complete | Stage::Abandoned | Stage::Removed)
    }
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is there that can be read.
    Waiting,
    /// It goes on.
    Growing,
    /// It has ended in order: nothing will come.
    Complete,
    /// Whoever recorded it is gone, and has not completed it: nothing will come.
    Abandoned,
    /// A part of it was removed, or replaced by another, before it was complete: nothing will come.
    Removed,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There is nothing more before the horizon.
    Dry,
    /// There is more, once [`Follower::look`] has been called.
    More,
    /// The taker wants no more.
    Stopped,
}

/// Reads a recording while it is made.
#[derive(Debug)]
pub struct Follower {
    target: PathBuf,
    set: TraceSet,
    parts: Vec<Part>,
    /// As the streams of the set.
    tails: Vec<Tail>,
    selection: Selection,
    /// Changes with the streams and classes of the set.
    generation: u64,
    /// Number of events that came too late to be in order.
    late: u64,
    /// The latest event that was given out.
    floor_ns: i64,
    /// To be said when events have reached the time.
    losses: VecDeque<(i64, usize, StreamGap)>,
    /// Of all that is in the files.
    newest_ns: i64,
    grown: Instant,
    behind: Behind,
    /// What the last round gave events up to.
    reached_ns: i64,
    boot: Option<Uuid>,
    /// Number of looks so far.
    looks: u64,
    /// At the last one: nothing will come.
    is_over: bool,
}

impl Follower {
    /// Of a recording that becomes the directory `target`; it need not have begun. Nothing is read yet.
    #[must_use]
    pub fn new(target: &Path, selection: Selection) -> Follower {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        Follower {
            target: target.to_owned(),
            set: TraceSet { traces: Vec::new(), streams: Vec::new(), damaged: Vec::new() },
            parts: Vec::new(),
            tails: Vec::new(),
            selection,
            generation: 0,
            late: 0,
            floor_ns: i64::MIN,
            losses: VecDeque::new(),
            newest_ns: i64::MIN,
            grown: Instant::now(),
            behind: Behind::default(),
            reached_ns: i64::MIN,
            looks: 0,
            is_over: false,
            boot: boot.and_then(|boot| Uuid::parse_str(boot.trim()).ok()),
        }
    }

    /// Whether somebody makes a recording that becomes this directory, or was killed doing that.
    #[must_use]
    pub fn is_being_made(target: &Path) -> bool {
        workshops(target).iter().any(|path| path.is_dir())
    }

    /// Whether no event that is selected can be where the last round ended, or after that.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.selection.to_ns.is_some_and(|to| to < self.reached_ns)
    }

    /// Up to when the last round gave events: its horizon, or less where its writer is behind.
    #[must_use]
    pub fn reached_ns(&self) -> i64 {
        self.reached_ns
    }

    /// Files that could not be read on.
    pub fn take_damaged(&mut self) -> Vec<DamagedFile> {
        std::mem::take(&mut self.set.damaged)
    }

    /// The traces and streams so far. More may come; those that are there keep their numbers.
    #[must_use]
    pub fn set(&self) -> &TraceSet {
        &self.set
    }

    /// A number that changes when there are more streams or classes of events.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of events so far that came too late to be in order.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Looks for traces, streams and classes. `is_abandoned` is asked about directories in which recordings are made: whether their
    /// recorder is gone.
    ///
    /// # Errors
    /// When a file cannot be read, or metadata cannot be understood.
    pub fn look(&mut self, is_abandoned: &dyn Fn(&Path) -> bool) -> Result<Stage, Error> {
        // In this order: a recorder that is gone, or has removed its directory, does nothing more to what is looked at then.
        let workshops = workshops(&self.target);
        let there: Vec<&PathBuf> = workshops.iter().filter(|path| path.is_dir()).collect();
        let is_idle = self.grown.elapsed() > Duration::from_millis(300);
        let is_over = is_idle && !there.is_empty() && there.iter().all(|path| is_abandoned(path));
        self.look_for_parts()?;
        let streams = self.tails.len();
        for place in 0..self.parts.len() {
            self.look_at_part(place)?;
        }
        if self.tails.len() > streams {
            self.rank();
        }
        let is_complete = !self.parts.is_empty() && self.parts.iter().all(|part| part.is_complete);
        let is_removed = self.parts.iter().any(|part| part.is_gone && !part.is_complete);
        self.looks += 1;
        let stage = match (there.is_empty(), is_complete) {
            _ if is_removed => Stage::Removed,
            (true, true) => Stage::Complete,
            (false, true) if is_over => Stage::Complete,
            _ if is_over => Stage::Abandoned,
            _ if self.parts.is_empty() => Stage::Waiting,
            _ => Stage::Growing,
        };
        self.is_over = stage.is_over();
        Ok(stage)
    }

    fn look_for_parts(&mut self) -> Result<(), Error> {
        let targets = std::iter::once(self.target.clone()).chain(PARTS.map(|name| self.target.join(name)));
        for (target, workshop) in targets.zip(workshops(&self.target)) {
            if self.parts.iter().any(|part| part.is_of(&target)) {
                continue;
            }
            let trace = self.set.traces.len();
            let Some(mut part) = Part::open(&workshop.join("trace"), &target, trace)? else { continue };
            part.metadata.more()?;
            let class = parse(&part)?;
            let plans = TracePlans::new(&class);
            self.set.traces.push(OpenTrace { dirs: vec![target], class, plans });
            self.parts.push(part);
            self.generation += 1;
        }
        Ok(())
    }

    fn look_at_part(&mut self, place: usize) -> Result<(), Error> {
        let Some(part) = self.parts.get_mut(place) else { return Ok(()) };
        part.look()?;
        let files = part.new_files()?;
        part.metadata.more()?;
        self.take_classes(place)?;
        for (name, path) in files {
            if self.is_next_file(place, &name) {
                continue;
            }
            let file = match self.parts.get(place).map_or(Ok(None), |part| part.open_file(&name).map(Some)) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(Error::io("open", &path)(error)),
            };
            let tail = Tail::new(file).in_ring(self.ring_file(place, &name));
            if self.add_stream(place, path, tail)? {
                self.parts.get_mut(place).into_iter().for_each(|part| part.know(name.clone()));
            }
        }
        Ok(())
    }

    /// The file's place in a ring of files, and its stream.
    fn ring_file(&self, place: usize, name: &OsStr) -> Option<(String, RingFileName)> {
        let trace = self.set.traces.get(self.parts.get(place)?.trace)?;
        RingFileName::parse(name.to_str()?).filter(|_| private_env::has_ring(&trace.class.env))
    }

    /// Notes a file that belongs to a stream which is known.
    fn is_next_file(&mut self, place: usize, name: &OsStr) -> bool {
        let Some((stem, file)) = self.ring_file(place, name) else { return false };
        let Some(part) = self.parts.get_mut(place) else { return false };
        let of_trace = self.tails.iter_mut().zip(&self.set.streams);
        let mut of_trace = of_trace.filter(|(_, stream)| stream.trace == part.trace);
        let Some((tail, _)) = of_trace.find(|(tail, _)| tail.is_of_ring(&stem)) else { return false };
        tail.expect_file(file, name.to_owned(), self.looks);
        part.know(name.to_owned());
        true
    }

    /// Makes use of metadata that came.
    fn take_classes(&mut self, place: usize) -> Result<(), Error> {
        let Some(part) = self.parts.get_mut(place).filter(|part| part.metadata.is_new) else { return Ok(()) };
        part.metadata.is_new = false;
        let class = parse(part)?;
        let Some(trace) = self.set.traces.get_mut(part.trace) else { return Ok(()) };
        let has = |class: &TraceClass| (class.streams.len(), class.events.len(), class.clocks.len());
        let (before, now) = (has(&trace.class), has(&class));
        if now.0 < before.0 || now.1 < before.1 || now.2 < before.2 {
            let what = "classes that it had are gone".to_owned();
            return Err(Error::Metadata { path: part.metadata.path.clone(), line: 1, what });
        }
        if now != before {
            trace.plans = TracePlans::new(&class);
            self.generation += 1;
            for (tail, stream) in self.tails.iter_mut().zip(&self.set.streams) {
                if stream.trace == part.trace {
                    tail.verdicts = None;
                }
            }
        }
        trace.class = class;
        // What only the end of a recording knows comes last, when all streams are complete.
        part.is_complete |= private_env::parse(&trace.class.env).is_some();
        Ok(())
    }

    /// Adds the stream of a file; false while it has no packet.
    fn add_stream(&mut self, place: usize, path: PathBuf, mut tail: Tail) -> Result<bool, Error> {
        let Some((part, trace)) =
            self.parts.get(place).and_then(|part| Some((part, self.set.traces.get(part.trace)?)))
        else {
            return Ok(false);
        };
        let Some(head) = tail.first(&trace.plans).map_err(Error::io("read", &path))? else {
            return Ok(false);
        };
        let Some(class) = trace.class.streams.get(head.stream) else { return Ok(false) };
        self.set.streams.push(Stream {
            trace: part.trace,
            class: head.stream,
            class_id: class.id,
            instance: head.instance,
            cpu: head.cpu,
            files: vec![path],
            packets: 0,
            bytes: 0,
            losses: Losses::default(),
            overwritten: None,
            segments: Vec::new(),
        });
        self.tails.push(tail);
        self.generation += 1;
        Ok(true)
    }

    /// The order of streams with events of one time, as of a trace that is read as a whole.
    fn rank(&mut self) {
        let key = |place: &usize| {
            let stream = self.set.streams.get(*place)?;
            let trace = self.set.traces.get(stream.trace)?;
            let instance = stream.instance.unwrap_or(0);
            Some((
                trace.uuid().is_none(),
                trace.uuid(),
                trace.host(),
                stream.class_id,
                instance,
                &stream.files,
            ))
        };
        let mut order: Vec<usize> = (0..self.tails.len()).collect();
        order.sort_by(|one, other| key(one).cmp(&key(other)));
        for (rank, place) in (0..).zip(order) {
            self.tails.get_mut(place).into_iter().for_each(|tail| tail.rank = rank);
        }
    }

    /// The moment up to which events have had `delay` to come, in the time of events. On the machine and in the boot that it is recorded in,
    /// that is now less the delay; elsewhere it follows from the newest event. Where the newest comes later than that,
    /// streams that grow wait for each other for the delay.
    #[must_use]
    pub fn horizon(&mut self, delay: Duration) -> i64 {
        self.behind.patience = delay;
        let delay_ns = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).ok();
        let monotonic_ns = monotonic.and_then(|now| i64::try_from(now.as_nanos()).ok());
        let clocks = self.set.traces.iter().filter_map(|trace| trace.clocks().first());
        let now = clocks.map(|clock| {
            let is_ours = clock.uuid.is_some() && clock.uuid == self.boot;
            monotonic_ns.filter(|_| is_ours).map(|now| clock.base_ns().saturating_add(now))
        });
        let now: Option<Vec<i64>> = now.collect();
        match now.and_then(|now| now.into_iter().min()) {
            Some(now) => now.saturating_sub(delay_ns),
            None if self.grown.elapsed() >= delay => self.newest_ns.saturating_add(1),
            None => self.newest_ns.saturating_sub(delay_ns),
        }
    }
}

/// The directories in which a recording is made.
fn workshops(target: &Path) -> Vec<PathBuf> {
    let partial = |path: &Path| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        path.with_file_name(name)
    };
    let parts = PARTS.iter().map(|name| partial(&target.join(name)));
    std::iter::once(partial(target)).chain(parts).collect()
}

fn parse(part: &Part) -> Result<TraceClass, Error> {
    blocks::parse(&part.metadata.text).map_err(|fault| Error::Metadata {
        path: part.metadata.path.clone(),
        line: fault.line,
        what: fault.what,
    })
}
