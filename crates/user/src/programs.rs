// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All instrumented programs, as they come and go.
//!
//! Polling the directories costs nothing while nothing changes: the kernel reports new files (`watch`). Whether processes
//! are alive is checked about once a second. The events of a dead process are taken before its files are removed.

mod process;
mod user;
mod watch;

use crate::Error;
use crate::containers::{Census, Containers, DIRECTORIES_MAX, NAMES_MAX};
use crate::directory::{SHARED_MEMORY, UserDirectory};
use crate::memory::MAPPINGS_MAX;
use crate::provider::ProviderInfo;
use crate::ring::RingInfo;
use crate::session::{ServedDirectory, Settings, SharedSession};
use crate::shelf::Shelf;
use process::Process;
pub use process::{OutsideLosses, ProcessReport, RingReport};
use rtscope_event::exact;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use user::User;
use watch::DirectoryWatch;

pub use crate::provider::ProcessCounters;
pub use crate::walk::{Chunk, Records};

/// Between polls for changes that the kernel does not report.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Between scans for containers, which visit all processes of the machine.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Files of one user: some are left for the others.
const FILES_MAX: usize = MAPPINGS_MAX / 3;

/// The receiver of providers, rings and records. Indexes count from 0 in the order of the calls.
pub trait Sink {
    /// A provider was found.
    ///
    /// # Errors
    /// When it cannot be stored; that ends the recording.
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()>;

    /// A ring was found.
    ///
    /// # Errors
    /// As above.
    fn ring(&mut self, info: &RingInfo) -> io::Result<()>;

    /// Records of some rings are about to come.
    fn begin(&mut self) {}

    /// Records of a ring. The sink takes as many as it wants, and is called again while it takes some.
    ///
    /// # Errors
    /// As above.
    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()>;
}

/// The result of draining all rings once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrainSummary {
    /// Bytes taken.
    pub bytes: u64,
    /// The fullest ring: what came into it since it was last drained, as a part of its size.
    pub fullest: f64,
    /// Size of the smallest ring, if there is one.
    pub smallest_ring: Option<u64>,
    has_begun: bool,
}

/// One poll of all rings.
#[derive(Clone, Copy, Debug)]
struct Poll {
    /// Whether it is the last one.
    stopping: bool,
    now: Instant,
}

/// A sink for watching only, or for flight recorders, which store nothing until a snapshot is made.
#[derive(Clone, Copy, Debug)]
pub struct DiscardingSink;

impl Sink for DiscardingSink {
    fn provider(&mut self, _: &ProviderInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, _: &RingInfo) -> io::Result<()> {
        Ok(())
    }

    fn data(&mut self, _: u32, records: &mut Records<'_>) -> io::Result<()> {
        records.chunk();
        Ok(())
    }
}

/// Programs of the users whose directories this process may read. When it is dropped without [`Programs::stop`], their events
/// are disabled, and recorded events remain in their files for the next collector.
#[derive(Debug)]
pub struct Programs {
    base: PathBuf,
    containers: Containers,
    census: Census,
    /// Reports of containers that are gone.
    past: Vec<ProcessReport>,
    /// The number of processes in such containers without anything to report.
    past_over: u32,
    /// Only of a recording.
    watch: Option<DirectoryWatch>,
    users: Vec<User>,
    session: Option<Session>,
    polled: Option<Instant>,
    scanned: Option<Instant>,
    rings: u32,
    shelf: Shelf,
    /// Users whose programs another process records, and that process.
    pub busy: Vec<(u32, u32)>,
    /// Directories that cannot be used, and why.
    pub refused: Vec<String>,
}

#[derive(Debug)]
struct Session {
    id: u64,
    settings: Settings,
    _for_all: Option<SharedSession>,
}

