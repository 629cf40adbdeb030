// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One user's directory: which of its files are new, whose they are, and which of their processes live.

use super::life::{MappedFiles, Processes};
use super::tracked::{Leader, Tracked};
use super::{Content, Found, Outbox, PlaceId, Session, Whose, whose};
use crate::Error;
use crate::budget::{
    Account, BEHIND_RINGS, CROWDED_FOR, Cause, NAMES_MAX, PROCESSES_MAX, REST, REST_OWN,
    RINGS_OF_PROCESS_MAX, TURN,
};
use crate::census::Census;
use crate::directory::{FileKind, FileName, ProcessId, UserDirectory};
use crate::provider::{Provider, enabled_word};
use crate::ring::Ring;
use crate::shelf::{Owner, Shelf};
use nix::unistd::geteuid;
use rtscope_abi::program as abi;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between looks for changes that the kernel does not report.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Between looks at a file that its program is filling.
const SOON: Duration = Duration::from_millis(2);
/// As long as an earlier listing is worked through without another: who is new is not to wait for all of a crowd.
const LISTED_FOR: Duration = Duration::from_millis(100);
/// A file that is not complete after this time is given up.
const UNFINISHED: Duration = Duration::from_secs(10);

/// What a place needs to know, and where it puts what it has found.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) session: Option<&'a Session>,
    pub(super) census: &'a Census,
    pub(super) processes: &'a mut Processes,
    pub(super) shelf: &'a mut Shelf,
    pub(super) out: &'a mut Outbox,
}

/// The directory.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: PlaceId,
    pub(super) directory: Arc<UserDirectory>,
    /// Number of the container; 0: not in a container.
    pub(super) container: u64,
    /// The user whose account it is on.
    pub(super) user: u32,
    account: Arc<Account>,
    /// Whether this process records its programs.
    pub(super) is_served: bool,
    processes: BTreeMap<ProcessId, Tracked>,
    /// Number of those that have not ended.
    living: usize,
    /// Names of files that have been handled, except for those that are not complete yet.
    known: BTreeSet<FileName>,
    /// When it was last listed.
    pub(super) listed: Instant,
    /// New names that wait for a turn.
    pending: VecDeque<FileName>,
    /// Files that are handed over when none is pending.
    held: Vec<(FileName, Content)>,
    /// Files that are known, by device and inode number.
    inodes: BTreeMap<(u64, u64), FileName>,
    /// Files that are to be removed.
    unneeded: BTreeSet<FileName>,
    /// Files that are to be removed once their program has let go of them.
    removable: BTreeSet<FileName>,
    /// The last of them that was tried, if there was no time for all.
    tried: Option<FileName>,
    /// Since when files have been incomplete.
    incomplete: BTreeMap<FileName, Instant>,
    /// When to look again; and since when that has been asked for.
    pub(super) next: Instant,
    /// Not before this time, whatever happens: what the user's looks cost is limited.
    pub(super) rests_until: Instant,
    /// Until when it is left alone, because it has too many names.
    crowded_until: Option<Instant>,
    /// The last process whose life was checked, if the turn was over before all were.
    checked: Option<ProcessId>,
    /// Its user has held it, and that was told.
    is_told_held: bool,
    /// Somebody waits until all were.
    waits_for_check: bool,
    /// Processes that make rings faster than they are opened, as told.
    behind: BTreeSet<ProcessId>,
    /// Whether its path still names it.
    pub(super) is_current: bool,
    /// Looking at it is to fail.
    #[cfg(test)]
    pub(super) is_to_fail: bool,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// All has been looked at.
    Complete,
    /// Files are left for the next turn.
    More,
    /// The other side is gone.
    Unwanted,
}

impl Place {
    pub(super) fn new(
        id: PlaceId,
        directory: Arc<UserDirectory>,
        container: u64,
        (user, account): (u32, Arc<Account>),
        is_served: bool,
    ) -> Place {
        let now = Instant::now();
        Place {
            id,
            directory,
            container,
            user,
            account,
            is_served,
            processes: BTreeMap::new(),
            living: 0,
            known: BTreeSet::new(),
            listed: now,
            pending: VecDeque::new(),
            held: Vec::new(),
            inodes: BTreeMap::new(),
            unneeded: BTreeSet::new(),
            removable: BTreeSet::new(),
            tried: None,
            incomplete: BTreeMap::new(),
            next: now,
            rests_until: now,
            crowded_until: None,
            checked: None,
            is_told_held: false,
            waits_for_check: false,
            behind: BTreeSet::new(),
            is_current: true,
            #[cfg(test)]
            is_to_fail: false,
        }
    }

