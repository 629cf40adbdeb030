// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A limit for a trace's size: the files of all streams are a ring, of which the oldest time is removed
//! ([ADR 0022](../../../../docs/adr/0022-the-oldest-time-is-removed-from-all-streams.md)).
//!
//! Each stream consists of several files. All of them begin a new file when together they have written a part of the limit, a
//! *generation*: so no file reaches far back beside newer ones. Before a file grows, the file whose last event is the oldest of all is
//! removed, as often as it takes. What is open is never removed: two generations at most, and what streams have allocated ahead.
//!
//! Files of users' programs are on their users' accounts. With those of several users, each account has generations of its own, and whoever has most
//! loses his oldest file: so nobody's events remove those of another who has less. Files of the recorder's own user and of the kernel are one window of time.
//!
//! Numbers of packets go on from file to file. A file's name has the number of events before it in its stream (`kernel_0_17_52000`): so a
//! reader knows what has been overwritten, and one that was overtaken what it has missed. (A field of packets would be shown with
//! each event, or warned of, by babeltrace2.)

use super::stream_file::StreamFile;
use crate::Error;
use nix::unistd::{UnlinkatFlags, unlinkat};
use rtscope_event::MonotonicNs;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fewer files cannot be had: two generations may be open, and something must be there besides them.
pub const FILES_MIN: u64 = 4;
/// Packets are at least this large: a page, by which files grow.
const PACKET_BYTES_MIN: u64 = 4096;
/// The open packets of all streams, and what was allocated for them, take at most a quarter of the limit.
const PACKETS_SHARE: u64 = 8;

/// On whose account files are: of programs of this user; `None`: of the recorder itself.
pub type RingAccount = Option<u32>;

/// Files of streams, of one or several traces, that together do not exceed a limit.
#[derive(Clone, Debug)]
pub struct FileRing {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: u64,
    files: u64,
    packet_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of all files.
    used: u64,
    accounts: BTreeMap<RingAccount, Account>,
    /// By the time of the last event, and by a number that distinguishes them.
    complete: BTreeMap<(MonotonicNs, u64), CompleteFile>,
    serial: u64,
    /// By trace.
    overwritten: Vec<Overwritten>,
}

/// What belongs to one user, or to the recorder.
#[derive(Debug, Default)]
struct Account {
    /// Bytes of its files.
    used: u64,
    /// Files that nothing is added to.
    complete: usize,
    /// Bytes that were added in this generation.
    added: u64,
    /// Files of an earlier one end with their next packet.
    generation: Arc<AtomicU64>,
    /// Events that were removed.
    overwritten: u64,
}

impl Account {
    fn generation(&self) -> u64 {
        // ORDER: relaxed; a number that stands for itself: files end somewhat sooner or later.
        self.generation.load(Ordering::Relaxed)
    }
}

/// A file that nothing is added to.
#[derive(Debug)]
pub(super) struct CompleteFile {
    pub(super) directory: Arc<File>,
    pub(super) name: String,
    pub(super) trace: usize,
    pub(super) account: RingAccount,
    pub(super) generation: u64,
    pub(super) bytes: u64,
    pub(super) content: FileContent,
}

/// What a file of a stream has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileContent {
    /// Of its last packet.
    pub(super) end: MonotonicNs,
    pub(super) packets: u64,
    pub(super) events: u64,
}

/// What was removed to make room for newer events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overwritten {
    /// Events, without those of state dumps.
    pub events: u64,
    /// Packets.
    pub packets: u64,
    /// Files.
    pub files: u64,
    /// Nothing that was removed is newer: since then, the trace has everything.
    pub until: MonotonicNs,
}

impl FileRing {
    /// Files of at most `limit` bytes in all, and at most `files` for each of `streams` streams.
    ///
    /// # Errors
    /// The least limit, when this one is too small.
    pub fn new(limit: u64, files: u64, streams: u64) -> Result<FileRing, u64> {
        let files = files.max(FILES_MIN);
        let least = FileRing::least(streams);
        if limit < least {
            return Err(least);
        }
        let packet_bytes = (limit / (PACKETS_SHARE * streams.max(1))).max(PACKET_BYTES_MIN);
        let state = Mutex::default();
        Ok(FileRing { shared: Arc::new(Shared { limit, files, packet_bytes, state }) })
    }

    /// The least limit for this many streams.
    #[must_use]
    pub fn least(streams: u64) -> u64 {
        (PACKET_BYTES_MIN * PACKETS_SHARE).saturating_mul(streams.max(1))
    }

    /// A new part of it: a trace whose overwritten events are counted.
    #[must_use]
    pub fn trace(&self) -> RingTrace {
        let mut state = self.state();
        state.overwritten.push(Overwritten::default());
        RingTrace { ring: self.clone(), number: state.overwritten.len() - 1 }
    }

