// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory that rtscope captured: its perf.data, on CLOCK_MONOTONIC, and what the recorder says is missing.

use super::open::{Capture, DecodeError, Settings, open};
use crate::capture::{CaptureInfo, CaptureMode, PERF_DATA};
use std::path::Path;

pub(super) fn open_captured(
    directory: &Path,
    info: &CaptureInfo,
    settings: &Settings,
) -> Result<Capture, DecodeError> {
    let settings = Settings { places: info.places.clone(), ..settings.clone() };
    let mut capture = open(&directory.join(PERF_DATA), &settings)?;
    capture.clock_offset_ns = info.clock.map(|clock| clock.offset_ns);
    let drift_ns = info.clock.and_then(|clock| clock.drift_ns).map(i64::unsigned_abs);
    if let Some(drift_ns) = drift_ns.filter(|drift_ns| *drift_ns > DRIFT_NOTABLE_NS) {
        capture.notes.push(format!(
            "perf's clock and CLOCK_MONOTONIC drifted apart by {drift_ns} ns during the capture; times may be wrong by that"
        ));
    }
    if !info.complete {
        capture.notes.push(
            "the capture did not come to its end: what the unit wrote last is missing, and by how much the clocks drifted apart is unknown"
                .to_owned(),
        );
    }
    if info.mode == CaptureMode::Full && info.cpus.iter().any(|cpu| cpu.truncated > 0) {
        capture.notes.push(
            "an AUX area was full at times: what came then is lost, and nobody counts how much; larger ones (--buffer) hold more"
                .to_owned(),
        );
    }
    Ok(capture)
}

/// Below this the reading of the clocks itself may be the cause.
const DRIFT_NOTABLE_NS: u64 = 10_000;
