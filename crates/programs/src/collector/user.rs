// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of one directory, as they were found.

use super::process::Process;
use super::report::{PastProcesses, ProcessReport};
use super::shared;
use super::{DrainSummary, Poll, Sink};
use crate::budget::{Cause, REPORTS_MAX};
use crate::directory::{FileKind, FileName, ProcessId, UserDirectory};
use crate::look::{Content, Look, NewPlace, PlaceId, Whose, whose};
use crate::session::ServedDirectory;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct User {
    id: PlaceId,
    pub(super) directory: Arc<UserDirectory>,
    /// The user whose account it is on.
    pub(super) account: u32,
    pub(super) served: Option<ServedDirectory>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// Number of ended processes without anything to report.
    pub(super) over: u32,
    /// Those that had something to report, and are too many to be retained.
    past: PastProcesses,
    /// The process that serves it, if this one only watches.
    pub(super) other: Option<u32>,
    /// Processes that make rings faster than they are found.
    pub(super) behind: BTreeSet<ProcessId>,
    /// Nothing more is found in it.
    pub(super) is_given_up: bool,
    /// Those that the next turn of emptying rings has to visit: with rings, or found or ended since. Anybody can make names of 20 000 processes that have
    /// none, and turns come every few milliseconds.
    to_drain: BTreeSet<ProcessId>,
    /// Where the last turn of emptying rings ended.
    drained: Option<ProcessId>,
    /// The first ring that the last look at what has come did not look at to its end: of this process, the one of this number.
    pub(super) passed_over: Option<(ProcessId, usize)>,
}

impl User {
    pub(super) fn new(place: NewPlace) -> User {
        let NewPlace { id, account, directory, served, other, .. } = place;
        User {
            id,
            directory,
            account,
            served,
            processes: BTreeMap::new(),
            over: 0,
            past: PastProcesses::default(),
            other,
            behind: BTreeSet::new(),
            is_given_up: false,
            to_drain: BTreeSet::new(),
            drained: None,
            passed_over: None,
        }
    }

    /// Who has turns for it.
    pub(super) fn whose(&self) -> Whose {
        whose(self.account, self.id)
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = ProcessReport> {
        self.processes.iter().map(|(id, process)| process.report(*id, self.directory.uid))
    }

    /// Those that have no report, and what was lost of processes that nobody sees.
    pub(super) fn past(&self) -> PastProcesses {
        let lost_without_file = self.served.as_ref().map_or(0, ServedDirectory::lost_without_file);
        PastProcesses { lost_without_file, ..self.past }
    }

    /// Takes over a file. Returns why it is refused, if it is.
    pub(super) fn adopt(
        &mut self,
        name: FileName,
        content: Content,
        sink: &mut dyn Sink,
        rings: &mut u32,
    ) -> io::Result<Option<Cause>> {
        let (is_containers, is_served) = (self.directory.is_containers(), self.served.is_some());
        self.to_drain.insert(name.process);
        let process =
            self.processes.entry(name.process).or_insert_with(|| Process::new(is_containers, is_served));
        process.adopt(name, content, is_served.then_some(sink), rings)
    }

    /// Nothing more is found in it: what is known is still emptied. Who runs is not told any more that somebody takes its records, so it makes few further rings, and
    /// waits for none of them longer than for a recorder that was killed. Its session is withdrawn; that of all users, where there is one, stays.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
        self.served.iter().for_each(ServedDirectory::withdraw);
    }

    /// Tells its programs that somebody takes their records (`Process::beat`), and looks what has become of them.
    pub(super) fn beat(&mut self, is_flight: bool, sink: &mut dyn Sink) -> io::Result<()> {
        for (id, process) in &mut self.processes {
            process.beat(is_flight, self.is_given_up || self.behind.contains(id), sink)?;
        }
        Ok(())
    }

