// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding users' directories by their names, of which anybody can make any number.
//!
//! What a name is costs some microseconds, which are a part of the time for reading names (`base`). Only a directory of the user whose name it has
//! is opened. Everything else is on the account of whoever made it, in `/dev/shm` its owner: it hides nothing that others have made.

use super::{Heard, Looker, SOON_DUE};
use crate::Error;
use crate::budget::{
    Cause, NAMES_BURST, NAMES_MAX, PLACES_OF_CONTAINER, PLACES_OF_USER, TAKEN_COUNTED, TAKEN_TOLD,
    TAKERS_MAX, TURN,
};
use crate::directory::{SHARED_MEMORY, UserDirectory};
use crate::fault::guarded;
use crate::hand::At;
use crate::look::place::Place;
use crate::look::share::Share;
use crate::look::{Found, RecordedElsewhere};
use crate::session::{ServedDirectory, SharedSession};
use nix::errno::Errno;
use nix::unistd::getuid;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Of hands for containers' `/dev/shm`: beyond the numbers of users.
const OF_BASE: u64 = 1 << 32;

/// What cannot be used, as it was told.
#[derive(Debug, Default)]
pub(super) struct Unusable {
    owners: BTreeMap<u32, OfOwner>,
    /// Users who are told whoever has taken their place.
    told: BTreeSet<u32>,
}

/// What one user has made.
#[derive(Debug, Default)]
struct OfOwner {
    /// Whose places.
    users: BTreeSet<u32>,
    texts: BTreeSet<String>,
}

impl Unusable {
    fn of(&mut self, owner: u32) -> &mut OfOwner {
        let is_one = self.owners.contains_key(&owner) || self.owners.len() < TAKERS_MAX;
        // This number is no user's.
        self.owners.entry(if is_one { owner } else { u32::MAX }).or_default()
    }

    /// Notes that `owner` has taken a user's place. Returns what is to be told, and of whom.
    fn take(&mut self, owner: u32, user: u32, is_always_told: bool) -> Option<(u32, Cause)> {
        if is_always_told {
            return self.told.insert(user).then_some((user, Cause::PlaceTaken));
        }
        let users = &mut self.of(owner).users;
        if users.len() >= TAKEN_COUNTED || !users.insert(user) {
            return None;
        }
        Some(if users.len() <= TAKEN_TOLD {
            (user, Cause::PlaceTaken)
        } else {
            (owner, Cause::PlacesOfOthers)
        })
    }

    /// Whether a message about something of this owner is new, and not one of too many.
    fn is_new(&mut self, owner: u32, text: &str) -> bool {
        let texts = &mut self.of(owner).texts;
        texts.len() < TAKEN_TOLD && texts.insert(text.to_string())
    }
}

impl Looker {
    /// Reads the directories of directories, of each user one at a time.
    pub(super) fn read_bases(&mut self) {
        let soon = Instant::now() + SOON_DUE;
        let due = self.bases.iter().filter(|(_, base)| base.next <= soon);
        let mut due: Vec<(Instant, u64)> = due.map(|(number, base)| (base.next, *number)).collect();
        due.sort_unstable();
        let (mut had_turn, begun) = (BTreeSet::new(), Instant::now());
        for (_, number) in due {
            let has_turn = match self.user_of_base(number) {
                Some(user) => had_turn.insert(user),
                // Of root's containers there can be any number, too. The one that has waited longest is first.
                None => number == 0 || begun.elapsed() < TURN,
            };
            if has_turn {
                self.read_base(number);
            }
        }
    }

    /// The ordinary user whose container it is. In one of root's there can be any number of users, as on this machine.
    fn user_of_base(&self, number: u64) -> Option<u32> {
        let container = self.containers.all.iter().find(|container| container.number == number);
        container.and_then(|container| container.user).filter(|user| *user != 0)
    }