    /// Who has turns for it.
    pub(super) fn whose(&self) -> Whose {
        whose(self.user, self.id)
    }

    pub(super) fn note_whether_it_is_current(&mut self) {
        self.is_current = self.is_current && self.directory.is_current();
    }

    /// Lets the files of a process that has ended be removed.
    pub(super) fn sweep(&mut self, process: ProcessId) {
        if self.processes.get(&process).is_some_and(|tracked| !tracked.has_ended) {
            return;
        }
        let first = FileName { process, kind: FileKind::Provider(0) };
        let names = self.known.range(first..).take_while(|name| name.process == process).copied();
        self.remove(names.collect());
    }

    /// Lets files be removed, in this user's turns: those that a program holds when it has let go of them.
    pub(super) fn remove(&mut self, names: Vec<FileName>) {
        self.unneeded.extend(names);
        self.wake();
    }

    /// Removes files, for a while. Returns whether none is left.
    fn remove_unneeded(&mut self) -> bool {
        let begun = Instant::now();
        while let Some(name) = self.unneeded.pop_first() {
            if !self.directory.remove(name) {
                self.removable.insert(name);
            }
            if begun.elapsed() > TURN {
                break;
            }
        }
        self.unneeded.is_empty()
    }

    /// Tries again to remove files that were held, for a while.
    fn remove_held(&mut self, files: &BTreeSet<FileName>) {
        let begun = Instant::now();
        self.removable.retain(|name| files.contains(name));
        let after = self.tried.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut gone = BTreeSet::new();
        for name in self.removable.range((after, Bound::Unbounded)) {
            if self.directory.remove(*name) {
                gone.insert(*name);
            }
            if begun.elapsed() > TURN {
                self.tried = Some(*name);
                break;
            }
        }
        self.removable.retain(|name| !gone.contains(name));
    }

    /// Something has changed in it: it is looked at as soon as its rest is over.
    pub(super) fn wake(&mut self) {
        self.next = self.next.min(self.rests_until);
    }

    /// Opens new files, for a while.
    pub(super) fn turn(&mut self, around: &mut Surroundings<'_>) -> Turn {
        let begun = Instant::now();
        if let (Some(session), true) = (around.session, self.is_served) {
            // Before the files are listed: who has none yet sees this, or is seen.
            self.directory.set_look(enabled_word(session.id));
        }
        let turn = self.look(around);
        around.out.flush();
        let is_own = self.container == 0 && self.user == geteuid().as_raw();
        let rest = if is_own && turn == Turn::More { REST_OWN } else { REST };
        self.rests_until = Instant::now() + begun.elapsed() * rest;
        let now = Instant::now();
        let is_young = self.incomplete.values().any(|since| since.elapsed() < POLL_INTERVAL);
        let pause = match turn {
            Turn::More => Duration::ZERO,
            _ if is_young => SOON,
            _ => POLL_INTERVAL,
        };
        self.next = (now + pause).max(self.rests_until);
        turn
    }

    fn look(&mut self, around: &mut Surroundings<'_>) -> Turn {
        #[cfg(test)]
        assert!(!self.is_to_fail, "as was asked");
        // Before it is listed: what is gone is no name any more.
        let complete = if self.remove_unneeded() { Turn::Complete } else { Turn::More };
        // What an earlier listing has found, first: a long list is not made for each turn. But processes take turns in a list, and who has come since is in none.
        let is_old = self.pending.is_empty() || self.listed.elapsed() > LISTED_FOR;
        if is_old && !self.list(around.out) && self.pending.is_empty() {
            return complete;
        }
        let begun = Instant::now();
        while let Some(name) = self.pending.pop_front() {
            if !self.look_at(name, around) {
                return Turn::Unwanted;
            }
            if begun.elapsed() > TURN && !self.pending.is_empty() {
                return Turn::More;
            }
        }
        if self.release(around) { complete } else { Turn::Unwanted }
    }

