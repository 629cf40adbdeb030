// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces on disk, for whoever reads them: opening them, which of their events are wanted (`filter`), and what is to be said of one that
//! is damaged, goes on, or was left by its recorder.

mod filter;
mod times;

pub use filter::EventFilter;

use crate::{Failure, Observer};
use rtscope_ctf::{DamagedFile, Follower, Links, Stage, TraceSet, open_regular};
use rtscope_event::counted;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Opens the traces below a directory.
///
/// # Errors
/// When there is none that can be read, with what to do about it.
pub fn open(path: &Path, observer: &dyn Observer) -> Result<TraceSet, Failure> {
    crate::limits::raise_file_limit();
    let unfinished = interrupted(path);
    let opened = TraceSet::open(path);
    if let (Ok(_), Some(target)) = (&opened, &unfinished) {
        observer.note(&format!(
            "{} is not complete: {}",
            path.display(),
            match stage(path) {
                Stage::Abandoned => format!(
                    "its recorder was killed; what it lost is not known, and rtscope record --recover {} completes it",
                    target.display()
                ),
                _ => "it is being recorded; what is there by now is read (--follow waits for what comes)"
                    .to_owned(),
            }
        ));
    }
    opened.map_err(|error| match unfinished {
        Some(target) => Failure::Failed(format!(
            "{} has no trace yet: its recorder was killed, or still works; rtscope record --recover {} makes the trace (print --follow and \
             stat --follow read one that is being made)",
            path.display(),
            target.display()
        )),
        None if matches!(path.try_exists(), Ok(false)) => Failure::Failed(format!("there is no {}", path.display())),
        None => Failure::Failed(of_another_tool(path).unwrap_or_else(|| error.to_string())),
    })
}

/// What to do with the file of a tool that does not write CTF.
fn of_another_tool(path: &Path) -> Option<String> {
    let mut begin = [0; 10];
    open_regular(path, Links::Follow).ok()?.read_exact(&mut begin).ok()?;
    let path = path.display();
    match &begin {
        // "PERFILE2" on the machine's side of bytes.
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..]
        | [b'2', b'E', b'L', b'I', b'F', b'R', b'E', b'P', ..] => Some(format!(
            "{path} is perf's own format; perf data convert -i {path} --to-ctf DIRECTORY makes a CTF trace, which this command reads"
        )),
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', b'n', b'g'] => Some(format!(
            "{path} is trace-cmd's own format, which nothing makes CTF of; trace-cmd report reads it, and rtscope record -k records the same \
             tracepoints as CTF"
        )),
        _ => None,
    }
}

/// How far the recording is that makes the traces below a directory.
#[must_use]
pub fn stage(path: &Path) -> Stage {
    match interrupted(path).and_then(|target| crate::record::is_abandoned(&target)) {
        None => Stage::Complete,
        Some(false) => Stage::Growing,
        Some(true) => Stage::Abandoned,
    }
}

/// The trace that a recording was to make which has not been completed: `path` is that, the directory that it is in, or that of what was
/// recorded.
fn interrupted(path: &Path) -> Option<PathBuf> {
    let named = path.file_name()?.to_str()?.strip_suffix(".partial").map(|name| path.with_file_name(name));
    let is_there = |target: &PathBuf| crate::record::is_unfinished(target);
    named.into_iter().chain([path.to_owned()]).find(is_there)
}

/// Whether a trace is not complete: there is none yet, or it is being made.
#[must_use]
pub fn is_being_made(trace: &Path) -> bool {
    !trace.exists() || Follower::is_being_made(trace)
}

/// Says once that there is nothing yet.
#[derive(Debug)]
pub struct WaitingNote<'t> {
    trace: &'t Path,
    observer: &'t dyn Observer,
    is_said: bool,
}

impl<'t> WaitingNote<'t> {
    /// Nothing is said yet.
    #[must_use]
    pub fn new(trace: &'t Path, observer: &'t dyn Observer) -> WaitingNote<'t> {
        WaitingNote { trace, observer, is_said: false }
    }

    /// It is that far now.
    pub fn stage(&mut self, stage: Stage) {
        if stage == Stage::Waiting && !std::mem::replace(&mut self.is_said, true) {
            self.observer.note(&format!("waiting for events of a recording to {}", self.trace.display()));
        }
    }
}

/// What to say of a recording that did not end in order; one that goes on was left by whoever followed it.
///
/// # Errors
/// When its recorder was killed, or its trace removed.
pub fn how_it_ended(stage: Stage, trace: &Path) -> Result<(), Failure> {
    let trace = trace.display();
    match stage {
        Stage::Waiting | Stage::Growing | Stage::Complete => Ok(()),
        Stage::Abandoned => Err(Failure::Damaged(format!(
            "the recorder of {trace} has ended without completing the trace; what it had written was shown; \
             rtscope record --recover {trace} makes the trace"
        ))),
        Stage::Removed => Err(Failure::Damaged(format!(
            "{trace} was removed or made anew while it was followed; what had been read by then was shown. A recorder does that \
             when converting fails while it records (a full disk), and --recover after a kill: rtscope print {trace} then shows all"
        ))),
    }
}

/// Says what of a trace could not be read, and gives an error if there was any, or if its recorder was killed.
///
/// # Errors
/// See there.
pub fn report_end(
    trace: &Path,
    damaged: &mut Vec<DamagedFile>,
    observer: &dyn Observer,
) -> Result<(), Failure> {
    report_damage(damaged, observer)?;
    match stage(trace) {
        Stage::Abandoned => how_it_ended(Stage::Abandoned, trace),
        // One that goes on is no error: what there was at the time was read.
        _ => Ok(()),
    }
}

/// Says what could not be read, each place once; the error at the end if there was any.
///
/// # Errors
/// See there.
pub fn report_damage(damaged: &mut Vec<DamagedFile>, observer: &dyn Observer) -> Result<(), Failure> {
    const SHOWN: usize = 20;
    let key = |file: &DamagedFile| (file.path.clone(), file.damage.packet_at);
    damaged.sort_by_key(key);
    damaged.dedup_by_key(|file| key(file));
    for file in damaged.iter().take(SHOWN) {
        observer.note(&file.to_string());
    }
    if damaged.len() > SHOWN {
        observer.note(&format!("and {} more", damaged.len() - SHOWN));
    }
    match damaged.len() {
        0 => Ok(()),
        count => Err(Failure::Damaged(format!(
            "the trace is damaged in {}; the readable part was shown",
            counted(count, "place", "places")
        ))),
    }
}
