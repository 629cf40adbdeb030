// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is remembered of each user's programs, and how much of it.
//!
//! A watch of root follows the programs of all users, and each of these can write anything. So each user's events are paired apart: they end
//! nothing that another user's have begun, and what was missed of them costs only that user's beginnings. The space is shared. Where something
//! can make room (open beginnings, threads), that of the user who has most does. Where nothing can (descriptions that programs
//! have, late intervals that wait to be fetched), a user gets at most half of what the others leave, as of files (`budget` in
//! `rtscope_programs`). What is left out is counted with the user and the cause.

use super::classes::SpanClasses;
use super::held::HeldBytes;
use super::threads::ThreadNumber;
use super::{Arrived, Open};
use rtscope_analyze::pairing::{Emitter, Matcher, Outcome, PairQuestion};
use rtscope_analyze::summary::SpanUserLosses;
use rtscope_event::{ClassId, EventClass, EventRef, MonotonicNs, StreamId};
use rtscope_programs::collector::NewEvent;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Beginnings that wait for their end, of all users.
const OPEN_MAX: usize = 1 << 16;
/// Different descriptions of all users: 4096 of one. The two names of a pair are of a handful; only a program that wants to fill this
/// memory gets there.
const CLASSES_MAX: usize = 8192;
/// Late intervals that wait to be fetched, of all users: 4096 of one. More are counted.
const LATE_MAX: usize = 8192;
/// Memory of what waits for its end, of all users: half of it of one.
const HELD_MAX: usize = 128 << 20;
/// Events of a look, of all users: half of them of one, 25 million a second. What is more is not looked at; it takes some 200 bytes each until it is paired.
const ARRIVED_MAX: usize = 1 << 20;
/// Remarks on events of one user that do not have the field of the key.
const NOTES_MAX: usize = 16;
/// Descriptions of programs that have ended are looked for this often, if there are new ones.
const SWEEP_NS: u64 = 1_000_000_000;

/// Who an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Owner {
    /// The user on whose account it is.
    pub(super) account: u32,
    /// Another user who is on the account of root: of a container whose user namespace root has made. He is not trusted as root is. Whoever is on
    /// somebody else's account is that person.
    apart: Option<u32>,
}

impl Owner {
    pub(super) fn of(account: u32, uid: u32) -> Owner {
        Owner { account, apart: Some(uid).filter(|uid| account == 0 && *uid != 0) }
    }
}

/// What a user may have of something when all have `all`, and he has `mine`: at most half of what the others leave.
pub(super) fn share(most: usize, all: usize, mine: usize) -> usize {
    most.saturating_sub(all.saturating_sub(mine)) / 2
}

/// One user.
#[derive(Debug)]
struct SpanUser {
    classes: SpanClasses,
    matcher: Matcher<Open>,
    /// Threads some of whose events were not seen.
    missed: Vec<(Owner, ThreadNumber)>,
    notes: usize,
    /// Late intervals that wait to be fetched.
    late: usize,
    /// By what waits for its end.
    held: HeldBytes,
    /// Events that have come and are not paired.
    arrived: usize,
    losses: SpanUserLosses,
}

/// Why an event is not paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// It was overwritten before the look, with others perhaps.
    Overwritten,
    /// It does not have the bytes that its description says, or a time that it cannot have.
    Damaged,
    /// Programs of its user have described too many different events.
    Described,
    /// Too many events of its user have come since the last look.
    Crowded,
}

/// All users who have programs with such events.
#[derive(Debug)]
pub(super) struct SpanUsers {
    question: PairQuestion,
    all: BTreeMap<u32, SpanUser>,
    open: usize,
    classes: usize,
    late: usize,
    /// Of nobody: what all users hold.
    held: HeldBytes,
    arrived: usize,
    /// There are descriptions that were not there when those of ended programs were last looked for; and when that was.
    is_sweep_due: bool,
    swept: MonotonicNs,
    /// The limits, which tests make smaller.
    open_max: usize,
    classes_max: usize,
    late_max: usize,
    held_max: usize,
    arrived_max: usize,
}

impl SpanUsers {
    pub(super) fn new(question: &PairQuestion) -> SpanUsers {
        SpanUsers {
            question: question.clone(),
            all: BTreeMap::new(),
            open: 0,
            classes: 0,
            late: 0,
            held: HeldBytes::default(),
            arrived: 0,
            is_sweep_due: false,
            swept: MonotonicNs(0),
            open_max: OPEN_MAX,
            classes_max: CLASSES_MAX,
            late_max: LATE_MAX,
            held_max: HELD_MAX,
            arrived_max: ARRIVED_MAX,
        }
    }