    /// Hands over what was held. What a killed recorder of other events lost is no loss of this one: it is told apart while none of a process's events is
    /// enabled. False: nobody wants it any more.
    fn release(&mut self, around: &mut Surroundings<'_>) -> bool {
        for (name, content) in &mut self.held {
            let Some(tracked) = self.processes.get(&name.process) else { continue };
            match content {
                Content::Provider(provider) if tracked.owes_nothing() => provider.forgive(),
                Content::Ring(ring) if tracked.owes_nothing() => ring.forgive(),
                _ => {}
            }
            if let (Content::Ring(ring), true) = (content, tracked.was_flight) {
                ring.give_back_left_by_flight();
            }
        }
        for (name, content) in &self.held {
            if let (Content::Provider(provider), Some(tracked), Some(session)) =
                (content, self.processes.get_mut(&name.process), around.session)
            {
                tracked.enable(provider, session);
            }
        }
        std::mem::take(&mut self.held).into_iter().all(|(name, content)| {
            if let Some(tracked) = self.processes.get_mut(&name.process) {
                (tracked.is_held, tracked.was_flight) = (false, false);
            }
            self.hand_over(name, content, around)
        })
    }

    /// Lists the directory. False: it is left alone for now.
    fn list(&mut self, out: &mut Outbox) -> bool {
        let begun = Instant::now();
        self.listed = begun;
        if self.crowded_until.is_some_and(|until| begun < until) {
            return false;
        }
        let files: BTreeSet<FileName> = match self.directory.files(NAMES_MAX) {
            // Nothing is known about any file, in particular not that it is gone.
            Err(Error::Io { source, .. }) if crate::is_shortage(&source) => return false,
            Err(Error::Held(path)) => {
                if !std::mem::replace(&mut self.is_told_held, true) {
                    out.tell(Found::Refusal(self.user, Cause::Held, path));
                }
                return false;
            }
            Ok((_, true)) => {
                if self.crowded_until.is_none() {
                    let path = self.directory.path.display().to_string();
                    out.tell(Found::Refusal(self.user, Cause::TooManyNames, path));
                }
                self.crowded_until = Some(begun + CROWDED_FOR);
                // None of their new rings would be found.
                let all = self.processes.keys().copied().collect();
                self.tell_who_is_behind(all, out);
                return false;
            }
            files => files.map(|(files, _)| files).unwrap_or_default().into_iter().collect(),
        };
        self.crowded_until = None;
        self.known.retain(|name| files.contains(name));
        self.count_rings();
        self.remove_held(&files);
        self.inodes.retain(|_, name| files.contains(name));
        self.incomplete.retain(|name, _| files.contains(name));
        self.forget_vanished(&files, out);
        // Providers before rings: a ring's events are its providers'. Then processes take turns.
        let mut nth: HashMap<ProcessId, usize> = HashMap::new();
        let mut new: Vec<(bool, usize, FileName)> = Vec::new();
        for name in files.into_iter().filter(|name| !self.known.contains(name)) {
            let nth = nth.entry(name.process).or_default();
            *nth += 1;
            new.push((!matches!(name.kind, FileKind::Provider(_)), *nth, name));
        }
        new.sort_unstable();
        let behind: BTreeSet<ProcessId> =
            nth.into_iter().filter(|(_, new)| *new > BEHIND_RINGS).map(|(process, _)| process).collect();
        self.tell_who_is_behind(behind, out);
        self.pending = new.into_iter().map(|(.., name)| name).collect();
        self.living = self.processes.values().filter(|process| !process.has_ended).count();
        true
    }

    fn tell_who_is_behind(&mut self, behind: BTreeSet<ProcessId>, out: &mut Outbox) {
        if behind != self.behind {
            self.behind.clone_from(&behind);
            out.tell(Found::Behind(self.id, behind));
        }
    }

    /// How many rings each process has now: those of threads that have ended, and were emptied, are gone.
    fn count_rings(&mut self) {
        self.processes.values_mut().for_each(|process| process.rings = 0);
        for name in self.known.iter().filter(|name| matches!(name.kind, FileKind::Ring(..))) {
            if let Some(process) = self.processes.get_mut(&name.process) {
                process.rings += 1;
            }
        }
    }

