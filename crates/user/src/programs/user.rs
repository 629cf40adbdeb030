// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One user's directory: which of its files are new, whose they are, and which of their processes live.
//!
//! A user cannot exhaust the limits of others: the numbers of files, processes and rings are limited for each user.

use super::process::{Process, ProcessReport};
use super::{POLL_INTERVAL, Session, Sink};
use crate::Error;
use crate::containers::Census;
use crate::directory::{FileName, ProcessId, UserDirectory};
use crate::session::ServedDirectory;
use crate::shelf::{Owner, Shelf};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

/// Rings of one process, which a program limits to 4096 at a time (RTSCOPE__RINGS_MAX): more are an attack, not threads.
const RINGS_MAX: usize = 8192;
/// Processes of one user that are alive at the same time.
const PROCESSES_MAX: usize = 8192;
/// New files that are opened in one poll, of a process and of a user, so that other users' rings do not wait long.
const NEW_OF_PROCESS: usize = 64;
const NEW_OF_USER: usize = 1024;
/// A file that is not complete after this time is given up.
const UNFINISHED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct User {
    pub(super) directory: UserDirectory,
    /// Number of the container; 0: not in a container.
    pub(super) container: u64,
    pub(super) served: Option<ServedDirectory>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// Number of ended processes without anything to report.
    pub(super) over: u32,
    /// How many of its files may be mapped.
    pub(super) files_max: usize,
    /// The process that serves it, if this one only watches.
    pub(super) other: Option<u32>,
    /// Names of files that have been handled, except for those that are not complete yet.
    pub(super) known: BTreeSet<FileName>,
    /// Since when those have been incomplete.
    pub(super) incomplete: BTreeMap<FileName, Instant>,
    pub(super) changed: bool,
}

impl User {
    pub(super) fn reports(&self) -> impl Iterator<Item = ProcessReport> {
        self.processes.iter().map(|(id, process)| process.report(*id, self.directory.uid))
    }

    pub(super) fn mapped(&self) -> usize {
        self.processes.values().map(Process::mapped).sum()
    }

    /// All of its processes are dead, and nothing of them is left.
    pub(super) fn is_over(&self) -> bool {
        self.processes.values().all(Process::is_gone)
    }

    /// Whether it has files that have not been opened yet.
    pub(super) fn has_new_files(&self) -> bool {
        match self.directory.files() {
            // Unknown: assume so.
            Err(Error::Io { source, .. }) if crate::is_shortage(&source) => true,
            files => files.unwrap_or_default().iter().any(|name| !self.known.contains(name)),
        }
    }

    /// Opens all new files at once, when there will be no further poll.
    pub(super) fn find_all(
        &mut self,
        census: &Census,
        sink: &mut dyn Sink,
        rings: &mut u32,
        shelf: &mut Shelf,
    ) -> io::Result<()> {
        for _ in 0..=RINGS_MAX / NEW_OF_PROCESS {
            if !self.find(None, census, sink, rings, shelf)? {
                break;
            }
        }
        Ok(())
    }

    /// Opens new files. Returns whether there are more.
    pub(super) fn find(
        &mut self,
        session: Option<&Session>,
        census: &Census,
        sink: &mut dyn Sink,
        rings: &mut u32,
        shelf: &mut Shelf,
    ) -> io::Result<bool> {
        let owner = if self.container == 0 { Owner::User(self.directory.uid) } else { Owner::Containers };
        let files: BTreeSet<FileName> = match self.directory.files() {
            // Nothing is known about any file, in particular not that it is gone.
            Err(Error::Io { source, .. }) if crate::is_shortage(&source) => return Ok(false),
            files => files.unwrap_or_default().into_iter().collect(),
        };
        self.known.retain(|name| files.contains(name));
        self.incomplete.retain(|name, _| files.contains(name));
        // Providers before rings: a ring's events are its providers'.
        let mut new: Vec<FileName> = files.into_iter().filter(|name| !self.known.contains(name)).collect();
        new.sort_unstable_by_key(|name| (name.kind, name.process));
        let mut opened: HashMap<ProcessId, usize> = HashMap::new();
        let mut mapped = self.mapped();
        let mut living = self.processes.values().filter(|process| !process.is_dead()).count();
        self.changed = false;
        let mut more = false;
        for name in new {
            let opened_of_it = opened.entry(name.process).or_default();
            *opened_of_it += 1;
            // A process that announces many files waits for the next poll, so that others need not.
            if *opened_of_it > NEW_OF_PROCESS || opened.len() > NEW_OF_USER {
                (self.changed, more) = (true, true);
                continue;
            }
            if !self.processes.contains_key(&name.process) {
                living += 1;
            }
            let is_containers = self.directory.is_containers();
            let served = self.served.is_some();
            let process =
                self.processes.entry(name.process).or_insert_with(|| Process::new(is_containers, served));
            if living > PROCESSES_MAX || mapped >= self.files_max {
                process.refuse(name, "this user has too many programs or threads");
            }
            let before = process.mapped();
            let share = (&mut *shelf, owner);
            let complete =
                process.add(&self.directory, name, served.then_some(&mut *sink), rings, RINGS_MAX, share)?;
            process.place(name.process, census);
            mapped += process.mapped() - before.min(process.mapped());
            if complete {
                self.incomplete.remove(&name);
                self.known.insert(name);
                continue;
            }
            let since = *self.incomplete.entry(name).or_insert_with(Instant::now);
            if since.elapsed() > UNFINISHED {
                process.refuse(name, "it was never completed");
                self.known.insert(name);
            } else if since.elapsed() < POLL_INTERVAL {
                self.changed = true;
            }
        }
        if let (Some(session), true) = (session, self.served.is_some()) {
            self.processes.values_mut().for_each(|process| process.enable(session.id, &session.settings));
        }
        Ok(more)
    }

    /// Finds out which processes are alive. Files of dead processes are removed once they have been taken.
    pub(super) fn check(&mut self, census: &Census, is_deserted: bool) {
        let directory = &self.directory;
        // In the order of pid, then birth: the last one of a number is the newest.
        let newest: HashMap<u32, u64> = self.processes.keys().map(|id| (id.pid, id.birth_ns)).collect();
        let ids: Vec<ProcessId> = self.processes.keys().copied().collect();
        for id in ids {
            let newer = newest.get(&id.pid).is_some_and(|birth_ns| *birth_ns > id.birth_ns);
            let Some(process) = self.processes.get_mut(&id) else { continue };
            process.check(id, newer, is_deserted, census);
            if self.served.is_some() || self.other.is_none() {
                process.sweep(directory, self.served.is_some());
                if process.is_over() {
                    self.processes.remove(&id);
                    self.over += 1;
                }
            }
        }
    }
}
