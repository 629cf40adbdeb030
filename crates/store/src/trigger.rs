// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trigger.json`, beside the trace of a saved late response: what was detected. It may come from anybody, so what no watch writes
//! is refused.

use rtscope_event::{CpuHistory, LateResponse, Loss, MonotonicNs};
use serde::{Deserialize, Serialize};

/// The name of the format, which the file begins with.
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
    /// From here on the trace has what ftrace records (`-k`); absent when it records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ftrace_from_ns: Option<MonotonicNs>,
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

/// Reads the text of a file.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<TriggerFile, String> {
    let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if version.schema != SCHEMA {
        return Err(format!("has the format {}; this rtscope reads {SCHEMA}", version.schema));
    }
    let trigger: TriggerFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check(&trigger)?;
    Ok(trigger)
}

/// Just the version: another one may have other fields.
#[derive(Deserialize)]
struct Version {
    schema: String,
}

/// Refuses what no watch has written: the explanations count on it.
fn check(trigger: &TriggerFile) -> Result<(), String> {
    if trigger.late.len() > LATE_MAX || trigger.losses.len() > LATE_MAX {
        return Err(format!("more than {LATE_MAX} late responses or losses"));
    }
    for late in &trigger.late {
        let sum = late.chain.steps.iter().try_fold(0_u64, |sum, step| sum.checked_add(step.duration_ns));
        let end = sum.and_then(|sum| late.chain.origin.time_ns.0.checked_add(sum));
        if late.chain.steps.len() > 12 || late.chain.others.len() > 2 || end != Some(late.end_ns.0) {
            return Err("the steps of a late response do not lead to its end".to_string());
        }
    }
    Ok(())
}

/// As many as a watch keeps for one snapshot.
const LATE_MAX: usize = 4097;
