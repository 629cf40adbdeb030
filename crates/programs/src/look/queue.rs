// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Walks that wait for the thread that walks: users take turns.
//!
//! How long a walk takes is in the hands of whoever made its mount namespace, and he can have any number of them. So each user has a
//! share of the time: after a walk that took long his others wait, and those of other users do not. Users that are too many to be told
//! apart share what one has. Root has turns as all have, and no share.

use super::share::Share;
use super::walker::Walk;
use crate::budget::{WALKS_BURST, WALKS_LATE, WALKS_OF_USER, WALKS_USERS_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    One(u32),
    Others,
}

#[derive(Debug)]
struct WaitingWalk {
    walk: Walk,
    since: Instant,
    is_told: bool,
}

/// What is known of a user.
#[derive(Debug)]
struct Waiting {
    walks: VecDeque<WaitingWalk>,
    /// The time that his walks have taken.
    share: Share,
    /// The number of his last turn.
    turn: u64,
}

/// All walks that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    users: BTreeMap<Whose, Waiting>,
    turns: u64,
}

impl Queue {
    fn whose(&self, user: u32) -> Whose {
        let one = Whose::One(user);
        let is_known = user == 0 || self.users.contains_key(&one) || self.users.len() < WALKS_USERS_MAX;
        if is_known { one } else { Whose::Others }
    }

    fn of(&mut self, user: u32, now: Instant) -> &mut Waiting {
        let new = || Waiting { walks: VecDeque::new(), share: Share::new(now), turn: 0 };
        let whose = self.whose(user);
        self.users.entry(whose).or_insert_with(new)
    }

    /// Adds a walk, unless too many of its user's wait. Of one that waits already the processes are replaced.
    pub(super) fn ask(&mut self, walk: Walk, now: Instant) {
        let mut all = self.users.values_mut().flat_map(|user| &mut user.walks);
        if let Some(known) = all.find(|known| known.walk.is_same(&walk)) {
            (known.walk.pids, known.walk.do_all_answer) = (walk.pids, walk.do_all_answer);
            return;
        }
        let user = walk.user;
        let waiting = self.of(user, now);
        if user == 0 || waiting.walks.len() < WALKS_OF_USER {
            waiting.walks.push_back(WaitingWalk { walk, since: now, is_told: false });
        }
    }

    /// Takes the next walk: of the user whose last turn was longest ago, among those who have not used up their share and who `may`.
    pub(super) fn next(&mut self, now: Instant, may: impl Fn(u32) -> bool) -> Option<Walk> {
        self.users.retain(|_, user| !user.walks.is_empty() || !user.share.owed(now).is_zero());
        let place = |user: &Waiting| user.walks.iter().position(|waiting| may(waiting.walk.user));
        let mut able: Vec<(u64, Whose, usize)> = Vec::new();
        for (whose, user) in &self.users {
            if *whose == Whose::One(0) || user.share.owed(now) < WALKS_BURST {
                able.extend(place(user).map(|place| (user.turn, *whose, place)));
            }
        }
        let (_, whose, place) = able.into_iter().min()?;
        let user = self.users.get_mut(&whose)?;
        self.turns += 1;
        user.turn = self.turns;
        user.walks.remove(place).map(|waiting| waiting.walk)
    }

    /// A walk of this user has taken so long.
    pub(super) fn charge(&mut self, user: u32, now: Instant, time: Duration) {
        self.of(user, now).share.charge(now, time);
    }

    /// Drops walks to mount namespaces that are gone. Returns those of them that have waited for longer than `for_long`, and were not told.
    pub(super) fn retain(
        &mut self,
        now: Instant,
        for_long: Duration,
        is_there: impl Fn(u64) -> bool,
    ) -> Vec<Walk> {
        let mut missed = Vec::new();
        for user in self.users.values_mut() {
            user.walks.retain(|waiting| {
                let stays = is_there(waiting.walk.mounts);
                if !stays && !waiting.is_told && now.saturating_duration_since(waiting.since) >= for_long {
                    missed.push(waiting.walk.clone());
                }
                stays
            });
        }
        missed
    }