    /// The most bytes of a packet.
    pub(super) fn packet_bytes(&self) -> u64 {
        self.shared.packet_bytes
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().used
    }

    /// What all files may take.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// The size of a generation.
    #[must_use]
    pub fn generation_bytes(&self) -> u64 {
        self.shared.limit / self.shared.files
    }

    /// Of all its traces.
    #[must_use]
    pub fn overwritten(&self) -> Overwritten {
        self.state().overwritten.iter().fold(Overwritten::default(), |sum, of_trace| Overwritten {
            events: sum.events + of_trace.events,
            packets: sum.packets + of_trace.packets,
            files: sum.files + of_trace.files,
            until: sum.until.max(of_trace.until),
        })
    }

    /// Counts bytes of something else that is to stay.
    ///
    /// # Errors
    /// When there is no room.
    pub fn hold(&self, bytes: u64) -> io::Result<()> {
        self.make_room(bytes)?.added(None, bytes, &self.shared)
    }

    /// Changes when a generation of the recorder's own files is full.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.state().accounts.get(&None).map_or(0, Account::generation)
    }

    /// Events that were removed of each account.
    #[must_use]
    pub fn overwritten_by_account(&self) -> BTreeMap<RingAccount, u64> {
        let state = self.state();
        let counts = state.accounts.iter().map(|(account, of)| (*account, of.overwritten));
        counts.filter(|(_, events)| *events > 0).collect()
    }

    /// The generation of an account, as it goes on.
    pub(super) fn latest(&self, account: RingAccount) -> Arc<AtomicU64> {
        Arc::clone(&self.state().accounts.entry(account).or_default().generation)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for this many bytes that are about to be written, and counts them.
    fn make_room(&self, bytes: u64) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        while state.used.saturating_add(bytes) > self.shared.limit {
            if !state.remove_oldest()? {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        state.used += bytes;
        Ok(state)
    }

    /// The same for a file of this account.
    pub(super) fn add(&self, account: RingAccount, bytes: u64) -> io::Result<()> {
        let mut state = self.make_room(bytes)?;
        state.accounts.entry(account).or_default().used += bytes;
        state.added(account, bytes, &self.shared)
    }

    /// This many bytes were not needed.
    pub(super) fn give_back(&self, bytes: u64, account: RingAccount, generation: u64) {
        let mut state = self.state();
        state.used = state.used.saturating_sub(bytes);
        let of = state.accounts.entry(account).or_default();
        of.used = of.used.saturating_sub(bytes);
        if generation == of.generation() {
            of.added = of.added.saturating_sub(bytes);
        }
    }

    /// Nothing is added to this file any more, for which `held` bytes have been counted.
    pub(super) fn complete(&self, file: CompleteFile, held: u64) {
        let mut state = self.state();
        state.used = (state.used + file.bytes).saturating_sub(held);
        let of = state.accounts.entry(file.account).or_default();
        of.used = (of.used + file.bytes).saturating_sub(held);
        of.complete += 1;
        state.serial += 1;
        let key = (file.content.end, state.serial);
        state.complete.insert(key, file);
    }
}

impl State {
    /// Whether several have files: users; or one who is not the recorder's, and the recorder itself.
    fn is_shared(&self) -> bool {
        // The recorder's own files and those of its user count as one.
        let own = nix::unistd::geteuid().as_raw();
        let used = self.accounts.iter().filter(|(_, of)| of.used > 0);
        let mut whose: Vec<u32> = used.map(|(account, _)| account.unwrap_or(own)).collect();
        whose.sort_unstable();
        whose.dedup();
        whose.len() > 1
    }

    /// Ends a generation if it is full: that of all, or that of one account among those of several users.
    fn added(&mut self, account: RingAccount, bytes: u64, shared: &Shared) -> io::Result<()> {
        self.accounts.entry(account).or_default().added += bytes;
        let is_shared = self.is_shared();
        let mut full: Vec<RingAccount> = self.accounts.keys().copied().collect();
        let mut room = shared.limit;
        if is_shared {
            full.retain(|other| *other == account);
            // What others do not have, and a share at least.
            let parts = self.accounts.values().filter(|of| of.used > 0).count() as u64;
            let own = self.accounts.get(&account).map_or(0, |of| of.used);
            room = (shared.limit / parts.max(1)).max(room.saturating_sub(self.used.saturating_sub(own)));
        }
        let all =
            full.iter().filter_map(|account| self.accounts.get(account)).map(|of| of.added).sum::<u64>();
        if all < room / shared.files {
            return Ok(());
        }
        for account in full {
            let Some(of) = self.accounts.get_mut(&account) else { continue };
            of.added = 0;
            // ORDER: relaxed; see Account::generation(). It changes behind the lock only.
            let generation = of.generation.fetch_add(1, Ordering::Relaxed) + 1;
            self.remove_generation(account, generation.checked_sub(shared.files))?;
        }
        Ok(())
    }

    /// Removes the oldest file: of all, or among those of several users of who has most. False: there is none.
    fn remove_oldest(&mut self) -> io::Result<bool> {
        let most = self.accounts.iter().filter(|(_, of)| of.complete > 0).max_by_key(|(_, of)| of.used);
        let most = most.map(|(account, _)| *account).filter(|_| self.is_shared());
        let mut files = self.complete.iter();
        let key = files.find(|(_, file)| most.is_none_or(|most| file.account == most)).map(|(key, _)| *key);
        let Some(file) = key.and_then(|key| self.complete.remove(&key)) else { return Ok(false) };
        self.remove(&file).map(|()| true)
    }

    /// Removes what is of this generation of an account, or older.
    fn remove_generation(&mut self, account: RingAccount, last: Option<u64>) -> io::Result<()> {
        let Some(last) = last else { return Ok(()) };
        let is_old = |file: &CompleteFile| file.account == account && file.generation <= last;
        let old: Vec<(MonotonicNs, u64)> =
            self.complete.iter().filter(|(_, file)| is_old(file)).map(|(key, _)| *key).collect();
        for key in old {
            if let Some(file) = self.complete.remove(&key) {
                self.remove(&file)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, file: &CompleteFile) -> io::Result<()> {
        match unlinkat(&*file.directory, file.name.as_str(), UnlinkatFlags::NoRemoveDir) {
            // Somebody else has removed it.
            Ok(()) | Err(nix::Error::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.used = self.used.saturating_sub(file.bytes);
        let of = self.accounts.entry(file.account).or_default();
        of.used = of.used.saturating_sub(file.bytes);
        of.complete = of.complete.saturating_sub(1);
        of.overwritten += file.content.events;
        if let Some(overwritten) = self.overwritten.get_mut(file.trace) {
            overwritten.events += file.content.events;
            overwritten.packets += file.content.packets;
            overwritten.files += 1;
            overwritten.until = overwritten.until.max(file.content.end);
        }
        Ok(())
    }
}

/// One of the traces whose files are a ring.
#[derive(Clone, Debug)]
pub struct RingTrace {
    ring: FileRing,
    number: usize,
}

impl RingTrace {
    /// The ring.
    #[must_use]
    pub fn ring(&self) -> &FileRing {
        &self.ring
    }

    /// What was removed of this trace.
    #[must_use]
    pub fn overwritten(&self) -> Overwritten {
        self.ring.state().overwritten.get(self.number).copied().unwrap_or_default()
    }

    /// Counts bytes that stay: metadata.
    pub(super) fn hold(&self, bytes: u64) -> io::Result<()> {
        self.ring.hold(bytes)
    }

    /// The files of a stream in this directory; their names begin with `name`. They are on the recorder's own account.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub(super) fn stream(&self, directory: &Path, name: &str) -> Result<StreamFile, Error> {
        StreamFile::of_ring(&self.ring, self.number, directory, name)
    }

    /// What of a trace with this environment in this directory was removed, as far as its files tell: the first of each stream says what
    /// was before it. `None`: it is no ring.
    #[must_use]
    pub fn overwritten_of(directory: &Path) -> Option<Overwritten> {
        let mut first: BTreeMap<String, RingFileName> = BTreeMap::new();
        for entry in fs::read_dir(directory).ok()?.flatten() {
            let name = entry.file_name();
            let Some((stream, name)) = name.to_str().and_then(RingFileName::parse) else { continue };
            let known = first.entry(stream).or_insert(name);
            *known = (*known).min(name);
        }
        let events = first.values().map(|name| name.events).sum();
        (!first.is_empty()).then_some(Overwritten { events, ..Overwritten::default() })
    }

    /// Waits until the files in this directory are on the disk, which nobody has waited for before. Returns the size of all.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sync(directory: &Path) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(directory)? {
            let file = File::open(entry?.path())?;
            file.sync_all()?;
            bytes += file.metadata()?.len();
        }
        Ok(bytes)
    }
}

/// What the name of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingFileName {
    /// Of the file among those of its stream.
    pub(crate) number: u64,
    /// Events before it.
    pub(crate) events: u64,
}

impl RingFileName {
    /// `kernel_0_17_52000`: stream, number, events. Also returns the first part.
    pub(crate) fn parse(name: &str) -> Option<(String, RingFileName)> {
        let mut parts = name.rsplitn(3, '_');
        let (events, number, stream) = (parts.next()?, parts.next()?, parts.next()?);
        let (_, of_stream) = stream.rsplit_once('_')?;
        of_stream.parse::<u32>().ok()?;
        Some((stream.to_owned(), RingFileName { number: number.parse().ok()?, events: events.parse().ok()? }))
    }
}
