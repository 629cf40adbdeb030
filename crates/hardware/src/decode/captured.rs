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
    if let Some(clock) = info.clock.filter(|clock| clock.drift_ns.unsigned_abs() > DRIFT_NOTABLE_NS) {
        capture.notes.push(format!(
            "perf's clock and CLOCK_MONOTONIC drifted apart by {} ns during the capture; times may be wrong by that",
            clock.drift_ns.unsigned_abs()
        ));
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
