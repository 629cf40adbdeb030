// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that looks: users take turns.

mod containers;
mod find;
#[cfg(test)]
mod tests;

use super::base::Base;
use super::counter::Counter;
use super::life::Processes;
use super::place::{POLL_INTERVAL, Place, Surroundings, Turn};
use super::share::Share;
use super::walker::Walker;
use super::watch::{DirectoryWatch, Notice, Watched, wait_for};
use super::{Found, NewPlace, NotSeen, Outbox, PlaceId, Request, Session, Sessions, Unseen, Until, Whose};
use crate::Error;
use crate::budget::{Account, Cause, TURN};
use crate::containers::Containers;
use crate::directory::{SHARED_MEMORY, UserDirectory};
use crate::fault::guarded;
use crate::hand::Hands;
use crate::memory::holes;
use crate::session::ServedDirectory;
use crate::shelf::Shelf;
use crate::subordinate::Subordinates;
use find::Unusable;
use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::EventFd;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Between scans for containers, which visit all processes of the machine.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// A mount namespace whose `/dev/shm` is known is visited again after this time: something may have been mounted there.
const WALK_AGAIN: Duration = Duration::from_secs(10);
/// What is due in this time is done at once when something else is: each waking costs more than most looks.
const SOON_DUE: Duration = Duration::from_millis(10);

/// Turns of each place in which a look finds out which processes live: some ten thousand of them. A look does not wait for more.
const CHECKS_MAX: u32 = 8;

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Looker {
    base: PathBuf,
    session: Option<Session>,
    sessions: Sessions,
    unseen: Unseen,
    census: Counter,
    processes: Processes,
    shelf: Shelf,
    containers: Containers,
    walker: Walker,
    /// Mount namespaces: whose they are, by which process, and when they were visited.
    owners: HashMap<u64, (u32, Option<u32>)>,
    walked: HashMap<u64, (Instant, bool)>,
    scanned: Option<Instant>,
    /// Directories with users' directories, by container.
    bases: BTreeMap<u64, Base>,
    /// Of root: what is done in others' directories.
    hands: Option<Arc<Hands>>,
    places: Vec<Place>,
    places_made: PlaceId,
    first_turn: usize,
    first_check: usize,
    accounts: HashMap<u32, Arc<Account>>,
    subordinates: Subordinates,
    /// Until when users rest, however many directories they have.
    rests: HashMap<Whose, Instant>,
    /// The time that new names took which were notified.
    heard: BTreeMap<Heard, Share>,
    polled: Option<Instant>,
    looks: Vec<PendingLook>,
    newest_look: u64,
    /// There was no time for all.
    has_requests: bool,
    told: BTreeSet<String>,
    /// Directories that are given up (`fault`), by container and owner: another one in the place of one of them is not looked at. `None`: it was not open yet.
    given_up: BTreeMap<(u64, u32), Option<PlaceId>>,
    unusable: Unusable,
    /// Only of a recording.
    watch: Option<DirectoryWatch>,
    wake: Arc<EventFd>,
    out: Outbox,
}

/// Whose new names have a share of the time together: those in all containers of a user, or of root; or on this machine. Of those that are names of users with a
/// name there are not many, so they have one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Heard {
    user: u32,
    is_container: bool,
    has_name: bool,
}

/// A look that was asked for: what has not been seen since.
#[derive(Debug)]
struct PendingLook {
    number: u64,
    asked: Instant,
    until: Until,
    /// The round in which each base is read to its end after the request.
    rounds: BTreeMap<u64, u64>,
    seen: BTreeSet<PlaceId>,
    has_scanned: bool,
    /// Turns of finding out which processes live, since all was seen.
    checks: u32,
    /// When all had been seen. What is told of processes is as new as that.
    complete: Option<Instant>,
}

impl PendingLook {
    /// Whether all directories of users' directories have been read to their end since.
    fn is_read(&self, bases: &BTreeMap<u64, Base>) -> bool {
        let mut rounds = self.rounds.iter();
        rounds.all(|(number, round)| bases.get(number).is_none_or(|base| base.rounds >= *round))
    }
}

