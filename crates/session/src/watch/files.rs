// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A saved late response on disk: a directory that appears at once or not at all.
//!
//! ```text
//! DIR/20261120T234107Z-1/
//!   trigger.json   what was detected, the window, the history held, what is missing
//!   explain.txt    the explanation, for people
//!   kernel/        the CTF trace (babeltrace2 and Trace Compass open it)
//!   ust/           the same of programs, with -u
//!   hardware/      what a trace unit wrote, with --hardware: see rtscope_hardware::capture
//! ```

use super::shares::SavedBytes;
use super::writer::Parts;
use crate::{Failure, Observer};
use rtscope_ctf::{Links, StagedDir, TraceInfo, open_regular, read_trace, write_trace};
use rtscope_event::Recording;
use rtscope_flight::monotonic_now;
use rtscope_store::trigger::{self, TriggerFile};
use rtscope_store::write_snapshot;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// What is saved: the kernel's events, and what others held.
pub(super) type Evidence<'a> = (&'a Recording, &'a Parts);

/// Writes the directory, and says how large it is; nothing is left of it when that fails. `None`: somebody else (a second watch that saves in the same
/// directory) has taken the name.
pub(super) fn write(
    target: &Path,
    trigger: &TriggerFile,
    explanation: Option<&str>,
    (recording, parts): Evidence<'_>,
    info: &TraceInfo,
) -> Result<Option<SavedBytes>, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::doing(format!("saving {}", target.display()), error);
    let staged = match StagedDir::new(target) {
        Err(rtscope_ctf::Error::Exists(_)) => return Ok(None),
        staged => staged.map_err(|error| failed(&error))?,
    };
    let json = serde_json::to_string_pretty(trigger).map_err(|error| failed(&error))?;
    fs::write(staged.path().join("trigger.json"), json + "\n").map_err(|error| failed(&error))?;
    if let Some(text) = explanation {
        fs::write(staged.path().join("explain.txt"), text).map_err(|error| failed(&error))?;
    }
    let trace = staged.path().join("kernel");
    match &parts.ftrace {
        Some(part) => write_snapshot(&trace, recording, info, &part.tracepoints, &part.pages)
            .map(drop)
            .map_err(|error| failed(&error))?,
        None => write_trace(&trace, recording, info).map(drop).map_err(|error| failed(&error))?,
    }
    let begun = monotonic_now();
    let programs = parts.user.as_ref().map(|user| user.write(&staged.path().join("ust"))).transpose();
    let programs = programs.map_err(|error| failed(&error))?.unwrap_or_default();
    let took_ns = monotonic_now().since(begun);
    if let Some(hardware) = &parts.hardware {
        hardware.write(staged.path())?;
    }
    let all = disk_bytes(staged.path()).map_err(|error| failed(&error))?;
    let saved = SavedBytes {
        descriptions: programs.metadata_bytes,
        rings: programs.bytes.saturating_sub(programs.metadata_bytes),
        rest: all.saturating_sub(programs.bytes),
        took_ns,
    };
    match staged.publish() {
        Err(rtscope_ctf::Error::Exists(_)) => Ok(None),
        published => published.map(|()| Some(saved)).map_err(|error| failed(&error)),
    }
}

/// What all in a directory takes on the disk. Not by its blocks: some file systems count them only when they have been written.
fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let (entry, status) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        bytes += status.len().next_multiple_of(BLOCK_BYTES);
        if status.is_dir() {
            bytes += disk_bytes(&entry)?;
        }
    }
    Ok(bytes)
}

/// Reads a directory back: what was detected, and the events around it.
///
/// # Errors
/// When it is not the directory of a saved late response, or damaged.
pub fn read(directory: &Path, observer: &dyn Observer) -> Result<(TriggerFile, Recording), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::doing(format!("reading {}", directory.display()), error);
    if matches!(directory.try_exists(), Ok(false)) {
        return Err(Failure::Failed(format!("there is no {}", directory.display())));
    }
    let missing = "trigger.json is missing: this explains late responses that rtscope watch saved, each in a directory of its own; of any other trace \
         rtscope stat says how long tasks waited (--tasks, --latency wakeup)";
    let trigger = trigger(directory)?.ok_or_else(|| failed(&missing))?;
    let trace = read_trace(&directory.join("kernel")).map_err(|error| failed(&error))?;
    trace.warnings.iter().for_each(|warning| observer.note(warning));
    let mut recording = trace.recording;
    // What was lost when it was recorded, and what is damaged in these files.
    let damaged =
        recording.losses.drain(..).filter(|loss| !trigger.losses.contains(loss)).collect::<Vec<_>>();
    recording.losses = trigger.losses.iter().cloned().chain(damaged).collect();
    recording.history.clone_from(&trigger.history);
    Ok((trigger, recording))
}

/// Reads what was detected; `None` for a directory without `trigger.json`, such as that of a recording.
///
/// # Errors
/// When the file cannot be read, or no watch has written it.
pub fn trigger(directory: &Path) -> Result<Option<TriggerFile>, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::Failed(format!("reading {}: trigger.json: {why}", directory.display()))
    };
    match trigger_text(&directory.join("trigger.json")) {
        Ok(text) => trigger::parse(&text).map(Some).map_err(|why| failed(&why)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// The largest `trigger.json` that is read: ours have some kilobytes.
const TRIGGER_BYTES_MAX: u64 = 64 << 20;

/// The file may come from anybody: a regular file of a bounded size, or nothing.
fn trigger_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = open_regular(path, Links::Follow)?.take(TRIGGER_BYTES_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > TRIGGER_BYTES_MAX { Err(io::Error::other("larger than 64 MiB")) } else { Ok(text) }
}

/// Removes what killed watches left: snapshots that nobody will finish.
pub(super) fn remove_leftovers(directory: &Path) {
    rtscope_ctf::remove_abandoned(directory, is_of_a_snapshot);
}

/// `20261120T234107Z-1`, perhaps with `.2` after the number.
fn is_of_a_snapshot(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parse = || {
        let (stamp, number) = name.split_once('-')?;
        let (day, time) = stamp.strip_suffix('Z')?.split_once('T')?;
        let is_stamp = day.len() == 8 && time.len() == 6 && digits(day) && digits(time);
        Some(is_stamp && number.split('.').all(digits))
    };
    parse().unwrap_or(false)
}

/// `DIR/20261120T234107Z-1`, or with a further number if that is taken.
pub(super) fn free_name(dir: &Path, stamp: &str, number: u64) -> PathBuf {
    let first = dir.join(format!("{stamp}-{number}"));
    // A link that leads nowhere is taken, too.
    let is_free = |path: &Path| fs::symlink_metadata(path).is_err();
    if is_free(&first) {
        return first;
    }
    (2..)
        .map(|again| dir.join(format!("{stamp}-{number}.{again}")))
        .find(|path| is_free(path))
        .unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_snapshots_are_swept() {
        for ours in ["20261120T234107Z-1", "20261120T234107Z-12.2"] {
            assert!(is_of_a_snapshot(ours), "{ours}");
        }
        for other in ["20261120T234107Z", "20261120T234107Z-", "notes-1", "", "20261120T2341Z-1", "kernel"] {
            assert!(!is_of_a_snapshot(other), "{other}");
        }
    }
}