    /// Reads a part of one, and looks at what its names are.
    fn read_base(&mut self, number: u64) {
        let begun = Instant::now();
        if number == 0 {
            self.places.iter_mut().for_each(Place::note_whether_it_is_current);
            let is_new = self.bases.get(&0).is_some_and(|base| !base.is_being_read());
            let asked = self.session.as_ref().filter(|_| is_new).map(|session| session.settings.uids.clone());
            asked.into_iter().flatten().for_each(|uid| self.find_user(0, uid));
        }
        if !self.begin_base(number) {
            if let Some(base) = self.bases.get_mut(&number) {
                base.rest(begun.elapsed(), true);
            }
            return;
        }
        // Where there are several users, whoever makes too many names cannot hide others' directories.
        let limit = self.user_of_base(number).map(|_| NAMES_MAX);
        let mut is_over = false;
        while !is_over && begun.elapsed() < TURN {
            let Some(base) = self.bases.get_mut(&number) else { return };
            let part = base.read(limit);
            is_over = part.is_over;
            if part.is_crowded {
                self.tell_crowded(number);
            }
            if part.is_held {
                self.tell_held_base(number);
            }
            if part.is_full {
                self.tell_full(number);
            }
            // Of a container its user says so, and only root serves other users.
            let is_machines = number == 0 && self.base == Path::new(SHARED_MEMORY);
            if part.is_closed && is_machines && self.session.is_some() && getuid().is_root() {
                self.tell_missing(Cause::Closed, SHARED_MEMORY.to_owned());
            }
            part.users.into_iter().for_each(|uid| self.find_user(number, uid));
        }
        if let Some(base) = self.bases.get_mut(&number) {
            base.rest(begun.elapsed(), is_over);
        }
    }

    /// Prepares a container's `/dev/shm`, which its user can hold as well as his directory. False: it is left alone for now.
    pub(super) fn begin_base(&mut self, number: u64) -> bool {
        let Some(state) = self.bases.get_mut(&number) else { return false };
        let container = self.containers.all.iter().find(|container| container.number == number);
        let (false, Some(container)) = (state.is_begun, container) else { return state.is_begun };
        let account = container.user.map_or(0, |user| self.subordinates.account_of(user));
        // In an ordinary user's, root of this machine has no number, and he has that of root there. Never another user's files.
        let is_theirs = account == 0 || self.subordinates.account_of(container.owner.0) == account;
        let roots = if container.user.is_some() && is_theirs { container.owner } else { (0, 0) };
        if let Some(hands) = &self.hands {
            // Anybody can hold one of root's: each is for itself.
            let owner = (account, if account == 0 { OF_BASE | number } else { 0 });
            let Ok(hand) = hands.hand(owner, At::of_root(container.dir.as_fd(), roots)) else {
                self.tell_held_base(number);
                return false;
            };
            state.hand = Some(hand);
        }
        state.is_begun = true;
        // Only with the mode of /dev/shm: anybody may write, and only owners may remove their files.
        if let (Some(session), 0o1777) = (&self.session, container.mode) {
            // Where it cannot be made, new programs are found by their directory.
            let at = (&container.dir, state.hand.clone());
            let made =
                SharedSession::new(at, (&container.shown, roots.0), session.id, &session.settings, true);
            let is_full = made.as_ref().err().is_some_and(Error::is_no_room);
            let is_full = is_full.then(|| container.shown.display().to_string());
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            // If there are to be none any more, it is removed here.
            sessions
                .iter_mut()
                .zip(made.ok())
                .for_each(|(sessions, made)| drop(sessions.insert(number, made)));
            drop(sessions);
            is_full.into_iter().for_each(|shown| self.tell_missing(Cause::NoRoom, shown));
        }
        true
    }

    fn tell_held_base(&mut self, number: u64) {
        let container = self.containers.all.iter().find(|container| container.number == number);
        let Some(container) = container else { return };
        let (owner, shown) = (container.owner.0, container.shown.display().to_string());
        let account = self.account_in(number, owner);
        self.tell_held(account, shown);
    }