    #[cfg(test)]
    pub(super) fn limit(&mut self, open_max: usize, classes_max: usize, late_max: usize) {
        (self.open_max, self.classes_max, self.late_max) = (open_max, classes_max, late_max);
    }

    /// Of what waits for its end, in bytes; and of a look, in events.
    #[cfg(test)]
    pub(super) fn limit_memory(&mut self, held_max: usize, arrived_max: usize) {
        (self.held_max, self.arrived_max) = (held_max, arrived_max);
    }

    pub(super) fn question(&self) -> &PairQuestion {
        &self.question
    }

    fn user(&mut self, account: u32) -> &mut SpanUser {
        let (question, held) = (&self.question, &self.held);
        self.all.entry(account).or_insert_with(|| SpanUser {
            classes: SpanClasses::default(),
            matcher: Matcher::new(question),
            missed: Vec::new(),
            notes: 0,
            late: 0,
            held: held.of_another(),
            arrived: 0,
            losses: SpanUserLosses { user: account, ..SpanUserLosses::default() },
        })
    }

    /// The class of an event, and what there is to be said of one that is new. `None`: programs of its user have described too many different
    /// events.
    pub(super) fn class(&mut self, event: &NewEvent<'_>) -> Option<(ClassId, Option<String>)> {
        let (all, most) = (self.classes, self.classes_max);
        let user = self.user(event.account);
        let mine = user.classes.len();
        let found = user.classes.class(event, share(most, all, mine));
        let made = user.classes.len() - mine;
        // An event without the field of the key can never be paired.
        let note = found
            .filter(|(_, is_new)| *is_new && user.notes < NOTES_MAX)
            .and_then(|(id, _)| user.matcher.question().missing_field(user.classes.schema().class(id)));
        user.notes += usize::from(note.is_some());
        self.classes += made;
        self.is_sweep_due |= made > 0 || found.is_none();
        found.map(|(id, _)| (id, note))
    }

    pub(super) fn class_of(&self, event: &Arrived) -> &EventClass {
        self.all[&event.owner.account].classes.schema().class(event.class)
    }

    pub(super) fn missed(&mut self, owner: Owner, thread: ThreadNumber, why: Missed) {
        let user = self.user(owner.account);
        // A ring's events come one after the other.
        if user.missed.last() != Some(&(owner, thread)) {
            user.missed.push((owner, thread));
        }
        let count = match why {
            Missed::Overwritten => &mut user.losses.missed_looks,
            Missed::Damaged => &mut user.losses.damaged,
            Missed::Described => &mut user.losses.too_many_descriptions,
            Missed::Crowded => &mut user.losses.too_many_events,
        };
        *count += 1;
    }

    /// Whether more events than this of a user may come before the next look is over.
    pub(super) fn has_room(&self, account: u32, events: usize) -> bool {
        let mine = self.all.get(&account).map_or(0, |user| user.arrived);
        mine + events < share(self.arrived_max, self.arrived, mine)
    }

    /// Whether one more event of this user may come before the next look is over.
    pub(super) fn may_arrive(&mut self, account: u32) -> bool {
        let (all, most) = (self.arrived, self.arrived_max);
        let user = self.user(account);
        let may = user.arrived < share(most, all, user.arrived);
        user.arrived += usize::from(may);
        self.arrived += usize::from(may);
        may
    }

    /// Those that are still not paired.
    pub(super) fn arrived(&mut self, events: &[Arrived]) {
        self.all.values_mut().for_each(|user| user.arrived = 0);
        self.arrived = events.len();
        for event in events {
            self.user(event.owner.account).arrived += 1;
        }
    }

    /// What has begun where events were missed may have ended among these: in the same thread or, `of_any`, in any of the same user. `counts`:
    /// which of them are counted.
    pub(super) fn give_up(&mut self, of_any: bool, counts: impl Fn(&Open) -> bool) {
        for user in self.all.values_mut().filter(|user| !user.missed.is_empty()) {
            let missed = std::mem::take(&mut user.missed).into_iter();
            let (owners, threads): (HashSet<Owner>, HashSet<ThreadNumber>) = missed.unzip();
            let is_meant = |begun: &Open| {
                if of_any {
                    owners.contains(&begun.event.owner)
                } else {
                    threads.contains(&begun.event.thread)
                }
            };
            let given_up = user.matcher.give_up(is_meant);
            self.open -= given_up.len();
            user.losses.lost += given_up.iter().filter(|begun| counts(begun)).count() as u64;
        }
    }

