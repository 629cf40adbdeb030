// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completes the trace of a recording: what was lost and what is to be said is added, and it gets its name. After a kill, too: then
//! its streams are cut to whole packets, and its events are counted in it.

use super::end::UserEnd;
use super::merge::LiveTrace;
use super::session_file::{SessionContent, SessionFile, UserSession};
use super::streams::{STREAMS_MAX, stream_name};
use crate::Error;
use rtscope_ctf::{
    EARLIER_EVENTS, Evidence, OVERWRITTEN_OF_USER, Overwritten, RingTrace, StagedDir, UserMetadata,
    UserStreamSummary,
};
use rtscope_event::{Loss, LossCause, MonotonicNs, exact};
use rtscope_programs::budget::Refusal;
use rtscope_programs::clock::ClockError;
use rtscope_programs::clock_watch::{ClockProblem, ClockReport};
use rtscope_programs::collector::LossesByUser;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Remarks in a trace.
const REMARKS_MAX: usize = 100;

/// A recording whose trace waits for its completion. While it is open, no other process can open it.
#[derive(Debug)]
pub struct UserRecording {
    pub(super) file: SessionFile,
    pub(super) session: UserSession,
    /// Jumps of the programs' counter, of a recording that was killed.
    pub(super) clock: Vec<ClockProblem>,
    pub(super) undescribed: Vec<String>,
    /// `None`: nobody knows.
    pub(super) rings: Option<usize>,
    /// `None`: it did not end in order.
    pub(super) end: Option<UserEnd>,
    /// `None`: the state of its streams is unknown.
    pub(super) live: Option<LiveTrace>,
}

/// What is in a trace of programs.
#[derive(Clone, Debug, Default)]
pub struct UserSummary {
    /// Number of events.
    pub events: u64,
    /// Events by name.
    pub by_event: BTreeMap<String, u64>,
    /// Losses by cause.
    pub losses: Vec<Loss>,
    /// Whose they are. Unknown, and empty, after a kill.
    pub by_user: LossesByUser,
    /// Size of the trace.
    pub bytes: u64,
    /// Of that, the metadata.
    pub metadata_bytes: u64,
    /// Beginning of the trace.
    pub from: MonotonicNs,
    /// End of the trace; `None` without an orderly end of the recording.
    pub until: Option<MonotonicNs>,
    /// Events that were out of order and got the time of the previous event.
    pub moved: u64,
    /// Threads that recorded, if that is known.
    pub rings: Option<usize>,
    /// How far a counter's value may be from CLOCK_MONOTONIC.
    pub clock_error_ns: Option<ClockError>,
    /// Events that were left out, since they were not asked for: it is known unless the recording was killed.
    pub filtered: u64,
    /// Of the events, those from before the recording: an earlier recorder had not taken them when it was killed. Known unless this one was, too.
    pub earlier: u64,
    /// How often threads waited for space.
    pub waits: u64,
    /// Channels of an STM that threads got: events that went there are not in this trace.
    pub channels: u64,
    /// The kernel's clock, and what made times wrong.
    pub clock: ClockReport,
    /// Remarks about single programs.
    pub remarks: Vec<String>,
    /// What was left out of users, and why.
    pub refused: Vec<Refusal>,
    /// What was removed to keep the trace below its limit; `None`: it had no limit. [`UserSummary::events`] is without them, the counts
    /// by event are with them, unless the recording was killed.
    pub overwritten: Option<Overwritten>,
    /// Events of that, by user; those of users who had streams together are of user 2^32 - 1. Unknown, and empty, after a kill.
    pub overwritten_by_user: BTreeMap<u32, u64>,
}

/// The streams as they are.
struct Streams {
    done: Vec<UserStreamSummary>,
    /// Losses that streams of a killed recorder tell of.
    told: u64,
}

impl UserRecording {
    /// The directory of an interrupted recording to `target`, if there is one.
    #[must_use]
    pub fn find(target: &Path) -> Option<PathBuf> {
        SessionFile::find(target)
    }

    /// Opens an interrupted recording to `target`.
    ///
    /// # Errors
    /// When there is none, its recorder is alive, or it cannot be parsed.
    pub fn open(target: &Path) -> Result<UserRecording, Error> {
        let (file, content) = SessionFile::open(target)?;
        let SessionContent { session, clock, undescribed, end } = content;
        Ok(UserRecording { file, session, clock, undescribed, rings: None, end, live: None })
    }