    /// On whose account a directory of this owner is. In a container it is its user. Root has no limits, and what others do in a container that root has made with a
    /// user namespace is not root's doing: whoever its `/dev/shm` belongs to (who is called root there, as a rule) has it all.
    fn account_in(&mut self, base: u64, owner: u32) -> u32 {
        let container = self.containers.all.iter().find(|container| container.number == base);
        let (user, shm) = container.map_or((None, 0), |container| (container.user, container.owner.0));
        match user.map(|user| self.subordinates.account_of(user)) {
            Some(0) if shm != 0 => self.subordinates.account_of(shm),
            None | Some(0) => self.subordinates.account_of(owner),
            Some(account) => account,
        }
    }

    /// Whether root has made this container, with a user namespace.
    fn is_of_roots(&mut self, base: u64) -> bool {
        let container = self.containers.all.iter().find(|container| container.number == base);
        let user = container.and_then(|container| container.user);
        user.is_some_and(|user| self.subordinates.account_of(user) == 0)
    }

    fn tell_full(&mut self, number: u64) {
        let container = self.containers.all.iter().find(|container| container.number == number);
        let shown = container.map_or(&self.base, |container| &container.shown).display().to_string();
        if self.session.is_some() {
            self.tell_missing(Cause::NoRoom, shown);
        }
    }

    /// Once for each directory: nobody knows how many programs could make no files there.
    fn tell_missing(&mut self, cause: Cause, shown: String) {
        if self.told.insert(format!("{cause:?} {shown}")) {
            self.out.tell(Found::Missing(cause, shown));
        }
    }

    fn tell_crowded(&mut self, number: u64) {
        let container = self.containers.all.iter().find(|container| container.number == number);
        let shown = container.map(|container| container.shown.display().to_string());
        let Some((user, shown)) = self.user_of_base(number).zip(shown) else { return };
        if self.told.insert(shown.clone()) {
            self.out.tell(Found::Refusal(user, Cause::TooManyNames, shown));
        }
    }

    /// Looks at new names, for a while. Anybody can make, and remove again, some 80 000 of them a second: nobody knows whose those were, so they have a share of
    /// the time together. What is left is found when the base is next read.
    pub(super) fn find_named(&mut self, base: u64, users: BTreeSet<u32>) {
        let (with_name, without): (Vec<u32>, Vec<u32>) =
            users.into_iter().partition(|uid| self.subordinates.has_name(*uid));
        let user = self.user_of_base(base).unwrap_or(0);
        for (has_name, users) in [(true, with_name), (false, without)] {
            let begun = Instant::now();
            self.heard.retain(|_, share| !share.owed(begun).is_zero());
            let whose = Heard { user, is_container: base != 0, has_name };
            let is_used_up = self.heard.get(&whose).is_some_and(|share| share.owed(begun) >= NAMES_BURST);
            if users.is_empty() || is_used_up {
                continue;
            }
            let mut users = users.into_iter();
            while let Some(uid) = users.next().filter(|_| begun.elapsed() < TURN) {
                self.find_user(base, uid);
            }
            let share = self.heard.entry(whose).or_insert_with(|| Share::new(begun));
            share.charge(Instant::now(), begun.elapsed());
        }
    }

    /// Opens a user's directory, if it is new, and his. A fault in that is his, too.
    pub(super) fn find_user(&mut self, base: u64, uid: u32) {
        if self.given_up.contains_key(&(base, uid)) {
            return;
        }
        if let Err(why) = guarded(|| self.open_users(base, uid)) {
            self.given_up.insert((base, uid), None);
            let account = self.user_of_base(base).unwrap_or(uid);
            self.out.tell(Found::Refusal(account, Cause::Fault, why));
        }
    }

