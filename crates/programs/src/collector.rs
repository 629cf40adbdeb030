// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All instrumented programs, as they come and go.
//!
//! A thread of its own looks for them (`look`); here is what it has found, which is taken over between two rounds of emptying rings,
//! and only for a moment. No user's files delay another user's records: users take turns here, too. The events of a dead process are
//! taken before its files are removed.

mod adopt;
mod arrivals;
mod described;
mod process;
mod report;
mod shared;
mod sink;
mod sleep;
mod snapshot;
mod user;
mod wanted;

use crate::Error;
use crate::asked::AskedNames;
use crate::budget::{Cause, DRAIN, FIRST_LOOK, LAST_DRAIN, LAST_LOOK, Refusal, Refusals, rest_after};
use crate::directory::UserDirectory;
use crate::look::{Look, PlaceId, Session, Until, Whose, left};
use crate::memory::let_bus_errors_through;
use crate::ring::Ring;
use crate::session::{ServedDirectory, Settings, SharedSession};
pub(crate) use arrivals::Rest;
pub use arrivals::{NewEvent, NewEvents};
use process::Process;
pub use report::{
    LossesByUser, OutsideLosses, PastProcesses, ProcessReport, RingReport, RingTotals, UserLosses,
};
use rtscope_abi::program as abi;
use rtscope_event::exact;
pub use sink::{DiscardingSink, Looks, Sink};
use sleep::Sleep;
pub use snapshot::{Askers, Snapshot, SnapshotSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use user::User;
pub(crate) use wanted::EventIds;

pub use crate::look::RecordedElsewhere;
pub use crate::provider::ProcessCounters;
pub use crate::walk::{Chunk, Records};

/// Between beats, by which programs see that somebody takes their records.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Taking over what was found, between two rounds of emptying rings.
const ADOPT: Duration = Duration::from_millis(2);
/// Sessions are removed in this time, or later (`hand`).
const SETTLED: Duration = Duration::from_millis(200);
/// Looking whose the files are that were found and could not be taken over.
const LEFT_WAITING: Duration = Duration::from_millis(200);

/// Reports that are retained of processes whose directories are gone.
const PAST_MAX: usize = 1024;

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

impl DrainSummary {
    /// Notes how full a ring is.
    fn see(&mut self, ring: &mut Ring) {
        let size = ring.info.layout.ring_bytes;
        self.fullest = self.fullest.max(ring.arrived_bytes() as f64 / size as f64);
        self.smallest_ring = Some(self.smallest_ring.map_or(size, |known| known.min(size)));
    }

    /// Before the first records of a poll.
    fn begin(&mut self, poll: Poll, sink: &mut dyn Sink) {
        if !std::mem::replace(&mut self.has_begun, true) {
            sink.begin(poll.looks);
        }
    }
}

/// One poll of all rings.
#[derive(Clone, Copy, Debug)]
struct Poll {
    /// Whether it is the last one.
    stopping: bool,
    now: Instant,
    /// When the next user has a turn; `None`: there is no other.
    until: Option<Instant>,
    looks: Looks,
}

impl Poll {
    fn is_over(self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Programs of the users whose directories this process may read. When it is dropped without [`Programs::stop`], their events
/// are disabled, and recorded events remain in their files for the next collector.
#[derive(Debug)]
pub struct Programs {
    look: Look,
    sleep: Sleep,
    users: BTreeMap<PlaceId, User>,
    /// Reports of directories that are gone.
    past: Vec<ProcessReport>,
    /// The number of processes in such directories without anything to report.
    past_over: u32,
    /// Further processes in such directories, by their user.
    past_more: BTreeMap<u32, PastProcesses>,
    session: Option<Session>,
    /// What it asks for.
    asked: Arc<AskedNames>,
    /// Of root.
    for_all: Option<SharedSession>,
    /// The last look that was answered; 0: none.
    looked: u64,
    /// A flight recorder has looked for events that somebody acts on; and the place with which its next look begins.
    has_read: bool,
    first_read: PlaceId,
    has_begun: bool,
    /// Since when a look that was needed has been awaited, and when there can be another one.
    needed: Option<Instant>,
    next_needed: Option<Instant>,
    beaten: Option<Instant>,
    /// Who has the first turn.
    turn: PlaceId,
    /// Who has taken more time than his turns had.
    owed: BTreeMap<Whose, Duration>,
    rings: u32,
    refusals: Refusals,
    /// Users whose programs another process records, or has recorded for a while, and that process.
    pub busy: Vec<RecordedElsewhere>,
    /// Directories that cannot be used, and why.
    pub refused: Vec<String>,
}

impl Programs {
    /// For watching only: nothing is changed.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn watching(base: &Path) -> Result<Programs, Error> {
        Programs::new(Look::start(base, None)?, None, None)
    }

    fn new(look: Look, session: Option<Session>, for_all: Option<SharedSession>) -> Result<Programs, Error> {
        let_bus_errors_through();
        Ok(Programs {
            look,
            sleep: Sleep::default(),
            users: BTreeMap::new(),
            past: Vec::new(),
            past_over: 0,
            past_more: BTreeMap::new(),
            asked: session.as_ref().map(|session| Arc::clone(&session.asked)).unwrap_or_default(),
            session,
            for_all,
            looked: 0,
            has_read: false,
            first_read: 0,
            has_begun: false,
            needed: None,
            next_needed: None,
            beaten: None,
            turn: 0,
            owed: BTreeMap::new(),
            rings: 0,
            refusals: Refusals::default(),
            busy: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// For recording.
    ///
    /// # Errors
    /// When another process records the programs of this process's user, or the system refuses.
    pub fn recording(base: &Path, settings: Settings) -> Result<Programs, Error> {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        let time =
            now.map_or(1, |now| now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs());
        // Unique on this machine, and never 0. What says of an event that it goes to a channel stands beside what is made of it (RTU_ENABLED).
        let free = !(u64::from(abi::RTU_TO_CHANNEL) << 16);
        let id = ((time << 16 | u64::from(std::process::id() & 0xffff)) & free).max(1);
        let own = Arc::new(UserDirectory::make(base)?);
        let taken = own.was_taken.then(|| (own.uid, own.path.display().to_string()));
        // Sessions are written before files are first listed: a program that starts now sees a session or is seen. This user's own
        // directory is locked first: a refused collector must not have touched the shared session, which is the other's.
        let served = ServedDirectory::new(&own, id, &settings)?;
        crate::requests::remove_dead(&own);
        let mut for_all = None;
        if nix::unistd::geteuid().is_root() {
            let dir = File::open(base).map_err(Error::io("open", base))?;
            for_all = Some(SharedSession::new((&dir, None), (base, 0), id, &settings, false)?);
        }
        let asked = Arc::new(AskedNames::new(&settings.events));
        let session = Session { id, settings, asked };
        let look = Look::start(base, Some((session.clone(), own, served)))?;
        let mut programs = Programs::new(look, Some(session), for_all)?;
        if let Some((uid, path)) = taken {
            programs.refusals.add(uid, Cause::PlaceTaken, &path);
        }
        Ok(programs)
    }

    /// Takes over programs that were found. To be called every few milliseconds. The first call waits for the first look.
    ///
    /// # Errors
    /// When the sink or the system refuses.
    pub fn poll(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        // The thread that polls need not be the one that made this.
        let_bus_errors_through();
        if !std::mem::replace(&mut self.has_begun, true) {
            let number = self.look.look(Until::AllWalked);
            // Those that are found first do not wait for the others.
            let drains = self.session.as_ref().is_some_and(|session| !session.settings.flight);
            self.await_look(number, Instant::now() + FIRST_LOOK, drains, sink)?;
        }
        self.adopt_all(Instant::now() + ADOPT, sink)?;
        self.beat(sink)
    }

    /// The same, but programs that have started since are found first, if that takes no longer than this. Returns whether all were.
    ///
    /// # Errors
    /// As above.
    pub fn poll_now(&mut self, sink: &mut dyn Sink, time: Duration) -> io::Result<bool> {
        let_bus_errors_through();
        let number = self.look.look(Until::AllSeen);
        let is_seen = self.await_look(number, Instant::now() + time, false, sink)?;
        self.poll(sink)?;
        Ok(is_seen)
    }

    /// Waits until a look is answered. Rings are emptied meanwhile if `drains`. Returns whether it was answered in time.
    fn await_look(
        &mut self,
        number: u64,
        until: Instant,
        drains: bool,
        sink: &mut dyn Sink,
    ) -> io::Result<bool> {
        loop {
            self.look.clear();
            self.adopt_all(until, sink)?;
            if self.looked >= number {
                return Ok(true);
            }
            let left = left(until);
            if left.is_zero() {
                return Ok(false);
            }
            if drains {
                self.drain(sink)?;
            }
            self.beat(sink)?;
            self.look.wait(left.min(if drains { ADOPT } else { BEAT_INTERVAL }));
        }
    }

    /// Tells programs that somebody takes their records, and gives up the files of dead ones.
    fn beat(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        if self.beaten.is_some_and(|beaten| beaten.elapsed() < BEAT_INTERVAL) {
            return Ok(());
        }
        self.beaten = Some(Instant::now());
        let is_flight = self.session.as_ref().is_some_and(|session| session.settings.flight);
        for user in self.users.values_mut() {
            user.beat(is_flight, sink)?;
            user.give_up_unloaded(&self.look, false);
            // A flight recorder keeps what the dead have written, for a while.
            if !is_flight {
                user.sweep(&self.look);
            }
        }
        Ok(())
    }

    /// Sleeps until the time is over, something was found, or `other` (the same descriptor in each call) can be read. Returns
    /// whether one of the latter two happened.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn wait(&mut self, time: Duration, other: BorrowedFd<'_>) -> io::Result<bool> {
        let came = self.sleep.wait(time, self.look.told(), other)?;
        self.look.clear();
        Ok(came)
    }

    /// Takes the complete records of all rings, but leaves nearly empty rings for one of the next calls. Users take turns: one whose
    /// rings take long goes on in the next call.
    ///
    /// # Errors
    /// When the sink refuses (a full disk).
    pub fn drain(&mut self, sink: &mut dyn Sink) -> io::Result<DrainSummary> {
        let mut drained = DrainSummary::default();
        self.drain_all(false, sink, &mut drained)?;
        Ok(drained)
    }

    /// Whether all programs are of one user.
    fn is_alone(&self) -> bool {
        let mut served = self.users.values().filter(|user| user.served.is_some()).map(User::whose);
        let first = served.next();
        served.all(|whose| Some(whose) == first)
    }

    fn drain_all(
        &mut self,
        stopping: bool,
        sink: &mut dyn Sink,
        drained: &mut DrainSummary,
    ) -> io::Result<()> {
        let own = nix::unistd::geteuid().as_raw();
        let is_alone = self.is_alone();
        let ids: Vec<PlaceId> =
            self.users.range(self.turn..).chain(self.users.range(..self.turn)).map(|(id, _)| *id).collect();
        self.turn = ids.get(1).copied().unwrap_or_default();
        let looks = Looks { asked: self.look.asked(), answered: self.looked };
        let resting = if stopping || is_alone { BTreeSet::new() } else { self.resting() };
        // One turn for each user, however many directories he has.
        let mut taken: BTreeMap<Whose, Duration> = BTreeMap::new();
        for id in ids {
            let Some(user) = self.users.get_mut(&id).filter(|user| user.served.is_some()) else { continue };
            let now = Instant::now();
            if resting.contains(&user.whose()) {
                drained.fullest = drained.fullest.max(1.0);
                continue;
            }
            let taken = taken.entry(user.whose()).or_default();
            let until = match stopping {
                // A recording of one's own programs ends when all is taken.
                true => (user.account != own).then(|| now + LAST_DRAIN.saturating_sub(*taken)),
                false => (!is_alone).then(|| now + DRAIN.saturating_sub(*taken)),
            };
            let is_complete = user.drain(Poll { stopping, now, until, looks }, &self.look, sink, drained)?;
            *taken += now.elapsed();
            if !is_complete {
                drained.fullest = drained.fullest.max(1.0);
                if stopping {
                    let path = user.directory.path.display().to_string();
                    self.refusals.add(user.account, Cause::NotTaken, &path);
                }
            }
        }
        let more = taken.into_iter().map(|(whose, taken)| (whose, taken.saturating_sub(DRAIN)));
        self.owed.extend(more.filter(|(_, more)| !more.is_zero()));
        self.look_if_needed(looks, sink);
        Ok(())
    }

    /// Who has no turn now: one step may take longer than a turn, and what it took more is taken off the next ones.
    fn resting(&mut self) -> BTreeSet<Whose> {
        self.owed.retain(|_, owed| {
            *owed = owed.saturating_sub(DRAIN);
            !owed.is_zero()
        });
        self.owed.keys().copied().collect()
    }

    /// A ring that waits for a description is the only reason to ask for a look while others are at work, and a liar's ring can wait for one
    /// after the other: so that rests as well.
    fn look_if_needed(&mut self, looks: Looks, sink: &dyn Sink) {
        if looks.asked != looks.answered {
            return;
        }
        if let Some(begun) = self.needed.take() {
            self.next_needed = Some(rest_after(begun));
        }
        if sink.needs_look() && self.next_needed.is_none_or(|next| next <= Instant::now()) {
            self.needed = Some(Instant::now());
            self.look.look(Until::AllSeen);
        }
    }

    /// Disables all events and takes the remaining records.
    ///
    /// # Errors
    /// When the sink refuses.
    pub fn stop(&mut self, sink: &mut dyn Sink) -> io::Result<u64> {
        let_bus_errors_through();
        let is_flight = self.session.as_ref().is_some_and(|session| session.settings.flight);
        self.switch_off(sink)?;
        // Threads that are writing an event finish it.
        std::thread::sleep(Duration::from_millis(2));
        if is_flight {
            // Nobody reads any more what threads have left that have ended.
            self.forget_ended(Duration::ZERO);
            // The next recorder enables events before it finds the rings: its first events find space.
            let served = self.users.values_mut().filter(|user| user.served.is_some());
            served.flat_map(|user| user.processes.values_mut()).for_each(Process::give_back_overwritten);
        }
        let mut drained = DrainSummary::default();
        self.drain_all(true, sink, &mut drained)?;
        // Files of dead processes whose records were all taken are removed; those of live ones stay for the next collector.
        self.users.values_mut().for_each(|user| user.sweep(&self.look));
        self.give_up_all_unloaded(is_flight);
        let number = self.look.look(Until::AllSeen);
        self.await_look(number, Instant::now() + LAST_LOOK, false, sink)?;
        let mut processes = self.users.values_mut().flat_map(|user| user.processes.values_mut());
        processes.try_for_each(|process| process.tell(sink).map(|()| process.settle()))?;
        Ok(drained.bytes)
    }

    /// What was unloaded until now: from here on programs remove such files themselves.
    fn give_up_all_unloaded(&mut self, is_flight: bool) {
        for user in self.users.values_mut() {
            user.processes.values_mut().for_each(|process| process.find_unloaded(is_flight));
            user.give_up_unloaded(&self.look, true);
        }
    }

    /// Disables all events of this session. Programs that have started are found before, and rings are emptied meanwhile.
    fn switch_off(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let until = Instant::now() + LAST_LOOK;
        // A flight recorder's rings are overwritten: nothing is taken from them before that has ended.
        let drains = self.session.as_ref().is_some_and(|session| !session.settings.flight);
        let number = self.look.look(Until::AllSeen);
        let mut result = self.await_look(number, until, drains, sink);
        // First the sessions, so that a program that starts now enables nothing; then the programs that have enabled events.
        self.session = None;
        self.for_all = None;
        let served = || self.users.values().filter_map(|user| user.served.as_ref());
        served().for_each(ServedDirectory::withdraw);
        let settled = Instant::now() + SETTLED;
        served().for_each(|served| served.settle(settled));
        self.look.withdraw(settled);
        let number = self.look.look(Until::AllSeen);
        if result.is_ok() {
            result = self.await_look(number, until, drains, sink);
        }
        for user in self.users.values_mut().filter(|user| user.served.is_some()) {
            user.processes.values_mut().for_each(Process::disable);
        }
        if !result? {
            let unseen = self.unseen();
            let waiting = self.left_waiting().into_iter().map(Some);
            for user in unseen.into_iter().chain(waiting).collect::<BTreeSet<Option<u32>>>() {
                self.refusals.add_of(user, Cause::NotLookedAt, "");
            }
        }
        Ok(())
    }

    /// Users at whose files nobody has looked since the last request; `None` among them: there may be some of whom nobody knows.
    fn unseen(&self) -> BTreeSet<Option<u32>> {
        let (users, is_unread) = self
            .look
            .unseen()
            .unwrap_or_else(|| (self.users.values().map(|user| user.account).collect(), true));
        users.into_iter().map(Some).chain(is_unread.then_some(None)).collect()
    }

    /// What was left out of users, and why.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.refusals.list()
    }

    /// Users whose programs are recorded by another process, and that process; when only watching.
    #[must_use]
    pub fn recorded_by(&self) -> Vec<(u32, u32)> {
        self.users.values().filter_map(|user| Some((user.directory.uid, user.other?))).collect()
    }

    /// Of the patterns, those of which no program has had an event so far, and what there is in their place.
    #[must_use]
    pub fn without_event(&self) -> Vec<String> {
        self.asked.sentences()
    }

    /// A report of each program so far.
    #[must_use]
    pub fn reports(&self) -> Vec<ProcessReport> {
        self.past.iter().cloned().chain(self.users.values().flat_map(User::reports)).collect()
    }

    /// Of processes that are over and not among the reports, because there were too many.
    #[must_use]
    pub fn past(&self) -> PastProcesses {
        let mut all = PastProcesses::default();
        self.past_by_user().values().for_each(|past| all.merge(past));
        all
    }

    /// The same by user.
    #[must_use]
    pub fn past_by_user(&self) -> BTreeMap<u32, PastProcesses> {
        let mut all = self.past_more.clone();
        for user in self.users.values() {
            all.entry(user.directory.uid).or_default().merge(&user.past());
        }
        all
    }

    /// The number of rings ever found.
    #[must_use]
    pub fn rings(&self) -> u32 {
        self.rings
    }

    /// The number of processes ever found.
    #[must_use]
    pub fn count(&self) -> u32 {
        let here: u32 = self.users.values().map(|user| exact::count(user.processes.len()) + user.over).sum();
        here + exact::count(self.past.len()) + self.past_over + self.past().processes
    }

    /// Events lost so far because a ring was full or missing.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let processes = self.users.values().flat_map(|user| user.processes.values());
        let past = self.past.iter().map(ProcessReport::lost).chain([self.past().lost()]);
        processes.map(Process::lost).chain(past).fold(0, u64::saturating_add)
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

#[cfg(test)]
mod tests;
