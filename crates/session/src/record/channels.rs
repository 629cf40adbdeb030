// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording notes of events that go to channels of an STM or to PTWRITE, and are not in its trace: which events there are, of which processes, and
//! the clock. With that, `rtscope hardware decode --programs` makes events of what comes out of that.
//!
//! The file is beside the traces, `channels.json` in the directory of the recording.

use crate::Failure;
use rtscope_ctf::Links;
use rtscope_programs::channels::Destination;
use rtscope_programs::clock::Pair;
use rtscope_programs::collector::{Looks, Records, Sink};
use rtscope_programs::{ProviderInfo, RingInfo};
use rtscope_store::user::{UserRecorder, UserSession};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
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

/// Of a clock, and of a counter: both begin with the machine. Times are calculated with products of two.
const READING_MAX: u64 = u64::MAX / 2;

/// What is noted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelNotes {
    schema: String,
    /// The recording.
    pub(crate) session: UserSession,
    /// Where the events go. PTWRITE is no device: null.
    pub(crate) device: Destination,
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
    pub(crate) fn new(directory: &Path, session: &UserSession, device: &Destination) -> ChannelNotes {
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

    /// Reads it from the directory of a recording, which may have come from anybody.
    ///
    /// # Errors
    /// When there is none, or it is none.
    pub(crate) fn read(directory: &Path) -> Result<ChannelNotes, Failure> {
        let path = directory.join(FILE);
        let failed = |error: io::Error| Failure::system(format!("reading {}", path.display()), &error);
        let damaged = |why: String| Failure::Damaged(format!("{}: {why}", path.display()));
        let opened = rtscope_ctf::open_regular(&path, Links::Follow).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => damaged(error.to_string()),
            _ => failed(error),
        })?;
        if opened.metadata().map_err(failed)?.len() > BYTES_MAX {
            return Err(damaged("it is too large".to_string()));
        }
        let mut text = Vec::new();
        opened.take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        ChannelNotes::parse(&text).map_err(damaged)
    }

    /// What it says, if a recorder can have written it.
    fn parse(text: &[u8]) -> Result<ChannelNotes, String> {
        let notes: ChannelNotes = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if notes.schema != SCHEMA {
            return Err(format!("its format is {}; this rtscope reads {SCHEMA}", notes.schema));
        }
        if notes.providers.len() > PROVIDERS_MAX || notes.clock.len() > PAIRS_MAX {
            return Err("it has more than a recorder writes".to_string());
        }
        let is_reading = |pair: &Pair| pair.counter.max(pair.monotonic_ns) <= READING_MAX;
        if !notes.clock.iter().all(is_reading) {
            return Err("it has times that no clock shows".to_string());
        }
        for provider in &notes.providers {
            provider.check().map_err(|why| format!("a program in it: {why}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_programs::channels::{ChannelDevice, Ports};
    use rtscope_programs::description::{Descriptions, Enumeration, EventDescription, Field, FieldType};
    use serde_json::{Value, json};
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    /// Notes of a recording of one program, as a recorder writes them.
    fn written(directory: &Path) -> Value {
        let session =
            UserSession::of_this_machine("1", vec!["tid".to_string()]).expect("it has a name and clocks");
        let device = ChannelDevice {
            name: "stm0".into(),
            policy: "user".into(),
            ports: Ports::CORESIGHT,
            map_bytes: 4096,
        };
        let mut notes = ChannelNotes::new(directory, &session, &Destination::Stm(device));
        let enumeration = Enumeration { name: "mode".into(), labels: vec![(0, "idle".into())] };
        let field = Field { name: "how".into(), kind: FieldType::Enumeration("mode".into()) };
        let event = EventDescription { index: 0, name: "motor:tick".into(), level: 6, fields: vec![field] };
        let descriptions = Descriptions {
            events: vec![event],
            enumerations: vec![enumeration],
            declared: 1,
            ..Descriptions::default()
        };
        notes
            .providers
            .push(ProviderInfo { descriptions: Arc::new(descriptions), ..ProviderInfo::default() });
        notes.write(9, Pair { counter: 7, monotonic_ns: 8 }).expect("there is room");
        serde_json::from_slice(&fs::read(directory.join(FILE)).expect("it is there")).expect("JSON")
    }

    /// Why it is refused.
    fn refusal(directory: &Path) -> String {
        match ChannelNotes::read(directory) {
            Err(Failure::Damaged(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn notes_that_no_recorder_writes_are_refused_with_what_is_wrong() {
        let directory = tempfile::tempdir().expect("a directory");
        let notes = written(directory.path());
        let read = ChannelNotes::read(directory.path()).expect("a recorder wrote it");
        assert_eq!((read.ended_ns, read.providers.len(), read.clock.len()), (9, 1, 1));
        let event = "/providers/0/descriptions/events/0";
        let field = format!("{event}/fields/0");
        let labels = "/providers/0/descriptions/enumerations/0/labels";
        let array = |of: &str, element: Value, count: u32| json!({of: [element, count]});
        let integer = |bytes: u32| json!({"bytes": bytes, "signed": false, "hex": false});
        for (place, value, why) in [
            ("/schema".to_string(), json!("rtscope.channels/9"), "its format is"),
            ("/clock/0/counter".to_string(), json!(u64::MAX), "times that no clock shows"),
            ("/clock/0/monotonic_ns".to_string(), json!(1_u64 << 63), "times that no clock shows"),
            (
                "/clock".to_string(),
                json!(vec![json!({"counter": 1, "monotonic_ns": 1}); PAIRS_MAX + 1]),
                "more than",
            ),
            ("/providers/0/first_id".to_string(), json!(u32::MAX), "its numbers make no sense"),
            ("/providers/0/comm".to_string(), json!("a\u{1b}[2J"), "its name cannot be shown"),
            ("/providers/0/object".to_string(), json!("a".repeat(1000)), "its name cannot be shown"),
            ("/providers/0/build_id".to_string(), json!("\";"), "its build id is not one"),
            (
                "/providers/0/descriptions/declared".to_string(),
                json!(0),
                "a number that its provider does not have",
            ),
            (format!("{event}/index"), json!(1), "a number that its provider does not have"),
            (format!("{event}/name"), json!("motor:a b"), "a name is not an identifier"),
            (
                format!("{event}/fields"),
                json!(vec![json!({"name": "a", "kind": "Bool"}); 17]),
                "more than 16 fields",
            ),
            (format!("{field}/name"), json!("a;b"), "a name is not an identifier"),
            (format!("{field}/kind"), json!({"Enumeration": "none"}), "an enumeration that it does not have"),
            (format!("{field}/kind"), json!({"Integer": integer(3)}), "a field's type is not known"),
            (format!("{field}/kind"), json!({"Float": 2}), "a field's type is not known"),
            (format!("{field}/kind"), array("Array", integer(8), u32::MAX), "a field's type is not known"),
            (format!("{field}/kind"), array("FloatArray", json!(4), 0), "a field's type is not known"),
            (labels.to_string(), json!([]), "an enumeration has no labels"),
            (labels.to_string(), json!([[0, "a\nb"]]), "a label has no name that can be shown"),
            (labels.to_string(), json!(vec![json!([0, "a"]); 4097]), "more than 4096 labels"),
        ] {
            let mut other = notes.clone();
            *other.pointer_mut(&place).expect("it has that") = value;
            fs::write(directory.path().join(FILE), other.to_string()).expect("there is room");
            let found = refusal(directory.path());
            assert!(found.contains(why), "{place}: {found}");
        }
    }

    #[test]
    fn notes_are_a_regular_file_of_a_size_that_recorders_write() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        symlink("/dev/zero", &path).expect("ours");
        assert!(refusal(directory.path()).contains("not a regular file"));
        fs::remove_file(&path).expect("ours");
        File::create(&path).and_then(|file| file.set_len(BYTES_MAX + 1)).expect("there is room");
        assert!(refusal(directory.path()).contains("too large"));
    }
}
