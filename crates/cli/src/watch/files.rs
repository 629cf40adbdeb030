// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A saved late response on disk: a folder that appears at once or not at all.
//!
//! ```text
//! DIR/20261120T234107Z-1/
//!   trigger.json   what was detected, the window, the history held, what is missing
//!   explain.txt    the explanation, for people
//!   kernel/        the CTF trace (babeltrace2 and Trace Compass open it)
//! ```

use crate::exit::Failure;
use rtscope_ctf::{StagedDir, TraceInfo, read_trace, write_trace};
use rtscope_event::{CpuHistory, LateResponse, Loss, MonotonicNs, Recording};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Version of `trigger.json`.
pub const SCHEMA: &str = "rtscope.snapshot/1";

/// `trigger.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TriggerFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program that wrote it.
    pub producer: String,
    /// Number of the snapshot in its run.
    pub number: u64,
    /// `CLOCK_MONOTONIC`.
    pub detected_ns: MonotonicNs,
    /// The same, UTC, RFC 3339.
    pub detected_at: String,
    /// History asked for.
    pub pre_ns: u64,
    /// Time after the detection.
    pub post_ns: u64,
    /// What the trace covers.
    pub from_ns: MonotonicNs,
    /// What the trace covers.
    pub until_ns: MonotonicNs,
    /// Whether each CPU's history reaches back to `from_ns`.
    pub pre_met: bool,
    /// How far back each CPU's history reaches.
    pub history: Vec<CpuHistory>,
    /// What is missing from the trace.
    pub losses: Vec<Loss>,
    /// From the end of the window until the banks were in private memory.
    pub copied_ns: u64,
    /// What was watched, in words.
    pub watched: String,
    /// The late response that pulled the trigger, then others in the window.
    pub late: Vec<LateResponse>,
}

/// Writes the folder; nothing is left of it when that fails. False: somebody else (a second watch that saves in the same
/// folder) has taken the name meanwhile.
pub fn write(
    target: &Path,
    trigger: &TriggerFile,
    explanation: &str,
    recording: &Recording,
    info: &TraceInfo,
) -> Result<bool, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::doing(format!("saving {}", target.display()), error);
    let staged = match StagedDir::new(target) {
        Err(rtscope_ctf::Error::Exists(_)) => return Ok(false),
        staged => staged.map_err(|error| failed(&error))?,
    };
    let json = serde_json::to_string_pretty(trigger).map_err(|error| failed(&error))?;
    fs::write(staged.path().join("trigger.json"), json + "\n").map_err(|error| failed(&error))?;
    fs::write(staged.path().join("explain.txt"), explanation).map_err(|error| failed(&error))?;
    write_trace(&staged.path().join("kernel"), recording, info).map_err(|error| failed(&error))?;
    match staged.publish() {
        Err(rtscope_ctf::Error::Exists(_)) => Ok(false),
        published => published.map(|()| true).map_err(|error| failed(&error)),
    }
}

/// Reads a folder back: what was detected, and the events around it.
pub fn read(folder: &Path) -> Result<(TriggerFile, Recording), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::doing(format!("reading {}", folder.display()), error);
    let path = folder.join("trigger.json");
    let text = fs::read_to_string(&path).map_err(|error| {
        failed(&format!("trigger.json: {error} (is this the folder of a saved late response?)"))
    })?;
    let trigger: TriggerFile =
        serde_json::from_str(&text).map_err(|error| failed(&format!("trigger.json: {error}")))?;
    if trigger.schema != SCHEMA {
        return Err(failed(&format!(
            "trigger.json has the format {}; this rtscope reads {SCHEMA}",
            trigger.schema
        )));
    }
    let trace = read_trace(&folder.join("kernel")).map_err(|error| failed(&error))?;
    let mut recording = trace.recording;
    // The trace's format has no place for these; they are as exact as they were.
    recording.history.clone_from(&trigger.history);
    recording.losses.clone_from(&trigger.losses);
    Ok((trigger, recording))
}

/// `DIR/20261120T234107Z-1`, or with a further number if that is taken.
pub fn free_name(dir: &Path, stamp: &str, number: u64) -> PathBuf {
    let first = dir.join(format!("{stamp}-{number}"));
    if !first.exists() {
        return first;
    }
    (2..)
        .map(|again| dir.join(format!("{stamp}-{number}.{again}")))
        .find(|path| !path.exists())
        .unwrap_or(first)
}
