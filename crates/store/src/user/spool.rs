// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The spool of instrumented programs: `TARGET.partial/user.spool`. `TARGET.partial/trace` is the trace of those rings that are
//! converted while they are recorded, and have no data here: a directory that can be read at every instant, and becomes `TARGET`.
//! While somebody records, `user.spool` is locked.
//!
//! ```text
//! chunk: magic, kind, index, position, bytes (8 bytes each), then that many bytes
//!   0 session    JSON; the first chunk
//!   1 provider   JSON
//!   2 ring       JSON; indexes count from 0
//!   3 data       whole records of ring `index`, from `position` on
//!   4 clock      pairs of the programs' counter and CLOCK_MONOTONIC
//!   5 end        JSON; missing after a kill
//!   6 events     JSON: what providers describe; each `index` of a provider is one of these, counted from 0
//!   7 over       8 bytes: how many records ring `index` never finished; it lost `position` events in all, and there will be no more
//! ```

use super::end::UserEnd;
use super::live::{Live, LiveTrace};
use crate::Error;
use crate::spool::SpoolDirectory;
use nix::fcntl::Flock;
use rtscope_ctf::{TraceInfo, UserContext};
use rtscope_event::exact;
use rtscope_programs::clock::{Pair, counter_kind};
use rtscope_programs::collector::{Looks, Records, Sink, Snapshot};
use rtscope_programs::description::Descriptions;
use rtscope_programs::{ProviderInfo, RingInfo};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

