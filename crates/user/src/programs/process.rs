// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One instrumented process: its providers, its rings, whether it is alive, and what is wrong with it.

use super::{DrainSummary, FILES_MAX, Poll, Sink, Snapshot};
use crate::containers::{Census, LocalProcess};
use crate::description::{PROGRAM_BYTES_MAX, TOO_LARGE};
use crate::directory::{FileKind, FileName, ProcessId, UserDirectory};
use crate::provider::{ProcessCounters, Provider, ProviderInfo, Refusal};
use crate::ring::{Ring, RingInfo};
use crate::session::Settings;
use crate::shelf::{Owner, Shelf};
use rtscope_abi::program as abi;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

/// Tolerance of some clock ticks: the kernel reports a process's start in hundredths of a second.
const TICKS_NS: u64 = 30_000_000;

/// A process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Its name, if none of its providers could be read.
    comm: String,
    providers: BTreeMap<u32, Provider>,
    gone_providers: Vec<ProviderInfo>,
    rings: Vec<(u32, Ring)>,
    /// Reports of rings that were taken to their end. Those without anything to report are dropped: an endless recording may see any
    /// number.
    done: Vec<RingReport>,
    untraced: Option<i32>,
    dead: bool,
    quiet: bool,
    /// What is wrong with it; from then on nothing is taken from it.
    dropped: Option<String>,
    counters: ProcessCounters,
    counters_before: ProcessCounters,
    session: u64,
    files: BTreeSet<FileName>,
    /// Its number in this PID namespace, once that is known.
    pid_here: Option<u32>,
    is_containers: bool,
    /// Recorded by this process, which may then write into its files.
    is_recorded: bool,
}

/// A report of one ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingReport {
    /// Its index among all rings of the recording.
    pub index: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name when it was made.
    pub comm: String,
    /// Size.
    pub bytes: u64,
    /// Bytes that have not been taken yet.
    pub waiting_bytes: u64,
    /// Events that did not fit since the recording began.
    pub lost: u64,
    /// Records that were begun and never finished.
    pub unfinished: u64,
    /// How often its thread waited for space.
    pub waits: u64,
    /// The thread has ended.
    pub ended: bool,
}

/// Losses of a process outside its rings since the recording began.
pub type OutsideLosses = ProcessCounters;

/// A report of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// Its number in its own PID namespace.
    pub pid: u32,
    /// Its number in this PID namespace, when it is in another one and could be found.
    pub host_pid: Option<u32>,
    /// It is in a container, whose process numbers are not those of this machine.
    pub container: bool,
    /// The user, as this machine sees it.
    pub uid: u32,
    /// Name of its main thread at the start.
    pub comm: String,
    /// The program and its libraries that have events.
    pub providers: Vec<ProviderInfo>,
    /// Number of enabled events.
    pub enabled: u32,
    /// Its rings.
    pub rings: Vec<RingReport>,
    /// Events lost outside its rings.
    pub lost_outside: OutsideLosses,
    /// Why it runs untraced (errno), if it does.
    pub untraced: Option<i32>,
    /// Why nothing more is taken from it.
    pub dropped: Option<String>,
    /// It has ended.
    pub dead: bool,
}

impl Process {
    /// Opens one of its files. `sink`: only when it is recorded. False: the file is not complete yet.
    pub(super) fn add(
        &mut self,
        directory: &UserDirectory,
        name: FileName,
        sink: Option<&mut dyn Sink>,
        rings: &mut u32,
        rings_max: usize,
        (shelf, owner): (&mut Shelf, Owner),
    ) -> io::Result<bool> {
        if self.files.len() < FILES_MAX {
            self.files.insert(name);
        }
        if self.dropped.is_some() {
            return Ok(true);
        }
        self.quiet = false;
        let result = match name.kind {
            FileKind::Untraced(errno) => {
                self.untraced = Some(errno);
                return Ok(true);
            }
            FileKind::Provider(number) => match Provider::open(directory, name, shelf, owner) {
                Ok(Some(provider)) if self.described_bytes(&provider) > PROGRAM_BYTES_MAX => {
                    Err(Refusal { why: TOO_LARGE.to_string(), comm: provider.info.comm })
                }
                Ok(Some(provider)) => {
                    if let Some(sink) = sink {
                        sink.provider(&provider.info)?;
                    }
                    if number == 0 {
                        self.counters_before = provider.reported();
                    }
                    self.providers.insert(number, provider);
                    Ok(true)
                }
                other => other.map(|_| false),
            },
            FileKind::Ring(..) if self.rings.len() >= rings_max => {
                Err(Refusal::from(format!("it announces more than {rings_max} rings")))
            }
            FileKind::Ring(..) => match Ring::open(directory, name) {
                Ok(Some(ring)) => {
                    if let Some(sink) = sink {
                        sink.ring(&ring.info)?;
                    }
                    self.rings.push((*rings, ring));
                    *rings += 1;
                    Ok(true)
                }
                other => other.map(|_| false).map_err(Refusal::from),
            },
        };
        Ok(match result {
            Ok(true) => true,
            Ok(false) => {
                self.files.remove(&name);
                false
            }
            Err(Refusal { why, comm }) => {
                self.comm = comm;
                self.drop_it(format!("{name}: {why}"));
                true
            }
        })
    }