    /// Drops processes of which no name is left.
    fn forget_vanished(&mut self, files: &BTreeSet<FileName>, out: &mut Outbox) {
        let named: BTreeSet<ProcessId> = files.iter().map(|name| name.process).collect();
        let id = self.id;
        self.processes.retain(|process, tracked| {
            let stays = named.contains(process) || !tracked.has_ended && !tracked.is_refused;
            if !stays {
                out.tell(Found::Vanished(id, *process));
            }
            stays
        });
    }

    /// Opens a file, and hands it over if it is complete. False: nobody wants it any more.
    fn look_at(&mut self, name: FileName, around: &mut Surroundings<'_>) -> bool {
        let is_new = !self.processes.contains_key(&name.process);
        self.living += usize::from(is_new);
        let tracked = self.processes.entry(name.process).or_default();
        if matches!(name.kind, FileKind::Ring(..)) && tracked.rings >= RINGS_OF_PROCESS_MAX {
            // Later, when others of its rings have been emptied.
            return true;
        }
        let content = if is_new && self.living > PROCESSES_MAX {
            Some(Content::Refused(Cause::TooManyProcesses.into()))
        } else if tracked.is_refused {
            // Once is enough.
            self.known.insert(name);
            return true;
        } else {
            self.open(name, around)
        };
        let content = match content {
            Some(content) => content,
            None => {
                let since = *self.incomplete.entry(name).or_insert_with(Instant::now);
                if since.elapsed() <= UNFINISHED {
                    return true;
                }
                Content::Refused("it was never completed".into())
            }
        };
        self.incomplete.remove(&name);
        self.known.insert(name);
        let Some(tracked) = self.processes.get_mut(&name.process) else { return true };
        tracked.is_refused |= matches!(content, Content::Refused(..));
        if tracked.is_held {
            self.held.push((name, content));
            return true;
        }
        self.hand_over(name, content, around)
    }

    /// False: nobody wants it any more.
    fn hand_over(&mut self, name: FileName, content: Content, around: &mut Surroundings<'_>) -> bool {
        let Some(tracked) = self.processes.get(&name.process) else { return true };
        let has_ended = tracked.has_ended;
        let located = tracked.known.map(|known| known.pid);
        let is_leader = name.kind == FileKind::Provider(0);
        let mut is_wanted = around.out.tell(Found::File(self.id, name, content));
        if let (Some(here), true) = (located, is_leader) {
            is_wanted = around.out.tell(Found::Located(self.id, name.process, here));
        }
        // It may have been forgotten meanwhile.
        if has_ended {
            is_wanted = around.out.tell(Found::Ended(self.id, name.process));
        }
        is_wanted
    }