const MAGIC: u64 = u64::from_le_bytes(*b"RTSUSER1");
pub(super) const HEADER_BYTES: usize = 40;
const SCHEMA: &str = "rtscope.spool.user/4";
/// The spool.
pub(crate) const SPOOL: &str = "user.spool";
/// The directory in that of the spool that becomes the trace.
const TRACE: &str = "trace";
/// The largest JSON of a chunk.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// The type of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Description,
    Provider,
    Ring,
    Data,
    Clock,
    End,
    Events,
    Over,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Description,
        Kind::Provider,
        Kind::Ring,
        Kind::Data,
        Kind::Clock,
        Kind::End,
        Kind::Events,
        Kind::Over,
    ];

    fn of(number: u64) -> Option<Kind> {
        Kind::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The header of a chunk, and where its bytes are in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkPlace {
    pub(super) kind: Kind,
    pub(super) index: u64,
    pub(super) position: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The description written when a recording begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSpoolDescription {
    schema: String,
    /// CLOCK_MONOTONIC at the start.
    pub started_ns: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub realtime_offset_ns: u64,
    /// The machine's name.
    pub hostname: String,
    /// As `uname -r` shows it.
    pub kernel_release: String,
    /// Identifies the clock.
    pub boot_id: String,
    /// Version of rtscope.
    pub version: String,
    /// Context fields of each event: of `pid`, `tid`, `comm`, `cpu`.
    pub context: Vec<String>,
    /// The UUID of the trace.
    trace: String,
}

impl UserSpoolDescription {
    /// Describes this machine, now.
    ///
    /// # Errors
    /// When the system's names or clocks cannot be read.
    pub fn of_this_machine(version: &str, context: Vec<String>) -> Result<UserSpoolDescription, Error> {
        let info = rtscope_ctf::TraceInfo::of_this_machine(version)?;
        let started_ns = Pair::now(rtscope_abi::program::RTU_CLOCK_MONOTONIC).monotonic_ns;
        Ok(UserSpoolDescription {
            schema: SCHEMA.to_string(),
            started_ns,
            realtime_offset_ns: info.realtime_offset_ns,
            hostname: info.hostname,
            kernel_release: info.kernel_release,
            boot_id: info.clock_uuid.to_string(),
            version: info.producer_version,
            context,
            trace: Uuid::new_v4().to_string(),
        })
    }

    /// Whether this machine made it, since it was started.
    pub(super) fn is_of_this_boot(&self) -> bool {
        let now = rtscope_ctf::TraceInfo::of_this_machine("");
        now.is_ok_and(|now| now.clock_uuid.to_string() == self.boot_id)
    }

    pub(super) fn trace(&self) -> Uuid {
        Uuid::parse_str(&self.trace).unwrap_or(Uuid::nil())
    }

    pub(super) fn info(&self) -> TraceInfo {
        TraceInfo {
            hostname: self.hostname.clone(),
            kernel_release: self.kernel_release.clone(),
            clock_uuid: Uuid::parse_str(&self.boot_id).unwrap_or(Uuid::nil()),
            realtime_offset_ns: self.realtime_offset_ns,
            trace_uuid: self.trace(),
            producer_version: self.version.clone(),
            window_begin: None,
        }
    }

    pub(super) fn context(&self) -> UserContext {
        let has = |name: &str| self.context.iter().any(|known| known == name);
        UserContext { pid: has("pid"), tid: has("tid"), comm: has("comm"), cpu: has("cpu") }
    }
}

/// Writes a spool, and the streams of rings that are converted at once.
#[derive(Debug)]
pub struct UserSpoolWriter {
    directory: SpoolDirectory,
    file: Flock<File>,
    bytes: u64,
    events: u64,
    live: Live,
    /// The descriptions of events that the spool has, by their place in memory; and which one it is. They are held: no others are ever in
    /// that place.
    described: HashMap<usize, (u64, Arc<Descriptions>)>,
    /// Of rings with a stream that are over.
    over: HashMap<u32, RingEnd>,
}

/// What a ring lost in all, and how many of its records were never finished.
pub(super) type RingEnd = (u64, u64);

fn header(kind: Kind, index: u64, position: u64, bytes: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    for (place, word) in header.chunks_exact_mut(8).zip([MAGIC, kind as u64, index, position, bytes]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    header
}

impl UserSpoolWriter {
    /// Makes the directory `TARGET.partial` with the description in it.
    ///
    /// # Errors
    /// When `target` or the directory exist, or the directory cannot be made.
    pub fn create(target: &Path, description: &UserSpoolDescription) -> Result<UserSpoolWriter, Error> {
        let directory = SpoolDirectory::open_any(&crate::spool::new_directory(target)?)?;
        let shown = directory.shown.join(SPOOL);
        let unbegun = directory.path().join(crate::spool::unbegun(SPOOL));
        // Where nothing has been recorded, the next attempt must not find it.
        let made = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&unbegun);
        let made = made.map_err(Error::io("make the file", &shown));
        let file = made.and_then(|made| crate::spool::lock(made, &directory.shown));
        let file = file.inspect_err(|_| drop(directory.remove()))?;
        directory.check_made(&file)?;
        let live = Live::new(directory.path().join(TRACE), description);
        let mut writer = UserSpoolWriter {
            directory,
            file,
            bytes: 0,
            events: 0,
            live,
            described: HashMap::new(),
            over: HashMap::new(),
        };
        let begun = writer.json(Kind::Description, 0, description);
        match begun.and_then(|()| std::fs::rename(&unbegun, writer.directory.path().join(SPOOL))) {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.discard();
                Err(Error::io("write", &shown)(error))
            }
        }
    }

    /// Programs with the same events share their descriptions, and the spool has them once, too: any number of programs may come.
    fn put_provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        let place = Arc::as_ptr(&info.descriptions) as usize;
        let index = match self.described.get(&place) {
            Some((index, _)) => *index,
            None => {
                let index = self.described.len() as u64;
                self.json(Kind::Events, 0, &info.descriptions)?;
                self.described.insert(place, (index, Arc::clone(&info.descriptions)));
                index
            }
        };
        let info = ProviderInfo { descriptions: Arc::default(), ..info.clone() };
        self.json(Kind::Provider, index, &info)
    }

    fn json(&mut self, kind: Kind, index: u64, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(value).map_err(io::Error::other)?;
        let mut chunk = header(kind, index, 0, text.len() as u64).to_vec();
        chunk.extend_from_slice(&text);
        self.bytes += chunk.len() as u64;
        self.file.write_all(&chunk)
    }

    /// Adds pairs of counter and time.
    ///
    /// # Errors
    /// When the system refuses (a full disk).
    pub fn clock(&mut self, pairs: &[Pair]) -> io::Result<()> {
        let mut chunk = header(Kind::Clock, 0, 0, pairs.len() as u64 * 16).to_vec();
        for pair in pairs {
            self.live.clock(*pair);
            chunk.extend_from_slice(&pair.counter.to_le_bytes());
            chunk.extend_from_slice(&pair.monotonic_ns.to_le_bytes());
        }
        self.bytes += chunk.len() as u64;
        self.file.write_all(&chunk)
    }

    /// Adds the content of a flight recorder's rings.
    ///
    /// # Errors
    /// When the system refuses (a full disk).
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        for provider in &snapshot.providers {
            self.put_provider(provider)?;
        }
        for (index, (info, pieces)) in snapshot.rings.iter().enumerate() {
            self.json(Kind::Ring, 0, info)?;
            for (position, bytes) in pieces {
                self.file.write_all(&header(Kind::Data, index as u64, *position, bytes.len() as u64))?;
                self.file.write_all(bytes)?;
            }
        }
        Ok(())
    }

    /// Number of bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Completes the spool after an orderly end of the recording.
    ///
    /// # Errors
    /// When the system refuses. The spool can be opened as if the recorder had been killed.
    pub fn finish(mut self, end: &UserEnd) -> Result<UserSpool, Error> {
        let path = self.directory.shown.join(SPOOL);
        let end = &UserEnd { unreadable: self.live.garbage(), ..end.clone() };
        self.json(Kind::End, 0, end).map_err(Error::io("write", &path))?;
        let lost = |ring: usize| {
            let known = end.rings.iter().find(|(index, ..)| *index as usize == ring);
            let known = known.map(|(_, lost, unfinished)| (*lost, *unfinished));
            known.or_else(|| self.over.get(&exact::count(ring)).copied())
        };
        let live = self.live.finish(end.ended_ns, lost).map_err(Error::io("write", &path))?;
        Ok(UserSpool { live: Some(live), ..UserSpool::read(self.directory, self.file)? })
    }

    /// Removes everything.
    pub fn discard(self) {
        // The caller has an error of its own to report.
        let _ = self.directory.remove();
    }

    /// Leaves the spool as after a kill, for a recording that could not continue.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub fn abandon(self) -> Result<UserSpool, Error> {
        UserSpool::read(self.directory, self.file)
    }
}

