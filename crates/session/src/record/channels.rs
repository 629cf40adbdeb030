// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording notes of events that go to channels of an STM, and are not in its trace: which events there are, of which processes, and
//! the clock. With that, `rtscope hardware decode --programs` makes events of what comes out of the STM.
//!
//! The file is beside the traces, `channels.json` in the directory of the recording.

use crate::Failure;
use rtscope_programs::channels::ChannelDevice;
use rtscope_programs::clock::Pair;
use rtscope_programs::collector::{Looks, Records, Sink};
use rtscope_programs::{ProviderInfo, RingInfo};
use rtscope_store::user::{UserRecorder, UserSession};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file's name.
pub(crate) const FILE: &str = "channels.json";
const SCHEMA: &str = "rtscope.channels/1";
/// No recording writes a larger one.
const BYTES_MAX: u64 = 256 << 20;
/// Programs and libraries that are noted.
const PROVIDERS_MAX: usize = 16384;
/// Pairs of the clock that are kept: half of them go when there are more.
const PAIRS_MAX: usize = 4096;

/// What is noted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelNotes {
    schema: String,
    /// The recording.
    pub(crate) session: UserSession,
    /// Where the events go.
    pub(crate) device: ChannelDevice,
    /// CLOCK_MONOTONIC at its end; 0: there was none.
    pub(crate) ended_ns: u64,
    /// Programs and libraries that came when there was no more room.
    pub(crate) unnoted: u64,
    /// Programs and libraries with events.
    pub(crate) providers: Vec<ProviderInfo>,
    /// Programs' counter and CLOCK_MONOTONIC.
    pub(crate) clock: Vec<Pair>,
    #[serde(skip)]
    path: PathBuf,
    /// Pairs that are left out between two that are kept, and how many of them have come.
    #[serde(skip)]
    step: (usize, usize),
}

impl ChannelNotes {
    pub(super) fn new(directory: &Path, session: &UserSession, device: &ChannelDevice) -> ChannelNotes {
        ChannelNotes {
            schema: SCHEMA.to_string(),
            session: session.clone(),
            device: device.clone(),
            ended_ns: 0,
            unnoted: 0,
            providers: Vec::new(),
            clock: Vec::new(),
            path: directory.join(FILE),
            step: (0, 0),
        }
    }

    pub(super) fn pair(&mut self, pair: Pair) {
        self.step.1 += 1;
        if self.step.1 <= self.step.0 {
            return;
        }
        self.step.1 = 0;
        self.clock.push(pair);
        if self.clock.len() >= PAIRS_MAX {
            let mut at = 0;
            self.clock.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.step.0 = self.step.0 * 2 + 1;
        }
    }

    /// Writes the file. `last`: of the clock, now.
    pub(super) fn write(&mut self, ended_ns: u64, last: Pair) -> io::Result<()> {
        self.ended_ns = ended_ns;
        self.clock.push(last);
        let mut text = serde_json::to_vec(self).map_err(io::Error::other)?;
        text.push(b'\n');
        // Whole, or not there.
        let new = self.path.with_extension("json.partial");
        File::create(&new).and_then(|mut file| file.write_all(&text))?;
        fs::rename(new, &self.path)
    }

    /// Reads it from the directory of a recording.
    ///
    /// # Errors
    /// When there is none, or it is none.
    pub(crate) fn read(directory: &Path) -> Result<ChannelNotes, Failure> {
        let path = directory.join(FILE);
        let failed = |error: io::Error| Failure::system(format!("reading {}", path.display()), &error);
        let bytes = fs::metadata(&path).map_err(failed)?.len();
        let damaged = |why: String| Failure::Damaged(format!("{}: {why}", path.display()));
        if bytes > BYTES_MAX {
            return Err(damaged("it is too large".to_string()));
        }
        let text = fs::read(&path).map_err(failed)?;
        let notes: ChannelNotes =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if notes.schema != SCHEMA {
            return Err(damaged(format!("its format is {}; this rtscope reads {SCHEMA}", notes.schema)));
        }
        Ok(notes)
    }
}

/// A recorder, and notes of what it is told.
#[derive(Debug)]
pub(super) struct NotingRecorder {
    pub(super) recorder: UserRecorder,
    pub(super) notes: Option<ChannelNotes>,
}

impl NotingRecorder {
    pub(super) fn clock(&mut self, pair: Pair) -> io::Result<()> {
        self.notes.iter_mut().for_each(|notes| notes.pair(pair));
        self.recorder.clock(&[pair])
    }
}

impl Sink for NotingRecorder {
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        if let Some(notes) = &mut self.notes {
            if notes.providers.len() < PROVIDERS_MAX {
                notes.providers.push(info.clone());
            } else {
                notes.unnoted += 1;
            }
        }
        self.recorder.provider(info)
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.recorder.ring(info)
    }

    fn ring_over(&mut self, ring: u32, lost: u64, unfinished: u64) -> io::Result<()> {
        self.recorder.ring_over(ring, lost, unfinished)
    }

    fn process_over(&mut self, uid: u32, pid: u32, birth_ns: u64) {
        self.recorder.process_over(uid, pid, birth_ns);
    }

    fn begin(&mut self, looks: Looks) {
        self.recorder.begin(looks);
    }

    fn needs_look(&self) -> bool {
        self.recorder.needs_look()
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        self.recorder.data(ring, records)
    }

    fn shares(&self, ring: u32) -> bool {
        self.recorder.shares(ring)
    }

    fn merge(&mut self, rings: &mut [(u32, Records<'_>)]) -> io::Result<()> {
        self.recorder.merge(rings)
    }
}