    fn open_users(&mut self, base: u64, uid: u32) {
        if base == 0 && self.has_place(0, uid) {
            return;
        }
        let container = self.containers.all.iter().find(|container| container.number == base);
        let Some(state) =
            self.bases.get_mut(&base).filter(|state| state.is_begun && (base == 0 || container.is_some()))
        else {
            return;
        };
        let (owner, is_private) = match state.status(&UserDirectory::name_of(uid)) {
            Ok(status) => (status.st_uid, UserDirectory::is_private(&status)),
            Err(Errno::ENOENT) => return,
            // Something is mounted there: by a program of root's, whoever asked for it.
            Err(Errno::EXDEV) => (0, false),
            // To open it fails as well, and says why.
            Err(_) => (uid, true),
        };
        let above = container.map_or(&self.base, |container| &container.shown);
        let path = above.join(UserDirectory::name_of(uid));
        let account = self.account_in(base, owner);
        if !is_private || base == 0 && owner != uid {
            self.refuse(base, uid, account, path);
        // A user of a container could make any number of directories there: one is used for each owner.
        } else if !self.has_place(base, owner)
            && !self.given_up.contains_key(&(base, owner))
            && !self.has_too_many(account, base, &path)
        {
            let container = self.containers.all.iter().find(|container| container.number == base);
            let directory = match container {
                None => UserDirectory::open(&self.base, uid),
                Some(container) => {
                    let hand = self.bases.get(&base).and_then(|base| base.hand.clone());
                    UserDirectory::open_in(container, hand, uid)
                }
            };
            if let Err(error) = directory.and_then(|directory| self.add_place(directory, base, account)) {
                self.tell_failure(base, (uid, account), error);
            }
        }
    }

    fn has_place(&self, base: u64, uid: u32) -> bool {
        let is_it = |place: &Place| place.directory.uid == uid && place.container == base && place.is_current;
        self.places.iter().any(is_it)
    }

    /// Whether a user has as many directories as he may. Where root has made a user namespace for a container, its users cannot be told apart, so they have
    /// a limit together.
    fn has_too_many(&mut self, account: u32, base: u64, path: &Path) -> bool {
        let is_of_roots = self.is_of_roots(base);
        let all = self.places.iter();
        let has_too_many = match account {
            _ if is_of_roots => all.filter(|place| place.container == base).count() >= PLACES_OF_CONTAINER,
            0 => false,
            _ => all.filter(|place| place.user == account).count() >= PLACES_OF_USER,
        };
        let of = if is_of_roots { base } else { 0 };
        if has_too_many && self.told.insert(format!("places {account} {of}")) {
            self.out.tell(Found::Refusal(account, Cause::TooManyContainers, path.display().to_string()));
        }
        has_too_many
    }

    /// A name of a user's directory is something else.
    fn refuse(&mut self, base: u64, uid: u32, account: u32, path: PathBuf) {
        let path = path.display().to_string();
        let text = Error::NotOurs(path.clone()).to_string();
        if base != 0 {
            if self.unusable.is_new(account, &text) {
                self.out.tell(Found::Unusable(text));
            }
            return;
        }
        let is_asked = self.session.as_ref().is_some_and(|session| session.settings.uids.contains(&uid));
        let is_always_told = is_asked || self.subordinates.has_name(uid);
        if let Some((whose, cause)) = self.unusable.take(account, uid, is_always_told) {
            self.out.tell(Found::Refusal(whose, cause, path));
            if cause == Cause::PlaceTaken {
                self.out.tell(Found::Unusable(text));
            }
        }
    }

    fn tell_failure(&mut self, base: u64, (uid, account): (u32, u32), error: Error) {
        match error {
            Error::Busy(pid) => self.tell_busy(base, (uid, account), pid),
            Error::Held(path) => self.tell_held(account, path),
            Error::Io { source, path, .. } if source.kind() == ErrorKind::TimedOut => {
                self.tell_held(account, path);
            }
            Error::Io { source, path, .. } if crate::is_shortage(&source) => self.shortage(account, path),
            error if error.is_no_room() => {
                if self.told.insert(format!("{:?} of {account}", Cause::NoRoom)) {
                    self.out.tell(Found::Refusal(account, Cause::NoRoom, error.to_string()));
                }
            }
            error => {
                let text = error.to_string();
                if self.unusable.is_new(account, &text) {
                    if let (0, Error::NotOurs(path)) = (base, error) {
                        self.out.tell(Found::Refusal(uid, Cause::PlaceTaken, path));
                    }
                    self.out.tell(Found::Unusable(text));
                }
            }
        }
    }

