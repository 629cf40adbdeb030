// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a limit for a recording's size is divided: traces, the kernel's spool, and what describes both
//! ([ADR 0022](../../../../docs/adr/0022-the-oldest-time-is-removed-from-all-streams.md)).

use super::settings::RingSettings;
use crate::Failure;
use rtscope_cpus::Cpus;
use rtscope_ctf::FileRing;

/// Events of tracepoints are in the spool before they are in the trace: a quarter of the limit.
const SPOOL_SHARE: u64 = 4;
/// Directories, and small files that say where the recording is.
const FIXED_BYTES: u64 = 64 << 10;
/// Each file of the spool needs as much for some pages, and one batch of records.
const SPOOL_FILE_BYTES_MIN: u64 = 64 << 10;
/// As many streams as programs may have.
const PROGRAM_STREAMS: u64 = 64;
/// A description is written when a recording begins, and at its end; both are to leave three quarters of the limit.
const DESCRIPTIONS: u64 = 2;
const DESCRIPTIONS_SHARE: u64 = 4;

/// The parts of a limit.
#[derive(Clone, Debug)]
pub struct DiskLimit {
    /// Files of streams, and metadata.
    pub files: FileRing,
    /// All files of the spool.
    pub spool_bytes: u64,
    limit: u64,
}

impl DiskLimit {
    /// For a recording of tracepoints, of programs, or both.
    pub fn new(settings: RingSettings, kernel: bool, programs: bool) -> Result<DiskLimit, Failure> {
        let cpus = if kernel { possible_cpus()? } else { 0 };
        let streams = cpus + if programs { PROGRAM_STREAMS } else { 0 };
        let spool_bytes = if kernel { settings.max_bytes / SPOOL_SHARE } else { 0 };
        let limit = settings.max_bytes.saturating_sub(spool_bytes + FIXED_BYTES);
        let least_of_spool = if kernel { 2 * cpus * SPOOL_FILE_BYTES_MIN * SPOOL_SHARE } else { 0 };
        let whole =
            |bytes: u64| if kernel { bytes / (SPOOL_SHARE - 1) * SPOOL_SHARE + SPOOL_SHARE } else { bytes };
        let least = whole(FileRing::least(streams) + FIXED_BYTES).max(least_of_spool);
        if settings.max_bytes < least {
            return Err(too_small(least));
        }
        match FileRing::new(limit, settings.max_files, streams) {
            Ok(files) => Ok(DiskLimit { files, spool_bytes, limit }),
            Err(files) => Err(too_small(whole(files + FIXED_BYTES))),
        }
    }

    /// What files of streams and metadata may have.
    pub fn bytes(&self) -> u64 {
        self.limit
    }

    /// What a description of this size leaves must be enough.
    pub fn hold_description(&self, bytes: u64) -> Result<(), Failure> {
        let held = DESCRIPTIONS * bytes;
        if held > self.limit / DESCRIPTIONS_SHARE {
            let limit = held * DESCRIPTIONS_SHARE + FIXED_BYTES;
            return Err(too_small(limit / (SPOOL_SHARE - 1) * SPOOL_SHARE + SPOOL_SHARE));
        }
        self.files.hold(held).map_err(|error| Failure::system("limiting the size of the recording", &error))
    }

    /// What each of so many files of the spool may have.
    pub fn spool_file_bytes(&self, files: usize) -> u64 {
        self.spool_bytes / (files as u64).max(1)
    }
}

fn too_small(least: u64) -> Failure {
    let mib = least.div_ceil(1 << 20);
    Failure::Usage(format!("--max-size is too small for this recording; it needs at least {mib}M"))
}

fn possible_cpus() -> Result<u64, Failure> {
    let path = "/sys/devices/system/cpu/possible";
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::doing(format!("reading {path}"), error))?;
    let cpus =
        Cpus::from_list(text.trim()).map_err(|error| Failure::doing(format!("reading {path}"), error))?;
    Ok(cpus.iter().count() as u64)
}