impl Looker {
    pub(super) fn new(
        base: &Path,
        recording: Option<(Session, Arc<UserDirectory>, ServedDirectory)>,
        (sessions, unseen): (Sessions, Unseen),
        wake: Arc<EventFd>,
        out: Outbox,
    ) -> Result<Looker, Error> {
        // First: before there are threads of this, and before what is found is in memory.
        let hands = nix::unistd::geteuid().is_root().then(Hands::new).transpose();
        let hands = hands.map_err(Error::io("start a process for directories in", base))?.map(Arc::new);
        let mut looker = Looker {
            base: base.to_owned(),
            session: None,
            sessions,
            unseen,
            census: Counter::start(Arc::clone(&wake)).map_err(Error::io("count processes for", base))?,
            processes: Processes::default(),
            shelf: Shelf::default(),
            containers: Containers::default(),
            walker: Walker::new(Arc::clone(&wake), hands.clone()),
            owners: HashMap::new(),
            walked: HashMap::new(),
            scanned: None,
            bases: BTreeMap::from([(0, Base::new(base.to_owned(), true))]),
            hands,
            places: Vec::new(),
            places_made: 0,
            first_turn: 0,
            first_check: 0,
            accounts: HashMap::new(),
            subordinates: Subordinates::default(),
            rests: HashMap::new(),
            heard: BTreeMap::new(),
            polled: None,
            looks: Vec::new(),
            newest_look: 0,
            has_requests: false,
            told: BTreeSet::new(),
            given_up: BTreeMap::new(),
            unusable: Unusable::default(),
            watch: None,
            wake,
            out,
        };
        if let Some((session, own, served)) = recording {
            // The system has few of these for each user. Without one, what is new is found a little later.
            let watch = DirectoryWatch::new();
            looker.watch = watch
                .and_then(|mut watch| watch.watch(base, Watched::Base(0)).map(|()| watch))
                .inspect_err(|error| {
                    let why = format!("{}: new programs are found twice a second: {error}", base.display());
                    looker.out.tell(Found::Unusable(why));
                })
                .ok();
            if let (Err(error), true) = (holes::can_leave(), nix::unistd::geteuid().is_root()) {
                let why = format!(
                    "userfaultfd(2), without which another user's program can have this recorder pay for memory: {error}"
                );
                looker.out.tell(Found::Unusable(why));
            }
            let settings = &session.settings;
            let asked = Arc::clone(&session.asked);
            looker.shelf = Shelf::new(settings.events.clone(), asked, settings.trace_bytes_max);
            looker.session = Some(session);
            looker.add_served(own, 0, Some(served), None)?;
        }
        Ok(looker)
    }

    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        while self.serve(requests) {
            self.hear();
            let now = Instant::now();
            let is_due =
                self.polled.is_none_or(|polled| now.duration_since(polled) + SOON_DUE >= POLL_INTERVAL);
            let is_counted = self.census.fetch();
            self.tell_silent(is_counted);
            if is_counted && self.finds_containers() {
                self.find_containers();
            }
            // Most censuses only find containers.
            let is_awaited = is_counted && self.needs_census();
            self.tell_late_census();
            self.ask_for_census(is_due);
            self.fetch_walks();
            self.read_bases();
            if !self.turns() {
                return;
            }
            if is_due || is_awaited {
                self.check();
            }
            if is_due {
                self.polled = Some(Instant::now());
            }
            self.answer();
            self.out.flush();
            self.sleep();
        }
    }

    /// Does what was asked. False: nobody asks any more.
    fn serve(&mut self, requests: &Receiver<Request>) -> bool {
        // It fails when it is not set.
        let _ = self.wake.read();
        let begun = Instant::now();
        self.has_requests = false;
        loop {
            // One user's ended processes can be any number of requests.
            if begun.elapsed() > TURN {
                self.has_requests = true;
                return true;
            }
            match requests.try_recv() {
                Ok(Request::Look(number, until)) => {
                    self.newest_look = number;
                    let rounds = self.bases.iter_mut().map(|(base, state)| (*base, state.ask())).collect();
                    self.looks.push(PendingLook {
                        number,
                        asked: Instant::now(),
                        until,
                        rounds,
                        seen: BTreeSet::new(),
                        has_scanned: false,
                        complete: None,
                        checks: 0,
                    });
                }
                Ok(Request::Withdraw) => {
                    self.session = None;
                    let served = self.places.iter().filter(|place| place.is_served);
                    served.for_each(|place| place.directory.set_look(0));
                }
                Ok(Request::Remove(place, names)) => {
                    self.place(place).into_iter().for_each(|place| place.remove(names.clone()));
                }
                Ok(Request::Sweep(place, process)) => {
                    self.place(place).into_iter().for_each(|place| place.sweep(process));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn place(&mut self, id: PlaceId) -> Option<&mut Place> {
        self.places.iter_mut().find(|known| known.id == id)
    }

    /// Notes what the kernel has notified.
    fn hear(&mut self) {
        let notices = self.watch.as_ref().map(DirectoryWatch::notices).unwrap_or_default();
        // Each name once, however often it was made.
        let mut names: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for notice in notices {
            match notice {
                Notice::Place(id) => {
                    self.places.iter_mut().filter(|place| place.id == id).for_each(Place::wake);
                }
                Notice::Base(base, name) => {
                    names.entry(base).or_default().extend(UserDirectory::user_of_name(&name));
                }
                Notice::All => {
                    self.places.iter_mut().for_each(Place::wake);
                    self.bases.values_mut().for_each(|base| base.next = base.next.min(Instant::now() + TURN));
                }
            }
        }
        names.into_iter().for_each(|(base, users)| self.find_named(base, users));
    }

    fn add_served(
        &mut self,
        directory: Arc<UserDirectory>,
        container: u64,
        served: Option<ServedDirectory>,
        user: Option<u32>,
    ) -> Result<(), Error> {
        let user = user.unwrap_or(directory.uid);
        self.places_made += 1;
        let id = self.places_made;
        if let (Some(watch), true) = (&mut self.watch, served.is_some()) {
            // As above.
            let _ = watch.watch(&directory.descriptor_path(), Watched::Place(id));
        }
        let other = if served.is_none() { ServedDirectory::by_another(&directory) } else { None };
        let account = Arc::clone(self.accounts.entry(user).or_default());
        let is_served = served.is_some();
        self.places.push(Place::new(id, Arc::clone(&directory), container, (user, account), is_served));
        self.out.tell(Found::Place(NewPlace { id, account: user, directory, served, other }));
        Ok(())
    }

    /// Gives each user who has something to look at a turn: in one of his directories. False: nobody wants it any more.
    fn turns(&mut self) -> bool {
        let count = self.places.len();
        self.first_turn = (self.first_turn + 1) % count.max(1);
        self.rests.retain(|_, until| *until > Instant::now());
        let (mut had_turn, mut failed) = (BTreeSet::new(), Vec::new());
        for number in 0..count {
            let Some(place) = self.places.get_mut((number + self.first_turn) % count) else { continue };
            let is_asked = self.looks.iter().any(|look| !look.seen.contains(&place.id));
            let is_due = place.next <= Instant::now() + SOON_DUE && !self.rests.contains_key(&place.whose());
            if !(is_asked || is_due) || !had_turn.insert(place.whose()) {
                continue;
            }
            let mut around = Surroundings {
                session: self.session.as_ref(),
                census: self.census.newest(),
                processes: &mut self.processes,
                shelf: &mut self.shelf,
                out: &mut self.out,
            };
            let turn = guarded(|| place.turn(&mut around)).unwrap_or_else(|why| {
                failed.push((place.id, why));
                Turn::More
            });
            let until = self.rests.entry(place.whose()).or_insert(place.rests_until);
            *until = place.rests_until.max(*until);
            match turn {
                Turn::Complete => {
                    // An older list may lack what was there when the look was asked for.
                    let (id, listed) = (place.id, place.listed);
                    for look in self.looks.iter_mut().filter(|look| look.asked <= listed) {
                        look.seen.insert(id);
                    }
                }
                Turn::More => {}
                Turn::Unwanted => return false,
            }
        }
        failed.into_iter().for_each(|(place, why)| self.give_up(place, &why));
        true
    }

    /// Looks at a directory no more: for a fault of this program, whose words are `why`.
    fn give_up(&mut self, id: PlaceId, why: &str) {
        let Some(at) = self.places.iter().position(|place| place.id == id) else { return };
        let place = self.places.remove(at);
        self.given_up.insert((place.container, place.directory.uid), Some(id));
        if let Some(watch) = &mut self.watch {
            watch.forget(Watched::Place(id));
        }
        let path = place.directory.path.display();
        self.out.tell(Found::GivenUp(id, format!("{path}: {why}")));
    }

    /// Finds out which processes live, and which places are over.
    fn check(&mut self) {
        // One user's turn is as long as another's, however many places he has: what is found out of a process can take long (all groups that it is in are
        // written down for its mode of seccomp).
        let mut taken: BTreeMap<Whose, Duration> = BTreeMap::new();
        let mut failed = Vec::new();
        let count = self.places.len();
        self.first_check = (self.first_check + 1) % count.max(1);
        for number in 0..count {
            let Some(place) = self.places.get_mut((number + self.first_check) % count) else { continue };
            let taken = taken.entry(place.whose()).or_default();
            if *taken > TURN {
                continue;
            }
            let begun = Instant::now();
            let is_deserted = self.containers.is_deserted(place.container);
            let mut around = Surroundings {
                session: self.session.as_ref(),
                census: self.census.newest(),
                processes: &mut self.processes,
                shelf: &mut self.shelf,
                out: &mut self.out,
            };
            if let Err(why) = guarded(|| place.check(is_deserted, &mut around)) {
                failed.push((place.id, why));
            }
            *taken += begun.elapsed();
        }
        failed.into_iter().for_each(|(place, why)| self.give_up(place, &why));
        // Of a container that is gone nothing is retained here, once all of its events have been taken.
        for container in self.containers.all.iter().filter(|container| !container.is_inhabited()) {
            let mut places = self.places.iter_mut().filter(|place| place.container == container.number);
            if places.all(|place| place.is_over()) {
                let places = self.places.iter_mut().filter(|place| place.container == container.number);
                places.for_each(|place| place.is_current = false);
                let out = &mut self.out;
                self.given_up.retain(|(number, _), place| {
                    let is_of_it = *number == container.number;
                    if let Some(id) = place.filter(|_| is_of_it) {
                        out.tell(Found::PlaceGone(id));
                    }
                    !is_of_it
                });
                self.bases.remove(&container.number);
                // Its descriptors would keep the container's memory.
                let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
                drop(sessions.as_mut().and_then(|sessions| sessions.remove(&container.number)));
                if let Some(watch) = &mut self.watch {
                    watch.forget(Watched::Base(container.number));
                }
            }
        }
        if let Some(hands) = &self.hands {
            hands.drop_unused();
        }
        let bases = &self.bases;
        self.containers.all.retain(|container| bases.contains_key(&container.number));
        let (out, watch) = (&mut self.out, &mut self.watch);
        self.places.retain(|place| {
            let stays = place.is_current || !place.is_over();
            if !stays {
                out.tell(Found::PlaceGone(place.id));
                if let Some(watch) = watch {
                    watch.forget(Watched::Place(place.id));
                }
            }
            stays
        });
    }

    /// Only root may read the directories of containers.
    fn finds_containers(&self) -> bool {
        nix::unistd::geteuid().is_root() && self.base == Path::new(SHARED_MEMORY)
    }

    fn needs_census(&self) -> bool {
        self.places.iter().any(|place| place.needs_census(self.census.newest()))
    }

    /// Asks for a census where it is time for one. Whoever says that he is in another PID namespace could have all processes visited all the
    /// time: so that rests, too.
    fn ask_for_census(&mut self, is_due: bool) {
        let (now, finds) = (Instant::now(), self.finds_containers());
        for look in self.looks.iter_mut().filter(|look| !look.has_scanned) {
            let is_waiting = finds && look.until == Until::AllWalked;
            look.has_scanned = !is_waiting || self.census.is_later(look.asked, false);
        }
        if !is_due || self.census.is_busy() {
            return;
        }
        let is_needed = !self.census.rests() && self.needs_census();
        let interval = self.census.interval(SCAN_INTERVAL);
        let is_scan = finds && self.scanned.is_none_or(|at| at.elapsed() + SOON_DUE >= interval);
        if is_needed || is_scan {
            self.census.is_later(now, is_needed);
            self.scanned = Some(now);
        }
    }

    /// Whose processes do not answer: each user once. `is_counted`: there is a new census.
    fn tell_silent(&mut self, is_counted: bool) {
        let census = self.census.newest();
        if is_counted && census.is_crowd {
            // Nobody knows whose programs were missed.
            self.out.tell(Found::CensusLate(census.begun.map_or(Duration::ZERO, |begun| begun.elapsed())));
        }
        let of_census = if is_counted { census.silent.as_slice() } else { &[] };
        let silent = [self.processes.take_silent().as_slice(), of_census].concat();
        for (user, pid) in silent {
            if self.told.insert(format!("{:?} {user}", Cause::NoAnswer)) {
                self.out.tell(Found::Refusal(user, Cause::NoAnswer, format!("process {pid}")));
            }
        }
    }

    /// Where containers are looked for. Also one that is under way: the recording may end before it does.
    fn tell_late_census(&mut self) {
        if let Some(took) = self.census.late().filter(|_| self.finds_containers()) {
            self.out.tell(Found::CensusLate(took));
        }
    }

    /// Answers looks that are complete.
    fn answer(&mut self) {
        let is_walking = self.walker.is_busy();
        let is_complete = |look: &PendingLook| {
            let is_read = look.is_read(&self.bases);
            let is_seen = self.places.iter().all(|place| look.seen.contains(&place.id));
            look.has_scanned && is_read && is_seen && (look.until == Until::AllSeen || !is_walking)
        };
        let now = Instant::now();
        let are_complete: Vec<bool> = self.looks.iter().map(is_complete).collect();
        let is_needed = are_complete.contains(&true) && self.needs_census();
        let mut complete: Vec<u64> = Vec::new();
        for (look, is_complete) in self.looks.iter_mut().zip(are_complete) {
            look.complete = is_complete.then(|| look.complete.unwrap_or(now));
            // What is told of processes is as new as the files.
            if look.complete.is_some_and(|since| !is_needed || self.census.is_later(since, true)) {
                complete.push(look.number);
            }
        }
        if !complete.is_empty() {
            if self.looks.iter().any(|look| look.checks == 0 && complete.contains(&look.number)) {
                self.places.iter_mut().for_each(Place::check_anew);
            }
            self.check();
            let goes_on = self.places.iter().any(Place::is_being_checked);
            for number in complete {
                let Some(at) = self.looks.iter().position(|look| look.number == number) else { continue };
                self.looks[at].checks += 1;
                if !goes_on || self.looks[at].checks >= CHECKS_MAX {
                    self.looks.remove(at);
                    self.out.tell(Found::Looked(number));
                }
            }
        }
        let is_seen = |place: &&Place| self.looks.iter().all(|look| look.seen.contains(&place.id));
        let users = self.places.iter().filter(|place| !is_seen(place)).map(|place| place.user).collect();
        let is_unread = !self.looks.iter().all(|look| look.is_read(&self.bases));
        *self.unseen.lock().unwrap_or_else(PoisonError::into_inner) =
            NotSeen { number: self.newest_look, users, is_unread };
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self) {
        if self.has_requests {
            return;
        }
        let now = Instant::now();
        let polled = self.polled.unwrap_or(now) + POLL_INTERVAL;
        let resting = |place: &Place| self.rests.get(&place.whose()).copied().unwrap_or(place.next);
        let places = self.places.iter().map(|place| place.next.max(resting(place)));
        let next = self.bases.values().map(|base| base.next).chain(places).fold(polled, Instant::min);
        let mut time = next.saturating_duration_since(now);
        if !self.looks.is_empty() {
            // What is asked for does not rest.
            let is_waiting = self.looks.iter().all(|look| look.seen.len() >= self.places.len());
            time = time.min(if is_waiting { Duration::from_millis(1) } else { Duration::ZERO });
        }
        if self.walker.is_busy() {
            time = time.min(Duration::from_millis(20));
        }
        if time.is_zero() {
            return;
        }
        match &mut self.watch {
            Some(watch) => watch.wait(time, &self.wake),
            None => drop(wait_for(&mut [PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)], time)),
        }
    }
}