    /// `None`: it is not complete yet.
    fn open(&mut self, name: FileName, around: &mut Surroundings<'_>) -> Option<Content> {
        if let FileKind::Untraced(errno) = name.kind {
            return Some(Content::Untraced(errno));
        }
        let invalid = |why: String| Some(Content::Refused(why.into()));
        let opened = match self.directory.open_file(name) {
            Ok(opened) => opened,
            // It is gone already, or there is a shortage here: later.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound || crate::is_shortage(&error) => {
                return None;
            }
            Err(error) => return invalid(error.to_string()),
        };
        if self.inodes.get(&opened.id).is_some_and(|known| *known != name) {
            return Some(Content::Refused(Cause::SecondName.into()));
        }
        let tracked = self.processes.entry(name.process).or_default();
        let content = if let FileKind::Ring(..) = name.kind {
            let ring = Ring::open(&opened, name, self.directory.uid, &self.account);
            ring.map(|ring| {
                ring.map(|mut ring| {
                    tracked.rings += 1;
                    // Of a flight recorder that was killed: its events are enabled when all rings are known.
                    if around.session.is_some() && self.is_served {
                        ring.give_back_overwritten();
                    }
                    ring.info.drops_earlier = tracked.drops_earlier;
                    if ring.info.clock == abi::RTU_CLOCK_MONOTONIC {
                        ring.info.clock_offset_ns = tracked.monotonic_offset_ns;
                    }
                    Content::Ring(Box::new(ring))
                })
            })
        } else {
            let share = (&self.account, &mut *around.shelf, Owner(self.user));
            let provider = Provider::open(&opened, name, self.directory.uid, share);
            provider.map(|provider| {
                provider.map(|provider| {
                    if name.kind == FileKind::Provider(0) {
                        tracked.leader = Some(Leader {
                            seen: Instant::now(),
                            pid_namespace: provider.pid_namespace,
                            seccomp: provider.seccomp,
                            version: provider.version,
                            file: opened.id,
                            time_namespace: provider.time_namespace,
                        });
                        tracked.locate(name.process, around.census, (around.processes, self.user));
                    }
                    if let (Some(session), true) = (around.session, self.is_served) {
                        tracked.find_others(&provider, session, self.listed);
                        if !tracked.is_held {
                            tracked.enable(&provider, session);
                        }
                    }
                    Content::Provider(Box::new(provider))
                })
            })
        };
        match content {
            Ok(Some(content)) => {
                self.inodes.insert(opened.id, name);
                Some(content)
            }
            Ok(None) => None,
            Err(refused) => Some(Content::Refused(refused)),
        }
    }

    /// Finds out which processes live, for a while.
    pub(super) fn check(&mut self, is_deserted: bool, around: &mut Surroundings<'_>) {
        let Surroundings { census, processes, out, .. } = around;
        let begun = Instant::now();
        // In the order of namespace, pid, then birth: the last one of a number is the newest.
        let own = |leader: Option<Leader>| {
            let namespace = leader.map_or(0, |leader| leader.pid_namespace);
            if census.is_own(namespace) { 0 } else { namespace }
        };
        // With its version; 0: not known.
        let mut newest: HashMap<(u64, u32), (u64, u32)> = HashMap::new();
        for (id, process) in &self.processes {
            let this = (id.birth_ns, process.leader.map_or(0, |leader| leader.version));
            let newest = newest.entry((own(process.leader), id.pid)).or_insert(this);
            *newest = this.max(*newest);
        }
        let mut mapped = MappedFiles::default();
        let after = self.checked.take();
        let ids: Vec<ProcessId> =
            self.processes.keys().copied().filter(|id| after.is_none_or(|after| *id > after)).collect();
        let last = ids.last().copied();
        for id in ids {
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if process.has_ended {
                continue;
            }
            // Of version 2 a lock tells, and one process can have several leaders.
            let has_lock = process.leader.is_some_and(|leader| leader.version >= 2);
            let newest = newest.get(&(own(process.leader), id.pid));
            let newer = newest.filter(|(birth_ns, _)| *birth_ns > id.birth_ns);
            let before = process.known;
            let lives = if has_lock {
                process.locate(id, census, (processes, self.user));
                let leader = FileName { process: id, kind: FileKind::Provider(0) };
                // What cannot be found out now will be later.
                self.directory.is_held(leader).unwrap_or(true)
            } else {
                let is_deserted = self.directory.is_containers().then_some(is_deserted);
                process.lives(id, census, (processes, self.user), is_deserted)
                    && !newer
                        .is_some_and(|(_, by)| process.is_replaced(*by, &mut mapped, (processes, self.user)))
            };
            if before.is_none() {
                if let Some(known) = process.known {
                    out.tell(Found::Located(self.id, id, known.pid));
                }
            }
            if !lives {
                process.has_ended = true;
                out.tell(Found::Ended(self.id, id));
            } else if process.is_confined_now() {
                out.tell(Found::Confined(self.id, id));
            }
            // At least one in each turn.
            if begun.elapsed() > TURN && Some(id) != last {
                self.checked = Some(id);
                break;
            }
        }
        self.waits_for_check &= self.checked.is_some();
        out.flush();
    }

    /// The next turn of checking begins with the first process.
    pub(super) fn check_anew(&mut self) {
        (self.checked, self.waits_for_check) = (None, true);
    }

    /// Whether not all processes were checked since then.
    pub(super) fn is_being_checked(&self) -> bool {
        self.waits_for_check
    }

    /// Whether all of its processes have ended, and nothing of them is left.
    pub(super) fn is_over(&self) -> bool {
        let is_empty = self.known.is_empty() && self.incomplete.is_empty();
        is_empty && self.processes.values().all(|process| process.has_ended)
    }

    /// Whether a census is needed: of processes of other PID namespaces whose numbers here are not known.
    pub(super) fn needs_census(&self, census: &Census) -> bool {
        let is_elsewhere =
            |process: &&Tracked| process.leader.is_some_and(|leader| !census.is_own(leader.pid_namespace));
        let mut unknown =
            self.processes.values().filter(|process| !process.has_ended && process.known.is_none());
        unknown.any(|process| is_elsewhere(&process))
    }
}