    /// Once, or a user could make any number of them: the number is what he wrote. Whose directories there are in a container of his is up to him, too.
    fn tell_busy(&mut self, base: u64, (uid, account): (u32, u32), pid: u32) {
        let container = self.containers.all.iter().find(|container| container.number == base);
        let told = match container {
            None => format!("busy {uid}"),
            Some(_) if account == 0 => format!("busy in {base}"),
            Some(_) => format!("busy in containers of {account}"),
        };
        if self.told.insert(told) {
            let container = container.map(|container| container.shown.display().to_string());
            let user = if container.is_some() { account } else { uid };
            self.out.tell(Found::Busy(RecordedElsewhere { user, pid, container }));
        }
    }

    fn tell_held(&mut self, account: u32, path: String) {
        if self.told.insert(format!("held {account}")) {
            self.out.tell(Found::Refusal(account, Cause::Held, path));
        }
    }

    fn shortage(&mut self, account: u32, path: String) {
        if self.told.insert(format!("shortage {account}")) {
            self.out.tell(Found::Refusal(account, Cause::Shortage, path));
        }
    }

    fn add_place(&mut self, mut directory: UserDirectory, container: u64, account: u32) -> Result<(), Error> {
        if self.session.is_some() && directory.is_last() {
            self.shortage(account, directory.path.display().to_string());
            return Ok(());
        }
        let is_of_roots = self.is_of_roots(container);
        // Nobody protects root from root.
        if let Some(hands) = self.hands.as_ref().filter(|_| directory.uid != 0) {
            // In root's containers each of their users has his own.
            let of_user = u64::from(directory.uid);
            let owner = match account {
                _ if is_of_roots => (account, (container + 1) << 33 | of_user),
                0 => (account, of_user),
                _ => (account, 0),
            };
            directory.hand =
                Some(hands.hand(owner, At::of(&directory)).map_err(Error::io("open", &directory.path))?);
        }
        let directory = Arc::new(directory);
        let served = match &self.session {
            Some(session) => Some(ServedDirectory::new(&directory, session.id, &session.settings)?),
            None => None,
        };
        self.add_served(directory, container, served, Some(account))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_user_makes_up_hides_nothing_that_another_has_taken() {
        let mut unusable = Unusable::default();
        let mut told = [0, 0];
        for user in (0..3000).chain(0..3000) {
            match unusable.take(1000, 5000 + user, false) {
                Some((whose, Cause::PlaceTaken)) if whose == 5000 + user => told[0] += 1,
                Some((1000, Cause::PlacesOfOthers)) => told[1] += 1,
                other => assert_eq!(other, None),
            }
        }
        assert_eq!(told, [TAKEN_TOLD, TAKEN_COUNTED - TAKEN_TOLD]);
        // By another, and of one who has a name: once.
        assert_eq!(unusable.take(1002, 1001, false), Some((1001, Cause::PlaceTaken)));
        assert_eq!(unusable.take(1000, 1003, true), Some((1003, Cause::PlaceTaken)));
        assert_eq!(unusable.take(1000, 1003, true), None);
        // However many do that, what is remembered is limited.
        (0..5000).for_each(|owner| assert!(unusable.take(2000 + owner, 7, false).is_some() || owner > 200));
        assert!(unusable.owners.len() <= TAKERS_MAX + 1);
    }

    #[test]
    fn messages_of_one_user_leave_room_for_another() {
        let mut unusable = Unusable::default();
        let of_one = (0..100).filter(|number| unusable.is_new(1000, &number.to_string())).count();
        assert_eq!(of_one, TAKEN_TOLD);
        assert!(unusable.is_new(1001, "0") && !unusable.is_new(1001, "0"));
    }
}