    /// Pairs an event. `None`: it was a step.
    pub(super) fn pair(&mut self, event: &Arc<Arrived>, steps_max: usize) -> Option<Outcome<Open>> {
        let (all, most) = (self.held.all(), self.held_max);
        let user = self.all.get_mut(&event.owner.account)?;
        let bytes = event.bytes();
        let seen = EventRef {
            schema: user.classes.schema(),
            time_ns: i64::try_from(event.time_ns).unwrap_or(i64::MAX),
            stream: StreamId(0),
            class: event.class,
            cpu: event.cpu,
            values: event.values.current(),
        };
        let of = Emitter { thread: Some(event.thread.0), user: event.owner.apart };
        if let Some(open) = user.matcher.step(&seen, of) {
            if open.steps.len() < steps_max {
                if user.held.mine() + bytes <= share(most, all, user.held.mine()) {
                    open.held.grow(bytes);
                    open.steps.push(Arc::clone(event));
                } else {
                    user.losses.steps_lost += 1;
                }
            }
            return None;
        }
        let before = user.matcher.open();
        let open = Open { event: Arc::clone(event), steps: Vec::new(), held: user.held.hold(bytes) };
        let outcome = user.matcher.event(&seen, of, open);
        self.open = self.open - before + user.matcher.open();
        if self.open > self.open_max {
            self.make_room(|user| user.matcher.open());
        }
        while self.held.all() > self.held_max && self.make_room(|user| user.held.mine()) {}
        Some(outcome)
    }

    /// The oldest beginning of the user who has most is given up: who has few loses none, however many others have. False: he has none.
    fn make_room(&mut self, has: fn(&SpanUser) -> usize) -> bool {
        let with_some = self.all.values_mut().filter(|user| user.matcher.open() > 0);
        let Some(user) = with_some.max_by_key(|user| has(user)) else { return false };
        user.matcher.forget_oldest();
        self.open -= 1;
        true
    }

    /// Whether one more late interval of this user may wait to be fetched. If not, it is counted.
    pub(super) fn may_wait(&mut self, account: u32) -> bool {
        let (all, most) = (self.late, self.late_max);
        let user = self.user(account);
        let may = user.late < share(most, all, user.late);
        user.late += usize::from(may);
        user.losses.late_lost += u64::from(!may);
        self.late += usize::from(may);
        may
    }

    /// Those that waited were fetched.
    pub(super) fn fetched(&mut self) {
        self.late = 0;
        self.all.values_mut().for_each(|user| user.late = 0);
    }

    /// Beginnings that still wait for their end.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Open> {
        self.all.values().flat_map(|user| user.matcher.waiting())
    }

    /// Threads of events that were missed.
    pub(super) fn missed_threads(&self) -> impl Iterator<Item = ThreadNumber> {
        self.all.values().flat_map(|user| &user.missed).map(|(_, thread)| *thread)
    }

    /// Forgets the descriptions of programs that have ended, now and then. `arrived`: events that are not paired yet.
    pub(super) fn sweep(&mut self, arrived: &[Arrived], now: MonotonicNs) {
        if !self.is_sweep_due || now.0.saturating_sub(self.swept.0) < SWEEP_NS {
            return;
        }
        (self.is_sweep_due, self.swept) = (false, now);
        for (account, user) in &mut self.all {
            let open = user.matcher.waiting().flat_map(Open::events).map(|event| event.class);
            let mine = arrived.iter().filter(|event| event.owner.account == *account);
            let in_use: HashSet<ClassId> = open.chain(mine.map(|event| event.class)).collect();
            let forgotten = user.classes.forget_ended(&in_use);
            forgotten.iter().for_each(|class| user.matcher.forget_class(*class));
            self.classes -= forgotten.len();
        }
    }

    /// What was left out, of each user of whom anything was.
    pub(super) fn losses(&self) -> Vec<SpanUserLosses> {
        let all = self.all.values();
        let losses =
            all.map(|user| SpanUserLosses { forgotten: user.matcher.forgotten(), ..user.losses.clone() });
        losses.filter(|losses| !losses.is_nothing()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_at_most_half_of_what_the_others_leave() {
        assert_eq!((share(8192, 0, 0), share(8192, 4096, 4096), share(8192, 4096, 0)), (4096, 4096, 2048));
        assert_eq!((share(8192, 9000, 0), share(8192, 9000, 4096)), (0, 1644));
    }

    #[test]
    fn only_other_users_on_the_account_of_root_are_told_apart() {
        assert_eq!(Owner::of(1000, 100_033), Owner::of(1000, 100_000));
        assert_eq!(Owner::of(0, 0).apart, None);
        assert_eq!(Owner::of(0, 100_033).apart, Some(100_033));
    }
}
