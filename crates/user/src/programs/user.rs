// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One user's directory: which of its files are new, whose they are, and which of their processes live.
//!
//! A user cannot take from others: how many files, processes and rings are looked at is limited for each.

use super::process::{Process, ProcessReport};
use super::{LOOK, Session, Sink};
use crate::Error;
use crate::containers::Census;
use crate::directory::{FileName, ProcessId, UserDirectory};
use crate::session::ServedDirectory;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

/// Rings of one process, which a program keeps below 4096 at a time (RTSCOPE__RINGS_MAX): more are no threads but an attack.
const RINGS_MAX: usize = 8192;
/// Processes of one user that live at the same time.
const PROCESSES_MAX: usize = 8192;
/// New files of a process that are opened in one look, and of a user: the rings of the others wait meanwhile.
const NEW_OF_PROCESS: usize = 64;
const NEW_OF_USER: usize = 1024;
/// A file that is not complete after this time never will be.
const UNFINISHED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct User {
    pub(super) directory: UserDirectory,
    /// Of a container; 0: none's.
    pub(super) container: u64,
    pub(super) served: Option<ServedDirectory>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// Processes that are over, and of which there is nothing to tell.
    pub(super) over: u32,
    /// So many of its files may be mapped.
    pub(super) files_max: usize,
    /// Who serves it, if this process only watches.
    pub(super) other: Option<u32>,
    /// Names that have been dealt with, but for those that are not complete yet.
    pub(super) known: BTreeSet<FileName>,
    /// Since when those are not complete.
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

    /// It has files that nobody has looked at yet.
    pub(super) fn has_new_files(&self) -> bool {
        match self.directory.files() {
            // Nobody knows.
            Err(Error::Io { source, .. }) if crate::is_shortage(&source) => true,
            files => files.unwrap_or_default().iter().any(|name| !self.known.contains(name)),
        }
    }

    /// All files at once, when there will be no next look.
    pub(super) fn find_all(
        &mut self,
        census: &Census,
        sink: &mut dyn Sink,
        rings: &mut u32,
    ) -> io::Result<()> {
        for _ in 0..=RINGS_MAX / NEW_OF_PROCESS {
            if !self.find(None, census, sink, rings)? {
                break;
            }
        }
        Ok(())
    }

    /// Deals with files that are new. Whether there are more.
    pub(super) fn find(
        &mut self,
        session: Option<&Session>,
        census: &Census,
        sink: &mut dyn Sink,
        rings: &mut u32,
    ) -> io::Result<bool> {
        let files: BTreeSet<FileName> = match self.directory.files() {
            // Nothing can be said about any file, above all not that it is gone.
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
            // Who announces much waits for the next look, not the others.
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
            let complete =
                process.add(&self.directory, name, served.then_some(&mut *sink), rings, RINGS_MAX)?;
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
            } else if since.elapsed() < LOOK {
                self.changed = true;
            }
        }
        if let (Some(session), true) = (session, self.served.is_some()) {
            self.processes.values_mut().for_each(|process| process.enable(session.id, &session.settings));
        }
        Ok(more)
    }

    /// Finds out who lives. What dead processes left is removed once it has been taken.
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
