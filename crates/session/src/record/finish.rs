// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the spool to the trace: after a recording, or later for one that was killed.

use super::{RecordedTrace, by_unit};
use crate::{Failure, Observer};
use rtscope_kernel::tracefs::Tracefs;
use rtscope_store::user::UserRecording;
use rtscope_store::{LiveConversion, Options, Progress, Spool};
use std::path::{Path, PathBuf};

/// Where a recording to this directory may have left something, also one of an earlier version.
fn places(target: &Path) -> [PathBuf; 3] {
    [target.to_owned(), target.join(super::KERNEL), target.join(super::PROGRAMS)]
}

/// What a recording to this directory has not made a trace of yet, if there is something.
fn unfinished(target: &Path) -> Option<PathBuf> {
    places(target).into_iter().find_map(|place| Spool::find(&place).or_else(|| UserRecording::find(&place)))
}

/// Whether a recording to this directory goes on, or was killed and can be recovered.
#[must_use]
pub fn is_unfinished(target: &Path) -> bool {
    unfinished(target).is_some()
}

/// Whether the recorder of a recording that is not complete was killed; `None` where nothing is left to be completed.
#[must_use]
pub fn is_abandoned(target: &Path) -> Option<bool> {
    unfinished(target).map(|left| rtscope_store::is_abandoned(&left))
}

/// A trace is never written over.
pub fn check_target(target: &Path) -> Result<(), Failure> {
    if target == Path::new("-") {
        return Err(Failure::Usage(
            "a trace is a directory of files and cannot go to standard output; name a directory with -o (`rtscope print --follow DIR` \
             prints its events while they are recorded)"
                .to_owned(),
        ));
    }
    if let Some(spool) = unfinished(target) {
        if !rtscope_store::is_abandoned(&spool) {
            return Err(Failure::Usage(format!(
                "a recording to {} is going on; name another directory with -o",
                target.display()
            )));
        }
        return Err(Failure::Usage(format!(
            "{} is left from an interrupted recording; rtscope record --recover {} makes its trace, or remove it",
            spool.display(),
            target.display()
        )));
    }
    if target.exists() {
        return Err(Failure::Usage(format!(
            "{} exists already; name another directory with -o",
            target.display()
        )));
    }
    Ok(())
}

/// Makes the trace, or the rest of it: with what was converted while it was recorded, and how much was missing then. The spool stays when
/// this fails, or is ended by a signal (the second one after that which ended the recording).
pub fn convert(
    (spool, live): (Spool, Option<(LiveConversion, u64)>),
    target: &Path,
    observer: &dyn Observer,
) -> Result<(), Failure> {
    let progress = |progress: Progress| observer.converting(progress.done, progress.total);
    let options = Options { progress: Some(&progress), cancel: None, ..Options::default() };
    let behind_ns = live.as_ref().map(|(_, behind_ns)| *behind_ns);
    let converted = match live {
        Some((live, _)) => live.finish(spool, &options),
        None => rtscope_store::convert(spool, target, &options),
    };
    let converted = converted.map_err(|error| {
        observer.end_of_progress();
        let advice = format!(
            "the raw recording is retained; rtscope record --recover {} tries again",
            target.display()
        );
        Failure::Failed(format!("making the trace {}: {error}; {advice}", target.display()))
    })?;
    observer.recorded(&RecordedTrace::Kernel { target, summary: &converted, behind_ns });
    Ok(())
}

/// The same for programs, whose trace is there. `recording_cpu_us`: CPU time that this process had used when all was taken, if it recorded itself.
pub fn complete_programs(
    recording: UserRecording,
    target: &Path,
    recording_cpu_us: Option<u64>,
    observer: &dyn Observer,
) -> Result<(), Failure> {
    let completed = recording.complete(target).map_err(|error| {
        observer.end_of_progress();
        let advice = format!(
            "what was recorded is retained; rtscope record --recover {} tries again",
            target.display()
        );
        Failure::Failed(format!("making the trace {}: {error}; {advice}", target.display()))
    })?;
    observer.recorded(&RecordedTrace::Programs {
        target,
        summary: &completed,
        recording_cpu_us,
        asked: None,
    });
    Ok(())
}

/// Makes the traces of a recording that was killed: of what is unfinished at `target`, or of both traces in it.
///
/// # Errors
/// When there is nothing, its recorder is alive, or the trace cannot be made.
pub fn recover(target: &Path, observer: &dyn Observer) -> Result<(), Failure> {
    crate::limits::raise_file_limit();
    // Its instance, too, if it is still there; whoever may not remove it can have the trace all the same.
    let _ = Tracefs::find().and_then(|tracefs| tracefs.sweep());
    let mut found = false;
    for place in places(target) {
        if let Some(path) = Spool::find(&place) {
            let spool = Spool::open(&path)?;
            convert((spool, None), &place, observer)?;
            found = true;
        }
        if UserRecording::find(&place).is_some() {
            complete_programs(UserRecording::open(&place)?, &place, None, observer)?;
            found = true;
        }
        if let Some(directory) = rtscope_store::remove_unbegun(&place)? {
            let directory = directory.display();
            observer.note(&format!(
                "{directory} is removed: its recorder was killed before it had recorded anything"
            ));
            found = true;
        }
    }
    if let Some(capture) = by_unit::unfinished(target) {
        by_unit::recover(&capture, &target.join(super::PLACES), observer)?;
        found = true;
    }
    if found {
        return Ok(());
    }
    Err(Failure::Usage(format!("{}: there is no unfinished recording to recover", target.display())))
}