impl Sink for UserSpoolWriter {
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()> {
        // Nobody asked for any of its events, and any number of them may come: nothing is to be known of it.
        if info.descriptions.events.is_empty() && info.descriptions.undescribed.is_empty() {
            return Ok(());
        }
        self.live.provider(info);
        self.put_provider(info)
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.live.ring(info)?;
        self.json(Kind::Ring, 0, info)
    }

    fn ring_over(&mut self, ring: u32, lost: u64, unfinished: u64) -> io::Result<()> {
        if self.live.has(ring) {
            self.over.insert(ring, (lost, unfinished));
        }
        let mut chunk = header(Kind::Over, u64::from(ring), lost, 8).to_vec();
        chunk.extend_from_slice(&unfinished.to_le_bytes());
        self.bytes += chunk.len() as u64;
        self.file.write_all(&chunk)
    }

    fn needs_look(&self) -> bool {
        self.live.needs_look()
    }

    fn begin(&mut self, looks: Looks) {
        self.live.begin(looks);
        self.live.clock(Pair::now(counter_kind()));
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        if self.live.has(ring) {
            let (events, bytes) = self.live.take(ring, records)?;
            self.events += events;
            self.bytes += bytes;
            return Ok(());
        }
        let chunk = records.chunk();
        if chunk.bytes == 0 {
            return Ok(());
        }
        self.bytes += HEADER_BYTES as u64 + chunk.bytes;
        self.events += chunk.events;
        chunk.write_to(&self.file, &header(Kind::Data, u64::from(ring), chunk.position, chunk.bytes))
    }
}

/// A spool that waits for its conversion.
#[derive(Debug)]
pub struct UserSpool {
    pub(super) directory: SpoolDirectory,
    pub(super) file: Flock<File>,
    pub(super) description: UserSpoolDescription,
    pub(super) providers: Vec<ProviderInfo>,
    pub(super) rings: Vec<RingInfo>,
    pub(super) pairs: Vec<Pair>,
    pub(super) end: Option<UserEnd>,
    /// By ring, as far as that is known.
    pub(super) ends: HashMap<u32, RingEnd>,
    pub(super) data: Vec<ChunkPlace>,
    /// Streams that were written during the recording; `None`: their state is unknown.
    pub(super) live: Option<LiveTrace>,
}

impl UserSpool {
    /// The spool of an interrupted recording to `target`, if there is one.
    #[must_use]
    pub fn find(target: &Path) -> Option<PathBuf> {
        let directory = crate::spool::directory_of(target).ok()?;
        directory.join(SPOOL).is_file().then_some(directory)
    }

    /// Opens the spool of an interrupted recording to `target`.
    ///
    /// # Errors
    /// When there is none, its recorder is alive, or it cannot be parsed.
    pub fn open(target: &Path) -> Result<UserSpool, Error> {
        let directory = UserSpool::find(target).ok_or_else(|| Error::NoSpool(target.to_owned()))?;
        let directory = SpoolDirectory::open(&directory)?;
        let file = crate::spool::open_regular(&directory.path().join(SPOOL))?;
        let file = crate::spool::lock(file, &directory.shown)?;
        UserSpool::read(directory, file)
    }