impl Programs {
    /// For watching only: nothing is changed.
    #[must_use]
    pub fn watching(base: &Path) -> Programs {
        Programs {
            base: base.to_owned(),
            containers: Containers::default(),
            census: Census::of_own_namespace(),
            past: Vec::new(),
            past_over: 0,
            watch: None,
            users: Vec::new(),
            session: None,
            polled: None,
            scanned: None,
            rings: 0,
            shelf: Shelf::default(),
            busy: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// For recording.
    ///
    /// # Errors
    /// When another process records the programs of this process's user, or the system refuses.
    pub fn recording(base: &Path, settings: Settings) -> Result<Programs, Error> {
        let mut programs = Programs::watching(base);
        programs.shelf = Shelf::new(settings.events.clone());
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        let time =
            now.map_or(1, |now| now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs());
        // Unique on this machine, and never 0.
        let id = (time << 16 | u64::from(std::process::id() & 0xffff)).max(1);
        let watch = DirectoryWatch::new().and_then(|watch| watch.watch_base(base).map(|()| watch));
        programs.watch = Some(watch.map_err(Error::io("watch", base))?);
        let own = UserDirectory::make(base)?;
        // Sessions are written before files are first listed: a program that starts now sees a session or is seen. This user's own
        // directory is locked first: a refused collector must not have touched the shared session, which is the other's.
        programs.session = Some(Session { id, settings: settings.clone(), _for_all: None });
        programs.add_user(own, 0)?;
        if nix::unistd::geteuid().is_root() {
            let for_all = SharedSession::new(base, id, &settings, false)?;
            programs.session = Some(Session { id, settings, _for_all: Some(for_all) });
        }
        Ok(programs)
    }

    fn add_user(&mut self, directory: UserDirectory, container: u64) -> Result<(), Error> {
        let mut served = None;
        if let Some(session) = &self.session {
            served = Some(ServedDirectory::new(&directory, session.id, &session.settings)?);
            if let Some(watch) = &self.watch {
                watch.watch(&directory.descriptor_path()).map_err(Error::io("watch", &directory.path))?;
            }
        }
        let other =
            if served.is_none() { ServedDirectory::by_another(&directory).map(|(pid, _)| pid) } else { None };
        self.users.push(User {
            directory,
            container,
            served,
            processes: BTreeMap::new(),
            over: 0,
            files_max: FILES_MAX,
            other,
            known: BTreeSet::new(),
            incomplete: BTreeMap::new(),
            changed: true,
        });
        Ok(())
    }

    /// Finds new and ended programs. To be called every few milliseconds.
    ///
    /// # Errors
    /// When the sink or the system refuses.
    pub fn poll(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let notified = self.watch.as_ref().is_none_or(DirectoryWatch::has_new_files);
        let due = self.polled.is_none_or(|polled| polled.elapsed() >= POLL_INTERVAL);
        if !notified && !due && !self.users.iter().any(|user| user.changed) {
            return Ok(());
        }
        if due && self.scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN_INTERVAL) {
            self.find_containers();
            self.scanned = Some(Instant::now());
        }
        self.find_users();
        self.share_out();
        let recording = self.session.is_some();
        for user in &mut self.users {
            if recording {
                user.find(self.session.as_ref(), &self.census, sink, &mut self.rings, &mut self.shelf)?;
            } else {
                user.find_all(&self.census, sink, &mut self.rings, &mut self.shelf)?;
            }
        }
        if due {
            self.check();
            self.polled = Some(Instant::now());
        }
        Ok(())
    }

    /// All containers together have the limit of one user, since anybody could make many.
    fn share_out(&mut self) {
        let containers = self.users.iter().filter(|user| user.container != 0);
        let mapped: usize = containers.map(User::mapped).sum();
        for user in self.users.iter_mut().filter(|user| user.container != 0) {
            user.files_max = FILES_MAX.saturating_sub(mapped - user.mapped());
        }
    }

    /// Finds out which processes are alive.
    fn check(&mut self) {
        // Taken after the files were seen: a process that has a file and is not in it has ended.
        let processes = self.users.iter().flat_map(|user| user.processes.values());
        if processes.clone().any(|process| !process.is_dead() && process.is_elsewhere(&self.census)) {
            self.census.take();
        }
        for user in self.users.iter_mut().filter(|user| !user.is_over()) {
            user.check(&self.census, self.containers.is_deserted(user.container));
        }
    }

    /// Finds containers; only root may read their directories.
    fn find_containers(&mut self) {
        if !nix::unistd::geteuid().is_root() || self.base != Path::new(SHARED_MEMORY) {
            return;
        }
        self.census.update();
        let session = self.session.as_ref().map(|session| (session.id, &session.settings));
        let known = self.containers.all.len();
        self.containers.scan(&self.base, &self.census, session);
        for container in self.containers.all.iter().skip(known) {
            if let Some(watch) = &self.watch {
                // Without the watch their directories are found by the next poll.
                let _ = watch.watch_base(&container.path());
            }
        }
        // Only the reports of a container that is gone are retained, once all of its events have been taken.
        let numbers: Vec<u64> = self.containers.all.iter().map(|container| container.number).collect();
        for number in numbers {
            if !self.containers.is_deserted(number) {
                continue;
            }
            let users = || self.users.iter().filter(|user| user.container == number);
            if users().all(|user| user.is_over() && !user.has_new_files()) {
                let past: Vec<ProcessReport> = users().flat_map(User::reports).collect();
                self.past_over += users().map(|user| user.over).sum::<u32>();
                self.past.extend(past);
                self.users.retain(|user| user.container != number);
                self.containers.all.retain(|container| container.number != number);
            }
        }
    }

    fn find_users(&mut self) {
        self.users.retain(|user| user.directory.is_current());
        let own = UserDirectory::users(&self.base).into_iter();
        let mut found: Vec<(u64, u32, Result<UserDirectory, Error>)> = own
            .filter(|uid| !self.users.iter().any(|user| user.container == 0 && user.directory.uid == *uid))
            .map(|uid| (0, uid, UserDirectory::open(&self.base, uid)))
            .collect();
        for container in &self.containers.all {
            let uids =
                UserDirectory::some_users(&container.path(), NAMES_MAX).into_iter().take(DIRECTORIES_MAX);
            found.extend(uids.map(|uid| (container.number, uid, UserDirectory::open_in(container, uid))));
        }
        for (container, uid, directory) in found {
            // A user of a container could make any number of directories there: one is used for each owner.
            let owner = directory.as_ref().map_or(uid, |directory| directory.uid);
            if self.users.iter().any(|user| user.container == container && user.directory.uid == owner) {
                continue;
            }
            let added = directory.and_then(|directory| self.add_user(directory, container));
            match added {
                Ok(()) => self.busy.retain(|(busy, _)| *busy != uid),
                Err(Error::Busy(pid)) if !self.busy.contains(&(uid, pid)) => self.busy.push((uid, pid)),
                Err(error) if !self.refused.contains(&error.to_string()) && self.refused.len() < 100 => {
                    self.refused.push(error.to_string());
                }
                Err(_) => {}
            }
        }
    }

    /// Whether files were found that their programs have not finished yet.
    #[must_use]
    pub fn is_awaiting(&self) -> bool {
        self.users.iter().any(|user| user.changed)
    }

    /// Sleeps until the time is over, a program makes a new file, or `other` (the same descriptor in each call) can be read. Returns
    /// whether one of the latter two happened.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn wait(&mut self, time: Duration, other: BorrowedFd<'_>) -> io::Result<bool> {
        self.watch.as_mut().map_or(Ok(false), |watch| watch.wait(time, other))
    }