    /// Walks that wait for too long: each is told once.
    pub(super) fn late(&mut self, now: Instant) -> Vec<Walk> {
        let all = self.users.values_mut().flat_map(|user| &mut user.walks);
        let is_late = |waiting: &&mut WaitingWalk| {
            !waiting.is_told && now.saturating_duration_since(waiting.since) >= WALKS_LATE
        };
        let tell = |waiting: &mut WaitingWalk| {
            waiting.is_told = true;
            waiting.walk.clone()
        };
        all.filter(is_late).map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(400);

    /// Time goes on only by walks, each of which takes as long as its user's do.
    struct Simulation {
        queue: Queue,
        start: Instant,
        now: Duration,
        made: u64,
        /// Whose walk was over when.
        over: Vec<(u32, Duration)>,
    }

    impl Simulation {
        fn new() -> Simulation {
            let (queue, start) = (Queue::default(), Instant::now());
            Simulation { queue, start, now: Duration::ZERO, made: 0, over: Vec::new() }
        }

        fn ask(&mut self, user: u32) {
            self.made += 1;
            self.queue.ask(
                Walk { mounts: self.made, pids: vec![1], do_all_answer: true, owner: None, user },
                self.start + self.now,
            );
        }

        /// One walk, or a rest of 10 ms. Who walked asks for another walk.
        fn step(&mut self, takes: impl Fn(u32) -> Duration) {
            let Some(walk) = self.queue.next(self.start + self.now, |_| true) else {
                self.now += Duration::from_millis(10);
                return;
            };
            self.now += takes(walk.user);
            self.queue.charge(walk.user, self.start + self.now, takes(walk.user));
            self.over.push((walk.user, self.now));
            self.ask(walk.user);
        }

        fn until(&mut self, end: Duration, takes: impl Fn(u32) -> Duration) {
            while self.now < end {
                self.step(&takes);
            }
        }
    }

    fn takes(user: u32) -> Duration {
        if user == 1000 { SLOW } else { Duration::from_micros(50) }
    }

    #[test]
    fn whose_walks_take_long_delays_others_by_one_of_them() {
        let mut all = Simulation::new();
        (0..40).for_each(|_| all.ask(1000));
        all.until(Duration::from_secs(20), takes);
        for user in [1001, 0] {
            let asked = all.now;
            all.ask(user);
            all.until(asked + SLOW * 2, takes);
            let over = all.over.iter().find(|(whose, _)| *whose == user).expect("it had a turn").1;
            assert!(over - asked <= SLOW + Duration::from_millis(1), "{user}: {:?}", over - asked);
        }
    }

    #[test]
    fn a_user_has_a_tenth_of_the_time_and_root_what_it_needs() {
        let mut all = Simulation::new();
        (0..10).for_each(|_| all.ask(1000));
        all.until(Duration::from_secs(100), takes);
        let of_user = SLOW * u32::try_from(all.over.len()).expect("few");
        assert!((9..=11).contains(&of_user.as_secs()), "{of_user:?} of 100 s");
        let mut all = Simulation::new();
        all.ask(0);
        all.until(Duration::from_secs(100), |_| SLOW);
        assert_eq!(all.over.len(), 250);
    }

    #[test]
    fn a_user_with_many_numbers_has_a_share_that_does_not_grow() {
        let mut all = Simulation::new();
        (1..=1000).for_each(|number| all.ask(1000 + number));
        assert!(all.queue.users.len() <= WALKS_USERS_MAX + 1, "{}", all.queue.users.len());
        // All others have one turn in a round.
        for _ in 0..2 * (WALKS_USERS_MAX + 1) {
            all.step(|_| Duration::from_micros(1));
        }
        let last = u32::try_from(WALKS_USERS_MAX).expect("few") + 1000;
        assert_eq!(all.over.iter().filter(|(user, _)| *user > last).count(), 2);
    }

    #[test]
    fn what_waits_for_long_or_in_vain_is_told_once() {
        let mut all = Simulation::new();
        (0..5).for_each(|_| all.ask(1000));
        let at = |time: Duration| all.start + time;
        assert!(all.queue.late(at(WALKS_LATE - SLOW)).is_empty());
        let told = all.queue.late(at(WALKS_LATE));
        assert_eq!(
            told.iter().map(|walk| (walk.user, walk.mounts)).collect::<Vec<_>>(),
            [(1000, 1), (1000, 2), (1000, 3), (1000, 4), (1000, 5)]
        );
        assert!(all.queue.late(at(WALKS_LATE * 2)).is_empty(), "once");
        let later = at(WALKS_LATE * 3);
        let second = Duration::from_secs(1);
        all.queue.ask(Walk { mounts: 6, pids: vec![1], do_all_answer: true, owner: None, user: 1000 }, later);
        all.queue.ask(
            Walk { mounts: 7, pids: vec![1], do_all_answer: true, owner: None, user: 1000 },
            later + second,
        );
        let missed = all.queue.retain(later + second, second, |_| false);
        assert_eq!(
            missed.iter().map(|walk| walk.mounts).collect::<Vec<_>>(),
            [6],
            "the others were told, or just made"
        );
        assert!(all.queue.next(later, |_| true).is_none(), "nothing is left");
    }

    #[test]
    fn what_waits_already_is_not_asked_for_twice_and_has_the_newest_processes() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let walk = |mounts: u64, pid: u32, user: u32| Walk {
            mounts,
            pids: vec![pid],
            do_all_answer: true,
            owner: None,
            user,
        };
        queue.ask(walk(1, 10, 1000), now);
        queue.ask(walk(1, 11, 1000), now);
        queue.ask(walk(2, 12, 1001), now);
        // The number of a namespace that is gone may be another user's now.
        queue.ask(walk(2, 13, 1002), now);
        assert_eq!(queue.next(now, |user| user == 1002).map(|walk| walk.pids), Some(vec![13]));
        // One who may not waits, and nobody waits for him.
        assert_eq!(queue.next(now, |user| user != 1000).map(|walk| walk.pids), Some(vec![12]));
        assert_eq!(queue.next(now, |_| true).map(|walk| walk.pids), Some(vec![11]));
        assert!(queue.next(now, |_| true).is_none());
        (0..1000).for_each(|number| queue.ask(walk(100 + number, 1, 1000), now));
        assert_eq!(std::iter::from_fn(|| queue.next(now, |_| true)).count(), WALKS_OF_USER);
    }
}