    fn read(directory: SpoolDirectory, file: Flock<File>) -> Result<UserSpool, Error> {
        let path = directory.shown.join(SPOOL);
        let reading = Error::io("read", &path);
        let broken = |what: &str| Error::broken(&path, what.to_string());
        let chunks = chunks(&file).map_err(reading)?;
        let text = |chunk: &ChunkPlace| -> Result<Vec<u8>, Error> {
            if chunk.bytes > JSON_BYTES_MAX {
                return Err(broken("a description is too large"));
            }
            let mut text = vec![0; exact::index(chunk.bytes)];
            file.read_exact_at(&mut text, chunk.offset).map_err(Error::io("read", &path))?;
            Ok(text)
        };
        let first = chunks
            .first()
            .filter(|chunk| chunk.kind == Kind::Description)
            .ok_or_else(|| broken("it has no beginning"))?;
        let description: UserSpoolDescription =
            serde_json::from_slice(&text(first)?).map_err(|error| broken(&error.to_string()))?;
        if description.schema != SCHEMA {
            return Err(broken(&format!(
                "its format is {}; this rtscope converts {SCHEMA}",
                description.schema
            )));
        }
        let (mut providers, mut rings, mut pairs, mut end) = (Vec::new(), Vec::new(), Vec::new(), None);
        let (mut data, mut events) = (Vec::new(), Vec::<Arc<Descriptions>>::new());
        let mut ends: HashMap<u32, RingEnd> = HashMap::new();
        for chunk in &chunks[1..] {
            let parsed = |error: serde_json::Error| broken(&error.to_string());
            match chunk.kind {
                Kind::Description => return Err(broken("it begins twice")),
                Kind::Events => events.push(serde_json::from_slice(&text(chunk)?).map_err(parsed)?),
                Kind::Provider => {
                    let mut info: ProviderInfo = serde_json::from_slice(&text(chunk)?).map_err(parsed)?;
                    let described = usize::try_from(chunk.index).ok().and_then(|index| events.get(index));
                    let described = described.ok_or_else(|| broken("a program's events are missing"))?;
                    info.descriptions = Arc::clone(described);
                    providers.push(info);
                }
                Kind::Ring => rings.push(serde_json::from_slice(&text(chunk)?).map_err(parsed)?),
                Kind::End => {
                    let read: UserEnd = serde_json::from_slice(&text(chunk)?).map_err(parsed)?;
                    ends.extend(
                        read.rings.iter().map(|(ring, lost, unfinished)| (*ring, (*lost, *unfinished))),
                    );
                    end = Some(read);
                }
                Kind::Over => {
                    let unfinished =
                        text(chunk)?.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
                    let ring =
                        u32::try_from(chunk.index).map_err(|_| broken("a ring's number is too large"))?;
                    ends.insert(ring, (chunk.position, unfinished));
                }
                Kind::Data => data.push(*chunk),
                Kind::Clock => pairs.extend(text(chunk)?.chunks_exact(16).map(pair)),
            }
        }
        if data.iter().any(|chunk| chunk.index >= rings.len() as u64) {
            return Err(broken("it has records of rings that it does not describe"));
        }
        if rings.iter().any(|ring: &RingInfo| !ring.layout.is_possible()) {
            return Err(broken("the layout of a ring is not possible"));
        }
        Ok(UserSpool { directory, file, description, providers, rings, pairs, end, ends, data, live: None })
    }

    /// The directory of the trace while it is written.
    pub(super) fn trace(&self) -> PathBuf {
        self.directory.path().join(TRACE)
    }

    /// Removes the spool after the trace is complete.
    pub(super) fn remove(self) -> Result<(), Error> {
        self.directory.remove().map_err(Error::io("remove", &self.directory.shown))
    }
}

fn pair(bytes: &[u8]) -> Pair {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    Pair { counter: word(0), monotonic_ns: word(8) }
}

/// All whole chunks; the rest that a kill or a full disk left of the last one is not among them.
fn chunks(file: &File) -> io::Result<Vec<ChunkPlace>> {
    let size = file.metadata()?.len();
    let mut chunks = Vec::new();
    let mut at = 0;
    while at + HEADER_BYTES as u64 <= size {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, at)?;
        let word = |place: usize| u64::from_le_bytes(header[place * 8..][..8].try_into().unwrap_or_default());
        let offset = at + HEADER_BYTES as u64;
        let bytes = word(4);
        let Some(kind) = Kind::of(word(1)).filter(|_| word(0) == MAGIC && bytes <= size - offset) else {
            break;
        };
        chunks.push(ChunkPlace { kind, index: word(2), position: word(3), offset, bytes });
        at = offset + bytes;
    }
    Ok(chunks)
}