    /// It runs no longer.
    pub(super) fn ended(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.end();
            self.to_drain.insert(id);
        }
    }

    /// No name of an ended process is left.
    pub(super) fn vanished(&mut self, id: ProcessId, sink: &mut dyn Sink) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        process.let_go();
        if process.is_unremarkable() || process.is_unmapped() && self.processes.len() > REPORTS_MAX {
            self.forget(id, sink)?;
        }
        Ok(())
    }

    /// Its directory is gone.
    pub(super) fn part(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        for (id, process) in &mut self.processes {
            process.part(sink)?;
            sink.process_over(self.directory.uid, id.pid, id.birth_ns);
        }
        Ok(())
    }

    /// Drops a process that is over. What is to be reported of it is added up.
    fn forget(&mut self, id: ProcessId, sink: &mut dyn Sink) -> io::Result<()> {
        self.to_drain.remove(&id);
        let Some(mut process) = self.processes.remove(&id) else { return Ok(()) };
        process.tell(sink)?;
        if process.is_unremarkable() {
            self.over += 1;
        } else {
            self.past.add(&process.report(id, self.directory.uid));
        }
        Ok(())
    }

    /// Gives up the files of dead processes from which all was taken. They are forgotten when no name is left (`vanished`): a ring may still wait
    /// for its turn to be found.
    pub(super) fn sweep(&mut self, look: &Look) {
        if self.served.is_none() && self.other.is_some() {
            return;
        }
        let is_served = self.served.is_some();
        for (id, process) in &mut self.processes {
            if process.sweep(is_served) {
                look.sweep(self.id, *id);
            }
        }
    }

    /// Gives up the files of libraries that are gone ([`Process::take_unloaded`]).
    pub(super) fn give_up_unloaded(&mut self, look: &Look, is_last: bool) {
        if self.served.is_none() {
            return;
        }
        for (id, process) in &mut self.processes {
            let unloaded = process.take_unloaded(is_last).into_iter();
            let name = |number| FileName { process: *id, kind: FileKind::Provider(number) };
            look.remove(self.id, unloaded.map(name).collect());
        }
    }

    /// Takes complete records, for as long as the poll allows. Returns whether there was time for all.
    pub(super) fn drain(
        &mut self,
        poll: Poll,
        look: &Look,
        sink: &mut dyn Sink,
        drained: &mut DrainSummary,
    ) -> io::Result<bool> {
        let mut over = Vec::new();
        // The other half of the time is for rings that are alone: whoever floods some of his rings loses nothing of others.
        let until = poll.until.map(|until| poll.now + until.saturating_duration_since(poll.now) / 2);
        let ids: Vec<ProcessId> = match poll.stopping {
            true => self.processes.keys().copied().collect(),
            false => self.to_drain.iter().copied().collect(),
        };
        let mut is_complete =
            shared::drain(&mut self.processes, &ids, Poll { until, ..poll }, sink, drained)?;
        // From where the last turn ended, and around.
        let first = self.drained.take().map_or(0, |last| ids.partition_point(|id| *id < last));
        for id in ids[first..].iter().chain(&ids[..first]) {
            let Some(process) = self.processes.get_mut(id) else { continue };
            let is_done = process.drain(poll, &mut over, sink, drained)?;
            if is_done && process.rings.is_empty() {
                self.to_drain.remove(id);
            }
            if !is_done || poll.is_over() {
                self.drained = Some(*id);
                is_complete = false;
                break;
            }
        }
        look.remove(self.id, over);
        Ok(is_complete)
    }

    /// For flight recorders: drops threads and processes that ended a while ago. As above, a process is forgotten when no name of it is left: a ring
    /// that is found later needs its descriptions.
    pub(super) fn forget_ended(&mut self, look: &Look, before: std::time::Duration) {
        let mut over = Vec::new();
        for (process, state) in &mut self.processes {
            if state.forget_ended(&mut over, before) {
                look.sweep(self.id, *process);
            }
        }
        look.remove(self.id, over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{DiscardingSink, Looks};
    use crate::directory::FileKind;
    use crate::look::Until;
    use std::os::unix::fs::DirBuilderExt;
    use std::time::Instant;

    /// This user, with an empty directory, and a thread that looks into it.
    fn user_and_look() -> (tempfile::TempDir, User, Look) {
        let (base, uid) = (tempfile::tempdir().unwrap(), nix::unistd::geteuid().as_raw());
        let path = base.path().join(UserDirectory::name_of(uid));
        std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
        let directory = Arc::new(UserDirectory::open(base.path(), uid).unwrap());
        let look = Look::start(base.path(), None).unwrap();
        let user = User::new(NewPlace { id: 1, account: uid, directory, served: None, other: None });
        (base, user, look)
    }

    #[test]
    fn processes_without_rings_are_visited_once_and_not_in_each_turn() {
        let (_base, mut user, mut look) = user_and_look();
        let looks = Looks { asked: look.look(Until::AllSeen), answered: 0 };
        let drain = |user: &mut User, stopping| {
            let poll = Poll { stopping, now: Instant::now(), until: None, looks };
            let is_complete = user.drain(poll, &look, &mut DiscardingSink, &mut DrainSummary::default());
            (is_complete.unwrap(), user.to_drain.len())
        };
        let id = |pid| ProcessId { pid, birth_ns: 1 };
        for pid in 0..20_000 {
            let name = FileName { process: id(pid), kind: FileKind::Untraced(1) };
            user.adopt(name, Content::Untraced(1), &mut DiscardingSink, &mut 0).unwrap();
        }
        assert_eq!(user.to_drain.len(), 20_000);
        assert_eq!(drain(&mut user, false), (true, 0));
        // One that has ended since is visited once more: only then its files can be given up.
        user.ended(id(7));
        user.ended(id(20_001));
        assert_eq!(user.to_drain, BTreeSet::from([id(7)]));
        assert!(
            !user.processes.get_mut(&id(7)).unwrap().sweep(true),
            "nobody has looked whether it has left something"
        );
        assert_eq!(drain(&mut user, false), (true, 0));
        assert!(user.processes.get_mut(&id(7)).unwrap().sweep(true));
        // What is not there any more is not visited either.
        user.ended(id(8));
        user.forget(id(8), &mut DiscardingSink).unwrap();
        assert!(user.to_drain.is_empty());
        // At the end all are.
        user.processes.values_mut().for_each(Process::end);
        assert_eq!(drain(&mut user, true), (true, 0));
        assert!(user.processes.get_mut(&id(9)).unwrap().sweep(true));
    }

    #[test]
    fn a_flight_recorder_forgets_the_dead_when_no_name_of_theirs_is_left() {
        let (_base, mut user, look) = user_and_look();
        let process = ProcessId { pid: 7, birth_ns: 1 };
        let name = FileName { process, kind: FileKind::Untraced(1) };
        user.adopt(name, Content::Untraced(1), &mut DiscardingSink, &mut 0).unwrap();
        user.ended(process);
        // Its buffer may still wait for its turn to be found, and is nothing without what describes its events.
        (0..2).for_each(|_| user.forget_ended(&look, std::time::Duration::ZERO));
        assert!(user.processes.contains_key(&process));
    }
}