    /// Sleeps without being woken.
    pub fn sleep(&mut self, time: Duration) {
        if let Some(watch) = &mut self.watch {
            watch.sleep(time);
        }
    }

    /// Takes the complete records of all rings, but leaves nearly empty rings for one of the next calls.
    ///
    /// # Errors
    /// When the sink refuses (a full disk).
    pub fn drain(&mut self, sink: &mut dyn Sink) -> io::Result<DrainSummary> {
        let mut drained = DrainSummary::default();
        let look = Poll { stopping: false, now: Instant::now() };
        for user in self.users.iter_mut().filter(|user| user.served.is_some()) {
            for process in user.processes.values_mut() {
                process.drain(look, &user.directory, sink, &mut drained)?;
            }
        }
        Ok(drained)
    }

    /// Disables all events and takes the remaining records.
    ///
    /// # Errors
    /// When the sink refuses.
    pub fn stop(&mut self, sink: &mut dyn Sink) -> io::Result<u64> {
        self.poll(sink)?;
        self.switch_off(sink)?;
        // Threads that are writing an event finish it.
        std::thread::sleep(Duration::from_millis(2));
        let mut drained = DrainSummary::default();
        let look = Poll { stopping: true, now: Instant::now() };
        self.check();
        for user in self.users.iter_mut().filter(|user| user.served.is_some()) {
            for process in user.processes.values_mut() {
                process.drain(look, &user.directory, sink, &mut drained)?;
            }
            // Files of dead processes whose records were all taken are removed; those of live ones stay for the next collector.
            user.check(&self.census, self.containers.is_deserted(user.container));
        }
        Ok(drained.bytes)
    }