    /// What its live providers and this one take in a trace.
    fn described_bytes(&self, new: &Provider) -> usize {
        let all = self.providers.values().chain([new]).map(|provider| provider.described_bytes);
        all.fold(0, usize::saturating_add)
    }

    /// Number of its mapped files.
    pub(super) fn mapped(&self) -> usize {
        self.providers.len() + self.rings.len()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// It is dead, and all of its files have been taken and removed.
    pub(super) fn is_gone(&self) -> bool {
        self.dead && self.files.is_empty()
    }

    /// A process that has just been found.
    pub(super) fn new(is_containers: bool, is_recorded: bool) -> Process {
        Process { is_containers, is_recorded, ..Process::default() }
    }

    /// Finds its number in this PID namespace, before it is first checked.
    pub(super) fn place(&mut self, id: ProcessId, census: &Census) {
        let leader = self.providers.get(&0).filter(|_| self.pid_here.is_none());
        let here = leader.map(|leader| census.find(leader.pid_namespace, id.pid));
        if let Some(LocalProcess::Process(here)) = here {
            self.pid_here = Some(here);
        }
    }

    /// Stops taking from it.
    pub(super) fn refuse(&mut self, name: FileName, why: &str) {
        if self.dropped.is_none() {
            self.files.insert(name);
            self.drop_it(format!("{name}: {why}"));
        }
    }

    fn drop_it(&mut self, why: String) {
        self.counters = self.counters();
        // A process that only watches changes nothing: the recording is another's, and the trouble may be the watcher's own (no
        // memory). The session's flags are cleared with the events: no thread may wait for a collector that takes nothing any more.
        if self.is_recorded {
            self.disable();
        }
        self.dropped = Some(why);
        let rings = std::mem::take(&mut self.rings);
        self.done_with(&rings);
        self.forget_providers();
    }

    fn done_with(&mut self, rings: &[(u32, Ring)]) {
        let reports = rings.iter().map(|(index, ring)| ring_report(*index, ring));
        self.done.extend(reports.filter(RingReport::tells_something));
    }

    /// Nothing of it is left, and there is nothing to report: it can be dropped.
    pub(super) fn is_over(&self) -> bool {
        let outside = self.counters();
        let has_trouble = outside.lost() > 0 || outside.rings_refused > 0 || !self.done.is_empty();
        let is_gone = self.dead && self.files.is_empty() && self.rings.is_empty();
        is_gone && !has_trouble && self.untraced.is_none() && self.dropped.is_none()
    }

    fn forget_providers(&mut self) {
        self.gone_providers
            .extend(std::mem::take(&mut self.providers).into_values().map(|provider| provider.info));
    }

    /// Enables the events that a session requests, once for each provider.
    pub(super) fn enable(&mut self, session: u64, settings: &Settings) {
        for provider in self.providers.values().filter(|provider| provider.needs(session)) {
            // The flags first: already the first event may have to avoid system calls.
            if provider.info.number == 0 {
                let is_confined = self.pid_here.is_some_and(|here| is_confined(provider, here));
                let confined = if is_confined { abi::RTU_NO_LAZY } else { 0 };
                provider.beat();
                provider.set_session(session, settings.flags() | confined, settings.ring_bytes);
            }
            provider.enable(session, Some(&settings.events));
        }
        self.session = session;
    }

    /// Disables all events.
    pub(super) fn disable(&mut self) {
        for provider in self.providers.values() {
            provider.enable(0, None);
        }
        if let Some(leader) = self.providers.get(&0) {
            leader.set_session(0, 0, 0);
        }
        self.session = 0;
    }

    /// Takes complete records; from nearly empty rings only now and then.
    pub(super) fn drain(
        &mut self,
        Poll { stopping, now }: Poll,
        directory: &UserDirectory,
        sink: &mut dyn Sink,
        drained: &mut DrainSummary,
    ) -> io::Result<()> {
        let mut wrong = None;
        let mut over = Vec::new();
        let mut left = false;
        for (index, ring) in &mut self.rings {
            // Read before the ring: records written before the end are then seen. A thread that ends after this reading is
            // not finished yet, and neither is one some of whose records are left for later.
            let ended = ring.has_ended();
            let last = stopping || self.dead || ended;
            let size = ring.info.layout.ring_bytes;
            drained.fullest = drained.fullest.max(ring.arrived_bytes() as f64 / size as f64);
            drained.smallest_ring = Some(drained.smallest_ring.map_or(size, |known| known.min(size)));
            if !last && ring.can_wait(now) {
                ring.set_reported_lost(ring.lost());
                continue;
            }
            if !std::mem::replace(&mut drained.has_begun, true) {
                sink.begin();
            }
            match ring.take(last, stopping, |records| sink.data(*index, records))? {
                Ok(taken) => {
                    drained.bytes += taken;
                    left |= ring.waiting_bytes() > 0;
                }
                Err(why) => wrong = wrong.or(Some(format!("{}: {why}", ring.name))),
            }
            ring.set_reported_lost(ring.lost());
            if ended && !stopping && ring.waiting_bytes() == 0 {
                over.push(*index);
            }
        }
        if let Some(why) = wrong {
            self.drop_it(why);
        }
        if let (Some(leader), true) = (self.providers.get(&0), stopping) {
            leader.set_reported(&leader.counters());
        }
        self.quiet = self.dead && !left;
        // Both are in the order of the index.
        self.rings.retain(|(index, ring)| {
            let keep = over.binary_search(index).is_err();
            if !keep {
                directory.remove(ring.name);
                self.files.remove(&ring.name);
                self.done.extend(Some(ring_report(*index, ring)).filter(RingReport::tells_something));
            }
            keep
        });
        Ok(())
    }

    /// Whether its number belongs to another PID namespace.
    pub(super) fn is_elsewhere(&self, census: &Census) -> bool {
        self.providers.get(&0).is_some_and(|leader| !census.is_own(leader.pid_namespace))
    }

    /// Finds out whether it is alive, if possible. The census was taken after its files were seen. `is_deserted`: no process of its
    /// container ran at the last scan.
    pub(super) fn check(&mut self, id: ProcessId, has_newer: bool, is_deserted: bool, census: &Census) {
        self.place(id, census);
        let lives = match (self.pid_here, self.providers.get(&0)) {
            (Some(here), _) => lives(here, id.birth_ns),
            (None, Some(leader)) => census.find(leader.pid_namespace, id.pid) != LocalProcess::Nobody,
            // Without a provider's file its PID namespace is unknown: it is this one, if the file is not in a container's directory.
            (None, None) if self.is_containers => !is_deserted,
            (None, None) => lives(id.pid, id.birth_ns),
        };
        if !self.dead && (has_newer || !lives) {
            self.dead = true;
            self.counters = self.counters();
        }
        if self.providers.values().any(Provider::is_cut) {
            self.drop_it("its file was truncated".to_string());
        }
        let gone: Vec<u32> =
            self.providers.iter().filter(|(_, provider)| provider.is_unloaded()).map(|(n, _)| *n).collect();
        for number in gone {
            self.gone_providers.extend(self.providers.remove(&number).map(|provider| provider.info));
        }
        if let (Some(leader), true) = (self.providers.get(&0), self.session != 0) {
            leader.beat();
            if self.pid_here.is_some_and(|here| is_confined(leader, here)) {
                leader.set_flags(leader.flags() | abi::RTU_NO_LAZY);
            }
        }
    }

    /// Removes the files of a dead process. When it is recorded, only after its last record was taken; otherwise only when
    /// they hold nothing for a later recording.
    pub(super) fn sweep(&mut self, directory: &UserDirectory, recorded: bool) {
        let empty = self.rings.iter().all(|(_, ring)| ring.waiting_bytes() == 0);
        if !self.dead || !(recorded && self.quiet || !recorded && empty) {
            return;
        }
        std::mem::take(&mut self.files).into_iter().for_each(|name| directory.remove(name));
        let rings = std::mem::take(&mut self.rings);
        self.done_with(&rings);
        self.forget_providers();
    }

    fn counters(&self) -> ProcessCounters {
        let Some(leader) = self.providers.get(&0) else { return self.counters };
        let (now, before) = (leader.counters(), self.counters_before);
        ProcessCounters {
            lost_no_ring: now.lost_no_ring.saturating_sub(before.lost_no_ring),
            lost_in_setup: now.lost_in_setup.saturating_sub(before.lost_in_setup),
            lost_too_large: now.lost_too_large.saturating_sub(before.lost_too_large),
            lost_in_child: now.lost_in_child.saturating_sub(before.lost_in_child),
            rings_made: now.rings_made,
            rings_refused: now.rings_refused.saturating_sub(before.rings_refused),
            refused_errno: now.refused_errno,
        }
    }

    /// Events lost because a ring was full or missing.
    pub(super) fn lost(&self) -> u64 {
        let rings = self.rings.iter().map(|(index, ring)| ring_report(*index, ring).lost);
        let done = self.done.iter().map(|ring| ring.lost);
        rings.chain(done).fold(self.counters().lost(), u64::saturating_add)
    }

    pub(super) fn report(&self, id: ProcessId, uid: u32) -> ProcessReport {
        let live = self.providers.values().map(|provider| &provider.info);
        let providers: Vec<ProviderInfo> = live.chain(&self.gone_providers).cloned().collect();
        let mut rings = self.done.clone();
        rings.extend(self.rings.iter().map(|(index, ring)| ring_report(*index, ring)));
        ProcessReport {
            pid: id.pid,
            host_pid: self.pid_here.filter(|here| *here != id.pid),
            container: self.is_containers,
            uid,
            comm: providers.first().map_or_else(|| self.comm.clone(), |info| info.comm.clone()),
            enabled: self.providers.values().map(Provider::enabled).sum(),
            providers,
            rings,
            lost_outside: self.counters(),
            untraced: self.untraced,
            dropped: self.dropped.clone(),
            dead: self.dead,
        }
    }

    pub(super) fn snapshot(&self, into: &mut Snapshot) {
        into.providers.extend(self.providers.values().map(|provider| provider.info.clone()));
        into.providers.extend(self.gone_providers.iter().cloned());
        into.lost_outside = into.lost_outside.saturating_add(self.counters().lost());
        for (_, ring) in &self.rings {
            let (position, bytes) = ring.snapshot();
            // It begins with a sync record; earlier losses are not part of this snapshot.
            let info = RingInfo { sync: None, lost_before: ring.lost(), ..ring.info.clone() };
            into.rings.push((info, position, bytes));
        }
    }

    /// Drops rings of threads that ended longer ago than `before`; false when nothing of the process is left.
    pub(super) fn forget_ended(&mut self, directory: &UserDirectory, before: Duration) -> bool {
        let dead = self.dead;
        self.rings.retain(|(_, ring)| {
            let keep = !(dead || ring.has_ended()) || ring.ended_for() < before;
            if !keep {
                directory.remove(ring.name);
            }
            keep
        });
        // Rings name their files; the other files are removed with the last ring.
        if !self.dead || !self.rings.is_empty() {
            return true;
        }
        std::mem::take(&mut self.files).into_iter().for_each(|name| directory.remove(name));
        false
    }
}

impl RingReport {
    fn tells_something(&self) -> bool {
        self.lost > 0 || self.unfinished > 0 || self.waits > 0
    }
}

impl ProcessReport {
    /// Events lost because a ring was full or missing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.rings.iter().map(|ring| ring.lost).fold(self.lost_outside.lost(), u64::saturating_add)
    }