    /// Completes the trace, which becomes `target`.
    ///
    /// # Errors
    /// When `target` exists or the system refuses (a full disk): the recording is left as it was.
    pub fn complete(mut self, target: &Path) -> Result<UserSummary, Error> {
        let directory = self.file.trace();
        if !fs::symlink_metadata(&directory).map_or(true, |found| found.is_dir()) {
            return Err(Error::broken(&directory, "it is not a directory; no recording makes that"));
        }
        fs::create_dir_all(&directory).map_err(Error::io("make the directory", &directory))?;
        let staged = StagedDir::kept(&directory, target)?;
        let live = self.live.take();
        let mut summary = self.summary();
        let streams = match &live {
            Some(live) => {
                count_events(live, &mut summary);
                summary.clock_error_ns = live.clock_error_ns;
                summary.filtered = live.filtered;
                summary.earlier = live.earlier;
                summary.overwritten_by_user.clone_from(&live.overwritten_by_user);
                summary.remarks.extend(live.remarks.iter().cloned());
                Streams { done: live.streams.clone(), told: 0 }
            }
            None => interrupted(&directory, &self.session)?,
        };
        summary.losses = self.losses(streams.told);
        summary.moved = streams.done.iter().map(|stream| stream.moved).sum();
        let is_counted = live.is_some();
        summary.overwritten = match &live {
            Some(live) => live.overwritten,
            None => RingTrace::overwritten_of(&directory),
        };
        let written = self.finish_metadata(&directory, live.and_then(|live| live.metadata), &summary)?;
        summary.metadata_bytes = written;
        summary.bytes = match summary.overwritten {
            Some(_) => RingTrace::sync(&directory).map_err(Error::io("sync", &directory))?,
            None => written + streams.done.iter().map(|stream| stream.bytes).sum::<u64>(),
        };
        staged.publish()?;
        if let Some(overwritten) = summary.overwritten.filter(|_| is_counted) {
            summary.events = summary.events.saturating_sub(overwritten.events);
            summary.from = summary.from.max(overwritten.until);
        }
        if !is_counted {
            summary.by_event = crate::convert::events_in(target)?;
            summary.events = summary.by_event.values().sum();
        }
        let directory = &self.file.directory;
        directory.remove().map_err(Error::io("remove", &directory.shown))?;
        Ok(summary)
    }

    /// What the end, or the file, says.
    fn summary(&self) -> UserSummary {
        let end = self.end.as_ref();
        let remarks = self.undescribed.iter().chain(end.into_iter().flat_map(|end| &end.remarks));
        UserSummary {
            from: MonotonicNs(self.session.started_ns),
            until: end.map(|end| MonotonicNs(end.ended_ns)),
            rings: self.rings,
            waits: end.map_or(0, |end| end.waits),
            channels: end.map_or(0, |end| end.channels),
            clock: end.map_or_else(
                || ClockReport { source: None, problems: self.clock.clone() },
                |end| end.clock.clone(),
            ),
            remarks: remarks.cloned().collect(),
            refused: end.map(|end| end.refused.clone()).unwrap_or_default(),
            by_user: end.map(|end| end.by_user.clone()).unwrap_or_default(),
            ..UserSummary::default()
        }
    }

    /// Adds to the metadata what is known only now. Returns its size.
    fn finish_metadata(
        &self,
        directory: &Path,
        metadata: Option<UserMetadata>,
        summary: &UserSummary,
    ) -> Result<u64, Error> {
        let path = directory.join("metadata");
        let metadata = match metadata {
            Some(metadata) => metadata,
            None if path.exists() => {
                let (metadata, wants_end) = UserMetadata::reopen(directory, self.session.context())?;
                if !wants_end {
                    return Ok(fs::metadata(&path).map_err(Error::io("look at", &path))?.len());
                }
                metadata
            }
            // It has no events.
            None => UserMetadata::create(directory, self.session.context(), &self.session.info())?,
        };
        let evidence = Evidence { losses: &summary.losses, history: &[], by_event: &[] };
        metadata.finish(&evidence, &extra(summary)).map_err(Error::io("write", &path))
    }