    /// Disables all events of this session.
    fn switch_off(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        // First the sessions, so that a program that starts now enables nothing; then the programs that have enabled events.
        self.session = None;
        self.containers.withdraw();
        self.users.iter_mut().for_each(|user| user.changed = user.served.is_some());
        for user in &mut self.users {
            if let Some(served) = &user.served {
                served.withdraw();
            }
        }
        let mut result = Ok(());
        for user in self.users.iter_mut().filter(|user| user.served.is_some()) {
            let found = user.find_all(&self.census, sink, &mut self.rings, &mut self.shelf);
            user.processes.values_mut().for_each(Process::disable);
            result = result.and(found);
        }
        result
    }

    /// Users whose programs are recorded by another process, and that process; when only watching.
    #[must_use]
    pub fn recorded_by(&self) -> Vec<(u32, u32)> {
        self.users.iter().filter_map(|user| Some((user.directory.uid, user.other?))).collect()
    }

    /// A report of each program so far.
    #[must_use]
    pub fn reports(&self) -> Vec<ProcessReport> {
        self.past.iter().cloned().chain(self.users.iter().flat_map(User::reports)).collect()
    }

    /// The number of rings ever found.
    #[must_use]
    pub fn rings(&self) -> u32 {
        self.rings
    }

    /// The number of processes ever found.
    #[must_use]
    pub fn count(&self) -> u32 {
        let here: u32 = self.users.iter().map(|user| exact::count(user.processes.len()) + user.over).sum();
        here + exact::count(self.past.len()) + self.past_over
    }

    /// Events lost so far because a ring was full or missing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let processes = self.users.iter().flat_map(|user| user.processes.values());
        let past = self.past.iter().map(ProcessReport::lost);
        processes.map(Process::lost).chain(past).fold(0, u64::saturating_add)
    }

    /// The newest records of all rings; for flight recorders.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let served = self.users.iter().filter(|user| user.served.is_some());
        served.flat_map(|user| user.processes.values()).for_each(|process| process.snapshot(&mut snapshot));
        snapshot
    }

    /// For flight recorders: drops threads and processes that ended longer ago than any snapshot reaches back.
    pub fn forget_ended(&mut self, before: Duration) {
        for user in self.users.iter_mut().filter(|user| user.served.is_some()) {
            let directory = &user.directory;
            user.processes.retain(|_, process| process.forget_ended(directory, before));
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        if self.session.is_some() {
            // This sink never fails.
            let _ = self.switch_off(&mut DiscardingSink);
        }
    }
}

/// The content of all rings at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The providers that describe the events.
    pub providers: Vec<ProviderInfo>,
    /// The rings: their descriptions, the position of their first byte, and their bytes.
    pub rings: Vec<(RingInfo, u64, Vec<u8>)>,
    /// Events that no ring could take since the recording began.
    pub lost_outside: u64,
}