    /// The process, for messages.
    #[must_use]
    pub fn who(&self) -> String {
        match (self.container, self.host_pid) {
            (_, Some(here)) => format!("process {} of a container ({here} on this machine)", self.pid),
            (true, None) => format!("process {} of a container", self.pid),
            (false, None) => format!("process {}", self.pid),
        }
    }
}

impl ProcessCounters {
    /// The sum of the lost events.
    #[must_use]
    pub fn lost(&self) -> u64 {
        [self.lost_no_ring, self.lost_in_setup, self.lost_too_large, self.lost_in_child]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

fn ring_report(index: u32, ring: &Ring) -> RingReport {
    RingReport {
        index,
        tid: ring.info.tid,
        comm: ring.info.comm.clone(),
        bytes: ring.info.layout.ring_bytes,
        waiting_bytes: ring.waiting_bytes(),
        lost: ring.lost().saturating_sub(ring.info.lost_before),
        unfinished: ring.unfinished,
        waits: ring.waits(),
        ended: ring.has_ended(),
    }
}

/// Whether there is such a process, and it is the same one: a number can be reused, but only by a process that started later.
fn lives(pid: u32, birth_ns: u64) -> bool {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A failure for lack of file descriptors tells nothing about the process.
        Err(error) if crate::is_shortage(&error) => return true,
        stat => stat.unwrap_or_default(),
    };
    // After the name, which may contain anything: the state, and as the 20th field the start in ticks since boot (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let state = fields.next().unwrap_or("X");
    let Some(ticks) = fields.nth(18).and_then(|ticks| ticks.parse::<u64>().ok()) else { return false };
    // SAFETY: sysconf(3) takes no pointer; this asks for a constant.
    let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).unsigned_abs();
    let start_ns = ticks.saturating_mul(1_000_000_000 / rate);
    !matches!(state, "Z" | "X") && start_ns <= birth_ns.saturating_add(TICKS_NS)
}

/// Whether a process has been under seccomp since it started: then a system call might end it. A container's filter,
/// which was installed before, lets the same calls pass as before.
fn is_confined(leader: &Provider, pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.and_then(|mode| mode.trim().parse::<u32>().ok()).is_some_and(|mode| mode != leader.seccomp)
}
