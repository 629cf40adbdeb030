// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory with what rtscope itself captured of a trace unit: a perf.data, and beside it what that has no place for.
//!
//! ```text
//! CAPTURE/
//!   perf.data      AUX data as the unit wrote it, and what tasks did meanwhile; perf script reads it, too
//!   capture.json   what was asked for, how perf's clock becomes CLOCK_MONOTONIC, and what is missing, by CPU and cause
//! ```

use rtscope_ctf::{Links, open_regular};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The form of `capture.json`.
pub const SCHEMA: &str = "rtscope.hardware.capture/1";
/// The recording.
pub const PERF_DATA: &str = "perf.data";
/// What describes it.
pub const DESCRIPTION: &str = "capture.json";
/// What describes it, while it is written.
const PARTIAL: &str = ".capture.json";
/// A description has some kilobytes; one that somebody else wrote may have any size.
const DESCRIPTION_MAX: u64 = 16 << 20;

/// How AUX areas were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMode {
    /// Everything was written to the file.
    Full,
    /// They were circles, of which the newest content was saved.
    Snapshot,
}

/// perf's clock and CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// CLOCK_MONOTONIC less perf's clock, when the capture ended; of one that did not come to its end when it began.
    pub offset_ns: i64,
    /// By how much this changed since it began: times may be wrong by that. `None`: the capture did not come to its end.
    pub drift_ns: Option<i64>,
}

/// When circles stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// What was late was detected, CLOCK_MONOTONIC; `None`: nothing was waited for.
    pub detected_ns: Option<u64>,
    /// All units were off.
    pub frozen_ns: u64,
}

/// Of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCapture {
    /// Its number.
    pub cpu: u32,
    /// AUX data in the file.
    pub aux_bytes: u64,
    /// AUX records: pieces that the kernel announced.
    pub aux_records: u64,
    /// Of them, those that say that the area was full: what came then is lost. How much nobody counts.
    pub truncated: u64,
    /// Those that say that the unit was stopped for a part of the time.
    pub partial: u64,
    /// Those that say that samples met (SPE).
    pub collisions: u64,
    /// Records of the kernel that found no room.
    pub lost_records: u64,
}

impl CpuCapture {
    /// Whether something is missing.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.truncated + self.partial + self.collisions + self.lost_records > 0
    }
}

/// A place in a program that an address comparator was set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedPlace {
    /// As people call it: `work+0x10`.
    pub name: String,
    /// The program's file, as the kernel names it in the recording.
    pub file: PathBuf,
    /// Where in the file.
    pub file_offset: u64,
}

/// What has no such field is from before there was one.
fn is_complete() -> bool {
    true
}

/// A capture's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureInfo {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who wrote it.
    pub producer: String,
    /// Whether it came to its end. Otherwise the counts of CPUs are those of its begin: how much is there and what is missing only the recording
    /// itself can tell.
    #[serde(default = "is_complete")]
    pub complete: bool,
    /// The PMU.
    pub unit: String,
    /// The event's configuration.
    pub config: [u64; 3],
    /// How AUX areas were used.
    pub mode: CaptureMode,
    /// Bytes of the AUX area of a CPU.
    pub aux_buffer_bytes: u64,
    /// `None`: the kernel does not tell how the counter becomes time, so times are ticks.
    pub clock: Option<ClockOffset>,
    /// Of a snapshot.
    pub frozen: Option<Frozen>,
    /// Only what executes these places was traced; empty: everything.
    #[serde(default)]
    pub places: Vec<CapturedPlace>,
    /// By CPU.
    pub cpus: Vec<CpuCapture>,
}

impl CaptureInfo {
    /// Whether something is missing, or nobody knows.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        !self.complete || self.cpus.iter().any(CpuCapture::has_losses)
    }

    /// AUX data of all CPUs.
    #[must_use]
    pub fn aux_bytes(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.aux_bytes).sum()
    }

    /// Writes it into a capture's directory. The one before stays until this one is whole: a full disk or a kill comes at any moment.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        let partial = directory.join(PARTIAL);
        let written = fs::write(&partial, text + "\n");
        written
            .and_then(|()| fs::rename(&partial, directory.join(DESCRIPTION)))
            .inspect_err(|_| drop(fs::remove_file(&partial)))
    }

    /// Reads that of a directory; `None`: it has none.
    ///
    /// # Errors
    /// When the system refuses, or it is not understood.
    pub fn read(directory: &Path) -> io::Result<Option<CaptureInfo>> {
        let path = directory.join(DESCRIPTION);
        let file = match open_regular(&path, Links::Follow) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(io::Error::other("capture.json is not a regular file"));
            }
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        if file.take(DESCRIPTION_MAX + 1).read_to_string(&mut text)? as u64 > DESCRIPTION_MAX {
            return Err(io::Error::other("capture.json is larger than 16 MiB"));
        }
        let wrong = |why: &dyn std::fmt::Display| io::Error::other(format!("capture.json: {why}"));
        let info: CaptureInfo = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        if info.schema != SCHEMA {
            return Err(wrong(&format!("this rtscope reads {SCHEMA}, not '{}'", info.schema)));
        }
        Ok(Some(info))
    }
}