    /// `told`: what streams tell of.
    fn losses(&self, told: u64) -> Vec<Loss> {
        let end = self.end.as_ref();
        let of_end = |count: fn(&UserEnd) -> u64| end.map_or(0, count);
        let counts = [
            (LossCause::BufferFull, end.map_or(told, |end| end.lost)),
            (LossCause::Unfinished, of_end(|end| end.unfinished)),
            (LossCause::Unreadable, of_end(|end| end.unreadable)),
            (LossCause::NoBuffer, of_end(|end| end.lost_no_buffer)),
            (LossCause::TooLarge, of_end(|end| end.lost_too_large)),
            (LossCause::Discarded, of_end(|end| end.left_out)),
        ];
        let counted = counts.into_iter().filter(|(_, count)| *count > 0);
        let counted = counted.map(|(cause, count)| Loss { cpu: None, cause, count: Some(count) });
        let uncounted = [
            // They had no buffer, and nothing that counts.
            (LossCause::NoBuffer, end.is_some_and(|end| end.untraced > 0)),
            (LossCause::Refused, end.is_some_and(|end| end.dropped > 0 || !end.refused.is_empty())),
            // The collector switched them off.
            (LossCause::Undescribed, !self.undescribed.is_empty()),
            // The losses that an orderly end would have reported.
            (LossCause::Discarded, end.is_none()),
        ];
        let uncounted = uncounted.into_iter().filter(|(_, is_so)| *is_so);
        counted.chain(uncounted.map(|(cause, _)| Loss { cpu: None, cause, count: None })).collect()
    }
}

/// Entries of `env`.
fn extra(summary: &UserSummary) -> Vec<(String, String)> {
    let mut extra = Vec::new();
    if let Some(ClockError { checks, median, p99, max }) = summary.clock_error_ns {
        let text = format!("median={median} p99={p99} max={max} checks={checks}");
        extra.push(("rtscope_clock_error_ns".to_string(), text));
    }
    let source = summary.clock.source.iter();
    extra.extend(source.map(|source| ("rtscope_clock_source".to_string(), source.clone())));
    let overwritten = summary.overwritten_by_user.iter();
    extra
        .extend(overwritten.map(|(uid, events)| (format!("{OVERWRITTEN_OF_USER}{uid}"), events.to_string())));
    if summary.earlier > 0 {
        extra.push((EARLIER_EVENTS.to_owned(), summary.earlier.to_string()));
    }
    let problems = summary.clock.problems.iter().enumerate();
    extra.extend(problems.map(|(at, problem)| (format!("rtscope_clock_problem_{at}"), problem.sentence())));
    let remarks = summary.remarks.iter().enumerate().take(REMARKS_MAX);
    extra.extend(remarks.map(|(at, remark)| (format!("rtscope_remark_{at}"), remark.clone())));
    extra
}

fn count_events(live: &LiveTrace, summary: &mut UserSummary) {
    for stream in &live.streams {
        let counts = live.classes.iter().zip(&stream.counts).filter(|(_, count)| **count > 0);
        for (class, count) in counts {
            *summary.by_event.entry(class.event.name.clone()).or_default() += count;
            summary.events += count;
        }
    }
}

/// The streams of a killed recorder, without its unfinished packets.
fn interrupted(trace: &Path, session: &UserSession) -> Result<Streams, Error> {
    let mut streams = Streams { done: Vec::new(), told: 0 };
    let mut lost_of = BTreeMap::new();
    for (path, number, is_ring) in stream_files(trace)? {
        let (done, lost) =
            UserStreamSummary::of_interrupted(&path, exact::count(number), session.trace(), is_ring)?;
        if done.packets == 0 {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            continue;
        }
        // Each file goes on counting.
        let told: &mut u64 = lost_of.entry(number).or_default();
        *told = lost.max(*told);
        streams.done.push(done);
    }
    streams.told = lost_of.values().fold(0, |sum, lost| sum.saturating_add(*lost));
    Ok(streams)
}

/// The files of streams, the stream's number, and whether it is one of several.
fn stream_files(trace: &Path) -> Result<Vec<(PathBuf, usize, bool)>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(trace).map_err(Error::io("list", trace))? {
        let entry = entry.map_err(Error::io("list", trace))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let whole = (0..STREAMS_MAX).find(|number| name == stream_name(*number));
        let of_ring = (0..STREAMS_MAX).find(|number| name.starts_with(&format!("{}_", stream_name(*number))));
        files.extend(whole.or(of_ring).map(|number| (entry.path(), number, whole.is_none())));
    }
    files.sort();
    Ok(files)
}
