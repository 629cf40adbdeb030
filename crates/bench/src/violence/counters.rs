// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file in which the torture program counts what it does (crates/testkit/c/violence.h), made before a round and read after it.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

const MAGIC: u64 = 0x3143_4e45_4c4f_4956;
const SLOTS_AT: usize = 4096;
const SLOT_BYTES: usize = 64;
/// More than a round needs. Its pages are touched only as far as slots are used.
const SLOTS_MAX: u32 = 1 << 16;
/// Where the numbers of children that failed and hung begin in the head.
const FAILURES_AT: usize = 24 + 11 * 4;
const STATUSES_AT: usize = FAILURES_AT + 4;
const HUNG_AT: usize = STATUSES_AT + 2 * 16 * 4;

/// What one place emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub begun: u64,
    pub finished: u64,
    pub pid: u32,
    pub tid: u32,
}

/// What all processes of a round did.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub slots: Vec<Slot>,
    pub deeds: Vec<(&'static str, u32)>,
    /// Process and wait status of children that ended in a way that nobody asked for.
    pub failed: Vec<(i32, i32)>,
    /// Children that did not end.
    pub hung: Vec<i32>,
}

/// Makes the file, which any user may write.
pub fn make(path: &Path) -> Result<()> {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    let file = fs::File::create(path).with_context(|| path.display().to_string())?;
    file.set_len((SLOTS_AT + SLOT_BYTES * SLOTS_MAX as usize) as u64)?;
    file.write_all_at(&MAGIC.to_le_bytes(), 0)?;
    file.write_all_at(&SLOTS_MAX.to_le_bytes(), 8)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(())
}

impl Counters {
    /// Reads what is there now.
    pub fn read(path: &Path) -> Result<Counters> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        ensure!(bytes.len() > SLOTS_AT && word(&bytes, 0) == MAGIC, "{} has no counters", path.display());
        let count = (half(&bytes, 12) as usize).min((bytes.len() - SLOTS_AT) / SLOT_BYTES);
        let slot = |index: usize| {
            let at = SLOTS_AT + SLOT_BYTES * index;
            Slot {
                begun: word(&bytes, at),
                finished: word(&bytes, at + 8),
                pid: half(&bytes, at + 16),
                tid: half(&bytes, at + 20),
            }
        };
        let names = [
            "processes",
            "threads",
            "forks",
            "vforks",
            "clones",
            "handler_forks",
            "executions",
            "loads",
            "handled",
            "killed",
        ];
        let deeds = names.iter().enumerate().map(|(index, name)| (*name, half(&bytes, 24 + 4 * index)));
        let listed = |at: usize, count: u32| {
            (0..(count as usize).min(16)).map(|index| half(&bytes, at + 4 * index) as i32).collect::<Vec<_>>()
        };
        let failures = half(&bytes, FAILURES_AT);
        let statuses = listed(STATUSES_AT, failures);
        let failed = listed(STATUSES_AT + 64, failures);
        Ok(Counters {
            slots: (0..count).map(slot).collect(),
            deeds: deeds.collect(),
            failed: failed.into_iter().zip(statuses).collect(),
            hung: listed(HUNG_AT + 4, half(&bytes, HUNG_AT)),
        })
    }

    /// Events begun and finished, in all.
    pub fn emitted(&self) -> (u64, u64) {
        let sum = |what: fn(&Slot) -> u64| self.slots.iter().map(what).sum();
        (sum(|slot| slot.begun), sum(|slot| slot.finished))
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(half(bytes, at)) | u64::from(half(bytes, at + 4)) << 32
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    u32::from_le_bytes(four.unwrap_or_default())
}
